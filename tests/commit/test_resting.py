"""Writes that rest on an earlier snapshot: later changes of other writers conflict as if the write
had begun at that snapshot.
"""

from __future__ import annotations

import pickle
import shutil

import pyarrow as pa
import pytest
from texts import columns

import mdt
from mdt.commit import conflicts
from mdt.errors import Conflict, Invalid, Unavailable
from mdt.stores.memory import MemoryStorage
from mdt.testing.slow import CountingStorage
from mdt.write.operations import RowPlan


def set_n_of_a(table, n):
    return table.merge([row("a", "Oslo", n)]).when_matched().update({"n": "source.n"}).execute()


SCHEMA = columns("id string, city string, n int64, ts int64")


def filled():
    table = mdt.create(
        MemoryStorage(),
        SCHEMA,
        ["id"],
        partition_by=["city"],
        ordering="ts",
        table_type="MERGE_ON_READ",
    )
    table.upsert([row("a", "Oslo"), row("b", "Oslo"), row("c", "Rome")])
    return table


def row(key, city, n=1, ts=1):
    return {"id": key, "city": city, "n": n, "ts": ts}


def merge_based_on_earlier_snapshot(table, others):
    """Update n of row a and insert row x, based on the snapshot before ``others`` changed the
    table.
    """
    seq = table.snapshot().seq
    others(table)
    merge = table.resting_on(seq).merge([row("a", "Oslo", 2), row("x", "Rome", 9)])
    merge = merge.when_matched().update({"n": "source.n"})
    return (
        merge.when_not_matched().insert({name: f"source.{name}" for name in SCHEMA.names}).execute()
    )


@pytest.mark.parametrize(
    "others",
    [
        lambda t: None,
        lambda t: t.upsert([row("c", "Rome", 5, 2)]),
        lambda t: t.upsert([row("new", "Bonn")]),
        lambda t: t.delete_where("city = 'Rome'"),
        lambda t: t.create_index("bitmap(n)"),
    ],
    ids=["nothing", "another partition", "another key", "other rows go", "an index"],
)
def test_changes_of_other_rows_by_others_do_not_conflict(others):
    table = filled()
    result = merge_based_on_earlier_snapshot(table, others)
    assert (result.updated, result.inserted) == (1, 1) and not table.check().problems
    values = {live_row["id"]: live_row["n"] for live_row in table.scan().to_arrow().to_pylist()}
    assert values["a"] == 2 and values["x"] == 9


@pytest.mark.parametrize(
    "others, reason",
    [
        (lambda t: t.upsert([row("a", "Oslo", 7, 2)]), "changed file group"),
        (lambda t: t.upsert([row("x", "Rome", 7)]), "changed file group|found absent"),
        (lambda t: t.update_where(values={"n": 3}, where="id = 'c'"), "may match the condition"),
        (lambda t: t.alter(add={"more": pa.int64()}), "altered"),
        (lambda t: t.insert_overwrite([row("a", "Oslo", 7)]), "changed file group"),
    ],
    ids=["the row", "the key", "rows by a condition", "the columns", "where it stands"],
)
def test_changes_of_rows_or_columns_that_were_read_conflict_and_nothing_is_written(others, reason):
    table = filled()
    with pytest.raises(Conflict, match=reason):
        merge_based_on_earlier_snapshot(table, others)
    assert "merge" not in table.history()["operation"].to_pylist() and not table.check().problems


def test_inserting_a_key_that_was_added_meanwhile_conflicts_and_an_older_key_is_invalid():
    table = filled()
    seq = table.snapshot().seq

    def insert(key):
        table.resting_on(seq).merge(
            [row(key, "Rome", 50)], on=["n", "city"]
        ).when_not_matched().insert().execute()

    with pytest.raises(Invalid, match="exist already"):
        insert("c")
    table.upsert([row("y", "Rome")])
    with pytest.raises(Conflict, match="exist already"):
        insert("y")


