"""Random queries of Spark SQL over the two tables of a world, and how their answers can be
compared.

Literals come from rows of the tables or lie beside them. Sums of floats depend on the order of
rows, so only whole numbers are summed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa

ROWS, KEYS, COUNT = "rows", "keys", "count"
"""Ways to compare: rows as a multiset; sort keys in their order, the other columns among the rows
of ``every``; the number of rows, which must be among the rows of ``every``.
"""

KINDS = {
    "number": (pa.int32(), pa.int64()),
    "float": (pa.float32(), pa.float64()),
    "decimal": (pa.decimal128(9, 2), pa.decimal128(38, 0)),
    "text": (pa.string(),),
    "day": (pa.date32(),),
    "time": (pa.timestamp("us", "UTC"),),
    "wall": (pa.timestamp("us"),),
    "bytes": (pa.binary(),),
    "bool": (pa.bool_(),),
}
FIELDS = {"s.n": pa.int32(), "s.t": pa.string(), "s.u.x": pa.float32()}
JOINABLE = (
    ("k", "k"),
    ("k", "k"),
    ("n", "n"),
    ("id", "id"),
    ("id", "id"),
    ("k", "n"),
    ("n", "k"),
    ("d", "d"),
    ("m", "m"),
    ("x", "x"),
    ("at", "at"),
    ("wall", "wall"),
    ("g", "g"),
    ("s.n", "k"),
    ("k", "s.n"),
    ("m", "k"),
    ("x", "n"),
    ("n", "x"),
    ("d", "at"),
    ("p", "p"),
    ("ok", "ok"),
    ("s.u.x", "x"),
    ("s.t", "g"),
    ("wall", "at"),
    ("s", "s"),
)
"""Columns of both sides. Those that rise are more frequent, and some types must be cast."""
FEW_PARTNERS = ("k", "n", "id", "d", "m", "at", "wall", "s.n")
"""Columns in which few rows have the same value."""
OPS = ("=", "=", "=", "<", "<=", ">", ">=", "!=", "<=>")


@dataclass(frozen=True)
class Query:
    """A query.

    Attributes:
        compare: ROWS, KEYS or COUNT.
        keys: The number of sort keys, which are its first columns.
        every: All rows that it may choose from.
        exact: Whether floats must have the same bits. Groups and extremes may have either zero.
    """

    text: str
    compare: str = ROWS
    keys: int = 0
    every: str = ""
    exact: bool = False


def literal(value, type):
    """Return ``value`` as Spark SQL writes a literal of ``type``."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, str):
        return (
            f"'{value}'"
            if value.isalnum() and value.isascii()
            else f"cast(X'{value.encode().hex()}' as string)"
        )
    if isinstance(value, datetime):
        name = "timestamp_ntz" if value.tzinfo is None else "timestamp"
        return f"{name}'{value.isoformat(' ')}'"
    if isinstance(value, date):
        return f"date'{value.isoformat()}'"
    if isinstance(value, Decimal):
        return f"cast('{value:f}' as decimal({type.precision},{type.scale}))"
    if isinstance(value, float):
        return f"cast('{value!r}' as {'float' if type == pa.float32() else 'double'})"
    return str(value) if 0 <= value < 2**31 else f"cast('{value}' as bigint)"


