"""Row blocks: the form of rows that engines pass between tasks, so that rows are split once and
reassembled once.

A block is bytes: a header (target, row counts, sampled keys) and the rows as an Arrow IPC stream.
Code that moves blocks, such as the JVM, only reads where the header ends and whether a bucket takes
the rows.

Layout, with little-endian integers: uint8 kind (1 if no bucket takes the rows, else 0); uint32 size
of the header in bytes; the header, JSON in UTF-8, padded with spaces so that the stream begins at a
multiple of 8.

The fields of the header:

* Grouped rows: ``from``, their origin in the input as [part, number within the part].
* Tagged rows: ``place`` and ``number`` as in :class:`mdt.engines.engine.BucketAssignment`, null for
  rows that no bucket takes. ``counts``, a list per combination of the columns COUNTED: their
  values, the number of rows, and the sum of ``__mdt_n``. ``marks``, for inserts, which are sorted
  by key: the sort keys of the first row, of every MARK_ROWS-th row and of the last row, in base64.
  ``from``: [part, block number within the part] if other parts may have equal keys, else null.
* Rows assigned to buckets: ``bucket``; ``first``, the first mark or null; ``from`` as above.
"""

from __future__ import annotations

import json
import struct
from base64 import b64decode, b64encode
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from typing import Any

import numpy as np
import pyarrow as pa

from indexes.arrays import count_below
from indexes.key_hash import KeyHash
from mdt.engines import tasks
from mdt.engines.engine import BucketAssignment
from mdt.engines.parting import by_part, part_of
from mdt.engines.tasks import BUCKET, COUNTED, DROPPED, INSERT
from mdt.hudi.record_keys import sort_keys, sort_permutation

MARK_ROWS = 4096
Counts = dict[tuple[Any, ...], tuple[int, int]]
"""Values of the columns COUNTED -> (number of rows, sum of ``__mdt_n``)."""
_BUCKETED, _NOT_BUCKETED = 0, 1
_FRONT = struct.Struct("<BI")
_ALIGNED = 8
_ROWS_MAX = 1 << 16
_BYTES_MAX = 1 << 20
_COMPRESSED_BYTES_MIN = 1 << 16
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


def encode_block(head: Mapping[str, Any], rows: pa.Table, kind: int = _BUCKETED) -> bytes:
    """Encode ``rows`` as a block. The stream is compressed if it is large enough to benefit."""
    sink = pa.BufferOutputStream()
    options = _COMPRESSED if rows.nbytes >= _COMPRESSED_BYTES_MIN else None
    with pa.ipc.new_stream(sink, rows.schema, options=options) as stream:
        stream.write_table(rows)
    return _encode(head, sink.getvalue(), kind)


def _encode(head: Mapping[str, Any], stream: pa.Buffer, kind: int = _BUCKETED) -> bytes:
    header = json.dumps(head, separators=(",", ":")).encode()
    header += b" " * (-(_FRONT.size + len(header)) % _ALIGNED)
    return b"".join((_FRONT.pack(kind, len(header)), header, stream))


def head_of(data: bytes) -> dict[str, Any]:
    """Decode the header of a block. ``data`` may end after the header."""
    head: dict[str, Any] = json.loads(data[_FRONT.size : _end_of_head(data)])
    return head


def _end_of_head(data: bytes) -> int:
    size: int = _FRONT.unpack_from(data)[1]
    return _FRONT.size + size


def _stream(data: bytes) -> pa.Buffer:
    return pa.py_buffer(data).slice(_end_of_head(data))


def read_block(data: bytes) -> pa.RecordBatchReader:
    """Return the rows of a block."""
    return pa.ipc.open_stream(_stream(data))


