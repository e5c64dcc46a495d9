"""Data and schemas in every form that callers have. Casts are made only if nothing is lost."""

import subprocess
import sys
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from texts import columns

import mdt
from mdt.schema.alter import type_of
from mdt.schema.conform import conform
from mdt.schema.input import pieces
from mdt.stores.storage import MemoryStorage

SCHEMA = columns("id int64, name string, x double, at timestamp[us]")
ROWS = [
    {"id": 1, "name": "a", "x": 0.5, "at": datetime(2026, 1, 1)},
    {"id": 2, "name": None, "x": None, "at": None},
    {"id": 3, "name": "ü", "x": 2.0, "at": datetime(1969, 12, 31, 23, 59, 59, 999_999)},
]
TABLE = pa.Table.from_pylist(ROWS, schema=SCHEMA)
COLUMNS = TABLE.to_pydict()


def _pandas():
    return TABLE.to_pandas()


class Stream:
    """An object with the stream method of the PyCapsule interface and nothing else."""

    def __arrow_c_stream__(self, requested_schema=None):
        return TABLE.__arrow_c_stream__(requested_schema)


class OneBatch:
    """An object with the PyCapsule method of a single array and nothing else."""

    def __arrow_c_array__(self, requested_schema=None):
        return TABLE.to_batches()[0].__arrow_c_array__(requested_schema)


def _with_ids(ids):
    return TABLE.set_column(0, "id", ids)


FORMS = {
    "a table": lambda: TABLE,
    "a batch": lambda: TABLE.to_batches()[0],
    "a reader": lambda: pa.RecordBatchReader.from_batches(
        SCHEMA, TABLE.to_batches(max_chunksize=2)
    ),
    "a list of batches": lambda: TABLE.to_batches(max_chunksize=2),
    "a generator of batches": lambda: iter(TABLE.to_batches(max_chunksize=1)),
    "a stream capsule": Stream,
    "an array capsule": OneBatch,
    "a struct array": lambda: TABLE.to_struct_array(),
    "columns in another order": lambda: TABLE.select(["x", "at", "name", "id"]),
    "many chunks": lambda: pa.concat_tables([TABLE.slice(n, 1) for n in range(3)]),
    "a slice": lambda: pa.concat_tables([TABLE, TABLE]).combine_chunks().slice(3),
    "keys in runs": lambda: _with_ids(pc.run_end_encode(TABLE["id"])),
    "keys in a dictionary": lambda: _with_ids(TABLE["id"].dictionary_encode()),
    "narrow keys": lambda: _with_ids(TABLE["id"].cast(pa.int8())),
    "tables and batches": lambda: (TABLE.slice(0, 1), TABLE.slice(1).to_batches()[0]),
    "a list of dicts": lambda: ROWS,
    "a generator of dicts": lambda: (row for row in ROWS),
    "dicts that lack what is null": lambda: [ROWS[0], {"id": 2}, ROWS[2]],
    "a dict of lists": lambda: COLUMNS,
    "a dict of arrays": lambda: {**COLUMNS, "id": np.array([1, 2, 3]), "name": TABLE["name"]},
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
    "a scan": lambda: _create_table(TABLE).scan(),
}


def _create_table(data=None, schema=SCHEMA):
    table = mdt.create(MemoryStorage(), schema, ["id"])
    if data is not None:
        table.upsert(data)
    return table


def _rows(table):
    return table.scan(order_by="id").to_arrow().to_pylist()


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_rows_are_accepted_in_every_form(form):
    table = _create_table()
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
def test_data_without_rows_commits_nothing_or_is_refused_for_missing_columns(empty):
    table = _create_table()
    if isinstance(empty, dict | pa.Table) and not len(getattr(empty, "column_names", ())):
        refused("'id' is missing", table.upsert, empty)
    else:
        assert table.upsert(empty).inserted == 0
    assert table.snapshot().seq == 0


def _failing_batches(error):
    yield from TABLE.to_batches()
    raise error


def test_an_error_of_an_iterable_is_passed_on_and_a_failing_reader_is_not_blamed_on_columns():
    table = _create_table()
    with pytest.raises(KeyError, match="mine"):
        table.upsert(_failing_batches(KeyError("mine")))
    reader = pa.RecordBatchReader.from_batches(
        SCHEMA, _failing_batches(RuntimeError("the line is dead"))
    )
    message = "data of type RecordBatchReader could not be read: … the line is dead"
    assert "columns" not in str(refused(message, table.upsert, reader))
    assert table.snapshot().seq == 0


