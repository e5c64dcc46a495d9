"""Updates that keep rows in the partition of the existing row
(``mdt.update.partition.path=false``).

The partition columns keep their old values too. Values and partition path agree, so partitions can
be pruned.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexes.base import Int64Array
from mdt.errors import Invalid
from mdt.hudi.partitions import null_levels, partition_values
from mdt.metadata.keys.locate import Located
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.schema.definition import TableDefinition
from mdt.write.normalize import Batch

ObjectArray = npt.NDArray[np.object_]


def keep_partition(snapshot: Snapshot, batch: Batch, located: Located) -> Batch:
    """Return ``batch`` with the partition path and columns of the live row that each row replaces.

    Changes only batches of tables with table scope.
    """
    definition = snapshot.definition
    if definition.moves_rows or not definition.is_global or not len(snapshot):
        return batch
    live_partition = snapshot.file_groups.partitions(located.group)
    given_partition = np.array([*batch.partitions, ""], dtype=object)[batch.partition]
    differs = np.flatnonzero(located.is_live & np.asarray(live_partition != given_partition))
    if not len(differs):
        return batch
    paths, code = np.unique(live_partition[differs].astype(str), return_inverse=True)
    stored = pa.schema(map(definition.schema.field, definition.partition_by))
    values_of_paths = partition_values(paths.tolist(), stored, definition.hive_style)
    at = np.arange(len(batch))
    at[differs] = len(batch) + code
    table = batch.table
    for name in definition.partition_by:
        number = table.schema.get_field_index(name)
        values = pa.concat_arrays([*table[name].chunks, *values_of_paths[name].chunks])
        table = table.set_column(number, table.schema.field(name), pc.take(values, pa.array(at)))
    partition = batch.partition.copy()
    partition[differs] = len(batch.partitions) + code
    return replace(
        batch, table=table, partition=partition, partitions=(*batch.partitions, *paths.tolist())
    )


def refuse_null_partition(
    definition: TableDefinition,
    batch: Batch,
    given_partition: ObjectArray,
    live_partition: ObjectArray,
    moves: Int64Array,
) -> None:
    """Raise Invalid if any row of ``moves`` would move from a partition with a value to a null
    partition.
    """
    unknown = [
        row
        for row in moves.tolist()
        if not null_levels(given_partition[row]) <= null_levels(live_partition[row])
    ]
    if unknown:
        columns = ", ".join(definition.partition_by)
        raise Invalid(
            f"{len(unknown)} rows have a null partition column ({columns}), but their keys exist in"
            f" other partitions: {batch.keys[unknown[0]].as_py()!r} is in"
            f" {live_partition[unknown[0]]}",
            hint=(
                "set the partition, or omit the column in upsert(…, partial=True) to keep the rows"
                " there;"
                f" t.merge(…).when_matched().update({{{definition.partition_by[0]!r}: None}}) moves"
                " them"
            ),
        )
