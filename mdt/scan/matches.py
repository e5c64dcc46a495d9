"""Finds the live rows that match a predicate, planned like a scan with indexes and statistics."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pyarrow as pa

from indexes.arrays import in_batches, spans
from indexes.base import Int64Array
from indexes.paths import top_levels
from indexes.predicate import And, Or, Predicate, bind, columns, simplify
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.plan.planner import SegmentScan, plan, rows_in
from mdt.scan.reader import FileRows, by_file, read_at
from mdt.scan.scan_tasks import live_positions

_TOGETHER_ROWS = 1 << 20
"""Number of rows tested at a time."""


def matching_rows(
    metadata: Metadata,
    snapshot: Snapshot,
    predicate: Predicate,
    *,
    threads: int,
    scanned: set[int] | None = None,
    files: Collection[int] | None = None,
) -> list[FileRows]:
    """Return the live rows that match, by file. Reads only the columns of the predicate.

    Args:
        scanned: Gets the numbers of the files that neither an index nor statistics pruned.
        files: The only files to search.
    """
    predicate = simplify(predicate)
    if predicate == Or(()):
        return []
    scans = plan(metadata, snapshot, predicate).segments
    if files is not None:
        scans = tuple(scan for scan in scans if scan.file in files)
    if scanned is not None:
        scanned.update(scan.file for scan in scans)
    return matching_of(metadata, snapshot, predicate, scans, threads=threads)


def matching_of(
    metadata: Metadata,
    snapshot: Snapshot,
    predicate: Predicate,
    scans: Sequence[SegmentScan],
    *,
    threads: int,
) -> list[FileRows]:
    """Return the matching live rows of ``scans``, by file. ``predicate`` must be simplified."""
    if predicate == And(()):
        matches = [(scan.file, _candidates(snapshot, scan)) for scan in scans]
    else:
        together = _candidate_batches(snapshot, scans)
        matches = [
            places
            for part in together
            for places in _matching_candidates(metadata, snapshot, predicate, part, threads)
        ]
    positions_by_file: dict[int, list[Int64Array]] = {}
    for file, positions in matches:
        if len(positions):
            positions_by_file.setdefault(file, []).append(positions)
    return [(file, np.concatenate(parts)) for file, parts in positions_by_file.items()]


def places_of(matches: list[FileRows]) -> Int64Array:
    """Return the places of rows as one array: file number << 32 | position."""
    parts = [np.empty(0, np.int64)]
    for file, positions in matches:
        parts.append(file << 32 | positions)
    return np.concatenate(parts)


def _candidates(snapshot: Snapshot, scan: SegmentScan) -> Int64Array:
    positions = scan.positions
    if positions is None:
        positions = rows_in(snapshot.segment(scan.file).row_groups, scan.row_groups)
    return live_positions(positions, snapshot.vector(scan.file))


def _candidate_batches(
    snapshot: Snapshot, scans: Sequence[SegmentScan]
) -> Iterator[list[FileRows]]:
    """Return the candidates in batches to be read together."""

    def pieces() -> Iterator[FileRows]:
        for scan in scans:
            positions = _candidates(snapshot, scan)
            for piece in spans(len(positions), _TOGETHER_ROWS):
                yield scan.file, positions[piece]

    return in_batches(pieces(), lambda piece: len(piece[1]), _TOGETHER_ROWS)


def _matching_candidates(
    metadata: Metadata, snapshot: Snapshot, predicate: Predicate, part: list[FileRows], threads: int
) -> Iterator[FileRows]:
    """Yield the candidates of ``part`` that match, by file."""
    schema = snapshot.definition.schema
    names = sorted(top_levels(schema, columns(predicate)))
    table, places = read_at(metadata, snapshot, part, names, threads=threads)
    tested = pa.schema([schema.field(name) for name in names])
    mask = bind(predicate, tested)(table.select(names)).to_numpy()
    yield from by_file(np.sort(places[mask]))
