"""The columns of a table that Hudi wrote, and the conversion of a file's columns to them.

The newest commit stores the schema of the table. Older files may have fewer columns, in another
order and of narrower types, also within structs, lists and maps. Columns are matched by name, after
:mod:`mdt.hudi.read.schema_history` has given columns that were renamed their name of today.

Values are widened like Hudi does (``AvroSchemaEvolutionUtils``, ``HoodieAvroUtils``): integers to
larger integers, floats, decimals and text, float to double, decimals to larger ones, and dates to
text. A float becomes the double with the same shortest decimal text, not the same value. Times have
the same moment in another unit, and a time zone does not change it.

Microseconds in a table with milliseconds are an exception. Writers before Hudi 1.1 named the
milliseconds of Avro sources so, and Hudi reads such numbers as milliseconds
(``HoodieSchemaRepair``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mdt.errors import Corrupt, Unsupported
from mdt.hudi import avro_columns
from mdt.hudi.avro_schema import META_FIELDS
from mdt.hudi.read.instants import Timeline
from mdt.hudi.read.loading import TableState, load_commit
from mdt.hudi.read.parquet_rows import open_file
from mdt.hudi.read.schema_history import LATEST_SCHEMA, Renaming, SchemaHistory, load_history
from mdt.hudi.read.table_properties import TableProperties
from mdt.schema.convert import convert, is_encoded, is_same
from mdt.schema.nested import fields_of, is_list, parts_of, rebuild
from mdt.stores.storage import Storage

_KEEP_SCHEMA = frozenset(("CLUSTER", "COMPACT", "INDEX", "LOG_COMPACT"))
"""Operations that only move rows. Their schema may be older than that of the commit before."""
_RAW = {
    pa.int64(): (pa.types.is_timestamp, pa.types.is_time64),
    pa.int32(): (pa.types.is_date32, pa.types.is_time32),
}
"""Numbers that old writers have stored without saying that they are times."""
_BYTES = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)
_NO_DEFAULTS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The columns of a table.

    Attributes:
        columns: Hudi's meta columns if the table has them, then the columns of the table.
        defaults: Column -> its default value as in JSON, unless that is null or nested.
        avro: The Avro schema without meta columns, or "" if only a base file defines it.
        history: The names of columns in older files, None if they are those of today.
        numbered: The columns with the numbers of Hudi's schema on read, as JSON, or "".
    """

    columns: pa.Schema
    defaults: Mapping[str, Any] = field(default_factory=dict)
    avro: str = ""
    history: SchemaHistory | None = None
    numbered: str = ""

    def renaming(self, instant: str) -> Renaming | None:
        """Return the names of columns in a file of ``instant``, None if they are those of today."""
        return self.history.at(instant) if self.history else None


def load_schema(objects: Storage, state: TableState) -> TableSchema:
    """Return the schema of a table at the moment of ``state``.

    It is that of the newest commit with a schema, else of the newest base file, else of the
    table's creation.

    Raises Corrupt, Missing, and Unsupported for types that Arrow does not have, and for a table
    without any schema.
    """
    schema = schema_of_commits(objects, state.table, state.timeline, state.at)
    if schema is not None:
        return schema
    has_meta = state.table.meta_fields
    bases = [file_slice for file_slice in state.slices if file_slice.base is not None]
    if bases:
        newest = max(bases, key=lambda file_slice: file_slice.instant)
        assert newest.base is not None
        with open_file(objects, newest.path(newest.base), newest.base.size) as parquet:
            if parquet.avro_schema:
                return parse_schema(parquet.avro_schema, meta_fields=has_meta)
            return _table_schema(parquet.schema, meta_fields=has_meta)
    if state.table.schema_json:
        return parse_schema(state.table.schema_json, meta_fields=has_meta)
    raise Unsupported(
        "the table has no schema", hint="write to it with Hudi first, or give it a schema there"
    )


def schema_of_commits(
    objects: Storage, table: TableProperties, timeline: Timeline, at: str = ""
) -> TableSchema | None:
    """Return the schema in the newest commit that has one, or None.

    Args:
        at: Leave out later commits.

    Raises the errors of :func:`load_schema`.
    """
    for file in sorted(timeline.completed.values(), reverse=True):
        if not at or file.time <= at:
            content = load_commit(objects, file, with_files=False)
            if content.schema_json and content.operation not in _KEEP_SCHEMA:
                schema = parse_schema(content.schema_json, meta_fields=table.meta_fields)
                latest = content.extra.get(LATEST_SCHEMA, "")
                if not latest:
                    return schema
                names = [name for name in schema.columns.names if name not in META_FIELDS]
                history = load_history(objects, timeline, file.time, latest, names)
                return replace(schema, history=history, numbered=latest)
    return None


