"""One segment's rows: the Parquet bytes of a base file or of a log file's data block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap

from mdt import paths
from mdt.errors import Corrupt
from mdt.file_group import BASE
from mdt.snapshot import Snapshot
from mdt.storage import Storage


def open_segment(storage: Storage, snapshot: Snapshot, i: int) -> pq.ParquetFile:
    """Open the Parquet bytes of segment row ``i``.  Raises Corrupt (Missing) if they are not what was written."""
    files = snapshot.files
    path = paths.partition_file(files["partition"][i].as_py(), files["name"][i].as_py())
    size, offset, length = (int(files[name][i].as_py()) for name in ("size", "block_offset", "block_length"))
    source = storage.open(path)
    if source.size() != size:
        raise Corrupt("a data file has another size", path=path, expected=str(size), got=str(source.size()))
    if snapshot.kind[i] != BASE:
        source.seek(offset)
        source = pa.BufferReader(source.read_buffer(length))
    try:
        opened = pq.ParquetFile(source, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise Corrupt(f"a data file cannot be read: {error}", path=path, offset=offset) from error
    if opened.metadata.num_rows != snapshot.rows[i]:
        raise Corrupt(
            "a data file has another number of rows", path=path, offset=offset,
            expected=str(snapshot.rows[i]), got=str(opened.metadata.num_rows),
        )  # fmt: skip
    return opened


def live_mask(rows: int, dead: BitMap | None, first: int = 0) -> npt.NDArray[np.bool_] | None:
    """Return which of the positions first .. first + rows are live -> bool[rows], or None if all are."""
    if dead is None or dead.range_cardinality(first, first + rows) == 0:
        return None
    gone = np.asarray(dead.to_array()).astype(np.int64) - first
    mask = np.ones(rows, dtype=np.bool_)
    mask[gone[(gone >= 0) & (gone < rows)]] = False
    return mask


def read_rows(parquet: pq.ParquetFile, columns: Sequence[str] | None, **options: Any) -> pa.Table:
    """Return all rows of an open segment, the meta columns included if ``columns`` is None."""
    return parquet.read(columns=None if columns is None else list(columns), **options)
