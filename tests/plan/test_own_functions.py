"""User-defined predicate functions, indexes on several columns, verdicts on row groups: a pruned
scan returns the rows of a full scan.
"""

import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from counting import count
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reader import bag
from texts import columns

import mdt
from indexes import functions, predicate, registry
from indexes.base import InMemory, SkippingIndex, whole
from indexes.functions import Function
from indexes.predicate import And, Leaf, Or, call, matches, negate
from indexes.testing import predicates
from mdt.errors import Invalid, Unsupported
from mdt.filters.where import parse_where
from mdt.metadata import skipping_indexes
from mdt.plan import planner
from mdt.plan.table_index import TableIndex
from mdt.stores.storage import MemoryStorage
from mdt.write import summarize

SCHEMA = columns("id string, lat float64, lon float64, n int64")
INDEXES = ("grid(lat, lon)", "values(n)")


@functions.register(columns=2, arguments=(int,))
def sum_is(a, b, total):
    """Return an Arrow array that is true where the two columns add up to ``total``, and null where
    a value is null.
    """
    return pc.equal(pc.add(a.cast("float64"), b.cast("float64")), float(total))


class Values(SkippingIndex):
    """``values/1``, an index for these tests: the distinct values of each row group as JSON."""

    name = "values/1"
    row_groups = True

    def supports(self, type):
        return bool(pa.types.is_integer(type))

    def summarize(self, values):
        return json.dumps(values.unique().to_pylist()).encode()

    def can_test(self, leaf, type):
        return leaf.op == "is null" or (leaf.op == "=" and leaf.value is not None)

    def prune(self, summaries, leaf, type):
        values = [json.loads(bytes(whole(summary))) for summary in summaries]
        return np.array([leaf.value in some for some in values], np.bool_)


@pytest.fixture(autouse=True)
def _register_values_index(monkeypatch):
    registry.names()
    monkeypatch.setitem(registry._SHARED._skipping, Values.name, Values)


def _rows(numbers, south=50.0):
    """Return rows whose latitude rises from ``south`` in steps of 5, modulo 9. Every seventh row
    has no latitude.
    """
    lat = [
        None if i % 7 == 6 else math.nan if i % 11 == 10 else south + (i * 5) % 9 for i in numbers
    ]
    lon = [None if i % 13 == 12 else 10.0 + i % 3 for i in numbers]
    n = [None if i % 5 == 4 else (i * 7) % 10 for i in numbers]
    return pa.table([[f"k{i:03}" for i in numbers], lat, lon, n], schema=SCHEMA)


def _table(indexes=INDEXES, **more):
    """Return a table (five files of three row groups, a log file, deleted rows) and its rows."""
    options = {"mdt.row.group.rows": 3, "mdt.small.file.bytes": 0} | more
    table = mdt.create(
        MemoryStorage(), SCHEMA, ["id"], indexes=indexes, options=options, key_index="exact"
    )
    parts = [_rows(range(9 * k, 9 * k + 9), 20.0 + 12 * k) for k in range(5)]
    for part in parts:
        table.bulk_insert(part)
    newer = _rows(range(40, 48), -60.0)
    table.upsert(newer)
    table.delete({"id": ["k003", "k041"]})
    live_rows = {row["id"]: row for row in pa.concat_tables([*parts, newer]).to_pylist()}
    for deleted_id in ("k003", "k041"):
        del live_rows[deleted_id]
    return table, pa.Table.from_pylist(list(live_rows.values()), schema=SCHEMA)


def _calls():
    places = [
        (20.0, 10.0, 100.0),
        (25.0, 11.0, 300.0),
        (60.0, 12.0, 900.0),
        (-58.0, 11.0, 500.0),
        (0.0, 0.0, 50.0),
        (None, 1.0, 2.0),
    ]
    return [
        *(call("within_km", ("lat", "lon"), place) for place in places),
        call("within_km", ("lon", "lat"), (11.0, 25.0, 500.0)),
        call("sum_is", ("n", "n"), (8,)),
        call("sum_is", ("lat", "lon"), (33,)),
    ]


