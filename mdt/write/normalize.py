"""Normalization: convert input rows to stored rows, with keys and partition paths, or raise an
error. Writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexes.arrays import flags, has_duplicates, is_sorted, take_rows
from indexes.base import BoolArray, Int64Array
from indexes.key_hash import KeyHash
from mdt.errors import Conflict, Invalid
from mdt.hudi.partitions import partition_paths
from mdt.hudi.record_keys import record_keys, sort_keys
from mdt.metadata.files.key_map import words_of
from mdt.schema.conform import conform, refuse_repeated
from mdt.schema.convert import with_nulls
from mdt.schema.definition import TableDefinition
from mdt.schema.delete_marks import split_delete_marks
from mdt.schema.older_files import form_between
from mdt.write.ordering import ordering_ranks
from mdt.write.slices import KeyedRows, concat_rows

_NAMED_KEYS = 10


@dataclass(frozen=True, slots=True)
class Batch(KeyedRows):
    """n normalized rows with unique keys in the table's scope.

    Attributes:
        table: Columns in schema order. For deletes only the given columns.
        partition: int64[n], indices into ``partitions``. -1 is unknown, for deletes under table
            scope.
        key_hash: Hash function of ``hashes``.
        duplicates: Number of rows dropped because the batch has a newer row with the same key.
        repeated: The first keys of dropped rows.
        ends: bool[n], True for rows that delete their key. Columns that a delete does not need are
            null. None without such rows.
    """

    partition: Int64Array
    partitions: tuple[str, ...]
    key_hash: KeyHash
    duplicates: int = 0
    repeated: tuple[str, ...] = ()
    ends: BoolArray | None = None

    @classmethod
    def from_rows(
        cls, rows: KeyedRows, partition: Int64Array, partitions: Iterable[str], key_hash: KeyHash
    ) -> Batch:
        """Return ``rows`` with their partitions."""
        fields = rows.table, rows.keys, rows.sort_keys, rows.hashes, rows.ordering
        return cls(*fields, partition, tuple(partitions), key_hash)

    def take(self, rows: npt.NDArray[np.int64]) -> Batch:
        """Return the rows at the positions ``rows``."""
        batch = Batch.from_rows(
            self.rows(rows), self.partition[rows], self.partitions, self.key_hash
        )
        ends = None if self.ends is None else self.ends[rows]
        return replace(batch, duplicates=self.duplicates, repeated=self.repeated, ends=ends)

    @property
    def deletes(self) -> BoolArray:
        """Rows that delete their key -> bool[n], read-only."""
        if self.ends is None:
            return np.broadcast_to(np.False_, len(self))
        return self.ends

    def without_deletes(self) -> Batch:
        """Return the batch without rows that delete their key."""
        if self.ends is None:
            return self
        return replace(self.take(np.flatnonzero(~self.ends)), ends=None)


def definition_paths(table: pa.Table, definition: TableDefinition) -> tuple[Int64Array, list[str]]:
    """Return the partition paths of rows. Result as in
    :func:`mdt.hudi.partitions.partition_paths`.
    """
    return partition_paths(
        table, definition.partition_by, definition.hive_style, definition.time_path
    )


def partition_names(batch: Batch) -> npt.NDArray[np.object_]:
    """Return the partition path of each row -> object[n], read-only."""
    if len(batch.partitions) == 1:
        return np.broadcast_to(np.array(batch.partitions[0], object), len(batch))
    return np.array([*batch.partitions, ""], dtype=object)[batch.partition]


def keyed_rows(table: pa.Table, definition: TableDefinition, *, numbered: bool = True) -> KeyedRows:
    """Return stored rows with their keys, hashes and ordering words. ``numbered`` as for
    :func:`normalize`.
    """
    keys = record_keys(table, definition.key, named=definition.names_key, numbered=numbered)
    ordering = None
    if set(definition.ordering) <= set(table.column_names):
        ordering = words_of(table, definition.ordering, numbered=numbered)
    hashes = definition.key_hash.hash(keys)
    return KeyedRows(table, keys, sort_keys(table, definition.key), hashes, ordering)


def normalize(data: pa.Table, definition: TableDefinition, *, numbered: bool = True) -> Batch:
    """Return ``data`` as a batch. Raises Invalid with columns, types and rows if the data do not
    fit.

    Args:
        numbered: True if ``data`` are all rows of the caller, in order, so that row numbers are
            meaningful in messages. False in tasks.
    """
    data, ends = split_delete_marks(data)
    table = conform_data(
        data, ends, definition.declared, definition.schema, definition, numbered=numbered
    )
    batch = stored_batch(table, definition, numbered=numbered)
    return unique(replace(batch, ends=ends), definition)


def conform_data(
    data: pa.Table,
    ends: BoolArray | None,
    declared: pa.Schema,
    stored: pa.Schema,
    definition: TableDefinition,
    *,
    numbered: bool,
) -> pa.Table:
    """Return the columns of ``data`` converted to ``stored``, a part of the table's schema.

    Raises as :func:`mdt.schema.conform.conform` does.

    Args:
        ends: bool[n], rows that are deletes. Only their key, partition and ordering columns are
            checked.
    """
    if ends is None:
        return conform(data, declared, stored, definition.key, first=_first(numbered))
    delete_columns, key = {*definition.unique_by, *definition.ordering}, definition.key
    declared_columns, stored_columns = definition.forms(
        [name for name in stored.names if name in delete_columns]
    )
    marked = data.filter(pa.array(ends))
    marked = marked.select([name for name in stored_columns.names if name in data.column_names])
    deletes = conform(marked, declared_columns, stored_columns, key, first=None)
    live = conform(data.filter(pa.array(~ends)), declared, stored, key, first=None)
    at = np.empty(len(data), np.int64)
    at[~ends], at[ends] = np.arange(len(live)), len(live) + np.arange(len(deletes))
    return take_rows(pa.concat_tables([live, with_nulls(deletes, live.schema)]), at)


def stored_batch(
    table: pa.Table,
    definition: TableDefinition,
    *,
    numbered: bool = True,
    has_partition: bool = True,
) -> Batch:
    """Return stored rows as a batch, without removing repeated keys.

    Args:
        numbered: As for :func:`normalize`.
        has_partition: True if the rows have their partition columns.
    """
    rows = keyed_rows(table, definition, numbered=numbered)
    codes, paths = np.full(len(rows), -1, dtype=np.int64), list[str]()
    if has_partition or not definition.partition_by:
        codes, paths = definition_paths(table, definition)
    return Batch.from_rows(rows, codes, paths, definition.key_hash)


def rehash(batch: Batch, definition: TableDefinition) -> Batch:
    """Return the batch with the current key hash of the table, which a rekey may have changed."""
    if batch.key_hash == definition.key_hash:
        return batch
    return replace(batch, hashes=definition.key_hash.hash(batch.keys), key_hash=definition.key_hash)


def convert_to_current(batch: Batch, definition: TableDefinition) -> Batch:
    """Return a batch of an older schema version or key hash as the table stores its rows now.

    Raises Conflict if the columns match no version, because a column was added and dropped.
    """
    batch = rehash(batch, definition)
    table = batch.table
    if not definition.versions or table.schema.equals(definition.schema):
        return batch
    for version in reversed(definition.versions):
        if version.schema.equals(table.schema):
            form = form_between(version, definition.versions[-1], definition.schema)
            converted = (
                table.select(definition.schema.names) if form is None else form.convert(table)
            )
            return replace(batch, table=converted)
    raise columns_altered()


def columns_altered() -> Conflict:
    """Return the error for an operation on columns that another writer has altered."""
    return Conflict("the table's columns were altered concurrently", hint="repeat the operation")


def columns_of_deletes(definition: TableDefinition) -> tuple[list[str], list[str]]:
    """Return (required columns, optional columns) of rows to delete."""
    optional = list(definition.ordering) if definition.keeps_deletes else []
    return list(dict.fromkeys(definition.unique_by)), optional


def normalize_keys(data: pa.Table, definition: TableDefinition, *, numbered: bool = True) -> Batch:
    """Return the keys in ``data`` as a batch to delete. Under partition scope the partition columns
    are required.

    Ordering values are included if the data have them and the table keeps those of deletes.
    ``numbered`` as for :func:`normalize`.
    """
    hint = ""
    if not definition.is_global:
        hint = "keys are only unique within a partition of this table"
    names, optional = columns_of_deletes(definition)
    refuse_repeated(data.column_names)
    missing = [name for name in names if name not in data.column_names]
    if missing:
        raise Invalid(
            f"a delete needs the columns {', '.join(names)}; missing: {', '.join(missing)}",
            hint=hint,
        )
    names = list(dict.fromkeys([*names, *(name for name in optional if name in data.column_names)]))
    first = _first(numbered)
    table = conform(data.select(names), *definition.forms(names), definition.key, first=first)
    batch = stored_batch(
        table, definition, numbered=numbered, has_partition=not definition.is_global
    )
    return unique(batch, definition)


def paths_of(table: pa.Table, definition: TableDefinition) -> tuple[Int64Array, list[str]]:
    """Return (path index of each row, partition paths) for partition columns as given by the
    caller.
    """
    by = definition.partition_by
    if not by:
        return np.zeros(len(table), np.int64), [""]
    values = conform(table.select(list(by)), *definition.forms(by), first=None)
    return definition_paths(values, definition)


def _first(numbered: bool) -> int | None:
    """Return the number of the first row, or None if row numbers are meaningless."""
    return 0 if numbered else None


def unique(batch: Batch, definition: TableDefinition) -> Batch:
    """Return ``batch`` without repeated keys. The row with the largest ordering value wins, then
    the last row.
    """
    is_value = len(definition.key) == 1  # distinct values have distinct record keys
    if is_value and is_sorted(batch.sort_keys, strictly=True):
        return batch
    if not has_duplicates(batch.hashes.hi):
        return batch
    order, last = key_order(batch, definition)
    if last.all():
        return batch
    thin = batch.take(np.sort(order[last]))
    repeated = tuple(batch.keys.take(pa.array(np.sort(order[~last])[:_NAMED_KEYS])).to_pylist())
    return replace(thin, duplicates=len(batch) - len(thin), repeated=repeated)


def concat_batches(batches: Sequence[Batch], definition: TableDefinition) -> Batch:
    """Concatenate batches of the same schema version, at least one. Repeated keys are removed as in
    :func:`unique`.
    """
    batches = [rehash(batch, definition) for batch in batches]
    if len(batches) == 1:
        return batches[0]
    numbers = {
        path: n
        for n, path in enumerate(
            dict.fromkeys(path for batch in batches for path in batch.partitions)
        )
    }
    partition = [
        np.array([*(numbers[path] for path in b.partitions), -1], np.int64)[b.partition]
        for b in batches
    ]
    ends = None
    if any(b.ends is not None for b in batches):
        ends = np.concatenate([b.deletes for b in batches])
    whole = Batch.from_rows(
        concat_rows(batches), np.concatenate(partition), numbers, definition.key_hash
    )
    distinct = unique(replace(whole, ends=ends), definition)
    return replace(
        distinct, duplicates=distinct.duplicates + sum(batch.duplicates for batch in batches)
    )


def key_order(
    batch: Batch, definition: TableDefinition
) -> tuple[Int64Array, npt.NDArray[np.bool_]]:
    """Return (order, last).

    ``order``, int64[n], sorts the rows by key, ordering value and position. ``last``, bool[n], is
    True for the last row of each key in that order.
    """
    n = len(batch)
    scope, ordering = batch.partition, ordering_ranks(batch, definition)
    if definition.is_global:
        scope = np.zeros(n, dtype=np.int64)
    order = np.lexsort((np.arange(n), ordering, scope, batch.hashes.lo, batch.hashes.hi))
    hi, lo, part = batch.hashes.hi[order], batch.hashes.lo[order], scope[order]
    last = np.ones(n, dtype=np.bool_)
    last[:-1] = (hi[1:] != hi[:-1]) | (lo[1:] != lo[:-1]) | (part[1:] != part[:-1])
    if not definition.key_hash.is_keyed:
        _refuse_one_hash(batch.keys, order, np.flatnonzero(~last))
    return order.astype(np.int64), last


def _refuse_one_hash(keys: pa.Array, order: Int64Array, repeats: Int64Array) -> None:
    """Raise Invalid if two different keys have the same hash.

    Args:
        repeats: Indices into ``order`` of rows with the same hash as the next row.
    """
    first, second = (keys.take(pa.array(order[at])) for at in (repeats, repeats + 1))
    for at in np.flatnonzero(flags(pc.not_equal(first, second)))[:1].tolist():
        raise Invalid(
            f"two different keys have the same hash: {first[at].as_py()!r} and"
            f" {second[at].as_py()!r}",
            hint="use t.rekey(), which gives the table a secret hash without such collisions",
        )
