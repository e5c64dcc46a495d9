"""Index summaries read in tasks prune the same files and rows as in the driver, and the driver then
reads none of them.
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
    """Many small files. Most share summaries with other files of their commit, and some have
    deleted rows.
    """
    options = {
        "mdt.max.file.bytes": 4096,
        "mdt.small.file.bytes": 0,
        "mdt.durable": False,
        ALWAYS: 0,
    }
    created = mdt.create(
        tmp_path / "table",
        SCHEMA,
        ["id"],
        partition_by=["city"],
        key_index="record",
        indexes=SPECS,
        options=options,
    )
    for part in range(6):
        created.insert(_rows(200 * part, 200 * part + 200))
    created.upsert(_rows(100, 150))
    return created


@pytest.fixture(autouse=True)
def prepared(spark, monkeypatch):
    """Give each task few summaries, and switch off code generation, which takes longer than
    running.
    """
    monkeypatch.setattr(index_tasks, "SUMMARIES_PER_TASK", 3)
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    yield
    spark.conf.unset("spark.sql.codegen.wholeStage")


def ids(frame):
    return sorted(frame.select("id").toArrow()["id"].to_pylist())


def ids_in_process(table, where):
    """Return the ids that the process finds without Spark."""
    return sorted(table.scan(where, columns=["id"]).to_arrow()["id"].to_pylist())


def plan_in_tasks(spark, table, where):
    """Return the plan made in tasks, without the words about tasks in the note of every index that
    selects rows.
    """
    plan = table.scan(where).explain(spark)
    details = [note.detail.partition(", read in ") for note in plan.indexes]
    finds_rows = [note.used and note.index.startswith(("bitmap", "text")) for note in plan.indexes]
    answered = where == "n is null" or where.startswith(
        "id in"
    )  # answered by statistics or the key index
    assert [bool(rest) for _, _, rest in details] == finds_rows and any(finds_rows) != answered
    assert all(rest.endswith((" Spark tasks", "1 Spark task")) for _, _, rest in details if rest)
    return replace(
        plan,
        indexes=tuple(replace(n, detail=d[0]) for n, d in zip(plan.indexes, details, strict=True)),
        caches={},
    )


def summary_objects(table):
    """Return the names of the objects that contain summaries with positions."""
    snapshot = table.snapshot()
    objects = set()
    for spec in snapshot.definition.indexes:
        if spec.startswith(("bitmap", "text")):
            shards = np.flatnonzero(snapshot.covered_shards(spec))
            objects |= {
                stored.path
                for stored in snapshot.index_summaries(spec, shards)
                if isinstance(stored, ObjectRange)
            }
    return sorted(objects)


@pytest.mark.parametrize("where", WHERE)
def test_plans_made_in_tasks_equal_plans_of_the_driver(spark, table, where):
    expected = replace(table.scan(where).explain(), caches={})
    assert plan_in_tasks(spark, table, where) == expected
    frame = table.scan(where, columns=["id"]).to_spark(spark)
    assert ids(frame) == ids_in_process(table, where)


def test_a_query_reads_summaries_in_tasks_and_the_driver_reads_none(spark, table, monkeypatch):
    read = []
    original = ObjectReader.read

    def read_and_record(self, stored, **more):
        read.append(stored.path)
        return original(self, stored, **more)

    monkeypatch.setattr(ObjectReader, "read", read_and_record)
    objects = set(summary_objects(table))
    view = frames.read(spark, table.metadata)
    view.createOrReplaceTempView("asked")
    assert len(ids(spark.sql("select id from asked where n = 33"))) == len(numbers_with(33))
    assert ids(view.where(match("note", "word77"))) == [
        f"k{i:06}" for i in range(1200) if i * 31 % 400 == 77
    ]
    assert len(ids(view.where("note like '%word77%' and n > 5"))) == sum(
        i * 31 % 400 == 77 and i * 7919 % 500 > 5 for i in range(1200)
    )
    assert objects and not objects & set(read)
    driver_metadata = Metadata(table.metadata.storage, {ALWAYS: 1_000_000})
    assert len(ids(frames.read(spark, driver_metadata).where("n = 33"))) == len(numbers_with(33))
    assert objects & set(read), "the driver reads the summaries if there are few"


def numbers_with(n):
    return [i for i in range(1200) if i * 7919 % 500 == n]


@pytest.mark.parametrize("harm", ["damaged", "missing"])
def test_unreadable_summaries_lose_no_rows_and_are_named_in_the_plan(spark, table, harm):
    expected = ids_in_process(table, "n = 33")
    for name in summary_objects(table)[::2]:
        file = Path(unquote(urlsplit(table.path).path)) / name
        data = file.read_bytes()
        file.unlink()
        if harm == "damaged":
            file.write_bytes(bytes(len(data)))
    fresh = mdt.open(table.path, {ALWAYS: 0})
    plan = plan_in_tasks(spark, fresh, "n = 33")
    assert plan == replace(mdt.open(table.path).scan("n = 33").explain(), caches={})
    assert "damaged" in [note.reason for note in plan.indexes]
    assert ids(frames.read(spark, fresh.metadata).where("n = 33")) == expected


def test_a_task_whose_worker_crashes_is_run_again(spark, table, monkeypatch):
    monkeypatch.setattr(index_tasks, "answer", failing_tasks.kills_its_worker)
    assert plan_in_tasks(spark, table, "n = 33") == replace(
        table.scan("n = 33").explain(), caches={}
    )


def test_the_driver_reads_the_summaries_if_the_job_fails(spark, table, monkeypatch):
    monkeypatch.setattr(index_tasks, "answer", failing_tasks.always_fails)
    with pytest.warns(PlannerWarning, match="this executor was lost"):
        plan = table.scan("n = 33").explain(spark)
    assert plan.indexes == table.scan("n = 33").explain().indexes
    with pytest.warns(PlannerWarning, match="this executor was lost"):
        assert ids(frames.read(spark, table.metadata).where("n = 33")) == ids_in_process(
            table, "n = 33"
        )


def test_tasks_open_the_table_at_the_commit_that_the_query_reads(spark, table):
    old = table.metadata.newest()
    before = ids_in_process(table, "n = 33")
    scan = table.scan("n = 33", columns=["id"])
    table.upsert(_rows(0, 1000, 7))
    table.metadata.compact()
    frame = frames.scan(spark, table.metadata, old, scan.predicate, ["id"])
    assert ids(frame) == before != ids_in_process(table, "n = 33")
    assert ids(frames.read(spark, table.metadata).where("n = 33")) == ids_in_process(
        table, "n = 33"
    )


def test_index_jobs_run_in_every_thread_in_which_spark_plans_a_scan(spark, table):
    """In threads of broadcasts and subqueries, in several queries at a time, before and after
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
    ids_of_queries = [ids(spark.sql(text)) for text in texts]
    assert (
        ids_of_queries[0] == [f"k{i:06}" for i, hit in enumerate(expected) if hit]
        and ids_of_queries[1]
        and ids_of_queries[2]
    )
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda text: ids(spark.sql(text)), texts * 2)) == ids_of_queries * 2


