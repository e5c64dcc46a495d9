"""A container of blocks returns the blocks that were packed, reads only what it needs, and verifies
the checksum of each block that it returns.
"""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recording import Recording

from indexes.base import InMemory
from indexes.blocks import HEAD_BYTES, Blocks, pack

KIND = b"test/1"
MANY = [bytes([i % 251]) * (i % 40) for i in range(700)]


def open_blocks(data):
    return Blocks.open(InMemory(data), KIND)


@given(st.lists(st.binary(max_size=50), max_size=20))
def test_blocks_are_returned_as_they_were_packed(blocks):
    unpacked = open_blocks(pack(blocks, kind=KIND))
    assert [bytes(unpacked.read(i)) for i in range(unpacked.count)] == blocks
    assert [unpacked.length(i) for i in range(unpacked.count)] == [len(block) for block in blocks]
    assert [bytes(block) for block in unpacked.read_range(0, unpacked.count)] == blocks


FAR = [b"a" * 9000, b"b" * 5000, b"c" * 7000]


@pytest.mark.parametrize(
    ("blocks", "first", "end", "sizes"),
    [
        ([b"a" * 100, b"b" * 10], 0, 2, [HEAD_BYTES]),
        (FAR, 1, 2, [HEAD_BYTES, 5000]),
        (FAR, 1, 3, [HEAD_BYTES, 12_000]),
        (FAR, 1, 1, [HEAD_BYTES]),
    ],
    ids=["blocks beside the table", "a far block", "neighbours", "none"],
)
def test_neighbouring_blocks_take_one_read_after_that_of_the_table_of_blocks(
    blocks, first, end, sizes
):
    summary = Recording(pack(list(map(memoryview, blocks)), kind=KIND))
    read_blocks = Blocks.open(summary, KIND).read_range(first, end)
    assert [bytes(block) for block in read_blocks] == blocks[first:end]
    assert [stop - start for start, stop in summary.reads] == sizes


def test_a_long_table_of_blocks_takes_two_reads():
    summary = Recording(pack(MANY, kind=KIND))
    blocks = Blocks.open(summary, KIND)
    assert len(summary.reads) == 2 and bytes(blocks.read(699)) == MANY[699]


def test_a_damaged_block_is_refused_and_the_others_can_be_read():
    data = bytearray(pack([b"a" * 50, b"b" * 50, b"c" * 50], kind=KIND))
    data[data.index(b"bb")] ^= 1
    blocks = open_blocks(bytes(data))
    assert bytes(blocks.read(0)) == b"a" * 50 and bytes(blocks.read(2)) == b"c" * 50
    with pytest.raises(ValueError, match="block 1"):
        blocks.read(1)
    with pytest.raises(ValueError, match="block 1"):
        blocks.read_range(0, 3)


def test_every_flipped_bit_is_detected():
    packed = pack([b"abc", b"", b"defg"], kind=KIND)
    for bit in range(8 * len(packed)):
        damaged = bytearray(packed)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError):
            open_blocks(bytes(damaged)).read_range(0, 3)


@pytest.mark.parametrize("blocks", [[], [b"abc", b"defg"], MANY])
def test_a_container_of_another_size_is_refused(blocks):
    packed = pack(blocks, kind=KIND)
    for data in (*(packed[:cut] for cut in range(0, len(packed), 7)), packed[:-1], packed + b"\0"):
        with pytest.raises(ValueError):
            open_blocks(data)


def test_other_kinds_and_missing_blocks_are_refused():
    with pytest.raises(ValueError, match="kind"):
        open_blocks(pack([b"abc"], kind=b"text/1"))
    for kind in (b"too long/1", b"a\0"):
        with pytest.raises(ValueError, match="kind"):
            pack([], kind=kind)
    for block in (-1, 2):
        with pytest.raises(ValueError, match="no block"):
            open_blocks(pack([b"", b""], kind=KIND)).read(block)


def test_an_impossible_number_of_blocks_is_refused_before_it_is_used():
    data = bytearray(pack([b"abc"], kind=KIND))
    struct.pack_into("<I", data, 12, 2**32 - 1)
    summary = Recording(bytes(data))
    with pytest.raises(ValueError, match="cannot have"):
        Blocks.open(summary, KIND)
    assert len(summary.reads) == 1


def test_a_read_with_too_few_bytes_is_refused():
    class TruncatedSummary(InMemory):
        def read(self, start, stop):
            return memoryview(self.data)[start : stop - 1 if start else stop]

    blocks = Blocks.open(TruncatedSummary(pack([b"a" * 9000, b"b" * 500], kind=KIND)), KIND)
    with pytest.raises(ValueError):
        blocks.read(1)
