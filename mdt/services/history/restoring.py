"""Restore: one commit that brings back the rows of an earlier state.

Changes since that state are undone: inserted rows are deleted, and deleted or replaced rows are
written again. The history between is kept, so a restore can be undone by restoring the state before
it. The cost depends on the number of changed rows. Two cases also rewrite rows that were only moved
to other files: the intermediate states were cleaned (the state has a tag), or the columns were
altered since. The columns of the state are restored too (:func:`mdt.schema.alter.restore_columns`),
so no row is left in a file of a newer version.

Restored rows have the commit time of this commit, so readers of changes see them. With an ordering
field, they may have smaller ordering values than the rows that they replace. Hudi's readers would
ignore such rows in a log file as late, so these file groups get new base files.
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
from mdt.formats.registry import refuse_alteration
from mdt.hudi.avro_schema import PARTITION_PATH, RECORD_KEY
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.deleted_keys import undo_changes
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.progress import Progress
from mdt.scan.changed_rows import ChangedRows
from mdt.scan.difference import rows_only_in
from mdt.scan.history_range import DELETE, INSERT, UPDATE_BEFORE, history_range
from mdt.scan.lookup import KeyRows, rows_at
from mdt.schema.alter import restore_columns
from mdt.schema.convert import with_nulls
from mdt.schema.definition import TableDefinition
from mdt.schema.older_files import form_between
from mdt.schema.versions import SchemaVersion
from mdt.services.history.altering import alteration_fields, is_unaltered, with_alteration
from mdt.write.new_files import WriteJob
from mdt.write.normalize import Batch, partition_names, stored_batch, unique
from mdt.write.operations import DecidedInProcess, RowPlan, planned, write_rows
from mdt.write.rules import Outcome, locate_batch, new_in_partition

_KEY = [RECORD_KEY, PARTITION_PATH]
"""Meta columns that identify a row."""
_AT = "_at"


@dataclass(frozen=True, slots=True)
class RestorePlan(RowPlan):
    """A write plan, the schema version that the commit begins, and the instant of the restored
    state.

    ``version`` is None if the columns do not change.
    """

    rows: DecidedInProcess = field(kw_only=True)
    version: SchemaVersion | None = field(kw_only=True)
    restored: str = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Restore(Operation[RestorePlan]):
    """The restore operation.

    Attributes:
        state: Function from the newest snapshot to the seq of the state to restore.
        progress: Called with the number of written files and of all files.
    """

    metadata: Metadata
    options: Options
    state: Callable[[Snapshot], int]
    action: str
    progress: Progress | None = None
    name: str = "restore"

    def prepare(self, snapshot: Snapshot, txn: str) -> RestorePlan:
        """Return the plan.

        Raises Invalid if the state does not exist, Expired if it was cleaned, and Unsupported if
        keys may repeat, or do so in the table or the state.
        """
        seq = self.state(snapshot)
        if snapshot.definition.keys_repeat:
            raise Unsupported(
                "a table whose keys may repeat (mdt.keys.repeat=true) cannot be restored",
                hint="read the old state with as_of, and write the rows that you need",
            )
        old = self.metadata.at(seq)
        version = _restored_version(snapshot, old)
        if version is not None:
            refuse_alteration(snapshot, snapshot.definition.with_version(version))
        is_whole = _restores_columns(snapshot.definition, version)
        snapshot = with_alteration(snapshot, version)
        if version is None and old.seq >= snapshot.retention.horizon:
            batch, came_back = _batch(snapshot, *self._changes_from_log(snapshot, old))
        else:
            batch, came_back = _batch(
                snapshot, *self._changes_by_comparison(snapshot, old, is_whole)
            )
        outcome = self._outcome(snapshot, batch, came_back)
        _refuse_repeated_keys(snapshot, old, outcome)
        tombstones = undo_changes(old, snapshot)
        rows = DecidedInProcess.from_outcome(
            snapshot, replace(outcome, tombstones=tombstones), refuses=False
        )
        if snapshot.definition.ordering:
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
        """Classify the rows of ``batch``: restored, deleted or absent.

        The first ``came_back`` rows are restored, the rest are deleted.
        """
        located = locate_batch(self.metadata, snapshot, batch)
        is_back, moved = np.arange(len(batch)) < came_back, np.zeros(len(batch), np.bool_)
        if snapshot.definition.is_global and len(snapshot):
            partitions = snapshot.file_groups.partitions(located.group)
            moved = is_back & located.is_live & np.asarray(partitions != partition_names(batch))
        inserts, returning = new_in_partition(located, ~is_back, moved)
        return Outcome(
            batch,
            located,
            inserts,
            returning,
            updates=np.flatnonzero(is_back & located.is_live & ~moved),
            moves=np.flatnonzero(moved),
            ends=np.flatnonzero(~is_back & located.is_live),
            absent=np.flatnonzero(is_back & ~located.is_live),
        )

    def _changes_from_log(self, snapshot: Snapshot, old: Snapshot) -> tuple[pa.Table, pa.Table]:
        """Return (restored rows, deleted rows) from the commit records since ``old``."""
        schema = snapshot.definition.schema
        history = history_range(self.metadata, old.seq, snapshot.seq)
        reader = ChangedRows(
            self.metadata, history, True, schema.names, None, self.options.threads("reader")
        )
        restored, deleted = [schema.empty_table()], [schema.empty_table()]
        for changed, rows in reader.tables():
            for kinds, tables in (((DELETE, UPDATE_BEFORE), restored), ((INSERT,), deleted)):
                tables.append(rows.filter(pa.array(np.isin(changed.kind, kinds))).cast(schema))
        return pa.concat_tables(restored), pa.concat_tables(deleted)

    def _changes_by_comparison(
        self, snapshot: Snapshot, old: Snapshot, is_whole: bool
    ) -> tuple[pa.Table, pa.Table]:
        """Return (restored rows, deleted rows) by comparing two states.

        Used if the records between were cleaned. Rows that were only moved are restored unchanged.
        With ``is_whole`` all rows are restored, because columns come back and readers of changes
        lack their values.
        """
        definition, threads = snapshot.definition, self.options.threads("reader")
        states = ((old, None), (snapshot, None)) if is_whole else ((old, snapshot), (snapshot, old))
        columns = old.definition.schema.names, definition.fixed
        restored, deleted = (
            rows_at(
                self.metadata,
                state,
                KeyRows(*rows_only_in(state, reference)),
                list(dict.fromkeys((*names, *_KEY))),
                threads=threads,
            )
            for (state, reference), names in zip(states, columns, strict=True)
        )
        scope = _KEY[:1] if definition.is_global else _KEY
        remaining = deleted.append_column(_AT, pa.array(np.arange(len(deleted)))).select(
            [*scope, _AT]
        )
        remaining = remaining.join(restored.select(scope), scope, join_type="left anti")
        deleted = deleted.take(pa.array(np.sort(remaining[_AT].to_numpy())))
        restored = restored.select(old.definition.schema.names)
        form = form_between(old.definition.version, definition.version, definition.schema)
        if form is not None:
            restored = form.convert(restored)
        # deletes need only key and partition columns
        return restored, with_nulls(deleted, definition.schema)

    def write(self, snapshot: Snapshot, plan: RestorePlan, claim: Claim) -> Changes:
        """Write the files of the plan."""
        target = with_alteration(snapshot, plan.version)
        job = WriteJob.for_claim(self.metadata, target, self.options, claim)
        changes = write_rows(job, plan.work, plan.rows.grouped, self.progress)
        extra: dict[str, Any] = {**changes.extra, "restored": plan.restored}
        if plan.version is not None:
            extra |= alteration_fields(snapshot.definition, plan.version)
        return replace(changes, extra=extra, tombstones=plan.rows.findings.tombstones)


def _refuse_repeated_keys(snapshot: Snapshot, old: Snapshot, outcome: Outcome) -> None:
    """Raise Unsupported if a changed key has several rows now, or had in the state to restore, as
    inserts of other writers leave it.
    """
    batch, located = outcome.batch, outcome.located
    added = len(outcome.inserts) + len(outcome.returns) - len(outcome.moves) - len(outcome.ends)
    has_all_rows = int(old.live_rows.sum()) == int(snapshot.live_rows.sum()) + added
    repeats = unique(batch, snapshot.definition).duplicates
    if len(located.further.key) or repeats or not has_all_rows:
        raise Unsupported(
            "a key was live in several rows, which cannot be restored: inserts of other writers"
            " may repeat keys",
            hint="read the old state with as_of, and write the rows that you need",
        )


def _batch(snapshot: Snapshot, restored: pa.Table, deleted: pa.Table) -> tuple[Batch, int]:
    """Return the restored rows followed by the deleted rows, and the number of the former."""
    definition = snapshot.definition
    table = pa.concat_tables(
        [pa.table(part.columns, schema=definition.schema) for part in (restored, deleted)]
    )
    return stored_batch(table.combine_chunks(), definition), len(restored)


def _restored_version(snapshot: Snapshot, old: Snapshot) -> SchemaVersion | None:
    """Return the schema version that restores the columns of ``old``, or None if none differ."""
    definition, old_version = snapshot.definition, old.definition.version
    if definition.at(old.seq) is definition:
        return None
    version = restore_columns(definition, old_version, snapshot.seq + 1)
    return None if is_unaltered(definition, version) else version


def _restores_columns(definition: TableDefinition, version: SchemaVersion | None) -> bool:
    """Return True if ``version`` restores columns or fields that the table lacks."""
    return version is not None and not set(version.ids) <= set(definition.version.ids)
