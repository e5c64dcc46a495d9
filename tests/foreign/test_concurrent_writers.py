"""Hudi and mdt write to a table at the same time with a lock provider of Hudi, and lose no row.

Hudi changes rows with even numbers and mdt rows with odd numbers, in the same three file groups.
Each write changes one of these file groups.
MDT_HUDI_CONCURRENT is the number of writes of Hudi, by default 8.
"""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from compare_states import EQUAL, difference
from counting import count
from hidden import HiddenMetadata
from hudi import HudiTable
from hudi_kinds import METADATA_TABLE, PARQUET_LOGS
from hudi_session import HudiSession, Refused
from hudi_table import COW, MOR

import mdt
from mdt.commit.metadata_partitions import partitions_in
from mdt.errors import Conflict, Unsupported
from mdt.hudi.avro_schema import META_FIELDS
from mdt.metadata.history.foreign_writers import read_properties
from mdt.stores.storage import LocalStorage

WRITES = int(os.environ.get("MDT_HUDI_CONCURRENT", "8"))
KEYS = 60
PAUSE_SECONDS = 2.0
"""Mean time between writes of mdt. Without this pause, all writes of Hudi fail with a conflict."""
LOCK = {
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.write.lock.provider": (
        "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
    ),
    "hoodie.clean.failed.writes.policy": "LAZY",
}
CLEANING = {"hoodie.clean.automatic": "true", "hoodie.clean.commits.retained": "2"}
COMPACTING = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "3"}
OURS = {"hoodie.write.lock.provider": LOCK["hoodie.write.lock.provider"]}


class HudisWriter(threading.Thread):
    """Writes of Hudi in a thread.

    Attributes:
        values: Key -> value of each row that Hudi has written.
        outcomes: Number of writes that were committed, and of those with a conflict.
        error: An error that is not a conflict.
    """

    def __init__(self, hudi: HudiSession, path: Path) -> None:
        super().__init__()
        self._hudi, self._path = hudi, path
        self.values: dict[str, int] = {}
        self.outcomes: Counter[str] = Counter()
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            for number in range(WRITES):
                self._write(number)
        except Exception as error:  # noqa: BLE001 - raised in the other thread
            self.error = error

    def _write(self, number: int) -> None:
        rows = [(number * 8 + 6 * k) % KEYS for k in range(5)] + [1000 + 8 * number]
        add = 100_000 * (number + 1)
        try:
            self._hudi.call(self._path, "upsert", rows, 100 + number, add)
        except Refused as error:
            if "onflict" not in str(error):
                raise
            self.outcomes["conflicts"] += 1
            return
        self.outcomes["commits"] += 1
        self.values |= {f"k{n:03}": n + add for n in rows}


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize(
    ("kind", "more"),
    [
        (COW, {}),
        (COW, METADATA_TABLE),
        (MOR, COMPACTING),
        (MOR, COMPACTING | METADATA_TABLE),
        (MOR, COMPACTING | PARQUET_LOGS),
    ],
    ids=["cow", "cow_metadata", "mor_avro", "mor_metadata", "mor_parquet"],
)
def test_writers_with_a_lock_lose_no_rows(kind, more, version, tmp_path):
    path = tmp_path / "shared"
    with HudiSession(tmp_path / "session") as hudi:
        hudi.create(path, version, kind, {**LOCK, **CLEANING, **more})
        hudi.call(path, "write", "bulk_insert", list(range(KEYS)), 10)
        t = mdt.adopt(path, options=OURS)
        theirs = HudisWriter(hudi, path)
        theirs.start()
        values, outcomes = write_odd_rows(t, theirs)
        theirs.join()
        if theirs.error is not None:
            raise theirs.error
        expected = {f"k{n:03}": n for n in range(KEYS)} | theirs.values | values
        rows = t.scan(columns=[*META_FIELDS, *t.schema.names]).to_arrow()
        assert difference(rows, hudi.rows(path)) == EQUAL
        assert dict(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True)) == expected
        batches = HudiTable(str(path)).read()
        assert difference(rows, pa.Table.from_batches(map(pa.record_batch, batches))) == EQUAL
        assert t.check().ok, t.check().problems
        if METADATA_TABLE.items() <= more.items():
            storage = LocalStorage(str(path))
            assert "files" in partitions_in(read_properties(storage))
            assert mdt.open(HiddenMetadata(storage)).check().problems == ()
    assert not (path / ".hoodie" / "lock").exists()
    for name, number in (theirs.outcomes + outcomes).items():
        count(f"concurrent writes: {name}", number)
    assert theirs.outcomes["commits"] and outcomes["our commits"]


def write_odd_rows(t: mdt.Table, theirs: threading.Thread) -> tuple[dict[str, int], Counter[str]]:
    """Write odd rows until the other writer has ended.

    Returns the value of each key, and the number of writes with each outcome.
    """
    values: dict[str, int] = {}
    outcomes: Counter[str] = Counter()
    number, draw = 0, random.Random(0)
    while theirs.is_alive() or not number:
        number += 1
        theirs.join(draw.uniform(0, 2 * PAUSE_SECONDS))
        keys = [f"k{(number * 8 + 6 * k + 1) % KEYS:03}" for k in range(4)]
        rows = t.scan(f"id in ({', '.join(map(repr, keys))})").to_arrow().to_pylist()
        rows.append({**rows[0], "id": f"m{number:04}"})
        rows = [
            {**row, "ts": 1_000 + number, "v": number * 1_000_000 + k} for k, row in enumerate(rows)
        ]
        try:
            t.upsert(pa.Table.from_pylist(rows, schema=t.schema))
        except (Conflict, Unsupported) as error:
            outcomes[f"ours refused: {error.message[:40]}"] += 1
            continue
        outcomes["our commits"] += 1
        values |= {row["id"]: row["v"] for row in rows}
        if number % 5 == 0:
            try:
                t.compact()
                outcomes["our compactions"] += 1
            except (Conflict, Unsupported):
                outcomes["our compactions that were refused"] += 1
    return values, outcomes
