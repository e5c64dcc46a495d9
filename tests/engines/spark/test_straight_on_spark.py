"""Frames that are nothing but files: loads write new files straight from these in tasks; where the driver's machine is all that there is, rows are written in its process."""

from __future__ import annotations

import random
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import failing_tasks
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from reader import bag, hudi_table
from worlds import assert_clean

import mdt
from mdt.commit import transaction
from mdt.engines import straight
from mdt.engines.spark import engine
from mdt.engines.spark.engine import schema_of
from mdt.errors import Corrupt, Invalid

HERE: dict[str, Any] = {"mdt.spark.local.bytes.max": 1}
"""No frame is small: what is written in process is so because Spark runs on this machine alone."""
IN_TASKS = {**HERE, "mdt.spark.local.files": False}
UNFLUSHED = {"mdt.durable": False}
SMALL = {**UNFLUSHED, "mdt.max.file.bytes": 4096, "mdt.small.file.bytes": 0}


def given(folder: Path, numbers: list[int], note: str) -> Path:
    """Write rows with these keys into three files."""
    folder.mkdir()
    rows = pa.table({"id": [f"k{n:05}" for n in numbers], "n": numbers, "note": [f"{note} {n}" for n in numbers]})
    every = -(-len(rows) // 3)
    for part in range(3):
        pq.write_table(rows.slice(part * every, every), folder / f"{part}.parquet", row_group_size=100)
    return folder


def made(spark: SparkSession, folder: Path, loaded: Path, **options: Any) -> mdt.Table:
    mdt.create(folder, schema_of(spark.read.parquet(str(loaded))), key=["id"], options=SMALL)
    return mdt.open(folder, options=options)


@pytest.mark.parametrize(
    ("options", "by"), [(HERE, "arrow"), (IN_TASKS, "spark"), ({"mdt.spark.local.bytes.max": 0}, "spark")], ids=str
)
@pytest.mark.parametrize("is_ordered", [True, False])
def test_a_load_and_an_upsert_leave_the_rows_of_the_files(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any], by: str, is_ordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    numbers = list(range(1500))
    if not is_ordered:
        random.Random(1).shuffle(numbers)
    loaded, more = given(tmp_path / "load", numbers, "load"), given(tmp_path / "more", numbers[1000:] + list(range(2000, 2300)), "more")  # fmt: skip
    table = made(spark, tmp_path / "t", loaded, **options)
    planned, plans = straight.planned, []
    monkeypatch.setattr(straight, "planned", lambda *of: plans.append(planned(*of)) or plans[-1])
    monkeypatch.setattr(engine, "mapped_bytes", lambda *of, make=engine.mapped_bytes: mapped.append(of) or make(*of))
    mapped: list[Any] = []
    done = table.bulk_insert(spark.read.parquet(str(loaded)))
    assert (done.inserted, done.engine, len(table.files()) > 3) == (1500, by, True)
    assert [plan is not None for plan in plans] == [is_ordered]
    assert bool(mapped) == (by == "spark" and not is_ordered), "rows of a straight load go nowhere"
    done = table.upsert(spark.read.parquet(str(more)))
    assert (done.inserted, done.updated, done.engine) == (300, 500, by)
    expected = pq.read_table(more)
    old = pq.read_table(loaded)
    kept = old.filter(pa.array([id not in set(expected["id"].to_pylist()) for id in old["id"].to_pylist()]))
    found = table.scan().to_arrow()
    assert bag(found) == bag(pa.concat_tables([kept, expected])) == bag(hudi_table(table.path, found.schema))
    assert_clean(table.storage)


def test_tasks_whose_workers_die_are_run_again_and_leave_one_file_each(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = given(tmp_path / "load", list(range(600)), "load")
    table = made(spark, tmp_path / "t", loaded, **IN_TASKS)
    monkeypatch.setattr(straight, "write", failing_tasks.dies_first)
    done = table.bulk_insert(spark.read.parquet(str(loaded)))
    assert (done.inserted, done.engine) == (600, "spark")
    assert bag(table.scan().to_arrow()) == bag(pq.read_table(loaded))
    known = {name.rpartition("/")[2] for name in table.files()["name"].to_pylist()}
    assert {file.name for file in (tmp_path / "t").glob("*.parquet")} == known
    assert_clean(table.storage)


@pytest.mark.parametrize("options", [HERE, IN_TASKS], ids=str)
def test_files_that_are_not_what_they_say_are_read_by_spark(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = given(tmp_path / "load", list(range(600)), "load")
    table = made(spark, tmp_path / "t", loaded, **options)
    monkeypatch.setattr(straight, "write", failing_tasks.finds_damage_straight)
    done = table.bulk_insert(spark.read.parquet(str(loaded)))
    assert (done.inserted, done.engine) == (600, "spark")
    assert bag(table.scan().to_arrow()) == bag(pq.read_table(loaded))
    if options is IN_TASKS:
        _wait_for_tasks(table)
    assert_clean(table.storage)


def _wait_for_tasks(table: mdt.Table) -> None:
    """Wait until the tasks of a job that has failed have ended: Spark kills them, and they may have written meanwhile what no commit has."""
    for _ in range(30):
        table.abort()
        if not table.check().problems:
            return
        time.sleep(1)


@pytest.mark.parametrize(("master", "tasks", "alone"), [
    ("local", 1, True), ("local[2]", 2, True), ("local[*]", 8, True), ("local[2,3]", 2, True), ("local[*]", 9, False), ("local-cluster[2,1,1024]", 2, False),
    ("spark://x:7077", 2, False), ("yarn", 2, False), ("k8s://https://x", 2, False),
])  # fmt: skip
def test_only_a_local_master_of_few_processors_has_all_tasks_here(master: str, tasks: int, alone: bool) -> None:
    session = SimpleNamespace(sparkContext=SimpleNamespace(master=master, defaultParallelism=tasks))
    assert engine._is_alone(session) == alone  # type: ignore[arg-type]


def test_columns_of_an_upsert_may_be_merged_and_missing(spark: SparkSession, tmp_path: Path) -> None:
    """Rows of files that are not read yet, too, are brought together by key."""
    loaded, more = given(tmp_path / "load", list(range(300)), "load"), given(tmp_path / "more", [*range(400)], "more")
    found = []
    for options in (HERE, IN_TASKS):
        table = made(spark, tmp_path / f"t{len(found)}", loaded, **options)
        table.bulk_insert(spark.read.parquet(str(loaded)))
        table.upsert(spark.read.parquet(str(more)), mergers={"n": "sum"})
        table.upsert(spark.read.parquet(str(more)).select("note", "id"), partial=True)
        found.append(bag(table.scan().to_arrow()))
    assert found[0] == found[1]
    assert sum(table.scan().to_arrow()["n"].to_pylist()) == sum(range(400)) + sum(range(300))


@pytest.mark.parametrize("options", [HERE, IN_TASKS], ids=["in process", "in tasks"])
def test_an_error_after_the_commit_does_not_write_twice(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = given(tmp_path / "load", list(range(600)), "load")
    table = made(spark, tmp_path / "t", loaded, **options)

    def fails(*of: Any) -> bool:
        raise Corrupt("an object of the archive lacks its rows", path="x")

    with monkeypatch.context() as patch:
        patch.setattr(transaction, "_is_astray", fails)
        with pytest.raises(Corrupt, match="archive"):
            table.upsert(spark.read.parquet(str(loaded)))
    assert (table.scan().count(), table.snapshot().seq) == (600, 1)


def test_files_without_columns_are_refused_as_any_rows_without_a_key(spark: SparkSession, tmp_path: Path) -> None:
    loaded = given(tmp_path / "load", list(range(30)), "load")
    table = made(spark, tmp_path / "t", loaded, **HERE)
    with pytest.raises(Invalid, match="id"):
        table.upsert(spark.read.parquet(str(loaded)).select())


@pytest.mark.parametrize("options", [HERE, IN_TASKS], ids=["in process", "in tasks"])
@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
def test_both_zeros_of_floats_are_one_whole_number_and_one_key(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any], kind: pa.DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_ALONE_BYTES", 0)
    monkeypatch.setattr(engine, "_tasks_of", lambda session, size: 2)
    ids = pa.array([0.0, *range(1, 50), -0.0, *range(100, 150)], kind)
    pq.write_table(pa.table({"id": ids, "n": range(len(ids))}), tmp_path / "given.parquet", row_group_size=20)
    mdt.create(tmp_path / "t", pa.schema({"id": pa.int64(), "n": pa.int64()}), key=["id"], options=UNFLUSHED)
    table = mdt.open(tmp_path / "t", options=options)
    table.upsert([{"id": 7, "n": -1}])
    done = table.upsert(spark.read.parquet(str(tmp_path / "given.parquet")))
    assert (done.inserted, done.updated, done.late) == (99, 1, 1)
    assert table.get(0) == {"id": 0, "n": 50}, "the last row"
    assert_clean(table.storage)


@pytest.mark.parametrize("parts_of_counts", [64, 0])
def test_tasks_read_files_and_bring_equal_keys_together_in_the_order_of_the_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts_of_counts: int
) -> None:
    """Keys repeat in files of all sizes: the last row wins, of the smallest file, as where one process reads them."""
    draw = random.Random(parts_of_counts)
    folder = tmp_path / "more"
    folder.mkdir()
    for part, count in enumerate((400, 300, 200)):
        numbers = [draw.randrange(600) for _ in range(count)]
        rows = pa.table(
            {"id": [f"k{n:05}" for n in numbers], "n": range(count), "note": [f"{part} {n}" for n in numbers]}
        )
        pq.write_table(rows, folder / f"{part}.parquet", row_group_size=70)
    loaded = given(tmp_path / "load", list(range(500)), "load")
    monkeypatch.setattr(engine, "_ALONE_BYTES", 0)
    monkeypatch.setattr(engine, "_TASK_BYTES", 2000)
    monkeypatch.setattr(engine, "_COUNTED_HERE_PARTS", parts_of_counts)
    dealt, found = [], []
    monkeypatch.setattr(engine, "dealt_bytes", lambda *of, make=engine.dealt_bytes: dealt.append(of[2]) or make(*of))
    for options in (IN_TASKS, HERE):
        table = made(spark, tmp_path / str(len(found)), loaded, **options)
        table.bulk_insert(spark.read.parquet(str(loaded)))
        done = table.upsert(spark.read.parquet(str(folder)))
        rows = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])
        found.append((rows, done.inserted, done.updated, done.late))
        assert table.check().ok
    assert dealt[0] > 2, "parts to which rows came together"
    assert found[0] == found[1]


def test_of_rows_of_a_load_that_tasks_read_and_that_repeat_a_key_the_last_one_stays(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The later file begins with a smaller key, so its rows come first where the blocks of a bucket rise."""
    folder = tmp_path / "given"
    folder.mkdir()
    for of, numbers in enumerate((range(500, 1500), range(800))):
        rows = {"id": numbers, "n": [of] * len(numbers), "city": ["Oslo"] * len(numbers)}
        pq.write_table(pa.table(rows), folder / f"{of}.parquet")
    found = []
    for options in ({}, {"mdt.spark.local.bytes.max": 0}, HERE):
        frame = spark.read.parquet(str(folder))
        path = tmp_path / str(len(found))
        mdt.create(path, schema_of(frame), key=["id"], partition_by=["city"], scope="partition", options=UNFLUSHED)
        table = mdt.open(path, options=options)
        done = table.upsert(frame)
        found.append((bag(table.scan().to_arrow()), done.inserted, done.late))
    assert found[0] == found[1] == found[2]
