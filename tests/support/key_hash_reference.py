"""``multilinear/1`` as FORMAT.md describes it, with Python integers: slow, and independent of the
product.
"""

from __future__ import annotations

import hashlib
import struct

WORD = 1 << 64


def finalized(word: int) -> int:
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        word = (word ^ word >> 33) * factor % WORD
    return word ^ word >> 33


def multilinear(secret: bytes, key: bytes) -> tuple[int, int]:
    """Return ``hi`` and ``lo`` of the hash of a key."""
    derived = hashlib.shake_256(b"mdt multilinear/1" + secret).digest(34 * 4 * 8 + 32)
    coefficients = struct.unpack("<136Q", derived[:-32])
    words = (
        key if len(key) <= 128 else hashlib.blake2b(key, digest_size=32, key=derived[-32:]).digest()
    )
    vector = [
        1,
        len(key),
        *struct.unpack(f"<{-(-len(words) // 4)}I", words + bytes(-len(words) % 4)),
    ]
    lanes = [
        sum(word * coefficients[4 * i + lane] for i, word in enumerate(vector)) % WORD >> 32
        for lane in range(4)
    ]
    return finalized(lanes[0] << 32 | lanes[1]), finalized(lanes[2] << 32 | lanes[3])


def path_hash(secret: bytes, path: str) -> tuple[int, int]:
    """Return both words of the hash of a partition path."""
    key = hashlib.shake_256(b"mdt multilinear/1" + secret).digest(34 * 4 * 8 + 32)[-32:]
    hash_words = struct.unpack(
        "<2Q",
        hashlib.blake2b(path.encode(), digest_size=16, key=key, person=b"partition path").digest(),
    )
    return hash_words[0], hash_words[1]
