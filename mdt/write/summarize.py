"""Summaries of what was just written, from the same rows: column statistics and the table's skipping indexes.

Indexes that know positions summarize small segments together, in one joint summary each: :func:`summarize_indexes` puts
their columns aside, :func:`placed_all` joins those of one commit (or of one task).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate

import pyarrow as pa

from indexes import column_stats, paths, registry, values
from indexes.base import SkippingIndex
from mdt.blobs import BlobWriter
from mdt.config import Options
from mdt.definition import TableDefinition
from mdt.file_group import Joint, SummaryRef
from mdt.limits import INLINE_INDEX_BYTES_MAX, JOINT_SUMMARY_ROWS_MAX, SMALL_SEGMENT_ROWS
from mdt.skipping import find_index


@dataclass(frozen=True, slots=True)
class Indexed:
    """What indexes found in one segment: specification -> summary, and -> column of what is to be summarized jointly."""

    own: Mapping[str, bytes] = field(default_factory=dict)
    deferred: Mapping[str, pa.Array] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Summaries:
    """``stats``: rows of STATS without segment numbers, or None."""

    stats: pa.Table | None = None
    indexes: Indexed = field(default_factory=Indexed)


def summarize(definition: TableDefinition, options: Options, table: pa.Table, zones: tuple[int, ...]) -> Summaries:
    """Return the summaries of one segment.  ``zones``: rows of each row group."""
    stats = summarize_columns(definition, options, table, zones)
    return Summaries(stats, summarize_indexes(definition.indexes, table))


def summarize_columns(
    definition: TableDefinition, options: Options, table: pa.Table, zones: tuple[int, ...]
) -> pa.Table | None:
    """Return the column statistics of one segment, STATS without segment numbers; single zones are not kept apart.

    Fields of structs have statistics like columns; choosing a struct chooses all in it.
    """
    chosen = options.column_stats_columns
    wanted = {*(chosen or ()), *definition.key, *definition.partition_by}
    columns: list[str] = []
    zone: list[int] = []
    found: list[column_stats.Stats | None] = []
    for path, leaf in paths.leaf_paths(definition.schema):
        if not values.supports(leaf.type) or (chosen is not None and not _is_chosen(path, wanted)):
            continue
        parts = column_stats.summarize_zones(paths.column_at(table, path), zones)
        found.append(column_stats.merge(parts))
        zone.append(-1)
        if len(zones) > 1:
            found += parts
            zone += range(len(zones))
        columns += [path] * (len(found) - len(columns))
    if not found:
        return None
    batch = column_stats.to_batch(found)
    columns_of = dict(zip(batch.schema.names, batch.columns, strict=True))
    return pa.table({"column": columns, "zone": pa.array(zone, pa.int32()), **columns_of})


def _is_chosen(path: str, wanted: set[str]) -> bool:
    """Return whether ``path``, or a struct that it leads through, is wanted."""
    return any(path == name or path.startswith(name + ".") for name in wanted)


def summarize_indexes(specs: Sequence[str], table: pa.Table, *, small_rows: int | None = None) -> Indexed:
    """Summarize a segment with every index in ``specs`` whose class is installed; others leave it uncovered.

    So does an index that fails: it may be of any package, and a broken index costs time, never a write.
    ``small_rows``: up to how many rows a segment is small, by default SMALL_SEGMENT_ROWS.
    """
    is_small = 0 < len(table) <= (SMALL_SEGMENT_ROWS if small_rows is None else small_rows)
    own, deferred = {}, {}
    for text in specs:
        spec = registry.parse_spec(text)
        index = find_index(spec)
        if isinstance(index, SkippingIndex):
            with suppress(Exception):  # foreign code may fail in any way
                column = paths.column_at(table, spec.column).combine_chunks()
                if is_small and index.finds_rows:
                    deferred[text] = column
                else:
                    own[text] = index.summarize(column)
    return Indexed(own, deferred)


def placed_all(blobs: BlobWriter, parts: Sequence[Indexed]) -> list[list[tuple[str, SummaryRef]]]:
    """Summarize jointly what ``parts`` have put aside; return the summaries of each as a commit record holds them."""
    found: list[list[tuple[str, SummaryRef]]] = [
        [(spec, placed(blobs, data)) for spec, data in part.own.items()] for part in parts
    ]
    for spec in dict.fromkeys(spec for part in parts for spec in part.deferred):
        members = [n for n, part in enumerate(parts) if spec in part.deferred]
        for run in _runs(members, [len(parts[n].deferred[spec]) for n in members]):
            with suppress(Exception):  # as above
                shares = _joint(blobs, spec, [parts[n].deferred[spec] for n in run])
                for n, share in zip(run, shares, strict=True):
                    found[n].append((spec, share))
    return found


def placed(blobs: BlobWriter, summary: bytes) -> SummaryRef:
    """Return a summary as a commit record holds it: a small one itself, of a larger one where it stands."""
    return summary if len(summary) <= INLINE_INDEX_BYTES_MAX else blobs.add(summary)


def _runs(members: Sequence[int], rows: Sequence[int]) -> Iterator[list[int]]:
    """Cut ``members`` into runs of at most JOINT_SUMMARY_ROWS_MAX rows."""
    run: list[int] = []
    total = 0
    for member, count in zip(members, rows, strict=True):
        if run and total + count > JOINT_SUMMARY_ROWS_MAX:
            yield run
            run, total = [], 0
        run.append(member)
        total += count
    yield run


def _joint(blobs: BlobWriter, spec: str, columns: Sequence[pa.Array]) -> list[SummaryRef]:
    """Summarize columns as one; a single one has a summary of its own."""
    index = find_index(registry.parse_spec(spec))
    assert isinstance(index, SkippingIndex), "columns are put aside for indexes only"
    data = index.summarize(pa.concat_arrays(columns))
    if len(columns) == 1:
        return [placed(blobs, data)]
    blob = blobs.add(data)
    firsts = accumulate((len(column) for column in columns[:-1]), initial=0)
    return [Joint(blob, first) for first in firsts]
