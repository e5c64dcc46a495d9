"""Arrow schemas as a Hudi table keeps them, and their Avro text.

Which types a table keeps is said by :func:`mdt.schema.declared.stored`.  Names and nesting of Avro
types follow Spark's ``SchemaConverters`` and Hudi's ``AvroConversionUtils``, so that they stay the
same if Spark writes to the table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from mdt.errors import Corrupt, Unsupported
from mdt.schema.declared import DEPTH_MAX, stored
from mdt.schema.definition import TableDefinition
from mdt.schema.names import in_files

COMMIT_TIME = "_hoodie_commit_time"
COMMIT_SEQNO = "_hoodie_commit_seqno"
RECORD_KEY = "_hoodie_record_key"
PARTITION_PATH = "_hoodie_partition_path"
FILE_NAME = "_hoodie_file_name"

META_FIELDS: tuple[str, ...] = (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME)
"""The five columns that stand first in every data file, all optional strings."""

_ILLEGAL = re.compile(r"[^A-Za-z0-9_]")


def with_meta(schema: pa.Schema) -> pa.Schema:
    """Return ``schema`` with Hudi's five meta columns in front."""
    return pa.schema([*(pa.field(name, pa.string()) for name in META_FIELDS), *schema])


def to_avro(schema: pa.Schema, name: str, *, meta_fields: bool = False) -> str:
    """Return the Avro record of ``stored(schema)`` as JSON text: ``["null", T]`` with default null,
    of a required field ``T``.

    ``name``: the table's name.  ``meta_fields``: put Hudi's five in front.  Names that Avro does
    not allow are those of :func:`mdt.schema.names.avro_name`.  Raises Invalid as
    :func:`mdt.schema.declared.stored`.

    >>> json.loads(to_avro(pa.schema({"fare": pa.float64()}), "trips"))["fields"]
    [{'name': 'fare', 'type': ['null', 'double'], 'default': None}]
    >>> from_avro(to_avro(pa.schema({"fare": pa.float64()}), "trips"))
    fare: double
    """
    record, namespace = record_name(name)
    fields: list[dict[str, Any]] = []
    if meta_fields:
        fields = [
            {"name": meta, "type": ["null", "string"], "doc": "", "default": None}
            for meta in META_FIELDS
        ]
    fields += _avro_fields(list(in_files(stored(schema))), f"{namespace}.{record}")
    return json.dumps(
        {"type": "record", "name": record, "namespace": namespace, "fields": fields},
        separators=(",", ":"),
    )


def avro_schema(definition: TableDefinition, *, meta_fields: bool = False) -> str:
    """Return a table's Avro schema as JSON text; ``meta_fields``: with Hudi's five in front."""
    return to_avro(definition.schema, definition.name, meta_fields=meta_fields)


def record_name(table: str) -> tuple[str, str]:
    """Return name and namespace of a table's Avro record, as Hudi chooses them."""
    clean = _ILLEGAL.sub("__", table)
    if clean[:1].isdigit():
        clean = f"__{clean}"
    return f"{clean}_record", f"hoodie.{clean}"


def from_avro(text: str) -> pa.Schema:
    """Return the Arrow schema of an Avro record, meta columns included if it has them.

    Raises Corrupt if ``text`` is no Avro record, Unsupported for types that a table here cannot
    hold.
    """
    try:
        value = json.loads(text)
        named: dict[str, pa.DataType] = {}
        type = _arrow(value, "", named, 0)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        if isinstance(error, Unsupported):
            raise
        raise Corrupt(f"the Avro schema cannot be read: {error!r}") from error
    if not pa.types.is_struct(type):
        raise Corrupt("the Avro schema is no record")
    return pa.schema(list(type))


# -- what is kept to Avro

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
}


def _avro_fields(fields: list[pa.Field], namespace: str) -> list[dict[str, Any]]:
    found = []
    for field in fields:
        told = {"name": field.name, "type": _avro_field(field, field.name, namespace)}
        if field.nullable:
            told["default"] = None
        found.append(told)
    return found


def _avro_field(field: pa.Field, name: str, namespace: str) -> Any:
    type = _avro(field.type, name, namespace)
    if field.nullable:
        return ["null", type]
    return type


