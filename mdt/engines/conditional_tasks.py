"""Conditional deletes and updates on an engine: the driver plans and commits, tasks evaluate the
condition and write file groups.

Tasks return the matching rows as a bitmap per file, like deletion vectors.
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
from mdt.engines.tasks import Source, open_table, source_of
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.plan.planner import SegmentScan, plan
from mdt.scan.matches import matching_of
from mdt.write.conditional import Conditional, Matches, Part, write_parts
from mdt.write.new_files import WriteJob


def find_matches(
    source: Source, predicate: Predicate, scans: Sequence[SegmentScan], attempt: int
) -> dict[int, bytes]:
    """Return the matching rows: file -> serialized bitmap of positions."""
    metadata, snapshot = open_table(source)
    matches = matching_of(metadata, snapshot, predicate, scans, threads=1)
    return {file: BitMap(rows.astype("uint32")).serialize() for file, rows in matches}


@dataclass(frozen=True, slots=True)
class EngineConditional(Conditional):
    """A conditional delete or update whose rows are evaluated and written in tasks of
    ``engine``.
    """

    engine: Engine[Any] = field(kw_only=True)

    def find_matches(self, snapshot: Snapshot) -> Matches:
        """Return the matching rows. No file is read if the condition is always true or always
        false.
        """
        predicate = simplify(self.predicate)
        if predicate in (And(()), Or(())):
            return Conditional.find_matches(self, snapshot)
        scans = plan(self.metadata, snapshot, predicate).segments
        source = source_of(self.metadata, snapshot, self.options)
        task = partial(find_matches, source, predicate)
        matches: Mapping[int, BitMap] = {
            file: BitMap.deserialize(rows)
            for share_matches in self.engine.map_shares(task, shares(self.engine, scans))
            for file, rows in share_matches.items()
        }
        return matches

    def write_groups(self, shared: WriteJob, changes: Sequence[Part]) -> Changes:
        """Write the files of ``changes`` in tasks."""
        return EngineRewrite(self.engine)(
            shared, partial(write_parts, self.setting), changes, self.progress
        )
