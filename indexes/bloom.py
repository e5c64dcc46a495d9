"""Split-block Bloom filters, fed with the table's key hashes.

The layout is Parquet's split-block Bloom filter (``BloomFilter.md``), after Putze, Sanders and
Singler, "Cache-, Hash- and Space-Efficient Bloom Filters", 2007. Blocks have 256 bits: eight
little-endian 32-bit words. A key sets one bit in each word of one block, so a lookup touches one
cache line. There are two differences to Parquet: the 64 bits come from
:class:`indexes.base.KeyHashes` instead of xxHash, and the number of blocks need not be a power of
two.

Only the ``lo`` word is used. Tables shard keys by the ``hi`` word. Within a shard its upper bits
are nearly constant, which would put all keys into a few blocks.

A filter consists only of its blocks. The caller adds framing and checksums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from indexes.arrays import run_starts, spans
from indexes.base import BoolArray, Int64Array, KeyHashes, UInt64Array

UInt32Array = npt.NDArray[np.uint32]

BLOCK_BYTES = 32
"""Bytes of a block."""
_WORDS = 8
_BLOCK_BITS = 256
_KEYS_PER_BLOCK_MAX = 256.0
"""At this load a block answers "maybe" to almost everything."""
_PIECE_PAIRS = 65536
_SALTS = np.array(
    [
        0x47B6137B,
        0x44974D91,
        0x8824AD5B,
        0xA2B7289D,
        0x705495C7,
        0x2DF1424B,
        0x9EFC4947,
        0x5C6BFB31,
    ],
    np.uint32,
)
_LOW_32 = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@dataclass(frozen=True, slots=True)
class FilterSet:
    """f concatenated filters.

    Attributes:
        words: uint32[8 * blocks], all blocks.
        first: int64[f], the first block of each filter.
        blocks: int64[f], the number of blocks of each filter, at least 1.
    """

    words: UInt32Array
    first: Int64Array
    blocks: Int64Array

    def probe_pairs(self, which: Int64Array, key: Int64Array, hashes: KeyHashes) -> BoolArray:
        """Return True where filter ``which[i]`` may contain key ``key[i]`` -> bool[p].

        O(p): probing a pair stops at the first word with an unset bit, so an absent key costs about
        two words.

        Args:
            which: int64[p] in [0, f).
            key: int64[p], positions in ``hashes``.
        """
        answer = np.zeros(len(which), np.bool_)
        for piece in spans(len(which), _PIECE_PAIRS):
            word = hashes.lo[key[piece]]
            place = _place(word, self.blocks[which[piece]]) + self.first[which[piece]]
            answer[piece] = self._probe(place, word)
        return answer

    def _probe(self, block: Int64Array, word: UInt64Array) -> BoolArray:
        answer = np.zeros(len(block), np.bool_)
        alive = np.arange(len(block), dtype=np.int64)
        at, low = block * _WORDS, word.astype(np.uint32)
        for salt in _SALTS:
            hit = (self.words[at] >> ((low * salt) >> np.uint32(27))) & np.uint32(1) != 0
            alive, at, low = alive[hit], at[hit] + 1, low[hit]
        answer[alive] = True
        return answer


def build(hashes: KeyHashes, fpp: float = 0.01) -> bytes:
    """Return the filter of n keys with a false-positive probability of about ``fpp``.

    O(n). The filter has at least 32 bytes.
    """
    words, _ = build_many(hashes, np.zeros(len(hashes), np.int64), 1, fpp)
    return words


def build_many(
    hashes: KeyHashes, owner: Int64Array, owners: int, fpp: float = 0.01
) -> tuple[bytes, Int64Array]:
    """Return the concatenated filters of all owners, and the blocks of each -> (bytes,
    int64[owners]).

    O(n + size), and needs one byte of memory for each bit of the filters. Raises ValueError for a
    probability out of range.

    Args:
        owner: int64[n] in [0, owners), the filter of each key.
        fpp: False-positive probability, in (0, 1).
    """
    per_block = keys_per_block(fpp)
    counts = np.bincount(owner, minlength=owners)
    blocks = np.maximum(1, np.ceil(counts / per_block)).astype(np.int64)
    first = run_starts(blocks)
    bits = np.zeros(int(blocks.sum()) * _BLOCK_BITS, np.bool_)
    place = (_place(hashes.lo, blocks[owner]) + first[owner]) * _BLOCK_BITS
    low = hashes.lo.astype(np.uint32)
    for number, salt in enumerate(_SALTS):
        bits[place + ((low * salt) >> np.uint32(27)) + 32 * number] = True
    return np.packbits(bits, bitorder="little").tobytes(), blocks


def probe(filter: bytes | memoryview, hashes: KeyHashes) -> BoolArray:
    """Return True for each of m keys that may be in ``filter`` -> bool[m]. O(m).

    Raises ValueError if ``filter`` is empty or not a multiple of the block size.

    >>> from indexes.key_hash import hash_keys
    >>> filter = build(hash_keys(pa.array(["id_1", "id_2"]), 0), fpp=1e-6)
    >>> len(filter), probe(filter, hash_keys(pa.array(["id_1", "id_3"]), 0)).tolist()
    (32, [True, False])
    """
    filters = filter_set(filter, np.array([len(filter) // BLOCK_BYTES], np.int64))
    return filters.probe_pairs(
        np.zeros(len(hashes), np.int64), np.arange(len(hashes), dtype=np.int64), hashes
    )


def filter_set(data: bytes | memoryview, blocks: Int64Array) -> FilterSet:
    """Return the filters in ``data``. O(f), no copy.

    ``blocks`` is int64[f], the number of 32-byte blocks of each filter. Raises ValueError if a
    filter has no block, or if the sizes do not add up.
    """
    if len(blocks) and int(blocks.min()) < 1:
        raise ValueError("a Bloom filter needs at least one block")
    if sum(blocks.tolist()) * BLOCK_BYTES != len(data):
        raise ValueError(
            f"Bloom filters of {sum(blocks.tolist())} blocks of {BLOCK_BYTES} bytes do not fit"
            f" {len(data)} bytes"
        )
    return FilterSet(np.frombuffer(data, np.dtype("<u4")), run_starts(blocks), blocks)


def blocks_of(hashes: KeyHashes, blocks: Int64Array) -> Int64Array:
    """Return the block that holds each of n keys, in a filter of ``blocks``: int64[n] ->
    int64[n].
    """
    return _place(hashes.lo, blocks)


@lru_cache(maxsize=64)
def keys_per_block(fpp: float) -> float:
    """Return the average number of keys per block for a false-positive probability of ``fpp``.

    The load of a block has a Poisson distribution, and full blocks have more false positives. The
    usual formula ignores that. This function solves the expectation (Putze et al., section 3) by
    bisection. Raises ValueError unless 0 < fpp < 1.

    >>> round(256 / keys_per_block(0.01), 1)  # bits a key
    10.5
    """
    if not 0.0 < fpp < 1.0:
        raise ValueError(f"the false-positive probability must be between 0 and 1, got {fpp}")
    low, high = 0.0, _KEYS_PER_BLOCK_MAX
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if _false_positives(middle) <= fpp else (low, middle)
    return max(low, 1 / 64)


def _false_positives(load: float) -> float:
    """Expected false-positive probability at ``load`` keys per block."""
    share, total = math.exp(-load), 0.0
    for keys in range(int(load + 12 * math.sqrt(load) + 12)):
        total += share * (1 - (31 / 32) ** keys) ** _WORDS
        share *= load / (keys + 1)
    return total


def _place(word: UInt64Array, blocks: Int64Array) -> Int64Array:
    """Map the upper 32 bits of the hash evenly to blocks by multiplication (Lemire's reduction)."""
    return (((word >> _HALF) * (blocks.astype(np.uint64) & _LOW_32)) >> _HALF).astype(np.int64)
