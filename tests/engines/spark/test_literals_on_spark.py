"""Literals have the same meaning in filters of mdt and in Spark, for thousands of pairs of literal
and column, in a few queries of many expressions.

Filters that mdt refuses are not compared. Filters that it accepts must also be accepted by Spark and
find the same rows, except for the pairs that docs/filters/literals.md lists as different on purpose.
"""

import itertools
import math
import os
import random
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from counting import count
from pyspark.sql import functions as sf
from sql_tables import lines, settings

from indexes.predicate import leaves, matches
from mdt.errors import MdtError
from mdt.filters.where import parse_where

CASES = int(os.environ.get("MDT_LITERAL_CASES", "1500"))
CASES_NIGHTLY = 40_000
BATCH = 150
BIG = 2**53

COLUMNS = {
    "i8": (pa.int8(), [0, 1, -1, 5, 44, 127, -128]),
    "i32": (pa.int32(), [0, 1, -1, 5, 44, 300, 2**31 - 1, -(2**31), 16777217]),
    "i64": (pa.int64(), [0, 1, -1, 5, 44, 2**31, 2**63 - 1, -(2**63), BIG, BIG + 1]),
    "f32": (
        pa.float32(),
        [
            0.0,
            -0.0,
            0.1,
            1.5,
            5.0,
            math.nan,
            math.inf,
            -math.inf,
            16777216.0,
            3.4028234663852886e38,
        ],
    ),
    "f64": (
        pa.float64(),
        [
            0.0,
            -0.0,
            0.1,
            0.10000000149011612,
            1.5,
            5.0,
            math.nan,
            math.inf,
            1e300,
            float(BIG),
            1e-320,
        ],
    ),
    "dec": (
        pa.decimal128(10, 2),
        [Decimal(x) for x in ("0.00", "0.10", "1.50", "5.00", "-1.00", "300.00", "99999999.99")],
    ),
    "big": (
        pa.decimal128(38, 10),
        [Decimal(x) for x in ("0", "0.1", "5", "12345678901234567890.0123456789", "0.1000000001")],
    ),
    "s": (
        pa.string(),
        [
            "",
            "a",
            "A",
            "it's",
            "a\nb",
            "é",
            "a%b",
            "5",
            "2024-02-29",
            "\\",
            '"',
            "a\\%b",
            "😀",
            "\x1a",
            "ab",
        ],
    ),
    "raw": (pa.binary(), [b"", b"a", b"\x00\xff", b"A", b"\x01", b"5"]),
    "flag": (pa.bool_(), [True, False]),
    "d": (
        pa.date32(),
        [
            date.fromisoformat(day)
            for day in lines(
                """
                2024-02-29
                2024-01-01
                1970-01-01
                2024-02-01
                0001-01-01
                9999-12-31
                """
            )
        ],
    ),
    "ts": (
        pa.timestamp("us", "UTC"),
        [
            datetime.fromisoformat(f"{moment}+00:00")
            for moment in lines(
                """
                2024-02-29T00:00:00
                2024-02-29T12:00:00
                2024-02-29T11:00:00.500000
                1970-01-01T00:00:00
                2024-01-01T00:00:00
                2024-02-29T12:00:00.000001
                """
            )
        ],
    ),
}

