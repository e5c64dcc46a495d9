"""Small writes of many threads are committed together. No write is lost, none waits forever, and
the rows equal those of single calls.
"""

import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pyarrow as pa
import pytest
from counting import count
from worlds import (
    BASE_STATE,
    COW,
    MOR,
    assert_clean,
    deleted,
    filled,
    later,
    make,
    ours,
    rows,
    theirs,
    upserted,
)

import mdt
from mdt.errors import Invalid, Unavailable
from mdt.stores.storage import MemoryStorage
from mdt.table.writer import WAITING_COMMITS
from mdt.testing.faulty import FaultyStorage


def test_rows_wait_for_others_until_max_rows_or_max_seconds():
    storage = filled(MOR, "bloom")
    with mdt.open(storage).writer(max_seconds=0.01) as writer:
        assert writer.upsert(rows([9], 1, 1.0)).result(SOON).inserted == 1
        assert ours(storage) == upserted(BASE_STATE, [9], 1, 1.0)
    with mdt.open(storage).writer(max_rows=3, max_seconds=FOREVER) as writer:
        futures = [writer.upsert(rows([n], 5, 1.0)) for n in range(20, 23)]
        assert futures[0].result(SOON).inserted == 3


@pytest.mark.parametrize("error", [None, KeyError("a fault of the caller")])
def test_errors_reach_futures_and_the_end_of_a_block_that_raised_no_other_error(error, monkeypatch):
    def fail(*args):
        raise Unavailable("the store is gone")

    writer = waiting_writer(mdt.open(filled(MOR, "bloom")))
    monkeypatch.setattr(writer._table, "_commit_write", fail)
    with pytest.raises(KeyError if error else Unavailable), writer:
        future = writer.upsert(rows([9], 1, 1.0))
        if error is not None:
            raise error
    assert isinstance(future.exception(), Unavailable)


def test_a_callback_that_raises_system_exit_does_not_stop_the_writer():
    table = mdt.open(filled(MOR, "bloom"))
    callback_ran = threading.Event()

    def exit_thread(future):
        callback_ran.set()
        raise SystemExit

    with table.writer(max_seconds=0) as writer:
        writer.upsert(rows([8], 1, 1.0)).add_done_callback(exit_thread)
        assert callback_ran.wait(SOON)
        future = writer.upsert(rows([9], 1, 1.0))
    assert future.done()


def test_an_interrupted_flush_does_not_leave_the_writer_flushing():
    def interrupt():
        raise KeyboardInterrupt

    with waiting_writer(mdt.open(filled(MOR, "bloom"))) as writer:
        writer.upsert(rows([9], 1, 1.0)).done = interrupt
        with pytest.raises(KeyboardInterrupt):
            writer.flush()
        assert not writer._flushing


FOREVER = 3600.0
"""Seconds. Longer than any test, so that nothing is committed because of elapsed time."""
SOON = 60
"""Seconds after which a waiting test fails."""


def waiting_writer(table, **options):
    return table.writer(**{"max_rows": 1_000_000, "max_seconds": FOREVER, **options})


def test_the_writes_of_one_block_are_one_commit():
    storage = filled(MOR, "bloom")
    table = mdt.open(storage)
    before = table.snapshot().seq
    with waiting_writer(table) as writer:
        futures = [writer.upsert(rows([n, n + 1], 5, float(n))) for n in range(10)]
        assert not any(future.done() for future in futures)
    assert table.snapshot().seq == before + 1
    assert {future.result() for future in futures} == {futures[0].result()}
    assert (
        futures[0].result().inserted,
        futures[0].result().updated,
        futures[0].result().late,
    ) == (5, 6, 9)
    state = BASE_STATE
    for n in range(10):
        state = upserted(state, [n, n + 1], 5, float(n))
    assert ours(storage) == state == theirs(storage)


def test_upserts_and_deletes_are_applied_in_call_order():
    storage = filled(MOR, "record")
    table = mdt.open(storage)
    before = table.snapshot().seq
    with waiting_writer(table) as writer:
        writer.upsert(rows([7], 5, 1.0))
        writer.upsert(rows([8], 5, 1.0))
        deletion = writer.delete(rows([0, 7], 0, 0.0))
        missing = writer.delete(rows([70], 0, 0.0))
        writer.upsert(rows([7], 1, 2.0))
    assert table.snapshot().seq == before + 3
    assert deletion.result() == missing.result() and (
        deletion.result().deleted,
        deletion.result().missing,
    ) == (
        2,
        1,
    )
    expected = upserted(deleted(upserted(BASE_STATE, [7, 8], 5, 1.0), [0, 7]), [7], 1, 2.0)
    assert ours(storage) == expected == theirs(storage)


