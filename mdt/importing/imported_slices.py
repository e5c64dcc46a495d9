"""File slices of other writers as files that our readers can read.

A base file is read in place. The log files of a slice are merged with it: rows of the base file
that they delete or replace are dead, and their own live rows are in a merged file, a Parquet file
of our own. If the columns of a base file cannot be converted while they are read, the merged file
has all live rows of the slice.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap

from mdt.errors import Unsupported
from mdt.hudi import base_file, file_names
from mdt.hudi.avro_schema import COMMIT_SEQNO, COMMIT_TIME, RECORD_KEY, with_meta
from mdt.hudi.read.file_slices import DataFile, FileSlice
from mdt.hudi.read.loading import TableState
from mdt.hudi.read.slice_rows import slice_changes, slice_rows
from mdt.hudi.read.table_schema import TableSchema
from mdt.importing.imported_files import ImportedFile, fits, parse_file, read_file
from mdt.limits import MERGED_FILES_KEPT_SECONDS, ROW_GROUP_ROWS
from mdt.metadata.files import paths
from mdt.metadata.files.file_group import BASE, LOG, MERGED
from mdt.schema.convert import convert, fill_required
from mdt.stores.storage import LocalStorage, Storage

_ROW_ID = (RECORD_KEY, COMMIT_TIME, COMMIT_SEQNO)
"""Columns that identify a version of a row. Services of any writer keep them when they move it."""
_NUMBER_BYTES = 8
"""Bytes of the random number in the name of a merged file."""


class MergedFiles:
    """Merged files in a directory of this machine.

    Attributes:
        folder: Path of the directory.
        storage: The directory. Paths are those in the table.
    """

    def __init__(self, folder: str, *, durable: bool = False) -> None:
        """Use a directory.

        Args:
            durable: Files must survive a power cut.
        """
        self.folder = folder
        self.storage = LocalStorage(folder, durable=durable)
        self._replaced: list[tuple[int, str]] = []

    def add(self, path: str, content: pa.Buffer) -> None:
        """Store a file. A failed import may have stored it before."""
        self.storage.replace(path, content)

    def count(self) -> int:
        """Return the number of files."""
        return len(self.storage.list(paths.MERGED_DIR))

    def remove_others(self, known: Container[str]) -> None:
        """Remove the files whose names are not ``known``, which earlier processes left."""
        for info in self.storage.list(paths.MERGED_DIR):
            if info.path.rpartition("/")[2] not in known:
                self.storage.delete(info.path)

    def remove_later(self, paths: Iterable[str], now_us: int) -> None:
        """Remove files that newer states no longer have, once readers had time to finish.

        Args:
            now_us: The time in microseconds. Earlier files whose time is over are removed now.
        """
        self._replaced += [(now_us + MERGED_FILES_KEPT_SECONDS * 1_000_000, path) for path in paths]
        for _, path in [entry for entry in self._replaced if entry[0] <= now_us]:
            self.storage.delete(path)
        self._replaced = [entry for entry in self._replaced if entry[0] > now_us]


PartKey = tuple[str, int, bool]
"""Identifies a file and the rows that are read from it."""


@dataclass(frozen=True, slots=True)
class ImportedPart:
    """A file of a slice.

    Attributes:
        kind: BASE, LOG or MERGED of :mod:`mdt.metadata.files.file_group`.
        instant: The instant in its name.
        log_version: Version in the name of a log file, otherwise 0.
        size: Size in bytes.
        rows: Number of rows. 0 if its rows are in a merged file.
        file: The facts in its footer, if it was just read and has rows of its own.
        block: Offset and length of its Parquet data, for a log file of ours.
    """

    name: str
    kind: int
    instant: str
    log_version: int
    size: int
    rows: int
    file: ImportedFile | None = None
    block: tuple[int, int] = (0, 0)

    @property
    def key(self) -> PartKey:
        """Equal for the same file with the same rows."""
        return self.name, self.size, self.rows > 0


@dataclass(frozen=True, slots=True)
class ImportedSlice:
    """A file slice as files that our readers can read.

    Attributes:
        parts: The base file, the log files, and the merged file, as far as they exist.
        dead: Positions of the deleted and replaced rows in the base file.
        is_settled: False if log files have blocks that may count in a later state.
    """

    file_slice: FileSlice
    parts: tuple[ImportedPart, ...]
    dead: BitMap
    is_settled: bool = True

    def path(self, part: ImportedPart) -> str:
        """Return the path of a file in the table."""
        return paths.data_file(self.file_slice.partition, part.name)

    def row_ids(self, part: ImportedPart, source: Storage, merged: Storage) -> pa.Array:
        """Return a text for each row of a file that is equal for the same version of the row.

        Null if the file has no meta columns.

        Args:
            merged: The storage of merged files.
        """
        storage = merged if part.kind == MERGED else source
        if part.kind == LOG:
            file = pa.BufferReader(storage.read(self.path(part), *part.block))
        else:
            file = storage.open(self.path(part))
        with file, pq.ParquetFile(file) as parquet:
            names = [name for name in _ROW_ID if name in parquet.schema_arrow.names]
            rows = parquet.read(names)
        if len(names) < len(_ROW_ID):
            return pa.nulls(len(rows), pa.string())
        ids = pc.binary_join_element_wise(*(rows[name] for name in _ROW_ID), "\0")
        return ids.combine_chunks()


@dataclass(frozen=True, slots=True)
class Importer:
    """Imports slices of a state. Thread-safe.

    Attributes:
        store: Stores a merged file, given its path and content.
        schema: The table's columns at that state.
        stored: The data columns in the types of our files.
        newest: Instant of the newest write in the state. No row of a merged file is newer.
        token: Begin of the random number in the names of merged files.
        exact: The data columns in the types that base files must have to be read in place, None if
            other types are converted.
    """

    source: Storage
    store: Callable[[str, pa.Buffer], object]
    state: TableState
    schema: TableSchema
    stored: pa.Schema
    newest: str
    token: str = "0"
    exact: pa.Schema | None = None

    def import_slice(self, file_slice: FileSlice) -> ImportedSlice:
        """Return a slice of the state as files.

        Raises Corrupt, Unsupported, and Missing if its files were deleted meanwhile.
        """
        for file in (file_slice.base, *file_slice.logs):
            if file is not None and paths.is_merged(file.name):
                text = f"{file_slice.path(file)} has a name that only merged files of mdt have"
                raise Unsupported(text, hint="rename the file")
        parts = list[ImportedPart]()
        if file_slice.base is not None:
            parts.append(self._base_part(file_slice, file_slice.base))
        parts += map(_log_part, file_slice.logs)
        if file_slice.base is not None and parts[0].file is None:
            rows = slice_rows(self.source, self.state, file_slice, self.schema)
            parts.append(self._merged_part(file_slice, rows))
            return ImportedSlice(file_slice, tuple(parts), BitMap(), not file_slice.logs)
        if not file_slice.logs:
            return ImportedSlice(file_slice, tuple(parts), BitMap())
        changes = slice_changes(self.source, self.state, file_slice, self.schema)
        if len(changes.rows):
            parts.append(self._merged_part(file_slice, changes.rows))
        dead = BitMap(changes.dead.astype(np.uint32))
        return ImportedSlice(file_slice, tuple(parts), dead, changes.is_settled)

    def _base_part(self, file_slice: FileSlice, base: DataFile) -> ImportedPart:
        file = read_file(self.source, file_slice.path(base), base.size)
        is_renamed = self.schema.renaming(base.instant) is not None
        types = self.stored if self.exact is None else self.exact
        if is_renamed or not fits(file, types, exactly=self.exact is not None):
            return ImportedPart(base.name, BASE, base.instant, 0, base.size, 0)
        return ImportedPart(base.name, BASE, base.instant, 0, base.size, file.rows, file)

    def _merged_part(self, file_slice: FileSlice, rows: pa.Table) -> ImportedPart:
        """Write the merged file of a slice."""
        required = {field.name for field in self.stored if not field.nullable}
        for name in sorted(required.intersection(rows.column_names)):
            count = rows[name].null_count
            if count:
                raise Unsupported(
                    f"{count} rows of file group {file_slice.file_id} have no {name!r}",
                    hint="delete them with Hudi (a MERGE of Hudi 1.2 may add rows of unmatched"
                    " keys to a table with buckets), and compact the table",
                )
        content = _encode(rows, self.stored)
        number = f"{self.token}-{self.source.random_hex(_NUMBER_BYTES)}"
        name = paths.merged_name(file_slice.file_id, number, self.newest)
        path = paths.data_file(file_slice.partition, name)
        file = parse_file(content, path)
        self.store(path, content)
        return ImportedPart(name, MERGED, self.newest, 0, file.size, file.rows, file)


def _log_part(log: DataFile) -> ImportedPart:
    parsed = file_names.parse_log(log.name, file_names.ANY_LOG)
    assert parsed is not None, "slices have log files with valid names"
    return ImportedPart(log.name, LOG, log.instant, parsed.version, log.size, 0)


def _encode(rows: pa.Table, schema: pa.Schema) -> pa.Buffer:
    """Return rows as the content of a merged file. Missing meta columns are null."""
    fields = with_meta(schema)
    columns = []
    for field in fields:
        if field.name in rows.column_names:
            chunks = [_stored(chunk, field.type) for chunk in rows[field.name].chunks]
            columns.append(pa.chunked_array(chunks, field.type))
        else:
            columns.append(pa.chunked_array([pa.nulls(len(rows), field.type)]))
    form = base_file.FileForm("", ROW_GROUP_ROWS)
    content, _ = base_file.encode(pa.table(columns, schema=fields), form)
    return content


def _stored(array: pa.Array, type: pa.DataType) -> pa.Array:
    """Return values of the table's columns as a type of our files."""
    return fill_required(convert(array, type), type)
