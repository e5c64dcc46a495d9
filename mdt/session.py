"""The state that this process keeps between calls.  One :class:`Session` owns it.

A module that keeps something for the process marks the function that makes it with
:func:`in_session`; a function whose results are remembered is marked with :func:`memo`.  So no
module has a global that changes, and :meth:`Session.clear` makes a process as good as new.

A cache (:class:`Recent`) has a limit of its own and drops its oldest values.  Caches that hold
bytes share a :class:`Budget` besides, whichever tables they belong to: a process that has opened a
thousand tables keeps no more in memory than one that has opened one.
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

    def clear(self) -> None:
        """Drop the values of all caches."""
        with self.lock:
            while self._entries:
                self._drop_oldest()

    def _make_room(self) -> None:
        self._give_back()
        while self.size > self.size_max and len(self._entries) > 1:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
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

    def made(self, key: K, make: Callable[[], V], size: int = 1) -> V:
        """Return the value of ``key``; without one, the one that ``make`` returns is kept.  Several
        threads may make it, and all get the same.
        """
        found = self.get(key)
        return self.put(key, make(), size) if found is None else found

    def _forget(self, entry: _Entry) -> None:
        """Drop an entry; under the lock."""
        del self._found[entry.key]
        self._size -= entry.size
        self.dropped += 1


class Guarded(Generic[V]):
    """A ``value`` that threads use in turns.

    >>> with Guarded([1, 2]) as numbers:
    ...     numbers.append(3)
    ...     print(numbers)
    [1, 2, 3]
    """

    def __init__(self, value: V) -> None:
        self.value = value
        self._lock = OwnLock()

    def __enter__(self) -> V:
        self._lock.__enter__()
        return self.value

    def __exit__(self, *_: object) -> None:
        self._lock.__exit__()


class Session:
    """The state of one process: parts that modules own by name, results of functions, and the
    memory that all caches share.  Safe for threads.

    ``memory``: the budget of the caches of all tables (option ``mdt.cache.memory.max``); ``memos``:
    functions that remember results; ``numbers``: numbers of which each is used once.

    A forked child has none of the parent's threads and must not use its files.  So it begins
    without parts.
    """

    def __init__(self) -> None:
        self.memory = Budget(CACHES_BYTES_MAX, free_in_children())
        self.memos: list[_lru_cache_wrapper[Any]] = []
        self.numbers = itertools.count()
        self._parts: dict[Callable[[], Any], Any] = {}
        self._lasting: dict[Callable[[], Any], Any] = {}
        at_fork(after_in_child=self._forget_parts)

    def part(self, make: Callable[[], V], *, lasts: bool = False) -> V:
        """Return what ``make`` has returned at the first call; ``lasts``: see :func:`for_life`.

        Threads may call ``make`` at the same time, and all get the result of one call.
        """
        parts = self._lasting if lasts else self._parts
        found: V | None = parts.get(make)
        if found is None:
            found = parts.setdefault(make, make())
        return found

    def clear(self) -> None:
        """Forget what can be made again, so that a test begins as in a new process.  Tables that
        somebody holds go on.
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
    """Return a function that returns a part of the session, which ``make`` makes at the first call.

    >>> @in_session
    ... def lengths() -> Recent[str, int]:
    ...     return Recent(16)
    >>> lengths().put("Oslo", 4), lengths().get("Oslo")
    (4, 4)
    """
    return partial(_SESSION.part, make)


def for_life(make: Callable[[], V]) -> Callable[[], V]:
    """Return the like of :func:`in_session` for facts about the process, which are true after
    :meth:`Session.clear` and in forked children, too.
    """
    return partial(_SESSION.part, make, lasts=True)


def memo(entries: int) -> Callable[[Callable[..., V]], _lru_cache_wrapper[V]]:
    """Return a decorator of functions whose last results the session remembers.

    >>> @memo(2)
    ... def square(number: int) -> int:
    ...     return number * number
    >>> square(3), square(3), square.cache_info().hits
    (9, 9, 1)
    """

    def remembered(function: Callable[..., V]) -> _lru_cache_wrapper[V]:
        found = lru_cache(maxsize=entries)(function)
        _SESSION.memos.append(found)
        return found

    return remembered