def test_deletes_with_and_without_ordering_values_are_separate_commits():
    storage = MemoryStorage()
    table = make(storage, MOR, "record", **{"mdt.delete.keeps.ordering": True})
    table.upsert(rows(range(4), 5, 1.0))
    with waiting_writer(table) as writer:
        futures = [
            writer.delete(rows([0, 1], 4, 0.0)),
            writer.delete(rows([2], 6, 0.0)),
            writer.delete(rows([3], 0, 0.0).select(["id", "city"])),
        ]
        late = writer.upsert(rows([2, 3], 4, 2.0))
    assert (
        futures[0].result() is futures[1].result()
        and futures[1].result().seq < futures[2].result().seq
    )
    assert [(future.result().deleted, future.result().late) for future in futures[1:]] == [
        (1, 2),
        (1, 0),
    ]
    assert late.result().late == 2
    assert ours(storage) == upserted({}, [0, 1], 5, 1.0) == theirs(storage)


@pytest.mark.parametrize("table_type", [MOR, COW])
def test_many_threads_share_commits(table_type):
    storage = filled(table_type, "record")
    table = mdt.open(storage)
    before, calls = table.snapshot().seq, 120
    with table.writer(max_rows=40, max_seconds=0) as writer, ThreadPoolExecutor(8) as pool:
        futures = list(
            pool.map(lambda n: writer.upsert(rows([n % 30, 100 + n], n, float(n))), range(calls))
        )
        writer.flush()
        assert all(future.done() for future in futures)
    commits = table.snapshot().seq - before
    assert (
        max(future.result().seq for future in futures) == before + commits and commits < calls / 3
    )
    state = BASE_STATE
    for n in range(calls):
        state = upserted(state, [n % 30, 100 + n], n, float(n))
    assert ours(storage) == state == theirs(storage)
    count("calls of threads, gathered into few commits", calls)


def test_invalid_rows_are_refused_at_once_and_do_not_affect_other_rows():
    storage = filled(MOR, "bloom")
    with waiting_writer(mdt.open(storage)) as writer:
        valid = writer.upsert(rows([9], 1, 1.0))
        with pytest.raises(Invalid, match="fare"):
            writer.upsert(rows([10], 1, 1.0).set_column(3, "fare", pa.array(["much"])))
        with pytest.raises(Invalid, match="a delete needs"):
            writer.delete({"fare": [1.0]})
    assert valid.result().inserted == 1
    assert ours(storage) == upserted(BASE_STATE, [9], 1, 1.0)


def test_calls_whose_joint_commit_is_refused_are_retried_one_by_one(
    monkeypatch,
):
    storage = filled(MOR, "bloom")
    writer = waiting_writer(mdt.open(storage))
    write = writer._table._commit_write

    def refuse_k66(operation, *more):
        if "k66" in operation.rows.batch.table["id"].to_pylist():
            raise Invalid("no k66")
        return write(operation, *more)

    monkeypatch.setattr(writer._table, "_commit_write", refuse_k66)
    futures = [writer.upsert(rows([n], 5, 1.0)) for n in (9, 66, 10)]
    with pytest.raises(Invalid, match="no k66"):
        writer.close()
    assert [future.exception() is None for future in futures] == [True, False, True]
    assert ours(storage) == upserted(BASE_STATE, [9, 10], 5, 1.0)


def test_columns_added_meanwhile_are_null_in_waiting_rows():
    table = mdt.open(filled(MOR, "bloom"))
    with waiting_writer(table) as writer:
        writer.upsert(rows([9], 1, 1.0))
        table.alter(add={"more": "int64"})
        writer.flush()
        writer.upsert(rows([10], 1, 1.0).append_column("more", pa.array([3])))
    assert table.get([{"id": "k9", "city": "y"}, {"id": "k10", "city": "x"}])[
        "more"
    ].to_pylist() == [None, 3]


def test_a_waiting_call_that_is_cancelled_is_not_written():
    storage = filled(MOR, "bloom")
    with waiting_writer(mdt.open(storage)) as writer:
        remaining, cancelled = writer.upsert(rows([9], 1, 1.0)), writer.upsert(rows([10], 1, 1.0))
        assert cancelled.cancel()
    assert remaining.result().inserted == 1
    with pytest.raises(CancelledError):
        cancelled.result()
    assert ours(storage) == upserted(BASE_STATE, [9], 1, 1.0)


