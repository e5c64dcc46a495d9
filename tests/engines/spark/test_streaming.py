"""``readStream`` and ``writeStream`` of ``format("mdt")``: every commit is delivered once, and
every batch is written once.
"""

import shutil

import pyarrow as pa
import pytest
from following import SCHEMA, Follower, finished, row
from pyspark.errors import StreamingQueryException
from reader import bag, hudi_table

import mdt
import mdt.spark
from mdt.errors import Unavailable
from mdt.services.reclaiming import cleaning
from mdt.table import Table


@pytest.fixture
def named(spark):
    """A session with the format enabled, whose streams are stopped after the test."""
    mdt.spark.enable(spark)
    yield spark
    for query in spark.streams.active:
        query.stop()


@pytest.fixture
def source(tmp_path):
    options = {"mdt.metadata.compact.records": 3}
    return mdt.create(
        tmp_path / "source",
        SCHEMA,
        ["id"],
        partition_by=["city"],
        table_type="MERGE_ON_READ",
        options=options,
    )


def test_a_stream_starts_with_the_existing_rows_and_continues_with_rows_of_commits(
    named, source, tmp_path
):
    source.upsert([row("a", "Oslo", 1), row("b", "Rome", 1)])
    follower = Follower(named, source.path, tmp_path / "c")
    assert follower.frame.isStreaming
    assert follower.run() == [[("a", "Oslo", 1), ("b", "Rome", 1)]]
    assert follower.run() == []
    source.upsert([row("a", "Oslo", 2)])
    source.compact()
    source.upsert([row("c", "Rome", 3)])
    assert follower.run() == [[("a", "Oslo", 2), ("c", "Rome", 3)]]
    source.compact()
    assert follower.run() == [], "a service changes no row"
    source.delete([row("c", "Rome", 3)])
    assert follower.run() == [[]], "a stream delivers written rows, not deleted ones"


def test_changes_are_delivered_since_a_commit_in_batches_of_limited_size(named, source, tmp_path):
    for n in range(1, 5):
        source.upsert([row("a", "Oslo", n)])
    source.delete([row("a", "Oslo", 4)])
    follower = Follower(
        named,
        source.path,
        tmp_path / "c",
        since="earliest",
        changes="all",
        maxCommitsPerTrigger="2",
    )
    assert follower.frame.columns[:3] == ["_change", "_seq", "_instant"]
    delivered = [[(change, seq, n) for change, seq, _, _, _, n in rows] for rows in follower.run()]
    assert delivered == [
        [("insert", 1, 1), ("update_after", 2, 2), ("update_before", 2, 1)],
        [
            ("update_after", 3, 3),
            ("update_after", 4, 4),
            ("update_before", 3, 2),
            ("update_before", 4, 3),
        ],
        [("delete", 5, 4)],
    ]
    by_bytes = Follower(named, source.path, tmp_path / "d", since="1", max_bytes="1")
    assert [[n for _, _, n in rows] for rows in by_bytes.run()] == [[2], [3], [4], []], (
        "each commit is a batch"
    )


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"as_of": "1"}, "streaming reads do not accept"),
        ({"since": "0", "until": "1"}, "streaming reads do not accept"),
        ({"query_type": "read_optimized"}, "streaming reads do not accept"),
        ({"changes": "all"}, "a stream of changes requires"),
        ({"max_commits": "none"}, "a whole number from 1 to"),
    ],
)
def test_options_that_streams_do_not_support_are_refused(named, source, options, reason):
    with pytest.raises(Exception, match=reason):
        named.readStream.format("mdt").options(**options).load(source.path)


