"""Hashes of keys that nobody has made."""

from __future__ import annotations

import numpy as np

from indexes.base import KeyHashes


def random_hashes(count: int, seed: int = 1) -> KeyHashes:
    """Return ``count`` pairs of random words, the same ones for a seed."""
    rng = np.random.default_rng(seed)
    return KeyHashes(*(rng.integers(0, 2**64, count, dtype=np.uint64) for _ in range(2)))
