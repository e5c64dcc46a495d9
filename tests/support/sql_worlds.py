"""Random tables of several files, deleted rows and log files, which Spark reads in every way beside
plain Parquet of the same rows.

A world is determined by its seed. Two tables, ``a`` and a smaller ``b``, have columns by which they
can be joined: some rise with the order in which rows were written, so that files differ in them,
and some are random and full of the values that break indexes.
"""

from __future__ import annotations

import gc
import math
import random
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from random_tables import TYPES
from trees import create

import mdt
from indexes.testing import pool
from mdt.hudi.base_file import CALENDAR

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Row = dict[str, Any]

FOLLOWING, SINCE = ("view", "format", "catalog"), "since"
"""Ways to read a table. mdt.read, spark.read.format("mdt") and a table of the catalog follow the
table. An incremental read since the beginning does not.
"""
WAYS = (*FOLLOWING, SINCE)
PLAIN = "plain"
KEYS = {"text": pa.string(), "number": pa.int64(), "day": pa.date32()}
FIXED = {
    "k": pa.int64(),
    "g": pa.string(),
    "n": pa.int32(),
    "x": pa.float64(),
    "m": pa.decimal128(9, 2),
    "d": pa.date32(),
    "at": pa.timestamp("us", "UTC"),
    "wall": pa.timestamp("us"),
    "ok": pa.bool_(),
    "s": pa.struct({"n": pa.int32(), "t": pa.string(), "u": pa.struct({"x": pa.float32()})}),
}
LATE = "late"
"""A column that some tables get in a later write."""
ODD = tuple(
    type
    for type in TYPES
    if type
    in (
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.decimal128(38, 0),
        pa.date32(),
        pa.timestamp("us", "UTC"),
        pa.string(),
        pa.binary(),
    )
)
FLOATS = (math.nan, -math.inf, math.inf, -0.0, 0.0, 1.5, None)
GROUPS = ("", "red", "green", "a%b_\\", "p" * 70 + "a", "p" * 70 + "b", "ä", None)
PLACES = ("x", "ä 50%/[z]", "two words", None)
CHANGES = (
    "upsert",
    "upsert",
    "upsert",
    "delete",
    "delete",
    "cluster",
    "compact",
    "late",
    "none left",
)
FIRST_TIMES = tuple(
    datetime(*when, 6, tzinfo=UTC)
    for when in ((2024, 3, 10), (2024, 3, 10), (1, 1, 2), (1582, 10, 1), (9999, 5, 1))
)
"""Some hours before Los Angeles loses an hour, the first possible days, the days on which calendars
differ, and the last possible days.
"""
BEFORE_TIMES = timedelta(days=19)
"""The days of a table begin this much earlier than its times, or with them."""


@dataclass
class Made:
    """One table: its location, its rows at the state that is read, and a description of its
    changes.

    Attributes:
        at: The commit that is read, or None for the newest.
    """

    name: str
    path: Path
    schema: pa.Schema
    partitioned: bool
    rows: dict[Any, Row] = field(default_factory=dict)
    at: int | None = None
    story: list[str] = field(default_factory=list)

    @property
    def values(self):
        """The values of each column without nulls."""
        live = list(self.rows.values())
        return {
            name: [row[name] for row in live if row[name] is not None] for name in self.schema.names
        }


@dataclass
class World:
    """Both tables below a folder. ``frames``: each of them, read in every way."""

    seed: str
    folder: Path
    tables: dict[str, Made] = field(default_factory=dict)
    frames: dict[str, dict[str, DataFrame]] = field(default_factory=dict)

    def told(self):
        """Return a description of the changes of the tables."""
        return "\n".join(f"  {made.name}: {', '.join(made.story)}" for made in self.tables.values())

    def use(self, way, plain=""):
        """Let the names of the tables refer to ``way``. Those in ``plain`` refer to plain
        Parquet.
        """
        for name in self.tables:
            self.frames[PLAIN if name in plain else way][name].createOrReplaceTempView(name)


