"""Tagged rows in blocks: what an engine of rows hands on between tasks, so that a row is taken apart once and put together once.

A block is one row of BLOCKS with many tagged rows in its column ``data``, an Arrow stream.  What a driver or an engine asks of them
stands beside: whither they go, how many there are of what, and a few of their keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexes.base import Int64Array
from mdt.engines import tasks
from mdt.engines.engine import Deal
from mdt.engines.tasks import BUCKET, COUNTED, DROPPED, INSERT
from mdt.hudi.keys import rising, sort_keys

PLACE, NUMBER, COUNTS, MARKS, DATA = "__mdt_place", "__mdt_number", "__mdt_counts", "__mdt_marks", "__mdt_data"
LOW, HIGH = "__mdt_low", "__mdt_high"
FIRST = "__mdt_first"
BLOCKS = pa.schema(
    [
        (PLACE, pa.string()),
        (NUMBER, pa.int64()),
        (COUNTS, pa.list_(pa.struct([*COUNTED, ("rows", pa.int64()), ("total", pa.int64())]))),
        (MARKS, pa.list_(pa.binary())),
        (DATA, pa.binary()),
    ]
)
"""PLACE, NUMBER: whither all rows of a block go, as :class:`mdt.engines.engine.Deal` says; null for rows that no bucket takes.

COUNTS: rows of each combination of the columns COUNTED, and the sum of ``__mdt_n``.  MARKS: of inserts, which stand by rising
key, the sort keys of the first row, of every MARK_ROWS-th and of the last.
"""
DEALT = pa.schema([(BUCKET, pa.int32()), (FIRST, pa.binary()), (DATA, pa.binary())])
"""Rows of one bucket; FIRST: the first of the MARKS, null without them."""
MARK_ROWS = 4096
_ROWS_MAX = 1 << 16
_BYTES_MAX = 1 << 20
_COMPRESSED_BYTES_MIN = 1 << 16
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


def blocks_of(batches: Iterator[pa.RecordBatch], key: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield tagged rows as BLOCKS.  ``key``: columns by which inserts are put in order."""
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        is_dealt = rows["__mdt_kind"].to_numpy() < DROPPED
        if not is_dealt.all():
            yield _told(rows.filter(pa.array(~is_dealt)))
            rows = rows.filter(pa.array(is_dealt))
        for place, number, part in _by_place(rows):
            yield from _cut(place, number, part, key)


def _told(rows: pa.Table) -> pa.RecordBatch:
    """Return rows that no bucket takes as one block."""
    return _block(None, None, tasks.counted(rows, COUNTED.names, "__mdt_n").to_pylist(), [], rows)


def _by_place(rows: pa.Table) -> Iterator[tuple[str, int, pa.Table]]:
    """Yield the rows of each place in their order, none empty."""
    is_insert = rows["__mdt_kind"].to_numpy() == INSERT
    paths = rows["__mdt_partition"].combine_chunks().dictionary_encode()
    code = np.where(is_insert, paths.indices.to_numpy(zero_copy_only=False), -1)
    group = rows["__mdt_group"].to_numpy()
    if len(rows) and (code == code[0]).all() and (group == group[0]).all():
        yield "" if code[0] < 0 else paths.dictionary[int(code[0])].as_py(), int(group[0]), rows
        return
    order = np.lexsort((group, code))
    code, group = code[order], group[order]
    cuts = np.flatnonzero((np.diff(code) != 0) | (np.diff(group) != 0)) + 1
    if len(cuts):
        rows = rows.take(pa.array(order))
    for start, end in zip([0, *cuts.tolist()], [*cuts.tolist(), len(rows)], strict=True):
        if end > start:
            place = "" if code[start] < 0 else paths.dictionary[int(code[start])].as_py()
            yield place, int(group[start]), rows.slice(start, end - start)


