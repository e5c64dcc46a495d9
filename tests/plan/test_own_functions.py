"""Predicate functions of one's own, indexes on several columns, verdicts on row groups: a pruned
scan is a full scan.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from counting import count
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reader import bag

import mdt
from indexes import functions, predicate, registry
from indexes.base import InMemory, SkippingIndex, Summary, whole
from indexes.functions import Function
from indexes.predicate import And, Call, Leaf, Or, Predicate, call, matches, negate
from indexes.testing import predicates
from mdt.errors import Invalid, Unsupported
from mdt.metadata import skipping_indexes
from mdt.plan import planner
from mdt.plan.table_index import TableIndex
from mdt.stores.storage import MemoryStorage

SCHEMA = pa.schema(
    [("id", pa.string()), ("lat", pa.float64()), ("lon", pa.float64()), ("n", pa.int64())]
)
INDEXES = ("grid(lat, lon)", "values(n)")


@functions.register(columns=2, arguments=(int,))
def sum_is(a: pa.Array, b: pa.Array, total: int) -> Any:
    """Return which sums of two columns are ``total``; answers by Arrow, and null where it does not
    know.
    """
    return pc.equal(pc.add(a.cast(pa.float64()), b.cast(pa.float64())), float(total))


class Values(SkippingIndex):
    """``values/1``, for these tests: the distinct values of each row group as JSON."""

    name = "values/1"
    row_groups = True

    def supports(self, type: pa.DataType) -> bool:
        return bool(pa.types.is_integer(type))

    def summarize(self, values: pa.Array) -> bytes:
        return json.dumps(values.unique().to_pylist()).encode()

    def can_test(self, leaf: Leaf, type: pa.DataType) -> bool:
        return leaf.op in ("=", "is null")

    def prune(self, summaries: Sequence[Summary], leaf: Leaf, type: pa.DataType) -> Any:
        kept = [json.loads(bytes(whole(summary))) for summary in summaries]
        wanted = leaf.value if leaf.op == "=" else None
        return np.array(
            [wanted in values and (leaf.op != "=" or wanted is not None) for values in kept],
            np.bool_,
        )


@pytest.fixture(autouse=True)
def _offered(monkeypatch: pytest.MonkeyPatch) -> None:
    registry.names()
    monkeypatch.setitem(registry._SHARED._skipping, Values.name, Values)


def _rows(numbers: Sequence[int], south: float = 50.0) -> pa.Table:
    """Return rows from south to north, and back to the south at the end of nine; every seventh has
    no latitude.
    """
    lat = [
        None if i % 7 == 6 else math.nan if i % 11 == 10 else south + (i * 5) % 9 for i in numbers
    ]
    lon = [None if i % 13 == 12 else 10.0 + i % 3 for i in numbers]
    n = [None if i % 5 == 4 else (i * 7) % 10 for i in numbers]
    return pa.table([[f"k{i:03}" for i in numbers], lat, lon, n], schema=SCHEMA)


def _table(indexes: Sequence[str] = INDEXES, **more: Any) -> tuple[mdt.Table, pa.Table]:
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
    table.delete(pa.table({"id": ["k003", "k041"]}))
    last = {
        row["id"]: row
        for row in pa.concat_tables([*parts, late]).to_pylist()
        if row["id"] not in ("k003", "k041")
    }
    return table, pa.Table.from_pylist(list(last.values()), schema=SCHEMA)


def _calls() -> list[Call]:
    places = [
        (20.0, 10.0, 100.0),
        (25.0, 11.0, 300.0),
        (60.0, 12.0, 900.0),
        (-58.0, 11.0, 500.0),
        (0.0, 0.0, 50.0),
        (None, 1.0, 2.0),
    ]
    found = [call("within_km", ("lat", "lon"), place) for place in places]
    return [
        *found,
        call("within_km", ("lon", "lat"), (11.0, 25.0, 500.0)),
        call("sum_is", ("n", "n"), (8,)),
        call("sum_is", ("lat", "lon"), (33,)),
    ]


def _tests() -> Iterator[Predicate]:
    here, there, *_ = _calls()
    for one in _calls():
        yield from (
            one,
            negate(one),
            And((one, Leaf("n", "=", 4))),
            Or((one, Leaf("n", "=", 4))),
            And((negate(one), Leaf("n", "is null"))),
        )
        yield negate(And((one, Leaf("n", "<", 5))))
        yield And((Or((one, Leaf("lat", "is null"))), Or((negate(one), Leaf("id", "=", "k020")))))
    yield from (Leaf("n", "=", value) for value in range(11))
    yield from (
        Leaf("n", "is null"),
        And((Leaf("n", "=", 4), Leaf("lat", ">", 30.0))),
        Or((Leaf("n", "=", 4), Leaf("n", "=", 6))),
    )
    yield from (
        And((here, there)),
        Or((here, there)),
        And((here, Leaf("id", "in", ("k000", "k002", "k017", "k044")))),
    )


def _scan(table: mdt.Table, asked: Predicate) -> Any:
    scan = table.scan()
    scan.predicate = asked
    return scan


def _wrong_on(
    table: mdt.Table, rows: pa.Table, truth: Callable[[Predicate, pa.Table], Any] = matches
) -> list[Predicate]:
    return [
        t for t in _tests() if bag(_scan(table, t).to_arrow()) != bag(rows.filter(truth(t, rows)))
    ]


def test_scans_with_functions_and_row_group_verdicts_are_right_and_their_numbers_add_up() -> None:
    for indexes in ((), INDEXES, (*INDEXES, "bitmap(n)", "bitmap(lat)")):
        table, rows = _table(indexes)
        assert _wrong_on(table, rows) == []
        assert table.check().ok
        for asked in _tests():
            told = _scan(table, asked).explain()
            assert (
                0 <= told.files_read <= told.files_total
                and told.row_groups_read <= told.row_groups_total
            )
            pruned = told.row_groups_total - told.row_groups_read
            for note in told.indexes:
                assert note.used or not note.pruned + note.row_groups
                assert note.row_groups <= pruned
            count(
                "filters with functions of one's own, pruned scan compared with the filtered full"
                " scan"
            )


@given(data=st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_pruned_scan_with_random_calls_is_a_full_scan(data: st.DataObject) -> None:
    table, rows = _WORLDS.setdefault("one", _table((*INDEXES, "bitmap(n)")))
    km = st.floats(0, 3000)
    within = st.builds(
        lambda *at: call("within_km", ("lat", "lon"), at), st.floats(-90, 90), st.floats(0, 20), km
    )
    for _ in range(4):
        one, other = (
            data.draw(within | st.sampled_from(_calls())),
            data.draw(predicates(SCHEMA, rows)),
        )
        kind = data.draw(st.sampled_from((And, Or)))
        asked = kind((one, other) if data.draw(st.booleans()) else (other, one))
        asked = negate(asked) if data.draw(st.booleans()) else asked
        scan = _scan(table, asked)
        assert bag(scan.to_arrow()) == bag(rows.filter(matches(asked, rows))), (
            f"{asked}\n{scan.explain()}"
        )
        count(
            "filters with functions of one's own, pruned scan compared with the filtered full scan"
        )


_WORLDS: dict[str, tuple[mdt.Table, pa.Table]] = {}


def test_row_groups_that_an_index_proves_empty_are_not_read_and_counted() -> None:
    table, _ = _table()
    told = table.scan("within_km(lat, lon, 20, 10, 100)").explain()
    assert (told.files_read, told.row_groups_read, told.rows_read) == (1, 1, 3)
    note = next(n for n in told.indexes if n.index.startswith("grid"))
    assert note.used and note.row_groups == 2 and "and 2 row groups" in str(told)
    told = table.scan("n = 1 and lat > 0").explain()
    assert told.row_groups_read < told.row_groups_total - 8
    note = next(n for n in told.indexes if n.index.startswith("values"))
    assert note.row_groups >= 2


def test_a_file_has_a_part_for_each_row_group() -> None:
    for rows_of_a_group, parts in ((1024, 1), (3, 3)):
        table = mdt.create(
            MemoryStorage(),
            SCHEMA,
            ["id"],
            indexes=["values(n)"],
            options={"mdt.row.group.rows": rows_of_a_group},
        )
        table.bulk_insert(_rows(range(9)))
        (summary,) = table.snapshot().index_summaries("values/1(n)", np.array([0]))
        assert isinstance(summary, bytes)
        found = skipping_indexes.Parts(InMemory(summary)).within(0, 9, parts)
        assert all(bytes(whole(part)).startswith(b"[") for part in found)


def test_a_container_of_other_row_groups_is_damage_that_costs_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table, rows = _table()
    monkeypatch.setattr(skipping_indexes, "PARTS_KIND", b"parts/2")
    assert _wrong_on(mdt.open(table.storage), rows) == []
    note = next(
        n
        for n in mdt.open(table.storage).scan("n = 3").explain().indexes
        if n.index.startswith("values")
    )
    assert note.reason == "damaged"


def test_an_index_that_fails_in_any_way_costs_time_and_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table, rows = _table()

    def broken(*_: Any) -> Any:
        raise KeyError("something")

    for method in ("prune", "can_test"):
        with monkeypatch.context() as patch:
            patch.setattr(Values, method, broken)
            assert _wrong_on(table, rows) == []
    monkeypatch.setattr(Values, "prune", lambda self, summaries, leaf, type: np.zeros(1, np.bool_))
    assert table.scan("n = 3").count() == rows.filter(pc.equal(rows["n"], 3)).num_rows
    note = next(n for n in table.scan("n = 3").explain().indexes if n.index.startswith("values"))
    assert note.reason == "damaged" and "verdicts" in note.detail


def test_an_index_on_two_columns_is_reported_dropped_and_built_like_others() -> None:
    table, rows = _table(())
    assert table.create_index("grid(lat, lon, cell='0.5')", mode="async").summaries == 0
    snapshot = table.snapshot()
    shards = snapshot.shards.of_files(np.flatnonzero(snapshot.has_rows))
    assert table.build_indexes("lat, lon").summaries == len(shards)
    (row,) = table.indexes().to_pylist()
    assert (row["index"], row["column"], row["coverage"]) == (
        "grid(lat, lon, cell='0.5')",
        "lat, lon",
        100.0,
    )
    assert _wrong_on(table, rows) == []
    table.compact()
    assert table.check().ok and table.indexes()["coverage"].to_pylist() == [100.0]
    table.rebuild_index("grid(lat, lon, cell='0.5')")
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
        ("grid(lat, lat)", "not named before"),
        ("grid(lat, lon, n)", "does not support"),
    ],
)
def test_columns_that_an_index_cannot_have_are_refused(spec: str, told: str) -> None:
    with pytest.raises(Invalid) as error:
        _table([spec])
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("within_km(lat, lon, 1)", "takes 3 values"),
        ("within_km(lat)", "takes 2 columns"),
        ("within_km(lat, lon, 'x', 1, 2)", "'x' is no float"),
        ("within_km(lat, lon, true, 1, 2)", "True is no float"),
        ("within_km(id, lon, 1, 2, 3)", "failed on columns of string, double"),
        ("within_km(nowhere, lon, 1, 2, 3)", "no column 'nowhere'"),
        ("sum_is(n, n, 1.5)", "is no int"),
    ],
)
def test_a_call_that_cannot_be_is_refused_with_its_place(where: str, told: str) -> None:
    table, _ = _table(())
    with pytest.raises(Invalid) as error:
        table.scan(f"n = 1 and {where}")
    assert told in str(error.value) and "^" in str(error.value)


def test_what_is_no_call_of_columns_then_literals_is_not_supported() -> None:
    table, _ = _table(())
    for where, told in (
        ("nothing(lat)", "no function is called 'nothing'"),
        ("within_km(1, 2, 3, 4, 5)", "not supported"),
        ("within_km(lat, lon, lat, 1, 2)", "not supported"),
        ("within_km(lat + 1, lon, 1, 2, 3)", "not supported"),
    ):
        with pytest.raises(Unsupported) as error:
            table.scan(where)
        assert told in str(error.value)


def test_a_function_that_fails_on_some_rows_is_named_in_an_error_of_ours() -> None:
    @functions.register(columns=1)
    def picky(n: pa.Array) -> Any:
        if len(n) and pc.max(n).as_py() is not None:
            raise RuntimeError("not today")
        return np.zeros(len(n), np.bool_)

    @functions.register(columns=1)
    def shortened(n: pa.Array) -> Any:
        return np.zeros(max(0, len(n) - 1), np.bool_)

    table, _ = _table(())
    for name, told in (
        ("picky", "RuntimeError: not today"),
        ("shortened", r"it must return bool\["),
    ):
        with pytest.raises(Invalid, match=told):
            table.scan(f"{name}(n)").to_arrow()


def test_names_that_filters_have_and_names_of_others_cannot_be_taken() -> None:
    for name in ("match", "Within", "a b", "", "1st"):
        with pytest.raises(ValueError, match="cannot be the name"):
            functions.register(columns=1, name=name)(lambda column: column)
    with pytest.raises(ValueError, match="belongs to example_geo.within_km"):
        functions.register(columns=1, name="within_km")(lambda column: column)
    for columns, arguments in ((0, ()), (1, (list,))):
        with pytest.raises(ValueError, match="at least one column"):
            functions.register(columns=columns, arguments=arguments, name="fine")(
                lambda column: column
            )


# Mutants: each loses rows, or finds too many; the fixed cases must tell every one from the true one


def _mutants() -> dict[str, Callable[[pytest.MonkeyPatch], None]]:
    segments, within, parts_of, values_of = (
        planner._segments,
        skipping_indexes.Parts.within,
        skipping_indexes.parts_of,
        skipping_indexes.values_of,
    )
    evaluate, swapped = Function.evaluate, {"lat": "lon", "lon": "lat"}

    def reversed_row_groups(work: Any) -> Any:
        work.row_groups = {row: left[::-1] for row, left in work.row_groups.items()}
        return segments(work)

    def row_groups_of_another(work: Any) -> Any:
        rows = list(work.row_groups)
        others = [work.row_groups[row] for row in [*rows[1:], *rows[:1]]]
        work.row_groups = {
            row: np.resize(left, len(work.row_groups[row]))
            for row, left in zip(rows, others, strict=True)
        }
        return segments(work)

    def shifted(
        index: SkippingIndex, table: pa.Table, columns: Sequence[str], groups: Sequence[int]
    ) -> Any:
        return parts_of(
            index, pa.concat_tables([table.slice(1), table.slice(0, 1)]), columns, groups
        )

    def other_way_round(table: pa.Table, columns: Sequence[str], index: SkippingIndex) -> Any:
        found = values_of(table, [swapped.get(column, column) for column in columns], index)
        return (
            pa.StructArray.from_arrays(found.flatten(), list(columns))
            if index.several_columns
            else found
        )

    def without_nulls(
        self: Function, columns: Sequence[pa.Array], arguments: Sequence[object]
    ) -> Any:
        return evaluate(self, columns, arguments).fill_null(False)

    def every_function(self: TableIndex, leaf: Leaf) -> list[Leaf]:
        return [leaf] if leaf.column in self.columns else []

    return {
        "row groups in the wrong order": lambda m: m.setattr(
            planner, "_segments", reversed_row_groups
        ),
        "row groups of another file": lambda m: m.setattr(
            planner, "_segments", row_groups_of_another
        ),
        "summaries of row groups in the wrong order": lambda m: m.setattr(
            skipping_indexes.Parts, "within", lambda self, *asked: within(self, *asked)[::-1]
        ),
        "row groups that begin a row too late": lambda m: m.setattr(
            "mdt.write.summarize.parts_of", shifted
        ),
        "latitude for longitude": lambda m: m.setattr(
            skipping_indexes, "values_of", other_way_round
        ),
        "null is false to a function": lambda m: m.setattr(Function, "evaluate", without_nulls),
        "an index is asked about functions that it does not know": lambda m: m.setattr(
            TableIndex, "_forms", every_function
        ),
        "NOT of a function is the function": lambda m: m.setattr(
            predicate.Call, "is_negated", property(lambda self: False)
        ),
    }


@pytest.mark.parametrize("mutant", list(_mutants()))
def test_a_mutant_that_loses_rows_is_caught(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        _mutants()[mutant](patch)
        table, rows = _table()
        wrong = _wrong_on(table, rows, _truth)
    assert wrong, f"nothing notices: {mutant}"
    count("mutants of functions, row groups and several columns, all caught")


def _truth(asked: Predicate, rows: pa.Table) -> Any:
    """Return which rows match, without the code under test: row by row, in SQL's three-valued
    logic.
    """
    return pa.array([_said(asked, row) is True for row in rows.to_pylist()], pa.bool_())


def _said(asked: Predicate, row: dict[str, Any]) -> bool | None:
    if isinstance(asked, Call):
        values = [row[name] for name in asked.columns]
        if None in values or None in asked.value:  # type: ignore[operator]  # a tuple
            return None
        run = functions.find(asked.op.removeprefix("not ")).run  # type: ignore[union-attr]
        said = bool(
            np.asarray(run(*[pa.array([v], pa.float64()) for v in values], *asked.value))[0]
        )  # type: ignore[misc]
        return said != asked.op.startswith("not ")
    if isinstance(asked, Leaf):
        found = matches(asked, pa.Table.from_pylist([row], schema=SCHEMA))[0].as_py()
        return bool(found)
    parts = [_said(part, row) is True for part in asked.children]  # type: ignore[union-attr]
    return all(parts) if isinstance(asked, And) else any(parts)


def test_the_reference_of_these_tests_agrees_with_ours() -> None:
    _, rows = _table(())
    for asked in _tests():
        assert (
            _truth(asked, rows).to_pylist() == matches(asked, rows).combine_chunks().to_pylist()
        ), asked
