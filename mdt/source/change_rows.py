"""DELETE, UPDATE and MERGE INTO of Spark's SQL, carried out by the operations of a table.

What a statement says is Spark's to evaluate: the modes of its SQL, its time zone, its functions and
subqueries.  Where a condition is nothing but exact tests of columns, and values are constants,
:meth:`mdt.Table.delete_where` and ``update_where`` find the rows themselves.  Otherwise Spark makes
a frame of edits, one row for each row that changes, from a state of the table, and a merge by key
carries them out if those rows still are what they were; if not, the edits are made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mdt import late
from mdt import table as tables
from mdt.errors import Conflict, MdtError, Unsupported
from mdt.filters.named_column import col
from mdt.filters.where import parse_where
from mdt.source import write_frame
from mdt.source.option_keywords import Words

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from mdt.engines.spark.statement import EditClause, Plain, Statement
    from mdt.schema.definition import TableDefinition
    from mdt.write.result import WriteResult


def change(asked: Words, statement: Statement) -> tuple[tables.Table, Sequence[int]]:
    """Carry out a statement on the table that is ``asked`` for, and return the table and its
    counts.

    Of DELETE and UPDATE the rows that changed; of MERGE all, updated, deleted, inserted rows.
    Raises Invalid and Unsupported for what cannot be carried out exactly: nothing is written then.
    Raises Conflict if others changed the rows too often meanwhile.
    """
    write_frame.require_newest(asked)
    table = write_frame.opened(asked)
    done = _plainly(table, statement) or _by_edits(table, statement)
    affected = done.updated + done.deleted + done.inserted
    if statement.kind == "MERGE":
        return table, (affected, done.updated, done.deleted, done.inserted)
    return table, (affected,)


def _plainly(table: tables.Table, statement: Statement) -> WriteResult | None:
    """Carry out what tests of columns and constants say; None if it is more."""
    said = statement.plain(table.schema.names)
    if said is None or not _is_exact(table, said):
        return None
    if statement.kind == "DELETE":
        return table.delete_where(said.where)
    if not said.values.keys().isdisjoint(_moving(table.definition)):
        return None
    return table.update_where(values=said.values, where=said.where)


def _is_exact(table: tables.Table, said: Plain) -> bool:
    try:
        parse_where(said.where, table.definition.schema)
    except MdtError:
        return False
    return True


def _moving(definition: TableDefinition) -> tuple[str, ...]:
    """Return the columns that an update may set and that say where a row stands: those of the
    partition, where rows move.
    """
    if definition.is_global and definition.moves_rows:
        return definition.partition_by
    return ()


def _by_edits(table: tables.Table, statement: Statement) -> WriteResult:
    definition = table.definition
    on = definition.unique_by
    fixed = [
        name
        for name in (*definition.key, *definition.partition_by)
        if name not in _moving(definition)
    ]
    if definition.keys_repeat:
        raise Unsupported(
            f"keys may repeat in this table, and rows of this {statement.kind} are named by their"
            " keys",
            hint=(
                "conditions that compare columns with constants, and constants as new values, need"
                " no keys"
            ),
        )
    done = _by_key(table, statement, fixed)
    if done is not None:
        return done
    clauses = statement.clauses(on, fixed, False)
    for attempt in range(1, table.options.commit_attempts + 1):
        seq = table.snapshot().seq
        try:
            return _merged(table.resting_on(seq), statement.edits(seq), None, clauses)
        except Conflict:
            if attempt == table.options.commit_attempts:
                raise
    raise AssertionError("there is a last attempt")


def _by_key(table: tables.Table, statement: Statement, fixed: Sequence[str]) -> WriteResult | None:
    """Carry out a merge whose source says the keys and all else that is needed; None if it is not
    so, or cannot be evaluated for all its rows.

    Whether a row is in the table is not known when its values are made, so a value may be an error
    that nobody has asked for.
    """
    definition = table.definition
    names = statement.keys(definition.key, definition.partition_by)
    if not names:
        return None
    clauses = statement.clauses(names, fixed, True)
    try:
        return _merged(table, statement.edits(0), names, clauses)
    except late.spark_statement.FAILURES:
        return None


def _merged(
    table: tables.Table, edits: DataFrame, on: Sequence[str] | None, clauses: Sequence[EditClause]
) -> WriteResult:
    """Carry out edits by a merge.  ``on``: columns by which rows are found; None: by the record
    key, nulls being equal.
    """
    merge = table._merging(edits, on, looks=True)
    for clause in clauses:
        said = f"source.{late.spark_statement.NUMBERS[clause.side]} = {clause.number}"
        values = {name: col(f"source.{value}") for name, value in clause.values.items()}
        if clause.side == late.spark_statement.NEW:
            merge = merge.when_not_matched(said).insert(values)
        elif clause.action == "delete":
            merge = merge.when_matched(said).delete()
        else:
            merge = merge.when_matched(said).update(values or _as_it_is(table.definition))
    return merge.execute()


def _as_it_is(definition: TableDefinition) -> dict[str, Any]:
    """Return what sets nothing new, as ``SET id = id`` has it: the row counts as one that
    changed.
    """
    free = [
        name
        for name in definition.schema.names
        if name not in (*definition.key, *definition.partition_by)
    ]
    return {name: col(f"target.{name}") for name in free[:1]}
