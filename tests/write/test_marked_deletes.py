"""Rows that are marked as deletes (``_hoodie_is_deleted``), in every write, as Hudi's writers have
them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from reader import bag, hudi_table
from spilled import SpilledTable

import mdt
from mdt.errors import Invalid, Unsupported
from mdt.stores.storage import LocalStorage

MARK = "_hoodie_is_deleted"
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("city", pa.string()),
        pa.field("ts", pa.int64()),
        pa.field("v", pa.int64(), nullable=False),
    ]
)
KINDS: dict[str, dict[str, Any]] = {
    "merge on read": {},
    "copy on write": {"table_type": "COPY_ON_WRITE"},
    "table scope": {"scope": "table"},
    "record": {"key_index": "record"},
}


def made(path: Path, **more: Any) -> mdt.Table:
    table = mdt.create(path, SCHEMA, ["id"], partition_by=["city"], ordering="ts", **more)
    table.upsert(rows(("a", "Oslo", 5, 1), ("b", "Oslo", 5, 2), ("c", "Rome", 5, 3)))
    return table


def rows(*values: tuple[Any, ...]) -> pa.Table:
    return pa.table([list(column) for column in zip(*values, strict=True)], schema=SCHEMA)


def marked(*values: tuple[Any, ...]) -> pa.Table:
    columns = [list(column) for column in zip(*values, strict=True)]
    return pa.table(
        columns, schema=SCHEMA.set(3, pa.field("v", pa.int64())).append(pa.field(MARK, pa.bool_()))
    )


def agree(table: mdt.Table, expected: pa.Table) -> None:
    assert bag(table.scan().to_arrow()) == bag(expected)
    assert bag(hudi_table(table.path.removeprefix("file://"), SCHEMA)) == bag(expected)
    assert table.check().ok


MIXED = marked(
    ("a", "Oslo", 6, None, True),
    ("b", "Oslo", 4, None, True),
    ("z", "Oslo", 1, None, True),
    ("c", "Rome", 6, 33, None),
    ("n", "Oslo", 2, 7, False),
    ("n", "Oslo", 1, None, True),
    ("m", "Oslo", 1, 8, False),
    ("m", "Oslo", 2, None, True),
)


@pytest.mark.parametrize("spilled", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_marked_rows_of_an_upsert_delete_unless_they_come_late(
    tmp_path: Path, kind: str, spilled: bool
) -> None:
    table = made(tmp_path / "t", **KINDS[kind])
    writer = SpilledTable(LocalStorage(tmp_path / "t", durable=False)) if spilled else table
    done = writer.upsert(MIXED)
    assert (done.inserted, done.updated, done.deleted, done.late, done.missing) == (1, 1, 1, 3, 2)
    agree(table, rows(("b", "Oslo", 5, 2), ("c", "Rome", 6, 33), ("n", "Oslo", 2, 7)))


@pytest.mark.parametrize("spilled", [False, True])
def test_marked_rows_leave_tombstones_where_the_table_keeps_them(
    tmp_path: Path, spilled: bool
) -> None:
    table = made(tmp_path / "t", options={"mdt.delete.keeps.ordering": True})
    writer = SpilledTable(LocalStorage(tmp_path / "t", durable=False)) if spilled else table
    writer.upsert(marked(("a", "Oslo", 9, None, True), ("z", "Oslo", 9, None, True)))
    late = table.upsert(rows(("a", "Oslo", 8, 1), ("z", "Oslo", 8, 1)))
    assert (late.inserted, late.late) == (0, 2)
    again = table.upsert(rows(("a", "Oslo", 9, 1), ("z", "Oslo", 10, 1)))
    assert (again.inserted, again.late) == (2, 0)


def test_a_marked_row_deletes_under_table_scope_wherever_its_key_lives(tmp_path: Path) -> None:
    table = made(tmp_path / "t", scope="table")
    assert (
        table.upsert(marked(("c", None, 7, None, True), ("a", "Rome", 7, None, True))).deleted == 2
    )
    agree(table, rows(("b", "Oslo", 5, 2)))


@pytest.mark.parametrize("operation", ["insert", "bulk_insert"])
def test_marked_rows_of_an_insert_delete_and_the_others_are_inserted(
    tmp_path: Path, operation: str
) -> None:
    table = made(tmp_path / "t")
    done = getattr(table, operation)(
        marked(("a", "Oslo", 6, None, True), ("n", "Oslo", 1, 4, None))
    )
    assert (done.inserted, done.deleted) == (1, 1)
    with pytest.raises(Invalid, match="takes new keys only"):
        getattr(table, operation)(marked(("b", "Oslo", 6, 1, False)))
    agree(table, rows(("b", "Oslo", 5, 2), ("c", "Rome", 5, 3), ("n", "Oslo", 1, 4)))


def test_a_first_load_leaves_marked_rows_out(tmp_path: Path) -> None:
    table = mdt.create(tmp_path / "t", SCHEMA, ["id"], partition_by=["city"], ordering="ts")
    for writer in (table, SpilledTable(LocalStorage(tmp_path / "t", durable=False))):
        done = writer.bulk_insert(
            marked(("a", "Oslo", 6, None, True), (f"n{writer.snapshot().seq}", "Oslo", 1, 4, None))
        )
        assert (done.inserted, done.deleted, done.missing) == (1, 0, 1)
    assert table.scan().count() == 2


@pytest.mark.parametrize("spilled", [False, True])
def test_overwrites_leave_marked_rows_out(tmp_path: Path, spilled: bool) -> None:
    table = made(tmp_path / "t")
    writer = SpilledTable(LocalStorage(tmp_path / "t", durable=False)) if spilled else table
    done = writer.insert_overwrite(
        marked(
            ("a", "Oslo", 6, None, True), ("n", "Oslo", 1, 4, None), ("c", "Rome", 9, None, True)
        )
    )
    assert (done.inserted, done.deleted) == (1, 2)
    agree(table, rows(("c", "Rome", 5, 3), ("n", "Oslo", 1, 4)))


def test_marked_rows_go_with_evolve_and_partial(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    data = MIXED.append_column("more", pa.array(range(len(MIXED))))
    assert table.upsert(data, evolve=True).deleted == 1 and table.schema.names == [
        *SCHEMA.names,
        "more",
    ]
    part = pa.table({"id": ["b", "n"], "city": ["Oslo", "Oslo"], "ts": [9, 9], MARK: [True, None]})
    done = table.upsert(part, partial=True)
    assert (done.deleted, done.updated) == (1, 1)
    assert table.scan("city = 'Oslo'", columns=["id", "ts", "v"]).to_arrow().to_pylist() == [
        {"id": "n", "ts": 9, "v": 7}
    ]


def test_marked_rows_of_a_merge_delete_what_they_would_update_and_are_not_inserted(
    tmp_path: Path,
) -> None:
    for name, kind in (("t", mdt.Table), ("s", SpilledTable)):
        made(tmp_path / name)
        table = kind(LocalStorage(tmp_path / name, durable=False))
        source = marked(
            ("a", "Oslo", 6, 1, True),
            ("b", "Oslo", 6, 22, None),
            ("n", "Oslo", 1, 4, True),
            ("k", "Oslo", 1, 4, False),
        )
        merge = (
            table.merge(source)
            .when_matched("source.ts > target.ts")
            .update("*")
            .when_not_matched()
            .insert()
        )
        done = merge.execute()
        assert (done.inserted, done.updated, done.deleted) == (1, 1, 1)
        agree(table, rows(("b", "Oslo", 6, 22), ("c", "Rome", 5, 3), ("k", "Oslo", 1, 4)))


def test_a_writer_gathers_rows_that_are_marked_and_rows_that_are_not(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    with table.writer(max_seconds=60) as writer:
        told = [
            writer.upsert(rows(("k", "Oslo", 1, 1))),
            writer.upsert(marked(("a", "Oslo", 6, None, True), ("k", "Oslo", 2, None, True))),
        ]
    assert told[0].result() is told[1].result() and told[0].result().deleted == 1
    agree(table, rows(("b", "Oslo", 5, 2), ("c", "Rome", 5, 3)))


def test_dicts_mark_deletes_too(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    done = table.upsert(
        [
            {"id": "a", "city": "Oslo", "ts": 6, MARK: True},
            {"id": "b", "city": "Oslo", "ts": 6, "v": 3},
        ]
    )
    assert (done.deleted, done.updated) == (1, 1)


def test_what_cannot_be_a_mark_is_refused(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    texts = MIXED.set_column(4, MARK, pa.array(["true"] * len(MIXED)))
    with pytest.raises(Invalid, match="says which rows are deletes, and is string"):
        table.upsert(texts)
    with pytest.raises(Invalid, match="says which rows are deletes, and is string"):
        table.merge(texts)
    with pytest.raises(Unsupported, match="mergers make nothing"):
        table.upsert(MIXED, mergers={"v": "sum"})
    repeats = mdt.create(
        tmp_path / "r", SCHEMA, ["id"], partition_by=["city"], options={"mdt.keys.repeat": True}
    )
    for kind in (mdt.Table, SpilledTable):
        with pytest.raises(Unsupported, match=r"insert\(check=False\) looks for no key"):
            kind(LocalStorage(tmp_path / "r")).insert(MIXED, check=False)
    with pytest.raises(Invalid, match="'v' is required"):
        table.upsert(marked(("k", "Oslo", 1, None, False), ("a", "Oslo", 9, None, True)))
    with pytest.raises(Invalid, match="'id' is null"):
        table.upsert(marked((None, "Oslo", 1, None, True)))
    assert not len(repeats.snapshot()) and table.scan().count() == 3


def test_in_tables_whose_keys_repeat_a_marked_row_deletes_all_rows_of_its_key(
    tmp_path: Path,
) -> None:
    table = mdt.create(
        tmp_path / "t", SCHEMA, ["id"], partition_by=["city"], options={"mdt.keys.repeat": True}
    )
    for v in range(3):
        table.insert(rows(("a", "Oslo", 1, v)), check=False)
    assert table.upsert(marked(("a", "Oslo", 1, None, True))).deleted == 3
    assert table.scan().count() == 0
