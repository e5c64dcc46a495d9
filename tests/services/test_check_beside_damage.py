"""What a check still finds where something else is damaged, or an index fails."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import mdt
from indexes.bitmap import BitmapIndex
from mdt.metadata.files import paths
from mdt.services.checking.problems import Kind
from mdt.stores.storage import MemoryStorage

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])
OPTIONS = {"mdt.services.auto": False}


def rows(n: int) -> pa.Table:
    return pa.table({"id": range(50), "n": [n] * 50}, schema=SCHEMA)


def flip(storage: MemoryStorage, path: str, at: int) -> None:
    data = bytearray(storage.read(path))
    data[at] ^= 1
    storage.replace(path, bytes(data))


def test_a_missing_file_of_a_tagged_state_is_named_beside_a_damaged_record() -> None:
    storage = MemoryStorage()
    table = mdt.create(storage, SCHEMA, key=["id"], table_type="COPY_ON_WRITE", options=OPTIONS)
    table.upsert(rows(1))
    snapshot = table.snapshot()
    (first,) = snapshot.files.segments(snapshot.live_numbers)
    table.tag("old")
    for n in range(6):
        table.upsert(rows(2 + n))
    table.clean(retain_commits=2)
    table.upsert(rows(99))
    table.upsert(rows(100))
    table.metadata.compact()
    assert mdt.open(storage).check().ok
    storage.delete(first.path)
    flip(storage, paths.commit(table.snapshot().retention.horizon + 1), 200)
    problems = mdt.open(storage).check().problems
    assert {problem.kind for problem in problems} == {Kind.RECORD, Kind.ROWS}
    (missing,) = [problem for problem in problems if problem.kind == Kind.ROWS]
    assert missing.path == first.path and "after commit 1, which has a tag" in missing.text


def test_a_damaged_key_map_is_named_beside_its_damaged_file() -> None:
    storage = MemoryStorage()
    table = mdt.create(storage, SCHEMA, key=["id"], table_type="MERGE_ON_READ", options=OPTIONS)
    table.upsert(rows(1))
    snapshot = table.snapshot()
    (segment,) = snapshot.files.segments(snapshot.live_numbers)
    assert segment.key_map is not None
    flip(storage, segment.path, segment.size // 2)
    flip(storage, segment.key_map.path, segment.key_map.offset + segment.key_map.length // 2)
    found = {(problem.kind, problem.path) for problem in mdt.open(storage).check().problems}
    assert found == {(Kind.ROWS, segment.path), (Kind.ATTACHMENT, segment.key_map.path)}


@pytest.mark.parametrize("name", ["summarize", "rows", "can_test"])
def test_an_index_that_fails_does_not_stop_a_check(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = MemoryStorage()
    table = mdt.create(storage, SCHEMA, key=["id"], indexes=["bitmap(n)"], options=OPTIONS)
    table.upsert(rows(1))

    def fails(*given: Any, **more: Any) -> Any:
        raise ZeroDivisionError("a broken index")

    original = BitmapIndex.summarize
    monkeypatch.setattr(BitmapIndex, "summarize", lambda self, given: original(self, given) + b"\0")
    monkeypatch.setattr(BitmapIndex, name, fails)
    assert mdt.open(storage).check().rows == 50
