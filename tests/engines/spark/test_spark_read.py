"""What Spark reads of a table is what the table holds, at one commit, with as few files as the
predicates allow.
"""

from __future__ import annotations

import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from reader import bag
from trees import create, tree

import mdt
from mdt.engines.spark import frame as frames
from mdt.engines.spark.private import java_frame
from mdt.errors import Invalid
from mdt.metadata.statistics import usage
from mdt.table import Table

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("day", pa.date32()),
        ("x", pa.float64()),
        ("f", pa.float32()),
        ("m", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("b", pa.binary()),
        ("note", pa.string()),
    ]
)
CITIES = ["a/b", "%2F", "two words", "ö", "x=y", None]
FLOATS = [float("nan"), -0.0, 0.0, 0.7, float("inf"), -1.5, None]
START = datetime(2026, 3, 8, 9, 0, tzinfo=UTC)  # an hour before Los Angeles loses one


def rows(ids: range, version: int = 0) -> pa.Table:
    """Return one row for each id; partition and key follow from the id, the rest from id +
    version.
    """

    def row(i: int) -> dict[str, Any]:
        n = i + version
        moment = START + timedelta(minutes=7 * n)
        return {
            "id": i,
            "city": CITIES[i % 6],
            "day": date(2026, 1, 1 + i % 2),
            "x": FLOATS[n % 7],
            "f": FLOATS[n % 7],
            "m": None if n % 11 == 0 else Decimal(n) / 4,
            "at": moment,
            "local": moment.replace(tzinfo=None),
            "b": bytes([n % 3]),
            "note": ["", "50%", "a_b\\c", f"n{n}", None][n % 5],
        }

    return pa.Table.from_pylist([row(i) for i in ids], schema=SCHEMA)


def merged(path: Path, **more: Any) -> Table:
    """Create a table with clean base files, base files with dead rows, and log files with live and
    dead rows.
    """
    arguments: dict[str, Any] = {"partition_by": ["city", "day"], "key_index": "record", **more}
    table = create(path, SCHEMA, **arguments)
    table.upsert(rows(range(60)))
    table.upsert(rows(range(0, 30, 2), 1))
    table.upsert(rows(range(0, 12, 2), 2))
    table.delete(rows(range(4, 8)))
    return table


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return merged(tmp_path_factory.mktemp("read") / "t")


def arrow(found: DataFrame) -> pa.Table:
    return found.toArrow().cast(SCHEMA)


QUERIES = {
    "select count(*), sum(id) from t": [(56, 1748)],
    "select count(*) from t a join t b on a.id = b.id where a.day = date'2026-01-02'": [(28,)],
    "with w as (select * from t where id < 20) select count(*) from w where exists (select 1 from t where t.id = 2 * w.id)": [
        (14,)
    ],
    "select id from t where id = (select max(id) from t)": [(59,)],
    "select count(*) from (select id from t union all select id from t where id >= 30)": [(86,)],
    "select city, count(*) from t where id < 12 group by city order by 1 nulls last": [
        ("%2F", 1),
        ("a/b", 1),
        ("two words", 2),
        ("x=y", 1),
        ("ö", 2),
        (None, 1),
    ],
}


def test_plain_sql_on_a_view_has_the_answers_of_sql(spark: SparkSession, table: Table) -> None:
    mdt.read(spark, table.path).createOrReplaceTempView("t")
    spark.conf.set("spark.sql.codegen.wholeStage", "false")  # compiling takes longer than running
    try:
        for text, expected in QUERIES.items():
            assert [tuple(row) for row in spark.sql(text).collect()] == expected, text
    finally:
        spark.conf.unset("spark.sql.codegen.wholeStage")


