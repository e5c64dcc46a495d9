"""A container gives back the blocks that were put in, reads no more than it must, and believes
nothing unchecked.
"""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recording import Recording

from indexes.base import InMemory
from indexes.blocks import HEAD_BYTES, Blocks, pack

KIND = b"test/1"
MANY = [bytes([i % 251]) * (i % 40) for i in range(700)]


def opened(data: bytes) -> Blocks:
    return Blocks.open(InMemory(data), KIND)


@given(st.lists(st.binary(max_size=50), max_size=20))
def test_blocks_come_back_as_they_were_put_in(blocks: list[bytes]) -> None:
    found = opened(pack(blocks, kind=KIND))
    assert [bytes(found.read(i)) for i in range(found.count)] == blocks
    assert [found.length(i) for i in range(found.count)] == [len(block) for block in blocks]
    assert [bytes(block) for block in found.read_range(0, found.count)] == blocks


def test_views_are_packed_like_bytes() -> None:
    assert pack([memoryview(b"abc")], kind=KIND) == pack([b"abc"], kind=KIND)


def test_opening_a_small_container_is_one_read_and_its_blocks_none() -> None:
    summary = Recording(pack([b"a" * 100, b"b" * 10], kind=KIND))
    blocks = Blocks.open(summary, KIND)
    assert bytes(blocks.read(1)) == b"b" * 10
    assert summary.reads == [(0, HEAD_BYTES)]


def test_a_long_table_is_two_reads() -> None:
    summary = Recording(pack(MANY, kind=KIND))
    blocks = Blocks.open(summary, KIND)
    assert len(summary.reads) == 2 and bytes(blocks.read(699)) == MANY[699]


def test_a_far_block_is_one_read_of_its_bytes() -> None:
    summary = Recording(pack([b"a" * 9000, b"b" * 5000, b"c" * 7000], kind=KIND))
    blocks = Blocks.open(summary, KIND)
    assert bytes(blocks.read(1)) == b"b" * 5000
    assert [stop - start for start, stop in summary.reads] == [HEAD_BYTES, 5000]


def test_neighbours_are_read_together() -> None:
    summary = Recording(pack([b"a" * 9000, b"b" * 5000, b"c" * 7000], kind=KIND))
    assert [len(block) for block in Blocks.open(summary, KIND).read_range(1, 3)] == [5000, 7000]
    assert [stop - start for start, stop in summary.reads] == [HEAD_BYTES, 12000]


def test_no_neighbours_are_no_read() -> None:
    assert opened(pack([b"a"], kind=KIND)).read_range(1, 1) == []


def test_a_damaged_block_is_refused_and_the_others_are_read() -> None:
    data = bytearray(pack([b"a" * 50, b"b" * 50, b"c" * 50], kind=KIND))
    data[data.index(b"bb")] ^= 1
    blocks = opened(bytes(data))
    assert bytes(blocks.read(0)) == b"a" * 50 and bytes(blocks.read(2)) == b"c" * 50
    with pytest.raises(ValueError, match="block 1"):
        blocks.read(1)
    with pytest.raises(ValueError, match="block 1"):
        blocks.read_range(0, 3)


def test_every_flipped_bit_is_noticed() -> None:
    good = pack([b"abc", b"", b"defg"], kind=KIND)
    for bit in range(8 * len(good)):
        damaged = bytearray(good)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError):
            opened(bytes(damaged)).read_range(0, 3)


@pytest.mark.parametrize("blocks", [[], [b"abc", b"defg"], MANY])
def test_a_container_of_another_size_is_refused(blocks: list[bytes]) -> None:
    good = pack(blocks, kind=KIND)
    for data in (*(good[:cut] for cut in range(0, len(good), 7)), good[:-1], good + b"\0"):
        with pytest.raises(ValueError):
            opened(data)


def test_a_container_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="kind"):
        Blocks.open(InMemory(pack([b"abc"], kind=b"text/1")), KIND)


def test_a_count_that_does_not_fit_is_not_believed() -> None:
    data = bytearray(pack([b"abc"], kind=KIND))
    struct.pack_into("<I", data, 12, 2**32 - 1)
    summary = Recording(bytes(data))
    with pytest.raises(ValueError, match="cannot have"):
        Blocks.open(summary, KIND)
    assert len(summary.reads) == 1


def test_a_summary_that_reads_short_is_refused() -> None:
    class Short(InMemory):
        def read(self, start: int, stop: int) -> memoryview:
            return memoryview(self.data)[start : stop - 1 if start else stop]

    blocks = Blocks.open(Short(pack([b"a" * 9000, b"b" * 500], kind=KIND)), KIND)
    with pytest.raises(ValueError):
        blocks.read(1)


@pytest.mark.parametrize("block", [-1, 2])
def test_a_block_that_is_not_there_is_refused(block: int) -> None:
    with pytest.raises(ValueError, match="no block"):
        opened(pack([b"", b""], kind=KIND)).read(block)


@pytest.mark.parametrize("kind", [b"too long/1", b"a\0"])
def test_a_kind_that_cannot_be_told_apart_is_refused(kind: bytes) -> None:
    with pytest.raises(ValueError, match="kind"):
        pack([], kind=kind)