def _avro(type: pa.DataType, name: str, namespace: str) -> Any:
    """Return the Avro type of a field ``name`` inside the record whose full name is
    ``namespace``.
    """
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
    """Return the fewest bytes whose two's complement holds ``precision`` digits."""
    return int((10**precision - 1).bit_length() + 8) // 8


# -- Avro to Arrow

_ARROW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "enum": pa.string(),
}
_LOGICAL: dict[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
}
_REFUSED = frozenset(
    {"time-millis", "time-micros", "local-timestamp-millis", "local-timestamp-micros", "duration"}
)


def _arrow(value: Any, namespace: str, named: dict[str, pa.DataType], depth: int) -> pa.DataType:
    if depth > 2 * DEPTH_MAX:
        raise Unsupported(f"the Avro schema is nested deeper than {2 * DEPTH_MAX} levels")
    if isinstance(value, list):
        return _arrow_union(value, namespace, named, depth)
    if isinstance(value, str):
        return _known(value, namespace, named)
    kind = value["type"]
    if isinstance(kind, (dict, list)):
        return _arrow(kind, namespace, named, depth + 1)
    logical = str(value.get("logicalType", ""))
    if logical in _REFUSED:
        raise Unsupported(f"Avro's {logical} is not supported")
    if (kind, logical) in _LOGICAL:
        return _LOGICAL[kind, logical]
    build = _NAMED.get(kind)
    if build is not None:
        return _arrow_named(build, value, namespace, named, depth)
    if kind == "bytes" and logical == "decimal":
        return pa.decimal128(int(value["precision"]), int(value.get("scale", 0)))
    if kind == "array":
        return pa.list_(_arrow_field("element", value["items"], namespace, named, depth))
    if kind == "map":
        return pa.map_(pa.string(), _arrow_field("value", value["values"], namespace, named, depth))
    return _known(kind, namespace, named)


def _arrow_field(
    name: str, value: Any, namespace: str, named: dict[str, pa.DataType], depth: int
) -> pa.Field:
    nullable = isinstance(value, list) and "null" in value
    return pa.field(name, _arrow(value, namespace, named, depth + 1), nullable)


def _arrow_union(
    value: list[Any], namespace: str, named: dict[str, pa.DataType], depth: int
) -> pa.DataType:
    branches = [branch for branch in value if branch != "null"]
    if len(branches) != 1:
        raise Unsupported(f"an Avro union of {len(branches)} types is not supported")
    return _arrow(branches[0], namespace, named, depth + 1)


def _known(name: str, namespace: str, named: dict[str, pa.DataType]) -> pa.DataType:
    """Return a primitive Avro type, or one that was defined earlier."""
    if name in _ARROW:
        return _ARROW[name]
    full = _full_name(name, namespace)
    if full not in named:
        raise Unsupported(f"the Avro type {name!r} is unknown or refers to itself")
    return named[full]


def _full_name(name: str, namespace: str) -> str:
    if "." in name or not namespace:
        return name
    return f"{namespace}.{name}"


_Named = Callable[[Mapping[str, Any], str, dict[str, pa.DataType], int], pa.DataType]


def _arrow_named(
    build: _Named,
    value: Mapping[str, Any],
    namespace: str,
    named: dict[str, pa.DataType],
    depth: int,
) -> pa.DataType:
    name = str(value["name"])
    full = _full_name(name, str(value.get("namespace") or namespace))
    named[full] = build(value, full.rpartition(".")[0], named, depth)
    return named[full]


def _arrow_record(
    value: Mapping[str, Any], namespace: str, named: dict[str, pa.DataType], depth: int
) -> pa.DataType:
    return pa.struct(
        [_arrow_field(str(f["name"]), f["type"], namespace, named, depth) for f in value["fields"]]
    )


def _arrow_fixed(
    value: Mapping[str, Any], namespace: str, named: dict[str, pa.DataType], depth: int
) -> pa.DataType:
    if value.get("logicalType") == "decimal":
        return pa.decimal128(int(value["precision"]), int(value.get("scale", 0)))
    return pa.binary()


def _arrow_enum(
    value: Mapping[str, Any], namespace: str, named: dict[str, pa.DataType], depth: int
) -> pa.DataType:
    return pa.string()


_NAMED: dict[str, _Named] = {"record": _arrow_record, "fixed": _arrow_fixed, "enum": _arrow_enum}
