"""``mdt.warm(spark, path)``: the first queries of Spark already find their metadata in memory."""

from pathlib import Path

import pyarrow as pa
import pytest
from obstore.store import MemoryStore
from texts import columns

import mdt
import mdt.spark
from mdt.errors import Invalid
from mdt.limits import OPEN_TABLES_MAX
from mdt.plan.planner import hit_rates
from mdt.session import session
from mdt.source import open_tables
from mdt.source.read_frame import open_shared

SCHEMA = columns("id int64, city string, v int64")


def rows(ids):
    return pa.table(
        [list(ids), ["Oslo" if i % 2 else "Rome" for i in ids], [i % 97 for i in ids]],
        schema=SCHEMA,
    )


@pytest.fixture
def table(tmp_path):
    created = mdt.create(
        tmp_path / "t",
        SCHEMA,
        key=["id"],
        partition_by=["city"],
        scope="table",
        key_index="record",
        indexes=["bitmap(v)"],
    )
    created.bulk_insert(rows(range(4000)))
    created.bulk_insert(rows(range(4000, 6000)))
    yield created
    session().clear()


def misses(table):
    return sum(missed for _, missed in hit_rates(table.metadata).values())


@pytest.mark.parametrize("how", ["read", "format", "catalog"])
def test_first_queries_after_warm_find_everything_in_memory(spark, table, how):
    reports = list[tuple[int, int]]()
    result = mdt.warm(spark, table.path, progress=lambda done, total: reports.append((done, total)))
    assert (
        result.seq == 2
        and result.summaries == 2
        and result.key_maps == result.opened == 4
        and result.tasks == 0
    )
    assert result.bytes > 10 * 6000 and reports[-1] == (6, 6)
    warm = open_shared(table.path, None, None, None)
    assert warm is not table and warm is open_shared(
        Path(table.path.removeprefix("file://")), None, None, None
    )
    before = misses(warm)
    if how == "read":
        frame = mdt.read(spark, table.path)
    elif how == "format":
        frame = spark.read.format("mdt").load(table.path)
    else:
        spark.sql(
            f"create or replace temporary view warm_trips using mdt options (path '{table.path}')"
        )
        frame = spark.table("warm_trips")
    assert [row["v"] for row in frame.where("id = 97").collect()] == [0]
    assert frame.where("v = 5").count() == 62
    assert hit_rates(warm.metadata)["key maps"][0] > 0 and misses(warm) == before


def test_a_warm_table_sees_new_commits_and_is_shared_by_reads_with_equal_options(
    spark, table, monkeypatch
):
    mdt.warm(spark, table.path, ["v"], {"mdt.reader.threads": 1})
    options = {"mdt.reader.threads": "1"}
    warm = open_shared(table.path, options, None, None)
    assert warm is open_shared(table.path, options, None, None) and hit_rates(warm.metadata).get(
        "key maps", (0, 0)
    ) == (0, 0)
    assert (
        open_shared(table.path, None, None, None) is not warm
        and open_shared(table.path, options, None, 1) is not warm
    )
    table.upsert(rows(range(6000, 6010)))
    assert (
        open_shared(table.path, options, None, None) is warm
        and mdt.read(spark, table.path, options).count() == 6010
    )
    monkeypatch.setattr(open_tables, "OPEN_TABLES_MAX", 1)
    mdt.warm(spark, table.path, options={"mdt.reader.threads": 2})
    assert (
        len(open_tables.open_table_cache().value) == 1 < OPEN_TABLES_MAX
        and open_shared(table.path, options, None, None) is not warm
    )


def test_large_indexes_are_loaded_in_tasks(spark, table):
    options = {"mdt.spark.driver.summaries.max": 0}
    result = mdt.warm(spark, table.path, options=options)
    assert result.tasks > 0 and result.summaries == 2
    warm = open_shared(table.path, options, None, None)
    assert "summaries" not in hit_rates(warm.metadata), "the driver leaves them to tasks"
    assert mdt.read(spark, table.path, options).where("v = 5").count() == 62


def test_warm_accepts_an_empty_table_and_refuses_missing_columns_and_tables(spark, tmp_path):
    mdt.create(tmp_path / "empty", SCHEMA, key=["id"], indexes=["bitmap(v)"])
    result = mdt.spark.warm(spark, tmp_path / "empty")
    assert (result.summaries, result.key_maps, result.opened, result.bytes) == (0, 0, 0, 0)
    with pytest.raises(Invalid, match="nix"):
        mdt.warm(spark, tmp_path / "empty", ["nix"])
    with pytest.raises(Invalid, match="not an mdt table"):
        mdt.warm(spark, tmp_path / "nothing")
    store = MemoryStore()
    table = mdt.create(store, SCHEMA, key=["id"])
    assert (
        open_tables.open_shared(store) is not open_tables.open_shared(store)
        and open_tables.relations_of(table) is None
    )