def _coded(codes, values):
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.uint32()), values)


CASTS = [
    ([1, None], None, "double"),
    ([1.0, None], None, "int64"),
    ([1.0, -3.0], None, "int8"),
    ([1.5, float("nan")], None, "float"),
    ([1.5], None, "halffloat"),
    ([0.1], None, "decimal(5, 2)"),
    ([99, None], None, "decimal(4, 2)"),
    ([Decimal("1.50")], None, "decimal(3, 1)"),
    ([Decimal("7.00")], None, "int16"),
    ([Decimal("0.1")], None, "double"),
    ([2**53], "uint64", "double"),
    ([5], "uint64", "int8"),
    ([1_000_000], "timestamp[us]", "timestamp[s]"),
    ([1_000], pa.timestamp("ns", "UTC"), pa.timestamp("us", "Asia/Tokyo")),
    ([date(2026, 1, 1)], None, "date64"),
    ([time(1, 2, 3)], None, "time32[s]"),
    ([timedelta(seconds=1)], None, "duration[s]"),
    (["a", None], None, pa.dictionary(pa.int8(), pa.large_string())),
    (_coded([1, None, 0, 2], pa.array(["a", "b", None], pa.string_view())), None, "string"),
    (_coded([0], pa.array([b"a"], pa.binary_view())), None, "binary"),
    (_coded([1, 0], pa.array([[1], None])), None, pa.list_(pa.int64())),
    ([b"ab"], None, pa.binary(2)),
    (["x"], "string_view", "large_string"),
    ([None, None], None, pa.list_(pa.int8())),
    ([[1.0, None], None, []], None, pa.large_list(pa.int16())),
    ([[1, 2]], pa.list_view(pa.int64()), pa.list_(pa.float64(), 2)),
    ([{"b": 1, "a": 2.0}], None, pa.struct([("a", pa.int8()), ("b", pa.float32())])),
    (
        [[("k", 1)]],
        pa.map_(pa.string(), pa.int64()),
        pa.map_(pa.large_string(), pa.float64()),
    ),
]


def _table_with_type(type):
    """Create a table with a column ``v`` of this type."""
    return _create_table(schema=pa.schema([("id", pa.int64()), ("v", type_of(type))]))


def _array(values, source):
    return pa.array(values, None if source is None else type_of(source))


@pytest.mark.parametrize(("values", "source", "target"), CASTS, ids=str)
def test_a_lossless_cast_is_made(values, source, target):
    table, array = _table_with_type(target), _array(values, source)
    table.upsert(pa.table({"id": range(len(array)), "v": array}))
    for row, given_value in zip(_rows(table), array.to_pylist(), strict=True):
        read_value = row["v"]
        assert read_value == given_value or float(read_value) == pytest.approx(
            float(given_value), nan_ok=True
        )


@pytest.mark.parametrize("memory", [1 << 30, 1])
def test_categories_of_polars_are_stored_and_restored_also_in_lists(memory):
    categories = {"id": pl.Int64, "c": pl.Categorical, "l": pl.List(pl.Categorical)}
    frame = pl.DataFrame({"id": [1, 2], "c": ["x", None], "l": [["x"], []]}, categories)
    options = {"mdt.write.memory.max": memory}
    table = mdt.create(MemoryStorage(), frame.schema, ["id"], options=options)
    assert table.scan().to_arrow().schema == table.schema
    assert (table.upsert([]).inserted, table.upsert(frame).inserted) == (0, 2)
    assert pl.DataFrame(table.scan(order_by="id")).to_dicts() == frame.to_dicts()
    plain = _create_table(
        schema=columns("id int64, c string").append(pa.field("l", pa.list_(pa.string())))
    )
    plain.upsert(frame)
    assert _rows(plain) == frame.to_dicts()


def test_data_that_arrow_cannot_convert_is_refused_with_its_types():
    views = pa.RunEndEncodedArray.from_arrays(
        pa.array([1], pa.int16()), pa.array(["a"], pa.string_view())
    )
    message = "column 'name' is run_end_encoded< … the table has string: Function 'run_end_decode'"
    refused(message, _create_table().upsert, TABLE.slice(0, 1).set_column(1, "name", views))