def _predicates():
    four, no_n = Leaf("n", "=", 4), Leaf("n", "is null")
    for function_call in _calls():
        yield from (
            function_call,
            negate(function_call),
            And((function_call, four)),
            Or((function_call, four)),
            And((negate(function_call), no_n)),
        )
        yield negate(And((function_call, Leaf("n", "<", 5))))
        yield And(
            (
                Or((function_call, Leaf("lat", "is null"))),
                Or((negate(function_call), Leaf("id", "=", "k020"))),
            )
        )
    yield from (Leaf("n", "=", value) for value in range(11))
    yield from (no_n, And((four, Leaf("lat", ">", 30.0))), Or((four, Leaf("n", "=", 6))))
    first_call, second_call, *_ = _calls()
    id_list = Leaf("id", "in", ("k000", "k002", "k017", "k044"))
    yield from (
        And((first_call, second_call)),
        Or((first_call, second_call)),
        And((first_call, id_list)),
    )


def _scan_with(table, test):
    scan = table.scan()
    scan.predicate = test
    return scan


def _expected(rows):
    return [(test, bag(rows.filter(matches(test, rows)))) for test in _predicates()]


def _tests_with_wrong_rows(table, expected):
    return [test for test, rows in expected if bag(_scan_with(table, test).to_arrow()) != rows]


def _note(table, where, index):
    notes = table.scan(where).explain().indexes
    return next(note for note in notes if note.index.startswith(index))


@pytest.mark.parametrize(
    "indexes", [(), INDEXES, (*INDEXES, "bitmap(n)", "bitmap(lat)")], ids=["none", "two", "four"]
)
def test_pruned_scans_with_functions_return_the_right_rows_and_consistent_counts(indexes):
    table, rows = _table(indexes)
    assert _tests_with_wrong_rows(table, _expected(rows)) == []
    assert table.check().ok
    for test in _predicates():
        explanation = _scan_with(table, test).explain()
        assert 0 <= explanation.files_read <= explanation.files_total
        pruned = explanation.row_groups_total - explanation.row_groups_read
        assert pruned >= 0
        for note in explanation.indexes:
            assert note.used or not note.pruned + note.row_groups
            assert note.row_groups <= pruned
        count(
            "filters with functions of one's own, pruned scan compared with the filtered full scan"
        )


@given(data=st.data())
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
def test_a_pruned_scan_with_random_calls_returns_the_rows_of_a_full_scan(data):
    table, rows = _WORLDS.setdefault("one", _table((*INDEXES, "bitmap(n)")))
    place = st.tuples(st.floats(-90, 90), st.floats(0, 20), st.floats(0, 3000))
    within = place.map(lambda at: call("within_km", ("lat", "lon"), at))
    for _ in range(4):
        pair = data.draw(within | st.sampled_from(_calls())), data.draw(predicates(SCHEMA, rows))
        operator = data.draw(st.sampled_from((And, Or)))
        test = operator(pair if data.draw(st.booleans()) else pair[::-1])
        test = negate(test) if data.draw(st.booleans()) else test
        scan = _scan_with(table, test)
        expected = bag(rows.filter(matches(test, rows)))
        assert bag(scan.to_arrow()) == expected, f"{test}\n{scan.explain()}"
        count(
            "filters with functions of one's own, pruned scan compared with the filtered full scan"
        )


_WORLDS = {}


def test_row_groups_that_an_index_proves_empty_are_skipped_and_counted():
    table, _ = _table()
    near = "within_km(lat, lon, 20, 10, 100)"
    explanation, note = table.scan(near).explain(), _note(table, near, "grid")
    assert (explanation.files_read, explanation.row_groups_read, explanation.rows_read) == (1, 1, 3)
    assert note.used and note.row_groups == 2 and "and 2 row groups" in str(explanation)
    explanation = table.scan("n = 1 and lat > 0").explain()
    assert explanation.row_groups_read < explanation.row_groups_total - 8
    assert _note(table, "n = 1 and lat > 0", "values").row_groups >= 2


@pytest.mark.parametrize(("rows_of_a_group", "parts"), [(1024, 1), (3, 3)])
def test_a_summary_has_a_part_for_each_row_group(rows_of_a_group, parts):
    options = {"mdt.row.group.rows": rows_of_a_group}
    table = mdt.create(MemoryStorage(), SCHEMA, ["id"], indexes=["values(n)"], options=options)
    table.bulk_insert(_rows(range(9)))
    (summary,) = table.snapshot().index_summaries("values/1(n)", np.array([0]))
    row_group_parts = skipping_indexes.Parts(InMemory(summary)).within(0, 9, parts)
    assert all(bytes(whole(part)).startswith(b"[") for part in row_group_parts)


