"""The rows of some file groups in a new order: read, ordered, cut into files, and whether that is
worth writing.
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
from indexes.base import Int64Array
from mdt.config import Options
from mdt.hudi.avro_schema import RECORD_KEY
from mdt.metadata.files.file_group import BASE
from mdt.metadata.files.segment_columns import read_columns
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.parquet.segment_rows import live_mask
from mdt.services.layout.clustering_plan import Unit
from mdt.services.layout.curves import SORT, order_along, ranks, row_order
from mdt.services.layout.ranges import Ranges
from mdt.write.rewrite_rows import live_rows
from mdt.write.slices import Carried

GAIN_MIN = 0.2
"""Rows are written anew if a value then lies in so much fewer of the row groups, as a share, or if
there are so much fewer files.
"""
_COUNT_STAYS = 1.5
"""As many files are written as there were, unless so many times more or fewer would have the right
size.
"""

_SAMPLE_ROWS = 1 << 16
"""Rows at which the overlap of files is measured."""
_MOVED_BYTES = 1 << 28
"""Of rows in memory that are moved together."""
_PROBED_ROWS = 1 << 12
"""Rows by which a column of texts is said to have few of them: an eighth."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """``order``: int64[n], the permutation that puts the rows of a unit, segment after segment,
    into the new order.  ``ends``: where each new file ends in it.  ``before``, ``after``: share of
    the row groups in which a value lies, in the mean.
    """

    order: Int64Array
    ends: Int64Array
    before: float
    after: float

    def pays(self, files: int) -> bool:
        """Return whether the rows, which stand in ``files`` file groups, are to be written in this
        order.
        """
        return (
            len(self.ends) <= (1 - GAIN_MIN) * files or self.after <= (1 - GAIN_MIN) * self.before
        )


def members(snapshot: Snapshot, unit: Unit) -> list[int]:
    """Return the numbers of the files of a unit that have live rows, group by group, oldest
    first.
    """
    found = np.concatenate([snapshot.file_groups.members(group) for group in unit.groups])
    return [int(i) for i in found if snapshot.has_rows[i]]


def arrangement(
    metadata: Metadata,
    snapshot: Snapshot,
    options: Options,
    unit: Unit,
    by: Sequence[str],
    curve: str,
) -> Arrangement:
    """Return how the rows of ``unit`` would stand; reads the columns ``by`` of it, verified."""
    files = members(snapshot, unit)
    stored = snapshot.definition.schema
    schema = pa.schema([stored.field(name) for name in sorted(column_paths.top_levels(stored, by))])
    parts = [*metadata.storage.each(partial(_live, metadata, snapshot, i, schema) for i in files)]
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
    stood = _starts([rows for _, rows in parts])
    stand = _new_starts(ends, options.row_group_rows)
    before = [_share(one, stood, one) for one in ranked]
    after = [_share(one[order], stand, one) for one in ranked]
    return Arrangement(order, ends, float(np.mean(before)), float(np.mean(after)))


def carried(
    metadata: Metadata, snapshot: Snapshot, unit: Unit, found: Arrangement, pool: Executor
) -> Iterator[list[Carried]]:
    """Yield for each new file of a unit what gives its rows, some files at a time; reads the unit,
    verified, at once.

    Rows are moved column by column, in ``pool``, and for some files together.  Each column is one
    piece of memory before: of many pieces each call of take would make one first.  Nothing costs as
    much here as texts, each of which lies anywhere in memory.
    """
    files = members(snapshot, unit)
    if not files:
        return
    rows = pa.concat_tables(
        metadata.storage.each(partial(live_rows, metadata, snapshot, i) for i in files)
    )
    row_bytes, schema, columns = max(1, rows.nbytes // max(1, len(rows))), rows.schema, rows.columns
    del rows  # so that the pieces of a column go when it is one
    for i in range(len(columns)):
        columns[i] = _movable(columns[i])
    key, record_key = snapshot.definition.key, schema.get_field_index(RECORD_KEY)
    same = schema.get_field_index(key[0]) if len(key) == 1 else record_key
    if columns[same].equals(columns[record_key]):
        columns[record_key] = columns[same]
    for ends in _pieces(found.ends, _MOVED_BYTES // row_bytes):
        indices = pa.array(found.order[ends[0] : ends[-1]])
        # what two columns share is moved once
        of = dict(zip(map(id, columns), columns, strict=True))
        parts = dict(zip(of, pool.map(partial(_taken, indices), of.values()), strict=True))
        moved = pa.table([parts[id(column)] for column in columns], schema=schema)
        yield [_giving(moved.slice(start - ends[0], end - start)) for start, end in pairwise(ends)]


def _movable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column in one piece, if its type allows it; texts of which there are few as numbers
    with a dictionary.
    """
    column = pa.table([column], names=[""]).combine_chunks()[0]
    sample = column.slice(0, _PROBED_ROWS)
    if pa.types.is_string(column.type) and pc.count_distinct(sample).as_py() * 8 <= len(sample):
        return column.dictionary_encode()
    return column


