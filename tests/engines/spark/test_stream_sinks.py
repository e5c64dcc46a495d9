"""The sink of a stream keeps its table open between batches, and whatever happened to the table
meanwhile, a batch ends as in one that is opened anew.
"""

import shutil
from pathlib import Path

import pytest
from counted_storages import counted_storages
from following import SCHEMA, finished, row
from reader import bag, hudi_table

import mdt
import mdt.spark
from mdt.errors import Invalid, MdtError, Unavailable
from mdt.services.reclaiming import cleaning
from mdt.source import write_frame
from mdt.source.option_keywords import parse_options
from mdt.source.streaming import Sink
from mdt.table import Table, table

MADE = {"key": "id", "partition_by": "city", "table_type": "mor", "indexes": "bitmap(n)"}


class Batches:
    """A query that brings a batch of three rows each time, one of them new."""

    def __init__(self, spark, path, name="q", **options):
        self.spark, self.path, self.name = spark, path, name
        self.options = {**MADE, **options, "path": str(path)}
        self.sink = Sink()
        self.number = 0

    def next(self, *, number=None):
        """Write the next batch, or again an older one."""
        n = self.number if number is None else number
        rows = [
            row(f"{self.name}{n}", "Oslo", n),
            row(f"{self.name}-both", "Oslo", n),
            row("all", "Rome", n),
        ]
        frame = self.spark.createDataFrame(rows, "id string, city string, n long")
        self.sink.write(parse_options(self.options), "Append", (self.name, n), frame)
        self.number = max(self.number, n + 1)

    def begun_again(self):
        """Return the same query with a sink that knows nothing."""
        found = Batches(self.spark, self.path, self.name)
        found.options = dict(self.options)
        found.number = self.number
        return found


def keys(path):
    """Return the rows of a table, as hudi-rs has them, too."""
    found = mdt.open(path)
    assert not found.check().problems
    rows = found.scan(columns=["id", "city", "n"]).to_arrow()
    assert bag(rows) == bag(hudi_table(path, rows.schema))
    return sorted(zip(rows["id"].to_pylist(), rows["n"].to_pylist(), strict=True))


def expected(name, batches):
    last = batches - 1
    return sorted(
        [("all", last), (f"{name}-both", last), *((f"{name}{n}", n) for n in range(batches))]
    )


@pytest.fixture
def counted(monkeypatch):
    return counted_storages(monkeypatch, write_frame, table)


def test_batches_of_one_query_take_the_same_few_requests_however_many_commits_there_are(
    spark, tmp_path, counted
):
    query, took = Batches(spark, tmp_path / "t"), []
    for _ in range(9):
        before = sum(len(storage.made) for storage in counted)
        query.next()
        took.append(sum(len(storage.made) for storage in counted) - before)
    assert set(took[2:]) == {27}, took
    assert keys(tmp_path / "t") == expected("q", 9)
    again = query.begun_again()
    before = sum(len(storage.made) for storage in counted)
    again.next()
    assert sum(len(storage.made) for storage in counted) - before > 30, "a table that is opened"


def gone(path, aside):
    shutil.rmtree(path)


def other(commits):
    """Return what puts another table, with so many commits, in the place of one with four."""

    def replaced(path, aside):
        shutil.rmtree(path)
        new = mdt.create(path, SCHEMA, ["id"], partition_by=["city"], indexes=["bitmap(n)"])
        for n in range(commits):
            new.upsert([row(f"x{n}", "Bonn", n)])

    return replaced


def older(path, aside):
    shutil.rmtree(path)
    shutil.copytree(aside, path)


def older_and_on(path, aside):
    older(path, aside)
    for n in range(6):
        mdt.open(path).upsert([row("y", "Bonn", n)])


def unlike(path, aside):
    shutil.rmtree(path)
    mdt.create(path, SCHEMA, ["n"], indexes=["bitmap(n)"])


def unindexed(path, aside):
    mdt.open(path).drop_index("bitmap(n)")


def cleaned(path, aside):
    found = mdt.open(path)
    for n in range(9):
        found.upsert([row("z", "Rome", n)])
        found.metadata.compact()
    found.compact()
    found.clean(retain_commits=1)
    assert mdt.open(path).snapshot().retention.first > 4


def compacted(path, aside):
    found = mdt.open(path)
    found.upsert([row("all", "Rome", -1)])
    found.compact()
    found.cluster(by=["n"])
    found.metadata.compact()


def no_table(path, aside):
    shutil.rmtree(path / ".hoodie/.mdt")


HAPPENS = [
    gone,
    other(0),
    other(1),
    other(4),
    other(7),
    older,
    older_and_on,
    unlike,
    unindexed,
    cleaned,
    compacted,
    no_table,
]
NAMES = [
    "gone",
    "empty",
    "fewer",
    "as many",
    "more",
    "older",
    "older and on",
    "unlike",
    "index",
    "clean",
    "compact",
    "log",
]


