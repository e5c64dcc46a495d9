"""Files that commands read rows from: Parquet, CSV or Arrow IPC."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import typer

from mdt.errors import Invalid

Files = Annotated[list[Path], typer.Argument(help="Parquet, CSV or Arrow IPC files.", metavar="FILE...")]


def read_all(files: Sequence[Path], schema: pa.Schema) -> pa.Table:
    """Return the rows of all files, which must have the same columns.  Raises Invalid for a file that cannot be read."""
    tables = [_opened(file, _read, schema) for file in files]
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise Invalid(f"the files do not fit together: {error}", hint="write them one by one") from error


def schema_of(file: Path) -> pa.Schema:
    """Return the columns of a file.  Raises Invalid as :func:`read_all` does."""
    return _opened(file, _read, None).schema


def _opened(file: Path, read: Callable[[Path, pa.Schema | None], pa.Table], schema: pa.Schema | None) -> pa.Table:
    try:
        return read(file, schema)
    except (pa.ArrowException, OSError) as error:
        raise Invalid(f"{file} cannot be read: {error}", hint="give a Parquet, CSV or Arrow IPC file") from error


def _read(file: Path, schema: pa.Schema | None) -> pa.Table:
    """Return the rows of a file by its suffix; CSV columns get the types of ``schema``, or are inferred without one."""
    suffix = file.suffix.lower()
    if suffix in (".parquet", ".pq"):
        with pq.ParquetFile(file) as parquet:
            return parquet.read()
    if suffix == ".csv":
        types = {} if schema is None else {field.name: field.type for field in schema}
        return pa.csv.read_csv(file, convert_options=pa.csv.ConvertOptions(column_types=types))
    if suffix in (".arrow", ".ipc", ".feather", ".arrows"):
        return _read_ipc(file)
    raise Invalid(f"{file} is of no known kind", hint="name it .parquet, .csv, .arrow (IPC file) or .arrows (stream)")


def _read_ipc(file: Path) -> pa.Table:
    with pa.OSFile(str(file)) as source:
        is_file = source.read(6) == b"ARROW1"
        source.seek(0)
        with (pa.ipc.open_file if is_file else pa.ipc.open_stream)(source) as reader:
            return reader.read_all()
