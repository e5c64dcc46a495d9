"""Batches that are written once: whoever tries, in whatever order, and when their process dies,
each stands in the table once.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from counting import count
from reader import bag, hudi_table
from schedules import PAUSES, Actor, driven, explore
from worlds import COW, MOR, OPTIONS, SCHEMA, later, rows, survivors

import mdt
from mdt.commit import conflicts
from mdt.commit.idempotent import Once
from mdt.config import parse_options
from mdt.errors import Conflict, Invalid
from mdt.metadata.metadata import Metadata
from mdt.stores.storage import MemoryStorage, Storage
from mdt.write.blind_insert import INSERT_UNCHECKED
from mdt.write.by_name import write_here

DEPTH = [1, pytest.param(None, marks=pytest.mark.nightly)]


@cache
def _world(table_type: str) -> MemoryStorage:
    """A table in which a batch that is written twice stands there twice."""
    storage = MemoryStorage()
    options = {**OPTIONS, "mdt.keys.repeat": True, "mdt.metadata.compact.records": 2}
    mdt.create(
        storage, SCHEMA, ["id"], partition_by=["city"], table_type=table_type, options=options
    )
    return storage


def found(storage: Storage) -> Counter[float]:
    return Counter(mdt.open(storage).scan().to_arrow()["fare"].to_pylist())


def once(stream: str, batch: int | str, fare: float) -> Actor:
    def make(metadata: Metadata) -> Once:
        definition = metadata.newest().definition
        options, data = parse_options(definition.options), rows([0, 20], 1, fare)
        operation = write_here(metadata, options, data, INSERT_UNCHECKED, definition)
        return Once(operation, stream, batch)

    return Actor(f"{stream} {batch}", lambda s: driven(s, make, PAUSES), lambda state: state)


def ends(others: tuple[Actor, ...], depth: int | None) -> set[tuple[tuple[float, int], ...]]:
    """Return what tables hold after every order of batch 7 of a stream and ``others``: how often
    each fare.
    """
    seen = set()
    for run in explore(lambda: _world(MOR).copy(), [once("s", 7, 1.0), *others], preemptions=depth):
        count("schedules")
        assert mdt.open(run.storage).check().ok, run.schedule
        seen.add(tuple(sorted(found(run.storage).items())))
    return seen


@pytest.mark.parametrize("depth", DEPTH)
def test_a_batch_that_two_write_stands_in_the_table_once_in_every_order(depth: int | None) -> None:
    assert ends((once("s", 7, 2.0),), depth) == {((1.0, 2),), ((2.0, 2),)}


@pytest.mark.parametrize("depth", DEPTH)
def test_a_later_batch_stands_beside_and_without_an_older_one(depth: int | None) -> None:
    assert ends((once("s", 8, 2.0),), depth) == {((1.0, 2), (2.0, 2)), ((2.0, 2),)}


def test_batches_of_other_streams_do_not_meet() -> None:
    assert ends((once("other", 7, 2.0),), 1) == {((1.0, 2), (2.0, 2))}


def test_without_the_conflict_a_batch_would_stand_there_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check = conflicts.check

    def blind(mine: conflicts.Footprint, *more: Any) -> str | None:
        why = check(mine, *more)
        return None if why is not None and "same stream" in why else why

    monkeypatch.setattr(conflicts, "check", blind)
    assert ((1.0, 2), (2.0, 2)) in ends((once("s", 7, 2.0),), 1)


@pytest.mark.parametrize("table_type", [MOR, pytest.param(COW, marks=pytest.mark.nightly)])
def test_after_a_crash_a_writer_that_repeats_its_batches_has_written_each_once(
    table_type: str,
) -> None:
    def run(storage: Storage) -> None:
        table = mdt.open(storage)
        for batch in range(3):
            table.once("s", batch).insert(rows([0, 20], 1, float(batch)), check=False)

    for where, storage in survivors(_world(table_type).copy, run):
        count("crash points")
        run(later(storage))
        assert found(storage) == Counter({0.0: 2, 1.0: 2, 2.0: 2}), where
        assert mdt.open(storage).check().ok, where


WRITES: list[tuple[str, Callable[[mdt.Table], mdt.WriteResult], int]] = [
    ("upsert", lambda t: t.upsert(rows([1], 2, 3.0)), 1),
    ("insert", lambda t: t.insert(rows([20], 1, 3.0)), 1),
    ("bulk_insert", lambda t: t.bulk_insert(rows([20], 1, 3.0)), 1),
    ("partial", lambda t: t.upsert(rows([1], 2, 3.0).drop_columns(["ts"]), partial=True), 1),
    ("mergers", lambda t: t.upsert(rows([1], 2, 3.0), mergers={"fare": "sum"}), 1),
    ("reader", lambda t: t.upsert(rows([1], 2, 3.0).to_reader()), 1),
    ("delete", lambda t: t.delete(rows([1], 1, 0.0)), 1),
    ("delete_where", lambda t: t.delete_where("fare = 1.0 and id = 'k1'"), 1),
    ("update_where", lambda t: t.update_where({"fare": "fare + 1"}, "id = 'k1'"), 1),
    ("insert_overwrite", lambda t: t.insert_overwrite(rows([20], 1, 3.0)), 1),
    ("truncate", lambda t: t.truncate(), 4),
    (
        "merge",
        lambda t: (
            t.merge(rows([1], 2, 3.0)).when_matched().update({"fare": "target.fare + 1"}).execute()
        ),
        1,
    ),
    (
        "evolve",
        lambda t: t.upsert(rows([1], 2, 3.0).append_column("n", pa.array([5])), evolve=True),
        1,
    ),
]


@pytest.mark.parametrize(("name", "write", "changed"), WRITES, ids=[name for name, *_ in WRITES])
def test_every_operation_that_writes_rows_may_be_a_batch(
    name: str, write: Callable[[mdt.Table], mdt.WriteResult], changed: int, tmp_path: Any
) -> None:
    options = {**OPTIONS, "mdt.write.memory.max": 1} if name == "reader" else OPTIONS
    made = mdt.create(
        tmp_path / "t",
        SCHEMA,
        ["id"],
        partition_by=["city"],
        ordering="ts",
        table_type=MOR,
        options=options,
    )
    made.upsert(rows(range(4), 1, 1.0))
    first, again = (write(mdt.open(tmp_path / "t", options).once("s", 3)) for _ in range(2))
    assert first.inserted + first.updated + first.deleted >= changed and first.instant
    assert (again.inserted, again.updated, again.deleted, again.instant) == (0, 0, 0, "")
    assert again.seq == first.seq == made.snapshot().seq
    older = write(mdt.open(tmp_path / "t", options).once("s", 2))
    assert not older.instant, "a batch before the newest one is in the table"
    later_on = (
        mdt.open(tmp_path / "t", options).once("s", 4).upsert(rows([40], 1, 1.0), evolve=True)
    )
    assert later_on.inserted == 1 and not made.check().problems
    assert bag(made.scan().to_arrow()) == bag(hudi_table(tmp_path / "t", made.schema))


def test_a_batch_that_changed_nothing_changes_nothing_when_it_is_tried_again(tmp_path: Any) -> None:
    table = mdt.create(
        tmp_path / "t", SCHEMA, ["id"], partition_by=["city"], ordering="ts", table_type=MOR
    )
    writes: list[Callable[[mdt.Table], mdt.WriteResult]] = [
        lambda t: t.delete(rows([1], 1, 0.0)),
        lambda t: t.delete_where("id = 'k1'"),
        lambda t: t.update_where({"fare": "fare + 1"}, "id = 'k1'"),
        lambda t: t.merge(rows([1], 2, 3.0)).when_matched().delete().execute(),
        lambda t: t.upsert(rows([], 1, 1.0)),
    ]
    for number, write in enumerate(writes):
        assert write(table.once("s", number)).instant
    table.upsert(rows([1], 1, 1.0))
    for number, write in enumerate(writes):
        assert not write(table.once("s", number)).instant
    assert table.scan().count() == 1 and table.check().ok
    assert bag(table.scan().to_arrow()) == bag(hudi_table(tmp_path / "t", SCHEMA))


def test_a_batch_that_is_there_adds_no_column() -> None:
    table = mdt.open(_world(MOR).copy())
    table.once("s", 1).upsert(rows([1], 1, 1.0))
    wider = rows([1], 1, 1.0).append_column("n", pa.array([5]))
    assert not table.once("s", 1).upsert(wider, evolve=True).instant
    assert table.schema.names == SCHEMA.names


def test_a_handle_that_was_pickled_is_of_the_same_batch_and_rests_on_the_same_state(
    tmp_path: Any,
) -> None:
    table = mdt.create(
        tmp_path / "t", SCHEMA, ["id"], partition_by=["city"], ordering="ts", table_type=MOR
    )
    table.upsert(rows([1], 1, 1.0))
    handle = table.once("s", 1)
    again = pickle.loads(pickle.dumps(handle))
    assert [one.update_where({"fare": "fare + 1"}).updated for one in (handle, again)] == [1, 0]
    rested = pickle.loads(pickle.dumps(table.resting_on(1)))
    with pytest.raises(Conflict):
        rested.update_where({"fare": "fare + 1"})


def test_a_table_knows_the_streams_that_wrote_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdt.metadata.log.streams.STREAMS_MAX", 2)
    storage = _world(MOR).copy()
    table = mdt.open(storage)
    for number, stream in enumerate(("a", "b", "a", "c")):
        table.once(stream, number).insert(rows([number], 1, 1.0), check=False)
    for opened in (table, mdt.open(storage)):
        assert {name: batch for name, (batch, _) in opened.snapshot().streams.batches.items()} == {
            "a": 2,
            "c": 3,
        }
    table.repair()
    assert mdt.open(storage).snapshot().streams == table.snapshot().streams


def test_an_older_number_is_left_out_with_a_warning_and_a_text_id_is_written() -> None:
    table = mdt.open(_world(MOR).copy())
    table.once("s", 20240102).insert(rows([0], 1, 2.0), check=False)
    again = table.once("s", 20240102).insert(rows([0], 1, 2.0), check=False)
    older = table.once("s", 20240101).insert(rows([1], 1, 1.0), check=False)
    assert not again.warnings and not older.instant
    [warning] = older.warnings
    assert (
        "batch 20240101 of the stream 's' was not written" in warning
        and "t.once('s', '20240101')" in warning
    )
    evolved = table.once("s", 20240101).upsert(rows([1], 1, 1.0), evolve=True)
    assert evolved.warnings == older.warnings
    for _ in range(2):
        done = table.once("s", "20240101").insert(rows([1], 1, 1.0), check=False)
        assert not done.warnings
    assert not done.instant and found(table.storage) == Counter({2.0: 1, 1.0: 1})


def test_text_ids_come_in_any_order_and_each_is_written_once_after_a_checkpoint_and_a_repair_too() -> (
    None
):
    storage = _world(MOR).copy()
    table = mdt.open(storage)
    for text in ("b", "a", "c", "a", "b"):
        table.once("s", text).insert(rows([0], 1, float(ord(text))), check=False)
    table.once("other", "a").insert(rows([0], 1, 0.0), check=False)
    assert found(storage) == Counter({97.0: 1, 98.0: 1, 99.0: 1, 0.0: 1})
    table.repair()
    for opened in (table, mdt.open(storage)):
        assert {name: set(known) for name, known in opened.snapshot().streams.ids.items()} == {
            "s": {*"abc"},
            "other": {"a"},
        }
        assert not opened.once("s", "c").insert(rows([0], 1, 1.0), check=False).instant


def test_of_too_many_text_ids_the_oldest_of_the_largest_stream_is_forgotten_and_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mdt.metadata.log.streams.STREAM_IDS_MAX", 3)
    storage = _world(MOR).copy()
    table = mdt.open(storage)
    for stream, text in (("s", "z"), ("day", "1"), ("s", "y")):
        assert not table.once(stream, text).insert(rows([0], 1, 1.0), check=False).warnings
    [warning] = table.once("day", "2").insert(rows([0], 1, 1.0), check=False).warnings
    assert "forgets 'z' of the stream 's'" in warning
    for opened in (table, mdt.open(storage)):
        assert {name: set(known) for name, known in opened.snapshot().streams.ids.items()} == {
            "s": {"y"},
            "day": {"1", "2"},
        }
    assert table.check().ok


@pytest.mark.parametrize("depth", DEPTH)
def test_a_text_id_that_two_write_stands_in_the_table_once_in_every_order(
    depth: int | None,
) -> None:
    seen = set()
    for run in explore(
        lambda: _world(MOR).copy(), [once("s", "a", 1.0), once("s", "a", 2.0)], preemptions=depth
    ):
        count("schedules")
        seen.add(tuple(sorted(found(run.storage).items())))
    assert seen == {((1.0, 2),), ((2.0, 2),)}


@pytest.mark.parametrize(
    ("stream", "batch", "reason"),
    [
        ("", 1, "a stream has printable text"),
        ("\ud800", 1, "a stream has printable text"),
        ("a\nb", 1, "a stream has printable text"),
        (7, 1, "a stream has printable text"),
        ("s", -1, "numbered from 0 on"),
        ("s", 2**63, "numbered from 0 on"),
        ("s", 1.5, "whole number"),
        ("s", "", "the id of a batch is printable text"),
        ("s", "a\nb", "the id of a batch is printable text"),
        ("s", "x" * 257, "at most 256 bytes"),
    ],
)
def test_other_names_and_numbers_are_refused(stream: Any, batch: Any, reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        mdt.open(_world(MOR).copy()).once(stream, batch)


def test_a_writer_that_makes_many_commits_is_no_batch() -> None:
    with pytest.raises(Invalid, match="one call"):
        mdt.open(_world(MOR).copy()).once("s", 1).writer()
