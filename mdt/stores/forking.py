"""Processes that are forked while other threads run, as ``multiprocessing`` does it on Linux before Python 3.14."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Lock
from typing import Any


def free_in_children() -> Any:
    """Return a lock, for the life of the process, that a forked child finds free: no other thread holds it while a fork is made.

    Who holds an ordinary lock then has no thread in the child that would ever release it.

    >>> with free_in_children():
    ...     print("held")
    held
    """
    lock = Lock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock


def forget_in_children(forget: Callable[[], object]) -> None:
    """Call ``forget`` in each forked child, which has none of the parent's threads."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=forget)


def this_process() -> int:
    """Return what tells this process from those that it was forked from, or forks."""
    return os.getpid()
