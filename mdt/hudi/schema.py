"""Arrow schemas as a Hudi table keeps them, and their Avro text.

What is kept is what Spark, hudi-rs and we read back alike (:func:`storable`).  Names and nesting of Avro types follow
Spark's ``SchemaConverters`` and Hudi's ``AvroConversionUtils``, so that they stay the same if Spark writes to the table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from mdt.errors import Corrupt, Invalid, Unsupported

COMMIT_TIME = "_hoodie_commit_time"
COMMIT_SEQNO = "_hoodie_commit_seqno"
RECORD_KEY = "_hoodie_record_key"
PARTITION_PATH = "_hoodie_partition_path"
FILE_NAME = "_hoodie_file_name"

META_FIELDS: tuple[str, ...] = (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME)
"""The five columns that stand first in every data file, all optional strings."""

RESERVED_PREFIX = "_hoodie_"
DEPTH_MAX = 50
"""Deepest nesting of types; keeps recursive readers, ours and others', far from their stack limits."""

_LEGAL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ILLEGAL = re.compile(r"[^A-Za-z0-9_]")


def storable(schema: pa.Schema) -> pa.Schema:
    """Return ``schema`` as it is kept: every field nullable, without metadata, types normalized.

    | given | kept |
    |---|---|
    | int8, int16, uint8, uint16; uint32; half float | int32; int64; float |
    | large and view strings, binaries; large lists; fixed size binaries and lists | string, binary, list |
    | dictionary, run-end encoded | the value type |
    | timestamp(s); any time zone | timestamp(ms); UTC, the same moment |
    | timestamp without time zone | UTC, **the same digits**: Hudi readers have no common type for local times |
    | date64; decimal32, decimal64, decimal256 up to 38 digits | date32; decimal128 |

    Raises Invalid, naming column and type, for timestamp(ns), time, duration, interval, uint64, null, union, list view and
    extension types, maps with keys that are not strings, empty structs, and nesting beyond DEPTH_MAX; for names that
    Avro does not allow, that are reserved, repeated, or differ only in case.
    """
    _check_names([field.name for field in schema], "")
    for field in schema:
        if field.name.lower().startswith(RESERVED_PREFIX):
            raise Invalid(
                f"column {field.name!r}: names beginning with {RESERVED_PREFIX} belong to Hudi", hint="rename it"
            )
    return pa.schema([pa.field(field.name, _storable(field.type, field.name, 1)) for field in schema])


def with_meta(schema: pa.Schema) -> pa.Schema:
    """Return ``schema`` with Hudi's five meta columns in front."""
    return pa.schema([*(pa.field(name, pa.string()) for name in META_FIELDS), *schema])


def to_avro(schema: pa.Schema, name: str, *, meta_fields: bool = False) -> str:
    """Return the Avro record of ``storable(schema)`` as JSON text; every field is ``["null", T]`` with default null.

    ``name``: the table's name.  ``meta_fields``: put Hudi's five in front.  Raises Invalid as :func:`storable` does.
    """
    record, namespace = record_name(name)
    fields: list[dict[str, Any]] = []
    if meta_fields:
        fields = [{"name": meta, "type": ["null", "string"], "doc": "", "default": None} for meta in META_FIELDS]
    fields += _avro_fields(list(storable(schema)), f"{namespace}.{record}")
    return json.dumps(
        {"type": "record", "name": record, "namespace": namespace, "fields": fields}, separators=(",", ":")
    )


def record_name(table: str) -> tuple[str, str]:
    """Return name and namespace of a table's Avro record, as Hudi chooses them."""
    clean = _ILLEGAL.sub("__", table)
    if clean[:1].isdigit():
        clean = f"__{clean}"
    return f"{clean}_record", f"hoodie.{clean}"


