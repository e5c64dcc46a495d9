"""Summaries that tasks read prove what the driver would have proved, and the driver then reads none
of them.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

import failing_tasks
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap
from texts import columns

import mdt
from indexes.predicate import Leaf
from indexes.registry import parse_spec
from mdt.engines import index_tasks
from mdt.engines.index_tasks import Question, Share, Source, answer, split_files
from mdt.engines.spark import frame as frames
from mdt.engines.spark.file_index import PlannerWarning
from mdt.engines.spark.functions import match
from mdt.metadata.files.attachments import ObjectReader
from mdt.metadata.metadata import Metadata
from mdt.plan.shard_rows import ShardRows
from mdt.stores.object_range import ObjectRange

SCHEMA = columns("id string, city string, n int64, note string")
SPECS = ["bitmap(n)", "text(note)", "text(note, tokenizer='ngram(3)')", "bloom(city)"]
WORDS = ("alpha", "beta", "gamma", "delta", "epsilon")
ALWAYS = "mdt.spark.driver.summaries.max"
WHERE = [
    "n = 33",
    "n between 30 and 33 and city = 'c2'",
    "n in (1, 499) or note like '%word77%'",
    "match(note, 'gamma word77')",
    "note like '%word39%' and n > 400",
    "id in ('k000003', 'k000131', 'k000777') and n < 400",
    "n = 33 and n = 34",
    "n is null",
]


def _rows(first, last, step=7919):
    numbers = range(first, last)
    columns = [
        [f"k{i:06}" for i in numbers],
        [f"c{i % 5}" for i in numbers],
        [i * step % 500 for i in numbers],
        [f"{WORDS[i % 5]} word{i * 31 % 400}" for i in numbers],
    ]
    return pa.table(columns, schema=SCHEMA)


@pytest.fixture
def table(tmp_path):
    """Many small files, most of which share summaries with others of their commit; some are
    dirty.
    """
    options = {
        "mdt.max.file.bytes": 4096,
        "mdt.small.file.bytes": 0,
        "mdt.durable": False,
        ALWAYS: 0,
    }
    made = mdt.create(
        tmp_path / "table",
        SCHEMA,
        ["id"],
        partition_by=["city"],
        key_index="record",
        indexes=SPECS,
        options=options,
    )
    for part in range(6):
        made.insert(_rows(200 * part, 200 * part + 200))
    made.upsert(_rows(100, 150))
    return made


@pytest.fixture(autouse=True)
def prepared(spark, monkeypatch):
    """Give tasks few summaries each, and spare Spark the compiling, which takes longer than
    running.
    """
    monkeypatch.setattr(index_tasks, "SUMMARIES_PER_TASK", 3)
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    yield
    spark.conf.unset("spark.sql.codegen.wholeStage")


def ids(frame):
    return sorted(frame.select("id").toArrow()["id"].to_pylist())


def here(table, where):
    """Return what the process finds without Spark."""
    return sorted(table.scan(where, columns=["id"]).to_arrow()["id"].to_pylist())


def in_tasks(spark, table, where):
    """Return what tasks find, without the words that say so, which stand behind every index that
    knows rows.
    """
    found = table.scan(where).explain(spark)
    told = [note.detail.partition(", read in ") for note in found.indexes]
    finders = [note.used and note.index.startswith(("bitmap", "text")) for note in found.indexes]
    answered = where == "n is null" or where.startswith("id in")  # by statistics, by the key index
    assert [bool(rest) for _, _, rest in told] == finders and any(finders) != answered
    assert all(rest.endswith((" Spark tasks", "1 Spark task")) for _, _, rest in told if rest)
    return replace(
        found,
        indexes=tuple(replace(n, detail=d[0]) for n, d in zip(found.indexes, told, strict=True)),
        caches={},
    )


def summary_objects(table):
    """Return the names of the objects that hold summaries with positions."""
    snapshot = table.snapshot()
    found = set()
    for spec in snapshot.definition.indexes:
        if spec.startswith(("bitmap", "text")):
            shards = np.flatnonzero(snapshot.covered_shards(spec))
            found |= {
                stored.path
                for stored in snapshot.index_summaries(spec, shards)
                if isinstance(stored, ObjectRange)
            }
    return sorted(found)


@pytest.mark.parametrize("where", WHERE)
def test_tasks_find_the_same_rows_and_say_the_same_as_the_driver(spark, table, where):
    expected = replace(table.scan(where).explain(), caches={})
    assert in_tasks(spark, table, where) == expected
    frame = table.scan(where, columns=["id"]).to_spark(spark)
    assert ids(frame) == here(table, where)


def test_a_query_of_sql_asks_its_tasks_and_the_driver_reads_no_summary(spark, table, monkeypatch):
    read = []
    original = ObjectReader.read

    def recorded(self, stored, **more):
        read.append(stored.path)
        return original(self, stored, **more)

    monkeypatch.setattr(ObjectReader, "read", recorded)
    objects = set(summary_objects(table))
    view = frames.read(spark, table.metadata)
    view.createOrReplaceTempView("asked")
    assert len(ids(spark.sql("select id from asked where n = 33"))) == len(here_of(33))
    assert ids(view.where(match("note", "word77"))) == [
        f"k{i:06}" for i in range(1200) if i * 31 % 400 == 77
    ]
    assert len(ids(view.where("note like '%word77%' and n > 5"))) == sum(
        i * 31 % 400 == 77 and i * 7919 % 500 > 5 for i in range(1200)
    )
    assert objects and not objects & set(read)
    few = Metadata(table.metadata.storage, {ALWAYS: 1_000_000})
    assert len(ids(frames.read(spark, few).where("n = 33"))) == len(here_of(33))
    assert objects & set(read), "few summaries are read by the driver"


def here_of(n):
    return [i for i in range(1200) if i * 7919 % 500 == n]


@pytest.mark.parametrize("harm", ["damaged", "missing"])
def test_summaries_that_a_task_cannot_read_cost_no_rows_and_are_named(spark, table, harm):
    expected = here(table, "n = 33")
    for name in summary_objects(table)[::2]:
        file = Path(unquote(urlsplit(table.path).path)) / name
        data = file.read_bytes()
        file.unlink()
        if harm == "damaged":
            file.write_bytes(bytes(len(data)))
    fresh = mdt.open(table.path, {ALWAYS: 0})
    told = in_tasks(spark, fresh, "n = 33")
    assert told == replace(mdt.open(table.path).scan("n = 33").explain(), caches={})
    assert "damaged" in [note.reason for note in told.indexes]
    assert ids(frames.read(spark, fresh.metadata).where("n = 33")) == expected


def test_a_task_whose_worker_dies_is_run_again(spark, table, monkeypatch):
    monkeypatch.setattr(index_tasks, "answer", failing_tasks.kills_its_worker)
    assert in_tasks(spark, table, "n = 33") == replace(table.scan("n = 33").explain(), caches={})


def test_a_job_that_fails_leaves_the_work_to_the_driver(spark, table, monkeypatch):
    monkeypatch.setattr(index_tasks, "answer", failing_tasks.always_fails)
    with pytest.warns(PlannerWarning, match="this executor was lost"):
        told = table.scan("n = 33").explain(spark)
    assert told.indexes == table.scan("n = 33").explain().indexes
    with pytest.warns(PlannerWarning, match="this executor was lost"):
        assert ids(frames.read(spark, table.metadata).where("n = 33")) == here(table, "n = 33")


def test_tasks_open_the_table_at_the_commit_that_the_query_reads(spark, table):
    old = table.metadata.newest()
    before = here(table, "n = 33")
    scan = table.scan("n = 33", columns=["id"])
    table.upsert(_rows(0, 1000, 7))
    table.metadata.compact()
    frame = frames.scan(spark, table.metadata, old, scan.predicate, ["id"])
    assert ids(frame) == before != here(table, "n = 33")
    assert ids(frames.read(spark, table.metadata).where("n = 33")) == here(table, "n = 33")


def test_jobs_start_wherever_spark_plans_a_scan(spark, table):
    """In threads of broadcasts and of subqueries, in several queries at a time, before and after
    adaptive execution.
    """
    frames.read(spark, table.metadata).createOrReplaceTempView("busy")
    texts = [
        (
            "select /*+ broadcast(b) */ a.id from busy a join busy b on a.id = b.id where a.n < 40"
            " and b.n > 20"
        ),
        "select id from busy where n = (select max(n) from busy where note like '%word77%')",
        (
            "select id from busy where n = 33 union all select id from busy where n in (select n"
            " from busy where n = 34)"
        ),
    ]
    expected = [20 < i * 7919 % 500 < 40 for i in range(1200)]
    found = [ids(spark.sql(text)) for text in texts]
    assert (
        found[0] == [f"k{i:06}" for i, hit in enumerate(expected) if hit] and found[1] and found[2]
    )
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda text: ids(spark.sql(text)), texts * 2)) == found * 2


def test_an_index_that_a_worker_lacks_proves_nothing_there(table, monkeypatch):
    snapshot = table.snapshot()
    options = tuple(table.metadata.options(snapshot.definition).to_mapping().items())
    source = Source(
        table.metadata.storage.url,
        snapshot.definition.table_id,
        snapshot.seq,
        options,
        snapshot.checkpoint.seq,
        snapshot.last_instant,
    )
    question = Question(source, Leaf("n", "=", 33), ("bitmap/1(n)",), True)
    share = Share(snapshot.live_numbers, {0: BitMap([1]).serialize()})
    found = answer(question, share)
    assert len(found.left) < len(snapshot) and not found.used["bitmap/1(n)"][2]
    monkeypatch.setattr(
        "mdt.plan.position_search.index_of",
        lambda text: (parse_spec(text), "bitmap is not installed"),
    )
    found = answer(question, share)
    assert found.left.tolist() == snapshot.live_numbers.tolist()
    assert found.positions == share.positions
    assert found.used == {"bitmap/1(n)": (True, 0, ["bitmap is not installed"])}


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 900)), min_size=1, max_size=60),
    st.integers(1, 8),
)
def test_tasks_get_every_file_once_and_those_of_a_shard_together(shards, cores):
    counts, weight = (np.array(values) for values in zip(*shards, strict=True))
    files = np.arange(counts.sum()) * 3
    start = np.append(0, np.cumsum(counts))
    asked = ShardRows(
        np.arange(len(shards)),
        files,
        start,
        np.zeros(len(files), np.int64),
        np.full(len(files), 10),
    )
    parts = split_files(asked, weight, cores)
    assert np.concatenate(parts).tolist() == files.tolist()
    assert all(len(part) for part in parts) and len(parts) <= 2 * cores
    of_file = np.repeat(np.arange(len(shards)), counts)
    found = [set(of_file[part // 3].tolist()) for part in parts]
    assert sum(map(len, found)) == len(set().union(*found))
