"""Check data files against the log and their attachments: rows, blocks, statistics, maps.

Everything else is derived from data files. A damaged data file can be rebuilt only if a compaction
wrote it and the files that it read still exist.
"""

from __future__ import annotations

import copy
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from indexes.arrays import flags
from mdt.commit.operation import Claim
from mdt.config import Options
from mdt.errors import Corrupt, Invalid, MdtError
from mdt.hudi import file_names, log_file
from mdt.hudi.avro_schema import RECORD_KEY, avro_schema, with_meta
from mdt.hudi.delete_records import decode_delete_block
from mdt.hudi.record_keys import record_keys
from mdt.limits import SEGMENTS_PER_COMMIT_MAX
from mdt.metadata import references
from mdt.metadata.files import paths
from mdt.metadata.files.deletion_vectors import positions
from mdt.metadata.files.file_group import BASE
from mdt.metadata.history.tolerate_missing import retry_missing
from mdt.metadata.keys.locate import base_key_map, positions_in_base
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.metadata import Metadata
from mdt.parquet.segment import Segment
from mdt.parquet.segment_rows import read_columns
from mdt.services.checking.attachments import check_key_map, check_page_map, read_verified
from mdt.services.checking.keys import LiveKeys, live_keys
from mdt.services.checking.problems import Kind, Problem, kind_of
from mdt.services.checking.state import DataFile, Repair, TableState
from mdt.stores.contract import Data, to_bytes
from mdt.stores.storage import Storage
from mdt.write.new_files import WriteJob
from mdt.write.normalize import definition_paths
from mdt.write.slices import Slice
from mdt.write.summarize import summarize_columns

COMMIT_TIME = "_hoodie_commit_time"
PARTITION_PATH = "_hoodie_partition_path"


def check(
    state: TableState, records: Mapping[int, CommitRecord], number: int
) -> tuple[list[Problem], LiveKeys | None]:
    """Return the problems of a live file, and its live keys if its rows can be read.

    ``records`` is the log by seq, and ``number`` the file's number in the snapshot.
    """
    segment, problems = state.snapshot.segment(number), list[Problem]()
    path = segment.path
    try:
        data = state.storage.read_whole(path, segment.size)
        crc = zlib.crc32(data)
        if segment.crc and crc != segment.crc:
            text = f"crc is {crc:08x}, expected {segment.crc:08x}"
            problems.append(Problem(path, text, Kind.ROWS))
        elif len(data) != segment.size:
            text = f"has {len(data)} bytes, expected {segment.size}"
            problems.append(Problem(path, text, Kind.ROWS))
        table = with_meta(state.definition.schema).empty_table()
        if segment.rows:
            table = state.read(segment)
    except (Corrupt, Invalid) as error:
        return [*problems, Problem.from_error(error, path), *_damaged_maps(state, segment)], None
    file = DataFile(state, number, segment, data, table, records.get(segment.seq))
    for check_part in _checks(segment):
        try:
            problems += [Problem(path, text, Kind.DERIVED) for text in check_part(file)]
        except Corrupt as error:
            problems.append(Problem.from_error(error, path))
        except Invalid as error:  # invalid values, such as null keys
            problems += [Problem.from_error(error, path), *_damaged_maps(state, segment)]
            return problems, None
    return problems, live_keys(state, number, table)


def _damaged_maps(state: TableState, segment: Segment) -> Iterator[Problem]:
    """Find damage in the key map and page map of a file whose rows cannot be read."""
    for stored in (segment.key_map, segment.page_map):
        try:
            if stored is not None:
                read_verified(state.storage, stored)
        except Corrupt as error:
            yield Problem.from_error(error, kind=Kind.ATTACHMENT)


