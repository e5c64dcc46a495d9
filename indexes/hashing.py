"""128-bit hashes of record keys: MurmurHash3_x64_128, seeded per table.

``(hi << 64) | lo`` of the result equals ``mmh3.hash128(key, seed)``; that is the contract, and the
words are persisted in key maps and key parts.  MurmurHash3 is Austin Appleby's public-domain
function (SMHasher, ``MurmurHash3.cpp``).

Two ways lead to the same words.  Many short keys are hashed by numpy, one 16-byte block of all keys
at a time, in pieces that stay in the processor's cache.  Few keys, and long ones, go to the C
function of ``mmh3`` one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

import mmh3
import numpy as np
import pyarrow as pa

from indexes.base import KeyHashes, UInt64Array
from indexes.buffers import ByteRows, Int64Array, byte_rows, large_binary, one_array
from indexes.threads import side_by_side, spans

SEED_MAX = 2**32 - 1
"""Largest seed."""

_BLOCK_BYTES = 16
_PIECE_ROWS = 1 << 14
"""Rows per piece: most of a dozen arrays of this many words are in the second-level cache, and
threads that take turns do so seldom.
"""
_NUMPY_ROWS_MIN = 2000
"""Fewer keys go to mmh3: the fixed cost of about a hundred numpy calls does not pay (break-even at
1,000 to 2,500).
"""
_NUMPY_BYTES_MAX = 95
"""Longer keys go to mmh3: one of them would make a whole piece walk through its blocks."""
_C1 = np.uint64(0x87C37B91114253D5)
_C2 = np.uint64(0x4CF5AD432745937F)
_MIX1 = np.uint64(0xFF51AFD7ED558CCD)
_MIX2 = np.uint64(0xC4CEB9FE1A85EC53)


def hash_keys(keys: pa.Array | pa.ChunkedArray, seed: int) -> KeyHashes:
    """Return the hashes of ``keys``: string[n], without nulls.  ``seed`` in [0, SEED_MAX].
    O(bytes).

    Raises ValueError for a null key, another type, or a seed out of range.

    >>> found = hash_keys(pa.array(["id_1", "id_2"]), seed=7)
    >>> hi, lo = found.hi.tolist(), found.lo.tolist()
    >>> hi[1] << 64 | lo[1] == mmh3.hash128("id_2", 7)
    True
    """
    if not 0 <= seed <= SEED_MAX:
        raise ValueError(f"seed must be in [0, {SEED_MAX}], got {seed}")
    if keys.null_count:
        raise ValueError(
            f"{keys.null_count} of {len(keys)} record keys are null; a record key must have a value"
        )
    if len(keys) < _NUMPY_ROWS_MIN:
        return KeyHashes(*_by_mmh3(large_binary(keys).to_pylist(), seed))
    together = one_array(keys)
    hi, lo = np.empty(len(keys), np.uint64), np.empty(len(keys), np.uint64)

    def hashed(piece: slice) -> None:
        # The piece fits into the processor's cache.
        rows = byte_rows(together.slice(piece.start, piece.stop - piece.start))
        hi[piece], lo[piece] = _piece(rows, seed)

    side_by_side(hashed, spans(len(keys), _PIECE_ROWS), len(keys))
    return KeyHashes(hi, lo)


def _piece(rows: ByteRows, seed: int) -> tuple[UInt64Array, UInt64Array]:
    """Hash one piece: short keys by numpy in the order of their number of blocks, long ones by
    mmh3.
    """
    length_max = int(rows.lengths.max())
    if (
        length_max // _BLOCK_BYTES == int(rows.lengths.min()) // _BLOCK_BYTES
        and length_max <= _NUMPY_BYTES_MAX
    ):
        return _by_numpy(rows, seed)
    order = np.argsort(-(rows.lengths // _BLOCK_BYTES), kind="stable")
    long = int(np.count_nonzero(rows.lengths > _NUMPY_BYTES_MAX))
    hi, lo = np.empty(len(rows), np.uint64), np.empty(len(rows), np.uint64)
    hi[order[:long]], lo[order[:long]] = _by_mmh3(_strings(rows.rows(order[:long])), seed)
    hi[order[long:]], lo[order[long:]] = _by_numpy(rows.rows(order[long:]), seed)
    return hi, lo


def _by_mmh3(keys: Sequence[bytes | memoryview], seed: int) -> tuple[UInt64Array, UInt64Array]:
    digest = mmh3.mmh3_x64_128_digest
    words = np.frombuffer(b"".join([digest(key, seed) for key in keys]), np.dtype("<u8")).reshape(
        -1, 2
    )
    return words[:, 1].copy(), words[:, 0].copy()


def _strings(rows: ByteRows) -> list[memoryview]:
    data = rows.data.data
    ends = (rows.starts + rows.lengths).tolist()
    return [data[start:end] for start, end in zip(rows.starts.tolist(), ends, strict=True)]


def _by_numpy(rows: ByteRows, seed: int) -> tuple[UInt64Array, UInt64Array]:
    """Hash keys that are sorted by falling number of blocks, so that every block concerns a prefix
    of them.
    """
    blocks = rows.lengths // _BLOCK_BYTES
    h1, h2 = np.full(len(rows), seed, np.uint64), np.full(len(rows), seed, np.uint64)
    for block in range(int(blocks[0]) if len(blocks) else 0):
        live = int(np.searchsorted(-blocks, -block, "left"))
        head = rows.rows(slice(0, live))
        _mix_block(
            h1[:live], h2[:live], head.whole_words(16 * block), head.whole_words(16 * block + 8)
        )
    _mix_tail(h1, h2, rows, blocks * _BLOCK_BYTES)
    return _finish(h1, h2, rows.lengths.astype(np.uint64))


def _mix_block(h1: UInt64Array, h2: UInt64Array, k1: UInt64Array, k2: UInt64Array) -> None:
    """Mix the two words of one block into the state, in place."""
    h1 ^= _scramble1(k1)
    _rotate(h1, 27)
    h1 += h2
    h1 *= np.uint64(5)
    h1 += np.uint64(0x52DCE729)
    h2 ^= _scramble2(k2)
    _rotate(h2, 31)
    h2 += h1
    h2 *= np.uint64(5)
    h2 += np.uint64(0x38495AB5)


def _mix_tail(h1: UInt64Array, h2: UInt64Array, rows: ByteRows, offset: Int64Array) -> None:
    """Mix the last 0 to 15 bytes, in place.  A word without bytes is zero and changes nothing."""
    h1 ^= _scramble1(rows.words(offset))
    h2 ^= _scramble2(rows.words(offset + 8))


def _finish(
    h1: UInt64Array, h2: UInt64Array, lengths: UInt64Array
) -> tuple[UInt64Array, UInt64Array]:
    h1 ^= lengths
    h2 ^= lengths
    h1 += h2
    h2 += h1
    avalanche(h1)
    avalanche(h2)
    h1 += h2
    h2 += h1
    return h2, h1


def _scramble1(word: UInt64Array) -> UInt64Array:
    word *= _C1
    _rotate(word, 31)
    word *= _C2
    return word


def _scramble2(word: UInt64Array) -> UInt64Array:
    word *= _C2
    _rotate(word, 33)
    word *= _C1
    return word


def _rotate(word: UInt64Array, bits: int) -> None:
    high = word >> np.uint64(64 - bits)
    word <<= np.uint64(bits)
    word |= high


def avalanche(word: UInt64Array) -> None:
    """Apply the finalizer of MurmurHash3, a bijection of words, in place."""
    word ^= word >> np.uint64(33)
    word *= _MIX1
    word ^= word >> np.uint64(33)
    word *= _MIX2
    word ^= word >> np.uint64(33)
