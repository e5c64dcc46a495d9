"""Delete blocks of mdt and of other writers decode to keys, partitions and ordering values."""

from __future__ import annotations

import struct
from datetime import UTC
from decimal import Decimal

import pyarrow as pa
import pytest
from foreign_tables import MODEL, delete_content, wrapped
from hypothesis import given
from hypothesis import strategies as st

from mdt.errors import Corrupt
from mdt.hudi import log_file
from mdt.hudi.delete_records import decode_delete_block

KEYS = st.lists(st.text(max_size=100), max_size=12)
ITEMS = {
    "BooleanWrapper": st.booleans(),
    "IntWrapper": st.integers(-(2**31), 2**31 - 1),
    "LongWrapper": st.integers(-(2**63), 2**63 - 1),
    "FloatWrapper": st.floats(width=32, allow_nan=False),
    "DoubleWrapper": st.floats(allow_nan=False),
    "BytesWrapper": st.binary(max_size=200),
    "StringWrapper": st.text(max_size=200),
    "DateWrapper": st.dates(),
    "DecimalWrapper": st.integers(-(10**30) + 1, 10**30 - 1).map(lambda n: Decimal(f"{n}e-15")),
    "TimestampMicrosWrapper": st.datetimes(timezones=st.just(UTC)),
}


WRAPPED = st.one_of(
    *(values.map(lambda value, name=name: wrapped(name, value)) for name, values in ITEMS.items())
)
ARRAYS = st.none() | st.lists(st.none() | WRAPPED, max_size=3)
ORDERING = (
    st.none()
    | WRAPPED
    | ARRAYS.map(lambda items: (f"{MODEL}.ArrayWrapper", {"wrappedValues": items}))
)
TEXTS = st.none() | st.text(max_size=70)


def delete_block_content(keys, partitions="city=x"):
    if not isinstance(partitions, str):
        partitions = pa.array(partitions, pa.string())
    block = log_file.delete_block(
        pa.array(keys, pa.string()),
        partitions,
        instant="20261121053000002",
        avro_schema="{}",
        positions=None,
        base_instant=None,
    )
    [parsed] = log_file.parse(block, path="x.log")
    return parsed.content


def unwrapped(ordering):
    """Return the Python value of an ordering value that was converted to Arrow."""
    if ordering is None:
        return None
    name, fields = ordering
    if not name.endswith("ArrayWrapper"):
        return fields
    items = fields["wrappedValues"]
    return {"wrappedValues": None if items is None else [unwrapped(item) for item in items]}


@given(KEYS, st.text(max_size=70))
def test_deletes_of_one_partition_round_trip(keys, partition):
    rows = decode_delete_block(delete_block_content(keys, partition)).to_pylist()
    ordering = {"value": 0}
    assert rows == [{"key": key, "partition": partition, "ordering": ordering} for key in keys]


@given(st.lists(st.tuples(st.text(max_size=70), st.text(max_size=70)), max_size=8))
def test_deletes_of_several_partitions_round_trip(pairs):
    content = delete_block_content([key for key, _ in pairs], [partition for _, partition in pairs])
    rows = decode_delete_block(content).to_pylist()
    assert [(row["key"], row["partition"]) for row in rows] == pairs


@given(KEYS)
def test_delete_blocks_have_the_bytes_that_fastavro_writes(keys):
    record = {"partitionPath": "city=x", "orderingVal": wrapped("IntWrapper", 0)}
    assert bytes(delete_block_content(keys)) == delete_content(
        [{**record, "recordKey": key} for key in keys]
    )


@given(st.lists(st.tuples(TEXTS, TEXTS, ORDERING), max_size=6))
def test_deletes_of_other_writers_are_decoded_with_their_ordering_values(records):
    content = delete_content(
        [
            {"recordKey": key, "partitionPath": partition, "orderingVal": ordering}
            for key, partition, ordering in records
        ]
    )
    rows = decode_delete_block(content).to_pylist()
    expected = [(key, partition, unwrapped(ordering)) for key, partition, ordering in records]
    assert [(row["key"], row["partition"], row["ordering"]) for row in rows] == expected


@given(st.data())
def test_damaged_delete_content_is_corrupt_or_decodes_to_other_deletes(data):
    content = bytearray(delete_block_content(["a", "b" * 80]))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_delete_block(bytes(content))
    except Corrupt:
        pass


@given(st.data())
def test_damaged_ordering_values_are_corrupt_or_decode_to_other_values(data):
    ordering = data.draw(ORDERING)
    record = {"recordKey": "a", "partitionPath": None, "orderingVal": ordering}
    content = bytearray(delete_content([record, record]))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(8, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_delete_block(bytes(content))
    except Corrupt:
        pass


@pytest.mark.parametrize(
    "body",
    [
        b"\x02\x02\x02a\x00" + b"\xff" * 100 + b"\x00",
        b"\x02" + b"\xff" * 1000,
        b"\x02\x02\x01a\x00\x00\x00",
        b"\x02\x00\x00\x18\x02" + b"\x90\x4e" + b"\x00" * 10_001 + b"\x00",
        b"\x02\x00\x00\x00\x00\x00",
        b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    ],
    ids=["long branch", "long number", "negative length", "long array", "left over", "many"],
)
def test_impossible_records_are_corrupt(body):
    with pytest.raises(Corrupt):
        decode_delete_block(struct.pack(">ii", 3, len(body)) + body)


@pytest.mark.parametrize("content", [b"", b"\x00" * 7, b"\x00\x00\x00\x02\x00\x00\x00\x01\x00"])
def test_a_wrong_version_or_length_is_corrupt(content):
    with pytest.raises(Corrupt, match="version or length"):
        decode_delete_block(content)
