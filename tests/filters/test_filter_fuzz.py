"""Random filters. Parsing never fails with an error other than Invalid or Unsupported, and accepted
filters have the meaning that sqlglot gives them.
"""

import math
import random
import re
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from counting import count
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlglot_filters import translate

from indexes.predicate import OPS, matches
from mdt.errors import Invalid, Unsupported
from mdt.filters import literals
from mdt.filters.tokens import NotSql, tokenize
from mdt.filters.where import parse_where

SCHEMA = pa.schema(
    {
        "a": "int64",
        "b": "int8",
        "s": "string",
        "flag": "bool",
        "d": "date32",
        "ts": pa.timestamp("us", "UTC"),
        "f": "float64",
        "f32": "float32",
        "price": pa.decimal128(10, 2),
        "raw": "binary",
        "l": pa.list_(pa.int64()),
        "st": pa.struct({"x": "int64", "y z": "string"}),
        "Fare Amount": "float64",
        "date": "date32",
        "fixed": pa.binary(3),
        "u": "uint64",
        "dict": pa.dictionary(pa.int8(), pa.string()),
    }
)
ROWS = SCHEMA.empty_table()
PIECES = re.findall(
    r"\S+",
    r"""
    a b s flag d ts f f32 price raw l st st.x `y z` st.`y z` `Fare Amount` date fixed u dict
    nothing and or not in is like between null true false ( ) ( ) , , = == != <> < <= > >= <=> + -
    * / % || && ! ~ ^ & | :: . : :p :q ? ; [ ] { } @ -> -- /* */ /*+ 1 -1 0 5 1.5 .5 5. 1e5 1e400
    1e-400 5L 5Y 300Y 5S 0.1F 0.1D 0.1BD 1e9BD 99999999999999999999 'x' '' '5' '1.5' '2024-02-29'
    '2024-02-29T12:00:00Z' 'true' '%' 'a\%' 'a\' "x" "it''s" r'\' x'00' x'0' x'zz' b'x'
    date'2024-02-29' date timestamp'2024-02-29' interval'1'day cast( try_cast( as int) bigint
    tinyint float double decimal decimal(10,2) decimal(99) string binary boolean match( contains(
    startswith( endswith( upper( int( date( case when then end exists select from escape rlike any
    all some distinct symmetric unknown
    """,
)
SETTINGS = settings(max_examples=settings().max_examples * 8)


def is_filter(where, params=None):
    """Parse a filter and evaluate it on no rows. Return True if it is valid, or False if it is
    refused with Invalid or Unsupported. Any other error fails the test.
    """
    try:
        predicate = parse_where(where, SCHEMA, params)
    except (Invalid, Unsupported) as error:
        str(error).encode("utf-8")
        assert "\x1b" not in str(error) and "\0" not in str(error)
        return False
    matches(predicate, ROWS)
    str(predicate)
    return True


@given(
    st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=14),
    st.sampled_from([" ", "", "\n"]),
)
@SETTINGS
@example(["a", "=", "1"], " ")
def test_fragments_of_sql_in_any_order_are_a_filter_or_refused(pieces, space):
    is_filter(space.join(pieces), {"p": 5})


@given(
    st.text(max_size=40)
    | st.text(alphabet="ab=<>() '\"`%,.1-+\n;*/\\:eELDF_x", max_size=60)
    | st.text(st.characters(codec=None), max_size=20)
)
@SETTINGS
def test_any_text_is_a_filter_or_refused(text):
    is_filter(text)
    for template in (
        "s = '{}'",
        's like "{}"',
        "a = {}",
        "a in ({}",
        "d = '{}'",
        "ts > '{}'",
        "price = cast('{}' as decimal(5,2))",
        "`{}` = 1",
        "a = 1 /*{}",
        "s=r'{}'",
    ):
        is_filter(template.format(text))


