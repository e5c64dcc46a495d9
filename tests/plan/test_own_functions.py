"""Predicate functions of one's own, indexes on several columns, verdicts on row groups: a pruned
scan is a full scan.
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
    """Return which sums of two columns are ``total``; answers by Arrow, and null where it does not
    know.
    """
    return pc.equal(pc.add(a.cast("float64"), b.cast("float64")), float(total))


class Values(SkippingIndex):
    """``values/1``, for these tests: the distinct values of each row group as JSON."""

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
def _offered(monkeypatch):
    registry.names()
    monkeypatch.setitem(registry._SHARED._skipping, Values.name, Values)


def _rows(numbers, south=50.0):
    """Return rows from south to north, and back to the south at the end of nine; every seventh has
    no latitude.
    """
    lat = [
        None if i % 7 == 6 else math.nan if i % 11 == 10 else south + (i * 5) % 9 for i in numbers
    ]
    lon = [None if i % 13 == 12 else 10.0 + i % 3 for i in numbers]
    n = [None if i % 5 == 4 else (i * 7) % 10 for i in numbers]
    return pa.table([[f"k{i:03}" for i in numbers], lat, lon, n], schema=SCHEMA)


def _table(indexes=INDEXES, **more):
    """Return a table of five files of three row groups, a log file, dead rows; and its rows."""
    options = {"mdt.row.group.rows": 3, "mdt.small.file.bytes": 0} | more
    table = mdt.create(
        MemoryStorage(), SCHEMA, ["id"], indexes=indexes, options=options, key_index="exact"
    )
    parts = [_rows(range(9 * k, 9 * k + 9), 20.0 + 12 * k) for k in range(5)]
    for part in parts:
        table.bulk_insert(part)
    late = _rows(range(40, 48), -60.0)
    table.upsert(late)
    table.delete({"id": ["k003", "k041"]})
    last = {row["id"]: row for row in pa.concat_tables([*parts, late]).to_pylist()}
    for gone in ("k003", "k041"):
        del last[gone]
    return table, pa.Table.from_pylist(list(last.values()), schema=SCHEMA)


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


def _tests():
    four, no_n = Leaf("n", "=", 4), Leaf("n", "is null")
    for one in _calls():
        yield from (one, negate(one), And((one, four)), Or((one, four)), And((negate(one), no_n)))
        yield negate(And((one, Leaf("n", "<", 5))))
        yield And((Or((one, Leaf("lat", "is null"))), Or((negate(one), Leaf("id", "=", "k020")))))
    yield from (Leaf("n", "=", value) for value in range(11))
    yield from (no_n, And((four, Leaf("lat", ">", 30.0))), Or((four, Leaf("n", "=", 6))))
    here, there, *_ = _calls()
    some = Leaf("id", "in", ("k000", "k002", "k017", "k044"))
    yield from (And((here, there)), Or((here, there)), And((here, some)))


def _scan(table, asked):
    scan = table.scan()
    scan.predicate = asked
    return scan


def _expected(rows):
    return [(asked, bag(rows.filter(matches(asked, rows)))) for asked in _tests()]


def _wrong_on(table, expected):
    return [asked for asked, found in expected if bag(_scan(table, asked).to_arrow()) != found]


def _note(table, where, index):
    notes = table.scan(where).explain().indexes
    return next(note for note in notes if note.index.startswith(index))


@pytest.mark.parametrize(
    "indexes", [(), INDEXES, (*INDEXES, "bitmap(n)", "bitmap(lat)")], ids=["none", "two", "four"]
)
def test_scans_with_functions_and_row_group_verdicts_are_right_and_their_numbers_add_up(indexes):
    table, rows = _table(indexes)
    assert _wrong_on(table, _expected(rows)) == []
    assert table.check().ok
    for asked in _tests():
        told = _scan(table, asked).explain()
        assert 0 <= told.files_read <= told.files_total
        pruned = told.row_groups_total - told.row_groups_read
        assert pruned >= 0
        for note in told.indexes:
            assert note.used or not note.pruned + note.row_groups
            assert note.row_groups <= pruned
        count(
            "filters with functions of one's own, pruned scan compared with the filtered full scan"
        )


@given(data=st.data())
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
def test_a_pruned_scan_with_random_calls_is_a_full_scan(data):
    table, rows = _WORLDS.setdefault("one", _table((*INDEXES, "bitmap(n)")))
    place = st.tuples(st.floats(-90, 90), st.floats(0, 20), st.floats(0, 3000))
    within = place.map(lambda at: call("within_km", ("lat", "lon"), at))
    for _ in range(4):
        pair = data.draw(within | st.sampled_from(_calls())), data.draw(predicates(SCHEMA, rows))
        kind = data.draw(st.sampled_from((And, Or)))
        asked = kind(pair if data.draw(st.booleans()) else pair[::-1])
        asked = negate(asked) if data.draw(st.booleans()) else asked
        scan = _scan(table, asked)
        expected = bag(rows.filter(matches(asked, rows)))
        assert bag(scan.to_arrow()) == expected, f"{asked}\n{scan.explain()}"
        count(
            "filters with functions of one's own, pruned scan compared with the filtered full scan"
        )


_WORLDS = {}


def test_row_groups_that_an_index_proves_empty_are_not_read_and_counted():
    table, _ = _table()
    near = "within_km(lat, lon, 20, 10, 100)"
    told, note = table.scan(near).explain(), _note(table, near, "grid")
    assert (told.files_read, told.row_groups_read, told.rows_read) == (1, 1, 3)
    assert note.used and note.row_groups == 2 and "and 2 row groups" in str(told)
    told = table.scan("n = 1 and lat > 0").explain()
    assert told.row_groups_read < told.row_groups_total - 8
    assert _note(table, "n = 1 and lat > 0", "values").row_groups >= 2


@pytest.mark.parametrize(("rows_of_a_group", "parts"), [(1024, 1), (3, 3)])
def test_a_file_has_a_part_for_each_row_group(rows_of_a_group, parts):
    options = {"mdt.row.group.rows": rows_of_a_group}
    table = mdt.create(MemoryStorage(), SCHEMA, ["id"], indexes=["values(n)"], options=options)
    table.bulk_insert(_rows(range(9)))
    (summary,) = table.snapshot().index_summaries("values/1(n)", np.array([0]))
    found = skipping_indexes.Parts(InMemory(summary)).within(0, 9, parts)
    assert all(bytes(whole(part)).startswith(b"[") for part in found)


def test_a_container_of_other_row_groups_is_damage_that_costs_time(monkeypatch):
    table, rows = _table()
    monkeypatch.setattr(skipping_indexes, "PARTS_KIND", b"parts/2")
    assert _wrong_on(mdt.open(table.storage), _expected(rows)) == []
    assert _note(mdt.open(table.storage), "n = 3", "values").reason == "damaged"


def test_an_index_that_fails_in_any_way_costs_time_and_is_named(monkeypatch):
    table, rows = _table()

    def broken(*_):
        raise KeyError("something")

    for method in ("prune", "can_test"):
        with monkeypatch.context() as patch:
            patch.setattr(Values, method, broken)
            assert _wrong_on(table, _expected(rows)) == []
    monkeypatch.setattr(Values, "prune", lambda *_: np.zeros(1, np.bool_))
    assert table.scan("n = 3").count() == rows["n"].to_pylist().count(3)
    note = _note(table, "n = 3", "values")
    assert note.reason == "damaged" and "verdicts" in note.detail


def test_an_index_on_two_columns_is_reported_dropped_and_built_like_others():
    table, rows = _table(())
    grid = "grid(lat, lon, cell='0.5')"
    assert table.create_index(grid, mode="async").summaries == 0
    snapshot = table.snapshot()
    shards = snapshot.shards.of_files(np.flatnonzero(snapshot.has_rows))
    assert table.build_indexes("lat, lon").summaries == len(shards)
    (row,) = table.indexes().to_pylist()
    assert (row["index"], row["column"], row["coverage"]) == (grid, "lat, lon", 100.0)
    assert _wrong_on(table, _expected(rows)) == []
    table.compact()
    assert table.check().ok and table.indexes()["coverage"].to_pylist() == [100.0]
    table.rebuild_index(grid)
    table.warm(["lat"])
    table = mdt.open(table.storage, {"mdt.usage.counts": True})
    for _ in range(12):
        table.scan("within_km(lat, lon, 20, 10, 100)").to_arrow()
    assert not [one for one in table.advise() if "grid" in one.index or "lat" in one.index]
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
def test_columns_that_an_index_cannot_have_are_refused(spec, told):
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
def test_a_call_that_cannot_be_is_refused_with_its_place(where, told):
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
def test_what_is_no_call_of_columns_then_literals_is_not_supported(where, told):
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


def test_the_type_of_a_functions_answer_is_checked_without_rows():
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
def test_a_function_that_fails_on_some_rows_is_named_in_an_error_of_ours(where, told):
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
def test_names_that_filters_or_others_have_and_functions_of_nothing_are_refused(declared, why):
    with pytest.raises(ValueError, match=why):
        functions.register(**({"columns": 1} | declared))(lambda column: column)


# Mutants: each loses rows, or finds too many; the fixed cases must tell every one from the true one


def _reversed_row_groups(right):
    def segments(work):
        work.row_groups = {row: left[::-1] for row, left in work.row_groups.items()}
        return right(work)

    return segments


def _row_groups_of_another(right):
    def segments(work):
        rows, left = list(work.row_groups), list(work.row_groups.values())
        others = zip(rows, left, [*left[1:], *left[:1]], strict=True)
        work.row_groups = {row: np.resize(other, len(own)) for row, own, other in others}
        return right(work)

    return segments


def _begins_a_row_too_late(right):
    return lambda index, table, *asked: right(
        index, pa.concat_tables([table.slice(1), table.slice(0, 1)]), *asked
    )


def _latitude_for_longitude(right):
    swapped = {"lat": "lon", "lon": "lat"}

    def values_of(table, columns, index):
        found = right(table, [swapped.get(column, column) for column in columns], index)
        if not index.several_columns:
            return found
        return pa.StructArray.from_arrays(found.flatten(), list(columns))

    return values_of


MUTANTS = {
    "row groups in the wrong order": (planner, "_segments", _reversed_row_groups),
    "row groups of another file": (planner, "_segments", _row_groups_of_another),
    "summaries of row groups in the wrong order": (
        skipping_indexes.Parts,
        "within",
        lambda right: lambda *asked: right(*asked)[::-1],
    ),
    "row groups that begin a row too late": (summarize, "parts_of", _begins_a_row_too_late),
    "latitude for longitude": (skipping_indexes, "values_of", _latitude_for_longitude),
    "null is false to a function": (
        Function,
        "evaluate",
        lambda right: lambda *asked: right(*asked).fill_null(False),
    ),
    "an index is asked about functions that it does not know": (
        TableIndex,
        "_forms",
        lambda right: lambda self, leaf: [leaf] if leaf.column in self.columns else [],
    ),
    "NOT of a function is the function": (
        predicate.Call,
        "is_negated",
        lambda right: property(lambda self: False),
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_that_loses_rows_is_caught(mutant, monkeypatch):
    place, name, change = MUTANTS[mutant]
    expected = _expected(_table(())[1])
    with monkeypatch.context() as patch:
        patch.setattr(place, name, change(getattr(place, name)))
        wrong = _wrong_on(_table()[0], expected)
    assert wrong, f"nothing notices: {mutant}"
    count("mutants of functions, row groups and several columns, all caught")