def _check_rows(file: DataFile) -> Iterator[str]:
    definition, table, partition = file.state.definition, file.table, file.segment.partition
    keys = table[RECORD_KEY].combine_chunks()
    if not record_keys(table, definition.key, named=definition.names_key).equals(keys):
        yield "record keys differ from the key columns"
    codes, names = definition_paths(table, definition)
    if definition.partition_by and {names[code] for code in np.unique(codes)} != {partition}:
        yield "contains rows of another partition"
    if set(table[PARTITION_PATH].unique().to_pylist()) - {partition}:
        yield "the column _hoodie_partition_path differs from the directory"


def _check_new_rows(file: DataFile) -> Iterator[str]:
    """Compare the new rows in the commit record with the rows that have its commit time.

    Readers of changes rely on the record.
    """
    segment = file.segment
    if file.record is not None:
        new_rows = file.record.table("fresh")
        is_mine = pc.equal(new_rows["segment"], segment.id % SEGMENTS_PER_COMMIT_MAX)
        expected = BitMap(range(segment.rows))
        for data in new_rows["positions"].filter(is_mine).to_pylist():
            expected = positions(data, segment.rows, path=paths.commit(segment.seq))
        is_new = flags(pc.equal(file.table[COMMIT_TIME], segment.instant).fill_null(False))
        if BitMap(np.flatnonzero(is_new).astype(np.uint32)) != expected:
            yield "the new rows in its commit record differ from the rows with its commit time"


def _check_statistics(file: DataFile) -> Iterator[str]:
    """Compare statistics with those of the current writer. Writers choose the columns."""
    rows = sum(file.segment.row_groups)
    if rows != len(file.table):
        yield f"row groups of {rows} rows in the metadata, {len(file.table)} in the file"
        return
    stored, expected = _statistics(file)
    if expected is not None:
        order = [("column", "ascending"), ("row_group", "ascending")]
        if not expected.sort_by(order).equals(stored.sort_by(order)):
            yield "column statistics differ from the rows"


def _check_bounds(file: DataFile) -> Iterator[str]:
    """Compare bounds that another writer made with the rows. They may be wider."""
    stored, expected = _statistics(file)
    if expected is not None:
        both = stored.join(
            expected, ["column", "row_group"], None, "inner", right_suffix=" of rows"
        )
        is_above = pc.and_(both["min_exact of rows"], pc.greater(both["min"], both["min of rows"]))
        is_below = pc.and_(both["max_exact of rows"], pc.less(both["max"], both["max of rows"]))
        wrong = both["column"].filter(pc.or_kleene(is_above, is_below))
        if len(wrong):
            yield f"bounds of the column {wrong[0]} exclude rows; its writer made them wrongly"


def _statistics(file: DataFile) -> tuple[pa.Table, pa.Table | None]:
    """Return the stored statistics of a file, and those of its rows for the same columns."""
    state, segment, table = file.state, file.segment, file.table
    definition = state.definition.at(segment.seq)
    if definition is not state.definition:
        table = read_columns(state.storage, definition, segment, definition.schema)
    # The in-memory size depends on how the rows were built.
    stored = state.snapshot.segment_stats(file.number).drop_columns(["segment", "bytes"])
    ended = pa.array(sorted(state.definition.unused_statistics()), pa.string())
    stored = stored.filter(pc.invert(pc.is_in(stored["column"], ended)))
    expected = summarize_columns(definition, Options(), table, segment.row_groups)
    if expected is None:
        return stored, None
    expected = expected.select(stored.column_names).cast(stored.schema)
    return stored, expected.filter(pc.is_in(expected["column"], stored["column"].combine_chunks()))


