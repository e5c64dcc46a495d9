"""Mapping between column names and the Avro names in Hudi's files.

A table keeps the names that its columns were declared with, whatever characters they contain. Avro
allows only letters, digits and underscores, and no leading digit, so Hudi's files may need other
names. :func:`avro_name` computes them. It is a pure function, so nothing has to be stored, and it
is part of the format (FORMAT.md, section 3): it never changes.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator

import pyarrow as pa

from mdt.limits import COLUMN_NAME_CHARACTERS_MAX
from mdt.schema.nested import fields_of, with_fields

_LEGAL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPED = re.compile(r"^[0-9]|_(?=[xX])|[^A-Za-z0-9_]")
"""A leading digit, an underscore that looks like the start of an escape, and every character that
Avro does not allow.
"""
_REFUSED_KINDS = {"Cc": "a control character", "Cs": "an unpaired surrogate"}


def avro_name(name: str) -> str:
    """Return the name of the column ``name`` in Hudi's files.

    Names that Avro allows stay the same. In other names each forbidden character is replaced by
    ``_x<code point in hexadecimal>_``. Two names never collide if Avro allows both or neither.

    >>> avro_name("fare"), avro_name("fare amount"), avro_name("1st"), avro_name("größe")
    ('fare', 'fare_x20_amount', '_x31_st', 'gr_xF6__xDF_e')
    """
    if _LEGAL.fullmatch(name):
        return name
    return _ESCAPED.sub(lambda match: f"_x{ord(match[0]):X}_", name)


def refusal(name: str) -> str:
    """Return the reason why a column cannot be called ``name``, or "" if it can.

    The reason completes the sentence "the column name ...".

    >>> refusal("fare amount"), refusal("")
    ('', 'is empty')
    """
    if _LEGAL.fullmatch(name):
        return ""
    if not name:
        return "is empty"
    if len(name) > COLUMN_NAME_CHARACTERS_MAX:
        return f"has {len(name):,} characters, more than {COLUMN_NAME_CHARACTERS_MAX}"
    wrong = next((kind for kind in map(unicodedata.category, name) if kind in _REFUSED_KINDS), None)
    if wrong is None:
        return ""
    return f"contains {_REFUSED_KINDS[wrong]}"


def fold_name(name: str) -> str:
    """Return the form under which names are compared: case-folded and in Unicode NFC.

    Names with the same form differ only in case or in their Unicode encoding; Spark treats them as
    equal.

    >>> fold_name("Größe") == fold_name("GRÖSSE")
    True
    """
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def are_avro(schema: pa.Schema) -> bool:
    """Return True if Avro allows all column and field names in ``schema``. O(fields)."""
    return all(map(_LEGAL.fullmatch, schema.names)) and all(
        _is_avro(type) for type in schema.types if type.num_fields
    )


def _is_avro(type: pa.DataType) -> bool:
    return all(_LEGAL.fullmatch(field.name) and _is_avro(field.type) for field in inside(type))


def paths(fields: Iterable[pa.Field], prefix: str = "") -> Iterator[str]:
    """Yield the path of every field, including fields of structs, lists and maps."""
    for field in fields:
        yield prefix + field.name
        yield from paths(inside(field.type), f"{prefix}{field.name}.")


def in_files(schema: pa.Schema) -> pa.Schema:
    """Return the stored ``schema`` with the names used in Hudi's files.

    Returns ``schema`` itself if Avro allows all names.

    >>> in_files(pa.schema({"fare amount": pa.int64(), "at": pa.struct({"x-y": pa.string()})}))
    fare_x20_amount: int64
    at: struct<x_x2D_y: string>
      child 0, x_x2D_y: string
    """
    if are_avro(schema):
        return schema
    return pa.schema(list(map(_in_files, schema)))


def with_file_names(table: pa.Table) -> pa.Table:
    """Return the stored rows of ``table`` with the names used in Hudi's files.

    Values are shared, not copied. O(columns).
    """
    schema = table.schema
    files = in_files(schema)
    if files is schema:
        return table
    pairs = zip(table.columns, files, strict=True)
    return pa.table([_viewed(column, field.type) for column, field in pairs], schema=files)


def with_declared_names(files: pa.Schema, declared: pa.Schema) -> pa.Schema:
    """Return the columns ``files``, named as in Hudi's files, under their ``declared`` names.

    Raises ValueError if the two schemas do not match, or if a declared name is not allowed.
    """
    renamed = pa.schema(
        [
            _declared_field(file_field, declared_field)
            for file_field, declared_field in zip(files, declared, strict=True)
        ]
    )
    if list(paths(in_files(renamed))) != list(paths(files)):
        raise ValueError("the stored columns do not match the declared columns")
    return renamed


def _viewed(column: pa.ChunkedArray, type: pa.DataType) -> pa.ChunkedArray:
    if not type.num_fields:
        return column
    return pa.chunked_array([chunk.view(type) for chunk in column.chunks], type)


def inside(type: pa.DataType) -> list[pa.Field]:
    """Return the child fields of a type.

    Children of lists and maps get the names used in Hudi's files: ``element``, ``key``, ``value``.
    """
    fields = fields_of(type)
    if pa.types.is_struct(type):
        return fields
    names = ("key", "value") if pa.types.is_map(type) else ("element",)
    return [field.with_name(name) for field, name in zip(fields, names, strict=False)]


def _in_files(field: pa.Field) -> pa.Field:
    type = with_fields(field.type, list(map(_in_files, fields_of(field.type))))
    return pa.field(avro_name(field.name), type, field.nullable)


def _declared_field(stored: pa.Field, declared: pa.Field) -> pa.Field:
    if why := refusal(declared.name):
        raise ValueError(f"a column name {why}")
    return pa.field(declared.name, _declared_type(stored.type, declared.type), stored.nullable)


def _declared_type(stored: pa.DataType, declared: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(stored) and pa.types.is_struct(declared):
        return pa.struct([_declared_field(*pair) for pair in zip(stored, declared, strict=True)])
    pairs = list(zip(fields_of(stored), fields_of(declared), strict=False))
    if len(pairs) != len(fields_of(stored)) or not pairs:
        return stored
    return with_fields(
        stored,
        [
            field.with_type(_declared_type(field.type, declared_field.type))
            for field, declared_field in pairs
        ],
    )
