"""Indexes built in Spark tasks equal those built in process, and are used by queries."""

import numpy as np
import pyarrow as pa
import pytest
from texts import columns

import mdt
from mdt.errors import Unsupported
from mdt.filters.where import parse_where
from mdt.plan.planner import plan
from mdt.stores.object_range import ObjectRange

SCHEMA = columns("id string, city string, n int64, note string")
SPECS = ["bitmap(n)", "text(note)", "bloom(city)"]
WORDS = ("alpha", "beta", "gamma", "delta", "epsilon")


def _rows(first, last):
    numbers = range(first, last)
    columns = [
        [f"k{i:06}" for i in numbers],
        [f"c{i // 300}" for i in numbers],
        [i * 7919 % 500 for i in numbers],
        [f"{WORDS[i % 5]} word{i * 31 % 400}" for i in numbers],
    ]
    return pa.table(columns, schema=SCHEMA)


@pytest.fixture
def table(tmp_path):
    options = {"mdt.max.file.bytes": 4096, "mdt.small.file.bytes": 0, "mdt.durable": False}
    created = mdt.create(tmp_path / "table", SCHEMA, ["id"], options=options)
    for part in range(4):
        created.insert(_rows(300 * part, 300 * part + 300))
    created.upsert(_rows(100, 150))
    return created


def _summaries(table):
    snapshot = table.snapshot()
    summaries = {}
    for spec in snapshot.definition.indexes:
        shards = np.flatnonzero(snapshot.covered_shards(spec))
        for shard, summary in zip(
            shards.tolist(), snapshot.index_summaries(spec, shards), strict=True
        ):
            assert summary is not None
            if isinstance(summary, ObjectRange):
                summary = table.metadata.objects.read(summary, verify=True).to_pybytes()
            summaries[spec, int(snapshot.shards.number[shard])] = summary
    return summaries


def test_indexes_built_on_spark_equal_those_built_in_process(spark, table):
    result = table.create_index(SPECS, spark=spark)
    built = _summaries(table)
    assert (
        len(built) == result.summaries == 3 * len(table.snapshot().shards) < 3 * len(table.files())
    )
    assert table.check().ok
    table.rebuild_index(spark=None)
    assert _summaries(table) == built
    assert table.check().ok
    assert set(table.indexes()["coverage"].to_pylist()) == {100.0}


PLANNED = {
    "n = 33": (2, {"bitmap/1(n)"}),
    "n between 30 and 33": (7, {"bitmap/1(n)"}),
    "city = 'c2' and n < 40": (2, {"bitmap/1(n)", "bloom/1(city)"}),
    "n in (1, 499) or city = 'nowhere'": (8, {"bitmap/1(n)", "bloom/1(city)"}),
    "note like '%word77%'": (9, set()),
}
"""Filter -> the files of nine that a plan reads, and the indexes that it uses."""


@pytest.mark.parametrize("where", PLANNED)
def test_indexes_are_used_in_plans_and_keep_the_rows_of_a_spark_query(spark, table, where):
    expected = sorted(
        mdt.read(spark, table.path).where(where).select("id").toArrow()["id"].to_pylist()
    )
    table.create_index(SPECS)
    frame = mdt.read(spark, table.path)
    assert sorted(frame.where(where).select("id").toArrow()["id"].to_pylist()) == expected
    query_plan = plan(table.metadata, table.snapshot(), parse_where(where, SCHEMA))
    used = {note.index for note in query_plan.notes if note.used} - {"column_stats"}
    assert len(table.files()) == 9
    assert (len(query_plan.segments), used) == PLANNED[where]
    assert table.scan(where).count() == len(expected)


def test_index_builds_in_tasks_are_refused_for_a_table_in_memory(spark):
    table = mdt.create(mdt.stores.storage.MemoryStorage(), SCHEMA, ["id"])
    table.insert(_rows(0, 10))
    with pytest.raises(Unsupported, match="mdt-memory"):
        table.create_index("bitmap(n)", spark=spark)


def test_small_files_written_by_a_task_share_summaries(spark, table):
    table.create_index(SPECS)
    table.upsert(
        spark.createDataFrame(
            _rows(0, 1200).slice(0, 900).to_pylist(), "id string, city string, n long, note string"
        )
    )
    snapshot = table.snapshot()
    fresh = np.flatnonzero(snapshot.segment_ids >= snapshot.seq << 20)
    shards = snapshot.shards.of_files(fresh)
    assert (
        0 < len(shards) < len(fresh)
        and snapshot.covered_shards(snapshot.definition.indexes[0])[shards].all()
    )
    assert table.scan("n = 33").count() == sum(i * 7919 % 500 == 33 for i in range(1200))
    assert table.scan("match(note, 'word77')").count() == sum(
        i * 31 % 400 == 77 for i in range(1200)
    )
    assert table.check().ok
