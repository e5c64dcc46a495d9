"""How queries use the indexes of a table: counts for ``t.indexes()`` and ``t.advise()``, never for an answer.

Queries are counted where the option ``mdt.usage.counts`` is on.  Each process keeps its own counts and now and then puts
them into an object of its own in ``.hoodie/.mdt/usage/``, where others can add them up.  Nothing else depends on these
objects: they may be deleted at any time, may lag behind by :data:`REPORT_SECONDS`, and a reader that may not write simply
leaves none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from indexes.predicate import Call, Leaf
from mdt.errors import MdtError
from mdt.metadata import paths
from mdt.stores.forking import OwnLock
from mdt.stores.storage import Storage

REPORT_SECONDS = 60
"""Time between two reports of a busy process."""
REPORTS_MAX = 64
"""More reports than this: those of processes that have long ended are folded into one."""
FOLDED_AFTER_SECONDS = 7 * 86_400
"""A process that has not reported for so long has ended."""
_REPORT_BYTES_MAX = 1 << 20
_EQUALITY = frozenset(("=", "<=>", "in", "is null"))
_TEXT = frozenset(("like", "starts with", "match"))
_MICROSECONDS = 1_000_000


@dataclass(slots=True)
class IndexUse:
    """``asked``: queries in which the index was asked; ``pruned``: segments it proved empty; ``last_us``: when, UTC."""

    asked: int = 0
    pruned: int = 0
    last_us: int = 0

    def add(self, other: IndexUse) -> None:
        """Add the counts of another process."""
        self.asked += other.asked
        self.pruned += other.pruned
        self.last_us = max(self.last_us, other.last_us)


@dataclass(slots=True)
class ColumnUse:
    """Queries that filtered on a column by equality, by range or another comparison, and by text."""

    equality: int = 0
    range: int = 0
    text: int = 0

    def add(self, other: ColumnUse) -> None:
        """Add the counts of another process."""
        self.equality += other.equality
        self.range += other.range
        self.text += other.text


@dataclass(slots=True)
class Counts:
    """Counts by index specification and by column; ``since_us``: when counting began (0: nothing was counted)."""

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
            "indexes": {spec: [u.asked, u.pruned, u.last_us] for spec, u in self.indexes.items()},
            "columns": {name: [u.equality, u.range, u.text] for name, u in self.columns.items()},
        }
        return json.dumps(document, sort_keys=True).encode()


def decode(data: bytes) -> Counts:
    """Return the counts in ``data``.  Raises ValueError for anything else."""
    try:
        document: dict[str, Any] = json.loads(data)
        return Counts(
            int(document["since_us"]),
            int(document["queries"]),
            {str(spec): IndexUse(*map(int, numbers)) for spec, numbers in document["indexes"].items()},
            {str(name): ColumnUse(*map(int, numbers)) for name, numbers in document["columns"].items()},
        )
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a report of use: {error!r}") from error


class Usage:
    """The counts of this process for one table; safe to use from threads."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._own = Counts()
        self._name = ""
        self._reported_us = 0
        self._lock = OwnLock()

    def record(self, pruned: Mapping[str, int], tests: Iterable[Leaf]) -> None:
        """Count one query: segments pruned by each index that was asked, and the query's tests.  Never raises."""
        now = self._storage.now_us()
        with self._lock:
            own = self._own
            own.since_us = own.since_us or now
            own.queries += 1
            for spec, count in pruned.items():
                own.indexes.setdefault(spec, IndexUse()).add(IndexUse(1, count, now))
            for column, use in _column_uses(tests).items():
                own.columns.setdefault(column, ColumnUse()).add(use)
            due = now - (self._reported_us or own.since_us) >= REPORT_SECONDS * _MICROSECONDS
        if due:
            self.report()

    def report(self) -> None:
        """Put the counts of this process, if there are any, where others find them; failures of storage do not matter.

        The first report of a process also folds those of processes that have ended, if there are many.
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
        """Return the counts of this process and of all reports that can be read; nothing is written."""
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
            listed = [info for info in self._storage.list_dir(paths.usage_dir()) if info.size <= _REPORT_BYTES_MAX]
            read = self._storage.each(partial(self._storage.read_if_exists, info.path) for info in listed)
            for info, data in zip(listed, read, strict=True):
                try:
                    reports[info.path] = decode(data or b""), info.modified_us
                except ValueError:
                    continue
        except MdtError:
            return reports
        return reports

    def _fold(self) -> None:
        """Replace reports of ended processes by one, if there are many.  Raises what storage raises."""
        reports = self._reports()
        if len(reports) <= REPORTS_MAX:
            return
        limit = self._storage.now_us() - FOLDED_AFTER_SECONDS * _MICROSECONDS
        old = {path: counts for path, (counts, reported_us) in reports.items() if reported_us < limit}
        if not old:
            return
        total = Counts()
        for counts in old.values():
            total.add(counts)
        self._storage.replace(paths.usage(self._storage.random_hex(16)), total.encode())
        self._storage.delete_many(list(old))


def _column_uses(tests: Iterable[Leaf]) -> dict[str, ColumnUse]:
    """Return which kinds of test a query has on each column, each kind counted once."""
    uses: dict[str, ColumnUse] = {}
    for leaf in tests:
        if isinstance(leaf, Call):
            continue  # no index of ours would help it
        use = uses.setdefault(leaf.column, ColumnUse())
        if leaf.op in _EQUALITY:
            use.equality = 1
        elif leaf.op in _TEXT:
            use.text = 1
        else:
            use.range = 1
    return uses