def test_an_index_that_a_worker_lacks_prunes_nothing_there(table, monkeypatch):
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
    response = answer(question, share)
    assert len(response.left) < len(snapshot) and not response.used["bitmap/1(n)"][2]
    monkeypatch.setattr(
        "mdt.plan.position_search.index_of",
        lambda text: (parse_spec(text), "bitmap is not installed"),
    )
    response = answer(question, share)
    assert response.left.tolist() == snapshot.live_numbers.tolist()
    assert response.positions == share.positions
    assert response.used == {"bitmap/1(n)": (True, 0, ["bitmap is not installed"])}


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 900)), min_size=1, max_size=60),
    st.integers(1, 8),
)
def test_each_file_goes_to_one_task_and_files_of_a_shard_stay_together(shards, cores):
    counts, weight = (np.array(values) for values in zip(*shards, strict=True))
    files = np.arange(counts.sum()) * 3
    start = np.append(0, np.cumsum(counts))
    shard_rows = ShardRows(
        np.arange(len(shards)),
        files,
        start,
        np.zeros(len(files), np.int64),
        np.full(len(files), 10),
    )
    parts = split_files(shard_rows, weight, cores)
    assert np.concatenate(parts).tolist() == files.tolist()
    assert all(len(part) for part in parts) and len(parts) <= 2 * cores
    of_file = np.repeat(np.arange(len(shards)), counts)
    shards_of_parts = [set(of_file[part // 3].tolist()) for part in parts]
    assert sum(map(len, shards_of_parts)) == len(set().union(*shards_of_parts))
