"""Counts of index usage, for ``t.indexes()`` and ``t.advise()``.  No answer depends on them.

Queries are counted if the option ``mdt.usage.counts`` is on.  Each process keeps its own counts and
periodically puts them into its own object in ``.hoodie/.mdt/usage/``.  Other processes add these
up.  The objects may be deleted at any time and may be stale by :data:`REPORT_SECONDS`.  Readers
without write access leave none.
"""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mdt.errors import MdtError
from mdt.forking import OwnLock
from mdt.metadata.files import paths
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.session import Recent
from mdt.stores.storage import Storage

REPORT_SECONDS = 60
"""Time between two reports of a busy process."""
REPORTS_MAX = 64
"""Beyond this number, the reports of ended processes are merged."""
FOLDED_AFTER_SECONDS = 7 * 86_400
"""A process without a report for this long has ended."""
_REPORT_BYTES_MAX = 1 << 20
_SAMPLES_MAX = 4
_COLUMNS_SAMPLED_MAX = 64
_MICROSECONDS = 1_000_000


@dataclass(slots=True)
class IndexUse:
    """Usage of an index.

    - queries: Queries that ran while the index existed.
    - used: Queries that used the index.
    - pruned: Segments that it proved empty.
    - last_us: Time of the last use, microseconds since 1970, UTC.
    - saved: Bytes that were not read because of it.
    """

    queries: int = 0
    used: int = 0
    pruned: int = 0
    last_us: int = 0
    saved: int = 0

    def add(self, other: IndexUse) -> None:
        """Add the counts of another query or process."""
        self.queries += other.queries
        self.used += other.used
        self.pruned += other.pruned
        self.last_us = max(self.last_us, other.last_us)
        self.saved += other.saved


@dataclass(slots=True)
class TestUse:
    """Queries with one kind of test of a column.

    ``rows`` counts the matching rows.  ``read`` and ``exact`` are the bytes read without an index
    of the column and with an exact index.
    """

    queries: int = 0
    rows: int = 0
    read: int = 0
    exact: int = 0

    def add(self, other: TestUse) -> None:
        """Add the counts of another query or process."""
        self.queries += other.queries
        self.rows += other.rows
        self.read += other.read
        self.exact += other.exact


@dataclass(slots=True)
class ColumnUse:
    """Tests of a column by equality, by range or another comparison, and by text."""

    equality: TestUse = field(default_factory=TestUse)
    range: TestUse = field(default_factory=TestUse)
    text: TestUse = field(default_factory=TestUse)

    def add(self, other: ColumnUse) -> None:
        """Add the counts of another query or process."""
        self.equality.add(other.equality)
        self.range.add(other.range)
        self.text.add(other.text)


@dataclass(slots=True)
class Counts:
    """Counts by index specification and by column.

    ``since_us`` is the time when counting began, or 0 if nothing was counted.
    """

    since_us: int = 0
    queries: int = 0
    indexes: dict[str, IndexUse] = field(default_factory=dict)
    columns: dict[str, ColumnUse] = field(default_factory=dict)

    def add(self, other: Counts) -> None:
        """Add the counts of another process."""
        starts = [us for us in (self.since_us, other.since_us) if us]
        self.since_us = min(starts, default=0)
        self.queries += other.queries
        for spec, use in other.indexes.items():
            self.indexes.setdefault(spec, IndexUse()).add(use)
        for column, column_use in other.columns.items():
            self.columns.setdefault(column, ColumnUse()).add(column_use)

    def encode(self) -> bytes:
        """Return the counts as JSON."""
        document = {
            "since_us": self.since_us,
            "queries": self.queries,
            "indexes": {spec: list(astuple(use)) for spec, use in self.indexes.items()},
            "tests": {name: list(map(list, astuple(use))) for name, use in self.columns.items()},
        }
        return json.dumps(document, sort_keys=True).encode()