@pytest.mark.parametrize("happens", HAPPENS, ids=NAMES)
def test_whatever_happens_to_the_table_a_batch_ends_as_that_of_a_sink_that_opens_it(
    spark,
    tmp_path,
    monkeypatch,
    happens,
):
    monkeypatch.setattr(cleaning, "ARCHIVE_RECORDS_MIN", 2)
    path, aside, copy = tmp_path / "t", tmp_path / "aside", tmp_path / "copy"
    query = Batches(spark, path)
    for n in range(4):
        query.next()
        if n == 1:
            shutil.copytree(path, aside)
    happens(path, aside)
    if path.exists():
        shutil.copytree(path, copy)
    ends = []
    fresh = query.begun_again()
    fresh.path, fresh.options["path"] = copy, str(copy)
    for one in (query, fresh):
        try:
            one.next()
            one.next()
            ends.append(keys(one.path))
        except MdtError as error:
            ends.append([(type(error).__name__, 0)])
    assert ends[0] == ends[1]
    refused = happens in (unlike, unindexed, no_table)
    assert refused or ("q5", 5) in ends[0]


def test_a_batch_is_written_once_by_however_many_sinks_of_a_query(spark, tmp_path):
    query = Batches(spark, tmp_path / "t")
    query.next()
    dead = query.begun_again()  # of a driver that was taken for dead
    query.next()
    dead.next()
    query.next()
    with pytest.warns(UserWarning, match="batch 1 of the stream 'q' was not written"):
        dead.next(number=1)
    dead.next(number=2)
    query.next(number=2)
    dead.next()
    query.next(number=3)
    query.next(number=4)
    assert keys(tmp_path / "t") == expected("q", 5)
    assert mdt.open(tmp_path / "t").snapshot().seq == 5
    assert mdt.open(tmp_path / "t").snapshot().streams.has("q", 4)


def test_two_queries_write_one_table_each_with_a_table_that_it_keeps_open(spark, tmp_path):
    one, two = (Batches(spark, tmp_path / "t", name) for name in ("a", "b"))
    for _ in range(3):
        one.next()
        two.next()
        mdt.open(tmp_path / "t").upsert([row("other", "Bonn", 0)])
    assert keys(tmp_path / "t") == sorted([*expected("a", 3), *expected("b", 3)[1:], ("other", 0)])
    assert mdt.open(tmp_path / "t").snapshot().seq == 9


def test_a_batch_that_failed_leaves_no_open_table_and_comes_again(spark, tmp_path, monkeypatch):
    query = Batches(spark, tmp_path / "t")
    query.next()
    write = Table.upsert
    for fails_after in (False, True):
        number = query.number

        def fails(of, *given, late=fails_after, **more):
            if late:
                write(of, *given, **more)
            raise Unavailable("the network is down")

        with monkeypatch.context() as patch:
            patch.setattr(Table, "upsert", fails)
            with pytest.raises(Unavailable):
                query.next()
        query.next(number=number)
    assert keys(tmp_path / "t") == expected("q", 3)
    assert mdt.open(tmp_path / "t").snapshot().seq == 3


def test_other_options_open_the_table_again(spark, tmp_path):
    query = Batches(spark, tmp_path / "t")
    query.next()
    query.options["mdt.scope"] = "unknown"
    with pytest.raises(Invalid):
        query.next()
    del query.options["mdt.scope"]
    query.options["path"] = str(tmp_path / "u")
    query.next()
    assert keys(tmp_path / "u") == [("all", 1), ("q-both", 1), ("q1", 1)]


def test_two_queries_at_a_time_and_what_one_of_them_made_is_there_for_the_next_run(spark, tmp_path):
    mdt.spark.enable(spark)
    sources = [
        mdt.create(tmp_path / f"source{n}", SCHEMA, ["id"], partition_by=["city"]) for n in range(2)
    ]
    mdt.create(tmp_path / "t", SCHEMA, ["id"], partition_by=["city"])
    for run in range(2):
        for n, source in enumerate(sources):
            for part in range(3):
                source.upsert([row(f"{n}-{run}-{part}", "Oslo", part)])
        queries = [
            spark.readStream.format("mdt")
            .option("max_commits", "1")
            .load(source.path)
            .writeStream.format("mdt")
            .option("checkpointLocation", str(tmp_path / f"c{n}"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "t"))
            for n, source in enumerate(sources)
        ]
        for query in queries:
            finished(query)
    found = keys(tmp_path / "t")
    assert found == sorted(pair for n in range(2) for pair in keys(Path(sources[n].path)))
    assert len(mdt.open(tmp_path / "t").snapshot().streams.batches) == 2
