"""Upserts of parts of rows, and columns that are merged: what was there stays, for every reader."""

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pooled import EVERY_KIND
from reader import agreed
from texts import columns
from worlds import meanwhile

import mdt
from mdt.errors import Conflict, Invalid, Unsupported
from mdt.stores.storage import LocalStorage, MemoryStorage
from mdt.write.blending import MERGERS
from mdt.write.operations import RowOperation

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


def filled(folder, kind=mdt.Table, **more):
    given = {"partition_by": ["city"], "ordering": "ts", **more}
    table = mdt.create(LocalStorage(folder, durable=False), SCHEMA, ["id"], **given)
    table.upsert(OLD)
    return kind(table.storage)


def by_id(table):
    return {row["id"]: row for row in agreed(table).to_pylist()}


@EVERY_KIND
def test_columns_that_the_data_lack_keep_their_values(tmp_path, kind):
    table = filled(tmp_path, kind)
    data = [{"id": "a", "city": "x", "ts": 6, "n": 2}, {"id": "c", "city": "x", "ts": 6, "n": None}]
    done = table.upsert(data, partial=True)
    assert (done.updated, done.inserted, done.late) == (1, 1, 0)
    rows = by_id(table)
    assert rows["a"] == {**OLD[0], "ts": 6, "n": 2} and rows["b"] == OLD[1]
    assert rows["c"] == {"id": "c", "city": "x", "ts": 6, "n": None, "note": None, "tags": None}
    null = {"id": ["a"], "city": ["x"], "note": pa.array([None], pa.string())}
    assert table.upsert(null, partial=True).updated == 1
    assert table.get({"id": "a", "city": "x"})["note"] is None, "null that is given is a value"
    assert table.upsert([{"id": "a", "city": "x", "ts": 1, "n": 9}], partial=True).late == 1
    assert by_id(table)["a"]["n"] == 2


@EVERY_KIND
def test_columns_are_merged_by_name_or_by_a_function(tmp_path, kind):
    table = filled(tmp_path, kind)
    new = {"id": "c", "city": "x", "tags": None}
    data = [
        {"id": "a", "city": "x", "ts": 1, "n": 2, "note": None, "tags": ["z"]},
        {"id": "b", "city": "y", "ts": 6, "n": 3, "note": "new", "tags": []},
        {**new, "ts": 6, "n": 4, "note": None},
        {**new, "ts": 7, "n": 5, "note": None},
        {**new, "ts": 5, "n": 6, "note": "c"},
    ]
    mergers = {"n": "sum", "note": "coalesce", "tags": lambda older, newer: older}
    done = table.upsert(data, mergers=mergers)
    assert (done.updated, done.inserted, done.late) == (2, 1, 0)
    rows = by_id(table)
    assert rows["a"] == {**OLD[0], "n": 3, "tags": ["z"]}, "a late row is the older one"
    assert rows["b"] == {"id": "b", "city": "y", "ts": 6, "n": 3, "note": "new", "tags": None}
    assert rows["c"] == {**new, "ts": 7, "n": 15, "note": "c"}, "rows of one key, too"


def test_many_rows_of_one_key_are_merged_as_if_they_came_one_by_one(tmp_path):
    table = filled(tmp_path, partition_by=[], ordering=None)
    numbers = range(1_001)
    data = {
        "id": [f"k{i % 7}" for i in numbers],
        "ts": list(numbers),
        "n": [i % 2 for i in numbers],
        "note": [f"{i:04}" for i in numbers],
    }
    joined = lambda older, newer: pc.binary_join_element_wise(older, newer, "")
    assert table.upsert(data, partial=True, mergers={"n": "sum", "note": joined}).inserted == 7
    rows = by_id(table)
    for key in range(7):
        mine, row = numbers[key::7], rows[f"k{key}"]
        assert (row["ts"], row["n"]) == (mine[-1], sum(i % 2 for i in mine))
        assert row["note"] == "".join(f"{i:04}" for i in mine)


KEY = {"id": ["a"], "city": ["x"]}


