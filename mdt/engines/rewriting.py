"""Compaction and clustering on an engine: each task rewrites units, with an object for its
summaries, and the driver commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from mdt.commit.operation import Changes
from mdt.engines import tasks
from mdt.engines.engine import Engine
from mdt.engines.results import drop_lost_attempts, merge_changes, shares
from mdt.engines.tasks import source_of
from mdt.progress import Progress
from mdt.services.layout.rewriting import Rewrite
from mdt.write.new_files import WriteJob
from mdt.write.transfer import decode


@dataclass(frozen=True, slots=True)
class EngineRewrite:
    """A :class:`mdt.services.layout.rewriting.RewriteRunner` on an engine."""

    engine: Engine[Any]

    def __call__(
        self,
        shared: WriteJob,
        rewrite: Rewrite[Any],
        units: Sequence[Any],
        progress: Progress | None,
    ) -> Changes:
        """Rewrite the units ``units`` in tasks. ``progress`` is called once, when all of them have
        ended.
        """
        source = source_of(shared.metadata, shared.snapshot, shared.options)
        task = partial(tasks.rewrite, source, shared.claim, rewrite)
        results = self.engine.map_shares(task, shares(self.engine, units))
        changes = merge_changes([decode(data, extra) for data, extra in results])
        partitions = sorted({file.partition for file in changes.files})
        drop_lost_attempts(shared.metadata.storage, shared.claim, partitions, changes)
        if progress is not None:
            progress(len(units), len(units))
        return changes
