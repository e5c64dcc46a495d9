"""What file objects share that pyarrow reads through."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mdt.stores.contract import Storage


class PositionedFile(io.RawIOBase):
    """A file of ``size`` bytes to read from: a position here, what stands there by ``read`` of the
    subclass, which moves ``at``.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.at = 0

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to ``offset`` from the beginning, from here or from the end, and return the
        position.
        """
        self.at = offset + (0, self.at, self.size)[whence]
        return self.at

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True


class RangeFile(PositionedFile):
    """The file object that pyarrow reads an object through: bytes by ranged reads, one request
    each.
    """

    def __init__(self, storage: Storage, path: str, size: int) -> None:
        super().__init__(size)
        self._storage, self._path = storage, path

    def read(self, count: int | None = None) -> bytes:
        """Return at most ``count`` bytes from here on, or all."""
        left = max(self.size - self.at, 0)
        data = self._storage.read(
            self._path, self.at, left if count is None or count < 0 else min(count, left)
        )
        self.at += len(data)
        return data