NUMBERS = lines(
    r"""
    0
    1
    -1
    +5
    5
    - 5
    44
    300
    2147483648
    9223372036854775807
    9223372036854775808
    -9223372036854775808
    16777217
    0.0
    -0.0
    0.1
    1.5
    5.
    .5
    5.00
    0.10
    0.105
    12345678901234567890.0123456789
    99999999999999999999999999999999999999
    0e0
    -0e0
    1e-1
    1.5e0
    5E0
    1e300
    1e-400
    1e38
    9007199254740992e0
    3.4028234663852886e38
    5e-324
    44Y
    127Y
    -128Y
    128Y
    5S
    -32768S
    32768S
    5L
    -9223372036854775808L
    9223372036854775808L
    1.5L
    0.1F
    -0.0F
    1.5f
    5F
    16777217F
    3.4028235e38F
    1e39F
    1e-50F
    0.1D
    -0.0D
    5d
    1e400D
    1e308D
    0.1BD
    1.50BD
    5BD
    1e2BD
    double('NaN')
    float('nan')
    double('inf')
    float('-Infinity')
    double(' +INF ')
    cast(0.1 as float)
    cast('0.1' as float)
    cast(0.1 as double)
    cast(0.1F as double)
    cast(300 as tinyint)
    cast(44 as tinyint)
    cast(1.9 as int)
    cast(-1.9 as int)
    cast(5.5e0 as bigint)
    cast('5' as int)
    cast(' 5 ' as int)
    cast('5.5' as int)
    cast('x' as int)
    cast('-1' as tinyint)
    cast(99999999999 as int)
    cast(16777217 as float)
    cast(9007199254740993 as float)
    cast(1.005 as decimal(10,2))
    cast('1.5' as decimal(10,2))
    cast(-0.005 as decimal(10, 2))
    cast(1.5 as decimal)
    cast(123456 as decimal(4,1))
    cast(300 as decimal(5,2))
    cast(true as int)
    cast('1e2' as double)
    cast('1e2' as int)
    cast(null as int)
    try_cast('x' as int)
    try_cast(300 as tinyint)
    try_cast('5' as int)
    '5'::int
    5::double
    -5::double
    cast('' as int)
    cast('0x5' as int)
    int('5')
    bigint(5)
    smallint('300')
    decimal('5')
    float('0.1')
    - -5
    -(5)
    (5)
    +(-(1))
    null
    cast('nan' as double)
    cast(1e400 as double)
    cast('1_0' as int)
    cast('5d' as double)
    cast('1.5f' as float)
    cast('.5' as double)
    cast('5.' as double)
    cast(cast('0.1' as float) as double)
    """
)
TEXTS = lines(
    r"""
    ''
    'a'
    "a"
    'it''s'
    'it\'s'
    "it's"
    'a' 'b'
    'a\nb'
    'a\tb'
    '\u00e9'
    'é'
    '\141'
    '\x41'
    '\Z'
    '\\'
    r'\'
    'a\%b'
    'a%b'
    r'a\%b'
    '\U0001F600'
    '\uD83D\uDE00'
    '5'
    ' 5 '
    '5.0'
    '1.5'
    '0.1'
    'x'
    'true'
    'T'
    'f'
    'yes'
    '0'
    '1'
    'inf'
    'NaN'
    '-0'
    '1e2'
    '2024'
    '2024-2'
    '2024-02-29'
    '2024-2-29'
    ' 2024-02-29 '
    '2024-02-29T12:00:00'
    '2024-02-29 12:00:00'
    '2024-02-29 12:00'
    '2024-02-29 12:00:00.000001'
    '2024-02-29T12:00:00Z'
    '2024-02-29 12:00:00+01:00'
    '2024-02-29 12:00:00 UTC'
    '2024-02-29 04:00:00-0800'
    '2024-02-29 11:00:00.5'
    '20240229'
    '2024-060'
    '2024-W09-4'
    '2024-02-30'
    '0001-01-01'
    '9999-12-31'
    '\0'
    '\q'
    'a''b'
    "a""b"
    "a''b"
    cast('a' as string)
    cast(5 as string)
    cast('a' as binary)
    string(5)
    cast(true as string)
    '\'
    'a\_b'
    """
)
OTHERS = lines(
    r"""
    true
    false
    cast('true' as boolean)
    boolean('no')
    cast('maybe' as boolean)
    cast(1 as boolean)
    x'61'
    X'00ff'
    x'0'
    x''
    x '61'
    cast('a' as binary)
    date '2024-02-29'
    DATE'2024-2-29'
    date '2024'
    date '2024-02-29 10:00:00'
    date '2024-02-30'
    date('2024-02-29')
    cast('2024-02-29 10:00:00' as date)
    cast('2024-02-29' as timestamp)
    cast(date '2024-02-29' as timestamp)
    cast(timestamp '2024-02-29 12:00:00' as date)
    timestamp '2024-02-29 12:00:00'
    timestamp '2024-02-29 12:00:00Z'
    timestamp '2024-02-29 12:00:00+00:00'
    timestamp '2024-02-29 13:30:00+01:30'
    timestamp '2024-02-29'
    timestamp '2024-2-29 1:2:3'
    timestamp '2024-02-29 11:00:00.5'
    timestamp_ltz '2024-02-29 12:00:00'
    timestamp '2024-02-29 25:00:00'
    timestamp '2024-02-29 12:00:60'
    timestamp('2024-02-29 12:00:00')
    timestamp '2024-02-29T12:00:00-01'
    timestamp '2024-02-29 12:00:00 GMT'
    timestamp '2024-02-29 12:00:00.1234567'
    date '0001-01-01'
    date '10000-01-01'
    """
)
TEMPLATES = lines(
    r"""
    {c} = {v}
    {c} < {v}
    {c} >= {v}
    {c} <=> {v}
    {c} in ({v})
    {v} != {c}
    {c} between {v} and {v}
    not {c} <= {v}
    {c} not in ({v}, {w})
    {c} in ({v}, {w})
    """
)
LIKES = lines(
    r"""
    'a%'
    '%'
    'a'
    'a\%b'
    'a\\%b'
    '_'
    '__'
    '%\n%'
    ''
    '\\\\'
    'é'
    r'a\%b'
    '%b'
    '%a%'
    'a_b'
    """
)


def rows():
    """Return every value of every column, and nulls."""
    length = max(len(values) for _, values in COLUMNS.values()) + 1
    arrays = [
        pa.array(values + [None] * (length - len(values)), type)
        for type, values in COLUMNS.values()
    ]
    return pa.table([pa.array(range(length), pa.int64()), *arrays], names=["n", *COLUMNS])