def test_resting_on_returns_a_new_handle_and_does_not_change_the_old_one():
    table = filled()
    seq = table.snapshot().seq
    table.upsert([row("a", "Oslo", 7, 2)])
    assert table.resting_on(seq) is not table
    assert set_n_of_a(table, 8).updated == 1


def test_upserts_of_streamed_rows_rest_on_the_snapshot_too():
    options = {"mdt.write.memory.max": 1}
    rows = pa.Table.from_pylist([row("a", "Oslo", 2, 3)], SCHEMA)
    table = filled()
    seq = table.snapshot().seq
    assert mdt.open(table.storage, options).resting_on(seq).upsert(rows.to_reader()).updated == 1
    with pytest.raises(Conflict, match="changed file group"):
        mdt.open(table.storage, options).resting_on(seq).upsert(rows.to_reader())
    assert table.history()["operation"].to_pylist().count("upsert") == 2 and table.check().ok


def test_resting_on_and_once_make_no_requests_and_can_be_combined_in_either_order():
    storage = CountingStorage(filled().storage)
    table = mdt.open(storage)
    rounds_before = storage.rounds
    once = table.resting_on(1).once("numbers", 0)
    assert storage.rounds == rounds_before
    table.upsert([row("a", "Oslo", 5, 5)])
    with pytest.raises(Conflict):
        set_n_of_a(once, 2)
    assert not table.snapshot().streams.has("numbers", 0)
    combined = table.once("numbers", 0).resting_on(2)
    assert [set_n_of_a(combined, 6).updated for _ in "ab"] == [1, 0]
    assert table.snapshot().streams.has("numbers", 0) and not table.check().problems


def test_an_upsert_that_alters_its_table_rests_on_the_alteration():
    table = filled()
    seq = table.snapshot().seq
    resting = table.resting_on(seq)
    new = {**row("a", "Oslo", 2, 2), "more": 7}
    assert resting.upsert([new], evolve=True).updated == 1
    assert table.scan("more = 7").count() == 1
    with pytest.raises(Conflict, match=f"read at commit {seq}"):
        resting.upsert([{**new, "even_more": 8}], evolve=True)


def test_a_write_that_rests_on_a_lost_commit_conflicts_after_a_backup_is_restored(tmp_path):
    path, backup = tmp_path / "t", tmp_path / "saved"
    table = mdt.create(path, SCHEMA, ["id"], options={"mdt.durable": False})
    table.upsert([row("a", "Oslo"), row("b", "Oslo")])
    shutil.copytree(path, backup)
    resting = table.resting_on(table.upsert([row("a", "Oslo", 2)]).seq)
    shutil.rmtree(path)
    shutil.copytree(backup, path)
    pickled = pickle.dumps(resting)
    for _ in range(2):  # without a commit of the same number, and with one
        for handle in (resting, pickle.loads(pickled)):
            with pytest.raises(Conflict, match="read at commit 2: the table has no such commit"):
                handle.upsert([row("a", "Oslo", 3)])
        mdt.open(path).upsert([row("b", "Oslo", 4)])
    assert mdt.open(path).resting_on(3).upsert([row("a", "Oslo", 5)]).updated == 1


def test_a_plan_is_released_if_it_cannot_be_compared_with_the_commits_since(monkeypatch):
    table, released = filled(), []
    seq = table.snapshot().seq
    table.upsert([row("b", "Oslo", 2)])

    def fail(*_):
        raise Unavailable("no answer")

    monkeypatch.setattr(conflicts, "check", fail)
    monkeypatch.setattr(RowPlan, "close", lambda plan: released.append(plan))
    with pytest.raises(Unavailable, match="no answer"):
        table.resting_on(seq).upsert([row("a", "Oslo", 3)])
    assert len(released) == 1


def test_resting_on_requires_the_number_of_a_commit():
    with pytest.raises(Invalid, match="seq"):
        filled().resting_on("newest")
