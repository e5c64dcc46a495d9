"""What was used last, within a limit: the caches of one process, each of which drops its oldest.

A cache has a limit of its own, and those that hold bytes share a :class:`Budget` besides, whichever
tables they belong to: a process that has opened a thousand tables keeps no more in memory than one
that has opened one.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from threading import Lock
from typing import Any, Generic, TypeVar

from mdt.limits import CACHES_BYTES_MAX
from mdt.stores.forking import OwnLock, free_in_children

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(slots=True, eq=False)
class _Entry:
    """A value that a cache keeps; ``owner``: that cache, as long as somebody has it."""

    key: Any
    value: Any
    size: int
    owner: weakref.ref[Recent[Any, Any]]


class Budget:
    """A limit that caches share: what was used longest ago goes, in whichever of them it is; safe
    for many threads.

    ``size``: of all that they keep together.  What a cache kept goes when nobody has the cache any
    more.
    """

    def __init__(self, size_max: int, lock: Any = None) -> None:
        """``lock``: that of all its caches, None for one of its own."""
        self.size_max = size_max
        self.size = 0
        self.lock = Lock() if lock is None else lock
        self._entries: OrderedDict[_Entry, None] = OrderedDict()
        self._left: deque[Iterable[_Entry]] = deque()

    def limit(self, size_max: int) -> None:
        """Keep at most ``size_max`` from now on."""
        with self.lock:
            self.size_max = size_max
            self._make_room()

    def check(self) -> None:
        """Raise AssertionError if the size is not that of the entries, or beyond the limit without
        need.
        """
        with self.lock:
            self._give_back()
            assert self.size == sum(entry.size for entry in self._entries), (
                "entries and their size disagree"
            )
            assert self.size <= self.size_max or len(self._entries) == 1, (
                "more is kept than there is room for"
            )

    def _add(self, entry: _Entry) -> None:
        """Count a new entry, the newest; under the lock, as all that follows."""
        self._entries[entry] = None
        self.size += entry.size
        self._make_room()

    def _use(self, entry: _Entry) -> None:
        self._entries.move_to_end(entry)

    def _remove(self, entry: _Entry) -> None:
        if entry in self._entries:
            del self._entries[entry]
            self.size -= entry.size

    def _make_room(self) -> None:
        self._give_back()
        while self.size > self.size_max and len(self._entries) > 1:
            oldest = next(iter(self._entries))
            self._remove(oldest)
            owner = oldest.owner()
            if owner is not None:
                owner._forget(oldest)

    def _lost(self, entries: Iterable[_Entry]) -> None:
        """Take back what a cache kept that nobody has any more.  The interpreter may call this
        within any line, one of those above too.
        """
        self._left.append(entries)
        if self.lock.acquire(blocking=False):
            try:
                self._give_back()
            finally:
                self.lock.release()

    def _give_back(self) -> None:
        while self._left:
            for entry in self._left.popleft():
                self._remove(entry)


SHARED = Budget(CACHES_BYTES_MAX, free_in_children())
"""Of all tables of this process (option ``mdt.cache.memory.max``)."""


class Recent(Generic[K, V]):
    """Values by key, the oldest of which go when their sizes exceed ``size_max`` together; safe for
    many threads.

    ``budget``: a further limit, which it shares with other caches.  ``hits``, ``misses``: how often
    :meth:`get` found something, and how often not.  ``dropped``: values that had to go.
    """

    def __init__(self, size_max: int, budget: Budget | None = None) -> None:
        self._size_max = size_max
        self._budget = budget
        self._found: OrderedDict[K, _Entry] = OrderedDict()
        self._size = 0
        self._lock = OwnLock() if budget is None else budget.lock
        self._self = weakref.ref(self)
        self.hits = 0
        self.misses = 0
        self.dropped = 0
        if budget is not None:
            weakref.finalize(self, budget._lost, self._found.values()).atexit = False

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
            if self._budget is not None:
                self._budget._use(known)
            value: V = known.value
            return value

    def has(self, key: K) -> bool:
        """Return whether there is a value of ``key``; nothing is counted, and nothing gets
        newer.
        """
        return key in self._found

    def values(self) -> list[V]:
        """Return all values, the oldest first."""
        with self._lock:
            return [entry.value for entry in self._found.values()]

    def put(self, key: K, value: V, size: int = 1) -> V:
        """Keep ``value`` unless ``key`` has one already; return what is kept.  One value is kept
        whatever its size.
        """
        with self._lock:
            known = self._found.get(key)
            if known is None:
                known = self._found[key] = _Entry(key, value, size, self._self)
                self._size += size
                if self._budget is not None:
                    self._budget._add(known)
            while self._size > self._size_max and len(self._found) > 1:
                oldest = next(iter(self._found.values()))
                self._forget(oldest)
                if self._budget is not None:
                    self._budget._remove(oldest)
            kept: V = known.value
            return kept

    def _forget(self, entry: _Entry) -> None:
        """Drop an entry; under the lock."""
        del self._found[entry.key]
        self._size -= entry.size
        self.dropped += 1
