"""Random histories of tables that are Hudi, Delta and Iceberg tables at once, with random columns,
options, operations and services. After each step all readers must return the rows of our scan.

``MDT_FORMAT_HISTORIES=1000`` runs more histories. The history of a number is always the same.
"""

from __future__ import annotations

import os
import random
from typing import Any

import delta_tables
import iceberg_tables
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from column_kinds import COLUMNS, PARTITION_VALUES
from counting import count
from delta_engine import DeltaEngine
from reader import READ_OPTIMIZED, bag, hudi_table
from worlds import COW, MOR, compact_logs

import mdt
from mdt.formats.delta import places, vectors
from mdt.formats.iceberg import tree
from mdt.stores.storage import LocalStorage
from mdt.table import Table

deltalake = pytest.importorskip("deltalake")
polars = pytest.importorskip("polars")
pyiceberg_table = pytest.importorskip("pyiceberg.table")

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1_800)]

HISTORIES = int(os.environ.get("MDT_FORMAT_HISTORIES", "8"))
STEPS = 10
FORMATS = ["hudi", "delta", "iceberg"]
KEYS = 60
REFUSED = {"instant in ms", "local time in ms", "local time in s"}
"""Kinds of columns that Iceberg does not support."""
NULLS_LOST = {"map of structs"}
"""Kinds of columns whose nulls pyiceberg 0.12 reads as empty lists."""
KINDS = sorted(COLUMNS.keys() - REFUSED)
SHARED = ["id", "city", "ts"]
"""Columns that hudi-rs reads."""


@pytest.fixture(scope="module")
def duckdb(tmp_path_factory):
    """DuckDB with its extension for Delta, or None if it cannot be installed."""
    try:
        engine = DeltaEngine("duckdb", tmp_path_factory.mktemp("duckdb"))
    except pytest.skip.Exception:
        yield None
        return
    with engine:
        yield engine


