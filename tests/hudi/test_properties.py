from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mdt
from mdt.errors import Corrupt, Invalid, Unsupported
from mdt.hudi import properties, v6
from mdt.stores.storage import MemoryStorage

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64())])
TRIPS = mdt.create(MemoryStorage(), SCHEMA, ["id"], partition_by=["city"], ordering="ts")


def properties_of(**more):
    """Return the properties of the trips table, with changes of its definition."""
    return v6.Version6().properties(replace(TRIPS.definition, **more))


TABLE = properties_of()


@given(st.dictionaries(TEXT, TEXT, max_size=5))
def test_properties_round_trip(values):
    assert properties.decode(properties.encode(values)) == values


@given(st.binary(max_size=60))
def test_random_bytes_decode_or_are_corrupt(data):
    try:
        values = properties.decode(data)
    except Corrupt:
        return
    assert properties.decode(properties.encode(values)) == values


def test_properties_are_encoded_as_by_java():
    values = {"a b": " x", "k:=": "#1!\\\n\tü", "emoji": "\U0001f600"}
    assert (
        properties.encode(values)
        == b"a\\ b=\\ x\nemoji=\\uD83D\\uDE00\nk\\:\\==\\#1\\!\\\\\\n\\t\\u00FC\n"
    )


def test_comments_continued_lines_and_escapes_of_java_are_decoded():
    text = b"# comment\n! another\r\n\n  a : 1\rb 2\nc=x\\\n   y\\\\\nd\ne==\nf\\u0041=\\q\\\n"
    expected = {"a": "1", "b": "2", "c": "xy\\", "d": "", "e": "=", "fA": "q"}
    assert properties.decode(text) == expected


@pytest.mark.parametrize("data", [b"a=\\u12", b"a=\\uXXXX", b"a=\\uD83D"])
def test_malformed_escapes_are_corrupt(data):
    with pytest.raises(Corrupt):
        properties.decode(data)


def test_checksums_equal_those_of_tables_written_by_hudi():
    assert properties.checksum("default", "v6_trips_8i3d") == "3180720914"
    assert properties.checksum("default", "v6_nonpartitioned") == "1363530505"


def test_the_properties_of_a_new_table_are_valid():
    properties.verify(properties.decode(properties.encode(TABLE)))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"hoodie.table.name": "other"}, Corrupt),
        ({"hoodie.table.checksum": "1"}, Corrupt),
        ({"hoodie.table.type": ""}, Corrupt),
        ({"hoodie.table.type": "LOG_ONLY"}, Unsupported),
        ({"hoodie.table.version": "7"}, Unsupported),
        ({"hoodie.timeline.layout.version": "2"}, Unsupported),
    ],
)
def test_wrong_properties_are_refused(change, error):
    with pytest.raises(error):
        properties.verify({**TABLE, **change})


def test_partition_metadata_has_the_commit_time_and_the_depth():
    data = properties.partition_metadata("20261121053000123", 2)
    assert properties.decode(data) == {"commitTime": "20261121053000123", "partitionDepth": "2"}


def test_the_payload_class_follows_from_the_ordering_field():
    assert TABLE["hoodie.compaction.payload.class"] == v6.EVENT_TIME_PAYLOAD
    assert TABLE["hoodie.table.precombine.field"] == "ts"
    plain = properties_of(partition_by=(), ordering=())
    assert plain["hoodie.compaction.payload.class"] == v6.COMMIT_TIME_PAYLOAD
    assert "hoodie.table.precombine.field" not in plain
    assert "hoodie.table.partition.fields" not in plain


@pytest.mark.parametrize(
    ("keys", "partition_by", "kind"),
    [
        (["a"], [], "Nonpartitioned"),
        (["a"], ["p"], "Simple"),
        (["a", "b"], ["p"], "Complex"),
        (["a"], ["p", "q"], "Complex"),
    ],
)
def test_the_key_generator_follows_from_key_and_partition_fields(keys, partition_by, kind):
    assert v6.key_generator(keys, partition_by) == f"org.apache.hudi.keygen.{kind}KeyGenerator"


@pytest.mark.parametrize("name", ["", " a", "a\n", "x" * 256])
def test_invalid_table_names_are_refused(name):
    with pytest.raises(Invalid):
        properties_of(name=name)
