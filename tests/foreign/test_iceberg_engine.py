"""Iceberg on Spark, DuckDB, ClickHouse and Sail read each state of random histories, and Iceberg on
Spark cannot delete our files.
"""

from __future__ import annotations

import os
import random
from itertools import count

import pytest
from delta_engine import DeltaEngine
from delta_tables import as_declared
from format_histories import SCHEMA, make, rows, step
from hudi_session import Refused
from reader import bag
from worlds import COW, MOR

from mdt.errors import Unsupported
from mdt.formats.iceberg import tree

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1_800)]

HISTORIES = int(os.environ.get("MDT_ICEBERG_HISTORIES", "4"))
STEPS = 12
BOTH = ["hudi", "iceberg"]


class Lake:
    """Iceberg on Spark, with the tables of a folder as a Hadoop catalog."""

    def __init__(self, engine, folder):
        self.engine, self._folder, self._names = engine, folder, map("t{}".format, count())
        engine.run(f"set spark.sql.catalog.lake.warehouse={folder}")

    def table(self, kind, formats, **more):
        """Return a new table of ours, and its name in SQL."""
        name = next(self._names)
        return make(self._folder / "raw" / name, kind, formats, **more), f"lake.raw.{name}"

    def rows(self, name, schema, where="true", seq=None):
        version = "" if seq is None else f"version as of {seq}"
        result = self.engine.result(f"select * from {name} {version} where {where}")
        return bag(as_declared(result, schema))


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lake")
    with DeltaEngine("iceberg", folder) as engine:
        yield Lake(engine, folder / "warehouse")


FILTERS = ("id < 20", "city = 'x'", "city is null", "fare > 7.5", "ts >= 3 and id % 2 = 0")


@pytest.mark.parametrize("number", range(HISTORIES))
@pytest.mark.parametrize("kind", [MOR, COW])
def test_iceberg_reads_each_state_of_a_random_history(lake, kind, number, monkeypatch):
    if number % 2:
        monkeypatch.setattr(tree, "FILES_MAX", {0: 3, 1: 2})
    draw, done = random.Random(f"{kind} {number}"), []
    begins_later = number % 4 == 3
    formats = ["hudi"] if begins_later else BOTH
    table, name = lake.table(kind, formats, is_partitioned=number % 4 < 2)
    table.upsert(rows(range(40), 1))
    if begins_later:
        table.alter(formats=BOTH)
    for ts in range(2, STEPS):
        done.append(step(table, draw, ts))
        where = draw.choice(FILTERS)
        expected = bag(table.scan(where).to_arrow())
        assert lake.rows(name, table.schema, where) == expected, (where, done)
    first = max(1, table.snapshot().retention.horizon, table.definition.begin_of_format("iceberg"))
    for seq in range(first, table.snapshot().seq + 1):
        old = table.scan(as_of=seq).to_arrow()
        assert lake.rows(name, old.schema, seq=seq) == bag(old), (seq, done)
    assert table.check().ok


SOURCES = {
    "duckdb": "iceberg_scan('{}')",
    "clickhouse": "icebergLocal('{}')",
    "sail": "iceberg.`{}`",
}
"""Engine without a JVM -> how its SQL names a table."""


@pytest.fixture(scope="module")
def engine(request, tmp_path_factory):
    with DeltaEngine(request.param, tmp_path_factory.mktemp(request.param)) as started:
        yield started


READ = [("duckdb", MOR), ("duckdb", COW), ("clickhouse", COW), ("sail", COW)]
"""Engines and the types of tables that they read: only DuckDB reads deletion vectors of Iceberg."""


