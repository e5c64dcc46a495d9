"""The sections of the records that import file slices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from indexes.arrays import flags
from mdt.errors import Unsupported
from mdt.hudi.commit_metadata import NO_PREVIOUS
from mdt.hudi.read.file_slices import FileSlice
from mdt.hudi.read.service_metadata import GroupId
from mdt.importing.imported_files import ImportedFile, statistics
from mdt.importing.imported_slices import ImportedPart, ImportedSlice, MergedFiles, PartKey
from mdt.limits import IMPORTED_FILES_PER_RECORD_MAX, SEGMENTS_PER_COMMIT_MAX
from mdt.metadata.files.deletion_vectors import serialize
from mdt.metadata.files.file_group import BASE, FILES, FRESH
from mdt.metadata.log.commit_log import DEAD, REMOVED, SLICES, VECTORS
from mdt.stores.storage import Storage


@dataclass(frozen=True, slots=True)
class PlacedSlice:
    """A slice in the log.

    Attributes:
        segments: Part -> number of its segment.
    """

    slice: ImportedSlice
    segments: Mapping[PartKey, int]


@dataclass(frozen=True, slots=True)
class SliceStep:
    """The change of a file group from a state to the next.

    Attributes:
        old: The slice before, None for a new file group.
        new: The slice afterwards, None if the file group has no rows any more.
        removed: The files that leave, with their segments.
        added: The files that come.
        vectors: Segment of a base file that stays -> its rows that are dead from now on.
    """

    old: PlacedSlice | None
    new: ImportedSlice | None
    removed: Sequence[tuple[ImportedPart, int]]
    added: Sequence[ImportedPart]
    vectors: Mapping[int, BitMap]

    @classmethod
    def between(
        cls, old: PlacedSlice | None, new: ImportedSlice | None, *, is_altered: bool
    ) -> SliceStep:
        """Return the step between two slices.

        Files that both have stay. A base file is added again if its dead rows become live, because
        deletion vectors only grow.

        Args:
            is_altered: True if the columns change. No file stays then.
        """
        old_parts, new_parts = old.slice.parts if old else (), new.parts if new else ()
        stays, vectors = set[PartKey](), dict[int, BitMap]()
        if old is not None and new is not None and not is_altered:
            stays = {part.key for part in old_parts} & {part.key for part in new_parts}
            bases = {part.key for part in new_parts if part.kind == BASE} & stays
            if not old.slice.dead <= new.dead:
                stays -= bases
            elif new.dead != old.slice.dead:
                vectors = {old.segments[base]: new.dead - old.slice.dead for base in bases}
        removed = [part for part in old_parts if part.key not in stays]
        return cls(
            old,
            new,
            [(part, old.segments[part.key]) for part in removed if old],
            [part for part in new_parts if part.key not in stays],
            vectors,
        )

    @property
    def dead(self) -> Mapping[PartKey, BitMap]:
        """Base file that comes -> its dead rows."""
        if self.new is None or not self.new.dead:
            return {}
        return {part.key: self.new.dead for part in self.added if part.kind == BASE}

    def placed(self, first: int) -> PlacedSlice | None:
        """Return the new slice, with ``first`` as the segment of the first file that comes."""
        if self.new is None:
            return None
        segments = {part.key: first + number for number, part in enumerate(self.added)}
        if self.old is not None:
            for part in self.new.parts:
                segments.setdefault(part.key, self.old.segments.get(part.key, -1))
        return PlacedSlice(self.new, segments)


def batches(steps: Iterable[SliceStep]) -> Iterator[list[SliceStep]]:
    """Yield the steps of each record."""
    batch, files = list[SliceStep](), 0
    for step in steps:
        if batch and files + len(step.added) > IMPORTED_FILES_PER_RECORD_MAX:
            yield batch
            batch, files = [], 0
        batch.append(step)
        files += len(step.added)
    if batch:
        yield batch


def placed_groups(steps: Iterable[SliceStep], seq: int) -> dict[GroupId, PlacedSlice]:
    """Return the new slices of the steps of record ``seq`` by file group."""
    groups, first = dict[GroupId, PlacedSlice](), seq * SEGMENTS_PER_COMMIT_MAX
    for step in steps:
        placed = step.placed(first)
        if placed is not None:
            file_slice = placed.slice.file_slice
            groups[file_slice.partition, file_slice.file_id] = placed
        first += len(step.added)
    return groups


def import_sections(steps: Sequence[SliceStep], schema: pa.Schema) -> dict[str, pa.Table]:
    """Return the sections of the record with ``steps``.

    Args:
        schema: The stored columns.
    """
    removed = [segment for step in steps for _, segment in step.removed]
    vectors = dict(chain.from_iterable(step.vectors.items() for step in steps))
    rows, dead = list[dict[str, Any]](), dict[int, BitMap]()
    files = dict[int, ImportedFile]()
    for step in steps:
        for part in step.added:
            assert step.new is not None, "only new slices have files that come"
            if part.key in step.dead:
                dead[len(rows)] = step.dead[part.key]
            if part.file is not None:
                files[len(rows)] = part.file
            rows.append(_row(len(rows), step.new.file_slice, part))
    no_slice = {"previous_instant": NO_PREVIOUS, "base_name": "", "log_names": []}
    return _present(
        {
            "files": pa.Table.from_pylist(rows, schema=FILES),
            "slices": pa.Table.from_pylist([no_slice] * len(rows), schema=SLICES),
            "stats": statistics(files, schema),
            "removed": pa.table([pa.array(removed, pa.int64())], schema=REMOVED),
            "vectors": _bitmaps(vectors, VECTORS),
            "dead": _bitmaps(dead, DEAD),
        }
    )


def changed_rows(
    steps: Sequence[SliceStep], source: Storage, merged: MergedFiles
) -> dict[str, pa.Table]:
    """Return the sections ``vectors`` and ``fresh`` of the record with ``steps``, with the rows
    that changed.

    Raises Unsupported if the files have no meta columns.
    """
    old, new = list[_Rows](), list[_Rows]()
    for step in steps:
        if step.old is not None:
            file_slice, segments = step.old.slice, step.old.segments
            leaving = {segment: _live_rows(part, file_slice) for part, segment in step.removed}
            leaving |= step.vectors
            for part in file_slice.parts:
                segment = segments[part.key]
                if segment in leaving:
                    ids = _row_ids(part, file_slice, leaving[segment], source, merged)
                    old.append(_Rows(segment, part, leaving[segment], ids))
        for part in step.added:
            assert step.new is not None, "only new slices have files that come"
            live = _live_rows(part, step.new)
            new.append(_Rows(len(new), part, live, _row_ids(part, step.new, live, source, merged)))
    before, after = (
        pa.concat_arrays([_NO_IDS, *(part.ids for part in side)]) for side in (old, new)
    )
    vectors = dict(chain.from_iterable(step.vectors.items() for step in steps))
    vectors |= {part.segment: part.without(after) for part in old if part.segment not in vectors}
    fresh = {part.segment: part.without(before) for part in new}
    fresh = {part.segment: fresh[part.segment] for part in new if not part.is_all(fresh)}
    deleted = {segment: rows for segment, rows in vectors.items() if rows}
    return _present({"vectors": _bitmaps(deleted, VECTORS), "fresh": _bitmaps(fresh, FRESH)})


_NO_IDS = pa.array([], pa.string())


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of a file, with a text for each that is equal for the same version of the row.

    Attributes:
        positions: n positions.
        ids: string[n].
    """

    segment: int
    part: ImportedPart
    positions: BitMap
    ids: pa.Array

    def without(self, ids: pa.Array) -> BitMap:
        """Return the positions of the rows that are not among ``ids``."""
        is_other = ~flags(pc.is_in(self.ids, ids))
        return BitMap(np.asarray(self.positions.to_array())[is_other])

    def is_all(self, fresh: Mapping[int, BitMap]) -> bool:
        """Return True if all rows of the file are in ``fresh``."""
        return self.part.file is None or len(fresh[self.segment]) == self.part.file.rows