LOSSES = [
    ([0.5, 0.1], None, "float"),
    ([1.0, 1.5], None, "int64"),
    ([1, 2**53 + 1], None, "double"),
    ([1, 2049], None, "halffloat"),
    ([1, 128], None, "int8"),
    ([1, -1], None, "uint64"),
    ([0.25, 0.125], None, "decimal(5, 2)"),
    ([1, 1000], None, "decimal(5, 2)"),
    ([Decimal("1.50"), Decimal("1.55")], None, "decimal(5, 1)"),
    ([Decimal("0.5"), Decimal("0.1234567890123456789")], None, "double"),
    ([0, 1], "timestamp[ms]", "timestamp[s]"),
    ([1_000, 1], "timestamp[ns]", "timestamp[ns]"),
    ([b"ab", b"abc"], None, pa.binary(2)),
    ([[1, 2], [1]], None, pa.list_(pa.int64(), 2)),
    ([[1], [1, 2**40]], None, pa.list_(pa.int32())),
    ([{"a": 1}, {"a": 300}], None, pa.struct([("a", pa.int8())])),
    ([0, 86_400_001], "date64", "date32"),
]


@pytest.mark.parametrize(("values", "source", "target"), LOSSES, ids=str)
def test_a_lossy_cast_is_refused_and_the_error_names_the_row(values, source, target):
    table, array = _table_with_type(target), _array(values, source)
    data = pa.table({"id": [7, 8], "v": array})
    refused("column 'v' is … : row 1 (id=8) has ", table.upsert, data)
    assert table.snapshot().seq == 0


ZONED = pa.timestamp("us", "UTC")
NEVER = [
    ("string", "int64"),
    ("int64", "string"),
    ("bool", "int8"),
    ("int8", "bool"),
    ("string", "binary"),
    ("binary", "string"),
    ("string", "date32"),
    ("date32", "timestamp[us]"),
    ("timestamp[us]", ZONED),
    (ZONED, "timestamp[us]"),
    ("int64", "timestamp[us]"),
    ("int64", "duration[s]"),
    ("string", pa.list_(pa.string())),
    (pa.struct([("a", pa.int8())]), pa.struct([("b", pa.int8())])),
]


@pytest.mark.parametrize(("source", "target"), NEVER, ids=str)
def test_incompatible_types_are_refused_even_if_all_values_are_null(source, target):
    data = pa.table({"id": [7], "v": pa.nulls(1, type_of(source))})
    refused("the types do not fit", _table_with_type(target).upsert, data)


@given(
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=40),
    st.integers(1, 5),
)
def test_the_error_of_a_lossy_cast_names_the_first_row_that_does_not_fit(numbers, chunk):
    misfits = [row for row, number in enumerate(numbers) if not -128 <= (number or 0) <= 127]
    narrow = columns("v int8")
    parts = [numbers[at : at + chunk] for at in range(0, len(numbers), chunk)]
    data = pa.table({"v": pa.chunked_array(parts, pa.int64())})
    if not misfits:
        assert conform(data, narrow, narrow)["v"].to_pylist() == numbers
    else:
        message = f"row {misfits[0]} has {numbers[misfits[0]]}:"
        refused(message, conform, data, narrow, narrow)


def test_python_values_are_converted_to_the_types_of_the_table():
    types = columns("id uint8, d decimal(9, 2), f float, w duration[ms], h halffloat")
    for name, type in (
        ("m", pa.map_(pa.string(), pa.int8())),
        ("t", pa.timestamp("ns", "UTC")),
        ("c", pa.dictionary(pa.int8(), pa.string())),
    ):
        types = types.append(pa.field(name, type))
    table = _create_table(schema=types)
    row = {
        "id": 1,
        "d": Decimal("1.5"),
        "f": 0.5,
        "w": timedelta(seconds=1),
        "h": 1.5,
        "m": [("k", 1)],
        "t": datetime(2026, 1, 1, tzinfo=UTC),
        "c": "x",
    }
    other = {**row, "id": 2, "d": 2, "f": 1, "h": None}
    table.upsert([{**row, "m": {"k": 1}}, other])
    assert _rows(table) == [row, other]


