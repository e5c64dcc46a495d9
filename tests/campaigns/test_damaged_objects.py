"""Every kind of object of a table is damaged in every way: it is mended, from what is whole, or the
report names what is lost.
"""

import random
from functools import cache
from unittest.mock import patch

import pytest
from counting import count
from worlds import (
    BASE_STATE,
    MOR,
    deleted,
    filled,
    later,
    make,
    ours,
    rows,
    survivors,
    theirs,
    upserted,
)

import mdt
from mdt.commit.recovery import pending
from mdt.metadata import references
from mdt.metadata.files import paths
from mdt.services.checking.problems import Kind
from mdt.services.reclaiming import cleaning
from mdt.stores.storage import MemoryStorage
from mdt.testing.faulty import Crash, FaultyStorage

ROWS = 300
STATE = deleted(upserted(upserted({}, range(ROWS), 1, 1.0), range(0, ROWS, 3), 2, 2.0), (6, 7, 8))
"""What the world holds."""
KINDS = {
    "record": lambda path: path.startswith(paths.log_dir()),
    "archive": lambda path: path.startswith(paths.archive_dir()),
    "hint": lambda path: path == paths.hint(),
    "manifest": lambda path: path.endswith(".manifest"),
    "pages": (
        lambda path: path.startswith(paths.checkpoints_dir()) and not path.endswith(".manifest")
    ),
    "attachment": lambda path: path.startswith(paths.attachments_dir()),
    "properties": lambda path: path == paths.properties(),
    "instant": lambda path: path.endswith(("commit", ".clean")),
    "partition marker": lambda path: path.endswith("partition_metadata"),
    "base file": lambda path: path.endswith(".parquet"),
    "log file": lambda path: ".log." in path,
}
"""Kind of an object -> whether one is of it.  The first that fits counts."""
DERIVED = (
    "archive",
    "hint",
    "manifest",
    "pages",
    "attachment",
    "properties",
    "instant",
    "partition marker",
)
"""What can always be made again."""
WAYS = {
    "flip": (
        lambda data: (
            data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]
        )
    ),
    "cut": lambda data: data[: len(data) // 2],
    "delete": lambda data: None,
}
SAMPLE = 5
"""Damaged tables by day, each of another kind."""


