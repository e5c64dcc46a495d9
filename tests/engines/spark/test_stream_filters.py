"""What a streaming query filters by, and the columns that it reads, reach the scan of each batch;
no batch prunes what the state needs.
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
    """How many files each scan has been given that was planned, the newest last."""
    found = []
    whole = frame._TableLister.list

    def listing(self, *asked):
        answer = whole(self, *asked)
        found.append(len(answer.files if answer.keep is None else answer.keep))
        return answer

    monkeypatch.setattr(frame._TableLister, "list", listing)
    return found


def made(folder, name, *keys, **options):
    """Return a table in which the rows of each hundred of ``n`` are a commit, and a partition."""
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


def test_a_filter_leaves_out_files_of_every_batch(named, tmp_path, listed):
    table = made(tmp_path, "t", 0, 1, 2, 3, 4)
    plain = Follower(named, table.path, tmp_path / "plain")
    few = Follower(named, table.path, tmp_path / "few")
    few.frame = few.frame.where("n between 205 and 207 or n between 705 and 706").select("id", "n")
    found = []
    for keys in ((), (5, 6, 7, 8)):
        for key in keys:
            add(table, key)
        listed.clear()
        whole = plain.run()
        all_files, all_rows = listed[-1], plain.scanned
        listed.clear()
        found.append(
            (
                few.run(),
                [
                    [(id, n) for id, _, n in rows if n in (205, 206, 207, 705, 706)]
                    for rows in whole
                ],
            )
        )
        assert (all_files, all_rows) == (len(keys) or 5, 100 * (len(keys) or 5))
        assert listed[-1] == 1 and few.scanned <= 100
    assert all(rows == expected and len(rows) == 1 for rows, expected in found)
    add(table, 9)
    listed.clear()
    assert few.run() == [[]] and listed[-1] == 0 and few.scanned == 0, (
        "no file is left, and the batch is done"
    )


def test_a_filter_leaves_out_changes(named, tmp_path, monkeypatch):
    table = made(tmp_path, "t", 0, 1, 2)
    for n in (0, 150, 290):
        table.upsert([row(f"k{n}", f"city {n // 100}", n + 1000)])
    told = []
    whole = changes._encode
    monkeypatch.setattr(
        changes, "_encode", lambda changed, ids: told.append(len(changed)) or whole(changed, ids)
    )

    def read(*conditions, columns=("_change", "id", "n")):
        told.clear()
        follower = Follower(
            named, table.path, tmp_path / str((*conditions, *columns)), since="3", changes="all"
        )
        for condition in conditions:
            follower.frame = follower.frame.where(condition)
        follower.frame = follower.frame.select(*columns)
        [rows] = follower.run()
        return rows, sum(told)

    everything, all_told = read()
    assert all_told == len(everything) == 6
    assert read("n < 50") == ([("update_before", "k0", 0)], 1)
    assert read("_change != 'update_before'", "n > 1200") == ([("update_after", "k290", 1290)], 1)
    assert read("_seq = 5", "rand() >= 0") == ([r for r in everything if r[1] == "k150"], 2)
    assert read("_seq = 6 or n = 0") == ([r for r in everything if r[1] == "k290" or r[2] == 0], 6)
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
def test_a_stream_with_a_filter_has_the_rows_of_one_without(named, tmp_path, options, scope):
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
    names, whole = plain.frame.columns, plain.run()
    assert sum(map(len, whole)) >= 9
    for condition, test in (CONDITIONS | (OF_CHANGES if "changes" in options else {})).items():
        follower = Follower(named, table.path, tmp_path / condition, max_commits="3", **options)
        follower.frame = follower.frame.where(condition)
        expected = [
            [one for one in rows if test(dict(zip(names, one, strict=True)))] for rows in whole
        ]
        assert follower.run() == expected, condition


class Kept:
    """A query of a stream whose result is kept in a table of Spark's memory."""

    def __init__(self, frame, name, mode):
        self._spark, self._name = frame.sparkSession, name
        self.query = frame.writeStream.format("memory").queryName(name).outputMode(mode).start()

    def rows(self):
        self.query.processAllAvailable()
        return Counter(tuple(one) for one in self._spark.table(self._name).collect())


def test_totals_and_first_rows_are_those_of_all_batches(named, tmp_path):
    table = made(tmp_path, "t", 0)
    stream = named.readStream.format("mdt").load(table.path)
    totals = Kept(stream.agg(sf.count("*"), sf.min("n"), sf.max("n")), "totals", "complete")
    first = Kept(stream.limit(150), "first", "append")
    some = Kept(stream.where("n >= 90").groupBy().count(), "some", "complete")
    assert (
        totals.rows() == {(100, 0, 99): 1}
        and first.rows().total() == 100
        and some.rows() == {(10,): 1}
    )
    add(table, 1)
    assert (
        totals.rows() == {(200, 0, 199): 1}
        and first.rows().total() == 150
        and some.rows() == {(110,): 1}
    )
    add(table, 2)
    assert (
        totals.rows() == {(300, 0, 299): 1}
        and first.rows().total() == 150
        and some.rows() == {(210,): 1}
    )


