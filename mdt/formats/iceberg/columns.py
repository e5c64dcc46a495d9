"""Columns of Iceberg tables: schemas, the partition spec, and bounds in Iceberg's encoding.

Source: https://iceberg.apache.org/spec/#appendix-c-json-serialization and
https://iceberg.apache.org/spec/#appendix-d-single-value-serialization.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indexes import values as order
from indexes.column_stats import Stats
from mdt.formats.data_files import DataFile
from mdt.formats.types import FLAT
from mdt.hudi.avro_schema import META_FIELDS
from mdt.hudi.partitions import NULL_PARTITION, unescape
from mdt.schema.declared import plain
from mdt.schema.definition import TableDefinition
from mdt.schema.nested import fields_of
from mdt.schema.versions import Column
from mdt.session import memo

_FIRST_PARTITION_ID = 1000
"""Id of the first partition field, as Iceberg's own writers number them."""
_LIST_ELEMENT = "element"
"""Name of the values of a list in Parquet."""
_EPOCH_DAY = date(1970, 1, 1)

PartitionValue = str | int | bool | date | None


def schema_json(definition: TableDefinition) -> dict[str, Any]:
    """Return the schema of the table. Its id is the commit that began it, and its field ids are
    those in the Parquet files.
    """
    version, first = definition.version, definition.first_field_id
    return {
        "type": "struct",
        "schema-id": version.since,
        "fields": _fields(version.columns, list(version.declared), first),
    }


def name_mapping(definition: TableDefinition) -> list[Any]:
    """Return the field ids of the columns in files without ids, by name. Source:
    https://iceberg.apache.org/spec/#name-mapping-serialization.

    Columns that were dropped are in it, because pyiceberg reads no file with an unknown column.
    """
    meta = [{"field-id": id, "names": [name]} for id, name in enumerate(META_FIELDS, 1)]
    versions = reversed(definition.versions or (definition.version,))
    columns = [column for version in versions for column in version.columns]
    return [*meta, *_names(columns, definition.first_field_id)]


def _names(columns: Sequence[Column], first: int) -> list[Any]:
    """Return the mapping of the columns of all schema versions, newest first. Of columns with the
    same name, the newest counts.
    """
    columns_by_name = dict[str, list[Column]]()
    for column in columns:
        columns_by_name.setdefault(column.field.name, []).append(column)
    mapping = []
    for name, (column, *former) in columns_by_name.items():
        names = {"field-id": first + column.id, "names": [name]}
        same = [column, *(field for field in former if field.id == column.id)]
        inner = _names([child for field in same for child in field.children], first)
        if pa.types.is_list(column.type):
            inner[0]["names"] = [_LIST_ELEMENT]
        mapping.append({**names, "fields": inner} if inner else names)
    return mapping


def last_column_id(definition: TableDefinition) -> int:
    """Return the highest field id of the current schema."""
    return definition.first_field_id + max(definition.version.ids)


def _fields(columns: Sequence[Column], declared: list[pa.Field], first: int) -> list[Any]:
    return [
        {
            "id": first + column.id,
            "name": column.field.name,
            "required": False,
            "type": _type(column, plain(as_declared.type), first),
        }
        for column, as_declared in zip(columns, declared, strict=True)
    ]


