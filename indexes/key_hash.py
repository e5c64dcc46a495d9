"""Hashes of record keys. Keys with equal hashes are the same key. Each table has its own hash
function.

``MultilinearHash`` has a secret. It is the multilinear hash of Carter and Wegman ("Universal
classes of hash functions", 1979) over words of 32 bits, as in Lemire and Kaser, "Strongly universal
string hashing is fast" (2014), theorem 1::

    h(w) = ((c + m_0 w_0 + m_1 w_1 + ... ) mod 2^64) >> 32      c, m_i: random words of 64 bits

Let two different vectors v and w differ at position j, by d = 2^t odd, t < 32, and fix everything
but c and m_j. m_j d mod 2^64 is uniform over the multiples of 2^t, so the bits t to 63 of the
difference of both sums are uniform, and c makes the sum of v uniform and independent of it. The
upper 32 bits are therefore independent and uniform: all four combinations of a bit are equally
likely, and any b bits agree with probability 2^-b. A vector is the length of a key in bytes,
followed by its bytes as little-endian words, followed by infinitely many zeros. Keys of different
lengths differ in w_0, and other keys in a later word, so zeros at the end are harmless.

A 128-bit hash consists of four lanes with independent coefficients. Each word then passes through
the finalizer of MurmurHash3. It is a bijection, so it changes no probability, and it spreads
consecutive numbers over Bloom filters and shards. Key maps store 80 bits. For any two keys chosen
without knowledge of the secret, these bits agree with probability 2^-80, as long as SHAKE-256,
which derives the coefficients from the secret, cannot be distinguished from random. A key longer
than KEY_BYTES_MAX is hashed as its length and its keyed BLAKE2b of 32 bytes.

``MurmurHash`` is used by older tables: MurmurHash3_x64_128 with a seed per table. Anyone can
construct keys with equal hashes, whatever the seed. The contract is that ``(hi << 64) | lo`` of
:func:`hash_keys` equals ``mmh3.hash128(key, seed)``. The words are persisted in key maps and key
parts. MurmurHash3 is Austin Appleby's public-domain function (SMHasher, ``MurmurHash3.cpp``). Keys
are passed to the C function of ``mmh3`` one by one, 0.3 µs each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexes.arrays import (
    large_binary,
    map_parallel,
    one_array,
    spans,
)
from indexes.base import BoolArray, KeyHashes, UInt64Array

SECRET_BYTES = 32
KEY_BYTES_MAX = 128
"""Longer keys are digested first, which limits the number of coefficients."""

_DOMAIN = b"mdt multilinear/1"
_PATHS = b"partition path"
_PATH_SEED = 0x7D3
_LANES = 4
_WORD_BYTES = 4
_ROWS = 2 + KEY_BYTES_MAX // _WORD_BYTES
"""Rows of coefficients: constants, length, and each word."""
_DIGEST_BYTES = 32
_PIECE_ROWS = 1 << 14
"""Rows to hash at a time. Most of a dozen arrays then fit into the second-level cache, and threads
rarely take turns.
"""
_MULTIPLIED_ROWS_MAX = 2048
"""Up to this many rows, a matrix product is cheaper than a call for each word and lane."""
_UPPER = np.uint64(0xFFFFFFFF00000000)
_HALF = np.uint64(32)
_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)

UInt32Array = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class MurmurHash:
    """MurmurHash3_x64_128 with a seed, 0 to 2^32 - 1."""

    seed: int
    name: ClassVar[str] = "murmur3/1"
    is_keyed: ClassVar[bool] = False
    """True if no one can construct two keys with equal hashes without the secret."""

    def __post_init__(self) -> None:
        if not 0 <= self.seed <= SEED_MAX:
            raise ValueError(f"seed must be in [0, {SEED_MAX}], got {self.seed}")

    def hash(self, keys: pa.Array | pa.ChunkedArray) -> KeyHashes:
        """Return the hashes of ``keys``: string[n]. O(bytes). Raises ValueError for nulls."""
        return hash_keys(keys, self.seed)

    def hash_paths(self, paths: Sequence[str]) -> KeyHashes:
        """Return the hashes of partition paths, which are combined with key hashes."""
        return hash_keys(pa.array(paths, pa.string()), _PATH_SEED)


@dataclass(frozen=True, slots=True, repr=False)
class MultilinearHash:
    """Multilinear hash with a secret of SECRET_BYTES bytes. The secret is never shown.

    >>> hashes = MultilinearHash(bytes(32)).hash(pa.array(["id_1"]))
    >>> [hex(word) for word in hashes.hi.tolist()]
    ['0x3b812a734895ea59']
    """

    secret: bytes
    _coefficients: UInt64Array = field(init=False, compare=False)
    _digest_key: bytes = field(init=False, compare=False)
    name: ClassVar[str] = "multilinear/1"
    is_keyed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if len(self.secret) != SECRET_BYTES:
            raise ValueError(
                f"the secret of a key hash must have {SECRET_BYTES} bytes, got {len(self.secret)}"
            )
        size = 8 * _ROWS * _LANES
        derived = hashlib.shake_256(_DOMAIN + self.secret).digest(size + _DIGEST_BYTES)
        coefficients = np.frombuffer(derived[:size], "<u8").astype(np.uint64).reshape(_ROWS, _LANES)
        object.__setattr__(self, "_coefficients", coefficients)
        object.__setattr__(self, "_digest_key", derived[size:])

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<secret>)"

    def hash(self, keys: pa.Array | pa.ChunkedArray) -> KeyHashes:
        """Return the hashes of ``keys``: string[n]. O(bytes). Raises ValueError for nulls and other
        types.
        """
        if keys.null_count:
            raise ValueError(
                f"{keys.null_count} of {len(keys)} record keys are null; a record key must have a"
                " value"
            )
        if not any(is_text(keys.type) for is_text in _TEXT):
            raise ValueError(f"expected strings, got {keys.type}; cast the column to string first")
        joined_keys, words = one_array(keys), np.empty((2, len(keys)), np.uint64)

        def hash_rows(piece: slice) -> None:
            words[:, piece] = self._hash_piece(
                joined_keys.slice(piece.start, piece.stop - piece.start)
            )

        map_parallel(hash_rows, spans(len(keys), _PIECE_ROWS), len(keys))
        return KeyHashes(words[0], words[1])

    def hash_paths(self, paths: Sequence[str]) -> KeyHashes:
        """Return the hashes of partition paths, which are combined with key hashes.

        Each is a keyed BLAKE2b. A loop over paths.
        """
        size = 2 * 8
        digests = [
            hashlib.blake2b(
                path.encode(), digest_size=size, key=self._digest_key, person=_PATHS
            ).digest()
            for path in paths
        ]
        words = np.frombuffer(b"".join(digests), "<u8").astype(np.uint64).reshape(-1, 2)
        return KeyHashes(words[:, 0], words[:, 1])

    def _hash_piece(self, keys: pa.Array) -> UInt64Array:
        """Return both words of each of at least one key -> uint64[2, n]."""
        if not pa.types.is_string(keys.type):
            keys = keys.cast(pa.string())
        lengths = pc.binary_length(keys).to_numpy()
        longest = int(lengths.max())
        if longest <= KEY_BYTES_MAX:
            words = _words(keys, longest)
        else:
            words = self._long_key_words(keys, lengths > KEY_BYTES_MAX)
        hashes = _join_lanes(self._lanes(lengths, words))
        avalanche(hashes)
        return hashes

    def _long_key_words(self, keys: pa.Array, is_long: BoolArray) -> UInt32Array:
        """Return the words of keys, some of them long, like :func:`_words`. A loop over
        long keys.
        """
        short = pc.if_else(pa.array(is_long), "", keys)
        words = _words(
            short, max(_DIGEST_BYTES, int(pc.max(pc.binary_length(short)).as_py()))
        ).copy()
        texts = keys.filter(pa.array(is_long)).cast(pa.large_binary()).to_pylist()
        digests = [
            hashlib.blake2b(text, digest_size=_DIGEST_BYTES, key=self._digest_key).digest()
            for text in texts
        ]
        words[is_long, : _DIGEST_BYTES // _WORD_BYTES] = np.frombuffer(
            b"".join(digests), "<u4"
        ).reshape(len(texts), -1)
        return words

    def _lanes(self, lengths: npt.NDArray[np.int32], words: UInt32Array) -> UInt64Array:
        """Return the sums of all lanes -> uint64[_LANES, n]. Their upper halves are the hash."""
        coefficients, (n, count) = self._coefficients, words.shape
        if n <= _MULTIPLIED_ROWS_MAX:
            vectors = np.empty((n, 1 + count), np.uint64)
            vectors[:, 0] = lengths
            vectors[:, 1:] = words
            sums: UInt64Array = vectors @ coefficients[1 : 2 + count]
            sums += coefficients[0]
            return sums.T
        lanes = lengths.astype(np.uint64) * coefficients[1][:, None]
        lanes += coefficients[0][:, None]
        product = np.empty(n, np.uint64)
        for i in range(count):
            column = words[:, i].astype(np.uint64)
            for lane, coefficient in zip(lanes, coefficients[2 + i], strict=True):
                np.multiply(column, coefficient, out=product)
                lane += product
        return lanes


KeyHash = MurmurHash | MultilinearHash
"""Hash function for the record keys of a table."""


def _words(keys: pa.Array, longest: int) -> UInt32Array:
    """Return the bytes of keys as words, padded with zeros -> uint32[n, words].

    ``longest``: Maximum key length in bytes.
    """
    count = max(1, -(-longest // _WORD_BYTES))
    # ascii_rpad counts bytes, not characters.
    padded = pc.ascii_rpad(keys, _WORD_BYTES * count, padding="\0")
    return np.frombuffer(padded.buffers()[2], "<u4", count * len(keys)).reshape(len(keys), count)


def _join_lanes(lanes: UInt64Array) -> UInt64Array:
    """Join the upper halves of lanes 0 and 1, and of lanes 2 and 3 -> uint64[2, n]."""
    words: UInt64Array = lanes[0::2] & _UPPER
    words |= lanes[1::2] >> _HALF
    return words


SEED_MAX = 2**32 - 1
"""Largest seed."""

_MIX1 = np.uint64(0xFF51AFD7ED558CCD)
_MIX2 = np.uint64(0xC4CEB9FE1A85EC53)


def hash_keys(keys: pa.Array | pa.ChunkedArray, seed: int) -> KeyHashes:
    """Return the hashes of ``keys``: string[n] without nulls. ``seed`` is in [0, SEED_MAX].
    O(bytes).

    Raises ValueError for a null key, another type, or a seed out of range.

    >>> hashes = hash_keys(pa.array(["id_1", "id_2"]), seed=7)
    >>> hi, lo = hashes.hi.tolist(), hashes.lo.tolist()
    >>> hi[1] << 64 | lo[1] == mmh3.hash128("id_2", 7)
    True
    """
    if not 0 <= seed <= SEED_MAX:
        raise ValueError(f"seed must be in [0, {SEED_MAX}], got {seed}")
    if keys.null_count:
        raise ValueError(
            f"{keys.null_count} of {len(keys)} record keys are null; a record key must have a value"
        )
    joined_keys, words = large_binary(keys), np.empty((2, len(keys)), np.uint64)
    digest = mmh3.mmh3_x64_128_digest
    for piece in spans(len(keys), _PIECE_ROWS):
        texts = joined_keys.slice(piece.start, piece.stop - piece.start).to_pylist()
        hashes = np.frombuffer(b"".join([digest(text, seed) for text in texts]), "<u8")
        words[:, piece] = hashes.reshape(-1, 2).T
    return KeyHashes(words[1], words[0])


def avalanche(word: UInt64Array) -> None:
    """Apply the finalizer of MurmurHash3, a bijection of words, in place."""
    word ^= word >> np.uint64(33)
    word *= _MIX1
    word ^= word >> np.uint64(33)
    word *= _MIX2
    word ^= word >> np.uint64(33)
