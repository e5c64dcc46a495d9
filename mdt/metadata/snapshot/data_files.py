"""The data files of a snapshot by number, as segments and as columns.

The *number* of a file is its position among all files of the snapshot: first those of the
checkpoint, then those that records have added, in order.  A removed file keeps its number.  The
mask :attr:`mdt.metadata.snapshot.snapshot.Snapshot.live` marks the live files.  Numbers are valid
until the next checkpoint.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexes.arrays import column, numbers
from indexes.key_hash import KeyHash
from mdt.metadata.files.file_group import FILES
from mdt.metadata.log.checkpoint_columns import Columns
from mdt.metadata.snapshot.log_tail import Addition
from mdt.metadata.snapshot.segments import COLUMNS, KnownSegments, segment_of
from mdt.parquet.segment import Segment

_FEW = 8
"""Single values are read if a table has more than this many times the requested files, else whole
columns.
"""

Int64s = npt.NDArray[np.int64]


class Files:
    """The files of a checkpoint and of the additions after it.  Reads lazily."""

    def __init__(
        self,
        checkpoint: Columns,
        additions: Sequence[Addition],
        known_segments: KnownSegments,
        key_hash: KeyHash,
        maps: pa.Table | None = None,
    ) -> None:
        """``known_segments`` caches segments by key hash and id, for all snapshots of the process.

        ``maps`` has columns of FILES that replace those of the first files.
        """
        self._checkpoint = checkpoint
        self._additions = [addition for addition in additions if len(addition)]
        self._firsts = [addition.first for addition in self._additions]
        self._known_segments = known_segments
        self._key_hash = key_hash
        self._maps = maps
        self._columns: dict[str, pa.ChunkedArray] = {}

    def __len__(self) -> int:
        return self._checkpoint.rows + sum(map(len, self._additions))

    def segment(self, number: int) -> Segment:
        """Return a file.  Cached."""
        key = self._key_hash, self._id(number)
        cached = self._known_segments.get(key)
        if cached is not None:
            if self._is_current(cached, number):
                return cached
            self._known_segments.drop(key)
        segment = segment_of({name: self.value(name, number).as_py() for name in COLUMNS})
        self._known_segments.put(key, segment)
        return segment

    def _is_current(self, segment: Segment, number: int) -> bool:
        """Return False if a file that was imported without a key map has got it since."""
        if segment.key_map is not None or not segment.rows:
            return True
        return not self.value("key_map_offset", number).is_valid

    def _id(self, number: int) -> int:
        if number < self._checkpoint.rows:
            return int(self._checkpoint.value("files/segment", number).as_py())
        addition = self.addition(number)
        return int(addition.segments[number - addition.first])

    def addition(self, number: int) -> Addition:
        """Return the addition with a file that is not in the checkpoint."""
        return self._additions[bisect_right(self._firsts, number) - 1]

    def segments(self, numbers: Int64s) -> list[Segment]:
        """Return the files with these numbers, in order."""
        if self._are_few(numbers):
            return [self.segment(number) for number in numbers.tolist()]
        ids = self.numpy("segment")[numbers].tolist()
        segment_of_id = {id: self._known_segments.get((self._key_hash, id)) for id in ids}
        missing = [at for at, id in enumerate(ids) if segment_of_id[id] is None]
        for at, number in enumerate(numbers.tolist()):
            known = segment_of_id[ids[at]]
            if known is not None and not self._is_current(known, number):
                self._known_segments.drop((self._key_hash, ids[at]))
                missing.append(at)
        if missing:
            for row in self.take(COLUMNS, numbers[missing]).to_pylist():
                new = segment_of(row)
                segment_of_id[new.id] = new
                self._known_segments.put((self._key_hash, new.id), new)
        return [segment for id in ids if (segment := segment_of_id[id]) is not None]

    def value(self, name: str, number: int) -> pa.Scalar:
        """Return one value of FILES.  Reads one page."""
        if self._maps is not None and name in self._maps.column_names and number < len(self._maps):
            return self._maps[name][number]
        if number < self._checkpoint.rows:
            return self._checkpoint.value(f"files/{name}", number)
        addition = self.addition(number)
        return addition.files[name][number - addition.first]

    def numpy(self, name: str) -> npt.NDArray[Any]:
        """Return a numeric column -> [files], with 0 for null."""
        stored: npt.NDArray[Any] = self._checkpoint.numpy(f"files/{name}")
        if not self._additions:
            return stored
        added = [numbers(addition.files[name].fill_null(0)) for addition in self._additions]
        return np.concatenate([stored, *added])

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a column of FILES [files]."""
        column = self._columns.get(name)
        if column is None:
            parts = [self._checkpoint.table(f"files/{name}")]
            parts += [addition.files.select([name]) for addition in self._additions]
            if self._maps is not None and name in self._maps.column_names:
                parts = [self._maps.select([name]), *_after(parts, len(self._maps))]
            column = self._columns[name] = one_chunk(pa.concat_tables(parts)).column(0)
        return column

    def values(self, name: str, numbers: Int64s) -> list[Any]:
        """Return a column of the files ``numbers``, in order, as Python objects."""
        if self._are_few(numbers):
            return [self.value(name, number).as_py() for number in numbers.tolist()]
        return list(self.column(name).take(column(numbers)).to_pylist())

    def take(self, names: Sequence[str], numbers: Int64s) -> pa.Table:
        """Return columns of FILES of the files ``numbers``, in order."""
        schema = pa.schema([FILES.field(name) for name in names])
        if self._are_few(numbers):
            return pa.table(
                [pa.array(self.values(field.name, numbers), field.type) for field in schema],
                schema=schema,
            )
        return pa.table([self.column(name) for name in names], schema=schema).take(column(numbers))

    def _are_few(self, numbers: Int64s) -> bool:
        return _FEW * len(numbers) < len(self)


def _after(parts: Sequence[pa.Table], rows: int) -> list[pa.Table]:
    """Return the ``parts`` without their first ``rows`` rows."""
    remaining = []
    for part in parts:
        remaining.append(part.slice(min(rows, len(part))))
        rows -= min(rows, len(part))
    return remaining


def one_chunk(table: pa.Table) -> pa.Table:
    """Return ``table`` with columns of one chunk."""
    if table.num_columns and table.column(0).num_chunks > 1:
        return table.combine_chunks()
    return table
