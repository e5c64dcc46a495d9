"""Avro records decoded in columns equal fastavro's rows, whatever the schema; damaged bytes raise."""

import io
import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mdt.errors import Corrupt, MdtError, Unsupported
from mdt.hudi import avro_columns
from mdt.hudi.avro_columns import decode

EPOCH = datetime(1970, 1, 1)
TEXTS = st.text(max_size=9)
LONGS = st.integers(-(2**63), 2**63 - 1)
MICROS = st.integers(-(10**15), 10**15)
PLAIN = (
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", LONGS),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", st.floats(allow_nan=False)),
    ("bytes", st.binary(max_size=9)),
    ("string", TEXTS),
    ({"type": "int", "logicalType": "date"}, st.dates()),
    ({"type": "long", "logicalType": "time-micros"}, st.times()),
    (
        {"type": "long", "logicalType": "timestamp-micros"},
        MICROS.map(lambda us: EPOCH.replace(tzinfo=UTC) + timedelta(microseconds=us)),
    ),
    (
        {"type": "long", "logicalType": "local-timestamp-millis"},
        MICROS.map(lambda us: EPOCH + timedelta(milliseconds=us // 1000)),
    ),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 3},
        st.integers(1 - 10**38, 10**38 - 1).map(lambda n: Decimal(f"{n}e-3")),
    ),
    ("null", st.none()),
)


def named(number):
    """Types with a name, which a schema can define only once."""
    return (
        ({"type": "fixed", "name": f"fixed{number}", "size": 3}, st.binary(min_size=3, max_size=3)),
        (
            {
                "type": "fixed",
                "name": f"decimal{number}",
                "size": 5,
                "logicalType": "decimal",
                "precision": 9,
                "scale": 2,
            },
            st.integers(1 - 10**9, 10**9 - 1).map(lambda n: Decimal(f"{n}e-2")),
        ),
        (
            {"type": "enum", "name": f"enum{number}", "symbols": ["A", "B", "C"]},
            st.sampled_from("ABC"),
        ),
    )


@st.composite
def types(draw, numbers, depth=2):
    """An Avro type and a strategy of its values."""
    form = draw(st.sampled_from(("plain", "named", "nullable", "array", "map", "record")))
    if form == "plain" or depth == 0:
        return draw(st.sampled_from(PLAIN))
    if form == "named":
        return draw(st.sampled_from(named(next(numbers))))
    if form == "record":
        members = draw(st.lists(types(numbers, depth - 1), max_size=3))
        fields = [{"name": f"f{at}", "type": type} for at, (type, _) in enumerate(members)]
        values = {f"f{at}": strategy for at, (_, strategy) in enumerate(members)}
        record = {"type": "record", "name": f"record{next(numbers)}", "fields": fields}
        return record, st.fixed_dictionaries(values)
    type, values = draw(types(numbers, depth - 1))
    if form == "nullable":
        assume(type != "null" and not isinstance(type, list))
        return draw(st.permutations(["null", type])), st.none() | values
    assume(not takes_no_bytes(type))
    if form == "array":
        return {"type": "array", "items": type}, st.lists(values, max_size=4)
    return {"type": "map", "values": type}, st.dictionaries(TEXTS, values, max_size=3)


def takes_no_bytes(type):
    if isinstance(type, dict) and type["type"] == "record":
        return all(takes_no_bytes(member["type"]) for member in type["fields"])
    return type == "null"


@st.composite
def tables(draw):
    """A schema and rows."""
    members = draw(st.lists(types(iter(range(1000))), min_size=1, max_size=4))
    fields = [{"name": f"c{at}", "type": type} for at, (type, _) in enumerate(members)]
    schema = {"type": "record", "name": "row", "namespace": "n.s", "fields": fields}
    values = {f"c{at}": strategy for at, (_, strategy) in enumerate(members)}
    return schema, draw(st.lists(st.fixed_dictionaries(values), max_size=6))


def encoded(schema, rows):
    """The records with a gap before each, and where they are."""
    parsed, out, starts, ends = fastavro.parse_schema(schema), io.BytesIO(), [], []
    for row in rows:
        out.write(b"\xff\xff\xff\xff")
        starts.append(out.tell())
        fastavro.schemaless_writer(out, parsed, row)
        ends.append(out.tell())
    return out.getvalue(), np.array(starts, np.int64), np.array(ends, np.int64)


def plain(value):
    """A value of Arrow as fastavro has it."""
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return {key: plain(item) for key, item in value}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def without_maps(value):
    """Empty maps and lists look alike in Arrow."""
    if isinstance(value, dict):
        return {key: without_maps(item) for key, item in value.items()} or []
    return [without_maps(item) for item in value] if isinstance(value, list) else value


