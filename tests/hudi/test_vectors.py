"""Hudi's type VECTOR: a fixed-size list of numbers, stored as bytes."""

from __future__ import annotations

import json
import struct

import pyarrow as pa
import pytest
from foreign_tables import ForeignTable, avro_rows, parquet_rows, record

import mdt
from mdt.errors import Corrupt, Unsupported
from mdt.hudi.avro_columns import arrow_schema, vectors
from mdt.hudi.read.table_schema import convert_values

KINDS = {"FLOAT": ("f", pa.float32()), "DOUBLE": ("d", pa.float64()), "INT8": ("b", pa.int8())}
NUMBERS = (1, -2, 3)


def vector(kind="FLOAT", **other):
    type = {
        "type": "fixed",
        "name": "v",
        "size": 3 * struct.calcsize(KINDS[kind][0]),
        "logicalType": "vector",
        "dimension": 3,
        "elementType": kind,
        "storageBacking": "FIXED_BYTES",
    }
    return {**type, **other}


def vector_bytes(kind, numbers=NUMBERS):
    return struct.pack(f"<3{KINDS[kind][0]}", *numbers)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", [avro_rows, parquet_rows])
def test_vectors_in_base_and_log_files_are_lists(kind, form):
    plain = {"type": "fixed", "name": "v", "size": len(vector_bytes(kind))}
    table = ForeignTable({"id": "string", "v": plain})  # in Parquet, a vector is only bytes
    table.base(1, [{"id": "a", "v": vector_bytes(kind)}, {"id": "b", "v": None}])
    block = table.upsert(2, [{"id": "c", "v": vector_bytes(kind, (4, 5, 6))}], form=form)
    table.schema = record({"id": "string", "v": vector(kind)})
    table.log(2, block)
    t = mdt.open(table.storage)
    [_, column] = t.schema
    assert column.type == pa.list_(pa.field("element", KINDS[kind][1], nullable=False), 3)
    rows = t.scan().to_arrow().sort_by("id").to_pylist()
    assert [row["v"] for row in rows] == [[*NUMBERS], None, [4, 5, 6]]
    assert t.scan("v is null").count() == 1
    with pytest.raises(Unsupported, match="'v': it has values of Hudi's type VECTOR"):
        mdt.adopt(table.storage)


def test_an_avro_block_with_the_vector_type_has_vectors():
    table = ForeignTable({"id": "string", "v": vector()})
    table.log(1, table.upsert(1, [{"id": "a", "v": vector_bytes("FLOAT")}]))
    assert table.live("id", "v") == [("a", [*NUMBERS])]


def test_sliced_and_null_vectors_are_converted():
    type = pa.list_(pa.field("element", pa.int8(), nullable=False), 2)
    values = pa.array([b"ab", None, b"cd", b"ef"], pa.binary(2))
    assert convert_values(values[1:], type).to_pylist() == [None, [99, 100], [101, 102]]
    assert convert_values(values[:0], type).to_pylist() == []


@pytest.mark.parametrize(
    ("other", "error", "reason"),
    [
        ({"elementType": "INT4"}, Unsupported, "vectors of INT4"),
        ({"storageBacking": "LIST"}, Unsupported, "in the form LIST"),
        ({"elementType": None}, Unsupported, "vectors of None"),
        ({"dimension": 0}, Corrupt, "a vector of 0 numbers"),
        ({"dimension": "3"}, Corrupt, "a vector of '3' numbers"),
        ({"dimension": 2**40}, Corrupt, "numbers"),
        ({"dimension": 2}, Corrupt, "12 bytes are no vector of 2 numbers"),
    ],
)
def test_unsupported_and_invalid_vector_types_are_refused(other, error, reason):
    with pytest.raises(error, match=reason):
        arrow_schema(json.dumps(record({"v": vector(**other)})))


def test_vectors_of_another_size_are_corrupt_and_lists_cannot_be_converted():
    type = pa.list_(pa.field("element", pa.float32(), nullable=False), 3)
    with pytest.raises(Corrupt, match="8 bytes are no vector of 3 numbers"):
        vectors(pa.array([bytes(8)], pa.binary(8)), type)
    with pytest.raises(Unsupported, match="cannot be converted"):
        convert_values(pa.array([[1.0, 2.0, 3.0]], pa.list_(pa.float32())), type)
