"""Data comes as callers have it, and is cast where that loses nothing; so do schemas."""

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
    """Has the PyCapsule interface and nothing else."""

    def __arrow_c_stream__(self, requested_schema=None):
        return TABLE.__arrow_c_stream__(requested_schema)


class OneBatch:
    """Has the PyCapsule interface of a single batch."""

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
    "a scan": lambda: _table(TABLE).scan(),
}


def _table(data=None, schema=SCHEMA):
    table = mdt.create(MemoryStorage(), schema, ["id"])
    if data is not None:
        table.upsert(data)
    return table


def _rows(table):
    return table.scan(order_by="id").to_arrow().to_pylist()


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_rows_come_as(form):
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
def test_no_rows_commit_nothing_or_are_refused_for_their_columns(empty):
    table = _table()
    if isinstance(empty, dict | pa.Table) and not len(getattr(empty, "column_names", ())):
        refused("'id' is missing", table.upsert, empty)
    else:
        assert table.upsert(empty).inserted == 0
    assert table.snapshot().seq == 0


def _broken(error):
    yield from TABLE.to_batches()
    raise error


def test_what_an_iterable_raises_is_the_callers_own_and_a_reader_that_breaks_off_no_fault_of_columns():
    table = _table()
    with pytest.raises(KeyError, match="mine"):
        table.upsert(_broken(KeyError("mine")))
    reader = pa.RecordBatchReader.from_batches(SCHEMA, _broken(RuntimeError("the line is dead")))
    said = "data of type RecordBatchReader could not be read: … the line is dead"
    assert "columns" not in str(refused(said, table.upsert, reader))
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


def _of_type(type):
    """Return a table with a column ``v`` of a type."""
    return _table(schema=pa.schema([("id", pa.int64()), ("v", type_of(type))]))


def _array(values, source):
    return pa.array(values, None if source is None else type_of(source))


@pytest.mark.parametrize(("values", "source", "target"), CASTS, ids=str)
def test_a_cast_that_loses_nothing_is_made(values, source, target):
    table, array = _of_type(target), _array(values, source)
    table.upsert(pa.table({"id": range(len(array)), "v": array}))
    for row, given_value in zip(_rows(table), array.to_pylist(), strict=True):
        mine = row["v"]
        assert mine == given_value or float(mine) == pytest.approx(float(given_value), nan_ok=True)


@pytest.mark.parametrize("memory", [1 << 30, 1])
def test_categories_of_polars_come_and_go_in_lists_too(memory):
    categories = {"id": pl.Int64, "c": pl.Categorical, "l": pl.List(pl.Categorical)}
    frame = pl.DataFrame({"id": [1, 2], "c": ["x", None], "l": [["x"], []]}, categories)
    options = {"mdt.write.memory.max": memory}
    table = mdt.create(MemoryStorage(), frame.schema, ["id"], options=options)
    assert table.scan().to_arrow().schema == table.schema
    assert (table.upsert([]).inserted, table.upsert(frame).inserted) == (0, 2)
    assert pl.DataFrame(table.scan(order_by="id")).to_dicts() == frame.to_dicts()
    plain = _table(
        schema=columns("id int64, c string").append(pa.field("l", pa.list_(pa.string())))
    )
    plain.upsert(frame)
    assert _rows(plain) == frame.to_dicts()


def test_what_arrow_cannot_convert_is_refused_by_its_types():
    views = pa.RunEndEncodedArray.from_arrays(
        pa.array([1], pa.int16()), pa.array(["a"], pa.string_view())
    )
    said = "column 'name' is run_end_encoded< … the table has string: Function 'run_end_decode'"
    refused(said, _table().upsert, TABLE.slice(0, 1).set_column(1, "name", views))


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
def test_a_cast_that_loses_something_is_refused_and_names_the_row(values, source, target):
    table, array = _of_type(target), _array(values, source)
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
def test_types_of_other_kinds_are_refused_even_without_values(source, target):
    data = pa.table({"id": [7], "v": pa.nulls(1, type_of(source))})
    refused("the types do not fit", _of_type(target).upsert, data)


