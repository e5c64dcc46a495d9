"""Random tables of several files, row groups and log files, and the rows that live in them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck
from hypothesis import strategies as st

import mdt
from indexes.testing import ALL_TYPES, scalars
from mdt.schema.declared import stored
from mdt.stores.storage import MemoryStorage

QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}


def _declarable(type: pa.DataType) -> bool:
    try:
        stored(pa.schema([("c", type)]))
    except mdt.MdtError:
        return False
    return True


TYPES = [type for type in ALL_TYPES if _declarable(type)]
"""Every type that has an order and that a table can be declared with."""


def create(schema: pa.Schema, **more: Any) -> mdt.Table:
    options = {"mdt.row.group.rows": 3, "mdt.max.file.bytes": 1 << 20, "mdt.small.file.bytes": 0} | more.pop(
        "options", {}
    )
    return mdt.create(MemoryStorage(), schema, ["id"], options=options, **more)


@st.composite
def tables(draw: st.DrawFn) -> tuple[mdt.Table, pa.Table]:
    """Draw a table of several files, row groups and log files, and its live rows as one Arrow table."""
    types = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=3))
    schema = pa.schema([("id", pa.string()), *((f"c{i}", type) for i, type in enumerate(types))])
    table = create(
        schema,
        table_type=draw(st.sampled_from(("MERGE_ON_READ", "COPY_ON_WRITE"))),
        key_index=draw(st.sampled_from(("bloom", "record"))),
    )
    live: dict[str, dict[str, Any]] = {}
    for _ in range(draw(st.integers(1, 4))):
        keys = draw(st.lists(st.integers(0, 20), min_size=1, max_size=9, unique=True))
        columns = [draw(st.lists(st.none() | scalars(t), min_size=len(keys), max_size=len(keys))) for t in types]
        rows = pa.table([pa.array([f"k{k:02}" for k in keys]), *map(pa.array, columns, types)], schema=schema)
        table.upsert(rows)
        live |= {row["id"]: row for row in rows.to_pylist()}
    gone = draw(st.lists(st.sampled_from(sorted(live)), max_size=4, unique=True))
    if gone:
        table.delete(pa.table({"id": gone}))
    kept = [row for key, row in live.items() if key not in gone]
    return table, pa.Table.from_pylist(kept, schema=schema)