def test_cleaned_commits_altered_columns_and_another_table_end_a_stream(
    named, source, tmp_path, monkeypatch
):
    monkeypatch.setattr(cleaning, "ARCHIVE_RECORDS_MIN", 2)
    source.upsert([row("a", "Oslo", 0)])
    lagging, changes = (
        Follower(named, source.path, tmp_path / "c"),
        {"changes": "all", "since": "earliest"},
    )
    follower = Follower(named, source.path, tmp_path / "f", **changes)
    assert len(lagging.run()) == len(follower.run()) == 1
    for n in range(12):
        source.upsert([row("a", "Oslo", n)])
    source.clean(retain_commits=2)
    assert lagging.run() == [[("a", "Oslo", 11)]], (
        "the newest rows are delivered even after a cleaning"
    )
    for lagging in (follower, Follower(named, source.path, tmp_path / "b", **changes)):
        with pytest.raises(StreamingQueryException, match="Expired"):
            lagging.run()
    running = Follower(named, source.path, tmp_path / "n", max_commits="1")
    query = running.start()
    query.processAllAvailable()
    source.upsert([row("b", "Oslo", 1)])
    query.processAllAvailable()
    assert running.batches == [[("a", "Oslo", 11)], [("b", "Oslo", 1)]]
    source.alter(add={"more": pa.int64()})
    source.upsert([row("b", "Oslo", 3) | {"more": 3}])
    with pytest.raises(
        StreamingQueryException, match="columns were altered after the stream was started"
    ):
        query.processAllAvailable()
    assert Follower(named, source.path, tmp_path / "n").run() == [[("b", "Oslo", 3, 3)]]
    other = mdt.create(tmp_path / "other", SCHEMA, ["id"])
    other.upsert([row("x", "Bonn", 1)])
    with pytest.raises(StreamingQueryException, match="belongs to another table"):
        Follower(named, other.path, tmp_path / "n").run()


def test_a_stream_does_not_skip_commits_after_a_restored_backup(named, source, tmp_path):
    source.upsert([row("a", "Oslo", 1)])
    saved = tmp_path / "saved"
    shutil.copytree(source.path, saved)
    at_backup = Follower(named, source.path, tmp_path / "kept")
    assert at_backup.run() == [[("a", "Oslo", 1)]]
    source.upsert([row("lost", "Oslo", 2)])
    ahead = Follower(named, source.path, tmp_path / "ahead")
    assert ahead.run() == [[("a", "Oslo", 1), ("lost", "Oslo", 2)]]
    shutil.rmtree(source.path)
    shutil.copytree(saved, source.path)
    mdt.open(source.path).upsert([row("b", "Oslo", 3)])  # has the seq of the lost commit
    with pytest.raises(StreamingQueryException, match="of a lost commit: commit 2 is now that of"):
        ahead.run()
    assert at_backup.run() == [[("b", "Oslo", 3)]]


def test_a_stream_of_rows_continues_after_cleaned_commits_and_a_stream_of_changes_raises(
    named, source, tmp_path, monkeypatch
):
    monkeypatch.setattr(cleaning, "ARCHIVE_RECORDS_MIN", 2)
    options = [{}, {"max_commits": "1"}, {"changes": "net", "since": "earliest"}]
    for n in range(2):
        source.upsert([row("a", "Oslo", n)])
        assert all(
            Follower(named, source.path, tmp_path / f"c{i}", **options[i]).run() for i in range(3)
        )
    source.alter(add={"more": pa.int64()})
    for n in range(9):
        source.upsert([row("b", "Oslo", n) | {"more": n}])
    source.compact()
    source.clean(retain_commits=1)
    assert source.snapshot().retention.first > 3
    followers = [Follower(named, source.path, tmp_path / f"c{i}", **options[i]) for i in (0, 1)]
    assert [follower.run()[-1] for follower in followers] == [[("b", "Oslo", 8, 8)]] * 2
    with pytest.raises(StreamingQueryException, match="Expired"):
        Follower(named, source.path, tmp_path / "c2", **options[2]).run()


def test_a_planned_batch_is_read_after_an_alter_and_a_cleaning(named, source, tmp_path):
    source.upsert([row("a", "Oslo", 1)])
    follower = Follower(named, source.path, tmp_path / "c")
    follower.run()
    source.upsert([row("b", "Oslo", 1)])
    with pytest.raises(StreamingQueryException):
        follower.frame.writeStream.foreachBatch(lambda rows, number: 1 / 0).option(
            "checkpointLocation", str(tmp_path / "c")
        ).start().processAllAvailable()
    source.alter(add={"more": pa.int64()})
    source.upsert([row("b", "Oslo", 2) | {"more": 2}])
    source.compact()
    source.clean(retain_commits=1)
    assert Follower(named, source.path, tmp_path / "c").run()[-1] == [("b", "Oslo", 2, 2)]


