"""Bounds of partitions in Hudi's metadata table, joined as Hudi joins them."""

from __future__ import annotations

from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from mdt.hudi.read.column_statistics import _file_column, comparable
from mdt.hudi.read.hfile import HFile
from mdt.hudi.read.index_partition import Decode, IndexPartition
from mdt.hudi.read.loading import load_properties, load_timeline
from mdt.hudi.read.metadata_state import load_metadata_table


def require_bounds_of_partitions(storage, t):
    """Require that bounds of partitions contain the rows of the table. Return their number."""
    rows, count = t.scan(columns=[*t.schema.names, "_hoodie_partition_path"]).to_arrow(), 0
    for (partition, column), (low, high) in joined_bounds(storage, rows.schema).items():
        of_partition = rows.filter(pc.equal(rows["_hoodie_partition_path"], partition))
        for value in filter(None, map(comparable, of_partition[column])):
            assert low <= value <= high, (partition, column)
            count += 1
    return count


def joined_bounds(storage, schema):
    """Return (low, high) of (partition, column) as Hudi joins those of its log files."""
    decode = Decode("ColumnStatsMetadata", lambda keys, values: pa.table([values], ["value"]))
    timeline = load_timeline(storage, load_properties(storage))
    table = load_metadata_table(storage)
    groups = IndexPartition(storage, table, timeline, "partition_stats").each(
        lambda group: list(group.parts(HFile.all, decode))
    )
    bounds = {}
    parts = [part for part in chain(*groups) if "value" in part.column_names]
    for record in chain.from_iterable(part["value"].to_pylist() for part in parts):
        key = record["fileName"], record["columnName"]
        if key[1] not in schema.names:
            continue
        ends = _file_column(record).bounds(schema.field(key[1]).type)
        if ends is None:  # only nulls
            continue
        if key in bounds and not record["isTightBound"]:
            ends = min(ends[0], bounds[key][0]), max(ends[1], bounds[key][1])
        bounds[key] = ends
    return bounds
