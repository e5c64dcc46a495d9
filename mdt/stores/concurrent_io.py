"""Concurrent operations on slow storages.

Each storage keeps its threads for its lifetime, because starting a thread for every request would
cost more than many requests do.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from threading import BoundedSemaphore
from typing import TypeVar

from mdt.limits import OPERATIONS_AT_ONCE_MAX, OPERATIONS_WAITING_MAX

T = TypeVar("T")


class StorageThreads:
    """A thread pool that waits for a storage.

    A caller that waits for an operation which no thread has started yet runs it itself. Operations
    may therefore start and await other operations without deadlock.
    """

    def __init__(self) -> None:
        # the executor starts threads on demand
        self._threads = ThreadPoolExecutor(OPERATIONS_AT_ONCE_MAX, "mdt-storage")
        self._free = BoundedSemaphore(OPERATIONS_AT_ONCE_MAX + OPERATIONS_WAITING_MAX)

    def begin(self, act: Callable[[], T]) -> Callable[[], T]:
        """Start ``act`` in another thread and return a function that waits for its result.

        Call that function once. If the queue is full, ``act`` runs in the calling thread.
        """
        if not self._free.acquire(blocking=False):
            return _run_now(act)
        future: Future[T] = Future()
        future.add_done_callback(lambda _: self._free.release())
        # The interpreter is shutting down, or the system has no more threads. In the latter case
        # the pool has queued the operation, and the caller must not run it as well.
        with suppress(RuntimeError):
            self._threads.submit(_run, act, future)
        return lambda: act() if future.cancel() else future.result()


def _run_now(act: Callable[[], T]) -> Callable[[], T]:
    future: Future[T] = Future()
    _run(act, future)
    return future.result


def _run(act: Callable[[], T], future: Future[T]) -> None:
    """Run ``act`` for ``future``, unless it was cancelled."""
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(act())
        except BaseException as error:  # noqa: BLE001 - the caller gets it from the future
            future.set_exception(error)
