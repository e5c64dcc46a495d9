"""Inserts without look-up: what stands twice, and what becomes of it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pooled import PooledTable
from reader import BY_POSITION, bag, hudi_table
from worlds import COW, MOR, OPTIONS, SCHEMA, join_small_files, rows

import mdt
from mdt.errors import Invalid, Unsupported
from mdt.services.layout import small_files
from mdt.stores.storage import MemoryStorage

REPEATS = {**OPTIONS, "mdt.keys.repeat": True}
MOVED = pa.table([["k0"], ["y"], [9], [7.0]], schema=SCHEMA)
"""A row of x, with a partition that it did not have."""


def made(
    path: Any, table_type: str = MOR, kind: type[mdt.Table] = mdt.Table, **given: Any
) -> mdt.Table:
    """Return a table in which k0 and k1 live three times, and k2 to k5 once."""
    arguments = {
        "key": ["id"],
        "partition_by": ["city"],
        "ordering": "ts",
        "options": REPEATS,
        **given,
    }
    table = kind(mdt.create(path, SCHEMA, table_type=table_type, **arguments).storage)
    table.upsert(rows(range(6), 1, 1.0))
    for fare in (2.0, 3.0):
        done = table.insert(rows([0, 1, 1], 2, fare), check=False)
        assert (done.inserted, done.late) == (2, 1), "of one key one is inserted"
    return table


def right(table: mdt.Table, expected: pa.Table) -> None:
    """Assert that everybody sees the rows, and that nothing is wrong."""
    assert (
        bag(table.scan().to_arrow()) == bag(expected) == bag(hudi_table(Path(table.path), SCHEMA))
    )
    if table.definition.is_mor:
        assert bag(hudi_table(Path(table.path), SCHEMA, BY_POSITION)) == bag(expected)
    report = mdt.open(table.path).check()
    assert report.ok and not report.warnings, str(report)


ALL = [rows(range(6), 1, 1.0), rows([0, 1], 2, 2.0), rows([0, 1], 2, 3.0)]


KINDS = list(
    itertools.product(
        (MOR, COW), ("partition", "table"), ("bloom", "record"), (mdt.Table, PooledTable)
    )
)
BY_DAY = {
    (MOR, "partition", "bloom", mdt.Table),
    (COW, "table", "record", mdt.Table),
    (MOR, "table", "record", mdt.Table),
    (MOR, "partition", "record", PooledTable),
}


@pytest.mark.parametrize(
    ("table_type", "scope", "key_index", "kind"),
    [pytest.param(*one, marks=() if one in BY_DAY else pytest.mark.nightly) for one in KINDS],
)
def test_an_upsert_replaces_all_rows_of_a_key_and_a_delete_deletes_them(
    tmp_path: Path, table_type: str, scope: str, key_index: str, kind: type[mdt.Table]
) -> None:
    table = made(tmp_path, table_type, kind, scope=scope, key_index=key_index)
    right(table, pa.concat_tables(ALL))
    assert table.upsert(rows([0], 1, 9.0)).late == 1, "one of the rows has a larger ordering value"
    done = table.upsert(rows([0, 20], 2, 9.0))
    assert (done.inserted, done.updated, done.deleted) == (1, 1, 2)
    rest = pa.concat_tables([rows(range(1, 6), 1, 1.0), rows([1], 2, 2.0), rows([1], 2, 3.0)])
    right(table, pa.concat_tables([rest, rows([0, 20], 2, 9.0)]))
    assert table.delete(rows([1, 7], 0, 0.0)).deleted == 3
    right(table, pa.concat_tables([rows(range(2, 6), 1, 1.0), rows([0, 20], 2, 9.0)]))


@pytest.mark.parametrize(("kind", "table_type"), [(mdt.Table, COW), (PooledTable, MOR)])
def test_under_table_scope_a_key_moves_with_all_of_its_rows(
    tmp_path: Path, table_type: str, kind: type[mdt.Table]
) -> None:
    table = made(tmp_path, table_type, kind, scope="table")
    done = table.upsert(MOVED)
    assert (done.inserted, done.updated, done.deleted) == (0, 1, 2)
    rest = pa.concat_tables([rows(range(1, 6), 1, 1.0), rows([1], 2, 2.0), rows([1], 2, 3.0)])
    right(table, pa.concat_tables([rest, MOVED]))
    assert table.insert(rows([0, 2], 5, 5.0), check=False).inserted == 2
    done = table.insert_overwrite(MOVED)
    assert (done.inserted, done.deleted) == (1, 7), "the rows of y, and those of k0 in x"
    right(table, pa.concat_tables([MOVED, rows([2, 4], 1, 1.0), rows([2], 5, 5.0)]))


@pytest.mark.parametrize("table_type", [MOR, COW])
def test_services_keep_rows_of_one_key_in_file_groups_of_their_own(
    tmp_path: Path, table_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path, table_type)
    more = [
        pa.concat_tables([rows([n, n + 1], 2, 1.0), rows([n + 2, n + 3], 2, 8.0)]) for n in (30, 40)
    ]
    for batch in more:
        table.insert(batch, check=False)
    expected = pa.concat_tables([*ALL, *more])
    before = len(table.files())
    assert table.cluster("fare").groups_replaced and len(table.files()) < before, (
        "those that share no key are arranged"
    )
    right(table, expected)
    table.compact()
    monkeypatch.setattr(small_files, "JOINED_MIN", 2)
    while join_small_files(table):
        pass
    right(table, expected)
    assert len(table.files()) >= 6, "each row of k0 and k1 has a file group"
    assert table.delete(rows([0, 1], 0, 0.0)).deleted == 6


def test_one_row_of_several_can_be_changed_by_a_condition(tmp_path: Path) -> None:
    table = made(tmp_path)
    assert table.update_where(values={"fare": 8.0}, where="fare = 2.0").updated == 2
    assert table.delete_where("id = 'k1' and fare = 3.0").deleted == 1
    right(
        table, pa.concat_tables([rows(range(6), 1, 1.0), rows([0, 1], 2, 8.0), rows([0], 2, 3.0)])
    )


def test_a_merge_changes_each_row_of_a_key_but_moves_none(tmp_path: Path) -> None:
    table = made(tmp_path, scope="table")
    done = (
        table.merge(rows([0], 2, 9.0))
        .when_matched()
        .update({"fare": "source.fare + target.fare"})
        .execute()
    )
    assert done.updated == 3
    rest = [rows(range(1, 6), 1, 1.0), rows([1], 2, 2.0), rows([1], 2, 3.0)]
    right(
        table, pa.concat_tables([*rest, rows([0], 1, 10.0), rows([0], 2, 11.0), rows([0], 2, 12.0)])
    )
    with pytest.raises(Unsupported, match="a row would move"):
        table.merge(MOVED).when_matched().update("*").execute()


def test_what_asks_for_one_row_of_a_key_is_told_that_there_are_several(tmp_path: Path) -> None:
    table = made(tmp_path)
    assert table.scan("id = 'k0'").count() == 3
    with pytest.raises(Invalid, match=r"1 keys live in several rows: 'k0'"):
        table.get({"id": "k0", "city": "x"})
    with pytest.raises(Invalid, match="takes new keys only"):
        table.insert(rows([0], 9, 9.0))
    with pytest.raises(Unsupported, match="live more than once"):
        table.restore(1)
    with pytest.raises(Unsupported, match="live more than once"):
        table.changes(1, before=False)


def test_changes_tell_every_row(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.upsert(rows([0], 2, 9.0))
    told = table.changes(3, mode="all").to_arrow().to_pylist()
    assert [row["_change"] for row in told] == ["update_before"] * 2 + [
        "update_before",
        "update_after",
    ]
    net = table.changes(2).to_arrow()
    assert sorted(zip(net["_change"].to_pylist(), net["fare"].to_pylist(), strict=True)) == [
        ("delete", 1.0),
        ("delete", 2.0),
        ("insert", 3.0),
        ("insert", 9.0),
    ]


def test_a_table_is_made_for_it() -> None:
    table = mdt.create(MemoryStorage(), SCHEMA, ["id"], options=OPTIONS)
    with pytest.raises(Invalid, match=r"which this table does not allow"):
        table.insert(rows([0], 1, 1.0), check=False)
    with pytest.raises(Invalid, match="fixed at creation"):
        mdt.open(table.storage, {"mdt.keys.repeat": True})
    with pytest.raises(Invalid, match="check takes True or False"):
        table.insert(rows([0], 1, 1.0), check=0)  # type: ignore[arg-type]


def test_no_key_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    table = mdt.create(MemoryStorage(), SCHEMA, ["id"], partition_by=["city"], options=REPEATS)
    table.upsert(rows(range(6), 1, 1.0))
    monkeypatch.setattr("mdt.write.rules.locate", lambda *_: pytest.fail("a key was looked for"))
    assert table.insert(rows(range(3), 1, 1.0), check=False).inserted == 3
