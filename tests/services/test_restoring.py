"""Restore: one commit that brings back the rows of an earlier state and can itself be undone."""

import io
import shutil
from functools import cache

import fastavro
import pyarrow as pa
import pytest
from reader import agreed, bag
from texts import columns

import mdt
from mdt.errors import Invalid

SCHEMA = columns("id string, city string, ts int64, n int64")
KINDS = [
    (kind, key_index, scope, ordering)
    for kind in ("MERGE_ON_READ", "COPY_ON_WRITE")
    for key_index, scope in (("record", "partition"), ("bloom", "partition"), ("record", "table"))
    for ordering in ("ts", None)
]


def rows(*values):
    return pa.Table.from_pylist(
        [dict(zip(SCHEMA.names, row, strict=True)) for row in values], schema=SCHEMA
    )


@pytest.fixture(params=KINDS, ids=str)
def table(
    request,
    tmp_path,
    made,
):
    """A table with updates, inserts, deletes, a deleted key inserted again, and services between
    them.
    """
    return mdt.open(shutil.copytree(made(request.param), tmp_path / "t"))


@pytest.fixture(scope="module")
def made(
    tmp_path_factory,
):
    """A function that returns the path of a table of a kind, which is created once."""
    return cache(lambda kind: _create_table(tmp_path_factory.mktemp("restoring") / "t", *kind))


def _create_table(path, kind, key_index, scope, ordering):
    created = mdt.create(
        path,
        SCHEMA,
        ["id"],
        partition_by=["city"],
        ordering=ordering,
        table_type=kind,
        key_index=key_index,
        scope=scope,
        indexes=["bitmap(n)"],
        options={"mdt.services.auto": False},
    )
    created.upsert(rows(("a", "x", 1, 1), ("b", "x", 1, 2), ("c", "y", 1, 3), ("d", "y", 1, 4)))
    created.upsert(rows(("a", "x", 2, 10), ("e", "z", 2, 5)))
    created.delete(rows(("b", "x", 0, 0), ("d", "y", 0, 0)))
    created.compact()
    created.upsert(rows(("b", "x", 5, 20), ("c", "y", 6, 30), ("f", "x", 7, 6)))
    return path


def states(table):
    return [bag(table.scan(as_of=seq).to_arrow()) for seq in range(table.snapshot().seq + 1)]


def test_the_changes_of_a_restore_are_the_opposite_of_the_undone_changes(table):
    newest = table.snapshot().seq
    undone = table.changes(1, newest).to_arrow().to_pylist()
    result = table.restore(1)
    change_rows = table.changes(newest).to_arrow().to_pylist()
    opposite = {
        "insert": "delete",
        "delete": "insert",
        "update_before": "update_after",
        "update_after": "update_before",
    }
    expected = sorted((opposite[row["_change"]], row["id"], row["n"]) for row in undone)
    assert sorted((row["_change"], row["id"], row["n"]) for row in change_rows) == expected
    counts = {
        kind: sum(row["_change"] == kind for row in change_rows)
        for kind in ("insert", "update_after", "delete")
    }
    assert (result.inserted, result.updated, result.deleted) == tuple(counts.values())
    images = {"update_before": [], "update_after": []}
    for row in table.changes(1).to_arrow().to_pylist():
        images[row["_change"]].append((row["id"], row["ts"], row["n"]))
    assert sorted(images["update_before"]) == sorted(images["update_after"]), (
        "updated rows equal the rows of the restored state"
    )
    assert table.scan(since=newest).count() == counts["insert"] + counts["update_after"], (
        "restored rows have a new commit time"
    )


def test_rollback_undoes_a_commit_and_all_later_commits(table):
    states_before, newest = states(table), table.snapshot().seq
    table.rollback(newest)
    assert bag(table.scan().to_arrow()) == states_before[newest - 1]
    table.rollback(table.history()["instant"][2].as_py())
    assert bag(agreed(table)) == states_before[1]
    assert table.history()["operation"].to_pylist()[-2:] == ["restore", "restore"]
    for seq in (0, table.snapshot().seq + 1):
        with pytest.raises(Invalid, match="cannot be rolled back"):
            table.rollback(seq)


def read_avro(path):
    (content,) = fastavro.reader(io.BytesIO(path.read_bytes()))
    return content


def test_a_restore_is_on_hudis_timeline_and_lists_no_instants_to_roll_back(table, tmp_path):
    timeline = tmp_path / "t" / ".hoodie"
    target = table.history()["instant"].to_pylist()[1]
    instant = table.restore(1).instant
    instants = sorted(path.name for path in timeline.glob(f"{instant}.restore*"))
    assert instants == [
        f"{instant}.restore",
        f"{instant}.restore.inflight",
        f"{instant}.restore.requested",
    ]
    plan, completed = (
        read_avro(timeline / f"{instant}.{name}") for name in ("restore.requested", "restore")
    )
    assert (plan["savepointToRestoreTimestamp"], plan["instantsToRollback"]) == (target, [])
    assert completed["startRestoreTime"] == instant
    assert not (
        completed["instantsToRollback"]
        or completed["hoodieRestoreMetadata"]
        or completed["restoreInstantInfo"]
    )
    completed_path = timeline / f"{instant}.restore"
    content = completed_path.read_bytes()
    completed_path.unlink()
    assert any(problem.path.endswith(".restore") for problem in table.check().problems)
    assert table.repair().ok
    assert completed_path.read_bytes() == content


def test_restoring_the_newest_state_commits_nothing(made):
    table = mdt.open(made(KINDS[0]))
    newest = table.snapshot().seq
    result = table.restore(newest)
    assert (result.seq, result.instant) == (newest, "")
    assert mdt.open(table.path).snapshot().seq == newest


def test_restoring_unknown_states_or_read_only_tables_is_refused(table):
    with pytest.raises(Invalid, match="no commit 99"):
        table.restore(99)
    with pytest.raises(Invalid, match="read-only"):
        mdt.open(table.path, as_of=1).restore(0)
