"""Upgrades from version 6 to version 9 keep the rows for all readers, also after a crash."""

from __future__ import annotations

import pytest
from counting import count
from refusals import refused
from shared_tables import batch, other_table
from worlds import (
    BASE_STATE,
    COW,
    MOR,
    assert_clean,
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
from mdt.errors import Invalid, Unsupported
from mdt.hudi import properties
from mdt.hudi.layout import LAYOUTS
from mdt.hudi.timeline import COMPLETED, UNARCHIVED, Instant
from mdt.metadata.files import paths
from mdt.services.reclaiming import cleaning
from mdt.stores.storage import MemoryStorage

MIXED = upserted(BASE_STATE, range(2, 9), 3, 3.0)


def table_with_history():
    """Return a table of version 6 with every kind of instant, and log files."""
    storage = filled(MOR, "record")
    table = mdt.open(storage)
    table.compact()
    table.upsert(rows(range(2, 9), 3, 3.0))
    table.savepoint("s")
    table.create_index("bitmap(fare)", mode="async")
    table.build_indexes()
    table.upsert(rows([3], 4, 4.0))
    table.restore("s")
    table.cluster(["fare"])
    table.insert_overwrite(rows([11], 4, 4.0))
    table.upsert(rows([11], 5, 5.0))
    return storage


@pytest.mark.parametrize("table_type", [MOR, COW])
def test_an_upgraded_table_has_the_same_rows_and_can_be_written(table_type):
    storage = filled(table_type, "record")
    names = {info.path for info in storage.list("") if info.path.startswith("city=")}
    result = mdt.open(storage).upgrade(9)
    assert result.seq == 3 and mdt.open(storage).definition.hudi_version == 9
    assert {i.path for i in storage.list("") if i.path.startswith("city=")} == names
    assert ours(storage) == BASE_STATE == theirs(storage)
    assert_clean(storage)
    mdt.open(storage).upsert(rows(range(2, 9), 3, 3.0))
    mdt.open(storage).delete(rows([0], 0, 0.0))
    mdt.open(storage).compact()
    mdt.open(storage).upsert(rows([20], 9, 9.0))
    assert ours(storage) == upserted(deleted(MIXED, [0]), [20], 9, 9.0) == theirs(storage)
    assert_clean(storage)


def test_an_upgrade_moves_all_instants_that_hudi_archives_to_the_new_timeline():
    storage = table_with_history()
    old = [LAYOUTS[6].instant_at(info.path) for info in storage.list_dir(".hoodie")]
    before, state = {i for i in old if i is not None}, ours(storage)
    assert {"savepoint", "restore", "indexing"} <= {i.action for i in before}
    mdt.open(storage).upgrade(9)
    listed = storage.list_dir(LAYOUTS[9].timeline)
    archived = {instant for instant in before if instant.action not in UNARCHIVED}
    assert {LAYOUTS[9].instant_at(info.path) for info in listed} == archived
    in_flight = [info for info in listed if info.path.endswith("commit.inflight")]
    assert in_flight and not any(info.size for info in in_flight)
    assert [info.path for info in storage.list_dir(".hoodie")] == [paths.PROPERTIES]
    assert ours(storage) == state == theirs(storage)
    assert_clean(storage)
    mdt.open(storage).untag("s")
    assert not [i for i in storage.list_dir(LAYOUTS[9].timeline) if "savepoint" in i.path]
    stored = properties.decode(storage.read(paths.PROPERTIES))
    assert stored["hoodie.table.version"] == "9"
    assert stored["hoodie.table.initial.version"] == "6"
    assert "hoodie.compaction.payload.class" not in stored


def test_archived_instants_are_moved_to_the_history(monkeypatch):
    monkeypatch.setattr(cleaning, "ARCHIVE_RECORDS_MIN", 4)
    table = make(MemoryStorage(), MOR, "record", **{"mdt.metadata.compact.records": 3})
    table.insert(rows(range(8), 1, 1.0))
    for n in range(20):
        table.upsert(rows([n % 2], n + 2, 2.0))
    table.clean(retain_commits=2)
    storage = table.storage
    state = ours(storage)
    assert storage.list_dir(".hoodie/archived")
    table.upgrade(9)
    assert not storage.list_dir(".hoodie/archived")
    assert storage.list_dir(LAYOUTS[9].archive)
    assert ours(storage) == state == theirs(storage)
    assert_clean(storage)
    for n in range(20):
        mdt.open(storage).upsert(rows([n % 2], n + 50, 2.0))
    mdt.open(storage).clean(retain_commits=2)
    assert_clean(storage)
    assert ours(storage) == theirs(storage)


def test_after_a_crash_at_any_change_the_next_writer_finishes_the_upgrade():
    for where, survivor in survivors(table_with_history, lambda s: mdt.open(s).upgrade(9)):
        count("crash points of an upgrade")
        state = ours(survivor)
        assert theirs(survivor) == state, where
        later(survivor)
        mdt.open(survivor).upsert(rows([30], 9, 9.0))
        expected = upserted(state, [30], 9, 9.0)
        assert ours(survivor) == expected == theirs(survivor), where
        assert_clean(survivor)
        mdt.open(survivor).upgrade(9)
        assert mdt.open(survivor).definition.hudi_version == 9
        assert ours(survivor) == expected == theirs(survivor), where


@pytest.mark.parametrize("write", ["upsert", "abort"])
def test_old_properties_restored_by_a_crashed_writer_are_converted_by_the_next_one(write):
    storage = table_with_history()
    stale = storage.read(paths.PROPERTIES)
    table = mdt.open(storage)
    table.upgrade(9)
    state = ours(storage)
    storage.replace(paths.PROPERTIES, stale)
    assert ours(storage) == state and table.scan().count() == len(state)
    getattr(mdt.open(storage), write)(*[rows([30], 9, 9.0)] * (write == "upsert"))
    expected = upserted(state, [30], 9, 9.0) if write == "upsert" else state
    assert ours(storage) == expected == theirs(storage)
    assert_clean(storage)
    storage.replace(paths.PROPERTIES, stale)
    storage.create(LAYOUTS[6].path_of(Instant("20990101000000000", "commit", COMPLETED)), b"{}")
    refused("has changed it from version 9", table.snapshot, kind=Unsupported)


def test_a_table_opened_before_an_upgrade_can_still_be_read_and_written():
    storage = filled(MOR, "record")
    other = mdt.open(storage)
    assert other.scan().count() == len(BASE_STATE)
    mdt.open(storage).upgrade(9)
    assert other.scan().count() == len(BASE_STATE)
    other.upsert(rows(range(2, 9), 3, 3.0))
    assert ours(storage) == MIXED == theirs(storage)
    assert_clean(storage)


def test_an_upgrade_is_committed_once_and_only_to_version_9():
    storage = filled(MOR, "record")
    table = mdt.open(storage)
    refused("a table is upgraded to version 9, not 8", table.upgrade, 8, kind=Invalid)
    assert table.upgrade(9, dry_run=True).instant == ""
    assert mdt.open(storage).definition.hudi_version == 6
    table.upgrade(9)
    seq = table.snapshot().seq
    table.upgrade(9)
    assert table.snapshot().seq == seq


def test_a_table_shared_with_other_writers_is_not_upgraded():
    storage = MemoryStorage()
    other_table(storage).upsert(batch([1], 1))
    table = mdt.adopt(storage)
    message = "a table that other Hudi writers share cannot be upgraded"
    refused(message, table.upgrade, 9, kind=Unsupported)
