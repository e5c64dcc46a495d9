"""Partial upserts and merged columns: existing values are kept, for every reader."""

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


def filled_table(folder, kind=mdt.Table, **more):
    settings = {"partition_by": ["city"], "ordering": "ts", **more}
    table = mdt.create(LocalStorage(folder, durable=False), SCHEMA, ["id"], **settings)
    table.upsert(OLD)
    return kind(table.storage)


def rows_by_id(table):
    return {row["id"]: row for row in agreed(table).to_pylist()}


@EVERY_KIND
def test_a_partial_upsert_keeps_the_values_of_columns_that_the_data_lack(tmp_path, kind):
    table = filled_table(tmp_path, kind)
    data = [{"id": "a", "city": "x", "ts": 6, "n": 2}, {"id": "c", "city": "x", "ts": 6, "n": None}]
    result = table.upsert(data, partial=True)
    assert (result.updated, result.inserted, result.late) == (1, 1, 0)
    rows = rows_by_id(table)
    assert rows["a"] == {**OLD[0], "ts": 6, "n": 2} and rows["b"] == OLD[1]
    assert rows["c"] == {"id": "c", "city": "x", "ts": 6, "n": None, "note": None, "tags": None}
    null = {"id": ["a"], "city": ["x"], "note": pa.array([None], pa.string())}
    assert table.upsert(null, partial=True).updated == 1
    assert table.get({"id": "a", "city": "x"})["note"] is None, "an explicit null is a value"
    assert table.upsert([{"id": "a", "city": "x", "ts": 1, "n": 9}], partial=True).late == 1
    assert rows_by_id(table)["a"]["n"] == 2


@EVERY_KIND
def test_columns_are_merged_by_a_named_merger_or_by_a_function(tmp_path, kind):
    table = filled_table(tmp_path, kind)
    new = {"id": "c", "city": "x", "tags": None}
    data = [
        {"id": "a", "city": "x", "ts": 1, "n": 2, "note": None, "tags": ["z"]},
        {"id": "b", "city": "y", "ts": 6, "n": 3, "note": "new", "tags": []},
        {**new, "ts": 6, "n": 4, "note": None},
        {**new, "ts": 7, "n": 5, "note": None},
        {**new, "ts": 5, "n": 6, "note": "c"},
    ]
    mergers = {"n": "sum", "note": "coalesce", "tags": lambda older, newer: older}
    result = table.upsert(data, mergers=mergers)
    assert (result.updated, result.inserted, result.late) == (2, 1, 0)
    rows = rows_by_id(table)
    assert rows["a"] == {**OLD[0], "n": 3, "tags": ["z"]}, "a late row is merged as the older row"
    assert rows["b"] == {"id": "b", "city": "y", "ts": 6, "n": 3, "note": "new", "tags": None}
    assert rows["c"] == {**new, "ts": 7, "n": 15, "note": "c"}, (
        "rows of one key in a batch are merged, too"
    )


def test_many_rows_of_one_key_in_a_batch_are_merged_in_order(tmp_path):
    table = filled_table(tmp_path, partition_by=[], ordering=None)
    numbers = range(1_001)
    data = {
        "id": [f"k{i % 7}" for i in numbers],
        "ts": list(numbers),
        "n": [i % 2 for i in numbers],
        "note": [f"{i:04}" for i in numbers],
    }
    concatenated = lambda older, newer: pc.binary_join_element_wise(older, newer, "")
    assert (
        table.upsert(data, partial=True, mergers={"n": "sum", "note": concatenated}).inserted == 7
    )
    rows = rows_by_id(table)
    for key in range(7):
        numbers_of_key, row = numbers[key::7], rows[f"k{key}"]
        assert (row["ts"], row["n"]) == (numbers_of_key[-1], sum(i % 2 for i in numbers_of_key))
        assert row["note"] == "".join(f"{i:04}" for i in numbers_of_key)


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
def test_an_upsert_that_cannot_be_merged_raises_and_leaves_no_files(tmp_path, data, mergers, why):
    table = filled_table(tmp_path)
    files = sorted(tmp_path.rglob("*"))
    with pytest.raises(Invalid, match=why):
        table.upsert(data, partial=True, mergers=mergers)
    assert files == sorted(tmp_path.rglob("*"))


def test_mergers_need_whole_rows_unless_partial_which_excludes_evolve(
    tmp_path,
):
    table = filled_table(tmp_path)
    with pytest.raises(Invalid, match="column 'ts' is missing"):
        table.upsert({**KEY, "n": [1]}, mergers={"n": "sum"})
    with pytest.raises(Invalid, match="cannot be combined"):
        table.upsert(KEY, partial=True, evolve=True)


def test_a_partial_upsert_needs_required_columns_only_for_new_rows():
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
def test_mergers_ignore_null_values(name, older, newer, expected):
    merged = MERGERS[name](pa.array(older), pa.array(newer))
    assert repr(merged.to_pylist()) == repr(expected)


def add(table):
    return table.upsert({**KEY, "n": [10]}, partial=True, mergers={"n": "sum"})


@EVERY_KIND
def test_two_concurrent_sums_into_one_row_are_both_applied(tmp_path, kind):
    table = filled_table(tmp_path, kind)
    other = mdt.open(table.storage)
    with meanwhile(RowOperation, lambda: add(other)):
        assert add(table).attempts == 2
    assert rows_by_id(table)["a"] == {**OLD[0], "n": 21}


def test_a_merge_of_columns_altered_by_another_writer_meanwhile_raises(tmp_path):
    table = filled_table(tmp_path)
    other = mdt.open(table.storage)
    with (
        pytest.raises(Conflict, match="altered"),
        meanwhile(RowOperation, lambda: other.alter(rename={"note": "remark"}, beyond_hudi=True)),
    ):
        add(table)


def test_only_existing_values_that_the_result_needs_are_read(tmp_path, monkeypatch):
    from mdt.write import blending

    columns_read = []
    real = blending.rows_at
    recording = lambda metadata, snapshot, where, names, **more: (
        columns_read.append(list(names)) or real(metadata, snapshot, where, names, **more)
    )
    monkeypatch.setattr(blending, "rows_at", recording)
    table = filled_table(tmp_path)
    table.upsert([{"id": "a", "city": "x", "ts": 6, "n": 2, "note": "n"}], partial=True)
    table.upsert([{**OLD[0], "ts": 7}], mergers={"n": "max"})
    assert columns_read == [["tags"], ["n"]]


def test_partial_upserts_need_unique_keys(tmp_path):
    table = filled_table(tmp_path, options={"mdt.keys.repeat": True})
    with pytest.raises(Unsupported, match="need unique keys"):
        table.upsert([{"id": "a", "city": "x", "n": 1}], partial=True)
