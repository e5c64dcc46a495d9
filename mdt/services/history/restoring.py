"""Restoring: one commit after which the table has the rows of an earlier state.

What changed since that state is undone: rows that came leave, rows that died come back, as they
were then.  Nothing that lies between is forgotten, so a restore is itself undone by restoring the
state before it.  It costs what has changed, not what the table has; but where cleaning has left
nothing but the state itself, which has a tag, or where the columns were altered since, whatever was
moved counts as changed.  The columns are those of that state again
(:func:`mdt.schema.alter.altered_back`): no row is left in a file that is newer.

Rows that come back are written by this commit, and have its commit time: whoever follows the table
sees them.  Where an ordering field decides, they may have smaller values than the rows that they
replace, so their file groups get new base files: of a log file Hudi's readers would take them for
late.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from mdt.commit.operation import Changes, Claim, Operation
from mdt.config import Options
from mdt.errors import Unsupported
from mdt.hudi.avro_schema import PARTITION_PATH, RECORD_KEY
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.apply import change_of
from mdt.metadata.snapshot.deleted_keys import undone
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.progress import Progress
from mdt.scan.changed_rows import ChangedRows
from mdt.scan.difference import rows_beside
from mdt.scan.history_range import DELETE, INSERT, UPDATE_BEFORE, history_range
from mdt.scan.lookup import KeyRows, rows_at
from mdt.schema.alter import altered_back
from mdt.schema.convert import with_nulls
from mdt.schema.definition import TableDefinition
from mdt.schema.older_files import form_between
from mdt.schema.versions import SchemaVersion
from mdt.services.history.altering import alteration_fields, index_changes, is_unaltered
from mdt.write.new_files import WriteJob
from mdt.write.normalize import Batch, partition_names, stored_batch
from mdt.write.operations import DecidedHere, RowPlan, planned, write_rows
from mdt.write.rules import Outcome, locate_batch, new_here

_KEY = [RECORD_KEY, PARTITION_PATH]
"""Meta columns that say which row a row is."""
_AT = "_at"


@dataclass(frozen=True, slots=True)
class RestorePlan(RowPlan):
    """``version``: of the schema, which this commit begins; None if the columns are those of the
    state.  ``restored``: instant of the state.
    """

    rows: DecidedHere = field(kw_only=True)
    version: SchemaVersion | None = field(kw_only=True)
    restored: str = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Restore(Operation[RestorePlan]):
    """The operation.  ``state``: from the newest snapshot to the seq of the state that shall be
    again.

    ``progress`` is called with the number of written files and of all.
    """

    metadata: Metadata
    options: Options
    state: Callable[[Snapshot], int]
    action: str
    progress: Progress | None = None
    name: str = "restore"

    def prepare(self, snapshot: Snapshot, txn: str) -> RestorePlan:
        """Return the plan.  Raises Invalid for a state that is not there, Expired for one that was
        cleaned.
        """
        seq = self.state(snapshot)
        if snapshot.definition.keys_repeat:
            raise Unsupported(
                "rows come back by their keys, and in this table a key may live more than once",
                hint="read that state with as_of, and write what is wanted of it",
            )
        old = self.metadata.at(seq)
        version = _version_again(snapshot, old)
        is_whole = _brings_back(snapshot.definition, version)
        snapshot = _with_version(snapshot, version)
        if version is None and old.seq >= snapshot.retention.horizon:
            batch, came_back = _batch(snapshot, *self._told(snapshot, old))
        else:
            batch, came_back = _batch(snapshot, *self._compared(snapshot, old, is_whole))
        outcome = self._outcome(snapshot, batch, came_back)
        tombstones = undone(old, snapshot)
        rows = DecidedHere.of(snapshot, replace(outcome, tombstones=tombstones), refuses=False)
        if snapshot.definition.ordering is not None:
            falls = replace(rows.findings, falls=rows.findings.updates)
            rows = replace(rows, findings=falls)
        plan = planned(self.metadata, self.options, snapshot, txn, rows)
        return RestorePlan(
            replace(plan.footprint, everything=True, alters=version is not None),
            plan.partitions,
            plan.counts,
            plan.is_needed or version is not None,
            plan.work,
            rows=rows,
            version=version,
            restored=old.last_instant,
        )

    def _outcome(self, snapshot: Snapshot, batch: Batch, came_back: int) -> Outcome:
        """Return what becomes of the rows of ``batch``, of which the first ``came_back`` come back
        and the others leave.
        """
        located = locate_batch(self.metadata, snapshot, batch)
        is_back, moved = np.arange(len(batch)) < came_back, np.zeros(len(batch), np.bool_)
        if snapshot.definition.is_global and len(snapshot):
            there = snapshot.file_groups.partitions(located.group)
            moved = is_back & located.found & np.asarray(there != partition_names(batch))
        fresh, returning = new_here(located, ~is_back, moved)
        return Outcome(
            batch,
            located,
            fresh,
            returning,
            updates=np.flatnonzero(is_back & located.found & ~moved),
            moves=np.flatnonzero(moved),
            ends=np.flatnonzero(~is_back & located.found),
            absent=np.flatnonzero(is_back & ~located.found),
        )

    def _told(self, snapshot: Snapshot, old: Snapshot) -> tuple[pa.Table, pa.Table]:
        """Return the rows that come back and those that leave, by what the records since ``old``
        say.
        """
        schema = snapshot.definition.schema
        of = history_range(self.metadata, old.seq, snapshot.seq)
        reader = ChangedRows(
            self.metadata, of, True, schema.names, None, self.options.threads("reader")
        )
        back, gone = [schema.empty_table()], [schema.empty_table()]
        for changed, rows in reader.tables():
            for kinds, found in (((DELETE, UPDATE_BEFORE), back), ((INSERT,), gone)):
                found.append(rows.filter(pa.array(np.isin(changed.kind, kinds))).cast(schema))
        return pa.concat_tables(back), pa.concat_tables(gone)

    def _compared(
        self, snapshot: Snapshot, old: Snapshot, is_whole: bool
    ) -> tuple[pa.Table, pa.Table]:
        """Return the same by the two states, where no record says it.  Rows that only moved come
        back, too, as they are.

        ``is_whole``: all rows do, since columns come back of which those who follow the table have
        no values.
        """
        definition, threads = snapshot.definition, self.options.threads("reader")
        states = ((old, None), (snapshot, None)) if is_whole else ((old, snapshot), (snapshot, old))
        columns = old.definition.schema.names, definition.fixed
        back, gone = (
            rows_at(
                self.metadata,
                state,
                KeyRows(*rows_beside(state, other)),
                [*names, *_KEY],
                threads=threads,
            )
            for (state, other), names in zip(states, columns, strict=True)
        )
        scope = _KEY[:1] if definition.is_global else _KEY
        left = gone.append_column(_AT, pa.array(np.arange(len(gone)))).select([*scope, _AT])
        left = left.join(back.select(scope), scope, join_type="left anti")
        gone = gone.take(pa.array(np.sort(left[_AT].to_numpy())))
        back = back.select(old.definition.schema.names)
        form = form_between(old.definition.version, definition.version, definition.schema)
        if form is not None:
            back = form.converted(back)
        # of rows that leave nothing but what says which they are is asked
        return back, with_nulls(gone, definition.schema)

    def write(self, snapshot: Snapshot, plan: RestorePlan, claim: Claim) -> Changes:
        """Write the files of ``plan``."""
        seen = _with_version(snapshot, plan.version)
        job = WriteJob.of(self.metadata, seen, self.options, claim)
        changes = write_rows(job, plan.work, plan.rows.grouped, self.progress)
        extra: dict[str, Any] = {**changes.extra, "restored": plan.restored}
        if plan.version is not None:
            extra |= alteration_fields(snapshot.definition, plan.version)
        return replace(changes, extra=extra, tombstones=plan.rows.findings.tombstones)


def _batch(snapshot: Snapshot, back: pa.Table, gone: pa.Table) -> tuple[Batch, int]:
    """Return the rows that come back, then those that leave, and how many of the former there
    are.
    """
    definition = snapshot.definition
    table = pa.concat_tables(
        [pa.table(part.columns, schema=definition.schema) for part in (back, gone)]
    )
    return stored_batch(table.combine_chunks(), definition), len(back)


def _version_again(snapshot: Snapshot, old: Snapshot) -> SchemaVersion | None:
    """Return the version of the schema that has the columns of ``old`` again, None if the table has
    them.
    """
    definition, then = snapshot.definition, old.definition.version
    if definition.at(old.seq) is definition:
        return None
    version = altered_back(definition, then, snapshot.seq + 1)
    return None if is_unaltered(definition, version) else version


def _brings_back(definition: TableDefinition, version: SchemaVersion | None) -> bool:
    """Return whether ``version`` has columns, or fields in them, that the table lacks."""
    return version is not None and not set(version.ids) <= set(definition.version.ids)


def _with_version(snapshot: Snapshot, version: SchemaVersion | None) -> Snapshot:
    """Return the snapshot as who writes files of ``version`` sees it."""
    if version is None:
        return snapshot
    change = change_of(index_changes(snapshot.definition, version))
    return replace(snapshot, definition=change.defined(snapshot.definition).altered(version))
