"""Summaries of what was just written, from the same rows: column statistics and the table's skipping indexes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from indexes import column_stats, paths, registry, values
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
    """Return the summaries of one segment.  ``zones``: rows of each row group; single zones are not kept apart.

    Fields of structs have statistics like columns; choosing a struct chooses all in it.
    """
    chosen = options.column_stats_columns
    wanted = {*(chosen or ()), *definition.key, *definition.partition_by}
    columns: list[str] = []
    zone: list[int] = []
    found: list[column_stats.Stats | None] = []
    for path, field in paths.leaf_paths(definition.schema):
        if not values.supports(field.type) or (chosen is not None and not _is_chosen(path, wanted)):
            continue
        parts = column_stats.summarize_zones(paths.column_at(table, path), zones)
        found.append(column_stats.merge(parts))
        zone.append(-1)
        if len(zones) > 1:
            found += parts
            zone += range(len(zones))
        columns += [path] * (len(found) - len(columns))
    if not found:
        return Summaries(None, tuple(summarize_indexes(definition.indexes, table)))
    batch = column_stats.to_batch(found)
    stats = pa.table({"column": columns, "zone": pa.array(zone, pa.int32()), **dict(zip(batch.schema.names, batch.columns, strict=True))})
    return Summaries(stats, tuple(summarize_indexes(definition.indexes, table)))


def _is_chosen(path: str, wanted: set[str]) -> bool:
    """Return whether ``path``, or a struct that it leads through, is wanted."""
    return any(path == name or path.startswith(name + ".") for name in wanted)


def summarize_indexes(specs: Sequence[str], table: pa.Table) -> list[tuple[str, bytes]]:
    """Summarize a segment with every index in ``specs`` whose class is installed; others leave it uncovered.

    So does an index that fails: it may be of any package, and a broken index costs time, never a write.
    """
    found = []
    for text in specs:
        spec = registry.parse_spec(text)
        index = find_index(spec)
        if isinstance(index, SkippingIndex):
            with suppress(Exception):  # foreign code may fail in any way
                found.append((text, index.summarize(paths.column_at(table, spec.column).combine_chunks())))
    return found
