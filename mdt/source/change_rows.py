"""DELETE, UPDATE, MERGE INTO and INSERT of Spark SQL, and ``df.write``, as operations of a table.

Spark evaluates the statement with its SQL modes, time zone, functions and subqueries. If a
condition consists of exact tests of columns, and all values are constants,
:meth:`mdt.Table.delete_where` and ``update_where`` find the rows themselves. Otherwise Spark makes
a frame of edits from a single state of the table, with a row per changed row. A merge by key
applies them if those rows are unchanged, else the edits are computed again. So are the rows of an
INSERT or of ``df.write`` whose query reads its table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from mdt import late
from mdt import table as tables
from mdt.errors import Conflict, MdtError, Unsupported
from mdt.filters.named_column import col
from mdt.filters.where import parse_where
from mdt.source import write_frame
from mdt.source.option_keywords import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from mdt.engines.spark.statement import EditClause, Plain, Statement, WrittenRows
    from mdt.schema.definition import TableDefinition
    from mdt.write.result import WriteResult

R = TypeVar("R")


def change(options: SourceOptions, statement: Statement) -> tuple[tables.Table, Sequence[int]]:
    """Execute a statement on the table of ``options``; return the table and its counts.

    DELETE and UPDATE return the number of changed rows; MERGE returns all, updated, deleted and
    inserted rows. Raises Invalid or Unsupported, without writing, if the statement cannot be
    executed exactly. Raises Conflict if other writers changed the rows too often.
    """
    write_frame.require_newest(options)
    table = write_frame.open_for_writing(options)
    result = _by_condition(table, statement) or _by_edits(table, statement)
    affected = result.updated + result.deleted + result.inserted
    if statement.kind == "MERGE":
        return table, (affected, result.updated, result.deleted, result.inserted)
    return table, (affected,)


def write(
    options: SourceOptions, how: str, rows: WrittenRows
) -> tuple[tables.Table, WriteResult | None]:
    """Write rows as :func:`mdt.source.write_frame.write` does. If their query reads the table, read
    it at one commit, and again if other writers changed what the rows replace.

    Raises Conflict if they did so too often.
    """
    write_frame.require_newest(options)
    table = write_frame.open_if_exists(options)
    root = "" if table is None else table.storage.uri("").rstrip("/")
    if table is None or not rows.read(root):
        return write_frame.write(options, how, rows.frame(), table=table)

    def write_at(seq: int) -> WriteResult | None:
        at_state = table.resting_on(seq)
        return write_frame.write(options, how, rows.at(root, seq), table=at_state)[1]

    return table, _based_on_rows(table, write_at)


def _based_on_rows(table: tables.Table, write: Callable[[int], R]) -> R:
    """Call ``write`` with the newest commit, after an import of commits of other Hudi writers, and
    again if other writers changed the rows that it read. Raises Conflict if they do so too often.
    """
    attempts = table.options.commit_attempts
    for _ in range(1, attempts):
        with suppress(Conflict):
            return write(table._newest_for_write().seq)
    return write(table._newest_for_write().seq)


def _by_condition(table: tables.Table, statement: Statement) -> WriteResult | None:
    """Execute a statement of exact tests and constants. Return None for other statements."""
    plain = statement.plain(table.schema.names)
    if plain is None or not _is_exact(table, plain):
        return None
    if statement.kind == "DELETE":
        return table.delete_where(plain.where)
    if not plain.values.keys().isdisjoint(_movable_columns(table.definition)):
        return None
    return table.update_where(values=plain.values, where=plain.where)


def _is_exact(table: tables.Table, plain: Plain) -> bool:
    try:
        parse_where(plain.where, table.definition.schema)
    except MdtError:
        return False
    return True


def _movable_columns(definition: TableDefinition) -> tuple[str, ...]:
    """Return the settable columns that determine a row's location: the partition columns if rows
    may move.
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
        if name not in _movable_columns(definition)
    ]
    if definition.keys_repeat:
        raise Unsupported(
            f"this {statement.kind} requires unique keys, but mdt.keys.repeat is true",
            hint=(
                "use only conditions that compare columns with constants, and only constants as new"
                " values"
            ),
        )
    result = _by_key(table, statement, fixed)
    if result is not None:
        return result
    clauses = statement.clauses(on, fixed, False)
    return _based_on_rows(
        table,
        lambda seq: _apply_edits(table.resting_on(seq), statement.edits(seq), None, clauses),
    )


def _by_key(table: tables.Table, statement: Statement, fixed: Sequence[str]) -> WriteResult | None:
    """Execute a merge whose source contains the keys and all other inputs. Return None if it does
    not, or if its values cannot be evaluated for all rows.

    Values are computed before the rows are looked up, so an error may belong to a row that is not
    needed.
    """
    definition = table.definition
    names = statement.keys(definition.key, definition.partition_by)
    if not names:
        return None
    clauses = statement.clauses(names, fixed, True)
    try:
        return _apply_edits(table, statement.edits(0), names, clauses)
    except late.spark_statement.FAILURES:
        return None


def _apply_edits(
    table: tables.Table, edits: DataFrame, on: Sequence[str] | None, clauses: Sequence[EditClause]
) -> WriteResult:
    """Apply edits with a merge. ``on``: columns that identify rows, or None for the record key,
    with equal nulls.
    """
    merge = table._merging(edits, on, looks=True, edits=on is None)
    for clause in clauses:
        condition = f"source.{late.spark_statement.NUMBERS[clause.side]} = {clause.number}"
        values = {name: col(f"source.{value}") for name, value in clause.values.items()}
        if clause.side == late.spark_statement.NEW:
            merge = merge.when_not_matched(condition).insert(values)
        elif clause.action == "delete":
            merge = merge.when_matched(condition).delete()
        else:
            merge = merge.when_matched(condition).update(values or _no_change(table.definition))
    return merge.execute()


def _no_change(definition: TableDefinition) -> dict[str, Any]:
    """Return an assignment without effect, such as ``SET id = id``. The row still counts as
    changed.
    """
    free = [
        name
        for name in definition.schema.names
        if name not in (*definition.key, *definition.partition_by)
    ]
    return {name: col(f"target.{name}") for name in free[:1]}
