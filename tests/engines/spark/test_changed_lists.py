"""After a commit Spark receives only the changes to the list of files, and then holds the same list
as if it had received it whole.
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


def rows(draw, count_max=12):
    ids = draw.sample(range(KEYS), draw.randint(1, count_max))
    return pa.table(
        [ids, [f"c{i % 3}" for i in ids], [draw.randint(0, 99) for _ in ids]], schema=SCHEMA
    )


def rolled_back(table, draw):
    """Roll back the newest commit if its operation can be rolled back."""
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


def create_filled(storage, table_type, seed):
    table = mdt.create(
        storage, SCHEMA, ["id"], partition_by=["city"], table_type=table_type, options=OPTIONS
    )
    table.upsert(rows(random.Random(seed), KEYS))
    return table


def apply_changes(before, changes):
    """Return the columns of the resulting list, and for each file its place in ``before`` if its
    deleted rows are unchanged, -1 if they must be read again.
    """
    stays = np.ones(len(before), np.bool_)
    stays[changes.gone] = False
    unchanged_at = np.where(before.has_dead, np.arange(len(before)), -1)
    has_dead = before.has_dead.copy()
    unchanged_at[changes.dead], has_dead[changes.dead] = -1, changes.has_dead
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
    return columns, [*unchanged_at[stays].tolist(), *[-1] * len(more)]


def require_follows(before, now):
    """Assert that the changes turn one list into the other, deleted rows included, and return how
    many changes of each kind there are. Returns an empty counter if the changes are not known.
    """
    changes = now.since(before)
    if changes is None:
        return Counter()
    columns, unchanged_at = apply_changes(before.native(), changes)
    expected = now.native()
    assert columns.keys() == {field.name for field in fields(NativeFiles)}
    for name, column in columns.items():
        assert column == np.array(getattr(expected, name)).tolist(), name
    pairs = [(at, old) for at, old in enumerate(unchanged_at) if old >= 0]
    if pairs:
        at, old = (list(column) for column in zip(*pairs, strict=True))
        assert now.dead(at).bitmaps == before.dead(old).bitmaps, (
            "deleted rows changed in a file that is not listed as changed"
        )
    return Counter(gone=len(changes.gone), dead=len(changes.dead), more=len(changes.added), lists=1)


@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
@pytest.mark.parametrize("seed", range(4))
def test_changes_turn_any_list_sent_before_into_the_current_list(table_type, seed):
    table, draw = create_filled(MemoryStorage(), table_type, seed), random.Random(seed)
    sent = []
    totals = Counter()
    for step in draw.choices([*STEPS], WEIGHTS, k=40):
        STEPS[step](table, draw)
        snapshot = table.metadata.newest()
        now = [
            SnapshotFiles(view, table.storage, compares=True, refers=False)
            for view in (snapshot, ReadOptimized.from_snapshot(snapshot))
        ]
        for before in sent[-6:]:
            for old, new in zip(before, now, strict=True):
                totals += require_follows(old, new)
            assert now[0].since(before[1]) is None and now[1].since(before[0]) is None
        sent.append(now)
    assert min(totals["gone"], totals["more"], totals["lists"]) > 0
    assert totals["dead"] or table_type == "COPY_ON_WRITE"
    count("lists of files that follow from older ones", totals["lists"])


def test_lists_are_sent_whole_after_a_checkpoint_an_alter_or_for_an_older_state():
    table = create_filled(MemoryStorage(), "MERGE_ON_READ", 1)
    draw = random.Random(1)

    def view(refers=False):
        return SnapshotFiles(table.metadata.newest(), table.storage, compares=True, refers=refers)

    first = view()
    table.upsert(rows(draw))
    second = view()
    assert second.since(first) is not None and second.since(second) is not None
    assert first.since(second) is None, "an older list does not follow from a newer one"
    assert view(refers=True).since(first) is None, "deleted rows would be stored elsewhere"
    assert second.since(WholeFiles(["file:/x"], [1])) is None
    table.alter(add={"more": pa.int64()})
    assert view().since(second) is None, "files with older columns are read in another way"
    third = view()
    table.metadata.compact()
    assert view().since(third) is None, "files have other numbers on another checkpoint"


@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_an_open_frame_reads_the_right_rows_after_every_kind_of_commit(
    spark, tmp_path, table_type, monkeypatch
):
    """Includes files that remain, whose deleted rows Spark knows from an older list."""
    replies = Counter()
    for name in ("_encode_snapshot", "_encode_changes"):
        answer = getattr(file_index, name)
        monkeypatch.setattr(
            file_index, name, lambda *a, n=name, f=answer: (replies.update([n]), f(*a))[1]
        )
    table, draw = create_filled(tmp_path / "t", table_type, 5), random.Random(5)
    frames = {
        "snapshot": mdt.read(spark, table.path),
        "read_optimized": mdt.read(spark, table.path, query_type="read_optimized"),
    }
    for step in [*STEPS, *draw.choices([*STEPS], WEIGHTS, k=14)]:
        STEPS[step](table, draw)
        for kind, frame in frames.items():
            if draw.random() < 0.2:
                continue  # so that some lists follow from a list older than the last
            expected = sorted(
                map(tuple, map(dict.values, table.scan(query_type=kind).to_arrow().to_pylist()))
            )
            assert sorted(map(tuple, frame.collect())) == expected, (step, kind)
            condition = f"v < {draw.randint(0, 99)}"
            assert (
                frame.where(condition).count() == table.scan(condition, query_type=kind).count()
            ), (
                step,
                kind,
                condition,
            )
    whole_lists = (
        replies["_encode_snapshot"] - replies["_encode_changes"]
    )  # each set of changes contains a short list
    assert replies["_encode_changes"] > whole_lists > 0, replies
