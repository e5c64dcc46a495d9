"""Joins Parquet files of one schema: their row groups follow each other, undecoded.

The bytes between the magic and the footer of each file are copied. The new footer has the row
groups of all files, with their offsets moved. Field numbers are those of
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mdt.errors import Corrupt
from mdt.parquet.footer import MAGIC
from mdt.parquet.thrift import BINARY, I16, I64, LIST, STRUCT, Malformed
from mdt.parquet.thrift_values import Items, Structure, decode, encode

_TAIL_BYTES = 8
_SCHEMA, _ROWS, _GROUPS, _ENTRIES = 2, 3, 4, 5
"""Fields of ``FileMetaData``."""
_COLUMNS, _GROUP_OFFSET, _ORDINAL = 1, 5, 7
"""Fields of ``RowGroup``."""
_CHUNK_OFFSETS, _CHUNK = (2, 4, 6), 3
"""Fields of ``ColumnChunk``: offsets of the chunk and of its two page indexes, and metadata."""
_PAGE_OFFSETS = (9, 10, 11, 14)
"""Fields of ``ColumnMetaData``: offsets of pages and of a Bloom filter."""
_KEY, _VALUE = 1, 2


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
    except (Malformed, IndexError, KeyError, TypeError) as error:
        raise Corrupt(f"Parquet files cannot be joined: {error!r}", path=path) from error


def footer_entries(data: bytes) -> dict[str, str]:
    """Return the key-value metadata in the ``data`` of a footer, without length and magic.

    Raises Malformed, IndexError, KeyError, TypeError or UnicodeDecodeError for other bytes.
    """
    pairs = decode(data)[0][_ENTRIES][1].values
    return {pair[_KEY][1].decode(): pair[_VALUE][1].decode() for pair in pairs}


def _join(files: Sequence[bytes], entries: Mapping[str, str]) -> list[bytes]:
    parts, at = [MAGIC], len(MAGIC)
    footers: list[Structure] = []
    groups: list[Structure] = []
    for file in files:
        body, footer = _split(file)
        if footers and footer[_SCHEMA] != footers[0][_SCHEMA]:
            raise Malformed("their columns differ")
        for group in footer[_GROUPS][1].values:
            _move(group, at - len(MAGIC), len(groups))
            groups.append(group)
        footers.append(footer)
        parts.append(body)
        at += len(body)
    whole = {number: field for number, field in footers[0].items() if number != _ENTRIES}
    whole[_ROWS] = I64, sum(footer[_ROWS][1] for footer in footers)
    whole[_GROUPS] = LIST, Items(STRUCT, groups)
    whole[_ENTRIES] = LIST, Items(STRUCT, [_entry(*pair) for pair in entries.items()])
    footer_bytes = encode(dict(sorted(whole.items())))
    return [*parts, footer_bytes, len(footer_bytes).to_bytes(4, "little"), MAGIC]


def _split(file: bytes) -> tuple[bytes, Structure]:
    """Return what is between magic and footer, and the decoded footer."""
    end = len(file) - _TAIL_BYTES
    length = int.from_bytes(file[end : end + 4], "little")
    start = end - length
    if file[:4] != MAGIC or file[-4:] != MAGIC or start < len(MAGIC):
        raise Malformed("no Parquet file")
    return file[len(MAGIC) : start], decode(file[start:end])[0]


def _entry(key: str, value: str) -> Structure:
    return {_KEY: (BINARY, key.encode()), _VALUE: (BINARY, value.encode())}


def _move(group: Structure, by: int, ordinal: int) -> None:
    """Move the offsets in a row group by a number of bytes, and number it."""
    _shift(group, (_GROUP_OFFSET,), by)
    if _ORDINAL in group:
        group[_ORDINAL] = I16, ordinal
    for chunk in group[_COLUMNS][1].values:
        _shift(chunk, _CHUNK_OFFSETS, by)
        _shift(chunk[_CHUNK][1], _PAGE_OFFSETS, by)


def _shift(structure: Structure, numbers: Sequence[int], by: int) -> None:
    for number in numbers:
        if number in structure:
            kind, offset = structure[number]
            structure[number] = kind, offset + by