@pytest.mark.parametrize("number", range(HISTORIES))
@pytest.mark.parametrize(("engine", "kind"), READ, indirect=["engine"])
def test_engines_without_a_jvm_read_each_state(engine, tmp_path, kind, number, monkeypatch):
    # Sail 0.7 does not find files whose path a URI encodes
    is_partitioned = number % 4 < 2 and engine.name != "sail"
    if number % 2:
        monkeypatch.setattr(tree, "FILES_MAX", {0: 3, 1: 2})
    draw, done = random.Random(f"{kind} {number}"), []
    table = make(tmp_path, kind, BOTH, is_partitioned=is_partitioned)
    table.upsert(rows(range(40), 1))
    source = SOURCES[engine.name].format(tmp_path)
    for ts in range(2, STEPS):
        done.append(step(table, draw, ts))
        where = draw.choice(FILTERS)
        found = engine.result(f"select * from {source} where {where}")
        expected = bag(table.scan(where).to_arrow())
        assert bag(as_declared(found, table.schema)) == expected, (where, done)
    if engine.name == "duckdb":
        for seq in range(max(1, table.snapshot().retention.horizon), table.snapshot().seq + 1):
            version = f"iceberg_scan('{tmp_path}', snapshot_from_id => {seq})"
            old = table.scan(as_of=seq).to_arrow()
            found = engine.result(f"select * from {version}")
            assert bag(as_declared(found, old.schema)) == bag(old), (seq, done)


REFUSED = (
    "call lake.system.expire_snapshots(table => '{t}', older_than => current_timestamp(), retain_last => 1)",
    "call lake.system.remove_orphan_files(table => '{t}', older_than => current_timestamp())",
    "drop table {t} purge",
)
COMMITTED = (
    "call lake.system.rewrite_data_files(table => '{t}', options => map('rewrite-all', 'true'))",
    "call lake.system.rewrite_manifests(table => '{t}')",
    "call lake.system.rewrite_position_delete_files(table => '{t}', options => map('rewrite-all', 'true'))",
    "insert into {t} select * from {t} where id < 3",
    "delete from {t} where id = 1",
    "update {t} set ts = 0 where id < 5",
    "merge into {t} a using (select 2 id) b on a.id = b.id when matched then delete",
    "alter table {t} add column (more int)",
    "call lake.system.rollback_to_snapshot(table => '{t}', snapshot_id => 2)",
)


def table_to_attack(lake, kind, *, is_partitioned=False):
    table, name = lake.table(kind, BOTH, is_partitioned=is_partitioned)
    for ts in range(1, 5):
        table.upsert(rows(range(ts, 40, ts), ts))
    return table, name, {(info.path, info.size) for info in table.storage.list("")}


def assert_usable_with_all_files(lake, table, name, before):
    table.upsert(rows([1], 9))
    assert lake.rows(name, SCHEMA) == bag(table.scan().to_arrow())
    for seq in range(1, table.snapshot().seq + 1):
        assert lake.rows(name, SCHEMA, seq=seq) == bag(table.scan(as_of=seq).to_arrow())
    files = {(info.path, info.size) for info in table.storage.list("")}
    pointer = {"metadata/version-hint.text", "metadata/.version-hint.text.crc"}
    assert {path for path, _ in before - files} <= pointer | {".hoodie/.mdt/hint"}


@pytest.mark.parametrize("kind", [MOR, COW])
@pytest.mark.parametrize("attack", REFUSED)
def test_iceberg_refuses_maintenance_that_deletes_our_files(lake, kind, attack):
    table, name, before = table_to_attack(lake, kind)
    with pytest.raises(Refused, match=r"GC is disabled|gc\.enabled"):
        lake.engine.run(attack.format(t=name))
    assert {(info.path, info.size) for info in table.storage.list("")} == before
    assert_usable_with_all_files(lake, table, name, before)
    assert table.check().ok


@pytest.mark.parametrize("kind", [MOR, COW])
@pytest.mark.parametrize("attack", COMMITTED)
def test_our_next_write_refuses_an_iceberg_commit_until_a_repair_removes_it(
    lake, kind, attack, monkeypatch
):
    monkeypatch.setattr(tree, "FILES_MAX", {0: 2, 1: 2})  # so that there are manifests to join
    table, name, before = table_to_attack(lake, kind, is_partitioned="manifests" in attack)
    lake.engine.run(attack.format(t=name))
    if table.storage.size("metadata/v5.metadata.json") is None:
        assert "position_delete" in attack, "Iceberg has committed nothing"
    else:
        with pytest.raises(Unsupported, match="another writer.* has written metadata/v5"):
            table.upsert(rows([1], 8))
        table.repair()
    assert_usable_with_all_files(lake, table, name, before)
    unexpected_files = {problem.path for problem in table.check().problems}
    data_files = {info.path for info in table.storage.list("data")}
    assert unexpected_files <= data_files, "the check may report data files of Spark only"
