"""A data file as all readers see it: the location of its Parquet bytes and the facts that its
commit recorded.

Deleted rows may change after the commit, so they belong to a snapshot
(:meth:`mdt.metadata.snapshot.snapshot.Snapshot.vector`). A segment is valid for every snapshot that
contains it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mdt.limits import SEGMENTS_PER_COMMIT_MAX
from mdt.stores.object_range import ObjectRange


@dataclass(frozen=True, slots=True)
class Segment:
    """A base file, or a log file with at most one data block, as recorded by its commit.

    Attributes:
        id: ``seq << 20 | ordinal`` of the commit that added it. It never changes.
        path: Relative to the table.
        partition: Partition path. "" in a table without partitions.
        size, crc: Bytes and CRC-32 of the whole file.
        kind: BASE, LOG or MERGED of :mod:`mdt.metadata.files.file_group`.
        file_id, base_instant, log_version, instant: The parts of its name in Hudi.
        deletes: Number of record keys in its delete blocks.
        rows: Number of rows, including deleted rows.
        block_offset, block_length: Byte range of the Parquet data.
        row_groups: Rows in each row group.
        footer_length, footer_crc: Size and CRC-32 of the footer at the end of the Parquet data.
        first_row: Position of its first row in its shard.
        key_map, page_map: Their locations, or None.
    """

    id: int
    path: str
    partition: str
    kind: int
    file_id: str
    base_instant: str
    log_version: int
    instant: str
    size: int
    crc: int
    rows: int
    deletes: int
    block_offset: int
    block_length: int
    footer_length: int
    footer_crc: int
    first_row: int
    row_groups: tuple[int, ...]
    key_map: ObjectRange | None
    page_map: ObjectRange | None

    @property
    def seq(self) -> int:
        """Number of the commit that added it."""
        return self.id // SEGMENTS_PER_COMMIT_MAX

    @property
    def name(self) -> str:
        """File name."""
        return self.path.rpartition("/")[2]

    @property
    def footer_offset(self) -> int:
        """Offset of the footer in the file."""
        return self.block_offset + self.block_length - self.footer_length

    @property
    def is_imported(self) -> bool:
        """True for an imported file, whose CRC-32 is not recorded. It may lack columns, or store
        narrower values.
        """
        return self.rows > 0 and not self.crc

    @property
    def is_whole_file(self) -> bool:
        """True if the file consists of Parquet data only, like a base file."""
        return self.block_length == self.size


def slice_instant(members: Sequence[Segment]) -> str:
    """Return the base instant of the newest slice of a file group.

    Log files that were imported while a compaction was pending have that of the slice before it.
    """
    return max(member.base_instant for member in members)
