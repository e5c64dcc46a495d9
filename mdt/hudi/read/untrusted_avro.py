"""Decoding of the Avro files with one record that Hudi's instants consist of, from any writer.

The schema in such a file is untrusted. Only the parts that decoding needs are used, and every
value must take at least one byte, so that neither the schema nor a count can demand more work than
the file has bytes. Recursive schemas are refused: their depth would depend on the data.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException

from mdt.errors import Corrupt, Unsupported
from mdt.limits import AVRO_SCHEMA_BYTES_MAX, AVRO_SCHEMA_DEPTH_MAX
from mdt.session import memo

MAGIC = b"Obj\x01"
"""The first bytes of an Avro file."""

_SYNC = {"type": "fixed", "name": "Sync", "size": 16}
_HEADER = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "Magic", "size": 4}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": _SYNC},
        ],
    }
)
_BLOCK = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Block",
        "fields": [
            {"name": "count", "type": "long"},
            {"name": "data", "type": "bytes"},
            {"name": "sync", "type": _SYNC},
        ],
    }
)
_SCALARS = frozenset(("boolean", "int", "long", "float", "double", "bytes", "string"))
DAMAGE = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    EOFError,
    RecursionError,
    MemoryError,
    struct.error,
    SchemaParseException,
)
"""Errors of fastavro and json for damaged bytes."""


def read_record(data: bytes, path: str, skipped: str = "") -> dict[str, Any]:
    """Return the only record of an Avro file. Strings of unions are plain strings.

    Args:
        skipped: Name of a field that is left out, which saves time if it is large.

    Raises Corrupt, with ``path``, for damaged bytes, and Unsupported for compressed ones, which
    Hudi does not write here.

    >>> from mdt.hudi import compaction_plan
    >>> plan = compaction_plan.encode([])
    >>> read_record(plan, "20240229120000123.compaction.requested")["operations"]
    []
    """
    source = BytesIO(data)
    try:
        header: Any = fastavro.schemaless_reader(source, _HEADER, None)
        _require(header["magic"] == MAGIC, "it does not begin like an Avro file")
        codec = header["meta"].get("avro.codec", b"null").decode()
        if codec != "null":
            raise Unsupported(f"{path} is an Avro file with compression {codec[:60]!r}")
        schema = _schema(header["meta"]["avro.schema"])
        block: Any = fastavro.schemaless_reader(source, _BLOCK, None)
        _require(source.tell() == len(data) and block["count"] == 1, "it must have one record")
        _require(block["sync"] == header["sync"], "a block does not end where it should")
        content = BytesIO(block["data"])
        record: Any = fastavro.schemaless_reader(content, schema, _without(schema, skipped))
        _require(content.tell() == len(block["data"]), "bytes are left over after the record")
        _require(isinstance(record, dict), "it must contain a record")
    except DAMAGE as error:
        problem = str(error)[:200] or repr(error)
        raise Corrupt(f"a damaged Avro file: {problem}", path=path) from error
    return dict(record)


def _without(schema: Any, skipped: str) -> Any:
    """Return the schema of a record without a field, or None if it has no such field."""
    fields = schema.get("fields", []) if isinstance(schema, dict) else []
    remaining = [field for field in fields if field["name"] != skipped]
    if not remaining or len(remaining) == len(fields):
        return None
    return fastavro.parse_schema({**schema, "fields": remaining})


def read_values(values: Iterable[bytes], schema: str, path: str) -> Iterator[Any]:
    r"""Yield the record in each of ``values``.

    Args:
        schema: JSON text of the schema with which they were written.

    Raises Corrupt, with ``path``, for damaged bytes.

    >>> schema = '{"type": "record", "name": "r", "fields": [{"name": "id", "type": "string"}]}'
    >>> list(read_values([b"\x02a"], schema, "a.log"))
    [{'id': 'a'}]
    """
    try:
        stored = _schema(schema.encode())
        for value in values:
            content = BytesIO(value)
            record: Any = fastavro.schemaless_reader(content, stored, None)
            _require(content.tell() == len(value), "bytes are left over after the record")
            yield record
    except DAMAGE as error:
        problem = str(error)[:200] or repr(error)
        raise Corrupt(f"damaged Avro records: {problem}", path=path) from error


def write_values(records: Iterable[dict[str, Any]], schema: str, path: str) -> list[bytes]:
    r"""Return each of ``records`` encoded with the schema of another writer. Missing fields are
    null.

    Args:
        schema: JSON text of the schema, of the file at ``path``.

    Raises Corrupt if the schema has no place for a record.

    >>> schema = '{"type": "record", "name": "r", "fields": [{"name": "id", "type": "string"}]}'
    >>> write_values([{"id": "a"}], schema, "a.log")
    [b'\x02a']
    """
    values = []
    try:
        stored = _schema(schema.encode())
        absent = dict.fromkeys(field["name"] for field in stored["fields"])
        for record in records:
            content = BytesIO()
            fastavro.schemaless_writer(content, stored, {**absent, **record}, strict=True)
            values.append(content.getvalue())
    except DAMAGE as error:
        problem = str(error)[:200] or repr(error)
        raise Corrupt(f"its schema has no place for a record: {problem}", path=path) from error
    return values


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


@memo(64)
def _schema(text: bytes) -> Any:
    """Return a writer's schema, reduced to what decoding needs and parsed by fastavro."""
    _require(len(text) <= AVRO_SCHEMA_BYTES_MAX, f"a schema of {len(text)} bytes is too large")
    return fastavro.parse_schema(_reduced(json.loads(text.decode()), [], in_union=False))


