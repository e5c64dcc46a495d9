"""Reads and caches key parts, as bytes and as opened by their index."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from indexes.base import KeyIndex
from mdt.limits import KEY_PARTS_OPEN_MAX
from mdt.metadata.files.attachments import ObjectReader
from mdt.metadata.snapshot.key_parts import KeyPart
from mdt.session import Recent
from mdt.stores.object_range import ObjectRange


class KeyPartReader:
    """Reads the key parts of a table.  Thread-safe."""

    def __init__(self, objects: ObjectReader) -> None:
        self._objects = objects
        self._payloads: Recent[ObjectRange, pa.Buffer] = Recent(KEY_PARTS_OPEN_MAX)
        self._opened: Recent[tuple[str, object], Any] = Recent(KEY_PARTS_OPEN_MAX)

    def payload(self, key_part: KeyPart) -> bytes | pa.Buffer:
        """Return the bytes of a key part, which verify themselves when parsed.

        Raises Corrupt if they are missing.
        """
        if key_part.payload is not None:
            return key_part.payload
        stored = key_part.stored
        assert stored is not None
        return self._payloads.made(stored, lambda: self._objects.read(stored, verify=False))

    def opened(self, key_part: KeyPart, index: KeyIndex) -> Any:
        """Return a key part opened by ``index`` (:meth:`indexes.base.KeyIndex.opened`).  Cached.

        Raises ValueError or Corrupt.
        """
        return self._opened.made(
            (index.name, key_part.stored or key_part.payload),
            lambda: index.opened(memoryview(self.payload(key_part))),
        )
