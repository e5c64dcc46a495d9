"""The hash function XXH64, by which Hudi's metadata table names columns and partitions.

Source: the specification of xxHash by Yann Collet. For short texts only: it takes a microsecond a
byte.
"""

from __future__ import annotations

import struct

_MASK = (1 << 64) - 1
_PRIMES = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_STRIPE_BYTES = 32


def xxhash64(data: bytes, seed: int) -> int:
    """Return the 64-bit hash of ``data``, unsigned.

    Args:
        seed: Unsigned 64-bit integer.

    >>> hex(xxhash64(b"", 0)), hex(xxhash64(b"a", 0))
    ('0xef46db3751d8e999', '0xd24ec4f1a98c6e5b')
    """
    p1, p2, p3, p4, p5 = _PRIMES
    offset = 0
    if len(data) >= _STRIPE_BYTES:
        lanes = [seed + p1 + p2, seed + p2, seed, seed - p1]
        while offset + _STRIPE_BYTES <= len(data):
            words = struct.unpack_from("<4Q", data, offset)
            lanes = [_round(lane, word) for lane, word in zip(lanes, words, strict=True)]
            offset += _STRIPE_BYTES
        shifts = (1, 7, 12, 18)
        state = sum(_rotated(lane, by) for lane, by in zip(lanes, shifts, strict=True))
        for lane in lanes:
            state = (state ^ _round(0, lane)) * p1 + p4
    else:
        state = seed + p5
    state += len(data)
    while offset + 8 <= len(data):
        (word,) = struct.unpack_from("<Q", data, offset)
        state = _rotated(state ^ _round(0, word), 27) * p1 + p4
        offset += 8
    if offset + 4 <= len(data):
        (word,) = struct.unpack_from("<I", data, offset)
        state = _rotated(state ^ word * p1, 23) * p2 + p3
        offset += 4
    for byte in data[offset:]:
        state = _rotated(state ^ byte * p5, 11) * p1
    state &= _MASK
    for shift, prime in ((33, p2), (29, p3)):
        state = (state ^ state >> shift) * prime & _MASK
    return state ^ state >> 32


def _round(lane: int, word: int) -> int:
    return _rotated(lane + word * _PRIMES[1], 31) * _PRIMES[0]


def _rotated(value: int, by: int) -> int:
    value &= _MASK
    return (value << by | value >> 64 - by) & _MASK
