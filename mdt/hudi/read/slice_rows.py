"""The live rows of a file slice of any Hudi writer: its base file, merged with its log files.

Rows are merged by record key (:mod:`mdt.hudi.log_merge`). Besides the deletes of delete blocks,
three kinds of rows in log files are deletes: those with a true ``_hoodie_is_deleted``, those with
the value that a property names as the mark of deletes, and those that ``_hoodie_operation`` calls
deletes or rows before an update.

A row is made of several rows (:mod:`mdt.hudi.partial_merge`) if a block has only the columns that
change, or if a property says that some values do not replace older ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mdt.errors import Corrupt, Invalid, Unsupported
from mdt.hudi.log_file import DELETE
from mdt.hudi.log_merge import Events, live_rows
from mdt.hudi.partial_merge import Stacks, stack_rows
from mdt.hudi.read.block_rows import data_rows, is_partial
from mdt.hudi.read.file_slices import FileSlice
from mdt.hudi.read.loading import TableState
from mdt.hudi.read.log_blocks import LogBlock, live_blocks, load_blocks
from mdt.hudi.read.merge_rules import OPERATION, MergeRules
from mdt.hudi.read.parquet_rows import open_file
from mdt.hudi.read.schema_history import Renaming
from mdt.hudi.read.table_properties import FILL_UNAVAILABLE, IGNORE_DEFAULTS
from mdt.hudi.read.table_schema import TableSchema, to_table_columns
from mdt.stores.storage import Storage

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SliceChanges:
    """The effect of the log files of a slice on its base file.

    Attributes:
        dead: Positions of the rows of the base file that are deleted or replaced, ascending,
            int64[n].
        rows: The live rows that are not rows of the base file, in any order.
        is_settled: False if the log files have blocks that may count in a later state.
    """

    dead: Int64s
    rows: pa.Table
    is_settled: bool = True


def slice_changes(
    objects: Storage,
    state: TableState,
    file_slice: FileSlice,
    schema: TableSchema,
    columns: Sequence[str] | None = None,
) -> SliceChanges:
    """Return the changes by the log files of a slice.

    Only the columns that merging needs are read from the base file, unless updates are partial.

    Args:
        state: The state that ``file_slice`` is a part of.
        columns: Names of columns of ``schema``. None for all.

    Raises Corrupt, Missing, Unsupported, and Invalid for an unknown column.
    """
    names = _checked(schema, columns)
    blocks, is_settled = _slice_blocks(objects, state, file_slice)
    if not blocks:
        no_rows = _with_fields(_no_rows(schema, names), schema, file_slice)
        return SliceChanges(np.empty(0, np.int64), no_rows, is_settled)
    rules = MergeRules.from_properties(state.table, schema)
    merge = _Merge(rules, [*names, *sorted(rules.columns.difference(names))])
    parts = [merge.part(block) for block in blocks]
    base_names = sorted(rules.columns)
    if merge.is_partial(parts):
        base_names = list(merge.names)
    base_rows = _base_rows(objects, file_slice, schema, base_names)
    changes = merge.changes(base_rows, parts, _base_path(file_slice))
    rows = _with_fields(changes.rows.select(names), schema, file_slice)
    return SliceChanges(changes.dead, rows, is_settled)


def slice_rows(
    objects: Storage,
    state: TableState,
    file_slice: FileSlice,
    schema: TableSchema,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Return the live rows of a file slice, in any order. Arguments and errors as for
    :func:`slice_changes`.
    """
    names = _checked(schema, columns)
    changes = slice_changes(objects, state, file_slice, schema, names)
    base_rows = _base_rows(objects, file_slice, schema, names)
    is_live = np.ones(len(base_rows), np.bool_)
    is_live[changes.dead] = False
    rows = base_rows.filter(pa.array(is_live))
    return pa.concat_tables([_with_fields(rows, schema, file_slice), changes.rows])


def _checked(schema: TableSchema, columns: Sequence[str] | None) -> list[str]:
    """Return the names of columns. Raises Invalid for an unknown column."""
    names = schema.columns.names if columns is None else list(columns)
    unknown = [name for name in names if name not in schema.columns.names]
    if unknown:
        raise Invalid(f"the table has no column {unknown[0][:200]!r}")
    return names


def _slice_blocks(
    objects: Storage, state: TableState, file_slice: FileSlice
) -> tuple[list[LogBlock], bool]:
    """Return the data and delete blocks of a slice that count, in the order of merging, and True
    if no other block can count in a later state.

    Raises Corrupt, Missing and Unsupported.
    """
    blocks: list[LogBlock] = []
    for file in file_slice.logs:
        blocks += load_blocks(objects, file_slice.path(file), file.size)
    is_completed, at = state.timeline.is_completed, state.at
    is_settled = all(is_completed(block.instant) for block in blocks)
    if at:
        is_settled &= all(block.instant <= at for block in blocks)
    return live_blocks(blocks, is_completed, at), is_settled


def _base_rows(
    objects: Storage, file_slice: FileSlice, schema: TableSchema, names: Sequence[str]
) -> pa.Table:
    """Return columns of the base file as columns of the table. No rows without a base file."""
    if file_slice.base is None:
        return _no_rows(schema, names)
    path, renaming = _base_path(file_slice), schema.renaming(file_slice.base.instant)
    with open_file(objects, path, file_slice.base.size) as file:
        rows = _read(file.read, names, renaming, path)
        return to_table_columns(rows, schema, names, path=path)


