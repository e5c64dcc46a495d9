"""Late decoding of strings with few distinct values: they are read as dictionary indices, and only
selected rows become strings.

parquet-cpp takes a third more time to decode such a column into strings than Arrow takes to decode
the indices, and rows that are filtered out cost almost nothing as indices. For a column with many
distinct values, the reader would have to build a dictionary itself, which takes four times as long.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

SMALL_BYTES = 32 << 10
"""Compressed size limit of a dictionary page. A dictionary within it was never full, so the writer
did not fall back to plain strings.
"""
_TEXT_BYTES_MAX = (1 << 31) - 1
"""Maximum bytes of an Arrow string array."""


def low_cardinality_strings(metadata: pq.FileMetaData) -> frozenset[str]:
    """Return the top-level binary columns with a small dictionary in every row group. O(chunks)."""
    names: set[str] = set()
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        group_names = {
            column.path_in_schema
            for column in map(group.column, range(metadata.num_columns))
            if _has_small_dictionary(column)
        }
        names = names & group_names if number else group_names
    return frozenset(name for name in names if "." not in name)


def _has_small_dictionary(column: pq.ColumnChunkMetaData) -> bool:
    if not column.has_dictionary_page or column.physical_type != "BYTE_ARRAY":
        return False
    return bool(column.data_page_offset - column.dictionary_page_offset <= SMALL_BYTES)


def decode_strings(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return ``table`` with the columns of ``schema``, with dictionaries decoded to strings.

    Raises the errors of pyarrow's casts.
    """
    for at, column in enumerate(table.columns):
        if pa.types.is_dictionary(column.type):
            table = table.set_column(at, table.field(at).name, _texts(column))
    if table.schema == schema:
        return table
    return table.select(schema.names).cast(schema)


def _texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    chunks = []
    for chunk in column.chunks:
        longest = pc.max(pc.binary_length(chunk.dictionary)).as_py() or 1
        step = max(1, _TEXT_BYTES_MAX // longest)
        chunks += [
            chunk.slice(first, step).cast(column.type.value_type)
            for first in range(0, len(chunk), step)
        ]
    return pa.chunked_array(chunks, column.type.value_type)