def _reduced(schema: Any, enclosing: list[str], *, in_union: bool) -> Any:
    """Return ``schema`` without logical types, defaults and other attributes.

    Args:
        enclosing: Simple names of the records around it, and "" for other types around it.
        in_union: True for a branch of a union, which alone may be null.

    Raises ValueError for a schema with values of no bytes, a recursive one, and a deep one.
    """
    _require(len(enclosing) <= AVRO_SCHEMA_DEPTH_MAX, "its schema is nested too deeply")
    inner = [*enclosing, ""]
    if isinstance(schema, list):
        return [_reduced(branch, inner, in_union=True) for branch in schema]
    if isinstance(schema, str):
        return _reference(schema, enclosing, in_union)
    _require(isinstance(schema, dict), "its schema is not an Avro schema")
    kind = schema["type"]
    if kind == "array":
        return {"type": kind, "items": _reduced(schema["items"], inner, in_union=False)}
    if kind == "map":
        return {"type": kind, "values": _reduced(schema["values"], inner, in_union=False)}
    if kind not in ("record", "enum", "fixed"):
        return _reduced(kind, inner, in_union=in_union)
    return _named(schema, kind, enclosing)


def _reference(name: str, enclosing: list[str], in_union: bool) -> str:
    """Return the name of a scalar type, or of a type that is defined before."""
    if name == "null":
        _require(in_union, "its schema has values without bytes")
    elif name not in _SCALARS:
        _require(name.rpartition(".")[2] not in enclosing, "its schema is recursive")
    return name


def _named(schema: Any, kind: str, enclosing: list[str]) -> dict[str, Any]:
    named = {key: str(schema[key]) for key in ("name", "namespace") if key in schema}
    named["type"] = kind
    if kind == "enum":
        return {**named, "symbols": list(map(str, schema["symbols"]))}
    if kind == "fixed":
        size = schema["size"]
        _require(isinstance(size, int) and size > 0, "its schema has values without bytes")
        return {**named, "size": size}
    _require(len(schema["fields"]) > 0, "its schema has values without bytes")
    inner = [*enclosing, named["name"].rpartition(".")[2]]
    fields = []
    for field in schema["fields"]:
        fields.append(
            {"name": str(field["name"]), "type": _reduced(field["type"], inner, in_union=False)}
        )
    return {**named, "fields": fields}
