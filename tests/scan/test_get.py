"""Rows by record key: the same as a full scan would find, in the order of the keys, whatever form
the keys have.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import trees

import mdt
from mdt import Invalid
from mdt.metadata.files import paths

SCHEMA = pa.schema(
    [("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("fare", pa.float64())]
)
BOTH = pytest.mark.parametrize("table_type", trees.TABLE_TYPES)
KEY_INDEXES = pytest.mark.parametrize("key_index", ["bloom", "record"])


def rows(numbers: Any, ts: int) -> pa.Table:
    ids = [f"k{i:05}" for i in numbers]
    cities = [("x", "y")[i % 2] for i in numbers]
    return pa.table([ids, cities, [ts] * len(ids), [i + ts / 10 for i in numbers]], schema=SCHEMA)


def life(path: Path, table_type: str, key_index: str, **settings: Any) -> mdt.Table:
    """Return a table with base files, updated, deleted and returned keys."""
    table = trees.create(
        path, SCHEMA, ordering="ts", table_type=table_type, key_index=key_index, **settings
    )
    table.bulk_insert(rows(range(3000), 1))
    for ts in (2, 3):
        table.upsert(rows(range(ts, 3000, 7), ts))
    table.delete(rows(range(0, 3000, 10), 1).select(["id", "city"]))
    table.upsert(rows(range(0, 3000, 100), 4))
    return table


def test_a_column_may_be_named_twice(tmp_path: Path) -> None:
    table = trees.create(tmp_path / "t", SCHEMA)
    table.insert(rows(range(3), 1))
    found = table.get(["k00001", "nobody"], columns=["ts", "id", "ts"])
    assert (
        found.schema.names == ["ts", "id", "ts"]
        and found.columns[0].to_pylist() == [1, None] == found.columns[2].to_pylist()
    )
    assert table.get("k00002", columns=["id", "id"]) == {"id": "k00002"}


@BOTH
@KEY_INDEXES
@pytest.mark.parametrize("partition_by", [[], ["city"]])
def test_get_returns_what_a_scan_finds_in_the_order_of_the_keys(
    table_type: str, key_index: str, partition_by: list[str], tmp_path: Path
) -> None:
    table = life(tmp_path / "t", table_type, key_index, partition_by=partition_by)
    truth = {row["id"]: row for row in table.scan().to_arrow().to_pylist()}
    assert len(truth) == 3000 - 300 + 30
    rng = np.random.default_rng(1)
    asked = [f"k{i:05}" for i in rng.integers(0, 3300, 500)]
    nothing = dict.fromkeys(SCHEMA.names)
    assert table.get(asked).to_pylist() == [truth.get(key, nothing) for key in asked]
    assert table.get(asked, missing="skip").to_pylist() == [
        truth[key] for key in asked if key in truth
    ]
    for key in asked[:20]:
        assert table.get(key) == truth.get(key)
    table.compact()
    assert table.get(asked).to_pylist() == [truth.get(key, nothing) for key in asked]


def test_keys_may_have_any_form_that_arrow_or_python_has(tmp_path: Path) -> None:
    table = life(tmp_path / "t", "MERGE_ON_READ", "record", partition_by=["city"])
    asked = ["k00007", "k02999", "k00001"]
    expected = table.get(asked)
    assert expected["id"].to_pylist() == asked
    forms: list[Any] = [
        tuple(asked),
        np.array(asked),
        pa.array(asked),
        pa.chunked_array([asked[:1], asked[1:]]),
        pa.array(asked, pa.large_string()),
        pa.array(asked).dictionary_encode(),
        {"id": asked},
        pa.table({"id": asked, "other": [1, 2, 3]}),
        [{"id": key} for key in asked],
        pa.table({"id": asked, "city": ["y", "y", "y"]}),
        pa.record_batch({"id": asked}),
    ]
    for form in forms:
        assert table.get(form).equals(expected), form
    assert table.get({"id": "k00007", "city": "y"}) == expected.to_pylist()[0]
    assert table.get({"id": "k00007", "city": "x"}) is None
    assert table.get(set(asked)).num_rows == 3
    assert table.get([]).num_rows == 0
    assert table.get(["k00007", "k00007"])["id"].to_pylist() == ["k00007", "k00007"]


def test_columns_are_chosen_and_meta_columns_may_be_named(tmp_path: Path) -> None:
    table = life(tmp_path / "t", "MERGE_ON_READ", "record")
    assert table.get("k00007", columns=["fare"]) == {"fare": 7.1}
    found = table.get(["k00008", "k00007"], columns=["_hoodie_record_key", "fare"])
    assert found.to_pydict() == {"_hoodie_record_key": ["k00008", "k00007"], "fare": [8.1, 7.1]}
    for wrong, hint in (
        ("fair", "did you mean fare"),
        ("FAIR", "did you mean fare"),
        ("x", "columns: .*, id, "),
    ):
        with pytest.raises(Invalid, match=f"there is no column '{wrong}'\n  hint: {hint}"):
            table.get("k00007", columns=[wrong])


def test_a_missing_key_is_said_clearly(tmp_path: Path) -> None:
    table = life(tmp_path / "t", "COPY_ON_WRITE", "bloom")
    assert table.get("nobody") is None
    assert table.get(["nobody", "k00007"]).to_pylist()[0] == dict.fromkeys(SCHEMA.names)
    assert table.get(["nobody", "k00007"], missing="skip")["id"].to_pylist() == ["k00007"]
    with pytest.raises(Invalid, match="2 keys are not in the table: 'nobody', 'k00010'"):
        table.get(["nobody", "k00007", "k00010"], missing="error")
    with pytest.raises(Invalid, match="nobody"):
        table.get("nobody", missing="error")
    with pytest.raises(Invalid, match="missing='fine' is not possible"):
        table.get("nobody", missing="fine")


def test_a_key_of_several_partitions_needs_its_partition(tmp_path: Path) -> None:
    table = trees.create(tmp_path / "t", SCHEMA, ordering="ts", partition_by=["city"])
    both = pa.table([["a", "a", "b"], ["x", "y", "x"], [1, 1, 1], [1.0, 2.0, 3.0]], schema=SCHEMA)
    table.upsert(both)
    with pytest.raises(Invalid, match="1 keys live in several partitions: 'a'"):
        table.get(["b", "a"])
    with pytest.raises(Invalid, match="the key 1 names no partition, others do"):
        table.get([{"id": "a", "city": "y"}, {"id": "b"}])
    assert table.get({"id": "a", "city": "y"}) == {"id": "a", "city": "y", "ts": 1, "fare": 2.0}
    found = table.get(pa.table({"id": ["a", "b", "a", "b"], "city": ["y", "x", "x", "y"]}))
    assert found["fare"].to_pylist() == [2.0, 3.0, 1.0, None]


def test_keys_of_several_columns_and_of_other_types(tmp_path: Path) -> None:
    schema = pa.schema([("day", pa.date32()), ("n", pa.int64()), ("v", pa.string())])
    table = mdt.create(tmp_path / "t", schema, key=["day", "n"])
    days = [date(2026, 1, 1 + i % 9) for i in range(90)]
    data = pa.table([days, list(range(90)), [f"v{i}" for i in range(90)]], schema=schema)
    table.upsert(data)
    assert table.get((date(2026, 1, 3), 2)) == {"day": date(2026, 1, 3), "n": 2, "v": "v2"}
    assert table.get((date(2026, 1, 3), 3)) is None
    assert table.get([(days[5], 5), (days[80], 80)])["v"].to_pylist() == ["v5", "v80"]
    assert table.get(data.slice(10, 30)).equals(data.slice(10, 30).combine_chunks())
    assert table.get({"day": days[5], "n": 5}) == {"day": days[5], "n": 5, "v": "v5"}
    for wrong in (5, [5], (days[5],), [(days[5], 5, 5)], {"day": days[5]}, pa.array([5]), "x"):
        with pytest.raises(Invalid, match="key"):
            table.get(wrong)


def test_nested_columns_are_read_with_the_row_groups_that_hold_them(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("tags", pa.list_(pa.string())),
            ("at", pa.struct([("x", pa.float64())])),
        ]
    )
    table = mdt.create(tmp_path / "t", schema, key=["id"], options={"mdt.row.group.rows": 1000})
    n = 5000
    data = pa.table(
        [list(range(n)), [[f"t{i}"] for i in range(n)], [{"x": i / 2} for i in range(n)]],
        schema=schema,
    )
    table.bulk_insert(data)
    asked = [4999, 7, 2500, 9999, 7]
    found = table.get(asked).to_pylist()
    assert [row["tags"] for row in found] == [["t4999"], ["t7"], ["t2500"], None, ["t7"]]
    assert [row["at"] for row in found] == [
        {"x": 2499.5},
        {"x": 3.5},
        {"x": 1250.0},
        None,
        {"x": 3.5},
    ]


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
    ],
)
def test_what_is_no_key_is_refused(wrong: Any, tmp_path: Path) -> None:
    table = life(tmp_path / "t", "MERGE_ON_READ", "record")
    with pytest.raises(Invalid):
        table.get(wrong)


def test_keys_are_found_without_page_maps(tmp_path: Path) -> None:
    table = life(tmp_path / "t", "MERGE_ON_READ", "record")
    expected = table.get(["k00007", "k02999"])
    files = table.snapshot().files
    for path, offset in set(
        zip(
            files.column("key_map_path").to_pylist(),
            files.column("page_map_offset").to_pylist(),
            strict=True,
        )
    ):
        if offset is not None:
            whole = bytearray((tmp_path / "t" / path).read_bytes())
            whole[offset] ^= 1
            (tmp_path / "t" / path).write_bytes(whole)
    again = mdt.open(tmp_path / "t")
    assert again.get(["k00007", "k02999"]).equals(expected)
    assert paths.PRIVATE in str(files.column("key_map_path").to_pylist()[0])
    assert pc.sum(expected["fare"]).as_py() == pytest.approx(7.1 + 2999.1, abs=0.5)


def test_a_table_of_keys_with_a_column_twice_is_refused(tmp_path: Path) -> None:
    table = mdt.create(tmp_path / "t", SCHEMA, key=["id"])
    with pytest.raises(Invalid, match="several columns id"):
        table.get(pa.table([pa.array(["a"]), pa.array(["b"])], names=["id", "id"]))
