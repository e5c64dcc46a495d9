"""Digests of column chunks, which stand in the Parquet footer, and what of a footer reading by them
needs.

Parquet's own checksums cover the bodies of pages; what stands in their headers, and whether a page
is the one that belongs there, nobody could tell.  So the writer puts a digest of every column
chunk, headers included, into the footer under :data:`KEY`, and the reference to the file carries a
CRC-32 of the footer.

A *digest* is the first 4 bytes of MurmurHash3_x64_128 with seed 0: twice as fast as CRC-32, which
matters for every scan.
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

from mdt.parquet.decoded import few_texts
from mdt.parquet.footer import footer_length
from mdt.parquet.thrift import BINARY
from mdt.parquet.thrift import text as thrift_text

KEY = "mdt.digests"
"""Key of the footer's metadata: base64 of one u32 for each row group and leaf column, in this
order.
"""

_DIGEST_BYTES = 4
_WORDS = 4
"""Numbers of 4 bytes in what the hash function returns; the first is the digest."""
_FIELD = bytes((1 << 4 | BINARY,))
"""Header of the next field of a Thrift structure, a string: the value that follows a key."""

Int64Array = npt.NDArray[np.int64]
UInt32Array = npt.NDArray[np.uint32]


def digests(data: pa.Buffer, starts: Sequence[int], ends: Sequence[int]) -> UInt32Array:
    """Return the digest of each range of ``data`` -> uint32[len(starts)].  O(bytes)."""
    view, digest = memoryview(data), mmh3.mmh3_x64_128_digest
    found = b"".join([digest(view[start:end]) for start, end in zip(starts, ends, strict=True)])
    return np.frombuffer(found, "<u4")[::_WORDS]


def reserved(chunks: int) -> str:
    """Return the text that holds the place of the digests of ``chunks`` column chunks until they
    are known.
    """
    return base64.b64encode(bytes(_DIGEST_BYTES * chunks)).decode("ascii")


def fill(parquet: pa.Buffer, metadata: pq.FileMetaData) -> None:
    """Write the digests of all column chunks over the text that :func:`reserved` their place, in
    place.  ``metadata``: of ``parquet``.
    """
    starts, sizes = _ranges(metadata)
    place = reserved(len(starts))
    before = thrift_text(KEY) + _FIELD
    wanted = before + thrift_text(place)
    length = footer_length(parquet)
    tail = parquet.slice(parquet.size - length).to_pybytes()
    assert tail.count(wanted) == 1, "the place of the digests is not in the footer"
    found = digests(parquet, starts.tolist(), (starts + sizes).tolist())
    at = parquet.size - length + tail.index(wanted) + len(wanted) - len(place)
    text = base64.b64encode(found.astype("<u4").tobytes())
    np.frombuffer(parquet, np.uint8)[at : at + len(text)] = np.frombuffer(text, np.uint8)


def _ranges(metadata: pq.FileMetaData) -> tuple[Int64Array, Int64Array]:
    """Return the first byte of every column chunk and its bytes, by row groups, as parquet-cpp
    reads them -> int64[chunks].
    """
    found: list[tuple[int, int]] = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        found += map(place_of, map(group.column, range(metadata.num_columns)))
    starts, sizes = np.array(found, np.int64).reshape(-1, 2).T
    return starts, sizes


def place_of(column: Any) -> tuple[int, int]:
    """Return the first byte of a column chunk and its bytes; ``column``: what pyarrow's metadata
    say of it.
    """
    first = column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset
    return first, column.total_compressed_size


@dataclass(frozen=True, slots=True)
class Footer:
    """A parsed footer: pyarrow's metadata, and of the column chunks that have bytes where they
    begin (rising), how many bytes they have, and their digests: int64[chunks], int64[chunks],
    uint32[chunks].  ``few``: columns of few texts.
    """

    metadata: Any
    starts: Int64Array
    sizes: Int64Array
    digests: UInt32Array
    few: frozenset[str]

    def digest_of(self, start: int, size: int) -> int | None:
        """Return the digest of the column chunk of ``size`` bytes that begins at ``start``, None if
        there is none such.
        """
        number = int(np.searchsorted(self.starts, start))
        if number == len(self.starts) or self.starts[number] != start or self.sizes[number] != size:
            return None
        return int(self.digests[number])

    def chunks_of(self, row_groups: Sequence[int], names: Collection[str]) -> list[tuple[int, int]]:
        """Return where the column chunks of some columns begin, and their bytes; rising."""
        groups = [self.metadata.row_group(number) for number in row_groups]
        found = [
            place_of(group.column(at))
            for group in groups
            for at in _leaves_of(group, frozenset(names))
        ]
        return sorted((start, size) for start, size in found if size)


def _leaves_of(group: Any, names: frozenset[str]) -> list[int]:
    """Return the numbers of the leaf columns that are, or are in, columns called ``names``; of a
    name with a dot none is found.
    """
    return [
        at
        for at in range(group.num_columns)
        if group.column(at).path_in_schema.partition(".")[0] in names
    ]


def joined(chunks: Sequence[tuple[int, int]], bytes_max: int) -> list[list[tuple[int, int]]]:
    """Return ``chunks`` (first byte and bytes, rising) by ranges in which they stand side by side;
    one of several has at most ``bytes_max`` bytes.

    >>> joined([(4, 10), (14, 10), (30, 5), (35, 90)], 20)
    [[(4, 10), (14, 10)], [(30, 5)], [(35, 90)]]
    """
    found: list[list[tuple[int, int]]] = []
    for start, size in chunks:
        mine = found[-1] if found else []
        if mine and sum(mine[-1]) == start and start + size - mine[0][0] <= bytes_max:
            mine.append((start, size))
        else:
            found.append([(start, size)])
    return found


def footer_reference(parquet: pa.Buffer) -> tuple[int, int]:
    """Return how many bytes at the end of Parquet bytes are the footer, its length and the magic,
    and their CRC-32.
    """
    length = footer_length(parquet)
    return length, zlib.crc32(parquet.slice(parquet.size - length))


def parse_footer(tail: pa.Buffer) -> Footer:
    """Return the footer in the last bytes of a file, which are those that were written.

    Raises ValueError or what pyarrow raises if they are no footer of ours.
    """
    metadata = pq.read_metadata(pa.BufferReader(tail))
    starts, sizes = _ranges(metadata)
    stored = np.frombuffer(
        base64.b64decode((metadata.metadata or {}).get(KEY.encode(), b""), validate=True), "<u4"
    )
    if len(stored) != len(starts):
        raise ValueError(f"{len(stored)} digests of {len(starts)} column chunks")
    order = np.argsort(starts, kind="stable")
    order = order[sizes[order] > 0]
    return Footer(metadata, starts[order], sizes[order], stored[order], few_texts(metadata))
