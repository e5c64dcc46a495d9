"""Validation of commit record sections: every column against its grammar, the header and the other
columns.

:mod:`mdt.metadata.log.trusted_records` validates the header.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexes.arrays import flags, numbers
from indexes.base import BoolArray, Int64Array, KeyHashes
from mdt.hudi import file_names
from mdt.hudi.layout import log_instants
from mdt.limits import (
    COUNT_MAX,
    FILE_BYTES_MAX,
    FRAME_BYTES_MAX,
    ROWS_PER_BYTE_MAX,
    SEGMENT_ROWS_MAX,
    SEGMENTS_PER_COMMIT_MAX,
    SHARD_ROWS_MAX,
)
from mdt.metadata.files import paths
from mdt.metadata.files.file_group import BASE, LOG, MERGED
from mdt.metadata.log import trusted_names as names
from mdt.metadata.log.trusted_records import corrupt, is_text

_CRC_MAX = 2**32 - 1
KEY_MAP_ENTRY_BYTES = 11
"""Minimum bytes per row of a key map: a hash and a position."""
_BOUND_BYTES_MAX = 64
"""Longest minimum or maximum.  Longer bounds are truncated when written."""

_FEW = 64

Range = tuple[int, int]
Numbers = Mapping[str, npt.NDArray[Any]]

_FILES: Mapping[str, Range] = {
    "segment": (0, SEGMENTS_PER_COMMIT_MAX),
    "kind": (BASE, MERGED),
    "log_version": (0, 10**9),
    "size": (0, FILE_BYTES_MAX),
    "crc": (0, _CRC_MAX),
    "rows": (0, SEGMENT_ROWS_MAX),
    "block_offset": (0, FILE_BYTES_MAX),
    "block_length": (0, FILE_BYTES_MAX),
    "footer_length": (0, FILE_BYTES_MAX),
    "footer_crc": (0, _CRC_MAX),
    "inserts": (0, COUNT_MAX),
    "updates": (0, COUNT_MAX),
    "deletes": (0, COUNT_MAX),
    "shard": (0, SEGMENTS_PER_COMMIT_MAX),
    "first_row": (0, SHARD_ROWS_MAX),
}
_KEY_MAPS: Mapping[str, Range] = {
    "key_map_offset": (0, FILE_BYTES_MAX),
    "key_map_length": (0, FILE_BYTES_MAX),
    "key_map_crc": (0, _CRC_MAX),
}
_PAGE_MAPS: Mapping[str, Range] = {
    "page_map_offset": (0, FILE_BYTES_MAX),
    "page_map_length": (0, FRAME_BYTES_MAX),
    "page_map_crc": (0, _CRC_MAX),
}
_STATS: Mapping[str, Range] = {
    name: (0, COUNT_MAX) for name in ("nulls", "nans", "values", "bytes")
}
_OBJECT_RANGE: Mapping[str, Range] = {
    "offset": (0, FILE_BYTES_MAX),
    "length": (0, FRAME_BYTES_MAX),
    "crc": (0, _CRC_MAX),
}


def check_tables(
    header: Mapping[str, Any], seq: int, tables: Mapping[str, pa.Table], path: str
) -> None:
    """Raise Corrupt unless the sections of a record agree with its header and each other.
    O(bytes).
    """
    files = tables.get("files")
    count = 0 if files is None else len(files)
    older = seq * SEGMENTS_PER_COMMIT_MAX - 1
    if files is not None and count:
        _check_files(_Section("files", files, path), header)
    _check_slices(tables.get("slices"), count, path)
    for name in ("removed", "vectors"):
        if name in tables:
            section = _Section(name, tables[name], path)
            section.numbers({"segment": (0, older)})
    if "vectors" in tables:
        section = _Section("vectors", tables["vectors"], path)
        section.no_nulls("positions")
        section.require(
            len(set(section.columns["segment"].to_pylist())) == section.rows,
            "one vector for each segment",
        )
    for name in {"dead", "fresh"}.intersection(tables):
        _check_positions(_Section(name, tables[name], path), count)
    if "dead" in tables and header["action"] != names.IMPORT:
        corrupt("only imported files have dead rows from the start", path, "no section", "dead")
    if "stats" in tables:
        _check_stats(_Section("stats", tables["stats"], path), count)
    for name, last in (("summaries", count - 1), ("covers", older)):
        if name in tables:
            _check_summaries(_Section(name, tables[name], path), header["instant"], last)
    for name in {"cleaned", "saved"}.intersection(tables):
        section = _Section(name, tables[name], path)
        section.no_nulls("path")
        section.texts("path", names.is_data_file, "data files")
    if "maps" in tables:
        section = _Section("maps", tables["maps"], path)
        section.require(header["action"] == "index", "maps in index records only")
        section.numbers({"segment": (0, older), **_KEY_MAPS})
        section.no_nulls("key_map_path")
        section.same_nulls(*_PAGE_MAPS)
        section.numbers(_PAGE_MAPS, nullable=True)
        section.texts(
            "key_map_path", _is_written_by(header["instant"]), "objects of this transaction"
        )
        section.require(
            len(set(section.columns["segment"].to_pylist())) == section.rows, "each segment once"
        )
    if "tombstones" in tables:
        _check_tombstones(_Section("tombstones", tables["tombstones"], path))
    if "key_parts" in tables:
        _check_key_parts(_Section("key_parts", tables["key_parts"], path), header["instant"])
    _check_left_out(header, tables, path)


def _check_left_out(header: Mapping[str, Any], tables: Mapping[str, pa.Table], path: str) -> None:
    """Check that a record does not refer to files that it leaves out, since these are deleted."""
    left_out = set(header.get("left_out", ()))
    if not left_out:
        return
    used = set[Any]()
    if "files" in tables:
        files = tables["files"].select(["partition", "name", "key_map_path"]).to_pylist()
        used.update(paths.data_file(file["partition"], file["name"]) for file in files)
        used.update(file["key_map_path"] for file in files)
    for name in {"summaries", "covers", "key_parts"}.intersection(tables):
        used.update(tables[name]["path"].to_pylist())
    if used & left_out:
        corrupt(
            "a commit record leaves out a file that it refers to",
            path,
            "other files",
            str(min(used & left_out)),
        )


class _Section:
    """A section and the context for its error messages.

    Every reader of the log pays for these checks.  They read Arrow's buffers directly, at a tenth
    of the cost of Arrow's functions on a few rows.
    """

    def __init__(self, name: str, table: pa.Table, path: str) -> None:
        self.name = name
        self.path = path
        self.rows = len(table)
        batches = table.to_batches()
        combined = batches if len(batches) == 1 else table.combine_chunks().to_batches()
        batch = combined[0] if combined else pa.RecordBatch.from_pylist([], table.schema)
        self.columns = dict(zip(table.schema.names, batch.columns, strict=True))

    def require(self, holds: bool | np.bool_, expected: str) -> None:
        """Raise Corrupt unless ``holds``."""
        if not holds:
            corrupt(
                f"the section {self.name} of a commit record is invalid",
                self.path,
                expected,
                "something else",
            )

    def no_nulls(self, *columns: str) -> None:
        """Raise Corrupt if any of ``columns`` has a null."""
        for column in columns:
            if self.columns[column].null_count:
                self.require(False, f"no null in {column}")

    def numbers(self, ranges: Mapping[str, Range], *, nullable: bool = False) -> Numbers:
        """Return integer columns as arrays, with the least allowed value for null.

        Raises Corrupt for values outside of their range.
        """
        arrays = {}
        for name, (low, high) in ranges.items():
            column = self.columns[name]
            if column.null_count:
                self.require(nullable, f"no null in {name}")
                column = column.fill_null(low)
            values = arrays[name] = numbers(column)
            # For a few numbers Python's min and max are faster than NumPy's.
            extremes = (
                values.tolist() if self.rows <= _FEW else (int(values.min()), int(values.max()))
            )
            if extremes and (min(extremes) < low or max(extremes) > high):
                self.require(False, f"{name} from {low} to {high}")
        return arrays

    def texts(self, column: str, holds: Callable[[Any], bool], expected: str) -> None:
        """Raise Corrupt unless every distinct value of ``column`` passes ``holds``.  Nulls are
        ignored.
        """
        values = set(self.columns[column].to_pylist())
        self.require(
            all(holds(value) for value in values if value is not None), f"{column}: {expected}"
        )

    def same_nulls(self, first: str, *other_columns: str) -> BoolArray:
        """Return a mask of the rows where column ``first`` has a value.

        Raises Corrupt unless the other columns are null in the same rows.
        """
        valid = self.valid(first)
        for name in other_columns:
            column, expected = self.columns[name], f"{name} where there is {first}"
            self.require(column.null_count == self.columns[first].null_count, expected)
            if 0 < column.null_count < self.rows:
                self.require(np.array_equal(valid, self.valid(name)), expected)
        return valid

    def valid(self, name: str) -> BoolArray:
        """Return a mask of the rows where a column has a value -> bool[rows]."""
        column = self.columns[name]
        if column.null_count in (0, self.rows):
            return np.full(self.rows, not column.null_count)
        return flags(column.is_valid())


def _check_files(section: _Section, header: Mapping[str, Any]) -> None:
    section.no_nulls("partition", "file_id", "name", "base_instant", "instant", "row_group_rows")
    columns = section.numbers(_FILES)
    section.require(
        np.array_equal(columns["segment"], np.arange(section.rows)), "ordinals 0, 1, 2 …"
    )
    rows, size = columns["rows"], columns["size"]
    section.require(
        (rows <= size * ROWS_PER_BYTE_MAX).all(), f"at most {ROWS_PER_BYTE_MAX} rows for each byte"
    )
    section.require(
        (columns["block_offset"] + columns["block_length"] <= size).all(),
        "Parquet bytes inside the file",
    )
    section.require(
        (columns["footer_length"] <= columns["block_length"]).all(),
        "a footer inside the Parquet bytes",
    )
    section.texts("partition", names.is_partition, "paths below the root")
    if header["action"] == names.IMPORT:
        _check_imported(section, columns)
    else:
        section.texts("instant", lambda instant: instant == header["instant"], "that of the record")
        section.require((columns["kind"] != MERGED).all(), "base files and log files only")
        _check_names(section, header)
    _check_row_groups(section, rows)
    _check_shards(section, columns)
    has_key_map = section.same_nulls("key_map_path", *_KEY_MAPS)
    section.require(not (has_key_map & (rows == 0)).any(), "key maps of files with rows")
    length = section.numbers(_KEY_MAPS, nullable=True)["key_map_length"]
    section.require(
        (length >= KEY_MAP_ENTRY_BYTES * rows)[has_key_map].all(),
        "key maps with an entry for each row",
    )
    has_page_map = section.same_nulls(*_PAGE_MAPS)
    section.require((has_key_map | ~has_page_map).all(), "page maps only with key maps")
    section.numbers(_PAGE_MAPS, nullable=True)
    section.texts("key_map_path", _is_written_by(header["instant"]), "objects of this transaction")


def _is_written_by(instant: str) -> Callable[[Any], bool]:
    """Return a test that a path is an attachment written by the transaction ``instant``."""

    def holds(value: Any) -> bool:
        writer = names.stored_of(value)
        return writer is not None and writer[0] == instant

    return holds


def _check_names(section: _Section, header: Mapping[str, Any]) -> None:
    """Check that file names have the record's token and agree with the other columns."""
    token, instant = header.get("token"), header["instant"]
    section.require(names.is_token(token), "the token of the record")
    columns = [
        section.columns[name].to_pylist()
        for name in ("name", "kind", "file_id", "base_instant", "log_version")
    ]
    for name, kind, file_id, base_instant, log_version in zip(*columns, strict=True):
        if kind == BASE:
            base = file_names.parse_base(name)
            agrees = base is not None and (
                base.file_id,
                base.instant,
                base_instant,
                log_version,
            ) == (file_id, instant, instant, 0)
        else:
            log = file_names.parse_log(name)
            agrees = (
                log is not None
                and (log.file_id, log.version) == (file_id, log_version)
                and log.instant in log_instants(base_instant, instant)
            )
        section.require(
            agrees and names.token_of(name) == token, "file names that agree with the other columns"
        )


