"""The command line as tests call it, and a small table for it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import trees
from texts import columns, rows_of
from typer.testing import CliRunner, Result

from mdt.cli.main import app

SCHEMA = columns("id string, city string, v int64")
ROWS = rows_of(SCHEMA, "001 x 1", "002 y 2", "003 x 3")


def run(*arguments: object, code: int = 0, **more: Any) -> Result:
    """Run a command in this process. Assert its exit code, and that no traceback is shown."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], **more)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def shown(*arguments: object, code: int = 0) -> str:
    """Return what a command writes to its standard output."""
    return run(*arguments, code=code).stdout


def error_of(*arguments: object) -> str:
    """Return what a command that fails writes to its standard error."""
    return run(*arguments, code=2).stderr


def documents(*arguments: object, code: int = 0) -> list[Any]:
    """Return the documents of JSON that a command writes."""
    return [json.loads(line) for line in shown(*arguments, "--json", code=code).splitlines()]


def document(*arguments: object, code: int = 0) -> Any:
    """Return the only document of JSON that a command writes."""
    (only_document,) = documents(*arguments, code=code)
    return only_document


def as_bytes(rows: pa.Table, suffix: str) -> bytes:
    """Return a file of ``rows`` in the format of a suffix."""
    sink = io.BytesIO()
    if suffix == "csv":
        pyarrow.csv.write_csv(rows, sink)
    elif suffix in ("json", "jsonl"):
        sink.write("".join(json.dumps(row) + "\n" for row in rows.to_pylist()).encode())
    elif suffix == "parquet":
        pq.write_table(rows, sink, row_group_size=10_000)
    elif suffix == "arrow":
        pyarrow.feather.write_feather(rows, sink)
    else:
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows, max_chunksize=10_000)
    return sink.getvalue()


def stored(file: Path, rows: pa.Table = ROWS) -> Path:
    """Write a file of ``rows`` in the format of its suffix and return its path."""
    file.write_bytes(as_bytes(rows, file.suffix[1:]))
    return file


def filled(path: Path, **more: Any) -> Path:
    """Create a table that holds ROWS at ``path``, with ``more`` arguments of ``mdt.create``, and
    return its path.
    """
    trees.create(
        path, SCHEMA, partition_by=["city"], ordering="v", options={"mdt.durable": "false"}, **more
    ).upsert(ROWS)
    return path
