"""Building blocks for the Avro bodies of Hudi's instants: schema parts, and single-record files."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import Any

import fastavro

NAMESPACE = "org.apache.hudi.avro.model"
STRINGS = {"type": "array", "items": "string"}
VERSION = {"name": "version", "type": ["int", "null"], "default": 1}
"""A field of most Hudi records."""

WRAPPED: Mapping[str, Any] = {
    "BooleanWrapper": "boolean",
    "IntWrapper": "int",
    "LongWrapper": "long",
    "FloatWrapper": "float",
    "DoubleWrapper": "double",
    "BytesWrapper": "bytes",
    "StringWrapper": "string",
    "DateWrapper": {"type": "int", "logicalType": "date"},
    "DecimalWrapper": {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15},
    "TimeMicrosWrapper": {"type": "long", "logicalType": "time-micros"},
    "TimestampMicrosWrapper": {"type": "long", "logicalType": "timestamp-micros"},
}
"""Hudi's records that wrap a value of any type -> the type of their value."""


def field(name: str, type: Any) -> dict[str, Any]:
    """Return a required field.

    >>> field("action", "string")
    {'name': 'action', 'type': 'string'}
    """
    return {"name": name, "type": type}


def optional(name: str, type: Any) -> dict[str, Any]:
    """Return a field that is null by default."""
    return {"name": name, "type": ["null", type], "default": None}


def record(name: str, *fields: Mapping[str, Any], **attributes: str) -> dict[str, Any]:
    """Return a record type.

    Args:
        attributes: Further attributes, e.g. its namespace.
    """
    return {"type": "record", "name": name, **attributes, "fields": list(fields)}


def parse_record(name: str, *fields: Mapping[str, Any]) -> Any:
    """Return Hudi's record type ``name``, parsed by fastavro."""
    return fastavro.parse_schema(record(name, *fields, namespace=NAMESPACE))


def array(items: Any) -> dict[str, Any]:
    """Return a list type."""
    return {"type": "array", "items": items}


def mapping(values: Any) -> dict[str, Any]:
    """Return a map type with string keys."""
    return {"type": "map", "values": values}


def one_record(schema: Any, record: Mapping[str, Any], sync: bytes) -> bytes:
    """Return an Avro file that contains only ``record``.

    Args:
        sync: Its 16-byte sync marker, fixed to make the encoding deterministic.
    """
    out = BytesIO()
    fastavro.writer(out, schema, [record], sync_marker=sync)
    return out.getvalue()
