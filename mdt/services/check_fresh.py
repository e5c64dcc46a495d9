"""A check of what commit records say of new rows: those, and no others, have the commit time of the
record that wrote them.

Whoever reads changes believes the records, and does not ask the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from indexes.buffers import flags
from mdt.errors import Corrupt
from mdt.limits import SEGMENTS_PER_COMMIT_MAX
from mdt.metadata.files import paths
from mdt.metadata.files.deletion_vectors import positions
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.parquet.segment import Segment

COMMIT_TIME = "_hoodie_commit_time"

Fresh = Mapping[int, bytes | None]
"""Number of a segment -> positions of its new rows as the record tells them, None for all; of
records that are in the log.
"""


def fresh_of(metadata: Metadata, snapshot: Snapshot) -> Fresh:
    """Return what the log says of the live segments.  O(records)."""
    live = snapshot.segment_ids[snapshot.live_numbers]
    seqs = live // SEGMENTS_PER_COMMIT_MAX
    found: dict[int, bytes | None] = {}
    for seq in np.unique(seqs[seqs >= snapshot.retention.first]).tolist():
        with suppress(Corrupt):  # the log is checked for itself
            record = metadata.record(seq)
            if record is None:
                continue
            told = record.table("fresh")
            numbers = (np.asarray(told["segment"]) + seq * SEGMENTS_PER_COMMIT_MAX).tolist()
            found |= dict.fromkeys(live[seqs == seq].tolist())
            found |= dict(zip(numbers, told["positions"].to_pylist(), strict=True))
    return found


def has_right_fresh(file: Segment, table: pa.Table, fresh: Fresh) -> bool:
    """Return whether the rows of ``table``, all of ``file``, with the commit time of the file are
    those that its record tells.
    """
    if file.id not in fresh:
        return True
    data, seq = fresh[file.id], file.id // SEGMENTS_PER_COMMIT_MAX
    is_new = flags(pc.equal(table[COMMIT_TIME], file.instant).fill_null(False))
    if data is None:
        return bool(is_new.all())
    return positions(data, file.rows, path=paths.commit(seq)) == BitMap(
        np.flatnonzero(is_new).astype(np.uint32)
    )
