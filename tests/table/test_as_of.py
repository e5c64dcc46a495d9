"""Earlier versions of a table: scans, look-ups, and tables opened as of a point in time."""

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
    """A table with two upserts, a delete and, if it has log files, a compaction."""
    created = mdt.create(
        tmp_path / "t",
        SCHEMA,
        ["id"],
        partition_by=["city"],
        table_type=request.param,
        indexes=["bitmap(n)"],
    )
    created.upsert(rows(STATES[1]))
    created.upsert(rows("a x 10, d y 4"))
    created.delete(rows("b x 0"))
    created.compact()
    return created


STATES = ["", "a x 1, b x 2, c y 3", "a x 10, b x 2, c y 3, d y 4", "a x 10, c y 3, d y 4"]


def test_each_version_is_read_unchanged_by_scan_open_and_hudi_rs(table):
    instants = table.history()["instant"].to_pylist()
    for seq, state in enumerate(STATES):
        expected = rows(state)
        assert bag(table.scan(as_of=seq).to_arrow()) == bag(expected)
        assert bag(table.scan(as_of=instants[seq]).to_arrow()) == bag(expected)
        assert table.scan(as_of=seq).count() == len(expected)
        past = mdt.open(table.path, as_of=seq)
        assert bag(past.scan().to_arrow()) == bag(expected)
        assert past.history()["seq"].to_pylist() == list(range(seq + 1))
        assert bag(hudi_table(table.path, SCHEMA, {AS_OF: instants[seq]})) == bag(expected)


def test_scans_of_an_earlier_version_use_indexes_and_get_returns_its_rows(table):
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
def test_a_table_opened_as_of_a_commit_is_read_only(table, write):
    past, newest = mdt.open(table.path, as_of=1), table.snapshot().seq
    refused("as of commit 1 and read-only", WRITES[write], past)
    assert table.snapshot().seq == newest


def test_a_table_opened_as_of_a_commit_stays_at_it_also_after_pickling(
    table,
):
    past = mdt.open(table.path, as_of=2)
    table.upsert(rows("e y 5"))
    restored = pickle.loads(pickle.dumps(past))
    assert bag(past.scan().to_arrow()) == bag(restored.scan().to_arrow()) == bag(rows(STATES[2]))
    assert "as of commit 2" in repr(restored)
    assert bag(past.scan(as_of=1).to_arrow()) == bag(rows(STATES[1]))


def test_an_incremental_scan_returns_the_rows_written_by_commits_in_the_range(table):
    instants = table.history()["instant"].to_pylist()
    table.upsert(rows("c y 30"))
    newest = table.snapshot().seq
    for since in range(newest + 1):
        for until in range(since, newest + 1):
            created = table.scan(since=since, until=until).to_arrow()
            where = "_change = 'insert' or _change = 'update_after'"
            net = table.changes(since, until).to_arrow()
            written = net.filter(matches(parse_where(where, net.schema), net))
            assert bag(created) == bag(written.select(SCHEMA.names))
    expected = rows("a x 10, c y 30, d y 4")
    assert bag(table.scan("n > 3", since=instants[1]).to_arrow()) == bag(expected)
    assert table.scan(since=newest - 1).explain().files_read == 1, (
        "files of older commits are not read"
    )
    restored = pickle.loads(pickle.dumps(table.scan("n > 3", since=1)))
    assert restored.count() == 3 and repr(restored).endswith("where n > 3, written after commit 1>")


REFUSED = [
    ({"as_of": 5}, "no commit 5"),
    ({"as_of": -1}, "no commit -1"),
    ({"since": -1}, "there is no commit -1"),
    ({"since": 2, "until": 1}, "is reversed"),
    ({"until": 1}, "until requires since"),
    ({"since": 0, "until": 1, "as_of": 2}, "until requires since"),
    ({"query_type": "incremental"}, "query_type='incremental'"),
]


def test_invalid_points_in_time_and_ranges_are_refused(table):
    for arguments, message in REFUSED:
        refused(message, table.scan, **arguments)
    refused("no commit -1", mdt.open, table.path, as_of=-1)


def test_meta_columns_can_be_filtered_and_selected(table):
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


def test_the_read_optimized_view_equals_that_of_hudi_rs(table):
    for seq in range(table.snapshot().seq + 1):
        options = {**READ_OPTIMIZED, AS_OF: table.history()["instant"][seq].as_py()}
        scan = table.scan(as_of=seq, query_type="read_optimized")
        expected = hudi_table(table.path, SCHEMA, options)
        everything = scan.to_arrow()
        assert bag(everything) == bag(expected) and scan.count() == len(expected)
        for where in ("id = 'a'", "n = 1", "n > 3"):
            created = table.scan(where, as_of=seq, query_type="read_optimized").to_arrow()
            matching = everything.filter(matches(parse_where(where, SCHEMA), everything))
            assert bag(created) == bag(matching)
    assert repr(pickle.loads(pickle.dumps(scan))).endswith("read_optimized>")
