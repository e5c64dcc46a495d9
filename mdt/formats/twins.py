"""Twins: the data blocks that a commit wrote into log files, as Parquet files for other formats.

A data block is Parquet, but not a file. The blocks of one commit in one partition are put together
in a twin, undecoded and in the order of the commit record. So the position of a row in a twin is
its position in the block after the rows of the blocks before. Twins are below ``.hoodie``, where no
reader of Hudi looks for rows. Their footer lists the blocks, since the log files of a twin end one
by one, and has the statistics of all their rows.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any

import pyarrow as pa

from indexes.column_stats import Stats, merge, pack, unpack
from mdt.errors import Corrupt, Missing
from mdt.hudi.base_file import CALENDAR
from mdt.limits import SEGMENTS_PER_COMMIT_MAX
from mdt.metadata.files import paths
from mdt.metadata.files.file_group import LOG
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.parquet.footer import read_footer
from mdt.parquet.joined_files import footer_facts, join
from mdt.session import Recent
from mdt.stores.storage import Storage

FOLDER = f"{paths.PRIVATE}/twins"
"""The directory of the twins."""

_BLOCKS = "mdt.blocks"
"""Key of the footer entry with the blocks: [[segment, rows], …] as JSON."""
_STATS = "mdt.stats"
"""Key of the footer entry with the statistics: column -> hexadecimal bytes, as JSON."""
_CRC = "mdt.crc"
"""Key of the footer entry with the CRC-32 of both texts."""
_DAMAGE = (
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    RecursionError,
    OSError,
    pa.ArrowException,
)
"""Errors of a damaged footer."""


@dataclass(frozen=True, slots=True)
class Twin:
    """The twin of the data blocks of a commit in a partition.

    Attributes:
        size: Bytes.
        blocks: (segment, position of the first row, number of rows) of each block.
        stats: Column -> statistics of all rows. Columns without are left out.
    """

    path: str
    partition: str
    size: int
    blocks: tuple[tuple[int, int, int], ...]
    stats: Mapping[str, Stats] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Number of rows, deleted rows included."""
        return sum(rows for _, _, rows in self.blocks)


@dataclass(frozen=True, slots=True)
class NewTwin:
    """A twin and its bytes, in several parts."""

    twin: Twin
    content: Sequence[bytes]


def twin_path(seq: int, partition: str) -> str:
    """Return the path of the twin of commit ``seq`` in a partition. Some readers of Delta take the
    values of partition columns from it.

    >>> twin_path(7, "city=Oslo")
    '.hoodie/.mdt/twins/city=Oslo/00000000000000000007.parquet'
    """
    return f"{FOLDER}/{paths.partition_file(partition, f'{seq:020d}.parquet')}"


