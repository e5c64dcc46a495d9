"""The filters and columns of a streaming query reach the scan of each batch. No batch prunes rows
that the state of the query needs.
"""

import shutil
import threading
from collections import Counter

import pytest
from following import SCHEMA, Follower, row
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as sf

import mdt
import mdt.spark
from mdt.engines.spark import changes, frame
from mdt.source import streaming


@pytest.fixture
def named(spark):
    mdt.spark.enable(spark)
    yield spark
    for query in spark.streams.active:
        query.stop()


@pytest.fixture
def listed(monkeypatch):
    """The number of files of each planned scan, newest last."""
    file_counts = []
    original_list = frame._TableLister.list

    def list_and_count(self, *arguments):
        answer = original_list(self, *arguments)
        file_counts.append(len(answer.files if answer.keep is None else answer.keep))
        return answer

    monkeypatch.setattr(frame._TableLister, "list", list_and_count)
    return file_counts


def create_filled(folder, name, *keys, **options):
    """Return a table with one commit and one partition for each key, which adds a hundred rows."""
    table = mdt.create(
        folder / name,
        SCHEMA,
        ["id"],
        partition_by=["city"],
        table_type="MERGE_ON_READ",
        options=options,
    )
    for key in keys:
        add(table, key)
    return table


def add(table, key):
    table.upsert([row(f"k{n}", f"city {key}", n) for n in range(100 * key, 100 * key + 100)])


def test_a_filter_prunes_files_in_every_batch(named, tmp_path, listed):
    table = create_filled(tmp_path, "t", 0, 1, 2, 3, 4)
    plain = Follower(named, table.path, tmp_path / "plain")
    filtered = Follower(named, table.path, tmp_path / "few")
    filtered.frame = filtered.frame.where("n between 205 and 207 or n between 705 and 706").select(
        "id", "n"
    )
    results = []
    for keys in ((), (5, 6, 7, 8)):
        for key in keys:
            add(table, key)
        listed.clear()
        unfiltered = plain.run()
        all_files, all_rows = listed[-1], plain.scanned
        listed.clear()
        results.append(
            (
                filtered.run(),
                [
                    [(id, n) for id, _, n in rows if n in (205, 206, 207, 705, 706)]
                    for rows in unfiltered
                ],
            )
        )
        assert (all_files, all_rows) == (len(keys) or 5, 100 * (len(keys) or 5))
        assert listed[-1] == 1 and filtered.scanned <= 100
    assert all(rows == expected and len(rows) == 1 for rows, expected in results)
    add(table, 9)
    listed.clear()
    assert filtered.run() == [[]] and listed[-1] == 0 and filtered.scanned == 0, (
        "no file remains, and the batch is completed"
    )


def test_a_filter_prunes_changes(named, tmp_path, monkeypatch):
    table = create_filled(tmp_path, "t", 0, 1, 2)
    for n in (0, 150, 290):
        table.upsert([row(f"k{n}", f"city {n // 100}", n + 1000)])
    encoded_counts = []
    original_encode = changes._encode
    monkeypatch.setattr(
        changes,
        "_encode",
        lambda changed, ids: encoded_counts.append(len(changed)) or original_encode(changed, ids),
    )

    def read(*conditions, columns=("_change", "id", "n")):
        encoded_counts.clear()
        follower = Follower(
            named, table.path, tmp_path / str((*conditions, *columns)), since="3", changes="all"
        )
        for condition in conditions:
            follower.frame = follower.frame.where(condition)
        follower.frame = follower.frame.select(*columns)
        [rows] = follower.run()
        return rows, sum(encoded_counts)

    all_changes, all_encoded = read()
    assert all_encoded == len(all_changes) == 6
    assert read("n < 50") == ([("update_before", "k0", 0)], 1)
    assert read("_change != 'update_before'", "n > 1200") == ([("update_after", "k290", 1290)], 1)
    assert read("_seq = 5", "rand() >= 0") == ([r for r in all_changes if r[1] == "k150"], 2)
    assert read("_seq = 6 or n = 0") == ([r for r in all_changes if r[1] == "k290" or r[2] == 0], 6)
    assert read(columns=("_change",)) == ([("update_after",)] * 3 + [("update_before",)] * 3, 6)


