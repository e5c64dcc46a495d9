"""After a commit Spark is sent what has changed in the list of files, and has the list that it
would have been sent.
"""

import random
from collections import Counter
from dataclasses import fields

import numpy as np
import pyarrow as pa
import pytest
from counting import count
from texts import columns
from whole_files import WholeFiles

import mdt
from mdt.engines.spark import file_index
from mdt.engines.spark.listing import NativeFiles
from mdt.engines.spark.native_files import SnapshotFiles
from mdt.metadata.snapshot.read_optimized import ReadOptimized
from mdt.stores.storage import MemoryStorage

SCHEMA = columns("id int64, city string, v int64")
OPTIONS = {
    "mdt.services.auto": False,
    "mdt.max.file.bytes": 4096,
    "mdt.metadata.compact.records": 1000,
    "mdt.durable": False,
}
KEYS = 120


def rows(draw, most=12):
    ids = draw.sample(range(KEYS), draw.randint(1, most))
    return pa.table(
        [ids, [f"c{i % 3}" for i in ids], [draw.randint(0, 99) for _ in ids]], schema=SCHEMA
    )


def rolled_back(table, draw):
    """Take the newest commit back where that can be done."""
    newest = table.history().to_pylist()[-1]
    if newest["operation"] in ("upsert", "delete"):
        table.rollback(newest["seq"])


STEPS = {
    "upsert": lambda table, draw: table.upsert(rows(draw)),
    "delete": lambda table, draw: table.delete(rows(draw).select(["id", "city"])),
    "update": lambda table, draw: table.update_where({"v": "v + 1"}, f"v > {draw.randint(0, 99)}"),
    "compaction": lambda table, draw: table.compact(),
    "clustering": lambda table, draw: table.cluster(["v"]),
    "overwriting": lambda table, draw: table.insert_overwrite(rows(draw, 4)),
    "rollback": rolled_back,
    "checkpoint": lambda table, draw: table.metadata.compact(),
}
WEIGHTS = [8, 4, 3, 1, 1, 1, 3, 1]


def made(storage, table_type, seed):
    table = mdt.create(
        storage, SCHEMA, ["id"], partition_by=["city"], table_type=table_type, options=OPTIONS
    )
    table.upsert(rows(random.Random(seed), KEYS))
    return table


def followed(before, changes):
    """Return the columns of the list that follows, and where in ``before`` the dead rows of each
    file stand, -1 where they are asked for anew.
    """
    stays = np.ones(len(before), np.bool_)
    stays[changes.gone] = False
    known = np.where(before.has_dead, np.arange(len(before)), -1)
    has_dead = before.has_dead.copy()
    known[changes.dead], has_dead[changes.dead] = -1, changes.has_dead
    more = changes.added
    columns = {
        field.name: [
            *np.array(getattr(before, field.name))[stays].tolist(),
            *np.array(getattr(more, field.name)).tolist(),
        ]
        for field in fields(NativeFiles)
        if field.name != "has_dead"
    }
    columns["has_dead"] = [*has_dead[stays].tolist(), *more.has_dead.tolist()]
    return columns, [*known[stays].tolist(), *[-1] * len(more)]


def require_follows(before, now):
    """Assert that the changes make of one list the other, dead rows included, and return what they
    say; nothing where they are not known.
    """
    changes = now.since(before)
    if changes is None:
        return Counter()
    columns, known = followed(before.native(), changes)
    expected = now.native()
    assert columns.keys() == {field.name for field in fields(NativeFiles)}
    for name, column in columns.items():
        assert column == np.array(getattr(expected, name)).tolist(), name
    both = [(at, old) for at, old in enumerate(known) if old >= 0]
    if both:
        at, old = (list(column) for column in zip(*both, strict=True))
        assert now.dead(at).bitmaps == before.dead(old).bitmaps, (
            "rows of a file are dead that is not said to have others"
        )
    return Counter(gone=len(changes.gone), dead=len(changes.dead), more=len(changes.added), lists=1)


@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
@pytest.mark.parametrize("seed", range(4))
def test_changes_make_of_any_list_that_was_sent_the_one_that_it_is_now(table_type, seed):
    table, draw = made(MemoryStorage(), table_type, seed), random.Random(seed)
    sent = []
    said = Counter()
    for step in draw.choices([*STEPS], WEIGHTS, k=40):
        STEPS[step](table, draw)
        snapshot = table.metadata.newest()
        now = [
            SnapshotFiles(one, table.storage, compares=True, refers=False)
            for one in (snapshot, ReadOptimized.from_snapshot(snapshot))
        ]
        for before in sent[-6:]:
            for old, new in zip(before, now, strict=True):
                said += require_follows(old, new)
            assert now[0].since(before[1]) is None and now[1].since(before[0]) is None
        sent.append(now)
    assert min(said["gone"], said["more"], said["lists"]) > 0
    assert said["dead"] or table_type == "COPY_ON_WRITE"
    count("lists of files that follow from older ones", said["lists"])


def test_lists_on_other_checkpoints_of_older_states_and_of_altered_columns_are_sent_whole():
    table = made(MemoryStorage(), "MERGE_ON_READ", 1)
    draw = random.Random(1)

    def view(refers=False):
        return SnapshotFiles(table.metadata.newest(), table.storage, compares=True, refers=refers)

    first = view()
    table.upsert(rows(draw))
    second = view()
    assert second.since(first) is not None and second.since(second) is not None
    assert first.since(second) is None, "what is older does not follow"
    assert view(refers=True).since(first) is None, "dead rows would stand elsewhere"
    assert second.since(WholeFiles(["file:/x"], [1])) is None
    table.alter(add={"more": pa.int64()})
    assert view().since(second) is None, "files of older columns are read in another way"
    third = view()
    table.metadata.compact()
    assert view().since(third) is None, "files have other numbers on another checkpoint"


@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_an_open_frame_reads_right_after_whatever_was_done(
    spark, tmp_path, table_type, monkeypatch
):
    """Also the rows of files that stay, whose dead rows Spark knows since an older list."""
    replies = Counter()
    for name in ("_encode_snapshot", "_encode_changes"):
        answer = getattr(file_index, name)
        monkeypatch.setattr(
            file_index, name, lambda *a, n=name, f=answer: (replies.update([n]), f(*a))[1]
        )
    table, draw = made(tmp_path / "t", table_type, 5), random.Random(5)
    frames = {
        "snapshot": mdt.read(spark, table.path),
        "read_optimized": mdt.read(spark, table.path, query_type="read_optimized"),
    }
    for step in [*STEPS, *draw.choices([*STEPS], WEIGHTS, k=14)]:
        STEPS[step](table, draw)
        for kind, frame in frames.items():
            if draw.random() < 0.2:
                continue  # so that some lists follow from older ones than the last
            expected = sorted(
                map(tuple, map(dict.values, table.scan(query_type=kind).to_arrow().to_pylist()))
            )
            assert sorted(map(tuple, frame.collect())) == expected, (step, kind)
            some = f"v < {draw.randint(0, 99)}"
            assert frame.where(some).count() == table.scan(some, query_type=kind).count(), (
                step,
                kind,
                some,
            )
    whole = (
        replies["_encode_snapshot"] - replies["_encode_changes"]
    )  # changes hold a short list of their own
    assert replies["_encode_changes"] > whole > 0, replies
