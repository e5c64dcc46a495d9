"""Past states of a table: scans, look-ups, and tables that were opened as of a point."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from reader import AS_OF, READ_OPTIMIZED, bag, hudi_table

import mdt
from indexes.predicate import matches
from mdt.errors import Invalid
from mdt.filters.where import parse_where

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("n", pa.int64())])


def rows(*found: tuple[str, str, int]) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(SCHEMA.names, row, strict=True)) for row in found], schema=SCHEMA
    )


@pytest.fixture(params=["MERGE_ON_READ", "COPY_ON_WRITE"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> mdt.Table:
    """Return a table with two upserts, a delete and, if it has log files, a compaction."""
    found = mdt.create(
        tmp_path / "t",
        SCHEMA,
        ["id"],
        partition_by=["city"],
        table_type=request.param,
        indexes=["bitmap(n)"],
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
    assert mdt.open(table.path, as_of=1).get({"id": "a", "city": "x"}) == {
        "id": "a",
        "city": "x",
        "n": 1,
    }


WRITES: dict[str, Callable[[mdt.Table], Any]] = {
    "upsert": lambda t: t.upsert(rows(("z", "x", 1))),
    "insert": lambda t: t.insert(rows(("z", "x", 1))),
    "delete": lambda t: t.delete(rows(("a", "x", 1))),
    "compact": lambda t: t.compact(),
    "create_index": lambda t: t.create_index("bloom(id)"),
    "drop_index": lambda t: t.drop_index("n"),
    "build_indexes": lambda t: t.build_indexes(),
    "abort": lambda t: t.abort(),
    "restore": lambda t: t.restore(0),
    "rollback": lambda t: t.rollback(1),
}


@pytest.mark.parametrize("write", list(WRITES))
def test_a_table_opened_as_of_a_point_cannot_be_written_to(table: mdt.Table, write: str) -> None:
    seen, newest = mdt.open(table.path, as_of=1), table.snapshot().seq
    with pytest.raises(Invalid, match="after commit 1 and cannot be written to"):
        WRITES[write](seen)
    assert table.snapshot().seq == newest


def test_a_table_opened_as_of_a_point_stays_there_and_keeps_it_in_a_pickle(
    table: mdt.Table,
) -> None:
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


def test_an_incremental_scan_returns_rows_whose_commit_is_in_the_range(table: mdt.Table) -> None:
    instants = table.history()["instant"].to_pylist()
    table.upsert(rows(("c", "y", 30)))
    newest = table.snapshot().seq
    for since in range(newest + 1):
        for until in range(since, newest + 1):
            found = table.scan(since=since, until=until).to_arrow()
            net = table.changes(since, until).to_arrow().to_pylist()
            came = [
                tuple(row[name] for name in SCHEMA.names)
                for row in net
                if row["_change"] in ("insert", "update_after")
            ]
            assert bag(found) == bag(rows(*came))  # type: ignore[arg-type]
    assert bag(table.scan("n > 3", since=instants[1]).to_arrow()) == bag(
        rows(("a", "x", 10), ("c", "y", 30), ("d", "y", 4))
    )
    assert table.scan(since=newest - 1).explain().files_read == 1, (
        "files of older commits are not read"
    )
    again = pickle.loads(pickle.dumps(table.scan("n > 3", since=1)))
    assert again.count() == 3 and repr(again).endswith("where n > 3, written after commit 1>")


def test_a_range_that_makes_no_sense_is_refused(table: mdt.Table) -> None:
    with pytest.raises(Invalid, match="there is no commit -1"):
        table.scan(since=-1)
    with pytest.raises(Invalid, match="goes backwards"):
        table.scan(since=2, until=1)
    with pytest.raises(Invalid, match="until is the end of a range"):
        table.scan(until=1)
    with pytest.raises(Invalid, match="until is the end of a range"):
        table.scan(since=0, until=1, as_of=2)


def test_meta_columns_are_filtered_on_and_chosen_by_name(table: mdt.Table) -> None:
    instant = table.history()["instant"][2].as_py()
    scan = table.scan(
        f"_hoodie_commit_time >= '{instant}' and n > 4", columns=["id", "_hoodie_commit_time"]
    )
    assert scan.to_arrow().to_pylist() == [{"id": "a", "_hoodie_commit_time": instant}]
    assert scan.count() == 1
    assert table.scan("_hoodie_record_key in ('a', 'z')", columns=["n"]).to_arrow().to_pylist() == [
        {"n": 10}
    ]
    assert (
        table.scan("_hoodie_partition_path = 'city=y'").count()
        == table.scan("city = 'y'").count()
        == 2
    )
    first = table.scan(f"_hoodie_commit_time < '{instant}'", as_of=2)
    assert bag(first.to_arrow()) == bag(rows(("b", "x", 2), ("c", "y", 3)))


def test_the_read_optimized_view_is_the_base_files_as_hudi_rs_reads_them(table: mdt.Table) -> None:
    for seq in range(table.snapshot().seq + 1):
        options = {**READ_OPTIMIZED, AS_OF: table.history()["instant"][seq].as_py()}
        scan = table.scan(as_of=seq, query_type="read_optimized")
        expected = hudi_table(table.path, SCHEMA, options)
        assert bag(scan.to_arrow()) == bag(expected)
        assert scan.count() == len(expected)
        for where in ("id = 'a'", "n = 1", "n > 3"):
            found = table.scan(where, as_of=seq, query_type="read_optimized").to_arrow()
            everything = scan.to_arrow()
            assert bag(found) == bag(
                everything.filter(matches(parse_where(where, SCHEMA), everything))
            )
    assert repr(pickle.loads(pickle.dumps(scan))).endswith("read_optimized>")
    with pytest.raises(Invalid, match="query_type='incremental'"):
        table.scan(query_type="incremental")
