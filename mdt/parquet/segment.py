"""One data file as every reader knows it: where its Parquet bytes stand, and what its commit wrote
about them.

This is the one form in which a data file is read.  What changes after its commit, its dead rows, is
no part of it but of a snapshot (:meth:`mdt.metadata.snapshot.snapshot.Snapshot.vector`), so a
segment holds for every snapshot that has it.
"""

from __future__ import annotations

from dataclasses import dataclass

from mdt.limits import SEGMENTS_PER_COMMIT_MAX
from mdt.stores.object_range import ObjectRange


@dataclass(frozen=True, slots=True)
class Segment:
    """One base file, or one log file with at most one data block, as its commit wrote it.

    ``id``: seq << 20 | ordinal of the commit that added it, the same for ever.  ``path``: relative
    to the table, of a file of ``size`` bytes with the CRC-32 ``crc``.  ``kind``: BASE or LOG of
    :mod:`mdt.metadata.files.file_group`.  ``file_id``, ``base_instant``, ``log_version``,
    ``instant``: Hudi's names for it.  ``deletes``: record keys in its delete blocks.

    Its ``rows`` rows, dead ones included, stand in ``block_length`` Parquet bytes from
    ``block_offset`` on, in row groups of ``row_groups`` rows each; the last ``footer_length`` of
    these bytes are the footer, whose CRC-32 is ``footer_crc``. ``first_row``: position of its first
    row in its shard. ``key_map``, ``page_map``: where these stand, None without.
    """

    id: int
    path: str
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
        """The commit that added it."""
        return self.id // SEGMENTS_PER_COMMIT_MAX

    @property
    def partition(self) -> str:
        """Its partition path; "" in a table without partitions."""
        return self.path.rpartition("/")[0]

    @property
    def name(self) -> str:
        """Its file name."""
        return self.path.rpartition("/")[2]

    @property
    def footer_offset(self) -> int:
        """Where the footer begins in the file."""
        return self.block_offset + self.block_length - self.footer_length

    @property
    def is_whole_file(self) -> bool:
        """Whether the file holds nothing but the Parquet bytes, as base files do."""
        return self.block_length == self.size
