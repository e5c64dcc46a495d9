"""DuckDB, ClickHouse, Sail and Delta on Spark read each state of random histories. Delta on Spark
cannot maintain our tables.
"""

from __future__ import annotations

import os
import random

import pytest
from delta_engine import DeltaEngine
from delta_tables import as_declared, versions
from format_histories import SCHEMA, make, rows, step
from hudi_session import Refused
from reader import bag
from worlds import COW, MOR

from mdt.formats.delta import places, vectors

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1_800)]

HISTORIES = int(os.environ.get("MDT_DELTA_HISTORIES", "4"))
STEPS = 12
BOTH = ["hudi", "delta"]
FILTERS = ("id = 7", "ts >= 4", "city = 'é'", "city is null", "city = '50%' or id < 5", "ts < 3")


@pytest.fixture(scope="module", params=["duckdb", "clickhouse", "sail", "spark"])
def engine(request, tmp_path_factory):
    with DeltaEngine(request.param, tmp_path_factory.mktemp(request.param)) as started:
        yield started


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    with DeltaEngine("spark", tmp_path_factory.mktemp("attacks")) as started:
        yield started


@pytest.mark.parametrize("number", range(HISTORIES))
@pytest.mark.parametrize("kind", [MOR, COW])
def test_engine_reads_each_state_of_a_random_history(engine, tmp_path, kind, number, monkeypatch):
    if number % 2:
        monkeypatch.setattr(vectors, "INLINE_BYTES_MAX", 10)
        monkeypatch.setattr(places, "CHECKPOINT_COMMITS", 5)
    draw, done = random.Random(f"{kind} {number}"), []
    begins_later = number % 4 == 3
    formats = ["hudi"] if begins_later else BOTH
    table = make(tmp_path, kind, formats, is_partitioned=number % 4 < 2)
    table.upsert(rows(range(40), 1))
    if begins_later:
        table.alter(formats=BOTH)
    for ts in range(2, STEPS):
        done.append(step(table, draw, ts))
        if engine.name == "spark" and ts % 4:
            continue  # time travel reads the other versions below
        engine_rows = as_declared(engine.rows(tmp_path), table.schema)
        assert bag(engine_rows) == bag(table.scan().to_arrow()), done
    for where in FILTERS:
        ids = engine.rows(tmp_path, "id", where=where)["id"].to_pylist()
        expected = table.scan(where, columns=["id"]).to_arrow()["id"].to_pylist()
        assert sorted(ids) == sorted(expected), (where, done)
    # Sail 0.7 finds no version before the newest checkpoint if version 0 is gone
    has_versions = engine.has_versions and (engine.name != "sail" or not versions(table.storage)[0])
    for seq in range(max(1, table.snapshot().retention.horizon), table.snapshot().seq + 1):
        if has_versions and seq >= table.definition.begin_of_format("delta"):
            old = table.scan(as_of=seq).to_arrow()
            engine_rows = engine.rows(tmp_path, version=seq)
            assert bag(as_declared(engine_rows, old.schema)) == bag(old), (seq, done)
    assert table.check().ok


ATTACKS = (
    "insert into {t} select * from {t}",
    "delete from {t} where id = 1",
    "update {t} set ts = 0",
    "merge into {t} a using {t} b on a.id = b.id when matched then delete",
    "optimize {t}",
    "optimize {t} zorder by (ts)",
    "reorg table {t} apply (purge)",
    "vacuum {t} retain 0 hours",
    "vacuum {t} lite",
    "restore table {t} to version as of 2",
    "alter table {t} add column (more int)",
    "alter table {t} set tblproperties ('delta.deletedFileRetentionDuration' = 'interval 0 days')",
    "alter table {t} drop feature `mdt-derived` truncate history",
    "alter table {t} cluster by (ts)",
)


@pytest.mark.parametrize("kind", [MOR, COW])
@pytest.mark.parametrize("attack", ATTACKS)
def test_spark_can_neither_change_nor_maintain_our_tables(spark, tmp_path, kind, attack):
    table = make(tmp_path, kind, BOTH, is_partitioned=False)
    table.alter(options={"hoodie.parquet.small.file.limit": "0"})
    table.upsert(rows(range(40, 50), 1))  # Spark does not optimize a table with a single file
    for ts in range(1, 5):
        table.upsert(rows(range(ts, 40, ts), ts))
    before = {(info.path, info.size) for info in table.storage.list("")}
    with pytest.raises(Refused, match="mdt-derived|not support|unsupported|Unsupported"):
        spark.run(attack.format(t=f"delta.`{tmp_path}`"))
    # Spark writes data files before it checks the features of the log
    after = {(info.path, info.size) for info in table.storage.list("")}
    assert before <= after
    spark_files = {path for path, _ in after - before if path.startswith("part-")}
    table.upsert(rows([1], 9))
    assert bag(as_declared(spark.rows(tmp_path), SCHEMA)) == bag(table.scan().to_arrow())
    assert {problem.path for problem in table.check().problems} == spark_files


WRITES = (
    ("sail", "delete from {t} where id = 1"),
    ("sail", "update {t} set ts = 0"),
    ("sail", "merge into {t} a using {t} b on a.id = b.id when matched then delete"),
    ("clickhouse", "insert into function {t} select * from {t} settings allow_delta_lake_writes=1"),
)


@pytest.mark.parametrize("kind", [MOR, COW])
def test_sail_and_clickhouse_cannot_write(tmp_path, tmp_path_factory, kind):
    table = make(tmp_path, kind, BOTH, is_partitioned=False)
    for ts in range(1, 5):
        table.upsert(rows(range(ts, 40, ts), ts))
    expected = table.scan().to_arrow()
    for name, write in WRITES:
        with DeltaEngine(name, tmp_path_factory.mktemp(name)) as engine:
            with pytest.raises(Refused, match="mdt-derived|Unsupported table features"):
                engine.run(write.format(t=engine.source(tmp_path)))
            assert bag(as_declared(engine.rows(tmp_path), SCHEMA)) == bag(expected), write
    assert not table.upsert(rows([1], 9)).warnings
