"""Loads on an engine: rows that meet none of the table need no look-up, so tasks see them once, where they are written.

The driver learns how many rows each partition gets and, where a partition is cut, a sample of their keys; the engine itself labels each
row as an insert with the path of its partition.  Equal keys so meet in one task, which normalizes its rows as a tagging one does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from mdt.commit.operation import Changes, Claim
from mdt.engines.engine import Engine, Labels, R
from mdt.engines.tasks import BUCKET, INSERT, Source, opened
from mdt.errors import Conflict
from mdt.metadata.buckets import homes
from mdt.metadata.locate import Located
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot import Snapshot
from mdt.schema.definition import TableDefinition
from mdt.write.assign import NEW, Assignment
from mdt.write.files import WriteJob
from mdt.write.normalize import Batch, normalize, paths_of
from mdt.write.operations import collect, in_key_order, not_new
from mdt.write.overwriting import WITH_ROWS
from mdt.write.slices import Fates, slice_of
from mdt.write.transfer import encode
from mdt.write.unchecked import INSERT_UNCHECKED

_PROBE_ROWS = 1_000
_NONE = np.empty(0, np.int64)
_CHECKED = ("insert", "bulk_insert")
_UPSERTS = (*_CHECKED, "upsert")


def meets_none(metadata: Metadata, snapshot: Snapshot, name: str, columns: pa.Schema) -> bool:
    """Return whether rows of the operation ``name`` meet none of the table, wherever their keys are; ``columns``: theirs.

    Not so where a key may move between partitions, a bucket takes a key, or deletes are remembered; nor where keys and partitions
    are of other types than the table's, so that only tasks can tell them.
    """
    definition = snapshot.definition
    if name not in (*WITH_ROWS, INSERT_UNCHECKED) and (name not in _UPSERTS or len(snapshot)):
        return False
    if (definition.is_global and definition.partition_by) or definition.keeps_deletes:
        return False
    known = [*definition.key, *definition.partition_by]
    if any(columns.field(one).type != definition.schema.field(one).type for one in known):
        return False
    return homes(metadata, snapshot, pa.array([], pa.string())) is None


def labelled(engine: Engine[R], definition: TableDefinition, rows: R) -> tuple[R, list[dict[str, Any]]] | None:
    """Return the rows as inserts, with CONTROL columns, and how many each partition gets.

    None for engines that cannot say so, and where counting them would mean to make them twice.
    """
    if not isinstance(engine, Labels):
        return None
    names, by = definition.schema.names, list(definition.partition_by)
    if by and not engine.rereads(rows):
        return None
    probe = engine.selected(rows, {}, names, rows_max=_PROBE_ROWS)
    row_bytes = probe.nbytes // max(1, len(probe))
    if not by:
        found = engine.labelled(rows, definition, pa.table({"__mdt_partition": [""]}), row_bytes)
        counted = engine.counted(found, ["__mdt_partition"], "__mdt_n")
        return found, _counted(counted["__mdt_partition"].to_pylist(), counted, row_bytes)
    counted = engine.frequencies(rows, by)
    codes, known = paths_of(counted, definition)
    paths = [known[code] for code in codes.tolist()]
    places = counted.select(by).append_column("__mdt_partition", pa.array(paths, pa.string()))
    return engine.labelled(rows, definition, places, row_bytes), _counted(paths, counted, row_bytes)


def _counted(paths: Sequence[str], counted: pa.Table, row_bytes: int) -> list[dict[str, Any]]:
    """Return rows as those of tagged ones are counted; several values may have one path."""
    rows: dict[str, int] = {}
    for path, n in zip(paths, counted["rows"].to_pylist(), strict=True):
        rows[path] = rows.get(path, 0) + n
    names = ("__mdt_kind", "__mdt_partition", "__mdt_group", "rows", "total")
    return [dict(zip(names, (INSERT, path, NEW, n, n * row_bytes), strict=True)) for path, n in rows.items()]


@dataclass(frozen=True, slots=True)
class Load:
    """What the tasks of a load share.  ``name``: of the operation."""

    source: Source
    claim: Claim
    buckets: Sequence[Assignment]
    name: str


def write(load: Load, batches: Iterator[pa.RecordBatch], attempt: int) -> bytes | None:
    """Write the buckets among the rows of one part, as they were given; return what was written, see :mod:`mdt.write.transfer`."""
    given = [batch for batch in batches if batch.num_rows]
    return encode(_write(load, pa.Table.from_batches(given), attempt)) if given else None


def _write(load: Load, table: pa.Table, attempt: int) -> Changes:
    metadata, snapshot = opened(load.source)
    claim = Claim(load.claim.txn, load.claim.instant, load.claim.token, attempt)
    shared = WriteJob.of(metadata, snapshot, load.source.parsed(), claim)
    bucket = table[BUCKET].to_numpy()
    data = table.select(snapshot.definition.schema.names)
    late: list[int] = []

    def written() -> Iterator[Any]:
        for number in np.unique(bucket).tolist():
            batch = _unique(load, snapshot.definition, data.filter(pa.array(bucket == number)))
            late.append(batch.duplicates)
            one = load.buckets[number]
            if batch.partitions != (one.partition,):
                raise Conflict("the rows changed while they were read", hint="keep them, as by DataFrame.cache")
            inserts = in_key_order(batch.sort_keys, np.arange(len(batch)))
            fates = Fates(_NONE, inserts, _NONE, _NONE)
            yield shared.run(number, slice_of(batch, Located.absent(len(batch)), one, fates))

    changes = collect(shared, written(), threads=1, part=f"-{attempt}")
    return replace(changes, counts={"late": sum(late)})


def _unique(load: Load, definition: TableDefinition, rows: pa.Table) -> Batch:
    batch = normalize(rows, definition)
    if batch.duplicates and load.name in _CHECKED:
        raise not_new(load.name, f"{batch.duplicates} rows repeat a key: {list(batch.repeated)}")
    return batch
