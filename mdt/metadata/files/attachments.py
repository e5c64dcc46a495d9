"""Attachments: bytes too large for a commit record, stored in objects that the record refers to.

:class:`AttachmentWriter` collects the attachments of one transaction.  :class:`ObjectReader` reads
ranges of objects, checks their CRC once and caches them within byte limits.  On a local disk
objects are memory-mapped.
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
    from mdt.parquet.segment_rows import Footers

_ALIGNMENT = 8
_T = TypeVar("_T")


class AttachmentWriter:
    """Collects attachments for a single object, or for several if they are large.  Not thread-safe.

    ``store`` starts to store an object in the background, and ensures that its end is awaited.
    None puts everything into a single object.  The key map and the page map of a file belong in the
    same object.
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
        """Append ``data``, aligned to 8 bytes, and return its future object range.
        O(len(data)).
        """
        stored = ObjectRange(self._path, self._size, len(data), zlib.crc32(data))
        padding = -len(data) % _ALIGNMENT
        self._parts += [data, bytes(padding)]
        self._size += len(data) + padding
        return stored

    def settle(self) -> None:
        """Start to store the added attachments if they have at least ATTACHED_BYTES_MIN bytes.

        Later attachments then go into another object.
        """
        if self._store is not None and self._size >= ATTACHED_BYTES_MIN:
            self._store(self._path, self._parts)
            self._stored += 1
            self._path = paths.further_attachment(self._first, self._stored)
            self._parts, self._size = [], 0

    def write(self, storage: Storage) -> None:
        """Create the object of the attachments that :meth:`settle` has not stored, if there are
        any.
        """
        if self._parts:
            storage.create(self._path, self._parts)


class ObjectReader:
    """Reads ranges of objects.  Thread-safe."""

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
        self.footers: Footers = Recent(FOOTER_CACHE_BYTES_MAX, session().memory)
        """Parsed footers of data files."""
        self._lock = OwnLock()
        self.data_files = MappedFiles(storage)
        """Data files opened by look-ups."""

    def read(self, stored: ObjectRange, *, verify: bool) -> pa.Buffer:
        """Return the bytes of ``stored``.

        Raises Corrupt if the object is too short or, with ``verify``, if the CRC does not match.
        """
        if self._storage.is_remote and min(stored.offset, stored.length) >= 0:
            data = pa.py_buffer(self._storage.read(stored.path, stored.offset, stored.length))
        else:
            data = self._read_of_file(stored)
        if verify and zlib.crc32(data) != stored.crc:
            raise Corrupt(
                "an attachment is damaged",
                path=stored.path,
                offset=stored.offset,
                expected=f"{stored.crc:08x}",
                got=f"{zlib.crc32(data):08x}",
            )
        return data

    def read_key_maps(self, ranges: Iterable[ObjectRange]) -> None:
        """Prefetch key maps that are not cached, up to half of the cache.  Remote storage only."""
        self._read_ahead(self.key_maps, self.key_map, KEY_MAP_CACHE_BYTES_MAX // 2, ranges)

    def read_page_maps(self, ranges: Iterable[ObjectRange | None]) -> None:
        """Prefetch page maps as :meth:`read_key_maps` does key maps, up to a quarter of the cache.

        Page maps take more memory than their stored bytes.
        """
        self._read_ahead(self.page_maps, self.page_map, PAGE_MAP_CACHE_BYTES_MAX // 4, ranges)

    def _read_ahead(
        self,
        cache: Recent[ObjectRange, _T],
        read: Callable[[ObjectRange], _T],
        bytes_max: int,
        ranges: Iterable[ObjectRange | None],
    ) -> None:
        missing, size = [], 0
        for stored in ranges if self._storage.is_remote else ():
            if stored is not None and not cache.has(stored) and size + stored.length <= bytes_max:
                missing.append(partial(_prefetch, read, stored))
                size += stored.length
        self._storage.together(*missing)

    def keep_key_map(self, stored: ObjectRange, data: bytes | pa.Buffer) -> None:
        """Cache a key map that this process has written, if reading it again would be a request."""
        if self._storage.is_remote:
            self.key_maps.put(
                stored, key_map.decode(data, path=stored.path, offset=stored.offset), stored.length
            )

    def cache_counts(self) -> dict[str, tuple[int, int]]:
        """Return (hits, misses) of each cache."""
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
                    "an attachment is too short",
                    path=stored.path,
                    offset=stored.offset,
                    expected=str(stored.offset + stored.length),
                    got=str(file.size()),
                )
            file.seek(stored.offset)
            return file.read_buffer(stored.length)

    def key_map(self, stored: ObjectRange) -> KeyMap:
        """Return the key map at ``stored``.  Cached; its shards are verified when they are
        searched.
        """
        return self._decoded(
            self.key_maps, stored, key_map.decode, lambda _: stored.length, verify=False
        )

    def page_map(self, stored: ObjectRange) -> PageMap:
        """Return the page map at ``stored``.  Cached."""
        from mdt.parquet import page_map

        return self._decoded(self.page_maps, stored, page_map.decode, lambda pages: pages.nbytes)

    def _decoded(
        self,
        cache: Recent[ObjectRange, _T],
        stored: ObjectRange,
        decode: Callable[..., _T],
        size: Callable[[_T], int],
        *,
        verify: bool = True,
    ) -> _T:
        value = cache.get(stored)
        if value is None:
            value = decode(self.read(stored, verify=verify), path=stored.path, offset=stored.offset)
            cache.put(stored, value, size(value))
        return value


def _prefetch(read: Callable[[ObjectRange], object], stored: ObjectRange) -> None:
    """Prefetch an object range.  Damage is left for the later read to report."""
    with suppress(Corrupt):
        read(stored)
