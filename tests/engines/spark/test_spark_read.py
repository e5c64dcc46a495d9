"""Spark reads the rows of a table at one commit, from as few files as the predicates allow."""

import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from executed_plans import run
from reader import bag
from sql_tables import lines, stored
from trees import create, tree

import mdt
from mdt.engines.spark import frame as frames
from mdt.errors import Invalid
from mdt.limits import SPARK_LIMIT_MAX
from mdt.metadata.statistics import usage

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
START = datetime(2026, 3, 8, 9, 0, tzinfo=UTC)  # an hour before daylight saving time in Los Angeles


def rows(ids, version=0):
    """Return one row for each id. Partition and key follow from the id, the other columns from id +
    version.
    """

    def row(i):
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


def merged(path, **more):
    """Create a table with clean base files, base files with deleted rows, and log files with live
    and deleted rows.
    """
    arguments = {"partition_by": ["city", "day"], "key_index": "record", **more}
    table = create(path, SCHEMA, **arguments)
    table.upsert(rows(range(60)))
    table.upsert(rows(range(0, 30, 2), 1))
    table.upsert(rows(range(0, 12, 2), 2))
    table.delete(rows(range(4, 8)))
    return table


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return merged(tmp_path_factory.mktemp("read") / "t")


def arrow(frame):
    return frame.toArrow().cast(SCHEMA)


SQL = lines(
    r"""
    x = double('NaN')
    x > 0.5
    x = 0
    x <> 0.7
    f = 0.7
    f >= 0.7
    m > 3.1
    m = 2.5
    m <= 0.333
    at = timestamp'2026-03-08 09:07:00'
    local = timestamp'2026-03-08 09:07:00'
    local < '2026-03-08 10:30:00'
    at >= timestamp'2026-03-08 10:00:00+00:00'
    day = date'2026-01-02'
    city = 'a/b'
    city in ('%2F', 'ö')
    city is null
    not (city = 'x=y')
    note like '50\\%'
    note like 'a\_%'
    note not like 'n%'
    b = X'01'
    id between 3 and 9.5
    id in (1, 2, 3.0, 77)
    id not in (1, 2, null)
    id = 8.5
    x is null or id < 2
    note <=> null
    """
)
LISTS = [
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


def test_scans_on_spark_and_in_process_return_the_same_rows(spark, table):
    """One query for all filters, since planning each alone would take a minute."""
    expected, parts = {}, []
    wheres = [*SQL, *LISTS]
    for n, where in enumerate(wheres):
        scan = table.scan(where=where)
        expected[n] = bag(scan.to_arrow())
        parts.append(frames.to_column(scan.predicate, SCHEMA).alias(f"q{n}"))  # type: ignore[arg-type]
    answers = mdt.read(spark, table.path).select("*", *parts).toArrow()
    for n, where in enumerate(wheres):
        assert (
            bag(answers.filter(answers[f"q{n}"]).select(SCHEMA.names).cast(SCHEMA)) == expected[n]
        ), where
    assert sum(map(bool, expected.values())) > 0.8 * len(wheres), (
        "most filters should match something"
    )


def test_each_commit_is_seen_by_the_next_query_and_a_scan_keeps_its_snapshot(spark, tmp_path):
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
    assert len(ran.collect()) == 10, "a query that has run keeps its snapshot"
    assert bag(arrow(twenty.to_spark(spark))) == bag(rows(range(20)))
    assert empty.to_spark(spark).count() == 0


def test_a_frame_as_of_a_commit_keeps_reading_that_commit(spark, tmp_path):
    table = merged(tmp_path / "t")
    instant = table.history()["instant"][2].as_py()
    frames_of_2 = [mdt.read(spark, table.path, as_of=2), mdt.read(spark, table.path, as_of=instant)]
    frames_of_2.append(table.scan(as_of=2).to_spark(spark))
    table.compact()
    table.upsert(rows(range(60, 70)))
    expected = bag(table.scan(as_of=2).to_arrow())
    assert [bag(arrow(frame)) for frame in frames_of_2] == [expected] * 3
    assert frames_of_2[0].where("id = 4").count() == 1, "it was deleted later"


def test_incremental_and_read_optimized_queries_are_the_same_on_spark_and_in_process(
    spark, tmp_path
):
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
def test_changes_are_the_same_on_spark_and_in_process(spark, tmp_path, mode):
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


def test_no_reader_sees_a_mixture_of_commits(spark, tmp_path):
    table = create(tmp_path / "t", SCHEMA, partition_by=["day"], key_index="record")
    table.upsert(rows(range(40)))
    text = (
        "select count(*), cast(sum(m * 4) as int), max(id) from (select * from racing union all"
        " select * from racing)"
    )
    mdt.read(spark, table.path).createOrReplaceTempView("racing")
    is_done, seen_states = threading.Event(), set()

    def write():
        """Commit until the readers have seen several states."""
        for n in range(1, 40):
            table.delete(rows(range(n, n + 1)))
            table.upsert(rows(range(20, 40 + n), n))
            time.sleep(0.1)
            if len(seen_states) > 3:
                return

    def read():
        while not is_done.is_set():
            seen_states.add(tuple(spark.sql(text).first()))  # type: ignore[arg-type]

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(read) for _ in range(4)]
        try:
            write()
        finally:
            is_done.set()
        for reader in readers:
            reader.result()
    committed = set()
    for seq in range(1, table.snapshot().seq + 1):
        state = mdt.query.Scan(
            table.metadata, table.snapshot(seq), None, None, table.options
        ).to_arrow()
        total = sum(int(m * 4) for m in state["m"].to_pylist() if m is not None)
        committed.add((2 * len(state), 2 * total, max(state["id"].to_pylist())))
    assert seen_states <= committed
    assert len(seen_states) > 1, "the readers should have seen several states"


