"""Deletes and updates by a condition on an engine: the driver plans, tasks test the rows of files,
and write file groups; the driver commits.

Which rows match comes to the driver as a bitmap of each file, as deletion vectors do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyroaring import BitMap

from indexes.predicate import And, Or, Predicate, simplify
from mdt.commit.operation import Changes
from mdt.engines.engine import Engine
from mdt.engines.results import shares
from mdt.engines.rewriting import EngineRewrite
from mdt.engines.tasks import Source, opened, source_of
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.plan.planner import SegmentScan, plan
from mdt.scan.matches import matching_of
from mdt.write.conditional import Conditional, Matches, Part, written
from mdt.write.new_files import WriteJob


def tested(
    source: Source, predicate: Predicate, scans: Sequence[SegmentScan], attempt: int
) -> dict[int, bytes]:
    """Return which rows of files match: file -> bitmap of positions."""
    metadata, snapshot = opened(source)
    found = matching_of(metadata, snapshot, predicate, scans, threads=1)
    return {file: BitMap(rows.astype("uint32")).serialize() for file, rows in found}


@dataclass(frozen=True, slots=True)
class EngineConditional(Conditional):
    """A delete or an update by a condition, whose rows are tested and written in tasks of
    ``engine``.
    """

    engine: Engine[Any] = field(kw_only=True)

    def found(self, snapshot: Snapshot) -> Matches:
        """Return the rows that match; where every row does, or none, no file is looked into."""
        asked = simplify(self.predicate)
        if asked in (And(()), Or(())):
            return Conditional.found(self, snapshot)
        scans = plan(self.metadata, snapshot, asked).segments
        source = source_of(self.metadata, snapshot, self.options)
        task = partial(tested, source, asked)
        found: Mapping[int, BitMap] = {
            file: BitMap.deserialize(rows)
            for one in self.engine.each(task, shares(self.engine, scans))
            for file, rows in one.items()
        }
        return found

    def written(self, shared: WriteJob, work: Sequence[Part]) -> Changes:
        """Write the files of ``work`` in tasks."""
        return EngineRewrite(self.engine)(
            shared, partial(written, self.setting), work, self.progress
        )
