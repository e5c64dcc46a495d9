"""Joins Parquet files of the same columns: their row groups follow each other, undecoded.

The bytes between the magic and the footer of each file are copied. The new footer locates the same
chunks, without their statistics and page indexes. Field numbers are those of
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from mdt.errors import Corrupt
from mdt.parquet.footer import (
    CODECS,
    FOOTER_TAIL_BYTES,
    MAGIC,
    chunk_head,
    footer_of,
    row_group,
)
from mdt.parquet.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    STOP,
    STRUCT,
    Malformed,
    find,
    integer,
    list_field,
    skip,
    text,
)

_SCHEMA = 2
"""Field of ``FileMetaData``, after the version."""
_TYPES = {
    "BOOLEAN": 0,
    "INT32": 1,
    "INT64": 2,
    "INT96": 3,
    "FLOAT": 4,
    "DOUBLE": 5,
    "BYTE_ARRAY": 6,
    "FIXED_LEN_BYTE_ARRAY": 7,
}
"""pyarrow's name of a physical type -> ``Type``."""
_ENCODINGS = {
    "PLAIN": 0,
    "PLAIN_DICTIONARY": 2,
    "RLE": 3,
    "BIT_PACKED": 4,
    "DELTA_BINARY_PACKED": 5,
    "DELTA_LENGTH_BYTE_ARRAY": 6,
    "DELTA_BYTE_ARRAY": 7,
    "RLE_DICTIONARY": 8,
    "BYTE_STREAM_SPLIT": 9,
}
"""pyarrow's name of an encoding -> ``Encoding``."""
_STEP = 0x10
_METADATA, _END = bytes((_STEP | STRUCT,)), bytes((STOP, STOP))
"""The header of a ColumnMetaData, and the end of it and its ColumnChunk."""


def join(files: Sequence[bytes], entries: Mapping[str, str], path: str) -> list[bytes]:
    """Return the bytes of a Parquet file with the rows of ``files``, in several parts.

    Args:
        files: Whole Parquet files with the same columns, at least one.
        entries: Key-value metadata of the new footer. Those of the files are dropped.
        path: Names the source in errors.

    Raises Corrupt for bytes that are not Parquet files with the same columns.
    """
    try:
        return _join(files, entries)
    except (Malformed, IndexError, KeyError, OSError, pa.ArrowException) as error:
        raise Corrupt(f"Parquet files cannot be joined: {error!r}"[:300], path=path) from error


def footer_facts(tail: bytes) -> tuple[int, dict[str, str]]:
    """Return the number of rows and the key-value metadata in the last bytes of a Parquet file,
    from the footer on.

    Raises OSError, UnicodeDecodeError or an Arrow error for other bytes.
    """
    metadata = pq.read_metadata(pa.BufferReader(tail))
    entries = metadata.metadata or {}
    texts = {key.decode(): value.decode() for key, value in entries.items()}
    return metadata.num_rows, texts


def _join(files: Sequence[bytes], entries: Mapping[str, str]) -> list[bytes]:
    parts, groups, rows, at = [MAGIC], list[bytes](), 0, len(MAGIC)
    first = footer_of(pa.py_buffer(files[0]))
    schema_at = find(first, 0, _SCHEMA)
    lead = first[: skip(first, schema_at, LIST)]
    heads = dict[tuple[int, str, tuple[str, ...]], bytes]()
    for file in files:
        footer = footer_of(pa.py_buffer(file))
        if not footer.startswith(lead):
            raise Malformed("their columns differ")
        metadata = pq.read_metadata(pa.BufferReader(file))
        groups += _groups(metadata, at - len(MAGIC), heads)
        rows += metadata.num_rows
        body = file[len(MAGIC) : len(file) - len(footer) - FOOTER_TAIL_BYTES]
        parts.append(body)
        at += len(body)
    footer = b"".join(
        [
            lead,
            integer(1, I64, rows),
            list_field(STRUCT, groups),
            list_field(STRUCT, [_entry(*pair) for pair in entries.items()]),
            bytes((STOP,)),
        ]
    )
    return [*parts, footer, len(footer).to_bytes(4, "little"), MAGIC]


def _groups(
    metadata: pq.FileMetaData, by: int, heads: dict[tuple[int, str, tuple[str, ...]], bytes]
) -> Iterator[bytes]:
    """Yield the row groups of a file, with their offsets moved by a number of bytes.

    Args:
        heads: Column, codec and encodings -> the same beginning of all their chunks, filled here.
    """
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        chunks = []
        for column in range(metadata.num_columns):
            chunk = group.column(column)
            key = column, chunk.compression, chunk.encodings
            head = heads.get(key)
            if head is None:
                head = heads[key] = _head(chunk)
            chunks.append(_chunk(chunk, head, by))
        yield row_group(chunks, group.total_byte_size, group.num_rows)


def _head(chunk: pq.ColumnChunkMetaData) -> bytes:
    """Return the beginning of a ColumnMetaData: type, encodings, path and codec."""
    encodings = [_ENCODINGS[name] for name in chunk.encodings]
    codec = "LZ4" if chunk.compression == "LZ4_RAW" else chunk.compression
    head = chunk_head(_TYPES[chunk.physical_type], encodings, chunk.path_in_schema.split("."))
    return head + integer(1, I32, CODECS[codec])


def _chunk(chunk: pq.ColumnChunkMetaData, head: bytes, by: int) -> bytes:
    pages = chunk.data_page_offset + by
    dictionary = chunk.dictionary_page_offset
    start = pages if dictionary is None else dictionary + by
    return b"".join(
        (
            integer(2, I64, start),
            _METADATA,
            head,
            integer(1, I64, chunk.num_values),
            integer(1, I64, chunk.total_uncompressed_size),
            integer(1, I64, chunk.total_compressed_size),
            integer(2, I64, pages),
            b"" if dictionary is None else integer(2, I64, start),
            _END,
        )
    )


def _entry(key: str, value: str) -> bytes:
    return b"".join(
        (bytes((_STEP | BINARY,)), text(key), bytes((_STEP | BINARY,)), text(value), bytes((STOP,)))
    )