def from_avro(text: str) -> pa.Schema:
    """Return the Arrow schema of an Avro record, meta columns included if it has them.

    Raises Corrupt if ``text`` is no Avro record, Unsupported for types that a table here cannot hold.
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


# -- Arrow to what is kept


def _check_names(names: list[str], where: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if not _LEGAL_NAME.fullmatch(name):
            raise Invalid(
                f"{where}{name!r} is no legal column name",
                hint="use letters, digits and underscores, not beginning with a digit",
            )
        other = seen.get(name.lower())
        if other is not None:
            raise Invalid(
                f"columns {where}{other!r} and {where}{name!r} differ at most in case", hint="rename one of them"
            )
        seen[name.lower()] = name


_WIDENED: dict[pa.DataType, pa.DataType] = {
    pa.bool_(): pa.bool_(),
    pa.int8(): pa.int32(),
    pa.int16(): pa.int32(),
    pa.int32(): pa.int32(),
    pa.int64(): pa.int64(),
    pa.uint8(): pa.int32(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.float16(): pa.float32(),
    pa.float32(): pa.float32(),
    pa.float64(): pa.float64(),
    pa.string(): pa.string(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.binary(): pa.binary(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date32(): pa.date32(),
    pa.date64(): pa.date32(),
    pa.timestamp("s"): pa.timestamp("ms", "UTC"),
    pa.timestamp("ms"): pa.timestamp("ms", "UTC"),
    pa.timestamp("us"): pa.timestamp("us", "UTC"),
}

_INSTEAD = (
    (pa.types.is_timestamp, "cast it to timestamp('us', 'UTC')"),
    (pa.types.is_time, "cast it to an integer or a string"),
    (pa.types.is_duration, "cast it to int64"),
    (pa.types.is_uint64, "cast it to int64 or decimal128(20, 0)"),
    (pa.types.is_null, "cast it to the type that its values will have"),
    (pa.types.is_decimal, "use decimal128 with 1 to 38 digits and a scale from 0 to the number of digits"),
    (pa.types.is_map, "use string keys"),
    (pa.types.is_list_view, "cast it to list"),
    (pa.types.is_large_list_view, "cast it to list"),
    (pa.types.is_struct, "give it a field"),
)


def _storable(type: pa.DataType, path: str, depth: int) -> pa.DataType:
    if depth > DEPTH_MAX:
        raise Invalid(f"column {path[:200]!r} is nested deeper than {DEPTH_MAX} levels", hint="flatten it")
    kinds = pa.types
    if kinds.is_dictionary(type) or kinds.is_run_end_encoded(type):
        return _storable(type.value_type, path, depth)
    if kinds.is_timestamp(type) and type.tz is not None:
        type = pa.timestamp(type.unit)
    if type in _WIDENED:
        return _WIDENED[type]
    if kinds.is_fixed_size_binary(type):
        return pa.binary()
    if kinds.is_decimal(type) and 0 <= type.scale <= type.precision <= 38:
        return pa.decimal128(type.precision, type.scale)
    return _storable_nested(type, path, depth)


def _storable_nested(type: pa.DataType, path: str, depth: int) -> pa.DataType:
    kinds = pa.types
    if any(kind(type) for kind in (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list)):
        return pa.list_(pa.field("element", _storable(type.value_type, f"{path}.element", depth + 1)))
    if kinds.is_map(type) and _storable(type.key_type, f"{path}.key", depth + 1) == pa.string():
        return pa.map_(pa.string(), _storable(type.item_type, f"{path}.value", depth + 1))
    if kinds.is_struct(type) and type.num_fields:
        _check_names([field.name for field in type], f"{path}.")
        return pa.struct([pa.field(f.name, _storable(f.type, f"{path}.{f.name}", depth + 1)) for f in type])
    hint = next((hint for kind, hint in _INSTEAD if kind(type)), "cast it to a type that Avro has")
    raise Invalid(f"column {path!r} has the type {type}, which a Hudi table cannot hold", hint=hint)


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
    return [
        {"name": field.name, "type": ["null", _avro(field.type, field.name, namespace)], "default": None}
        for field in fields
    ]


def _avro(type: pa.DataType, name: str, namespace: str) -> Any:
    """Return the Avro type of a field ``name`` inside the record whose full name is ``namespace``."""
    if type in _PRIMITIVES:
        return _PRIMITIVES[type]
    if pa.types.is_decimal(type):
        return {
            "type": "fixed", "name": "fixed", "namespace": f"{namespace}.{name}", "size": _decimal_bytes(type.precision),
            "logicalType": "decimal", "precision": type.precision, "scale": type.scale,
        }  # fmt: skip
    if pa.types.is_map(type):
        return {"type": "map", "values": ["null", _avro(type.item_type, name, namespace)]}
    if pa.types.is_list(type):
        return {"type": "array", "items": ["null", _avro(type.value_type, name, namespace)]}
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
_REFUSED = frozenset({"time-millis", "time-micros", "local-timestamp-millis", "local-timestamp-micros", "duration"})


def _arrow(value: Any, namespace: str, named: dict[str, pa.DataType], depth: int) -> pa.DataType:
    if depth > 2 * DEPTH_MAX:
        raise Unsupported(f"the Avro schema is nested deeper than {2 * DEPTH_MAX} levels")
    if isinstance(value, list):
        return _arrow_union(value, namespace, named, depth)
    if isinstance(value, str):
        return _ARROW[value] if value in _ARROW else _known(value, namespace, named)
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
        return pa.list_(pa.field("element", _arrow(value["items"], namespace, named, depth + 1)))
    if kind == "map":
        return pa.map_(pa.string(), _arrow(value["values"], namespace, named, depth + 1))
    return _ARROW[kind] if kind in _ARROW else _known(kind, namespace, named)


def _arrow_union(value: list[Any], namespace: str, named: dict[str, pa.DataType], depth: int) -> pa.DataType:
    branches = [branch for branch in value if branch != "null"]
    if len(branches) != 1:
        raise Unsupported(f"an Avro union of {len(branches)} types is not supported")
    return _arrow(branches[0], namespace, named, depth + 1)


def _known(name: str, namespace: str, named: dict[str, pa.DataType]) -> pa.DataType:
    """Return an Avro type that was defined earlier."""
    full = name if "." in name or not namespace else f"{namespace}.{name}"
    if full not in named:
        raise Unsupported(f"the Avro type {name!r} is unknown or refers to itself")
    return named[full]


_Named = Callable[[Mapping[str, Any], str, dict[str, pa.DataType], int], pa.DataType]


def _arrow_named(
    build: _Named, value: Mapping[str, Any], namespace: str, named: dict[str, pa.DataType], depth: int
) -> pa.DataType:
    name = str(value["name"])
    space = str(value.get("namespace") or namespace)
    full = name if "." in name or not space else f"{space}.{name}"
    named[full] = build(value, full.rpartition(".")[0], named, depth)
    return named[full]


def _arrow_record(value: Mapping[str, Any], namespace: str, named: dict[str, pa.DataType], depth: int) -> pa.DataType:
    return pa.struct(
        [pa.field(str(f["name"]), _arrow(f["type"], namespace, named, depth + 1)) for f in value["fields"]]
    )


def _arrow_fixed(value: Mapping[str, Any], namespace: str, named: dict[str, pa.DataType], depth: int) -> pa.DataType:
    if value.get("logicalType") == "decimal":
        return pa.decimal128(int(value["precision"]), int(value.get("scale", 0)))
    return pa.binary()


def _arrow_enum(value: Mapping[str, Any], namespace: str, named: dict[str, pa.DataType], depth: int) -> pa.DataType:
    return pa.string()


_NAMED: dict[str, _Named] = {"record": _arrow_record, "fixed": _arrow_fixed, "enum": _arrow_enum}
