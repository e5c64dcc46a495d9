"""Deletes that keep their ordering value: late rows do not revive what was deleted after them."""

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


def rows(*given):
    return rows_of(SCHEMA, *(f"{key} x {ts} {ts}" for key, ts in given))


def keys(*names):
    return {"id": list(names), "city": ["x"] * len(names)}


def make(*given, kind=mdt.Table, **options):
    """Return a table that keeps deletes, with rows; ``options`` have _ for each dot."""
    named = {name.replace("_", "."): value for name, value in options.items()}
    table = mdt.create(
        MemoryStorage(),
        SCHEMA,
        ["id"],
        partition_by=["city"],
        ordering="ts",
        options={"mdt.delete.keeps.ordering": True, **named},
    )
    if given:
        table.upsert(rows(*given))
    return kind(table.storage)


def held(table):
    found = table.scan(columns=["id", "ts"]).to_arrow().to_pylist()
    return {row["id"]: row["ts"] for row in found}


def test_without_the_option_a_delete_ends_all_that_is_known_of_a_key():
    table = make(("a", 5), mdt_delete_keeps_ordering=False)
    table.delete(rows(("a", 9)))
    assert table.upsert(rows(("a", 1))).inserted == 1
    record = table.metadata.record(2)
    assert record is not None and "tombstones" not in record.tables


@EVERY_KIND
def test_rows_to_delete_may_say_at_which_ordering_value(kind):
    table = make(("a", 5), ("b", 5), kind=kind)
    done = table.delete(rows(("a", 7), ("a", 6), ("b", 4), ("c", 9)))
    assert (done.deleted, done.late, done.missing) == (1, 1, 1), "b is newer, c does not exist yet"
    assert table.upsert(rows(("a", 6), ("c", 8))).late == 2 and held(table) == {"b": 5}
    assert table.delete(rows(("c", 3))).missing == 1 and table.upsert(rows(("c", 8))).late == 1, (
        "the larger one stays"
    )
    assert table.upsert(rows(("a", 7), ("c", 10))).inserted == 2
    with pytest.raises(Invalid, match="null"):
        table.delete({**keys("a"), "ts": pa.array([None], pa.int64())})


@EVERY_KIND
def test_every_way_to_insert_heeds_tombstones_and_overwrites_do_not(kind):
    table = make(("a", 5), ("b", 5), ("c", 5), kind=kind)
    assert table.delete_where("id = 'a'").deleted == 1
    assert merged(table, rows(("b", 0)), ("matched", None, None)).deleted == 1
    merged(table, rows(("a", 1)), ("not_matched_by_source", "target.id = 'c'", None))
    old = rows(("a", 4), ("b", 4), ("c", 4))
    for done in (table.insert(old), table.bulk_insert(old), table.upsert(old, partial=True)):
        assert (done.inserted, done.late) == (0, 3)
    done = merged(table, old, NEW_ALL)
    assert (done.inserted, done.late, done.instant) == (0, 3, "") and held(table) == {}
    assert table.insert_overwrite(rows(("a", 1))).inserted == 1
    assert table.upsert(rows(("a", 2))).updated == 1, "where a key lives, its row alone decides"
    table.truncate()
    assert table.upsert(rows(("a", 3))).late == 1 and table.upsert(rows(("a", 5))).inserted == 1
    with pytest.raises(Invalid, match="1 rows repeat a key"):
        table.insert(rows(("d", 1), ("d", 2)))


def test_tombstones_are_forgotten_by_the_instants_of_commits():
    table = make(("a", 5), ("b", 5), mdt_delete_keeps_ordering_hours=2)
    table.delete(keys("a"))
    table.storage.sleep(HOUR_SECONDS)
    table.delete(keys("b"))
    assert table.upsert(rows(("a", 4), ("z", 1))).late == 1
    table.storage.sleep(1.5 * HOUR_SECONDS)
    table.upsert(rows(("z", 2)))
    assert len(in_force(table.snapshot())) == 1
    table.metadata.compact()
    assert table.snapshot().checkpoint.table("tombstones").num_rows == 1
    done = table.upsert(rows(("a", 4), ("b", 4)))
    assert (done.inserted, done.late) == (1, 1) and table.check().ok


def test_a_purge_leaves_no_tombstone():
    table = make(("a", 5), ("b", 5))
    table.delete(rows(("a", 5), ("c", 7)))
    table.purge()
    assert "tombstones" not in table.snapshot().checkpoint and not len(in_force(table.snapshot()))
    assert table.upsert(rows(("a", 1), ("c", 1))).inserted == 2 and table.check().ok
    assert table.purge().ended is not None and table.purge().ended is None, (
        "again there is nothing to do"
    )


def test_a_restore_may_change_tombstones_alone():
    table = make(("a", 5))
    table.delete(rows(("n", 3)))
    table.restore(1)
    assert table.upsert(rows(("n", 2))).inserted == 1 and table.check().ok


def test_the_option_needs_an_ordering_field_and_keys_that_live_once():
    keeps = {"mdt.delete.keeps.ordering": True}
    for options, ordering in ((keeps, None), (keeps | {"mdt.keys.repeat": True}, "ts")):
        with pytest.raises(Invalid, match=r"mdt\.delete\.keeps\.ordering"):
            mdt.create(MemoryStorage(), SCHEMA, ["id"], ordering=ordering, options=options)


def test_of_many_sets_of_tombstones_the_newest_counts_whatever_was_merged():
    draw = np.random.default_rng(3)
    since, expected = tombstones.TombstonesSince(), dict[int, int]()
    base = make().metadata.record(0)
    for number in range(100):
        marks = np.unique(draw.integers(0, 50, 8)).astype(np.uint64)
        values = draw.integers(0, 9, len(marks)).astype(np.uint64)
        stands = draw.random(len(marks)) < 0.8
        section = tombstones.new_tombstones(KeyHashes(marks, marks), values, stands)
        record = type(base)(number + 1, base.header, {"tombstones": section})
        since = since.followed_by(record)
        told = np.where(stands, values.astype(int), -1)
        expected |= dict(zip(marks.tolist(), told.tolist(), strict=True))
    assert len(since.parts) < 3 * tombstones.MERGED
    found = tombstones.merge(since.parts)
    told = np.where(found.stands, found.ordering.astype(int), -1)
    assert dict(zip(found.marks.hi.tolist(), told.tolist(), strict=True)) == expected
