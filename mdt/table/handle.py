"""An open table without its operations: location, definition, and the commit of an operation."""

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
from mdt.errors import Invalid, MdtError, Missing, Unsupported
from mdt.familiar_names import TABLE_NAMES, FamiliarNames
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
    from mdt.engines.engine import Engine, EngineInput
    from mdt.metadata.snapshot.as_of import Point
    from mdt.services.auto_maintenance import Upkeep
    from mdt.services.layout.rewriting import RewriteRunner

W = TypeVar("W", bound=WriteResult)
_SERVICE_POLL_SECONDS = 0.2
"""Time between looks at services of Hudi that a write waits for."""
_Method = TypeVar("_Method", bound=Callable[..., Any])


def _batch_id(batch: object) -> int | str:
    if isinstance(batch, str):
        if not is_text_id(batch):
            raise Invalid(
                f"a batch id must be printable text of at most {STREAM_ID_BYTES_MAX} bytes, not"
                f" {shown(batch)}",
                hint="e.g. t.once('orders', '2024-01-31')",
            )
        return batch
    number = whole_number("batch", batch)
    if not 0 <= number <= COUNT_MAX:
        raise Invalid(f"batch={number} is out of range", hint="number batches from 0")
    return number


class Handle(FamiliarNames):
    """An open table, the base class of the parts of :class:`mdt.table.Table`.

    as_of: The past snapshot to show, or None to follow the newest snapshot.
    """

    _familiar_names = TABLE_NAMES

    def __init__(
        self,
        storage: Storage,
        options: Mapping[str, Any] | None = None,
        *,
        as_of: Point | None = None,
    ) -> None:
        if not isinstance(storage, Storage):
            raise Invalid(
                f"mdt.Table takes a storage, not a {type(storage).__name__}",
                hint="mdt.open(path) opens a table, mdt.create(path, schema, key=[…]) creates one",
            )
        self._storage = storage
        self._metadata = Metadata(storage, options)
        definition = _opened(self._metadata).definition
        if definition.ignored:
            text = "%s: ignored options that a table cannot set: %s"
            logs.METADATA.warning(text, storage.url, ", ".join(definition.ignored))
        self._import_view: tuple[int, Self] | None = None
        self._pinned: Snapshot | None = None
        self._rests_on: tuple[int, str] | None = None
        self._batch: tuple[str, int | str] | None = None
        self._is_dry = False
        if as_of is not None:
            self._pinned = self.snapshot(as_of)

    @property
    def path(self) -> str:
        """Local path or URL of the table."""
        return self._storage.url

    @property
    def storage(self) -> Storage:
        """The storage of the table."""
        return self._storage

    @property
    def metadata(self) -> Metadata:
        """The metadata table."""
        return self._metadata

    @property
    def definition(self) -> TableDefinition:
        """The table's definition: key, partitions, ordering, type, columns, indexes and options."""
        if self._pinned is None and self._is_unread():
            return self._metadata.cached_definition()
        return (self._pinned or self._metadata.newest(watched=False)).definition

    @property
    def schema(self) -> pa.Schema:
        """The data columns as declared, without Hudi's meta columns. In a table that Hudi's writers
        share, columns that they have just added are among them.
        """
        if self._storage.is_imported:
            return self.definition.declared
        try:
            return self.snapshot().definition.declared
        except MdtError as error:
            if not error.is_of_others:
                raise
            return self.readable().schema

    @property
    def options(self) -> Options:
        """The options stored with the table, overridden by those passed to :func:`mdt.open`."""
        if self._pinned is not None:
            return self._metadata.options(self._pinned.definition)
        return self._metadata.options(self._metadata.cached_definition())

    def _is_unread(self) -> bool:
        """Return True for a table of other writers that is as it was opened, without its files."""
        return self._storage.is_unread and late.imported_storage.is_as_opened(self._storage)

    def snapshot(self, as_of: Point | None = None) -> Snapshot:
        """Return the newest snapshot, the pinned snapshot of a table opened with ``as_of``, or a
        past snapshot.

        as_of: A commit number, a tag, an instant, or a time (datetime or ISO text, UTC unless it
            has a zone). A time selects the newest commit at or before it.

        Raises Invalid if there is no such commit, Expired if its snapshot was cleaned.

        >>> t.snapshot().seq, t.snapshot(0).seq
        (1, 0)
        """
        if as_of is None:
            newest = self._pinned or self._metadata.newest()
            if newest is self._pinned or not newest.is_shared:
                return newest
            return late.publish.published_snapshot(self._metadata, newest)
        newest = self._metadata.newest(watched=False)
        if late.as_of.is_time_point(newest, as_of):
            newest = self._metadata.newest()
        return self._metadata.at(late.as_of.seq_in_log(newest, as_of, is_read=True), newest=newest)

    def readable(self) -> Self:
        """Return this table for reads: itself, or a copy with the commits of other Hudi writers
        that its log does not contain yet. The methods that read do this themselves.

        >>> t.readable() is t
        True
        """
        try:
            self.snapshot()
        except MdtError as error:
            if not error.is_of_others or self._storage.is_imported:
                raise
            return self._imported()
        return self

    def resting_on(self, seq: int) -> Self:
        """Return this table for writes based on rows that were read at commit ``seq``.

        A write checks all later commits, as if it had begun at ``seq``. It raises Conflict and
        writes nothing if a row that it changes, or a key that it found absent, has changed since.

        >>> t.resting_on(1).delete({"id": ["a"]}, dry_run=True).deleted
        1
        """
        seq = whole_number("seq", seq)
        record = self._metadata.record(seq) if seq >= 0 else None
        return self._copy(_rests_on=(seq, "" if record is None else record.txn))

    def once(self, stream: str, batch: int | str) -> Self:
        """Return this table for an idempotent write: batch ``batch`` of ``stream``, written once
        however often it is tried.

        The commit records the batch. If the table has it already, a write changes nothing, its
        result counts no rows, and its instant is "".

        stream: Printable text.
        batch: A number from 0, or a text id. Numbers increase: a number below the newest of the
            stream is not written, and the result has a warning. Text ids have no order, so a
            backfill can write an older day.

        The table remembers the last 4,096 text ids and the newest numbers of 1,024 streams.
        Services and schema changes ignore the batch.

        >>> import pyarrow as pa
        >>> from mdt import create
        >>> from mdt.stores.storage import MemoryStorage
        >>> t = create(MemoryStorage(), pa.schema([("id", pa.int64())]), key=["id"])
        >>> [t.once("numbers", 0).upsert({"id": [1]}).inserted for _ in range(2)]
        [1, 0]
        """
        if not is_stream(stream):
            raise Invalid(
                f"the name of a stream must be printable text, not {shown(stream)}",
                hint="e.g. t.once('orders', 7)",
            )
        return self._copy(_batch=(stream, _batch_id(batch)))

    def anew(self) -> Self:
        """Open the table again, with the same options, for another thread.

        >>> t.anew().scan().count()
        3
        """
        return type(self)(self._storage, self._metadata.overrides)

    def _copy(self, **terms: Any) -> Self:
        """Return a copy of this open table with other attributes for its writes. Both share caches,
        and nothing is opened.
        """
        twin = object.__new__(type(self))
        _ = self._upkeep  # shared by both
        vars(twin).update(vars(self), **terms)
        return twin

    def __repr__(self) -> str:
        d = self.definition
        pinned = () if self._pinned is None else (f"as of commit {self._pinned.seq}",)
        details = (d.name, d.table_type, f"key={','.join(d.key)}", f"at {self.path}", *pinned)
        return f"<mdt table {' '.join(map(visible, details))}>"

    def _repr_html_(self) -> str:
        return late.overview.table_html(self.path, self.snapshot())

    def _given(self, data: Any) -> EngineInput[Any] | None:
        """Return ``data`` as rows of the engine that holds them, or None for data in this
        process.
        """
        return late.choice.engine_input(
            data, self._metadata.cached_snapshot().definition.schema.names
        )

    def _engine(self, spark: Any) -> Engine[Any] | None:
        """Return the engine of a Spark session, or None."""
        return late.choice.engine_of(spark)

    def _rewriting_on(self, engine: Engine[Any] | None) -> RewriteRunner:
        """Return the function that rewrites file groups, in this process or on an engine."""
        if engine is None:
            return late.rewriting.in_process
        return late.engine_rewriting.EngineRewrite(engine)

    def _commit(
        self, operation: Operation[Any], begun: Snapshot | None = None
    ) -> CommitResult[Any]:
        if self._is_dry:
            return self._plan_only(operation, begun or self._metadata.newest())
        for _ in range(self.options.commit_attempts):
            try:
                return late.transaction.run(
                    self._metadata, operation, attempts=self.options.commit_attempts, begun=begun
                )
            except MdtError as error:
                if not error.is_of_others:
                    raise
            begun = None
            self._wait_for_writers()
            self._catch_up()
        raise late.adopting.too_many_commits(self.options)

    def _commit_rows(
        self, operation: Operation[Any], begun: Snapshot | None = None
    ) -> CommitResult[Any]:
        """Commit an operation that writes rows, with the conditions of :meth:`resting_on` and
        :meth:`once`.
        """
        if self._rests_on is not None:
            operation = late.snapshot_bound.SnapshotBoundOperation(
                operation, self._metadata, *self._rests_on
            )
        if self._batch is not None:
            operation = late.idempotent.StreamBatchOperation(operation, *self._batch)
        return self._commit(operation, begun)

    def _plan_only(self, operation: Operation[Any], snapshot: Snapshot) -> CommitResult[Any]:
        """Return the planned result of an operation on ``snapshot``, without writing."""
        plan = operation.prepare(snapshot, self._storage.random_hex(16))
        plan.close()
        return late.transaction.CommitResult(snapshot, None, plan, 0, plan.warnings)

    def _for_dry_run(self, dry_run: object) -> Self:
        """Return this table, or a copy for dry runs if ``dry_run`` is true."""
        if not flag("dry_run", dry_run):
            return self
        return self._copy(_is_dry=True)

    def _commit_write(self, operation: Operation[Any], rows: int, begun: Snapshot) -> WriteResult:
        """Commit a write of ``rows`` rows that was prepared on snapshot ``begun``."""
        return self._after_write(
            WriteResult.from_commit(self._commit_rows(operation, _fresh(begun, rows)))
        )

    def _after_write(self, result: W) -> W:
        """Run due services after a write. Return the write's result with their warnings."""
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
        """Stop the thread that runs services (``mdt.services.thread``) after its current step. The
        next write starts a new thread.

        >>> t.close()
        """
        self._upkeep.close()

    def _prepare_row_write(self) -> Snapshot:
        """Prepare a write that finds rows by key. Raises if the key index is missing."""
        return self._prepare_write(by_key=True)

    def _prepare_write(self, *, roll_back: bool = True, by_key: bool = False) -> Snapshot:
        """Refuse unsafe writes, then finish or remove the leftovers of crashed writers. Return the
        newest snapshot.

        roll_back: False skips the leftovers, as a dry run does.
        by_key: True requires the key index.
        """
        roll_back = roll_back and not self._is_dry
        self._storage.require_conditional_put()
        self._upkeep.begin_write(self._storage.now_us())
        if roll_back:
            snapshot, claims = self._storage.together(
                self._newest_for_write, partial(late.claims.read_all, self._storage)
            )
        else:
            snapshot, claims = self._newest_for_write(), None
        if not self._is_dry and late.shared_metadata.lost_partitions(self._metadata, snapshot):
            self._wait_for_writers()
            late.metadata_removal.remove(self._metadata, snapshot)
            snapshot = self._newest_for_write()
        if not self._is_dry and late.writer_settings.may_differ(self._metadata, snapshot):
            self._wait_for_writers()
            late.writer_settings.unify(self._metadata, snapshot)
            snapshot = self._newest_for_write()
        if by_key:
            self._metadata.key_index(snapshot)
        self._wait_for_writers()
        if roll_back:
            late.recovery.recover(
                self._metadata,
                after_seconds=self.options.rollback_after_seconds or 1,
                cached=claims,
            )
        return snapshot

    def _wait_for_writers(self) -> None:
        """Refuse to write while another Hudi writer is at work. With a lock, only its services and
        writers that start are waited for, and refused after some time.
        """
        options = self.options
        if self._is_dry:
            return None
        is_in_step = late.hudi_metadata.is_in_step(self._metadata)
        refuse = partial(self._metadata.watch.refuse_to_write, has_metadata_table=is_in_step)
        if not options.lock_provider:
            refuse()
            return late.hudi_locks.require_no_pending_writes(self._metadata)
        until = self._storage.now_us() + 1000 * options.lock_wait_ms
        while True:
            try:
                refuse(is_locked=True)
                newest = self._metadata.cached_snapshot().last_instant
                late.hudi_locks.time_before_writers(self._metadata, newest, 0)  # raises without one
                return None
            except Unsupported:
                if self._storage.now_us() > until:
                    raise
            self._storage.sleep(_SERVICE_POLL_SECONDS)
            self._newest_for_write()

    def _newest_for_write(self) -> Snapshot:
        """Return the newest snapshot, after an import of commits of other writers."""
        self._require_newest()
        for _ in range(self.options.commit_attempts):
            try:
                snapshot = self._metadata.newest()
                if not len(snapshot.without_key_map):
                    return snapshot
            except MdtError as error:
                if not error.is_of_others:
                    raise
            if self._is_dry:
                raise Unsupported(
                    "a dry run needs a log with all commits of other Hudi writers",
                    hint="t.refresh() imports them",
                )
            self._catch_up()
        raise late.adopting.too_many_commits(self.options)

    def _imported(self) -> Self:
        """Return this table with the commits of other writers that its log does not contain, in
        memory. It can only be read.
        """
        snapshot = self._metadata.newest(watched=False)
        if self._import_view is None or self._import_view[0] < snapshot.seq:
            storage = late.imported_storage.following(self._storage)
            self._import_view = snapshot.seq, type(self)(storage, self._metadata.overrides)
        return self._import_view[1]

    def _catch_up(self) -> None:
        """Import the commits of other writers into the log."""
        late.adopting.catch_up(self._metadata, self.options)

    def _require_newest(self) -> None:
        if self._pinned is not None:
            raise Invalid(
                f"this table is open as of commit {self._pinned.seq} and read-only",
                hint="open it without as_of",
            )


