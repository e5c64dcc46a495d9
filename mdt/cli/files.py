"""Files that commands read rows from, piece by piece: Parquet, CSV or Arrow IPC."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import typer

from mdt.errors import Invalid

Files = Annotated[list[Path], typer.Argument(help="Parquet, CSV or Arrow IPC files.", metavar="FILE...")]

_PARQUET, _CSV, _IPC = (".parquet", ".pq"), (".csv",), (".arrow", ".ipc", ".feather", ".arrows")


def read_all(files: Sequence[Path], schema: pa.Schema) -> Iterator[pa.Table]:
    """Return the rows of all files, which must have the same columns, in pieces of which a few are in memory; the first piece has no rows.

    ``schema``: types of CSV columns; others are inferred.  A file is opened when its rows are asked for, but the columns of all are looked at
    before.  Raises Invalid, now or later, for a file that cannot be read.
    """
    schemas = [_columns(file, schema) for file in files]
    try:
        together = pa.unify_schemas(schemas, promote_options="permissive")
    except pa.ArrowException as error:
        raise Invalid(f"the files do not fit together: {error}", hint="write them one by one") from error
    return _pieces(files, schemas, together)


def schema_of(file: Path) -> pa.Schema:
    """Return the columns of a file.  Raises Invalid as :func:`read_all` does."""
    return _columns(file, pa.schema([]))


def _pieces(files: Sequence[Path], schemas: Sequence[pa.Schema], together: pa.Schema) -> Iterator[pa.Table]:
    yield together.empty_table()
    for file, schema in zip(files, schemas, strict=True):
        for batch in _batches(file, schema):
            yield pa.concat_tables(
                [together.empty_table(), pa.Table.from_batches([batch])], promote_options="permissive"
            )


def _columns(file: Path, given: pa.Schema) -> pa.Schema:
    """Return the columns of a file; of a CSV file those in ``given`` have the types there."""
    with _told(file):
        if _is(file, _PARQUET):
            return pq.read_schema(file).remove_metadata()
        if _is(file, _CSV):
            return _columns_of_csv(file, {field.name: field.type for field in given})
        with pa.OSFile(str(file)) as source, _ipc(source) as reader:
            return reader.schema


def _columns_of_csv(file: Path, types: Mapping[str, pa.DataType]) -> pa.Schema:
    """Return the columns of a CSV file.  Types that are not given are those of the first block if all rows have them, else those of the whole."""
    options = pa.csv.ConvertOptions(column_types=types)
    with pa.csv.open_csv(file, convert_options=options) as reader:
        if all(name in types for name in reader.schema.names):
            return reader.schema
        try:
            for _ in reader:
                pass
            return reader.schema
        except pa.ArrowInvalid:
            return pa.csv.read_csv(file, convert_options=options).schema


def _batches(file: Path, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, whose columns are known."""
    with _told(file):
        if _is(file, _PARQUET):
            with pq.ParquetFile(file) as parquet:
                yield from parquet.iter_batches()
        elif _is(file, _CSV):
            types = {field.name: field.type for field in schema}
            with pa.csv.open_csv(file, convert_options=pa.csv.ConvertOptions(column_types=types)) as reader:
                yield from reader
        else:
            with pa.OSFile(str(file)) as source, _ipc(source) as reader:
                if isinstance(reader, pa.RecordBatchFileReader):
                    yield from map(reader.get_batch, range(reader.num_record_batches))
                else:
                    yield from reader


def _ipc(source: pa.NativeFile) -> pa.RecordBatchFileReader | pa.RecordBatchStreamReader:
    is_file = source.read(6) == b"ARROW1"
    source.seek(0)
    return (pa.ipc.open_file if is_file else pa.ipc.open_stream)(source)


def _is(file: Path, suffixes: Sequence[str]) -> bool:
    """Return whether the suffix of a file is one of ``suffixes``.  Raises Invalid for one of no known kind."""
    suffix = file.suffix.lower()
    if suffix not in (*_PARQUET, *_CSV, *_IPC):
        raise Invalid(
            f"{file} is of no known kind", hint="name it .parquet, .csv, .arrow (IPC file) or .arrows (stream)"
        )
    return suffix in suffixes


@contextmanager
def _told(file: Path) -> Iterator[None]:
    """Raise Invalid where ``file`` cannot be read."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise Invalid(f"{file} cannot be read: {error}", hint="give a Parquet, CSV or Arrow IPC file") from error
