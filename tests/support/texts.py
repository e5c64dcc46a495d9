"""Columns and rows that are given as text, because a test reads better without the types
of each.
"""

from __future__ import annotations

import re

import pyarrow as pa

from mdt.schema.alter import type_of

_COLUMN = re.compile(r"(\S+) (.+?)( not null)?")


def columns(text: str) -> pa.Schema:
    """Return columns with their types: ``columns("id string, ts int64, n int32 not null")``."""
    fields = []
    for column in re.split(r", (?!\d)", text):  # no comma of decimal(6, 2)
        match = _COLUMN.fullmatch(column)
        assert match is not None, column
        name, type, required = match.groups()
        fields.append(pa.field(name, type_of(type), nullable=not required))
    return pa.schema(fields)


def rows_of(schema: pa.Schema, *rows: str) -> pa.Table:
    """Return rows, their values in the order of the columns, ``-`` for null:
    ``rows_of(columns("id string, v int64"), "a 1", "b -")``.
    """
    values = [[None if value == "-" else value for value in row.split(" ")] for row in rows]
    texts = [pa.array([row[n] for row in values], pa.string()) for n in range(len(schema))]
    return pa.table(
        [text.cast(type) for text, type in zip(texts, schema.types, strict=True)], schema
    )
