"""Memory that nobody uses any more, given back to the operating system."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache

import pyarrow as pa


def give_back() -> None:
    """Give back what Arrow and the C library keep of memory that was freed; harmless at any time,
    from any thread.

    The C library keeps an arena for each thread, of which it gives nothing back by itself but the
    end; arrays of numpy lie there.
    """
    pa.default_memory_pool().release_unused()
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    """Return ``malloc_trim`` of the GNU C library, None where it is another one."""
    if not sys.platform.startswith("linux"):
        return None
    found: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return found