def _check_blocks(file: DataFile) -> Iterator[str]:
    """Compare the blocks of a log file byte by byte with blocks made from its rows and deletes.

    Raises Corrupt if the file does not consist of whole blocks.
    """
    segment = file.segment
    if segment.kind == BASE:
        return
    blocks = log_file.parse(file.data, path=segment.path)
    kinds, count = [block.kind for block in blocks], 0
    is_known = set(kinds) <= {log_file.PARQUET, log_file.DELETE}
    if not is_known or kinds.count(log_file.PARQUET) != int(segment.rows > 0):
        yield f"unexpected log blocks {kinds}"
        return
    for block in blocks:
        if block.kind == log_file.PARQUET:
            keys = file.table[RECORD_KEY].combine_chunks()
            place = (block.content_offset, block.content_length)
            if place != (segment.block_offset, segment.block_length):
                yield "the data block is not at its position in the metadata"
        else:
            keys = decode_delete_block(block.content)["key"].combine_chunks()
            count += len(keys)
        if keys.null_count:
            yield "a log block has a null key"
        else:
            yield from _compare_block(file, block, keys)
    if count != segment.deletes:
        yield f"delete blocks have {count} keys, the metadata have {segment.deletes}"


def _compare_block(file: DataFile, block: log_file.Block, keys: pa.Array) -> Iterator[str]:
    """Compare a block with the block that a writer would make for ``keys`` (string[n])."""
    segment, start = file.segment, block.offset
    rows, text = _positions(file, keys), block.header.get(log_file.POSITIONS)
    shared: dict[str, Any] = {
        "instant": segment.instant,
        "avro_schema": avro_schema(file.state.definition.at(segment.seq), meta_fields=True),
        "positions": text if _is_text_of(rows, text) else rows,
        "base_instant": segment.base_instant,
    }
    if block.kind == log_file.PARQUET:
        expected, _ = log_file.data_block(bytes(block.content), **shared)
    else:
        expected = log_file.delete_block(keys, segment.partition, **shared)
    stored = file.data[start : start + block.length]
    if stored != expected:
        position = 0
        while stored[position : position + 1] == expected[position : position + 1]:
            position += 1
        text = f"the log block at byte {start} differs from the block expected for its rows"
        yield f"{text}, first at byte {start + position}"


def _is_text_of(rows: BitMap | None, text: str | None) -> bool:
    """Return whether a block's positions are ``rows``. Their bytes may be others, since releases of
    CRoaring choose containers differently.
    """
    try:
        return text is not None and log_file.decode_positions(text) == rows
    except ValueError:
        return False


def _positions(file: DataFile, keys: pa.Array) -> BitMap | None:
    """Return the positions of ``keys`` in the base file, or None if the block needs none.

    Readers that trust wrong positions return wrong rows.
    """
    state, snapshot = file.state, file.state.snapshot
    if not state.options.write_record_positions or not len(keys):
        return None
    (group,) = snapshot.file_groups.of_files(np.array([file.number])).tolist()
    base = base_key_map(state.metadata, snapshot, group)
    rows = positions_in_base(base, state.definition.key_hash.hash(keys))
    if rows is None or bool(np.any(np.diff(rows) <= 0)):
        return None
    return BitMap(rows.astype(np.uint32))


_CHECKS: Sequence[Callable[[DataFile], Iterator[str]]] = (
    _check_blocks,
    _check_rows,
    _check_new_rows,
    check_key_map,
    check_page_map,
    _check_statistics,
)


def _checks(segment: Segment) -> Sequence[Callable[[DataFile], Iterator[str]]]:
    """Return the checks of a file. Another writer chose the blocks and statistics of an imported
    file. It gets its key map with the next write.
    """
    if not segment.crc:
        checks = [_check_rows, _check_bounds]
        if segment.key_map is not None:
            checks.append(check_key_map)
        return checks if segment.rows else ()
    return _CHECKS if segment.rows else (_check_blocks,)


def check_past(state: TableState) -> Iterator[Problem]:
    """Find missing data files and key maps that only older states need.

    Their bytes are not read. O(files and objects).
    """
    snapshot = state.snapshot
    existing = {info.path for info in state.storage.list("")}
    live = snapshot.files.take(["partition", "name", "key_map_path"], snapshot.live_numbers)
    existing.update(references.file_paths(live).to_pylist(), live["key_map_path"].to_pylist())
    reported = set[str]()
    for problem in _check_tagged(state, existing):
        reported.add(problem.path)
        yield problem
    needed = _referenced_paths(state.metadata)
    missing = needed - existing - reported
    if missing:  # a concurrent cleaning may have deleted them
        missing &= _referenced_paths(state.metadata)
    if snapshot.is_shared:  # other writers clean older files
        missing = set()
    for path in sorted(missing):
        text = "is missing, and older states cannot be read without it"
        yield Problem(path, text, kind_of(path))


