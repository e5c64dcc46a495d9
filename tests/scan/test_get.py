"""Rows by record key: the rows of a full scan, in the order of the keys, for keys in every
form.
"""

from datetime import date

import numpy as np
import pyarrow as pa
import pytest
import trees
from texts import columns

import mdt
from mdt import Invalid
from mdt.metadata.files import paths
from mdt.stores.storage import MemoryStorage

SCHEMA = columns("id string, city string, ts int64, fare float64")


def rows(numbers, ts):
    ids = [f"k{i:05}" for i in numbers]
    cities = [("x", "y")[i % 2] for i in numbers]
    return pa.table([ids, cities, [ts] * len(ids), [i + ts / 10 for i in numbers]], schema=SCHEMA)


def table_with_history(table_type="MERGE_ON_READ", key_index="record", storage=None, **settings):
    """Return a table with base files and updated, deleted and re-inserted keys."""
    table = mdt.create(
        storage or MemoryStorage(),
        SCHEMA,
        ["id"],
        ordering="ts",
        table_type=table_type,
        key_index=key_index,
        **settings,
    )
    table.bulk_insert(rows(range(3000), 1))
    for ts in (2, 3):
        table.upsert(rows(range(ts, 3000, 7), ts))
    table.delete(rows(range(0, 3000, 10), 1).select(["id", "city"]))
    table.upsert(rows(range(0, 3000, 100), 4))
    return table


@pytest.fixture(scope="module")
def table():
    return table_with_history()


@pytest.fixture(scope="module")
def partitioned():
    return table_with_history(partition_by=["city"])


@pytest.mark.parametrize("table_type", trees.TABLE_TYPES)
@pytest.mark.parametrize("key_index", ["bloom", "record"])
@pytest.mark.parametrize("partition_by", [[], ["city"]])
def test_get_returns_the_rows_of_a_scan_in_the_order_of_the_keys(
    table_type, key_index, partition_by
):
    table = table_with_history(table_type, key_index, partition_by=partition_by)
    row_by_key = {row["id"]: row for row in table.scan().to_arrow().to_pylist()}
    assert len(row_by_key) == 3000 - 300 + 30
    keys = [f"k{i:05}" for i in np.random.default_rng(1).integers(0, 3300, 500)]
    expected = [row_by_key.get(key, dict.fromkeys(SCHEMA.names)) for key in keys]
    assert table.get(keys).to_pylist() == expected
    existing_rows = [row_by_key[key] for key in keys if key in row_by_key]
    assert table.get(keys, missing="skip").to_pylist() == existing_rows
    assert [table.get(key) for key in keys[:20]] == [row_by_key.get(key) for key in keys[:20]]
    table.compact()
    assert table.get(keys).to_pylist() == expected


KEYS = ["k00007", "k02999", "k00001"]


@pytest.mark.parametrize(
    "form",
    [
        tuple(KEYS),
        np.array(KEYS),
        pa.array(KEYS),
        pa.chunked_array([KEYS[:1], KEYS[1:]]),
        pa.array(KEYS, "large_string"),
        pa.array(KEYS).dictionary_encode(),
        {"id": KEYS},
        pa.table({"id": KEYS, "other": [1, 2, 3]}),
        [{"id": key} for key in KEYS],
        pa.table({"id": KEYS, "city": ["y", "y", "y"]}),
        pa.record_batch({"id": KEYS}),
    ],
    ids=range(11),
)
def test_keys_are_accepted_in_every_form_of_arrow_and_python(partitioned, form):
    rows_of_keys = partitioned.get(form)
    assert rows_of_keys["id"].to_pylist() == KEYS and rows_of_keys.equals(partitioned.get(KEYS))


def test_get_accepts_one_key_no_keys_sets_and_repeated_keys(partitioned):
    row = partitioned.get("k00007")
    assert partitioned.get({"id": "k00007", "city": "y"}) == row
    assert partitioned.get({"id": "k00007", "city": "x"}) is None
    assert partitioned.get(set(KEYS)).num_rows == 3 and partitioned.get([]).num_rows == 0
    assert partitioned.get(["k00007", "k00007"]).to_pylist() == [row, row]


@pytest.mark.parametrize(
    ("keys", "columns", "expected"),
    [
        ("k00007", ["fare"], {"fare": 7.1}),
        ("k00007", ["id", "id"], {"id": "k00007"}),
        (
            ["k00008", "k00007"],
            ["_hoodie_record_key", "fare"],
            [["_hoodie_record_key", ["k00008", "k00007"]], ["fare", [8.1, 7.1]]],
        ),
        (
            ["k00008", "nobody"],
            ["ts", "id", "ts"],
            [["ts", [1, None]], ["id", ["k00008", None]], ["ts", [1, None]]],
        ),
    ],
)
def test_get_returns_columns_as_often_as_requested_and_meta_columns(table, keys, columns, expected):
    result = table.get(keys, columns=columns)
    if isinstance(result, pa.Table):
        result = [
            [name, column.to_pylist()]
            for name, column in zip(result.column_names, result.columns, strict=True)
        ]
    assert result == expected


