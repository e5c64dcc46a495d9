"""The sink of a stream keeps its table open between batches. Whatever happens to the table
meanwhile, a batch has the same result as with a newly opened table.
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

SINK_OPTIONS = {"key": "id", "partition_by": "city", "table_type": "mor", "indexes": "bitmap(n)"}


class Batches:
    """A query whose batches have three rows each, one of them with a new key."""

    def __init__(self, spark, path, name="q", **options):
        self.spark, self.path, self.name = spark, path, name
        self.options = {**SINK_OPTIONS, **options, "path": str(path)}
        self.sink = Sink()
        self.number = 0

    def next(self, *, number=None):
        """Write the next batch, or an older one again."""
        n = self.number if number is None else number
        rows = [
            row(f"{self.name}{n}", "Oslo", n),
            row(f"{self.name}-both", "Oslo", n),
            row("all", "Rome", n),
        ]
        frame = self.spark.createDataFrame(rows, "id string, city string, n long")
        self.sink.write(parse_options(self.options), "Append", (self.name, n), frame)
        self.number = max(self.number, n + 1)

    def restarted(self):
        """Return the same query with a new sink."""
        query = Batches(self.spark, self.path, self.name)
        query.options = dict(self.options)
        query.number = self.number
        return query


def keys(path):
    """Return the keys of a table with their values of ``n``. Asserts that hudi-rs reads the same
    rows.
    """
    stored = mdt.open(path)
    assert not stored.check().problems
    rows = stored.scan(columns=["id", "city", "n"]).to_arrow()
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


def test_each_batch_takes_the_same_few_requests_whatever_the_number_of_commits(
    spark, tmp_path, counted
):
    query, request_counts = Batches(spark, tmp_path / "t"), []
    for _ in range(9):
        before = sum(len(storage.made) for storage in counted)
        query.next()
        request_counts.append(sum(len(storage.made) for storage in counted) - before)
    assert set(request_counts[2:]) == {27}, request_counts
    assert keys(tmp_path / "t") == expected("q", 9)
    restarted_query = query.restarted()
    before = sum(len(storage.made) for storage in counted)
    restarted_query.next()
    assert sum(len(storage.made) for storage in counted) - before > 30, "a new sink opens the table"


def delete_table(path, backup):
    shutil.rmtree(path)


def replace_with_commits(commits):
    """Return a function that replaces a table of four commits with another table of ``commits``
    commits.
    """

    def replace(path, backup):
        shutil.rmtree(path)
        new = mdt.create(path, SCHEMA, ["id"], partition_by=["city"], indexes=["bitmap(n)"])
        for n in range(commits):
            new.upsert([row(f"x{n}", "Bonn", n)])

    return replace


def restore_backup(path, backup):
    shutil.rmtree(path)
    shutil.copytree(backup, path)


def restore_backup_and_commit(path, backup):
    restore_backup(path, backup)
    for n in range(6):
        mdt.open(path).upsert([row("y", "Bonn", n)])


def replace_with_another_key(path, backup):
    shutil.rmtree(path)
    mdt.create(path, SCHEMA, ["n"], indexes=["bitmap(n)"])


def drop_index(path, backup):
    mdt.open(path).drop_index("bitmap(n)")


def clean_table(path, backup):
    opened = mdt.open(path)
    for n in range(9):
        opened.upsert([row("z", "Rome", n)])
        opened.metadata.compact()
    opened.compact()
    opened.clean(retain_commits=1)
    assert mdt.open(path).snapshot().retention.first > 4


def compact_table(path, backup):
    opened = mdt.open(path)
    opened.upsert([row("all", "Rome", -1)])
    opened.compact()
    opened.cluster(by=["n"])
    opened.metadata.compact()


def delete_metadata(path, backup):
    shutil.rmtree(path / ".hoodie/.mdt")


EVENTS = [
    delete_table,
    replace_with_commits(0),
    replace_with_commits(1),
    replace_with_commits(4),
    replace_with_commits(7),
    restore_backup,
    restore_backup_and_commit,
    replace_with_another_key,
    drop_index,
    clean_table,
    compact_table,
    delete_metadata,
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


@pytest.mark.parametrize("happens", EVENTS, ids=NAMES)
def test_after_any_change_to_the_table_a_batch_ends_as_one_of_a_new_sink(
    spark,
    tmp_path,
    monkeypatch,
    happens,
):
    monkeypatch.setattr(cleaning, "ARCHIVE_RECORDS_MIN", 2)
    path, backup, copy = tmp_path / "t", tmp_path / "aside", tmp_path / "copy"
    query = Batches(spark, path)
    for n in range(4):
        query.next()
        if n == 1:
            shutil.copytree(path, backup)
    happens(path, backup)
    if path.exists():
        shutil.copytree(path, copy)
    outcomes = []
    fresh = query.restarted()
    fresh.path, fresh.options["path"] = copy, str(copy)
    for current in (query, fresh):
        try:
            current.next()
            current.next()
            outcomes.append(keys(current.path))
        except MdtError as error:
            outcomes.append([(type(error).__name__, 0)])
    assert outcomes[0] == outcomes[1]
    is_refused = happens in (replace_with_another_key, drop_index, delete_metadata)
    assert is_refused or ("q5", 5) in outcomes[0]


def test_a_batch_is_written_once_even_by_two_sinks_of_a_query(spark, tmp_path):
    query = Batches(spark, tmp_path / "t")
    query.next()
    stale = query.restarted()  # of a driver that was wrongly considered dead
    query.next()
    stale.next()
    query.next()
    with pytest.warns(UserWarning, match="batch 1 of the stream 'q' was not written"):
        stale.next(number=1)
    stale.next(number=2)
    query.next(number=2)
    stale.next()
    query.next(number=3)
    query.next(number=4)
    assert keys(tmp_path / "t") == expected("q", 5)
    assert mdt.open(tmp_path / "t").snapshot().seq == 5
    assert mdt.open(tmp_path / "t").snapshot().streams.has("q", 4)


def test_two_queries_and_another_writer_write_the_same_table_in_turn(spark, tmp_path):
    first, second = (Batches(spark, tmp_path / "t", name) for name in ("a", "b"))
    for _ in range(3):
        first.next()
        second.next()
        mdt.open(tmp_path / "t").upsert([row("other", "Bonn", 0)])
    assert keys(tmp_path / "t") == sorted([*expected("a", 3), *expected("b", 3)[1:], ("other", 0)])
    assert mdt.open(tmp_path / "t").snapshot().seq == 9


def test_a_batch_that_failed_is_written_once_when_it_is_repeated(spark, tmp_path, monkeypatch):
    query = Batches(spark, tmp_path / "t")
    query.next()
    write = Table.upsert
    for fails_after in (False, True):
        number = query.number

        def fails(opened, *arguments, late=fails_after, **more):
            if late:
                write(opened, *arguments, **more)
            raise Unavailable("the network is down")

        with monkeypatch.context() as patch:
            patch.setattr(Table, "upsert", fails)
            with pytest.raises(Unavailable):
                query.next()
        query.next(number=number)
    assert keys(tmp_path / "t") == expected("q", 3)
    assert mdt.open(tmp_path / "t").snapshot().seq == 3


def test_a_sink_applies_changed_options_and_opens_another_path(spark, tmp_path):
    query = Batches(spark, tmp_path / "t")
    query.next()
    query.options["mdt.scope"] = "unknown"
    with pytest.raises(Invalid):
        query.next()
    del query.options["mdt.scope"]
    query.options["path"] = str(tmp_path / "u")
    query.next()
    assert keys(tmp_path / "u") == [("all", 1), ("q-both", 1), ("q1", 1)]


def test_two_concurrent_queries_write_one_table_in_two_runs(spark, tmp_path):
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
    stored = keys(tmp_path / "t")
    assert stored == sorted(pair for n in range(2) for pair in keys(Path(sources[n].path)))
    assert len(mdt.open(tmp_path / "t").snapshot().streams.batches) == 2