def test_a_summary_of_an_unknown_kind_is_reported_as_damaged_and_changes_no_rows(monkeypatch):
    table, rows = _table()
    monkeypatch.setattr(skipping_indexes, "PARTS_KIND", b"parts/2")
    assert _tests_with_wrong_rows(mdt.open(table.storage), _expected(rows)) == []
    assert _note(mdt.open(table.storage), "n = 3", "values").reason == "damaged"


def test_a_failing_index_changes_no_rows_and_is_reported_as_damaged(monkeypatch):
    table, rows = _table()

    def raise_key_error(*_):
        raise KeyError("something")

    for method in ("prune", "can_test"):
        with monkeypatch.context() as patch:
            patch.setattr(Values, method, raise_key_error)
            assert _tests_with_wrong_rows(table, _expected(rows)) == []
    monkeypatch.setattr(Values, "prune", lambda *_: np.zeros(1, np.bool_))
    assert table.scan("n = 3").count() == rows["n"].to_pylist().count(3)
    note = _note(table, "n = 3", "values")
    assert note.reason == "damaged" and "verdicts" in note.detail


def test_an_index_on_two_columns_is_built_reported_and_dropped_like_others():
    table, rows = _table(())
    grid = "grid(lat, lon, cell='0.5')"
    assert table.create_index(grid, mode="async").summaries == 0
    snapshot = table.snapshot()
    shards = snapshot.shards.of_files(np.flatnonzero(snapshot.has_rows))
    assert table.build_indexes("lat, lon").summaries == len(shards)
    (row,) = table.indexes().to_pylist()
    assert (row["index"], row["column"], row["coverage"]) == (grid, "lat, lon", 100.0)
    assert _tests_with_wrong_rows(table, _expected(rows)) == []
    table.compact()
    assert table.check().ok and table.indexes()["coverage"].to_pylist() == [100.0]
    table.rebuild_index(grid)
    table.warm(["lat"])
    table = mdt.open(table.storage, {"mdt.usage.counts": True})
    for _ in range(12):
        table.scan("within_km(lat, lon, 20, 10, 100)").to_arrow()
    assert not [
        advice for advice in table.advise() if "grid" in advice.index or "lat" in advice.index
    ]
    table.drop_index("lat, lon")
    assert not table.indexes().num_rows


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("grid(lat)", "does not support"),
        ("grid(lat, id)", "does not support"),
        ("grid(lat, nowhere)", "no column 'nowhere'"),
        ("bitmap(lat, lon)", "create bitmap(lat) and bitmap(lon)"),
        ("grid(lat, lat)", "another column"),
        ("grid(lat, lon, n)", "does not support"),
    ],
)
def test_columns_that_an_index_does_not_support_are_refused(spec, told):
    with pytest.raises(Invalid) as error:
        _table([spec])
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("within_km(lat, lon, 1)", "takes 3 values"),
        ("within_km(lat)", "takes 2 columns"),
        ("within_km(lat, lon, 'x', 1, 2)", "'x' is not of type float"),
        ("within_km(lat, lon, true, 1, 2)", "True is not of type float"),
        ("within_km(id, lon, 1, 2, 3)", "failed on columns of string, double"),
        ("within_km(nowhere, lon, 1, 2, 3)", "no column 'nowhere'"),
        ("sum_is(n, n, 1.5)", "is not of type int"),
    ],
)
def test_an_invalid_call_is_refused_with_its_position(where, told):
    with pytest.raises(Invalid) as error:
        parse_where(f"n = 1 and {where}", SCHEMA)
    assert told in str(error.value) and "^" in str(error.value)


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("nothing(lat)", "unknown function 'nothing'"),
        ("within_km(1, 2, 3, 4, 5)", "not supported"),
        ("within_km(lat, lon, lat, 1, 2)", "not supported"),
        ("within_km(lat + 1, lon, 1, 2, 3)", "not supported"),
    ],
)
def test_a_call_with_other_than_columns_followed_by_literals_is_not_supported(where, told):
    with pytest.raises(Unsupported) as error:
        parse_where(where, SCHEMA)
    assert told in str(error.value)


