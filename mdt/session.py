"""State that this process keeps between calls, owned by one :class:`Session`.

A module that keeps process state marks its factory with :func:`in_session`. :func:`memo` marks
functions whose results are cached. No module has a mutable global, and :meth:`Session.clear` resets
a process.

A cache (:class:`Recent`) has a size limit and evicts its least recently used values. Caches that
hold bytes also share a :class:`Budget` across tables, so a thousand open tables use no more memory
than a single table.
"""

from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mdt.forking import OwnLock, at_fork, free_in_children
from mdt.limits import CACHES_BYTES_MAX

if TYPE_CHECKING:
    from functools import _lru_cache_wrapper

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(slots=True, eq=False)
class _Entry:
    """A cached value, with a weak reference to its cache."""

    key: Any
    value: Any
    size: int
    owner: weakref.ref[Recent[Any, Any]]


class Budget:
    """A size limit shared by several caches, with LRU eviction across them. Thread-safe.

    ``size`` is the total of all entries. The entries of a cache are released when the cache is
    garbage-collected.
    """

    def __init__(self, size_max: int, lock: Any = None) -> None:
        """lock: Shared with all its caches. None makes a new lock."""
        self.size_max = size_max
        self.size = 0
        self.lock = Lock() if lock is None else lock
        self._entries: OrderedDict[_Entry, None] = OrderedDict()
        self._released: deque[Iterable[_Entry]] = deque()

    def limit(self, size_max: int) -> None:
        """Change the limit to ``size_max``, evicting entries if necessary."""
        with self.lock:
            self.size_max = size_max
            self._make_room()

    def check(self) -> None:
        """Raise AssertionError if the size differs from the sum of the entries or exceeds the
        limit.
        """
        with self.lock:
            self._remove_released()
            assert self.size == sum(entry.size for entry in self._entries), (
                "entries and their size disagree"
            )
            assert self.size <= self.size_max or len(self._entries) == 1, (
                "more is kept than there is room for"
            )

    def _add(self, entry: _Entry) -> None:
        """Add an entry as the most recent. The caller holds the lock, as for all methods below."""
        self._entries[entry] = None
        self.size += entry.size
        self._make_room()

    def _use(self, entry: _Entry) -> None:
        self._entries.move_to_end(entry)

    def _remove(self, entry: _Entry) -> None:
        if entry in self._entries:
            del self._entries[entry]
            self.size -= entry.size

    def clear(self) -> None:
        """Drop the values of all caches."""
        with self.lock:
            while self._entries:
                self._drop_oldest()

    def _make_room(self) -> None:
        self._remove_released()
        while self.size > self.size_max and len(self._entries) > 1:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        oldest = next(iter(self._entries))
        self._remove(oldest)
        owner = oldest.owner()
        if owner is not None:
            owner._forget(oldest)

    def _release(self, entries: Iterable[_Entry]) -> None:
        """Release the entries of a garbage-collected cache.

        The interpreter may call this at any point, even inside the methods above.
        """
        self._released.append(entries)
        if not self.lock.locked():
            with self.lock:
                self._remove_released()

    def _remove_released(self) -> None:
        while self._released:
            for entry in self._released.popleft():
                self._remove(entry)