def test_rows_that_match_those_of_other_batches_stay(named, tmp_path):
    left, right = made(tmp_path, "left", 0), made(tmp_path, "right", 1)
    streams = [named.readStream.format("mdt").load(table.path) for table in (left, right)]
    joined = (
        streams[0]
        .alias("l")
        .join(
            streams[1].where("n % 100 < 3").alias("r"),
            sf.expr("l.n % 100 = r.n % 100 and l.city = r.id"),
        )
    )
    kept = Kept(joined.selectExpr("l.id", "r.n"), "matches", "append")
    assert not kept.rows()
    right.upsert([row("city 0", "c", 101), row("city 5", "c", 102), row("nobody", "c", 50)])
    assert kept.rows() == {("k1", 101): 1}
    add(left, 5)
    assert kept.rows() == {("k1", 101): 1, ("k502", 102): 1}


def test_groups_stay_in_the_state_whatever_the_other_table_asks_for_now(named, tmp_path):
    table = made(tmp_path, "t", 0, 1)
    chosen = mdt.create(tmp_path / "chosen", SCHEMA, ["id"])
    chosen.upsert([row("city 0", "yes", 1), row("city 1", "no", 1)])
    groups = named.readStream.format("mdt").load(table.path).groupBy("city").count()
    asked = mdt.read(named, chosen.path).where("city = 'yes'").select(sf.col("id").alias("city"))
    kept = Kept(groups.join(sf.broadcast(asked), "city"), "groups", "complete")
    assert kept.rows() == {("city 0", 100): 1}
    chosen.upsert([row("city 1", "yes", 1)])
    table.upsert([row("new", "city 1", 7)])
    assert kept.rows() == {("city 0", 100): 1, ("city 1", 101): 1}


def test_a_batch_and_the_table_that_it_is_joined_with_ask_each_other(named, tmp_path, listed):
    table, other = made(tmp_path, "t", 0, 1, 2, 3), made(tmp_path, "other", *range(9))
    wanted = mdt.read(named, other.path)
    follower = Follower(named, table.path, tmp_path / "asks")
    few = wanted.where("id in ('k105', 'k106', 'k1200')").select("n")
    follower.frame = follower.frame.join(sf.broadcast(few), "n").select("id", "n")
    assert follower.run() == [[("k105", 105), ("k106", 106)]]
    assert follower.scanned <= 200 and listed[-1] == 1
    for name in ("is asked", "in a state"):
        follower = Follower(named, table.path, tmp_path / name)
        stream = follower.frame.where("id like '%99' and n % 7 <> 0").select("id", "n")
        stream = stream if name == "is asked" else stream.dropDuplicates(["n"])
        follower.frame = stream.join(wanted.selectExpr("n", "city"), "n").select("id", "city")
        listed.clear()
        assert follower.run() == [[("k199", "city 1"), ("k299", "city 2"), ("k99", "city 0")]]
        assert (3 in listed) == (name == "is asked"), (
            "some versions of Spark list once more, what nobody reads"
        )


def opened(monkeypatch):
    found = []
    open_ = streaming._open
    monkeypatch.setattr(streaming, "_open", lambda asked: found.append(asked.path) or open_(asked))
    return found


def test_a_running_query_opens_its_table_once(named, tmp_path, monkeypatch):
    table = made(tmp_path, "t", 0)
    follower = Follower(named, table.path, tmp_path / "c")
    found = opened(monkeypatch)
    query = follower.start()
    for key in (1, 2, 3):
        query.processAllAvailable()
        add(table, key)
    query.processAllAvailable()
    assert [len(rows) for rows in follower.batches] == [100] * 4
    assert found == [table.path]
    query.stop()


@pytest.mark.parametrize("commits", [0, 1, 5])
def test_another_table_or_none_at_the_path_ends_a_running_query(
    named, tmp_path, monkeypatch, commits
):
    table, waits = made(tmp_path, "t", 0, 1), threading.Lock()
    offset = streaming.Stream.offset

    def after_waiting(self, *asked):
        with waits:
            return offset(self, *asked)

    monkeypatch.setattr(streaming.Stream, "offset", after_waiting)
    query = Follower(named, table.path, tmp_path / "c").start()
    query.processAllAvailable()
    with waits:
        shutil.rmtree(tmp_path / "t")
        if commits:
            made(tmp_path, "t", *range(commits))
    with pytest.raises(
        StreamingQueryException,
        match="belongs to another table" if commits else "is not an mdt table",
    ):
        query.awaitTermination(60)
