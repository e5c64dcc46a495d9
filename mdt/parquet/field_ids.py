"""Field ids in Parquet files, by which readers of other formats find columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from mdt.schema.nested import fields_of, with_fields
from mdt.session import memo

_KEY = b"PARQUET:field_id"
"""Key of the id in the metadata of an Arrow field."""


@memo(64)
def with_field_ids(schema: pa.Schema, ids: tuple[int, ...]) -> pa.Schema:
    """Return ``schema`` with ids of all fields for a Parquet writer, or itself for no ids.

    Args:
        ids: Ids of the fields, those of lists and maps included, parents first.

    >>> with_field_ids(pa.schema({"a": pa.int64()}), (7,)).field("a").metadata
    {b'PARQUET:field_id': b'7'}
    """
    if not ids:
        return schema
    remaining = iter(ids)
    numbered = pa.schema([_numbered(field, remaining) for field in schema])
    assert next(remaining, None) is None, "more ids than fields"
    return numbered


def _numbered(field: pa.Field, ids: Iterator[int]) -> pa.Field:
    metadata = {_KEY: str(next(ids)).encode()}
    children = [_numbered(child, ids) for child in fields_of(field.type)]
    return field.with_type(_type(field.type, children)).with_metadata(metadata)


def _type(type: pa.DataType, children: Sequence[pa.Field]) -> pa.DataType:
    if pa.types.is_map(type):  # its key has an id, too
        return pa.map_(children[0], children[1])
    return with_fields(type, children)
