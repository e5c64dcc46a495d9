"""Statistics of a table's columns, for people and for cost-based optimizers.

Counts and bounds come from column statistics, which every file has. Distinct counts and most common
values come from indexes of the kind ``table_stats``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from indexes import column_stats, registry, table_stats, values
from indexes import paths as column_paths
from indexes.base import SkippingIndex, whole
from indexes.table_stats import ColumnSummary
from mdt.errors import Corrupt
from mdt.metadata.metadata import Metadata
from mdt.metadata.skipping_indexes import Parts, index_of
from mdt.metadata.snapshot.snapshot import Snapshot

KIND = "table_stats"
COMMON = pa.struct([("value", pa.string()), ("count", pa.int64()), ("error", pa.int64())])
STATISTICS = pa.schema(
    [
        ("column", pa.string()),
        ("type", pa.string()),
        ("rows", pa.int64()),
        ("nulls", pa.int64()),
        ("nans", pa.int64()),
        ("min", pa.string()),
        ("max", pa.string()),
        ("bytes", pa.int64()),
        ("distinct", pa.int64()),
        ("distinct_low", pa.int64()),
        ("distinct_high", pa.int64()),
        ("common", pa.list_(COMMON)),
    ]
)
"""One row per column, including fields of structs.

``rows`` to ``bytes`` count every row in live files, including deleted rows. ``min`` and ``max`` are
those of files with statistics, and truncated for long texts. ``distinct`` and ``common`` are null
without a ``table_stats`` index (:meth:`mdt.Table.analyze` creates them): an estimate with its 95 %
bounds, and values that occur at least ``count`` and at most ``count + error`` times.
"""


def analyzable(schema: pa.Schema) -> list[str]:
    """Return the paths of all scalar columns and fields of structs."""
    return [path for path, field in column_paths.leaf_paths(schema) if values.supports(field.type)]


def spec(path: str) -> str:
    """Return the specification of the ``table_stats`` index of a column."""
    return str(registry.IndexSpec(KIND, (path,)))


def statistics(metadata: Metadata, snapshot: Snapshot) -> pa.Table:
    """Return the statistics of each scalar column, schema STATISTICS."""
    rows = []
    for path, field in column_paths.leaf_paths(snapshot.definition.schema):
        if values.supports(field.type):
            rows.append(
                {
                    "column": path,
                    "type": str(field.type),
                    **_counts(snapshot, path, field.type),
                    **_distinct(metadata, snapshot, path, field.type),
                }
            )
    return pa.Table.from_pylist(rows, schema=STATISTICS)


def _counts(snapshot: Snapshot, path: str, type: pa.DataType) -> dict[str, Any]:
    stats = snapshot.column_stats(snapshot.definition.statistics_name(path))
    live = snapshot.has_rows
    if stats is None or not live.any():
        return {}
    usable = stats.filter(pa.array(live & np.asarray(stats["values"].is_valid())))
    total = column_stats.merge(column_stats.from_table(usable))
    return {
        "rows": total.values,
        "nulls": total.nulls,
        "nans": total.nans,
        "bytes": total.size,
        "min": _text(total.min, type),
        "max": _text(total.max, type),
    }


def _text(key: bytes | None, type: pa.DataType) -> str | None:
    if key is None:
        return None
    return str(values.decode(key, type))


def _distinct(
    metadata: Metadata, snapshot: Snapshot, path: str, type: pa.DataType
) -> dict[str, Any]:
    column_summary = summary(metadata, snapshot, path)
    if column_summary is None:
        return {}
    common = [
        {"value": str(c.value), "count": c.count, "error": c.error} for c in column_summary.common
    ]
    return {
        "distinct": column_summary.distinct,
        "distinct_low": column_summary.distinct_low,
        "distinct_high": column_summary.distinct_high,
        "common": common,
    }


def summary(metadata: Metadata, snapshot: Snapshot, path: str) -> ColumnSummary | None:
    """Return the merged ``table_stats`` of the column at ``path``, or None without readable
    summaries.
    """
    for text in snapshot.definition.indexes:
        spec, index = index_of(text)
        if (
            spec.kind.partition("/")[0] == KIND
            and spec.columns == (path,)
            and isinstance(index, SkippingIndex)
        ):
            parts = _read(metadata, snapshot, text, index)
            type = column_paths.type_at(snapshot.definition.schema, path)
            if not parts:
                return None
            return table_stats.estimate(table_stats.merge(parts), type)
    return None


def _read(
    metadata: Metadata, snapshot: Snapshot, spec: str, index: SkippingIndex
) -> Sequence[memoryview]:
    files = np.flatnonzero(snapshot.covered(spec) & snapshot.has_rows)
    shards = snapshot.shards.of_files(files)
    summaries = dict(zip(shards.tolist(), snapshot.index_summaries(spec, shards), strict=True))
    parts = []
    for shard, segment in zip(
        snapshot.shards.of_file[files].tolist(), snapshot.files.segments(files), strict=True
    ):
        summary = summaries[shard]
        assert summary is not None, "the shards of covered files have summaries"
        try:
            summary_parts = Parts(metadata.summaries.open(index, summary))
            (part,) = summary_parts.within(segment.first_row, segment.first_row + segment.rows, 1)
            table_stats.check(whole(part))
        except (ValueError, Corrupt):
            continue
        parts.append(whole(part))
    return parts