def test_commits_before_an_alteration_are_delivered_once_with_the_new_columns(
    named, source, tmp_path
):
    changes = {"changes": "all", "since": "earliest", "max_commits": "1"}
    source.upsert([row("a", "Oslo", 1)])
    assert len(Follower(named, source.path, tmp_path / "c", **changes).run()) == 1
    source.upsert([row("b", "Oslo", 2)])
    planned = Follower(named, source.path, tmp_path / "c", **changes)
    with pytest.raises(StreamingQueryException):
        planned.frame.writeStream.foreachBatch(lambda rows, number: 1 / 0).option(
            "checkpointLocation", str(tmp_path / "c")
        ).start().processAllAvailable()
    source.upsert([row("c", "Oslo", 3)])
    source.alter(rename={"n": "m"}, add={"more": pa.int64()}, beyond_hudi=True)
    source.upsert([{"id": "a", "city": "Oslo", "m": 4, "more": 5}])
    followed = Follower(named, source.path, tmp_path / "c", **changes).run()
    assert [[(kind, *values) for kind, _, _, *values in rows] for rows in followed] == [
        [("insert", "b", "Oslo", 2, None)],
        [("insert", "c", "Oslo", 3, None)],
        [("update_after", "a", "Oslo", 4, 5), ("update_before", "a", "Oslo", 1, None)],
    ]
    rows = Follower(named, source.path, tmp_path / "r", since="earliest", max_commits="1")
    a, b, c = (("a", "Oslo", 1, None), ("b", "Oslo", 2, None), ("c", "Oslo", 3, None))
    assert rows.run() == [[a, b, c], [("a", "Oslo", 4, 5)]], (
        "a batch ends where the new columns begin"
    )


def test_since_may_be_earliest_or_a_tag_that_is_removed_later_but_not_an_unknown_commit(
    named, source, tmp_path
):
    assert Follower(named, source.path, tmp_path / "e", since="earliest").run() == []
    source.upsert([row("a", "Oslo", 1)])
    source.tag("here")
    tagged = Follower(named, source.path, tmp_path / "t", since="here")
    assert tagged.run() == []
    source.upsert([row("a", "Oslo", 2)])
    assert tagged.run() == [[("a", "Oslo", 2)]]
    source.untag("here")
    assert Follower(named, source.path, tmp_path / "t", since="here").run() == []
    with pytest.raises(StreamingQueryException, match="since = 77: the table has commits 0 to"):
        Follower(named, source.path, tmp_path / "f", since="77").run()


def start_copy(spark, source, folder, **options):
    rows = (
        spark.readStream.format("mdt")
        .option("max_commits", "1")
        .option("since", "earliest")
        .load(source.path)
    )
    writer = (
        rows.writeStream.format("mdt")
        .options(**options)
        .option("checkpointLocation", str(folder / "checkpoint"))
    )
    return writer.trigger(availableNow=True).start(str(folder / "copy"))


SINK_OPTIONS = {"key": "id", "partition_by": "city", "table_type": "mor", "indexes": "bitmap(n)"}


def assert_copy(source, folder, commits):
    copy = mdt.open(folder / "copy")
    expected = source.scan().to_arrow()
    assert bag(copy.scan().to_arrow()) == bag(expected) == bag(hudi_table(folder / "copy", SCHEMA))
    assert copy.snapshot().seq == commits and not copy.check().problems


def test_batches_become_commits_and_a_restarted_query_continues(named, source, tmp_path):
    for n in range(3):
        source.upsert([row(f"k{n}", "Oslo", n), row("both", "Rome", n)])
    finished(start_copy(named, source, tmp_path, **SINK_OPTIONS))
    assert_copy(source, tmp_path, 3)
    source.upsert([row("k9", "Bonn", 9)])
    finished(start_copy(named, source, tmp_path))
    assert_copy(source, tmp_path, 4)