@functions.register(columns=1)
def picky(n):
    if len(n) and pc.max(n).as_py() is not None:
        raise RuntimeError("not today")
    return np.zeros(len(n), np.bool_)


@functions.register(columns=1)
def doubled(n):
    return pc.add(n, n)


@functions.register(columns=1)
def listed(n):
    return pa.array([value == 1 for value in n.to_pylist()])


def test_the_return_type_of_a_function_is_checked_without_rows():
    with pytest.raises(Invalid, match=r"doubled returned int64\[0\] for 0 rows"):
        parse_where("doubled(n)", SCHEMA)
    parse_where("listed(n)", SCHEMA)  # an empty list has no type


@functions.register(columns=1)
def shortened(n):
    return np.zeros(max(0, len(n) - 1), np.bool_)


@pytest.mark.parametrize(
    ("where", "told"),
    [("picky(n)", "RuntimeError: not today"), ("shortened(n)", r"it must return bool\[")],
)
def test_a_function_that_fails_on_some_rows_raises_invalid_with_the_cause(where, told):
    with pytest.raises(Invalid, match=told):
        _table(())[0].scan(where).to_arrow()


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        *(
            ({"name": name}, "not a valid function name")
            for name in ("match", "Within", "a b", "", "1st")
        ),
        ({"name": "within_km"}, "belongs to example_geo.within_km"),
        ({"name": "fine", "columns": 0}, "at least one column"),
        ({"name": "fine", "arguments": (list,)}, "at least one column"),
    ],
)
def test_reserved_and_taken_function_names_and_functions_without_columns_are_refused(declared, why):
    with pytest.raises(ValueError, match=why):
        functions.register(**({"columns": 1} | declared))(lambda column: column)


# Mutants: each loses rows or returns too many. The fixed filters must detect every one.


def _reverse_row_groups(original):
    def segments(scan_work):
        scan_work.row_groups = {
            row: row_groups[::-1] for row, row_groups in scan_work.row_groups.items()
        }
        return original(scan_work)

    return segments


def _swap_row_groups_of_files(original):
    def segments(scan_work):
        rows, row_groups = list(scan_work.row_groups), list(scan_work.row_groups.values())
        others = zip(rows, row_groups, [*row_groups[1:], *row_groups[:1]], strict=True)
        scan_work.row_groups = {row: np.resize(other, len(own)) for row, own, other in others}
        return original(scan_work)

    return segments


def _shift_row_groups_by_a_row(original):
    return lambda index, table, *rest: original(
        index, pa.concat_tables([table.slice(1), table.slice(0, 1)]), *rest
    )


def _swap_latitude_and_longitude(original):
    swapped = {"lat": "lon", "lon": "lat"}

    def values_of(table, columns, index):
        column_values = original(table, [swapped.get(column, column) for column in columns], index)
        if not index.several_columns:
            return column_values
        return pa.StructArray.from_arrays(column_values.flatten(), list(columns))

    return values_of


MUTANTS = {
    "row groups in the wrong order": (planner, "_segments", _reverse_row_groups),
    "row groups of another file": (planner, "_segments", _swap_row_groups_of_files),
    "summaries of row groups in the wrong order": (
        skipping_indexes.Parts,
        "within",
        lambda original: lambda *args: original(*args)[::-1],
    ),
    "row groups that begin a row too late": (summarize, "parts_of", _shift_row_groups_by_a_row),
    "latitude for longitude": (skipping_indexes, "values_of", _swap_latitude_and_longitude),
    "null is false to a function": (
        Function,
        "evaluate",
        lambda original: lambda *args: original(*args).fill_null(False),
    ),
    "an index is asked about functions that it does not know": (
        TableIndex,
        "_forms",
        lambda original: lambda self, leaf: [leaf] if leaf.column in self.columns else [],
    ),
    "NOT of a function is the function": (
        predicate.Call,
        "is_negated",
        lambda original: property(lambda self: False),
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_every_mutant_is_detected_by_the_fixed_filters(mutant, monkeypatch):
    place, name, change = MUTANTS[mutant]
    expected = _expected(_table(())[1])
    with monkeypatch.context() as patch:
        patch.setattr(place, name, change(getattr(place, name)))
        wrong = _tests_with_wrong_rows(_table()[0], expected)
    assert wrong, f"no filter detects the mutant: {mutant}"
    count("mutants of functions, row groups and several columns, all caught")
