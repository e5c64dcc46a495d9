"""File slices of other writers as base files that our readers can read.

A slice without log files is its base file, read in place. Any other slice is merged into a base
file of our own, and so is a base file whose columns cannot be converted while they are read.
Merged files are in a directory of this machine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mdt.hudi import base_file
from mdt.hudi.avro_schema import COMMIT_SEQNO, COMMIT_TIME, RECORD_KEY, with_meta
from mdt.hudi.read.file_slices import FileSlice
from mdt.hudi.read.loading import TableState
from mdt.hudi.read.slice_rows import slice_rows
from mdt.hudi.read.table_schema import TableSchema
from mdt.importing.imported_files import ImportedFile, fits, parse_file, read_file
from mdt.limits import MERGED_FILES_KEPT_SECONDS, ROW_GROUP_ROWS
from mdt.metadata.files import paths
from mdt.schema.convert import convert, fill_required
from mdt.stores.storage import LocalStorage, Storage

_ROW_ID = (RECORD_KEY, COMMIT_TIME, COMMIT_SEQNO)
"""Columns that identify a version of a row. Services of any writer keep them when they move it."""


class MergedFiles:
    """Merged base files in a directory of this machine.

    Attributes:
        storage: The directory. Paths are those in the table.
        paths: The files that exist.
    """

    def __init__(self, folder: str, paths: Collection[str] = ()) -> None:
        """Use a directory in which the files ``paths`` exist."""
        self.storage = LocalStorage(folder, durable=False)
        self.paths = set(paths)
        self._replaced: list[tuple[int, str]] = []

    def add(self, path: str, content: pa.Buffer) -> None:
        """Store a file. A failed import may have stored it before."""
        self.storage.replace(path, content)
        self.paths.add(path)

    def remove_later(self, paths: Iterable[str], now_us: int) -> None:
        """Remove files that newer states no longer have, once readers had time to finish.

        Args:
            now_us: The time in microseconds. Earlier files whose time is over are removed now.
        """
        self._replaced += [(now_us + MERGED_FILES_KEPT_SECONDS * 1_000_000, one) for one in paths]
        for _, path in [entry for entry in self._replaced if entry[0] <= now_us]:
            self.storage.delete(path)
            self.paths.discard(path)
        self._replaced = [entry for entry in self._replaced if entry[0] > now_us]


@dataclass(frozen=True, slots=True)
class ImportedSlice:
    """A file slice as a base file.

    Attributes:
        name: Name of the base file.
        instant: Instant in its name.
        is_merged: True for a merged file, False for a base file that is read in place.
    """

    file_slice: FileSlice
    name: str
    instant: str
    file: ImportedFile
    is_merged: bool

    @property
    def path(self) -> str:
        """Path of the base file in the table."""
        return paths.partition_file(self.file_slice.partition, self.name)

    def row_ids(self, source: Storage, merged: MergedFiles) -> pa.Array:
        """Return a text for each row that is equal for the same version of the row.

        Null if the file has no meta columns.
        """
        storage = merged.storage if self.is_merged else source
        with storage.open(self.path) as file, pq.ParquetFile(file) as parquet:
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
        merged: Gets the merged files.
        schema: The table's columns at that state.
        stored: The data columns in the types of our files.
        newest: Instant of the newest write in the state. No row of a merged file is newer.
        seq: Number of the record that will contain the slices. It makes names of merged files
            unique.
    """

    source: Storage
    merged: MergedFiles
    state: TableState
    schema: TableSchema
    stored: pa.Schema
    newest: str
    seq: int

    def import_slice(self, file_slice: FileSlice) -> ImportedSlice:
        """Return a slice of the state as a base file.

        Raises Corrupt, Unsupported, and Missing if its files were deleted meanwhile.
        """
        base = file_slice.base
        if base is not None and not file_slice.logs:
            file = read_file(self.source, file_slice.path(base), base.size)
            if fits(file, self.stored):
                return ImportedSlice(file_slice, base.name, base.instant, file, is_merged=False)
        rows = slice_rows(self.source, self.state, file_slice, self.schema)
        content = _encode(rows, self.stored)
        name = f"{file_slice.file_id}_merged-{self.seq}_{self.newest}.parquet"
        path = paths.partition_file(file_slice.partition, name)
        file = parse_file(content, path)
        self.merged.add(path, content)
        return ImportedSlice(file_slice, name, self.newest, file, is_merged=True)


def _encode(rows: pa.Table, schema: pa.Schema) -> pa.Buffer:
    """Return rows as the content of a base file. Missing meta columns are null."""
    fields = with_meta(schema)
    columns = []
    for field in fields:
        if field.name in rows.column_names:
            chunks = [_stored(chunk, field.type) for chunk in rows[field.name].chunks]
            columns.append(pa.chunked_array(chunks, field.type))
        else:
            columns.append(pa.chunked_array([pa.nulls(len(rows), field.type)]))
    content, _ = base_file.encode(
        pa.table(columns, schema=fields),
        row_group_rows=ROW_GROUP_ROWS,
        avro_schema="",
        min_key=None,
        max_key=None,
        bloom=None,
    )
    return content


def _stored(array: pa.Array, type: pa.DataType) -> pa.Array:
    """Return values of the table's columns as a type of our files."""
    return fill_required(convert(array, type), type)
