"""Batches that are written once: in any order of writers and after any crash, the table contains each
batch once.
"""

import pickle
from collections import Counter
from functools import cache

import pyarrow as pa
import pytest
from counting import count
from reader import bag, hudi_table
from schedules import DEPTH, acting, checked
from worlds import COW, MOR, OPTIONS, SCHEMA, later, rows, survivors

import mdt
from mdt.commit import conflicts
from mdt.commit.idempotent import StreamBatchOperation
from mdt.errors import Conflict, Invalid
from mdt.metadata.log import streams
from mdt.stores.storage import MemoryStorage
from mdt.write.blind_insert import INSERT_UNCHECKED
from mdt.write.by_name import RowWrite


@cache
def _table_with_repeats(table_type):
    """Return a table in which a batch that is written twice would be stored twice."""
    options = {**OPTIONS, "mdt.keys.repeat": True, "mdt.metadata.compact.records": 2}
    settings = {"partition_by": ["city"], "table_type": table_type, "options": options}
    return mdt.create(MemoryStorage(), SCHEMA, ["id"], **settings).storage


def open_copy():
    return mdt.open(_table_with_repeats(MOR).copy())


def count_by_fare(table):
    return Counter(table.scan().to_arrow()["fare"].to_pylist())


def insert_batch(table, stream, batch, fare=1.0):
    """Insert a row as a batch, without look-up."""
    return table.once(stream, batch).insert(rows([0], 1, fare), check=False)


def writer_of_batch(stream, batch, fare):
    def make(metadata, definition, options):
        data = rows([0, 20], 1, fare)
        operation = RowWrite(metadata, options, INSERT_UNCHECKED).in_process(data, definition)
        return StreamBatchOperation(operation, stream, batch)

    return acting(f"{stream} {batch}", make)


EITHER = {((1.0, 2),), ((2.0, 2),)}
BOTH = ((1.0, 2), (2.0, 2))


def outcomes(first, second, depth):
    """Return the counts of fares that tables have after every order of two batches."""
    actors = writer_of_batch(*first, 1.0), writer_of_batch(*second, 2.0)
    runs = checked(lambda: _table_with_repeats(MOR).copy(), actors, depth)
    return {tuple(sorted(count_by_fare(table).items())) for _, table in runs}


@pytest.mark.parametrize("depth", DEPTH)
@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (("s", 7), ("s", 7), EITHER),
        (("s", "a"), ("s", "a"), EITHER),
        (("s", 7), ("s", 8), {BOTH, ((2.0, 2),)}),  # with or without the older batch
        (("s", 7), ("other", 7), {BOTH}),
    ],
    ids=["same number", "same text", "later number", "other stream"],
)
def test_a_batch_of_two_writers_is_in_the_table_once_in_every_order(first, second, expected, depth):
    assert outcomes(first, second, depth) == expected


def test_without_the_conflict_check_a_batch_would_be_written_twice(monkeypatch):
    check = conflicts.check

    def ignore_streams(footprint, *more):
        reason = check(footprint, *more)
        return None if reason is not None and "same stream" in reason else reason

    monkeypatch.setattr(conflicts, "check", ignore_streams)
    assert BOTH in outcomes(("s", 7), ("s", 7), 1)


@pytest.mark.parametrize("table_type", [MOR, pytest.param(COW, marks=pytest.mark.nightly)])
def test_a_writer_that_repeats_its_batches_after_a_crash_writes_each_once(table_type):
    def run(storage):
        table = mdt.open(storage)
        for batch in range(3):
            table.once("s", batch).insert(rows([0, 20], 1, float(batch)), check=False)

    for where, storage in survivors(_table_with_repeats(table_type).copy, run):
        count("crash points")
        run(later(storage))
        table = mdt.open(storage)
        assert count_by_fare(table) == Counter({0.0: 2, 1.0: 2, 2.0: 2}) and table.check().ok, where


