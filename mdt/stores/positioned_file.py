"""File objects for pyarrow to read from."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mdt.stores.contract import Storage


class PositionedFile(io.RawIOBase):
    """A readable file of ``size`` bytes with a position, ``at``.

    Subclasses implement ``read``, which advances ``at``.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.at = 0

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to ``offset`` from the beginning, the current position or the end. Return the
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
    """An object as a file, for pyarrow. Each read is one ranged request."""

    def __init__(self, storage: Storage, path: str, size: int) -> None:
        super().__init__(size)
        self._storage, self._path = storage, path

    def read(self, count: int | None = None) -> bytes:
        """Return up to ``count`` bytes from the current position, or all remaining bytes."""
        remaining = max(self.size - self.at, 0)
        data = self._storage.read(
            self._path, self.at, remaining if count is None or count < 0 else min(count, remaining)
        )
        self.at += len(data)
        return data
