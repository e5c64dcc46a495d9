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
    places = partitions if isinstance(partitions, str) else pa.array(partitions, pa.string())
    told: dict[str, Any] = {"instant": T2, "avro_schema": "{}", "base_instant": T1}
    return log_file.delete_block(pa.array(keys, pa.string()), places, positions=positions, **told)


def data_block(positions=None, content=PARQUET):
    return log_file.data_block(
        content, instant=T2, avro_schema='{"ü":1}', positions=positions, base_instant=T1
    )


def decoded(positions):
    return BitMap64.deserialize(base64.b64decode(positions))


def only(data):
    (block,) = log_file.parse(data, path="x.log")
    return block


def test_names_round_trip():
    assert NAME == f".{FILE_ID}_{T1}.log.12_3-7-1"
    found = file_names.LogFileName(FILE_ID, T1, 12, "3-7-1")
    assert file_names.parse_log(NAME) == found
    assert file_names.parse_log(f"{NAME}.cdc") == replace(found, is_cdc=True)
    old = file_names.parse_log(f".{FILE_ID}_{T1}.log.1")
    assert old == replace(found, version=1, token="")


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
def test_foreign_names_are_no_log_files(name):
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


def test_a_data_block_takes_an_arrow_buffer():
    assert data_block(content=pa.py_buffer(PARQUET)) == data_block()


def test_a_parsed_data_block_says_where_its_parquet_stands():
    data, offset = data_block(BitMap([0, 2]))
    found = only(data)
    assert (found.kind, found.offset, found.length) == (log_file.PARQUET, 0, len(data))
    assert (found.content_offset, found.content_length, bytes(found.content)) == (
        offset,
        len(PARQUET),
        PARQUET,
    )
    header = dict(found.header)
    assert set(decoded(header.pop(log_file.POSITIONS))) == {0, 2}
    assert header.pop(log_file.BASE_INSTANT) == T1
    assert header == {log_file.INSTANT_TIME: T2, log_file.SCHEMA: '{"ü":1}'}
    assert only(data_block()[0]).header == header, "without positions no base instant either"


def test_blocks_follow_each_other():
    first, second = data_block()[0], delete_block(["a"])
    blocks = log_file.parse(first + second, path="x.log")
    assert [(block.kind, block.offset) for block in blocks] == [
        (log_file.PARQUET, 0),
        (log_file.DELETE, len(first)),
    ]
    assert log_file.parse(b"", path="x.log") == []


def test_sliced_keys_are_deleted_as_they_are_and_null_keys_not():
    keys = pa.array(["x", "a" * 100, "b", "y", None])
    found = decode_delete_block(only(delete_block(keys.slice(1, 2))).content)
    assert found["key"].to_pylist() == ["a" * 100, "b"]
    with pytest.raises(Invalid):
        delete_block(keys)


def test_positions_are_the_text_that_hudi_writes():
    text = log_file.encode_positions(BitMap([0, 2]))
    assert (
        base64.b64decode(text).hex()
        == "0100000000000000000000003a300000010000000000010010000000" + "00000200"
    )


@given(st.sets(st.integers(0, 2**34), max_size=50), st.integers(0, 1000))
def test_positions_read_back(positions, run):
    given = BitMap64(positions | set(range(run)))
    assert decoded(log_file.encode_positions(given)) == given


@given(st.sets(st.integers(0, 2**32 - 1), min_size=1, max_size=50), st.integers(0, 1000))
def test_positions_are_decoded_whatever_their_containers(positions, run):
    given = BitMap(positions | set(range(run)))
    assert log_file.decode_positions(log_file.encode_positions(given)) == given
    as_arrays = struct.pack("<QI", 1, 0) + BitMap(given.to_array(), optimize=False).serialize()
    assert log_file.decode_positions(base64.b64encode(as_arrays).decode()) == given


@pytest.mark.parametrize(
    "text",
    ["", "ü", "AQ==", *(log_file.encode_positions(BitMap64([rows])) for rows in (2**32, 2**40))],
)
def test_no_other_text_is_decoded_as_positions(text):
    with pytest.raises(ValueError, match="bitmap|base64|ASCII"):
        log_file.decode_positions(text)


WHOLE = data_block(BitMap([3]))[0] + delete_block(["a", "b"], positions=BitMap([1, 2]))
FIRST = data_block(BitMap([3]))[0]


def test_a_truncated_file_is_corrupt_wherever_it_ends():
    for cut in range(1, len(WHOLE)):
        if cut == len(FIRST):
            continue
        with pytest.raises(Corrupt) as caught:
            log_file.parse(WHOLE[:cut], path="x.log")
        assert caught.value.path == "x.log"
        assert 0 <= caught.value.offset <= cut


def test_every_flipped_bit_of_a_block_is_corrupt_or_only_changes_texts_and_content():
    whole = only(FIRST)
    for bit in range(8 * len(FIRST)):
        damaged = bytearray(FIRST)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            found = only(bytes(damaged))
        except Corrupt:
            continue
        assert (found.content_offset, found.content_length) == (
            whole.content_offset,
            whole.content_length,
        )


@pytest.mark.parametrize("size", [-1, 0, 31, 2**62])
def test_impossible_block_sizes_are_corrupt(size):
    with pytest.raises(Corrupt, match="does not fit"):
        log_file.parse(b"#HUDI#" + struct.pack(">q", size) + FIRST[14:], path="x.log")


def test_garbage_between_blocks_is_corrupt_where_it_stands():
    with pytest.raises(Corrupt) as caught:
        log_file.parse(FIRST + b"garbage" + FIRST, path="x.log")
    assert len(FIRST) <= caught.value.offset <= len(FIRST) + 6
