"""``memory/1`` and ``lmdb/1``: the key parts of ``record/1``, kept beside the table instead of in
it.

Commits carry nothing for them.  Whoever looks for keys makes key parts of the hashes that the table
keeps of each file, once; the one index keeps them in the memory of the process, the other in an
embedded store on the local disk, which the processes of a machine share.
"""

from __future__ import annotations

from typing import ClassVar

from indexes.base import DISK, PROCESS
from indexes.keys.record import RecordKeyIndex


class MemoryKeyIndex(RecordKeyIndex):
    """Sorted hashes in the memory of a process: 5 to 8 bytes a key, made anew by each process.
    What HUDI calls INMEMORY.
    """

    name: ClassVar[str] = "memory/1"
    kept: ClassVar[str] = PROCESS


class LmdbKeyIndex(RecordKeyIndex):
    """Sorted hashes in an embedded store: 5 to 8 bytes a key, made once on a machine.  The
    counterpart of HUDI's HBASE index.
    """

    name: ClassVar[str] = "lmdb/1"
    kept: ClassVar[str] = DISK
