"""Table version 9, which Hudi 1.1 and newer and hudi-rs read. See
:data:`mdt.hudi.layout.Layout`.

A completed instant has the time of its completion in its name. A log file has the instant of its
own commit in its name, and belongs to the newest base file that was requested before this commit
completed. Instants are Avro files in a directory of their own, and old ones are moved to a history
of Parquet files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from mdt.errors import Corrupt
from mdt.hudi import avro_bodies, commit_metadata, properties
from mdt.hudi.commit_metadata import CLUSTER
from mdt.hudi.file_names import HUDI
from mdt.hudi.read.table_properties import COMMIT_TIME, EVENT_TIME
from mdt.hudi.timeline import (
    ACTIONS,
    COMPLETED,
    REQUESTED,
    Archive,
    Instant,
    InstantContent,
)
from mdt.hudi.v6 import Version6

if TYPE_CHECKING:
    from mdt.hudi.commit_metadata import CommitMetadata
    from mdt.schema.definition import TableDefinition

_OF_VERSION_6 = (
    "hoodie.compaction.payload.class",
    "hoodie.table.keygenerator.class",
    "hoodie.table.precombine.field",
)
_GENERATOR = "hoodie.table.keygenerator.type"
_ARCHIVE = "hoodie.archivelog.folder"
_INITIAL = "hoodie.table.initial.version"
_GENERATORS = {
    "Simple": "SIMPLE",
    "Complex": "COMPLEX",
    "Nonpartitioned": "NON_PARTITION",
    "TimestampBased": "TIMESTAMP",
}
"""Kind of key generator in the names of Hudi's classes -> its name in version 9."""

_NAME = re.compile(
    r"([0-9]{17}|[0-9]{14})(?:_([0-9]{17}|[0-9]{14}))?\.([a-z]+)(?:\.(requested|inflight))?"
)
_CLASS = re.compile(r".*\.([A-Za-z]+)KeyGenerator")


