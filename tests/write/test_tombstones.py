"""Deletes that keep their ordering value: late rows do not restore keys deleted after them."""

import numpy as np
import pyarrow as pa
import pytest
from merges import NEW_ALL, merged
from pooled import EVERY_KIND
from texts import columns, rows_of

import mdt
from indexes.base import KeyHashes
from mdt.errors import Invalid
from mdt.metadata.snapshot import tombstones
from mdt.metadata.snapshot.deleted_keys import in_force
from mdt.stores.storage import MemoryStorage

SCHEMA = columns("id string, city string, ts int64, v int64")
HOUR_SECONDS = 3600


def rows(*pairs):
    return rows_of(SCHEMA, *(f"{key} x {ts} {ts}" for key, ts in pairs))


def keys(*names):
    return {"id": list(names), "city": ["x"] * len(names)}


def new_table(*pairs, kind=mdt.Table, **options):
    """Return a table that keeps ordering values of deletes. ``options`` have _ for each dot."""
    settings = {name.replace("_", "."): value for name, value in options.items()}
    table = mdt.create(
        MemoryStorage(),
        SCHEMA,
        ["id"],
        partition_by=["city"],
        ordering="ts",
        options={"mdt.delete.keeps.ordering": True, **settings},
    )
    if pairs:
        table.upsert(rows(*pairs))
    return kind(table.storage)


def ordering_by_id(table):
    scanned = table.scan(columns=["id", "ts"]).to_arrow().to_pylist()
    return {row["id"]: row["ts"] for row in scanned}


def test_without_the_option_a_delete_leaves_no_tombstone():
    table = new_table(("a", 5), mdt_delete_keeps_ordering=False)
    table.delete(rows(("a", 9)))
    assert table.upsert(rows(("a", 1))).inserted == 1
    record = table.metadata.record(2)
    assert record is not None and "tombstones" not in record.tables


@EVERY_KIND
def test_rows_to_delete_may_have_ordering_values(kind):
    table = new_table(("a", 5), ("b", 5), kind=kind)
    result = table.delete(rows(("a", 7), ("a", 6), ("b", 4), ("c", 9)))
    assert (result.deleted, result.late, result.missing) == (1, 1, 1), (
        "b is newer, c does not exist yet"
    )
    assert table.upsert(rows(("a", 6), ("c", 8))).late == 2 and ordering_by_id(table) == {"b": 5}
    assert table.delete(rows(("c", 3))).missing == 1 and table.upsert(rows(("c", 8))).late == 1, (
        "the larger ordering value is kept"
    )
    assert table.upsert(rows(("a", 7), ("c", 10))).inserted == 2
    with pytest.raises(Invalid, match="null"):
        table.delete({**keys("a"), "ts": pa.array([None], pa.int64())})


@EVERY_KIND
def test_every_insert_respects_tombstones_and_overwrites_ignore_them(kind):
    table = new_table(("a", 5), ("b", 5), ("c", 5), kind=kind)
    assert table.delete_where("id = 'a'").deleted == 1
    assert merged(table, rows(("b", 0)), ("matched", None, None)).deleted == 1
    merged(table, rows(("a", 1)), ("not_matched_by_source", "target.id = 'c'", None))
    old = rows(("a", 4), ("b", 4), ("c", 4))
    for result in (table.insert(old), table.bulk_insert(old), table.upsert(old, partial=True)):
        assert (result.inserted, result.late) == (0, 3)
    result = merged(table, old, NEW_ALL)
    assert (result.inserted, result.late, result.instant) == (0, 3, "") and ordering_by_id(
        table
    ) == {}
    assert table.insert_overwrite(rows(("a", 1))).inserted == 1
    assert table.upsert(rows(("a", 2))).updated == 1, "for an existing key only its row counts"
    table.truncate()
    assert table.upsert(rows(("a", 3))).late == 1 and table.upsert(rows(("a", 5))).inserted == 1
    with pytest.raises(Invalid, match="1 rows repeat a key"):
        table.insert(rows(("d", 1), ("d", 2)))


def test_tombstones_expire_by_the_instants_of_commits():
    table = new_table(("a", 5), ("b", 5), mdt_delete_keeps_ordering_hours=2)
    table.delete(keys("a"))
    table.storage.sleep(HOUR_SECONDS)
    table.delete(keys("b"))
    assert table.upsert(rows(("a", 4), ("z", 1))).late == 1
    table.storage.sleep(1.5 * HOUR_SECONDS)
    table.upsert(rows(("z", 2)))
    assert len(in_force(table.snapshot())) == 1
    table.metadata.compact()
    assert table.snapshot().checkpoint.table("tombstones").num_rows == 1
    result = table.upsert(rows(("a", 4), ("b", 4)))
    assert (result.inserted, result.late) == (1, 1) and table.check().ok


def test_a_purge_removes_all_tombstones():
    table = new_table(("a", 5), ("b", 5))
    table.delete(rows(("a", 5), ("c", 7)))
    table.purge()
    assert "tombstones" not in table.snapshot().checkpoint and not len(in_force(table.snapshot()))
    assert table.upsert(rows(("a", 1), ("c", 1))).inserted == 2 and table.check().ok
    assert table.purge().ended is not None and table.purge().ended is None, (
        "a second purge has nothing to do"
    )


def test_a_restore_may_change_only_tombstones():
    table = new_table(("a", 5))
    table.delete(rows(("n", 3)))
    table.restore(1)
    assert table.upsert(rows(("n", 2))).inserted == 1 and table.check().ok


def test_the_option_needs_an_ordering_field_and_unique_keys():
    keeps = {"mdt.delete.keeps.ordering": True}
    for options, ordering in ((keeps, None), (keeps | {"mdt.keys.repeat": True}, "ts")):
        with pytest.raises(Invalid, match=r"mdt\.delete\.keeps\.ordering"):
            mdt.create(MemoryStorage(), SCHEMA, ["id"], ordering=ordering, options=options)


def test_the_newest_tombstone_of_a_key_counts_after_any_merging():
    draw = np.random.default_rng(3)
    since, expected = tombstones.TombstonesSince(), dict[int, int]()
    base = new_table().metadata.record(0)
    for number in range(100):
        marks = np.unique(draw.integers(0, 50, 8)).astype(np.uint64)
        values = draw.integers(0, 9, len(marks)).astype(np.uint64)
        in_force_flags = draw.random(len(marks)) < 0.8
        section = tombstones.new_tombstones(KeyHashes(marks, marks), values, in_force_flags)
        record = type(base)(number + 1, base.header, {"tombstones": section})
        since = since.followed_by(record)
        states = np.where(in_force_flags, values.astype(int), -1)
        expected |= dict(zip(marks.tolist(), states.tolist(), strict=True))
    assert len(since.parts) < 3 * tombstones.MERGED
    merged_set = tombstones.merge(since.parts)
    states = np.where(merged_set.stands, merged_set.ordering.astype(int), -1)
    assert dict(zip(merged_set.marks.hi.tolist(), states.tolist(), strict=True)) == expected
