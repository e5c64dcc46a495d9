"""Index builds on an engine: tasks summarize files, each into an object of its own, and the driver
commits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from mdt.commit.operation import Claim
from mdt.config import Options
from mdt.engines import tasks
from mdt.engines.engine import Engine
from mdt.engines.results import shares
from mdt.engines.tasks import source_of
from mdt.metadata.files import paths
from mdt.metadata.files.file_group import SummaryRef
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.log_tail import summary_of
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.services.indexing.index_builder import ShardSummaries, UncoveredShard


@dataclass(frozen=True, slots=True)
class IndexRunner:
    """A :data:`mdt.services.indexing.index_builder.Runner` on an engine."""

    engine: Engine[Any]

    def __call__(
        self,
        metadata: Metadata,
        options: Options,
        snapshot: Snapshot,
        shards: Sequence[UncoveredShard],
        claim: Claim,
    ) -> Iterator[tuple[UncoveredShard, ShardSummaries]]:
        """Summarize ``shards`` in tasks. Yields when all of them have ended."""
        source = source_of(metadata, snapshot, options)
        task = partial(tasks.summarize, source, claim)
        refs: dict[int, dict[str, SummaryRef]] = {}
        used = set()
        for summaries in self.engine.map_shares(task, shares(self.engine, shards)):
            for row in summaries.to_pylist():
                data = summary_of(row)
                assert data is not None, "a task returns summaries"
                refs.setdefault(row["shard"], {})[row["index"]] = data
                used.add(row["path"])
        stored = metadata.storage.list(paths.attachments_of(claim.instant))
        # Delete the files of lost attempts.
        metadata.storage.delete_many([info.path for info in stored if info.path not in used])
        yield from ((shard, refs.get(shard.shard, {})) for shard in shards)
