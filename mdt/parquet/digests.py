"""Digests of column chunks in the Parquet footer, and the parts of a footer that verified reads
need.

Parquet's own checksums cover only the bodies of pages. They detect neither a damaged page header
nor a page in the wrong place. Therefore the writer stores a digest of every column chunk, including
headers, in the footer under :data:`KEY`. The reference to the file contains a CRC-32 of the footer.

A *digest* is the first 4 bytes of MurmurHash3_x64_128 with seed 0. It is twice as fast as CRC-32,
which matters for every scan.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from mdt.parquet.decoded import low_cardinality_strings
from mdt.parquet.footer import footer_length
from mdt.parquet.thrift import BINARY
from mdt.parquet.thrift import text as thrift_text

KEY = "mdt.digests"
"""Key in the footer's metadata. The value is base64 of one u32 per row group and leaf column, in
this order.
"""

_DIGEST_BYTES = 4
_WORDS = 4
"""Number of 4-byte words in a hash value; the first word is the digest."""
_FIELD = bytes((1 << 4 | BINARY,))
"""Thrift header of the string field after a key: its value."""

Int64Array = npt.NDArray[np.int64]
UInt32Array = npt.NDArray[np.uint32]


def digests(data: pa.Buffer, starts: Sequence[int], ends: Sequence[int]) -> UInt32Array:
    """Return the digest of each byte range of ``data`` as uint32[len(starts)]. O(bytes)."""
    view, digest = memoryview(data), mmh3.mmh3_x64_128_digest
    hashes = b"".join([digest(view[start:end]) for start, end in zip(starts, ends, strict=True)])
    return np.frombuffer(hashes, "<u4")[::_WORDS]


def placeholder_text(chunks: int) -> str:
    """Return a placeholder for the digests of ``chunks`` column chunks."""
    return base64.b64encode(bytes(_DIGEST_BYTES * chunks)).decode("ascii")


def fill(parquet: pa.Buffer, metadata: pq.FileMetaData) -> None:
    """Replace the :func:`placeholder_text` by the digests of all column chunks, in place.

    Args:
        metadata: The footer of ``parquet``.
    """
    starts, sizes = _ranges(metadata)
    placeholder = placeholder_text(len(starts))
    prefix = thrift_text(KEY) + _FIELD
    entry = prefix + thrift_text(placeholder)
    length = footer_length(parquet)
    tail = parquet.slice(parquet.size - length).to_pybytes()
    assert tail.count(entry) == 1, "the footer does not contain the placeholder"
    chunk_digests = digests(parquet, starts.tolist(), (starts + sizes).tolist())
    at = parquet.size - length + tail.index(entry) + len(entry) - len(placeholder)
    text = base64.b64encode(chunk_digests.astype("<u4").tobytes())
    np.frombuffer(parquet, np.uint8)[at : at + len(text)] = np.frombuffer(text, np.uint8)


def _ranges(metadata: pq.FileMetaData) -> tuple[Int64Array, Int64Array]:
    """Return offset and size in bytes of every column chunk, row group by row group, as
    int64[chunks].

    These are the ranges that parquet-cpp reads.
    """
    ranges: list[tuple[int, int]] = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        ranges += map(place_of, map(group.column, range(metadata.num_columns)))
    starts, sizes = np.array(ranges, np.int64).reshape(-1, 2).T
    return starts, sizes


def place_of(column: Any) -> tuple[int, int]:
    """Return the offset and the size in bytes of a column chunk.

    Args:
        column: Its pyarrow metadata.
    """
    first = column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset
    return first, column.total_compressed_size


@dataclass(frozen=True, slots=True)
class Footer:
    """A parsed footer: pyarrow's metadata, and the non-empty column chunks.

    Attributes:
        starts: Offsets of the chunks, ascending, int64[chunks].
        sizes: Their bytes, int64[chunks].
        digests: uint32[chunks], or None in a file of another writer.
        few: Columns with few distinct strings.
    """

    metadata: Any
    starts: Int64Array
    sizes: Int64Array
    digests: UInt32Array | None
    few: frozenset[str]

    def digest_of(self, start: int, size: int) -> int | None:
        """Return the digest of the column chunk at ``start`` with ``size`` bytes, or None if it is
        unknown. The file has digests.
        """
        assert self.digests is not None, "a file of another writer has no digests"
        number = int(np.searchsorted(self.starts, start))
        if number == len(self.starts) or self.starts[number] != start or self.sizes[number] != size:
            return None
        return int(self.digests[number])

    def chunks_of(self, row_groups: Sequence[int], names: Collection[str]) -> list[tuple[int, int]]:
        """Return (offset, size) of the column chunks of the columns ``names``, sorted."""
        groups = [self.metadata.row_group(number) for number in row_groups]
        chunks = [
            place_of(group.column(at))
            for group in groups
            for at in _leaves_of(group, frozenset(names))
        ]
        return sorted((start, size) for start, size in chunks if size)


def _leaves_of(group: Any, names: frozenset[str]) -> list[int]:
    """Return the numbers of the leaf columns at or below the columns ``names``.

    Names with a dot never match.
    """
    return [
        at
        for at in range(group.num_columns)
        if group.column(at).path_in_schema.partition(".")[0] in names
    ]


def adjacent_chunks(
    chunks: Sequence[tuple[int, int]], bytes_max: int
) -> list[list[tuple[int, int]]]:
    """Group adjacent ``chunks`` (offset and size, sorted) into ranges of at most ``bytes_max``
    bytes.

    A larger chunk is a range of its own.

    >>> adjacent_chunks([(4, 10), (14, 10), (30, 5), (35, 90)], 20)
    [[(4, 10), (14, 10)], [(30, 5)], [(35, 90)]]
    """
    groups: list[list[tuple[int, int]]] = []
    for start, size in chunks:
        group = groups[-1] if groups else []
        if group and sum(group[-1]) == start and start + size - group[0][0] <= bytes_max:
            group.append((start, size))
        else:
            groups.append([(start, size)])
    return groups


def footer_reference(parquet: pa.Buffer) -> tuple[int, int]:
    """Return the size of the footer at the end of Parquet bytes, including length and magic, and
    its CRC-32.
    """
    length = footer_length(parquet)
    return length, zlib.crc32(parquet.slice(parquet.size - length))


def parse_footer(tail: pa.Buffer) -> Footer:
    """Parse the footer in the last bytes of a file, whose checksum the caller has verified.

    Raises ValueError or an error of pyarrow if it cannot be read.
    """
    metadata = pq.read_metadata(pa.BufferReader(tail))
    starts, sizes = _ranges(metadata)
    order = np.argsort(starts, kind="stable")
    order = order[sizes[order] > 0]
    text = (metadata.metadata or {}).get(KEY.encode())
    stored = None
    if text is not None:
        stored = np.frombuffer(base64.b64decode(text, validate=True), "<u4")
        if len(stored) != len(starts):
            raise ValueError(f"{len(stored)} digests of {len(starts)} column chunks")
        stored = stored[order]
    return Footer(metadata, starts[order], sizes[order], stored, low_cardinality_strings(metadata))