class Twins:
    """Makes the twins of a table, and finds them again."""

    def __init__(self, storage: Storage, cached: Recent[str, Twin]) -> None:
        self._storage, self._cached = storage, cached

    def make(self, record: CommitRecord, stats: Mapping[int, Mapping[str, Stats]]) -> list[NewTwin]:
        """Return the twins of the data blocks of a record, by partition. Reads the log files.

        Args:
            stats: Ordinal of a file -> column -> statistics.

        Raises Corrupt if a log file is damaged, and Missing.
        """
        rows_by_partition: dict[str, list[dict[str, Any]]] = {}
        for row in record.table("files").to_pylist():
            if row["kind"] == LOG and row["rows"]:
                rows_by_partition.setdefault(row["partition"], []).append(row)
        twins = []
        for partition, files in sorted(rows_by_partition.items()):
            file_stats = [stats.get(row["segment"], {}) for row in files]
            twins.append(self._new(record.seq, partition, files, _merged(file_stats)))
        return twins

    def find(self, snapshot: Snapshot, numbers: Iterable[int]) -> list[Twin]:
        """Return the twins of log files of a snapshot. Files without rows have none.

        Raises Corrupt if a twin is damaged, and Missing.
        """
        found = set()
        for number in numbers:
            segment = snapshot.segment(number)
            if segment.rows:
                found.add((segment.seq, segment.partition))
        load = (partial(self._stored, seq, partition) for seq, partition in sorted(found))
        return list(self._storage.each(load))

    def _new(
        self,
        seq: int,
        partition: str,
        files: Sequence[dict[str, Any]],
        stats: Mapping[str, Stats],
    ) -> NewTwin:
        path = twin_path(seq, partition)
        data = list(self._storage.each(partial(self._block, row) for row in files))
        first = seq * SEGMENTS_PER_COMMIT_MAX
        segments = [(first + row["segment"], row["rows"]) for row in files]
        texts = {name: pack(column_stats).hex() for name, column_stats in stats.items()}
        entries = {_BLOCKS: _compact(segments), _STATS: _compact(texts)}
        content = join(data, {**entries, _CRC: _crc(entries), **CALENDAR}, path)
        twin = Twin(path, partition, sum(map(len, content)), _with_positions(segments), stats)
        return NewTwin(self._cached.put(path, twin), content)

    def _block(self, row: dict[str, Any]) -> bytes:
        """Return the verified data block of a log file, a row of FILES."""
        path = paths.data_file(row["partition"], row["name"])
        data = self._storage.read(path, 0, row["size"])
        if zlib.crc32(data) != row["crc"]:
            raise Corrupt("a log file does not match its checksum", path=path)
        return data[row["block_offset"] :][: row["block_length"]]

    def _stored(self, seq: int, partition: str) -> Twin:
        """Return a twin that an earlier commit has put."""
        path = twin_path(seq, partition)
        twin = self._cached.get(path)
        if twin is None:
            twin = self._cached.put(path, self._read(path, seq, partition))
        return twin

    def _read(self, path: str, seq: int, partition: str) -> Twin:
        size = self._storage.size(path)
        if size is None:
            raise Missing("the twin of log files is missing", path=path)
        footer = read_footer(self._storage, path, size)
        try:
            rows, entries = footer_facts(footer)
            if _crc(entries) != entries[_CRC]:
                raise ValueError("its checksum differs")
            segments = _segments(json.loads(entries[_BLOCKS]), seq, rows)
            texts = json.loads(entries[_STATS]).items()
            stats = {name: unpack(bytes.fromhex(text), pa.binary()) for name, text in texts}
        except _DAMAGE as error:
            raise Corrupt(f"a twin has no list of blocks: {error!r}"[:300], path=path) from error
        return Twin(path, partition, size, _with_positions(segments), stats)


def _merged(files: Sequence[Mapping[str, Stats]]) -> dict[str, Stats]:
    """Return the statistics of the rows of all files, for the columns that all of them have."""
    names = [name for name in files[0] if all(name in stats for stats in files)]
    return {name: merge([stats[name] for stats in files]) for name in names}


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _crc(entries: Mapping[str, str]) -> str:
    return str(zlib.crc32((entries[_BLOCKS] + entries[_STATS]).encode()))


def _segments(stored: Any, seq: int, rows: int) -> list[tuple[int, int]]:
    """Return (segment, rows) of each block of a commit. Raises ValueError or TypeError for a list
    that does not describe a file of ``rows`` rows.
    """
    segments = [(segment, count) for segment, count in stored]
    for segment, count in segments:
        is_number = type(segment) is int and type(count) is int
        if not is_number or segment // SEGMENTS_PER_COMMIT_MAX != seq or count <= 0:
            raise ValueError(f"a block [{segment!r}, {count!r}]")
    if sum(count for _, count in segments) != rows:
        raise ValueError("blocks with another number of rows")
    return segments


def _with_positions(segments: Sequence[tuple[int, int]]) -> tuple[tuple[int, int, int], ...]:
    starts = accumulate((rows for _, rows in segments), initial=0)
    pairs = zip(segments, starts, strict=False)
    return tuple((segment, first, rows) for (segment, rows), first in pairs)