SQL = [
    "x = double('NaN')",
    "x > 0.5",
    "x = 0",
    "x <> 0.7",
    "f = 0.7",
    "f >= 0.7",
    "m > 3.1",
    "m = 2.5",
    "m <= 0.333",
    "at = timestamp'2026-03-08 09:07:00'",
    "local = timestamp'2026-03-08 09:07:00'",
    "local < '2026-03-08 10:30:00'",
    "at >= timestamp'2026-03-08 10:00:00+00:00'",
    "day = date'2026-01-02'",
    "city = 'a/b'",
    "city in ('%2F', 'ö')",
    "city is null",
    "not (city = 'x=y')",
    "note like '50\\\\%'",
    "note like 'a\\_%'",
    "note not like 'n%'",
    "b = X'01'",
    "id between 3 and 9.5",
    "id in (1, 2, 3.0, 77)",
    "id not in (1, 2, null)",
    "id = 8.5",
    "x is null or id < 2",
    "note <=> null",
]
LISTS: list[list[tuple[str, str, Any]]] = [
    [("x", "=", float("nan"))],
    [("x", "in", [float("nan"), -0.0])],
    [("x", "not in", [0.7, float("inf")])],
    [("f", "=", 0.7)],
    [("f", ">", -0.0)],
    [("m", "=", 2.5)],
    [("m", "in", [Decimal("2.5"), 3])],
    [("m", "<", Decimal("3.335"))],
    [("at", "=", START + timedelta(minutes=7))],
    [("at", "<", datetime(2026, 3, 8, 10, 30))],
    [("local", ">", datetime(2026, 3, 8, 9, 30))],
    [("day", "!=", date(2026, 1, 1))],
    [("note", "starts with", "50%")],
    [("b", "in", [b"\x00", b"\x02"])],
    [("b", "starts with", b"\x01")],
    [("x", "<=>", None)],
    [("id", ">", 2.5), ("id", "<", 9)],
    [("city", "not in", ["ö", None])],
    [("note", "like", "a\\_b\\\\c")],
]


def test_scans_on_spark_and_in_process_return_the_same_rows(
    spark: SparkSession, table: Table
) -> None:
    """One query for all filters: planning each alone would take a minute."""
    expected, parts = {}, []
    wheres: list[Any] = [*SQL, *LISTS]
    for n, where in enumerate(wheres):
        scan = table.scan(where=where)
        expected[n] = bag(scan.to_arrow())
        parts.append(frames.to_column(scan.predicate, SCHEMA).alias(f"q{n}"))  # type: ignore[arg-type]
    found = mdt.read(spark, table.path).select("*", *parts).toArrow()
    for n, where in enumerate(wheres):
        assert bag(found.filter(found[f"q{n}"]).select(SCHEMA.names).cast(SCHEMA)) == expected[n], (
            where
        )
    assert sum(map(bool, expected.values())) > 0.8 * len(wheres), (
        "most filters should match something"
    )


@pytest.mark.parametrize(
    "where", [SQL[11], SQL[15], LISTS[1], LISTS[10], "id = 4", "id = 2"], ids=str
)
def test_filters_are_true_to_the_rows_after_pruning(
    spark: SparkSession, table: Table, where: Any
) -> None:
    assert bag(arrow(table.scan(where=where).to_spark(spark))) == bag(
        table.scan(where=where).to_arrow()
    )


