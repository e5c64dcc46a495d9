"""Deletes and updates by a condition.

The rows are found as a scan finds them, and their positions go straight into deletion vectors: no key is looked up.  Rows that others
upsert meanwhile are not seen, as if they came later; but whoever has chosen rows by a condition starts again after an update
by another one, so that two of them end as one after the other.  In a file group of which it changes rows it goes on beside upserts and deletes
if they end none of these, and the bounds of what they add prove that no new row matches: so it is as if it came after them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from indexes.hashing import hash_keys
from indexes.predicate import Predicate
from mdt.commit.conflicts import UPDATE_WHERE, Footprint
from mdt.commit.operation import Changes, Claim, Operation, WritePlan
from mdt.config import Options
from mdt.errors import Conflict
from mdt.hudi.arrays import plain
from mdt.hudi.schema import RECORD_KEY
from mdt.metadata.added_rows import may_match
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot import Snapshot
from mdt.progress import Progress
from mdt.scan.matches import Places, matching_rows
from mdt.scan.reader import read_at
from mdt.write.assign import Assignment, assign
from mdt.write.deletes import of_rows
from mdt.write.files import WriteJob
from mdt.write.normalize import keyed_rows
from mdt.write.operations import write_slices
from mdt.write.setting import Setting
from mdt.write.slices import Keys, Slice


@dataclass(frozen=True, slots=True)
class ConditionalPlan(WritePlan):
    """``rows``: file group -> the rows of it that match, by file, as :func:`mdt.scan.matches.matching_rows` returns them."""

    rows: Mapping[int, Sequence[Places]] = field(default_factory=dict)
    work: Sequence[Assignment] = ()


@dataclass(frozen=True, slots=True)
class Conditional(Operation[ConditionalPlan]):
    """What both operations share.  ``predicate``: And(()) for every row.  ``schema``: the columns of the table as the condition was read.  ``setting``: of an update, what rows become; None: they go.

    ``progress`` is called with the number of written files and of all.
    """

    metadata: Metadata
    options: Options
    predicate: Predicate
    schema: pa.Schema
    action: str
    setting: Setting | None = None
    progress: Progress | None = None

    @property
    def name(self) -> str:  # type: ignore[override]
        """What the history calls it."""
        return "delete_where" if self.setting is None else UPDATE_WHERE

    def prepare(self, snapshot: Snapshot, txn: str) -> ConditionalPlan:
        """Return which rows match.  Raises Conflict if the columns were altered meanwhile."""
        if not snapshot.definition.schema.equals(self.schema):
            raise Conflict("the columns of the table were altered meanwhile", hint="ask again")
        found = matching_rows(self.metadata, snapshot, self.predicate, threads=self.options.threads("reader"))
        groups = snapshot.file_groups
        rows: dict[int, list[Places]] = {}
        of_files = groups.of_files(np.array([file for file, _ in found], np.int64)).tolist()
        for group, places in zip(of_files, found, strict=True):
            rows.setdefault(group, []).append(places)
        work = assign(
            snapshot, self.options, can_index_log_files=True, touched=rows, returns=(), inserts={},
            rewritten=rows if self._may_fall(snapshot) else (),
        )  # fmt: skip
        count = sum(len(positions) for _, positions in found)
        counts = {"updated" if self.setting else "deleted": count}
        may_choose = partial(may_match, predicate=self.predicate, definition=snapshot.definition)
        footprint = Footprint(txn, frozenset(groups.names(sorted(rows))), conditional=True, may_choose=may_choose)
        partitions = sorted({one.partition for one in work})
        return ConditionalPlan(footprint, partitions, counts, bool(work), rows, work, left={})

    def _may_fall(self, snapshot: Snapshot) -> bool:
        """Return whether rows may get a smaller ordering value: of a log file Hudi's readers would take them for late."""
        return self.setting is not None and snapshot.definition.ordering in self.setting.names

    def write(self, snapshot: Snapshot, plan: ConditionalPlan, claim: Claim) -> Changes:
        """Write the next file of each file group."""
        shared = WriteJob.of(self.metadata, snapshot, self.options, claim)
        changes = write_slices(shared, plan.work, lambda one: self._slice(snapshot, plan, one), self.progress)
        if self.setting is not None or not snapshot.definition.keeps_deletes:
            return changes
        places = [one for rows in plan.rows.values() for one in rows]
        file = np.repeat(np.array([file for file, _ in places], np.int64), [len(positions) for _, positions in places])
        position = np.concatenate([positions for _, positions in places])
        threads = self.options.threads("reader")
        return replace(changes, tombstones=of_rows(self.metadata, snapshot, file, position, threads=threads))

    def _slice(self, snapshot: Snapshot, plan: ConditionalPlan, one: Assignment) -> Slice:
        rows = plan.rows[one.group]
        dead = {file: BitMap(positions.astype(np.uint32)) for file, positions in rows}
        if self.setting is None:
            keys = self._keys(snapshot, rows) if one.is_log else None
            return Slice(one.partition, one.group, one.is_log, dead=dead, deleted=keys)
        new = keyed_rows(
            self.setting.of(self._read(snapshot, rows, snapshot.definition.schema.names)), snapshot.definition
        )
        return Slice(one.partition, one.group, one.is_log, new=new, updates=len(new), dead=dead)

    def _keys(self, snapshot: Snapshot, rows: Sequence[Places]) -> Keys:
        keys = plain(self._read(snapshot, rows, [RECORD_KEY])[RECORD_KEY])
        return Keys(keys, hash_keys(keys, snapshot.definition.hash_seed))

    def _read(self, snapshot: Snapshot, rows: Sequence[Places], names: Sequence[str]) -> pa.Table:
        return read_at(self.metadata, snapshot, rows, names, threads=1)[0].select(names)