ODD = [
    object(),
    int,
    len,
    np.float32(0.1),
    np.int8(3),
    np.datetime64("NaT", "s"),
    np.datetime64(2**62, "s"),
    np.timedelta64(1, "s"),
    np.void(b"x"),
    np.array(5),
    np.array([[1]]),
    np.array(["x"]),
    np.array([None, 1], object),
    pa.scalar(1),
    pa.scalar([1]),
    pa.scalar(time(1)),
    pa.array([1, None]),
    pa.array([[1]]),
    pa.table({"a": [1]}),
    pa.scalar(2**62, pa.timestamp("s")),
    pa.scalar(1, pa.timestamp("us", "Nowhere/City")),
    range(3),
    iter([1]),
    memoryview(b"x"),
    SCHEMA,
    10**4000,
    10**5000,
    Decimal("1e999999"),
    Decimal("-1e-999999"),
    pa.scalar(None),
    pa.nulls(2),
    datetime.min,
    date.max,
    timedelta.max,
    10**400,
    -(2**63) - 1,
]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.decimals()
    | st.text(st.characters(codec=None))
    | st.binary()
    | st.datetimes(timezones=st.none() | st.timezones())
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.uuids()
    | st.complex_numbers()
    | st.fractions()
    | st.integers(0, len(ODD) - 1).map(lambda n: ODD[n]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3), inner, max_size=2)
        | st.frozensets(st.integers(), max_size=3)
    ),
    max_leaves=4,
)
COLUMN_NAMES = st.sampled_from([*SCHEMA.names, "st.x", "st.y z", "nothing", "a.b", ""]) | st.text(
    st.characters(codec=None), max_size=3
)


@given(COLUMN_NAMES, st.sampled_from(sorted(OPS)) | st.text(max_size=3) | VALUES, VALUES)
@SETTINGS
def test_any_value_in_a_list_of_tests_or_a_parameter_is_accepted_or_refused(column, op, value):
    is_filter([(column, op, value)])
    for where in (
        "a = :p",
        "s = :p",
        "ts < :p",
        "raw in :p",
        "price in (:p, 1)",
        "match(s, :p)",
        "f between :p and :p",
        "fixed = :p",
        "st.x in :p",
        "s like :p",
        "flag",
    ):
        is_filter(where, {"p": value})


@given(VALUES | st.lists(VALUES, max_size=3), VALUES)
@SETTINGS
def test_any_object_in_place_of_a_filter_is_accepted_or_refused(where, params):
    is_filter(where)
    is_filter("a = 1", params)


@given(st.text())
@SETTINGS
def test_a_quoted_string_is_parsed_to_its_text(text):
    escaped = text.replace("\\", "\\\\")
    doubled, backslashed = escaped.replace("'", "''"), escaped.replace('"', '\\"')
    for quoted in (f"'{doubled}'", f'"{backslashed}"'):
        assert [token.text for token in tokenize(quoted)] == [text, ""]


@given(st.text(alphabet="ab'\"\\`(/*)-1.eL \n", max_size=30))
@SETTINGS
def test_offsets_of_tokens_ascend_and_the_last_is_the_end_of_the_text(text):
    try:
        offsets = [token.offset for token in tokenize(text)]
    except NotSql as error:
        assert 0 <= error.offset < len(text)
        return
    assert offsets == sorted(set(offsets)) and offsets[-1] == len(text)


@given(st.decimals(-(10**12), 10**12, places=12), st.integers(-60, 60))
@SETTINGS
def test_a_float_literal_is_the_nearest_float32(value, exponent):
    text = f"{value:f}e{exponent}"
    value_of_literal = literals.cast(text, "float")
    if math.isinf(value_of_literal):
        assert abs(float(text)) > 3.4e38
        return
    exact, nearest = Fraction(text), np.float32(value_of_literal)
    assert float(nearest) == value_of_literal
    for direction in (-np.inf, np.inf):
        neighbour = np.nextafter(nearest, np.float32(direction))
        if np.isfinite(neighbour):
            assert abs(Fraction(float(neighbour)) - exact) >= abs(
                Fraction(value_of_literal) - exact
            )


