"""Hudi reads a table of version 9 incrementally and as of each instant, while three writers of ours
commit at the same time. It must read each change exactly once.

MDT_HUDI_INCREMENTAL is the number of writes of each writer, by default 20.
"""

from __future__ import annotations

import os
import random
import threading
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from compare_states import EQUAL, difference
from counting import count
from hudi_session import HudiSession
from hudi_table import COW, MOR
from test_our_column_stats import keys_of

import mdt
from mdt.hudi.avro_schema import COMMIT_TIME, META_FIELDS
from mdt.stores.storage import LocalStorage
from mdt.testing.slow import SlowStorage

WRITES = int(os.environ.get("MDT_HUDI_INCREMENTAL", "20"))
DELAYS_SECONDS = (0.005, 0.02, 0.06)
"""Time of each storage request, by writer. Slow commits often complete after later ones."""
SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("v", pa.int64())])
CITIES = ("oslo", "paris", "rome", "bergen")
KEYS = 10
"""Number of keys in each city."""
COMPACTED_EVERY = 5


@dataclass(frozen=True)
class Write:
    """A commit of ours.

    Attributes:
        instant: Instant of the commit.
        values: Key -> new value, or None if the row is deleted.
    """

    instant: str
    values: dict[str, int | None]


class Writer(threading.Thread):
    """Writes in a thread.

    Attributes:
        writes: Seq of the log -> committed write.
        error: The error that ended the thread.
    """

    def __init__(self, path: Path, number: int) -> None:
        super().__init__()
        storage = SlowStorage(LocalStorage(path, durable=False), DELAYS_SECONDS[number])
        self._table = mdt.open(storage)
        self._draw = random.Random(number)
        self._first_value = number * 1_000_000
        self.writes: dict[int, Write] = {}
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            for number in range(WRITES):
                self._write(self._first_value + 100 * number)
                if number % COMPACTED_EVERY == COMPACTED_EVERY - 1:
                    self._table.compact()
        except Exception as error:  # noqa: BLE001 - raised in the other thread
            self.error = error

    def _write(self, value: int) -> None:
        """Upsert or delete some rows of a city."""
        city = self._draw.choice(CITIES)
        keys = [f"{city}{n}" for n in self._draw.sample(range(KEYS), 3)]
        rows = [{"id": key, "city": city, "v": value + n} for n, key in enumerate(keys)]
        values: dict[str, int | None] = {row["id"]: row["v"] for row in rows}
        write = self._table.upsert
        if self._draw.random() < 0.3:
            write, values = self._table.delete, dict.fromkeys(keys)
        result = write(pa.Table.from_pylist(rows, SCHEMA))
        if result.instant:  # a delete of absent rows commits nothing
            self.writes[result.seq] = Write(result.instant, values)


def completions(path: Path) -> dict[str, str]:
    """Return the instants of completed commits with their completion times."""
    times = [file.name.partition(".")[0] for file in (path / ".hoodie/timeline").glob("[0-9]*_*.*")]
    return dict(time.split("_") for time in times)


def incremental(hudi: HudiSession, path: Path, since: str, until: str) -> list[tuple[str, ...]]:
    """Return the instant, key and value of the rows that Hudi reads in a range of completions."""
    options = {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.read.begin.instanttime": since,
        "hoodie.datasource.read.end.instanttime": until,
    }
    rows = hudi.rows(path, **options).select([COMMIT_TIME, "id", "v"]).to_pylist()
    return sorted(tuple(row.values()) for row in rows)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("partition_by", [["city"], []], ids=str)
@pytest.mark.parametrize("kind", [COW, MOR])
def test_incremental_queries_miss_no_commit_of_concurrent_writers(tmp_path, kind, partition_by):
    path = tmp_path / "table"
    options = {"mdt.services.auto": "false", "hoodie.parquet.small.file.limit": "0"}
    table = mdt.create(
        path,
        SCHEMA,
        key=["id"],
        partition_by=partition_by,
        table_type=kind,
        version=9,
        options=options,
    )
    first = insert_cities(table)
    with HudiSession(tmp_path / "session") as hudi:
        hudi.create(path, 9, kind, keys_of(partition_by))
        writers = [Writer(path, number) for number in range(len(DELAYS_SECONDS))]
        for writer in writers:
            writer.start()
        increments = read_increments(hudi, path, writers)
        for writer in writers:
            if writer.error is not None:
                raise writer.error
        by_seq = dict(sorted(item for writer in writers for item in writer.writes.items()))
        writes = [*first, *by_seq.values()]
        require_increments(path, increments, writes)
        require_past_states(hudi, path, writes)


