"""A pruned scan equals a full scan: random data of every type, random predicates, and planted mutants
that must be detected.
"""

import json
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from counting import count
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap
from random_tables import create, examples, tables
from reader import bag
from strategies import conditions
from texts import columns

import mdt
from indexes import column_stats, registry
from indexes.base import SkippingIndex, whole
from indexes.bounds import Bounds
from indexes.predicate import And, Leaf, Or, Unknown, matches
from mdt.metadata.keys import locate
from mdt.metadata.snapshot import log_tail
from mdt.plan import planner
from mdt.stores.storage import MemoryStorage


def _scan(table, predicate):
    scan = table.scan()
    scan.predicate = predicate
    return scan


def _assert_pruned_is_full(table, rows, predicate):
    scan = _scan(table, predicate)
    rows_found, expected = bag(scan.to_arrow()), bag(rows.filter(matches(predicate, rows)))
    assert rows_found == expected, (
        f"{predicate}\n{scan.explain()}\n  lost {expected - rows_found}\n  extra {rows_found - expected}"
    )


def _assert_consistent_numbers(scan):
    plan = scan.explain()
    pairs = ((plan.files_read, plan.files_total), (plan.row_groups_read, plan.row_groups_total))
    pairs += ((plan.rows_read, plan.rows_total), (plan.bytes_read, plan.bytes_total))
    assert all(0 <= read <= total for read, total in pairs), plan
    assert plan.files_read == len(scan.plan.segments) and len(scan.to_arrow()) <= plan.rows_read
    assert sum(note.pruned for note in plan.indexes) <= plan.files_total
    for note in plan.indexes:
        assert note.reason and note.detail and note.pruned <= note.covered <= plan.files_total, note
        assert note.used or note.pruned == 0
    assert all(note.index in str(plan) for note in plan.indexes)


@given(data=st.data())
@examples(40, 800)
def test_a_pruned_scan_is_a_full_scan_with_the_filter(data):
    table, rows = data.draw(tables(nested=True))
    assert bag(table.scan().to_arrow()) == bag(rows)
    for _ in range(6):
        predicate = data.draw(conditions(table.schema, rows))
        _assert_pruned_is_full(table, rows, predicate)
        _assert_consistent_numbers(_scan(table, predicate))
        count("predicates, pruned scan compared with the filtered full scan")


# A fixed table with clustered data, so that every way of pruning has something to prune

_CLUSTERS = columns("id string, n int64, x float64, s string")
_PREFIX = "p" * 70


def _cluster(number, x=None):
    """Return nine rows with distinct keys and values. ``x`` replaces the last value of the column x."""
    numbers = list(range(number * 9, number * 9 + 9))
    xs = [float(n) for n in numbers[:8]] + [float(numbers[8]) if x is None else x]
    names = [f"{_PREFIX}{n:03}" if number % 2 else f"{n:03}" for n in numbers]
    return pa.table([pa.array([f"k{n:03}" for n in numbers]), numbers, xs, names], schema=_CLUSTERS)


def _clustered_table():
    """Return a table of five files with three row groups each, and its rows: NaN, infinity, nulls, deleted
    and updated rows.
    """
    table = create(_CLUSTERS)
    last = (float("nan"), float("-inf"), None, None, -0.0)
    parts = [_cluster(number, x) for number, x in enumerate(last)]
    for part in parts:
        table.upsert(part)
    updated = pa.table(
        [["k010", "k020"], [1000, 1001], [None, 5000.0], [None, "zz"]], schema=_CLUSTERS
    )
    table.upsert(updated)
    deleted_keys = ["k003", "k030"]
    table.delete(pa.table({"id": deleted_keys}))
    rows = {row["id"]: row for row in pa.concat_tables([*parts, updated]).to_pylist()}
    live_rows = [row for key, row in rows.items() if key not in deleted_keys]
    return table, pa.Table.from_pylist(live_rows, schema=_CLUSTERS)