class Writer:
    """Draws queries for one world. ``draw`` makes every choice."""

    def __init__(self, world, draw):
        self.draw = draw
        self.types = {
            name: {field.name: field.type for field in made.schema} | FIELDS
            for name, made in world.tables.items()
        }
        self.values = {name: _with_fields(made.values) for name, made in world.tables.items()}
        self.key = world.tables["a"].schema.field("id").type

    def query(self):
        """Return a query of any kind."""
        kinds = {
            self.top: 8,
            self.joined: 8,
            self.reduced: 4,
            self.with_subquery: 6,
            self.window: 2,
            self.common: 3,
            self.of_sets: 2,
            self.extremes: 6,
            self.grouped: 4,
            self.distinct: 2,
            self.limited: 2,
            self.three: 2,
        }
        (kind,) = self.draw.choices(list(kinds), list(kinds.values()))
        return kind()

    # Pieces

    def table(self):
        return self.pick("a", "a", "a", "b")

    def pick(self, *options):
        return self.draw.choice(options)

    def chance(self, share):
        return self.draw.random() < share

    def column(self, table, *kinds):
        """Return a column or a field of a struct of one of the kinds, by default of any scalar
        kind.
        """
        types = [type for kind in kinds or KINDS for type in KINDS[kind]]
        return self.draw.choice([name for name, type in self.types[table].items() if type in types])

    def values_of(self, table, column, count):
        """Return literals for tests of a column: values of its rows, values beside them, and
        sometimes null.
        """
        type = self.types[table][column]
        values = self.values[table][column] or [None]
        literals = []
        for _ in range(count):
            value = self.draw.choice(values)
            if value is not None and self.chance(0.2):
                value = _beside(value, self.draw)
            literals.append("null" if self.chance(0.03) else literal(value, type))
        return literals

    def leaf(self, table, alias):
        """Return a test of one column."""
        column = self.column(table)
        name, other = (
            f"{alias}.{column}",
            f"{alias}.{self.column(table, _kind(self.types[table][column]))}",
        )
        one, two, three = self.values_of(table, column, 3)
        op = self.draw.choice(OPS)
        tests = [
            f"{name} {op} {one}",
            f"{name} {op} {one}",
            f"{name} {op} {one}",
            f"{one} {op} {name}",
            f"{name} between {one} and {two}",
            f"({name} >= {one} and {name} < {two})",
            f"{name} in ({one}, {two}, {three})",
            f"{name} not in ({one}, {two})",
            f"{name} is null",
            f"{name} is not null",
            f"{name} {op} {other}",
            f"coalesce({name}, {one}) {op} {two}",
            f"({name} = {one} or {name} is null)",
            f"if({name} {op} {one}, {alias}.ok, true)",
        ]
        if _kind(self.types[table][column]) == "text":
            tests += [
                f"{name} like 'p%'",
                f"{name} like '%d'",
                f"startswith({name}, 'r')",
                f"length({name}) > 3",
            ]
        if _kind(self.types[table][column]) == "number":
            tests += [
                f"{name} % 3 = 1",
                f"cast({name} as double) >= 7.5",
                f"{name} > 10",
                f"{name} < 20",
                f"{name} + 1L < 30",
            ]
        if _kind(self.types[table][column]) in ("day", "time"):
            tests += [
                f"year({name}) = 2024",
                f"cast({name} as date) = date'2024-03-10'",
                f"date_trunc('month', {name}) = timestamp'2024-03-01'",
            ]
        return self.draw.choice(tests)

    def condition(self, table, alias, depth=2):
        """Return a test of a row."""
        if depth and self.chance(0.4):
            left, right = (
                self.condition(table, alias, depth - 1),
                self.condition(table, alias, depth - 1),
            )
            return self.pick(
                f"({left} and {right})",
                f"({left} and {right})",
                f"({left} or {right})",
                f"not ({left})",
            )
        return (
            self.pick("1 = 1", "1 = 0", "cast(null as boolean)")
            if self.chance(0.02)
            else self.leaf(table, alias)
        )

    def where(self, *tables, share=0.6):
        """Return a where clause on some of (table, alias), or nothing."""
        tests = [self.condition(table, alias) for table, alias in tables if self.chance(share)]
        return f" where {' and '.join(tests)}" if tests else ""

    def some(self, table, alias, count):
        """Return ``count`` columns of a table, including structs and fields."""
        names = [*self.types[table]]
        return [f"{alias}.{self.draw.choice(names)}" for _ in range(count)]

    def orders(self, keys):
        """Return an order by clause."""
        ways = [
            self.pick(
                "",
                " asc",
                " desc",
                " desc",
                " nulls first",
                " nulls last",
                " asc nulls last",
                " desc nulls first",
            )
            for _ in keys
        ]
        return " order by " + ", ".join(key + way for key, way in zip(keys, ways, strict=True))

    def limit(self):
        offset = f" offset {self.pick(0, 1, 5, 1000)}" if self.chance(0.25) else ""
        return f" limit {self.pick(0, 1, 1, 2, 3, 5, 10, 10, 50, 1000)}{offset}"

    def key_pairs(self, left, right, count):
        """Return pairs of columns by which two tables can be joined, the first with few
        partners.
        """
        known = [
            pair
            for pair in JOINABLE
            if pair[0] in self.types[left] and pair[1] in self.types[right]
        ]
        many = left == right == "a"
        first = (
            [pair for pair in known if pair[0] in FEW_PARTNERS and pair[1] in FEW_PARTNERS]
            if many
            else known
        )
        return [self.draw.choice(first), *(self.draw.choice(known) for _ in range(count - 1))]

    def on(self, left, right):
        """Return the condition of a join of two (table, alias)."""
        pairs = self.key_pairs(left[0], right[0], self.pick(1, 1, 1, 2))
        op = "<=>" if self.chance(0.1) else "="
        tests = [f"{left[1]}.{one} {op} {right[1]}.{two}" for one, two in pairs]
        if self.chance(0.15):
            tests.append(f"{left[1]}.n {self.pick('<', '>=', '!=')} {right[1]}.n")
        if self.chance(0.15):
            tests.append(self.leaf(*self.pick(left, right)))
        return " and ".join(tests)

    def hint(self, *aliases):
        name = self.pick("", "", "", "", "broadcast", "merge", "shuffle_hash")
        return f"/*+ {name}({self.draw.choice(aliases)}) */ " if name else ""

    # Queries

    def top(self):
        """Return the first rows of a table in an order: total, or with ties."""
        table = self.table()
        keys = [f"t.{self.column(table)}" for _ in range(self.pick(1, 1, 1, 2))]
        if is_total := self.chance(0.4):
            keys.append("t.id")
        rest = self.some(table, "t", self.pick(1, 3))
        body = (
            f"select {_named([*keys, *rest])} from {table} t{self.where((table, 't'), share=0.5)}"
        )
        text = body + self.orders(keys) + self.limit()
        if is_total and self.chance(0.3):
            return Query(
                "select count(*) c, sum(o) s from (select k o from"
                f" ({text.replace('select ', 'select t.k, ', 1)}))"
            )
        return Query(text, KEYS, len(keys), body)

    def joined(self):
        """Return a join of two tables, or of one with itself."""
        left, right = (self.table(), "l"), (self.pick("b", "b", "a"), "r")
        kind = self.pick(
            "join",
            "join",
            "join",
            "left join",
            "right join",
            "full join",
            "left semi join",
            "left anti join",
        )
        seen = [left] if "semi" in kind or "anti" in kind else [left, right]
        body = f"from {left[0]} l {kind} {right[0]} r on {self.on(left, right)}"
        if self.chance(0.4):  # a filter below the join, where it is not moved there by itself
            side = self.pick(left, right)
            inner = f"(select * from {side[0]} {side[1]} where {self.condition(*side)}) {side[1]}"
            body = body.replace(f"{side[0]} {side[1]} ", f"{inner} ", 1)
        columns = [column for table, alias in seen for column in self.some(table, alias, 2)]
        if self.chance(0.3):
            columns = [f"count({column})" for column in columns]
            return Query(
                f"select {self.hint('l', 'r')}{_named([*columns, 'count(*)'])}"
                f" {body}{self.where(*seen, share=0.4)}"
            )
        text = f"select {self.hint('l', 'r')}{_named(columns)} {body}{self.where(*seen, share=0.4)}"
        if self.chance(0.2):
            return Query(text + self.orders(columns[:1]) + self.limit(), KEYS, 1, text)
        return Query(text, exact=True)

    def reduced(self):
        """Return a join with the few rows of the other table that pass a test, grouped or not."""
        one, two = self.key_pairs("a", "b", 1)[0]
        inner = f"(select distinct r.{two} v from b r where {self.condition('b', 'r')})"
        body = f"from a l join {inner} z on l.{one} = z.v{self.where(('a', 'l'), share=0.3)}"
        if self.chance(0.5):
            return Query(
                f"select {self.hint('l', 'z')}count(*) c, sum(l.k) s, min(l.n) lo,"
                f" max(l.{self.column('a')}) hi {body}"
            )
        return Query(f"select {_named(self.some('a', 'l', 3))} {body}", exact=True)

    def three(self):
        """Return a join of three tables."""
        first, second = self.on(("a", "l"), ("b", "r")), self.on(("b", "r"), ("a", "z"))
        kind = self.pick("join", "left join", "left semi join")
        body = f"from a l join b r on {first} {kind} a z on {second}"
        return Query(
            "select count(*) c, count(l.n) d, count(r.k) e, max(l.k) f"
            f" {body}{self.where(('a', 'l'), ('b', 'r'))}"
        )

    def with_subquery(self):
        """Return rows that are chosen by a subquery."""
        one, two = self.key_pairs("a", "b", 1)[0]
        number, other = self.column("a", "number"), self.column("b", "number")
        inner = self.where(("b", "r"))
        joiner = " and" if inner else " where"
        also = f"{inner}{joiner} r.{two} = l.{one}"
        extreme, aggregate = (
            self.pick("min", "max", "avg"),
            self.pick("count(*)", f"max(r.{other})", f"min(r.{other})"),
        )
        tests = (
            f"l.{one} in (select r.{two} from b r{inner})",
            f"l.{one} not in (select r.{two} from b r{inner})",
            f"l.{one} not in (select r.{two} from b r{inner}{joiner} r.{two} is not null)",
            f"exists (select 1 from b r{also})",
            f"not exists (select 1 from b r{also})",
            f"l.{number} {self.draw.choice(OPS)} (select {extreme}(r.{other}) from b r{inner})",
            f"l.{number} >= (select {aggregate} from b r{also})",
            f"(l.{one} in (select r.{two} from b r{inner}) or {self.leaf('a', 'l')})",
            (
                f"l.{number} between (select min(r.{other}) from b r{inner}) and (select"
                f" max(r.{other}) from b r{inner})"
            ),
        )
        more = f" and {self.condition('a', 'l')}" if self.chance(0.4) else ""
        columns = self.some("a", "l", 2)
        if self.chance(0.2):
            columns.append(f"(select {aggregate} from b r{also})")
        return Query(
            f"select {_named(columns)} from a l where {self.draw.choice(tests)}{more}", exact=True
        )

    def window(self):
        """Return ranks and running sums, and the first rows of each group."""
        table, group, by = (
            self.table(),
            self.column("a"),
            self.column("a", "number", "day", "text", "decimal"),
        )
        group, by = (name if name in self.types[table] else "g" for name in (group, by))
        order = f"partition by t.{group}{self.orders([f't.{by}', 't.id'])}"
        body = (
            f"select t.id i, t.{by} v, row_number() over ({order}) r, sum(t.k) over ({order}) s,"
            f" lag(t.n) over ({order}) l from {table} t"
        )
        return Query(
            f"select * from ({body}{self.where((table, 't'))}) where r <= {self.pick(1, 2, 1000)}"
        )

    def common(self):
        """Return a query that names a subquery and uses it twice."""
        one, two = self.key_pairs("a", "a", 1)[0]
        table = self.table()
        one, two = (name if name in self.types[table] else "k" for name in (one, two))
        chosen = f"with w as (select * from {table} t{self.where((table, 't'), share=0.9)})"
        bodies = (
            f"select count(*) c from w l join w r on l.{one} = r.{two}",
            (
                "select l.id i, l.n n from w l where l.n = (select max(n) from w) or l.k = (select"
                " min(k) from w)"
            ),
            (
                f"select l.id i, l.s s from w l where not exists (select 1 from w r where r.{two} ="
                f" l.{one} and r.n < l.n)"
            ),
            (
                "select id i, 1 z from w union all select id i, 2 z from (select * from"
                f" w{self.orders(['id'])} limit 3)"
            ),
        )
        return Query(f"{chosen} {self.draw.choice(bodies)}")

    def of_sets(self):
        """Return the union, the intersection or the difference of two queries."""
        column = self.draw.choice(
            [name for name in self.types["a"] if self.types["b"].get(name) == self.types["a"][name]]
        )
        sides = [
            f"select t.{column} v, t.k k from {table} t{self.where((table, 't'))}"
            for table in (self.table(), self.draw.choice("ab"))
        ]
        op = self.pick("union", "union all", "intersect", "except", "intersect all", "except all")
        text = f"{sides[0]} {op} {sides[1]}"
        if self.chance(0.3):
            return Query(
                f"select k o0, v c1 from ({text}){self.orders(['k'])}{self.limit()}",
                KEYS,
                1,
                f"select k o0, v c1 from ({text})",
            )
        return Query(text)

    def aggregates(self, table, count):
        """Return aggregates that do not depend on the order of rows."""
        texts = ["count(*)"] if self.chance(0.6) else []
        for _ in range(count):
            name = self.pick("min", "max", "min", "max", "count", "count(distinct")
            column = f"t.{self.column(table)}"
            texts.append(f"{name} {column})" if "(" in name else f"{name}({column})")
        if self.chance(0.1):
            texts.append(f"count(*) filter (where {self.condition(table, 't')})")
        return texts

    def extremes(self):
        """Return counts, and the least and greatest values of a table."""
        table = self.table()
        count = self.pick(0, 1, 2, 4)
        return Query(
            f"select {_named(self.aggregates(table, count) or ['count(1)'])} from {table}"
            f" t{self.where((table, 't'), share=0.4)}"
        )

    def grouped(self):
        """Return aggregates of each group."""
        table = self.table()
        groups = [
            f"t.{self.pick('g', 'p', 'k', 'ok', 's.t', 'd', 'x')}"
            for _ in range(self.pick(1, 1, 2))
        ]
        having = (
            f" having {self.pick('count(*) > 1', 'max(t.n) > 10', 'min(t.k) is null')}"
            if self.chance(0.3)
            else ""
        )
        columns = [*groups, *(self.aggregates(table, 2) or ["count(*)"])]
        text = (
            f"select {_named(columns)} from {table} t{self.where((table, 't'))} group by"
            f" {', '.join(groups)}{having}"
        )
        if self.chance(0.2):
            return Query(
                f"select * from ({text}) order by o0 limit {self.pick(1, 5)}", KEYS, 1, text
            )
        return Query(text)

    def distinct(self):
        """Return distinct values, some of them in an order."""
        table = self.table()
        column = f"t.{self.column(table)}"
        text = f"select distinct {column} o0 from {table} t{self.where((table, 't'))}"
        if self.chance(0.4):
            return Query(
                f"{text} order by o0{self.pick('', ' desc', ' desc nulls first')} limit 3",
                KEYS,
                1,
                text,
            )
        return Query(text)

    def limited(self):
        """Return some rows without an order."""
        table = self.table()
        text = f"select {_named(self.some(table, 't', 3))} from {table} t{self.where((table, 't'))}"
        return Query(text + self.limit(), COUNT, every=text, exact=True)