@pytest.mark.parametrize(
    "data, mergers, why",
    [
        ({"id": ["a"], "n": [1]}, None, "the data lack city"),
        ({"city": ["a"], "n": [1]}, None, "the data lack id"),
        ({**KEY, "m": [1]}, None, "column 'm' is not in the table"),
        ({**KEY, "id": ["new"], "n": [1]}, None, "ordering field is null"),
        (KEY, {"ts": "max"}, "'ts' cannot be merged"),
        (KEY, {"m": "max"}, "there is no column 'm'"),
        ({**KEY, "n": [1]}, {"n": "mean"}, "unknown merger 'mean'"),
        ({**KEY, "note": ["n"]}, {"note": "sum"}, "cannot be merged"),
        ({**KEY, "n": [255]}, {"n": "sum"}, "n"),
        ({**KEY, "n": [1]}, {"n": lambda o, n: 1 / 0}, "division by zero"),
        ({**KEY, "n": [1]}, {"n": lambda o, n: n[:0]}, "returned 0 values for 1"),
        ({**KEY, "n": [1]}, {"n": lambda o, n: None}, "returned a NoneType"),
        (KEY, {"nope": "max"}, "(?s)no column 'nope'.*did you mean note"),
    ],
)
def test_what_cannot_be_blended_is_said_and_nothing_is_left(tmp_path, data, mergers, why):
    table = filled(tmp_path)
    files = sorted(tmp_path.rglob("*"))
    with pytest.raises(Invalid, match=why):
        table.upsert(data, partial=True, mergers=mergers)
    assert files == sorted(tmp_path.rglob("*"))


def test_whole_rows_are_asked_for_unless_partial_is_said_which_evolves_nothing(
    tmp_path,
):
    table = filled(tmp_path)
    with pytest.raises(Invalid, match="column 'ts' is missing"):
        table.upsert({**KEY, "n": [1]}, mergers={"n": "sum"})
    with pytest.raises(Invalid, match="cannot be combined"):
        table.upsert(KEY, partial=True, evolve=True)


def test_a_required_column_is_missing_for_new_rows_only():
    schema = columns("id string, n int32 not null, note string")
    table = mdt.create(MemoryStorage(), schema, ["id"])
    table.upsert([{"id": "a", "n": 1, "note": None}])
    assert table.upsert([{"id": "a", "note": "x"}], partial=True).updated == 1
    with pytest.raises(Invalid, match="column 'n' is required, but null in 1 rows"):
        table.upsert([{"id": "b", "note": "x"}], partial=True)


HALF, ONE, MORE, SUM = (Decimal(text) for text in ("1.50", "1.00", "2.25", "3.75"))


NAN = float("nan")


@pytest.mark.parametrize(
    "name, older, newer, expected",
    [
        ("sum", [1, None, None, 3], [2, 2, None, None], [3, 2, None, 3]),
        ("sum", [None, -0.0, 0.5], [-0.0, None, None], [-0.0, -0.0, 0.5]),
        ("sum", [HALF, None], [MORE, ONE], [SUM, ONE]),
        ("max", [1.0, None, NAN, 2.0], [2.0, 5.0, 1.0, 1.0], [2.0, 5.0, NAN, 2.0]),
        ("min", [1.0, None, NAN, 2.0], [2.0, 5.0, 1.0, None], [1.0, 5.0, 1.0, 2.0]),
        ("coalesce", [["a"], None, ["c"]], [None, ["b"], ["d"]], [["a"], ["b"], ["d"]]),
    ],
)
def test_mergers_take_null_for_nothing(name, older, newer, expected):
    made = MERGERS[name](pa.array(older), pa.array(newer))
    assert repr(made.to_pylist()) == repr(expected)


def add(table):
    return table.upsert({**KEY, "n": [10]}, partial=True, mergers={"n": "sum"})


@EVERY_KIND
def test_of_two_that_add_to_one_row_neither_is_lost(tmp_path, kind):
    table = filled(tmp_path, kind)
    other = mdt.open(table.storage)
    with meanwhile(RowOperation, lambda: add(other)):
        assert add(table).attempts == 2
    assert by_id(table)["a"] == {**OLD[0], "n": 21}


def test_columns_that_are_altered_meanwhile_are_not_merged(tmp_path):
    table = filled(tmp_path)
    other = mdt.open(table.storage)
    with (
        pytest.raises(Conflict, match="altered"),
        meanwhile(RowOperation, lambda: other.alter(rename={"note": "remark"}, beyond_hudi=True)),
    ):
        add(table)


def test_only_the_columns_that_stay_are_read(tmp_path, monkeypatch):
    from mdt.write import blending

    asked = []
    real = blending.rows_at
    seen = lambda metadata, snapshot, where, names, **more: (
        asked.append(list(names)) or real(metadata, snapshot, where, names, **more)
    )
    monkeypatch.setattr(blending, "rows_at", seen)
    table = filled(tmp_path)
    table.upsert([{"id": "a", "city": "x", "ts": 6, "n": 2, "note": "n"}], partial=True)
    table.upsert([{**OLD[0], "ts": 7}], mergers={"n": "max"})
    assert asked == [["tags"], ["n"]]


def test_where_keys_repeat_there_is_no_one_older_row(tmp_path):
    table = filled(tmp_path, options={"mdt.keys.repeat": True})
    with pytest.raises(Unsupported, match="need unique keys"):
        table.upsert([{"id": "a", "city": "x", "n": 1}], partial=True)
