"""Arrow schemas in the form that a Hudi table stores, and as Avro text.

:func:`mdt.schema.declared.stored_schema` defines the stored types. Names and nesting of Avro types
follow Spark's ``SchemaConverters`` and Hudi's ``AvroConversionUtils``, so a write by Spark does not
change them.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa

from mdt.schema.declared import stored_schema
from mdt.schema.definition import GENERATED_KEY, TableDefinition
from mdt.schema.names import in_files

COMMIT_TIME = "_hoodie_commit_time"
COMMIT_SEQNO = "_hoodie_commit_seqno"
RECORD_KEY = GENERATED_KEY
PARTITION_PATH = "_hoodie_partition_path"
FILE_NAME = "_hoodie_file_name"

META_FIELDS: tuple[str, ...] = (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME)
"""The first five columns of every data file, all optional strings."""

_ILLEGAL = re.compile(r"[^A-Za-z0-9_]")


def with_meta(schema: pa.Schema) -> pa.Schema:
    """Return ``schema`` with Hudi's five meta columns in front."""
    return pa.schema([*(pa.field(name, pa.string()) for name in META_FIELDS), *_data(schema)])


def _data(schema: pa.Schema) -> pa.Schema:
    """Return ``schema`` without the column of generated keys, which is a meta column in files."""
    at = schema.get_field_index(RECORD_KEY)
    return schema if at < 0 else schema.remove(at)


def to_avro(schema: pa.Schema, name: str, *, meta_fields: bool = False) -> str:
    """Return ``stored_schema(schema)`` as the JSON text of an Avro record.

    A nullable field has the type ``["null", T]`` with default null, a required field ``T``. Names
    that Avro does not allow are replaced by :func:`mdt.schema.names.avro_name`.

    Args:
        name: Name of the table.
        meta_fields: True to put Hudi's five meta columns in front.

    Raises Invalid like :func:`mdt.schema.declared.stored_schema`.

    >>> json.loads(to_avro(pa.schema({"fare": pa.float64()}), "trips"))["fields"]
    [{'name': 'fare', 'type': ['null', 'double'], 'default': None}]
    """
    return _to_avro(stored_schema(_data(schema)), name, meta_fields=meta_fields)


def _to_avro(stored: pa.Schema, name: str, *, meta_fields: bool) -> str:
    record, namespace = record_name(name)
    fields: list[dict[str, Any]] = []
    if meta_fields:
        fields = [
            {"name": meta, "type": ["null", "string"], "doc": "", "default": None}
            for meta in META_FIELDS
        ]
    fields += _avro_fields(list(in_files(stored)), f"{namespace}.{record}")
    return json.dumps(
        {"type": "record", "name": record, "namespace": namespace, "fields": fields},
        separators=(",", ":"),
    )


def avro_schema(definition: TableDefinition, *, meta_fields: bool = False) -> str:
    """Return a table's Avro schema as JSON text, with Hudi's meta columns in front if
    ``meta_fields``.
    """
    return _to_avro(_data(definition.file_schema), definition.name, meta_fields=meta_fields)


def record_name(table: str) -> tuple[str, str]:
    """Return the name and namespace that Hudi gives a table's Avro record.

    >>> record_name("my-trips")
    ('my__trips_record', 'hoodie.my__trips')
    """
    clean = _ILLEGAL.sub("__", table)
    if clean[:1].isdigit():
        clean = f"__{clean}"
    return f"{clean}_record", f"hoodie.{clean}"


_PRIMITIVES: dict[pa.DataType, Any] = {
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    pa.timestamp("ms", "UTC"): {"type": "long", "logicalType": "timestamp-millis"},
    pa.timestamp("us", "UTC"): {"type": "long", "logicalType": "timestamp-micros"},
    pa.timestamp("ms"): {"type": "long", "logicalType": "local-timestamp-millis"},
    pa.timestamp("us"): {"type": "long", "logicalType": "local-timestamp-micros"},
}


def _avro_fields(fields: list[pa.Field], namespace: str) -> list[dict[str, Any]]:
    avro_fields = []
    for field in fields:
        avro_field = {"name": field.name, "type": _avro_field(field, field.name, namespace)}
        if field.nullable:
            avro_field["default"] = None
        avro_fields.append(avro_field)
    return avro_fields


def _avro_field(field: pa.Field, name: str, namespace: str) -> Any:
    type = _avro(field.type, name, namespace)
    if field.nullable:
        return ["null", type]
    return type


def _avro(type: pa.DataType, name: str, namespace: str) -> Any:
    """Return the Avro type of the field ``name`` in the record with the full name ``namespace``."""
    if type in _PRIMITIVES:
        return _PRIMITIVES[type]
    if pa.types.is_decimal(type):
        return {
            "type": "fixed",
            "name": "fixed",
            "namespace": f"{namespace}.{name}",
            "size": _decimal_bytes(type.precision),
            "logicalType": "decimal",
            "precision": type.precision,
            "scale": type.scale,
        }
    if pa.types.is_map(type):
        return {"type": "map", "values": _avro_field(type.item_field, name, namespace)}
    if pa.types.is_list(type):
        return {"type": "array", "items": _avro_field(type.value_field, name, namespace)}
    fields = _avro_fields(list(type), f"{namespace}.{name}")
    return {"type": "record", "name": name, "namespace": namespace, "fields": fields}


def _decimal_bytes(precision: int) -> int:
    """Return the smallest number of bytes whose two's complement holds ``precision`` digits."""
    return int((10**precision - 1).bit_length() + 8) // 8
