"""Data files that are damaged or gone, and that a compaction has made: it is done again from the
files that it had, if they are still there.

Compaction moves rows, and what it writes is a function of what it reads.  Bytes with the crc that
the record tells are those that were written, and are put back under the same name.
"""

from __future__ import annotations

import copy
import zlib
from typing import Any, cast

from mdt.commit.operation import Claim
from mdt.config import Options
from mdt.errors import Corrupt, MdtError
from mdt.hudi import file_names
from mdt.metadata.metadata import Metadata
from mdt.parquet.segment import Segment
from mdt.stores.contract import Data, joined
from mdt.stores.storage import Storage
from mdt.write.files import WriteJob
from mdt.write.slices import Slice


class _Kept:
    """A storage that keeps what is created, and is otherwise another one."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.created: dict[str, bytes] = {}

    def create(self, path: str, data: Data) -> None:
        """Keep ``data``."""
        self.created[path] = joined(data)

    def put_passing(self, path: str, data: Data) -> bool:
        """Put no marker: the file is committed."""
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)


def put_back(metadata: Metadata, options: Options, segment: Segment) -> bool:
    """Make a data file again and put it back; return whether that was possible."""
    try:
        data = _made(metadata, options, segment)
    except MdtError:  # what the compaction read is gone, or damaged too
        return False
    if data is None or len(data) != segment.size or zlib.crc32(data) != segment.crc:
        return False
    metadata.storage.replace(segment.path, data)
    return True


def _made(metadata: Metadata, options: Options, segment: Segment) -> bytes | None:
    """Return what the compaction that wrote ``segment`` would write now, None if it was no
    compaction.
    """
    record = metadata.record(segment.seq)
    name = file_names.parse_base(segment.name)
    if record is None or record.action != "compaction" or name is None or record.token is None:
        return None
    task, _, attempt = (int(part) for part in name.token.split("-"))
    state = metadata.state(record.header["begun_at"])
    (group,) = state.file_groups.number([segment.file_id]).tolist()
    if group < 0:
        raise Corrupt("a compaction made a file group that was not there", path=segment.path)
    kept = _Kept(metadata.storage)
    beside = copy.copy(metadata)
    beside.storage = cast("Storage", kept)
    job = WriteJob.of(
        beside, state, options, Claim(record.txn, record.instant, record.token, attempt)
    )
    job.run(task, Slice(segment.partition, group))
    job.uploaded()
    return kept.created.get(segment.path)
