"""Tables whose input comes in pieces and never fits into memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from counting import count

import mdt
from mdt.progress import Progress
from mdt.schema.input import to_table
from mdt.stores.storage import Storage
from mdt.write.blending import Kept


def in_pieces(table: pa.Table, rows: int = 3) -> Iterator[pa.Table]:
    """Yield a table a few rows at a time."""
    for start in range(0, max(1, len(table)), rows):
        yield table.slice(start, rows)


class SpilledTable(mdt.Table):
    """A table that holds no row of its input in memory, as far as it can help it."""

    def __init__(
        self, storage: Storage, options: Mapping[str, Any] | None = None, **more: Any
    ) -> None:
        super().__init__(storage, {**(options or {}), "mdt.write.memory.max": 1}, **more)

    def _write_rows(
        self,
        data: Any,
        name: str,
        progress: Progress | None,
        kept: Kept | None = None,
        ends: Sequence[str] | None = None,
    ) -> mdt.WriteResult:
        count("writes through scratch files")
        pieces = in_pieces(to_table(data, self.definition.declared))
        return super()._write_rows(pieces, name, progress, kept, ends)

    def _delete_rows(self, keys: Any, progress: Progress | None) -> mdt.WriteResult:
        count("deletes through scratch files")
        return super()._delete_rows(in_pieces(to_table(keys, self.schema)), progress)

    def _to_merge(self, source: Any, *, looks: bool = False) -> Any:
        count("merges of what came in pieces")
        return super()._to_merge(in_pieces(to_table(source, self.schema)))
