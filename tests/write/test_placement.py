"""A key that returns after it was deleted goes where its dead row stands: Hudi's own indexes take
that row for a live one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from reader import bag, hudi_table

import mdt
from indexes.base import KeyHashes
from mdt.errors import Invalid
from mdt.metadata.files.file_group import BASE
from mdt.metadata.keys.locate import locate
from mdt.services.checking.keys import check_placement
from mdt.services.checking.state import TableState
from mdt.stores.storage import MemoryStorage
from mdt.table import Table
from mdt.write import rules
from mdt.write.normalize import normalize, partition_names

SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
SMALL_FILES = {
    "hoodie.parquet.max.file.size": 6000,
    "mdt.metadata.compact.records": 1000,
    "mdt.durable": False,
}


def rows(*ids: str, p: str = "x", ts: int = 1, v: int = 1) -> pa.Table:
    n = len(ids)
    return pa.table([list(ids), [p] * n, [ts] * n, [v] * n], schema=SCHEMA)


def keys(*ids: str, p: str = "x") -> pa.Table:
    return rows(*ids, p=p).select(["id", "p"])


def filled(path: Any, **arguments: Any) -> Table:
    """Return a table with three file groups in partition x, and key a in the first of them."""
    table = mdt.create(path, SCHEMA, ["id"], partition_by=["p"], options=SMALL_FILES, **arguments)
    for number in range(3):
        table.bulk_insert(
            rows("a" if number == 0 else f"n{number}", *(f"k{number}{i}" for i in range(5)))
        )
    return table


def groups_with(table: Table, key: str, p: str = "x") -> list[tuple[str, int]]:
    """Return (file id, kind) of the files in which rows of a key stand, dead or alive."""
    batch = normalize(rows(key, p=p), table.definition)
    snapshot = table.snapshot()
    found = []
    for i in snapshot.live_numbers.tolist():
        file = snapshot.segment(i)
        if (
            file.key_map
            and (table.metadata.objects.key_map(file.key_map).find(batch.hashes) >= 0).any()
        ):
            found.append((file.file_id, file.kind))
    return found


KINDS = [(index, ordering) for index in ("bloom", "record") for ordering in (None, "ts")]


@pytest.mark.parametrize("how", ["upsert", "insert", "bulk_insert"])
@pytest.mark.parametrize(("key_index", "ordering"), KINDS)
@pytest.mark.parametrize("beside", [(), ("new1", "new2")], ids=["alone", "beside new keys"])
def test_a_deleted_key_returns_to_its_file_group(
    key_index: str, ordering: str | None, how: str, beside: tuple[str, ...], tmp_path: Path
) -> None:
    table = filled(tmp_path / "t", key_index=key_index, ordering=ordering)
    first = groups_with(table, "a")
    table.delete(keys("a", "k11"))
    result = getattr(table, how)(rows("a", *beside, ts=0, v=2))
    assert result.inserted == 1 + len(beside) and not result.updated
    found = groups_with(table, "a")
    assert {name for name, _ in found} == {first[0][0]}, "it stands in one file group"
    assert len(found) == (1 if ordering else 2), (
        "with an ordering field the slice ends, else a log file is written"
    )
    report = table.check()
    assert report.ok and not report.warnings, report
    assert bag(hudi_table(tmp_path / "t", SCHEMA)) == bag(table.scan().to_arrow())
    assert table.get("a") == {"id": "a", "p": "x", "ts": 0, "v": 2}
    table.delete(keys("a"))
    table.upsert(rows("a", ts=5, v=3))
    assert {name for name, _ in groups_with(table, "a")} == {first[0][0]}
    assert table.scan("id = 'a'").to_arrow().to_pylist() == [{"id": "a", "p": "x", "ts": 5, "v": 3}]
    assert bag(hudi_table(tmp_path / "t", SCHEMA)) == bag(table.scan().to_arrow())


@pytest.mark.parametrize("key_index", ["bloom", "record"])
def test_a_row_that_moves_back_to_a_partition_returns_to_the_file_group_it_left(
    key_index: str, tmp_path: Path
) -> None:
    table = filled(tmp_path / "t", key_index=key_index, scope="table")
    first = groups_with(table, "a")
    for p, v in (("y", 2), ("x", 3), ("y", 4), ("x", 5)):
        table.upsert(rows(f"new{v}", p=p))
        table.upsert(rows("a", p=p, v=v))
        assert table.scan("id = 'a'").to_arrow().to_pylist() == [
            {"id": "a", "p": p, "ts": 1, "v": v}
        ]
        assert not list(check_placement(TableState(table.metadata, table.snapshot())))
        assert bag(hudi_table(tmp_path / "t", SCHEMA)) == bag(table.scan().to_arrow())
    assert first[0][0] in {name for name, _ in groups_with(table, "a")}


def test_a_key_that_lives_in_one_partition_returns_to_its_dead_row_in_another() -> None:
    table = filled(MemoryStorage())
    table.upsert(rows("a", p="y"))
    table.delete(keys("a"))
    table.upsert(rows("new"))
    table.upsert(rows("a", v=7))
    assert not list(check_placement(TableState(table.metadata, table.snapshot())))
    assert sorted(table.scan("id = 'a'").to_arrow()["p"].to_pylist()) == ["x", "y"]


def test_a_compacted_table_forgets_where_deleted_keys_stood() -> None:
    table = filled(MemoryStorage())
    table.delete(keys("a"))
    table.compact()
    batch = normalize(rows("a"), table.definition)
    found = locate(
        table.metadata,
        table.snapshot(),
        batch.sort_keys,
        batch.hashes,
        partition_names(batch),
    )
    assert found.dead_in.tolist() == [-1]
    table.upsert(rows("a", v=2))
    assert table.check().ok


def test_a_key_that_exists_is_refused_and_one_that_was_deleted_is_not() -> None:
    table = filled(MemoryStorage())
    with pytest.raises(Invalid, match="takes new keys only"):
        table.bulk_insert(rows("a", "b"))
    table.delete(keys("a"))
    assert table.bulk_insert(rows("a", "b")).inserted == 2


def test_updates_and_returns_of_one_file_group_make_one_log_file() -> None:
    table = filled(MemoryStorage(), key_index="record")
    table.delete(keys("a"))
    files = len(table.files())
    table.upsert(rows("a", "k00", "k01", v=9))
    assert len(table.files()) == files + 1
    assert table.scan("v = 9").count() == 3 and table.check().ok


def test_tables_that_were_written_otherwise_are_warned_of_and_mended_by_compaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = filled(MemoryStorage(), key_index="record")
    table.delete(keys("a"))
    monkeypatch.setattr(
        rules,
        "new_here",
        lambda located, late, moved: ((~located.found | moved).nonzero()[0], moved.nonzero()[0]),
    )
    table.upsert(rows("other1", "other2", "other3", "a"))
    while len({name for name, _ in groups_with(table, "a")}) == 1:
        table.delete(keys("a"))
        table.bulk_insert(rows("a"))
    monkeypatch.undo()
    report = table.check()
    assert (
        report.ok
        and "compact() mends it" in str(report.warnings[0])
        and "warning: p=x" in str(report)
    )
    table.upsert(rows("a", v=2))
    assert table.scan("id = 'a'").count() == 1
    table.compact()
    assert not table.check().warnings
    assert set(table.files()["kind"].to_pylist()) == {BASE}


def test_keys_that_may_live_nowhere_are_not_put_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of a load, of which there are many."""
    table = mdt.create(MemoryStorage(), SCHEMA, ["id"], partition_by=["p"])
    batch = normalize(rows(*map(str, range(100))), table.definition)
    monkeypatch.setattr(KeyHashes, "order", lambda self: pytest.fail("they were"))
    located = locate(
        table.metadata, table.snapshot(), batch.keys, batch.hashes, np.array(["p=x"] * 100, object)
    )
    assert not located.found.any()