def test_object_columns_of_polars_are_refused():
    table = mdt.create(MemoryStorage(), pa.schema({"id": pa.int64(), "b": pa.binary()}), ["id"])
    frame = pl.DataFrame({"id": [1], "b": pl.Series([b"x"], dtype=pl.Object)})
    for data in (frame, frame.lazy(), iter([frame]), [frame]):
        refused("'b' … Object of polars … hint: convert it", table.upsert, data)
    assert table.scan().count() == 0


def test_a_table_is_created_from_a_polars_schema_and_from_a_struct_type():
    for given_schema in (pl.DataFrame(TABLE).schema, pa.struct(list(SCHEMA))):
        table = mdt.create(MemoryStorage(), given_schema, ["id"])
        table.upsert(ROWS)
        assert _rows(table) == ROWS and table.schema.names == SCHEMA.names


@pytest.mark.parametrize(
    "form",
    ["a table", "a pandas frame", "a polars frame", "a duckdb relation", "a lazy frame"],
)
def test_data_in_place_of_a_schema_is_refused_with_a_hint(form):
    data = FORMS[form]()
    refused("which is data … hint: … chema", mdt.create, MemoryStorage(), data, ["id"])


def test_writing_python_values_imports_no_data_frame_package(tmp_path):
    """pandas is not tested: pyarrow imports it for lists if it is installed."""
    code = (
        f"import sys, mdt, pyarrow as pa; t = mdt.create({str(tmp_path / 't')!r}, pa.schema([('id',"
        " pa.int64())]), ['id']); t.upsert([{'id': 1}]); t.upsert({'id': [2]});"
        " print(t.scan().count(), sorted({'polars', 'duckdb', 'pyspark'} & set(sys.modules)))"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout.strip() == "2 []"


def test_small_pieces_are_combined_and_empty_ones_skipped():
    def small_batches():
        for n in range(5_000):
            text = pa.array([f"v{n // 2_000}"]).dictionary_encode()
            batch = pa.record_batch({"id": [n], "c": text})
            yield batch
            yield batch.slice(1)

    for data in (
        small_batches(),
        pa.RecordBatchReader.from_batches(next(small_batches()).schema, small_batches()),
    ):
        combined = pieces(data)
        assert combined is not None
        tables = [table for table in combined if len(table)]
        assert len(tables) == 10 and all(table["id"].num_chunks == 1 for table in tables)
        assert pa.concat_tables(tables)["id"].to_pylist() == list(range(5_000))


OLD_DAYS = {
    "a day": pa.array([date(1582, 10, 14), date(2024, 1, 1)]),
    "a time": pa.array([datetime(1899, 12, 31), None], pa.timestamp("us", "UTC")),
    "96 bits": pa.array([datetime(1700, 1, 1), None], pa.timestamp("ns")),
    "a day inside": pa.array([[date(2024, 1, 1)], []]),
}
LEGACY = {"org.apache.spark.legacyDateTime": "", "org.apache.spark.version": "3.5.0"}
READERS = {
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
def test_dates_in_the_julian_calendar_are_refused_in_every_form_of_data(tmp_path, days, told, read):
    rows = pa.table({"id": [1, 2], "at": days})
    table = mdt.create(MemoryStorage(), rows.schema, ["id"])
    pq.write_table(rows.replace_schema_metadata(told), tmp_path / "old.parquet")
    message = "'at' has dates or times in the Julian calendar … hint: read the file with Spark"
    refused(message, table.upsert, read(tmp_path / "old.parquet"))
    assert table.scan().count() == 0
    assert table.upsert(rows).inserted == 2


@pytest.mark.parametrize("told", [LEGACY, {"org.apache.spark.version": "4.0.0"}, {"pandas": "{}"}])
def test_dates_that_are_equal_in_both_calendars_are_accepted(told):
    day, at = date(1, 1, 1), datetime(1500, 1, 1)
    if told is LEGACY:
        day, at = date(1582, 10, 15), datetime(1900, 1, 1)
    rows = pa.table({"id": [1], "day": [day], "at": [at]})
    table = mdt.create(MemoryStorage(), rows.schema, ["id"])
    assert table.upsert(rows.replace_schema_metadata(told)).inserted == 1
