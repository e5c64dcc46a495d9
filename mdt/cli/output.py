"""Output of rows: a table for people, or CSV, JSON lines, Parquet or an Arrow IPC stream."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import typer

from mdt.cli import json_text
from mdt.cli.row_files import STANDARD
from mdt.cli.terminal import show_table
from mdt.errors import Invalid
from mdt.schema.python_values import rows_of


class Format(StrEnum):
    """Output formats of rows."""

    table = "table"
    csv = "csv"
    json = "json"
    parquet = "parquet"
    arrow = "arrow"


FormatOption = Annotated[
    Format | None,
    typer.Option(help="Format of rows. The default is the suffix of --output, or a table."),
]
Output = Annotated[
    Path, typer.Option("--output", "-o", help="File to write rows to; - is standard output.")
]

_SUFFIXES = {
    ".csv": Format.csv,
    ".json": Format.json,
    ".jsonl": Format.json,
    ".ndjson": Format.json,
    ".parquet": Format.parquet,
    ".pq": Format.parquet,
    ".arrow": Format.arrow,
    ".arrows": Format.arrow,
}


def chosen_format(format: Format | None, output: Path, *, as_json: bool) -> Format:
    """Return the output format for the options of a command.

    Raises Invalid for a table that would go to a file.

    >>> chosen_format(None, Path("rows.parquet"), as_json=False)
    <Format.parquet: 'parquet'>
    """
    if as_json:
        return Format.json
    if format is None:
        format = _SUFFIXES.get(output.suffix.lower(), Format.table)
    if format is Format.table and output != STANDARD:
        raise Invalid(
            f"the format of {str(output)!r} is unknown",
            hint=f"pass --format, or use a suffix of {', '.join(_SUFFIXES)}",
        )
    return format


def write_rows(
    schema: pa.Schema, batches: Iterator[pa.RecordBatch], format: Format, output: Path
) -> None:
    """Write rows to ``output``. A file is complete or absent, because it is renamed after the last
    row.
    """
    if format is Format.table:
        show_table(pa.Table.from_batches(batches, schema))
        return
    with _open_output(output) as sink:
        _WRITERS[format](schema, batches, sink)


@contextmanager
def _open_output(output: Path) -> Iterator[BinaryIO]:
    if output == STANDARD:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with new_file(output) as file:
        yield file


@contextmanager
def new_file(output: Path) -> Iterator[BinaryIO]:
    """Open a file that appears under its name, or replaces the file there, once it is complete.

    A pipe or a device is written to. Raises Invalid if the file cannot be written.
    """
    partial = output.with_name(f"{output.name}.partial")
    try:
        if output.exists() and not output.is_file():
            with output.open("wb") as file:
                yield file
            return
        with partial.open("wb") as file:
            yield file
        partial.replace(output)
    except OSError as error:
        raise Invalid(f"cannot write {output}: {error}", hint="choose another file") from error
    finally:
        with suppress(OSError):
            partial.unlink()


def _write_csv(schema: pa.Schema, batches: Iterator[pa.RecordBatch], sink: BinaryIO) -> None:
    try:
        with pa.csv.CSVWriter(sink, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
    except pa.ArrowException as error:
        raise Invalid(
            f"the rows cannot be written as CSV: {error}",
            hint="use --format json, parquet or arrow",
        ) from error


def _write_json(schema: pa.Schema, batches: Iterator[pa.RecordBatch], sink: BinaryIO) -> None:
    for batch in batches:
        lines = [json_text.line(row) for row in rows_of(batch)]
        sink.write("".join(f"{line}\n" for line in lines).encode())


def _write_parquet(schema: pa.Schema, batches: Iterator[pa.RecordBatch], sink: BinaryIO) -> None:
    with pq.ParquetWriter(pa.PythonFile(sink, mode="w"), schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)


def _write_arrow(schema: pa.Schema, batches: Iterator[pa.RecordBatch], sink: BinaryIO) -> None:
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


_WRITERS: dict[Format, Callable[[pa.Schema, Iterator[pa.RecordBatch], BinaryIO], None]] = {
    Format.csv: _write_csv,
    Format.json: _write_json,
    Format.parquet: _write_parquet,
    Format.arrow: _write_arrow,
}
