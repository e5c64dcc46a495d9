"""Background index builds of a job: after each write, files that indexes do not cover; and indexes
that queries need, if a session enables this.

One thread of the process builds for all tables in turn. It is a daemon thread: files that are not
covered are still read, and the next builder continues after the last commit.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mdt import logs
from mdt.errors import MdtError
from mdt.session import in_session
from mdt.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class _Build:
    table: Table
    spark: SparkSession
    advised: bool


@dataclass
class Builder:
    """Builds indexes in a thread that runs while there is work. Thread-safe."""

    _builds: dict[str, _Build] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _busy: bool = False

    def build(self, table: Table, spark: SparkSession, advised: bool) -> None:
        """Schedule index builds for all files of ``table``. ``advised``: first create the indexes
        that its queries need.
        """
        with self._changed:
            self._builds[table.path] = _Build(table, spark, advised)
            if not self._busy:
                self._busy = True
                threading.Thread(target=self._run, name="mdt-index-builder", daemon=True).start()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until no work remains, at most ``timeout`` seconds; return False after a timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._busy, timeout)

    def _run(self) -> None:
        while (build := self._next()) is not None:
            try:
                _run_build(build)
            except Exception as error:  # noqa: BLE001 - sessions end, third-party indexes fail; costs time, never rows
                logs.SERVICE.warning("%s: building indexes failed: %s", build.table.path, error)

    def _next(self) -> _Build | None:
        with self._changed:
            if self._builds:
                return self._builds.pop(next(iter(self._builds)))
            self._busy = False
            self._changed.notify_all()
            return None


@in_session
def builder() -> Builder:
    """Return the builder of this process."""
    return Builder()


def _run_build(build: _Build) -> None:
    # The writer continues to use its own table object in another thread.
    table = build.table.anew()
    if build.advised:
        for advice in table.advise():
            if advice.action == "create":
                _create(table, advice.index)
    live = table.snapshot()
    is_large = (
        int(live.files.numpy("block_length")[live.live].sum()) > table.options.spark_local_bytes_max
    )
    if is_large:
        table.build_indexes(spark=build.spark)
    else:
        table.build_indexes()


def _create(table: Table, index: str) -> None:
    try:
        table.create_index(index, mode="async")
    except MdtError as error:
        logs.SERVICE.warning("%s: creating the index %s failed: %s", table.path, index, error)
