"""Locks and caches that survive a fork while other threads run.

``multiprocessing`` forks by default on Linux before Python 3.14.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

if TYPE_CHECKING or sys.version_info >= (3, 12):
    cached_property = functools.cached_property
else:

    class cached_property(functools.cached_property):
        """``functools.cached_property`` of Python 3.12.

        In Python 3.11 all objects of a class share a lock while a value is computed, and a forked
        child may find it locked forever. Threads that compute a value at the same time all get the
        first result.
        """

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            """Return the cached value of ``instance``, computed at the first call."""
            if instance is None:
                return self
            values, name = instance.__dict__, self.attrname
            return values[name] if name in values else values.setdefault(name, self.func(instance))


at_fork: Callable[..., None] = getattr(os, "register_at_fork", lambda **_: None)
"""``os.register_at_fork``, or a no-op on platforms without fork."""


def free_in_children() -> Any:
    """Return a lock, for the life of the process, that is free in forked children.

    It is held during each fork, so no other thread can hold it then. An ordinary lock would stay
    locked in the child, because the thread that holds it does not exist there.

    >>> with free_in_children():
    ...     print("held")
    held
    """
    lock = Lock()
    at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock


class OwnLock:
    """A lock with the life of an object, free in forked children.

    Unlike :func:`free_in_children`, a fork does not wait for its holder. The child may see the
    guarded state in the middle of a change.

    >>> with OwnLock():
    ...     print("held")
    held
    """

    def __init__(self) -> None:
        self._lock = Lock()
        _own_locks.add(self)

    # Methods of the lock itself: Ctrl-C between a method of Python and its caller would leave the
    # lock locked.
    @property
    def __enter__(self) -> Callable[[], bool]:
        """Acquire the lock."""
        return self._lock.__enter__

    @property
    def __exit__(self) -> Callable[..., None]:  # noqa: PYI036, it is a property
        """Release the lock."""
        return self._lock.__exit__


_own_locks: WeakSet[OwnLock] = WeakSet()


def _free_own_locks() -> None:
    for lock in _own_locks:
        lock._lock = Lock()


def _wait_for_imports() -> None:
    """Wait until other threads have finished importing modules of ours. A child would wait for
    these threads forever.
    """
    for name in [
        name for name in list(sys.modules) if name.partition(".")[0] in ("mdt", "indexes")
    ]:
        with suppress(Exception):  # the importing thread gets the error
            import_module(name)


def this_process() -> int:
    """Return the id of this process, which differs in parents and forked children."""
    return os.getpid()


at_fork(before=_wait_for_imports, after_in_child=_free_own_locks)