def insert_cities(table: mdt.Table) -> list[Write]:
    """Insert the rows of each city into a file group of its own, so that concurrent writers can
    change different cities.
    """
    writes = []
    for city in CITIES:
        rows = [{"id": f"{city}{n}", "city": city, "v": n} for n in range(KEYS)]
        instant = table.insert(rows).instant
        writes.append(Write(instant, {row["id"]: row["v"] for row in rows}))
    return writes


def read_increments(
    hudi: HudiSession, path: Path, writers: list[Writer]
) -> dict[tuple[str, str], list[tuple[str, ...]]]:
    """Read incrementally until all writers have ended. Return the rows of each range."""
    increments = {}
    since = max(completions(path).values())
    is_running = True
    while is_running:
        is_running = any(writer.is_alive() for writer in writers)
        until = max(completions(path).values())
        if until > since:
            increments[since, until] = incremental(hudi, path, since, until)
        since = until
    return increments


def require_increments(
    path: Path, increments: dict[tuple[str, str], list[tuple[str, ...]]], writes: list[Write]
) -> None:
    """Assert that each range has the last values of the rows that its writes changed.

    Args:
        writes: All writes, in the order of the log.
    """
    ends = completions(path)
    times = [ends[write.instant] for write in writes]
    assert times == sorted(times), "completion times must have the order of the log"
    for (since, until), rows in increments.items():
        last: dict[str, tuple[str, int | None]] = {}
        for write, time in zip(writes, times, strict=True):
            if since < time <= until:
                last |= {key: (write.instant, value) for key, value in write.values.items()}
        changed = [(at, key, value) for key, (at, value) in last.items() if value is not None]
        assert rows == sorted(changed), (since, until)
        count("rows of Hudi's incremental queries", len(rows))
    count("incremental queries of Hudi", len(increments))
    overtaken = sum(b.instant < a.instant for a, b in pairwise(writes))
    overlapping = sum(b.instant < time for b, time in zip(writes[1:], times, strict=False))
    count("commits that were requested before one that completed earlier", overtaken)
    count("commits that were requested before the last one completed", overlapping)
    assert overlapping


def require_past_states(hudi: HudiSession, path: Path, writes: list[Write]) -> None:
    """Compare the rows of Hudi and of ours as of each instant with those of the writes.

    Hudi's state has the writes that were requested until the instant. Ours also has the writes that
    were requested later, but completed before the last of these writes.

    Args:
        writes: All writes, in the order of the log.
    """
    table, ends, last_end = mdt.open(path), completions(path), ""
    for instant in sorted(ends):
        theirs = hudi.rows(path, **{"as.of.instant": instant})
        requested = [write for write in writes if write.instant <= instant]
        assert values_in(theirs) == last_values(requested)
        ours = table.scan(as_of=instant, columns=[*META_FIELDS, *SCHEMA.names]).to_arrow()
        last_end = max(last_end, ends[instant])
        committed = [write for write in writes if ends[write.instant] <= last_end]
        assert values_in(ours) == last_values(committed)
        if committed == requested:
            assert difference(ours, theirs) == EQUAL, instant
            count("past states of concurrent writers that are ours")
        count("past states of concurrent writers")


def values_in(rows: pa.Table) -> dict[str, int]:
    """Return the value of each key."""
    values = dict(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))
    assert len(values) == len(rows), "a key has several rows"
    return values


def last_values(writes: list[Write]) -> dict[str, int | None]:
    """Return the value of each key that has a row after all of these writes."""
    values: dict[str, int | None] = {}
    for write in writes:
        values |= write.values
    return {key: value for key, value in values.items() if value is not None}
