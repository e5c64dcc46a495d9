"""Rows that stay in the partition where their key lives, whatever partition they arrive with (``mdt.update.partition.path=false``).

Their partition columns keep the values that they had: what a row says and where it stands agree, so that partitions can be pruned.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mdt.hudi.partitions import partition_values
from mdt.metadata.locate import Located
from mdt.metadata.snapshot import Snapshot
from mdt.write.normalize import Batch


def in_place(snapshot: Snapshot, batch: Batch, located: Located) -> Batch:
    """Return ``batch`` with the partition, and partition columns, of the live row that each row replaces.  Only under table scope something changes."""
    definition = snapshot.definition
    if definition.moves_rows or not definition.is_global or not len(snapshot):
        return batch
    there = snapshot.file_groups.partitions(located.group)
    here = np.array([*batch.partitions, ""], dtype=object)[batch.partition]
    stays = np.flatnonzero(located.found & np.asarray(there != here))
    if not len(stays):
        return batch
    paths, code = np.unique(there[stays].astype(str), return_inverse=True)
    stored = pa.schema(map(definition.schema.field, definition.partition_by))
    known = partition_values(paths.tolist(), stored, definition.hive_style)
    at = np.arange(len(batch))
    at[stays] = len(batch) + code
    table = batch.table
    for name in definition.partition_by:
        number = table.schema.get_field_index(name)
        values = pa.concat_arrays([*table[name].chunks, *known[name].chunks])
        table = table.set_column(number, table.schema.field(name), pc.take(values, pa.array(at)))
    partition = batch.partition.copy()
    partition[stays] = len(batch.partitions) + code
    return replace(batch, table=table, partition=partition, partitions=(*batch.partitions, *paths.tolist()))
