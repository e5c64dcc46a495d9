"""Work that several threads do for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol, TypeVar

T = TypeVar("T")


class Begin(Protocol):
    """Begins a function, and returns what waits for its result or raises its error."""

    def __call__(self, function: Callable[[], T], /) -> Callable[[], T]: ...


@contextmanager
def begun_on(threads: int) -> Iterator[Begin]:
    """Give what begins a function on one of so many threads; without any, a function begins when somebody waits for it.

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