def parse_schema(text: str, *, meta_fields: bool) -> TableSchema:
    """Return the schema of an Avro record, with or without Hudi's meta columns in it.

    Args:
        meta_fields: True to put the meta columns in front, False to leave them out.

    Raises Corrupt, and Unsupported for types that Arrow does not have.

    >>> text = '{"type": "record", "name": "r", "fields": [{"name": "id", "type": "string"}]}'
    >>> parse_schema(text, meta_fields=False).columns.names
    ['id']
    """
    columns = avro_columns.arrow_schema(text)
    defaults = {}
    for name, default in avro_columns.default_values(text).items():
        if isinstance(default, (bool, int, float, str)):
            defaults[name] = default
    return _table_schema(columns, meta_fields=meta_fields, defaults=defaults, avro=text)


def _table_schema(
    columns: pa.Schema,
    *,
    meta_fields: bool,
    defaults: Mapping[str, Any] = _NO_DEFAULTS,
    avro: str = "",
) -> TableSchema:
    own = [column for column in columns if column.name not in META_FIELDS]
    names = [column.name for column in own]
    if len(set(names)) < len(names):
        raise Corrupt(f"the schema of the table repeats a column: {sorted(names)}"[:300])
    for column in own:
        _require_supported(column.type, column.name)
    meta = [pa.field(name, pa.string()) for name in META_FIELDS if meta_fields]
    return TableSchema(pa.schema(meta + own), defaults, avro)


def _require_supported(type: pa.DataType, name: str) -> None:
    """Raise Unsupported for a union or nanoseconds, also within ``type``."""
    if pa.types.is_union(type):
        raise Unsupported(f"column {name!r} has values of several types")
    if pa.types.is_timestamp(type) and type.unit == "ns":
        raise Unsupported(f"column {name!r} has times in nanoseconds, which Hudi does not have")
    for child in fields_of(type):
        _require_supported(child.type, name)


def to_table_columns(
    rows: pa.Table, schema: TableSchema, names: Sequence[str], *, path: str, partial: bool = False
) -> pa.Table:
    """Return the columns ``names`` of a file's rows as columns of the table.

    A column that the file lacks is null, or has its default value if it may not be null.

    Args:
        rows: Rows of a file, with any columns.
        names: Names in ``schema``.
        path: Path of the file, for messages.
        partial: True to leave columns that the file lacks null, whatever their default.

    Raises Corrupt for values that do not fit, and Unsupported for types that cannot be converted.

    >>> schema = TableSchema(pa.schema({"id": pa.int64(), "city": pa.string()}))
    >>> old = pa.table({"id": pa.array([1], pa.int32()), "other": [True]})
    >>> to_table_columns(old, schema, ["id", "city"], path="a.parquet").to_pylist()
    [{'id': 1, 'city': None}]
    """
    columns, fields = [], []
    present = frozenset(rows.column_names)
    for name in names:
        column = schema.columns.field(name)
        fields.append(column)
        if name in present:
            columns.append(_convert_column(rows[name], column, path))
        else:
            default = None if column.nullable or partial else schema.defaults.get(name)
            columns.append(_repeated(default, column.type, len(rows)))
    # columns that are not null in the table may be null in a partial update
    return pa.table(columns, pa.schema([field.with_nullable(True) for field in fields]))


def _repeated(value: Any, type: pa.DataType, rows: int) -> pa.Array:
    """Return ``value`` as a column. A default that is not a value of ``type`` is null."""
    if isinstance(value, str) and pa.types.is_binary(type):
        value = value.encode("latin-1", "replace")  # Avro's form of bytes in JSON
    try:
        return pa.repeat(pa.scalar(value, type), rows)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return pa.nulls(rows, type)


def _convert_column(values: pa.ChunkedArray, column: pa.Field, path: str) -> pa.ChunkedArray:
    try:
        chunks = [convert_values(chunk, column.type) for chunk in values.chunks]
        return pa.chunked_array(chunks, column.type)
    except Unsupported as error:
        raise Unsupported(f"column {column.name!r} of {path}: {error.message}") from error
    except Corrupt as error:
        raise Corrupt(f"column {column.name!r}: {error.message}", path=path) from error
    except (pa.ArrowException, ValueError) as error:
        problem = str(error).splitlines()[0][:200]
        raise Corrupt(
            f"column {column.name!r} does not fit the table: {problem}", path=path
        ) from error