def _check_imported(section: _Section, columns: Numbers) -> None:
    """Check that the names of imported files agree with the other columns."""
    section.require(not columns["crc"].any(), "zeros")
    is_log = columns["kind"] == LOG
    section.require(not columns["rows"][is_log].any(), "the rows of log files in merged files")
    texts = [section.columns[name].to_pylist() for name in ("name", "file_id", "instant")]
    numbers = (columns[name].tolist() for name in ("kind", "log_version"))
    for name, file_id, instant, kind, version in zip(*texts, *numbers, strict=True):
        expected = file_id, instant, version
        if kind == LOG:
            log = file_names.parse_log(name, file_names.ANY_LOG)
            agrees = log is not None and (log.file_id, log.instant, log.version) == expected
        else:
            base = file_names.parse_base(name, file_names.ANY_BASE)
            agrees = base is not None and (base.file_id, base.instant, 0) == expected
            agrees = agrees and paths.is_merged(name) == (kind == MERGED)
        section.require(agrees, "file names that agree with the other columns")
    for name in ("key_map_path", "page_map_offset"):
        section.require(section.columns[name].null_count == section.rows, f"no {name}")


def _check_row_groups(section: _Section, rows: Int64Array) -> None:
    """Check that the row groups of each file have as many rows as the file."""
    lists = section.columns["row_group_rows"]
    values = lists.flatten()
    section.require(not values.null_count, "row groups with rows")
    counts = numbers(values).astype(np.int64)
    section.require(not len(counts) or counts.min() >= 0, "row groups with rows")
    sums = np.append(0, np.cumsum(counts))
    offsets = numbers(lists.offsets).astype(np.int64)
    offsets -= offsets[0]
    section.require(
        np.array_equal(sums[offsets[1:]] - sums[offsets[:-1]], rows),
        "row groups with the rows of their file",
    )