class History:
    """A random table at ``path`` and the names of the steps that changed it."""

    def __init__(self, path: Any, seed: int, patch: pytest.MonkeyPatch) -> None:
        draw = self.draw = random.Random(seed)
        self.path, self.ts = path, 0
        if draw.random() < 0.5:  # deletion vectors in files, many checkpoints and manifests
            patch.setattr(vectors, "INLINE_BYTES_MAX", 10)
            patch.setattr(places, "CHECKPOINT_COMMITS", 4)
            patch.setattr(tree, "FILES_MAX", {0: 6, 1: 3})
        kinds = draw.sample(KINDS, 3)
        columns = [(f"c{number}", COLUMNS[kind][0]) for number, kind in enumerate(kinds)]
        self.values = {name: _values(kind) for (name, _), kind in zip(columns, kinds, strict=True)}
        schema = pa.schema(
            [("id", pa.int64()), ("city", pa.string()), ("ts", pa.int64()), *columns]
        )
        self.is_partitioned, begins_later = draw.random() < 0.7, draw.random() < 0.25
        settings: dict[str, Any] = {
            "partition_by": ["city"] if self.is_partitioned else [],
            "ordering": draw.choice(["ts", None]),
            "table_type": draw.choice([MOR, MOR, COW]),
            "key_index": draw.choice(["record", "simple"]),
            "formats": ["hudi"] if begins_later else FORMATS,
        }
        options = {
            "mdt.services.auto": False,
            "mdt.formats.retain.hours": 0,
            "mdt.hive.style": draw.random() < 0.7,
            "mdt.table.version": draw.choice([6, 9]),
            "mdt.max.file.bytes": draw.choice([4096, 120 << 20]),
            "mdt.small.file.bytes": 0,
        }
        self.done: list[Any] = [seed, kinds, settings, options]
        storage = LocalStorage(path, durable=False)
        self.table = mdt.create(storage, schema, ["id"], options=options, **settings)
        self.table.upsert(self.rows(range(40)))
        if begins_later:
            self.table.compact()
            self.table.alter(formats=FORMATS)

    def rows(self, ids: Any) -> pa.Table:
        """Return a row for each number."""
        self.ts += 1
        columns: dict[str, Any] = {
            "id": list(ids),
            "city": [PARTITION_VALUES[n % len(PARTITION_VALUES)] for n in ids],
            "ts": [self.ts] * len(ids),
        }
        for name in self.table.schema.names[len(columns) :]:
            values = self.values.get(name, [None, self.ts])
            columns[name] = [self.draw.choice(values) for _ in ids]
        return pa.table(columns, schema=self.table.schema)

    def step(self) -> None:
        """Change the table at random."""
        table, draw = self.table, self.draw
        ids, number = draw.sample(range(KEYS), 12), draw.randrange(KEYS)
        present = set(table.scan(columns=["id"]).to_arrow()["id"].to_pylist())
        absent = [n for n in range(KEYS, KEYS + 40) if n not in present][:7]
        added = [name for name in table.schema.names if name.startswith("n")]
        steps = {
            "upsert": (8, lambda: table.upsert(self.rows(ids))),
            "insert": (2, lambda: table.insert(self.rows(absent))),
            "bulk insert": (1, lambda: table.bulk_insert(self.rows(absent))),
            "delete": (4, lambda: table.delete(self.rows(ids[:5]).select(["id", "city"]))),
            "delete where": (1, lambda: table.delete_where(f"id = {number} or ts < 2")),
            "update where": (3, lambda: table.update_where({"ts": "ts + 1"}, f"id < {number}")),
            "merge": (2, lambda: self._merge(ids)),
            "overwrite": (1, lambda: table.insert_overwrite(self.rows(ids[:3]))),
            "overwrite all": (0.3, lambda: table.insert_overwrite_table(self.rows(ids))),
            "delete partition": (0.5, lambda: self._delete_partition(number)),
            "compact": (2, table.compact),
            "compact logs": (2, lambda: compact_logs(table)),
            "cluster": (1, lambda: table.cluster("ts")),
            "tidy": (1, table.tidy),
            "clean": (2, lambda: table.clean(retain_commits=draw.randrange(1, 5))),
            "restore": (1, self._restore),
            "purge": (0.3, table.purge),
            "upgrade": (0.3, lambda: table.upgrade(9)),
            "add a column": (1, lambda: table.alter(add={f"n{table.snapshot().seq}": pa.int32()})),
            "drop a column": (0.5, lambda: added and table.alter(drop=added[:1])),
            "index": (0.5, lambda: table.create_index("bitmap(ts)")),
        }
        [name] = draw.choices(list(steps), [weight for weight, _ in steps.values()])
        self.done.append(name)
        steps[name][1]()

    def _merge(self, ids: list[int]) -> None:
        source = self.rows(ids)
        merge = self.table.merge(source).when_matched("source.id % 2 = 0").delete()
        merge.when_matched().update("*").when_not_matched().insert("*").execute()

    def _delete_partition(self, number: int) -> None:
        if self.is_partitioned:
            self.table.delete_partition({"city": PARTITION_VALUES[number % len(PARTITION_VALUES)]})

    def _restore(self) -> None:
        newest = self.table.snapshot()
        begin = max(newest.definition.begin_of_format(name) for name in FORMATS[1:])
        oldest = max(newest.retention.horizon, begin, 1)
        seq = self.draw.randrange(oldest, newest.seq + 1)
        if self.table.scan(as_of=seq).schema == self.table.schema:
            self.table.restore(seq)


def _values(kind: str) -> list[Any]:
    values = COLUMNS[kind][1]
    return [value for value in values if value is not None or kind not in NULLS_LOST]