_CONDITIONS = {
    "n": [
        ("=", 13),
        ("<", 4),
        (">=", 40),
        ("in", (2, 44)),
        ("!=", 7),
        ("=", 1000),
        (">", 2**53),
    ],
    "x": [
        (">", 4999.0),
        ("=", float("nan")),
        (">", float("inf")),
        ("<", -5.0),
        ("=", 0.0),
        ("is null", None),
    ],
    "s": [
        ("starts with", "00"),
        ("like", _PREFIX + "01%"),
        ("=", _PREFIX + "011"),
        (">", "q"),
        ("is null", None),
    ],
    "id": [
        *(("=", key) for key in ("k005", "k010", "k020", "k030", "k044", "nothing")),
        ("in", ("k001", "k020", "k043", "absent")),
    ],
}
_PREDICATES = [
    *(Leaf(name, op, value) for name, pairs in _CONDITIONS.items() for op, value in pairs),
    Or((Leaf("n", "=", 2), Leaf("x", "=", 40.0))),
    And((Or((Leaf("n", "<", 3), Leaf("n", ">", 999))), Leaf("x", "is not null"))),
    And((Leaf("id", "=", "k020"), Leaf("n", ">", 1000))),
]


def _wrong_predicates(table, rows):
    return [
        predicate
        for predicate in _PREDICATES
        if bag(_scan(table, predicate).to_arrow()) != bag(rows.filter(matches(predicate, rows)))
    ]


def test_pruned_scans_of_clustered_data_have_correct_rows_and_consistent_numbers():
    table, rows = _clustered_table()
    assert _wrong_predicates(table, rows) == []
    for predicate in _PREDICATES:
        _assert_consistent_numbers(_scan(table, predicate))


def test_scans_of_clustered_data_read_only_the_matching_files_and_row_groups():
    table, _ = _clustered_table()
    plan = table.scan("n between 30 and 31").explain()
    assert (plan.files_read, plan.row_groups_read, plan.rows_read) == (1, 1, 3)
    assert plan.files_total >= 5 and plan.row_groups_total >= 15
    assert table.scan("n > 5000").explain().files_read == 0
    assert table.scan(f"s like '{_PREFIX}%'").explain().files_read <= 3


def test_a_key_lookup_reads_one_row():
    for key_index in ("bloom", "record"):
        table = create(_CLUSTERS, key_index=key_index)
        for number in range(4):
            table.upsert(_cluster(number))
        scan = table.scan("id = 'k014'")
        plan = scan.explain()
        assert (plan.files_read, plan.row_groups_read, plan.rows_read) == (1, 1, 1), plan
        assert scan.to_arrow()["n"].to_pylist() == [14]
        assert table.scan("id = 'k999'").explain().files_read == 0


def test_a_composite_key_is_looked_up_if_all_of_its_columns_are_fixed():
    table = mdt.create(MemoryStorage(), _CLUSTERS, ["id", "n"], options={"mdt.row.group.rows": 3})
    table.upsert(_cluster(1))
    assert table.scan("id = 'k014' and n = 14").explain().rows_read == 1
    assert table.scan("id = 'k014' and n = 14").count() == 1
    assert table.scan("id = null and n = 14").count() == 0
    assert table.scan([("id", "<=>", None), ("n", "=", 14)]).count() == 0
    notes = {note.index: note.reason for note in table.scan("id = 'k014'").explain().indexes}
    assert notes["key:bloom"] == "key_not_fixed"


@pytest.mark.parametrize(
    ("tests", "sql"),
    [
        ([("n", "=", 13)], "n = 13"),
        ([("n", ">", 3), ("n", "<=", 9)], "n > 3 and n <= 9"),
        ([("n", "in", [1, 2, 99])], "n in (1, 2, 99)"),
        ([("n", "not in", (1, 2))], "n not in (1, 2)"),
        ([("s", "like", "00%"), ("x", "<", 5)], "s like '00%' and x < 5"),
        ([("x", "is null")], "x is null"),
        ([("x", "is not null", None), ("id", "!=", "k001")], "x is not null and id <> 'k001'"),
        ([("s", "<=>", None)], "s <=> null"),
        ([("id", "=", "k020")], "id = 'k020'"),
        ([], "true"),
    ],
)
def test_a_list_of_conditions_is_equivalent_to_its_sql(tests, sql):
    table, _ = _clustered_table()
    by_list, by_sql = table.scan(where=tests), table.scan(where=sql)
    assert bag(by_list.to_arrow()) == bag(by_sql.to_arrow())
    assert by_list.count() == by_sql.count() == len(by_sql.to_arrow())
    assert by_list.explain().rows_read == by_sql.explain().rows_read


def test_predicates_unknown_to_the_planner_prune_nothing():
    table, _ = _clustered_table()
    for predicate in (Unknown("f(n)"), Or((Unknown("f(n)"), Leaf("n", "=", 3)))):
        plan = planner.explain(planner.plan(table.metadata, table.snapshot(), predicate))
        assert plan.rows_read == plan.rows_total


# Broken indexes cost time but never lose rows


