"""Frames, packs and Arrow sections: encoding round-trips, and all damage is detected."""

import struct
import zlib

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from texts import columns

from mdt import limits
from mdt.errors import Corrupt, Unsupported
from mdt.metadata.log import codec

TABLE = pa.table(
    {
        "a": pa.array([1, None, 3]),
        "b": ["x", "y", None],
        "c": pa.array(["p", "q", "p"]).dictionary_encode(),
    }
)
SECTIONS = st.dictionaries(st.text(max_size=8), st.binary(max_size=40), max_size=4)


def unframe(data, kind=b"TEST", version_max=65535):
    return codec.unframe(data, kind, path="some/object", version_max=version_max)


def packed(document, body=b"", length=None):
    padding = bytes(-len(document) % 8)
    return (
        struct.pack("<II", len(document) if length is None else length, 0)
        + document
        + padding
        + body
    )


@given(st.binary(max_size=200), st.integers(0, 65535))
def test_a_frame_returns_its_payload(payload, version):
    data = codec.frame(b"TEST", version, [payload[:7], payload[7:]])
    assert bytes(unframe(data, version_max=version)) == payload


@given(st.binary(max_size=60), st.data())
@settings(max_examples=30)
def test_every_flipped_bit_and_every_truncation_of_a_frame_is_detected(payload, data):
    frame = codec.frame(b"TEST", 1, payload)
    for bit in range(len(frame) * 8):
        damaged = bytearray(frame)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Corrupt):
            unframe(damaged)
    longer = frame + data.draw(st.binary(min_size=1, max_size=9))
    for changed in (longer, *(frame[:end] for end in range(len(frame)))):
        with pytest.raises(Corrupt):
            unframe(changed)


def test_an_error_of_a_frame_reports_its_path_offset_and_cause():
    newer = codec.frame(b"TEST", 3, b"")
    refused("some/object … upgrade", unframe, newer, version_max=2, kind=Unsupported)
    frame = codec.frame(b"TEST", 1, b"payload")
    error = refused("some/object", unframe, frame[:-1] + b"!", kind=Corrupt)
    assert isinstance(error, Corrupt)
    assert (error.path, error.offset) == ("some/object", 12) and error.expected != error.got
    refused("a wrong kind", unframe, frame, b"ELSE", kind=Corrupt)


@given(st.dictionaries(st.text(max_size=5), st.integers() | st.text() | st.none()), SECTIONS)
def test_a_pack_returns_its_header_and_aligned_sections(header, sections):
    data = codec.frame(b"TEST", 1, codec.pack(header, sections))
    unpacked_header, views = codec.unpack(unframe(data), path="p")
    assert unpacked_header == header
    assert {name: bytes(view) for name, view in views.items()} == sections
    for view in views.values():
        assert len(view) == 0 or pa.py_buffer(view).address % 8 == 0


@given(st.binary(max_size=80))
def test_unpacking_arbitrary_bytes_raises_nothing_but_corrupt(payload):
    for data in (
        payload,
        packed(payload),
        packed(b'{"header":{},"sections":[["a",0,1]]}', payload),
    ):
        try:
            codec.unpack(data, path="p")
        except Corrupt:
            pass


@pytest.mark.parametrize(
    "document",
    [
        b"[]",
        b"{}",
        b'{"header":1,"sections":[]}',
        b'{"header":{},"sections":{}}',
        b"[" * 100_000,
        b'{"header":{"a":NaN},"sections":[]}',
        b'{"header":{},"sections":[["a",0,9]]}',
        b'{"header":{},"sections":[["a",-8,16]]}',
        b'{"header":{},"sections":[["a",8,0]]}',
        b'{"header":{},"sections":[["a",0,8],["a",8,0]]}',
        b'{"header":{},"sections":[["a",0,true]]}',
        b'{"header":{},"sections":[["a",0,-1]]}',
        b'{"header":{},"sections":[[1,0,8]]}',
        b'{"header":{},"sections":[["a",0,1e3]]}',
        b'{"header":{},"sections":[["a",0,4611686018427387904]]}',
        b'{"header":{},"sections":[]}',
        b"\xff",
        b"9" * 5000,
    ],
)
def test_an_invalid_pack_header_is_corrupt(document):
    with pytest.raises(Corrupt):
        codec.unpack(packed(document, b"12345678"), path="p")


