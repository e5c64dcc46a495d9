from __future__ import annotations

import json

import fastavro
import pyarrow as pa
import pytest
from avro_schemas import arrow_schema
from declared_types import FLAT
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from mdt.hudi import avro_schema
from mdt.schema import declared

LEAVES = st.sampled_from([type for type, _ in FLAT.values()])
NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True).filter(
    lambda name: not name.startswith("_hoodie")
)


def structs(types):
    return st.dictionaries(NAMES, types, min_size=1, max_size=3).map(
        lambda fields: pa.struct(list(fields.items()))
    )


TYPES = st.recursive(
    LEAVES,
    lambda inner: (
        inner.map(pa.list_)
        | inner.map(pa.large_list)
        | inner.map(lambda t: pa.map_(pa.string(), t))
        | structs(inner)
    ),
    max_leaves=6,
)
SCHEMAS = st.dictionaries(NAMES, TYPES, min_size=1, max_size=4).map(
    lambda fields: pa.schema(list(fields.items()))
)


@given(SCHEMAS)
def test_the_avro_schema_describes_the_stored_schema_which_is_stored_unchanged_again(schema):
    text, stored = avro_schema.to_avro(schema, "trips"), declared.stored_schema(schema)
    assert arrow_schema(text) == stored
    fastavro.parse_schema(json.loads(text))
    assert declared.stored_schema(stored) == stored
    assert all(field.nullable for field in stored)


def test_meta_columns_come_first():
    data = pa.schema([("id", pa.string())])
    assert avro_schema.with_meta(data).names == [*avro_schema.META_FIELDS, "id"]
    text = avro_schema.to_avro(data, "t", meta_fields=True)
    assert arrow_schema(text) == avro_schema.with_meta(data)


def test_every_avro_field_is_optional_and_types_are_named_as_by_spark():
    value = json.loads(avro_schema.to_avro(pa.schema([("d", pa.decimal128(10, 5))]), "my-trips.2"))
    assert (value["name"], value["namespace"]) == ("my__trips__2_record", "hoodie.my__trips__2")
    (field,) = value["fields"]
    assert field["default"] is None
    assert field["type"] == [
        "null",
        {
            "type": "fixed",
            "name": "fixed",
            "namespace": "hoodie.my__trips__2.my__trips__2_record.d",
            "size": 5,
            "logicalType": "decimal",
            "precision": 10,
            "scale": 5,
        },
    ]


@pytest.mark.parametrize("precision", range(1, 39))
def test_a_decimal_has_the_fewest_bytes_that_hold_its_precision(precision):
    value = json.loads(avro_schema.to_avro(pa.schema([("d", pa.decimal128(precision, 0))]), "t"))
    size = value["fields"][0]["type"][1]["size"]
    assert 2 ** (8 * size - 1) >= 10**precision > 2 ** (8 * (size - 1) - 1)


def test_timestamps_without_a_time_zone_are_stored_as_utc_with_the_same_digits():
    table = pa.table({"at": pa.array([1_000_000], pa.timestamp("us"))})
    stored = table.cast(declared.stored_schema(table.schema))
    assert stored.equals(pa.table({"at": pa.array([1_000_000], pa.timestamp("us", "UTC"))}))


@pytest.mark.parametrize(
    ("type", "hint"),
    [
        (pa.null(), "type"),
        (pa.month_day_nano_interval(), "duration"),
        (pa.dictionary(pa.int8(), pa.string(), ordered=True), "unordered"),
        (pa.dictionary(pa.int8(), pa.list_(pa.int8())), "flat"),
        (pa.sparse_union([pa.field("a", pa.int8())]), "struct"),
        (pa.uuid(), "fixed_size_binary[16]"),
        (pa.decimal256(39, 0), "38 digits"),
        (pa.decimal128(5, -1), "scale"),
        (pa.map_(pa.int32(), pa.string()), "string keys"),
        (pa.struct([]), "field"),
        (pa.list_(pa.int8(), 0), "size of at least 1"),
    ],
)
def test_types_that_cannot_be_stored_are_refused_with_column_path_and_hint(type, hint):
    for path, nested in (
        ("c", type),
        ("c.element", pa.list_(type)),
        ("c.x", pa.struct([("x", type)])),
    ):
        columns = pa.schema([("c", nested)])
        refused(f"{path!r} … hint: … {hint}", declared.stored_schema, columns)


def test_types_that_are_nested_too_deeply_are_refused():
    type = pa.int32()
    for _ in range(declared.DEPTH_MAX):
        type = pa.list_(type)
    refused("deeper", declared.stored_schema, pa.schema([("c", type)]))
