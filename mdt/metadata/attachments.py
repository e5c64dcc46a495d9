"""Larger summaries: bytes that commit records refer to instead of carrying them.

A :class:`BlobWriter` collects the pieces of one transaction into one object; :class:`Blobs` reads pieces back, checks
their CRC once, and keeps what was read within a byte limit.  On a local disk pieces are memory-mapped.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from mdt.errors import Corrupt
from mdt.limits import (
    FOOTER_CACHE_BYTES_MAX,
    KEY_MAP_CACHE_BYTES_MAX,
    PAGE_MAP_CACHE_BYTES_MAX,
    SUMMARY_FILES_OPEN_MAX,
)
from mdt.metadata import key_map
from mdt.metadata.key_map import KeyMap
from mdt.metadata.recent import Recent
from mdt.parquet.mapped_files import MappedFiles
from mdt.stores.blob import Blob
from mdt.stores.storage import Storage

if TYPE_CHECKING:
    from mdt.parquet.page_map import PageMap

_ALIGNMENT = 8
_T = TypeVar("_T")


class BlobWriter:
    """Collects pieces for one new object; not thread-safe."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, data: bytes) -> Blob:
        """Append ``data``, aligned to 8 bytes, and return where it will stand.  O(len(data))."""
        blob = Blob(self.path, self._size, len(data), zlib.crc32(data))
        padding = -len(data) % _ALIGNMENT
        self._parts += [data, bytes(padding)]
        self._size += len(data) + padding
        return blob

    def write(self, storage: Storage) -> None:
        """Create the object if any piece was added."""
        if self._parts:
            storage.create(self.path, self._parts)


class Blobs:
    """Reads pieces of summary objects; safe for many threads."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._files: OrderedDict[str, pa.NativeFile] = OrderedDict()
        self.key_maps: Recent[Blob, KeyMap] = Recent(KEY_MAP_CACHE_BYTES_MAX)
        self.page_maps: Recent[Blob, PageMap] = Recent(PAGE_MAP_CACHE_BYTES_MAX)
        self.footers: Recent[tuple[str, int], Any] = Recent(FOOTER_CACHE_BYTES_MAX)
        """Parsed footers of data files (:data:`mdt.parquet.segment_rows.Footers`)."""
        self._lock = Lock()
        self.data_files = MappedFiles(storage)
        """Data files that look-ups have opened."""

    def read(self, blob: Blob, *, verify: bool) -> pa.Buffer:
        """Return the bytes of ``blob``.  Raises Corrupt if they are short or, with ``verify``, not as written."""
        with self._lock:
            file = self._opened(blob.path)
            if blob.offset < 0 or blob.length < 0 or blob.offset + blob.length > file.size():
                raise Corrupt(
                    "a summary object is too short", path=blob.path, offset=blob.offset,
                    expected=str(blob.offset + blob.length), got=str(file.size()),
                )  # fmt: skip
            file.seek(blob.offset)
            data = file.read_buffer(blob.length)
        if verify and zlib.crc32(data) != blob.crc:
            raise Corrupt(
                "a summary is damaged", path=blob.path, offset=blob.offset,
                expected=f"{blob.crc:08x}", got=f"{zlib.crc32(data):08x}",
            )  # fmt: skip
        return data

    def cache_counts(self) -> dict[str, tuple[int, int]]:
        """Return (hits, misses) of what was looked for in memory."""
        caches: dict[str, Recent[Any, Any]] = {
            "key maps": self.key_maps, "page maps": self.page_maps, "footers": self.footers
        }  # fmt: skip
        return {name: (cache.hits, cache.misses) for name, cache in caches.items()}

    def _opened(self, path: str) -> pa.NativeFile:
        """Return the open object; under the lock.  Buffers that were read from a dropped one stay valid."""
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = self._storage.open(path)
            if len(self._files) > SUMMARY_FILES_OPEN_MAX:
                self._files.popitem(last=False)
        self._files.move_to_end(path)
        return file

    def key_map(self, blob: Blob) -> KeyMap:
        """Return the key map at ``blob``, which verifies itself where it is looked into; from memory if it was read before."""
        return self._decoded(self.key_maps, blob, key_map.decode, lambda _: blob.length, verify=False)

    def page_map(self, blob: Blob) -> PageMap:
        """Return the page map at ``blob``, from memory if it was read before."""
        from mdt.parquet import page_map

        return self._decoded(self.page_maps, blob, page_map.decode, lambda found: found.nbytes)

    def _decoded(
        self,
        cache: Recent[Blob, _T],
        blob: Blob,
        decode: Callable[..., _T],
        size: Callable[[_T], int],
        *,
        verify: bool = True,
    ) -> _T:
        found = cache.get(blob)
        if found is None:
            found = decode(self.read(blob, verify=verify), path=blob.path, offset=blob.offset)
            cache.put(blob, found, size(found))
        return found