WIDER = rows([1], 2, 3.0).append_column("n", pa.array([5]))
WRITES = {
    "upsert": lambda t: t.upsert(rows([1], 2, 3.0)),
    "insert": lambda t: t.insert(rows([20], 1, 3.0)),
    "bulk_insert": lambda t: t.bulk_insert(rows([20], 1, 3.0)),
    "partial": lambda t: t.upsert(rows([1], 2, 3.0).drop_columns(["ts"]), partial=True),
    "mergers": lambda t: t.upsert(rows([1], 2, 3.0), mergers={"fare": "sum"}),
    "reader": lambda t: t.upsert(rows([1], 2, 3.0).to_reader()),
    "delete": lambda t: t.delete(rows([1], 1, 0.0)),
    "delete_where": lambda t: t.delete_where("fare = 1.0 and id = 'k1'"),
    "update_where": lambda t: t.update_where({"fare": "fare + 1"}, "id = 'k1'"),
    "insert_overwrite": lambda t: t.insert_overwrite(rows([20], 1, 3.0)),
    "truncate": lambda t: t.truncate(),
    "merge": lambda t: t.merge(rows([1], 2, 3.0)).when_matched().update("*").execute(),
    "evolve": lambda t: t.upsert(WIDER, evolve=True),
}


def on_disk(folder):
    """Return an empty table with unique keys."""
    return mdt.create(
        folder / "t", SCHEMA, ["id"], partition_by=["city"], ordering="ts", table_type=MOR
    )


@pytest.mark.parametrize("name", WRITES)
def test_every_operation_that_writes_rows_can_be_a_batch(name, tmp_path):
    options = {"mdt.write.memory.max": 1} if name == "reader" else {}
    created = on_disk(tmp_path)
    created.upsert(rows(range(4), 1, 1.0))

    def handle(batch):
        return mdt.open(tmp_path / "t", options).once("s", batch)

    first, second = (WRITES[name](handle(3)) for _ in range(2))
    changed = 4 if name == "truncate" else 1
    assert first.inserted + first.updated + first.deleted >= changed and first.instant
    assert (second.inserted, second.updated, second.deleted, second.instant) == (0, 0, 0, "")
    assert second.seq == first.seq == created.snapshot().seq
    assert not WRITES[name](handle(2)).instant, "a batch before the newest one is in the table"
    assert handle(4).upsert(rows([40], 1, 1.0), evolve=True).inserted == 1
    assert not created.check().problems
    assert bag(created.scan().to_arrow()) == bag(hudi_table(tmp_path / "t", created.schema))


def test_a_batch_without_effect_has_no_effect_when_it_is_retried(tmp_path):
    table = on_disk(tmp_path)
    writes = [
        WRITES["delete"],
        WRITES["delete_where"],
        WRITES["update_where"],
        WRITES["merge"],
        lambda t: t.upsert(rows([], 1, 1.0)),
    ]
    assert all(write(table.once("s", number)).instant for number, write in enumerate(writes))
    table.upsert(rows([1], 1, 1.0))
    assert not any(write(table.once("s", number)).instant for number, write in enumerate(writes))
    assert count_by_fare(table) == Counter({1.0: 1}) and table.check().ok
    assert bag(table.scan().to_arrow()) == bag(hudi_table(tmp_path / "t", SCHEMA))


def test_a_batch_that_is_already_committed_adds_no_column():
    table = open_copy()
    table.once("s", 1).upsert(rows([1], 1, 1.0))
    assert not table.once("s", 1).upsert(WIDER, evolve=True).instant
    assert table.schema.names == SCHEMA.names


def test_a_pickled_handle_keeps_its_batch_and_its_snapshot(tmp_path):
    table = on_disk(tmp_path)
    table.upsert(rows([1], 1, 1.0))
    handle = table.once("s", 1)
    restored = pickle.loads(pickle.dumps(handle))
    assert [WRITES["update_where"](each).updated for each in (handle, restored)] == [1, 0]
    bound = pickle.loads(pickle.dumps(table.resting_on(1)))
    with pytest.raises(Conflict):
        bound.update_where({"fare": "fare + 1"})