@contextmanager
def world(spark, seed, folder):
    """Yield the world of a seed. Its catalog tables are dropped afterwards."""
    import mdt.spark  # and so pyspark, which takes a second

    mdt.spark.enable(spark)
    new_world = World(seed, folder)
    draw = random.Random(seed)
    rise = draw.choice((30, 80, 200))
    key = draw.choice(sorted(KEYS))
    begin = draw.choice(FIRST_TIMES)
    makers = {name: _Maker(draw, name, key, folder / name, rise, begin) for name in ("a", "b")}
    makers["a"].make(rise)
    makers["b"].make(draw.choice((0, 3, 12, 30)) if draw.random() < 0.9 else rise)
    new_world.tables = {name: maker.made for name, maker in makers.items()}
    try:
        for way in FOLLOWING:
            new_world.frames[way] = {
                name: _frame(spark, made, way) for name, made in new_world.tables.items()
            }
        for name, maker in makers.items():
            if maker.goes_on():
                for way in FOLLOWING:
                    new_world.frames[way][name].count()
                maker.go_on()
            maker.write_plain()
        for way in (SINCE, PLAIN):
            new_world.frames[way] = {
                name: _frame(spark, made, way) for name, made in new_world.tables.items()
            }
        yield new_world
    finally:
        for name in new_world.tables:
            spark.sql(f"drop table if exists sql_world_{name}")
            spark.catalog.dropTempView(name)
        new_world.frames.clear()
        gc.collect()  # used frames are reference cycles that hold broadcasts in the JVM


