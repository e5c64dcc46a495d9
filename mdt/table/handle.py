"""An open table, before it reads or writes: where it is, what it is, and how an operation is
committed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pyarrow as pa

from mdt import late, logs
from mdt.arguments import flag, shown, whole_number
from mdt.config import Options
from mdt.display import visible
from mdt.errors import Invalid
from mdt.forking import cached_property
from mdt.limits import COUNT_MAX, LOOKED_ONCE_ROWS_MAX, STREAM_ID_BYTES_MAX
from mdt.metadata.log.streams import is_stream, is_text_id
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.schema.definition import TableDefinition
from mdt.stores.storage import Storage
from mdt.write.result import WriteResult

if TYPE_CHECKING:
    from mdt.commit.operation import Operation
    from mdt.commit.transaction import CommitResult
    from mdt.engines.engine import Engine, Given
    from mdt.metadata.snapshot.as_of import Point
    from mdt.services.auto_maintenance import Upkeep

W = TypeVar("W", bound=WriteResult)
_Method = TypeVar("_Method", bound=Callable[..., Any])


def _batch_id(batch: object) -> int | str:
    if isinstance(batch, str):
        if not is_text_id(batch):
            raise Invalid(
                f"the id of a batch is printable text of at most {STREAM_ID_BYTES_MAX} bytes, not"
                f" {shown(batch)}",
                hint="t.once('orders', '2024-01-31')",
            )
        return batch
    found = whole_number("batch", batch)
    if not 0 <= found <= COUNT_MAX:
        raise Invalid(f"batches are numbered from 0 on, not {found}")
    return found


class Handle:
    """An open table; :class:`mdt.table.Table` is all that follows from it.

    ``as_of``: the past state that it shows; None for the newest one, whenever it is asked.
    """

    def __init__(
        self,
        storage: Storage,
        options: Mapping[str, Any] | None = None,
        *,
        as_of: Point | None = None,
    ) -> None:
        self._storage = storage
        self._metadata = Metadata(storage, options)
        definition = self._metadata.newest().definition
        if definition.ignored:
            text = "%s: options that the table may not choose are ignored: %s"
            logs.METADATA.warning(text, storage.url, ", ".join(definition.ignored))
        self._pinned: Snapshot | None = None
        self._rests_on: int | None = None
        self._batch: tuple[str, int | str] | None = None
        self._is_dry = False
        if as_of is not None:
            self._pinned = self.snapshot(as_of)

    @property
    def path(self) -> str:
        """Where the table is: local path or URL."""
        return self._storage.url

    @property
    def storage(self) -> Storage:
        """The storage below the table."""
        return self._storage

    @property
    def metadata(self) -> Metadata:
        """The metadata table."""
        return self._metadata

    @property
    def definition(self) -> TableDefinition:
        """What the table is; fixed at creation."""
        return (self._pinned or self._metadata.newest(watched=False)).definition

    @property
    def schema(self) -> pa.Schema:
        """The data columns as they were declared, without Hudi's meta columns."""
        return self.definition.declared

    @property
    def options(self) -> Options:
        """The options kept with the table, overridden by those it was opened with."""
        return self._metadata.options((self._pinned or self._metadata.known()).definition)

    def snapshot(self, as_of: Point | None = None) -> Snapshot:
        """Return the newest snapshot (of a table that was opened as of a point, the one there), or
        a past one.

        ``as_of``: the seq of a commit, an instant, or a time: a datetime or ISO text, UTC unless it
        has a zone; it means the newest commit whose instant is not after it.  Raises Invalid if
        there is no such commit, Expired if its state was cleaned.
        """
        if as_of is None:
            return self._pinned or self._metadata.newest()
        newest = self._metadata.newest()
        return self._metadata.at(late.as_of.seq_at(newest, as_of), newest=newest)

    def resting_on(self, seq: int) -> Self:
        """Return the same table for writes that follow from what was read at the state ``seq``.

        Whatever others have committed since then conflicts with them as if they had begun there:
        they raise Conflict, and nothing is written, if a row that they change, or a key that they
        found absent, is another one now.
        """
        return self._twin(_rests_on=seq)

    def once(self, stream: str, batch: int | str) -> Self:
        """Return the same table for one write that happens once, however often it is tried: batch
        ``batch`` of ``stream``.

        Which batch it is stands in the commit.  If the table has it, a write changes nothing: its
        result counts no row and has the instant "".

        ``batch``: a number from 0 on, or a text id.  Numbers rise: a smaller one than the newest of
        the stream is not written, and the result warns of it.  Text ids have no order, so a
        backfill writes an older day with one; the table remembers the 4,096 that were written last,
        and the newest numbers of 1,024 streams.  ``stream``: printable text.  Services, and what
        alters columns, are as ever.

        >>> import pyarrow as pa
        >>> from mdt import create
        >>> from mdt.stores.storage import MemoryStorage
        >>> t = create(MemoryStorage(), pa.schema([("id", pa.int64())]), key=["id"])
        >>> [t.once("numbers", 0).upsert({"id": [1]}).inserted for _ in range(2)]
        [1, 0]
        """
        if not is_stream(stream):
            raise Invalid(
                f"a stream has printable text as its name, not {shown(stream)}",
                hint="t.once('orders', 7)",
            )
        return self._twin(_batch=(stream, _batch_id(batch)))

    def anew(self) -> Self:
        """Return the table as it is now, opened anew with the same options: for another thread."""
        return type(self)(self._storage, self._metadata.overrides)

    def _twin(self, **terms: Any) -> Self:
        """Return the same open table once more, with other ``terms`` for its writes: what is known
        of it is known to both, and nothing is opened, as a copy would be.
        """
        found = object.__new__(type(self))
        _ = self._upkeep  # one for both
        vars(found).update(vars(self), **terms)
        return found

    def __repr__(self) -> str:
        d = self.definition
        past = () if self._pinned is None else (f"as of commit {self._pinned.seq}",)
        said = (d.name, d.table_type, f"key={','.join(d.key)}", f"at {self.path}", *past)
        return f"<mdt table {' '.join(map(visible, said))}>"

    def _repr_html_(self) -> str:
        return late.overview.table_html(self.path, self.snapshot())

    def _given(self, data: Any) -> Given[Any] | None:
        """Return ``data`` as rows of the engine that holds them, None if the calling thread takes
        them.
        """
        return late.choice.given(data, self._metadata.known().definition.schema.names)

    def _engine(self, spark: Any) -> Engine[Any] | None:
        """Return the engine of a session, None for the calling thread."""
        return late.choice.engine_of(spark)

    def _commit(
        self, operation: Operation[Any], begun: Snapshot | None = None
    ) -> CommitResult[Any]:
        if self._is_dry:
            return self._planned(operation, begun or self._metadata.newest())
        return late.transaction.run(
            self._metadata, operation, attempts=self.options.commit_attempts, begun=begun
        )

    def _commit_rows(
        self, operation: Operation[Any], begun: Snapshot | None = None
    ) -> CommitResult[Any]:
        """Commit what writes rows, as :meth:`resting_on` and :meth:`once` have said."""
        if self._rests_on is not None:
            operation = late.snapshot_bound.Resting(operation, self._metadata, self._rests_on)
        if self._batch is not None:
            operation = late.idempotent.Once(operation, *self._batch)
        return self._commit(operation, begun)

    def _planned(self, operation: Operation[Any], snapshot: Snapshot) -> CommitResult[Any]:
        """Return how an operation would end on ``snapshot``, of which nothing is written."""
        plan = operation.prepare(snapshot, self._storage.random_hex(16))
        plan.close()
        return late.transaction.CommitResult(snapshot, None, plan, 0, plan.warnings)

    def _dry(self, dry_run: object) -> Self:
        """Return the same table for what is only planned, or this one."""
        if not flag("dry_run", dry_run):
            return self
        return self._twin(_is_dry=True)

    def _written(self, operation: Operation[Any], rows: int, begun: Snapshot) -> WriteResult:
        """Commit a write of so many rows, which were made ready since ``begun``."""
        return self._tidied(WriteResult.of(self._commit_rows(operation, _fresh(begun, rows))))

    def _tidied(self, result: W) -> W:
        """Let services that are due do some steps after a write; return its result with what went
        wrong with them.
        """
        if self._is_dry:
            return result
        warnings = self._upkeep.after_write(self._metadata, self.options, result.seq)
        return replace(result, warnings=result.warnings + warnings)

    @cached_property
    def _upkeep(self) -> Upkeep:
        upkeep = late.auto_maintenance.Upkeep()
        weakref.finalize(self, upkeep.close)  # at the end of the process, too
        return upkeep

    def close(self) -> None:
        """End the thread in which services run (``mdt.services.thread``) after the step that it is
        doing; the next write begins another one.
        """
        self._upkeep.close()

    def _before_rows(self) -> Snapshot:
        """As :meth:`_before_write`; rows are found by the key index, so it must be there."""
        return self._before_write(by_key=True)

    def _before_write(self, *, roll_back: bool = True, by_key: bool = False) -> Snapshot:
        """Refuse what cannot be written safely, then finish or remove what crashed writers left
        (with ``roll_back``).

        Returns the newest snapshot.  ``by_key``: whether rows are found by the key index, which
        then must be there. What is only planned leaves everything as it stands.
        """
        self._refuse_the_past()
        roll_back = roll_back and not self._is_dry
        self._storage.require_conditional_put()
        self._upkeep.begin_write(self._storage.now_us())
        if roll_back:
            snapshot, found = self._storage.together(
                self._metadata.newest, partial(late.claims.read_all, self._storage)
            )
        else:
            snapshot, found = self._metadata.newest(), None
        if by_key:
            self._metadata.key_index(snapshot)
        self._metadata.watch.refuse_to_write()
        if roll_back:
            late.recovery.recover(
                self._metadata, after_seconds=self.options.rollback_after_seconds or 1, known=found
            )
        return snapshot

    def _refuse_the_past(self) -> None:
        if self._pinned is not None:
            raise Invalid(
                f"this table shows the state after commit {self._pinned.seq} and cannot be"
                " written to",
                hint="open it without as_of",
            )


def takes_dry_run(method: _Method) -> _Method:
    """Return a method that, with its argument ``dry_run``, runs on the table for what is only
    planned; its body need not look at it.
    """

    @wraps(method)
    def planned(self: Handle, *args: Any, **named: Any) -> Any:
        return method(self._dry(named.get("dry_run", False)), *args, **named)

    return planned  # type: ignore[return-value]


def _fresh(snapshot: Snapshot, rows: int) -> Snapshot | None:
    """Return ``snapshot`` if it is hardly older than before so many rows were made ready, else
    None: then it pays to look again.
    """
    return snapshot if rows <= LOOKED_ONCE_ROWS_MAX else None
