"""The rows of some file groups in a new order: read, ordered, cut into files, and whether that is worth writing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from indexes import paths as column_paths
from indexes.base import Int64Array
from mdt.config import Options
from mdt.hudi import base_file
from mdt.metadata.file_group import BASE
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot import Snapshot
from mdt.parquet.segment_rows import live_mask, read_rows
from mdt.services.clustering_plan import Unit
from mdt.services.curves import SORT, ranks, row_order
from mdt.services.ranges import Ranges
from mdt.write.files import FILE_NAME, live_rows
from mdt.write.slices import Carried

GAIN_MIN = 0.2
"""Rows are written anew if the files in which a value lies then hold so much fewer of the rows, as a share, or if there are so much
fewer files."""
_COUNT_STAYS = 1.5
"""As many files are written as there were, unless so many times more or fewer would have the right size."""

_SAMPLE_ROWS = 1 << 16
"""Rows at which the overlap of files is measured."""
_PARTITION_PATH = "_hoodie_partition_path"


@dataclass(frozen=True, slots=True)
class Arrangement:
    """``order``: int64[n], the permutation that puts the rows of a unit, segment after segment, into the new order.  ``ends``: where
    each new file ends in it.  ``before``, ``after``: in how many files a value lies in the mean.
    """

    order: Int64Array
    ends: Int64Array
    before: float
    after: float

    def pays(self, files: int) -> bool:
        """Return whether the rows, which stand in ``files`` file groups, are to be written in this order."""
        if len(self.ends) <= (1 - GAIN_MIN) * files:
            return True
        return self.after / len(self.ends) <= (1 - GAIN_MIN) * self.before / files


def members(snapshot: Snapshot, unit: Unit) -> list[int]:
    """Return the numbers of the files of a unit that have live rows, group by group, oldest first."""
    found = np.concatenate([snapshot.file_groups.members(group) for group in unit.groups])
    return [int(i) for i in found if snapshot.has_rows[i]]


def arrangement(
    metadata: Metadata, snapshot: Snapshot, options: Options, unit: Unit, by: Sequence[str], curve: str
) -> Arrangement:
    """Return how the rows of ``unit`` would stand; reads the columns ``by`` of it, verified."""
    files = members(snapshot, unit)
    stored = snapshot.definition.schema
    schema = pa.schema([stored.field(name) for name in sorted(column_paths.top_levels(stored, by))])
    parts = [_live(metadata, snapshot, i, schema) for i in files]
    rows = pa.concat_tables([schema.empty_table(), *parts])
    columns = [column_paths.column_at(rows, path) for path in by]
    order = row_order(columns, curve)
    ends = _ends(len(rows), _bytes(snapshot, files), options.max_file_bytes, len(unit.groups))
    group = np.repeat(snapshot.file_groups.of_files(np.array(files, np.int64)), [len(part) for part in parts])
    if curve == SORT:
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        return Arrangement(order, ends, _depth(place, np.arange(len(order)), group), 1.0)
    ranked = [ranks(column) for column in columns]
    new_file = np.searchsorted(ends, np.arange(len(order)), side="right")
    before = [_depth(one, np.arange(len(one)), group) for one in ranked]
    after = [_depth(one, order, new_file) for one in ranked]
    return Arrangement(order, ends, float(np.mean(before)), float(np.mean(after)))


def carried(metadata: Metadata, snapshot: Snapshot, unit: Unit, found: Arrangement) -> list[Carried]:
    """Return for each new file of a unit what gives its rows; reads the unit, verified, at once."""
    files = members(snapshot, unit)
    if not files:
        return []
    rows = _with_constants(base_file.stack([live_rows(metadata, snapshot, i) for i in files]), unit.partition)
    starts = [0, *found.ends.tolist()]

    def part(start: int, end: int) -> Callable[[], Sequence[pa.Table]]:
        return lambda: [_gathered(rows, found.order[start:end])]

    return [part(start, end) for start, end in pairwise(starts)]


def _live(metadata: Metadata, snapshot: Snapshot, i: int, schema: pa.Schema) -> pa.Table:
    table = read_rows(metadata.storage, snapshot.segment(i), schema)
    mask = live_mask(len(table), snapshot.vector(i))
    return table if mask is None else table.filter(pa.array(mask))


def _bytes(snapshot: Snapshot, files: Sequence[int]) -> float:
    """Return the bytes of a row in the base files among ``files``, or in all of them."""
    numbers = np.array(files, np.int64)
    bases = numbers[snapshot.kind[numbers] == BASE]
    numbers = bases if len(bases) else numbers
    rows = int(snapshot.rows[numbers].sum())
    return float(snapshot.files.numpy("size")[numbers].sum()) / max(1, rows)


def _ends(rows: int, row_bytes: float, file_bytes: int, files: int) -> Int64Array:
    """Return where files of about equal length end, none much above ``file_bytes`` -> int64[files].  ``files``: how many there were."""
    if not rows:
        return np.empty(0, np.int64)
    count = -(-rows // max(1, int(file_bytes / max(row_bytes, 1e-9))))
    if count <= _COUNT_STAYS * files and files <= _COUNT_STAYS * count:
        count = min(files, rows)
    return (np.arange(1, count + 1) * rows) // count


def _depth(values: Int64Array, order: Int64Array, file: Int64Array) -> float:
    """Return in how many files a value lies in the mean.  ``file``: number of the file of each row of ``order``, in runs."""
    if not len(values):
        return 0.0
    starts = np.flatnonzero(np.diff(file, prepend=-1))
    stand = values[order]
    low, high = np.minimum.reduceat(stand, starts), np.maximum.reduceat(stand, starts)
    step = max(1, len(values) // _SAMPLE_ROWS)
    return Ranges(low, high).depth(values[::step])


def _with_constants(rows: pa.Table, partition: str) -> pa.Table:
    """Return rows whose partition path and file name, of which there is one each, need not be moved one by one."""
    zeros = pa.array(np.zeros(len(rows), np.int32))
    for name, text in ((_PARTITION_PATH, partition), (FILE_NAME, "")):
        values = pa.DictionaryArray.from_arrays(zeros, pa.array([text]))
        rows = rows.set_column(rows.schema.get_field_index(name), pa.field(name, values.type), values)
    return rows


def _gathered(rows: pa.Table, at: Int64Array) -> pa.Table:
    """Return the rows ``at``.  Column by column: a quarter of the time of Table.take."""
    indices = pa.array(at)
    return pa.table([column.take(indices) for column in rows.columns], schema=rows.schema)