class _Maker:
    """Creates one table and tracks its rows. ``rise``: the numbers up to which ``n`` rises.
    ``begin``: the first of its times.
    """

    def __init__(self, draw, name, key, path, rise, begin):
        self.draw, self.rise, self.key = draw, rise, key
        self.first_time = begin
        self.first_day = begin.date() if begin.year == 1 else (begin - BEFORE_TIMES).date()
        odd = {f"r{i}": draw.choice(ODD) for i in range(draw.choice((0, 1, 2)))}
        schema = pa.schema({"id": KEYS[key], "p": pa.string(), **FIXED, **odd})
        self.made = Made(name, path, schema, draw.random() < 0.4)
        self.pools = {column: (*pool(type), None) for column, type in odd.items()}
        self.is_sparse = draw.random() < 0.2
        self.states = []

    def make(self, count):
        draw, made = self.draw, self.made
        options = {
            "mdt.row.group.rows": draw.choice((3, 10, 1024)),
            "mdt.max.file.bytes": draw.choice((1024, 4096, 1 << 20)),
            "mdt.small.file.bytes": 0,
        }
        if draw.random() < 0.3:
            options["mdt.column.stats.columns"] = draw.choice(("", "k,n", "id,x,s.n"))
        settings = {
            "table_type": draw.choice(("MERGE_ON_READ", "MERGE_ON_READ", "COPY_ON_WRITE")),
            "key_index": draw.choice(("bloom", "record")),
            "partition_by": ["p"] if made.partitioned else [],
            "indexes": draw.choice(((), (), ("bitmap(g)", "bloom(k)"))),
        }
        made.story.append(f"{count} rows, {options}, {settings}, {made.schema.to_string()!r}")
        table = create(made.path, made.schema, options=options, **settings)
        parts = draw.choice((1, 2, 5))
        numbers = sorted(draw.sample(range(self.rise), min(count, self.rise)))
        if draw.random() < 0.2:
            draw.shuffle(numbers)
        for part in range(parts):
            self._write(
                table,
                table.bulk_insert,
                numbers[part * count // parts : (part + 1) * count // parts],
            )
        for _ in range(draw.choice((0, 1, 3, 4))):
            table = mdt.open(table.path)
            self._change(table)
        self._choose()
        return made

    def goes_on(self):
        """Return whether the table changes once more after it was opened."""
        return self.made.at is None and self.draw.random() < 0.3

    def go_on(self):
        self.made.story.append("read")
        self._change(mdt.open(self.made.path), ("upsert", "delete", "compact"))

    def _change(self, table, kinds=CHANGES):
        draw, made = self.draw, self.made
        kind = draw.choice(kinds)
        numbers = [row["number"] for row in made.rows.values()]
        if kind == "cluster":
            by = draw.choice((["k"], ["n"], ["x"], ["g", "k"], ["d"], ["m"]))
            made.story.append(f"cluster({by})")
            table.cluster(by)
        elif kind == "compact":
            made.story.append("compact()")
            table.compact()
        elif kind == "delete" and numbers:
            self._delete(table, draw.sample(numbers, draw.randint(1, 1 + len(numbers) // 3)))
        elif kind == "none left" and numbers and draw.random() < 0.3:
            self._delete(table, numbers)
        elif kind == "late" and LATE not in made.schema.names:
            made.schema = made.schema.append(pa.field(LATE, pa.int64()))
            for row in made.rows.values():
                row[LATE] = None
            self._write(
                table,
                lambda rows: table.upsert(rows, evolve=True),
                draw.sample(range(self.rise), 5),
            )
        else:
            updated_numbers = (
                draw.sample(numbers, draw.randint(0, len(numbers) // 2)) if numbers else []
            )
            self._write(
                table,
                table.upsert,
                sorted({*updated_numbers, *draw.sample(range(self.rise), draw.randint(0, 3))}),
            )
        self._keep(mdt.open(table.path))

    def _delete(self, table, numbers):
        made = self.made
        deleted_rows = [made.rows.pop(self._key(number)) for number in numbers]
        made.story.append(f"delete {sorted(numbers)}")
        table.delete(pa.Table.from_pylist(deleted_rows, made.schema))
        self._keep(mdt.open(table.path))

    def _write(self, table, write, numbers):
        made = self.made
        rows = [self._row(number) for number in numbers]
        made.story.append(f"{getattr(write, '__name__', 'upsert with a column more')} {numbers}")
        if rows:
            write(pa.Table.from_pylist(rows, made.schema))
        made.rows.update((row["id"], row) for row in rows)
        self._keep(mdt.open(table.path))

    def _keep(self, table):
        history = table.history()
        newest = max(history["seq"].to_pylist(), default=0) if len(history) else 0
        self.states.append(
            (newest, self.made.schema, {key: dict(row) for key, row in self.made.rows.items()})
        )

    def _choose(self):
        """In some tables, let an earlier state be the one that is read."""
        made = self.made
        if self.draw.random() < 0.2 and len(self.states) > 1:
            made.at, made.schema, made.rows = self.draw.choice(self.states[:-1])
            # If two states have the same number, the later one is read.
            made.schema, made.rows = [
                (schema, rows) for at, schema, rows in self.states if at == made.at
            ][-1]
            made.story.append(f"read as of {made.at}")

    def write_plain(self):
        made = self.made
        rows = [{name: row[name] for name in made.schema.names} for row in made.rows.values()]
        data = pa.Table.from_pylist(rows, made.schema).replace_schema_metadata(CALENDAR)
        folder = made.path.with_name(f"{made.name}_{PLAIN}")
        folder.mkdir()
        for part in range(2):
            half = len(data) // 2
            rows_of_part = data.slice(part * half, half if part == 0 else None)
            # With statistics and dictionaries, Spark would skip row groups with NaN, or with the
            # other zero, although a filter matches them.
            pq.write_table(
                rows_of_part,
                folder / f"{part}.parquet",
                write_statistics=False,
                use_dictionary=False,
            )

    def _key(self, number):
        return {
            "text": f"k{number:04}",
            "number": number - 5,
            "day": self.first_day + timedelta(days=number),
        }[self.key]

    def _row(self, number):
        """Return the row of a number: values that mostly rise with it, and random values."""
        draw = self.draw
        near = number if draw.random() < 0.9 else draw.randrange(self.rise)

        def maybe(value, nulls=0.08):
            return None if draw.random() < (0.8 if self.is_sparse else nulls) else value

        row = {
            "number": number,
            "id": self._key(number),
            "p": PLACES[number % len(PLACES)],
            "k": maybe(near // 2),
            "g": draw.choice(GROUPS),
            "n": maybe(near, 0.03),
            "x": draw.choice(FLOATS) if draw.random() < 0.3 else near / 4,
            "m": maybe(Decimal(near) / 4),
            "d": maybe(self.first_day + timedelta(days=near)),
            "at": maybe(self.first_time + timedelta(minutes=17 * near)),
            "wall": maybe((self.first_time + timedelta(hours=near)).replace(tzinfo=None)),
            "ok": maybe(number % 3 == 0),
            "s": maybe(
                {"n": maybe(near), "t": draw.choice(GROUPS), "u": maybe({"x": draw.choice(FLOATS)})}
            ),
            **{name: draw.choice(values) for name, values in self.pools.items()},
        }
        return row | ({LATE: maybe(near, 0.5)} if LATE in self.made.schema.names else {})


def _frame(spark, made, way):
    """Return a table at its state, read in one of the ways."""
    if way == PLAIN:
        return spark.read.parquet(str(made.path.with_name(f"{made.name}_{PLAIN}")))
    if way == "view":
        return mdt.read(spark, made.path, as_of=made.at)
    if way == SINCE:
        reader = spark.read.format("mdt").option("since", 0)
        return (reader if made.at is None else reader.option("until", made.at)).load(str(made.path))
    if way == "format":
        reader = spark.read.format("mdt")
        return (reader if made.at is None else reader.option("as_of", made.at)).load(str(made.path))
    spark.sql(f"drop table if exists sql_world_{made.name}")
    spark.sql(f"create table sql_world_{made.name} using mdt location '{made.path}'")
    version = "" if made.at is None else f" version as of {made.at}"
    return spark.sql(f"select * from sql_world_{made.name}{version}")
