"""Avro files of any writer: files of Hudi are read, and hostile files are refused at no cost."""

from __future__ import annotations

import io
import json

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdt.errors import Corrupt, Unsupported
from mdt.hudi import compaction_plan
from mdt.hudi.read.untrusted_avro import MAGIC, read_record, write_values
from mdt.limits import AVRO_SCHEMA_BYTES_MAX, AVRO_SCHEMA_DEPTH_MAX

STRING = {"type": "string", "avro.java.string": "String"}
SYNC = b"0123456789abcdef"


def record(*fields: object, name: str = "R", **more: object) -> dict[str, object]:
    """Return a record type with the fields f0, f1 … of the given types."""
    named = [{"name": f"f{number}", "type": type} for number, type in enumerate(fields)]
    return {"type": "record", "name": name, "fields": named, **more}


def avro_file(schema: object, value: object, codec: str = "null") -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, schema, [value], codec=codec, sync_marker=SYNC)
    return out.getvalue()


def number(value: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "long", value)
    return out.getvalue()


def raw_file(schema: object, content: bytes, count: int = 1) -> bytes:
    """Return an Avro file with any schema and any content."""
    text = json.dumps(schema).encode() if not isinstance(schema, bytes) else schema
    header = number(1) + number(11) + b"avro.schema" + number(len(text)) + text + number(0)
    return MAGIC + header + SYNC + number(count) + number(len(content)) + content + SYNC


def assert_corrupt(data: bytes) -> Corrupt:
    with pytest.raises(Corrupt) as caught:
        read_record(data, "t/1.commit")
    assert caught.value.path == "t/1.commit"
    return caught.value


def test_every_type_is_read_and_logical_types_are_not_applied():
    inner = record("int", name="Inner", namespace="a.b")
    schema = record(
        STRING,
        {"type": "map", "values": STRING, "avro.java.string": "String"},
        {"type": "array", "items": ["null", inner]},
        {"type": "enum", "name": "E", "symbols": ["x", "y"]},
        {"type": "fixed", "name": "F", "size": 2},
        {"type": "int", "logicalType": "date"},
        ["null", "a.b.Inner"],
        "boolean",
        "double",
        "bytes",
    )
    value = {
        "f0": "é",
        "f1": {"k": "v"},
        "f2": [None, {"f0": 7}],
        "f3": "y",
        "f4": b"ab",
        "f5": 19_000,
        "f6": {"f0": 8},
        "f7": True,
        "f8": 0.5,
        "f9": b"\xff",
    }
    assert read_record(avro_file(schema, value), "p") == value


def test_files_written_by_mdt_are_read():
    [operation] = read_record(
        compaction_plan.encode([{"baseInstantTime": "1", "fileId": "f", "partitionPath": ""}]), "p"
    )["operations"]
    assert (operation["fileId"], operation["partitionPath"]) == ("f", "")


def test_a_compressed_file_is_not_supported():
    data = avro_file(record("string"), {"f0": "a" * 100}, codec="deflate")
    with pytest.raises(Unsupported, match="deflate"):
        read_record(data, "p")


@pytest.mark.parametrize("end", [0, 3, 4, 10, 30, -17, -1])
def test_a_truncated_file_is_corrupt(end):
    assert_corrupt(avro_file(record("string"), {"f0": "text"})[:end])


@given(st.data())
def test_a_damaged_file_is_read_or_corrupt(data):
    stored = bytearray(
        compaction_plan.encode([{"baseInstantTime": "1", "fileId": "f", "deltaFilePaths": ["a"]}])
    )
    for _ in range(data.draw(st.integers(1, 4))):
        stored[data.draw(st.integers(0, len(stored) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert isinstance(read_record(bytes(stored), "p"), dict)
    except (Corrupt, Unsupported):
        pass


@given(st.binary(max_size=200))
def test_random_bytes_are_corrupt(data):
    assert_corrupt(data)
    assert_corrupt(MAGIC + data)


@pytest.mark.parametrize(
    ("count", "content", "message"),
    [
        (0, b"", "one record"),
        (2, number(1) * 2, "one record"),
        (-1, number(1), "one record"),
        (1, number(1) * 2, "left over"),
        (1, b"", ""),
    ],
)
def test_a_file_without_exactly_one_record_is_corrupt(count, content, message):
    assert message in str(assert_corrupt(raw_file(record("int"), content, count)))


def test_bytes_after_the_block_are_corrupt():
    assert_corrupt(raw_file(record("int"), number(1)) + b"x")
    assert_corrupt(raw_file(record("int"), number(1))[:-1] + b"x")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": "null"},
        {"type": "array", "items": {"type": "null"}},
        {"type": "array", "items": record()},
        {"type": "array", "items": record("null")},
        {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}},
        {"type": "array", "items": {"type": "fixed", "name": "F", "size": -1}},
        {"type": "map", "values": "null"},
    ],
    ids=str,
)
def test_lists_and_maps_of_values_without_bytes_are_refused_before_they_are_decoded(schema):
    # without the check, this list has 2^60 items
    content = number(1 << 60) + number(0)
    assert "values without bytes" in str(assert_corrupt(raw_file(record(schema), content)))


