"""Tables with other formats than Hudi's and random changes of them, for tests of other engines."""

from __future__ import annotations

import pyarrow as pa

import mdt
from mdt.stores.storage import LocalStorage

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("fare", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
    ]
)
CITIES = ("x", "Os lo", "50%", "é", None)


def rows(ids, ts, schema=SCHEMA):
    """Return a row for each number. Columns that are not in SCHEMA have the value ``ts``."""
    columns = {
        "id": list(ids),
        "city": [CITIES[n % len(CITIES)] for n in ids],
        "ts": [ts] * len(ids),
        "fare": [None if n % 7 == 0 else n / 3 + ts for n in ids],
        "at": [n * 1_000_001 for n in ids],
        "tags": [[str(n), None][: n % 3] for n in ids],
    }
    columns |= {name: [ts] * len(ids) for name in schema.names[len(columns) :]}
    return pa.table(columns, schema=schema)


def make(path, kind, formats, *, is_partitioned):
    storage = LocalStorage(path, durable=False)
    return make_at(storage, kind, formats, is_partitioned=is_partitioned)


def make_at(storage, kind, formats, *, is_partitioned, version=None):
    options = {"mdt.services.auto": False, "mdt.formats.retain.hours": 0}
    return mdt.create(
        storage,
        SCHEMA,
        ["id"],
        partition_by=["city"] if is_partitioned else [],
        ordering="ts",
        table_type=kind,
        key_index="record",
        formats=formats,
        options=options,
        version=version,
    )


def step(table, draw, ts):
    """Change a table at random, and return the name of the change."""
    ids = draw.sample(range(60), 12)
    steps = {
        "upsert": lambda: table.upsert(rows(ids, ts, table.schema)),
        "delete": lambda: table.delete(rows(ids[:4], ts)),
        "update": lambda: table.update_where({"fare": "fare * 2"}, f"id < {ids[0]}"),
        "compact": table.compact,
        "cluster": lambda: table.cluster("fare"),
        "clean": lambda: table.clean(retain_commits=3),
        "add a column": lambda: table.alter(add={f"n{ts}": pa.int32()}),
    }
    weights = (8, 3, 2, 2, 1, 1, 1)
    [name] = draw.choices(list(steps), weights)
    steps[name]()
    return name
