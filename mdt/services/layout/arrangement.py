"""The new order of the rows of a unit: read and sort them, divide them into files, estimate the
gain.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexes import paths as column_paths
from indexes.arrays import run_starts
from indexes.base import Int64Array
from mdt.config import Options
from mdt.hudi.avro_schema import RECORD_KEY
from mdt.metadata.files.file_group import BASE
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.parquet.segment_rows import live_mask, read_columns
from mdt.services.layout.clustering_plan import Unit
from mdt.services.layout.curves import SORT, order_along, ranks, row_order
from mdt.services.layout.ranges import Ranges
from mdt.write.rewrite_rows import live_rows
from mdt.write.slices import Carried

GAIN_MIN = 0.2
"""Rows are rewritten if a value is then contained in this share fewer row groups, or if there are
this share fewer files.
"""
_COUNT_STAYS = 1.5
"""The number of files is kept unless the right number differs by more than this factor."""

_SAMPLE_ROWS = 1 << 16
"""Number of rows for which the overlap of files is measured."""
_MOVED_BYTES = 1 << 28
"""Bytes of rows in memory that are gathered at a time."""
_PROBED_ROWS = 1 << 12
"""Number of rows that are probed for few distinct strings (at most an eighth)."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """A new order of the rows of a unit.

    Attributes:
        order: Permutation of the rows, which are numbered segment after segment (int64[n]).
        ends: Ends of the new files in that order.
        before, after: Mean share of the row groups that contain a value.
    """

    order: Int64Array
    ends: Int64Array
    before: float
    after: float

    def pays(self, files: int) -> bool:
        """Return True if rewriting the rows, now in ``files`` file groups, is worth its cost."""
        return (
            len(self.ends) <= (1 - GAIN_MIN) * files or self.after <= (1 - GAIN_MIN) * self.before
        )


def members(snapshot: Snapshot, unit: Unit) -> list[int]:
    """Return the numbers of a unit's files with live rows, group by group, oldest first."""
    numbers = np.concatenate([snapshot.file_groups.members(group) for group in unit.groups])
    return [int(i) for i in numbers if snapshot.has_rows[i]]


def arrange(
    metadata: Metadata,
    snapshot: Snapshot,
    options: Options,
    unit: Unit,
    by: Sequence[str],
    curve: str,
) -> Arrangement:
    """Return the new order of the rows of ``unit``. Reads and verifies only the columns ``by``."""
    files = members(snapshot, unit)
    stored = snapshot.definition.schema
    schema = pa.schema([stored.field(name) for name in sorted(column_paths.top_levels(stored, by))])
    parts = [
        *metadata.storage.each(partial(_live_rows, metadata, snapshot, i, schema) for i in files)
    ]
    rows = pa.concat_tables([schema.empty_table(), *(part for part, _ in parts)])
    columns = [column_paths.column_at(rows, path) for path in by]
    if curve == SORT or len(columns) == 1:
        order = row_order(columns, curve)
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        ranked = [place]
    else:
        ranked = [ranks(column) for column in columns]
        order = order_along(curve, ranked)
    ends = _ends(len(rows), _bytes(snapshot, files), options.max_file_bytes, len(unit.groups))
    old_starts = _starts([rows for _, rows in parts])
    new_starts = _new_starts(ends, options.row_group_rows)
    before = [_share(column_ranks, old_starts, column_ranks) for column_ranks in ranked]
    after = [_share(column_ranks[order], new_starts, column_ranks) for column_ranks in ranked]
    return Arrangement(order, ends, float(np.mean(before)), float(np.mean(after)))