def _named(columns):
    return ", ".join(f"{column} o{i}" for i, column in enumerate(columns))


def _kind(type):
    return next(kind for kind, types in KINDS.items() if type in types)


def _with_fields(values):
    """Return values by column, and by field of the struct."""
    inner = [value["u"] for value in values["s"] if value["u"] is not None]
    fields = {
        f"s.{name}": [value[name] for value in values["s"] if value[name] is not None]
        for name in "nt"
    }
    return values | fields | {"s.u.x": [value["x"] for value in inner if value["x"] is not None]}


def _beside(value, draw):
    """Return a value next to ``value``, of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return (
            max(-(2**31), min(2**31 - 1, value + draw.choice((-1, 1))))
            if isinstance(value, int)
            else value + 0.25
        )
    if isinstance(value, str):
        return value + draw.choice(("a", "\x00", " "))
    if isinstance(value, bytes):
        return value + b"\x00"
    if isinstance(value, datetime) and 1900 < value.year < 2100:
        return value + timedelta(microseconds=draw.choice((-1, 1)))
    return value


SETTINGS = {
    "spark.sql.adaptive.enabled": ("true", "true", "false"),
    "spark.sql.ansi.enabled": ("true", "false"),
    "spark.sql.cbo.enabled": ("true", "false"),
    "spark.sql.cbo.joinReorder.enabled": ("true", "false"),
    "spark.sql.statistics.histogram.enabled": ("true", "false"),
    "spark.sql.autoBroadcastJoinThreshold": ("10485760", "10485760", "2000", "-1"),
    "spark.sql.session.timeZone": ("UTC", "America/Los_Angeles"),
    "spark.sql.codegen.wholeStage": ("false", "false", "false", "true"),
    "spark.sql.optimizer.dynamicPartitionPruning.reuseBroadcastOnly": ("true", "false"),
    "spark.sql.optimizer.runtime.bloomFilter.applicationSideScanSizeThreshold": ("10GB", "0"),
    "spark.sql.parquet.enableVectorizedReader": ("true", "true", "true", "false"),
    "spark.sql.execution.topKSortFallbackThreshold": ("2147483632", "2147483632", "2"),
    "spark.sql.parquet.datetimeRebaseModeInRead": ("CORRECTED", "LEGACY", "EXCEPTION"),
    "spark.sql.parquet.int96RebaseModeInRead": ("CORRECTED", "LEGACY", "EXCEPTION"),
    "spark.sql.files.ignoreCorruptFiles": ("false", "true"),
    "spark.sql.files.ignoreMissingFiles": ("false", "true"),
    "spark.sql.parquet.binaryAsString": ("false", "true"),
    "spark.sql.parquet.int96AsTimestamp": ("true", "false"),
    "spark.sql.parquet.int96TimestampConversion": ("false", "true"),
    "spark.sql.parquet.inferTimestampNTZ.enabled": ("true", "false"),
    "spark.sql.legacy.parquet.nanosAsLong": ("false", "true"),
    "spark.sql.parquet.fieldId.read.enabled": ("false", "true"),
    "spark.sql.parquet.filterPushdown": ("true", "true", "false"),
    "spark.sql.parquet.enableNestedColumnVectorizedReader": ("true", "false"),
    "spark.sql.optimizer.nestedSchemaPruning.enabled": ("true", "true", "false"),
    "spark.sql.caseSensitive": ("false", "true"),
    "spark.sql.timestampType": ("TIMESTAMP_LTZ", "TIMESTAMP_NTZ"),
    "spark.sql.legacy.timeParserPolicy": ("CORRECTED", "LEGACY", "EXCEPTION"),
    "spark.sql.mapKeyDedupPolicy": ("EXCEPTION", "LAST_WIN"),
    "spark.sql.charAsVarchar": ("false", "true"),
    "spark.sql.storeAssignmentPolicy": ("ANSI", "LEGACY", "STRICT"),
}
"""The values of each setting. Compiling queries takes longer than running them."""


def settings(draw):
    """Return one value of each setting."""
    return {name: draw.choice(values) for name, values in SETTINGS.items()}
