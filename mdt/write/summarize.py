"""Summaries of what was just written, from the same rows: column statistics and the table's skipping indexes."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from indexes import column_stats, registry, values
from indexes.base import SkippingIndex
from mdt.config import Options
from mdt.definition import TableDefinition
from mdt.skipping import find_index


@dataclass(frozen=True, slots=True)
class Summaries:
    """``stats``: rows of STATS without segment numbers, or None.  ``indexes``: (specification, bytes) pairs."""

    stats: pa.Table | None
    indexes: tuple[tuple[str, bytes], ...]


def summarize(
    definition: TableDefinition, options: Options, table: pa.Table, zones: tuple[int, ...]
) -> Summaries:
    """Return the summaries of one segment.  ``zones``: rows of each row group; single zones are not kept apart."""
    chosen = options.column_stats_columns
    wanted = {*(chosen or ()), *definition.key, *definition.partition_by}
    columns: list[str] = []
    zone: list[int] = []
    found: list[column_stats.Stats | None] = []
    for field in definition.schema:
        if not values.supports(field.type) or (chosen is not None and field.name not in wanted):
            continue
        column = table[field.name]
        parts = column_stats.summarize_zones(column, zones)
        found.append(column_stats.merge(parts))
        zone.append(-1)
        if len(zones) > 1:
            found += parts
            zone += range(len(zones))
        columns += [field.name] * (len(found) - len(columns))
    if not found:
        return Summaries(None, tuple(_indexes(definition, table)))
    batch = column_stats.to_batch(found)
    stats = pa.table({"column": columns, "zone": pa.array(zone, pa.int32()), **dict(zip(batch.schema.names, batch.columns, strict=True))})
    return Summaries(stats, tuple(_indexes(definition, table)))


def _indexes(definition: TableDefinition, table: pa.Table) -> list[tuple[str, bytes]]:
    """Summarize with every index of the table whose class is installed; the others leave the segment uncovered."""
    found = []
    for text in definition.indexes:
        spec = registry.parse_spec(text)
        index = find_index(spec)
        if isinstance(index, SkippingIndex):
            found.append((text, index.summarize(table[spec.column].combine_chunks())))
    return found