def carried_rows(
    metadata: Metadata, snapshot: Snapshot, unit: Unit, arrangement: Arrangement, pool: Executor
) -> Iterator[list[Carried]]:
    """Yield for several new files at a time the functions that return their rows.

    The whole unit is read and verified first. Rows are gathered column by column in ``pool``, for
    several files together. Each column is combined into one chunk before, because take would do so
    in every call. Gathering strings dominates the cost, because they are scattered in memory.
    """
    files = members(snapshot, unit)
    if not files:
        return
    rows = pa.concat_tables(
        metadata.storage.each(partial(live_rows, metadata, snapshot, i) for i in files)
    )
    row_bytes, schema, columns = max(1, rows.nbytes // max(1, len(rows))), rows.schema, rows.columns
    del rows  # free the chunks of each column as soon as it is combined
    for i in range(len(columns)):
        columns[i] = _combine(columns[i])
    key, record_key = snapshot.definition.key, schema.get_field_index(RECORD_KEY)
    key_position = schema.get_field_index(key[0]) if len(key) == 1 else record_key
    if columns[key_position].equals(columns[record_key]):
        columns[record_key] = columns[key_position]
    for ends in _pieces(arrangement.ends, _MOVED_BYTES // row_bytes):
        indices = pa.array(arrangement.order[ends[0] : ends[-1]])
        # gather columns that share memory once
        distinct = dict(zip(map(id, columns), columns, strict=True))
        parts = dict(
            zip(distinct, pool.map(partial(_gather, indices), distinct.values()), strict=True)
        )
        moved = pa.table([parts[id(column)] for column in columns], schema=schema)
        yield [
            _returning(moved.slice(start - ends[0], end - start)) for start, end in pairwise(ends)
        ]


def _combine(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column in one chunk if its type allows it.

    Strings with few distinct values are dictionary-encoded.
    """
    column = pa.table([column], names=[""]).combine_chunks()[0]
    sample = column.slice(0, _PROBED_ROWS)
    if pa.types.is_string(column.type) and pc.count_distinct(sample).as_py() * 8 <= len(sample):
        return column.dictionary_encode()
    return column


def _gather(indices: pa.Array, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Gather values of a column from :func:`_combine`, and decode dictionaries.

    parquet-cpp takes twice as long to compute bounds of a dictionary.
    """
    values = column.take(indices)
    return values.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else values


def _pieces(ends: Int64Array, rows: int) -> Iterator[list[int]]:
    """Yield the bounds of consecutive files with at most ``rows`` rows together, or of one larger
    file.

    ``ends`` are the ends of the files.
    """
    bounds = [0]
    for end in ends.tolist():
        if len(bounds) > 1 and end - bounds[0] > rows:
            yield bounds
            bounds = bounds[-1:]
        bounds.append(end)
    if len(bounds) > 1:
        yield bounds


def _returning(rows: pa.Table) -> Carried:
    return lambda: [rows]


def _live_rows(
    metadata: Metadata, snapshot: Snapshot, i: int, schema: pa.Schema
) -> tuple[pa.Table, Int64Array]:
    """Return the live rows of a file, and their number in each row group."""
    segment = snapshot.segment(i)
    table = read_columns(metadata.storage, snapshot.definition, segment, schema)
    mask = live_mask(len(table), snapshot.vector(i))
    row_groups = np.array(segment.row_groups, np.int64)
    if mask is None:
        return table, row_groups
    row_group_of_row = np.repeat(np.arange(len(row_groups)), row_groups)
    return table.filter(pa.array(mask)), np.bincount(
        row_group_of_row[mask], minlength=len(row_groups)
    ).astype(np.int64)


def _bytes(snapshot: Snapshot, files: Sequence[int]) -> float:
    """Return the mean bytes per row of the base files among ``files``, or of all without base
    files.
    """
    numbers = np.array(files, np.int64)
    bases = numbers[snapshot.kind[numbers] == BASE]
    numbers = bases if len(bases) else numbers
    rows = int(snapshot.rows[numbers].sum())
    return float(snapshot.files.numpy("size")[numbers].sum()) / max(1, rows)


def _ends(rows: int, row_bytes: float, file_bytes: int, files: int) -> Int64Array:
    """Return the ends of files of about equal length and at most about ``file_bytes``
    (int64[files]).

    ``files`` is the current number of files.
    """
    if not rows:
        return np.empty(0, np.int64)
    count = -(-rows // max(1, int(file_bytes / max(row_bytes, 1e-9))))
    if count <= _COUNT_STAYS * files and files <= _COUNT_STAYS * count:
        count = min(files, rows)
    return (np.arange(1, count + 1) * rows) // count


def _starts(row_groups: Sequence[Int64Array]) -> Int64Array:
    """Return the starts of non-empty row groups. ``row_groups`` has the row counts by file."""
    rows = np.concatenate([np.empty(0, np.int64), *row_groups])
    rows = rows[rows > 0]
    return run_starts(rows)


def _new_starts(ends: Int64Array, row_group_rows: int) -> Int64Array:
    """Return the starts of row groups in files that end at ``ends``."""
    starts = [0, *ends.tolist()]
    return np.concatenate(
        [np.empty(0, np.int64), *(np.arange(a, b, row_group_rows) for a, b in pairwise(starts))]
    )


def _share(values: Int64Array, starts: Int64Array, points: Int64Array) -> float:
    """Return the mean share of the row groups that contain one of ``points``.

    Row groups begin at ``starts`` of ``values``.
    """
    if not len(values):
        return 0.0
    low, high = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
    step = max(1, len(points) // _SAMPLE_ROWS)
    return Ranges(low, high).depth(points[::step]) / len(starts)