@pytest.mark.parametrize("phase", ["before", "after"])
def test_a_batch_that_failed_before_or_after_its_commit_is_written_once(
    named, source, tmp_path, monkeypatch, phase
):
    for n in range(4):
        source.upsert([row(f"k{n}", "Oslo", n)])
    options = {
        **SINK_OPTIONS,
        "operation": "insert",
    }  # refuses rows of a batch that was written before
    write, failing = Table.insert, [False, False, True, False]

    def fails(table, *arguments, **more):
        fail = failing.pop(0) if failing else False
        if fail and phase == "before":
            raise Unavailable("the network is down")
        result = write(table, *arguments, **more)
        if fail:
            raise Unavailable("the network is down")
        return result

    monkeypatch.setattr(Table, "insert", fails)
    with pytest.raises(StreamingQueryException, match="the network is down"):
        finished(start_copy(named, source, tmp_path, **options))
    assert mdt.open(tmp_path / "copy").snapshot().seq == (2 if phase == "before" else 3)
    finished(start_copy(named, source, tmp_path, **options))
    assert_copy(source, tmp_path, 4)
    assert [
        number for number, _ in mdt.open(tmp_path / "copy").snapshot().streams.batches.values()
    ] == [3]


def test_sinks_write_in_tasks_delete_rows_and_replace_complete_results(named, source, tmp_path):
    source.upsert([row(f"k{n}", "Oslo" if n % 2 else "Rome", n) for n in range(40)])
    finished(
        start_copy(named, source, tmp_path, **SINK_OPTIONS, **{"mdt.spark.local.bytes.max": "0"})
    )
    assert_copy(source, tmp_path, 1)
    to_delete = named.readStream.format("mdt").load(source.path).where("n < 10")
    sink = (
        to_delete.writeStream.format("mdt").option("operation", "delete").trigger(availableNow=True)
    )
    finished(sink.option("checkpointLocation", str(tmp_path / "d")).start(str(tmp_path / "copy")))
    assert mdt.open(tmp_path / "copy").scan().count() == 30
    total = named.readStream.format("mdt").load(source.path).groupBy("city").agg({"n": "sum"})
    for _ in range(2):
        sums = (
            total.withColumnRenamed("sum(n)", "total")
            .writeStream.format("mdt")
            .outputMode("complete")
        )
        sums = (
            sums.option("key", "city")
            .option("checkpointLocation", str(tmp_path / "s"))
            .trigger(availableNow=True)
        )
        finished(sums.start(str(tmp_path / "sums")))
        stored = mdt.open(tmp_path / "sums").scan().to_arrow().to_pydict()
        expected = source.scan().to_arrow().group_by("city").aggregate([("n", "sum")]).to_pydict()
        assert dict(zip(stored["city"], stored["total"], strict=True)) == dict(
            zip(expected["city"], expected["n_sum"], strict=True)
        )
        source.upsert([row("new", "Oslo", 1000)])


def error_of(start):
    with pytest.raises(StreamingQueryException) as error:
        finished(start())
    return str(error.value)


def test_sinks_partition_by_columns_of_any_name_and_refuse_contradicting_options(
    named, source, tmp_path
):
    source.upsert([row("a", "Oslo", 1)])
    rows = named.readStream.format("mdt").load(source.path).withColumnRenamed("city", "city, or")
    sink = rows.writeStream.format("mdt").option("key", "id").partitionBy("city, or")
    sink = sink.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    other = sink.option("partition_by", "n")
    assert "the same option, with different" in error_of(
        lambda: other.start(str(tmp_path / "other"))
    )
    sink = sink.option("partition_by", "`city, or`")
    finished(sink.start(str(tmp_path / "copy")))
    assert mdt.open(tmp_path / "copy").definition.partition_by == ("city, or",)


def test_upserts_of_complete_results_and_new_tables_without_a_key_are_refused(
    named, source, tmp_path
):
    source.upsert([row("a", "Oslo", 1)])
    assert "needs a record key" in error_of(lambda: start_copy(named, source, tmp_path))
    sums = (
        named.readStream.format("mdt")
        .load(source.path)
        .groupBy("city")
        .count()
        .writeStream.format("mdt")
    )
    sums = sums.outputMode("complete").option("key", "city").option("operation", "upsert")
    sums = sums.option("checkpointLocation", str(tmp_path / "s")).trigger(availableNow=True)
    assert "remove the operation" in error_of(lambda: sums.start(str(tmp_path / "sums")))