@pytest.mark.parametrize(
    "schema",
    [
        record("R"),
        record(["null", "R"]),
        record({"type": "array", "items": "R"}),
        record(record(["null", "n.R"], name="S"), namespace="n"),
    ],
    ids=str,
)
def test_recursive_schemas_are_refused(schema):
    # with 100,000 levels, decoding would exhaust the stack of the process
    assert "recursive" in str(assert_corrupt(raw_file(schema, b"\x02" * 100_000)))


def test_deep_schemas_are_refused():
    def nested(levels: int) -> object:
        schema: object = "int"
        for _ in range(levels):
            schema = {"type": "array", "items": schema}
        return record(schema)

    assert read_record(raw_file(nested(AVRO_SCHEMA_DEPTH_MAX - 2), b"\x00"), "p") == {"f0": []}
    assert "too deeply" in str(assert_corrupt(raw_file(nested(AVRO_SCHEMA_DEPTH_MAX), b"\x00")))
    deep = b'{"type":"array","items":' * 50_000 + b'"int"' + b"}" * 50_000
    assert_corrupt(raw_file(deep, b"\x00"))
    assert_corrupt(raw_file(b"[" * 100_000, b"\x00"))


def test_a_large_schema_is_refused():
    schema = record("int", doc="x" * AVRO_SCHEMA_BYTES_MAX)
    assert "too large" in str(assert_corrupt(raw_file(schema, number(1))))


@pytest.mark.parametrize(
    "schema",
    [
        b"",
        b"\xff",
        b"1",
        b"null",
        b'"int"',
        b'"unknown"',
        b"{}",
        b"[]",
        b'{"type": 5}',
        b'{"type": "record", "name": "R"}',
        b'{"type": "record", "name": "R", "fields": 1}',
        b'{"type": "record", "name": "R", "fields": [1]}',
        b'{"type": "record", "name": "1 2", "fields": [{"name": "a", "type": "int"}]}',
        b'{"type": "record", "name": "R", "fields": [{"name": "a", "type": "R2"}]}',
        b'{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", 5]}]}',
        b'{"type": "record", "name": "R", "fields": [{"name": "a", "type": []}]}',
        b'{"type": "fixed", "name": "F", "size": 1000000000000000000000}',
        b'{"type": "fixed", "name": "F", "size": "2"}',
        b'{"type": "enum", "name": "E", "symbols": 1}',
        b'{"type": "array"}',
    ],
)
def test_a_schema_that_is_not_a_valid_record_is_corrupt(schema):
    assert_corrupt(raw_file(schema, b"\x02" * 40))


@pytest.mark.parametrize(
    ("schema", "content"),
    [
        ("string", number(1 << 60)),
        ("string", number(-5)),
        ("string", number(2) + b"\xff\xff"),
        ("bytes", number((1 << 63) - 1)),
        ({"type": "array", "items": "int"}, number(1 << 60)),
        ({"type": "array", "items": "int"}, number(-(1 << 60)) + number(1)),
        ({"type": "map", "values": "int"}, number(1 << 60)),
        (["null", "int"], number(7)),
        (["null", "int"], number(-3)),
        ({"type": "enum", "name": "E", "symbols": ["x"]}, number(7)),
        ("long", b"\xff" * 30),
        ({"type": "fixed", "name": "F", "size": 1 << 62}, b""),
    ],
    ids=str,
)
def test_lengths_and_indexes_that_do_not_fit_are_corrupt(schema, content):
    assert_corrupt(raw_file(record(schema), content))


def test_values_are_written_and_a_schema_that_lacks_one_of_their_fields_is_corrupt():
    nested = record(["null", {"type": "map", "values": record("long", name="N")}], ["null", "int"])
    schema = json.dumps(nested)
    written = write_values([{"f0": {"a": {"f0": 1}}}], schema, "a")
    assert written == [b"\2\2\2a\2\0\0"]
    for value in ({"f9": 1}, {"f0": {"a": {"f0": 1, "isDeleted": True}}}):
        with pytest.raises(Corrupt, match="no place for a record"):
            write_values([value], schema, "a")
