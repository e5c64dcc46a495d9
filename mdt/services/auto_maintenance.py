"""Automatic table maintenance after a write, in small steps within a time budget.

Each step is an ordinary transaction. A failed step does not affect the write; its error becomes a
warning. Work that exceeds the budget is left to the next write, to the table's maintenance thread,
or to an explicit maintenance call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from mdt import logs
from mdt.config import Options
from mdt.errors import Conflict, MdtError
from mdt.forking import OwnLock
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.services.layout import small_files
from mdt.services.layout.budget import NOTHING, Outcome, Scope, everywhere, step_bytes
from mdt.services.reclaiming import cleaning

Step = Callable[[Metadata, Snapshot, Options, Scope], Outcome]
"""A step of a service: does as much due work as its scope allows.

Checking the newest snapshot for due work must be cheap.
"""

STEPS: Sequence[tuple[str, Step]] = (
    ("clean", cleaning.step),
    ("compact", small_files.compact),
    ("compact_logs", small_files.compact_logs),
    ("join", small_files.join),
)
"""Name and step of each service, in order. Cleaning cannot be divided, so the other services share
the remaining time.
"""
SPEED_BYTES = 32 << 20
"""Assumed read speed of a step until it is measured, in bytes per second."""
MEASURED_BYTES_MIN = 1 << 20
"""The duration of smaller steps does not depend on their size, so they are not measured."""
FREE_BYTES = 1 << 20
"""Bytes that the first step after a write may always read: no more work than a small write."""
_ROW_OPERATIONS = ("upsert", "insert", "insert_unchecked")


def run_due(
    metadata: Metadata, options: Options, *, is_dry: bool = False
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Run one step of every service with due work anywhere in the table.

    Returns (names of the services that did something, warnings). With ``is_dry`` nothing is
    changed, and the names are those of the services that have work.
    """
    scope = everywhere(options, is_dry=is_dry)
    active, warnings = [], []
    for name, step in STEPS:
        try:
            if step(metadata, metadata.newest(watched=False), options, scope).is_done:
                active.append(name)
        except MdtError as error:
            warnings.append(_warning(metadata, name, error))
    return tuple(active), tuple(warnings)


def _warning(metadata: Metadata, name: str, error: Exception) -> str:
    """Log the failure of a service and return the message."""
    text = f"{name} did not finish: {error}"  # it may have committed a part
    logs.SERVICE.warning("%s: %s", metadata.cached_snapshot().definition.name, text)
    return text