class Version9(Version6):
    """The layout of table version 9: what differs from version 6."""

    version = 9
    versions: Sequence[int] = (9,)
    has_completions = True
    has_positions = True
    timeline = f"{HUDI}/timeline"
    archive = f"{timeline}/history"
    archived_actions: AbstractSet[str] = Version6.archived_actions | {"clean", "indexing"}
    """A restore and a savepoint have the time of a commit, and the history has a row per time."""
    decisive: Sequence[str] = (
        *(name for name in properties.DECISIVE if name not in _OF_VERSION_6),
        "hoodie.record.merge.mode",
        "hoodie.table.ordering.fields",
        _GENERATOR,
    )

    def path_of(self, instant: Instant) -> str:
        """Return the path of an instant's file.

        An instant from before an upgrade has no completion time, and is given that of its request.
        A log file then belongs to the base file whose instant it has in its name.

        >>> Version9().path_of(
        ...     Instant("20240229120000123", "commit", "completed", "20240229120000456")
        ... )
        '.hoodie/timeline/20240229120000123_20240229120000456.commit'
        """
        if instant.state != COMPLETED:
            return super().path_of(instant)
        completion = instant.completion or instant.time
        return f"{self.timeline}/{instant.time}_{completion}.{instant.action}"

    def instant_at(self, path: str) -> Instant | None:
        """Return the instant of the file at ``path``, or None.

        >>> Version9().instant_at(
        ...     ".hoodie/timeline/20240229120000123_20240229120000456.commit"
        ... ).completion
        '20240229120000456'
        """
        folder, _, name = path.rpartition("/")
        match = _NAME.fullmatch(name)
        if match is None or folder != self.timeline:
            return None
        time, completion, action, state = match.groups()
        if completion is None:
            return super().instant_at(path)
        if action not in ACTIONS or state is not None:
            return None
        return Instant(time, action, COMPLETED, completion)

    def log_instant(self, base_instant: str, time: str) -> str:
        """Return the instant of the log file's own commit."""
        return time

    def log_version(self, last: int) -> int:
        """Return 1, because each log file of a slice has another instant."""
        return 1

    def marker(self, path: str) -> str:
        """Return the name of a marker, which is the same for base files and log files."""
        return f"{path}.marker.CREATE"

    def properties(self, definition: TableDefinition) -> dict[str, str]:
        """Return the content of ``hoodie.properties``."""
        entries = super().properties(definition)
        kind = _CLASS.fullmatch(entries["hoodie.table.keygenerator.class"])
        assert kind is not None, entries
        ordering = entries.get("hoodie.table.precombine.field")
        if ordering is not None:
            entries["hoodie.table.ordering.fields"] = ordering
        return {name: value for name, value in entries.items() if name not in _OF_VERSION_6} | {
            _ARCHIVE: "history",
            "hoodie.record.merge.mode": COMMIT_TIME if ordering is None else EVENT_TIME,
            "hoodie.table.format": "native",
            _GENERATOR: _GENERATORS[kind[1]],
            _INITIAL: "9",
            "hoodie.timeline.history.path": "history",
            "hoodie.timeline.path": "timeline",
            properties.VERSION: "9",
            properties.LAYOUT: "2",
        }

    def completed_body(self, time: str, metadata: CommitMetadata) -> bytes:
        """Return the Avro content of a completed instant.

        The statistics of a log file name this file only, and not its slice.
        """
        return self._body(time, commit_metadata.commit_fields(metadata))

    def _body(self, time: str, fields: dict[str, Any]) -> bytes:
        for stats in fields["partitionToWriteStats"].values():
            for stat in stats:
                if "logVersion" in stat:
                    name = stat["path"].rpartition("/")[2]
                    stat |= {"prevCommit": time, "baseFile": "", "logFiles": [name]}
        return avro_bodies.commit_body.encode(fields)

    def extra(self, body: bytes) -> Mapping[str, str]:
        """Return the private entries of any writer's completed instant."""
        return avro_bodies.commit_body.decode_extra(body)

    def upgraded(self, instant: Instant, body: bytes) -> tuple[str, bytes]:
        """Return (path, content) of an instant of version 6. Commits are converted to Avro. Those
        in flight become empty, because Hudi's downgrade cannot read their JSON.

        Raises Corrupt for a commit that is not JSON.
        """
        path = self.path_of(instant)
        if instant.action not in Version6.archived_actions or instant.state == REQUESTED:
            return path, body
        if instant.state != COMPLETED:
            return path, b""
        try:
            fields = json.loads(body)
            return path, self._body(instant.time, fields)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise Corrupt(
                f"Hudi's {instant.action} at {instant.time} has invalid commit metadata: {error!r}"
            ) from error

    def upgraded_properties(
        self, stored: Mapping[str, str], definition: TableDefinition
    ) -> dict[str, str]:
        """Return the properties of a table of version 6 as those of this version."""
        changed = {*_OF_VERSION_6, properties.VERSION, properties.LAYOUT, _ARCHIVE}
        kept = {name: value for name, value in stored.items() if name not in changed}
        first = stored.get(_INITIAL, "6")
        return {**self.properties(definition), **kept, _INITIAL: first}

    def planned_action(self, action: str, operation: str) -> str:
        """Return ``clustering`` for a clustering, which completes as a replacecommit."""
        return "clustering" if operation == CLUSTER else action

    def superseded(self, time: str, action: str, operation: str) -> Sequence[str]:
        """Return the pending instants that announced a compaction or clustering.

        Hudi's archiving removes those of one action, and takes the others for a dead writer's.
        """
        if action == "compaction" or operation == CLUSTER:
            return self.retracted(time, action)
        return ()

    def archived(
        self,
        existing: Sequence[str],
        read: Callable[[str], bytes],
        instants: Sequence[InstantContent],
    ) -> Archive:
        """Return a Parquet file with the instants, and a manifest with all valid files."""
        return avro_bodies.history_files.add(self.archive, existing, read, instants)

    def archive_pointer(self, existing: Sequence[str]) -> tuple[str, bytes] | None:
        """Return the object with the number of the newest manifest."""
        return avro_bodies.history_files.pointer(self.archive, existing)


class Version8(Version9):
    """The layout of table version 8, which Hudi 1.0 writes. It differs from version 9 in properties
    and in Hudi's metadata table only, so mdt adopts such tables and creates none.
    """

    version = 8
    versions: Sequence[int] = (8, 9)