def read_blocks(blocks: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of blocks. Grouped rows keep the order of the input, tagged rows have no
    order.

    Rows assigned to buckets are sorted by bucket, with the bucket as a column. Within a bucket,
    rows whose keys may be equal keep the order of the input, and inserts are sorted by key as far
    as possible.
    """
    remaining = iter(blocks)
    first = next(remaining, None)
    if first is None:
        return
    head = head_of(first)
    if "bucket" in head:
        yield from _by_bucket(chain([first], remaining))
        return
    ordered: Iterable[bytes] = chain([first], remaining)
    if "from" in head and "place" not in head:
        ordered = sorted(ordered, key=lambda block: head_of(block)["from"])
    for data in ordered:
        yield from read_block(data)


def grouped_blocks(
    part: int,
    batches: Iterator[pa.RecordBatch],
    names: Sequence[str],
    parts: int,
    key_hash: KeyHash | None = None,
) -> Iterator[tuple[int, bytes]]:
    """Yield (target part, block) so that rows with equal values of the columns ``names`` get the
    same target, one of ``parts``.

    ``part``: the number of the input part. ``key_hash``: as for
    :meth:`mdt.engines.engine.Engine.group_by`.
    """
    for number, table in enumerate(tasks.large_batches(batches)):
        dealt_rows = by_part(table, part_of(table, names, parts, key_hash))
        del table  # free the rows in their old order
        for target, rows in dealt_rows:
            yield target, encode_block({"from": [part, number]}, rows)


def tagged_blocks(
    batches: Iterator[pa.RecordBatch], key: Sequence[str], part: int | None = None
) -> Iterator[bytes]:
    """Encode tagged rows as blocks. ``key``: the columns that sort inserts. ``part``: the number of
    the input part if other parts may have equal keys.
    """
    numbers = count()
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        is_dealt = rows["__mdt_kind"].to_numpy() < DROPPED
        if not is_dealt.all():
            undealt = rows.filter(pa.array(~is_dealt))
            counts = tasks.count_rows(undealt)
            entries = [
                list(row)
                for row in zip(*(column.to_pylist() for column in counts.columns), strict=True)
            ]
            yield encode_block(_head(None, None, entries, [], None), undealt, _NOT_BUCKETED)
            rows = rows.filter(pa.array(is_dealt))
        rows, places = tasks.by_place(rows)
        for place, number, at in places:
            for counted, marks, cut in _cut_place(rows[at], key):
                origin = None if part is None else [part, next(numbers)]
                yield encode_block(_head(place, number, counted, marks, origin), cut)


def _head(
    place: str | None,
    number: int | None,
    counts: list[list[Any]],
    marks: list[bytes],
    origin: list[int] | None,
) -> dict[str, Any]:
    encoded = [b64encode(mark).decode() for mark in marks]
    return {"place": place, "number": number, "counts": counts, "marks": encoded, "from": origin}


def _cut_place(
    rows: pa.Table, key: Sequence[str]
) -> Iterator[tuple[list[list[Any]], list[bytes], pa.Table]]:
    """Yield the rows of a place in pieces of a transferable size, each with its counts and
    marks.
    """
    rows = rows.combine_chunks()
    keys = None
    if rows["__mdt_kind"][0].as_py() == INSERT:
        keys = sort_keys(rows, key)
        order = sort_permutation(keys)
        if order is not None:
            rows, keys = rows.take(pa.array(order)), keys.take(pa.array(order))
    size = max(1, min(_ROWS_MAX, _BYTES_MAX * len(rows) // max(1, rows.nbytes)))
    for start in range(0, len(rows), size):
        part = rows.slice(start, size)
        marks = [] if keys is None else _marks(keys.slice(start, size))
        yield _counts(part), marks, part


def _marks(keys: pa.Array) -> list[bytes]:
    at = [*range(0, len(keys), MARK_ROWS), len(keys) - 1]
    marks: list[bytes] = keys.take(pa.array(at)).cast(pa.binary()).to_pylist()
    return marks


def _counts(rows: pa.Table) -> list[list[Any]]:
    """Return the counts of rows of a place. All rows of a kind have the same partition and file
    group.
    """
    kind, size = rows["__mdt_kind"].to_numpy(), rows["__mdt_n"].to_numpy()
    entries = []
    for value in np.unique(kind).tolist():
        positions = np.flatnonzero(kind == value)
        first = [rows[name][int(positions[0])].as_py() for name in COUNTED.names]
        entries.append([*first, len(positions), int(size[positions].sum())])
    return entries


def sum_counts(heads: Iterable[bytes]) -> Counts:
    """Sum the counts of tagged blocks, given their headers."""
    totals: Counts = {}
    for data in heads:
        for *values, rows, total in head_of(data)["counts"]:
            totals[tuple(values)] = add_counts(totals.get(tuple(values), (0, 0)), (rows, total))
    return totals


def add_counts(first: tuple[int, int], second: tuple[int, int]) -> tuple[int, int]:
    """Add two entries of Counts."""
    return first[0] + second[0], first[1] + second[1]


def marks_in(partitions: Sequence[str], heads: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield (partition, mark) for the inserts into ``partitions``."""
    names = frozenset(partitions)
    for head in map(head_of, heads):
        if head["place"] in names:
            yield from ((head["place"], b64decode(mark)) for mark in head["marks"])


def bucket_blocks(
    assignment: BucketAssignment, blocks: Iterable[bytes]
) -> Iterator[tuple[int, bytes]]:
    """Yield (bucket, block) for the rows of tagged blocks that a bucket takes. Each block belongs
    to a single bucket.
    """
    places = {
        (row["place"], row["number"]): (row["bounds"], row["takers"])
        for row in assignment.places.to_pylist()
    }
    for data in blocks:
        head = head_of(data)
        place = places.get((head["place"], head["number"]))
        if place is None:
            continue
        bounds, takers = place
        marks = [b64decode(head["marks"][at]) for at in (0, -1)] if head["marks"] else [b"", b""]
        low, high = (bisect_right(bounds, mark) for mark in marks)
        if low < high:
            yield from _split(
                assignment,
                head["from"],
                read_block(data).read_all(),
                bounds[low:high],
                takers[low:],
            )
        else:
            first = head["marks"][0] if head["marks"] else None
            yield (
                takers[low],
                _encode(
                    {"bucket": takers[low], "first": first, "from": head["from"]}, _stream(data)
                ),
            )


def _split(
    assignment: BucketAssignment,
    origin: list[int] | None,
    rows: pa.Table,
    bounds: Sequence[bytes],
    takers: Sequence[int],
) -> Iterator[tuple[int, bytes]]:
    """Yield the inserts of a block, which are sorted by key, cut at ``bounds``. ``takers``: the
    bucket before each bound, and after the last.
    """
    keys = sort_keys(rows, assignment.key).cast(pa.binary())
    ends = [count_below(keys, pa.scalar(bound, pa.binary())) for bound in bounds]
    for taker, start, end in zip(takers, [0, *ends], [*ends, len(rows)], strict=False):
        if end > start:
            first = b64encode(keys[start].as_py()).decode()
            yield (
                taker,
                encode_block(
                    {"bucket": taker, "first": first, "from": origin},
                    rows.slice(start, end - start),
                ),
            )


def _by_bucket(blocks: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of bucketed blocks with their bucket, in the order that :func:`read_blocks`
    documents.
    """
    sorted_blocks = [(_order(head_of(data)), data) for data in blocks]
    sorted_blocks.sort(key=lambda block: block[0])
    for (bucket, *_), data in sorted_blocks:
        for rows in read_block(data):
            yield rows.append_column(BUCKET, pa.repeat(pa.scalar(bucket, pa.int32()), len(rows)))


def _order(head: Mapping[str, Any]) -> tuple[int, list[int], bool, bytes]:
    first = head["first"]
    return (
        head["bucket"],
        head["from"] or [],
        first is None,
        b"" if first is None else b64decode(first),
    )


def select_rows(
    kind: int, names: Sequence[str], blocks: Iterable[bytes]
) -> Iterator[pa.RecordBatch]:
    """Yield the columns ``names`` of the rows of a kind."""
    for batch in read_blocks(blocks):
        yield tasks.select_rows(batch, kind, names)