@cache
def world(key_index):
    """Return a table with base files, log files, dead rows, an index, a part of its log archived,
    three checkpoints, a tag.
    """
    storage = MemoryStorage()
    table = make(
        storage, MOR, key_index, **{"mdt.metadata.compact.records": 64, "mdt.services.auto": False}
    )
    table.create_index("bitmap(fare)")
    table.create_index("text(id, tokenizer='ngram(2)')")
    table.upsert(rows(range(ROWS // 2), 1, 1.0))
    table.metadata.compact()
    table.upsert(rows(range(ROWS // 2, ROWS), 1, 1.0))
    table.metadata.compact()
    table.upsert(rows(range(12), 1, 1.0))
    table.compact()
    with patch.object(cleaning, "ARCHIVE_RECORDS_MIN", 1):
        table.clean(retain_commits=2)
    table.tag("kept")
    table.upsert(rows(range(0, ROWS, 3), 2, 2.0))
    table.metadata.compact()
    table.delete(rows((6, 7, 8), 3, 0.0))
    assert table.snapshot().retention.first and table.check().ok
    assert ours(storage) == STATE == theirs(storage)
    return storage


@cache
def objects(key_index):
    """Return the objects of the world by kind; those of Hudi's archive are of none."""
    found = {}
    for info in world(key_index).list(""):
        kind = next((kind for kind, holds in KINDS.items() if info.size and holds(info.path)), None)
        if kind is not None:
            found.setdefault(kind, []).append(info.path)
    return found


def damaged(key_index, path, way):
    """Return a copy of the world with one object damaged."""
    storage = world(key_index).copy()
    data = WAYS[way](storage.read(path))
    if data is None:
        storage.delete(path)
    else:
        storage.replace(path, data)
    return later(storage)


def needed(key_index):
    """Return the data files of the newest state."""
    snapshot = mdt.open(world(key_index)).snapshot()
    return set(references.file_paths(snapshot.listing()).to_pylist())


def mended(key_index, kind, path, way):
    """Assert that a repair mends the damage, or names what is lost, and finds nothing to do the
    next time.
    """
    storage, where = damaged(key_index, path, way), f"{way} {path} ({key_index})"
    found = ()
    try:
        found = tuple(problem.path for problem in mdt.open(storage).check().problems)
    except mdt.MdtError as error:
        found = (error.path if isinstance(error, mdt.Corrupt) else path,)
    report = mdt.repair(storage)
    count(f"damaged tables, each repaired: {kind}")
    told = f"{where}\n{report}"
    assert report.ok or kind not in DERIVED, told
    is_live = kind not in ("base file", "log file") or path in needed(key_index)
    # what heals by itself, and what older states refer to
    is_quiet = kind in ("hint", "manifest", "pages", "attachment")
    is_quiet |= (kind, way) in (("partition marker", "flip"), ("archive", "delete"))
    assert path in found or is_quiet or not is_live, f"{told}\ncheck: {found}"
    if report.ok:
        assert mdt.open(storage).check().ok, told
        assert ours(storage) == STATE == theirs(storage), told
    elif kind == "record":
        assert all(one.kind == Kind.RECORD for one in report.lost), told
    else:
        lost = [one.text for one in report.lost if one.path == path]
        newest = [text for text in lost if "live rows are lost" in text]
        older = [text for text in lost if "older states cannot be read" in text]
        assert lost and len(newest) + len(older) == len(lost), told
        assert newest == [] or path in needed(key_index), told
        assert newest or ours(storage) == STATE == theirs(storage), told
    again = mdt.repair(storage)
    assert again.rebuilt == () and (again.lost == report.lost or kind == "record"), (
        f"{told}\nagain: {again}"
    )


def cases():
    for key_index in ("record", "bloom"):
        for kind, found in objects(key_index).items():
            for path in found:
                for way in WAYS:
                    yield key_index, kind, path, way


def seeded():
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    return random.Random(seed)


def test_what_is_damaged_is_mended_or_named():
    draw = seeded()
    key_index = draw.choice(["record", "bloom"])
    assert set(objects(key_index)) == set(KINDS)
    for kind in draw.sample(list(KINDS), SAMPLE):
        mended(key_index, kind, draw.choice(objects(key_index)[kind]), draw.choice(list(WAYS)))


def broken(place, key_index="record"):
    """Return who makes a small table of which every object of a place is gone, but for a record
    that no checkpoint has.
    """

    def start():
        storage = filled(MOR, key_index)
        table = mdt.open(storage)
        table.metadata.compact()
        table.upsert(rows([0], 2, 2.0))
        last = paths.commit(table.snapshot().seq)
        for info in storage.list(place):
            if info.path != last:
                storage.delete(info.path)
        return later(storage)

    return start


PLACES = [paths.attachments_dir(), paths.log_dir(), paths.checkpoints_dir(), ".hoodie/2"]


def taken_up(survivor, where):
    """Assert that the next repair does what one that died has left."""
    count("crash points of repairs")
    later(survivor)
    report = mdt.repair(survivor)
    assert all(one.kind == Kind.RECORD for one in report.lost), f"{where}\n{report}"
    assert ours(survivor) == BASE_STATE == theirs(survivor), where
    table = mdt.open(survivor)
    assert table.check().ok and not pending(table.metadata), where
    table.upsert(rows([0, 20], 9, 9.0))
    assert ours(survivor) == upserted(BASE_STATE, [0, 20], 9, 9.0) == theirs(survivor), where


def test_a_repair_that_dies_somewhere_is_taken_up_by_the_next_one():
    draw = seeded()
    start = broken(draw.choice(PLACES[:2]))
    whole = FaultyStorage(start())
    mdt.repair(whole)
    count_of = len(whole.operations)
    for at in draw.sample(range(1, count_of + 1), min(5, count_of)):
        survivor = start()
        with pytest.raises(Crash):
            mdt.repair(FaultyStorage(survivor, at))
        taken_up(survivor, f"before {at} {whole.operations[at - 1]}")


@pytest.mark.nightly
@pytest.mark.parametrize("place", PLACES)
def test_a_repair_that_dies_anywhere_is_taken_up_by_the_next_one(place):
    for where, survivor in survivors(broken(place), lambda storage: mdt.repair(storage)):
        taken_up(survivor, where)


@pytest.mark.nightly
def test_whatever_is_damaged_is_mended_or_named():
    for case in cases():
        mended(*case)
