"""Tombstones of deletes, for tables that keep the ordering values of deleted keys
(``mdt.delete.keeps.ordering``).

A tombstone has the ordering value given with the delete, else that of the deleted row. Overwrites,
dropped partitions and moved rows leave no tombstones.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from indexes.base import BoolArray, Int64Array
from mdt.hudi.avro_schema import RECORD_KEY
from mdt.hudi.plain_arrays import plain
from mdt.metadata.files.key_map import ordering_words
from mdt.metadata.keys.locate import Located
from mdt.metadata.log.commit_log import NO_TOMBSTONES
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.deleted_keys import deleted_at, scope_of
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.metadata.snapshot.tombstones import marks_of, new_tombstones
from mdt.scan.lookup import KeyRows, rows_at
from mdt.write.normalize import Batch, partition_names


def tombstones_of_keys(
    snapshot: Snapshot,
    batch: Batch,
    located: Located,
    late: BoolArray,
    ends: BoolArray | bool = True,
) -> pa.Table:
    """Return the tombstones for a delete of the keys in ``batch``, schema TOMBSTONES. Empty if the
    table does not keep them.

    A key that is not live gets a tombstone if the delete has an ordering value that is not below
    that of its current tombstone.

    Args:
        late: bool[n], keys that survive because their row is newer.
        ends: bool[n], keys to delete, by default all.
    """
    if not snapshot.definition.keeps_deletes:
        return NO_TOMBSTONES
    is_live, ordering = located.is_live, located.ordering
    marks = marks_of(
        batch.hashes, scope_of(snapshot, partition_names(batch)), snapshot.definition.key_hash
    )
    leaves = is_live & ~late
    if batch.ordering is not None:
        ordering = batch.ordering
        has_tombstone, deleted_ordering = deleted_at(snapshot, marks)
        leaves |= ~is_live & ~(has_tombstone & (ordering < deleted_ordering))
    leaves &= ends
    return new_tombstones(marks.take(leaves), ordering[leaves])


def tombstones_of_rows(
    metadata: Metadata, snapshot: Snapshot, file: Int64Array, position: Int64Array, *, threads: int
) -> pa.Table:
    """Return the tombstones of deleted live rows, schema TOMBSTONES. Reads their keys and ordering
    values.
    """
    definition = snapshot.definition
    if not definition.keeps_deletes or not len(file):
        return NO_TOMBSTONES
    rows = rows_at(
        metadata,
        snapshot,
        KeyRows(file, position),
        [RECORD_KEY, *definition.ordering],
        threads=threads,
    )
    hashes = definition.key_hash.hash(plain(rows[RECORD_KEY]))
    groups = snapshot.file_groups
    partition = np.asarray(groups.partitions(groups.of_files(file)))
    marks = marks_of(hashes, scope_of(snapshot, partition), definition.key_hash)
    return new_tombstones(marks, ordering_words(rows[definition.ordering[0]]))
