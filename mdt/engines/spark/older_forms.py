"""Files of older versions of the schema, for Spark: it matches columns of Parquet files by name and gives null where there is none.

Where that is what the newest version means (columns were added, dropped or reordered), Spark reads the file itself.  Else the live
rows of the file, columns of the query only, are copied into the scratch directory as the newest version has them.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from indexes.base import BoolArray
from mdt.hudi.schema import COMMIT_TIME, with_meta
from mdt.limits import SEGMENTS_PER_COMMIT_MAX
from mdt.metadata.metadata import Metadata
from mdt.metadata.segment_columns import read_columns
from mdt.metadata.snapshot import Snapshot
from mdt.parquet.segment_rows import live_mask
from mdt.schema.versions import SchemaVersion
from mdt.stores.storage import Storage


def misread(snapshot: Snapshot) -> BoolArray:
    """Return of which files Spark would make other rows than the schema of ``snapshot`` says -> bool[numbered]."""
    versions = snapshot.definition.versions
    if not versions:
        return np.zeros(snapshot.numbered, np.bool_)
    since = np.array([version.since for version in versions], np.int64) * SEGMENTS_PER_COMMIT_MAX
    wrong = np.array([not _by_name(version, versions[-1]) for version in versions])
    found: BoolArray = wrong[np.searchsorted(since, snapshot.segment_ids, side="right") - 1]
    return found


def _by_name(source: SchemaVersion, target: SchemaVersion) -> bool:
    """Return whether columns of ``target``, looked for by name whatever its case, are what files of ``source`` have under it."""
    names = {column.field.name.lower(): column for column in source.columns}
    for column in target.columns:
        there = names.get(column.field.name.lower())
        if there is None:
            if column.id in target.defaults or any(column.id == other.id for other in source.columns):
                return False
        elif there.id != column.id or not column.is_as(there):
            return False
    return True


def copied(
    metadata: Metadata, scratch: Storage, snapshot: Snapshot, file: int, columns: Sequence[str] | None
) -> tuple[str, int]:
    """Copy the live rows of ``file``, or find the copy; return its path in ``scratch`` and its size.

    ``columns``: those that the query uses, None for all.  Raises Corrupt if the file is not as it was written.
    """
    definition, segment = snapshot.definition, snapshot.segment(file)
    known = with_meta(definition.schema)
    names = known.names if columns is None else [name for name in known.names if name in columns] or [COMMIT_TIME]
    chosen = zlib.crc32(",".join(names).encode())
    path = f"{definition.table_id}/older-{segment.id}-{snapshot.seq}-{chosen:08x}.parquet"
    size = scratch.size(path)
    if size is not None:
        return path, size
    schema = pa.schema([known.field(name) for name in names])
    table = read_columns(metadata.storage, definition, segment, schema)
    mask = live_mask(len(table), snapshot.vector(file))
    sink = pa.BufferOutputStream()
    pq.write_table(
        (table if mask is None else table.filter(pa.array(mask))).cast(schema), sink, store_schema=False, write_page_checksum=True
    )  # fmt: skip
    data = sink.getvalue()
    scratch.put_if_absent(path, data)
    return path, len(data)
