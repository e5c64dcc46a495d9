"""Rows of Parquet files of any Hudi writer: base files, and data blocks of log files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mdt.errors import Corrupt, MdtError
from mdt.limits import FILE_BYTES_MAX, ROWS_PER_BYTE_MAX
from mdt.schema.calendars import require_gregorian_file
from mdt.stores.contract import check_size
from mdt.stores.storage import Storage

_AVRO_SCHEMA = b"parquet.avro.schema"
DAMAGE = (
    pa.ArrowException,
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    MemoryError,
)
"""Errors of pyarrow for damaged Parquet bytes."""


class ParquetRows:
    """An open Parquet file. All methods raise Corrupt, with its path, for damaged bytes. Opening it
    raises Unsupported for dates of the old calendar.
    """

    __slots__ = ("_file", "path", "schema")

    def __init__(self, source: Any, size: int, path: str) -> None:
        with _named(path):
            self._file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us", pre_buffer=False)
            require_gregorian_file(self._file.metadata, path)
            self.schema = self._file.schema_arrow
            self.path = path
            if not 0 <= self.rows <= ROWS_PER_BYTE_MAX * size:
                raise Corrupt(f"{self.rows} rows in {size} bytes are too many", path=path)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self._file.metadata.num_rows)

    @property
    def avro_schema(self) -> str:
        """The Avro schema that its writer has stored, with meta columns, or ""."""
        stored = self._file.metadata.metadata or {}
        return str(stored.get(_AVRO_SCHEMA, b"").decode("utf-8", "replace"))

    def read(self, names: Sequence[str]) -> pa.Table:
        """Return the columns ``names``, as far as the file has them. Others are left out."""
        in_file = frozenset(self.schema.names)
        present = [name for name in names if name in in_file]
        with _named(self.path):
            # without select, "a.b" would also give the field b of the struct a
            table = self._file.read(present, use_threads=False).select(present)
        if len(table) != self.rows:
            raise Corrupt(f"{len(table)} rows instead of {self.rows}", path=self.path)
        return table


@contextmanager
def open_file(objects: Storage, path: str, size: int) -> Iterator[ParquetRows]:
    """Open a Parquet file.

    Args:
        size: Size in bytes, from a listing.

    Raises Corrupt and Missing.
    """
    check_size(path, size, FILE_BYTES_MAX)
    with objects.open(path) as source:
        yield ParquetRows(source, size, path)


def open_content(content: memoryview, path: str) -> ParquetRows:
    """Open the content of a data block. Raises Corrupt."""
    return ParquetRows(pa.BufferReader(pa.py_buffer(content)), content.nbytes, path)


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Raise Corrupt, with ``path``, in place of errors of pyarrow."""
    try:
        yield
    except MdtError:
        raise
    except DAMAGE as error:
        problem = str(error)[:200]
        raise Corrupt(f"a Parquet file cannot be read: {problem}", path=path) from error
