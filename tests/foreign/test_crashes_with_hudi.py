"""A process of ours crashes before each change of storage in a commit that updates Hudi's metadata
table. Hudi then reads the rows from before or from after the commit. After the next write, by Hudi
or by mdt, it reads these rows with those of the new write.

MDT_HUDI_CRASH_FROM is the number of the first change with a crash, by default 1.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest
from compare_states import EQUAL, difference
from counting import count
from follower import rows_of
from hudi_kinds import METADATA_TABLE
from hudi_session import HudiSession
from test_our_column_stats import SKIPPING
from test_our_metadata_table import hudi_options
from test_our_record_index import BY_INDEX, WRITER
from test_shared_indexes import partitions

import mdt
from mdt.hudi.metadata_table_files import FILES
from mdt.stores.storage import LocalStorage
from mdt.testing.faulty import Crash, FaultyStorage

COMPACTION = "call run_compaction(op => 'scheduleAndExecute', table => '{t}')"
FIRST = int(os.environ.get("MDT_HUDI_CRASH_FROM", "1"))
READER = BY_INDEX | SKIPPING
BLOOM = {"hoodie.metadata.index.bloom.filter.enable": "true"}
"""Without this option, Hudi's writers remove the partition. If our compaction of the metadata table
is unfinished then, all their later writes fail.
"""
KEPT = {
    **{name: "true" for name in READER if name.startswith("hoodie.metadata")},
    **BLOOM,
    "mdt.write.footer.bloom": "true",
    "mdt.services.auto": "false",
    "mdt.writer.threads": 1,
}
KEPT_9 = {
    "hoodie.metadata.index.partition.stats.enable": "true",
    "hoodie.metadata.index.secondary.enable": "true",
}


UPSERT, MERGE, COMPACT = "upsert", "upsert that merges", "compaction"
"""Operations that crash: an upsert, an upsert that also compacts the metadata table, and a
compaction of the table.
"""


def make(path: Path, rows: pa.Table, version: int, kind: str, action: str) -> None:
    """Make a table with as many commits as the operation ``action`` needs before it."""
    table = mdt.create(
        path,
        rows.schema,
        key=["id"],
        partition_by=["city"],
        ordering="ts",
        scope="table",
        table_type=kind,
        version=version,
        indexes=["bitmap(v)"],
        options=KEPT | (KEPT_9 if version == 9 else {}),
    )
    table.insert(rows)
    for ts in range(100, 109 if action == MERGE else 102):
        changed = rows.slice(ts % 10, 20).set_column(
            rows.schema.get_field_index("ts"), "ts", pa.repeat(pa.scalar(ts, pa.int64()), 20)
        )
        table.upsert(changed)


def crash_before(path: Path, rows: pa.Table, action: str, at: int) -> list[str]:
    """Compact the table, or upsert and insert rows, with a process that crashes before change
    number ``at`` of the storage. It does not crash if ``at`` is 0. Return the names of the changes.
    """
    storage = FaultyStorage(LocalStorage(path, durable=False), at, "before")
    changed = rows.slice(5, 10).to_pylist()
    changed = [{**row, "ts": 500, "v": 5000 + n} for n, row in enumerate(changed)]
    changed += [{**changed[0], "id": "new"}, {**changed[1], "city": "elsewhere"}]
    try:
        table = mdt.open(storage)
        table.compact() if action == COMPACT else table.upsert(changed)
    except Crash:
        pass
    return storage.operations


def read(hudi: HudiSession, path: Path, version: int, kind: str) -> pa.Table:
    """Return Hudi's rows. Assert that mdt and Hudi with its metadata table read the same rows."""
    rows = hudi.rows(path)
    assert difference(hudi.rows(path, **READER), rows) == EQUAL
    assert difference(rows_of(mdt.open(path).readable()), rows) == EQUAL
    return rows


def values_of(rows: pa.Table) -> Mapping[str, tuple[object, ...]]:
    columns = (rows[name].to_pylist() for name in ("id", "city", "ts", "v"))
    values_by_key = {row[0]: row[1:] for row in zip(*columns, strict=True)}
    assert len(values_by_key) == len(rows), "a key has several rows"
    return values_by_key


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("version", "kind", "action"),
    [
        *product([6, 9], ["MERGE_ON_READ"], [UPSERT, MERGE, COMPACT]),
        *product([9], ["COPY_ON_WRITE"], [UPSERT, MERGE]),
        (6, "COPY_ON_WRITE", UPSERT),
    ],
)
def test_hudi_reads_correct_rows_after_our_crash_at_any_storage_change(
    version, kind, action, tmp_path
):
    writer = {**METADATA_TABLE, **WRITER, **SKIPPING, **BLOOM, **hudi_options(["city"])}
    with HudiSession(tmp_path / "session") as hudi:
        hudi.create(tmp_path / "made", version, kind, hudi_options(["city"]))
        hudi.call(tmp_path / "made", "insert", list(range(60)), 10)
        source_rows = mdt.open(tmp_path / "made").scan().to_arrow()
        whole, start = tmp_path / "whole", tmp_path / "start"
        make(start, source_rows, version, kind, action)
        shutil.copytree(start, whole)
        operations = crash_before(whole, source_rows, action, 0)
        is_compaction = [".compaction.requested" in name for name in operations]
        assert any(is_compaction) == (action != UPSERT)
        hudi.create(whole, version, kind, writer)
        hudi.create(start, version, kind, writer)
        states = [values_of(read(hudi, path, version, kind)) for path in (start, whole)]
        assert (states[0] != states[1]) == (action != COMPACT)
        assert FILES in partitions(whole) and "record_index" in partitions(whole)
        for at, operation in enumerate(operations[FIRST - 1 :], FIRST):
            for next_writer in ("hudi", "mdt"):
                path = (
                    tmp_path / f"{next_writer}-{at}" / start.name
                )  # the name of the table is that of the folder
                shutil.copytree(start, path)
                crash_before(path, source_rows, action, at)
                hudi.create(path, version, kind, writer)
                before = hudi.rows(path)
                assert difference(hudi.rows(path, **READER), before) == EQUAL, operation
                assert values_of(before) in states, operation
                if next_writer == "hudi" and action == COMPACT:
                    hudi.call(path, "sql", COMPACTION)
                    hudi.call(
                        path, "sql", "drop table {t}"
                    )  # the next copy has the same table name
                after = write(hudi, path, source_rows, next_writer)
                values = values_of(read(hudi, path, version, kind))
                assert values in [state | after for state in states], (
                    f"{next_writer} after {at} {operation}"
                )
                assert "record_index" in partitions(path), operation
                if next_writer == "hudi":
                    mdt.open(path).refresh()
                report = mdt.open(path).check()
                assert report.ok, (next_writer, operation, report.problems)
                shutil.rmtree(path)
                count("crashes with Hudi as the next reader and writer")


def write(
    hudi: HudiSession, path: Path, source_rows: pa.Table, next_writer: str
) -> Mapping[str, tuple[object, ...]]:
    """Let Hudi or mdt update some rows. Return their values by key."""
    if next_writer == "hudi":
        hudi.call(path, "upsert", [1, 2, 3, 59], 9000)
    else:
        mdt.open(path).abort()
        rows = source_rows.take([1, 2, 3, 59]).to_pylist()
        mdt.open(path).upsert([{**row, "ts": 9000, "v": 7} for row in rows])
    written = values_of(mdt.open(path).scan().to_arrow())
    changed = {key: values for key, values in written.items() if values[1] == 9000}
    assert len(changed) == 4
    return changed