def _cut(place: str, number: int, rows: pa.Table, key: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one place in blocks of a size that moves well."""
    rows = rows.combine_chunks()
    kind = rows["__mdt_kind"].to_numpy()
    keys = None
    if kind[0] == INSERT:
        keys = sort_keys(rows, key)
        order = rising(keys)
        if order is not None:
            rows, keys = rows.take(pa.array(order)), keys.take(pa.array(order))
    size = max(1, min(_ROWS_MAX, _BYTES_MAX * len(rows) // max(1, rows.nbytes)))
    for start in range(0, len(rows), size):
        part = rows.slice(start, size)
        marks = [] if keys is None else _marks(keys.slice(start, size))
        yield _block(place, number, _counts(kind[start : start + size], part), marks, part)


def _marks(keys: pa.Array) -> list[bytes]:
    at = [*range(0, len(keys), MARK_ROWS), len(keys) - 1]
    found: list[bytes] = keys.take(pa.array(at)).cast(pa.binary()).to_pylist()
    return found


def _counts(kind: Int64Array, rows: pa.Table) -> list[dict[str, Any]]:
    """Return COUNTS of rows of one place; those of one kind have one partition and one file group."""
    found = []
    for one in np.unique(kind).tolist():
        mine = np.flatnonzero(kind == one)
        first = {name: rows[name][int(mine[0])].as_py() for name in COUNTED.names}
        found.append({**first, "rows": len(mine), "total": int(rows["__mdt_n"].to_numpy()[mine].sum())})
    return found


def _block(
    place: str | None, number: int | None, counts: list[dict[str, Any]], marks: list[bytes], rows: pa.Table
) -> pa.RecordBatch:
    told = {PLACE: place, NUMBER: number, COUNTS: counts, MARKS: marks}
    columns = [pa.array([told[name]], BLOCKS.field(name).type) for name in told]
    return pa.record_batch([*columns, _data(rows)], schema=BLOCKS)


def _data(rows: pa.Table) -> pa.Array:
    """Return rows as an Arrow stream, compressed where that pays -> binary[1]."""
    sink = pa.BufferOutputStream()
    options = _COMPRESSED if rows.nbytes >= _COMPRESSED_BYTES_MIN else None
    with pa.ipc.new_stream(sink, rows.schema, options=options) as stream:
        stream.write_table(rows)
    data = sink.getvalue()
    return pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(np.array([0, data.size], np.int32)), data])


def rows_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of blocks.  Of DEALT, with their bucket, in its order, and inserts in runs that rise where they can."""
    for batch in batches:
        if BUCKET in batch.schema.names:
            yield from _in_order([batch, *batches])
            return
        for data in batch[DATA]:
            yield from pa.ipc.open_stream(data.as_buffer())


def _in_order(batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    table = pa.Table.from_batches(batches)
    order = pc.sort_indices(table, [(BUCKET, "ascending"), (FIRST, "ascending")])
    bucket, data = table[BUCKET], table[DATA]
    for i in order.to_pylist():
        for rows in pa.ipc.open_stream(data[i].as_buffer()):
            yield rows.append_column(BUCKET, pa.repeat(bucket[i], len(rows)))


def split(deal: Deal, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield as DEALT the rows of blocks that several takers share: those of PLACE and NUMBER from LOW to HIGH."""
    places = {(one["place"], one["number"]): one for one in deal.places.to_pylist()}
    for batch in batches:
        for at in batch.to_pylist():
            place = places[at[PLACE], at[NUMBER]]
            rows = pa.ipc.open_stream(at[DATA]).read_all()
            keys = sort_keys(rows, deal.key).cast(pa.binary())
            ends = [_below(keys, bound) for bound in place["bounds"][at[LOW] : at[HIGH]]]
            for taker, start, end in zip(place["takers"][at[LOW] :], [0, *ends], [*ends, len(rows)], strict=False):
                if end > start:
                    told = [pa.array([taker], pa.int32()), keys.slice(start, 1)]
                    yield pa.record_batch([*told, _data(rows.slice(start, end - start))], schema=DEALT)


def _below(keys: pa.Array, bound: bytes) -> int:
    """Return how many of rising ``keys`` are less than ``bound``."""
    return int(pc.sum(pc.less(keys, pa.scalar(bound, pa.binary()))).as_py() or 0)


def chosen(
    wanted: Mapping[str, Sequence[Any]], names: Sequence[str], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield columns ``names`` of the rows of blocks whose values are ``wanted``."""
    for batch in rows_of(batches):
        yield tasks.chosen(batch, wanted, names)
