"""A table that mdt keeps open while other writers change it, with comparisons after each step."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from compare_states import EQUAL, difference, filters
from counting import count
from hudi import HudiTable
from hudi_session import HudiSession
from hudi_tables import instants

import mdt
from mdt.commit.metadata_partitions import partitions_in
from mdt.errors import Expired
from mdt.hudi.avro_schema import META_FIELDS
from mdt.hudi.file_names import ANY_BASE, parse_base
from mdt.hudi.read.loading import load_properties, load_timeline
from mdt.hudi.read.metadata_state import pending_instants
from mdt.stores.storage import LocalStorage

HUDI_EVERY = 3
"""Hudi reads the rows once in so many comparisons. hudi-rs reads them in each."""
META = ("_hoodie_commit_time", "_hoodie_commit_seqno")


class Follower:
    """A table that stays open while other writers change it.

    Attributes:
        rows: The rows at the last comparison, with meta columns.
    """

    def __init__(self, hudi: HudiSession, path: Path, seed: str) -> None:
        self._hudi, self._path, self._draw = hudi, path, random.Random(seed)
        self._table = mdt.open(path)
        self._instants = instants(path)
        self.rows = rows_of(self._table)
        self._looks = 0

    def look(self, *, may_expire: bool, was_killed: bool = False) -> None:
        """Assert that each way of reading the table returns Hudi's rows.

        Args:
            may_expire: True if an earlier step may have removed files of old states.
            was_killed: True if a process of Hudi was killed, so that the metadata table may differ
                from the table.
        """
        self._looks += 1
        before, self.rows = self.rows, rows_of(self._table)
        self._compare_with_others()
        reopened = mdt.open(self._path)
        _require_equal(rows_of(reopened), self.rows, "opened again")
        # a restore of Hudi also removes the files of indexes that are newer than the restored state
        problems = [
            problem for problem in reopened.check().problems if "has no files" not in problem.text
        ]
        if was_killed:
            problems = [problem for problem in problems if problem.path != ".hoodie/metadata"]
        assert not problems, problems
        for where, passing in filters(self.rows):
            passing_rows = self._table.scan(where, self.rows.column_names).to_arrow()
            _require_equal(passing_rows, passing, where)
        self._get(before)
        self._compare_changes(before, may_expire=may_expire)

    def _compare_with_others(self) -> None:
        """Compare the rows with those of hudi-rs. Compare them with those of Hudi every few times,
        and whenever hudi-rs reads other rows.
        """
        if self._looks % HUDI_EVERY == 0 or not self._equals_hudi_rs():
            require_rows_of_hudi(self._hudi, self._path, self.rows)

    def _equals_hudi_rs(self) -> bool:
        try:
            batches = HudiTable(str(self._path)).read()
            rows = pa.Table.from_batches([pa.record_batch(batch) for batch in batches])
            return difference(self.rows.select(rows.column_names), rows) == EQUAL
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # noqa: BLE001 - panics of hudi-rs are not of the class Exception
            return False

    def _get(self, before: pa.Table) -> None:
        """Look up keys that the table has, that it had before, and that it never had."""
        t = self._table
        names = [*t.definition.key, *t.definition.partition_by]
        present = {_key(row, names): row for row in self.rows.to_pylist()}
        earlier = {_key(row, names) for row in before.to_pylist()}
        keys = self._draw.sample(sorted(present), min(3, len(present)))
        keys += sorted(earlier - present.keys())[:2]
        keys.append(("never", *("rome" for _ in t.definition.partition_by)))
        for key in keys:
            row = present.get(key)
            if row is not None:
                row = {name: row[name] for name in t.schema.names}
            assert t.get(dict(zip(names, key, strict=True))) == row, key

    def _compare_changes(self, before: pa.Table, *, may_expire: bool) -> None:
        """Compare the changes since the last comparison with the difference of the rows.

        Does nothing after a rollback, because the last state is then not a past state of the table.
        """
        old, self._instants = self._instants, instants(self._path)
        since, until = max(old), max(self._instants)
        if since not in self._instants or since > until:
            return
        t = self._table
        names = [*t.definition.key, *t.definition.partition_by]
        try:
            changes = t.changes(since, until).to_arrow()
        except Expired:
            assert may_expire
            return
        shared = [name for name in t.schema.names if name in before.column_names]
        rows = changes.select(["_change", *shared]).to_pylist()
        kinds = [row.pop("_change") for row in rows]
        changed = Counter(zip(kinds, map(repr, rows), strict=True))
        expected = Counter(_changes(before, self.rows, names, shared))
        assert changed == expected, [*(changed - expected)][:2] + [*(expected - changed)][:2]


def rows_of(t: mdt.Table) -> pa.Table:
    """Return the rows of a table with their meta columns."""
    return t.scan(columns=[*META_FIELDS, *t.schema.names]).to_arrow()


def require_rows_of_hudi(hudi: HudiSession, path: Path, rows: pa.Table) -> None:
    """Assert that Hudi reads ``rows``.

    Hudi 1.2 misses some rows if it lists directories. In versions 8 and 9 it assigns a log file to
    the newest base file, even if a failed write has left this base file, and then reads neither.
    The metadata table does not list such a base file. So Hudi then reads with the metadata table,
    or not at all if there is none.
    """
    options = {}
    if _has_logs_after_dead_writes(path):
        count("looks at tables with log files after dead writes")
        if not partitions_in(load_properties(LocalStorage(str(path))).stored):
            return
        options["hoodie.metadata.enable"] = "true"
    _require_equal(rows, hudi.rows(path, **options), "Hudi")


def _has_logs_after_dead_writes(path: Path) -> bool:
    """Return True if a log file of a completed write follows a base file of a pending write."""
    storage = LocalStorage(str(path))
    properties = load_properties(storage)
    if properties.layout == 1:
        return False
    timeline = load_timeline(storage, properties)
    pending = pending_instants(timeline)
    for file in (*path.glob("*.parquet"), *path.glob("*/*.parquet")):
        base = parse_base(file.name, ANY_BASE)
        if base is None or base.instant not in pending:
            continue
        for log in file.parent.glob(f".{base.file_id}_*.log.*"):
            instant = log.name.removeprefix(f".{base.file_id}_").partition(".")[0]
            if (timeline.completion(instant) or "") >= base.instant:
                return True
    return False


@contextmanager
def replayable(variable: str, request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Context that yields a list for the names of steps. Adds these names, and the command that
    repeats the history, as a note to an error.
    """
    done: list[str] = []
    try:
        yield done
    except Exception as error:
        command = f"{variable} {sys.executable} -m pytest -m nightly '{request.node.nodeid}'"
        error.add_note("\n".join([*done, f"replay: {command}"]))
        raise


def _require_equal(rows: pa.Table, expected: pa.Table, what: str) -> None:
    """Raise an error that shows the difference of two tables, if there is one."""
    text = difference(rows, expected)
    assert text == EQUAL, f"{what}: {text}"


def _key(row: dict[str, object], names: list[str]) -> tuple[object, ...]:
    return tuple(row[name] for name in names)


def _changes(before: pa.Table, after: pa.Table, names: list[str], shared: list[str]):
    """Yield the kind and the row of each change, with the columns ``shared``."""
    old = {_key(row, names): row for row in before.to_pylist()}
    new = {_key(row, names): row for row in after.to_pylist()}
    for key in old.keys() | new.keys():
        sides = [old.get(key), new.get(key)]
        if None not in sides and _key(sides[0], META) == _key(sides[1], META):
            continue
        kinds = ["delete", "insert"] if None in sides else ["update_before", "update_after"]
        for kind, row in zip(kinds, sides, strict=True):
            if row is not None:
                yield kind, repr({name: row[name] for name in shared})
