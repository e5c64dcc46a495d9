"""Rows as a caller gives them become rows as the table keeps them, or a clear error; nothing is written here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexes.base import Int64Array, KeyHashes, UInt64Array
from indexes.hashing import hash_keys
from mdt.definition import NAIVE, TableDefinition
from mdt.errors import Invalid
from mdt.hudi.keys import record_keys, sort_keys
from mdt.hudi.partitions import partition_paths
from mdt.key_map import ordering_words

_NAMED_KEYS = 10


@dataclass(frozen=True, slots=True)
class Batch:
    """n normalized rows with unique keys (in the table's scope).

    ``table``: columns of the table's schema in its order (for deletes only those that were given).  ``keys``: string[n]
    record keys.  ``sort_keys``: string or binary[n], what rows are ordered by and key ranges hold.  ``partition``: int64[n], positions in ``partitions``, or -1 if unknown (delete under table scope).
    ``ordering``: uint64[n] or None.  ``duplicates``: rows dropped because a newer row of the batch has their key;
    ``repeated``: the first of their keys.
    """

    table: pa.Table
    keys: pa.Array
    sort_keys: pa.Array
    hashes: KeyHashes
    partition: Int64Array
    partitions: tuple[str, ...]
    ordering: UInt64Array | None
    duplicates: int = 0
    repeated: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, rows: npt.NDArray[np.int64]) -> Batch:
        """Return the rows at positions ``rows``."""
        at = pa.array(rows)
        return Batch(
            self.table.take(at), self.keys.take(at), self.sort_keys.take(at), self.hashes.take(rows), self.partition[rows], self.partitions,
            None if self.ordering is None else self.ordering[rows], self.duplicates, self.repeated,
        )  # fmt: skip


def keyed(table: pa.Table, definition: TableDefinition) -> Batch:
    """Return rows that fit the table, repeated keys still in it, as a batch."""
    batch = _keyed(table, definition, definition.partition_by)
    ordering = None if definition.ordering is None else ordering_words(table[definition.ordering])
    return replace(batch, ordering=ordering)


def normalize(data: pa.Table, definition: TableDefinition) -> Batch:
    """Return ``data`` as a batch to write.  Raises Invalid, naming columns, types and rows, if it does not fit."""
    return _unique(keyed(conform(data, definition.schema), definition), definition)


def normalize_keys(data: pa.Table, definition: TableDefinition) -> Batch:
    """Return the keys in ``data`` as a batch to delete; under partition scope the partition columns are needed too."""
    wanted = [*definition.key, *(() if definition.is_global else definition.partition_by)]
    fields = [definition.schema.field(name) for name in dict.fromkeys(wanted)]
    _refuse_repeated(data.column_names)
    missing = [f.name for f in fields if f.name not in data.column_names]
    if missing:
        raise Invalid(
            f"a delete needs the columns {', '.join(f.name for f in fields)}; missing: {', '.join(missing)}",
            hint="under partition scope a key is only unique in its partition" if not definition.is_global else "",
        )
    table = conform(data.select([f.name for f in fields]), pa.schema(fields))
    return _unique(_keyed(table, definition, () if definition.is_global else definition.partition_by), definition)


def _refuse_repeated(names: Sequence[str]) -> None:
    if len(set(names)) != len(names):
        raise Invalid(f"column names occur twice: {sorted({n for n in names if names.count(n) > 1})}")


def conform(data: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return ``data`` with exactly the columns and types of ``schema``.

    Casts that lose nothing are made (int32 to int64, large strings, dictionaries, units of timestamps); anything else
    raises Invalid with one line for each column that does not fit.
    """
    names = data.column_names
    _refuse_repeated(names)
    problems = [f"column {name!r} is missing" for name in schema.names if name not in names]
    problems += [f"column {name!r} is not in the table" for name in names if name not in schema.names]
    columns = []
    for field in schema if not problems else ():
        try:
            columns.append(_cast(data[field.name], field))
        except (pa.ArrowException, Invalid) as error:
            text = error.message if isinstance(error, Invalid) else str(error)
            problems.append(f"column {field.name!r} is {data[field.name].type}, the table has {field.type}: {text}")
    if problems:
        raise Invalid(
            "the data does not fit the table:\n  " + "\n  ".join(problems),
            hint="the table's columns are: " + ", ".join(f"{f.name} {f.type}" for f in schema),
        )
    return pa.table(columns, schema=schema)


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if not field.nullable and column.null_count:
        raise Invalid(f"{column.null_count} values are null, but the column is required")
    if column.type == field.type:
        return column
    if pa.types.is_run_end_encoded(column.type):
        column = pc.run_end_decode(column)
    source = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not _castable(source, field.type, NAIVE in (field.metadata or {})):
        raise Invalid("the types do not fit")
    return column.cast(source).cast(field.type, safe=True)


def _castable(source: pa.DataType, target: pa.DataType, takes_naive: bool) -> bool:
    kinds = pa.types
    if source == target or kinds.is_null(source):
        return True
    if kinds.is_timestamp(source) and kinds.is_timestamp(target):
        return source.tz is not None or takes_naive
    if kinds.is_floating(source) and kinds.is_floating(target):
        return bool(source.bit_width <= target.bit_width)
    if kinds.is_nested(source) and kinds.is_nested(target):
        return _nested_castable(source, target, takes_naive)
    families = (
        (kinds.is_integer,),
        (kinds.is_string, kinds.is_large_string, kinds.is_string_view),
        (kinds.is_binary, kinds.is_large_binary, kinds.is_fixed_size_binary, kinds.is_binary_view),
        (kinds.is_decimal,),
        (kinds.is_date,),
    )
    return any(any(f(source) for f in family) and any(f(target) for f in family) for family in families)


def _nested_castable(source: pa.DataType, target: pa.DataType, takes_naive: bool) -> bool:
    # pyarrow's casts from list views lose values (seen with 26.0.1).
    views = pa.types.is_list_view(source) or pa.types.is_large_list_view(source)
    if views or source.num_fields != target.num_fields:
        return False
    if pa.types.is_struct(source) != pa.types.is_struct(target) or pa.types.is_map(source) != pa.types.is_map(target):
        return False
    if pa.types.is_struct(source) and [f.name for f in source] != [f.name for f in target]:
        return False
    return all(_castable(source.field(i).type, target.field(i).type, takes_naive) for i in range(source.num_fields))


def _keyed(table: pa.Table, definition: TableDefinition, partition_by: Sequence[str]) -> Batch:
    """Return ``table`` with keys and partition paths, repeated keys still in it."""
    keys = record_keys(table, definition.key)
    order, hashes = sort_keys(table, definition.key), hash_keys(keys, definition.hash_seed)
    if definition.partition_by and not partition_by:
        return Batch(table, keys, order, hashes, np.full(len(keys), -1, dtype=np.int64), (), None)
    codes, paths = partition_paths(table, tuple(partition_by), definition.hive_style)
    return Batch(table, keys, order, hashes, np.asarray(codes, dtype=np.int64), tuple(paths), None)


def _unique(batch: Batch, definition: TableDefinition) -> Batch:
    """Return ``batch`` without repeated keys: the largest ordering value wins, then the last row."""
    n = len(batch)
    ordered = np.sort(batch.hashes.hi)
    if not bool(np.any(ordered[1:] == ordered[:-1])):
        return batch
    scope = np.zeros(n, dtype=np.int64) if definition.is_global else batch.partition
    ordering = np.zeros(n, dtype=np.uint64) if batch.ordering is None else batch.ordering
    order = np.lexsort((np.arange(n), ordering, scope, batch.hashes.lo, batch.hashes.hi))
    hi, lo, part = batch.hashes.hi[order], batch.hashes.lo[order], scope[order]
    last = np.ones(n, dtype=np.bool_)
    last[:-1] = (hi[1:] != hi[:-1]) | (lo[1:] != lo[:-1]) | (part[1:] != part[:-1])
    kept = np.sort(order[last]).astype(np.int64)
    if len(kept) == n:
        return batch
    thin = batch.take(kept)
    repeated = tuple(batch.keys.take(pa.array(np.sort(order[~last])[:_NAMED_KEYS])).to_pylist())
    return replace(thin, duplicates=n - len(kept), repeated=repeated)
