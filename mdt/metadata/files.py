"""The live files of a snapshot as columns, and its file groups as the mappings and sequences that callers know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexes.buffers import column, mask, numbers
from mdt.metadata.additions import Piece
from mdt.metadata.columns import Columns, no_rows
from mdt.metadata.file_group import FILES
from mdt.metadata.file_groups import Groups
from mdt.metadata.recent import Recent
from mdt.metadata.segments import COLUMNS, segment_of
from mdt.parquet.segment import Segment

_FEW = 8
"""Of a table with this many times as many files as are asked for, single values are read; else whole columns."""

_SLICES_MAX = 64
"""Up to so many dead slots a column is put together from slices, which is a copy; more are filtered out."""

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Live:
    """Which of ``slots`` slots are live: all but ``dead``, int64, rising."""

    slots: int
    dead: Int64s

    @cached_property
    def _before(self) -> Int64s:
        """Return how many live slots stand before each dead one, rising."""
        return self.dead - np.arange(len(self.dead))

    def slot(self, row: int) -> int:
        """Return the slot of a row.  O(log dead).  Raises IndexError if there is no such row."""
        count = self.slots - len(self.dead)
        row = int(row)
        row += count if row < 0 else 0
        if not 0 <= row < count:
            raise IndexError(f"there is no file {row}")
        return row + int(np.searchsorted(self._before, row, side="right")) if len(self.dead) else row

    def slots_of(self, rows: Int64s) -> Int64s:
        """Return the slots of rows -> int64[n]."""
        return rows + np.searchsorted(self._before, rows, side="right") if len(self.dead) else rows

    def rows_of(self, slots: Int64s) -> Int64s:
        """Return the rows of live slots -> int64[n]."""
        return slots - np.searchsorted(self.dead, slots) if len(self.dead) else slots

    def of(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return what belongs to live slots of ``values`` [slots] -> [rows]."""
        if not len(self.dead):
            return values
        if len(self.dead) > _SLICES_MAX:
            return np.delete(values, self.dead)
        return np.concatenate([values[a:b] for a, b in self._runs()])

    def of_table(self, table: pa.Table) -> pa.Table:
        """Return the rows of live slots of ``table`` [slots] as one chunk -> [rows]."""
        if not len(self.dead):
            return table.combine_chunks() if table.num_columns and table.column(0).num_chunks > 1 else table
        if len(self.dead) > _SLICES_MAX:
            return table.filter(mask(self._live())).combine_chunks()
        return pa.concat_tables([table.slice(a, b - a) for a, b in self._runs()]).combine_chunks()

    def _live(self) -> npt.NDArray[np.bool_]:
        live = np.ones(self.slots, dtype=np.bool_)
        live[self.dead] = False
        return live

    def _runs(self) -> list[tuple[int, int]]:
        bounds = [-1, *self.dead.tolist(), self.slots]
        return [(a + 1, b) for a, b in pairwise(bounds)]


class FilesView(Mapping[str, "FileColumn"]):
    """The live files: a mapping from the names of FILES to columns.  Nothing is read before it is used."""

    def __init__(self, base: Columns, pieces: Sequence[Piece], live: Live, known: Recent[int, Segment]) -> None:
        """``known``: segments by their ids, kept for every snapshot of the process."""
        self._base = base
        self._known = known
        self._pieces = pieces
        self._live = live
        self._columns: dict[str, FileColumn] = {}

    schema = FILES

    def __len__(self) -> int:
        return self._live.slots - len(self._live.dead)

    def __iter__(self) -> Iterator[str]:
        return iter(FILES.names)

    def __getitem__(self, name: str) -> FileColumn:
        found = self._columns.get(name)
        if found is None:
            found = self._columns[name] = FileColumn(self, FILES.field(name))
        return found

    def numpy(self, name: str) -> npt.NDArray[Any]:
        """Return a column of numbers -> [n]; null is 0."""
        known = self._base.numpy(f"files/{name}") if self._base.rows and f"files/{name}" in self._base else None
        parts = [np.zeros(self._base.rows, np.int64) if known is None else known]
        parts += [numbers(piece.files[name].fill_null(0)) for piece in self._pieces if len(piece)]
        return self._live.of(parts[0] if len(parts) == 1 else np.concatenate([p for p in parts if len(p)] or parts))

    def whole(self, name: str) -> pa.ChunkedArray:
        """Return a column."""
        field = FILES.field(name)
        parts = [_of_base(self._base, name)] if self._base.rows else []
        parts += [piece.files.select([name]) for piece in self._pieces if len(piece)]
        table = pa.concat_tables(parts) if parts else no_rows(pa.schema([field]))
        return self._live.of_table(table).column(0)

    def of_slot(self, name: str, slot: int) -> pa.Scalar:
        """Return the value of one file, dead ones included; reads one page."""
        if slot < self._base.rows:
            column = f"files/{name}"
            return self._base.value(column, slot) if column in self._base else pa.scalar(None, FILES.field(name).type)
        piece = next(p for p in self._pieces if p.first <= slot < p.first + len(p))
        return piece.files[name][slot - piece.first]

    def select(self, names: Sequence[str]) -> pa.Table:
        """Return some columns as a table."""
        schema = pa.schema([FILES.field(name) for name in names])
        return pa.table([self.whole(name) for name in names], schema=schema)

    def table(self) -> pa.Table:
        """Return all columns as a table, schema FILES."""
        return self.select(FILES.names)

    def segment(self, i: int) -> Segment:
        """Return the file in row ``i``, from memory if this process has read it before."""
        slot = self._live.slot(i)
        id = int(self.of_slot("segment", slot).as_py())
        known = self._known.get(id)
        if known is not None:
            return known
        return self._known.put(id, segment_of({name: self.of_slot(name, slot).as_py() for name in COLUMNS}))

    def segments(self, rows: Int64s) -> list[Segment]:
        """Return the files in ``rows``, in their order."""
        if _FEW * len(rows) < len(self):
            return [self.segment(row) for row in rows.tolist()]
        ids = self.numpy("segment")[rows].tolist()
        found = {id: self._known.get(id) for id in ids}
        missing = [at for at, id in enumerate(ids) if found[id] is None]
        if missing:
            table = self.select(COLUMNS).take(column(rows[missing]))
            fresh = (segment_of(row) for row in table.to_pylist())
            found |= {segment.id: self._known.put(segment.id, segment) for segment in fresh}
        return [segment for id in ids if (segment := found[id]) is not None]

    def row(self, i: int, name: str) -> pa.Scalar:
        """Return one value of row ``i``."""
        return self.of_slot(name, self._live.slot(i))


