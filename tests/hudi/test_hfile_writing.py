"""HFiles written by mdt: its reader finds every entry, and a change of the bytes is detected."""

from __future__ import annotations

import hashlib
import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdt.errors import Invalid
from mdt.hudi import hfile_writing
from mdt.hudi.read import hfile, hfile_format

ENTRIES = st.dictionaries(st.binary(min_size=1, max_size=40), st.binary(max_size=60), max_size=60)


def encode_pairs(pairs, **options) -> bytes:
    columns = [[pair[index] for pair in pairs] for index in (0, 1)]
    arrays = [pa.array(column, pa.large_binary()) for column in columns]
    entries = pa.record_batch(arrays, schema=hfile_format.ENTRIES)
    return hfile_writing.encode(entries, schema='"bytes"', created_ms=1_700_000_000_000, **options)


def pairs(entries) -> list[tuple[bytes, bytes]]:
    return list(zip(*entries.to_pydict().values(), strict=True))


@given(ENTRIES, st.booleans(), st.sampled_from([1, 50, 400, 1 << 20]))
def test_the_reader_finds_all_entries_that_were_written(values, is_compressed, block_bytes):
    entries = sorted(values.items())
    data = encode_pairs(entries, is_compressed=is_compressed, block_bytes=block_bytes)
    file = hfile.open_bytes(data, "f.hfile")
    assert pairs(file.all()) == entries
    assert file.count == len(entries)
    assert file.info["schema"] == b'"bytes"'
    for key, value in entries:
        assert pairs(file.lookup([key])) == [(key, value)]
    assert pairs(file.lookup([b"\xff" * 41])) == []


def test_keys_outside_the_basic_multilingual_plane_are_ordered_by_their_bytes():
    draw = random.Random(1)
    planes = [(0x10000, 0x10FFFF), (0xE000, 0xFFFF), (0x61, 0x7A)]
    keys = set()
    while len(keys) < 10_000:
        keys.add("".join(chr(draw.randint(*draw.choice(planes))) for _ in range(4)).encode())
    entries = [(key, b"%d" % len(key)) for key in sorted(keys)]
    file = hfile.open_bytes(encode_pairs(entries, is_compressed=True, block_bytes=4096), "f.hfile")
    assert pairs(file.all()) == entries
    sample = draw.sample(entries, 100)
    assert pairs(file.lookup([key for key, _ in sample])) == sorted(sample)


def test_unsorted_repeated_empty_and_overlong_keys_are_refused():
    for keys in ([b"b", b"a"], [b"a", b"a"], [b""], [b"x" * (1 << 15)]):
        with pytest.raises(Invalid, match="in an HFile"):
            encode_pairs([(key, b"") for key in keys])


def test_the_last_key_is_stored_with_its_length_even_in_an_empty_file():
    """Hudi 0.15 reads the length before the last key of each file."""
    name = b"hfile.LASTKEY"
    assert name + b"\x12\x02\0\0" in encode_pairs([])
    assert name + b"\x12\x03\0\x01k" in encode_pairs([(b"k", b"v")])


@pytest.mark.parametrize(
    ("count", "digest"),
    [(0, "80d811f91147746b"), (3, "b8ff773297961f6d"), (2000, "e81bd61dd65c8ac5")],
)
def test_the_bytes_of_a_file_do_not_change(count, digest):
    entries = [(b"key-%06d" % number, b"value %d" % number) for number in range(count)]
    data = encode_pairs(entries, block_bytes=16 << 10)
    assert hashlib.sha256(data).hexdigest()[:16] == digest