def test_a_float_literal_is_rounded_only_once():
    """The nearest double of this literal is exactly between two float32 values. Rounding it again
    would give the wrong one.
    """
    middle = "1.000000059604644775390625"
    above = float(np.nextafter(np.float32(1), np.float32(2)))
    assert literals.cast(middle + "0" * 29 + "1", "float") == above
    assert literals.cast(middle, "float") == literals.cast(middle[:-1] + "4", "float") == 1.0


# Random filters of plain literals, parsed by mdt and by sqlglot

LITERALS = {
    "a": ["1", "-1", "0", "5L", "1.5", "2e3", "(7)", "- 3", "null", "12345678901234567890"],
    "s": ["'x'", "''", "'a%'", "'5'", '"q"', "null", "'é'"],
    "f": ["1.5", "1e-3", "-2", "0.1D", "null", "5."],
    "d": ["date '2024-02-29'", "null", "DATE'2020-01-01'"],
    "price": ["1.50", "2", "-0.5", "null"],
    "flag": ["true", "false", "null"],
    "st.x": ["1", "-2"],
    "b": ["3", "null"],
}
LIKES = ["'a%'", "'%b'", "'_'", "'a'", "''"]


def random_test(rng):
    column, pick = rng.choice(list(LITERALS)), rng.choice
    quoted = "`" + column.replace(".", "`.`") + "`"
    name, maybe_not = pick([column, column.upper(), f"({column})", quoted]), pick(["", "not "])

    def literal():
        return pick(LITERALS[column])

    if column == "s" and rng.random() < 0.4:
        function = pick(["startswith", "endswith", "contains", "CONTAINS"])
        return pick([f"{name} {maybe_not}like {pick(LIKES)}", f"{function}({name}, {pick(LIKES)})"])
    if column == "flag" and rng.random() < 0.4:
        return pick([name, f"{name} is true", f"{name} is not false", f"{name} IS FALSE"])
    op = pick(["=", "==", "!=", "<>", "<", "<=", ">", ">=", "<=>"])
    literals_text = ", ".join(literal() for _ in range(rng.randint(1, 4)))
    return pick(
        [
            f"{name} {op} {literal()}",
            f"{literal()} {op} {name}",
            f"{name} {maybe_not}in ({literals_text})",
            f"{name} {maybe_not}between {literal()} and {literal()}",
            f"{name} is {maybe_not}null",
            f"{name} is {maybe_not}distinct from {literal()}",
            pick(["true", "false", "null"]),
        ]
    )


def random_filter(rng, depth):
    kind = rng.random()
    if depth == 0 or kind < 0.3:
        return random_test(rng)
    if kind < 0.37:
        return f"not {random_test(rng)}"
    if kind < 0.6:
        return f"{rng.choice(['not ', 'NOT ', '!', ''])}({random_filter(rng, depth - 1)})"
    word = rng.choice([" and ", " or ", " AND ", "\nOr\t", " /* , */ and ", " or -- x\n "])
    return word.join(random_filter(rng, depth - 1) for _ in range(rng.randint(2, 3)))


def assert_sqlglot_agrees(seed):
    where = random_filter(random.Random(seed), 3)
    try:
        predicate = parse_where(where, SCHEMA)
    except Invalid as error:  # sqlglot does not know the types of columns
        assert "cannot be compared" in str(error), f"seed {seed}: {where}\n{error}"
        return
    assert predicate == translate(where), f"seed {seed}: {where}"
    count("filters read as sqlglot reads them")


@pytest.mark.parametrize(
    "seeds",
    [range(600), pytest.param(range(1_000_000, 1_060_000), marks=pytest.mark.nightly)],
    ids=["some", "many"],
)
def test_random_filters_have_the_same_meaning_as_in_sqlglot(seeds):
    for seed in seeds:
        assert_sqlglot_agrees(seed)
