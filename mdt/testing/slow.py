"""A storage that takes its time, as an object store does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from mdt.stores.contract import Storage
from mdt.testing.faulty import FaultyStorage

Result = TypeVar("Result")


class SlowStorage(FaultyStorage):
    """``inner``, where every operation takes ``seconds`` more, and nothing is on a local disk that could be mapped.

    >>> from mdt.stores.memory import MemoryStorage
    >>> storage = SlowStorage(MemoryStorage(), 0.05)
    >>> storage.create("one", b"1")
    >>> storage.inner.now_us() - MemoryStorage().now_us() >= 50_000
    True
    """

    is_remote = True

    def __init__(self, inner: Storage, seconds: float) -> None:
        super().__init__(inner)
        self.seconds = seconds

    def local_path(self, path: str) -> str | None:
        """See :class:`Storage`: there is none."""
        return None

    def _look(self, name: str, path: str, act: Callable[[], Result]) -> Result:
        self.inner.sleep(self.seconds)
        return super()._look(name, path, act)

    def _change(self, name: str, path: str, act: Callable[[], Result], tear: Callable[[], object]) -> Result:
        self.inner.sleep(self.seconds)
        return super()._change(name, path, act, tear)
