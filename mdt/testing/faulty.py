"""A storage that fails on purpose, at a given operation and in a given way.

A crash sweep runs a flow once to count its operations. Then, for every operation and mode, it runs
the flow on a fresh copy until it crashes, opens the inner storage as the next process would, and
checks the invariants.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Hashable
from typing import Any, Literal, TypeVar

from mdt import errors
from mdt.stores.contract import Answers, Data, Listing, Names, Storage, temporary_name, to_bytes

Mode = Literal["before", "after", "torn", "lost_reply"]
"""The failure: the operation is not executed, executed, half executed, or executed with an error as
its reply.
"""

Result = TypeVar("Result")


class Crash(BaseException):
    """The process has died.

    It derives from BaseException, so that no ``except Exception`` in the tested code can continue.
    """


class FaultyStorage(Storage):
    """A wrapper of ``inner`` that fails at operation number ``fail_at``, counted from 1. 0 means
    never.

    It counts operations that change something, each object of ``delete_many`` separately, and with
    ``count_reads`` also reads. Counts are exact with several threads, but their order varies.

    After ``before``, ``after`` and ``torn`` every further operation raises :class:`Crash`. ``torn``
    leaves half of the bytes: ``create`` under the final name, ``put_if_absent`` and ``replace``
    under a temporary name. A torn delete does nothing. After ``lost_reply`` (errors.Unavailable)
    the storage works again.

    Independent operations run one after the other in the order in which they begin, so that every
    run is the same. ``late`` runs each when it is awaited, the last of a group first. These are the
    two extremes of what a dying process may have executed.

    >>> from mdt.stores.memory import MemoryStorage
    >>> inner = MemoryStorage()
    >>> storage = FaultyStorage(inner, fail_at=2, mode="before")
    >>> storage.create("one", b"1")
    >>> try:
    ...     storage.create("two", b"2")
    ... except Crash:
    ...     print("died")
    died
    >>> inner.size("one"), inner.size("two")
    (1, None)
    """

    def __init__(
        self,
        inner: Storage,
        fail_at: int = 0,
        mode: Mode = "before",
        *,
        count_reads: bool = False,
        late: bool = False,
    ) -> None:
        self.inner = inner
        self.url = inner.url
        self.conditional_put = inner.conditional_put
        self.has_versions = inner.has_versions
        self.fail_at = fail_at
        self.mode: Mode = mode
        self.crashed = False
        self.operations: list[str] = []
        self._passing: list[str] = []
        self._count_reads = count_reads
        self._late = late
        self._lock = threading.Lock()

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """See :class:`Storage`."""
        return self._look("read", path, lambda: self.inner.read(path, offset, length))

    def read_whole(self, path: str, bytes_max: int) -> bytes:
        """See :class:`Storage`."""
        return self._look("read", path, lambda: self.inner.read_whole(path, bytes_max))

    def open(self, path: str) -> Any:
        """See :class:`Storage`."""
        return self._look("open", path, lambda: self.inner.open(path))

    def create(self, path: str, data: Data) -> None:
        """See :class:`Storage`."""
        half = _half(data)
        self._change(
            "create",
            path,
            lambda: self.inner.create(path, data),
            lambda: self.inner.create(path, half),
        )

    def put_if_absent(self, path: str, data: Data) -> bool:
        """See :class:`Storage`."""
        return self._change(
            "put_if_absent",
            path,
            lambda: self.inner.put_if_absent(path, data),
            lambda: self._tear(path, data),
        )

    def put_passing(self, path: str, data: Data) -> bool:
        """See :class:`Storage`."""
        self._passing.append(path)
        return self._change(
            "put_passing",
            path,
            lambda: self.inner.put_passing(path, data),
            lambda: self._tear(path, data),
        )

    def cut_power(self) -> None:
        """Delete objects stored by :meth:`put_passing`. A power cut may lose them although later
        objects survive.
        """
        self.inner.delete_many(self._passing)

    def replace(self, path: str, data: Data) -> None:
        """See :class:`Storage`."""
        self._change(
            "replace", path, lambda: self.inner.replace(path, data), lambda: self._tear(path, data)
        )

    def read_with_version(self, path: str, bytes_max: int) -> tuple[bytes, str] | None:
        """See :class:`Storage`."""
        return self._look("read", path, lambda: self.inner.read_with_version(path, bytes_max))

    def replace_version(self, path: str, data: Data, version: str) -> str | None:
        """See :class:`Storage`."""
        return self._change(
            "replace",
            path,
            lambda: self.inner.replace_version(path, data, version),
            lambda: self._tear(path, data),
        )

    def delete(self, path: str) -> None:
        """See :class:`Storage`."""
        self._change("delete", path, lambda: self.inner.delete(path), lambda: None)

    def list(self, prefix: str) -> Listing:
        """See :class:`Storage`."""
        return self._look("list", prefix, lambda: self.inner.list(prefix))

    def list_dir(
        self, prefix: str, *, after: str = "", before: str = "", skip: Container[str] = frozenset()
    ) -> Listing:
        """See :class:`Storage`."""
        return self._look(
            "list_dir",
            prefix,
            lambda: self.inner.list_dir(prefix, after=after, before=before, skip=skip),
        )

    def children(self, prefix: str) -> Names:
        """See :class:`Storage`."""
        return self._look("children", prefix, lambda: self.inner.children(prefix))

    def stamp(self, path: str) -> Hashable | None:
        """See :class:`Storage`."""
        return self._look("stamp", path, lambda: self.inner.stamp(path))

    def size(self, path: str) -> int | None:
        """See :class:`Storage`."""
        return self._look("size", path, lambda: self.inner.size(path))

    def drop_directories(self, prefix: str, before: str, *, start: str = "") -> None:
        """See :class:`Storage`. Not counted, because no object changes."""
        self._check_alive()
        self.inner.drop_directories(prefix, before, start=start)

    def now_us(self) -> int:
        """See :class:`Storage`. Not counted."""
        self._check_alive()
        return self.inner.now_us()

    def random_hex(self, bytes: int) -> str:
        """See :class:`Storage`. Not counted."""
        self._check_alive()
        return self.inner.random_hex(bytes)

    def sleep(self, seconds: float) -> None:
        """See :class:`Storage`. Not counted."""
        self._check_alive()
        self.inner.sleep(seconds)

    def begin(self, act: Callable[[], Result]) -> Callable[[], Result]:
        """See :class:`Storage`."""
        return act if self._late else super().begin(act)

    def together(self, *acts: Callable[[], Any]) -> Answers:
        """See :class:`Storage`."""
        return super().together(*acts[::-1])[::-1] if self._late else super().together(*acts)

    def uri(self, path: str) -> str:
        """See :class:`Storage`. Not counted."""
        return self.inner.uri(path)

    def local_path(self, path: str) -> str | None:
        """See :class:`Storage`. Not counted."""
        return self.inner.local_path(path)

    def _look(self, name: str, path: str, act: Callable[[], Result]) -> Result:
        if not self._count_reads:
            self._check_alive()
            return act()
        return self._change(name, path, act, lambda: None)

    def _change(
        self, name: str, path: str, act: Callable[[], Result], tear: Callable[[], object]
    ) -> Result:
        """Count the operation, then execute it or fail."""
        if not self._is_next_to_fail(f"{name} {path}"):
            return act()
        if self.mode == "torn":
            tear()
        elif self.mode != "before":
            act()
        if self.mode == "lost_reply":
            raise errors.Unavailable(
                f"the reply to {name} {path} was lost (a fault made by a test)"
            )
        raise Crash(f"at operation {self.fail_at}: {name} {path}")

    def _is_next_to_fail(self, operation: str) -> bool:
        with self._lock:
            self._check_alive()
            self.operations.append(operation)
            is_failing = len(self.operations) == self.fail_at
            self.crashed = is_failing and self.mode != "lost_reply"
            return is_failing

    def _check_alive(self) -> None:
        if self.crashed:
            raise Crash(f"the process died at operation {self.fail_at}")

    def _tear(self, path: str, data: Data) -> None:
        self.inner.create(temporary_name(path, self.inner.random_hex(8)), _half(data))


def _half(data: Data) -> bytes:
    content = to_bytes(data)
    return content[: len(content) // 2]
