"""The tables of the Star Schema Benchmark: four dimensions, the fact table, and the flat table of
all joined.

Vectorised and a function of scale and seed alone.  Where it departs from the paper's generator:

- A scale below 1 shrinks lineorder only; the dimensions keep the size of scale 1.  With the 200
  suppliers of scale 0.1 not every one of the 250 cities would have one, and the published filter
  factors would not hold.
- Places and brands are dealt evenly instead of drawn, and order dates span all seven years as in
  the paper's filter factors (its program, like TPC-H's, stops in August 1998).
- Order keys are dense.  Addresses and phone numbers, random text that no query reads, are left out.

Money is in cents, as in the paper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.ssb import words

Int64Array = npt.NDArray[np.int64]

ROWS_A_SCALE = 6_000_000
CUSTOMERS, SUPPLIERS, PARTS = 30_000, 2_000, 200_000
"""Rows at scale 1; parts grow with its logarithm."""
FIRST_DAY, LAST_DAY = np.datetime64("1992-01-01"), np.datetime64("1998-12-31")
ONE_DAY = np.timedelta64(1, "D")
LINES_AN_ORDER_MAX = 7
BRANDS = tuple((m, c, b) for m in range(1, 6) for c in range(1, 6) for b in range(1, 41))
"""(manufacturer, category, brand): 5 x 5 x 40."""
PLACES = tuple(
    (f"{nation[: words.CITY_LETTERS]:<{words.CITY_LETTERS}}{digit}", nation, region)
    for region, nations in words.NATIONS.items()
    for nation in nations
    for digit in range(words.CITIES_A_NATION)
)
"""(city, nation, region): 250 of them."""


@dataclass(frozen=True)
class Star:
    """The benchmark's tables at ``scale`` (6 M rows of lineorder each 1.0), all random choices made
    from ``seed``.
    """

    scale: float
    seed: int = 7

    @property
    def rows(self) -> int:
        """Rows of lineorder and of the flat table."""
        return max(1, round(ROWS_A_SCALE * self.scale))

    @cached_property
    def customer(self) -> pa.Table:
        """Customers: key, name, city, nation, region, market segment."""
        draw, n = self._draw(1), self._sized(CUSTOMERS)
        return pa.table(
            {
                "c_custkey": _keys(n),
                "c_name": _named("Customer#", n),
                **_places("c", draw, n),
                "c_mktsegment": _any(words.SEGMENTS, draw, n),
            }
        )

    @cached_property
    def supplier(self) -> pa.Table:
        """Suppliers: key, name, city, nation, region."""
        n = self._sized(SUPPLIERS)
        return pa.table(
            {
                "s_suppkey": _keys(n),
                "s_name": _named("Supplier#", n),
                **_places("s", self._draw(2), n),
            }
        )

    @cached_property
    def part(self) -> pa.Table:
        """Parts: key, name, manufacturer, category, brand, color, type, size, container."""
        draw, n = self._draw(3), PARTS * (1 + math.floor(math.log2(max(1.0, self.scale))))
        brand = _dealt(len(BRANDS), draw, n)
        color = draw.integers(0, len(words.COLORS), n)
        other = _any(words.COLORS, draw, n)
        main = pa.array(words.COLORS).take(pa.array(color))
        return pa.table(
            {
                "p_partkey": _keys(n),
                "p_name": pc.binary_join_element_wise(main, other, " "),
                "p_mfgr": pa.array([f"MFGR#{m}" for m, _, _ in BRANDS]).take(brand),
                "p_category": pa.array([f"MFGR#{m}{c}" for m, c, _ in BRANDS]).take(brand),
                "p_brand1": pa.array([f"MFGR#{m}{c}{b}" for m, c, b in BRANDS]).take(brand),
                "p_color": main,
                "p_type": _any(words.TYPES, draw, n),
                "p_size": pa.array(draw.integers(1, 51, n), pa.int32()),
                "p_container": _any(words.CONTAINERS, draw, n),
            }
        )

    @cached_property
    def date(self) -> pa.Table:
        """Every day of the seven years."""
        days = np.arange(FIRST_DAY, LAST_DAY + ONE_DAY)
        day = pa.array(days)
        year, month, in_year = (np.asarray(f(day)) for f in (pc.year, pc.month, pc.day_of_year))
        weekday = np.asarray(pc.day_of_week(day, week_start=7))
        month_name = pa.array(words.MONTHS).take(pa.array(month - 1))
        year_month = pc.binary_join_element_wise(
            pc.utf8_slice_codeunits(month_name, 0, 3), pa.array(year).cast(pa.string()), ""
        )
        numbers = {
            "d_year": year,
            "d_yearmonthnum": year * 100 + month,
            "d_daynuminweek": weekday + 1,
            "d_daynuminmonth": np.asarray(pc.day(day)),
            "d_daynuminyear": in_year,
            "d_monthnuminyear": month,
            "d_weeknuminyear": (in_year - 1) // 7 + 1,
        }
        return pa.table(
            {
                "d_datekey": pa.array(_date_keys(days), pa.int32()),
                "d_dayofweek": pa.array(words.DAYS).take(pa.array(weekday)),
                "d_month": month_name,
                "d_yearmonth": year_month,
                "d_sellingseason": pa.array(words.SEASONS).take(pa.array(month - 1)),
                **{name: pa.array(values, pa.int32()) for name, values in numbers.items()},
            }
        )

    @cached_property
    def lineorder(self) -> pa.Table:
        """The fact table, in the order of its keys; order dates are independent of the keys."""
        draw, n = self._draw(4), self.rows
        order, line = _lines(draw, n)
        orders = int(order[-1]) + 1
        part = draw.integers(0, len(self.part), n)
        quantity, discount, tax = (
            draw.integers(1, 51, n),
            draw.integers(0, 11, n),
            draw.integers(0, 9, n),
        )
        price = retail_price(part + 1)
        extended = quantity * price
        revenue = extended * (100 - discount) // 100
        # Sums of cents below 2 ** 53: exact in the doubles that bincount adds.
        total = np.bincount(order, revenue * (100 + tax) // 100, orders).astype(np.int64)
        first = draw.integers(0, len(self.date), orders)[order]
        commit = FIRST_DAY + ONE_DAY * (first + draw.integers(30, 91, n))
        priority = draw.integers(0, len(words.PRIORITIES), orders)[order]
        small = {
            "lo_orderkey": order + 1,
            "lo_linenumber": line,
            "lo_partkey": part + 1,
            "lo_custkey": draw.integers(1, len(self.customer) + 1, orders)[order],
            "lo_suppkey": draw.integers(1, len(self.supplier) + 1, n),
            "lo_orderdate": self.date["d_datekey"].to_numpy()[first],
            "lo_commitdate": _date_keys(commit),
            "lo_quantity": quantity,
            "lo_discount": discount,
            "lo_tax": tax,
        }
        money = {
            "lo_extendedprice": extended,
            "lo_ordtotalprice": total[order],
            "lo_revenue": revenue,
            "lo_supplycost": 6 * price // 10,
        }
        return pa.table(
            {
                **{name: pa.array(values, pa.int32()) for name, values in small.items()},
                **{name: pa.array(values, pa.int64()) for name, values in money.items()},
                "lo_orderpriority": pa.array(words.PRIORITIES).take(pa.array(priority)),
                "lo_shippriority": pa.array(["0"]).take(pa.array(np.zeros(n, np.int8))),
                "lo_shipmode": _any(words.SHIP_MODES, draw, n),
            }
        )

    @cached_property
    def flat(self) -> pa.Table:
        """Lineorder joined with its dimensions, whose keys stand there once, as lineorder's."""
        fact = self.lineorder
        day = np.searchsorted(self.date["d_datekey"].to_numpy(), fact["lo_orderdate"].to_numpy())
        joined = [(self.date, day)]
        for dimension, key in (
            (self.customer, "lo_custkey"),
            (self.supplier, "lo_suppkey"),
            (self.part, "lo_partkey"),
        ):
            joined.append((dimension, fact[key].to_numpy().astype(np.int64) - 1))
        columns = dict(zip(fact.column_names, fact.columns, strict=True))
        for dimension, row in joined:
            for name in dimension.column_names[1:]:
                columns[name] = dimension[name].combine_chunks().take(pa.array(row))
        return pa.table(columns)

    def _draw(self, table: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, table])

    def _sized(self, rows: int) -> int:
        return math.ceil(rows * max(1.0, self.scale))


