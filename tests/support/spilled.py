"""Tables whose input arrives in pieces and never fits into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.dataset as ds
from counting import count

import mdt
from mdt.engines.spilled import Spilled
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.schema.input import to_table
from mdt.stores.storage import Storage
from mdt.write.by_name import RowWrite


def in_pieces(table: pa.Table, rows: int = 3) -> Iterator[pa.Table]:
    """Yield a table a few rows at a time."""
    for start in range(0, max(1, len(table)), rows):
        yield table.slice(start, rows)


def forms(table: pa.Table, folder: Path) -> list[Any]:
    """Return the rows of a table in every kind of input that is read in pieces."""
    ds.write_dataset(table, folder, format="parquet")
    stream = {"__arrow_c_stream__": lambda _, schema=None: table.__arrow_c_stream__(schema)}
    return [
        table.to_reader(max_chunksize=4),
        (batch for batch in table.to_batches(max_chunksize=4)),
        in_pieces(table),
        ds.dataset(folder),
        ds.dataset(folder).scanner(batch_size=4),
        iter(table.to_pylist()),
        type("Stream", (), stream)(),
    ]


@contextmanager
def memory_watched() -> Iterator[Callable[[], int]]:
    """Yield a function that returns the largest number of bytes that Arrow has allocated so far. It
    measures whenever it is called, and when spilled rows are read again.
    """
    before, most = pa.total_allocated_bytes(), 0
    batches = Spilled.batches

    def look() -> int:
        nonlocal most
        most = max(most, pa.total_allocated_bytes() - before)
        return most

    def watched(self: Spilled, parts: Any) -> Iterator[pa.RecordBatch]:
        for batch in batches(self, parts):
            look()
            yield batch

    with patch.object(Spilled, "batches", watched):
        yield look


class SpilledTable(mdt.Table):
    """A table that keeps no rows of its input in memory, as far as possible."""

    def __init__(
        self, storage: Storage, options: Mapping[str, Any] | None = None, **more: Any
    ) -> None:
        super().__init__(storage, {**(options or {}), "mdt.write.memory.max": 1}, **more)

    def _write_rows(self, data: Any, request: RowWrite, begun: Snapshot) -> mdt.WriteResult:
        count(f"{'deletes' if request.name == 'delete' else 'writes'} through scratch files")
        pieces = in_pieces(to_table(data, begun.definition.declared))
        return super()._write_rows(pieces, request, begun)

    def _to_merge(self, source: Any, *, looks: bool = False) -> Any:
        count("merges of what came in pieces")
        return super()._to_merge(in_pieces(to_table(source, self.schema)))