class Upkeep:
    """Maintenance after the writes of one open table: where work may be due, and the measured
    speed.

    Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = OwnLock()
        self._groups = set[str]()
        self._partitions = set[str]()
        self._speed = float(SPEED_BYTES)
        self._began = threading.local()
        self._thread: ServiceThread | None = None

    def begin_write(self, now_us: int) -> None:
        """Record the start of a write in this thread."""
        self._began.us = now_us

    def after_write(self, metadata: Metadata, options: Options, seq: int) -> tuple[str, ...]:
        """Run steps that are due after the commit ``seq``.

        Returns warnings, including those of the maintenance thread.
        """
        if not options.services_auto:
            return ()
        self._record_write(metadata, seq)
        budget = min(
            (metadata.storage.now_us() - self._began.us) / 1e6, options.services_seconds_max
        )
        warnings: tuple[str, ...] = ()
        if options.services_thread:
            self._thread = ServiceThread.running(self._thread, self, metadata)
            warnings = self._thread.wake()
        if options.services_seconds_max:
            warnings += self._steps(metadata, options, 0 if options.services_thread else budget)
        return warnings

    def close(self) -> None:
        """Stop the maintenance thread, if any, after its current step."""
        if self._thread is not None:
            self._thread.close()

    def _record_write(self, metadata: Metadata, seq: int) -> None:
        record = metadata.record(seq)
        if record is None:
            return
        with self._lock:
            self._groups |= record.changed_groups
            if record.header["operation"] in _ROW_OPERATIONS:
                self._partitions.update(record.table("files")["partition"].to_pylist())

    def _steps(self, metadata: Metadata, options: Options, seconds: float) -> tuple[str, ...]:
        """Run the steps that fit into ``seconds``, and overdue work."""
        now_us, warnings, is_first = metadata.storage.now_us, list[str](), True
        start = now_us()
        self._drop_groups_not_due(metadata, options)
        for number, (name, _) in enumerate(STEPS):
            bytes_max = max(0, int(self._speed * (seconds - (now_us() - start) / 1e6)))
            if seconds and is_first:
                bytes_max = max(bytes_max, FREE_BYTES)
            try:
                is_first &= not self.step(metadata, options, number, bytes_max).is_done
            except MdtError as error:
                warnings.append(_warning(metadata, name, error))
        return tuple(warnings)

    def step(
        self,
        metadata: Metadata,
        options: Options,
        number: int,
        bytes_max: int,
        takes_any: bool = False,
    ) -> Outcome:
        """Run and measure one step of a service in the written parts of the table.

        Args:
            number: Position in STEPS.
            bytes_max: Bytes to read.
            takes_any: See :class:`mdt.services.layout.budget.Scope`.
        """
        if STEPS[number][0] == "clean" and not options.clean_auto:
            return NOTHING
        with self._lock:
            scope = Scope(
                frozenset(self._groups), frozenset(self._partitions), bytes_max, takes_any
            )
        since = metadata.storage.now_us()
        outcome = STEPS[number][1](metadata, metadata.cached_snapshot(), options, scope)
        took = metadata.storage.now_us() - since
        if outcome.is_done and outcome.cost >= MEASURED_BYTES_MIN and took:
            self._speed = (self._speed + outcome.cost * 1e6 / took) / 2
        if STEPS[number][0] == "join" and not outcome.is_done and not outcome.is_left:
            with self._lock:
                self._partitions -= scope.partitions or set()
        return outcome

    def _drop_groups_not_due(self, metadata: Metadata, options: Options) -> None:
        with self._lock:
            names = self._groups
            self._groups = small_files.with_many_logs(metadata.cached_snapshot(), options, names)


class ServiceThread:
    """A thread that maintains one table in the background, with its own metadata."""

    def __init__(self, upkeep: Upkeep, metadata: Metadata) -> None:
        self._upkeep = upkeep
        self._metadata = Metadata(metadata.storage, metadata.overrides)
        self._changed = threading.Condition()
        self._is_due = self._is_closed = False
        self._warnings: tuple[str, ...] = ()
        self._thread = threading.Thread(target=self._run, name="mdt-services", daemon=True)
        self._thread.start()

    @classmethod
    def running(
        cls, current: ServiceThread | None, upkeep: Upkeep, metadata: Metadata
    ) -> ServiceThread:
        """Return the thread ``current`` if it runs in this process, else start a new one."""
        return (
            current if current is not None and current._thread.is_alive() else cls(upkeep, metadata)
        )

    def wake(self) -> tuple[str, ...]:
        """Make the thread check for due work. Returns warnings since the last call."""
        with self._changed:
            self._is_due = True
            warnings, self._warnings = self._warnings, ()
            self._changed.notify_all()
        return warnings

    def close(self) -> None:
        """Stop after the current step."""
        if not self._thread.is_alive():
            return
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_due or self._is_closed)
                self._is_due = False
            if self._is_closed:
                return
            while not self._is_closed and self._run_steps():
                pass

    def _run_steps(self) -> bool:
        """Run a step of each service. Return True if one committed something.

        After a conflict with a writer the thread waits for the next wake-up.
        """
        is_done = False
        for number, (name, _) in enumerate(STEPS):
            if self._is_closed:
                break
            try:
                definition = self._metadata.newest().definition
                options = replace(self._metadata.options(definition), commit_attempts=1)
                outcome = self._upkeep.step(
                    self._metadata, options, number, step_bytes(options), takes_any=True
                )
                is_done |= outcome.is_done
            except Conflict:
                return False
            except Exception as error:  # noqa: BLE001 - reported to the writer as a warning
                with self._changed:
                    self._warnings += (_warning(self._metadata, name, error),)
                return False
        return is_done
