"""Data comes as callers have it, and is cast where that loses nothing; so do schemas."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mdt
from mdt.errors import Invalid
from mdt.schema.conform import conform
from mdt.schema.input import pieces
from mdt.stores.storage import MemoryStorage

SCHEMA = pa.schema(
    [("id", pa.int64()), ("name", pa.string()), ("x", pa.float64()), ("at", pa.timestamp("us"))]
)
ROWS = [
    {"id": 1, "name": "a", "x": 0.5, "at": datetime(2026, 1, 1)},
    {"id": 2, "name": None, "x": None, "at": None},
    {"id": 3, "name": "ü", "x": 2.0, "at": datetime(1969, 12, 31, 23, 59, 59, 999_999)},
]
TABLE = pa.Table.from_pylist(ROWS, schema=SCHEMA)
COLUMNS = TABLE.to_pydict()


def _pandas() -> Any:
    return TABLE.to_pandas()


def _generator() -> Iterator[pa.RecordBatch]:
    yield from TABLE.to_batches(max_chunksize=1)


FORMS: dict[str, Callable[[], Any]] = {
    "a table": lambda: TABLE,
    "a batch": lambda: TABLE.to_batches()[0],
    "a reader": lambda: pa.RecordBatchReader.from_batches(
        SCHEMA, TABLE.to_batches(max_chunksize=2)
    ),
    "a list of batches": lambda: TABLE.to_batches(max_chunksize=2),
    "a generator of batches": _generator,
    "tables and batches": lambda: (TABLE.slice(0, 1), TABLE.slice(1).to_batches()[0]),
    "a list of dicts": lambda: ROWS,
    "a generator of dicts": lambda: (row for row in ROWS),
    "dicts that lack what is null": lambda: [
        {name: v for name, v in row.items() if v is not None} for row in ROWS
    ],
    "a dict of lists": lambda: COLUMNS,
    "a dict of arrays": lambda: (
        {**COLUMNS, "id": np.array([1, 2, 3]), "name": TABLE["name"], "x": range(3)}
        | {"x": TABLE["x"]}
    ),
    "a dataset": lambda: ds.dataset(TABLE),
    "a scanner": lambda: ds.dataset(TABLE).scanner(),
    "a polars frame": lambda: pl.from_arrow(TABLE),
    "a lazy frame": lambda: pl.LazyFrame(pl.from_arrow(TABLE)).filter(pl.col("id") > 0),
    "a duckdb relation": lambda: duckdb.arrow(TABLE),
    "a pandas frame": _pandas,
    "a pandas frame of numpy's types": lambda: pd.DataFrame(
        {**COLUMNS, "id": np.array([1, 2, 3], np.int32), "x": [0.5, np.nan, 2.0]}
    ),
    "a filtered pandas frame": lambda: pd.concat([_pandas(), _pandas()]).iloc[[3, 1, 2]],
    "a pandas frame with a named index": lambda: _pandas().set_index("id"),
    "a scan": lambda: _table(TABLE).scan(),
}


def _table(data: pa.Table | None = None, schema: pa.Schema = SCHEMA) -> mdt.Table:
    table = mdt.create(MemoryStorage(), schema, ["id"])
    if data is not None:
        table.upsert(data)
    return table


def _rows(table: mdt.Table) -> list[dict[str, Any]]:
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_rows_come_as(form: Callable[[], Any]) -> None:
    table = _table()
    assert table.upsert(form()).inserted == 3
    assert _rows(table) == ROWS
    assert table.delete(form()).deleted == 3


@pytest.mark.parametrize(
    "empty",
    [
        [],
        (),
        iter(()),
        {},
        pa.table({}),
        TABLE.slice(0, 0),
        pd.DataFrame(COLUMNS)[:0],
        pl.from_arrow(TABLE.slice(0, 0)),
    ],
)
def test_no_rows_commit_nothing_or_are_refused_for_their_columns(empty: Any) -> None:
    table = _table()
    if isinstance(empty, dict | pa.Table) and not len(getattr(empty, "column_names", ())):
        with pytest.raises(Invalid, match="'id' is missing"):
            table.upsert(empty)
    else:
        assert table.upsert(empty).inserted == 0
    assert table.snapshot().seq == 0


def test_what_an_iterable_raises_is_the_callers_own() -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from TABLE.to_batches()
        raise KeyError("mine")

    table = _table()
    with pytest.raises(KeyError, match="mine"):
        table.upsert(broken())
    assert table.snapshot().seq == 0


def test_a_reader_that_breaks_off_is_no_fault_of_its_columns() -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from TABLE.to_batches()
        raise RuntimeError("the line is dead")

    table = _table()
    with pytest.raises(
        Invalid, match="data of type RecordBatchReader broke off: .*the line is dead"
    ) as error:
        table.upsert(pa.RecordBatchReader.from_batches(SCHEMA, broken()))
    assert "columns" not in str(error.value) and table.snapshot().seq == 0


CASTS: list[tuple[pa.Array, pa.DataType]] = [
    (pa.array([1, None]), pa.float64()),
    (pa.array([1.0, None]), pa.int64()),
    (pa.array([1.0, -3.0]), pa.int8()),
    (pa.array([1.5, float("nan")]), pa.float32()),
    (pa.array([1.5]), pa.float16()),
    (pa.array([0.1]), pa.decimal128(5, 2)),
    (pa.array([99, None]), pa.decimal128(4, 2)),
    (pa.array([Decimal("1.50")]), pa.decimal128(3, 1)),
    (pa.array([Decimal("7.00")]), pa.int16()),
    (pa.array([Decimal("0.1")]), pa.float64()),
    (pa.array([2**53], pa.uint64()), pa.float64()),
    (pa.array([5], pa.uint64()), pa.int8()),
    (pa.array([1_000_000], pa.timestamp("us")), pa.timestamp("s")),
    (pa.array([1_000], pa.timestamp("ns", "UTC")), pa.timestamp("us", "Asia/Tokyo")),
    (pa.array([date(2026, 1, 1)]), pa.date64()),
    (pa.array([time(1, 2, 3)]), pa.time32("s")),
    (pa.array([timedelta(seconds=1)]), pa.duration("s")),
    (pa.array(["a", None, "a"]).dictionary_encode(), pa.string()),
    (pa.array(["a", None]), pa.dictionary(pa.int8(), pa.large_string())),
    (
        pa.DictionaryArray.from_arrays(
            pa.array([1, None, 0, 2], pa.uint32()), pa.array(["a", "b", None], pa.string_view())
        ),
        pa.string(),
    ),
    (
        pa.DictionaryArray.from_arrays(
            pa.array([0], pa.int8()), pa.array([b"a"], pa.binary_view())
        ),
        pa.binary(),
    ),
    (
        pa.DictionaryArray.from_arrays(pa.array([1, 0], pa.int8()), pa.array([[1], None])),
        pa.list_(pa.int64()),
    ),
    (pa.array([b"ab"]), pa.binary(2)),
    (pa.array(["x"], pa.string_view()), pa.large_string()),
    (pa.array([None, None]), pa.list_(pa.int8())),
    (pa.array([[1.0, None], None, []]), pa.large_list(pa.int16())),
    (pa.array([[1, 2]], pa.list_view(pa.int64())), pa.list_(pa.float64(), 2)),
    (pa.array([{"b": 1, "a": 2.0}]), pa.struct([("a", pa.int8()), ("b", pa.float32())])),
    (
        pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        pa.map_(pa.large_string(), pa.float64()),
    ),
]


@pytest.mark.parametrize(
    ("given_array", "type"), CASTS, ids=lambda value: str(getattr(value, "type", value))
)
def test_a_cast_that_loses_nothing_is_made(given_array: pa.Array, type: pa.DataType) -> None:
    table = _table(schema=pa.schema([("id", pa.int64()), ("v", type)]))
    table.upsert(pa.table({"id": range(len(given_array)), "v": given_array}))
    found = [row["v"] for row in _rows(table)]
    for mine, theirs in zip(found, given_array.to_pylist(), strict=True):
        assert mine == theirs or float(mine) == pytest.approx(float(theirs), nan_ok=True), (
            mine,
            theirs,
        )


@pytest.mark.parametrize("memory", [1 << 30, 1])
def test_categories_of_polars_come_and_go_in_lists_too(memory: int) -> None:
    cat = pl.Series(["x", None], dtype=pl.Categorical)
    frame = pl.DataFrame(
        {"id": [1, 2], "c": cat, "l": pl.Series([["x"], []], dtype=pl.List(pl.Categorical))}
    )
    table = mdt.create(
        MemoryStorage(), frame.schema, ["id"], options={"mdt.write.memory.max": memory}
    )
    assert table.scan().to_arrow().schema == table.schema
    assert (table.upsert([]).inserted, table.upsert(frame).inserted) == (0, 2)
    assert pl.DataFrame(table.scan(order_by="id")).to_dict(as_series=False) == frame.to_dict(
        as_series=False
    )
    plain = _table(
        schema=pa.schema([("id", pa.int64()), ("c", pa.string()), ("l", pa.list_(pa.string()))])
    )
    plain.upsert(frame)
    assert _rows(plain) == frame.to_dicts()


def test_what_arrow_cannot_convert_is_refused_by_its_types() -> None:
    views = pa.RunEndEncodedArray.from_arrays(
        pa.array([1], pa.int16()), pa.array(["a"], pa.string_view())
    )
    with pytest.raises(
        Invalid,
        match=(
            "column 'name' is run_end_encoded<.*>, the table has string: Function 'run_end_decode'"
        ),
    ):
        _table().upsert(TABLE.slice(0, 1).set_column(1, "name", views))


LOSSES: list[tuple[pa.Array, pa.DataType]] = [
    (pa.array([0.5, 0.1]), pa.float32()),
    (pa.array([1.0, 1.5]), pa.int64()),
    (pa.array([1, 2**53 + 1]), pa.float64()),
    (pa.array([1, 2049]), pa.float16()),
    (pa.array([1, 128]), pa.int8()),
    (pa.array([1, -1]), pa.uint64()),
    (pa.array([0.25, 0.125]), pa.decimal128(5, 2)),
    (pa.array([1, 1000]), pa.decimal128(5, 2)),
    (pa.array([Decimal("1.50"), Decimal("1.55")]), pa.decimal128(5, 1)),
    (pa.array([Decimal("0.5"), Decimal("0.1234567890123456789")]), pa.float64()),
    (pa.array([0, 1], pa.timestamp("ms")), pa.timestamp("s")),
    (pa.array([1_000, 1], pa.timestamp("ns")), pa.timestamp("ns")),
    (pa.array([b"ab", b"abc"]), pa.binary(2)),
    (pa.array([[1, 2], [1]]), pa.list_(pa.int64(), 2)),
    (pa.array([[1], [1, 2**40]]), pa.list_(pa.int32())),
    (pa.array([{"a": 1}, {"a": 300}]), pa.struct([("a", pa.int8())])),
    (pa.array([0, 86_400_001], pa.date64()), pa.date32()),
]


@pytest.mark.parametrize(
    ("given_array", "type"), LOSSES, ids=lambda value: str(getattr(value, "type", value))
)
def test_a_cast_that_loses_something_is_refused_and_names_the_row(
    given_array: pa.Array, type: pa.DataType
) -> None:
    table = _table(schema=pa.schema([("id", pa.int64()), ("v", type)]))
    with pytest.raises(Invalid, match=r"column 'v' is .*: row 1 \(id=8\) has "):
        table.upsert(pa.table({"id": [7, 8], "v": given_array}))
    assert table.snapshot().seq == 0


NEVER: list[tuple[pa.DataType, pa.DataType]] = [
    (pa.string(), pa.int64()),
    (pa.int64(), pa.string()),
    (pa.bool_(), pa.int8()),
    (pa.int8(), pa.bool_()),
    (pa.string(), pa.binary()),
    (pa.binary(), pa.string()),
    (pa.string(), pa.date32()),
    (pa.date32(), pa.timestamp("us")),
    (pa.timestamp("us"), pa.timestamp("us", "UTC")),
    (pa.timestamp("us", "UTC"), pa.timestamp("us")),
    (pa.int64(), pa.timestamp("us")),
    (pa.int64(), pa.duration("s")),
    (pa.string(), pa.list_(pa.string())),
    (pa.struct([("a", pa.int8())]), pa.struct([("b", pa.int8())])),
]


@pytest.mark.parametrize(("source", "target"), NEVER, ids=str)
def test_types_of_other_kinds_are_refused_even_without_values(
    source: pa.DataType, target: pa.DataType
) -> None:
    table = _table(schema=pa.schema([("id", pa.int64()), ("v", target)]))
    with pytest.raises(Invalid, match="the types do not fit"):
        table.upsert(pa.table({"id": [7], "v": pa.nulls(1, source)}))


@given(
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=40),
    st.integers(1, 5),
)
def test_the_first_row_that_does_not_fit_is_named(numbers: list[int | None], chunk: int) -> None:
    wrong = [
        row
        for row, number in enumerate(numbers)
        if number is not None and not -128 <= number <= 127
    ]
    schema = pa.schema([("v", pa.int8())])
    parts = [pa.array(numbers[at : at + chunk], pa.int64()) for at in range(0, len(numbers), chunk)]
    data = pa.table({"v": pa.chunked_array(parts, pa.int64())})
    if not wrong:
        assert conform(data, schema, schema)["v"].to_pylist() == numbers
    else:
        with pytest.raises(Invalid, match=f"row {wrong[0]} has {numbers[wrong[0]]}:"):
            conform(data, schema, schema)


def test_values_of_python_are_typed_by_the_table() -> None:
    schema = pa.schema(
        [
            ("id", pa.uint8()),
            ("d", pa.decimal128(9, 2)),
            ("f", pa.float32()),
            ("m", pa.map_(pa.string(), pa.int8())),
            ("w", pa.duration("ms")),
            ("t", pa.timestamp("ns", "UTC")),
            ("c", pa.dictionary(pa.int8(), pa.string())),
            ("h", pa.float16()),
        ]
    )
    table = _table(schema=schema)
    row = {
        "id": 1,
        "d": Decimal("1.5"),
        "f": 0.1,
        "m": {"k": 1},
        "w": timedelta(seconds=1),
        "t": datetime(2026, 1, 1, tzinfo=UTC),
        "c": "x",
        "h": 1.5,
    }
    table.upsert([row, {**row, "id": 2, "d": 2, "f": 1, "m": [("k", 1)], "h": None}])
    first, second = _rows(table)
    assert first["f"] == pytest.approx(0.1) and {**first, "f": 0.1} == {**row, "m": [("k", 1)]}
    assert (second["d"], second["f"], second["m"]) == (2, 1, [("k", 1)])


SCHEMAS: dict[str, Callable[[], Any]] = {
    "pyarrow": lambda: SCHEMA,
    "polars": lambda: pl.DataFrame(pl.from_arrow(TABLE)).schema,
    "a struct": lambda: pa.struct(list(SCHEMA)),
}


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS.keys())
def test_a_schema_comes_from(schema: Callable[[], Any]) -> None:
    table = mdt.create(MemoryStorage(), schema(), ["id"])
    table.upsert(ROWS)
    assert _rows(table) == ROWS and table.schema.names == SCHEMA.names


@pytest.mark.parametrize(
    "data",
    [
        TABLE,
        _pandas(),
        pl.from_arrow(TABLE),
        duckdb.arrow(TABLE),
        pl.LazyFrame(pl.from_arrow(TABLE)),
    ],
    ids=lambda d: type(d).__module__,
)
def test_data_in_the_place_of_a_schema_is_refused_with_what_to_write(data: Any) -> None:
    with pytest.raises(Invalid, match="that is data") as caught:
        mdt.create(MemoryStorage(), data, ["id"])
    assert "schema" in (caught.value.hint or "").lower()


def test_no_package_of_frames_is_imported_to_tell_what_data_is(tmp_path: Path) -> None:
    """pandas is left out: pyarrow imports it itself, where it is, for lists."""
    code = (
        f"import sys, mdt, pyarrow as pa; t = mdt.create({str(tmp_path / 't')!r}, pa.schema([('id',"
        " pa.int64())]), ['id']); t.upsert([{'id': 1}]); t.upsert({'id': [2]});"
        " print(t.scan().count(), sorted({'polars', 'duckdb', 'pyspark'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2 []"


def test_pieces_of_few_rows_are_held_together_and_those_without_rows_not_at_all() -> None:
    schema = pa.schema([("id", pa.int64()), ("c", pa.dictionary(pa.int8(), pa.string()))])

    def batch(n: int) -> pa.RecordBatch:
        code = pa.DictionaryArray.from_arrays(
            pa.array([0], pa.int8()), pa.array([f"v{n // 2_000}"])
        )
        return pa.RecordBatch.from_arrays([pa.array([n]), code], schema=schema)

    def given() -> Iterator[pa.RecordBatch]:
        for n in range(5_000):
            yield batch(n)
            yield batch(n).slice(1)

    for data in (given(), pa.RecordBatchReader.from_batches(schema, given())):
        found = pieces(data)
        assert found is not None
        tables = [table for table in found if len(table)]
        assert len(tables) == 10 and all(table["id"].num_chunks == 1 for table in tables)
        assert pa.concat_tables(tables)["id"].to_pylist() == list(range(5_000))


OLD_DAYS: dict[str, pa.Array] = {
    "a day": pa.array([date(1582, 10, 14), date(2024, 1, 1)]),
    "a time": pa.array([datetime(1899, 12, 31), None], pa.timestamp("us", "UTC")),
    "96 bits": pa.array([datetime(1700, 1, 1), None], pa.timestamp("ns")),
    "a day inside": pa.array([[date(2024, 1, 1)], []]),
}
LEGACY = {"org.apache.spark.legacyDateTime": "", "org.apache.spark.version": "3.5.0"}
READERS: dict[str, Callable[[Path], Any]] = {
    "table": pq.read_table,
    "dataset": ds.dataset,
    "scanner": lambda file: ds.dataset(file).scanner(),
    "reader": lambda file: pq.read_table(file).to_reader(),
    "pieces": lambda file: iter([pq.read_table(file)]),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())
@pytest.mark.parametrize("days", OLD_DAYS.values(), ids=OLD_DAYS.keys())
@pytest.mark.parametrize(
    "told", [LEGACY, {"org.apache.spark.version": "2.4.8"}], ids=["LEGACY", "Spark 2"]
)
def test_days_of_the_old_calendar_are_refused_however_they_come(
    tmp_path: Path, days: pa.Array, told: dict[str, str], read: Callable[[Path], Any]
) -> None:
    rows = pa.table({"id": [1, 2], "at": days})
    table = mdt.create(MemoryStorage(), rows.schema, ["id"])
    pq.write_table(rows.replace_schema_metadata(told), tmp_path / "old.parquet")
    with pytest.raises(
        Invalid,
        match=(
            "'at' has days or times of the Julian calendar[^\n]*\n  hint: read the file with Spark"
        ),
    ):
        table.upsert(read(tmp_path / "old.parquet"))
    assert table.scan().count() == 0
    assert (
        table.upsert(pq.read_table(tmp_path / "old.parquet").replace_schema_metadata()).inserted
        == 2
    )


@pytest.mark.parametrize("told", [LEGACY, {"org.apache.spark.version": "4.0.0"}, {"pandas": "{}"}])
def test_days_that_both_calendars_count_alike_are_taken(
    tmp_path: Path, told: dict[str, str]
) -> None:
    is_old = "org.apache.spark.legacyDateTime" in told
    first = (
        (date(1582, 10, 15), datetime(1900, 1, 1))
        if is_old
        else (date(1, 1, 1), datetime(1500, 1, 1))
    )
    rows = pa.table({"id": [1], "day": [first[0]], "at": pa.array([first[1]], pa.timestamp("us"))})
    table = mdt.create(MemoryStorage(), rows.schema, ["id"])
    assert table.upsert(rows.replace_schema_metadata(told)).inserted == 1
