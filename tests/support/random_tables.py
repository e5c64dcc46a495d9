"""Random tables of several files, row groups and log files, and their live rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

import mdt
from indexes.testing import ALL_TYPES, scalars
from mdt.schema.declared import stored_schema
from mdt.stores.storage import MemoryStorage

QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}


def examples(by_day: int, at_night: int) -> settings:
    """Return settings of Hypothesis with a number of examples by day and a larger one at night."""
    is_night = settings.get_current_profile_name() == "nightly"
    return settings(max_examples=at_night if is_night else by_day, **QUIET)


def _declarable(type: pa.DataType) -> bool:
    try:
        stored_schema(pa.schema([("c", type)]))
    except mdt.MdtError:
        return False
    return True


TYPES = [type for type in ALL_TYPES if _declarable(type)]
"""Every type that has an order and with which a table can be declared."""


_NUMBERS, _WORDS = st.none() | st.integers(-9, 9), st.none() | st.text(max_size=3)
_LISTS = st.none() | st.lists(_NUMBERS, max_size=4)
_PAIRS = st.dictionaries(st.text(max_size=3), _NUMBERS, max_size=3).map(
    lambda pairs: list(pairs.items())
)
_DEEP = st.lists(
    st.none() | st.fixed_dictionaries({"l": _LISTS, "m": st.none() | _PAIRS}), max_size=3
)
NESTED: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.struct([("n", pa.int64()), ("t", pa.string())]): st.fixed_dictionaries(
        {"n": _NUMBERS, "t": _WORDS}
    ),
    pa.struct([("s", pa.struct([("l", pa.list_(pa.int64()))]))]): st.fixed_dictionaries(
        {"s": st.none() | st.fixed_dictionaries({"l": _LISTS})}
    ),
    pa.list_(pa.int64()): _LISTS,
    pa.list_(pa.list_(pa.int64())): st.lists(_LISTS, max_size=3),
    pa.map_(pa.string(), pa.int64()): _PAIRS,
    pa.list_(
        pa.struct([("l", pa.list_(pa.int64())), ("m", pa.map_(pa.string(), pa.int64()))])
    ): _DEEP,
}
"""Types of columns without filters, and their values."""


def create(schema: pa.Schema, **more: Any) -> mdt.Table:
    options = {
        "mdt.row.group.rows": 3,
        "mdt.max.file.bytes": 1 << 20,
        "mdt.small.file.bytes": 0,
    } | more.pop("options", {})
    return mdt.create(MemoryStorage(), schema, ["id"], options=options, **more)


@st.composite
def tables(draw: st.DrawFn, *, nested: bool = False) -> tuple[mdt.Table, pa.Table]:
    """Draw a table of several files, row groups and log files, and its live rows as one Arrow
    table. With ``nested``, it may have nested columns.
    """
    types = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=3))
    types += draw(st.lists(st.sampled_from(list(NESTED)), max_size=2)) if nested else []
    schema = pa.schema([("id", pa.string()), *((f"c{i}", type) for i, type in enumerate(types))])
    table = create(
        schema,
        table_type=draw(st.sampled_from(("MERGE_ON_READ", "COPY_ON_WRITE"))),
        key_index=draw(st.sampled_from(("bloom", "record"))),
    )
    live: dict[str, dict[str, Any]] = {}
    for _ in range(draw(st.integers(1, 4))):
        keys = draw(st.lists(st.integers(0, 20), min_size=1, max_size=9, unique=True))
        values = [st.none() | (NESTED[t] if t in NESTED else scalars(t)) for t in types]
        columns = [
            draw(st.lists(strategy, min_size=len(keys), max_size=len(keys))) for strategy in values
        ]
        rows = pa.table(
            [pa.array([f"k{k:02}" for k in keys]), *map(pa.array, columns, types)], schema=schema
        )
        table.upsert(rows)
        live |= {row["id"]: row for row in rows.to_pylist()}
    deleted = draw(st.lists(st.sampled_from(sorted(live)), max_size=4, unique=True))
    if deleted:
        table.delete(pa.table({"id": deleted}))
    live_rows = [row for key, row in live.items() if key not in deleted]
    return table, pa.Table.from_pylist(live_rows, schema=schema)
