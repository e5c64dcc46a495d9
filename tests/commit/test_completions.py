"""Completion times of version 9 follow the order of the log and are the same for every publisher.
They suffice for readers that continue after the newest completion they know.
"""

from __future__ import annotations

import random

import pytest
from reader import END, INCREMENTAL, START, hudi_table
from schedules import upsert
from worlds import COW, MOR, SCHEMA, filled, make, ours, rows, tables_of, theirs

import mdt
from mdt.commit import publish
from mdt.errors import Corrupt
from mdt.hudi.layout import LAYOUTS
from mdt.metadata.log import commit_log, trusted_records
from mdt.metadata.metadata import Metadata
from mdt.stores.storage import LocalStorage

V9 = LAYOUTS[9]
EVERY = ("begun", "prepared", "claimed", "written", "checked", "committed")


def completed(storage):
    """Return the completed instants on the timeline by their completion."""
    instants = [V9.instant_at(info.path) for info in storage.list_dir(V9.timeline)]
    return sorted((i.completion, i.time) for i in instants if i is not None and i.completion)


def test_each_instant_begins_after_the_previous_completion_and_completes_after_its_begin():
    with tables_of(9):
        storage = filled(MOR, "record", 2)
    mdt.open(storage).compact()
    mdt.open(storage).upsert(rows([0], 3, 3.0))
    mdt.open(storage).savepoint("s")
    metadata = Metadata(storage)
    records = list(metadata.records(0, metadata.newest().seq))
    last = ""
    for record in records:
        assert last < record.instant < record.completion
        last = record.completion
    assert metadata.newest().last_completion == last
    assert len({completion for completion, _ in completed(storage)}) == len(completed(storage))


def test_a_commit_that_a_concurrent_commit_overtakes_completes_after_it():
    with tables_of(9):
        storage = filled(MOR, "record")
    drivers = [upsert([n], 3, 3.0, pauses=EVERY).start(storage) for n in (6, 8)]
    for driver in drivers:
        while next(driver) != "written":
            pass
    for driver in reversed(drivers):
        for _ in driver:
            pass
    metadata = Metadata(storage)
    first, second = metadata.records(3, 4)
    assert first.instant > second.instant and first.completion < second.completion
    assert ours(storage) == theirs(storage)


@pytest.mark.parametrize("table_type", [MOR, COW])
@pytest.mark.parametrize("seed", range(3))
def test_a_reader_that_continues_after_the_newest_completion_misses_no_commit(
    table_type, seed, tmp_path
):
    draw = random.Random(seed)
    storage = LocalStorage(tmp_path, durable=False)
    with tables_of(9):
        make(storage, table_type, "record").upsert(rows(range(30), 1, 1.0))
    last_completion, seen = completed(storage)[-1][0], set()
    running, remaining_keys, expected = [], list(range(30, 60)), {}
    while remaining_keys or running:
        if remaining_keys and len(running) < 3 and draw.random() < 0.5:
            key = remaining_keys.pop()
            expected[f"k{key}"] = 2.0
            running.append(upsert([key], 2, 2.0, pauses=EVERY).start(storage))
        elif running:
            driver = draw.choice(running)
            if next(driver, None) is None:
                running.remove(driver)
        for newest, _ in completed(storage)[-1:]:
            if newest > last_completion:
                options = {**INCREMENTAL, START: last_completion, END: newest}
                new_rows = hudi_table(tmp_path, SCHEMA, options)
                seen.update(new_rows["id"].to_pylist())
                last_completion = newest
    assert seen == set(expected)


def test_a_record_that_completes_before_it_begins_is_corrupt():
    with tables_of(9):
        storage = filled(MOR, "record")
    record = commit_log.read(storage, 1)
    header = {**record.header, "seq": 1, "completion": record.instant}
    with pytest.raises(Corrupt, match="completes before it begins"):
        trusted_records.check_header(header, 1, "log/1")


def test_a_record_of_version_6_has_no_completion():
    storage = filled(MOR, "record")
    metadata = Metadata(storage)
    assert all(record.completion == "" for record in metadata.records(0, 2))
    assert metadata.newest().last_completion == ""


def test_publishing_a_commit_again_writes_the_same_completed_instant():
    with tables_of(9):
        storage = filled(MOR, "record")
    metadata = Metadata(storage)
    record, definition = metadata.record(2), metadata.newest().definition
    path = publish.completed_path(record, definition)
    content = storage.read(path)
    storage.delete(path)
    assert not publish.is_published(storage, record, definition)
    publish.publish(storage, commit_log.read(storage, 2), definition)
    assert storage.read(path) == content
