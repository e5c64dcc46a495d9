"""Restoring: one commit after which the table has the rows of an earlier state.

What changed since that state is undone: rows that came leave, rows that died come back, as they were then.  Nothing that lies between
is forgotten, so a restore is itself undone by restoring the state before it.  It costs what has changed, not what the table has; but where
cleaning has left nothing but the state itself, which has a tag, whatever was moved since counts as changed.

Rows that come back are written by this commit, and have its commit time: whoever follows the table sees them.  Where an ordering
field decides, they may have smaller values than the rows that they replace, so their file groups get new base files: of a
log file Hudi's readers would take them for late.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from indexes.base import Int64Array
from mdt.commit.operation import Changes, Claim, Operation
from mdt.config import Options
from mdt.errors import Unsupported
from mdt.hudi.schema import PARTITION_PATH, RECORD_KEY
from mdt.metadata.locate import Located
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot import Snapshot
from mdt.progress import Progress
from mdt.scan.changed_rows import ChangedRows, rows_at
from mdt.scan.difference import rows_beside
from mdt.scan.history_range import DELETE, INSERT, UPDATE_BEFORE, history_range
from mdt.write.assign import Assignment, assign
from mdt.write.files import WriteJob
from mdt.write.normalize import Batch, stored_batch
from mdt.write.operations import (
    STORED_SHARE,
    RowPlan,
    absent_keys,
    by_value,
    footprint_of,
    inserts_of,
    locate_batch,
    new_here,
    new_partitions,
    partition_names,
    partitions_of,
    write_slices,
)

_KEY = [RECORD_KEY, PARTITION_PATH]
"""Meta columns that say which row a row is."""
_AT = "_at"


@dataclass(frozen=True, slots=True)
class Restore(Operation[RowPlan]):
    """The operation.  ``state``: from the newest snapshot to the seq of the state that shall be again.

    ``progress`` is called with the number of written files and of all.
    """

    metadata: Metadata
    options: Options
    state: Callable[[Snapshot], int]
    action: str
    progress: Progress | None = None
    name: str = "restore"

    def prepare(self, snapshot: Snapshot, txn: str) -> RowPlan:
        """Return the plan.  Raises Invalid for a state that is not there, Expired for one that was cleaned."""
        seq = self.state(snapshot)
        old = self.metadata.at(seq)
        if not old.definition.schema.equals(snapshot.definition.schema):
            raise Unsupported(
                f"the columns of the table were altered since commit {seq}",
                hint="read that state with as_of, and write what is wanted of it",
            )
        batch, came_back = self._undone(snapshot, old)
        located = locate_batch(self.metadata, snapshot, batch)
        fates = _fates(snapshot, batch, located, came_back)
        work = self._assigned(snapshot, batch, fates)
        absent = np.flatnonzero(~located.found[:came_back])
        footprint = footprint_of(
            snapshot, txn, located, work, absent_keys(batch, absent, snapshot.definition.is_global)
        )
        counts = {
            "inserted": int((~located.found[:came_back]).sum()),
            "updated": int(located.found[:came_back].sum()),
            "deleted": len(batch) - came_back,
        }
        return RowPlan(
            replace(footprint, everything=True), partitions_of(work), counts, bool(work), work, located,
            fates.updates, fates.deletes, fates.returns, fates.inserts, batch,
        )  # fmt: skip

    def _undone(self, snapshot: Snapshot, old: Snapshot) -> tuple[Batch, int]:
        """Return the rows that come back, then those that leave, and how many of the former there are."""
        definition = snapshot.definition
        is_told = old.seq >= snapshot.retention.horizon
        back, gone = (self._told if is_told else self._compared)(snapshot, old)
        table = pa.concat_tables([part.cast(definition.schema) for part in (back, gone)]).combine_chunks()
        return stored_batch(table, definition), len(back)

    def _told(self, snapshot: Snapshot, old: Snapshot) -> tuple[pa.Table, pa.Table]:
        """Return the rows that come back and those that leave, by what the records since ``old`` say."""
        schema = snapshot.definition.schema
        of = history_range(self.metadata, old.seq, snapshot.seq)
        reader = ChangedRows(self.metadata, of, True, schema.names, None, self.options.threads("reader"))
        back, gone = [schema.empty_table()], [schema.empty_table()]
        for changed, rows in reader.tables():
            for kinds, found in (((DELETE, UPDATE_BEFORE), back), ((INSERT,), gone)):
                found.append(rows.filter(pa.array(np.isin(changed.kind, kinds))).cast(schema))
        return pa.concat_tables(back), pa.concat_tables(gone)

    def _compared(self, snapshot: Snapshot, old: Snapshot) -> tuple[pa.Table, pa.Table]:
        """Return the same by the two states, where no record says it.  Rows that only moved come back, too, as they are."""
        names, threads = snapshot.definition.schema.names, self.options.threads("reader")
        back, gone = (
            rows_at(self.metadata, state, *rows_beside(state, other), [*names, *_KEY], threads=threads)
            for state, other in ((old, snapshot), (snapshot, old))
        )
        scope = _KEY[:1] if snapshot.definition.is_global else _KEY
        left = gone.append_column(_AT, pa.array(np.arange(len(gone)))).select([*scope, _AT])
        left = left.join(back.select(scope), scope, join_type="left anti")
        return back.select(names), gone.select(names).take(pa.array(np.sort(left[_AT].to_numpy())))

    def _assigned(self, snapshot: Snapshot, batch: Batch, fates: _Fates) -> list[Assignment]:
        """Return what each file group takes."""
        return assign(
            snapshot,
            self.options,
            can_index_log_files=self.metadata.key_index(snapshot).can_index_log_files,
            touched={*fates.updates, *fates.deletes},
            returns=fates.returns,
            inserts={partition: len(part) for partition, part in fates.inserts.items()},
            row_bytes_hint=STORED_SHARE * batch.table.nbytes / max(1, len(batch)),
            rewritten=fates.updates if snapshot.definition.ordering is not None else (),
        )

    def write(self, snapshot: Snapshot, plan: RowPlan, claim: Claim) -> Changes:
        """Write the files of ``plan``."""
        assert plan.batch is not None, "a plan has its rows"
        shared = WriteJob.of(self.metadata, snapshot, self.options, claim)
        new_partitions(self.metadata, snapshot, claim, plan.partitions)
        return write_slices(shared, plan.work, partial(plan.slice_of, plan.batch), self.progress)


@dataclass(frozen=True, slots=True)
class _Fates:
    """Rows of a batch by what becomes of them, as in :class:`mdt.write.operations.RowPlan`."""

    updates: Mapping[int, Int64Array]
    deletes: Mapping[int, Int64Array]
    returns: Mapping[int, Int64Array]
    inserts: Mapping[str, Int64Array]


def _fates(snapshot: Snapshot, batch: Batch, located: Located, came_back: int) -> _Fates:
    """Return what becomes of the rows of ``batch``, of which the first ``came_back`` come back and the others leave."""
    is_back, moved = np.arange(len(batch)) < came_back, np.zeros(len(batch), np.bool_)
    if snapshot.definition.is_global and len(snapshot):
        there = snapshot.file_groups.partitions(located.group)
        moved = is_back & located.found & np.asarray(there != partition_names(batch))
    replaced = np.flatnonzero(is_back & located.found & ~moved)
    ended = np.flatnonzero((~is_back & located.found) | moved)
    fresh, returning = (rows[is_back[rows]] for rows in new_here(located, moved))
    return _Fates(
        by_value(replaced, located.group[replaced]),
        by_value(ended, located.group[ended]),
        by_value(returning, located.dead_in[returning]),
        inserts_of(batch, fresh),
    )
