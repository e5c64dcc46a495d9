"""Writes on Spark leave the same table as the same writes in process, even if tasks fail."""

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
    """Return one row for each number. Equal numbers give equal keys. No two rows of a batch have
    the same ordering value.

    A third of the rows have no city: under table scope the rows of certain keys, since a key cannot
    move there, and under partition scope any rows.
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


def arrow(dicts):
    return pa.Table.from_pylist(dicts, schema=SCHEMA)


@pytest.fixture(autouse=True)
def interpreted(spark, request):
    """Switch off code generation, which takes longer than running, in all but a few tests."""
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
    """Assert that a check finds no problems, no write is pending, and every file belongs to a
    commit.
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
        stored = table.scan().to_arrow()
        assert bag(hudi_table(table.path, stored.schema)) == bag(stored)


@dataclass
class Pair:
    """Two equal tables: one written on Spark, one in process."""

    spark: SparkSession
    on_spark: Table
    in_process: Table

    def run(self, name, dicts):
        data = arrow(dicts)
        on_spark = getattr(self.on_spark, name)(frame_of(self.spark, data))
        in_process = getattr(self.in_process, name)(data)
        assert on_spark.engine == "spark"
        assert [getattr(on_spark, c) for c in COUNTS] == [getattr(in_process, c) for c in COUNTS], (
            name
        )
        assert scanned(self.on_spark) == scanned(self.in_process), name
        return on_spark


def pair(spark, folder, **arguments):
    options = {
        **UNFLUSHED,
        "mdt.max.file.bytes": 1024,
        "mdt.row.group.rows": 50,
        "mdt.metadata.compact.records": 3,
    }
    tables = [
        mdt.create(folder / name, SCHEMA, **{**PLAIN, "options": options, **arguments})
        for name in ("spark", "arrow")
    ]
    return Pair(spark, mdt.open(tables[0].path, options=ON_SPARK), tables[1])


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
    tables = pair(spark, tmp_path, **arguments)
    draw = random.Random(str(arguments))
    first = tables.run("bulk_insert", rows(draw, range(0, 800, 2), scope=arguments["scope"]))
    assert first.inserted == 400
    files = tables.on_spark.files()
    most_files = max(
        files["partition"].to_pylist().count(p) for p in set(files["partition"].to_pylist())
    )
    assert most_files > 1, "a partition must be split into several files at keys"
    tables.run(
        "upsert", rows(draw, [draw.randrange(900) for _ in range(300)], scope=arguments["scope"])
    )
    tables.run("delete", rows(draw, draw.sample(range(1000), 60), scope=arguments["scope"]))
    tables.run(
        "upsert", rows(draw, [draw.randrange(1100) for _ in range(200)], scope=arguments["scope"])
    )
    remaining = tables.on_spark.scan().to_arrow().to_pylist()
    without_city, with_city = (
        {(r["id"], r["sub"]) for r in remaining if (r["city"] is None) is lacks_city}
        for lacks_city in (True, False)
    )
    assert bool(without_city & with_city) == (arguments["scope"] == "partition")
    assert_sound(tables.on_spark)