@given(tables())
def test_rows_equal_those_of_fastavro(table):
    schema, rows = table
    data, starts, ends = encoded(schema, rows)
    decoded = decode(data, starts, ends, json.dumps(schema))
    assert decoded.num_rows == len(rows)
    assert without_maps(plain(decoded.to_pylist())) == without_maps(rows)
    decoded.validate(full=True)


@given(tables(), st.data())
def test_some_fields_are_read_without_the_others(table, data):
    schema, rows = table
    content, starts, ends = encoded(schema, rows)
    columns = decode(content, starts, ends, json.dumps(schema))
    names = data.draw(st.lists(st.sampled_from(columns.column_names), min_size=1, unique=True))
    names.sort(key=columns.column_names.index)
    chosen = decode(content, starts, ends, json.dumps(schema), names)
    assert chosen.schema == columns.select(names).schema
    assert repr(chosen.to_pylist()) == repr(columns.select(names).to_pylist())


@given(tables(), st.data())
def test_damaged_bytes_give_rows_or_an_error_of_ours(table, data):
    schema, rows = table
    content, starts, ends = encoded(schema, rows)
    assume(len(content) > 4 * len(rows))
    at = data.draw(st.integers(0, len(content) - 1))
    damaged = bytearray(content)
    damaged[at] ^= data.draw(st.integers(1, 255))
    try:
        decode(bytes(damaged), starts, ends, json.dumps(schema)).validate(full=True)
    except MdtError:
        pass
    with pytest.raises(Corrupt):
        decode(content[:-1], starts, ends, json.dumps(schema))


def test_values_of_maps_are_required_unless_their_type_has_null():
    fields = [
        {"name": name, "type": {"type": "map", "values": values}}
        for name, values in (("a", "int"), ("b", ["null", "int"]))
    ]
    types = avro_columns.arrow_schema(
        json.dumps({"type": "record", "name": "r", "fields": fields})
    ).types
    assert [type.item_field.nullable for type in types] == [False, True]


def test_unions_of_several_types_keep_each_value():
    wrapper = {"type": "record", "name": "W", "fields": [{"name": "value", "type": "int"}]}
    schema = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "x", "type": ["null", "string", wrapper]}, {"name": "y", "type": "W"}],
    }
    rows = [{"x": x, "y": {"value": 7}} for x in (None, "a", {"value": 3}, "b")]
    data, starts, ends = encoded(schema, rows)
    assert decode(data, starts, ends, json.dumps(schema)).to_pylist() == rows


LIST = {"type": "array", "items": "int"}


@pytest.mark.parametrize(
    ("type", "content", "error", "message"),
    [
        ("long", b"\xff" * 9 + b"\x02", Corrupt, "more than 64 bits"),
        ("long", b"\x80", Corrupt, "does not fit"),
        ("int", b"\x80\x80\x80\x80\x20", Corrupt, "more than 32 bits"),
        ("boolean", b"\x02", Corrupt, "neither 0 nor 1"),
        ({"type": "long", "logicalType": "time-micros"}, b"\x01", Corrupt, "acceptable range"),
        ("string", b"\x04a", Corrupt, "does not fit"),
        ("string", b"\x01", Corrupt, "does not fit"),
        ("string", b"\x02\xff", Corrupt, "not UTF-8"),
        ("string", b"\x02ab", Corrupt, "left over"),
        (["null", "int"], b"\x04", Corrupt, "unknown branch"),
        (LIST, b"\xfe\xff\xff\xff\x0f", Corrupt, "more items than bytes"),
        (LIST, b"\x02\x80\x80", Corrupt, "does not fit"),
        ({"type": "array", "items": "null"}, b"\x02\x00", Corrupt, "no bytes"),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, b"\x02", Corrupt, "unknown symbol"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 0},
            b"\x04\x7f\x00",
            Corrupt,
            "does not fit in precision",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 0},
            b"\x02\x01",
            Unsupported,
            "60 digits",
        ),
    ],
)
def test_what_bytes_claim_is_checked(type, content, error, message):
    schema = {"type": "record", "name": "r", "fields": [{"name": "x", "type": type}]}
    with pytest.raises(error, match=message):
        decode(content, np.array([0]), np.array([len(content)]), json.dumps(schema))


def test_blocks_of_an_array_may_have_their_size():
    schema = {"type": "record", "name": "r", "fields": [{"name": "x", "type": LIST}]}
    content = b"\x03\x04\x02\x04\x02\x06\x00"  # two items in 2 bytes, then one
    table = decode(content, np.array([0]), np.array([len(content)]), json.dumps(schema))
    assert table["x"].to_pylist() == [[1, 2, 3]]


