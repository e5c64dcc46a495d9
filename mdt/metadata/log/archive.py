"""Summaries (time, writer, operation) of commits removed from the log.

Each object has the rows of consecutive records, and together they have all records from 0 on.  An
object is written before any of its records is deleted.  Before an object is deleted, another with a
higher last record exists.  So a writer that puts a record under a free seq, and then finds no
archived seq as high, knows that this was the next seq.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from indexes.arrays import mask, numbers
from mdt.errors import Corrupt, Internal, Missing
from mdt.limits import ARCHIVE_ROWS_MERGED_MAX, FRAME_BYTES_MAX
from mdt.metadata.files import paths
from mdt.metadata.log import codec
from mdt.metadata.log.checkpoint_columns import HISTORY, HISTORY_ADDED, no_rows
from mdt.stores.storage import Storage

KIND = b"HIST"
VERSION = 1

Span = tuple[int, int]
"""First and last record of an object."""


def spans(storage: Storage) -> list[Span]:
    """Return the objects of the archive in order, without objects that larger objects contain.

    Needs a single listing.
    """
    listed = sorted(
        span for info in storage.list_dir(paths.ARCHIVE_DIR) if (span := paths.archived(info.path))
    )
    maximal: list[Span] = []
    for first, last in listed:
        if maximal and last <= maximal[-1][1]:
            continue
        while maximal and maximal[-1][0] >= first:
            maximal.pop()
        maximal.append((first, last))
    return maximal


def last_archived(storage: Storage) -> int:
    """Return the seq of the newest archived record, or -1.  Needs a single listing."""
    return _last(spans(storage))


def _last(objects: Sequence[Span]) -> int:
    if not objects:
        return -1
    return objects[-1][1]


def read(storage: Storage, first: int = 0) -> pa.Table:
    """Return the rows of all archived records from ``first`` on, schema HISTORY.

    Raises Corrupt if an object is damaged, and Missing if records are missing.
    """
    tables, following = [no_rows(HISTORY)], 0
    for span in spans(storage):
        if span[0] != following:
            raise Missing(
                f"the archive lacks the records from {following}", path=paths.archive(*span)
            )
        following = span[1] + 1
        if following > first:
            tables.append(read_span(storage, span))
    table = pa.concat_tables(tables)
    return table.filter(mask(numbers(table["seq"]) >= first))


def read_span(storage: Storage, span: Span) -> pa.Table:
    """Return the rows of an object, schema HISTORY.  Raises Corrupt if it is damaged."""
    path = paths.archive(*span)
    frame = codec.unframe(
        storage.read_whole(path, FRAME_BYTES_MAX), KIND, path=path, version_max=VERSION
    )
    _, sections = codec.unpack(frame, path=path)
    if "history" not in sections:
        raise Corrupt("an archive object has no rows", path=path)
    table = codec.decode_ipc(sections["history"], HISTORY, path=path, added=HISTORY_ADDED)
    if table["seq"].null_count or not np.array_equal(
        numbers(table["seq"]), np.arange(span[0], span[1] + 1)
    ):
        raise Corrupt("the records of an archive object do not match its name", path=path)
    return table


def add(storage: Storage, rows: pa.Table) -> None:
    """Append the rows of records (schema HISTORY) to the archive.  Idempotent.

    The first row must follow the last archived record.  Trailing objects that are not larger than
    the new rows are merged into the new object.  So there are few objects, and each row is
    rewritten O(log n) times.
    """
    first, last = int(rows["seq"][0].as_py()), int(rows["seq"][-1].as_py())
    objects = spans(storage)
    newest = _last(objects)
    if newest >= last:
        return
    if first != newest + 1:
        raise Internal(f"the archive ends at record {newest}, so {first} cannot be next")
    absorbed: list[Span] = []
    while objects and _is_absorbed(objects[-1], last - first + 1):
        absorbed.append(objects.pop())
        rows = pa.concat_tables([read_span(storage, absorbed[-1]), rows])
        first = absorbed[-1][0]
    storage.put_if_absent(paths.archive(first, last), _encode(rows, first, last))
    storage.delete_many([paths.archive(*span) for span in absorbed])


def rewrite(storage: Storage, rows: pa.Table) -> None:
    """Replace the whole archive by ``rows``, which have all records from 0 on.  Idempotent."""
    last = len(rows) - 1
    storage.replace(paths.archive(0, last), _encode(rows, 0, last))
    objects = [info.path for info in storage.list_dir(paths.ARCHIVE_DIR)]
    replacement = paths.archive(0, last)
    storage.delete_many(
        [
            path
            for path in objects
            if path != replacement and (paths.archived(path) or (0, last + 1))[1] <= last
        ]
    )


def _encode(rows: pa.Table, first: int, last: int) -> bytes:
    sections = {"history": codec.encode_ipc(rows.combine_chunks(), compression="lz4")}
    return codec.frame(KIND, VERSION, codec.pack({"first": first, "last": last}, sections))


def _is_absorbed(span: Span, rows: int) -> bool:
    size = span[1] - span[0] + 1
    return size <= rows and size + rows <= ARCHIVE_ROWS_MERGED_MAX
