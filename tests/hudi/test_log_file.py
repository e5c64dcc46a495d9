from __future__ import annotations

import base64
import struct
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from mdt.errors import Corrupt, Invalid
from mdt.hudi import file_names, log_file
from mdt.hudi.delete_records import decode_delete_block

T1, T2 = "20261121053000001", "20261121053000002"
FILE_ID = "01234567-89ab-4def-8123-456789abcdef-0"
NAME = log_file.name(FILE_ID, T1, 12, "3-7-1")
PARQUET = b"PAR1 stands for any bytes PAR1"


def delete_block(keys, partitions="city=x", positions=None):
    partition_values = (
        partitions if isinstance(partitions, str) else pa.array(partitions, pa.string())
    )
    headers: dict[str, Any] = {"instant": T2, "avro_schema": "{}", "base_instant": T1}
    return log_file.delete_block(
        pa.array(keys, pa.string()), partition_values, positions=positions, **headers
    )


def data_block(positions=None, content=PARQUET):
    return log_file.data_block(
        content, instant=T2, avro_schema='{"ü":1}', positions=positions, base_instant=T1
    )


def decode_bitmap(positions):
    return BitMap64.deserialize(base64.b64decode(positions))


def parse_single_block(data):
    (block,) = log_file.parse(data, path="x.log")
    return block


def test_log_file_names_round_trip():
    assert NAME == f".{FILE_ID}_{T1}.log.12_3-7-1"
    parsed = file_names.LogFileName(FILE_ID, T1, 12, "3-7-1")
    assert file_names.parse_log(NAME) == parsed
    assert file_names.parse_log(f"{NAME}.cdc") == replace(parsed, is_cdc=True)
    old_format = file_names.parse_log(f".{FILE_ID}_{T1}.log.1")
    assert old_format == replace(parsed, version=1, token="")


@pytest.mark.parametrize(
    "name",
    [
        NAME[1:],
        f"x/{NAME}",
        NAME + ".crc",
        f".{FILE_ID}_{T1}.log.0_1-0-0",
        f".{FILE_ID}.log.1",
        ".log.1",
    ],
)
def test_other_names_are_not_log_file_names(name):
    assert file_names.parse_log(name) is None


def test_a_data_block_is_laid_out_byte_for_byte_as_documented():
    block, offset = data_block()
    schema_text = '{"ü":1}'.encode()
    n, m = len(schema_text), len(PARQUET)
    after_size = struct.pack(
        f">iiiii17sii{n}sq{m}si", 1, 5, 2, 0, 17, T2.encode(), 2, n, schema_text, m, PARQUET, 0
    )
    size = len(after_size) + 8
    assert block == b"#HUDI#" + struct.pack(">q", size) + after_size + struct.pack(">q", size + 6)
    assert block[offset : offset + len(PARQUET)] == PARQUET


def test_a_data_block_accepts_an_arrow_buffer():
    assert data_block(content=pa.py_buffer(PARQUET)) == data_block()


def test_a_parsed_data_block_has_its_content_headers_and_their_offsets():
    data, offset = data_block(BitMap([0, 2]))
    block = parse_single_block(data)
    assert (block.kind, block.offset, block.length) == (log_file.PARQUET, 0, len(data))
    assert (block.content_offset, block.content_length, bytes(block.content)) == (
        offset,
        len(PARQUET),
        PARQUET,
    )
    header = dict(block.header)
    assert set(decode_bitmap(header.pop(log_file.POSITIONS))) == {0, 2}
    assert header.pop(log_file.BASE_INSTANT) == T1
    assert header == {log_file.INSTANT_TIME: T2, log_file.SCHEMA: '{"ü":1}'}
    assert parse_single_block(data_block()[0]).header == header, (
        "a block without positions has no base instant"
    )


def test_the_blocks_of_a_file_are_parsed_in_order():
    first, second = data_block()[0], delete_block(["a"])
    blocks = log_file.parse(first + second, path="x.log")
    assert [(block.kind, block.offset) for block in blocks] == [
        (log_file.PARQUET, 0),
        (log_file.DELETE, len(first)),
    ]
    assert log_file.parse(b"", path="x.log") == []


def test_delete_blocks_accept_sliced_keys_and_refuse_null_keys():
    keys = pa.array(["x", "a" * 100, "b", "y", None])
    deletes = decode_delete_block(parse_single_block(delete_block(keys.slice(1, 2))).content)
    assert deletes["key"].to_pylist() == ["a" * 100, "b"]
    with pytest.raises(Invalid):
        delete_block(keys)


def test_positions_are_encoded_as_the_text_that_hudi_writes():
    text = log_file.encode_positions(BitMap([0, 2]))
    assert (
        base64.b64decode(text).hex()
        == "0100000000000000000000003a300000010000000000010010000000" + "00000200"
    )


@given(st.sets(st.integers(0, 2**34), max_size=50), st.integers(0, 1000))
def test_positions_round_trip(positions, run):
    bitmap = BitMap64(positions | set(range(run)))
    assert decode_bitmap(log_file.encode_positions(bitmap)) == bitmap


@given(st.sets(st.integers(0, 2**32 - 1), min_size=1, max_size=50), st.integers(0, 1000))
def test_positions_are_decoded_from_any_type_of_container(positions, run):
    bitmap = BitMap(positions | set(range(run)))
    assert log_file.decode_positions(log_file.encode_positions(bitmap)) == bitmap
    as_arrays = struct.pack("<QI", 1, 0) + BitMap(bitmap.to_array(), optimize=False).serialize()
    assert log_file.decode_positions(base64.b64encode(as_arrays).decode()) == bitmap


@pytest.mark.parametrize(
    "text",
    ["", "ü", "AQ==", *(log_file.encode_positions(BitMap64([rows])) for rows in (2**32, 2**40))],
)
def test_invalid_texts_and_positions_beyond_32_bits_are_refused(text):
    with pytest.raises(ValueError, match="bitmap|base64|ASCII"):
        log_file.decode_positions(text)


WHOLE = data_block(BitMap([3]))[0] + delete_block(["a", "b"], positions=BitMap([1, 2]))
FIRST = data_block(BitMap([3]))[0]


def test_a_file_that_is_truncated_inside_a_block_is_corrupt():
    for cut in range(1, len(WHOLE)):
        if cut == len(FIRST):
            continue
        with pytest.raises(Corrupt) as caught:
            log_file.parse(WHOLE[:cut], path="x.log")
        assert caught.value.path == "x.log"
        assert 0 <= caught.value.offset <= cut


def test_a_block_with_a_flipped_bit_is_corrupt_or_keeps_the_place_of_its_content():
    original = parse_single_block(FIRST)
    for bit in range(8 * len(FIRST)):
        damaged = bytearray(FIRST)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            parsed = parse_single_block(bytes(damaged))
        except Corrupt:
            continue
        assert (parsed.content_offset, parsed.content_length) == (
            original.content_offset,
            original.content_length,
        )


@pytest.mark.parametrize("size", [-1, 0, 31, 2**62])
def test_impossible_block_sizes_are_corrupt(size):
    with pytest.raises(Corrupt, match="does not fit"):
        log_file.parse(b"#HUDI#" + struct.pack(">q", size) + FIRST[14:], path="x.log")


def test_garbage_between_blocks_is_corrupt_at_its_offset():
    with pytest.raises(Corrupt) as caught:
        log_file.parse(FIRST + b"garbage" + FIRST, path="x.log")
    assert len(FIRST) <= caught.value.offset <= len(FIRST) + 6