@contextmanager
def _with_broken_parts(table, monkeypatch, **parts):
    snapshot = table.snapshot()
    assert not snapshot.checkpoint.rows, "the broken parts are in the log tail"
    merged = log_tail.merge(snapshot.additions)
    broken = replace(snapshot, additions=(replace(merged, **parts, stats_of={}, bounds_of={}),))
    with monkeypatch.context() as patch:
        patch.setattr(table.metadata, "newest", lambda: broken)
        yield


def test_missing_statistics_lose_no_rows(monkeypatch):
    table, rows = _clustered_table()
    stats = pa.concat_tables([addition.stats for addition in table.snapshot().additions])
    some = stats.filter(pa.array(np.arange(len(stats)) % 3 > 0))
    for remaining, reason in ((stats.slice(0, 0), "no_statistics"), (some, "used")):
        with _with_broken_parts(table, monkeypatch, stats=remaining):
            for predicate in _PREDICATES:
                _assert_pruned_is_full(table, rows, predicate)
            notes = {note.index: note.reason for note in table.scan("n = 13").explain().indexes}
            assert notes["column_stats"] == reason


def test_damaged_key_maps_lose_no_rows():
    table, rows = _clustered_table()
    storage = table.storage
    for info in storage.list(".hoodie/.mdt/attachments"):
        data = bytearray(storage.read(info.path))
        data[len(data) // 2] ^= 1
        storage.replace(info.path, bytes(data))
    reopened = mdt.open(storage)
    _assert_pruned_is_full(reopened, rows, Leaf("id", "=", "k020"))
    notes = {note.index: note.reason for note in reopened.scan("id = 'k020'").explain().indexes}
    assert notes["key:bloom"] == "damaged"


class _Equal(SkippingIndex):
    """``equal/1``, an index for these tests: the values of a segment as JSON. It finds segments and rows
    for ``=``.
    """

    name = "equal/1"

    def supports(self, type):
        return bool(pa.types.is_integer(type))

    def summarize(self, values):
        return json.dumps(values.to_pylist()).encode()

    finds_rows = True

    def prune(self, summaries, leaf, type):
        return np.array(
            [rows is None or bool(rows) for rows in self.rows(summaries, leaf, type)],
            dtype=np.bool_,
        )

    def rows(self, summaries, leaf, type):
        values_by_segment = [json.loads(bytes(whole(summary))) for summary in summaries]
        if leaf.op != "=":
            return [None] * len(values_by_segment)
        return [
            BitMap([at for at, value in enumerate(values) if value == leaf.value])
            for values in values_by_segment
        ]


@pytest.fixture
def indexed(monkeypatch):
    """A table of shuffled values with ``equal(n)``. Minima and maxima prune nothing, the index does."""
    test_registry = registry.Registry(())
    test_registry.register(_Equal)
    find = registry.find
    monkeypatch.setattr(
        registry,
        "find",
        lambda name: test_registry.find(name) if name.startswith("equal") else find(name),
    )
    table = create(_CLUSTERS, indexes=["equal(n)"])
    rows = pa.concat_tables([_cluster(number) for number in range(4)]).take(
        pa.array(np.arange(36).reshape(9, 4).T.ravel())
    )
    for at in range(0, 36, 9):
        table.upsert(rows.slice(at, 9))
    table.delete(pa.table({"id": ["k013"]}))
    return table, rows.filter(pc.not_equal(rows["id"], "k013"))


def _note(table, where):
    (note,) = [note for note in table.scan(where).explain().indexes if note.index == "equal/1(n)"]
    return note


def test_a_skipping_index_prunes_segments_and_row_groups(
    indexed,
):
    table, rows = indexed
    plan = table.scan("n = 14").explain()
    assert (plan.files_read, plan.row_groups_read) == (1, 1)
    assert _note(table, "n = 14").used and _note(table, "n = 14").pruned >= 2
    for value in range(-1, 38):
        _assert_pruned_is_full(table, rows, Leaf("n", "=", value))
        _assert_pruned_is_full(table, rows, And((Leaf("n", "=", value), Leaf("x", ">", 8.0))))
        _assert_pruned_is_full(table, rows, Or((Leaf("n", "=", value), Leaf("x", "=", 8.0))))


def test_a_missing_damaged_or_incomplete_index_loses_no_rows_and_is_explained(indexed, monkeypatch):
    table, rows = indexed
    summaries = pa.concat_tables([addition.summaries for addition in table.snapshot().additions])
    at = summaries.schema.get_field_index("payload")
    damaged = summaries.set_column(
        at, "payload", pa.array([b"?", *summaries["payload"].to_pylist()[1:]], pa.binary())
    )
    for remaining, reason, covered in (
        (summaries.slice(0, 0), "not_covered", 0),
        (summaries.slice(2), "used", len(summaries) - 2),
        (damaged, "damaged", len(summaries)),
    ):
        with _with_broken_parts(table, monkeypatch, summaries=remaining):
            assert (_note(table, "n = 14").reason, _note(table, "n = 14").covered) == (
                reason,
                covered,
            )
            for value in range(36):
                _assert_pruned_is_full(table, rows, Leaf("n", "=", value))
    monkeypatch.undo()
    assert _note(table, "n = 14").reason == "not_installed"
    for value in range(36):
        _assert_pruned_is_full(table, rows, Leaf("n", "=", value))
    assert table.upsert(_cluster(5)).inserted == 9, "writers do not cover the new segment"
    assert _note(table, "x = 1").reason == "not_installed"


def test_the_notes_of_an_index_explain_why_it_is_not_used(indexed):
    table, _ = indexed
    assert _note(table, "x = 1").reason == "column_not_tested"
    assert _note(table, "n = 1000").reason == "nothing_left"
    assert _note(table, "n = 1 or x = 1").reason == "used"


# Mutants: planners that lose rows. The fixed predicates must detect each of them


def _blind_to_nan(stats):
    """Return statistics like those of Parquet footers: the maximum ignores NaN."""
    has_nan = pc.greater(pc.fill_null(stats["nans"], 0), 0)
    maxima = pc.if_else(has_nan, stats["min"], stats["max"])
    return stats.set_column(stats.schema.get_field_index("max"), "max", maxima).set_column(
        stats.schema.get_field_index("nans"), "nans", pa.array([0] * len(stats), pa.int64())
    )


def _with_changed_result(function, change):
    """Return a function with a changed result."""
    return lambda *args: change(function(*args))


_PRUNE, _BY_KEY = column_stats.prune_predicate, planner._by_key


def _first_branch(lookup, predicate, n):
    return _PRUNE(lookup, predicate.children[0] if isinstance(predicate, Or) else predicate, n)


def _first_lost(verdict):
    verdict[:1] = False
    return verdict


def _without_last_zone(scans):
    return [
        scan if scan.row_groups is None else replace(scan, row_groups=scan.row_groups[:-1])
        for scan in scans
    ]


def _shifted(work):
    _BY_KEY(work)
    work.positions = {i: BitMap(p + 1 for p in rows) for i, rows in work.positions.items()}


def _reversed_each(verdicts_by_file):
    return {i: verdict[::-1] for i, verdict in verdicts_by_file.items()}


def _of_the_next(verdicts_by_file):
    verdicts = list(verdicts_by_file.values())
    return dict(zip(verdicts_by_file, verdicts[1:] + verdicts[:1], strict=True))


def _without_nan(stats, type, read=Bounds.read):
    return read(_blind_to_nan(stats), type)


_GROUPS = planner._row_group_verdicts
_MUTANTS = {
    "statistics that know no NaN": (Bounds, "read", _without_nan),
    "only the first branch of OR": (column_stats, "prune_predicate", _first_branch),
    "the first segment is always pruned": (
        column_stats,
        "prune_predicate",
        _with_changed_result(_PRUNE, _first_lost),
    ),
    "a key lookup ignores one segment": (
        planner,
        "find",
        _with_changed_result(planner.find, lambda found: found[:-1]),
    ),
    "the last row group is left out": (
        planner,
        "_segments",
        _with_changed_result(planner._segments, _without_last_zone),
    ),
    "positions are off by one": (planner, "_by_key", _shifted),
    "row groups in the wrong order": (
        planner,
        "_row_group_verdicts",
        _with_changed_result(_GROUPS, _reversed_each),
    ),
    "row groups of another segment": (
        planner,
        "_row_group_verdicts",
        _with_changed_result(_GROUPS, _of_the_next),
    ),
    "a key lookup that sees dead rows only": (
        locate,
        "is_live",
        _with_changed_result(locate.is_live, np.logical_not),
    ),
}


@pytest.mark.parametrize("mutant", _MUTANTS)
def test_a_planner_that_loses_rows_is_detected(mutant, monkeypatch):
    table, rows = _clustered_table()
    with monkeypatch.context() as patch:
        patch.setattr(*_MUTANTS[mutant])
        assert _wrong_predicates(table, rows), f"not detected: {mutant}"
    count("mutants of the planner, all caught")