@pytest.mark.parametrize("scope", ["partition", "table"])
def test_a_delete_by_a_large_frame_equals_one_in_process_and_collects_no_rows(
    spark, tmp_path, monkeypatch, scope
):
    """Includes the deletes that the table remembers, by the ordering values of the frame."""
    options = {**UNFLUSHED, "mdt.delete.keeps.ordering": True, "mdt.max.file.bytes": 2048}
    tables = pair(spark, tmp_path, scope=scope, partition_by=["city"], options=options)
    draw = random.Random(scope)
    tables.run("upsert", rows(draw, range(0, 400, 2), scope=scope))
    collected = []
    jobs = []
    for name in ("count_tagged", "select", "sample_inserts"):
        original = getattr(engine.SparkEngine, name)
        monkeypatch.setattr(
            engine.SparkEngine,
            name,
            lambda *arguments, original=original, **more: (
                collected.append(original(*arguments, **more)) or collected[-1]
            ),
        )
    for name in ("collect", "take"):
        original = getattr(RDD, name)
        monkeypatch.setattr(
            RDD,
            name,
            lambda *arguments, original=original, name=name: (
                jobs.append(name) or original(*arguments)
            ),
        )
    deleted = rows(draw, range(0, 500, 4), scope=scope)
    tables.run("delete", [{**row, "ts": row["ts"] // 2} for row in deleted])
    assert len(jobs) == len(collected) + 1, "and one job that collects the results of tasks"
    values = [
        text
        for table in collected
        if "__mdt_key" in table.column_names
        for text in table["__mdt_key"].to_pylist()
    ]
    assert not any("id" in table.column_names for table in collected)
    assert values and all(text.isdecimal() for text in values), "only ordering values, no keys"
    monkeypatch.undo()
    assert_sound(tables.on_spark, hudi=False)


def test_a_frame_without_rows_or_with_only_late_rows_commits_nothing(spark, tmp_path):
    tables = pair(spark, tmp_path)
    tables.run(
        "upsert",
        [{**row, "ts": 1000 + row["ts"]} for row in rows(random.Random(1), range(40))][::2],
    )
    before = contents(tmp_path / "spark")
    assert tables.run("upsert", []).seq == 1
    late = tables.run(
        "upsert", [{**row, "ts": 0} for row in rows(random.Random(2), range(40))][::2]
    )
    assert (late.seq, late.instant, late.late) == (1, "", 20)
    assert contents(tmp_path / "spark") == before


def test_a_small_frame_is_written_in_process(spark, tmp_path):
    table = mdt.create(tmp_path / "t", SCHEMA, **PLAIN)
    small = arrow(rows(random.Random(0), range(0, 20, 2)))
    assert table.upsert(frame_of(spark, small)).engine == "arrow"
    rdd = spark.sparkContext.parallelize([tuple(r.values()) for r in small.to_pylist()], 2)
    # Spark does not know its size
    frame = spark.createDataFrame(rdd, frame_of(spark, small).schema)
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


def test_invalid_input_is_refused_with_a_message_of_mdt_and_changes_nothing(spark, tmp_path):
    table = mdt.create(tmp_path / "t", SCHEMA, partition_by=["city"], **PLAIN)
    row = {"id": "k3", "sub": 0, "city": "y", "ts": 13, "x": 0.5}
    table.upsert(arrow([row]))
    table = mdt.open(table.path, options=ON_SPARK)
    before = contents(tmp_path)
    for kind, (operation, _, selected, message) in BAD.items():
        frame = spark.createDataFrame(arrow([row])).selectExpr(*selected)
        with pytest.raises(Invalid, match=message):
            getattr(table, operation)(frame)
        assert contents(tmp_path) == before, kind


def test_all_types_survive_a_round_trip_through_spark(spark, tmp_path):
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
    in_tasks = mdt.open(table.path, options=ON_SPARK)
    # Spark takes timestamps without zone in an Arrow table for local times
    pq.write_table(data, tmp_path / "data.parquet")
    frame = spark.read.parquet(str(tmp_path / "data.parquet"))
    assert in_tasks.upsert(frame.repartition(2)).inserted == 3
    in_tasks.upsert(frame.where("id > 1"))

    def plain(rows_read):
        return rows_read.select(schema.names).cast(schema).sort_by("id").to_pylist()

    assert plain(table.scan().to_arrow()) == data.to_pylist()
    assert plain(mdt.read(spark, table.path).toArrow()) == data.to_pylist()
    assert plain(hudi_table(table.path, schema)) == data.to_pylist()
    assert_sound(table, hudi=False)


@pytest.mark.parametrize(
    ("zone", "options"), [("UTC", {}), ("America/New_York", {}), ("America/New_York", ON_SPARK)]
)
def test_null_structs_may_have_required_fields(spark, tmp_path, zone, options):
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
    structs = [{"n": n, "at": datetime.fromtimestamp(n, UTC)} for n in range(6)]
    assert table.scan(order_by="id").to_arrow().to_pylist() == [
        {
            "id": n,
            "one": struct if n != 1 else None,
            "many": [struct, None],
            "named": [("a", struct), ("b", None)],
        }
        for n, struct in enumerate(structs)
    ]
    assert (
        bag(table.scan().to_arrow()) == bag(hudi_table(table.path, table.schema))
        and table.check().ok
    )


def test_tasks_split_inserts_in_the_order_of_the_types_of_key_columns(spark, tmp_path):
    n = 3_000
    numbers = [7 * i % n - 50 for i in range(n)]
    at = pa.array([i // 1_000 for i in numbers], pa.timestamp("us", "UTC"))
    data = pa.table({"at": at, "id": numbers, "x": [0.5] * n})
    options = {**UNFLUSHED, "mdt.max.file.bytes": 4096, "mdt.row.group.rows": 200}
    for name, key in (("one", ["id"]), ("two", ["at", "id"])):
        table = mdt.create(tmp_path / name, data.schema, key=key, options=options)
        mdt.open(table.path, options=ON_SPARK).bulk_insert(frame_of(spark, data))
        assert len(table.snapshot()) > 3
        plan = table.scan("id between 99 and 101").explain()
        assert plan.files_read <= 2, plan
        assert_sound(table)


# --- failing tasks ---------------------------------------------------------------------------------------------------


def test_a_lost_task_attempt_leaves_no_files(spark, tmp_path, monkeypatch):
    tables = pair(spark, tmp_path, partition_by=["city"], key_index="record")
    tables.run("upsert", rows(random.Random(1), range(0, 300, 2)))
    monkeypatch.setattr(write_tasks, "write", failing_tasks.fails_first)
    tables.run("upsert", rows(random.Random(2), range(0, 400, 2)))
    tables.run("delete", rows(random.Random(3), range(0, 500, 10)))
    assert_sound(tables.on_spark)


def test_a_failed_job_is_rolled_back_and_raises_its_cause(spark, tmp_path, monkeypatch):
    tables = pair(spark, tmp_path)
    tables.run("upsert", rows(random.Random(1), range(0, 30, 2)))
    before = contents(tmp_path)
    monkeypatch.setattr(write_tasks, "write", failing_tasks.finds_damage)
    with pytest.raises(Corrupt, match=r"a block is damaged \[p at byte 3\]\n  hint: restore it"):
        tables.on_spark.upsert(frame_of(spark, arrow(rows(random.Random(2), range(0, 20, 2)))))
    assert contents(tmp_path) == before
    monkeypatch.setattr(write_tasks, "write", failing_tasks.loses_its_executor)
    with pytest.raises(
        Unavailable, match="could not write the files: RuntimeError: this executor was lost"
    ):
        tables.on_spark.upsert(frame_of(spark, arrow(rows(random.Random(2), range(0, 20, 2)))))
    assert len(tables.on_spark.abort().rolled_back) == 1
    assert {p: d for p, d in contents(tmp_path).items() if "/.mdt/log/" not in p} == {
        p: d for p, d in before.items() if "/.mdt/log/" not in p
    }
    assert_sound(tables.on_spark)


def test_errors_keep_their_kind_from_task_to_driver():
    class FromSpark(failures.PySparkException):
        def __str__(self):
            return self.text

        def __init__(self, text):
            self.text = text

    for error in (Invalid('a "null"\n\u00e4', hint="fill it"), Conflict("c"), Unavailable("u")):
        with pytest.raises(failures.TaskFailed) as task_error, failures.in_task():
            raise error
        with pytest.raises(type(error)) as driver_error, failures.in_driver():
            raise FromSpark(
                f"Traceback (most recent call last):\n  TaskFailed: {task_error.value}\n\n\tat java"
            )
        assert str(driver_error.value) == str(error)
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


def test_a_worker_that_finds_another_table_or_none_raises_unsupported(tmp_path):
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


def test_a_worker_does_not_confuse_a_restored_copy_with_the_table_in_its_cache(
    tmp_path,
):
    path, backup = tmp_path / "t", tmp_path / "aside"
    mdt.create(path, SCHEMA, **PLAIN)
    shutil.copytree(path, backup)

    def write_rows(numbers):
        table = mdt.open(path, UNFLUSHED)
        table.upsert(arrow(rows(random.Random(0), numbers)))
        return tasks.source_of(table.metadata, table.metadata.newest(), table.options)

    first = write_rows(range(0, 10, 2))
    assert int(tasks.open_table(first)[1].rows.sum()) == 5
    shutil.rmtree(path)
    shutil.copytree(backup, path)
    other = write_rows(range(0, 18, 2))
    assert (other.seq, other.table_id, other.checkpoint_seq) == (
        first.seq,
        first.table_id,
        first.checkpoint_seq,
    )
    assert int(tasks.open_table(other)[1].rows.sum()) == 9
    with pytest.raises(Unsupported, match="cannot find"):
        tasks.open_table(first)


def file_groups(table):
    """Return the file group of each key of ``id``."""
    rows = table.scan(columns=["id", "_hoodie_file_name"]).to_arrow().to_pylist()
    return {row["id"]: row["_hoodie_file_name"].lstrip(".").partition("_")[0] for row in rows}


@pytest.mark.parametrize("name", ["upsert", "bulk_insert"])
@pytest.mark.parametrize("ordering", [None, "ts"])
@pytest.mark.parametrize("scope", ["partition", "table"])
def test_deleted_keys_return_to_their_file_groups_as_in_process(
    spark, tmp_path, name, ordering, scope
):
    tables = pair(
        spark, tmp_path, key_index="record", scope=scope, partition_by=["city"], ordering=ordering
    )
    draw = random.Random(5)
    first = [row | {"city": "y"} for row in rows(draw, range(0, 120, 2))]
    tables.run("upsert", first)
    deleted, groups = first[::4], file_groups(tables.on_spark)
    tables.run("delete", deleted)
    fresh = [row | {"city": "y"} for row in rows(draw, range(200, 240, 2))]
    result = tables.run(name, [*({**row, "x": 7.0} for row in deleted), *fresh])
    returned = file_groups(tables.on_spark)
    assert [returned[row["id"]] for row in deleted] == [groups[row["id"]] for row in deleted]
    assert (result.inserted, result.updated) == (len(deleted) + len(fresh), 0)
    assert_sound(tables.on_spark)
    assert_sound(tables.in_process)


@pytest.mark.parametrize("scope", ["partition", "table"])
def test_an_overwrite_by_a_large_frame_equals_one_in_process(spark, tmp_path, scope):
    draw = random.Random(scope)
    first, second = (
        arrow(rows(draw, range(60))),
        arrow([r for r in rows(draw, range(40, 90)) if r["city"] != "y"]),
    )
    outcomes = []
    for name, options in (("here", {}), ("tasks", ON_SPARK)):
        mdt.create(tmp_path / name, SCHEMA, partition_by=["city"], scope=scope, **PLAIN).upsert(
            first
        )
        table = mdt.open(tmp_path / name, options)
        result = table.insert_overwrite(spark.createDataFrame(second))
        assert result.engine == ("spark" if options else "arrow")
        stored = bag(table.scan().to_arrow())
        assert stored == bag(hudi_table(tmp_path / name, SCHEMA)) and table.check().ok
        outcomes.append((stored, [getattr(result, count) for count in COUNTS]))
    assert outcomes[0] == outcomes[1]


def test_tasks_accept_rows_of_a_session_with_large_strings(spark, tmp_path):
    name = "spark.sql.execution.arrow.useLargeVarTypes"
    draw = random.Random(name)
    tables = pair(spark, tmp_path, partition_by=["city"])
    with settings(spark, {name: "true"}):
        tables.run("upsert", rows(draw, range(300)))
        tables.run("delete", rows(draw, range(0, 300, 7)))
    assert_sound(tables.on_spark)