def _taken(indices: pa.Array, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return values of what :func:`_movable` gives, as texts again: parquet-cpp takes twice as long
    for bounds of a dictionary.
    """
    found = column.take(indices)
    return found.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else found


def _pieces(ends: Int64Array, rows: int) -> Iterator[list[int]]:
    """Yield the bounds of files that follow each other and have up to ``rows`` rows, or of one.
    ``ends``: where files end.
    """
    bounds = [0]
    for end in ends.tolist():
        if len(bounds) > 1 and end - bounds[0] > rows:
            yield bounds
            bounds = bounds[-1:]
        bounds.append(end)
    if len(bounds) > 1:
        yield bounds


def _giving(rows: pa.Table) -> Carried:
    return lambda: [rows]


def _live(
    metadata: Metadata, snapshot: Snapshot, i: int, schema: pa.Schema
) -> tuple[pa.Table, Int64Array]:
    """Return the live rows of a file, and how many of its row groups have how many."""
    segment = snapshot.segment(i)
    table = read_columns(metadata.storage, snapshot.definition, segment, schema)
    mask = live_mask(len(table), snapshot.vector(i))
    row_groups = np.array(segment.row_groups, np.int64)
    if mask is None:
        return table, row_groups
    of_row = np.repeat(np.arange(len(row_groups)), row_groups)
    return table.filter(pa.array(mask)), np.bincount(
        of_row[mask], minlength=len(row_groups)
    ).astype(np.int64)


def _bytes(snapshot: Snapshot, files: Sequence[int]) -> float:
    """Return the bytes of a row in the base files among ``files``, or in all of them."""
    numbers = np.array(files, np.int64)
    bases = numbers[snapshot.kind[numbers] == BASE]
    numbers = bases if len(bases) else numbers
    rows = int(snapshot.rows[numbers].sum())
    return float(snapshot.files.numpy("size")[numbers].sum()) / max(1, rows)


def _ends(rows: int, row_bytes: float, file_bytes: int, files: int) -> Int64Array:
    """Return where files of about equal length end, none much above ``file_bytes`` -> int64[files].
    ``files``: how many there were.
    """
    if not rows:
        return np.empty(0, np.int64)
    count = -(-rows // max(1, int(file_bytes / max(row_bytes, 1e-9))))
    if count <= _COUNT_STAYS * files and files <= _COUNT_STAYS * count:
        count = min(files, rows)
    return (np.arange(1, count + 1) * rows) // count


def _starts(row_groups: Sequence[Int64Array]) -> Int64Array:
    """Return where row groups begin that follow each other, those without rows left out.
    ``row_groups``: rows of those of each file.
    """
    rows = np.concatenate([np.empty(0, np.int64), *row_groups])
    rows = rows[rows > 0]
    return np.cumsum(rows) - rows


def _new_starts(ends: Int64Array, row_group_rows: int) -> Int64Array:
    """Return where row groups begin in files that end at ``ends``."""
    starts = [0, *ends.tolist()]
    return np.concatenate(
        [np.empty(0, np.int64), *(np.arange(a, b, row_group_rows) for a, b in pairwise(starts))]
    )


def _share(values: Int64Array, starts: Int64Array, points: Int64Array) -> float:
    """Return the share of the row groups, which begin at ``starts`` of ``values``, in which one of
    ``points`` lies in the mean.
    """
    if not len(values):
        return 0.0
    low, high = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
    step = max(1, len(points) // _SAMPLE_ROWS)
    return Ranges(low, high).depth(points[::step]) / len(starts)