def _read(
    read: Callable[[Sequence[str]], pa.Table],
    names: Sequence[str],
    renaming: Renaming | None,
    path: str,
) -> pa.Table:
    """Return the columns ``names`` of a file, under these names, as far as it has them.

    Args:
        read: Returns columns under the names in the file.
    """
    if renaming is None:
        return read(names)
    return renaming.apply(read(renaming.names_in_file(names)), path)


def _no_rows(schema: TableSchema, names: Sequence[str]) -> pa.Table:
    fields = [schema.columns.field(name).with_nullable(True) for name in names]
    return pa.schema(fields).empty_table()


def _base_path(file_slice: FileSlice) -> str:
    return file_slice.path(file_slice.base) if file_slice.base else file_slice.partition


def _with_fields(rows: pa.Table, schema: TableSchema, file_slice: FileSlice) -> pa.Table:
    """Return ``rows`` with the fields of ``schema``. Raises Corrupt for nulls where none may be."""
    fields = [schema.columns.field(name) for name in rows.column_names]
    for field in fields:
        if not field.nullable and rows[field.name].null_count:
            raise Corrupt(
                f"the required column {field.name!r} is null in file group {file_slice.file_id}",
                path=file_slice.partition,
            )
    return pa.table(rows.columns, schema=pa.schema(fields))


@dataclass(frozen=True, slots=True)
class _Part:
    """The events of a block.

    Attributes:
        rows: Its rows. None for a delete block.
        missing: Columns that its rows do not have, because they are a partial update.
    """

    events: Events
    rows: pa.Table | None
    missing: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Merge:
    """Merges the columns ``names`` of a base file and blocks."""

    rules: MergeRules
    names: Sequence[str]

    def changes(self, base_rows: pa.Table, parts: Sequence[_Part], base_path: str) -> SliceChanges:
        """Return the changes by the ``parts`` of at least one block, in the order of merging.

        Args:
            base_rows: The rows of the base file. They have all columns if updates are partial.
        """
        base = self.rules.base_events(base_rows, base_path)
        log = joined_events([part.events for part in parts])
        tables = [part.rows for part in parts if part.rows is not None]
        rows = pa.concat_tables([_no_rows(self.rules.schema, self.names), *tables])
        masks = [np.full(len(part.events), part.rows is not None) for part in parts]
        is_row = np.concatenate(masks)
        if not self.is_partial(parts):
            base_live, log_live = live_rows(base, log)
            return SliceChanges(np.flatnonzero(~base_live), rows.filter(pa.array(log_live[is_row])))
        stacks = stack_rows(base, log)
        number = np.cumsum(np.append(np.ones(len(base_rows), np.bool_), is_row)) - 1
        stacks = Stacks(number[stacks.rows], stacks.starts)
        is_live, stacks = stacks.without_single_rows(len(base_rows))
        rows = pa.concat_tables([base_rows.select(self.names), rows])
        columns, top = {}, stacks.rows[stacks.starts]
        stays = top < len(base_rows)
        for name in self.names:
            has_value = self.rules.has_value(rows[name], name)
            begin = len(base_rows)
            for part in parts:
                end = begin + (len(part.events) if part.rows is not None else 0)
                has_value[begin:end] &= name not in part.missing
                begin = end
            picked = stacks.pick(has_value[stacks.rows])
            stays &= (picked == top) | ~has_value[picked]
            columns[name] = rows[name].take(pa.array(picked))
        is_live[top[stays]] = True  # rows of the base file that no other row has filled
        return SliceChanges(np.flatnonzero(~is_live), pa.table(columns).filter(pa.array(~stays)))

    def part(self, block: LogBlock) -> _Part:
        """Return the events and rows of a block."""
        if block.block.kind == DELETE:
            return _Part(self.rules.delete_events(block), None)
        renaming = self.rules.schema.renaming(block.instant)
        data = _read(partial(data_rows, block), [*self.names, OPERATION], renaming, block.path)
        operations = data[OPERATION] if OPERATION in data.column_names else None
        changes_some = is_partial(block)
        rows = to_table_columns(
            data, self.rules.schema, self.names, path=block.path, partial=changes_some
        )
        events = self.rules.log_events(rows, operations, block.path)
        missing = frozenset(self.names).difference(data.column_names)
        return _Part(events, rows, missing if changes_some else frozenset())

    def is_partial(self, parts: Sequence[_Part]) -> bool:
        """Return True if a row can be made of several rows."""
        mode = self.rules.table.partial_update
        return mode in (IGNORE_DEFAULTS, FILL_UNAVAILABLE) or any(part.missing for part in parts)


def joined_events(parts: Sequence[Events]) -> Events:
    """Return the events of at least one block, in order.

    Raises Unsupported for 2 GiB of keys or more.
    """
    try:
        keys = pa.concat_arrays([part.keys for part in parts])
        ordering = []
        for columns in zip(*(part.ordering for part in parts), strict=True):
            ordering.append(pa.concat_arrays(columns))
    except pa.ArrowInvalid as error:
        raise Unsupported(f"the keys of a file slice are too large: {error}") from error
    is_delete = np.concatenate([part.is_delete for part in parts])
    return Events(keys, ordering, is_delete, np.concatenate([part.marks for part in parts]))