def _check_slices(slices: pa.Table | None, count: int, path: str) -> None:
    section = _Section("slices", pa.table({}) if slices is None else slices, path)
    section.require(section.rows == count, "a file slice for each file")
    if count:
        section.no_nulls("previous_instant", "base_name", "log_names")
        section.require(
            not section.columns["log_names"].flatten().null_count, "log files with names"
        )


def _check_positions(section: _Section, count: int) -> None:
    section.no_nulls("positions")
    segments = section.numbers({"segment": (0, count - 1)})["segment"]
    section.require(
        len(set(segments.tolist())) == section.rows, "one set of positions for each file"
    )


def _check_stats(section: _Section, count: int) -> None:
    section.no_nulls("column")
    section.numbers({"segment": (0, count - 1), "row_group": (-1, SEGMENT_ROWS_MAX)})
    section.numbers(_STATS, nullable=True)
    for name in ("min", "max"):
        column = section.columns[name]
        offsets = np.frombuffer(column.buffers()[1] or bytes(4), np.int32)[
            column.offset : column.offset + section.rows + 1
        ]
        longest = int(np.diff(offsets).max(initial=0))
        section.require(longest <= _BOUND_BYTES_MAX, f"{name} of at most {_BOUND_BYTES_MAX} bytes")


def _check_shards(section: _Section, columns: Mapping[str, Int64Array]) -> None:
    """Check that shards are numbered 0, 1, 2 … without gaps.

    Within a shard, the rows of a file follow the previous file's rows, perhaps after a gap.
    """
    shard, first, rows = columns["shard"], columns["first_row"], columns["rows"]
    steps = np.diff(shard, prepend=-1)
    section.require(((steps == 1) | (steps == 0)).all() and shard[0] == 0, "shards 0, 1, 2 …")
    again = np.flatnonzero(steps == 0)
    section.require(
        (rows[again] > 0).all() and (rows[again - 1] > 0).all(),
        "files with rows in a shard of several",
    )
    section.require(
        (first[again] >= first[again - 1] + rows[again - 1]).all(),
        "ascending rows in a shard",
    )
    ends = (first + rows)[(first > 0) | (np.diff(shard, append=-1) == 0)]
    section.require(
        not len(ends) or ends.max() <= SHARD_ROWS_MAX,
        f"at most {SHARD_ROWS_MAX} rows in a shard of several files",
    )


def _check_summaries(section: _Section, instant: str, last: int) -> None:
    section.no_nulls("index")
    section.texts("index", is_text, "specifications")
    section.numbers({"shard": (0, last)})
    _check_objects(section, instant)


def _check_key_parts(section: _Section, instant: str) -> None:
    section.no_nulls("index", "groups")
    section.require(not section.columns["groups"].flatten().null_count, "file groups with names")
    _check_objects(section, instant)


def _check_tombstones(section: _Section) -> None:
    section.no_nulls("hi", "lo")
    marks = KeyHashes(*(numbers(section.columns[name]) for name in ("hi", "lo")))
    section.require(marks.ascend(), "ascending unique keys")


def _check_objects(section: _Section, instant: str) -> None:
    """Check that bytes are either inline or in an object of this transaction."""
    elsewhere = section.same_nulls("path", *_OBJECT_RANGE)
    section.require(
        np.array_equal(section.valid("payload"), ~elsewhere), "bytes inline or in an object"
    )
    section.numbers(_OBJECT_RANGE, nullable=True)
    section.texts("path", _is_written_by(instant), "objects of this transaction")
