"""Past states of a table: scans, look-ups, and tables that were opened as of a point."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from reader import AS_OF, bag, hudi_table

import mdt
from mdt.errors import Invalid

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("n", pa.int64())])


def rows(*found: tuple[str, str, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in found], schema=SCHEMA)


@pytest.fixture(params=["MERGE_ON_READ", "COPY_ON_WRITE"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> mdt.Table:
    """Return a table with two upserts, a delete and, if it has log files, a compaction."""
    found = mdt.create(
        tmp_path / "t", SCHEMA, ["id"], partition_by=["city"], table_type=request.param, indexes=["bitmap(n)"]
    )
    found.upsert(rows(("a", "x", 1), ("b", "x", 2), ("c", "y", 3)))
    found.upsert(rows(("a", "x", 10), ("d", "y", 4)))
    found.delete(rows(("b", "x", 0)))
    found.compact()
    return found


STATES = {
    0: [],
    1: [("a", "x", 1), ("b", "x", 2), ("c", "y", 3)],
    2: [("a", "x", 10), ("b", "x", 2), ("c", "y", 3), ("d", "y", 4)],
    3: [("a", "x", 10), ("c", "y", 3), ("d", "y", 4)],
}


def test_each_state_is_read_as_it_was_by_scan_open_and_hudi_rs(table: mdt.Table) -> None:
    instants = table.history()["instant"].to_pylist()
    for seq, state in STATES.items():
        expected = bag(rows(*state))
        assert bag(table.scan(as_of=seq).to_arrow()) == expected
        assert bag(table.scan(as_of=instants[seq]).to_arrow()) == expected
        assert table.scan(as_of=seq).count() == len(state)
        seen = mdt.open(table.path, as_of=seq)
        assert bag(seen.scan().to_arrow()) == expected
        assert seen.history()["seq"].to_pylist() == list(range(seq + 1))
        assert bag(hudi_table(table.path, SCHEMA, {AS_OF: instants[seq]})) == expected


def test_indexes_work_on_a_past_state(table: mdt.Table) -> None:
    scan = table.scan("n = 2", as_of=2)
    assert bag(scan.to_arrow()) == bag(rows(("b", "x", 2)))
    assert "bitmap/1(n)" in {note.index for note in scan.explain().indexes if note.used}
    assert scan.explain().rows_read == 1
    assert table.scan("n = 2").count() == 0


def test_get_finds_rows_of_a_past_state(table: mdt.Table) -> None:
    key = {"id": "b", "city": "x"}
    assert table.get(key, as_of=2) == {"id": "b", "city": "x", "n": 2}
    assert table.get(key) is None
    assert mdt.open(table.path, as_of=1).get({"id": "a", "city": "x"}) == {"id": "a", "city": "x", "n": 1}


WRITES: dict[str, Callable[[mdt.Table], Any]] = {
    "upsert": lambda t: t.upsert(rows(("z", "x", 1))),
    "insert": lambda t: t.insert(rows(("z", "x", 1))),
    "delete": lambda t: t.delete(rows(("a", "x", 1))),
    "compact": lambda t: t.compact(),
    "create_index": lambda t: t.create_index("bloom(id)"),
    "drop_index": lambda t: t.drop_index("n"),
    "build_indexes": lambda t: t.build_indexes(),
    "rollback": lambda t: t.rollback(),
}


@pytest.mark.parametrize("write", list(WRITES))
def test_a_table_opened_as_of_a_point_cannot_be_written_to(table: mdt.Table, write: str) -> None:
    seen, newest = mdt.open(table.path, as_of=1), table.snapshot().seq
    with pytest.raises(Invalid, match="after commit 1 and cannot be written to"):
        WRITES[write](seen)
    assert table.snapshot().seq == newest


def test_a_table_opened_as_of_a_point_stays_there_and_keeps_it_in_a_pickle(table: mdt.Table) -> None:
    seen = mdt.open(table.path, as_of=2)
    table.upsert(rows(("e", "y", 5)))
    again = pickle.loads(pickle.dumps(seen))
    assert bag(seen.scan().to_arrow()) == bag(again.scan().to_arrow()) == bag(rows(*STATES[2]))
    assert "as of commit 2" in repr(again)
    assert bag(seen.scan(as_of=1).to_arrow()) == bag(rows(*STATES[1]))


def test_a_commit_that_does_not_exist_is_refused(table: mdt.Table) -> None:
    with pytest.raises(Invalid, match="no commit 5"):
        table.scan(as_of=5)
    with pytest.raises(Invalid, match="no commit -1"):
        mdt.open(table.path, as_of=-1)
