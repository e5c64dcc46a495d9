"""How the model upserts: at once, or through a writer that gathers."""

from __future__ import annotations

import pyarrow as pa
from counting import count
from hypothesis import strategies as st

import mdt


def upserted(data: st.DataObject, table: mdt.Table, rows: pa.Table) -> mdt.WriteResult:
    """Upsert rows, or give the first one and the others to a writer that gathers them."""
    if data.draw(st.integers(0, 3), label="gathered") < 3:
        return table.upsert(rows)
    with table.writer(max_seconds=3600) as writer:
        told = [writer.upsert(part) for part in (rows[:1], rows[1:])]
    count("upserts that the model gathers")
    assert told[0].result() is told[1].result()
    return told[0].result()
