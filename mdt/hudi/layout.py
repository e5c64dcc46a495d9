"""What of Hudi's directory depends on the table version, and which versions there are.

A layout names instants, makes their bodies, and says what is written in which order.  It touches no
storage and decides nothing: what it returns is a pure function of what it is given, so that
everything can be made again after a crash.

Not here, because it is the same in all versions: base files, the blocks of log files, plans of
services, bodies of cleanings, markers of partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from mdt.errors import Unsupported
from mdt.hudi.commit_metadata import Cleaned, CommitMetadata
from mdt.hudi.timeline import Instant
from mdt.hudi.v6 import Version6
from mdt.schema.definition import TableDefinition


class Layout(Protocol):
    """What one table version has of its own.  Paths are relative to the table.

    ``time``: of an instant, 17 digits.  ``action``: Hudi's word for it while it is pending: commit,
    deltacommit, compaction, replacecommit. ``version``: as in ``hoodie.table.version``.
    ``archive``: the directory of Hudi's archive of instants.  ``timeline``: the directory of the
    instants.  Their names begin with their time, so that a listing has them in order; other names
    in that directory begin with a letter or a dot.
    """

    version: int
    timeline: str
    archive: str

    # names

    def instant_at(self, path: str) -> Instant | None:
        """Return the instant that the file at ``path`` stands for, or None if it is none: any path
        may be asked.
        """

    def completed_path(self, time: str, action: str) -> str:
        """Return the path of the file whose creation completes an action."""
        ...

    def log_instant(self, base_instant: str, time: str) -> str:
        """Return which instant the name of a log file carries: that of its slice's base file, or
        its own, ``time``.
        """
        ...

    def marker(self, path: str) -> str:
        """Return the name of the marker of the data file at ``path``, below the directory of its
        transaction's markers.
        """
        ...

    # bodies

    def properties(self, definition: TableDefinition) -> dict[str, str]:
        """Return the content of ``hoodie.properties`` of a new table, checksum included."""
        ...

    def extra(self, body: bytes) -> Mapping[str, str]:
        """Return the private texts that a completed instant of any writer holds.  Raises Corrupt
        for other bytes.
        """
        ...

    # order

    def announced(self, time: str, action: str) -> Sequence[tuple[str, bytes]]:
        """Return (path, content) of what is written when a transaction begins, in any order:
        nothing of one that writes no data files.
        """
        ...

    def retracted(self, time: str, action: str) -> Sequence[str]:
        """Return the paths of what is deleted, in this order, of a transaction that will not
        commit.
        """
        ...

    def completed(
        self, time: str, action: str, told: CommitMetadata, plan: Sequence[Mapping[str, Any]]
    ) -> Sequence[tuple[str, bytes]]:
        """Return (path, content) of what is written after a commit, in this order.

        The first one is at :meth:`completed_path`: with it the commit is seen.  ``told``: what it
        says.  Of log files it has the slice's base file, and all its log files so far.  ``plan``:
        of a compaction or clustering, see :mod:`mdt.hudi.compaction_plan` and
        :mod:`mdt.hudi.clustering_plan`.
        """
        ...

    def archived(
        self, known: Iterable[str], instants: Sequence[tuple[Instant, bytes]]
    ) -> tuple[str, bytes]:
        """Return (path, content) of what Hudi's archive gets of completed instants that leave the
        timeline, oldest first.

        ``known``: paths in the folder ``archive``.
        """
        ...

    def cleaned(self, told: Cleaned) -> Sequence[tuple[str, bytes]]:
        """Return (path, content) of what is written after the commit of a cleaning, in this order;
        as in :meth:`completed`.
        """
        ...

    def savepoint(
        self, time: str, at_ms: int, comment: str, files: Mapping[str, Sequence[str]]
    ) -> Sequence[tuple[str, bytes]]:
        """Return (path, content) of what keeps the state after the commit ``time`` from Hudi's
        services, in this order.

        ``at_ms``: when that was said.  ``files``: partition path -> names of the data files of the
        state.
        """
        ...

    def restored(self, time: str, to: str) -> Sequence[tuple[str, bytes]]:
        """Return (path, content) of what stands beside the commit ``time`` of a restore, in this
        order; ``to``: instant of the state that is again.
        """
        ...

    def indexing(self, time: str, specs: Sequence[str]) -> Sequence[tuple[str, bytes]]:
        """Return (path, content) of what Hudi is told of a build of indexes that is planned, as it
        begins, and, the last one, when it has ended.
        """
        ...


LAYOUTS: dict[int, Layout] = {6: Version6()}
"""Table version -> its layout."""


def layout_of(definition: TableDefinition) -> Layout:
    """Return the layout of a table.  Raises Unsupported if this version of mdt has none for it."""
    found = LAYOUTS.get(definition.hudi_version)
    if found is None:
        known = ", ".join(map(str, LAYOUTS))
        raise Unsupported(
            f"Hudi's table version {definition.hudi_version} is not known here, but {known}",
            hint="upgrade the package pyspark-mdt",
        )
    return found


def log_instants(base_instant: str, time: str) -> set[str]:
    """Return which instants the name of a log file may carry in any layout; for who has no
    definition at hand.
    """
    return {layout.log_instant(base_instant, time) for layout in LAYOUTS.values()}
