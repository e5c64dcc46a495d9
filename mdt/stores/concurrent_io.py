"""Operations that do not depend on each other, made at the same time: what a storage does on which
each of them takes long.

The threads live as long as their storage, because starting one for each question would cost more
than many questions do.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import BoundedSemaphore
from typing import Any, TypeVar

from mdt.limits import OPERATIONS_AT_ONCE_MAX, OPERATIONS_WAITING_MAX

T = TypeVar("T")


class AtOnce:
    """Threads that wait for a storage.

    Whoever waits for what no thread has begun yet does it himself.  So operations may begin others
    and wait for them, and all go on.
    """

    def __init__(self) -> None:
        # each begins when it is needed
        self._threads = ThreadPoolExecutor(OPERATIONS_AT_ONCE_MAX, "mdt-storage")
        self._free = BoundedSemaphore(OPERATIONS_AT_ONCE_MAX + OPERATIONS_WAITING_MAX)

    def begin(self, act: Callable[[], T]) -> Callable[[], T]:
        """Begin ``act`` in another thread, or do it at once if very many wait already; return what
        waits for its result, once.
        """
        if not self._free.acquire(blocking=False):
            return _done(act)
        try:
            future = self._threads.submit(act)
        except RuntimeError:  # the interpreter ends and begins no thread any more
            self._free.release()
            return _done(act)
        future.add_done_callback(self._ended)
        return lambda: act() if future.cancel() else future.result()

    def _ended(self, _: Future[Any]) -> None:
        self._free.release()


def _done(act: Callable[[], T]) -> Callable[[], T]:
    future: Future[T] = Future()
    try:
        future.set_result(act())
    except BaseException as error:  # noqa: BLE001 - whoever waits is told
        future.set_exception(error)
    return future.result
