"""Work on many rows that falls into pieces, on several threads: numpy and Arrow let others run while they work on arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pyarrow as pa

S = TypeVar("S")
T = TypeVar("T")

_ROWS_MIN = 1 << 18
"""Of fewer rows threads take as long to begin as they save."""


def side_by_side(function: Callable[[S], T], pieces: Sequence[S], rows: int) -> list[T]:
    """Return what ``function`` makes of each of ``pieces``, in their order; they have so many ``rows`` together.

    As many run at a time as Arrow has threads (``pyarrow.cpu_count``; one in a worker of Spark), all in this one if there are few rows.

    >>> side_by_side(len, ["a", "bc"], rows=3)
    [1, 2]
    """
    threads = min(len(pieces), pa.cpu_count())
    if threads < 2 or rows < _ROWS_MIN:
        return [function(piece) for piece in pieces]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, pieces))


def spans(rows: int, size: int) -> list[slice]:
    """Return slices of ``size`` rows, the last one perhaps of fewer, that are all of ``rows``.

    >>> spans(5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]
