"""Group commit: small writes of many callers in one commit, which costs about the same for one row
as for ten thousand.

While a commit is in progress, new rows gather for the next commit (Gawlick and Kinkade, "Varieties
of Concurrency Control in IMS/VS Fast Path", 1985).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from mdt import late
from mdt.arguments import shown, whole_number
from mdt.errors import Invalid, MdtError
from mdt.forking import this_process
from mdt.scan.key_columns import as_key_table
from mdt.scan.lookup import refuse_condition
from mdt.schema.input import to_table
from mdt.write.by_name import DELETE, RowWrite
from mdt.write.normalize import Batch, concat_batches, convert_to_current, normalize, normalize_keys
from mdt.write.operations import RowsInProcess
from mdt.write.result import WriteResult

if TYPE_CHECKING:
    from mdt.table.handle import Handle

WAITING_COMMITS = 4
"""Full commits whose rows may wait. A caller with more rows blocks."""

CALLERS_AWAITED_SHARE = 0.1
"""Share of the last commit's time to wait for callers. A caller that misses a commit waits for
two.
"""


@dataclass(slots=True)
class _Group:
    """Consecutive calls of one kind, which are committed together.

    callers: Ids of the threads that made them.
    """

    kind: str
    calls: list[tuple[Batch, Future[WriteResult]]] = field(default_factory=list)
    callers: set[int] = field(default_factory=set)
    rows: int = 0
    taken: bool = False

    def takes(self, kind: str, batch: Batch) -> bool:
        """Return True if a call has this group's kind and columns. Keys of deletes may have
        ordering values or not.
        """
        return self.kind == kind and self.calls[0][0].table.schema.equals(batch.table.schema)


class Writer:
    """Gathers small writes of any number of threads and commits them together:
    ``with t.writer() as w``.

    :meth:`upsert` and :meth:`delete` return a future at once. It completes when the rows are
    committed, with the :class:`~mdt.write.result.WriteResult` of the whole commit. Later rows win:
    rows of a commit with the same key behave like those of a single upsert. Upserts and deletes are
    committed separately, in their order.

    A commit starts when ``max_rows`` rows wait, when rows have waited ``max_seconds``, on
    :meth:`flush`, and at the end of the block. ``max_seconds=0`` waits only for the commit in
    progress, and for a tenth of its time for threads that took part in the last two commits. A
    caller that is faster than the commits blocks.

    In a forked process the writer has no commit thread. There it refuses rows, and closing it does
    nothing.

    >>> with t.writer() as w:
    ...     future = w.upsert([{"id": "d", "city": "Bergen", "fare": 6.0, "ts": 2}])
    >>> future.result().inserted
    1
    """

    def __init__(self, table: Handle, max_rows: int, max_seconds: float) -> None:
        is_number = isinstance(max_seconds, int | float) and not isinstance(max_seconds, bool)
        if (
            whole_number("max_rows", max_rows) < 1
            or not is_number
            or not 0 <= max_seconds <= threading.TIMEOUT_MAX
        ):
            text = f"max_rows={shown(max_rows)}, max_seconds={shown(max_seconds)} is out of range"
            raise Invalid(text, hint="max_rows must be at least 1, max_seconds at least 0")
        self._max_rows, self._max_seconds = max_rows, max_seconds
        self._table = table.anew()
        self._definition = self._table.definition
        self._changed = threading.Condition()
        self._groups: deque[_Group] = deque()
        self._rows = 0
        self._flushing = 0
        self._took = 0.0
        self._lately: deque[set[int]] = deque(maxlen=2)
        self._closed = False
        self._failed: BaseException | None = None
        self._process = this_process()
        # The thread inherits the commit metadata of its creator.
        in_context = partial(copy_context().run, self._run)
        self._thread = threading.Thread(target=in_context, name="mdt-writer", daemon=True)
        self._thread.start()

    def upsert(self, data: Any) -> Future[WriteResult]:
        """Queue rows for ``t.upsert(data)``. Raises Invalid at once if they do not fit.

        >>> with t.writer() as w:
        ...     row = {"id": "e", "city": "Rome", "fare": 1.0, "ts": 2}
        ...     futures = [w.upsert([row]), w.upsert([{**row, "id": "f"}])]
        >>> all(future.done() for future in futures)
        True
        """
        rows = to_table(_in_process(data), self._definition.declared)
        return self._enqueue("upsert", normalize(rows, self._definition))

    def delete(self, keys: Any) -> Future[WriteResult]:
        """Queue keys for ``t.delete(keys)``. Raises Invalid at once if they are not keys.

        >>> with t.writer() as w:
        ...     future = w.delete(["b", "z"])
        >>> future.result().missing
        1
        """
        refuse_condition(self._table.metadata, self._table.snapshot(), keys)
        rows = to_table(
            as_key_table(_in_process(keys), self._definition), self._definition.declared
        )
        return self._enqueue("delete", normalize_keys(rows, self._definition))

    def flush(self) -> None:
        """Block until all queued rows are committed or have failed, as their futures show.

        >>> with t.writer(max_seconds=60) as w:
        ...     future = w.delete("c")
        ...     w.flush()
        ...     future.result().deleted
        1
        """
        self._require_own_process()
        with self._changed:
            pending = [future for group in self._groups for _, future in group.calls]
            self._flushing += 1
            self._changed.notify_all()
            try:
                self._changed.wait_for(lambda: all(future.done() for future in pending))
            finally:
                self._flushing -= 1

    def close(self) -> None:
        """Commit the remaining rows and stop. Raises the first error of a commit, which its futures
        have too.

        >>> w = t.writer()
        >>> future = w.delete("a")
        >>> w.close()
        >>> future.done()
        True
        """
        if this_process() != self._process:
            return
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        if self._failed is not None:
            raise self._failed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except MdtError:
            if error is None:
                raise

    def _require_own_process(self) -> None:
        if this_process() != self._process:
            raise Invalid(
                "the writer belongs to another process", hint="call t.writer() in this process"
            )

    def _enqueue(self, kind: str, batch: Batch) -> Future[WriteResult]:
        self._require_own_process()
        future: Future[WriteResult] = Future()
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or self._rows < WAITING_COMMITS * self._max_rows
            )
            if self._closed:
                raise Invalid("the writer is closed", hint="call t.writer() for a new one")
            last = self._groups[-1] if self._groups else None
            if (
                last is None
                or last.taken
                or last.rows >= self._max_rows
                or not last.takes(kind, batch)
            ):
                last = _Group(kind)
                self._groups.append(last)
            last.calls.append((batch, future))
            last.callers.add(threading.get_ident())
            last.rows += len(batch)
            self._rows += len(batch)
            self._changed.notify_all()
        return future

    def _run(self) -> None:
        while (group := self._next_group()) is not None:
            self._commit(group.kind, group.calls)
            with self._changed:
                self._lately.append(group.callers)
                self._groups.popleft()
                self._rows -= group.rows
                self._changed.notify_all()

    def _next_group(self) -> _Group | None:
        """Wait for a group to commit and return it, or None if the writer is closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._groups or self._closed)
            if not self._groups:
                return None
            self._changed.wait_for(self._is_ready, self._max_seconds)
            self._changed.wait_for(self._callers_are_back, CALLERS_AWAITED_SHARE * self._took)
            self._groups[0].taken = True
            return self._groups[0]

    def _is_ready(self) -> bool:
        """Return True if the first group gets no more calls, or must not wait for them."""
        return (
            self._closed
            or self._flushing > 0
            or len(self._groups) > 1
            or self._groups[0].rows >= self._max_rows
        )

    def _callers_are_back(self) -> bool:
        """Return True if all recent callers have joined the first group, or none must be
        awaited.
        """
        return self._is_ready() or self._groups[0].callers.issuperset(chain(*self._lately))

    def _commit(self, kind: str, calls: Sequence[tuple[Batch, Future[WriteResult]]]) -> None:
        """Commit calls together. If their rows are refused, commit each call separately, so that
        valid calls succeed.
        """
        active = [
            (batch, future)
            for batch, future in calls
            if future.running() or future.set_running_or_notify_cancel()
        ]
        if not active:
            return
        try:
            result = self._timed(kind, [batch for batch, _ in active])
        except Invalid as error:
            if len(active) == 1:
                self._fail(active, error)
            for call in active if len(active) > 1 else ():
                self._commit(kind, [call])
        except BaseException as error:  # noqa: BLE001 - the futures must complete
            self._fail(active, error)
        else:
            for _, future in active:
                with suppress(BaseException):  # SystemExit of a callback would end this thread
                    future.set_result(result)

    def _fail(
        self, calls: Sequence[tuple[Batch, Future[WriteResult]]], error: BaseException
    ) -> None:
        self._failed = self._failed or error
        for _, future in calls:
            with suppress(BaseException):
                future.set_exception(error)

    def _write(self, kind: str, batches: Sequence[Batch]) -> WriteResult:
        begun = self._table._prepare_row_write()
        self._definition = definition = begun.definition
        if kind != DELETE:
            batches = [convert_to_current(batch, definition) for batch in batches]
        table = self._table
        request = RowWrite(table.metadata, table.options, kind)
        batch = concat_batches(batches, definition)
        rows = RowsInProcess(batch, request.rule(definition, ()))
        return table._commit_write(request.operation(rows, definition), len(batch), begun)

    def _timed(self, kind: str, batches: Sequence[Batch]) -> WriteResult:
        since = self._table.storage.now_us()
        result = self._write(kind, batches)
        self._took = (self._table.storage.now_us() - since) / 1e6
        return result


def _in_process(data: Any) -> Any:
    frame = late.choice.engine_input(data, ())
    if frame is not None:
        raise Invalid(
            f"a writer does not take a {type(data).__name__} of {frame.engine.name.capitalize()}",
            hint="use t.upsert or t.delete",
        )
    return data
