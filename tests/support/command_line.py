"""The command line as tests call it, and a small table for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import trees
from typer.testing import CliRunner, Result

from mdt.cli.main import app

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("v", pa.int64())])
ROWS = pa.table({"id": ["001", "002", "003"], "city": ["x", "y", "x"], "v": [1, 2, 3]}, SCHEMA)


def run(*arguments: object, code: int = 0) -> Result:
    """Run a command in this process; asserts its exit code, and that no traceback is shown."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def filled(path: Path, **more: Any) -> Path:
    """Make a table that holds ROWS at ``path``, with ``more`` arguments of ``mdt.create``, and
    return its path.
    """
    trees.create(
        path, SCHEMA, partition_by=["city"], ordering="v", options={"mdt.durable": "false"}, **more
    ).upsert(ROWS)
    return path
