"""What readers need to know of one segment, put together once and kept while the process uses it.

A segment never changes after its commit, so what is known of it holds for every snapshot that has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from indexes.base import Int64Array
from mdt.limits import SEGMENTS_CACHED_MAX, SEGMENTS_KNOWN_MAX
from mdt.metadata import paths
from mdt.metadata.file_group import Blob
from mdt.metadata.recent import Recent
from mdt.metadata.snapshot import Snapshot

_COLUMNS = (
    "partition", "name", "kind", "size", "rows", "block_offset", "block_length", "zone_rows",
    "key_map_path", "key_map_offset", "key_map_length", "key_map_crc",
    "page_map_offset", "page_map_length", "page_map_crc",
)  # fmt: skip

_FEW = 8
"""Of a table with this many times as many files as are asked for, single values are read; else whole columns."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment as its commit wrote it.

    ``path``: of its file, of ``size`` bytes; ``kind``: BASE or LOG.  Its ``rows`` rows stand in ``block_length`` Parquet bytes from
    ``block_offset`` on, in row groups of ``zone_rows`` rows.  ``key_map``, ``page_map``: where these stand, None without.
    """

    path: str
    kind: int
    size: int
    rows: int
    block_offset: int
    block_length: int
    zone_rows: tuple[int, ...]
    key_map: Blob | None
    page_map: Blob | None


class Segments:
    """Segments by number; safe for many threads."""

    def __init__(self) -> None:
        self._known: Recent[int, Segment] = Recent(SEGMENTS_CACHED_MAX)

    def one(self, snapshot: Snapshot, row: int) -> Segment:
        """Return the segment in ``row`` of the snapshot's files."""
        number = _number(snapshot, row)
        known = self._known.get(number)
        return self._known.put(number, _read(snapshot, row)) if known is None else known

    def many(self, snapshot: Snapshot, rows: Int64Array) -> list[Segment]:
        """Return the segments in ``rows`` of the snapshot's files, in their order."""
        numbers = _numbers(snapshot, rows)
        known = [self._known.get(number) for number in numbers]
        missing = [place for place, found in enumerate(known) if found is None]
        if not missing:
            return [found for found in known if found is not None]
        fresh = _read_some(snapshot, [int(rows[place]) for place in missing])
        for place, found in zip(missing, fresh, strict=True):
            known[place] = self._known.put(numbers[place], found)
        return [found for found in known if found is not None]

    def counts(self) -> tuple[int, int]:
        """Return (hits, misses)."""
        return self._known.hits, self._known.misses


def _number(snapshot: Snapshot, row: int) -> int:
    """Return the number of one segment; in a large table without a look at the others."""
    return (
        int(snapshot.segments[row])
        if len(snapshot) <= SEGMENTS_KNOWN_MAX
        else int(snapshot.files["segment"][row].as_py())
    )


def _numbers(snapshot: Snapshot, rows: Int64Array) -> list[int]:
    if _FEW * len(rows) < len(snapshot):
        return [_number(snapshot, row) for row in rows.tolist()]
    return list(snapshot.segments[rows].tolist())


def _read_some(snapshot: Snapshot, rows: Sequence[int]) -> list[Segment]:
    if _FEW * len(rows) < len(snapshot):
        return [_read(snapshot, row) for row in rows]
    table = snapshot.files.select(_COLUMNS).take(pa.array(rows, pa.int64()))
    return [_segment(values) for values in table.to_pylist()]


def _read(snapshot: Snapshot, row: int) -> Segment:
    return _segment({name: snapshot.files[name][row].as_py() for name in _COLUMNS})


def _segment(file: dict[str, Any]) -> Segment:
    path = paths.partition_file(file["partition"], file["name"])
    key_map, page_map = (_blob(file, member) for member in ("key_map", "page_map"))
    return Segment(
        path, file["kind"], file["size"], file["rows"], file["block_offset"], file["block_length"],
        tuple(file["zone_rows"]), key_map, page_map,
    )  # fmt: skip


def _blob(file: dict[str, Any], member: str) -> Blob | None:
    """Return where the key map or page map of a file stands; both stand in one object."""
    if file[f"{member}_offset"] is None:
        return None
    return Blob(file["key_map_path"], *(file[f"{member}_{name}"] for name in ("offset", "length", "crc")))