def test_each_commit_is_seen_by_the_next_query_and_a_scan_keeps_its_own(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = create(tmp_path / "t", SCHEMA, partition_by=["city"], key_index="record")
    view = mdt.read(spark, table.path)
    view.createOrReplaceTempView("moving")
    assert bag(arrow(view)) == bag(SCHEMA.empty_table())
    assert view.schema.fieldNames() == SCHEMA.names
    empty = table.scan()
    table.upsert(rows(range(20)))
    twenty, derived = table.scan(), view.where("id >= 10")
    assert derived.count() == 10
    ran = derived.select("id")
    assert len(ran.collect()) == 10
    for change in (
        lambda: table.upsert(rows(range(10, 40), 1)),
        lambda: table.delete(rows(range(12))),
        table.compact,
        lambda: table.upsert(rows(range(35, 36), 5)),
    ):
        change()
        assert bag(arrow(spark.sql("select * from moving"))) == bag(table.scan().to_arrow())
    assert len(ran.collect()) == 10, "what ran keeps its snapshot"
    assert bag(arrow(twenty.to_spark(spark))) == bag(rows(range(20)))
    assert empty.to_spark(spark).count() == 0


def test_a_frame_as_of_a_point_stays_there(spark: SparkSession, tmp_path: Path) -> None:
    table = merged(tmp_path / "t")
    instant = table.history()["instant"][2].as_py()
    frames_of_2 = [mdt.read(spark, table.path, as_of=2), mdt.read(spark, table.path, as_of=instant)]
    frames_of_2.append(table.scan(as_of=2).to_spark(spark))
    table.compact()
    table.upsert(rows(range(60, 70)))
    expected = bag(table.scan(as_of=2).to_arrow())
    assert [bag(arrow(frame)) for frame in frames_of_2] == [expected] * 3
    assert frames_of_2[0].where("id = 4").count() == 1, "it was deleted later"


def test_incremental_and_read_optimized_queries_on_spark_are_those_in_process(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = merged(tmp_path / "t")
    for scan in (
        table.scan(since=1),
        table.scan("x > 0", since=1, until=2),
        table.scan(query_type="read_optimized"),
    ):
        assert bag(arrow(scan.to_spark(spark))) == bag(scan.to_arrow())
    frame = mdt.read(spark, table.path, query_type="read_optimized")
    assert frame.where("id = 4").count() == 1, "a log file deletes it"
    table.compact()
    assert frame.where("id = 4").count() == 0
    assert bag(arrow(frame)) == bag(table.scan().to_arrow())


@pytest.mark.parametrize("mode", ["net", "all"])
def test_changes_on_spark_are_those_in_process(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    table = merged(tmp_path / "t")
    table.compact()
    table.upsert(rows(range(3, 20), 3))
    for where, columns in (
        (None, None),
        ("x > 0", ["id", "_hoodie_commit_time", "local"]),
        ("id = 7", ["at", "b"]),
    ):
        changes = table.changes(1, mode=mode, where=where, columns=columns)
        expected = changes.to_arrow()
        assert bag(changes.to_spark(spark).toArrow().cast(expected.schema)) == bag(expected)
    assert table.changes(table.snapshot().seq, mode=mode).to_spark(spark).count() == 0


def test_no_reader_sees_a_mixture_of_commits(spark: SparkSession, tmp_path: Path) -> None:
    table = create(tmp_path / "t", SCHEMA, partition_by=["day"], key_index="record")
    table.upsert(rows(range(40)))
    text = (
        "select count(*), cast(sum(m * 4) as int), max(id) from (select * from racing union all"
        " select * from racing)"
    )
    mdt.read(spark, table.path).createOrReplaceTempView("racing")
    done, seen = threading.Event(), set()

    def write() -> None:
        """Commit until the readers have seen the table move a few times."""
        for n in range(1, 40):
            table.delete(rows(range(n, n + 1)))
            table.upsert(rows(range(20, 40 + n), n))
            time.sleep(0.1)
            if len(seen) > 3:
                return

    def read() -> None:
        while not done.is_set():
            seen.add(tuple(spark.sql(text).first()))  # type: ignore[arg-type]

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(read) for _ in range(4)]
        try:
            write()
        finally:
            done.set()
        for reader in readers:
            reader.result()
    committed = set()
    for seq in range(1, table.snapshot().seq + 1):
        found = mdt.query.Scan(
            table.metadata, table.snapshot(seq), None, None, table.options
        ).to_arrow()
        total = sum(int(m * 4) for m in found["m"].to_pylist() if m is not None)
        committed.add((2 * len(found), 2 * total, max(found["id"].to_pylist())))
    assert seen <= committed
    assert len(seen) > 1, "the readers should have seen the table move"


def files_read(query: DataFrame) -> int:
    """Run the query and return how many files of rows its scans opened, by Spark's own count."""
    query.collect()
    plan: Any = java_frame(query).queryExecution().executedPlan()
    text = plan.toString()
    assert "AdaptiveSparkPlan" in text or "Scan" in text
    leaves = (
        plan.finalPhysicalPlan() if "Adaptive" in plan.getClass().getSimpleName() else plan
    ).collectLeaves()
    total = 0
    for leaf in map(leaves.apply, range(leaves.size())):
        if leaf.getClass().getSimpleName() == "FileSourceScanExec":
            total += leaf.metrics().apply("numFiles").value()
    return int(total)


def test_a_view_outlives_a_compaction_of_the_metadata_which_numbers_files_anew(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = merged(tmp_path / "t", key_index="record")
    view, before = mdt.read(spark, table.path), table.snapshot()
    assert (before.dead_rows > 0).any(), "files with deleted rows are told apart by their numbers"
    wheres = ["id >= 0", "id = 59", "m = 1"]
    expected = [sorted(map(str, view.where(where).collect())) for where in wheres]
    table.metadata.compact()
    after = mdt.open(table.path).snapshot()
    assert after.seq == before.seq and after.checkpoint.seq != before.checkpoint.seq
    for again in (view, mdt.read(spark, table.path)):
        assert [sorted(map(str, again.where(where).collect())) for where in wheres] == expected


def test_spark_opens_few_files_for_selective_predicates(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = merged(tmp_path / "t", key_index="record")
    files, view, snapshot = table.files(), mdt.read(spark, table.path), table.snapshot()
    vectors = [snapshot.vector(number) or () for number in snapshot.live_numbers.tolist()]
    dead = sum(rows <= len(v) for rows, v in zip(files["rows"].to_pylist(), vectors, strict=True))
    assert files_read(view.select("id")) == len(files) - dead
    kinds = files["kind"].to_pylist()
    assert len(set(kinds)) == 2, "base and log files"
    assert files_read(view.where("city = 'a/b'").select("id")) <= 4
    assert files_read(view.where("id = 59").select("id")) <= 2
    assert files_read(view.where("id = 2 and m = 1").select("id")) <= 2, "a row of a log file"
    assert files_read(view.where("id > 1000").select("id")) == 0
    assert len(view.inputFiles()) == len(files) - dead


WRITES = [
    "insert into guarded select * from guarded",
    "insert overwrite guarded select * from guarded where id > 5",
    "update guarded set note = 'x'",
    "delete from guarded where id = 1",
    "truncate table guarded",
    "merge into guarded using guarded as o on guarded.id = o.id when matched then delete",
]


def test_reading_changes_no_byte_and_writing_through_a_view_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = merged(tmp_path / "t")
    before = tree(tmp_path)
    view = mdt.read(spark, table.path)
    view.createOrReplaceTempView("guarded")
    for text in WRITES:
        with pytest.raises(
            Exception, match=r"\[[A-Z_.]+\]|not supported|Unsupported: .* of a view"
        ):
            spark.sql(text).collect()
    assert view.count() == table.scan().count()
    assert tree(tmp_path) == before


def test_the_options_of_a_read_hold_for_its_queries(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "REPORT_SECONDS", 0)
    table = merged(tmp_path / "t")
    assert mdt.read(spark, table.path, {"mdt.usage.counts": True}).where("id = 3").count() == 1
    assert mdt.read(spark, table.path).where("id = 3").count() == 1
    assert table.metadata.usage.total().queries == 1
    with pytest.raises(Invalid, match="unknown option"):
        mdt.read(spark, table.path, {"mdt.usage.count": True})


def test_a_table_without_write_permission_can_be_read(spark: SparkSession, tmp_path: Path) -> None:
    table = merged(tmp_path / "t")
    read_only = stat.S_IRUSR | stat.S_IXUSR
    folders = [tmp_path / "t", *(path for path in (tmp_path / "t").rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(read_only)
    try:
        assert bag(arrow(mdt.read(spark, table.path))) == bag(table.scan().to_arrow())
    finally:
        for folder in folders:
            folder.chmod(stat.S_IRWXU)


@pytest.mark.parametrize("compression", ["lz4", "zstd", "snappy", "uncompressed"])
def test_spark_filters_columns_with_large_dictionaries_in_every_compression(
    spark: SparkSession, tmp_path: Path, compression: str
) -> None:
    """parquet-java fails on LZ4 dictionaries above 8 KiB where it filters by them."""
    schema = pa.schema([("id", pa.string()), ("name", pa.string()), ("n", pa.int64())])
    count = 20_000
    names = [f"a name of some length {i * 7919 % 3000}" for i in range(count)]
    numbers = [i * 31 % 2500 + (1 << 40) for i in range(count)]
    table = mdt.create(
        tmp_path / "table",
        schema,
        ["id"],
        options={"mdt.compression": compression, "mdt.durable": False},
    )
    table.insert(pa.table([[f"k{i:06}" for i in range(count)], names, numbers], schema=schema))
    frame = mdt.read(spark, table.path)
    assert frame.where("name = 'a name of some length 77'").count() == names.count(
        "a name of some length 77"
    )
    assert frame.where(f"n > {(1 << 40) + 2490}").count() == sum(
        n > (1 << 40) + 2490 for n in numbers
    )
