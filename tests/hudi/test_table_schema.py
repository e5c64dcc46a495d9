"""Columns of a table written by Hudi, and conversion of older files to these columns."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from foreign_tables import ForeignTable, avro_rows, parquet, parquet_rows, record, time

from mdt.errors import Corrupt, Unsupported
from mdt.hudi.avro_schema import META_FIELDS
from mdt.hudi.read import loading
from mdt.hudi.read.table_schema import TableSchema, load_schema, parse_schema, to_table_columns
from mdt.hudi.read.table_state import load_state

NOW = datetime(2024, 2, 29, 12, 0, 0, 123000)
MICROS, MILLIS = pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC")


def schema_of(table: ForeignTable, at: int = 0) -> TableSchema:
    properties = loading.load_properties(table.storage)
    instant = time(at) if at else ""
    return load_schema(table.storage, load_state(table.storage, properties, at=instant))


def names(table: ForeignTable, at: int = 0) -> list[str]:
    return schema_of(table, at).columns.names[len(META_FIELDS) :]


@pytest.mark.parametrize("version", [6, 9])
def test_the_schema_is_that_of_the_newest_commit_that_is_not_a_compaction(version):
    table = ForeignTable({"id": "string"}, version=version)
    table.commit(1)
    table.commit(2, schema=record({"id": "string", "v": ("long",)}))
    table.commit(3, schema=record({"id": "string"}), operation="COMPACT", action="commit")
    assert names(table) == ["id", "v"]
    assert names(table, at=1) == ["id"]
    schema = schema_of(table)
    assert schema.columns.names[: len(META_FIELDS)] == list(META_FIELDS)
    assert not schema.columns.field("v").nullable
    assert json.loads(schema.avro)["fields"][1]["name"] == "v"


def test_the_schema_of_a_table_without_meta_columns_has_none():
    table = ForeignTable({"id": "string"}, {"hoodie.populate.meta.fields": "false"})
    table.commit(1, schema=table.file_schema())
    assert schema_of(table).columns.names == ["id"]


def test_the_schema_is_read_from_a_base_file_if_no_commit_has_it():
    table = ForeignTable({"id": "string", "v": {"type": "array", "items": "long"}})
    table.base(1, [{"id": "a", "v": [1]}])
    [path] = [info.path for info in table.storage.list(".hoodie/timeline")]
    table.storage.replace(path, b'{"operationType": "UPSERT"}')
    assert names(table) == ["id", "v"]
    assert schema_of(table).columns.field("v").type == pa.list_(
        pa.field("element", pa.int64(), False)
    )


def test_the_parquet_schema_of_a_base_file_without_an_avro_schema_is_used():
    table = ForeignTable({"id": "string"})
    out = io.BytesIO()
    pq.write_table(pa.table({"id": ["a"], "_hoodie_record_key": ["a"], "n": [1]}), out)
    table.base(1, data=out.getvalue())
    [path] = [info.path for info in table.storage.list(".hoodie/timeline")]
    table.storage.replace(path, b"{}")
    assert names(table) == ["id", "n"]
    assert schema_of(table).avro == ""


def test_a_table_without_commits_has_the_schema_of_its_creation_or_is_refused():
    created = json.dumps(record({"id": "string"}))
    assert names(ForeignTable({}, {"hoodie.table.create.schema": created})) == ["id"]
    with pytest.raises(Unsupported, match="no schema"):
        schema_of(ForeignTable({}))


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"a": ["int", "string"]}, Unsupported),
        ({"a": {"type": "array", "items": ["null", "int", "string"]}}, Unsupported),
        ({"a": {"type": "long", "logicalType": "timestamp-nanos"}}, Unsupported),
        ({"a": "unknown"}, Corrupt),
    ],
)
def test_types_that_arrow_does_not_have_are_refused_and_unknown_types_are_corrupt(fields, error):
    members = [{"name": name, "type": type} for name, type in fields.items()]
    text = json.dumps({"type": "record", "name": "r", "fields": members})
    with pytest.raises(error):
        parse_schema(text, meta_fields=True)


@pytest.mark.parametrize("text", ["", "[", "{}", '"int"', '{"type": "record"}'])
def test_a_damaged_schema_is_corrupt(text):
    with pytest.raises(Corrupt):
        parse_schema(text, meta_fields=True)


def test_a_repeated_column_is_corrupt():
    member = {"name": "a", "type": "int"}
    text = json.dumps({"type": "record", "name": "r", "fields": [member, member]})
    with pytest.raises(Corrupt):
        parse_schema(text, meta_fields=False)


# Conversion of files


def convert(values: pa.Array, type: pa.DataType) -> list[object]:
    schema = TableSchema(pa.schema({"a": type}))
    rows = to_table_columns(pa.table({"a": values}), schema, ["a"], path="x.parquet")
    assert rows.schema.field("a").type == type
    rows.validate(full=True)
    values: list[object] = rows["a"].to_pylist()
    return values


@pytest.mark.parametrize(
    ("values", "type", "expected"),
    [
        (pa.array([1, None], pa.int32()), pa.int64(), [1, None]),
        (pa.array([1], pa.int8()), pa.int32(), [1]),
        (pa.array([2**24 + 1], pa.int32()), pa.float32(), [2.0**24]),
        (pa.array([2**53 + 1], pa.int64()), pa.float64(), [2.0**53]),
        (pa.array([0.1, None], pa.float32()), pa.float64(), [0.1, None]),
        (pa.array([5], pa.int64()), pa.decimal128(20, 2), [Decimal("5.00")]),
        (pa.array([5], pa.int64()), pa.string(), ["5"]),
        (pa.array([date(2024, 2, 29)]), pa.string(), ["2024-02-29"]),
        (pa.array(["a"], pa.large_string()), pa.string(), ["a"]),
        (pa.array(["a", "b", "a"]).dictionary_encode(), pa.string(), ["a", "b", "a"]),
        (pa.array([b"a"]), pa.string(), ["a"]),
        (pa.array(["a"]), pa.binary(), [b"a"]),
        (pa.array([b"ab"], pa.binary(2)), pa.binary(), [b"ab"]),
        (pa.array([Decimal("1.5")], pa.decimal128(3, 1)), pa.decimal128(5, 2), [Decimal("1.50")]),
        (pa.array([NOW], pa.timestamp("us")), MICROS, [NOW.replace(tzinfo=UTC)]),
        (pa.array([NOW], MILLIS), MICROS, [NOW.replace(tzinfo=UTC)]),
        (pa.array([NOW], pa.timestamp("us")), MILLIS, [NOW.replace(tzinfo=UTC)]),
        (pa.array([5], MICROS), MILLIS, [datetime(1970, 1, 1, 0, 0, 0, 5000, UTC)]),
        (
            pa.array([[5]], pa.list_(MICROS)),
            pa.list_(MILLIS),
            [[datetime(1970, 1, 1, 0, 0, 0, 5000, UTC)]],
        ),
        (pa.array([NOW], pa.timestamp("ns")), MILLIS, [NOW.replace(tzinfo=UTC)]),
        (pa.array([5], pa.int64()), pa.timestamp("ms"), [datetime(1970, 1, 1, 0, 0, 0, 5000)]),
        (pa.array([1], pa.int32()), pa.date32(), [date(1970, 1, 2)]),
        (pa.nulls(2), pa.list_(pa.int64()), [None, None]),
    ],
    ids=str,
)
def test_values_of_older_types_are_widened_as_by_hudi(values, type, expected):
    assert convert(values, type) == expected


@pytest.mark.parametrize(
    ("values", "type"),
    [
        (pa.array([1], pa.int64()), pa.int32()),
        (pa.array([1.5]), pa.float32()),
        (pa.array([1.5]), pa.string()),
        (pa.array(["1"]), pa.int64()),
        (pa.array([True]), pa.int32()),
        (pa.array([Decimal("1.50")], pa.decimal128(5, 2)), pa.decimal128(5, 1)),
        (pa.array([[1]]), pa.int64()),
        (pa.array([1]), pa.list_(pa.int64())),
        (pa.array([{"x": 1}]), pa.map_(pa.string(), pa.int64())),
        (pa.array([["a"]]), pa.list_(pa.int64())),
    ],
    ids=str,
)
def test_changes_of_types_that_hudi_does_not_widen_are_refused(values, type):
    with pytest.raises(Unsupported, match=r"column 'a' of x\.parquet"):
        convert(values, type)


@pytest.mark.parametrize(
    ("values", "type"),
    [
        (pa.array([NOW.replace(microsecond=1)], pa.timestamp("us")), MILLIS),
        (pa.array([b"\xff"]), pa.string()),
        (pa.array([b"abc"]), pa.binary(2)),
        (pa.array([2**62], pa.timestamp("s")), MICROS),
        (pa.array([10**18], pa.int64()), pa.decimal128(18, 0)),
        (pa.array([b"\xff"]).view(pa.string()), pa.string()),
        (
            pa.array([{"x": None}], pa.struct({"x": pa.int32()})),
            pa.struct([pa.field("x", pa.int64(), False)]),
        ),
        (
            pa.array([[None]], pa.list_(pa.int32())),
            pa.list_(pa.field("element", pa.int64(), False)),
        ),
    ],
    ids=str,
)
def test_values_that_do_not_fit_the_new_type_are_corrupt(values, type):
    with pytest.raises(Corrupt) as caught:
        convert(values, type)
    assert caught.value.path == "x.parquet"


def test_nested_fields_are_matched_by_name():
    old = pa.struct({"b": pa.int32(), "gone": pa.bool_(), "a": pa.float32()})
    new = pa.struct({"a": pa.float64(), "added": pa.string(), "b": pa.int64()})
    value, expected = {"b": 1, "gone": True, "a": 0.1}, {"a": 0.1, "added": None, "b": 1}
    assert convert(pa.array([value, None], old), new) == [expected, None]
    lists = pa.array([[value], None, []], pa.list_(pa.field("array", old)))
    assert convert(lists, pa.list_(pa.field("element", new))) == [[expected], None, []]
    maps = pa.array([[("k", value)], None], pa.map_(pa.string(), old))
    assert convert(maps, pa.map_(pa.string(), new)) == [[("k", expected)], None]
    required = pa.struct([pa.field("b", pa.int64(), False)])
    assert convert(pa.array([value, None], old), required) == [{"b": 1}, None]


def test_columns_are_added_with_their_defaults_reordered_and_left_out():
    text = json.dumps(
        {
            "type": "record",
            "name": "r",
            "fields": [
                {"name": "n", "type": "int", "default": 7},
                {"name": "s", "type": ["null", "string"], "default": None},
                {"name": "o", "type": ["int", "null"], "default": 7},
                {"name": "b", "type": "boolean"},
                {"name": "d", "type": "bytes", "default": "\xff"},
            ],
        }
    )
    schema = parse_schema(text, meta_fields=False)
    old = pa.table({"gone": [1, 2], "s": ["x", None]})
    rows = to_table_columns(old, schema, ["n", "s", "o", "b", "d"], path="x")
    expected = [{"n": 7, "s": s, "o": None, "b": None, "d": b"\xff"} for s in ("x", None)]
    assert rows.to_pylist() == expected
    rows = to_table_columns(old, schema, ["n"], path="x", partial=True)
    assert rows["n"].to_pylist() == [None, None]


def test_old_files_of_a_slice_are_read_with_the_columns_of_the_table():
    table = ForeignTable({"id": "string", "n": "int", "f": "float"})
    table.base(1, [{"id": "a", "n": 1, "f": 0.1}, {"id": "b", "n": 2, "f": 0.5}])
    table.schema = record({"f": "double", "id": "string", "n": "long", "new": "string"})
    table.log(2, table.upsert(2, [{"id": "b", "n": 2**40, "new": "x"}]))
    assert table.read().schema.names[-4:] == ["f", "id", "n", "new"]
    assert table.live("id", "n", "f", "new") == [("a", 1, 0.1, None), ("b", 2**40, None, "x")]


def test_int96_timestamps_and_timestamps_of_other_units_are_read():
    at = {"type": "long", "logicalType": "timestamp-micros"}
    table = ForeignTable({"id": "string", "at": at, "ms": at})
    rows = pa.table(
        {
            "_hoodie_record_key": ["a", "b"],
            "id": ["a", "b"],
            # outside of the range of nanoseconds in 64 bits
            "at": pa.array([NOW, datetime(9999, 1, 1)], pa.timestamp("us")),
            "ms": pa.array([NOW, None], MILLIS),
        }
    )
    out = io.BytesIO()
    pq.write_table(rows, out, use_deprecated_int96_timestamps=True, store_schema=False)
    table.base(1, data=out.getvalue())
    table.log(2, table.upsert(2, []))
    utc = NOW.replace(tzinfo=UTC)
    assert table.live("at", "ms") == [(utc, utc), (datetime(9999, 1, 1, tzinfo=UTC), None)]


@pytest.mark.parametrize("form", [avro_rows, parquet_rows], ids=["avro", "parquet"])
def test_milliseconds_that_are_declared_as_microseconds_are_read_as_milliseconds(form):
    micros = {"type": "long", "logicalType": "timestamp-micros"}
    table = ForeignTable({"id": "string", "at": micros})
    table.base(1, [{"id": "a", "at": 1_700_000_000_000}, {"id": "b", "at": 1}])
    table.log(2, table.upsert(2, [{"id": "b", "at": 1_700_000_000_001}], form=form))
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    table.commit(3, schema=record({"id": "string", "at": millis}))
    first_time = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    second_time = first_time.replace(microsecond=1000)
    assert table.live("id", "at") == [("a", first_time), ("b", second_time)]


def test_a_name_with_a_dot_is_the_name_of_a_column_and_not_a_path():
    out = io.BytesIO()
    pq.write_table(pa.table({"a.b": [1], "a": [{"b": 2}], "id": ["x"]}), out, store_schema=False)
    table = ForeignTable({"id": "string"}, {"hoodie.populate.meta.fields": "false"})
    table.base(1, data=out.getvalue())
    [path] = [info.path for info in table.storage.list(".hoodie/timeline")]
    table.storage.replace(path, b"{}")
    assert table.read(["a.b", "id"]).to_pylist() == [{"a.b": 1, "id": "x"}]


def test_a_file_with_too_many_rows_for_its_size_is_corrupt():
    table = ForeignTable({"id": "string"})
    data = parquet([{"id": None}] * 200_000, record({"id": "string"}))
    assert len(data) * 64 < 200_000
    table.base(1, data=data)
    with pytest.raises(Corrupt, match="too many"):
        table.read()