def retail_price(part: Int64Array) -> Int64Array:
    """Return the price of part keys in cents, by TPC-H's formula."""
    return 90_000 + part // 10 % 20_001 + 100 * (part % 1_000)


def _lines(draw: np.random.Generator, n: int) -> tuple[Int64Array, Int64Array]:
    """Return (order from 0, line number from 1) of ``n`` lines; orders have 1 to 7 lines, the last
    one what is left.
    """
    lines = draw.integers(1, LINES_AN_ORDER_MAX + 1, n)
    ends = np.cumsum(lines)
    orders = int(np.searchsorted(ends, n)) + 1
    order = np.repeat(np.arange(orders), lines[:orders])[:n]
    return order, np.arange(n) - (ends - lines)[order] + 1


def _date_keys(days: npt.NDArray[np.datetime64]) -> Int64Array:
    """Return days as numbers yyyymmdd."""
    day = pa.array(days.astype("datetime64[D]"))
    year, month, in_month = (np.asarray(f(day)) for f in (pc.year, pc.month, pc.day))
    found: Int64Array = year * 10_000 + month * 100 + in_month
    return found


def _keys(n: int) -> pa.Array:
    return pa.array(np.arange(1, n + 1), pa.int32())


def _named(prefix: str, n: int) -> pa.Array:
    digits = pc.utf8_lpad(pa.array(np.arange(1, n + 1)).cast(pa.string()), 9, "0")
    return pc.binary_join_element_wise(pa.scalar(prefix), digits, "")


def _any(values: tuple[str, ...], draw: np.random.Generator, n: int) -> pa.Array:
    return pa.array(values).take(pa.array(draw.integers(0, len(values), n)))


def _dealt(values: int, draw: np.random.Generator, n: int) -> pa.Array:
    """Return ``n`` numbers below ``values``, each as often as the others (give or take one),
    shuffled.
    """
    return pa.array(draw.permutation(np.arange(n) % values))


def _places(prefix: str, draw: np.random.Generator, n: int) -> dict[str, pa.Array]:
    place = _dealt(len(PLACES), draw, n)
    return {
        f"{prefix}_{name}": pa.array([p[i] for p in PLACES]).take(place)
        for i, name in enumerate(("city", "nation", "region"))
    }