def _opened(metadata: Metadata) -> Snapshot:
    """Return the newest snapshot of the log, even if it lacks commits of other writers."""
    try:
        return metadata.newest()
    except MdtError as error:
        if not error.is_of_others:
            raise
    return metadata.newest(watched=False)


def follows_others(method: _Method) -> _Method:
    """Return a reading ``method`` that sees commits of other writers which the log does not contain
    yet. They are imported in memory.
    """

    @wraps(method)
    def read(self: Handle, *args: Any, **named: Any) -> Any:
        try:
            return method(self, *args, **named)
        except MdtError as error:
            if not error.is_of_others or self._storage.is_imported:
                raise
            try:
                view = self._imported()
            except Missing:  # properties that are being replaced
                raise error from None
        return getattr(view, method.__name__)(*args, **named)

    return read  # type: ignore[return-value]


def takes_dry_run(method: _Method) -> _Method:
    """Return ``method`` with support for the argument ``dry_run``, which its body can ignore."""

    @wraps(method)
    def planned(self: Handle, *args: Any, **named: Any) -> Any:
        return method(self._for_dry_run(named.get("dry_run", False)), *args, **named)

    return planned  # type: ignore[return-value]


def _fresh(snapshot: Snapshot, rows: int) -> Snapshot | None:
    """Return ``snapshot`` if it is hardly older than before so many rows were made ready, else
    None: then it pays to look again.
    """
    return snapshot if rows <= LOOKED_ONCE_ROWS_MAX else None