def test_a_thread_that_gives_rows_faster_than_they_are_committed_is_blocked(monkeypatch):
    writer = mdt.open(filled(MOR, "bloom")).writer(max_rows=1, max_seconds=0)
    write, may_commit, started = writer._table._commit_write, threading.Event(), threading.Event()

    def slow(*args):
        started.set()
        assert may_commit.wait(SOON)
        return write(*args)

    monkeypatch.setattr(writer._table, "_commit_write", slow)
    futures = []
    thread = threading.Thread(
        target=lambda: futures.extend(writer.upsert(rows([n], 5, 1.0)) for n in range(20, 40))
    )
    thread.start()
    assert started.wait(SOON)
    thread.join(0.2)
    assert thread.is_alive() and writer._rows == WAITING_COMMITS
    may_commit.set()
    thread.join(SOON)
    writer.close()
    assert sum(future.result().inserted for future in futures) == 20


def written_by(storage):
    """Make three commits with a writer. Return its futures and the exception of its block, or None."""
    futures = []
    try:
        with mdt.open(storage).writer(max_rows=2, max_seconds=FOREVER) as writer:
            futures.extend(writer.upsert(rows([n, n + 30], 5, float(n))) for n in range(3))
    except BaseException as error:  # noqa: BLE001 - Crash is not an Exception
        return futures, error
    return futures, None


def test_every_acknowledged_call_survives_a_crash_of_the_writer():
    completed = FaultyStorage(filled(MOR, "record"))
    assert written_by(completed)[1] is None
    acknowledged_counts = set()
    for k in range(1, len(completed.operations) + 1, 3):
        survivor = filled(MOR, "record")
        futures, error = written_by(FaultyStorage(survivor, k))
        assert type(error).__name__ == "Crash"
        later(survivor)
        acknowledged = sum(future.exception() is None for future in futures)
        acknowledged_counts.add(acknowledged)
        states = [BASE_STATE]
        for n in range(3):
            states.append(upserted(states[-1], [n, n + 30], 5, float(n)))
        assert ours(survivor) in states[acknowledged:], k
        mdt.open(survivor).abort()
        assert ours(survivor) == theirs(survivor)
        assert_clean(survivor)
        count("crash points of a writer that gathers")
    assert acknowledged_counts == {0, 1, 2}


def test_closed_writers_spark_frames_and_invalid_limits_are_refused():
    table = mdt.open(filled(MOR, "bloom"))
    with waiting_writer(table) as writer:
        frame = type("DataFrame", (), {"__module__": "pyspark.sql"})()
        with pytest.raises(Invalid, match="Spark DataFrame"):
            writer.upsert(frame)
    with pytest.raises(Invalid, match="closed"):
        writer.upsert(rows([9], 1, 1.0))
    for name, invalid in (
        ("max_rows", 0),
        ("max_rows", "1"),
        ("max_seconds", -1.0),
        ("max_seconds", float("nan")),
        ("max_seconds", "1"),
    ):
        with pytest.raises(Invalid, match="max_rows"):
            waiting_writer(table, **{name: invalid})
    with pytest.raises(Invalid, match="read-only"):
        mdt.open(table.storage, as_of=1).writer()


def test_a_commit_waits_for_the_threads_that_gave_rows_to_the_previous_commit():
    storage = filled(MOR, "bloom")
    table = mdt.open(storage)
    before = table.snapshot().seq
    together = threading.Barrier(4)

    def give(writer, n, after):
        together.wait(SOON)
        if after is not None:
            after.wait(SOON)
        return writer.upsert(rows([n], 5, 1.0))

    with waiting_writer(table) as writer, ThreadPoolExecutor(4) as pool:
        first = [pool.submit(give, writer, n, None) for n in range(4)]
        assert [future.result(SOON).done() for future in first] == [False] * 4
        writer.flush()
        assert mdt.open(storage).snapshot().seq == before + 1
        writer._max_seconds, writer._took = (
            0,
            10.0 * SOON,
        )  # as after a commit on a very slow storage
        late = threading.Event()
        second = [pool.submit(give, writer, n, late if n == 3 else None) for n in range(4)]
        assert [future.result(SOON).done() for future in second[:3]] == [False] * 3, (
            "the fourth thread may still give rows"
        )
        late.set()
        assert len({future.result(SOON).result(SOON) for future in second}) == 1
    assert mdt.open(storage).snapshot().seq == before + 2
