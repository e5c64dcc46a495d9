"""A summary that writes down which ranges of it were read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from indexes.base import InMemory

T = TypeVar("T")


class Recording:
    """The bytes of one summary; ``reads``: (start, stop) of each read, in order."""

    def __init__(self, data: bytes) -> None:
        self._summary = InMemory(data)
        self.reads: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._summary)

    def read(self, start: int, stop: int) -> memoryview:
        self.reads.append((start, stop))
        return self._summary.read(start, stop)

    def keep(self, make: Callable[[], T]) -> T:
        return make()

    @property
    def bytes_read(self) -> int:
        return sum(min(stop, len(self)) - start for start, stop in self.reads)
