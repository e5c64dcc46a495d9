"""A dictionary ranks keys as a sorted list does, and reads only the blocks that it must."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recording import Recording

from indexes.base import InMemory
from indexes.blocks import Blocks
from indexes.blocks import pack as pack_blocks
from indexes.dictionary import BLOCK_KEYS, Bounds, Dictionary, pack, text_order, words_of

KIND = b"test/1"
TEXTS = sorted(f"rider_{i}".encode() for i in range(0, 3000, 3))
LONG = sorted(
    {b"x" * 300 + bytes([a]) * b + bytes([b]) for a in range(1, 30, 3) for b in range(0, 60, 2)}
)
texts = st.lists(
    st.binary(max_size=6) | st.sampled_from(LONG), min_size=1, max_size=30, unique=True
).map(sorted)
words = st.lists(
    st.integers(0, 2**64 - 1) | st.integers(0, 40), min_size=1, max_size=30, unique=True
).map(sorted)


@given(
    st.lists(st.binary(max_size=9), max_size=30, unique=True),
    st.sampled_from([b"", b"id_", b"a long beginning "]),
)
def test_texts_are_sorted_by_their_bytes(rests: list[bytes], begin: bytes) -> None:
    keys = [begin + rest for rest in rests]
    assert [keys[at] for at in text_order(pa.array(keys, pa.binary())).tolist()] == sorted(keys)


def text_dictionary(keys: list[bytes]) -> Dictionary:
    blocks = pack_blocks(pack(pa.array(keys, pa.binary()), None), kind=KIND)
    return Dictionary.open(Blocks.open(InMemory(blocks), KIND), 0, None)


def word_dictionary(keys: list[int]) -> Dictionary:
    blocks = pack_blocks(pack(np.array(keys, np.uint64), 8), kind=KIND)
    return Dictionary.open(Blocks.open(InMemory(blocks), KIND), 0, 8)


def ranked(keys: list[bytes], wanted: list[bytes]) -> list[int]:
    return [bisect_left(keys, key) for key in wanted]


@given(texts, texts)
def test_texts_are_ranked_as_in_a_sorted_list(keys: list[bytes], asked: list[bytes]) -> None:
    wanted = sorted({*asked, *keys, *(key + b"\0" for key in (*asked, *keys)), b""})
    assert text_dictionary(keys).ranks(Bounds.of(wanted, None)) == ranked(keys, wanted)
    for key in wanted:
        assert text_dictionary(keys).ranks(Bounds.of([key, key + b"\0"], None)) == ranked(
            keys, [key, key + b"\0"]
        )


@pytest.mark.parametrize("keys", [TEXTS, LONG], ids=["short", "long"])
def test_texts_in_many_blocks_are_ranked_as_in_a_sorted_list(keys: list[bytes]) -> None:
    wanted = sorted({*keys, *(key[:-1] for key in keys), *(key + b"\0" for key in keys), b"", b"z"})
    found = text_dictionary(keys)
    assert found.ranks(Bounds.of(wanted, None)) == ranked(keys, wanted)
    for key in wanted[:: max(1, len(wanted) // 200)]:
        assert text_dictionary(keys).ranks(Bounds.of([key], None)) == ranked(keys, [key])
    assert found.keys(0, len(keys)) == keys and found.keys(250, 290) == keys[250:290]


@given(words, words)
def test_words_are_ranked_as_in_a_sorted_list(keys: list[int], asked: list[int]) -> None:
    wanted = [number.to_bytes(8, "big") for number in sorted({*keys, *asked})]
    expected = ranked([number.to_bytes(8, "big") for number in keys], wanted)
    assert word_dictionary(keys).ranks(Bounds.of([b"", *wanted], 8)) == [0, *expected]


@pytest.mark.parametrize("step", [1, 2, 300, 2**40 + 4, 2**54])
def test_words_in_many_blocks_come_back(step: int) -> None:
    keys = [7 + step * number for number in range(1000)]
    found = word_dictionary(keys)
    assert [int.from_bytes(key, "big") for key in found.keys(0, 1000)] == keys
    wanted = sorted({*keys, *(key + 1 for key in keys), 0})
    assert found.ranks(Bounds.of([n.to_bytes(8, "big") for n in wanted], 8)) == [
        bisect_left(keys, n) for n in wanted
    ]


@pytest.mark.parametrize(
    ("keys", "width"), [(pa.array([], pa.binary()), None), (np.zeros(0, np.uint64), 8)]
)
def test_a_dictionary_of_nothing_has_no_rank_above_0(keys: object, width: int | None) -> None:
    blocks = Blocks.open(InMemory(pack_blocks(pack(keys, width), kind=KIND)), KIND)
    found = Dictionary.open(blocks, 0, width)
    assert (found.count, found.blocks_used, found.keys(0, 0)) == (0, 1, [])
    assert found.ranks(Bounds.of([b"", b"\xff" * 8], width)) == [0, 0]


def test_a_look_up_reads_one_block() -> None:
    summary = Recording(
        pack_blocks([*pack(pa.array(TEXTS * 1, pa.binary()), None), b"x" * 9000], kind=KIND)
    )
    blocks = Blocks.open(summary, KIND)
    Dictionary.open(blocks, 0, None).ranks(Bounds.of([TEXTS[700], TEXTS[700] + b"\0"], None))
    assert summary.bytes_read <= 4096 + max(blocks.length(block) for block in range(1, 5))


def test_neighbours_cost_about_a_byte_each() -> None:
    assert sum(map(len, pack(pa.array(TEXTS, pa.binary()), None))) < 1.2 * len(TEXTS)
    assert sum(map(len, pack(np.arange(100_000, dtype=np.uint64), 8))) < 0.15 * 100_000


def test_equal_blocks_are_decoded_once() -> None:
    data = pack_blocks(pack(pa.array(TEXTS, pa.binary()), None), kind=KIND)
    parsed: dict[object, object] = {}
    for _ in range(3):
        Dictionary.open(Blocks.open(InMemory(data), KIND), 0, None, parsed).ranks(
            Bounds.of([TEXTS[0]], None)
        )
    assert len(parsed) == 1


def test_a_dictionary_of_other_keys_is_refused() -> None:
    blocks = Blocks.open(
        InMemory(pack_blocks(pack(np.arange(5, dtype=np.uint64), 8), kind=KIND)), KIND
    )
    with pytest.raises(ValueError, match="keys"):
        Dictionary.open(blocks, 0, None)


def hostile(data: bytes, width: int | None, count: int, index: bytes) -> Dictionary:
    """Return a dictionary of one block, whose checksums are right and whose content is ``data``."""
    head = bytes([width or 0]) + count.to_bytes(4, "little") + index
    return Dictionary.open(
        Blocks.open(InMemory(pack_blocks([head, data], kind=KIND)), KIND), 0, width
    )


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"\0",
        b"\1\xff\xff\xff\xff" + b"\0" * 9,
        b"\0\xff\xff\xff\xff" + b"\0" * 9,
        b"\1\x0a\0\0\0" + b"\xff" * 9,
        b"\0\3\0\0\0\0\1\1",
        b"\0\x07\0\0\0\1\0\0\0\xff\xff\xff",
        b"\0\x0a\0\0\0" + b"\xff" * 10,
        b"\0\x01\0\0\0\0",
    ],
)
def test_a_block_that_was_made_up_is_refused(block: bytes) -> None:
    with pytest.raises(ValueError):
        hostile(block, 8, 3, bytes(8)).ranks(Bounds.of([b"\0" * 7 + b"\5"], 8))
    with pytest.raises(ValueError):
        hostile(block, None, 3, bytes(8)).ranks(Bounds.of([b"a"], None))


@pytest.mark.parametrize(
    ("width", "count", "index"),
    [
        (8, 3, b""),
        (8, 2**32 - 1, bytes(8)),
        (None, 3, b""),
        (None, 3, b"\0\0\0\0\1\0\0\0"),
        (None, 2**32 - 1, bytes(8)),
    ],
)
def test_an_index_that_was_made_up_is_refused(width: int | None, count: int, index: bytes) -> None:
    with pytest.raises(ValueError):
        hostile(b"", width, count, index)


def test_words_keep_the_order_of_keys() -> None:
    numbers = words_of(pa.array([b"\0" * 8, b"\0" * 7 + b"\1", b"\xff" * 8], pa.binary()))
    assert all(low < high for low, high in pairwise(numbers.tolist())) and BLOCK_KEYS == 256
