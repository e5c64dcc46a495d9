"""File groups and their files, as commit records and snapshots describe them.

Each file is one *segment*: a base file, or a log file with at most one data block.  The number of a
segment is ``seq << 20 | ordinal`` of the commit that added it, so writers need not coordinate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from mdt.hudi.commit_metadata import NO_PREVIOUS
from mdt.limits import SEGMENTS_PER_COMMIT_MAX
from mdt.stores.object_range import ObjectRange

BASE = 0
"""``kind`` of a base file."""
LOG = 1
"""``kind`` of a log file."""
MERGED = 2
"""``kind`` of a merged file: the live rows of log files of other writers, from any of their
commits.
"""

FILES = pa.schema(
    [
        ("segment", pa.int64()),
        ("partition", pa.string()),
        ("file_id", pa.string()),
        ("name", pa.string()),
        ("kind", pa.int8()),
        ("base_instant", pa.string()),
        ("log_version", pa.int32()),
        ("instant", pa.string()),
        ("size", pa.int64()),
        ("crc", pa.int64()),
        ("rows", pa.int64()),
        ("block_offset", pa.int64()),
        ("block_length", pa.int64()),
        ("footer_length", pa.int64()),
        ("footer_crc", pa.int64()),
        ("row_group_rows", pa.list_(pa.int32())),
        ("shard", pa.int64()),
        ("first_row", pa.int64()),
        ("inserts", pa.int64()),
        ("updates", pa.int64()),
        ("deletes", pa.int64()),
        ("key_map_path", pa.string()),
        ("key_map_offset", pa.int64()),
        ("key_map_length", pa.int64()),
        ("key_map_crc", pa.int64()),
        ("page_map_offset", pa.int64()),
        ("page_map_length", pa.int64()),
        ("page_map_crc", pa.int64()),
    ]
)
"""Columns of the metadata partition ``files``.  Sizes and offsets are in bytes.

The page map is in the object of the key map.  ``shard`` is the number of the file's shard, and
``first_row`` is the position of the file's first row in it.
"""

FRESH = pa.schema([("segment", pa.int64()), ("positions", pa.binary())])
"""Positions of the rows that the commit itself wrote, for added files that also hold older rows."""

SummaryRef = bytes | ObjectRange
"""A summary as the metadata store it: its bytes, or its object range."""


def summary_length(summary: SummaryRef) -> int:
    """Return the size of a summary in bytes."""
    if isinstance(summary, ObjectRange):
        return summary.length
    return len(summary)


_PLACE = ("path", "offset", "length", "crc")


def range_from_row(row: Mapping[str, Any]) -> ObjectRange | None:
    """Return the object range in the columns of ``row``, or None if they are null."""
    if row["path"] is None:
        return None
    return ObjectRange(*(row[name] for name in _PLACE))


def range_columns(stored: ObjectRange | None) -> dict[str, Any]:
    """Return an object range as column values of a row, nulls for None."""
    return {name: getattr(stored, name, None) for name in _PLACE}


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """Consecutive segments of a commit that are summarized together.

    ``summaries`` are (index specification, summary) pairs, each for all rows of the shard.
    """

    summaries: tuple[tuple[str, SummaryRef], ...] = ()


@dataclass(frozen=True, slots=True)
class NewFile:
    """A data file that a transaction has written.  Names are relative to the partition.

    - base_instant: Base instant of the file slice.
    - crc: CRC-32 of all bytes.
    - block_offset, block_length: Position of the Parquet bytes in the file.
    - footer_length, footer_crc: Size and CRC-32 of the Parquet footer, 0 without Parquet bytes.
    - row_group_rows: Rows of each row group.
    - stats: Rows of the partition ``column_stats``, without the column ``segment``.
    - shard: Shard of the file.  Files of a shard follow each other.
    - first_row: Position of the file's first row in the shard.
    - fresh: Serialized bitmap of the rows that the transaction itself wrote, None for all rows.
    """

    partition: str
    file_id: str
    name: str
    kind: int
    base_instant: str
    log_version: int
    size: int
    crc: int
    rows: int
    block_offset: int
    block_length: int
    footer_length: int
    footer_crc: int
    row_group_rows: tuple[int, ...]
    inserts: int
    updates: int
    deletes: int
    key_map: ObjectRange | None = None
    page_map: ObjectRange | None = None
    stats: pa.Table | None = None
    shard: Shard = field(default_factory=Shard)
    first_row: int = 0
    fresh: bytes | None = None
    previous_instant: str = NO_PREVIOUS
    base_name: str = ""
    log_names: tuple[str, ...] = field(default=())


def shards_of(files: Sequence[NewFile]) -> tuple[list[Shard], list[int]]:
    """Return the distinct shards of ``files`` in order, and the index of each file's shard."""
    shards: list[Shard] = []
    shard_of_file = []
    for file in files:
        if not shards or shards[-1] is not file.shard:
            shards.append(file.shard)
        shard_of_file.append(len(shards) - 1)
    return shards, shard_of_file


def files_table(files: Sequence[NewFile], instant: str) -> pa.Table:
    """Return ``files`` as a table with the schema FILES.

    The columns ``segment`` and ``shard`` have ordinals (0, 1, 2 …).
    """
    assert len(files) <= SEGMENTS_PER_COMMIT_MAX, "too many files for one commit"

    def stored(member: str, attribute: str) -> list[object]:
        return [getattr(getattr(f, member), attribute, None) for f in files]

    plain = {
        name: [getattr(f, name) for f in files]
        for name in FILES.names
        if name not in ("segment", "instant", "row_group_rows", "shard")
        and not name.startswith(("key_map", "page_map"))
    }
    columns: dict[str, Iterable[object]] = {
        **plain,
        "segment": list(range(len(files))),
        "instant": [instant] * len(files),
        "row_group_rows": [list(f.row_group_rows) for f in files],
        "shard": shards_of(files)[1],
        **{f"key_map_{name}": stored("key_map", name) for name in _PLACE},
        **{f"page_map_{name}": stored("page_map", name) for name in _PLACE[1:]},
    }
    return pa.table([pa.array(columns[f.name], f.type) for f in FILES], schema=FILES)


def fresh_table(files: Sequence[NewFile]) -> pa.Table:
    """Return the new rows of the ``files`` that also hold older rows, schema FRESH.

    The column ``segment`` has ordinals.
    """
    fresh = {n: file.fresh for n, file in enumerate(files) if file.fresh is not None}
    return pa.table([list(fresh), list(fresh.values())], schema=FRESH)
