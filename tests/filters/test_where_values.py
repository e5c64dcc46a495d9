"""Filters that compare computed values: the rows they match, and their use by tables."""

import pickle
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

import mdt
from indexes.predicate import Leaf, columns, matches, negate
from mdt.errors import Invalid, Unsupported
from mdt.filters.comparison import Comparison
from mdt.filters.expression import parse_expression, with_fixed_time
from mdt.filters.where import parse_where

ROWS = pa.table(
    {
        "id": ["a", "b", "c", "d"],
        "i": pa.array([1, 2, None, 4], "int32"),
        "l": pa.array([1, 1, 3, 5], "int64"),
        "d": [0.5, float("nan"), 3.0, None],
        "t": ["Oslo", "rome", None, "ÅS"],
        "day": pa.array([date(2024, 1, 31), date(1969, 12, 31), None, date(2024, 2, 29)]),
        "at": pa.array(
            [datetime(2024, 1, 31, 12, 30, 1, tzinfo=UTC), None, datetime(1, 1, 1, tzinfo=UTC)]
            + [datetime(2024, 2, 29, tzinfo=UTC)],
            pa.timestamp("us", "UTC"),
        ),
        "flag": [True, False, None, True],
        "s": pa.array([{"x": 1}, {"x": 9}, None, {"x": None}], pa.struct({"x": "int32"})),
    }
)


def ids(where, params=None):
    predicate = parse_where(where, ROWS.schema, params)
    return "".join(ROWS.filter(matches(predicate, ROWS))["id"].to_pylist())


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("i = l", "a"),
        ("i <> l", "bd"),
        ("not i = l", "bd"),
        ("i < l or t = 'rome'", "bd"),
        ("i + 1 > l", "ab"),
        ("i <=> s.x", "ac"),
        ("i between l and 4", "ab"),
        ("i * 2 in (2, 8)", "ad"),
        ("i * 2 not in (2, 8)", "b"),
        ("upper(t) = 'ROME'", "b"),
        ("t ilike 'O%'", "a"),
        ("t not ilike 'o%'", "bd"),
        ("lower(t) like '%o%'", "ab"),
        ("t rlike '^[A-Z]'", "a"),
        ("regexp_like(t, 'o.e')", "b"),
        ("not regexp_like(t, 'o.e')", "ad"),
        ("ilike(t, 'ås')", "d"),
        ("if(flag, i, 0) > 1", "d"),
        ("case when flag then true else false end", "ad"),
        ("coalesce(i, 0) = 0", "c"),
        ("nullif(i, l) is null", "ac"),
        ("cast(i as string) = '1'", "a"),
        ("d > l", "b"),
        ("year(day) = 2024 and month(day) = 2", "d"),
        ("day < date'1970-01-01' + interval 1 day", "b"),
        ("day + interval '1' month = date'2024-02-29'", "a"),
        ("day = at", "d"),
        ("at > day", "a"),
        ("date_trunc('month', at) = timestamp'2024-02-01'", "d"),
        ("hour(at) = 12 and minute(at) = 30 and second(at) = 1", "a"),
        ("at < current_timestamp()", "acd"),
        ("day <= current_date", "abd"),
        ("t = concat('Os', 'lo')", "a"),
        ("i + :more > :most", "d"),
        ("round(d) = 1", "a"),
    ],
)
def test_a_filter_matches_the_same_rows_as_in_sql(where, expected):
    params = {"more": 2, "most": 5} if ":more" in where else None
    assert ids(where, params) == expected


def test_an_expression_without_columns_becomes_a_literal_that_indexes_can_use():
    schema = ROWS.schema
    assert parse_where("day >= date_add(date'2024-01-31', 1)", schema) == Leaf(
        "day", ">=", date(2024, 2, 1)
    )
    assert parse_where("i = 2 * 3 + 1", schema) == Leaf("i", "=", 7)
    assert parse_where("at < timestamp'2024-01-01' - interval 2 hours", schema) == Leaf(
        "at", "<", datetime(2023, 12, 31, 22)
    )


def test_a_comparison_has_its_columns_and_text_and_can_be_pickled():
    predicate = parse_where("i > 0 and (l + s.x) * 2 <= i", ROWS.schema)
    assert columns(predicate) == {"i", "l", "s.x"}
    compared = predicate.children[1]
    assert isinstance(compared, Comparison)
    assert compared.text == "(l + s.x) * 2 <= i"
    unpickled = pickle.loads(pickle.dumps(predicate))
    assert unpickled == predicate
    assert (
        matches(negate(unpickled), ROWS).to_pylist() == matches(negate(predicate), ROWS).to_pylist()
    )


