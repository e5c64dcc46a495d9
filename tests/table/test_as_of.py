"""Past states of a table: scans, look-ups, and tables that were opened as of a point."""

import pickle

import pytest
from reader import AS_OF, READ_OPTIMIZED, bag, hudi_table
from refusals import refused
from texts import columns, rows_of
from trees import TABLE_TYPES

import mdt
from indexes.predicate import matches
from mdt.filters.where import parse_where

SCHEMA = columns("id string, city string, n int64")


def rows(text):
    return rows_of(SCHEMA, *filter(None, text.split(", ")))


@pytest.fixture(params=TABLE_TYPES)
def table(request, tmp_path):
    """Return a table with two upserts, a delete and, if it has log files, a compaction."""
    found = mdt.create(
        tmp_path / "t",
        SCHEMA,
        ["id"],
        partition_by=["city"],
        table_type=request.param,
        indexes=["bitmap(n)"],
    )
    found.upsert(rows(STATES[1]))
    found.upsert(rows("a x 10, d y 4"))
    found.delete(rows("b x 0"))
    found.compact()
    return found


STATES = ["", "a x 1, b x 2, c y 3", "a x 10, b x 2, c y 3, d y 4", "a x 10, c y 3, d y 4"]


def test_each_state_is_read_as_it_was_by_scan_open_and_hudi_rs(table):
    instants = table.history()["instant"].to_pylist()
    for seq, state in enumerate(STATES):
        expected = rows(state)
        assert bag(table.scan(as_of=seq).to_arrow()) == bag(expected)
        assert bag(table.scan(as_of=instants[seq]).to_arrow()) == bag(expected)
        assert table.scan(as_of=seq).count() == len(expected)
        seen = mdt.open(table.path, as_of=seq)
        assert bag(seen.scan().to_arrow()) == bag(expected)
        assert seen.history()["seq"].to_pylist() == list(range(seq + 1))
        assert bag(hudi_table(table.path, SCHEMA, {AS_OF: instants[seq]})) == bag(expected)


def test_indexes_work_on_a_past_state_and_get_finds_its_rows(table):
    scan, key = table.scan("n = 2", as_of=2), {"id": "b", "city": "x"}
    assert scan.to_arrow().to_pylist() == [{**key, "n": 2}]
    assert "bitmap/1(n)" in {note.index for note in scan.explain().indexes if note.used}
    assert scan.explain().rows_read == 1
    assert table.get(key, as_of=2) == mdt.open(table.path, as_of=1).get(key) == {**key, "n": 2}
    assert table.get(key) is None and table.scan("n = 2").count() == 0


WRITES = {
    "upsert": lambda t: t.upsert(rows("z x 1")),
    "insert": lambda t: t.insert(rows("z x 1")),
    "delete": lambda t: t.delete(rows("a x 1")),
    "compact": lambda t: t.compact(),
    "create_index": lambda t: t.create_index("bloom(id)"),
    "drop_index": lambda t: t.drop_index("n"),
    "build_indexes": lambda t: t.build_indexes(),
    "abort": lambda t: t.abort(),
    "restore": lambda t: t.restore(0),
    "rollback": lambda t: t.rollback(1),
}


@pytest.mark.parametrize("write", list(WRITES))
def test_a_table_opened_as_of_a_point_cannot_be_written_to(table, write):
    seen, newest = mdt.open(table.path, as_of=1), table.snapshot().seq
    refused("as of commit 1 and read-only", WRITES[write], seen)
    assert table.snapshot().seq == newest


def test_a_table_opened_as_of_a_point_stays_there_and_keeps_it_in_a_pickle(
    table,
):
    seen = mdt.open(table.path, as_of=2)
    table.upsert(rows("e y 5"))
    again = pickle.loads(pickle.dumps(seen))
    assert bag(seen.scan().to_arrow()) == bag(again.scan().to_arrow()) == bag(rows(STATES[2]))
    assert "as of commit 2" in repr(again)
    assert bag(seen.scan(as_of=1).to_arrow()) == bag(rows(STATES[1]))


def test_an_incremental_scan_returns_rows_whose_commit_is_in_the_range(table):
    instants = table.history()["instant"].to_pylist()
    table.upsert(rows("c y 30"))
    newest = table.snapshot().seq
    for since in range(newest + 1):
        for until in range(since, newest + 1):
            found = table.scan(since=since, until=until).to_arrow()
            where = "_change = 'insert' or _change = 'update_after'"
            net = table.changes(since, until).to_arrow()
            came = net.filter(matches(parse_where(where, net.schema), net))
            assert bag(found) == bag(came.select(SCHEMA.names))
    expected = rows("a x 10, c y 30, d y 4")
    assert bag(table.scan("n > 3", since=instants[1]).to_arrow()) == bag(expected)
    assert table.scan(since=newest - 1).explain().files_read == 1, (
        "files of older commits are not read"
    )
    again = pickle.loads(pickle.dumps(table.scan("n > 3", since=1)))
    assert again.count() == 3 and repr(again).endswith("where n > 3, written after commit 1>")


REFUSED = [
    ({"as_of": 5}, "no commit 5"),
    ({"as_of": -1}, "no commit -1"),
    ({"since": -1}, "there is no commit -1"),
    ({"since": 2, "until": 1}, "is reversed"),
    ({"until": 1}, "until requires since"),
    ({"since": 0, "until": 1, "as_of": 2}, "until requires since"),
    ({"query_type": "incremental"}, "query_type='incremental'"),
]


def test_a_point_or_a_range_that_makes_no_sense_is_refused(table):
    for given, said in REFUSED:
        refused(said, table.scan, **given)
    refused("no commit -1", mdt.open, table.path, as_of=-1)


def test_meta_columns_are_filtered_on_and_chosen_by_name(table):
    instant = table.history()["instant"][2].as_py()
    for where, names, expected in (
        (
            f"_hoodie_commit_time >= '{instant}' and n > 4",
            ["id", "_hoodie_commit_time"],
            [{"id": "a", "_hoodie_commit_time": instant}],
        ),
        ("_hoodie_record_key in ('a', 'z')", ["n"], [{"n": 10}]),
    ):
        scan = table.scan(where, names)
        assert scan.to_arrow().to_pylist() == expected and scan.count() == 1
    assert table.scan("_hoodie_partition_path = 'city=y'").count() == 2
    first = table.scan(f"_hoodie_commit_time < '{instant}'", as_of=2)
    assert bag(first.to_arrow()) == bag(rows("b x 2, c y 3"))


def test_the_read_optimized_view_is_the_base_files_as_hudi_rs_reads_them(table):
    for seq in range(table.snapshot().seq + 1):
        options = {**READ_OPTIMIZED, AS_OF: table.history()["instant"][seq].as_py()}
        scan = table.scan(as_of=seq, query_type="read_optimized")
        expected = hudi_table(table.path, SCHEMA, options)
        everything = scan.to_arrow()
        assert bag(everything) == bag(expected) and scan.count() == len(expected)
        for where in ("id = 'a'", "n = 1", "n > 3"):
            found = table.scan(where, as_of=seq, query_type="read_optimized").to_arrow()
            matching = everything.filter(matches(parse_where(where, SCHEMA), everything))
            assert bag(found) == bag(matching)
    assert repr(pickle.loads(pickle.dumps(scan))).endswith("read_optimized>")
