"""Tables as created by versions before ``multilinear/1``: keys are hashed with MurmurHash3."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import mdt
from indexes.key_hash import MurmurHash
from mdt import create_table

A = "a\x16`B\x10\x146\x078NyujZ\x08rjMX \x01.I\x7ftailtail"
B = "\x01vb r\x05D9wA\x02H-sf)jMX ~{\x17\x02tailtail"
"""Two keys with the same MurmurHash3_x64_128, whatever the seed is."""


@contextmanager
def hashed_by_murmur(seed: int = 7) -> Iterator[None]:
    """Let tables be created with MurmurHash3."""
    with patch.object(create_table, "MultilinearHash", lambda secret: MurmurHash(seed)):
        yield


def old_table(*arguments: Any, **settings: Any) -> mdt.Table:
    """Create a table that hashes keys with MurmurHash3."""
    with hashed_by_murmur():
        return mdt.create(*arguments, **settings)
