"""The value ranges of files in two columns, for pictures.

An axis of numbers or times is linear, unless a few extreme values would take most of it. Otherwise,
and for texts, values are replaced by their ranks among all bounds of the compared states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import floor, log10

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexes import paths as column_paths
from indexes import values
from indexes.arrays import flags, numbers
from indexes.base import BoolArray
from indexes.dictionary import common_length
from indexes.key_numbers import as_numbers
from mdt.errors import Invalid
from mdt.metadata.files.file_group import LOG
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.services.layout.ranges import overlaps

COLUMNS_COMPARED_MAX = 32
"""Maximum number of columns, the first in the table, from which the two columns are chosen."""
FILES_DRAWN_MAX = 2_000
"""Maximum number of files per state, evenly chosen. More would hide each other."""
_TICKS = 4
"""Number of labels of an axis."""
_LABEL_CHARACTERS_MAX = 12
_MIDDLE_SHARE_MIN = 0.02
"""An axis is linear if the middle half of the bounds takes at least this share of it."""
_MICROSECONDS_A_DAY = 86_400_000_000
_MICROSECONDS_MAX = 2.0**62
"""Times beyond this do not fit into NumPy's microseconds."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FilesOfState:
    """The files of one state.

    Attributes:
        low, high: Ranges in both columns, from 0 to 1 (float64[2, n]).
        is_log: True for log files (bool[n]).
        count: Number of files with rows, including files that are not shown.
    """

    seq: int
    low: Floats
    high: Floats
    is_log: BoolArray
    count: int


@dataclass(frozen=True, slots=True)
class Axis:
    """The scale of a column.

    Attributes:
        labels: Position from 0 to 1 -> text of the value there.
        is_linear: False if positions are ranks of values.
    """

    labels: Mapping[float, str]
    is_linear: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """Files of several states in two ``columns``, with the axis of each column."""

    columns: tuple[str, str]
    states: tuple[FilesOfState, ...]
    axes: tuple[Axis, Axis]


def layout(states: Sequence[Snapshot], columns: Sequence[str] | None) -> Layout | None:
    """Return the layout of several states of a table, the newest last.

    ``columns`` are two columns with statistics, by default the columns with the least overlap.
    Returns None if there are no two such columns. Raises Invalid for other columns.
    """
    chosen = _narrowest(states[-1]) if columns is None else _check_columns(states[-1], columns)
    if chosen is None:
        return None
    drawn = [_drawn_files(state) for state in states]
    extents = [_extent(states, drawn, column) for column in chosen]
    ends = np.cumsum([0, *map(len, drawn)]).tolist()
    files = []
    for state, numbers_, (start, end) in zip(states, drawn, pairwise(ends), strict=True):
        low = np.stack([lower[start:end] for lower, _, _ in extents])
        high = np.stack([upper[start:end] for _, upper, _ in extents])
        is_log: BoolArray = state.kind[numbers_] == LOG
        files.append(FilesOfState(state.seq, low, high, is_log, int(state.has_rows.sum())))
    return Layout(chosen, tuple(files), (extents[0][2], extents[1][2]))


