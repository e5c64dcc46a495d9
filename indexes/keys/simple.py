r"""``simple/1``: no index data. Keys are compared with the stored keys of every group in their
scope.

The counterpart of Hudi's SIMPLE and GLOBAL_SIMPLE indexes, which join incoming keys with stored
keys. The table performs the join on the sorted hashes of every file (its key maps), and this index
only names the groups. It is the cheapest index to write, and the fastest if a large share of the
keys in a scope is updated at once. Looking up a key costs a search in each group.

Byte layout, little-endian, without padding:

============  ============================================================================
offset, size  meaning
============  ============================================================================
0, 8          magic ``b"MDTSIM\x00\x01"``, the last byte is the version
8, 8          groups: every group number is smaller
16, 4 g       uint32: the g groups that have keys, strictly ascending
..., 4        CRC-32 of everything before
============  ============================================================================
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa

from indexes.base import Candidates, Int64Array, KeyHashes, KeyIndex
from indexes.keys.sealed import check_groups, check_renumbering, seal, unseal

_MAGIC = b"MDTSIM\x00\x01"
_HEADER = struct.Struct("<8sQ")


class SimpleKeyIndex(KeyIndex):
    """Every group is a candidate for every key. 4 bytes per group. ``locate`` is O(groups).

    >>> from indexes.key_hash import hash_keys
    >>> keys = pa.array(["id_1", "id_2"])
    >>> key_part = SimpleKeyIndex().build(keys, hash_keys(keys, 0), np.array([0, 2]), groups=3)
    >>> SimpleKeyIndex().locate(key_part, keys, hash_keys(keys, 0)).whole.tolist()
    [0, 2]
    """

    name: ClassVar[str] = "simple/1"
    can_index_log_files: ClassVar[bool] = False

    def build(self, keys: pa.Array, hashes: KeyHashes, group: Int64Array, groups: int) -> bytes:
        """See :meth:`indexes.base.KeyIndex.build`. O(n).

        Raises ValueError for more than 2^32 groups.
        """
        return _encode(np.flatnonzero(np.bincount(group, minlength=groups)), groups)

    def locate(self, key_part: bytes | memoryview, keys: pa.Array, hashes: KeyHashes) -> Candidates:
        """See :meth:`indexes.base.KeyIndex.locate`. Returns all groups with keys."""
        none = np.zeros(0, np.int64)
        if not len(hashes):
            return Candidates(none, none)
        return Candidates(none, none, _open(key_part)[0])

    def merge(
        self, key_parts: Sequence[bytes | memoryview], groups: Sequence[Int64Array], total: int
    ) -> bytes:
        """See :meth:`indexes.base.KeyIndex.merge`. O(groups)."""
        parts = [np.zeros(0, np.int64)]
        for key_part, new in zip(key_parts, groups, strict=True):
            present, count = _open(key_part)
            check_renumbering("simple", count, new)
            parts.append(new[present])
        whole = np.unique(np.concatenate(parts))
        return _encode(whole[whole >= 0], total)


def _encode(present: Int64Array, groups: int) -> bytes:
    check_groups("simple", groups)
    return seal(_HEADER.pack(_MAGIC, groups) + present.astype(np.dtype("<u4")).tobytes())


def _open(key_part: bytes | memoryview) -> tuple[Int64Array, int]:
    """Return the groups of a verified key part, and the limit of group numbers. Raises
    ValueError.
    """
    view, (groups,) = unseal("simple", key_part, _HEADER, _MAGIC)
    check_groups("simple", groups)
    if (len(view) - _HEADER.size) % 4:
        raise ValueError(f"simple key part: invalid length of {len(view)} bytes")
    present = np.frombuffer(view[_HEADER.size :], np.dtype("<u4")).astype(np.int64)
    if len(present) and (int(present[-1]) >= groups or bool(np.any(np.diff(present) <= 0))):
        raise ValueError(f"simple key part: the groups are not ascending numbers below {groups}")
    return present, int(groups)
