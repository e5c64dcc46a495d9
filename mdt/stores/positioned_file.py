"""What file objects share that pyarrow reads through."""

from __future__ import annotations

import io


class PositionedFile(io.RawIOBase):
    """A file of ``size`` bytes to read from: a position here, what stands there by ``read`` of the subclass, which moves ``at``."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.at = 0

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to ``offset`` from the beginning, from here or from the end, and return the position."""
        self.at = offset + (0, self.at, self.size)[whence]
        return self.at

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True