def all_cases():
    """Yield every pair of column and literal under every operator."""
    for column, literal in itertools.product(COLUMNS, [*NUMBERS, *TEXTS, *OTHERS]):
        for template in TEMPLATES:
            yield template.format(
                c=column,
                v=literal,
                w="null" if "not" in template else "5" if column != "s" else "'a'",
            )
    yield from (f"s {negation}like {pattern}" for pattern in LIKES for negation in ("", "not "))
    yield from (
        f"{name}(s, {text})" for text in TEXTS for name in ("startswith", "endswith", "contains")
    )


def differs_on_purpose(where, schema):
    """Return whether an accepted filter is covered by the table of differences in
    docs/filters/literals.md, or by a bug of Spark.
    """
    for leaf in leaves(parse_where(where, schema)):
        literals = leaf.value if isinstance(leaf.value, tuple) else (leaf.value,)
        type = schema.field(leaf.column).type
        floats = [value for value in literals if isinstance(value, float) and math.isfinite(value)]
        if pa.types.is_int64(type) and any(abs(value) >= BIG for value in floats):
            return True
        if pa.types.is_decimal(type) and type.precision > 15 and floats:
            return True
        if pa.types.is_integer(type) and any(
            isinstance(v, (int, Decimal)) and not -(2**63) <= v < 2**63 for v in literals
        ):
            return True  # Spark 4.3 folds comparisons beyond bigint to true, and so keeps nulls
        if None in literals and "cast(" in where:
            return True
    return False


def rows_in_mdt(where, table):
    """Return the rows that a filter finds in mdt, or None if it is refused."""
    try:
        predicate = parse_where(where, table.schema)
    except MdtError:
        return None
    return sorted(table.filter(matches(predicate, table))["n"].to_pylist())


def rows_in_spark(view, wheres):
    """Return the rows that each filter finds in Spark, or its error."""
    try:
        columns = view.selectExpr(
            "n", *(f"({where}) as q{i}" for i, where in enumerate(wheres))
        ).toArrow()
    except Exception as error:  # noqa: BLE001 - at least one filter fails
        if len(wheres) == 1:
            return {wheres[0]: f"{type(error).__name__}: {str(error)[:120]}"}
        middle = len(wheres) // 2
        return rows_in_spark(view, wheres[:middle]) | rows_in_spark(view, wheres[middle:])
    numbers = columns["n"].to_pylist()
    return {
        where: sorted(
            n for n, is_match in zip(numbers, columns[f"q{i}"].to_pylist(), strict=True) if is_match
        )
        for i, where in enumerate(wheres)
    }


def compare_with_spark(spark, wheres):
    """Assert that Spark agrees about the filters that mdt accepts. Return their number."""
    table = rows()
    in_mdt = {
        where: result for where in wheres if (result := rows_in_mdt(where, table)) is not None
    }
    filters = [where for where in in_mdt if not differs_on_purpose(where, table.schema)]
    if not hasattr(sf, "arrow_udf"):
        # Spark 4.0 reads two quotes within a text as two adjacent texts
        filters = [where for where in filters if "''" not in where]
    with settings(spark, {"spark.sql.session.timeZone": "UTC"}):
        view = spark.createDataFrame(table)
        for at in range(0, len(filters), BATCH):
            for where, result in rows_in_spark(view, filters[at : at + BATCH]).items():
                assert result == in_mdt[where], where
    return len(filters)


@pytest.mark.parametrize("cases", [CASES, pytest.param(CASES_NIGHTLY, marks=pytest.mark.nightly)])
@pytest.mark.timeout(3600)
def test_literals_have_the_same_meaning_as_in_spark(spark, cases):
    all_filters = list(all_cases())
    chosen = (
        all_filters if cases >= len(all_filters) else random.Random(7).sample(all_filters, cases)
    )
    count("filters whose literals mean the same to Spark", compare_with_spark(spark, chosen))


def test_documented_differences_from_spark_exist(spark):
    """The table in docs/filters/literals.md is right: Spark finds other rows, or accepts filters
    that mdt refuses.
    """
    table = rows()
    view = spark.createDataFrame(table)
    wheres = ["i64 = 9007199254740992e0", "big = 1.2345678901234567e19"]
    for where, result in rows_in_spark(view, wheres).items():
        assert result != rows_in_mdt(where, table), where
        assert differs_on_purpose(where, table.schema)
    refused = ["d >= '2024-02-29 12:00:00'", "ts = '2024-02-29 12:00:00 America/New_York'"]
    assert [rows_in_mdt(where, table) for where in refused] == [None, None]
    assert all(isinstance(result, list) for result in rows_in_spark(view, refused).values())
    assert isinstance(rows_in_spark(view, ["d = cast(null as int)"])["d = cast(null as int)"], str)
    assert rows_in_mdt("d = cast(null as int)", table) == []
