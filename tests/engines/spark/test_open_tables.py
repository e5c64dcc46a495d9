"""Tables that Spark has read stay open. Loading an unchanged table again is cheap and has the same
result as opening it.
"""

import gc
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread

import pyarrow as pa
import pytest
from obstore.store import LocalStore
from py4j import clientserver
from pyspark.errors import PySparkException
from sql_tables import settings
from texts import columns

import mdt
import mdt.spark
from mdt.engines.spark import file_index, private
from mdt.engines.spark import frame as frames
from mdt.errors import Invalid, Missing
from mdt.session import session
from mdt.source import open_tables, read_frame
from mdt.source.open_tables import open_shared, relations_of

SCHEMA = columns("id int64, v int64")


def rows(ids, v=0):
    return pa.table([list(ids), [v] * len(ids)], schema=SCHEMA)


def create_filled(path, commits=1, v=0):
    table = mdt.create(path, SCHEMA, key=["id"])
    for number in range(commits):
        table.insert(rows(range(10 * number, 10 * number + 10), v))
    return table


@pytest.fixture
def path(tmp_path, spark):
    mdt.spark.enable(spark)
    session().clear()
    yield tmp_path / "t"
    session().clear()


@pytest.fixture
def sent(monkeypatch):
    """The relations and file lists that are created and sent to the JVM."""
    messages = []
    relation, snapshot = frames.relation, file_index._encode_snapshot
    monkeypatch.setattr(
        frames, "relation", lambda *a, **k: (messages.append("relation"), relation(*a, **k))[1]
    )
    monkeypatch.setattr(
        file_index, "_encode_snapshot", lambda files: (messages.append("list"), snapshot(files))[1]
    )
    return messages


def load(spark, path, **options):
    return spark.read.format("mdt").options(**options).load(str(path))


def values(frame):
    return {row["v"] for row in frame.collect()}


def test_a_load_makes_few_calls_to_the_jvm_whatever_the_settings_and_options(
    spark, path, monkeypatch
):
    create_filled(path)
    calls = list[str]()
    send = clientserver.JavaClient.send_command

    def count_and_send(self, command, *more, **named):
        calls.append(command)
        return send(self, command, *more, **named)

    def count_calls(**options):
        reader = spark.read.format("mdt").options(**options)
        calls.clear()
        reader.load(str(path))
        return sum(
            not command.startswith("m\n") for command in calls
        )  # m: commands of the garbage collector

    count_calls()
    monkeypatch.setattr(clientserver.JavaClient, "send_command", count_and_send)
    call_count = count_calls()
    assert 0 < call_count < 40
    names = [f"spark.test.open.{number}" for number in range(50)]
    try:
        for name in names:
            spark.conf.set(name, "x")
        more = {"mdt.reader.threads": "2", "mdt.compression": "zstd", "storage.region": "r"}
        count_calls(**more)
        assert count_calls(**more) == call_count
    finally:
        for name in names:
            spark.conf.unset(name)


@pytest.mark.parametrize("how", ["format", "read", "catalog"])
def test_the_list_of_files_is_sent_again_only_after_a_commit(spark, path, sent, how):
    table = create_filled(path)

    def count():
        if how == "format":
            return load(spark, path).where("id >= 0").count()
        if how == "read":
            return mdt.read(spark, path).where("id >= 0").count()
        spark.sql(f"create or replace temporary view open_trips using mdt options (path '{path}')")
        return spark.table("open_trips").where("id >= 0").count()

    assert [count(), count(), count()] == [10, 10, 10] and sent == ["relation", "list"]
    for number in range(1, 4):
        table.insert(rows(range(10 * number, 10 * number + 10)))
        assert [count(), count()] == [10 * number + 10] * 2
    assert sent == ["relation", *["list"] * 4]
    assert len(relations_of(open_shared(str(path))) or ()) == 1


@pytest.mark.parametrize("commits", [1, 2, 5])
def test_a_new_table_at_the_path_is_recognised_whatever_its_number_of_commits(spark, path, commits):
    create_filled(path, 2, v=1)
    before = load(spark, path)
    assert values(before) == {1} and before.count() == 20
    shutil.rmtree(path)
    create_filled(path, commits, v=2)
    after = load(spark, path)
    assert values(after) == {2} and after.count() == 10 * commits == mdt.read(spark, path).count()
    with pytest.raises((Invalid, Missing)):
        before.collect()


