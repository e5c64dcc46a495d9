"""HFiles, the sorted files of keys and values of Hudi's metadata table, read where they are needed.

See :mod:`mdt.hudi.read.hfile_format` for the format.
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexes.arrays import flags
from mdt.errors import Corrupt, Unsupported
from mdt.hudi.read import hfile_format
from mdt.hudi.read.hfile_format import DATA, HEADER_BYTES, INTERMEDIATE, LEAF, Index, require
from mdt.limits import (
    FAR_RANGE_BYTES,
    HFILE_BLOCK_BYTES_MAX,
    HFILE_ENTRIES_BYTES_MAX,
    HFILE_INDEX_BYTES_MAX,
    HFILE_INFO_BYTES_MAX,
    HFILE_LEVELS_MAX,
)
from mdt.stores.storage import Storage

_TAIL_BYTES = 64 << 10
"""Bytes that are read to open a file: a small one, or the index of one of 1 GB."""
_GAP_BYTES_MAX = 128 << 10
"""Bytes between two blocks that are read, too, such as a block of the index."""
_DAMAGE = (ValueError, IndexError, struct.error, zlib.error)

KeyRange = tuple[bytes, bytes | None]
"""Keys from the first, inclusive, to the second, exclusive. None for all after the first."""


class HFile:
    """An open HFile.

    Attributes:
        path: Path of the object, for messages.
        info: Names and values of the file info, such as the ``schema`` of the values.
        count: Number of entries.
    """

    def __init__(
        self, read: Callable[[int, int], bytes | memoryview], path: str, size: int
    ) -> None:
        """Open a file of ``size`` bytes.

        Args:
            read: Returns the bytes at an offset, of a length. It is called for the end of the file
                now, and for its blocks later.

        Raises Corrupt, Missing, and Unsupported.
        """
        self.path = path
        self._read = read
        self._tail_offset = max(size - _TAIL_BYTES, 0)
        self._tail = memoryview(read(self._tail_offset, size - self._tail_offset))
        with self._damage():
            trailer = hfile_format.parse_trailer(bytes(self._tail[-hfile_format.TRAILER_BYTES :]))
            self._trailer = trailer
            self.count = trailer.entries
            end = size - hfile_format.TRAILER_BYTES
            require(
                trailer.index_offset <= trailer.info_offset <= end, "the file info is not inside"
            )
            require(
                end - trailer.index_offset <= HFILE_INDEX_BYTES_MAX, "the root index is too large"
            )
            require(1 <= trailer.levels <= HFILE_LEVELS_MAX, "the index has too many levels")
            require(
                trailer.blocks <= trailer.index_offset // HEADER_BYTES,
                "the root index has too many entries",
            )
            index = self._bytes(trailer.index_offset, end - trailer.index_offset)
            root = self._content(index, hfile_format.ROOT, HFILE_INDEX_BYTES_MAX)
            self._root = self._checked(hfile_format.parse_root(root, trailer.blocks))
            info = index[trailer.info_offset - trailer.index_offset :]
            info_content = self._content(info, hfile_format.INFO, HFILE_INFO_BYTES_MAX)
            self.info = hfile_format.parse_info(bytes(info_content))

    def all(self) -> pa.RecordBatch:
        """Return all entries, sorted by key, as :data:`mdt.hudi.read.hfile_format.ENTRIES`.

        Raises Corrupt, Missing, and Unsupported if they take too much memory.
        """
        entries = self._entries([(b"", None)])
        if len(entries) != self.count:
            raise Corrupt(
                "damaged HFile: the trailer has another number of entries",
                path=self.path,
                expected=str(self.count),
                got=str(len(entries)),
            )
        return entries

    def sample(self) -> pa.RecordBatch:
        """Return the entries of the first block. Raises the errors of :meth:`all`."""
        first = self._root.keys[0] if self._root.keys else b""
        return self._entries([(first, first + b"\0")])

    def lookup(self, keys: Collection[bytes]) -> pa.RecordBatch:
        """Return the entries of ``keys``, sorted by key. Reads only the blocks that may have them.

        Raises the errors of :meth:`all`.
        """
        entries = self._entries([(key, key + b"\0") for key in keys])
        key_set = pa.array(list(keys), pa.large_binary())
        return entries.filter(pc.is_in(entries["key"], key_set))

    def lookup_prefix(self, prefix: bytes) -> pa.RecordBatch:
        """Return the entries whose keys begin with ``prefix``, sorted by key.

        Reads only the blocks that may have them. Raises the errors of :meth:`all`.
        """
        entries = self._entries([(prefix, _after(prefix))])
        matches = np.flatnonzero(flags(pc.starts_with(entries["key"], prefix)))  # neighbours
        return entries.slice(matches[0] if len(matches) else 0, len(matches))

    def _entries(self, ranges: Sequence[KeyRange]) -> pa.RecordBatch:
        """Return the entries of all blocks that may have keys of ``ranges``."""
        with self._damage():
            index = self._root
            for level in range(self._trailer.levels - 1, 0, -1):
                magic = LEAF if level == 1 else INTERMEDIATE
                lower = Index([], [])
                for content in self._contents(_overlapping(index, ranges), magic):
                    part = hfile_format.parse_index(content)
                    lower.keys.extend(part.keys)
                    lower.places.extend(part.places)
                index = self._checked(lower)
            blocks = self._contents(_overlapping(index, ranges), DATA)
            return hfile_format.parse_entries(blocks, self.info)

    def _contents(
        self, places: Sequence[tuple[int, int]], magic: bytes
    ) -> Iterator[bytes | memoryview]:
        """Yield the contents of blocks. Neighbours are read together."""
        total = 0
        for run in _runs(places):
            begin = run[0][0]
            data = self._bytes(begin, sum(run[-1]) - begin)
            for offset, size in run:
                block = data[offset - begin : offset - begin + size]
                content = self._content(block, magic, HFILE_BLOCK_BYTES_MAX)
                total += len(content)
                if total > HFILE_ENTRIES_BYTES_MAX:
                    raise Unsupported(
                        f"reading more than {HFILE_ENTRIES_BYTES_MAX} bytes of {self.path} at once"
                    )
                yield content

    def _content(self, block: memoryview, magic: bytes, bytes_max: int) -> bytes | memoryview:
        is_compressed = self._trailer.is_compressed
        return hfile_format.block_content(
            block, magic, is_compressed=is_compressed, bytes_max=bytes_max
        )

    def _checked(self, index: Index) -> Index:
        """Return ``index``. Raises ValueError if its blocks overlap or are not in order."""
        free = 0
        for offset, size in index.places:
            require(free <= offset and size >= HEADER_BYTES, "blocks overlap")
            require(size <= HFILE_BLOCK_BYTES_MAX, f"a block of {size} bytes is too large")
            free = offset + size
        require(free <= self._trailer.index_offset, "a block is not inside of the file")
        ascend = all(map(bytes.__le__, index.keys, index.keys[1:]))
        require(ascend, "the keys of the index do not ascend")
        return index

    def _bytes(self, offset: int, length: int) -> memoryview:
        at = offset - self._tail_offset
        if at >= 0:
            return self._tail[at : at + length]
        return memoryview(self._read(offset, length))

    @contextmanager
    def _damage(self) -> Iterator[None]:
        """Raise Corrupt for damaged bytes."""
        try:
            yield
        except _DAMAGE as error:
            raise Corrupt(f"damaged HFile: {str(error)[:200]}", path=self.path) from error


def open_object(objects: Storage, path: str, size: int) -> HFile:
    """Open an object of ``size`` bytes. Raises Corrupt, Missing, and Unsupported."""
    return HFile(lambda offset, length: objects.read(path, offset, length), path, size)


def open_bytes(data: bytes | memoryview, path: str) -> HFile:
    """Open an HFile in memory, such as the content of a block of the log file ``path``.

    Raises Corrupt and Unsupported.
    """
    view = memoryview(data)
    return HFile(lambda offset, length: view[offset : offset + length], path, view.nbytes)


def _overlapping(index: Index, ranges: Iterable[KeyRange]) -> list[tuple[int, int]]:
    """Return the places of the blocks that may have keys of ``ranges``."""
    blocks: set[int] = set()
    for first, end in ranges:
        stop = len(index.keys) if end is None else bisect_left(index.keys, end)
        # entries with an equal key may begin in the block before
        blocks.update(range(max(bisect_left(index.keys, first) - 1, 0), stop))
    return [index.places[number] for number in sorted(blocks)]


def _runs(places: Iterable[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Yield the blocks of each read."""
    run: list[tuple[int, int]] = []
    for offset, size in places:
        if run and (
            offset - sum(run[-1]) > _GAP_BYTES_MAX or offset + size - run[0][0] > FAR_RANGE_BYTES
        ):
            yield run
            run = []
        run.append((offset, size))
    if run:
        yield run


def _after(prefix: bytes) -> bytes | None:
    r"""Return the first text after all that begin with ``prefix``, or None if there is none.

    >>> _after(b"ab"), _after(b"a\xff"), _after(b"\xff")
    (b'ac', b'b', None)
    """
    head = prefix.rstrip(b"\xff")
    if not head:
        return None
    return head[:-1] + bytes([head[-1] + 1])