class Recent(Generic[K, V]):
    """An LRU cache whose values have sizes, with the limit ``size_max`` for their sum. Thread-safe.

    budget: A second limit, shared with other caches.

    ``hits`` and ``misses`` count calls of :meth:`get`, and ``dropped`` counts evictions.
    """

    def __init__(self, size_max: int, budget: Budget | None = None) -> None:
        self._size_max = size_max
        self._budget = budget
        self._entries_by_key: OrderedDict[K, _Entry] = OrderedDict()
        self._size = 0
        self._lock = OwnLock() if budget is None else budget.lock
        self._self = weakref.ref(self)
        self.hits = 0
        self.misses = 0
        self.dropped = 0
        if budget is not None:
            weakref.finalize(self, budget._release, self._entries_by_key.values()).atexit = False

    def __len__(self) -> int:
        return len(self._entries_by_key)

    def get(self, key: K) -> V | None:
        """Return the value of ``key`` and mark it as most recent, or return None."""
        with self._lock:
            entry = self._entries_by_key.get(key)
            self.hits += entry is not None
            self.misses += entry is None
            if entry is None:
                return None
            self._entries_by_key.move_to_end(key)
            if self._budget is not None:
                self._budget._use(entry)
            value: V = entry.value
            return value

    def has(self, key: K) -> bool:
        """Return True if ``key`` has a value, without counting it as a use."""
        return key in self._entries_by_key

    def values(self) -> list[V]:
        """Return all values, least recent first."""
        with self._lock:
            return [entry.value for entry in self._entries_by_key.values()]

    def put(self, key: K, value: V, size: int = 1) -> V:
        """Cache ``value`` unless ``key`` has a value, and return the cached value.

        The newest value stays even if it is larger than the limit.
        """
        with self._lock:
            entry = self._entries_by_key.get(key)
            if entry is None:
                entry = self._entries_by_key[key] = _Entry(key, value, size, self._self)
                self._size += size
                if self._budget is not None:
                    self._budget._add(entry)
            while self._size > self._size_max and len(self._entries_by_key) > 1:
                oldest = next(iter(self._entries_by_key.values()))
                self._forget(oldest)
                if self._budget is not None:
                    self._budget._remove(oldest)
            cached: V = entry.value
            return cached

    def drop(self, key: K) -> None:
        """Forget the value of ``key``, if it has one."""
        with self._lock:
            entry = self._entries_by_key.get(key)
            if entry is not None:
                self._forget(entry)
                if self._budget is not None:
                    self._budget._remove(entry)

    def made(self, key: K, make: Callable[[], V], size: int = 1) -> V:
        """Return the value of ``key``, calling ``make`` if it is absent.

        Several threads may call ``make`` at the same time. All get the same value.
        """
        value = self.get(key)
        return self.put(key, make(), size) if value is None else value

    def _forget(self, entry: _Entry) -> None:
        """Drop an entry. The caller holds the lock."""
        del self._entries_by_key[entry.key]
        self._size -= entry.size
        self.dropped += 1


class Guarded(Generic[V]):
    """A value that threads access in turns, while they hold ``lock``.

    >>> numbers = Guarded([1, 2])
    >>> with numbers.lock:
    ...     numbers.value.append(3)
    ...     print(numbers.value)
    [1, 2, 3]
    """

    def __init__(self, value: V) -> None:
        self.value = value
        self.lock = OwnLock()


class Session:
    """The state of a process: parts that modules own, cached function results, and the memory
    budget of all caches. Thread-safe.

    memory: The budget of the caches of all tables (option ``mdt.cache.memory.max``).
    memos: Functions with cached results.
    numbers: A counter of process-wide unique numbers.

    A forked child starts without parts, because it has none of the parent's threads and must not
    use its open files.
    """

    def __init__(self) -> None:
        self.memory = Budget(CACHES_BYTES_MAX, free_in_children())
        self.memos: list[_lru_cache_wrapper[Any]] = []
        self.numbers = itertools.count()
        self._parts: dict[Callable[[], Any], Any] = {}
        self._lasting: dict[Callable[[], Any], Any] = {}
        at_fork(after_in_child=self._forget_parts)

    def part(self, make: Callable[[], V], *, lasts: bool = False) -> V:
        """Return the result of the first call of ``make``.

        Several threads may call ``make`` at the same time. All get the same result.

        lasts: See :func:`for_life`.
        """
        parts = self._lasting if lasts else self._parts
        part: V | None = parts.get(make)
        if part is None:
            part = parts.setdefault(make, make())
        return part

    def clear(self) -> None:
        """Drop everything that can be recreated, so that a test starts as in a new process. Open
        tables keep working.
        """
        self._forget_parts()
        for memo in self.memos:
            memo.cache_clear()
        self.memory.clear()

    def _forget_parts(self) -> None:
        self._parts = {}


_SESSION = Session()


def session() -> Session:
    """Return the session of this process."""
    return _SESSION


def in_session(make: Callable[[], V]) -> Callable[[], V]:
    """Return a function that returns a part of the session, made by ``make`` at the first call.

    >>> @in_session
    ... def lengths() -> Recent[str, int]:
    ...     return Recent(16)
    >>> lengths().put("Oslo", 4), lengths().get("Oslo")
    (4, 4)
    """
    return partial(_SESSION.part, make)


def for_life(make: Callable[[], V]) -> Callable[[], V]:
    """Return the same as :func:`in_session`, for facts that survive :meth:`Session.clear` and
    forks.
    """
    return partial(_SESSION.part, make, lasts=True)


def memo(entries: int) -> Callable[[Callable[..., V]], _lru_cache_wrapper[V]]:
    """Return a decorator that caches the last results of a function in the session.

    >>> @memo(2)
    ... def square(number: int) -> int:
    ...     return number * number
    >>> square(3), square(3), square.cache_info().hits
    (9, 9, 1)
    """

    def decorate(function: Callable[..., V]) -> _lru_cache_wrapper[V]:
        cached = lru_cache(maxsize=entries)(function)
        _SESSION.memos.append(cached)
        return cached

    return decorate
