"""Storages of a publisher that pauses: a function is called before one of its operations."""

from __future__ import annotations

from collections.abc import Callable

from mdt.stores.storage import Storage
from mdt.testing.faulty import FaultyStorage


class Paused(FaultyStorage):
    """Calls ``meanwhile`` before the k-th operation, reads included, once ``k`` is set."""

    def __init__(self, inner: Storage, meanwhile: Callable[[], object]) -> None:
        super().__init__(inner, count_reads=True)
        self.k, self.meanwhile = 0, meanwhile

    def _is_next_to_fail(self, operation: str) -> bool:
        self.operations.append(operation)
        if len(self.operations) == self.k:
            self.meanwhile()
        return False


class PausedBefore(FaultyStorage):
    """Calls ``meanwhile`` before the first operation whose text begins with ``at``."""

    def __init__(self, inner: Storage, at: str, meanwhile: Callable[[], object]) -> None:
        super().__init__(inner, count_reads=True)
        self.at, self.waiting = at, [meanwhile]

    def _is_next_to_fail(self, operation: str) -> bool:
        if self.waiting and operation.startswith(self.at):
            self.waiting.pop()()
        return False
