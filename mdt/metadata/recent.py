"""What was used last, within a limit; every cache of one process that drops the oldest."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Values by key, the oldest of which go when their sizes exceed ``size_max`` together; safe for many threads.

    ``hits``, ``misses``: how often :meth:`get` found something, and how often not.  ``dropped``: values that had to go.
    """

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._found: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._size = 0
        self._lock = Lock()
        self.hits = 0
        self.misses = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._found)

    def get(self, key: K) -> V | None:
        """Return the value of ``key``, which is the newest then, or None."""
        with self._lock:
            known = self._found.get(key)
            self.hits += known is not None
            self.misses += known is None
            if known is None:
                return None
            self._found.move_to_end(key)
            return known[0]

    def has(self, key: K) -> bool:
        """Return whether there is a value of ``key``; nothing is counted, and nothing gets newer."""
        return key in self._found

    def values(self) -> list[V]:
        """Return all values, the oldest first."""
        with self._lock:
            return [value for value, _ in self._found.values()]

    def put(self, key: K, value: V, size: int = 1) -> V:
        """Keep ``value`` unless ``key`` has one already; return what is kept.  One value is kept whatever its size."""
        with self._lock:
            if key not in self._found:
                self._found[key] = value, size
                self._size += size
            kept = self._found[key][0]
            while self._size > self._size_max and len(self._found) > 1:
                self._size -= self._found.popitem(last=False)[1][1]
                self.dropped += 1
            return kept
