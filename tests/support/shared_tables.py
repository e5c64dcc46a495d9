"""Tables with two writers: mdt, and another in the place of Hudi's."""

from __future__ import annotations

import pyarrow as pa
from hudi_tables import bag
from other_writer import OtherWriter
from texts import columns

import mdt

SCHEMA = columns("id int64, city string, v int64, note string")


def rows_of(t: mdt.Table) -> list[str]:
    return bag(t.scan().to_arrow())


def batch(ids, v, city="Oslo"):
    n = len(ids)
    return pa.table({"id": ids, "city": [city] * n, "v": [v] * n, "note": [f"n{v}"] * n})


def other_table(storage, table_type="MERGE_ON_READ", version=6, **named):
    """Return a table that another writer has created in ``storage``.

    named: More arguments of :func:`mdt.create`.
    """
    return mdt.create(
        OtherWriter(storage),
        SCHEMA,
        ["id"],
        partition_by=["city"],
        ordering="v",
        table_type=table_type,
        version=version,
        **named,
    )