@pytest.mark.parametrize("length", [1, 2**31, 2**32 - 1])
def test_a_header_length_beyond_the_data_is_corrupt(length):
    with pytest.raises(Corrupt):
        codec.unpack(packed(b"", b"", length), path="p")


@pytest.mark.parametrize("compression", [None, "lz4"])
@pytest.mark.parametrize(
    "table", [TABLE, TABLE.slice(0, 0), pa.concat_tables([TABLE, TABLE]), pa.table({})]
)
def test_an_encoded_table_decodes_to_the_same_table(table, compression):
    data = codec.encode_ipc(table, compression=compression)
    decoded = codec.decode_ipc(data, table.schema, path="p")
    assert decoded.equals(table)
    assert codec.decode_ipc(memoryview(data), None, path="p").equals(table)


def test_an_uncompressed_table_is_used_in_place():
    table = pa.table({"a": list(range(10_000))})
    data = codec.frame(b"TEST", 1, codec.pack({}, {"one": b"x", "t": codec.encode_ipc(table)}))
    _, sections = codec.unpack(unframe(data), path="p")
    start = pa.py_buffer(data).address
    column = codec.decode_ipc(sections["t"], table.schema, path="p")["a"].chunk(0)
    assert start < column.buffers()[1].address < start + len(data)


def test_a_table_with_another_schema_is_corrupt():
    data = codec.encode_ipc(TABLE)
    for other_schema in (columns("a int32"), TABLE.schema.remove(0)):
        refused("a wrong schema", codec.decode_ipc, data, other_schema, path="p", kind=Corrupt)


@pytest.mark.parametrize("compression", [None, "lz4"])
def test_a_truncated_or_extended_table_is_corrupt(compression):
    data = bytes(codec.encode_ipc(pa.concat_tables([TABLE, TABLE]), compression=compression))
    for end in range(len(data)):
        with pytest.raises(Corrupt):
            codec.decode_ipc(data[:end], None, path="p")
    if compression is None:
        with pytest.raises(Corrupt):
            codec.decode_ipc(data + bytes(8), None, path="p")


@pytest.mark.parametrize(
    "size", [limits.UNFOLDED_BYTES_MAX + 1, limits.UNFOLDED_BYTES_MAX, 2**63, 2**64 - 1, 0, 7]
)
def test_a_compressed_table_with_a_false_uncompressed_size_is_corrupt(size):
    data = bytearray(codec.encode_ipc(TABLE, compression="lz4"))
    data[8:16] = struct.pack("<Q", size)
    with pytest.raises(Corrupt):
        codec.decode_ipc(data, None, path="p")


def test_invalid_utf8_that_arrow_reads_unchecked_is_corrupt():
    invalid_utf8 = pa.StringArray.from_buffers(
        1, pa.py_buffer(struct.pack("<ii", 0, 2)), pa.py_buffer(b"\xff\xfe")
    )
    data = codec.encode_ipc(pa.table({"s": invalid_utf8}))
    refused("UTF8", codec.decode_ipc, data, None, path="p", kind=Corrupt)


def test_a_frame_has_the_documented_layout():
    data = codec.frame(b"TEST", 2, b"abc")
    head = b"MDT1" + b"TEST" + struct.pack("<HH", 2, 0)
    crc = zlib.crc32(head + struct.pack("<IQ", 0, 3) + b"abc")
    assert data == head + struct.pack("<IQ", crc, 3) + b"abc"
