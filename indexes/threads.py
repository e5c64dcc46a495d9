"""Work that several threads do for one: numpy and Arrow let others run while they work on
arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol, TypeVar

import pyarrow as pa

S = TypeVar("S")
T = TypeVar("T")

MANY_ROWS = 1 << 18
"""Of fewer rows threads take as long to begin as they save: hashes of 131,072 keys take 9.7 ms on
two threads and 10.0 on one, of 262,144 19 and 23.
"""


class Begin(Protocol):
    """Begins a function, and returns what waits for its result or raises its error."""

    def __call__(self, function: Callable[[], T], /) -> Callable[[], T]: ...


@contextmanager
def begun_on(threads: int) -> Iterator[Begin]:
    """Give what begins a function on one of so many threads; without any, a function begins when
    somebody waits for it.

    All have ended when the context ends.

    >>> with begun_on(2) as begin:
    ...     waits = [begin(lambda: 1), begin(lambda: 2)]
    ...     [wait() for wait in waits]
    [1, 2]
    """

    def later(function: Callable[[], T], /) -> Callable[[], T]:
        return function

    if not threads:
        yield later
        return
    with ThreadPoolExecutor(threads) as pool:

        def begin(function: Callable[[], T], /) -> Callable[[], T]:
            return pool.submit(function).result

        yield begin


def side_by_side(function: Callable[[S], T], pieces: Sequence[S], rows: int) -> list[T]:
    """Return what ``function`` makes of each of ``pieces``, in their order; they have so many
    ``rows`` together.

    As many run at a time as Arrow has threads (``pyarrow.cpu_count``; one in a worker of Spark),
    all in this one if there are few rows.

    >>> side_by_side(len, ["a", "bc"], rows=3)
    [1, 2]
    """
    threads = min(len(pieces), pa.cpu_count())
    if threads < 2 or rows < MANY_ROWS:
        return [function(piece) for piece in pieces]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, pieces))


def spans(rows: int, size: int) -> list[slice]:
    """Return slices of ``size`` rows, the last one perhaps of fewer, that are all of ``rows``.

    >>> spans(5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]
