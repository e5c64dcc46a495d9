"""An attempt of a task that goes on after its transaction, as of an executor that was cut off,
leaves no file that another reader takes for a committed one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pooled import thread
from reader import bag, hudi_table

import mdt
from mdt.engines import write as writes
from mdt.errors import Conflict
from mdt.testing.local_engine import LocalEngine

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])
LATE = 99


def rows(first: int, count: int, n: int) -> pa.Table:
    return pa.table([[f"k{i:03}" for i in range(first, first + count)], [n] * count], schema=SCHEMA)


def names(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], Any]]:
    """What runs the tasks of each write once more."""
    found: list[Callable[[], Any]] = []
    results = LocalEngine.results

    def spied(self: LocalEngine, parts: Any, function: Any) -> list[bytes]:
        found.append(lambda: [function(iter(part.to_batches()), LATE) for part in parts])
        return results(self, parts, function)

    monkeypatch.setattr(LocalEngine, "results", spied)
    return found


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_task_that_outlives_its_transaction_stores_nothing(
    table_type: str, tmp_path: Path, attempts: list[Callable[[], Any]]
) -> None:
    folder = tmp_path / "t"
    t = mdt.create(
        folder, SCHEMA, key=["id"], table_type=table_type, options={"mdt.durable": False}
    )
    for batch in (rows(0, 50, 0), rows(25, 50, 1)):
        t._commit_rows(
            writes.write(thread(), t.metadata, t.options, [batch], batch.schema, "upsert")
        )
        expected, files = bag(t.scan().to_arrow()), names(folder)
        with pytest.raises(Conflict, match="ended before its task stored"):
            attempts[-1]()
        assert names(folder) == files
        assert bag(hudi_table(folder, SCHEMA)) == expected
