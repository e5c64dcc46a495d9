"""The sections of the records that import file slices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from indexes.arrays import flags
from mdt.errors import Unsupported
from mdt.hudi.commit_metadata import NO_PREVIOUS
from mdt.hudi.read.service_metadata import GroupId
from mdt.importing.imported_files import statistics
from mdt.importing.imported_slices import ImportedSlice, MergedFiles
from mdt.limits import SEGMENTS_PER_COMMIT_MAX
from mdt.metadata.files.deletion_vectors import serialize
from mdt.metadata.files.file_group import BASE, FILES, FRESH
from mdt.metadata.log.commit_log import REMOVED, SLICES, VECTORS
from mdt.stores.storage import Storage

Placed = tuple[ImportedSlice, int]
"""A slice and the number of its segment."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """Slices that leave and slices that come.

    Attributes:
        old: The slices that leave.
        new: The slices that come. Some belong to the file groups of ``old``.
    """

    old: Sequence[Placed]
    new: Sequence[ImportedSlice]

    def sections(self, schema: pa.Schema, *, always: bool) -> Iterator[dict[str, pa.Table]]:
        """Yield the sections of each record.

        Without a change there is none, or an empty record with ``always``.
        """
        removed = [segment for _, segment in self.old]
        end = len(self.new) or bool(removed or always)
        for start in range(0, end, SEGMENTS_PER_COMMIT_MAX):
            part = self.new[start : start + SEGMENTS_PER_COMMIT_MAX]
            yield _present(_file_sections(part, schema) | {"removed": _numbers(removed, REMOVED)})
            removed = []

    def placed(self, seq: int) -> dict[GroupId, Placed]:
        """Return the new slices by file group, if record ``seq`` is the first that adds them."""
        first = seq * SEGMENTS_PER_COMMIT_MAX
        groups = (((one.file_slice.partition, one.file_slice.file_id), one) for one in self.new)
        return {group: (one, first + number) for number, (group, one) in enumerate(groups)}

    def changed_rows(self, source: Storage, merged: MergedFiles) -> dict[str, pa.Table]:
        """Return the sections with the rows that changed, for a single record.

        Raises Unsupported if the files have no meta columns.
        """
        old_ids = [one.row_ids(source, merged) for one, _ in self.old]
        new_ids = [one.row_ids(source, merged) for one in self.new]
        ids = [pa.array([], pa.string()), *old_ids], [pa.array([], pa.string()), *new_ids]
        if any(part.null_count for part in (*ids[0], *ids[1])):
            raise Unsupported(
                "the changes of a table without Hudi's meta columns cannot be read",
                hint="compare two scans: t.scan(as_of=...)",
            )
        before, after = (pa.concat_arrays(part) for part in ids)
        vectors, fresh = list[dict[str, Any]](), list[dict[str, Any]]()
        for (_, segment), part in zip(self.old, old_ids, strict=True):
            dead = _positions(~flags(pc.is_in(part, after)))
            if dead:
                vectors.append({"segment": segment, "positions": serialize(dead)})
        for ordinal, part in enumerate(new_ids):
            rows = _positions(~flags(pc.is_in(part, before)))
            if len(rows) < len(part):
                fresh.append({"segment": ordinal, "positions": serialize(rows)})
        return _present(
            {
                "vectors": pa.Table.from_pylist(vectors, schema=VECTORS),
                "fresh": pa.Table.from_pylist(fresh, schema=FRESH),
            }
        )


def _present(tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    return {name: table.combine_chunks() for name, table in tables.items() if len(table)}


def _positions(mask: npt.NDArray[np.bool_]) -> BitMap:
    return BitMap(np.flatnonzero(mask).astype(np.uint32))


def _numbers(values: Sequence[int], schema: pa.Schema) -> pa.Table:
    return pa.table([pa.array(values, pa.int64())], schema=schema)


def _file_sections(slices: Sequence[ImportedSlice], schema: pa.Schema) -> dict[str, pa.Table]:
    """Return the sections ``files``, ``slices`` and ``stats``."""
    no_slice = {"previous_instant": NO_PREVIOUS, "base_name": "", "log_names": []}
    files = [_row(ordinal, one) for ordinal, one in enumerate(slices)]
    return {
        "files": pa.Table.from_pylist(files, schema=FILES),
        "slices": pa.Table.from_pylist([no_slice] * len(slices), schema=SLICES),
        "stats": statistics([one.file for one in slices], schema),
    }


def _row(ordinal: int, one: ImportedSlice) -> dict[str, Any]:
    """Return the row of FILES of a slice. Its CRC-32 is unknown."""
    file = one.file
    return {
        "segment": ordinal,
        "partition": one.file_slice.partition,
        "file_id": one.file_slice.file_id,
        "name": one.name,
        "kind": BASE,
        "base_instant": one.instant,
        "log_version": 0,
        "instant": one.instant,
        "size": file.size,
        "crc": 0,
        "rows": file.rows,
        "block_offset": 0,
        "block_length": file.size,
        "footer_length": file.footer_length,
        "footer_crc": file.footer_crc,
        "row_group_rows": file.row_groups,
        "shard": ordinal,
        "first_row": 0,
        "inserts": file.rows,
        "updates": 0,
        "deletes": 1,
    }