def decode(data: bytes) -> Counts:
    """Return the counts in ``data``.  Raises ValueError if it is malformed."""
    try:
        document: dict[str, Any] = json.loads(data)
        return Counts(
            int(document["since_us"]),
            int(document["queries"]),
            {
                str(spec): IndexUse(*map(int, numbers))
                for spec, numbers in document["indexes"].items()
            },
            {str(name): _column_use(numbers) for name, numbers in document["tests"].items()},
        )
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"not a usage report: {error!r}") from error


def _column_use(numbers: Any) -> ColumnUse:
    return ColumnUse(*(TestUse(*map(int, test)) for test in numbers))


class Sample:
    """Sampled rows of a snapshot.

    Attributes:
        snapshot: The snapshot. Later ones on the same checkpoint have the same numbers of files.
        places: File number << 32 | position, ascending int64[n].
        values: Their values by column, as far as they were read.
    """

    def __init__(self, snapshot: Snapshot, places: npt.NDArray[np.int64]) -> None:
        self.snapshot = snapshot
        self.places = places
        self.values: Recent[str, pa.Array] = Recent(_COLUMNS_SAMPLED_MAX)


class Usage:
    """The counts of this process for a table.  Thread-safe.

    ``samples`` are the sampled rows by checkpoint (:mod:`mdt.scan.index_use`).
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.samples: Recent[int, Sample] = Recent(_SAMPLES_MAX)
        self._own = Counts()
        self._name = ""
        self._reported_us = 0
        self._lock = OwnLock()

    def record(self, query: Counts) -> None:
        """Count a query.  Never raises."""
        now = self._storage.now_us()
        with self._lock:
            self._own.add(query)
            self._own.since_us = self._own.since_us or now
            due = now - (self._reported_us or self._own.since_us) >= REPORT_SECONDS * _MICROSECONDS
        if due:
            self.report()

    def report(self) -> None:
        """Write the counts of this process, if there are any.  Storage failures are ignored.

        The first report of a process also merges old reports of ended processes, if there are many.
        """
        with self._lock:
            if not self._own.queries:
                return
            self._reported_us = self._storage.now_us()
            is_first = not self._name
            self._name = self._name or self._storage.random_hex(16)
            data, name = self._own.encode(), self._name
        try:
            self._storage.replace(paths.usage(name), data)
            if is_first:
                self._fold()
        except MdtError:
            return

    def total(self) -> Counts:
        """Return the sum of this process's counts and all readable reports.  Writes nothing."""
        total = Counts()
        with self._lock:
            total.add(self._own)
            report_path = paths.usage(self._name) if self._name else ""
        for path, (counts, _) in self._reports().items():
            if path != report_path:
                total.add(counts)
        return total

    def _reports(self) -> dict[str, tuple[Counts, int]]:
        """Return the counts and the time of the last report, by path."""
        reports = {}
        try:
            infos = [
                info
                for info in self._storage.list_dir(paths.USAGE_DIR)
                if info.size <= _REPORT_BYTES_MAX
            ]
            read = self._storage.each(
                partial(self._storage.read_if_exists, info.path) for info in infos
            )
            for info, data in zip(infos, read, strict=True):
                try:
                    reports[info.path] = decode(data or b""), info.modified_us
                except ValueError:
                    continue
        except MdtError:
            return reports
        return reports

    def _fold(self) -> None:
        """Merge reports of ended processes if there are many.  Raises storage errors."""
        reports = self._reports()
        if len(reports) <= REPORTS_MAX:
            return
        limit = self._storage.now_us() - FOLDED_AFTER_SECONDS * _MICROSECONDS
        expired = {
            path: counts for path, (counts, reported_us) in reports.items() if reported_us < limit
        }
        if not expired:
            return
        total = Counts()
        for counts in expired.values():
            total.add(counts)
        self._storage.replace(paths.usage(self._storage.random_hex(16)), total.encode())
        self._storage.delete_many(list(expired))
