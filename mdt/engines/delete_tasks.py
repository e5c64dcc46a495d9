"""What tasks of any engine do for a delete: look for its keys, and say which rows end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from mdt.engines.tasks import (
    ABSENT,
    BURIED,
    DROPPED,
    FURTHER,
    STONE,
    Source,
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
    """Return the columns of tagged deletes besides CONTROL: what makes keys, and STONE where tombstones are kept."""
    key = [definition.schema.field(name) for name in definition.key]
    return pa.schema([*key, pa.field(STONE, pa.int64())] if definition.keeps_deletes else key)


def tag(source: Source, batches: Iterator[pa.RecordBatch], attempt: int = 0) -> Iterator[pa.RecordBatch]:
    """Yield what becomes of the keys of one part, with CONTROL columns; equal keys must be in one part."""
    keys = [batch for batch in batches if batch.num_rows]
    if keys:
        for part in _tag(source, keys):
            yield from part.to_batches()


def _tag(source: Source, keys: Sequence[pa.RecordBatch]) -> Iterator[pa.Table]:
    metadata, snapshot = opened(source)
    definition = snapshot.definition
    batch = normalize_keys(pa.Table.from_batches(keys), definition)
    located = locate_batch(metadata, snapshot, batch)
    late, places, gone = ended(batch, located)
    columns = columns_of(definition)
    data = batch.table.select(list(definition.key))
    if definition.keeps_deletes:
        data = data.append_column(columns.field(STONE), pa.nulls(len(data), pa.int64()))
        stones = of_keys(snapshot, batch, located, late)
        hi, lo, ordering = (stones[name].to_numpy().view(np.int64) for name in ("hi", "lo", "ordering"))
        at = {"__mdt_segment": hi, "__mdt_position": lo, STONE: ordering, "__mdt_n": 0 * hi}
        yield without_data(columns, BURIED, __mdt_group=np.full(len(hi), -1), **at)
    there = np.asarray(snapshot.file_groups.partitions(places.group))
    yield tagged(replace(batch, table=data), places, gone, FURTHER, there)
    absent = np.flatnonzero(~located.found)
    hashes = batch.hashes.take(absent)
    yield without_data(
        columns, ABSENT, __mdt_partition=partition_names(batch)[absent], __mdt_group=np.full(len(absent), -1),
        __mdt_segment=hashes.hi.view(np.int64), __mdt_position=hashes.lo.view(np.int64), __mdt_n=0 * absent,
    )  # fmt: skip
    group, n = np.unique(located.group[late], return_counts=True)
    yield without_data(columns, DROPPED, __mdt_group=group, __mdt_n=n)


def schema_of(definition: TableDefinition) -> pa.Schema:
    """Return all columns of tagged deletes."""
    return tagged_schema(columns_of(definition))