def _of_base(base: Columns, name: str) -> pa.Table:
    """Return a column of the base; null if a base of an older version lacks it."""
    column = f"files/{name}"
    if column in base:
        return base.table(column)
    field = FILES.field(name)
    return pa.table([pa.nulls(base.rows, field.type)], schema=pa.schema([field]))


class FileColumn(Sequence[Any]):
    """One column of the live files.  ``column[i]`` reads one page; everything else the whole column, as Arrow has it."""

    def __init__(self, files: FilesView, field: pa.Field) -> None:
        self._files = files
        self._name = field.name
        self.type = field.type

    @cached_property
    def whole(self) -> pa.ChunkedArray:
        """The column as Arrow's chunked array [n]."""
        return self._files.whole(self._name)

    def __len__(self) -> int:
        return len(self._files)

    @overload
    def __getitem__(self, i: int) -> pa.Scalar: ...
    @overload
    def __getitem__(self, i: slice) -> pa.ChunkedArray: ...
    def __getitem__(self, i: int | slice) -> Any:
        return self.whole[i] if isinstance(i, slice) else self._files.row(i, self._name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.whole)

    def to_pylist(self) -> list[Any]:
        """Return the values as Python objects."""
        return list(self.whole.to_pylist())

    def to_numpy(self) -> npt.NDArray[Any]:
        """Return the values as numpy has them."""
        return np.asarray(self.whole.to_numpy())

    def is_valid(self) -> pa.ChunkedArray:
        """Return which values are not null."""
        return self.whole.is_valid()


@dataclass(frozen=True, slots=True)
class _Dictionary:
    """The ids of file groups by number."""

    groups: Groups

    def __len__(self) -> int:
        return self.groups.count

    def __getitem__(self, number: int) -> pa.Scalar:
        return pa.scalar(self.groups.name(int(number)), pa.string())

    def take(self, numbers: pa.Array) -> pa.Array:
        """Return the ids of some groups."""
        return pa.array(self.groups.names(numbers.to_pylist()), pa.string())

    def to_pylist(self) -> list[str]:
        """Return all ids."""
        return self.groups.all_names()


@dataclass(frozen=True, slots=True)
class NamesView:
    """File groups as a dictionary encoding has them: ``dictionary`` holds the ids."""

    groups: Groups

    @property
    def dictionary(self) -> _Dictionary:
        """The ids by number."""
        return _Dictionary(self.groups)


class NumbersView(Mapping[str, int]):
    """File group id -> number."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def __getitem__(self, name: str) -> int:
        number = int(self._groups.number([name])[0])
        if number < 0:
            raise KeyError(name)
        return number

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups.all_names())

    def __len__(self) -> int:
        return self._groups.count


class PartitionsView(Sequence[str]):
    """Partition paths of the file groups, by number."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def __len__(self) -> int:
        return self._groups.count

    @overload
    def __getitem__(self, number: int) -> str: ...
    @overload
    def __getitem__(self, number: slice) -> list[str]: ...
    def __getitem__(self, number: int | slice) -> str | list[str]:
        if isinstance(number, slice):
            return list(self)[number]
        if not 0 <= number < len(self):
            raise IndexError(f"there is no file group {number}")
        return self._groups.partition(number)

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups.partitions(np.arange(len(self))).tolist())


class MembersView(Sequence[Int64s]):
    """Row numbers of the files of each file group, oldest first; empty for a group that is gone."""

    def __init__(self, groups: Groups, live: Live) -> None:
        self._groups = groups
        self._live = live

    def __len__(self) -> int:
        return self._groups.count

    @overload
    def __getitem__(self, number: int) -> Int64s: ...
    @overload
    def __getitem__(self, number: slice) -> list[Int64s]: ...
    def __getitem__(self, number: int | slice) -> Int64s | list[Int64s]:
        if isinstance(number, slice):
            return [self[n] for n in range(len(self))[number]]
        if not 0 <= number < len(self):
            raise IndexError(f"there is no file group {number}")
        return self._live.rows_of(self._groups.members(number))
