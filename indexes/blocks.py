"""A container of numbered blocks that are read and verified separately.

A large summary has many blocks, such as the bitmap of a value or a block of a dictionary. To read a
block, a reader loads the table of blocks at the front, then the block. A damaged block does not
affect the others. Bytes::

    magic "MDTP" (4), kind (8, NUL at the end), count n (uint32),
    table: n x { end of the block, counted from the first block (uint32),
                 CRC-32 of the block (uint32) },
    CRC-32 of all that so far (uint32), the blocks, nothing after them

Integers are little-endian. ``kind`` names the format and version of the blocks.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from zlib import crc32

from indexes.base import Summary

HEAD_BYTES = 4096
"""Size of the first read: header, table, and for small summaries the most used blocks."""

_MAGIC = b"MDTP"
_KIND_BYTES = 8
_HEADER = struct.Struct(f"<4s{_KIND_BYTES}sI")
_CRC = struct.Struct("<I")
_ENTRY = struct.Struct("<II")
_END = struct.Struct("<I")
_SIZE_MAX = 2**32 - 1


def pack(blocks: Sequence[bytes | memoryview], *, kind: bytes) -> bytes:
    """Return the container of ``blocks``. The result is deterministic.

    ``kind`` has at most 8 bytes and does not end in NUL. Raises ValueError for another kind, or for
    4 GiB of blocks.
    """
    ends = list(accumulate(len(block) for block in blocks))
    if len(kind) > _KIND_BYTES or kind.endswith(b"\0"):
        raise ValueError(
            f"the kind of a summary must have at most {_KIND_BYTES} bytes and not end in NUL, got"
            f" {kind!r}"
        )
    if ends and ends[-1] > _SIZE_MAX:
        raise ValueError(
            f"an index of {ends[-1]} bytes exceeds the limit of 4 GiB per file; write smaller files"
        )
    header = _HEADER.pack(_MAGIC, kind, len(blocks))
    table = b"".join(
        _ENTRY.pack(end, crc32(block)) for end, block in zip(ends, blocks, strict=True)
    )
    return b"".join((header, table, _CRC.pack(crc32(table, crc32(header))), *blocks))


@dataclass(slots=True)
class Blocks:
    """The blocks of a summary, numbered from 0 to ``count`` - 1.

    Each block is verified on first use.
    """

    count: int
    _summary: Summary = field(repr=False)
    _head: memoryview = field(repr=False)
    _first: int = field(repr=False)
    _checked: set[int] = field(default_factory=set, repr=False)

    @classmethod
    def open(cls, summary: Summary, kind: bytes) -> Blocks:
        """Read and verify the table of blocks.

        Needs one read of 4 KiB, or two for more than about 500 blocks. Raises ValueError for bytes
        that :func:`pack` did not make for this ``kind``.
        """
        size = len(summary)
        head = summary.read(0, HEAD_BYTES)
        if size < _HEADER.size + _CRC.size or len(head) != min(size, HEAD_BYTES):
            raise ValueError(
                f"a summary of {size} bytes ({len(head)} bytes were read) has no table of blocks"
            )
        magic, found_kind, count = _HEADER.unpack_from(head)
        if magic != _MAGIC or found_kind != kind.ljust(_KIND_BYTES, b"\0"):
            raise ValueError(
                f"not a summary of kind {kind!r}: it begins with {bytes(head[: _HEADER.size])!r}"
            )
        table_end = _HEADER.size + _ENTRY.size * count
        if table_end + _CRC.size > size:
            raise ValueError(f"a summary of {size} bytes cannot have {count} blocks")
        if table_end + _CRC.size > len(head):
            head = memoryview(bytes(head) + bytes(summary.read(len(head), table_end + _CRC.size)))
        if len(head) < table_end + _CRC.size or _CRC.unpack_from(head, table_end)[0] != crc32(
            head[:table_end]
        ):
            raise ValueError("the table of blocks is damaged: wrong checksum")
        end = _END.unpack_from(head, table_end - _ENTRY.size)[0] if count else 0
        if table_end + _CRC.size + end != size:
            raise ValueError(
                f"blocks of {end} bytes after a table of {table_end} bytes in a summary of {size}"
                " bytes"
            )
        return cls(count, summary, head, table_end + _CRC.size)

    def length(self, block: int) -> int:
        """Return the length of a block in bytes. O(1), no read."""
        start, stop, _ = self._entry(block)
        return stop - start

    def read(self, block: int) -> memoryview:
        """Return a verified block. Needs one read, or none if :meth:`open` already read the block.

        Raises ValueError if the block is damaged or does not exist.

        >>> from indexes.base import InMemory
        >>> blocks = Blocks.open(
        ...     InMemory(pack([b"one", b"", b"three"], kind=b"example")), b"example"
        ... )
        >>> blocks.count, blocks.length(2), bytes(blocks.read(2))
        (3, 5, b'three')
        """
        start, stop, checksum = self._entry(block)
        return self._check(self._bytes(start, stop), stop - start, checksum, block)

    def read_range(self, first: int, stop: int) -> list[memoryview]:
        """Return the verified blocks [first, stop) with a single read.

        Raises ValueError like :meth:`read`.
        """
        entries = [self._entry(block) for block in range(first, stop)]
        if not entries:
            return []
        origin = entries[0][0]
        data = self._bytes(origin, entries[-1][1])
        return [
            self._check(data[start - origin : end - origin], end - start, checksum, first + i)
            for i, (start, end, checksum) in enumerate(entries)
        ]

    def _entry(self, block: int) -> tuple[int, int, int]:
        """Return the start and end of a block in the summary, and its checksum."""
        if not 0 <= block < self.count:
            raise ValueError(f"a summary of {self.count} blocks has no block {block}")
        at = _HEADER.size + _ENTRY.size * block
        end, checksum = _ENTRY.unpack_from(self._head, at)
        start = _END.unpack_from(self._head, at - _ENTRY.size)[0] if block else 0
        if start > end or self._first + end > len(self._summary):
            raise ValueError(f"block {block} of a summary has invalid bounds [{start}, {end})")
        return self._first + start, self._first + end, checksum

    def _bytes(self, start: int, stop: int) -> memoryview:
        if stop <= len(self._head):
            return self._head[start:stop]
        return self._summary.read(start, stop)

    def _check(self, data: memoryview, length: int, checksum: int, block: int) -> memoryview:
        if block in self._checked and len(data) == length:
            return data
        if len(data) != length or crc32(data) != checksum:
            raise ValueError(f"block {block} of a summary is damaged: wrong checksum")
        self._checked.add(block)
        return data
