"""Tables that Spark has read stay open: a load of one that nothing has happened to costs little,
and means what it always meant.
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


def made(path, commits=1, v=0):
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
    """What was made anew and sent to the JVM: relations, and lists of files."""
    found = []
    relation, snapshot = frames.relation, file_index._encode_snapshot
    monkeypatch.setattr(
        frames, "relation", lambda *a, **k: (found.append("relation"), relation(*a, **k))[1]
    )
    monkeypatch.setattr(
        file_index, "_encode_snapshot", lambda files: (found.append("list"), snapshot(files))[1]
    )
    return found


def load(spark, path, **options):
    return spark.read.format("mdt").options(**options).load(str(path))


def values(frame):
    return {row["v"] for row in frame.collect()}


def test_a_load_asks_the_jvm_a_few_times_whatever_the_session_and_the_load_say(
    spark, path, monkeypatch
):
    made(path)
    calls = list[str]()
    send = clientserver.JavaClient.send_command

    def counted(self, command, *more, **named):
        calls.append(command)
        return send(self, command, *more, **named)

    def asked(**options):
        reader = spark.read.format("mdt").options(**options)
        calls.clear()
        reader.load(str(path))
        return sum(not command.startswith("m\n") for command in calls)  # those are the collector's

    asked()
    monkeypatch.setattr(clientserver.JavaClient, "send_command", counted)
    few = asked()
    assert 0 < few < 40
    names = [f"spark.test.open.{number}" for number in range(50)]
    try:
        for name in names:
            spark.conf.set(name, "x")
        more = {"mdt.reader.threads": "2", "mdt.compression": "zstd", "storage.region": "r"}
        asked(**more)
        assert asked(**more) == few
    finally:
        for name in names:
            spark.conf.unset(name)


@pytest.mark.parametrize("how", ["format", "read", "catalog"])
def test_the_list_of_files_is_sent_again_only_after_a_commit(spark, path, sent, how):
    table = made(path)

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
def test_another_table_at_the_path_is_another_one_however_many_commits_it_has(spark, path, commits):
    made(path, 2, v=1)
    before = load(spark, path)
    assert values(before) == {1} and before.count() == 20
    shutil.rmtree(path)
    made(path, commits, v=2)
    after = load(spark, path)
    assert values(after) == {2} and after.count() == 10 * commits == mdt.read(spark, path).count()
    with pytest.raises((Invalid, Missing)):
        before.collect()


@pytest.mark.parametrize("is_compact", [False, True])
@pytest.mark.parametrize("more", [1, 2])
def test_a_table_that_was_brought_back_from_a_copy_and_went_on_otherwise_is_read_as_it_is(
    spark, path, tmp_path, is_compact, more
):
    def goes_on_and_is_brought_back(table):
        table.upsert(rows(range(3), 1))
        if is_compact:
            table.metadata.compact()
        assert values(load(spark, path)) == {0, 1}
        shutil.rmtree(path)
        shutil.copytree(tmp_path / "copy", path)

    table = made(path, 2)
    shutil.copytree(path, tmp_path / "copy")
    goes_on_and_is_brought_back(table)
    assert values(load(spark, path)) == {0}
    session().clear()
    goes_on_and_is_brought_back(mdt.open(path))
    table = mdt.open(path)
    for v in range(2, 2 + more):
        table.upsert(rows(range(3 * v, 3 * v + 3), v))
    assert values(load(spark, path)) == {0, *range(2, 2 + more)}, "as many commits or more, others"


def test_a_table_that_has_gone_is_missed_as_it_was_before(spark, path):
    made(path)
    assert load(spark, path).count() == 10
    shutil.rmtree(path)
    with pytest.raises(Invalid) as found:
        mdt.open(path)
    with pytest.raises(Invalid) as read:
        mdt.read(spark, path)
    with pytest.raises(PySparkException) as loaded:
        load(spark, path)
    assert str(read.value) == str(found.value) and str(found.value) in str(loaded.value)


def test_altered_columns_are_those_of_the_next_load(spark, path, sent):
    table = made(path)
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


def test_what_is_said_otherwise_has_relations_of_its_own_and_objects_are_never_shared(
    spark,
    path,
    sent,
    tmp_path,
    monkeypatch,
):
    made(path)
    one = open_shared(str(path))
    assert open_shared(path) is one and open_shared(str(path), {"mdt.reader.threads": 1}) is not one
    assert open_shared(str(path), None, {"region": "a"}) is not open_shared(
        str(path), None, {"region": "b"}
    )
    store = LocalStore(path)
    assert (
        open_shared(store) is not open_shared(store) and relations_of(open_shared(store)) is None
    ), "an object of the caller's"
    assert read_frame.open_shared(str(path), None, None, 0) is not one
    assert load(spark, path).count() == load(spark, path, query_type="read_optimized").count() == 10
    with settings(spark, {"spark.mdt.optimize": "none"}):
        assert load(spark, path).count() == load(spark, path).count() == 10
    assert sent.count("relation") == 3
    monkeypatch.chdir(tmp_path)
    assert load(spark, "t").count() == 10 and open_shared("t") is one
    made(tmp_path / "elsewhere" / "t", 3)
    os.chdir(tmp_path / "elsewhere")
    assert load(spark, "t").count() == 30 and open_shared("t") is not one


def test_each_session_has_a_relation_and_its_own_settings(spark, path, sent):
    made(path)
    other = spark.newSession()
    mdt.spark.enable(other)
    other.conf.set("spark.sql.ansi.enabled", "false")
    for one in (spark, other, spark, other):
        found = load(one, path)
        assert found.count() == 10 and private.java_session(found.sparkSession).equals(
            private.java_session(one)
        )
        inner = private.java_frame(found).queryExecution().analyzed().relation().sparkSession()
        assert inner.equals(private.java_session(one))
    assert sent == ["relation", "list"] * 2


def test_two_loads_in_one_query_are_joined_and_show_one_snapshot(spark, path, monkeypatch):
    table = made(path)
    for a, b in (
        (load(spark, path), load(spark, path)),
        (mdt.read(spark, path), mdt.read(spark, path)),
    ):
        joined = a.join(b, a["id"] == b["id"] + 1)
        assert sorted(row[0] for row in joined.select(a["id"]).collect()) == list(range(1, 10))
        assert a.join(b, "id").count() == 10
    a, b = load(spark, path), load(spark, path)
    query = frames._TableLister.query
    begun = list[str]()

    def interrupted(self, key):
        found = query(self, key)
        if key.startswith("plan:") and not begun:
            begun.append(key)
            table.insert(rows(range(10, 20)))
        return found

    monkeypatch.setattr(frames._TableLister, "query", interrupted)
    assert a.where("id >= 0").union(b.where("id > -1")).count() == 20 and begun
    assert a.where("id >= 0").union(b.where("id > -1")).count() == 40


def test_rows_that_one_frame_keeps_in_memory_are_not_those_of_the_next_load(spark, path):
    table = made(path)
    kept = load(spark, path).cache()
    try:
        assert kept.count() == 10
        table.insert(rows(range(10, 20)))
        assert load(spark, path).count() == 20 and mdt.read(spark, path).count() == 20
    finally:
        kept.unpersist()


def test_threads_load_while_another_commits(spark, path):
    table = made(path)
    ended = Event()

    def write():
        for number in range(1, 9):
            table.insert(rows(range(10 * number, 10 * number + 10)))
        ended.set()

    def counts(_):
        found = list[int]()
        while not ended.is_set() or len(found) < 2:
            found.append(load(spark, path).where("v = 0").count())
        return found

    writer = Thread(target=write)
    with ThreadPoolExecutor(4) as pool:
        writer.start()
        found = list(pool.map(counts, range(4)))
    writer.join()
    assert all(one == sorted(one) and {count % 10 for count in one} == {0} for one in found)
    assert load(spark, path).count() == 90 and len(open_tables.open_table_cache().value) == 1


def test_few_tables_and_files_stay_open(spark, path, tmp_path, monkeypatch):
    monkeypatch.setattr(open_tables, "OPEN_TABLES_MAX", 2)
    for name in "abcd":
        made(tmp_path / name, 3)
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
    assert [one.table for one in open_tables.open_table_cache().value.values()] == [last], (
        "which may have more files by itself"
    )


def test_few_versions_of_a_long_list_are_remembered(spark, path, monkeypatch):
    monkeypatch.setattr(frames, "LISTED_FILES_MAX", 2)
    monkeypatch.setattr(file_index, "LISTED_FILES_MAX", 2)
    table = made(path)
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


def test_a_stopped_context_is_let_go_and_the_next_one_reads(tmp_path):
    made(tmp_path / "a")
    made(tmp_path / "b")
    command = [sys.executable, "-c", _STOPPED, str(tmp_path / "a"), str(tmp_path / "b")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout.split()[-1] == "gone"
    gc.collect()


def test_options_that_describe_another_table_are_refused_for_an_open_table_too(spark, path):
    made(path)
    key = "hoodie.table.recordkey.fields"
    opened = open_shared(path, {key: "id", "hoodie.enable.data.skipping": "true"})
    assert open_shared(path) is opened
    with pytest.raises(Invalid, match="is v, but the table has key = id"):
        open_shared(path, {key: "v"})
