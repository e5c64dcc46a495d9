"""A dictionary ranks keys like a sorted list and reads only the blocks it needs."""

from bisect import bisect_left

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recording import Recording

from indexes.base import InMemory
from indexes.blocks import Blocks
from indexes.blocks import pack as pack_blocks
from indexes.dictionary import Bounds, Dictionary, pack

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


def summary_of(keys, width):
    """Return the summary with only a dictionary of these keys, as bytes or as 8-byte numbers."""
    array = np.array(keys, np.uint64) if width else pa.array(keys, "binary")
    return pack_blocks(pack(array, width), kind=KIND)


def open_dictionary(summary, width, parsed=None):
    blocks = Blocks.open(summary, KIND)
    return Dictionary.open(blocks, 0, width, {} if parsed is None else parsed)


def assert_ranked(keys, width, wanted):
    """Assert the ranks of all keys together, and of each key with its neighbour."""
    dictionary = open_dictionary(InMemory(summary_of(keys, width)), width)
    as_bytes = [key.to_bytes(8, "big") for key in keys] if width else keys
    expected = [bisect_left(as_bytes, key) for key in wanted]
    for start, end in ((0, len(keys)), (250, 290), (255, 257)):
        assert end > len(keys) or dictionary.keys(start, end) == as_bytes[start:end]
    assert dictionary.ranks(Bounds.from_keys(wanted, width)) == expected
    for at in range(0, len(wanted), max(1, len(wanted) // 200)):
        assert (
            dictionary.ranks(Bounds.from_keys(wanted[at : at + 2], width)) == expected[at : at + 2]
        )


def around(keys):
    return sorted({*keys, *(key[:-1] for key in keys), *(key + b"\0" for key in keys), b"", b"z"})


@given(texts, texts)
def test_binary_keys_are_ranked_as_in_a_sorted_list(keys, probes):
    assert_ranked(keys, None, around([*keys, *probes]))


@pytest.mark.parametrize("keys", [[], TEXTS, LONG], ids=["none", "short", "long"])
def test_binary_keys_in_many_blocks_are_ranked_as_in_a_sorted_list(keys):
    assert_ranked(keys, None, around(keys))


@given(words, words)
def test_words_are_ranked_as_in_a_sorted_list(keys, probes):
    assert_ranked(keys, 8, [b"", *(key.to_bytes(8, "big") for key in sorted({*keys, *probes}))])


@pytest.mark.parametrize("step", [None, 1, 2, 300, 2**40 + 4, 2**54])
def test_words_in_many_blocks_are_ranked_as_in_a_sorted_list(step):
    keys = [7 + step * number for number in range(1000)] if step else []
    near = sorted({*keys, *(key + 1 for key in keys), 0, 2**64 - 1})
    assert_ranked(keys, 8, [key.to_bytes(8, "big") for key in near])


def test_a_look_up_reads_one_block_and_equal_blocks_are_decoded_once():
    packed = pack(pa.array(TEXTS, "binary"), None)
    summary = Recording(pack_blocks([*packed, b"x" * 9000], kind=KIND))
    parsed = {}
    for _ in range(3):
        open_dictionary(summary, None, parsed).ranks(
            Bounds.from_keys([TEXTS[700], TEXTS[700] + b"\0"], None)
        )
    assert summary.bytes_read <= 3 * (4096 + max(map(len, packed))) and len(parsed) == 1


def test_keys_similar_to_their_neighbours_take_about_a_byte_each():
    assert sum(map(len, pack(pa.array(TEXTS, "binary"), None))) < 1.2 * len(TEXTS)
    assert sum(map(len, pack(np.arange(100_000, dtype=np.uint64), 8))) < 0.15 * 100_000


def forged_dictionary(data, width, count, index):
    """Return a dictionary with one block of ``data`` and valid checksums."""
    head = bytes([width or 0]) + count.to_bytes(4, "little") + index
    return open_dictionary(InMemory(pack_blocks([head, data], kind=KIND)), width)


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
@pytest.mark.parametrize("width", [8, None])
def test_a_forged_block_is_refused(block, width):
    with pytest.raises(ValueError):
        forged_dictionary(block, width, 3, bytes(8)).ranks(
            Bounds.from_keys([b"\0" * 7 + b"\5"], width)
        )


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
def test_a_forged_index_of_blocks_is_refused(width, count, index):
    with pytest.raises(ValueError):
        forged_dictionary(b"", width, count, index)


def test_a_dictionary_of_other_keys_is_refused():
    with pytest.raises(ValueError, match="keys"):
        open_dictionary(InMemory(summary_of(range(5), 8)), None)