@pytest.mark.parametrize("is_compact", [False, True])
@pytest.mark.parametrize("more", [1, 2])
def test_a_restored_copy_with_other_commits_is_recognised_and_read(
    spark, path, tmp_path, is_compact, more
):
    def commit_and_restore_copy(table):
        table.upsert(rows(range(3), 1))
        if is_compact:
            table.metadata.compact()
        assert values(load(spark, path)) == {0, 1}
        shutil.rmtree(path)
        shutil.copytree(tmp_path / "copy", path)

    table = create_filled(path, 2)
    shutil.copytree(path, tmp_path / "copy")
    commit_and_restore_copy(table)
    assert values(load(spark, path)) == {0}
    session().clear()
    commit_and_restore_copy(mdt.open(path))
    table = mdt.open(path)
    for v in range(2, 2 + more):
        table.upsert(rows(range(3 * v, 3 * v + 3), v))
    assert values(load(spark, path)) == {0, *range(2, 2 + more)}, (
        "other rows, after as many commits or more"
    )


def test_a_deleted_table_raises_the_same_error_as_mdt_open(spark, path):
    create_filled(path)
    assert load(spark, path).count() == 10
    shutil.rmtree(path)
    with pytest.raises(Invalid) as open_error:
        mdt.open(path)
    with pytest.raises(Invalid) as read_error:
        mdt.read(spark, path)
    with pytest.raises(PySparkException) as load_error:
        load(spark, path)
    assert str(read_error.value) == str(open_error.value) and str(open_error.value) in str(
        load_error.value
    )


def test_the_next_load_has_the_altered_columns(spark, path, sent):
    table = create_filled(path)
    before = load(spark, path)
    assert before.columns == ["id", "v"] and before.count() == 10
    table.alter(add={"w": pa.int64()})
    table.upsert(pa.table({"id": [1], "v": [1], "w": [7]}))
    after = load(spark, path)
    assert after.columns == ["id", "v", "w"] and after.where("w = 7").count() == 1
    assert load(spark, path).where("w is null").count() == 9
    assert sent.count("relation") == 2
    with pytest.warns(file_index.PlannerWarning), pytest.raises(Invalid, match="altered"):
        before.where("v = 1").collect()


def test_other_options_get_their_own_relations_and_store_objects_are_never_shared(
    spark,
    path,
    sent,
    tmp_path,
    monkeypatch,
):
    create_filled(path)
    opened = open_shared(str(path))
    assert (
        open_shared(path) is opened
        and open_shared(str(path), {"mdt.reader.threads": 1}) is not opened
    )
    assert open_shared(str(path), None, {"region": "a"}) is not open_shared(
        str(path), None, {"region": "b"}
    )
    store = LocalStore(path)
    assert (
        open_shared(store) is not open_shared(store) and relations_of(open_shared(store)) is None
    ), "a store object of the caller"
    assert read_frame.open_shared(str(path), None, None, 0) is not opened
    assert load(spark, path).count() == load(spark, path, query_type="read_optimized").count() == 10
    with settings(spark, {"spark.mdt.optimize": "none"}):
        assert load(spark, path).count() == load(spark, path).count() == 10
    assert sent.count("relation") == 3
    monkeypatch.chdir(tmp_path)
    assert load(spark, "t").count() == 10 and open_shared("t") is opened
    create_filled(tmp_path / "elsewhere" / "t", 3)
    os.chdir(tmp_path / "elsewhere")
    assert load(spark, "t").count() == 30 and open_shared("t") is not opened


def test_each_session_has_its_own_relation_and_settings(spark, path, sent):
    create_filled(path)
    other = spark.newSession()
    mdt.spark.enable(other)
    other.conf.set("spark.sql.ansi.enabled", "false")
    for current in (spark, other, spark, other):
        loaded = load(current, path)
        assert loaded.count() == 10 and private.java_session(loaded.sparkSession).equals(
            private.java_session(current)
        )
        inner = private.java_frame(loaded).queryExecution().analyzed().relation().sparkSession()
        assert inner.equals(private.java_session(current))
    assert sent == ["relation", "list"] * 2


def test_two_loads_in_one_query_are_joined_and_show_one_snapshot(spark, path, monkeypatch):
    table = create_filled(path)
    for a, b in (
        (load(spark, path), load(spark, path)),
        (mdt.read(spark, path), mdt.read(spark, path)),
    ):
        joined = a.join(b, a["id"] == b["id"] + 1)
        assert sorted(row[0] for row in joined.select(a["id"]).collect()) == list(range(1, 10))
        assert a.join(b, "id").count() == 10
    a, b = load(spark, path), load(spark, path)
    query = frames._TableLister.query
    interrupted_keys = list[str]()

    def interrupted(self, key):
        answer = query(self, key)
        if key.startswith("plan:") and not interrupted_keys:
            interrupted_keys.append(key)
            table.insert(rows(range(10, 20)))
        return answer

    monkeypatch.setattr(frames._TableLister, "query", interrupted)
    assert a.where("id >= 0").union(b.where("id > -1")).count() == 20 and interrupted_keys
    assert a.where("id >= 0").union(b.where("id > -1")).count() == 40


