"""Larger summaries: bytes that commit records refer to instead of carrying them.

A :class:`AttachmentWriter` collects the attachments of one transaction into one object;
:class:`ObjectReader` reads ranges back, checks their CRC once, and keeps what was read within a
byte limit.  On a local disk they are memory-mapped.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from mdt.errors import Corrupt
from mdt.forking import OwnLock
from mdt.limits import (
    ATTACHED_BYTES_MIN,
    FOOTER_CACHE_BYTES_MAX,
    KEY_MAP_CACHE_BYTES_MAX,
    PAGE_MAP_CACHE_BYTES_MAX,
    SUMMARY_FILES_OPEN_MAX,
)
from mdt.metadata.files import key_map, paths
from mdt.metadata.files.key_map import KeyMap
from mdt.parquet.mapped_files import MappedFiles
from mdt.session import Recent, session
from mdt.stores.mappings import Mappings
from mdt.stores.object_range import ObjectRange
from mdt.stores.storage import Storage

if TYPE_CHECKING:
    from mdt.parquet.page_map import PageMap

_ALIGNMENT = 8
_T = TypeVar("_T")


class AttachmentWriter:
    """Collects attachments for new objects, one unless they are many bytes; not thread-safe.

    ``store``: begins to store an object while others are collected, and sees to it that somebody
    waits for it; None: all go into one. The key map and the page map of a file belong into one
    object.
    """

    def __init__(
        self, path: str, store: Callable[[str, Sequence[bytes | pa.Buffer]], None] | None = None
    ) -> None:
        self._first = self._path = path
        self._store = store
        self._stored = 0
        self._parts: list[bytes | pa.Buffer] = []
        self._size = 0

    def add(self, data: bytes | pa.Buffer) -> ObjectRange:
        """Append ``data``, aligned to 8 bytes, and return where it will stand.  O(len(data))."""
        stored = ObjectRange(self._path, self._size, len(data), zlib.crc32(data))
        padding = -len(data) % _ALIGNMENT
        self._parts += [data, bytes(padding)]
        self._size += len(data) + padding
        return stored

    def settle(self) -> None:
        """Begin to store what was added if it is many bytes; what comes next goes into another
        object.
        """
        if self._store is not None and self._size >= ATTACHED_BYTES_MIN:
            self._store(self._path, self._parts)
            self._stored += 1
            self._path = paths.further_attachment(self._first, self._stored)
            self._parts, self._size = [], 0

    def write(self, storage: Storage) -> None:
        """Create the object of what was added and is not on its way, if there is any."""
        if self._parts:
            storage.create(self._path, self._parts)


class ObjectReader:
    """Reads ranges of objects; safe for many threads."""

    def __init__(self, storage: Storage, mappings: Mappings | None = None) -> None:
        self._storage = storage
        self._mappings = mappings or Mappings(storage)
        self._files: Recent[str, pa.NativeFile] = Recent(SUMMARY_FILES_OPEN_MAX)
        self.key_maps: Recent[ObjectRange, KeyMap] = Recent(
            KEY_MAP_CACHE_BYTES_MAX, session().memory
        )
        self.page_maps: Recent[ObjectRange, PageMap] = Recent(
            PAGE_MAP_CACHE_BYTES_MAX, session().memory
        )
        self.footers: Recent[tuple[str, int], Any] = Recent(
            FOOTER_CACHE_BYTES_MAX, session().memory
        )
        """Parsed footers of data files (:data:`mdt.parquet.segment_rows.Footers`)."""
        self._lock = OwnLock()
        self.data_files = MappedFiles(storage)
        """Data files that look-ups have opened."""

    def read(self, stored: ObjectRange, *, verify: bool) -> pa.Buffer:
        """Return the bytes of ``stored``.  Raises Corrupt if they are short or, with ``verify``,
        not as written.
        """
        if self._storage.is_remote and min(stored.offset, stored.length) >= 0:
            data = pa.py_buffer(self._storage.read(stored.path, stored.offset, stored.length))
        else:
            data = self._read_of_file(stored)
        if verify and zlib.crc32(data) != stored.crc:
            raise Corrupt(
                "a summary is damaged",
                path=stored.path,
                offset=stored.offset,
                expected=f"{stored.crc:08x}",
                got=f"{zlib.crc32(data):08x}",
            )
        return data

    def read_key_maps(self, wanted: Iterable[ObjectRange]) -> None:
        """Read those key maps at once that are not in memory and have room there; only where each
        is a request.
        """
        self._read_ahead(self.key_maps, self.key_map, KEY_MAP_CACHE_BYTES_MAX // 2, wanted)

    def read_page_maps(self, wanted: Iterable[ObjectRange | None]) -> None:
        """Read page maps as :meth:`read_key_maps` does key maps; they take more in memory than
        their bytes.
        """
        self._read_ahead(self.page_maps, self.page_map, PAGE_MAP_CACHE_BYTES_MAX // 4, wanted)

    def _read_ahead(
        self,
        cache: Recent[ObjectRange, _T],
        read: Callable[[ObjectRange], _T],
        bytes_max: int,
        wanted: Iterable[ObjectRange | None],
    ) -> None:
        missing, size = [], 0
        for stored in wanted if self._storage.is_remote else ():
            if stored is not None and not cache.has(stored) and size + stored.length <= bytes_max:
                missing.append(partial(_tried, read, stored))
                size += stored.length
        self._storage.together(*missing)

    def keep_key_map(self, stored: ObjectRange, data: bytes | pa.Buffer) -> None:
        """Keep a key map that this process has written, where reading it again would be a
        request.
        """
        if self._storage.is_remote:
            self.key_maps.put(
                stored, key_map.decode(data, path=stored.path, offset=stored.offset), stored.length
            )

    def cache_counts(self) -> dict[str, tuple[int, int]]:
        """Return (hits, misses) of what was looked for in memory."""
        caches: dict[str, Recent[Any, Any]] = {
            "key maps": self.key_maps,
            "page maps": self.page_maps,
            "footers": self.footers,
        }
        return {name: (cache.hits, cache.misses) for name, cache in caches.items()}

    def _read_of_file(self, stored: ObjectRange) -> pa.Buffer:
        with self._lock:
            file = self._files.made(stored.path, lambda: self._mappings.open(stored.path))
            if (
                stored.offset < 0
                or stored.length < 0
                or stored.offset + stored.length > file.size()
            ):
                raise Corrupt(
                    "a summary object is too short",
                    path=stored.path,
                    offset=stored.offset,
                    expected=str(stored.offset + stored.length),
                    got=str(file.size()),
                )
            file.seek(stored.offset)
            return file.read_buffer(stored.length)

    def key_map(self, stored: ObjectRange) -> KeyMap:
        """Return the key map at ``stored``, which verifies itself where it is looked into; from
        memory if it was read before.
        """
        return self._decoded(
            self.key_maps, stored, key_map.decode, lambda _: stored.length, verify=False
        )

    def page_map(self, stored: ObjectRange) -> PageMap:
        """Return the page map at ``stored``, from memory if it was read before."""
        from mdt.parquet import page_map

        return self._decoded(self.page_maps, stored, page_map.decode, lambda found: found.nbytes)

    def _decoded(
        self,
        cache: Recent[ObjectRange, _T],
        stored: ObjectRange,
        decode: Callable[..., _T],
        size: Callable[[_T], int],
        *,
        verify: bool = True,
    ) -> _T:
        found = cache.get(stored)
        if found is None:
            found = decode(self.read(stored, verify=verify), path=stored.path, offset=stored.offset)
            cache.put(stored, found, size(found))
        return found


def _tried(read: Callable[[ObjectRange], object], stored: ObjectRange) -> None:
    """Read ahead; what is damaged is told to who needs it."""
    with suppress(Corrupt):
        read(stored)