CONDITIONS = {
    "n % 3 = 1 and n > 4": lambda r: r["n"] % 3 == 1 and r["n"] > 4,
    "city = 'Oslo' or n in (2, 7)": lambda r: r["city"] == "Oslo" or r["n"] in (2, 7),
    "id like 'k1%' and city is not null": lambda r: r["id"].startswith("k1"),
    "id in ('k3', 'k4', 'k11', 'none') and n <> 5": (
        lambda r: r["id"] in ("k3", "k4", "k11") and r["n"] != 5
    ),
}
OF_CHANGES = {
    "_change in ('insert', 'delete') and n <= 9": (
        lambda r: r["_change"] in ("insert", "delete") and r["n"] <= 9
    ),
    "_change like 'update%' or n = 3": lambda r: r["_change"].startswith("update") or r["n"] == 3,
    "not (_seq < 4) and city <> 'Rome'": lambda r: r["_seq"] >= 4 and r["city"] != "Rome",
}


@pytest.mark.parametrize(
    ("options", "scope"),
    [
        ({}, "partition"),
        ({"since": "1"}, "table"),
        ({"since": "0", "changes": "net"}, "table"),
        ({"since": "0", "changes": "all"}, "partition"),
    ],
)
def test_a_filtered_stream_returns_the_matching_rows_of_an_unfiltered_one(
    named, tmp_path, options, scope
):
    table = mdt.create(
        tmp_path / "t",
        SCHEMA,
        ["id"],
        partition_by=["city"],
        table_type="MERGE_ON_READ",
        scope=scope,
        indexes=["bitmap(city)"],
    )
    cities = ("Oslo", "Rome", "Bonn")
    for n in range(6):
        table.upsert(
            [row(f"k{k}", cities[(k + n * (k % 2)) % 3], n + k) for k in range(n, 12, 1 + n % 3)]
        )
        if n % 2:
            table.delete([row(f"k{n}", city, 0) for city in cities])
        if n == 3:
            table.compact()
    plain = Follower(named, table.path, tmp_path / "plain", max_commits="3", **options)
    names, unfiltered = plain.frame.columns, plain.run()
    assert sum(map(len, unfiltered)) >= 9
    for condition, test in (CONDITIONS | (OF_CHANGES if "changes" in options else {})).items():
        follower = Follower(named, table.path, tmp_path / condition, max_commits="3", **options)
        follower.frame = follower.frame.where(condition)
        expected = [
            [item for item in rows if test(dict(zip(names, item, strict=True)))]
            for rows in unfiltered
        ]
        assert follower.run() == expected, condition


class MemoryQuery:
    """A streaming query whose result is kept in a memory table of Spark."""

    def __init__(self, frame, name, mode):
        self._spark, self._name = frame.sparkSession, name
        self.query = frame.writeStream.format("memory").queryName(name).outputMode(mode).start()

    def rows(self):
        self.query.processAllAvailable()
        return Counter(tuple(item) for item in self._spark.table(self._name).collect())


def test_totals_and_limits_of_a_stream_cover_all_batches(named, tmp_path):
    table = create_filled(tmp_path, "t", 0)
    stream = named.readStream.format("mdt").load(table.path)
    totals = MemoryQuery(stream.agg(sf.count("*"), sf.min("n"), sf.max("n")), "totals", "complete")
    first = MemoryQuery(stream.limit(150), "first", "append")
    filtered = MemoryQuery(stream.where("n >= 90").groupBy().count(), "some", "complete")
    assert (
        totals.rows() == {(100, 0, 99): 1}
        and first.rows().total() == 100
        and filtered.rows() == {(10,): 1}
    )
    add(table, 1)
    assert (
        totals.rows() == {(200, 0, 199): 1}
        and first.rows().total() == 150
        and filtered.rows() == {(110,): 1}
    )
    add(table, 2)
    assert (
        totals.rows() == {(300, 0, 299): 1}
        and first.rows().total() == 150
        and filtered.rows() == {(210,): 1}
    )


