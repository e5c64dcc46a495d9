"""The blocks of log files of any Hudi writer that count for a reader, in the order of merging.

Not all blocks count (Apache Hudi, ``HoodieLogFileReader.java`` and
``BaseHoodieLogRecordReader.java``):

* A writer that died has left a torn block. Its size does not lead to its end, so the next magic
  bytes are searched for.
* A block counts from the moment when its instant is completed.
* A command block removes the blocks of the instant that it names, among the blocks before it. That
  instant was rolled back, and may be used again.
* A log compaction writes blocks that replace the blocks of several instants. They are merged in
  place of the newest of these, because others may have written while the compaction ran.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mdt.errors import Corrupt, Missing, Unsupported
from mdt.hudi import log_file
from mdt.hudi.log_file import (
    CDC,
    COMMAND,
    COMMAND_TYPE,
    COMPACTED_TIMES,
    CORRUPT,
    INSTANT_TIME,
    MAGIC,
    TARGET_INSTANT_TIME,
    Block,
)
from mdt.hudi.read.objects import read_listed
from mdt.limits import LOG_FILE_BYTES_MAX
from mdt.stores.storage import Storage

_SIZE_BYTES = 8
_ROLLBACK = "0"
"""The only type of command that Hudi defines."""


@dataclass(frozen=True, slots=True)
class LogBlock:
    """A whole block of a log file.

    Attributes:
        block: Its kind, header texts and content.
        instant: The instant that wrote it.
        path: Path of the log file in the table.
    """

    block: Block
    instant: str
    path: str


def load_blocks(objects: Storage, path: str, size: int) -> list[LogBlock]:
    """Return the whole blocks of a log file, in order.

    Args:
        size: Size of the file in bytes, from a listing.

    Raises Corrupt and Missing.
    """
    return parse(read_listed(objects, path, size, LOG_FILE_BYTES_MAX), path)


def parse(data: bytes, path: str) -> list[LogBlock]:
    """Return the whole blocks of a log file, in order.

    Torn blocks are left out, and so are blocks for change feeds and those that Hudi has marked as
    corrupt. Only the size of a block and its copy at the end decide whether it is torn.

    Raises Corrupt, with ``path`` and the offset, for other damage.

    >>> rows = log_file.data_block(
    ...     b"PAR1",
    ...     instant="20240229120000123",
    ...     avro_schema="{}",
    ...     positions=None,
    ...     base_instant=None,
    ... )[0]
    >>> [(block.instant, block.block.kind) for block in parse(rows[:50] + rows, "a.log")]
    [('20240229120000123', 5)]
    """
    view = memoryview(data)
    blocks: list[LogBlock] = []
    offset = 0
    while offset + len(MAGIC) <= len(data):
        if data[offset : offset + len(MAGIC)] != MAGIC:
            raise Corrupt("damaged log file: no block begins here", path=path, offset=offset)
        end = _end(data, offset)
        if end:
            block = log_file.parse_block(view, offset, path)
            if block.kind not in (CORRUPT, CDC):
                blocks.append(LogBlock(block, _instant(block, path), path))
        else:
            end = data.find(MAGIC, offset + len(MAGIC))
        offset = end if end >= 0 else len(data)
    return blocks


def instants_of_file(storage: Storage, path: str) -> frozenset[str]:
    """Return the instants of all blocks of a log file. Empty if the file is absent or damaged."""
    try:
        blocks = parse(storage.read_whole(path, LOG_FILE_BYTES_MAX), path)
    except (Corrupt, Missing):
        return frozenset()
    return frozenset(block.instant for block in blocks)


def _end(data: bytes, begin: int) -> int:
    """Return the end of the block at ``begin``, or 0 if it is torn."""
    after_size = begin + len(MAGIC) + _SIZE_BYTES
    size = int.from_bytes(data[after_size - _SIZE_BYTES : after_size], "big")
    end = after_size + size
    copy = int.from_bytes(data[end - _SIZE_BYTES : end], "big")
    is_whole = size >= _SIZE_BYTES and end <= len(data) and copy == size + len(MAGIC)
    return end if is_whole else 0


def _instant(block: Block, path: str) -> str:
    instant = block.header.get(INSTANT_TIME, "")
    if not instant:
        raise Corrupt("a log block has no instant", path=path, offset=block.offset)
    return instant


def live_blocks(
    blocks: Iterable[LogBlock], is_completed: Callable[[str], bool], at: str = ""
) -> list[LogBlock]:
    """Return the data and delete blocks that count, in the order in which they are merged.

    Args:
        blocks: The blocks of all log files of a slice, in order.
        is_completed: Returns True for an instant whose blocks count.
        at: Leave out blocks of later instants. "" for none.

    Raises Corrupt for a command without a target, and Unsupported for an unknown one.
    """
    seen: dict[str, list[LogBlock]] = {}  # by instant, in the order of its first block
    for block in blocks:
        if block.block.kind == COMMAND:
            seen.pop(_rolled_back(block), None)
        elif (not at or block.instant <= at) and is_completed(block.instant):
            seen.setdefault(block.instant, []).append(block)
    # blocks of log compactions are in place of the compacted ones
    order: dict[str, None] = {}  # as a set that keeps the order
    compaction_of: dict[str, str] = {}
    for instant in reversed(seen):
        final = compaction_of.get(instant, instant)
        compacted = _compacted(seen[instant])
        compaction_of |= dict.fromkeys(compacted, final)
        if not any(time in seen for time in compacted):
            order.setdefault(final)
    return [block for instant in reversed(order) for block in seen[instant]]


def _compacted(blocks: Iterable[LogBlock]) -> list[str]:
    """Return the other instants whose blocks the ``blocks`` of an instant replace."""
    for block in blocks:
        if COMPACTED_TIMES in block.block.header:
            times = block.block.header[COMPACTED_TIMES].split(",")
            return [time for time in times if time != block.instant]
    return []


def _rolled_back(command: LogBlock) -> str:
    """Return the instant that a command block rolls back."""
    header = command.block.header
    if header.get(COMMAND_TYPE, _ROLLBACK) != _ROLLBACK:
        raise Unsupported(f"{command.path} has a command of type {header[COMMAND_TYPE][:60]!r}")
    if not header.get(TARGET_INSTANT_TIME):
        raise Corrupt("a command has no target", path=command.path, offset=command.block.offset)
    return header[TARGET_INSTANT_TIME]