def test_spark_opens_few_files_for_selective_predicates(spark, tmp_path):
    table = merged(tmp_path / "t", key_index="record")
    files, view, snapshot = table.files(), mdt.read(spark, table.path), table.snapshot()
    vectors = [snapshot.vector(number) or () for number in snapshot.live_numbers.tolist()]
    dead = sum(rows <= len(v) for rows, v in zip(files["rows"].to_pylist(), vectors, strict=True))
    assert files_opened(view) == len(files) - dead == len(view.inputFiles())
    assert len(set(files["kind"].to_pylist())) == 2, "base and log files"
    assert files_opened(view.where("city = 'a/b'")) <= 4
    assert files_opened(view.where("id = 59")) <= 2
    assert files_opened(view.where("id = 2 and m = 1")) <= 2, "a row of a log file"
    assert files_opened(view.where("id > 1000")) == 0


def files_opened(query):
    """Return how many data files the scans of a query opened, by Spark's own metrics."""
    return sum(run(query.select("id"))[1])


WRITES = lines(
    """
    insert into guarded select * from guarded
    insert overwrite guarded select * from guarded where id > 5
    update guarded set note = 'x'
    delete from guarded where id = 1
    truncate table guarded
    merge into guarded using guarded as o on guarded.id = o.id when matched then delete
    insert into guarded values (1, 'x', 1)
    alter table guarded add columns (z int)
    """
)


def test_reading_changes_no_byte_and_writing_through_a_view_is_refused(spark, tmp_path):
    table = merged(tmp_path / "t")
    before = tree(tmp_path)
    view = mdt.read(spark, table.path)
    view.createOrReplaceTempView("guarded")
    for text in WRITES:
        with pytest.raises(
            Exception, match=r"\[[A-Z_.]+\]|not supported|Unsupported: .* for a view"
        ):
            spark.sql(text).collect()
    assert view.count() == table.scan().count()
    assert tree(tmp_path) == before


def test_options_of_a_read_apply_to_its_queries(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(usage, "REPORT_SECONDS", 0)
    table = merged(tmp_path / "t")
    assert mdt.read(spark, table.path, {"mdt.usage.counts": True}).where("id = 3").count() == 1
    assert mdt.read(spark, table.path).where("id = 3").count() == 1
    assert table.metadata.usage.total().queries == 1
    with pytest.raises(Invalid, match="unknown option"):
        mdt.read(spark, table.path, {"mdt.usage.count": True})


def test_a_table_without_write_permission_can_be_read(spark, tmp_path):
    table = merged(tmp_path / "t")
    read_only = stat.S_IRUSR | stat.S_IXUSR
    folders = [path for path in tmp_path.rglob("*") if path.is_dir()]
    for folder in folders:
        folder.chmod(read_only)
    try:
        assert bag(arrow(mdt.read(spark, table.path))) == bag(table.scan().to_arrow())
    finally:
        for folder in folders:
            folder.chmod(stat.S_IRWXU)


@pytest.mark.parametrize("compression", ["lz4", "zstd", "snappy", "uncompressed"])
def test_spark_filters_columns_with_large_dictionaries_in_every_compression(
    spark, tmp_path, compression
):
    """parquet-java fails on LZ4 dictionaries above 8 KiB when it filters by them."""
    ids = range(20_000)
    names = [f"a name of some length {i * 7919 % 3000}" for i in ids]
    rows = {"id": ids, "name": names, "n": [i * 31 % 2500 + (1 << 40) for i in ids]}
    options = {"mdt.compression": compression}
    table = stored(tmp_path / "table", pa.table(rows), options=options)
    frame = mdt.read(spark, table.path)
    for where in ("name = 'a name of some length 77'", f"n > {(1 << 40) + 2490}"):
        assert frame.where(where).count() == table.scan(where).count() > 0


# --- order and limits ----------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["", " desc", " nulls last", " desc nulls first"])
def test_spark_sorts_every_type_as_a_scan_in_process_does(spark, table, way):
    for name in SCHEMA.names:
        scan = table.scan(order_by=f"{name}{way}, id desc", limit=25)
        ids_on_spark = [row["id"] for row in scan.to_spark(spark).collect()]
        assert ids_on_spark == scan.to_arrow()["id"].to_pylist(), name


def test_spark_limits_without_an_order_and_after_a_filter(spark, table, monkeypatch):
    rows = table.scan("x > 0").to_arrow()
    limited = table.scan("x > 0", limit=5).to_spark(spark).toArrow()
    assert len(limited) == 5 and not bag(limited.select(["id"])) - bag(rows.select(["id"]))
    assert table.scan(limit=0).to_spark(spark).count() == 0
    above_maximum = table.scan(limit=SPARK_LIMIT_MAX + 1, order_by="id", columns=["city"]).to_spark(
        spark
    )
    assert above_maximum.columns == ["city"] and above_maximum.count() == table.scan().count()
    monkeypatch.setattr("mdt.query.SPARK_LIMIT_MAX", 3)
    assert table.scan(limit=3).to_spark(spark).count() == 3
    with pytest.raises(mdt.Unsupported, match="above Spark's maximum of 3"):
        table.scan(limit=4).to_spark(spark)


def test_a_table_and_a_scan_can_be_used_in_spark_tasks(spark, table):
    scan = table.scan("id < 20")
    numbers = spark.sparkContext.parallelize([0, 1], 2)
    results = numbers.map(lambda _: (table.scan().count(), scan.count())).collect()
    assert results == [(table.scan().count(), scan.count())] * 2
