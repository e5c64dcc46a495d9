"""Returns free memory to the operating system."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache

import pyarrow as pa


def release_memory() -> None:
    """Return freed memory that Arrow and the C library retain. Safe at any time and from any
    thread.

    The C library keeps one arena per thread, which holds numpy arrays. On its own it only returns
    the top of an arena.
    """
    pa.default_memory_pool().release_unused()
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    """Return ``malloc_trim`` of the GNU C library, or None with another C library."""
    if not sys.platform.startswith("linux"):
        return None
    function: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return function
