"""Removal of Hudi's metadata table of a table that Hudi's writers share.

Hudi's next writer makes it again, each partition at an instant of its own. But if the newest
completed action of the table is the build of an index, Hudi 1.2 makes all of them at the instant of
this action, where each one replaces the last, and its readers then miss files. Such a table
gets a commit without files first.

Source: Apache Hudi 1.2, ``HoodieBackedTableMetadataWriter.generateUniqueInstantTime``.
"""

from __future__ import annotations

from dataclasses import dataclass

from mdt.commit import hudi_locks, publish
from mdt.commit.conflicts import Footprint
from mdt.commit.metadata_partitions import remove_metadata_table
from mdt.commit.operation import WITHOUT_FILES, Changes, Claim, Operation, WritePlan
from mdt.commit.transaction import run
from mdt.hudi.read.loading import load_properties, load_timeline
from mdt.hudi.timeline import COMPLETED
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class CommitWithoutFiles(Operation[WritePlan]):
    """A commit after the build of an index."""

    metadata: Metadata
    action: str
    name: str = WITHOUT_FILES

    def prepare(self, snapshot: Snapshot, txn: str) -> WritePlan:
        """Return a plan, which is needed if the newest completed action has built an index."""
        storage = self.metadata.storage
        files = load_timeline(storage, load_properties(storage)).files
        completed = [file for file in files if file.state == COMPLETED]
        newest = max(completed, key=lambda file: file.time, default=None)
        if newest is None or newest.action != "indexing":
            return WritePlan(Footprint(txn), is_needed=False)
        # a commit of a dead writer would be published, too, which the metadata table lacks
        is_needed = publish.published_snapshot(self.metadata, snapshot) is snapshot
        return WritePlan(Footprint(txn), is_needed=is_needed, after=newest.time)

    def write(self, snapshot: Snapshot, plan: WritePlan, claim: Claim) -> Changes:
        """Write nothing."""
        return Changes()


def remove(metadata: Metadata, snapshot: Snapshot) -> None:
    """Remove the metadata table, because commits of ours cannot keep all of its partitions.

    Raises Unsupported if they are in use: Hudi's writers in flight would continue a table that is
    gone. Raises Corrupt if the properties cannot be read, Conflict, and Unavailable.
    """
    definition = snapshot.definition
    run(metadata, CommitWithoutFiles(metadata, definition.commit_action))
    with hudi_locks.locked(metadata, definition):
        if metadata.options(definition).lock_provider:
            hudi_locks.require_no_writers(metadata)
        remove_metadata_table(metadata)
