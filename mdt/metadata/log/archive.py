"""The archive: what is kept of commit records that have left the log, which is who committed what,
and when.

Objects of the archive have the rows of a run of records; together they have all records from 0 on.
An object is written before any of its records is deleted, and an object with a higher last record
always exists before one goes.  So who has put a record under a number that was free, and finds no
archived number as high, knows that the number was free because it is the next one.
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
    """Return the objects that make up the archive, in the order of their records, without those
    that larger ones contain.

    One listing.
    """
    found = sorted(
        span
        for info in storage.list_dir(paths.archive_dir())
        if (span := paths.archived(info.path))
    )
    whole: list[Span] = []
    for first, last in found:
        if whole and last <= whole[-1][1]:
            continue
        while whole and whole[-1][0] >= first:
            whole.pop()
        whole.append((first, last))
    return whole


def last_archived(storage: Storage) -> int:
    """Return the newest record of the archive, -1 if there is none.  One listing."""
    return _last(spans(storage))


def _last(known: Sequence[Span]) -> int:
    if not known:
        return -1
    return known[-1][1]


def read(storage: Storage, first: int = 0) -> pa.Table:
    """Return the rows of all archived records from ``first`` on, schema HISTORY.

    Raises Corrupt if an object is damaged, Missing if records are in none.
    """
    tables, following = [no_rows(HISTORY)], 0
    for span in spans(storage):
        if span[0] != following:
            raise Missing(
                f"the archive lacks the records from {following} on", path=paths.archive(*span)
            )
        following = span[1] + 1
        if following > first:
            tables.append(read_span(storage, span))
    table = pa.concat_tables(tables)
    return table.filter(mask(numbers(table["seq"]) >= first))


def read_span(storage: Storage, span: Span) -> pa.Table:
    """Return the rows of one object, schema HISTORY.  Raises Corrupt if it is damaged."""
    path = paths.archive(*span)
    frame = codec.unframe(
        storage.read_whole(path, FRAME_BYTES_MAX), KIND, path=path, version_max=VERSION
    )
    _, sections = codec.unpack(frame, path=path)
    if "history" not in sections:
        raise Corrupt("an object of the archive lacks its rows", path=path)
    table = codec.decode_ipc(sections["history"], HISTORY, path=path, added=HISTORY_ADDED)
    if table["seq"].null_count or not np.array_equal(
        numbers(table["seq"]), np.arange(span[0], span[1] + 1)
    ):
        raise Corrupt("an object of the archive has other records than its name says", path=path)
    return table


def add(storage: Storage, rows: pa.Table) -> None:
    """Put the rows of records (schema HISTORY) into the archive; the first must be the one after
    the last that it has.

    Objects that are not larger than what follows them become part of the new one, so that there are
    few, and a row is written again O(log n) times.  May be repeated.
    """
    first, last = int(rows["seq"][0].as_py()), int(rows["seq"][-1].as_py())
    known = spans(storage)
    reached = _last(known)
    if reached >= last:
        return
    if first != reached + 1:
        raise Internal(f"the archive ends at record {reached} and cannot go on with {first}")
    absorbed: list[Span] = []
    while known and _is_absorbed(known[-1], last - first + 1):
        absorbed.append(known.pop())
        rows = pa.concat_tables([read_span(storage, absorbed[-1]), rows])
        first = absorbed[-1][0]
    storage.put_if_absent(paths.archive(first, last), _encoded(rows, first, last))
    storage.delete_many([paths.archive(*span) for span in absorbed])


def rewrite(storage: Storage, rows: pa.Table) -> None:
    """Put ``rows``, of all records from 0 on, in the place of the whole archive.  May be
    repeated.
    """
    last = len(rows) - 1
    storage.replace(paths.archive(0, last), _encoded(rows, 0, last))
    listed = [info.path for info in storage.list_dir(paths.archive_dir())]
    kept = paths.archive(0, last)
    storage.delete_many(
        [
            path
            for path in listed
            if path != kept and (paths.archived(path) or (0, last + 1))[1] <= last
        ]
    )


def _encoded(rows: pa.Table, first: int, last: int) -> bytes:
    sections = {"history": codec.encode_ipc(rows.combine_chunks(), compression="lz4")}
    return codec.frame(KIND, VERSION, codec.pack({"first": first, "last": last}, sections))


def _is_absorbed(span: Span, rows: int) -> bool:
    size = span[1] - span[0] + 1
    return size <= rows and size + rows <= ARCHIVE_ROWS_MERGED_MAX
