"""Arrow schemas from the Avro text of a table."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

_PLAIN = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
}


def arrow_schema(text: str) -> pa.Schema:
    """Return the columns of an Avro record as ``to_avro`` returns it, in which no type name is
    repeated.
    """
    return pa.schema(list(_arrow(json.loads(text))))


def _field(name: str, value: Any) -> pa.Field:
    return pa.field(name, _arrow(value), isinstance(value, list))


def _arrow(value: Any) -> pa.DataType:
    match value:
        case str(name):
            return _PLAIN[name]
        case ["null", type] | [type, "null"]:
            return _arrow(type)
        case {"logicalType": "decimal", "precision": precision, "scale": scale}:
            return pa.decimal128(precision, scale)
        case {"logicalType": name}:
            return _PLAIN[name]
        case {"type": "array", "items": items}:
            return pa.list_(_field("element", items))
        case {"type": "map", "values": values}:
            return pa.map_(pa.string(), _field("value", values))
        case {"type": "record", "fields": fields}:
            return pa.struct([_field(member["name"], member["type"]) for member in fields])
        case {"type": type}:
            return _arrow(type)
    raise AssertionError(value)
