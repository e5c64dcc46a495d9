"""Every kind of object of a table is damaged in every way. A repair restores it from intact objects,
or reports the loss.
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
"""The rows of the table."""
KINDS = {
    "record": lambda path: path.startswith(paths.LOG_DIR),
    "archive": lambda path: path.startswith(paths.ARCHIVE_DIR),
    "hint": lambda path: path == paths.HINT,
    "manifest": lambda path: path.endswith(".manifest"),
    "pages": (
        lambda path: path.startswith(paths.CHECKPOINTS_DIR) and not path.endswith(".manifest")
    ),
    "attachment": lambda path: path.startswith(paths.ATTACHMENTS_DIR),
    "properties": lambda path: path == paths.PROPERTIES,
    "instant": lambda path: path.endswith(("commit", ".clean")),
    "partition marker": lambda path: path.endswith("partition_metadata"),
    "base file": lambda path: path.endswith(".parquet"),
    "log file": lambda path: ".log." in path,
}
"""Kinds of objects, with a predicate on their paths. The first match counts."""
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
"""Kinds of objects that can always be rebuilt."""
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
"""Number of damaged tables in daily runs, each with another kind of object."""


@cache
def table_with_history(key_index):
    """Return a table with base files, log files, deleted rows, indexes, a partly archived log, three
    checkpoints and a tag.
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
def paths_by_kind(key_index):
    """Return the paths of the table by kind, without objects of Hudi's archive."""
    result = {}
    for info in table_with_history(key_index).list(""):
        kind = next((kind for kind, holds in KINDS.items() if info.size and holds(info.path)), None)
        if kind is not None:
            result.setdefault(kind, []).append(info.path)
    return result


def damaged(key_index, path, way):
    """Return a copy of the table with one damaged object."""
    storage = table_with_history(key_index).copy()
    data = WAYS[way](storage.read(path))
    if data is None:
        storage.delete(path)
    else:
        storage.replace(path, data)
    return later(storage)


def live_files(key_index):
    """Return the data files of the newest state."""
    snapshot = mdt.open(table_with_history(key_index)).snapshot()
    return set(references.file_paths(snapshot.listing()).to_pylist())


def assert_repaired_or_reported(key_index, kind, path, way):
    """Assert that a repair fixes the damage or reports the loss, and that a second repair finds nothing
    to do.
    """
    storage, where = damaged(key_index, path, way), f"{way} {path} ({key_index})"
    reported = ()
    try:
        reported = tuple(problem.path for problem in mdt.open(storage).check().problems)
    except mdt.MdtError as error:
        reported = (error.path if isinstance(error, mdt.Corrupt) else path,)
    report = mdt.repair(storage)
    count(f"damaged tables, each repaired: {kind}")
    details = f"{where}\n{report}"
    assert report.ok or kind not in DERIVED, details
    is_live = kind not in ("base file", "log file") or path in live_files(key_index)
    # damage that is healed automatically, and objects of earlier states
    is_quiet = kind in ("hint", "manifest", "pages", "attachment")
    is_quiet |= (kind, way) in (("partition marker", "flip"), ("archive", "delete"))
    assert path in reported or is_quiet or not is_live, f"{details}\ncheck: {reported}"
    if report.ok:
        assert mdt.open(storage).check().ok, details
        assert ours(storage) == STATE == theirs(storage), details
    elif kind == "record":
        assert all(problem.kind == Kind.RECORD for problem in report.lost), details
    else:
        lost = [problem.text for problem in report.lost if problem.path == path]
        newest = [text for text in lost if "live rows are lost" in text]
        older = [text for text in lost if "older states cannot be read" in text]
        assert lost and len(newest) + len(older) == len(lost), details
        assert newest == [] or path in live_files(key_index), details
        assert newest or ours(storage) == STATE == theirs(storage), details
    second = mdt.repair(storage)
    assert second.rebuilt == () and (second.lost == report.lost or kind == "record"), (
        f"{details}\nsecond repair: {second}"
    )


def cases():
    for key_index in ("record", "bloom"):
        for kind, kind_paths in paths_by_kind(key_index).items():
            for path in kind_paths:
                for way in WAYS:
                    yield key_index, kind, path, way


def seeded_random():
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    return random.Random(seed)


def test_a_sample_of_damaged_objects_is_repaired_or_reported_as_lost():
    draw = seeded_random()
    key_index = draw.choice(["record", "bloom"])
    assert set(paths_by_kind(key_index)) == set(KINDS)
    for kind in draw.sample(list(KINDS), SAMPLE):
        assert_repaired_or_reported(
            key_index, kind, draw.choice(paths_by_kind(key_index)[kind]), draw.choice(list(WAYS))
        )


def broken_table(folder, key_index="record"):
    """Return a function that creates a small table without the objects of a folder, except a record that
    no checkpoint includes.
    """

    def start():
        storage = filled(MOR, key_index)
        table = mdt.open(storage)
        table.metadata.compact()
        table.upsert(rows([0], 2, 2.0))
        last = paths.commit(table.snapshot().seq)
        for info in storage.list(folder):
            if info.path != last:
                storage.delete(info.path)
        return later(storage)

    return start


FOLDERS = [paths.ATTACHMENTS_DIR, paths.LOG_DIR, paths.CHECKPOINTS_DIR, ".hoodie/2"]


def assert_repaired_by_next(survivor, where):
    """Assert that the next repair completes a crashed repair."""
    count("crash points of repairs")
    later(survivor)
    report = mdt.repair(survivor)
    assert all(problem.kind == Kind.RECORD for problem in report.lost), f"{where}\n{report}"
    assert ours(survivor) == BASE_STATE == theirs(survivor), where
    table = mdt.open(survivor)
    assert table.check().ok and not pending(table.metadata), where
    table.upsert(rows([0, 20], 9, 9.0))
    assert ours(survivor) == upserted(BASE_STATE, [0, 20], 9, 9.0) == theirs(survivor), where


def test_a_repair_that_crashed_at_some_changes_is_completed_by_the_next_one():
    draw = seeded_random()
    start = broken_table(draw.choice(FOLDERS[:2]))
    completed = FaultyStorage(start())
    mdt.repair(completed)
    operation_count = len(completed.operations)
    for at in draw.sample(range(1, operation_count + 1), min(5, operation_count)):
        survivor = start()
        with pytest.raises(Crash):
            mdt.repair(FaultyStorage(survivor, at))
        assert_repaired_by_next(survivor, f"before {at} {completed.operations[at - 1]}")


@pytest.mark.nightly
@pytest.mark.parametrize("place", FOLDERS)
def test_a_repair_that_crashed_at_any_change_is_completed_by_the_next_one(place):
    for where, survivor in survivors(broken_table(place), lambda storage: mdt.repair(storage)):
        assert_repaired_by_next(survivor, where)


@pytest.mark.nightly
def test_every_damaged_object_is_repaired_or_reported_as_lost():
    for case in cases():
        assert_repaired_or_reported(*case)