@given(
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=40),
    st.integers(1, 5),
)
def test_the_first_row_that_does_not_fit_is_named(numbers, chunk):
    wrong = [row for row, number in enumerate(numbers) if not -128 <= (number or 0) <= 127]
    narrow = columns("v int8")
    parts = [numbers[at : at + chunk] for at in range(0, len(numbers), chunk)]
    data = pa.table({"v": pa.chunked_array(parts, pa.int64())})
    if not wrong:
        assert conform(data, narrow, narrow)["v"].to_pylist() == numbers
    else:
        said = f"row {wrong[0]} has {numbers[wrong[0]]}:"
        refused(said, conform, data, narrow, narrow)


def test_values_of_python_are_typed_by_the_table():
    types = columns("id uint8, d decimal(9, 2), f float, w duration[ms], h halffloat")
    for name, type in (
        ("m", pa.map_(pa.string(), pa.int8())),
        ("t", pa.timestamp("ns", "UTC")),
        ("c", pa.dictionary(pa.int8(), pa.string())),
    ):
        types = types.append(pa.field(name, type))
    table = _table(schema=types)
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


def test_python_objects_of_polars_are_refused_instead_of_their_addresses():
    table = mdt.create(MemoryStorage(), pa.schema({"id": pa.int64(), "b": pa.binary()}), ["id"])
    frame = pl.DataFrame({"id": [1], "b": pl.Series([b"x"], dtype=pl.Object)})
    for data in (frame, frame.lazy(), iter([frame]), [frame]):
        refused("'b' … Object of polars … hint: convert it", table.upsert, data)
    assert table.scan().count() == 0


def test_a_schema_comes_from_polars_and_from_a_struct():
    for given_schema in (pl.DataFrame(TABLE).schema, pa.struct(list(SCHEMA))):
        table = mdt.create(MemoryStorage(), given_schema, ["id"])
        table.upsert(ROWS)
        assert _rows(table) == ROWS and table.schema.names == SCHEMA.names


@pytest.mark.parametrize(
    "form",
    ["a table", "a pandas frame", "a polars frame", "a duckdb relation", "a lazy frame"],
)
def test_data_in_the_place_of_a_schema_is_refused_with_what_to_write(form):
    data = FORMS[form]()
    refused("which is data … hint: … chema", mdt.create, MemoryStorage(), data, ["id"])


def test_no_package_of_frames_is_imported_to_tell_what_data_is(tmp_path):
    """pandas is left out: pyarrow imports it itself, where it is, for lists."""
    code = (
        f"import sys, mdt, pyarrow as pa; t = mdt.create({str(tmp_path / 't')!r}, pa.schema([('id',"
        " pa.int64())]), ['id']); t.upsert([{'id': 1}]); t.upsert({'id': [2]});"
        " print(t.scan().count(), sorted({'polars', 'duckdb', 'pyspark'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2 []"


def test_pieces_of_few_rows_are_held_together_and_those_without_rows_not_at_all():
    def given():
        for n in range(5_000):
            text = pa.array([f"v{n // 2_000}"]).dictionary_encode()
            batch = pa.record_batch({"id": [n], "c": text})
            yield batch
            yield batch.slice(1)

    for data in (given(), pa.RecordBatchReader.from_batches(next(given()).schema, given())):
        found = pieces(data)
        assert found is not None
        tables = [table for table in found if len(table)]
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
def test_days_of_the_old_calendar_are_refused_however_they_come(tmp_path, days, told, read):
    rows = pa.table({"id": [1, 2], "at": days})
    table = mdt.create(MemoryStorage(), rows.schema, ["id"])
    pq.write_table(rows.replace_schema_metadata(told), tmp_path / "old.parquet")
    said = "'at' has dates or times in the Julian calendar … hint: read the file with Spark"
    refused(said, table.upsert, read(tmp_path / "old.parquet"))
    assert table.scan().count() == 0
    assert table.upsert(rows).inserted == 2


@pytest.mark.parametrize("told", [LEGACY, {"org.apache.spark.version": "4.0.0"}, {"pandas": "{}"}])
def test_days_that_both_calendars_count_alike_are_taken(told):
    day, at = date(1, 1, 1), datetime(1500, 1, 1)
    if told is LEGACY:
        day, at = date(1582, 10, 15), datetime(1900, 1, 1)
    rows = pa.table({"id": [1], "day": [day], "at": [at]})
    table = mdt.create(MemoryStorage(), rows.schema, ["id"])
    assert table.upsert(rows.replace_schema_metadata(told)).inserted == 1
