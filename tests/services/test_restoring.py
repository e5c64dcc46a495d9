"""Restoring: one commit after which the rows are those of an earlier state; it is undone like any
other.
"""

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


def rows(*found):
    return pa.Table.from_pylist(
        [dict(zip(SCHEMA.names, row, strict=True)) for row in found], schema=SCHEMA
    )


@pytest.fixture(params=KINDS, ids=str)
def table(
    request,
    tmp_path,
    made,
):
    """Return a table with updates, inserts, deletes, a key that returned, and services between
    them.
    """
    return mdt.open(shutil.copytree(made(request.param), tmp_path / "t"))


@pytest.fixture(scope="module")
def made(
    tmp_path_factory,
):
    """Return what makes the table of a kind, once."""
    return cache(lambda kind: _made(tmp_path_factory.mktemp("restoring") / "t", *kind))


def _made(path, kind, key_index, scope, ordering):
    found = mdt.create(
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
    found.upsert(rows(("a", "x", 1, 1), ("b", "x", 1, 2), ("c", "y", 1, 3), ("d", "y", 1, 4)))
    found.upsert(rows(("a", "x", 2, 10), ("e", "z", 2, 5)))
    found.delete(rows(("b", "x", 0, 0), ("d", "y", 0, 0)))
    found.compact()
    found.upsert(rows(("b", "x", 5, 20), ("c", "y", 6, 30), ("f", "x", 7, 6)))
    return path


def states(table):
    return [bag(table.scan(as_of=seq).to_arrow()) for seq in range(table.snapshot().seq + 1)]


def test_the_changes_of_a_restore_are_those_that_it_undoes(table):
    newest = table.snapshot().seq
    undone = table.changes(1, newest).to_arrow().to_pylist()
    result = table.restore(1)
    made = table.changes(newest).to_arrow().to_pylist()
    other = {
        "insert": "delete",
        "delete": "insert",
        "update_before": "update_after",
        "update_after": "update_before",
    }
    told = sorted((other[row["_change"]], row["id"], row["n"]) for row in undone)
    assert sorted((row["_change"], row["id"], row["n"]) for row in made) == told
    counts = {
        kind: sum(row["_change"] == kind for row in made)
        for kind in ("insert", "update_after", "delete")
    }
    assert (result.inserted, result.updated, result.deleted) == tuple(counts.values())
    images = {"update_before": [], "update_after": []}
    for row in table.changes(1).to_arrow().to_pylist():
        images[row["_change"]].append((row["id"], row["ts"], row["n"]))
    assert sorted(images["update_before"]) == sorted(images["update_after"]), (
        "written, and the same again"
    )
    assert table.scan(since=newest).count() == counts["insert"] + counts["update_after"], (
        "with a new commit time"
    )


def test_rollback_takes_back_a_commit_and_all_after_it(table):
    known, newest = states(table), table.snapshot().seq
    table.rollback(newest)
    assert bag(table.scan().to_arrow()) == known[newest - 1]
    table.rollback(table.history()["instant"][2].as_py())
    assert bag(agreed(table)) == known[1]
    assert table.history()["operation"].to_pylist()[-2:] == ["restore", "restore"]
    for wrong in (0, table.snapshot().seq + 1):
        with pytest.raises(Invalid, match="cannot be rolled back"):
            table.rollback(wrong)


def told_of(path):
    (found,) = fastavro.reader(io.BytesIO(path.read_bytes()))
    return found


def test_a_restore_stands_on_hudis_timeline_beside_its_commit_and_names_nothing_that_went(
    table, tmp_path
):
    timeline = tmp_path / "t" / ".hoodie"
    to = table.history()["instant"].to_pylist()[1]
    instant = table.restore(1).instant
    instants = sorted(path.name for path in timeline.glob(f"{instant}.restore*"))
    assert instants == [
        f"{instant}.restore",
        f"{instant}.restore.inflight",
        f"{instant}.restore.requested",
    ]
    plan, told = (
        told_of(timeline / f"{instant}.{name}") for name in ("restore.requested", "restore")
    )
    assert (plan["savepointToRestoreTimestamp"], plan["instantsToRollback"]) == (to, [])
    assert told["startRestoreTime"] == instant
    assert not (
        told["instantsToRollback"] or told["hoodieRestoreMetadata"] or told["restoreInstantInfo"]
    )
    lost = timeline / f"{instant}.restore"
    content = lost.read_bytes()
    lost.unlink()
    assert any(problem.path.endswith(".restore") for problem in table.check().problems)
    assert table.repair().ok
    assert lost.read_bytes() == content


def test_what_cannot_be_restored_is_refused(table):
    newest = table.snapshot().seq
    assert table.restore(newest).instant is None or table.snapshot().seq == newest, "nothing to do"
    with pytest.raises(Invalid, match="no commit 99"):
        table.restore(99)
    with pytest.raises(Invalid, match="read-only"):
        mdt.open(table.path, as_of=1).restore(0)
