"""The headers and sections of the records that import file slices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from mdt.importing.imported_files import ImportedFile, statistics
from mdt.importing.imported_slices import ImportedPart, ImportedSlice, PartKey
from mdt.importing.imported_steps import SliceStep
from mdt.metadata.files.deletion_vectors import serialize
from mdt.metadata.files.file_group import BASE, FILES, FRESH
from mdt.metadata.log.commit_log import DEAD, REMOVED, SLICES, VECTORS
from mdt.metadata.log.imports import GroupId, Imports
from mdt.schema.versions import SchemaVersion
from mdt.stores.storage import Storage


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
            assert step.new is not None, "only new slices have added files"
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
    steps: Sequence[SliceStep], source: Storage, merged: Storage
) -> dict[str, pa.Table]:
    """Return the sections ``vectors`` and ``fresh`` of the record with ``steps``, with the rows
    that changed.

    Args:
        merged: The storage of merged files.

    Raises Unsupported if files with changed rows have no meta columns.
    """
    old, new = list[_Rows](), list[_Rows]()
    for step in steps:
        if step.old is not None:
            imported_slice = step.old.slice
            removed_rows = dict[PartKey, BitMap]()
            for part, _ in step.removed:
                dead = step.old.dead.get(part.key, BitMap())
                removed_rows[part.key] = _live_rows(part, imported_slice) - dead
            for part in imported_slice.parts:
                segment = step.old.segments[part.key]
                positions = step.vectors.get(segment, removed_rows.get(part.key))
                if positions:
                    old.append(_Rows(segment, part, imported_slice, positions))
        for part in step.added:
            assert step.new is not None, "only new slices have added files"
            new.append(_Rows(len(new), part, step.new, _live_rows(part, step.new)))
    staying = {segment for step in steps for segment in step.vectors}
    before = after = _NO_IDS
    if old:
        # a row of a file that stays is deleted, also if a new row is made of it
        leave = [rows.ids(source, merged) for rows in old if rows.segment not in staying]
        before = pa.concat_arrays([_NO_IDS, *leave])
        after = pa.concat_arrays([_NO_IDS, *(rows.ids(source, merged) for rows in new)])
    fresh, vectors = dict[int, BitMap](), dict[int, BitMap]()
    for rows in new:
        inserted = rows.without(before, source, merged)
        if len(inserted) < rows.part.rows:
            fresh[rows.segment] = inserted
    for rows in old:
        deleted = rows.positions
        if rows.segment not in staying:
            deleted = rows.without(after, source, merged)
        if deleted:
            vectors[rows.segment] = deleted
    return _present({"vectors": _bitmaps(vectors, VECTORS), "fresh": _bitmaps(fresh, FRESH)})


def import_header(
    steps: Sequence[SliceStep],
    imports: Imports | None,
    unsettled: frozenset[GroupId],
    version: SchemaVersion | None,
) -> dict[str, Any]:
    """Return the fields of the header of the record with ``steps``.

    Args:
        imports: The part of Hudi's timeline that the log then contains, None if more records
            follow.
        unsettled: The unsettled file groups after ``steps``.
        version: The schema version that the record begins, None for the current columns.
    """
    header = dict[str, Any]()
    if version is not None:
        header["schema"] = version.to_json()
        del header["schema"]["since"]
    if imports is None:
        of_steps = unsettled & {step.group_id for step in steps}
        header["unsettled"] = [list(group) for group in sorted(of_steps)]
    else:
        header["imported"] = replace(imports, unsettled=unsettled).to_json()
    return header


def unsettled_groups(before: frozenset[GroupId], steps: Iterable[SliceStep]) -> frozenset[GroupId]:
    """Return the file groups with pending blocks after ``steps``."""
    unsettled = set(before)
    for step in steps:
        unsettled.discard(step.group_id)
        if step.new is not None and not step.new.is_settled:
            unsettled.add(step.group_id)
    return frozenset(unsettled)


_NO_IDS = pa.nulls(0, pa.string())


@dataclass(slots=True)
class _Rows:
    """Rows of a file.

    Attributes:
        positions: n positions.
    """

    segment: int
    part: ImportedPart
    imported_slice: ImportedSlice
    positions: BitMap
    _ids: pa.Array | None = None

    def ids(self, source: Storage, merged: Storage) -> pa.Array:
        """Return a text for each row that is equal for the same version of the row, string[n]."""
        if self._ids is None:
            self._ids = _NO_IDS
            if self.positions:
                ids = self.imported_slice.row_ids(self.part, source, merged)
                self._ids = ids.take(_indices(self.positions))
        if self._ids.null_count:
            raise Unsupported(
                "the changes of a table without Hudi's meta columns cannot be read",
                hint="compare two scans: t.scan(as_of=...)",
            )
        return self._ids

    def without(self, ids: pa.Array, source: Storage, merged: Storage) -> BitMap:
        """Return the positions of the rows that are not among ``ids``."""
        if not len(ids) or not self.positions:
            return self.positions
        is_other = ~flags(pc.is_in(self.ids(source, merged), ids))
        return BitMap(np.asarray(self.positions.to_array())[is_other])


def _indices(positions: BitMap) -> pa.Array:
    return pa.array(np.asarray(positions.to_array()).astype(np.int64))


def _live_rows(part: ImportedPart, imported_slice: ImportedSlice) -> BitMap:
    """Return the positions of the live rows of a file."""
    rows = BitMap(range(part.rows))
    return rows - imported_slice.dead if part.kind == BASE else rows


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