@pytest.mark.parametrize(
    ("where", "kind", "why"),
    [
        ("i = t", Invalid, "int32 cannot be compared with string"),
        ("i + t > 1", Invalid, "does not support string"),
        ("t rlike '('", Invalid, "is not an RE2 regular expression"),
        ("t rlike '(?=a)'", Invalid, "is not an RE2 regular expression"),
        ("t rlike id", Invalid, "must be a constant"),
        ("i", Invalid, ""),
        ("i + 1", Invalid, "int32 cannot be compared with bool"),
        ("date_trunc('fortnight', at) = at", Invalid, "the unit 'fortnight'"),
        ("day + interval 1 fortnight > day", Invalid, "not a unit"),
        ("day + interval 'x' day > day", Invalid, "not a number"),
        ("day + interval 1 month 2 day > day", Invalid, "cannot combine"),
        ("i > 1 / 0", Invalid, "division by zero"),
        ("date'2024-01-01' + interval 300000 years > day", Invalid, "out of range"),
        ("date_add(date'2024-01-01', 2147483647) > day", Invalid, "has no value"),
        ("at + interval 9223372036854 seconds + interval 9223372036854 seconds > at", Invalid, ""),
        ("t rlike 'a{1000}{1000}'", Invalid, "is not an RE2 regular expression"),
        ("sum(i) > 1", Unsupported, "sum"),
        ("i = (select 1)", Unsupported, "SELECT"),
        ("substr(i, 1) = 'a'", Invalid, "substr takes text"),
        ("sqrt(t) > 1", Invalid, "sqrt takes numbers"),
    ],
)
def test_an_invalid_comparison_is_refused_before_rows_are_read(where, kind, why):
    with pytest.raises(kind) as caught:
        parse_where(where, ROWS.schema)
    assert why in str(caught.value)


def test_current_time_functions_become_literals_that_are_equal_in_all_tasks():
    text = with_fixed_time(
        "if(at < now(), current_timestamp, `now`) > current_date - interval 1 day", ["now"]
    )
    assert "now()" not in text and "current_timestamp" not in text and "current_date" not in text
    assert text.count("timestamp'20") == 2 and text.count("date'20") == 1 and "`now`" in text
    assert with_fixed_time("'now()' || t") == "'now()' || t"
    assert with_fixed_time("current_date = 1", ["current_date"]) == "current_date = 1"
    assert with_fixed_time("source.now > 'a") == "source.now > 'a"
    assert with_fixed_time("now()", at_us=1_000_001) == "timestamp'1970-01-01 00:00:01.000001'"
    long_text = "now() || " * 1_000_000
    assert with_fixed_time(long_text) is long_text


def test_scans_counts_updates_and_deletes_accept_computed_values(tmp_path):
    table = mdt.create(tmp_path / "t", ROWS.schema, key="id", indexes=["bitmap(t)"])
    table.upsert(ROWS)
    assert sorted(table.scan("i < l").to_arrow()["id"].to_pylist()) == ["d"]
    assert table.scan("i < l or i is null", columns=["t"]).to_arrow()["t"].to_pylist() == [
        None,
        "ÅS",
    ]
    assert table.scan("i < l and t = 'ÅS'").count() == 1
    assert table.scan("i >= l").count() == 2
    assert table.update_where({"d": "round(i / 3.0e0, 2)"}, "i > l").updated == 1
    assert table.get("b")["d"] == 0.67
    assert table.delete_where("i > l and upper(t) = 'ROME'").deleted == 1
    assert table.scan().count() == 3
    plan = str(table.scan("i < l").explain())
    assert "i < l" in plan


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("substr('Spark', 2, 2)", "pa"),
        ("substring('Spark', -3)", "ark"),
        ("substr('Spark', -9, 6)", "Sp"),
        ("replace('abcabc', 'b')", "acac"),
        ("round(2.675e0, 2)", 2.68),
        ("round(-2.5e0)", -3.0),
        ("round(12.345, 1)", Decimal("12.300")),
        ("round(15, -1)", 20),
        ("floor(-1.5e0)", -2),
        ("ceil(1.2e0)", 2),
        ("sign(-3)", -1.0),
        ("sqrt(16)", 4.0),
        ("power(2, 10)", 1024.0),
        ("date_trunc('week', date'2024-02-29')", datetime(2024, 2, 26, tzinfo=UTC)),
        ("date_add(date'2024-02-28', 2)", date(2024, 3, 1)),
        ("date_sub(date'2024-03-01', 1)", date(2024, 2, 29)),
        ("date'2024-03-31' - interval 1 month", date(2024, 2, 29)),
        ("timestamp'2024-03-31 10:00:00' + interval 1 year", datetime(2025, 3, 31, 10, tzinfo=UTC)),
        ("to_date('2024-2-9')", date(2024, 2, 9)),
        ("to_timestamp('2024-02-09 01:02:03')", datetime(2024, 2, 9, 1, 2, 3, tzinfo=UTC)),
        ("to_date(to_timestamp('1969-12-31 23:00:00'))", date(1969, 12, 31)),
        ("day(date'2024-02-29')", 29),
    ],
)
def test_functions_have_the_values_of_spark(text, expected):
    assert parse_expression(text, ROWS.schema)(ROWS).to_pylist() == [expected] * len(ROWS)
