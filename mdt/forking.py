"""Processes that are forked while other threads run, as ``multiprocessing`` does it on Linux before
Python 3.14.
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
        """That of Python 3.12: in 3.11 all objects of a class share a lock while one is computed,
        and a forked child may find it held for ever.

        Of threads that compute it at the same time all get what the first one has.
        """

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            """Return what was computed for ``instance``."""
            if instance is None:
                return self
            kept, name = instance.__dict__, self.attrname
            return kept[name] if name in kept else kept.setdefault(name, self.func(instance))


at_fork: Callable[..., None] = getattr(os, "register_at_fork", lambda **_: None)
"""Register what is called before and after forks, as ``os.register_at_fork`` does where processes
can be forked.
"""


def free_in_children() -> Any:
    """Return a lock, for the life of the process, that a forked child finds free: no other thread
    holds it while a fork is made.

    Who holds an ordinary lock then has no thread in the child that would ever release it.

    >>> with free_in_children():
    ...     print("held")
    held
    """
    lock = Lock()
    at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock


class OwnLock:
    """A lock of an object that may go, which a forked child finds free, too.  What it guards may be
    seen there between any two steps of its holder.

    >>> with OwnLock():
    ...     print("held")
    held
    """

    def __init__(self) -> None:
        self._lock = Lock()
        _own_locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_own_locks: WeakSet[OwnLock] = WeakSet()


def _free_own_locks() -> None:
    for lock in _own_locks:
        lock._lock = Lock()


def _wait_for_imports() -> None:
    """Wait until the modules of ours are there that other threads are importing: a child would wait
    for these threads for ever.
    """
    for name in [
        name for name in list(sys.modules) if name.partition(".")[0] in ("mdt", "indexes")
    ]:
        with suppress(Exception):  # whoever imports it is told
            import_module(name)


def this_process() -> int:
    """Return what tells this process from those that it was forked from, or forks."""
    return os.getpid()


at_fork(before=_wait_for_imports, after_in_child=_free_own_locks)
