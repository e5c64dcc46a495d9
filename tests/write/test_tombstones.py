"""Deletes that keep their ordering value: late rows do not revive what was deleted after them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pooled import PooledTable
from reader import bag, hudi_table

import mdt
from indexes.base import KeyHashes
from mdt.errors import Invalid
from mdt.metadata.snapshot import tombstones
from mdt.metadata.snapshot.deleted_keys import standing
from mdt.stores.storage import MemoryStorage
from mdt.write.operations import RowOperation

SCHEMA = pa.schema(
    [("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("v", pa.int64())]
)
HOUR_SECONDS = 3600


def rows(*given: tuple[str, int]) -> pa.Table:
    keys, times = [key for key, _ in given], [ts for _, ts in given]
    return pa.table([keys, ["x"] * len(keys), times, times], schema=SCHEMA)


def keys(*names: str) -> dict[str, list[str]]:
    return {"id": list(names), "city": ["x"] * len(names)}


def make(where: Any = None, *given: tuple[str, int], **options: Any) -> mdt.Table:
    arguments: dict[str, Any] = {"partition_by": ["city"], "ordering": "ts"}
    arguments |= {name: options.pop(name) for name in ("scope", "table_type") if name in options}
    named = {name.replace("_", "."): value for name, value in options.items()}
    table = mdt.create(
        MemoryStorage() if where is None else where,
        SCHEMA,
        ["id"],
        options={"mdt.delete.keeps.ordering": True, **named},
        **arguments,
    )
    if given:
        table.upsert(rows(*given))
    return table


def held(table: mdt.Table) -> dict[str, int]:
    found = table.scan(columns=["id", "ts"]).to_arrow().to_pylist()
    return {row["id"]: row["ts"] for row in found}


@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
@pytest.mark.parametrize("scope", ["partition", "table"])
def test_a_row_older_than_the_delete_of_its_key_is_left_out_and_counted(
    tmp_path: Path, scope: str, table_type: str
) -> None:
    table = make(tmp_path, ("a", 5), ("b", 5), ("c", 5), scope=scope, table_type=table_type)
    assert table.delete(keys("a", "b")).deleted == 2
    done = table.upsert(rows(("a", 4), ("b", 5), ("d", 1)))
    assert (done.inserted, done.updated, done.late) == (2, 0, 1), (
        "of equal ordering values the later write counts"
    )
    assert held(table) == {"b": 5, "c": 5, "d": 1}
    assert bag(hudi_table(tmp_path, SCHEMA)) == bag(table.scan().to_arrow()) and table.check().ok


def test_without_the_option_a_delete_ends_all_that_is_known_of_a_key() -> None:
    table = make(None, ("a", 5), mdt_delete_keeps_ordering=False)
    table.delete(rows(("a", 9)))
    assert table.upsert(rows(("a", 1))).inserted == 1
    record = table.metadata.record(2)
    assert record is not None and "tombstones" not in record.tables


def test_rows_to_delete_may_say_at_which_ordering_value() -> None:
    table = make(None, ("a", 5), ("b", 5))
    done = table.delete(rows(("a", 7), ("a", 6), ("b", 4), ("c", 9)))
    assert (done.deleted, done.late, done.missing) == (1, 1, 1), "b is newer, c does not exist yet"
    assert table.upsert(rows(("a", 6), ("c", 8))).late == 2 and held(table) == {"b": 5}
    assert table.delete(rows(("c", 3))).missing == 1 and table.upsert(rows(("c", 8))).late == 1, (
        "the larger one stays"
    )
    assert table.upsert(rows(("a", 7), ("c", 10))).inserted == 2
    with pytest.raises(Invalid, match="null"):
        table.delete({**keys("a"), "ts": pa.array([None], pa.int64())})


def test_every_way_to_insert_heeds_tombstones_and_overwrites_do_not() -> None:
    table = make(None, ("a", 5), ("b", 5), ("c", 5))
    assert table.delete_where("id = 'a'").deleted == 1
    assert table.merge(rows(("b", 0))).when_matched().delete().execute().deleted == 1
    table.merge(rows(("a", 1))).when_not_matched_by_source("target.id = 'c'").delete().execute()
    old = rows(("a", 4), ("b", 4), ("c", 4))
    assert (
        table.insert(old).late
        == table.bulk_insert(old).late
        == table.upsert(old, partial=True).late
        == 3
    )
    merged = table.merge(old).when_not_matched().insert().execute()
    assert (merged.inserted, merged.late, merged.instant) == (0, 3, "") and held(table) == {}
    assert table.insert_overwrite(rows(("a", 1))).inserted == 1
    assert table.upsert(rows(("a", 2))).updated == 1, "where a key lives, its row alone decides"
    table.truncate()
    assert table.upsert(rows(("a", 3))).late == 1 and table.upsert(rows(("a", 5))).inserted == 1


def test_tasks_leave_out_late_rows_and_count_them(tmp_path: Path) -> None:
    made = make(tmp_path, ("a", 5), ("b", 5), ("c", 5))
    made.delete(keys("a", "b", "c"))
    table = PooledTable(made.storage)
    done = table.upsert(rows(("a", 4), ("b", 6), ("d", 1)))
    assert (done.inserted, done.updated, done.late) == (2, 0, 1)
    done = table.upsert(rows(("a", 3), ("c", 5), ("d", 0)), partial=True)
    assert (done.inserted, done.updated, done.late) == (1, 0, 2) and held(table) == {
        "b": 6,
        "c": 5,
        "d": 1,
    }
    assert table.insert_overwrite(rows(("a", 1))).inserted == 1 and table.check().ok


def test_tasks_begin_again_if_a_key_of_theirs_is_deleted_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make(tmp_path, ("a", 5), ("m", 5), scope="table")
    table, write, calls = PooledTable(made.storage), RowOperation.write, list[int]()

    def write_late(self: Any, *given: Any) -> Any:
        changes = write(self, *given)
        calls.append(1)
        if len(calls) == 1:
            made.delete(rows(("n", 9)))
        return changes

    monkeypatch.setattr(RowOperation, "write", write_late)
    moved = rows(("m", 6), ("n", 7)).set_column(1, "city", pa.array(["y", "x"]))
    done = table.upsert(moved)
    assert (done.updated, done.inserted, done.late, done.attempts) == (1, 0, 1, 2)
    assert held(table) == {"a": 5, "m": 6} and table.check().ok


def test_tombstones_survive_checkpoints_compaction_clustering_cleaning_and_a_new_process() -> None:
    table = make(None, ("a", 5), ("b", 5))
    table.delete(keys("a"))
    table.upsert(rows(("b", 6)))
    table.compact()
    table.cluster(["v"])
    table.metadata.compact()
    table.upsert(rows(("b", 7)))
    table.metadata.compact()
    table.clean(retain_commits=1)
    other = mdt.open(table.storage)
    assert other.upsert(rows(("a", 4))).late == 1 and other.check().ok
    assert other.repair().ok and other.upsert(rows(("a", 4))).late == 1


def test_restore_brings_the_tombstones_of_a_state_back_and_takes_the_others_away() -> None:
    table = make(None, ("a", 5), ("b", 5))
    table.delete(keys("a"))
    table.upsert(rows(("a", 9)))
    table.delete(rows(("a", 9), ("b", 8), ("c", 8)))
    table.restore(2)
    assert held(table) == {"b": 5}
    assert table.upsert(rows(("a", 4), ("c", 1))).late == 1 and held(table) == {"b": 5, "c": 1}
    table.restore(4)
    assert table.upsert(rows(("a", 8), ("b", 7), ("c", 7))).late == 3
    assert table.check().ok
    table.delete(rows(("n", 3)))
    table.restore(4)
    assert table.upsert(rows(("n", 2))).inserted == 1, "a restore may change tombstones alone"


def test_tombstones_are_forgotten_by_the_instants_of_commits() -> None:
    storage = MemoryStorage()
    table = make(storage, ("a", 5), ("b", 5), mdt_delete_keeps_ordering_hours=2)
    table.delete(keys("a"))
    storage.sleep(HOUR_SECONDS)
    table.delete(keys("b"))
    assert table.upsert(rows(("a", 4), ("z", 1))).late == 1
    storage.sleep(1.5 * HOUR_SECONDS)
    table.upsert(rows(("z", 2)))
    assert len(standing(table.snapshot())) == 1
    table.metadata.compact()
    assert table.snapshot().checkpoint.table("tombstones").num_rows == 1
    done = table.upsert(rows(("a", 4), ("b", 4)))
    assert (done.inserted, done.late) == (1, 1) and table.check().ok


def test_a_purge_leaves_no_tombstone() -> None:
    table = make(None, ("a", 5), ("b", 5))
    table.delete(rows(("a", 5), ("c", 7)))
    table.purge()
    assert "tombstones" not in table.snapshot().checkpoint and not len(standing(table.snapshot()))
    assert table.upsert(rows(("a", 1), ("c", 1))).inserted == 2 and table.check().ok
    assert table.purge().ended is not None and table.purge().ended is None, (
        "again there is nothing to do"
    )


def test_the_option_needs_an_ordering_field_and_keys_that_live_once() -> None:
    for options, ordering in (({}, None), ({"mdt.keys.repeat": True}, "ts")):
        with pytest.raises(Invalid, match=r"mdt\.delete\.keeps\.ordering"):
            mdt.create(
                MemoryStorage(),
                SCHEMA,
                ["id"],
                ordering=ordering,
                options={"mdt.delete.keeps.ordering": True, **options},
            )


def test_of_many_sets_of_tombstones_the_newest_counts_whatever_was_merged() -> None:
    draw = np.random.default_rng(3)
    since, expected, table = tombstones.TombstonesSince(), dict[int, int](), make()
    base = table.metadata.record(0)
    assert base is not None
    for number in range(100):
        marks = np.unique(draw.integers(0, 50, 8)).astype(np.uint64)
        values, stands = (
            draw.integers(0, 9, len(marks)).astype(np.uint64),
            draw.random(len(marks)) < 0.8,
        )
        section = tombstones.new_tombstones(KeyHashes(marks, marks), values, stands)
        record = type(base)(number + 1, base.header, {"tombstones": section})
        since = since.followed_by(record)
        for mark, value, stays in zip(
            marks.tolist(), values.tolist(), stands.tolist(), strict=True
        ):
            expected[mark] = value if stays else -1
    assert len(since.parts) < 3 * tombstones.MERGED
    found = tombstones.merged(since.parts)
    assert (
        dict(
            zip(
                found.marks.hi.tolist(),
                np.where(found.stands, found.ordering.astype(int), -1).tolist(),
                strict=True,
            )
        )
        == expected
    )
