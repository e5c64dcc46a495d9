"""A summary that records the ranges read from it."""

from typing import TypeVar

from indexes.base import InMemory

T = TypeVar("T")


class Recording:
    """The bytes of one summary. ``reads`` has the (start, stop) of each read, in order."""

    def __init__(self, data):
        self._summary = InMemory(data)
        self.reads = []

    def __len__(self):
        return len(self._summary)

    def read(self, start, stop):
        self.reads.append((start, stop))
        return self._summary.read(start, stop)

    def keep(self, make):
        return make()

    @property
    def bytes_read(self):
        return sum(min(stop, len(self)) - start for start, stop in self.reads)
