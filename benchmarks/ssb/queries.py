"""The 13 queries of the Star Schema Benchmark on the flat table, and the share of rows that each
selects.

Filters are the paper's, with the joins gone; its OR of two values stays an OR.  In Q1.3 quantity is
36 to 40, which is what the published filter factor (a tenth of the quantities) belongs to.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

VIEW = "lineorder_flat"

DISCOUNTED = "lo_extendedprice * lo_discount"
REVENUE = "lo_revenue"
PROFIT = "lo_revenue - lo_supplycost"


@dataclass(frozen=True)
class Query:
    """One query: ``select sum(measure), group ... where ... group by group order by order``.

    ``columns``: what ``measure`` reads.  ``factor``: the published filter factor.
    """

    name: str
    where: str
    measure: str
    factor: float
    group: tuple[str, ...] = ()
    order: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the measure."""
        return tuple(word for word in self.measure.split() if word.startswith("lo_"))

    def total(self, rows: pa.Table) -> int:
        """Return the sum of the measure over ``rows``, 0 for none; their columns are
        ``self.columns``.
        """
        first, *rest = self.measure.split()
        values = rows[first]
        if rest:
            operator = {"*": pc.multiply, "-": pc.subtract}[rest[0]]
            values = operator(values, rows[rest[1]].cast(pa.int64()))
        return int(pc.sum(values).as_py() or 0)

    def sql(self, view: str = VIEW) -> str:
        """Return the query as Spark SQL on ``view``; the columns of the result are the groups, then
        ``total``.
        """
        names = ", ".join(self.group)
        selected = (
            f"{names}, sum({self.measure}) as total" if names else f"sum({self.measure}) as total"
        )
        grouped = f" group by {names} order by {self.order or names}" if names else ""
        return f"select {selected} from {view} where {self.where}{grouped}"


def _either(column: str, *values: str) -> str:
    return "(" + " or ".join(f"{column} = '{value}'" for value in values) + ")"


_BRITISH = ("UNITED KI1", "UNITED KI5")
_CITIES = f"{_either('c_city', *_BRITISH)} and {_either('s_city', *_BRITISH)}"
_FLIGHT_3 = "d_year >= 1992 and d_year <= 1997"
_AMERICA = "c_region = 'AMERICA' and s_region = 'AMERICA'"
_LATE = "(d_year = 1997 or d_year = 1998)"
_MAKERS = _either("p_mfgr", "MFGR#1", "MFGR#2")
_BY_REVENUE = "d_year, total desc"

QUERIES = (
    Query(
        "Q1.1",
        "d_year = 1993 and lo_discount between 1 and 3 and lo_quantity < 25",
        DISCOUNTED,
        1 / 7 * 3 / 11 * 0.5,
    ),
    Query(
        "Q1.2",
        "d_yearmonthnum = 199401 and lo_discount between 4 and 6 and lo_quantity between 26 and 35",
        DISCOUNTED,
        1 / 84 * 3 / 11 * 0.2,
    ),
    Query(
        "Q1.3",
        "d_weeknuminyear = 6 and d_year = 1994 and lo_discount between 5 and 7 and lo_quantity"
        " between 36 and 40",
        DISCOUNTED,
        1 / 364 * 3 / 11 * 0.1,
    ),
    Query(
        "Q2.1",
        "p_category = 'MFGR#12' and s_region = 'AMERICA'",
        REVENUE,
        1 / 25 / 5,
        ("d_year", "p_brand1"),
    ),
    Query(
        "Q2.2",
        "p_brand1 between 'MFGR#2221' and 'MFGR#2228' and s_region = 'ASIA'",
        REVENUE,
        1 / 125 / 5,
        ("d_year", "p_brand1"),
    ),
    Query(
        "Q2.3",
        "p_brand1 = 'MFGR#2221' and s_region = 'EUROPE'",
        REVENUE,
        1 / 1000 / 5,
        ("d_year", "p_brand1"),
    ),
    Query(
        "Q3.1",
        f"c_region = 'ASIA' and s_region = 'ASIA' and {_FLIGHT_3}",
        REVENUE,
        1 / 5 / 5 * 6 / 7,
        ("c_nation", "s_nation", "d_year"),
        _BY_REVENUE,
    ),
    Query(
        "Q3.2",
        f"c_nation = 'UNITED STATES' and s_nation = 'UNITED STATES' and {_FLIGHT_3}",
        REVENUE,
        1 / 25 / 25 * 6 / 7,
        ("c_city", "s_city", "d_year"),
        _BY_REVENUE,
    ),
    Query(
        "Q3.3",
        f"{_CITIES} and {_FLIGHT_3}",
        REVENUE,
        1 / 125 / 125 * 6 / 7,
        ("c_city", "s_city", "d_year"),
        _BY_REVENUE,
    ),
    Query(
        "Q3.4",
        f"{_CITIES} and d_yearmonth = 'Dec1997'",
        REVENUE,
        1 / 125 / 125 / 84,
        ("c_city", "s_city", "d_year"),
        _BY_REVENUE,
    ),
    Query("Q4.1", f"{_AMERICA} and {_MAKERS}", PROFIT, 1 / 5 / 5 * 2 / 5, ("d_year", "c_nation")),
    Query(
        "Q4.2",
        f"{_AMERICA} and {_LATE} and {_MAKERS}",
        PROFIT,
        2 / 7 / 5 / 5 * 2 / 5,
        ("d_year", "s_nation", "p_category"),
    ),
    Query(
        "Q4.3",
        f"c_region = 'AMERICA' and s_nation = 'UNITED STATES' and {_LATE} and p_category ="
        " 'MFGR#14'",
        PROFIT,
        2 / 7 / 5 / 25 / 25,
        ("d_year", "s_city", "p_brand1"),
    ),
)

FILTERED = (
    "c_region",
    "c_nation",
    "c_city",
    "s_region",
    "s_nation",
    "s_city",
    "p_mfgr",
    "p_category",
    "p_brand1",
    "d_year",
    "d_yearmonthnum",
    "d_yearmonth",
    "d_weeknuminyear",
    "lo_discount",
    "lo_quantity",
)
"""The columns that the queries test."""
