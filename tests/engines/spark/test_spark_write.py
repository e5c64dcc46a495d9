"""Writes on Spark leave the same table as the same writes in process, whatever happens to their
tasks.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import failing_tasks
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import RDD
from pyspark.sql import SparkSession
from reader import bag, hudi_table
from sql_tables import settings
from texts import columns
from trees import tree

import mdt
from mdt.commit.recovery import pending
from mdt.engines import tasks, write_tasks
from mdt.engines.spark import engine, failures
from mdt.errors import Conflict, Corrupt, Invalid, Unavailable, Unsupported
from mdt.table import Table
from mdt.write.rules import Upserting

SCHEMA = columns("id string not null, sub int32, city string, ts int64, x float64")
ON_SPARK = {"mdt.spark.local.bytes.max": 0}
COUNTS = ("inserted", "updated", "deleted", "late", "missing")
UNFLUSHED = {"mdt.durable": False}
PLAIN = {"key": ["id"], "ordering": "ts", "options": UNFLUSHED}


CITIES = ["ä b/%2F", "y"]


def rows(draw, numbers, *, scope="table"):
    """Return one row for each number; equal numbers give equal keys.  No two rows of a batch have
    one ordering value.

    A third of the rows have no city: under table scope those of some keys, since a key does not
    move there; under partition scope any.
    """
    ordering = draw.sample(range(10 * len(numbers) + 10), len(numbers))
    return [
        {
            "id": f"k{n // 2}",
            "sub": n % 2,
            "city": draw.choice(
                [*CITIES, None] if scope == "partition" else CITIES if n // 2 % 3 else [None]
            ),
            "ts": ts,
            "x": draw.random(),
        }
        for n, ts in zip(numbers, ordering, strict=True)
    ]


def arrow(some):
    return pa.Table.from_pylist(some, schema=SCHEMA)


@pytest.fixture(autouse=True)
def interpreted(spark, request):
    """Spare Spark the compiling, which takes longer than running, in all but two tests."""
    compiled = any(word in request.node.name for word in ("types", "MERGE_ON_READ-bloom"))
    spark.conf.set("spark.sql.codegen.wholeStage", str(compiled).lower())
    yield
    spark.conf.unset("spark.sql.codegen.wholeStage")


def contents(folder):
    """Return every file below ``folder`` with its bytes."""
    return {path: data for path, data in tree(folder).items() if data is not None}


def frame_of(spark, data, partitions=3):
    return spark.createDataFrame(data).repartition(partitions)


def scanned(table):
    return bag(table.scan().to_arrow())


def assert_sound(table, *, hudi=True):
    """Assert that nothing is wrong, nothing is under way, and no file is there that no commit
    knows.
    """
    report = table.check()
    assert report.ok and not report.warnings, report
    assert not pending(table.metadata)
    records = [table.metadata.record(seq) for seq in range(table.snapshot().seq + 1)]
    files = {name for r in records if r for name in r.table("files")["name"].to_pylist()}
    objects = {
        p
        for r in records
        if r
        for t in ("files", "key_parts")
        for p in r.table(t).column("key_map_path" if t == "files" else "path").to_pylist()
    }
    for path in contents(Path(table.path)):
        name = path.rpartition("/")[2]
        if ".hoodie" not in path and not name.startswith("."):
            assert name in files, "an orphan file"
        if ".mdt/attachments" in path:
            assert path in objects, "an orphan summary"
    if hudi:
        found = table.scan().to_arrow()
        assert bag(hudi_table(table.path, found.schema)) == bag(found)


@dataclass
class Pair:
    """Two tables of one kind: one written on Spark, one in process."""

    spark: SparkSession
    on_spark: Table
    in_process: Table

    def run(self, name, some):
        data = arrow(some)
        theirs = getattr(self.on_spark, name)(frame_of(self.spark, data))
        ours = getattr(self.in_process, name)(data)
        assert theirs.engine == "spark"
        assert [getattr(theirs, c) for c in COUNTS] == [getattr(ours, c) for c in COUNTS], name
        assert scanned(self.on_spark) == scanned(self.in_process), name
        return theirs


def pair(spark, folder, **arguments):
    options = {
        **UNFLUSHED,
        "mdt.max.file.bytes": 1024,
        "mdt.row.group.rows": 50,
        "mdt.metadata.compact.records": 3,
    }
    both = [
        mdt.create(folder / name, SCHEMA, **{**PLAIN, "options": options, **arguments})
        for name in ("spark", "arrow")
    ]
    return Pair(spark, mdt.open(both[0].path, options=ON_SPARK), both[1])


HISTORIES = [
    {
        "table_type": "MERGE_ON_READ",
        "key_index": "bloom",
        "scope": "partition",
        "partition_by": ["city"],
        "key": ["id", "sub"],
    },
    {
        "table_type": "MERGE_ON_READ",
        "key_index": "record",
        "scope": "table",
        "partition_by": ["city"],
    },
    {
        "table_type": "COPY_ON_WRITE",
        "key_index": "bloom",
        "scope": "table",
        "partition_by": ["city", "sub"],
        "key": ["sub", "id"],
    },
    {
        "table_type": "COPY_ON_WRITE",
        "key_index": "bucket(buckets='3', partitions='[02468a-m]$,5')",
        "scope": "partition",
        "partition_by": ["city"],
        "key": ["id", "sub"],
    },
]


@pytest.mark.parametrize(
    "arguments", HISTORIES, ids=lambda a: f"{a['table_type']}-{a['key_index']}-{a['scope']}"
)
def test_a_random_history_leaves_the_same_rows_and_counts_as_in_process(spark, tmp_path, arguments):
    both = pair(spark, tmp_path, **arguments)
    draw = random.Random(str(arguments))
    first = both.run("bulk_insert", rows(draw, range(0, 800, 2), scope=arguments["scope"]))
    assert first.inserted == 400
    files = both.on_spark.files()
    in_partition = max(
        files["partition"].to_pylist().count(p) for p in set(files["partition"].to_pylist())
    )
    assert in_partition > 1, "the range cut must be at work"
    both.run(
        "upsert", rows(draw, [draw.randrange(900) for _ in range(300)], scope=arguments["scope"])
    )
    both.run("delete", rows(draw, draw.sample(range(1000), 60), scope=arguments["scope"]))
    both.run(
        "upsert", rows(draw, [draw.randrange(1100) for _ in range(200)], scope=arguments["scope"])
    )
    found = both.on_spark.scan().to_arrow().to_pylist()
    bare, placed = (
        {(r["id"], r["sub"]) for r in found if (r["city"] is None) is is_bare}
        for is_bare in (True, False)
    )
    assert bool(bare & placed) == (arguments["scope"] == "partition")
    assert_sound(both.on_spark)


@pytest.mark.parametrize("scope", ["partition", "table"])
def test_a_delete_by_a_large_data_frame_is_that_in_process_and_brings_no_row_to_the_driver(
    spark, tmp_path, monkeypatch, scope
):
    """Also of what the table remembers of deletes, by the ordering values of the frame."""
    options = {**UNFLUSHED, "mdt.delete.keeps.ordering": True, "mdt.max.file.bytes": 2048}
    both = pair(spark, tmp_path, scope=scope, partition_by=["city"], options=options)
    draw = random.Random(scope)
    both.run("upsert", rows(draw, range(0, 400, 2), scope=scope))
    brought = []
    jobs = []
    for name in ("count_tagged", "select", "sample_inserts"):
        asked = getattr(engine.SparkEngine, name)
        monkeypatch.setattr(
            engine.SparkEngine,
            name,
            lambda *of, asked=asked, **more: brought.append(asked(*of, **more)) or brought[-1],
        )
    for name in ("collect", "take"):
        asked = getattr(RDD, name)
        monkeypatch.setattr(
            RDD, name, lambda *of, asked=asked, name=name: jobs.append(name) or asked(*of)
        )
    gone = rows(draw, range(0, 500, 4), scope=scope)
    both.run("delete", [{**row, "ts": row["ts"] // 2} for row in gone])
    assert len(jobs) == len(brought) + 1, "and what tasks wrote"
    told = [
        text
        for found in brought
        if "__mdt_key" in found.column_names
        for text in found["__mdt_key"].to_pylist()
    ]
    assert not any("id" in found.column_names for found in brought)
    assert told and all(text.isdecimal() for text in told), "ordering values, no keys"
    monkeypatch.undo()
    assert_sound(both.on_spark, hudi=False)


def test_a_frame_without_rows_or_with_late_rows_only_commits_nothing(spark, tmp_path):
    both = pair(spark, tmp_path)
    both.run(
        "upsert",
        [{**row, "ts": 1000 + row["ts"]} for row in rows(random.Random(1), range(40))][::2],
    )
    before = contents(tmp_path / "spark")
    assert both.run("upsert", []).seq == 1
    late = both.run("upsert", [{**row, "ts": 0} for row in rows(random.Random(2), range(40))][::2])
    assert (late.seq, late.instant, late.late) == (1, "", 20)
    assert contents(tmp_path / "spark") == before


def test_a_small_frame_is_written_in_process(spark, tmp_path):
    table = mdt.create(tmp_path / "t", SCHEMA, **PLAIN)
    small = arrow(rows(random.Random(0), range(0, 20, 2)))
    assert table.upsert(frame_of(spark, small)).engine == "arrow"
    unknown = spark.sparkContext.parallelize([tuple(r.values()) for r in small.to_pylist()], 2)
    # Spark knows nothing of its size
    frame = spark.createDataFrame(unknown, frame_of(spark, small).schema)
    assert table.upsert(frame).engine == "arrow"
    assert scanned(table) == bag(small)


BAD = {
    "a wrong type": (
        "upsert",
        "id",
        ["cast(id as binary) id", "sub", "city", "ts", "x"],
        "column 'id' is binary",
    ),
    "a missing column": ("upsert", "x", ["city", "id", "sub", "ts"], "'x' is missing"),
    "a column too many": ("upsert", "z", ["*", "1 as z"], "'z' is not in the table"),
    "a column twice": ("upsert", "x", ["*", "1.0D as x"], "repeated column names"),
    "a type of no table": ("upsert", "x", ["id", "sub", "city", "ts", "parse_json('1') x"], "x"),
    "a null key": (
        "upsert",
        "id",
        ["if(id = 'k3', null, id) id", "sub", "city", "ts", "x"],
        "null",
    ),
    "a null ordering value": (
        "upsert",
        "ts",
        ["id", "sub", "city", "if(id = 'k3', null, ts) ts", "x"],
        "null in 1 rows\n",
    ),
    "an empty partition value": ("upsert", "c", ["id", "sub", "'' as city", "ts", "x"], "is empty"),
    "a key that exists": ("insert", "k3", ["*"], "1 keys exist already: \\['k3'\\]"),
    "a key twice": (
        "bulk_insert",
        "k9",
        ["explode(array('k9', 'k9')) id", "sub", "city", "ts", "x"],
        "repeat",
    ),
}


def test_bad_input_is_refused_in_our_words_and_changes_nothing(spark, tmp_path):
    table = mdt.create(tmp_path / "t", SCHEMA, partition_by=["city"], **PLAIN)
    row = {"id": "k3", "sub": 0, "city": "y", "ts": 13, "x": 0.5}
    table.upsert(arrow([row]))
    table = mdt.open(table.path, options=ON_SPARK)
    before = contents(tmp_path)
    for what, (operation, _, selected, message) in BAD.items():
        frame = spark.createDataFrame(arrow([row])).selectExpr(*selected)
        with pytest.raises(Invalid, match=message):
            getattr(table, operation)(frame)
        assert contents(tmp_path) == before, what


def test_all_types_survive_the_way_through_spark(spark, tmp_path):
    fields = [
        pa.field("id", pa.int64(), nullable=False),
        ("m", pa.decimal128(20, 3)),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
        ("b", pa.binary()),
        ("f", pa.float32()),
        ("t", pa.bool_()),
        ("tags", pa.list_(pa.string())),
        ("s", pa.struct([("p", pa.int32()), ("q", pa.list_(pa.float64()))])),
        ("map", pa.map_(pa.string(), pa.int64())),
    ]
    schema = pa.schema(fields)
    full = [
        1,
        Decimal("12345678901234567.891"),
        datetime(2026, 3, 8, 2, 30, 0, 1, UTC),
        datetime(2026, 3, 8, 2, 30, 0, 1),
        date(1969, 12, 31),
        b"\x00\xff",
        0.7,
        True,
        ["a", None, ""],
        {"p": None, "q": [0.5, None]},
        [("k", None)],
    ]
    odd = [
        2,
        Decimal("-0.001"),
        datetime(1, 1, 3, tzinfo=UTC),
        datetime(1, 1, 3),
        date(9999, 12, 31),
        b"",
        float("-inf"),
        False,
        [],
        {"p": 1, "q": None},
        [],
    ]
    data = pa.Table.from_pylist(
        [dict(zip(schema.names, row, strict=True)) for row in (full, odd, [3, *[None] * 10])],
        schema=schema,
    )
    table = mdt.create(tmp_path / "t", schema, key=["id"], ordering="id", options=UNFLUSHED)
    forced = mdt.open(table.path, options=ON_SPARK)
    # Spark takes naive times of an Arrow table for local ones
    pq.write_table(data, tmp_path / "data.parquet")
    frame = spark.read.parquet(str(tmp_path / "data.parquet"))
    assert forced.upsert(frame.repartition(2)).inserted == 3
    forced.upsert(frame.where("id > 1"))

    def plain(found):
        return found.select(schema.names).cast(schema).sort_by("id").to_pylist()

    assert plain(table.scan().to_arrow()) == data.to_pylist()
    assert plain(mdt.read(spark, table.path).toArrow()) == data.to_pylist()
    assert plain(hudi_table(table.path, schema)) == data.to_pylist()
    assert_sound(table, hudi=False)


@pytest.mark.parametrize(
    ("zone", "options"), [("UTC", {}), ("America/New_York", {}), ("America/New_York", ON_SPARK)]
)
def test_what_is_null_may_have_required_fields(spark, tmp_path, zone, options):
    at = "struct(id as n, timestamp_seconds(id) as at)"
    frame = spark.range(6).selectExpr(
        "id",
        f"if(id = 1, null, {at}) as one",
        f"array({at}, null) as many",
        f"map('a', {at}, 'b', null) as named",
    )
    with settings(spark, {"spark.sql.session.timeZone": zone}):
        table = mdt.create(tmp_path / "t", frame.schema, key=["id"], options=UNFLUSHED | options)
        assert table.upsert(frame).engine == ("spark" if options else "arrow")
    whole = [{"n": n, "at": datetime.fromtimestamp(n, UTC)} for n in range(6)]
    assert table.scan(order_by="id").to_arrow().to_pylist() == [
        {
            "id": n,
            "one": one if n != 1 else None,
            "many": [one, None],
            "named": [("a", one), ("b", None)],
        }
        for n, one in enumerate(whole)
    ]
    assert (
        bag(table.scan().to_arrow()) == bag(hudi_table(table.path, table.schema))
        and table.check().ok
    )


def test_tasks_cut_inserts_in_the_order_of_the_key_columns_types(spark, tmp_path):
    n = 3_000
    numbers = [7 * i % n - 50 for i in range(n)]
    at = pa.array([i // 1_000 for i in numbers], pa.timestamp("us", "UTC"))
    data = pa.table({"at": at, "id": numbers, "x": [0.5] * n})
    options = {**UNFLUSHED, "mdt.max.file.bytes": 4096, "mdt.row.group.rows": 200}
    for name, key in (("one", ["id"]), ("two", ["at", "id"])):
        table = mdt.create(tmp_path / name, data.schema, key=key, options=options)
        mdt.open(table.path, options=ON_SPARK).bulk_insert(frame_of(spark, data))
        assert len(table.snapshot()) > 3
        found = table.scan("id between 99 and 101").explain()
        assert found.files_read <= 2, found
        assert_sound(table)


# --- tasks that fail ---------------------------------------------------------------------------------------------------


def test_an_attempt_that_was_lost_leaves_no_files(spark, tmp_path, monkeypatch):
    both = pair(spark, tmp_path, partition_by=["city"], key_index="record")
    both.run("upsert", rows(random.Random(1), range(0, 300, 2)))
    monkeypatch.setattr(write_tasks, "write", failing_tasks.fails_first)
    both.run("upsert", rows(random.Random(2), range(0, 400, 2)))
    both.run("delete", rows(random.Random(3), range(0, 500, 10)))
    assert_sound(both.on_spark)


def test_a_job_that_fails_is_rolled_back_and_says_why(spark, tmp_path, monkeypatch):
    both = pair(spark, tmp_path)
    both.run("upsert", rows(random.Random(1), range(0, 30, 2)))
    before = contents(tmp_path)
    monkeypatch.setattr(write_tasks, "write", failing_tasks.finds_damage)
    with pytest.raises(Corrupt, match=r"a block is damaged \[p at byte 3\]\n  hint: restore it"):
        both.on_spark.upsert(frame_of(spark, arrow(rows(random.Random(2), range(0, 20, 2)))))
    assert contents(tmp_path) == before
    monkeypatch.setattr(write_tasks, "write", failing_tasks.loses_its_executor)
    with pytest.raises(
        Unavailable, match="could not write the files: RuntimeError: this executor was lost"
    ):
        both.on_spark.upsert(frame_of(spark, arrow(rows(random.Random(2), range(0, 20, 2)))))
    assert len(both.on_spark.abort().rolled_back) == 1
    assert {p: d for p, d in contents(tmp_path).items() if "/.mdt/log/" not in p} == {
        p: d for p, d in before.items() if "/.mdt/log/" not in p
    }
    assert_sound(both.on_spark)


def test_errors_keep_their_kind_from_task_to_driver():
    class FromSpark(failures.PySparkException):
        def __str__(self):
            return self.text

        def __init__(self, text):
            self.text = text

    for error in (Invalid('a "null"\n\u00e4', hint="fill it"), Conflict("c"), Unavailable("u")):
        with pytest.raises(failures.TaskFailed) as told, failures.in_task():
            raise error
        with pytest.raises(type(error)) as found, failures.in_driver():
            raise FromSpark(
                f"Traceback (most recent call last):\n  TaskFailed: {told.value}\n\n\tat java"
            )
        assert str(found.value) == str(error)
    with (
        pytest.raises(Unsupported, match="workers lacks the package 'pyarrow'"),
        failures.in_driver(),
    ):
        raise FromSpark("ModuleNotFoundError: No module named 'pyarrow'")
    with pytest.raises(FromSpark), failures.in_driver():
        raise FromSpark("a user's function failed")
    with (
        pytest.raises(Unavailable, match="could not write the files: executor lost"),
        failures.in_driver("write the files"),
    ):
        raise FromSpark("\nexecutor lost\n\tat java")


def test_a_worker_that_sees_another_table_refuses(tmp_path):
    table = mdt.create(tmp_path / "t", SCHEMA, **PLAIN)
    for source in (
        tasks.Source(str(tmp_path / "nowhere"), table.definition.table_id, 0, (), -1, ""),
        tasks.Source(table.path, "another id", 0, (), -1, ""),
        tasks.Source(table.path, table.definition.table_id, 7, (), -1, ""),
    ):
        with pytest.raises(Unsupported, match="cannot find"):
            list(
                tasks.tag(
                    Upserting(), source, iter(arrow(rows(random.Random(0), [1])).to_batches())
                )
            )


def test_a_worker_does_not_take_a_copy_that_was_put_back_for_the_table_that_it_keeps(
    tmp_path,
):
    path, aside = tmp_path / "t", tmp_path / "aside"
    mdt.create(path, SCHEMA, **PLAIN)
    shutil.copytree(path, aside)

    def written(numbers):
        table = mdt.open(path, UNFLUSHED)
        table.upsert(arrow(rows(random.Random(0), numbers)))
        return tasks.source_of(table.metadata, table.metadata.newest(), table.options)

    first = written(range(0, 10, 2))
    assert int(tasks.open_table(first)[1].rows.sum()) == 5
    shutil.rmtree(path)
    shutil.copytree(aside, path)
    other = written(range(0, 18, 2))
    assert (other.seq, other.table_id, other.checkpoint_seq) == (
        first.seq,
        first.table_id,
        first.checkpoint_seq,
    )
    assert int(tasks.open_table(other)[1].rows.sum()) == 9
    with pytest.raises(Unsupported, match="cannot find"):
        tasks.open_table(first)


@pytest.mark.parametrize("name", ["upsert", "bulk_insert"])
@pytest.mark.parametrize("ordering", [None, "ts"])
@pytest.mark.parametrize("scope", ["partition", "table"])
def test_deleted_keys_return_to_the_file_groups_of_their_dead_rows(
    spark, tmp_path, name, ordering, scope
):
    both = pair(
        spark, tmp_path, key_index="record", scope=scope, partition_by=["city"], ordering=ordering
    )
    draw = random.Random(5)
    first = [row | {"city": "y"} for row in rows(draw, range(0, 120, 2))]
    both.run("upsert", first)
    gone = first[::4]
    both.run("delete", gone)
    fresh = [row | {"city": "y"} for row in rows(draw, range(200, 240, 2))]
    result = both.run(name, [*({**row, "x": 7.0} for row in gone), *fresh])
    assert (result.inserted, result.updated) == (len(gone) + len(fresh), 0)
    assert_sound(both.on_spark)
    assert_sound(both.in_process)


@pytest.mark.parametrize("scope", ["partition", "table"])
def test_an_overwrite_by_a_large_data_frame_replaces_what_one_in_process_does(
    spark, tmp_path, scope
):
    draw = random.Random(scope)
    first, second = (
        arrow(rows(draw, range(60))),
        arrow([r for r in rows(draw, range(40, 90)) if r["city"] != "y"]),
    )
    found = []
    for name, options in (("here", {}), ("tasks", ON_SPARK)):
        mdt.create(tmp_path / name, SCHEMA, partition_by=["city"], scope=scope, **PLAIN).upsert(
            first
        )
        table = mdt.open(tmp_path / name, options)
        done = table.insert_overwrite(spark.createDataFrame(second))
        assert done.engine == ("spark" if options else "arrow")
        seen = bag(table.scan().to_arrow())
        assert seen == bag(hudi_table(tmp_path / name, SCHEMA)) and table.check().ok
        found.append((seen, [getattr(done, count) for count in COUNTS]))
    assert found[0] == found[1]


def test_tasks_take_rows_of_a_session_whose_texts_are_large_ones(spark, tmp_path):
    name = "spark.sql.execution.arrow.useLargeVarTypes"
    draw = random.Random(name)
    both = pair(spark, tmp_path, partition_by=["city"])
    with settings(spark, {name: "true"}):
        both.run("upsert", rows(draw, range(300)))
        both.run("delete", rows(draw, range(0, 300, 7)))
    assert_sound(both.on_spark)
