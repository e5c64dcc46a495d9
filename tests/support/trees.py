"""Operations of several test files on a table on disk: create one, list it byte for byte, read it
with hudi-rs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from hudi import HudiTable

import mdt
from mdt.schema.conform import conform
from mdt.stores.storage import LocalStorage

TABLE_TYPES = ("COPY_ON_WRITE", "MERGE_ON_READ")


def create(path: Path, schema: pa.Schema, key: Sequence[str] = ("id",), **more: Any) -> mdt.Table:
    """Create a table that is not flushed to the disk, so that tests are fast."""
    return mdt.create(LocalStorage(path, durable=False), schema, key, **more)


def tree(root: Path) -> dict[str, bytes | None]:
    """Return every file below ``root`` with its bytes, and every directory with None."""
    paths = sorted(root.rglob("*"))
    return {
        path.relative_to(root).as_posix(): path.read_bytes() if path.is_file() else None
        for path in paths
    }


def hudi_rows(path: Path, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows as hudi-rs reads them, in a fixed order."""
    batches = [pa.record_batch(batch) for batch in HudiTable(str(path)).read()]
    return ordered(pa.Table.from_batches(batches).select(list(columns))) if batches else []


def ordered(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of ``table`` in a fixed order."""
    return sorted(table.to_pylist(), key=repr)


def assert_readers_agree(table: mdt.Table, path: Path) -> list[dict[str, Any]]:
    """Assert that mdt, hudi-rs and the check agree about ``table`` at ``path``. Return its rows."""
    names = table.schema.names
    read = table.scan().to_arrow()
    assert read.schema.equals(table.schema, check_metadata=True)
    assert ordered(conform(read, table.schema, table.definition.schema)) == hudi_rows(path, names)
    own_rows = ordered(read)
    assert table.scan().count() == len(own_rows)
    report = table.check()
    assert report.ok, str(report)
    return own_rows