def test_an_array_may_have_more_items_than_a_schema_fields(monkeypatch):
    monkeypatch.setattr(avro_columns, "_FIELDS_MAX", 20)
    schema = {"type": "record", "name": "r", "fields": [{"name": "x", "type": LIST}]}
    rows = [{"x": list(range(60))}, {"x": [7]}]
    data, starts, ends = encoded(schema, rows)
    assert decode(data, starts, ends, json.dumps(schema)).to_pylist() == rows
    monkeypatch.setattr(avro_columns, "_VISITS_MAX", 59)
    with pytest.raises(Unsupported, match="59 fields"):
        decode(data, starts, ends, json.dumps(schema))


@pytest.mark.parametrize(
    "schema",
    [
        "",
        "[]",
        '"string"',
        '{"type": "record"}',
        '{"type": "record", "name": "r", "fields": [{"name": "x", "type": "nothing"}]}',
        '{"type": "record", "name": "r", "fields": 7}',
        "[" * 100_000,
        '{"type": "record", "name": "r", "fields": [{"name": 5, "type": "int"}]}',
        '{"type": "record", "name": "r", "fields": [{"name": "\\ud800", "type": "int"}]}',
        " " * (1 << 20) + '{"type": "record", "name": "r", "fields": []}',
    ],
)
def test_a_damaged_schema_is_refused(schema):
    with pytest.raises(Corrupt, match="schema"):
        decode(b"", np.array([], np.int64), np.array([], np.int64), schema)


def test_a_short_schema_of_very_many_fields_is_refused():
    fields = [{"name": "x", "type": "int"}]
    record = {"type": "record", "name": "r0", "fields": fields}
    for level in range(1, 18):
        twice = [{"name": "a", "type": record}, {"name": "b", "type": record["name"]}]
        record = {"type": "record", "name": f"r{level}", "fields": twice}
    with pytest.raises(Unsupported, match="20000 fields"):
        decode(b"", np.array([], np.int64), np.array([], np.int64), json.dumps(record))


def nested(levels):
    type = "int"
    for _ in range(levels):
        type = {"type": "array", "items": type}
    return type


@pytest.mark.parametrize(
    ("type", "error"),
    [
        (["null", "r"], "recursive"),
        ({"type": "array", "items": "r"}, "recursive"),
        ({"type": "map", "values": "r"}, "recursive"),
        (nested(300), "64 levels"),
        ([{"type": "fixed", "name": f"f{at}", "size": 3} for at in range(128)], "128 types"),
        ([], "0 types"),
        ({"type": "fixed", "name": "f", "size": 2**40}, f"{2**40} bytes"),
        ({"type": "error", "name": "e", "fields": []}, "'error'"),
    ],
)
def test_a_schema_that_arrow_cannot_hold_is_refused_without_rows(type, error):
    schema = json.dumps({"type": "record", "name": "r", "fields": [{"name": "x", "type": type}]})
    with pytest.raises(MdtError, match=error):
        decode(b"", np.array([], np.int64), np.array([], np.int64), schema)


@pytest.mark.parametrize("logical", [[], {}, 7, "unknown", None])
def test_an_unknown_logical_type_has_no_effect(logical):
    type = {"type": "int", "logicalType": logical}
    schema = json.dumps({"type": "record", "name": "r", "fields": [{"name": "x", "type": type}]})
    assert decode(b"\x02", np.array([0]), np.array([1]), schema).to_pylist() == [{"x": 1}]


def test_records_outside_of_the_content_are_refused():
    schema = '{"type": "record", "name": "r", "fields": []}'
    for starts, ends in (([0], [9]), ([-1], [0]), ([2], [1]), ([0, 0], [1, 1])):
        with pytest.raises(Corrupt, match="outside"):
            decode(b"abc", np.array(starts), np.array(ends), schema)


def test_types_of_time_are_those_of_arrow():
    kinds = ("date", "time-millis", "time-micros", "timestamp-nanos", "local-timestamp-micros")
    ints = ("date", "time-millis")
    fields = [
        {"name": kind, "type": {"type": "int" if kind in ints else "long", "logicalType": kind}}
        for kind in kinds
    ]
    schema = json.dumps({"type": "record", "name": "r", "fields": fields})
    table = decode(b"\x02" * 5, np.array([0]), np.array([5]), schema)
    assert table.schema.types == [
        pa.date32(),
        pa.time32("ms"),
        pa.time64("us"),
        pa.timestamp("ns", "UTC"),
        pa.timestamp("us"),
    ]
    first = table.to_pylist()[0]
    assert first["date"] == date(1970, 1, 2)
    assert first["time-millis"] == time(microsecond=1000)