def convert_values(values: pa.Array, type: pa.DataType) -> pa.Array:
    """Return the values of a file (n) in the type of the table.

    Raises Unsupported for other types, and ValueError or one of its subclasses in pyarrow for a
    value that does not fit.

    >>> convert_values(pa.array([1], pa.int32()), pa.decimal128(5, 1)).to_pylist()
    [Decimal('1.0')]
    """
    source = values.type
    if is_same(source, type):
        values.validate(full=not _is_number(type))
        return values
    if is_encoded(source):
        return convert_values(convert(values, source.value_type), type)
    if pa.types.is_null(source):
        return pa.nulls(len(values), type)
    if pa.types.is_struct(type) and pa.types.is_struct(source):
        return rebuild(values, _members(values, type), type)
    if pa.types.is_fixed_size_list(type) and pa.types.is_fixed_size_binary(source):
        return avro_columns.vectors(values, type)
    kinds = (is_list, pa.types.is_map)
    is_vector = pa.types.is_fixed_size_list(type)
    if not is_vector and any(kind(type) and kind(source) for kind in kinds):
        parts = []
        for part, child in zip(parts_of(values), fields_of(type), strict=True):
            parts.append(_required(convert_values(part, child.type), child))
        return rebuild(values, parts, type)
    if fields_of(type) or fields_of(source):
        raise Unsupported(f"{source} cannot be converted to {type}")
    return _flat(values, type)


def _members(values: pa.StructArray, type: pa.StructType) -> list[pa.Array]:
    """Return the fields of structs, matched by name. New ones are null."""
    parts = []
    for child in type:
        number = values.type.get_field_index(child.name)
        if number < 0:
            part = pa.nulls(len(values), child.type)
        else:
            part = convert_values(values.field(number), child.type)
        parts.append(_required(part, child, values))
    return parts


def _required(values: pa.Array, child: pa.Field, parents: pa.Array | None = None) -> pa.Array:
    """Return ``values``. Raises ValueError if a required field is null in a struct that is not."""
    if child.nullable or not values.null_count:
        return values
    missing = values.is_null()
    if parents is not None:
        missing = pc.and_(missing, parents.is_valid())
    if pc.any(missing).as_py():
        raise ValueError(f"the required field {child.name!r} is null")
    return values


def _is_number(type: pa.DataType) -> bool:
    """Return True if any bit pattern is a valid value of ``type``."""
    kinds = pa.types
    tests = (kinds.is_integer, kinds.is_floating, kinds.is_boolean, kinds.is_timestamp)
    return any(test(type) for test in tests)


def _flat(values: pa.Array, type: pa.DataType) -> pa.Array:
    source, kinds = values.type, pa.types
    values.validate(full=not _is_number(source))
    if kinds.is_timestamp(source) and kinds.is_timestamp(type):
        if _is_misnamed(source, type):
            return values.view(type)
        # a cast would take local times for times of the zone; both are stored as UTC
        return values.view(pa.timestamp(source.unit, type.tz)).cast(type)
    if kinds.is_float32(source) and kinds.is_float64(type):
        return values.cast(pa.string()).cast(type)
    if kinds.is_integer(source) and kinds.is_decimal(type):
        return convert(values, type)
    if _widens(source, type):
        return values.cast(type, safe=not kinds.is_floating(type))
    if source in _RAW and any(test(type) for test in _RAW[source]):
        return values.view(type)
    raise Unsupported(f"{source} cannot be converted to {type}")


def _is_misnamed(source: pa.TimestampType, type: pa.TimestampType) -> bool:
    """Return True for milliseconds that their writer has stored as microseconds. Times of 96 bits
    have no zone, and are microseconds.
    """
    is_wide = source.tz is None and type.tz is not None
    return bool((source.unit, type.unit) == ("us", "ms") and not is_wide)


def _widens(source: pa.DataType, type: pa.DataType) -> bool:
    """Return True if a cast of Arrow converts ``source`` to ``type`` like Hudi."""
    kinds = pa.types
    is_text = kinds.is_string(type)
    if kinds.is_integer(source):
        is_wider = kinds.is_signed_integer(type) and type.bit_width >= source.bit_width
        return bool(is_wider or kinds.is_floating(type) or is_text)
    if kinds.is_decimal(source) and kinds.is_decimal(type):
        digits = type.precision - type.scale - (source.precision - source.scale)
        return bool(digits >= 0 and type.scale >= source.scale)
    if any(test(source) for test in _BYTES):
        return any(test(type) for test in _BYTES)
    if kinds.is_time(source) and kinds.is_time(type):
        return bool(type.bit_width >= source.bit_width)
    return bool(kinds.is_date(source) and (kinds.is_date32(type) or is_text))