def assert_same_rows(history: History, duckdb: DeltaEngine | None) -> None:
    """Assert that readers of all formats return the newest rows."""
    table, path = history.table, history.path
    rows = table.scan().to_arrow()
    expected = bag(rows)
    results = [
        ("our reader of Delta", delta_tables.delta_rows(table.storage, table.schema)),
        ("our reader of Iceberg", iceberg_tables.iceberg_rows(table.storage, table.schema)),
        *delta_tables.others_rows(path, table.schema),
        *iceberg_tables.others_rows(path, table.schema),
    ]
    if duckdb is not None:
        rows_found = delta_tables.as_declared(duckdb.rows(path), table.schema)
        results.append(("DuckDB", rows_found))
    for name, rows_found in results:
        assert bag(rows_found) == expected, name
        count(f"states of other formats read by {name}")
    schema = pa.schema([table.schema.field(name) for name in SHARED])
    assert bag(hudi_table(path, schema)) == bag(rows.select(SHARED)), "hudi-rs"
    count("states of other formats read by hudi-rs")
    base = table.scan(columns=SHARED, query_type="read_optimized").to_arrow()
    for name, rows_found in (("ours", base), ("hudi-rs", hudi_table(path, schema, READ_OPTIMIZED))):
        assert len(pc.unique(rows_found["id"])) == len(rows_found), f"read-optimized, {name}"
        assert bag(rows_found) == bag(base), f"read-optimized, {name}"


def assert_predicates_prune(table: Table, path: Any, draw: random.Random) -> None:
    """Assert that readers return the rows of a key and of a range. Count the files they read."""
    from pyiceberg.expressions import EqualTo, GreaterThanOrEqual

    rows = table.scan(columns=["id", "ts"]).to_arrow()
    if not len(rows):
        return
    row = rows.slice(draw.randrange(len(rows)), 1).to_pylist()[0]
    static = pyiceberg_table.StaticTable.from_metadata(str(path))
    delta, all_files = deltalake.DeltaTable(str(path)), len(list(static.scan().plan_files()))
    actions = pa.table(delta.get_add_actions(flatten=True))
    for column, test, word in (("id", EqualTo, "="), ("ts", GreaterThanOrEqual, ">=")):
        value, ids = row[column], rows["id"].to_numpy()
        values = rows[column].to_numpy()
        is_match = values == value if word == "=" else values >= value
        expected = sorted(ids[is_match].tolist())
        where = f"{column} {word} {value}"
        scan = static.scan(test(column, value), selected_fields=("id",))
        lazy = polars.scan_delta(str(path)).filter(polars.sql_expr(where)).select("id")
        query = (
            deltalake.QueryBuilder().register("t", delta).execute(f"select id from t where {where}")
        )
        for ids_found in (
            scan.to_arrow()["id"],
            lazy.collect()["id"].to_arrow(),
            pa.table(query)["id"],
        ):
            assert sorted(ids_found.to_pylist()) == expected, where
        highs = actions[f"max.{column}"].to_numpy()
        lows = actions[f"min.{column}"].to_numpy()
        inside = highs >= value if word == ">=" else (lows <= value) & (highs >= value)
        count("files of Iceberg under predicates", all_files)
        count("files of Iceberg that pyiceberg plans by predicates", len(list(scan.plan_files())))
        count("files of Delta that bounds leave by predicates", int(np.count_nonzero(inside)))


def assert_every_version_is_read(history: History) -> None:
    """Assert that readers return the rows of each version that can be read."""
    table, newest = history.table, history.table.snapshot()
    begin = max(newest.definition.begin_of_format(name) for name in FORMATS[1:])
    for seq in range(max(newest.retention.horizon, begin, 1), newest.seq + 1):
        old = table.scan(as_of=seq).to_arrow()
        for rows_by_reader in (delta_tables.others_rows, iceberg_tables.others_rows):
            for name, rows_found in rows_by_reader(history.path, old.schema, seq):
                assert bag(rows_found) == bag(old), (name, seq)
                count(f"versions read by {name}")


@pytest.mark.parametrize("number", range(HISTORIES))
def test_all_readers_return_the_rows_of_each_state_of_a_random_history(
    duckdb, tmp_path, number, monkeypatch
):
    history = History(tmp_path, number, monkeypatch)
    try:
        assert_same_rows(history, duckdb)
        for _ in range(STEPS):
            history.step()
            assert_same_rows(history, duckdb)
            assert_predicates_prune(history.table, tmp_path, history.draw)
        assert_every_version_is_read(history)
        assert history.table.check().ok, history.table.check()
    except Exception as error:
        error.add_note(f"the history was {history.done}")
        raise