def test_joins_of_streams_match_rows_of_different_batches(named, tmp_path):
    left, right = create_filled(tmp_path, "left", 0), create_filled(tmp_path, "right", 1)
    streams = [named.readStream.format("mdt").load(table.path) for table in (left, right)]
    joined = (
        streams[0]
        .alias("l")
        .join(
            streams[1].where("n % 100 < 3").alias("r"),
            sf.expr("l.n % 100 = r.n % 100 and l.city = r.id"),
        )
    )
    matches = MemoryQuery(joined.selectExpr("l.id", "r.n"), "matches", "append")
    assert not matches.rows()
    right.upsert([row("city 0", "c", 101), row("city 5", "c", 102), row("nobody", "c", 50)])
    assert matches.rows() == {("k1", 101): 1}
    add(left, 5)
    assert matches.rows() == {("k1", 101): 1, ("k502", 102): 1}


def test_groups_stay_in_the_state_although_the_joined_table_excludes_them_at_first(named, tmp_path):
    table = create_filled(tmp_path, "t", 0, 1)
    chosen = mdt.create(tmp_path / "chosen", SCHEMA, ["id"])
    chosen.upsert([row("city 0", "yes", 1), row("city 1", "no", 1)])
    groups = named.readStream.format("mdt").load(table.path).groupBy("city").count()
    allowed = mdt.read(named, chosen.path).where("city = 'yes'").select(sf.col("id").alias("city"))
    counted = MemoryQuery(groups.join(sf.broadcast(allowed), "city"), "groups", "complete")
    assert counted.rows() == {("city 0", 100): 1}
    chosen.upsert([row("city 1", "yes", 1)])
    table.upsert([row("new", "city 1", 7)])
    assert counted.rows() == {("city 0", 100): 1, ("city 1", 101): 1}


def test_a_batch_and_the_table_joined_with_it_prune_each_other(named, tmp_path, listed):
    table, other = (
        create_filled(tmp_path, "t", 0, 1, 2, 3),
        create_filled(tmp_path, "other", *range(9)),
    )
    other_rows = mdt.read(named, other.path)
    follower = Follower(named, table.path, tmp_path / "asks")
    three_rows = other_rows.where("id in ('k105', 'k106', 'k1200')").select("n")
    follower.frame = follower.frame.join(sf.broadcast(three_rows), "n").select("id", "n")
    assert follower.run() == [[("k105", 105), ("k106", 106)]]
    assert follower.scanned <= 200 and listed[-1] == 1
    for name in ("is asked", "in a state"):
        follower = Follower(named, table.path, tmp_path / name)
        stream = follower.frame.where("id like '%99' and n % 7 <> 0").select("id", "n")
        stream = stream if name == "is asked" else stream.dropDuplicates(["n"])
        follower.frame = stream.join(other_rows.selectExpr("n", "city"), "n").select("id", "city")
        listed.clear()
        assert follower.run() == [[("k199", "city 1"), ("k299", "city 2"), ("k99", "city 0")]]
        assert (3 in listed) == (name == "is asked"), (
            "some versions of Spark list files once more without reading them"
        )


def record_opened_paths(monkeypatch):
    opened_paths = []
    open_ = streaming._open
    monkeypatch.setattr(
        streaming, "_open", lambda options: opened_paths.append(options.path) or open_(options)
    )
    return opened_paths


def test_a_running_query_opens_its_table_once(named, tmp_path, monkeypatch):
    table = create_filled(tmp_path, "t", 0)
    follower = Follower(named, table.path, tmp_path / "c")
    opened_paths = record_opened_paths(monkeypatch)
    query = follower.start()
    for key in (1, 2, 3):
        query.processAllAvailable()
        add(table, key)
    query.processAllAvailable()
    assert [len(rows) for rows in follower.batches] == [100] * 4
    assert opened_paths == [table.path]
    query.stop()


@pytest.mark.parametrize("commits", [0, 1, 5])
def test_a_replaced_or_deleted_table_ends_a_running_query(named, tmp_path, monkeypatch, commits):
    table, waits = create_filled(tmp_path, "t", 0, 1), threading.Lock()
    offset = streaming.Stream.offset

    def after_waiting(self, *arguments):
        with waits:
            return offset(self, *arguments)

    monkeypatch.setattr(streaming.Stream, "offset", after_waiting)
    query = Follower(named, table.path, tmp_path / "c").start()
    query.processAllAvailable()
    with waits:
        shutil.rmtree(tmp_path / "t")
        if commits:
            create_filled(tmp_path, "t", *range(commits))
    with pytest.raises(
        StreamingQueryException,
        match="belongs to another table" if commits else "is not an mdt table",
    ):
        query.awaitTermination(60)