def _type(column: Column, declared: pa.DataType, first: int) -> Any:
    kinds, stored = pa.types, column.type
    if kinds.is_timestamp(stored):
        return "timestamp" if declared.tz is None else "timestamptz"
    if kinds.is_decimal(stored):
        return f"decimal({stored.precision}, {stored.scale})"
    if not stored.num_fields:
        return FLAT[stored]
    inner = _fields(column.children, fields_of(declared), first)
    if kinds.is_struct(stored):
        return {"type": "struct", "fields": inner}
    *keys, value = inner
    if not keys:
        return {
            "type": "list",
            "element-id": value["id"],
            "element-required": False,
            "element": value["type"],
        }
    return {
        "type": "map",
        "key-id": keys[0]["id"],
        "key": keys[0]["type"],
        "value-id": value["id"],
        "value-required": False,
        "value": value["type"],
    }


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A partition column.

    Attributes:
        id: Id of the partition field.
        source: Field id of the column.
        type: Its type in Iceberg.
    """

    id: int
    source: int
    name: str
    type: str

    def to_json(self) -> dict[str, Any]:
        """Return the field as the partition spec has it."""
        return {
            "source-id": self.source,
            "field-id": self.id,
            "name": self.name,
            "transform": "identity",
        }

    @property
    def avro_type(self) -> Any:
        """The type of its values in manifests."""
        return {"type": "int", "logicalType": "date"} if self.type == "date" else self.type


def partition_fields(definition: TableDefinition) -> tuple[PartitionField, ...]:
    """Return the partition columns. None if partition paths are times."""
    if definition.time_path is not None:
        return ()
    columns = {column.field.name: column for column in definition.version.columns}
    fields = []
    for level, name in enumerate(definition.partition_by):
        source = definition.first_field_id + columns[name].id
        type = FLAT[columns[name].type]
        fields.append(PartitionField(_FIRST_PARTITION_ID + level, source, name, type))
    return tuple(fields)


def partition_fields_of(spec: Sequence[Any], schema: dict[str, Any]) -> tuple[PartitionField, ...]:
    """Return the partition columns in the metadata of a table."""
    types, fields = {field["id"]: field["type"] for field in schema["fields"]}, []
    for field in spec:
        source = field["source-id"]
        fields.append(PartitionField(field["field-id"], source, field["name"], types[source]))
    return tuple(fields)


def last_partition_id(fields: Sequence[PartitionField]) -> int:
    """Return the highest id of a partition field, or that before the first."""
    return _FIRST_PARTITION_ID - 1 + len(fields)


@memo(4096)
def partition_values(
    partition: str, fields: tuple[PartitionField, ...], hive_style: bool
) -> tuple[PartitionValue, ...]:
    """Return the values of the partition columns in a partition path."""
    values: list[PartitionValue] = []
    for field, name in zip(fields, partition.split("/"), strict=False):
        text = name.partition("=")[2] if hive_style else name
        value = None if text == NULL_PARTITION else unescape(text)
        values.append(pc.cast(pa.scalar(value, pa.string()), _STORED[field.type]).as_py())
    return tuple(values)


def partition_bound(value: PartitionValue, type: str) -> bytes:
    r"""Return a partition value that is not null in Iceberg's binary form.

    >>> partition_bound(1, "int"), partition_bound("a", "string")
    (b'\x01\x00\x00\x00', b'a')
    """
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, date):
        return struct.pack("<i", (value - _EPOCH_DAY).days)
    return struct.pack(_PACKED[_STORED[type]], value)


_STORED = {name: type for type, name in FLAT.items()}
_PACKED = {
    pa.bool_(): "<?",
    pa.int32(): "<i",
    pa.int64(): "<q",
    pa.date32(): "<i",
    pa.float32(): "<f",
    pa.float64(): "<d",
}
"""Stored type -> form of its values. Timestamps have that of int64."""


@memo(64)
def _columns(schema: pa.Schema, ids: tuple[int, ...]) -> tuple[tuple[str, pa.DataType, int], ...]:
    return tuple(
        (field.name, field.type, id)
        for field, id in zip(schema, ids, strict=True)
        if order.supports(field.type)
    )


def metrics_of(file: DataFile, definition: TableDefinition) -> dict[str, list[dict[str, Any]]]:
    """Return the statistics of a file of a table as a manifest has them, deleted rows included:
    name -> field ids with numbers or bounds.
    """
    metrics: dict[str, list[dict[str, Any]]] = {}
    if not file.stats:
        return metrics
    version = definition.version
    ids = tuple(definition.first_field_id + column.id for column in version.columns)
    for name, type, id in _columns(definition.schema, ids):
        stats = file.stats.get(name)
        if stats is None or stats.values != file.rows:
            continue
        lower, upper = _bounds(stats, type)
        found = {
            "value_counts": stats.values,
            "null_value_counts": stats.nulls,
            "nan_value_counts": stats.nans if pa.types.is_floating(type) else None,
            "lower_bounds": lower,
            "upper_bounds": upper,
        }
        for kind, value in found.items():
            if value is not None:
                metrics.setdefault(kind, []).append({"key": id, "value": value})
    return metrics


def _bounds(stats: Stats, type: pa.DataType) -> Iterator[bytes | None]:
    """Yield the lower and the upper bound of a column, None if there is none.

    Readers answer queries for extremes of numbers from bounds, so these must be exact.
    """
    is_text = pa.types.is_string(type) or pa.types.is_binary(type)
    has_lower, has_upper = (is_text or is_exact for is_exact in (stats.min_exact, stats.max_exact))
    yield _bound(stats.min, type, is_upper=False) if has_lower else None
    yield _bound(stats.max, type, is_upper=True) if has_upper and not stats.nans else None


def _bound(key: bytes | None, type: pa.DataType, *, is_upper: bool) -> bytes | None:
    if key is None or pa.types.is_binary(type):
        return key
    if pa.types.is_string(type):
        return _text_bound(key, is_upper=is_upper)
    if pa.types.is_boolean(type):
        return key
    if pa.types.is_floating(type):
        value = order.decode(key, type)
        if not isinstance(value, float) or math.isnan(value):
            return None
        # -0.0 and 0.0 have the same key, and Iceberg orders -0.0 first
        return struct.pack(_PACKED[type], value or (0.0 if is_upper else -0.0))
    number = int.from_bytes(key, "big") - (1 << (8 * len(key) - 1))
    if pa.types.is_decimal(type):
        length = (number + (number < 0)).bit_length() // 8 + 1
        return number.to_bytes(length, "big", signed=True)
    return struct.pack(_PACKED.get(type, "<q"), number)


def _text_bound(key: bytes, *, is_upper: bool) -> bytes | None:
    try:
        key.decode()
    except UnicodeDecodeError:  # the bound was cut inside a character
        return None if is_upper else key.decode(errors="ignore").encode()
    return key