@pytest.mark.parametrize(
    ("column", "hint"),
    [("fair", "did you mean fare"), ("FAIR", "did you mean fare"), ("x", "columns: id, ")],
)
def test_an_unknown_column_is_refused_with_the_existing_ones(table, column, hint):
    with pytest.raises(Invalid, match=f"there is no column '{column}'\n  hint: {hint}"):
        table.get("k00007", columns=[column])


@pytest.mark.parametrize(
    ("keys", "missing", "why"),
    [
        (
            ["nobody", "k00007", "k00010"],
            "error",
            "2 keys are not in the table: 'nobody', 'k00010'",
        ),
        ("nobody", "error", "nobody"),
        ("nobody", "fine", "missing='fine' is not supported"),
    ],
)
def test_a_missing_key_and_an_unknown_value_of_missing_raise_clear_errors(
    table, keys, missing, why
):
    with pytest.raises(Invalid, match=why):
        table.get(keys, missing=missing)


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        5,
        5.5,
        b"k\xff",
        object(),
        [None],
        [5],
        [["k"]],
        [object()],
        np.zeros((2, 2)),
        pa.table({"x": [1]}),
        {"x": "k"},
        {"id": "k", 5: "x"},
        pa.table([["a"], ["b"]], names=["id", "id"]),
    ],
    ids=range(14),
)
def test_invalid_keys_are_refused(table, wrong):
    with pytest.raises(Invalid):
        table.get(wrong)


def test_keys_are_found_without_page_maps():
    storage = MemoryStorage()
    table = table_with_history(storage=storage)
    expected = table.get(KEYS)
    files = table.snapshot().files
    ranges = (files.column(name).to_pylist() for name in ("key_map_path", "page_map_offset"))
    for path, offset in {
        range_of_map for range_of_map in zip(*ranges, strict=True) if range_of_map[1] is not None
    }:
        assert paths.PRIVATE in path
        damaged = bytearray(storage.read(path))
        damaged[offset] ^= 1
        storage.replace(path, bytes(damaged))
    assert mdt.open(storage).get(KEYS).equals(expected)


def test_a_key_in_several_partitions_needs_its_partition():
    table = mdt.create(MemoryStorage(), SCHEMA, ["id"], ordering="ts", partition_by=["city"])
    rows_with_repeated_key = pa.table(
        [["a", "a", "b"], ["x", "y", "x"], [1, 1, 1], [1.0, 2.0, 3.0]], schema=SCHEMA
    )
    table.upsert(rows_with_repeated_key)
    with pytest.raises(Invalid, match="1 keys exist in several partitions: 'a'"):
        table.get(["b", "a"])
    with pytest.raises(Invalid, match="key 1 has no partition, but other keys have one"):
        table.get([{"id": "a", "city": "y"}, {"id": "b"}])
    assert table.get({"id": "a", "city": "y"}) == {"id": "a", "city": "y", "ts": 1, "fare": 2.0}
    read_rows = table.get(pa.table({"id": ["a", "b", "a", "b"], "city": ["y", "x", "x", "y"]}))
    assert read_rows["fare"].to_pylist() == [2.0, 3.0, 1.0, None]


def test_composite_keys_are_accepted_as_tuples_dicts_and_tables():
    days = [date(2026, 1, 1 + i % 9) for i in range(90)]
    data = pa.table({"day": days, "n": range(90), "v": [f"v{i}" for i in range(90)]})
    table = mdt.create(MemoryStorage(), data.schema, key=["day", "n"])
    table.upsert(data)
    row = {"day": days[5], "n": 5, "v": "v5"}
    assert table.get((days[5], 5)) == table.get({"day": days[5], "n": 5}) == row
    assert table.get((days[5], 3)) is None
    assert table.get([(days[5], 5), (days[80], 80)])["v"].to_pylist() == ["v5", "v80"]
    assert table.get(data.slice(10, 30)).equals(data.slice(10, 30).combine_chunks())
    for wrong in (5, [5], (days[5],), [(days[5], 5, 5)], {"day": days[5]}, pa.array([5]), "x"):
        with pytest.raises(Invalid, match="key"):
            table.get(wrong)


def test_get_returns_nested_columns():
    rows = [{"id": i, "tags": [f"t{i}"], "at": {"x": i / 2}} for i in range(5000)]
    data = pa.Table.from_pylist(rows)
    options = {"mdt.row.group.rows": 1000}
    table = mdt.create(MemoryStorage(), data.schema, key=["id"], options=options)
    table.bulk_insert(data)
    missing_row = dict.fromkeys(("id", "tags", "at"))
    keys = [4999, 7, 2500, 9999, 7]
    expected = [missing_row if i == 9999 else rows[i] for i in keys]
    assert table.get(keys).to_pylist() == expected
