"""Random hashes, which belong to no key."""

import numpy as np

from indexes.base import KeyHashes


def random_hashes(count, seed=1):
    """Return ``count`` pairs of random words, the same for the same seed."""
    rng = np.random.default_rng(seed)
    return KeyHashes(*(rng.integers(0, 2**64, count, dtype=np.uint64) for _ in range(2)))
