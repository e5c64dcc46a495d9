"""Small writes of many threads are committed together: none is lost, none waits for ever, and the
rows are those of single calls.
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


def test_rows_wait_for_others_until_the_commit_is_full_and_not_for_ever():
    storage = filled(MOR, "bloom")
    with mdt.open(storage).writer(max_seconds=0.01) as writer:
        assert writer.upsert(rows([9], 1, 1.0)).result(SOON).inserted == 1
        assert ours(storage) == upserted(BASE_STATE, [9], 1, 1.0)
    with mdt.open(storage).writer(max_rows=3, max_seconds=FOREVER) as writer:
        told = [writer.upsert(rows([n], 5, 1.0)) for n in range(20, 23)]
        assert told[0].result(SOON).inserted == 3


@pytest.mark.parametrize("error", [None, KeyError("a fault of the caller")])
def test_errors_reach_the_futures_and_the_end_of_the_block_unless_it_has_raised_another(
    error, monkeypatch
):
    def fails(*given):
        raise Unavailable("the store is gone")

    writer = gathering(mdt.open(filled(MOR, "bloom")))
    monkeypatch.setattr(writer._table, "_commit_write", fails)
    with pytest.raises(KeyError if error else Unavailable), writer:
        told = writer.upsert(rows([9], 1, 1.0))
        if error is not None:
            raise error
    assert isinstance(told.exception(), Unavailable)


def test_a_callback_that_exits_does_not_end_the_writer():
    table = mdt.open(filled(MOR, "bloom"))
    exited = threading.Event()

    def leave(future):
        exited.set()
        raise SystemExit

    with table.writer(max_seconds=0) as writer:
        writer.upsert(rows([8], 1, 1.0)).add_done_callback(leave)
        assert exited.wait(SOON)
        told = writer.upsert(rows([9], 1, 1.0))
    assert told.done()


def test_an_interrupted_flush_does_not_make_later_rows_hurry():
    def interrupt():
        raise KeyboardInterrupt

    with gathering(mdt.open(filled(MOR, "bloom"))) as writer:
        writer.upsert(rows([9], 1, 1.0)).done = interrupt
        with pytest.raises(KeyboardInterrupt):
            writer.flush()
        assert not writer._flushing


FOREVER = 3600.0
"""Seconds: nothing is committed because time has passed."""
SOON = 60
"""Seconds after which a test has failed."""


def gathering(table, **options):
    return table.writer(**{"max_rows": 1_000_000, "max_seconds": FOREVER, **options})


def test_what_one_block_writes_is_one_commit():
    storage = filled(MOR, "bloom")
    table = mdt.open(storage)
    before = table.snapshot().seq
    with gathering(table) as writer:
        told = [writer.upsert(rows([n, n + 1], 5, float(n))) for n in range(10)]
        assert not any(future.done() for future in told)
    assert table.snapshot().seq == before + 1
    assert {future.result() for future in told} == {told[0].result()}
    assert (told[0].result().inserted, told[0].result().updated, told[0].result().late) == (5, 6, 9)
    state = BASE_STATE
    for n in range(10):
        state = upserted(state, [n, n + 1], 5, float(n))
    assert ours(storage) == state == theirs(storage)


def test_upserts_and_deletes_stand_in_the_order_in_which_they_were_given():
    storage = filled(MOR, "record")
    table = mdt.open(storage)
    before = table.snapshot().seq
    with gathering(table) as writer:
        writer.upsert(rows([7], 5, 1.0))
        writer.upsert(rows([8], 5, 1.0))
        gone = writer.delete(rows([0, 7], 0, 0.0))
        missing = writer.delete(rows([70], 0, 0.0))
        writer.upsert(rows([7], 1, 2.0))
    assert table.snapshot().seq == before + 3
    assert gone.result() == missing.result() and (gone.result().deleted, gone.result().missing) == (
        2,
        1,
    )
    expected = upserted(deleted(upserted(BASE_STATE, [7, 8], 5, 1.0), [0, 7]), [7], 1, 2.0)
    assert ours(storage) == expected == theirs(storage)


def test_deletes_with_and_without_ordering_values_are_commits_of_their_own():
    storage = MemoryStorage()
    table = make(storage, MOR, "record", **{"mdt.delete.keeps.ordering": True})
    table.upsert(rows(range(4), 5, 1.0))
    with gathering(table) as writer:
        told = [
            writer.delete(rows([0, 1], 4, 0.0)),
            writer.delete(rows([2], 6, 0.0)),
            writer.delete(rows([3], 0, 0.0).select(["id", "city"])),
        ]
        late = writer.upsert(rows([2, 3], 4, 2.0))
    assert told[0].result() is told[1].result() and told[1].result().seq < told[2].result().seq
    assert [(future.result().deleted, future.result().late) for future in told[1:]] == [
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
        told = list(
            pool.map(lambda n: writer.upsert(rows([n % 30, 100 + n], n, float(n))), range(calls))
        )
        writer.flush()
        assert all(future.done() for future in told)
    commits = table.snapshot().seq - before
    assert max(future.result().seq for future in told) == before + commits and commits < calls / 3
    state = BASE_STATE
    for n in range(calls):
        state = upserted(state, [n % 30, 100 + n], n, float(n))
    assert ours(storage) == state == theirs(storage)
    count("calls of threads, gathered into few commits", calls)


def test_rows_that_do_not_fit_are_refused_at_once_and_hurt_nobody():
    storage = filled(MOR, "bloom")
    with gathering(mdt.open(storage)) as writer:
        good = writer.upsert(rows([9], 1, 1.0))
        with pytest.raises(Invalid, match="fare"):
            writer.upsert(rows([10], 1, 1.0).set_column(3, "fare", pa.array(["much"])))
        with pytest.raises(Invalid, match="a delete needs"):
            writer.delete({"fare": [1.0]})
    assert good.result().inserted == 1
    assert ours(storage) == upserted(BASE_STATE, [9], 1, 1.0)


def test_calls_that_are_refused_together_are_tried_one_by_one(
    monkeypatch,
):
    storage = filled(MOR, "bloom")
    writer = gathering(mdt.open(storage))
    write = writer._table._commit_write

    def picky(operation, *more):
        if "k66" in operation.rows.batch.table["id"].to_pylist():
            raise Invalid("no k66")
        return write(operation, *more)

    monkeypatch.setattr(writer._table, "_commit_write", picky)
    told = [writer.upsert(rows([n], 5, 1.0)) for n in (9, 66, 10)]
    with pytest.raises(Invalid, match="no k66"):
        writer.close()
    assert [future.exception() is None for future in told] == [True, False, True]
    assert ours(storage) == upserted(BASE_STATE, [9, 10], 5, 1.0)


def test_columns_that_are_added_meanwhile_are_null_in_rows_that_waited():
    table = mdt.open(filled(MOR, "bloom"))
    with gathering(table) as writer:
        writer.upsert(rows([9], 1, 1.0))
        table.alter(add={"more": "int64"})
        writer.flush()
        writer.upsert(rows([10], 1, 1.0).append_column("more", pa.array([3])))
    assert table.get([{"id": "k9", "city": "y"}, {"id": "k10", "city": "x"}])[
        "more"
    ].to_pylist() == [None, 3]


def test_a_call_that_is_cancelled_while_it_waits_is_not_written():
    storage = filled(MOR, "bloom")
    with gathering(mdt.open(storage)) as writer:
        kept, gone = writer.upsert(rows([9], 1, 1.0)), writer.upsert(rows([10], 1, 1.0))
        assert gone.cancel()
    assert kept.result().inserted == 1
    with pytest.raises(CancelledError):
        gone.result()
    assert ours(storage) == upserted(BASE_STATE, [9], 1, 1.0)


def test_who_gives_more_than_can_be_committed_waits(monkeypatch):
    writer = mdt.open(filled(MOR, "bloom")).writer(max_rows=1, max_seconds=0)
    write, may_go, begun = writer._table._commit_write, threading.Event(), threading.Event()

    def slow(*given):
        begun.set()
        assert may_go.wait(SOON)
        return write(*given)

    monkeypatch.setattr(writer._table, "_commit_write", slow)
    given = []
    giver = threading.Thread(
        target=lambda: given.extend(writer.upsert(rows([n], 5, 1.0)) for n in range(20, 40))
    )
    giver.start()
    assert begun.wait(SOON)
    giver.join(0.2)
    assert giver.is_alive() and writer._rows == WAITING_COMMITS
    may_go.set()
    giver.join(SOON)
    writer.close()
    assert sum(future.result().inserted for future in given) == 20


def written_by(storage):
    """Let a writer make three commits; return what it was told, and how its block ended."""
    told = []
    try:
        with mdt.open(storage).writer(max_rows=2, max_seconds=FOREVER) as writer:
            told.extend(writer.upsert(rows([n, n + 30], 5, float(n))) for n in range(3))
    except BaseException as error:  # noqa: BLE001 - a Crash is no Exception
        return told, error
    return told, None


def test_every_acknowledged_call_survives_a_crash():
    whole = FaultyStorage(filled(MOR, "record"))
    assert written_by(whole)[1] is None
    for k in range(1, len(whole.operations) + 1, 3):
        survivor = filled(MOR, "record")
        told, error = written_by(FaultyStorage(survivor, k))
        assert type(error).__name__ == "Crash"
        later(survivor)
        acknowledged = sum(future.exception() is None for future in told)
        states = [BASE_STATE]
        for n in range(3):
            states.append(upserted(states[-1], [n, n + 30], 5, float(n)))
        assert ours(survivor) in states[acknowledged:], k
        mdt.open(survivor).abort()
        assert ours(survivor) == theirs(survivor)
        assert_clean(survivor)
        count("crash points of a writer that gathers")


def test_a_closed_writer_a_spark_frame_and_nonsense_are_refused():
    table = mdt.open(filled(MOR, "bloom"))
    with gathering(table) as writer:
        frame = type("DataFrame", (), {"__module__": "pyspark.sql"})()
        with pytest.raises(Invalid, match="Spark DataFrame"):
            writer.upsert(frame)
    with pytest.raises(Invalid, match="closed"):
        writer.upsert(rows([9], 1, 1.0))
    for name, wrong in (
        ("max_rows", 0),
        ("max_rows", "1"),
        ("max_seconds", -1.0),
        ("max_seconds", float("nan")),
        ("max_seconds", "1"),
    ):
        with pytest.raises(Invalid, match="max_rows"):
            gathering(table, **{name: wrong})
    with pytest.raises(Invalid, match="read-only"):
        mdt.open(table.storage, as_of=1).writer()


def test_threads_that_gave_rows_to_the_last_commit_are_waited_for_and_are_in_the_next_one():
    storage = filled(MOR, "bloom")
    table = mdt.open(storage)
    before = table.snapshot().seq
    together = threading.Barrier(4)

    def give(writer, n, after):
        together.wait(SOON)
        if after is not None:
            after.wait(SOON)
        return writer.upsert(rows([n], 5, 1.0))

    with gathering(table) as writer, ThreadPoolExecutor(4) as pool:
        first = [pool.submit(give, writer, n, None) for n in range(4)]
        assert [one.result(SOON).done() for one in first] == [False] * 4
        writer.flush()
        assert mdt.open(storage).snapshot().seq == before + 1
        writer._max_seconds, writer._took = 0, 10.0 * SOON  # a commit on a storage that is very far
        late = threading.Event()
        second = [pool.submit(give, writer, n, late if n == 3 else None) for n in range(4)]
        assert [one.result(SOON).done() for one in second[:3]] == [False] * 3, (
            "the fourth may still come"
        )
        late.set()
        assert len({one.result(SOON).result(SOON) for one in second}) == 1
    assert mdt.open(storage).snapshot().seq == before + 2
