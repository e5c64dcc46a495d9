"""How queries use the indexes of a table: counts for ``t.indexes()`` and ``t.advise()``, never for
an answer.

Queries are counted where the option ``mdt.usage.counts`` is on.  Each process keeps its own counts
and now and then puts them into an object of its own in ``.hoodie/.mdt/usage/``, where others can
add them up.  Nothing else depends on these objects: they may be deleted at any time, may lag behind
by :data:`REPORT_SECONDS`, and a reader that may not write simply leaves none.
"""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from mdt.errors import MdtError
from mdt.forking import OwnLock
from mdt.metadata.files import paths
from mdt.session import Recent
from mdt.stores.storage import Storage

REPORT_SECONDS = 60
"""Time between two reports of a busy process."""
REPORTS_MAX = 64
"""More reports than this: those of processes that have long ended are folded into one."""
FOLDED_AFTER_SECONDS = 7 * 86_400
"""A process that has not reported for so long has ended."""
_REPORT_BYTES_MAX = 1 << 20
_SAMPLES_MAX = 64
_MICROSECONDS = 1_000_000


@dataclass(slots=True)
class IndexUse:
    """``queries``: that ran while the index was there; ``asked``: of these, in which it was asked;
    ``pruned``: segments it proved empty; ``last_us``: when it was last asked, UTC; ``saved``: bytes
    that were not read because of it.
    """

    queries: int = 0
    asked: int = 0
    pruned: int = 0
    last_us: int = 0
    saved: int = 0

    def add(self, other: IndexUse) -> None:
        """Add the counts of another query or process."""
        self.queries += other.queries
        self.asked += other.asked
        self.pruned += other.pruned
        self.last_us = max(self.last_us, other.last_us)
        self.saved += other.saved


@dataclass(slots=True)
class TestUse:
    """Queries that test a column in one way: how many, rows that match the test, bytes that are
    read without an index of the column, and with an exact one.
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
    """Counts by index specification and by column; ``since_us``: when counting began (0: nothing
    was counted).
    """

    since_us: int = 0
    queries: int = 0
    indexes: dict[str, IndexUse] = field(default_factory=dict)
    columns: dict[str, ColumnUse] = field(default_factory=dict)

    def add(self, other: Counts) -> None:
        """Add the counts of another process."""
        known = [us for us in (self.since_us, other.since_us) if us]
        self.since_us = min(known, default=0)
        self.queries += other.queries
        for spec, use in other.indexes.items():
            self.indexes.setdefault(spec, IndexUse()).add(use)
        for column, seen in other.columns.items():
            self.columns.setdefault(column, ColumnUse()).add(seen)

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
    """Return the counts in ``data``.  Raises ValueError for anything else."""
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
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a report of use: {error!r}") from error


def _column_use(numbers: Any) -> ColumnUse:
    return ColumnUse(*(TestUse(*map(int, one)) for one in numbers))


class Usage:
    """The counts of this process for one table; safe to use from threads.

    ``samples``: (checkpoint, column) -> values of a sample of its rows, and for "" where these
    stand (:mod:`mdt.scan.index_use`).
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.samples: Recent[tuple[int, str], pa.Array] = Recent(_SAMPLES_MAX)
        self._own = Counts()
        self._name = ""
        self._reported_us = 0
        self._lock = OwnLock()

    def record(self, query: Counts) -> None:
        """Count one query.  Never raises."""
        now = self._storage.now_us()
        with self._lock:
            self._own.add(query)
            self._own.since_us = self._own.since_us or now
            due = now - (self._reported_us or self._own.since_us) >= REPORT_SECONDS * _MICROSECONDS
        if due:
            self.report()

    def report(self) -> None:
        """Put the counts of this process, if there are any, where others find them; failures of
        storage do not matter.

        The first report of a process also folds those of processes that have ended, if there are
        many.
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
        """Return the counts of this process and of all reports that can be read; nothing is
        written.
        """
        found = Counts()
        with self._lock:
            found.add(self._own)
            mine = paths.usage(self._name) if self._name else ""
        for path, (counts, _) in self._reports().items():
            if path != mine:
                found.add(counts)
        return found

    def _reports(self) -> dict[str, tuple[Counts, int]]:
        """Return path -> counts and time of the last report."""
        reports = {}
        try:
            listed = [
                info
                for info in self._storage.list_dir(paths.usage_dir())
                if info.size <= _REPORT_BYTES_MAX
            ]
            read = self._storage.each(
                partial(self._storage.read_if_exists, info.path) for info in listed
            )
            for info, data in zip(listed, read, strict=True):
                try:
                    reports[info.path] = decode(data or b""), info.modified_us
                except ValueError:
                    continue
        except MdtError:
            return reports
        return reports

    def _fold(self) -> None:
        """Replace reports of ended processes by one, if there are many.  Raises what storage
        raises.
        """
        reports = self._reports()
        if len(reports) <= REPORTS_MAX:
            return
        limit = self._storage.now_us() - FOLDED_AFTER_SECONDS * _MICROSECONDS
        old = {
            path: counts for path, (counts, reported_us) in reports.items() if reported_us < limit
        }
        if not old:
            return
        total = Counts()
        for counts in old.values():
            total.add(counts)
        self._storage.replace(paths.usage(self._storage.random_hex(16)), total.encode())
        self._storage.delete_many(list(old))