def known_batches(table):
    """Return the newest number of each stream of a table, and its text ids."""
    snapshot = table.snapshot().streams
    numbers = {name: batch for name, (batch, _) in snapshot.batches.items()}
    return numbers, {name: "".join(sorted(texts)) for name, texts in snapshot.ids.items()}


def test_a_table_remembers_the_streams_that_wrote_last(monkeypatch):
    monkeypatch.setattr(streams, "STREAMS_MAX", 2)
    table = open_copy()
    for number, stream in enumerate("abac"):
        insert_batch(table, stream, number)
    for reader in (table, mdt.open(table.storage)):
        assert known_batches(reader)[0] == {"a": 2, "c": 3}
    table.repair()
    assert mdt.open(table.storage).snapshot().streams == table.snapshot().streams


def test_an_older_number_is_skipped_with_a_warning_but_a_text_id_is_written():
    table = open_copy()
    insert_batch(table, "s", 20240102, 2.0)
    assert not insert_batch(table, "s", 20240102, 2.0).warnings
    older = insert_batch(table, "s", 20240101)
    [warning] = older.warnings
    assert not older.instant and "batch 20240101 of the stream 's' was not written" in warning
    assert "t.once('s', '20240101')" in warning
    evolved = table.once("s", 20240101).upsert(rows([1], 1, 1.0), evolve=True)
    assert evolved.warnings == older.warnings
    results = [insert_batch(table, "s", "20240101") for _ in range(2)]
    assert [bool(result.instant) for result in results] == [True, False]
    assert not results[0].warnings + results[1].warnings
    assert count_by_fare(table) == Counter({2.0: 1, 1.0: 1})


def test_text_ids_are_written_once_in_any_order_also_after_a_repair():
    table = open_copy()
    for text in "bacab":
        insert_batch(table, "s", text, float(ord(text)))
    insert_batch(table, "other", "a", 0.0)
    assert count_by_fare(table) == Counter({97.0: 1, 98.0: 1, 99.0: 1, 0.0: 1})
    table.repair()
    for reader in (table, mdt.open(table.storage)):
        assert known_batches(reader)[1] == {"s": "abc", "other": "a"}
        assert not insert_batch(reader, "s", "c").instant


def test_of_too_many_text_ids_the_oldest_of_the_largest_stream_is_dropped_with_a_warning(
    monkeypatch,
):
    monkeypatch.setattr(streams, "STREAM_IDS_MAX", 3)
    table = open_copy()
    for stream, text in (("s", "z"), ("day", "1"), ("s", "y")):
        assert not insert_batch(table, stream, text).warnings
    [warning] = insert_batch(table, "day", "2").warnings
    assert "drops 'z' of the stream 's'" in warning
    for reader in (table, mdt.open(table.storage)):
        assert known_batches(reader)[1] == {"s": "y", "day": "12"}
    assert table.check().ok


WRONG_STREAM = "the name of a stream must be printable text"
WRONG_TEXT = "a batch id must be printable text"


@pytest.mark.parametrize(
    ("stream", "batch", "reason"),
    [
        ("", 1, WRONG_STREAM),
        ("\ud800", 1, WRONG_STREAM),
        ("a\nb", 1, WRONG_STREAM),
        (7, 1, WRONG_STREAM),
        ("s", -1, "is out of range"),
        ("s", 2**63, "is out of range"),
        ("s", 1.5, "whole number"),
        ("s", "", WRONG_TEXT),
        ("s", "a\nb", WRONG_TEXT),
        ("s", "x" * 257, "at most 256 bytes"),
    ],
)
def test_invalid_stream_names_and_batch_ids_are_refused(stream, batch, reason):
    with pytest.raises(Invalid, match=reason):
        open_copy().once(stream, batch)


def test_a_writer_with_many_commits_cannot_be_a_batch():
    with pytest.raises(Invalid, match="one call"):
        open_copy().once("s", 1).writer()
