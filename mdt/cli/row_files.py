"""Reading rows from Parquet, CSV, JSON lines and Arrow IPC files, in pieces.

``-`` is standard input. It is copied to a temporary file, because Parquet is read from the end, and
its format is detected from its first bytes.
"""

from __future__ import annotations

import atexit
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
import typer

from mdt.errors import Invalid
from mdt.schema.calendars import require_gregorian
from mdt.schema.conform import refuse_repeated

STANDARD = Path("-")
"""The name of standard input and output."""

Files = Annotated[
    list[Path],
    typer.Argument(
        help="Parquet, CSV, JSON lines or Arrow IPC files; - is standard input.", metavar="FILE..."
    ),
]

_PARQUET, _CSV, _JSON = (".parquet", ".pq"), (".csv",), (".json", ".jsonl", ".ndjson")
_IPC = (".arrow", ".ipc", ".feather", ".arrows")
_FIRST_BYTES = (
    (b"PAR1", ".parquet"),
    (b"ARROW1", ".arrow"),
    (b"\xff\xff\xff\xff", ".arrows"),
    (b"{", ".jsonl"),
)
"""First bytes of a format, and its file suffix. Anything else is CSV."""
_HEAD_BYTES = 64


def read_all(files: Sequence[Path], schema: pa.Schema) -> Iterator[pa.Table]:
    """Return the rows of all files as a stream of tables with the same columns. The first table is
    empty.

    schema: Types of CSV columns. Other types are inferred.

    The columns of all files are read first, the rows when the stream reaches them. Raises Invalid,
    now or then, if a file cannot be read.
    """
    if list(files).count(STANDARD) > 1:
        raise Invalid("standard input can be read only once", hint="give - once")
    files = [_copy_of_input() if file == STANDARD else file for file in files]
    schemas = [_columns(file, schema) for file in files]
    for file, columns in zip(files, schemas, strict=True):
        refuse_repeated(columns.names, f"{file}: ")
    try:
        together = pa.unify_schemas(schemas, promote_options="permissive")
    except pa.ArrowException as error:
        raise Invalid(
            f"the files have incompatible columns: {error}", hint="write them separately"
        ) from error
    return _pieces(files, schemas, together)


def schema_of(file: Path) -> pa.Schema:
    """Return the columns of a file. Raises Invalid if it cannot be read."""
    return _columns(file, pa.schema([]))


def _copy_of_input() -> Path:
    """Copy standard input to a temporary file with the suffix of its format. It is removed at
    exit.
    """
    source = sys.stdin.buffer
    head = source.read(_HEAD_BYTES)
    suffix = next(
        (suffix for begin, suffix in _FIRST_BYTES if head.lstrip().startswith(begin)), ".csv"
    )
    with tempfile.NamedTemporaryFile(prefix="mdt-", suffix=suffix, delete=False) as copy:
        atexit.register(Path(copy.name).unlink, missing_ok=True)
        copy.write(head)
        shutil.copyfileobj(source, copy)
    return Path(copy.name)


def _pieces(
    files: Sequence[Path], schemas: Sequence[pa.Schema], together: pa.Schema
) -> Iterator[pa.Table]:
    yield together.empty_table()
    for file, schema in zip(files, schemas, strict=True):
        for batch in _batches(file, schema):
            yield pa.concat_tables(
                [together.empty_table(), pa.Table.from_batches([batch])],
                promote_options="permissive",
            )


def _columns(file: Path, known_types: pa.Schema) -> pa.Schema:
    """Return the columns of a file. CSV columns in ``known_types`` have the types there."""
    with _refuse_unreadable(file):
        if _has_suffix(file, _PARQUET):
            return pq.read_schema(file).remove_metadata()
        if _has_suffix(file, _CSV):
            return _columns_of_csv(file, {field.name: field.type for field in known_types})
        if _has_suffix(file, _JSON):
            return _columns_of_json(file, known_types)
        with pa.OSFile(str(file)) as source, _ipc(source) as reader:
            return reader.schema


def _columns_of_csv(file: Path, types: Mapping[str, pa.DataType]) -> pa.Schema:
    """Return the columns of a CSV file. Missing types are inferred from the first block, or from
    the whole file if later rows differ.
    """
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


def _columns_of_json(file: Path, known_types: pa.Schema) -> pa.Schema:
    """Return the columns of a JSON lines file. Columns in ``known_types`` have the types there."""
    try:
        schema = pa.schema([])
        with pa.json.open_json(file) as reader:
            for batch in reader:
                schema = pa.unify_schemas([schema, batch.schema], promote_options="permissive")
    except pa.ArrowInvalid:
        # a column whose type differs from block to block: read the file as one block
        block = pa.json.ReadOptions(block_size=max(1, file.stat().st_size))
        schema = pa.json.read_json(file, read_options=block).schema
    types = {field.name: field.type for field in known_types}
    return pa.schema([field.with_type(types.get(field.name, field.type)) for field in schema])


def _open_json(file: Path, schema: pa.Schema) -> pa.json.JSONStreamingReader:
    options = pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
    return pa.json.open_json(file, parse_options=options)


def _batches(file: Path, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file with known columns."""
    with _refuse_unreadable(file):
        if _has_suffix(file, _PARQUET):
            with pq.ParquetFile(file) as parquet:
                for batch in parquet.iter_batches():
                    require_gregorian(batch, parquet.metadata.metadata or {})
                    yield batch
        elif _has_suffix(file, _CSV):
            types = {field.name: field.type for field in schema}
            with pa.csv.open_csv(
                file, convert_options=pa.csv.ConvertOptions(column_types=types)
            ) as reader:
                yield from reader
        elif _has_suffix(file, _JSON):
            with _open_json(file, schema) as reader:
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


def _has_suffix(file: Path, suffixes: Sequence[str]) -> bool:
    """Return True if a file has one of ``suffixes``. Raises Invalid for an unknown suffix."""
    suffix = file.suffix.lower()
    if suffix not in (*_PARQUET, *_CSV, *_JSON, *_IPC):
        raise Invalid(
            f"the format of {file} is unknown",
            hint=(
                "use the suffix .parquet, .csv, .jsonl, .arrow (IPC file) or .arrows (IPC stream),"
                " or pipe it to -"
            ),
        )
    return suffix in suffixes


@contextmanager
def _refuse_unreadable(file: Path) -> Iterator[None]:
    """Raise Invalid if ``file`` cannot be read."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        problem, hint = str(error), "give a Parquet, CSV, JSON lines or Arrow IPC file"
        if problem.startswith("straddling object"):
            problem = "a row of text is longer than a block of 1 MiB"
            hint = "write the rows to a Parquet or Arrow IPC file"
        raise Invalid(f"cannot read {file}: {problem}", hint=hint) from error
