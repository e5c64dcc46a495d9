"""Upserts of parts of rows, and columns that are merged: what was there stays, for every reader."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from reader import bag, hudi_table

import mdt
from mdt.commit.transaction import steps
from mdt.errors import Conflict, Invalid, Unsupported
from mdt.write.blending import MERGERS, Kept
from mdt.write.by_name import write_here

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("n", pa.uint8()),
        ("note", pa.string()),
        ("tags", pa.list_(pa.string())),
    ]
)
OLD = [
    {"id": "a", "city": "x", "ts": 5, "n": 1, "note": "old", "tags": ["p", "q"]},
    {"id": "b", "city": "y", "ts": 5, "n": None, "note": None, "tags": None},
]
BOTH = pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])


def filled(folder: Path, table_type: str = "MERGE_ON_READ", **more: Any) -> mdt.Table:
    given = {"partition_by": ["city"], "ordering": "ts", "options": {"mdt.durable": False}, **more}
    table = mdt.create(folder / "t", SCHEMA, ["id"], table_type=table_type, **given)
    table.upsert(OLD)
    return table


def found(table: mdt.Table, folder: Path) -> dict[str, Any]:
    """Return the rows by id; asserts that hudi-rs and check agree."""
    rows = table.scan().to_arrow()
    assert bag(rows) == bag(hudi_table(folder / "t", SCHEMA)) and table.check().ok
    return {row["id"]: row for row in rows.to_pylist()}


@BOTH
def test_columns_that_the_data_lack_keep_their_values(tmp_path: Path, table_type: str) -> None:
    table = filled(tmp_path, table_type)
    data = [{"id": "a", "city": "x", "ts": 6, "n": 2}, {"id": "c", "city": "x", "ts": 6, "n": None}]
    done = table.upsert(data, partial=True)
    assert (done.updated, done.inserted, done.late) == (1, 1, 0)
    rows = found(table, tmp_path)
    assert rows["a"] == {**OLD[0], "ts": 6, "n": 2} and rows["b"] == OLD[1]
    assert rows["c"] == {"id": "c", "city": "x", "ts": 6, "n": None, "note": None, "tags": None}
    null = table.upsert(
        {"id": ["a"], "city": ["x"], "note": pa.array([None], pa.string())}, partial=True
    )
    assert null.updated == 1 and table.get({"id": "a", "city": "x"})["note"] is None, (
        "null that is given is a value"
    )
    assert table.upsert([{"id": "a", "city": "x", "ts": 1, "n": 9}], partial=True).late == 1
    assert found(table, tmp_path)["a"]["n"] == 2


@BOTH
def test_columns_are_merged_by_name_or_by_a_function(tmp_path: Path, table_type: str) -> None:
    table = filled(tmp_path, table_type)
    data = [
        {"id": "a", "city": "x", "ts": 6, "n": 2, "note": None, "tags": ["z"]},
        {"id": "b", "city": "y", "ts": 6, "n": 3, "note": "new", "tags": []},
        {"id": "c", "city": "x", "ts": 6, "n": 4, "note": None, "tags": None},
        {"id": "c", "city": "x", "ts": 7, "n": 5, "note": None, "tags": None},
        {"id": "c", "city": "x", "ts": 5, "n": 6, "note": "c", "tags": None},
    ]
    done = table.upsert(
        data, mergers={"n": "sum", "note": "coalesce", "tags": lambda older, newer: older}
    )
    assert (done.updated, done.inserted, done.late) == (2, 1, 0)
    rows = found(table, tmp_path)
    assert rows["a"] == {"id": "a", "city": "x", "ts": 6, "n": 3, "note": "old", "tags": ["p", "q"]}
    assert rows["b"] == {"id": "b", "city": "y", "ts": 6, "n": 3, "note": "new", "tags": None}
    assert rows["c"] == {"id": "c", "city": "x", "ts": 7, "n": 15, "note": "c", "tags": None}, (
        "rows of one key, too"
    )


def test_a_late_row_is_merged_as_the_older_one(tmp_path: Path) -> None:
    table = filled(tmp_path)
    late = [{"id": "a", "city": "x", "ts": 1, "n": 7, "note": "late", "tags": None}]
    assert table.upsert(late, mergers={"n": "sum", "note": "coalesce"}).late == 0
    assert found(table, tmp_path)["a"] == {**OLD[0], "n": 8}


def test_many_rows_of_one_key_are_merged_as_if_they_came_one_by_one(tmp_path: Path) -> None:
    table = filled(tmp_path, partition_by=[], ordering=None)
    n = 1_001
    data = {
        "id": [f"k{i % 7}" for i in range(n)],
        "ts": list(range(n)),
        "n": [i % 2 for i in range(n)],
        "note": [f"{i:04}" for i in range(n)],
    }
    mergers = {
        "n": "sum",
        "note": lambda older, newer: pc.binary_join_element_wise(older, newer, ""),
    }
    assert table.upsert(data, partial=True, mergers=mergers).inserted == 7
    rows = found(table, tmp_path)
    for key in range(7):
        mine = range(key, n, 7)
        expected = {
            "ts": mine[-1],
            "n": sum(i % 2 for i in mine),
            "note": "".join(f"{i:04}" for i in mine),
        }
        assert {name: rows[f"k{key}"][name] for name in expected} == expected


def test_under_table_scope_the_key_is_enough(tmp_path: Path) -> None:
    table = filled(tmp_path, scope="table")
    assert table.upsert([{"id": "b", "note": "here"}], partial=True).updated == 1
    assert found(table, tmp_path)["b"] == {**OLD[1], "note": "here"}
    moved = table.upsert([{"id": "b", "city": "x"}], partial=True)
    assert moved.updated == 1 and found(table, tmp_path)["b"] == {
        **OLD[1],
        "note": "here",
        "city": "x",
    }


@pytest.mark.parametrize(
    ("data", "asked", "why"),
    [
        ({"id": ["a"], "n": [1]}, {"partial": True}, "the data lack city"),
        ({"city": ["a"], "n": [1]}, {"partial": True}, "the data lack id"),
        (
            {"id": ["a"], "city": ["x"], "m": [1]},
            {"partial": True},
            "column 'm' is not in the table",
        ),
        (
            {"id": ["a"], "city": ["x"], "n": [1]},
            {"mergers": {"n": "sum"}},
            "column 'ts' is missing",
        ),
        ({"id": ["new"], "city": ["x"], "n": [1]}, {"partial": True}, "ordering field is null"),
        (
            {"id": ["a"], "city": ["x"]},
            {"partial": True, "mergers": {"ts": "max"}},
            "'ts' cannot be merged",
        ),
        (
            {"id": ["a"], "city": ["x"]},
            {"partial": True, "mergers": {"m": "max"}},
            "'m' cannot be merged",
        ),
        (
            {"id": ["a"], "city": ["x"], "n": [1]},
            {"partial": True, "mergers": {"n": "mean"}},
            "no merger 'mean'",
        ),
        (
            {"id": ["a"], "city": ["x"], "note": ["n"]},
            {"partial": True, "mergers": {"note": "sum"}},
            "cannot be merged",
        ),
        ({"id": ["a"], "city": ["x"], "n": [255]}, {"partial": True, "mergers": {"n": "sum"}}, "n"),
        (
            {"id": ["a"], "city": ["x"], "n": [1]},
            {"partial": True, "mergers": {"n": lambda o, n: 1 / 0}},
            "division by zero",
        ),
        (
            {"id": ["a"], "city": ["x"], "n": [1]},
            {"partial": True, "mergers": {"n": lambda o, n: n[:0]}},
            "made 0 values of 1",
        ),
        (
            {"id": ["a"], "city": ["x"], "n": [1]},
            {"partial": True, "mergers": {"n": lambda o, n: None}},
            "made a NoneType",
        ),
        ({"id": ["a"], "city": ["x"]}, {"partial": True, "evolve": True}, "partial keeps them"),
    ],
)
def test_what_cannot_be_blended_is_said_and_nothing_is_left(
    tmp_path: Path, data: Any, asked: Any, why: str
) -> None:
    table = filled(tmp_path)
    files = sorted((tmp_path / "t").rglob("*"))
    with pytest.raises(Invalid, match=why):
        table.upsert(data, **asked)
    assert files == sorted((tmp_path / "t").rglob("*"))


def test_a_required_column_is_missing_for_new_rows_only(tmp_path: Path) -> None:
    schema = pa.schema(
        [("id", pa.string()), pa.field("n", pa.int32(), nullable=False), ("note", pa.string())]
    )
    table = mdt.create(tmp_path / "t", schema, ["id"], options={"mdt.durable": False})
    table.upsert([{"id": "a", "n": 1, "note": None}])
    assert table.upsert([{"id": "a", "note": "x"}], partial=True).updated == 1
    with pytest.raises(Invalid, match="column 'n' is required, but null in 1 rows"):
        table.upsert([{"id": "b", "note": "x"}], partial=True)


@pytest.mark.parametrize(
    ("name", "older", "newer", "expected"),
    [
        ("sum", [1, None, None, 3], [2, 2, None, None], [3, 2, None, 3]),
        ("sum", [None, -0.0, 0.5], [-0.0, None, None], [-0.0, -0.0, 0.5]),
        (
            "sum",
            [Decimal("1.50"), None],
            [Decimal("2.25"), Decimal("1.00")],
            [Decimal("3.75"), Decimal("1.00")],
        ),
        (
            "max",
            [1.0, None, float("nan"), 2.0],
            [2.0, 5.0, 1.0, 1.0],
            [2.0, 5.0, float("nan"), 2.0],
        ),
        ("min", [1.0, None, float("nan"), 2.0], [2.0, 5.0, 1.0, None], [1.0, 5.0, 1.0, 2.0]),
        ("coalesce", [["a"], None, ["c"]], [None, ["b"], ["d"]], [["a"], ["b"], ["d"]]),
    ],
)
def test_mergers_take_null_for_nothing(
    name: str, older: list[Any], newer: list[Any], expected: list[Any]
) -> None:
    made = MERGERS[name](pa.array(older), pa.array(newer))
    assert repr(made.to_pylist()) == repr(expected)


def test_of_two_that_add_to_one_row_neither_is_lost(tmp_path: Path) -> None:
    table = filled(tmp_path)
    data = pa.Table.from_pylist(
        [{"id": "a", "city": "x", "n": 10}],
        schema=pa.schema([SCHEMA.field(n) for n in ("id", "city", "n")]),
    )
    operation = write_here(
        table.metadata,
        table.options,
        data,
        "upsert",
        table.definition,
        kept=Kept(True, {"n": "sum"}),
    )
    driver = steps(table.metadata, operation)
    while next(driver) != "written":
        pass
    mdt.open(table.storage).upsert(data, partial=True, mergers={"n": "sum"})
    for _ in driver:
        pass
    assert found(table, tmp_path)["a"] == {**OLD[0], "n": 21}
    table.alter(rename={"note": "remark"}, beyond_hudi=True)
    with pytest.raises(Conflict, match="altered"):
        list(steps(table.metadata, operation))


def test_only_the_columns_that_stay_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mdt.write import blending

    asked: list[list[str]] = []
    real = blending.rows_at
    seen = lambda metadata, snapshot, where, names, **more: (
        asked.append(list(names)) or real(metadata, snapshot, where, names, **more)
    )
    monkeypatch.setattr(blending, "rows_at", seen)
    table = filled(tmp_path)
    table.upsert([{"id": "a", "city": "x", "ts": 6, "n": 2, "note": "n"}], partial=True)
    table.upsert([{**OLD[0], "ts": 7}], mergers={"n": "max"})
    assert asked == [["tags"], ["n"]]


def test_where_keys_repeat_there_is_no_one_older_row(tmp_path: Path) -> None:
    table = filled(tmp_path, options={"mdt.durable": False, "mdt.keys.repeat": True})
    with pytest.raises(Unsupported, match="more than once"):
        table.upsert([{"id": "a", "city": "x", "n": 1}], partial=True)