def _live_rows(part: ImportedPart, of_slice: ImportedSlice) -> BitMap:
    """Return the positions of the live rows of a file."""
    if part.file is None:
        return BitMap()
    rows = BitMap(range(part.file.rows))
    return rows - of_slice.dead if part.kind == BASE else rows


def _row_ids(
    part: ImportedPart,
    of_slice: ImportedSlice,
    positions: BitMap,
    source: Storage,
    merged: MergedFiles,
) -> pa.Array:
    if not positions:
        return _NO_IDS
    ids = of_slice.row_ids(part, source, merged)
    if ids.null_count:
        raise Unsupported(
            "the changes of a table without Hudi's meta columns cannot be read",
            hint="compare two scans: t.scan(as_of=...)",
        )
    return ids.take(pa.array(np.asarray(positions.to_array()).astype(np.int64)))


def _present(tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    return {name: table.combine_chunks() for name, table in tables.items() if len(table)}


def _bitmaps(rows: Mapping[int, BitMap], schema: pa.Schema) -> pa.Table:
    """Return positions by segment as a section."""
    data = [serialize(positions) for positions in rows.values()]
    return pa.table([pa.array(rows, pa.int64()), pa.array(data, pa.binary())], schema=schema)


def _row(ordinal: int, file_slice: FileSlice, part: ImportedPart) -> dict[str, Any]:
    """Return the row of FILES of a file. Its CRC-32 is unknown."""
    row = {
        "segment": ordinal,
        "partition": file_slice.partition,
        "file_id": file_slice.file_id,
        "name": part.name,
        "kind": part.kind,
        "base_instant": file_slice.instant,
        "log_version": part.log_version,
        "instant": part.instant,
        "size": part.size,
        "crc": 0,
        "rows": 0,
        "block_offset": 0,
        "block_length": 0,
        "footer_length": 0,
        "footer_crc": 0,
        "row_group_rows": [],
        "shard": ordinal,
        "first_row": 0,
        "inserts": 0,
        "updates": 0,
        "deletes": 1,
    }
    if part.file is not None:
        row |= {
            "rows": part.file.rows,
            "block_length": part.size,
            "footer_length": part.file.footer_length,
            "footer_crc": part.file.footer_crc,
            "row_group_rows": part.file.row_groups,
            "inserts": part.file.rows,
        }
    return row
