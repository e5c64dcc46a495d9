"""What tasks of any engine do for a delete: look for its keys, and say which rows end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from mdt.engines.tasks import (
    ABSENT,
    DROPPED,
    FURTHER,
    Source,
    buried,
    hashed,
    opened,
    tagged,
    tagged_schema,
    without_data,
)
from mdt.schema.definition import TableDefinition
from mdt.write.deletes import of_keys
from mdt.write.normalize import normalize_keys, partition_names
from mdt.write.operations import ended, locate_batch


def columns_of(definition: TableDefinition) -> pa.Schema:
    """Return the columns of tagged deletes besides CONTROL: what makes keys."""
    return pa.schema(map(definition.schema.field, definition.key))


def tag(
    source: Source, batches: Iterator[pa.RecordBatch], attempt: int = 0
) -> Iterator[pa.RecordBatch]:
    """Yield what becomes of the keys of one part, with CONTROL columns; equal keys must be in one
    part.
    """
    keys = [batch for batch in batches if batch.num_rows]
    if keys:
        for part in _tag(source, keys):
            yield from part.to_batches()


def _tag(source: Source, keys: Sequence[pa.RecordBatch]) -> Iterator[pa.Table]:
    metadata, snapshot = opened(source)
    definition = snapshot.definition
    batch = normalize_keys(pa.Table.from_batches(keys), definition, numbered=False)
    located = locate_batch(metadata, snapshot, batch)
    late, places, gone = ended(batch, located)
    columns = columns_of(definition)
    there = np.asarray(snapshot.file_groups.partitions(places.group))
    yield tagged(
        replace(batch, table=batch.table.select(columns.names)), places, gone, FURTHER, there
    )
    absent = np.flatnonzero(~located.found)
    yield hashed(
        columns, ABSENT, batch.hashes.take(absent), __mdt_partition=partition_names(batch)[absent]
    )
    if definition.keeps_deletes:
        yield buried(columns, of_keys(snapshot, batch, located, late))
    group, n = np.unique(located.group[late], return_counts=True)
    yield without_data(columns, DROPPED, __mdt_group=group, __mdt_n=n)


def schema_of(definition: TableDefinition) -> pa.Schema:
    """Return all columns of tagged deletes."""
    return tagged_schema(columns_of(definition))
