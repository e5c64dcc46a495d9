"""``memory/1`` and ``lmdb/1``: key parts of ``record/1`` outside of the table.

Commits store nothing for them. Each reader builds the key parts from the key hashes that the table
stores for every file. ``memory/1`` keeps them in process memory. ``lmdb/1`` keeps them in an
embedded database on the local disk, shared by the processes of a machine.
"""

from __future__ import annotations

from typing import ClassVar

from indexes.base import DISK, PROCESS
from indexes.keys.record import RecordKeyIndex


class MemoryKeyIndex(RecordKeyIndex):
    """Sorted key hashes in process memory: 5 to 8 bytes per key, built by each process. Hudi's
    counterpart is INMEMORY.
    """

    name: ClassVar[str] = "memory/1"
    kept: ClassVar[str] = PROCESS


class LmdbKeyIndex(RecordKeyIndex):
    """Sorted key hashes in an embedded database: 5 to 8 bytes per key, built once per machine.
    Hudi's counterpart is HBASE.
    """

    name: ClassVar[str] = "lmdb/1"
    kept: ClassVar[str] = DISK
