"""Upserts that keep or merge values of older rows: partial updates and column mergers.

Older rows are found by key, as in every upsert. Only the required columns are read, once, from the
pages that contain them. A merger combines an older and a newer value. The newer row is the row with
the larger ordering value, or the later row if they are equal. If the batch has the older row, the
table's row is kept except for its merged columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexes.base import Int64Array
from mdt.arguments import by_column, shown
from mdt.errors import Invalid, Unsupported
from mdt.filters.comparison_kernels import compare
from mdt.metadata.files.key_map import words_of
from mdt.metadata.key_indexes import keys_for
from mdt.metadata.keys.locate import Located, find
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.scan.lookup import KeyRows, rows_at
from mdt.schema.conform import conform
from mdt.schema.convert import with_nulls
from mdt.schema.definition import TableDefinition
from mdt.schema.delete_marks import IS_DELETED, split_delete_marks
from mdt.write.fixed_partition import keep_partition
from mdt.write.normalize import (
    Batch,
    columns_altered,
    conform_data,
    definition_paths,
    key_order,
    rehash,
    stored_batch,
    unique,
)
from mdt.write.rules import Outcome, Rule, decide, locate_batch, upsert_outcome
from mdt.write.setting import fit_columns

Merger = Callable[[Any, Any], Any]
"""Combines arrays of older and newer values, [n] of the column's stored type, into [n]. It must be
associative.
"""
BoolArray = npt.NDArray[np.bool_]


def _sum(older: Any, newer: Any) -> Any:
    # The sum is null where either value is null. Take the other value unchanged, even -0.0.
    total = pc.add_checked(older, newer)
    return pc.coalesce(total, pc.cast(pc.coalesce(newer, older), total.type))


def _larger(older: Any, newer: Any) -> Any:
    return pc.if_else(pc.fill_null(compare(">", older, newer), pc.is_null(newer)), older, newer)


def _smaller(older: Any, newer: Any) -> Any:
    return pc.if_else(pc.fill_null(compare("<", older, newer), pc.is_null(newer)), older, newer)


def _coalesce(older: Any, newer: Any) -> Any:
    return pc.coalesce(newer, older)


MERGERS: Mapping[str, Merger] = {
    "sum": _sum,
    "max": _larger,
    "min": _smaller,
    "coalesce": _coalesce,
}
"""Built-in mergers. sum, max and min ignore nulls. coalesce takes the newer value unless it is
null.
"""


@dataclass(frozen=True, slots=True)
class BlendOptions:
    """Blending options of an upsert.

    Attributes:
        partial: True keeps the values of columns that the data lack.
        mergers: Column -> name in :data:`MERGERS`, or a function.
    """

    partial: bool
    mergers: Mapping[str, Any]

    def rule(self, columns: Sequence[str]) -> Blending:
        """Return the rule for data with these columns."""
        return Blending(self, tuple(columns))


@dataclass(frozen=True, slots=True)
class Blend:
    """Columns of older rows to keep and to merge.

    Attributes:
        missing: Columns that the batch lacks. Their older values are kept.
        mergers: Column -> merger.
    """

    missing: frozenset[str]
    mergers: Mapping[str, Merger]
    definition: TableDefinition

    def merge(self, name: str, older: Any, newer: Any) -> pa.ChunkedArray:
        """Return the merged values of a column. Raises Invalid if they do not fit or a user's
        merger fails.
        """
        try:
            merged = self.mergers[name](older, newer)
        except Invalid:
            raise
        except Exception as error:  # user functions may raise anything
            raise Invalid(f"column {name!r}: its values cannot be merged: {error}") from error
        if not hasattr(merged, "__len__"):
            raise Invalid(
                f"column {name!r}: the merger returned a {type(merged).__name__}, not an array of"
                f" {len(older)} values"
            )
        if len(merged) != len(older):
            raise Invalid(
                f"column {name!r}: the merger returned {len(merged)} values for {len(older)}"
            )
        column = merged if isinstance(merged, pa.ChunkedArray) else pa.chunked_array([merged])
        return fit_columns(pa.table({name: column}), self.definition)[name]

    def rows(self, older: pa.Table, batch: Batch, exists: BoolArray, late: BoolArray) -> pa.Table:
        """Return the rows to write.

        Args:
            older: Rows of the table, null where ``exists`` is false.
            exists: True where the key is live in the table.
            late: True where the row of the table is newer than the row of the batch.
        """
        table = batch.table
        is_late, is_found = pa.array(late), pa.array(exists)
        columns: dict[str, Any] = dict(zip(table.column_names, table.columns, strict=True))
        for name in older.column_names:
            new, old = table[name].combine_chunks(), older[name].combine_chunks()
            if name in self.missing:
                columns[name] = old
            elif name in self.mergers:
                together = self.merge(
                    name, pc.if_else(is_late, new, old), pc.if_else(is_late, old, new)
                )
                columns[name] = pc.if_else(is_found, together.combine_chunks(), new)
            else:
                columns[name] = pc.if_else(is_late, old, new)
        return pa.table(list(columns.values()), schema=table.schema)


@dataclass(frozen=True, slots=True)
class Blending(Rule):
    """An upsert rule whose new rows keep or merge values of older rows.

    Attributes:
        data_columns: Columns of the data.
    """

    blend: BlendOptions
    data_columns: tuple[str, ...]

    def batch(self, data: pa.Table, definition: TableDefinition, *, numbered: bool = True) -> Batch:
        """Return ``data`` as a batch, with nulls in missing columns."""
        return blend_batch(
            data, parse_blend(definition, self.data_columns, self.blend), numbered=numbered
        )

    def outcome(self, metadata: Metadata, snapshot: Snapshot, batch: Batch) -> Outcome:
        """Return the outcome for each row. Raises Conflict if the columns were altered
        concurrently.
        """
        definition = snapshot.definition
        if not definition.schema.equals(batch.table.schema):
            raise columns_altered()
        older = _OlderRows(
            metadata, snapshot, parse_blend(definition, self.data_columns, self.blend)
        )
        batch = older.add_partitions(rehash(batch, definition))
        located = locate_batch(metadata, snapshot, batch)
        batch = keep_partition(snapshot, batch, located)
        return upsert_outcome(snapshot, *older.merge_rows(batch, located))


@dataclass(frozen=True, slots=True)
class _OlderRows:
    """Reads the required columns of older rows."""

    metadata: Metadata
    snapshot: Snapshot
    blend: Blend

    def add_partitions(self, batch: Batch) -> Batch:
        """Return the batch with the partitions of its rows. Missing partition columns are read from
        the table.
        """
        definition = self.snapshot.definition
        lacking = [name for name in definition.partition_by if name in self.blend.missing]
        if not lacking:
            return batch
        table = batch.table
        file, position = np.full(len(batch), -1, np.int64), np.full(len(batch), -1, np.int64)
        keys = keys_for(definition.key_index, batch.keys, batch.sort_keys)
        for hit in find(self.metadata, self.snapshot, keys, batch.hashes):
            file[hit.key], position[hit.key] = hit.file, hit.position
        partition_columns = self._columns(KeyRows(file, position), lacking)
        for name in lacking:
            at = table.schema.get_field_index(name)
            table = table.set_column(at, table.schema.field(at), partition_columns[name])
        codes, paths = definition_paths(table, definition)
        return replace(batch, table=table, partition=codes, partitions=tuple(paths))

    def merge_rows(
        self, batch: Batch, located: Located
    ) -> tuple[Batch, Located, BoolArray, BoolArray]:
        """Return (batch to write, locations of its keys, late rows, moved rows)."""
        blend, definition = self.blend, self.snapshot.definition
        late, moved = decide(self.metadata, self.snapshot, batch, located)
        names = [
            name
            for name in definition.schema.names
            if name in blend.missing or name in blend.mergers
        ]
        if blend.mergers and late.any():  # late rows keep all unmerged columns of the table's row
            names = definition.schema.names
        older = self._columns(KeyRows(located.file, located.position), names)
        none_late = np.zeros(len(batch), np.bool_)
        if not blend.mergers:
            table = blend.rows(older, batch, located.is_live, none_late)
        else:
            table = blend.rows(older, batch, located.is_live, late)
            late = none_late
        written = table
        if batch.ends is not None:
            written = table.filter(pa.array(~batch.ends))
        _require_values(written)
        ordering = words_of(table, definition.ordering)
        return replace(batch, table=table, ordering=ordering), located, late, moved

    def _columns(self, where: KeyRows, names: Sequence[str]) -> pa.Table:
        if not names:  # the data have all columns, without mergers
            return pa.table({})
        threads = self.metadata.options(self.snapshot.definition).threads("reader")
        return rows_at(self.metadata, self.snapshot, where, names, threads=threads)


def _require_values(table: pa.Table) -> None:
    """Raise Invalid if new rows lack values of required columns."""
    required = pa.schema([field for field in table.schema if not field.nullable])
    conform(table.select(required.names), required, required)


def parse_blend(
    definition: TableDefinition, columns: Sequence[str], options: BlendOptions
) -> Blend:
    """Return the columns to keep and to merge for data with ``columns``.

    Raises Invalid for unknown names and for mergers of key, partition or ordering columns. Raises
    Unsupported for tables with repeated keys, and for mergers of data that mark deletes.
    """
    if definition.keys_repeat:
        raise Unsupported(
            "partial upserts and mergers need unique keys, but mdt.keys.repeat is true",
            hint="use t.merge, which updates every row of a key",
        )
    if options.mergers and IS_DELETED in columns:
        raise Unsupported(
            f"mergers cannot be combined with the delete marker column {IS_DELETED}",
            hint="upsert and delete in two calls",
        )
    missing = frozenset[str]()
    if options.partial:
        missing = frozenset(definition.schema.names).difference(columns)
    lacking = [name for name in definition.unique_by if name in missing]
    if lacking:
        raise Invalid(f"the data lack {', '.join(lacking)}, which identify the rows")
    lacking = [name for name in definition.ordering if name in missing]
    if 0 < len(lacking) < len(definition.ordering):
        raise Invalid(
            f"the data lack {', '.join(lacking)}, but have other ordering fields",
            hint="give all ordering fields or none",
        )
    mergers: dict[str, Merger] = {}
    wanted = by_column("mergers", options.mergers, definition.schema.names)
    for name, merger in wanted.items():
        if name in definition.fixed:
            raise Invalid(
                f"the column {shown(name)} cannot be merged",
                hint="mergers cannot be set for key, partition or ordering columns",
            )
        if not callable(merger) and (not isinstance(merger, str) or merger not in MERGERS):
            raise Invalid(
                f"unknown merger {shown(merger)}", hint=f"use {', '.join(MERGERS)}, or a function"
            )
        if name not in missing:
            mergers[name] = MERGERS[merger] if isinstance(merger, str) else merger
    blend = Blend(missing, mergers, definition)
    for name in mergers:
        if isinstance(wanted[name], str):  # check the type: "sum" needs numbers
            nothing = pa.array([], definition.schema.field(name).type)
            blend.merge(name, nothing, nothing)
    return blend


def blend_batch(data: pa.Table, blend: Blend, *, numbered: bool = True) -> Batch:
    """Return data as a batch with a row for each key, and nulls in missing columns. Raises Invalid
    if the data do not fit.

    ``numbered`` as for :func:`mdt.write.normalize.normalize`.
    """
    definition = blend.definition
    declared, stored = (
        pa.schema([field for field in schema if field.name not in blend.missing], schema.metadata)
        for schema in (definition.declared, definition.schema)
    )
    data, ends = split_delete_marks(data)
    present = conform_data(data, ends, declared, stored, definition, numbered=numbered)
    table = with_nulls(present, definition.schema)
    lacking = blend.missing.difference(definition.partition_by)
    known_columns = table.select([name for name in table.column_names if name not in lacking])
    batch = stored_batch(known_columns, definition, numbered=numbered)
    batch = replace(batch, table=table, ends=ends)
    return _merge_repeated_keys(batch, blend) if blend.mergers else unique(batch, definition)


def _merge_repeated_keys(batch: Batch, blend: Blend) -> Batch:
    """Return a batch with a row for each key. The values of all its rows are merged, neighbours
    first.
    """
    order, ends = key_order(batch, blend.definition)
    if ends.all():
        return batch
    last = np.sort(order[ends])
    thin = batch.take(last)
    table = thin.table
    group: Int64Array = np.cumsum(ends) - ends
    for name in blend.mergers:
        values, group_of = batch.table[name].take(pa.array(order)).combine_chunks(), group
        while len(group_of) > len(last):
            values, group_of = _merge_pairs(blend, name, values, group_of)
        at = table.schema.get_field_index(name)
        as_they_came = np.argsort(order[ends])
        table = table.set_column(at, table.schema.field(at), values.take(pa.array(as_they_came)))
    return replace(thin, table=table)


def _merge_pairs(
    blend: Blend, name: str, values: pa.Array, group: Int64Array
) -> tuple[pa.Array, Int64Array]:
    """Merge each odd-numbered value of a group into its predecessor. Return the values and their
    groups.
    """
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    rank = np.arange(len(group)) - np.repeat(starts, np.diff(starts, append=len(group)))
    first = np.flatnonzero(rank % 2 == 0)
    has_next = np.zeros(len(first), np.bool_)
    inside = first + 1 < len(group)
    has_next[inside] = group[first[inside]] == group[first[inside] + 1]
    older = values.take(pa.array(first))
    pairs = np.flatnonzero(has_next)
    newer = values.take(pa.array(first[pairs] + 1))
    together = blend.merge(name, older.take(pa.array(pairs)), newer).combine_chunks()
    at = np.arange(len(first))
    at[pairs] = len(first) + np.arange(len(pairs))
    return pa.concat_arrays([older, together]).take(pa.array(at)), group[first]
