"""The value ranges of files in two columns, for pictures.

Values are replaced by their ranks among all bounds of the compared states. So any ordered type
works, and skew does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexes import paths as column_paths
from indexes import values
from indexes.arrays import flags, numbers
from indexes.base import BoolArray
from mdt.errors import Invalid
from mdt.metadata.files.file_group import LOG
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.services.layout.ranges import overlaps

COLUMNS_COMPARED_MAX = 32
"""Maximum number of columns, the first in the table, from which the two columns are chosen."""
FILES_DRAWN_MAX = 2_000
"""Maximum number of files per state, evenly chosen. More would hide each other."""
_TICKS = 4

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FilesOfState:
    """The files of one state.

    Attributes:
        low, high: Ranges in both columns, from 0 to 1 (float64[2, n]).
        is_log: True for log files (bool[n]).
        of: Number of files with rows, including files that are not shown.
    """

    seq: int
    low: Floats
    high: Floats
    is_log: BoolArray
    of: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Files of several states in two ``columns``.

    ``ticks`` has for each column the texts of values at equal distances from 0 to 1.
    """

    columns: tuple[str, str]
    states: tuple[FilesOfState, ...]
    ticks: tuple[tuple[str, ...], tuple[str, ...]]


def layout(states: Sequence[Snapshot], columns: Sequence[str] | None) -> Layout | None:
    """Return the layout of several states of a table, the newest last.

    ``columns`` are two columns with statistics, by default the columns with the least overlap.
    Returns None if there are no two such columns. Raises Invalid for other columns.
    """
    chosen = _narrowest(states[-1]) if columns is None else _checked(states[-1], columns)
    if chosen is None:
        return None
    drawn = [_drawn(state) for state in states]
    extents = [_placed(states, drawn, column) for column in chosen]
    ends = np.cumsum([0, *map(len, drawn)]).tolist()
    files = []
    for state, numbers_, (start, end) in zip(states, drawn, pairwise(ends), strict=True):
        low, high = (np.stack([extent[bound][start:end] for extent in extents]) for bound in (0, 1))
        is_log: BoolArray = state.kind[numbers_] == LOG
        files.append(FilesOfState(state.seq, low, high, is_log, int(state.has_rows.sum())))
    return Layout(chosen, tuple(files), (extents[0][2], extents[1][2]))


def _drawn(state: Snapshot) -> npt.NDArray[np.int64]:
    files = np.flatnonzero(state.has_rows)
    return files[:: -(-max(1, len(files)) // FILES_DRAWN_MAX)]


def _known(state: Snapshot) -> list[str]:
    """Return the columns whose values have an order."""
    definition = state.definition
    return [
        path
        for path, field in column_paths.leaf_paths(definition.schema)
        if values.supports(field.type)
    ]


def _checked(state: Snapshot, columns: Sequence[str]) -> tuple[str, str]:
    allowed = _known(state)
    wrong = [name for name in columns if name not in allowed]
    if len(set(columns)) != 2 or wrong:
        reason = f"{wrong[0]!r} cannot be used" if wrong else f"{len(columns)} were given"
        raise Invalid(
            f"a layout needs two columns: {reason}", hint=f"use two of {', '.join(allowed)}"
        )
    return columns[0], columns[1]


def _narrowest(state: Snapshot) -> tuple[str, str] | None:
    """Return the two columns with the least overlap between files, or None.

    Partition columns are excluded.
    """
    candidates = [name for name in _known(state) if name not in state.definition.partition_by][
        :COLUMNS_COMPARED_MAX
    ]
    if len(candidates) < 2 or not state.has_rows.any():
        return None
    depth = overlaps(state, candidates)
    first, second, *_ = sorted(candidates, key=lambda name: (depth[name], candidates.index(name)))
    return first, second


def _placed(
    states: Sequence[Snapshot], files: Sequence[npt.NDArray[np.int64]], column: str
) -> tuple[Floats, Floats, tuple[str, ...]]:
    """Return (lower ends, upper ends, tick texts) of a column.

    Ends are from 0 to 1, state after state.
    """
    field = column_paths.field_at(states[-1].definition.schema, column)
    assert field is not None, "the column was checked"
    bounds = [
        _bounds(state, of_state, column) for state, of_state in zip(states, files, strict=True)
    ]
    ends = pa.chunked_array(
        [part[bound].combine_chunks() for bound in (0, 1) for part in bounds], pa.binary()
    )
    valid = flags(ends.is_valid())
    rank = numbers(pc.rank(ends, tiebreaker="dense")).astype(np.float64) - 1
    top = float(rank[valid].max(initial=0.0))
    place = rank / max(1.0, top)
    low, high = np.split(place, 2)
    is_known = np.split(valid, 2)
    return (
        np.where(is_known[0], low, 0.0),
        np.where(is_known[1], high, 1.0),
        _ticks(ends, field.type),
    )


def _bounds(
    state: Snapshot, files: npt.NDArray[np.int64], column: str
) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Return the minimum and maximum of a column in ``files``, as order-preserving keys.

    Unknown bounds are null.
    """
    stats = state.column_stats(state.definition.statistics_name(column))
    if stats is None:
        nothing = pa.chunked_array([pa.nulls(len(files), pa.binary())])
        return nothing, nothing
    stats = stats.select(["min", "max"]).take(pa.array(files))
    return stats["min"], stats["max"]


def _ticks(ends: pa.ChunkedArray, type: pa.DataType) -> tuple[str, ...]:
    """Return the texts of values at equal distances among ``ends``, including both extremes."""
    distinct = ends.drop_null().unique().sort()
    if not len(distinct):
        return ()
    positions = np.unique(np.linspace(0, len(distinct) - 1, _TICKS + 1).astype(np.int64))
    return tuple(
        str(values.decode(key, type)) for key in distinct.take(pa.array(positions)).to_pylist()
    )