def test_the_next_load_does_not_use_rows_cached_by_an_earlier_frame(spark, path):
    table = create_filled(path)
    cached = load(spark, path).cache()
    try:
        assert cached.count() == 10
        table.insert(rows(range(10, 20)))
        assert load(spark, path).count() == 20 and mdt.read(spark, path).count() == 20
    finally:
        cached.unpersist()


def test_threads_load_while_another_commits(spark, path):
    table = create_filled(path)
    ended = Event()

    def write():
        for number in range(1, 9):
            table.insert(rows(range(10 * number, 10 * number + 10)))
        ended.set()

    def counts(_):
        results = list[int]()
        while not ended.is_set() or len(results) < 2:
            results.append(load(spark, path).where("v = 0").count())
        return results

    writer = Thread(target=write)
    with ThreadPoolExecutor(4) as pool:
        writer.start()
        results_of_threads = list(pool.map(counts, range(4)))
    writer.join()
    assert all(
        results == sorted(results) and {count % 10 for count in results} == {0}
        for results in results_of_threads
    )
    assert load(spark, path).count() == 90 and len(open_tables.open_table_cache().value) == 1


def test_only_few_tables_and_files_stay_open(spark, path, tmp_path, monkeypatch):
    monkeypatch.setattr(open_tables, "OPEN_TABLES_MAX", 2)
    for name in "abcd":
        create_filled(tmp_path / name, 3)
    first, second = open_shared(tmp_path / "a"), open_shared(tmp_path / "b")
    assert open_shared(tmp_path / "a") is first
    third = open_shared(tmp_path / "c")
    assert (
        open_shared(tmp_path / "a") is first
        and open_shared(tmp_path / "c") is third
        and len(open_tables.open_table_cache().value) == 2
    )
    assert open_shared(tmp_path / "b") is not second
    monkeypatch.setattr(open_tables, "OPEN_FILES_MAX", 1)
    last = open_shared(tmp_path / "d")
    assert [entry.table for entry in open_tables.open_table_cache().value.values()] == [last], (
        "a single table may have more files than the limit"
    )


def test_only_few_versions_of_a_long_file_list_are_cached(spark, path, monkeypatch):
    monkeypatch.setattr(frames, "LISTED_FILES_MAX", 2)
    monkeypatch.setattr(file_index, "LISTED_FILES_MAX", 2)
    table = create_filled(path)
    for number in range(1, 7):
        table.insert(rows(range(10 * number, 10 * number + 10)))
        assert load(spark, path).where("id >= 0").count() == 10 * number + 10
    lister = next(
        p.lister
        for p in file_index._planners().value.values()
        if isinstance(p.lister, frames._TableLister)
        and p.lister.metadata is open_shared(path).metadata
    )
    planner = next(p for p in file_index._planners().value.values() if p.lister is lister)
    assert len(lister._views) == len(planner._files) == 2  # type: ignore[attr-defined]


_STOPPED = """
import gc, sys, weakref
import mdt, mdt.spark
from pyspark.sql import SparkSession
from mdt.source import open_tables

def session():
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    mdt.spark.enable(spark)
    return spark

def count(spark):
    return spark.read.format("mdt").load(sys.argv[1]).count()

def relations():
    return [len(one.relations) for one in open_tables.open_table_cache().value.values()]

spark = session()
assert count(spark) == count(spark) == 10
assert spark.read.format("mdt").load(sys.argv[2]).count() == 10 and relations() == [1, 1]
before = weakref.ref(spark.sparkContext)
spark.stop()
del spark
spark = session()
assert count(spark) == count(spark) == 10
assert relations() == [0, 1], "those of the stopped session have gone, of the other table too"
for _ in range(20):
    spark.sparkContext._jvm.System.gc()
    gc.collect()
    if before() is None:
        break
print("gone" if before() is None else "kept")
spark.stop()
"""


def test_a_stopped_context_is_freed_and_the_next_one_reads(tmp_path):
    create_filled(tmp_path / "a")
    create_filled(tmp_path / "b")
    command = [sys.executable, "-c", _STOPPED, str(tmp_path / "a"), str(tmp_path / "b")]
    process = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert process.returncode == 0, process.stderr[-3000:]
    assert process.stdout.split()[-1] == "gone"
    gc.collect()


def test_options_that_contradict_the_table_are_refused_even_if_it_is_open(spark, path):
    create_filled(path)
    key = "hoodie.table.recordkey.fields"
    opened = open_shared(path, {key: "id", "hoodie.enable.data.skipping": "true"})
    assert open_shared(path) is opened
    with pytest.raises(Invalid, match="is v, but the table has key = id"):
        open_shared(path, {key: "v"})
