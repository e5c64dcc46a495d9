"""A storage that records which data files are read, and a table whose files are in the order of
time.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

import mdt
from mdt.stores.storage import MemoryStorage

ORDERED = pa.schema(
    [("id", pa.string()), ("ts", pa.int64()), ("x", pa.float64()), ("note", pa.string())]
)


SMALL_FILES = {"mdt.small.file.bytes": 0, "mdt.row.group.rows": 100}


class Watched(MemoryStorage):
    """Records the names of the data files that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        self._look(path)
        return super().read(path, offset, length)

    def open(self, path: str) -> Any:
        self._look(path)
        return super().open(path)

    def _look(self, path: str) -> None:
        if not path.startswith(".hoodie"):
            self.seen.add(path)


def files_by_time(storage: MemoryStorage, files: int = 40, rows: int = 300) -> mdt.Table:
    """Return a table of ``files`` files with three row groups each. ``ts`` rises from file to file
    and within each file.
    """
    template = _template(files, rows)
    for info in template.list(""):
        storage.create(info.path, template.read(info.path))
    return mdt.open(storage)


@cache
def _template(files: int, rows: int) -> MemoryStorage:
    storage = MemoryStorage()
    table = mdt.create(storage, ORDERED, ["id"], options=SMALL_FILES)
    for n in range(files):
        ts = np.arange(n * rows, (n + 1) * rows)
        x = np.where(ts % 7 == 0, np.nan, (ts * 7919 % 10_007).astype(float))
        ids = [f"k{t:06}" for t in ts.tolist()]
        table.bulk_insert(
            pa.table(
                {"id": ids, "ts": ts, "x": x, "note": [f"{'p' * 80}{i}" for i in ids]}, ORDERED
            )
        )
    return storage