def _drawn_files(state: Snapshot) -> npt.NDArray[np.int64]:
    files = np.flatnonzero(state.has_rows)
    return files[:: -(-max(1, len(files)) // FILES_DRAWN_MAX)]


def _ordered_columns(state: Snapshot) -> list[str]:
    """Return the columns whose values have an order."""
    definition = state.definition
    return [
        path
        for path, field in column_paths.leaf_paths(definition.schema)
        if values.supports(field.type)
    ]


def _check_columns(state: Snapshot, columns: Sequence[str]) -> tuple[str, str]:
    allowed = _ordered_columns(state)
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
    candidates = [
        name for name in _ordered_columns(state) if name not in state.definition.partition_by
    ][:COLUMNS_COMPARED_MAX]
    if len(candidates) < 2 or not state.has_rows.any():
        return None
    depth = overlaps(state, candidates)
    first, second, *_ = sorted(candidates, key=lambda name: (depth[name], candidates.index(name)))
    return first, second


def _extent(
    states: Sequence[Snapshot], files: Sequence[npt.NDArray[np.int64]], column: str
) -> tuple[Floats, Floats, Axis]:
    """Return (lower ends, upper ends, axis) of a column.

    Ends are from 0 to 1, state after state.
    """
    field = column_paths.field_at(states[-1].definition.schema, column)
    assert field is not None, "the column was checked"
    bounds = [
        _bounds(state, state_files, column)
        for state, state_files in zip(states, files, strict=True)
    ]
    ends = pa.chunked_array(
        [part[bound].combine_chunks() for bound in (0, 1) for part in bounds], pa.binary()
    )
    valid = flags(ends.is_valid())
    distinct = ends.drop_null().unique().sort()
    rank = numbers(pc.rank(ends, tiebreaker="dense")).astype(np.int64) - 1
    place, axis = _scale(distinct, field.type)
    ends_placed = np.zeros(len(rank))
    ends_placed[valid] = place[rank[valid]]
    low, high = np.split(ends_placed, 2)
    is_known = np.split(valid, 2)
    return np.where(is_known[0], low, 0.0), np.where(is_known[1], high, 1.0), axis


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


def _scale(keys: pa.Array, type: pa.DataType) -> tuple[Floats, Axis]:
    """Return the positions from 0 to 1 of distinct sorted keys, and the axis."""
    count = len(keys)
    numeric = _numeric(keys, type)
    if numeric is not None:
        width = float(numeric[-1] - numeric[0])
        quarter = (count - 1) // 4
        middle = numeric[count - 1 - quarter] - numeric[quarter]
        if middle >= _MIDDLE_SHARE_MIN * width:
            labels = _linear_labels(float(numeric[0]), width, type)
            return (numeric - numeric[0]) / width, Axis(labels, is_linear=True)
    place = np.arange(count) / max(1, count - 1)
    return place, Axis(_rank_labels(keys, type), is_linear=False)


def _numeric(keys: pa.Array, type: pa.DataType) -> Floats | None:
    """Return the values of distinct sorted keys as numbers, times in microseconds since 1970.

    Returns None for other types, for infinite values, and for fewer than two different numbers.
    """
    plain = values.plain_type(type)
    is_time = pa.types.is_date32(plain) or pa.types.is_timestamp(plain)
    if not (is_time or _is_number(plain)) or len(keys) < 2:
        return None
    numeric = as_numbers(keys, plain)
    if pa.types.is_date32(plain):
        numeric = numeric * _MICROSECONDS_A_DAY
    if not np.isfinite(numeric).all() or (is_time and np.abs(numeric).max() > _MICROSECONDS_MAX):
        return None
    return numeric if numeric[-1] > numeric[0] else None


def _is_number(type: pa.DataType) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(test(type) for test in tests)


def _linear_labels(low: float, width: float, type: pa.DataType) -> dict[float, str]:
    """Return the texts of values at equal distances on a linear axis."""
    positions = [n / (_TICKS - 1) for n in range(_TICKS)]
    points = [low + width * position for position in positions]
    if _is_number(values.plain_type(type)):
        digits = 3 - floor(log10(width))
        texts = [f"{round(point, digits):.7g}" for point in points]
    else:
        times = [str(np.datetime64(round(point), "us")) for point in points]
        is_long = width >= _TICKS * _MICROSECONDS_A_DAY
        texts = [time[:10] if is_long else time[5:16].replace("T", " ") for time in times]
    return dict(zip(positions, texts, strict=True))


def _rank_labels(keys: pa.Array, type: pa.DataType) -> dict[float, str]:
    """Return the texts of some of the distinct sorted ``keys``, including both extremes."""
    last = len(keys) - 1
    if last < 0:
        return {}
    chosen = np.unique(np.linspace(0, last, _TICKS).astype(np.int64))
    texts = [str(values.decode(key, type)) for key in keys.take(pa.array(chosen)).to_pylist()]
    if _is_number(values.plain_type(type)):
        texts = [f"{float(text):.6g}" for text in texts]
    positions = (chosen / max(1, last)).tolist()
    return dict(zip(positions, _shortened(texts), strict=True))


def _shortened(texts: Sequence[str]) -> list[str]:
    """Return texts of at most 12 characters. A common beginning is cut before the ends are.

    >>> _shortened(["a long street 17", "a long street 9"])
    ['…17', '…9']
    """
    if max(map(len, texts)) > _LABEL_CHARACTERS_MAX and len(texts) > 1:
        common = common_length(min(texts), max(texts))
        texts = [f"…{text[common:]}" if common > 1 else text for text in texts]
    return [
        text if len(text) <= _LABEL_CHARACTERS_MAX else f"{text[: _LABEL_CHARACTERS_MAX - 1]}…"
        for text in texts
    ]
