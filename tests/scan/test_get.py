"""Rows by record key: the same as a full scan would find, in the order of the keys, whatever form
the keys have.
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


def life(table_type="MERGE_ON_READ", key_index="record", storage=None, **settings):
    """Return a table with base files, updated, deleted and returned keys."""
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
    return life()


@pytest.fixture(scope="module")
def partitioned():
    return life(partition_by=["city"])


@pytest.mark.parametrize("table_type", trees.TABLE_TYPES)
@pytest.mark.parametrize("key_index", ["bloom", "record"])
@pytest.mark.parametrize("partition_by", [[], ["city"]])
def test_get_returns_what_a_scan_finds_in_the_order_of_the_keys(
    table_type, key_index, partition_by
):
    table = life(table_type, key_index, partition_by=partition_by)
    truth = {row["id"]: row for row in table.scan().to_arrow().to_pylist()}
    assert len(truth) == 3000 - 300 + 30
    asked = [f"k{i:05}" for i in np.random.default_rng(1).integers(0, 3300, 500)]
    expected = [truth.get(key, dict.fromkeys(SCHEMA.names)) for key in asked]
    assert table.get(asked).to_pylist() == expected
    known = [truth[key] for key in asked if key in truth]
    assert table.get(asked, missing="skip").to_pylist() == known
    assert [table.get(key) for key in asked[:20]] == [truth.get(key) for key in asked[:20]]
    table.compact()
    assert table.get(asked).to_pylist() == expected


ASKED = ["k00007", "k02999", "k00001"]


@pytest.mark.parametrize(
    "form",
    [
        tuple(ASKED),
        np.array(ASKED),
        pa.array(ASKED),
        pa.chunked_array([ASKED[:1], ASKED[1:]]),
        pa.array(ASKED, "large_string"),
        pa.array(ASKED).dictionary_encode(),
        {"id": ASKED},
        pa.table({"id": ASKED, "other": [1, 2, 3]}),
        [{"id": key} for key in ASKED],
        pa.table({"id": ASKED, "city": ["y", "y", "y"]}),
        pa.record_batch({"id": ASKED}),
    ],
    ids=range(11),
)
def test_keys_may_have_any_form_that_arrow_or_python_has(partitioned, form):
    found = partitioned.get(form)
    assert found["id"].to_pylist() == ASKED and found.equals(partitioned.get(ASKED))


def test_one_key_no_key_and_the_same_key_twice_may_be_asked_for(partitioned):
    row = partitioned.get("k00007")
    assert partitioned.get({"id": "k00007", "city": "y"}) == row
    assert partitioned.get({"id": "k00007", "city": "x"}) is None
    assert partitioned.get(set(ASKED)).num_rows == 3 and partitioned.get([]).num_rows == 0
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
def test_columns_are_chosen_twice_if_asked_for_and_meta_columns_too(table, keys, columns, expected):
    found = table.get(keys, columns=columns)
    if isinstance(found, pa.Table):
        found = [
            [name, column.to_pylist()]
            for name, column in zip(found.column_names, found.columns, strict=True)
        ]
    assert found == expected


@pytest.mark.parametrize(
    ("column", "hint"),
    [("fair", "did you mean fare"), ("FAIR", "did you mean fare"), ("x", "columns: id, ")],
)
def test_a_column_that_does_not_exist_is_refused_with_those_that_do(table, column, hint):
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
def test_a_missing_key_is_said_clearly(table, keys, missing, why):
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
def test_what_is_no_key_is_refused(table, wrong):
    with pytest.raises(Invalid):
        table.get(wrong)


def test_keys_are_found_without_page_maps():
    storage = MemoryStorage()
    table = life(storage=storage)
    expected = table.get(ASKED)
    files = table.snapshot().files
    places = (files.column(name).to_pylist() for name in ("key_map_path", "page_map_offset"))
    for path, offset in {place for place in zip(*places, strict=True) if place[1] is not None}:
        assert paths.PRIVATE in path
        whole = bytearray(storage.read(path))
        whole[offset] ^= 1
        storage.replace(path, bytes(whole))
    assert mdt.open(storage).get(ASKED).equals(expected)


def test_a_key_of_several_partitions_needs_its_partition():
    table = mdt.create(MemoryStorage(), SCHEMA, ["id"], ordering="ts", partition_by=["city"])
    both = pa.table([["a", "a", "b"], ["x", "y", "x"], [1, 1, 1], [1.0, 2.0, 3.0]], schema=SCHEMA)
    table.upsert(both)
    with pytest.raises(Invalid, match="1 keys exist in several partitions: 'a'"):
        table.get(["b", "a"])
    with pytest.raises(Invalid, match="key 1 has no partition, but other keys have one"):
        table.get([{"id": "a", "city": "y"}, {"id": "b"}])
    assert table.get({"id": "a", "city": "y"}) == {"id": "a", "city": "y", "ts": 1, "fare": 2.0}
    found = table.get(pa.table({"id": ["a", "b", "a", "b"], "city": ["y", "x", "x", "y"]}))
    assert found["fare"].to_pylist() == [2.0, 3.0, 1.0, None]


def test_keys_of_several_columns_and_of_other_types():
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


def test_nested_columns_are_read_with_the_row_groups_that_hold_them():
    rows = [{"id": i, "tags": [f"t{i}"], "at": {"x": i / 2}} for i in range(5000)]
    data = pa.Table.from_pylist(rows)
    options = {"mdt.row.group.rows": 1000}
    table = mdt.create(MemoryStorage(), data.schema, key=["id"], options=options)
    table.bulk_insert(data)
    nothing = dict.fromkeys(("id", "tags", "at"))
    asked = [4999, 7, 2500, 9999, 7]
    expected = [nothing if i == 9999 else rows[i] for i in asked]
    assert table.get(asked).to_pylist() == expected
