"""What the Avro bodies of Hudi's instants are made of: pieces of schemas, and a file with one
record.
"""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import Any

import fastavro

NAMESPACE = "org.apache.hudi.avro.model"
STRINGS = {"type": "array", "items": "string"}
VERSION = {"name": "version", "type": ["int", "null"], "default": 1}
"""A field that most of Hudi's records have."""


def field(name: str, type: Any) -> dict[str, Any]:
    """Return a field that every record has."""
    return {"name": name, "type": type}


def optional(name: str, type: Any) -> dict[str, Any]:
    """Return a field that is null by default."""
    return {"name": name, "type": ["null", type], "default": None}


def record(name: str, *fields: Mapping[str, Any], **more: str) -> dict[str, Any]:
    """Return the type of a record; ``more``: what else is said of it."""
    return {"type": "record", "name": name, **more, "fields": list(fields)}


def parsed(name: str, *fields: Mapping[str, Any]) -> Any:
    """Return Hudi's record ``name`` as fastavro takes it."""
    return fastavro.parse_schema(record(name, *fields, namespace=NAMESPACE))


def array(items: Any) -> dict[str, Any]:
    """Return the type of a list."""
    return {"type": "array", "items": items}


def mapping(values: Any) -> dict[str, Any]:
    """Return the type of a map from text."""
    return {"type": "map", "values": values}


def one_record(schema: Any, record: Mapping[str, Any], sync: bytes) -> bytes:
    """Return an Avro file with ``record`` alone; ``sync``: its 16 bytes between blocks, fixed so
    that the same record gives the same file.
    """
    out = BytesIO()
    fastavro.writer(out, schema, [record], sync_marker=sync)
    return out.getvalue()