def _check_tagged(state: TableState, existing: AbstractSet[str]) -> Iterator[Problem]:
    """Find objects that tagged states need and that are not in ``existing``.

    Reads the checkpoints of these states, so damage to the log does not matter.
    """
    horizon = state.snapshot.retention.horizon
    tagged = state.snapshot.tags.before(horizon)
    listed = state.metadata.checkpoints.listed() if tagged else []
    for seq in tagged:
        with suppress(Corrupt):  # reported by the check of the log
            files = state.metadata.state(seq, listed).listing()
            needed = {*references.file_paths(files).to_pylist(), *files["key_map_path"].to_pylist()}
            missing = needed - existing - {None}
            if missing and seq in state.metadata.newest().tags.before(horizon):
                text = f"is missing; the tagged state after commit {seq} needs it"
                yield from (Problem(path, text, kind_of(path)) for path in sorted(missing))


def _referenced_paths(metadata: Metadata) -> set[str]:
    """Return the paths of data files and key maps of all readable states."""
    return set(
        retry_missing(
            lambda: references.file_and_attachment_paths(metadata, metadata.newest())
        ).to_pylist()
    )


def rebuild(repair: Repair, problems: Sequence[Problem]) -> None:
    """Restore damaged files by repeating the compaction that wrote them, if the bytes match.

    Other file groups are rewritten, because their metadata do not match their files or files are
    damaged outside their rows.
    """
    state, restored = repair.state(), set[str]()
    damaged = state.files_of(problem for problem in problems if problem.kind == Kind.ROWS)
    for segment in state.snapshot.files.segments(damaged):
        data = b""
        with suppress(MdtError):  # an input of the compaction is missing or damaged
            data = _repeat_compaction(state, segment)
        if len(data) == segment.size and zlib.crc32(data) == segment.crc:
            repair.storage.replace(segment.path, data)
            repair.note(segment.path, "compacted again, and restored byte for byte")
            restored.add(segment.path)
    repair.begin_again()
    remaining = state.files_of(problem for problem in problems if problem.path not in restored)
    groups = state.snapshot.file_groups
    repair.rewrite(groups.names(groups.of_files(remaining).tolist()))


class _Capture:
    """A storage that keeps new objects in memory and reads from another storage."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.created: dict[str, bytes] = {}

    def create(self, path: str, data: Data) -> None:
        """Keep ``data`` in memory."""
        self.created[path] = to_bytes(data)

    def put_passing(self, path: str, data: Data) -> bool:
        """Write no marker, because the file is already committed."""
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)


def _repeat_compaction(state: TableState, segment: Segment) -> bytes:
    """Repeat the compaction that wrote a file and return its bytes, or b"" if that fails."""
    record, name = state.metadata.record(segment.seq), file_names.parse_base(segment.name)
    if record is None or record.action != "compaction" or name is None or record.token is None:
        return b""
    task, _, attempt = map(int, name.token.split("-"))
    old_snapshot = state.metadata.state(record.header["begun_at"])
    (group,) = old_snapshot.file_groups.number([segment.file_id]).tolist()
    if group < 0:
        return b""
    capture, metadata = _Capture(state.storage), copy.copy(state.metadata)
    metadata.storage = cast("Storage", capture)
    claim = Claim(record.txn, record.instant, record.token, attempt)
    job = WriteJob.for_claim(metadata, old_snapshot, state.options, claim)
    job.run(task, Slice(segment.partition, group))
    job.wait_for_uploads()
    return capture.created.get(segment.path, b"")
