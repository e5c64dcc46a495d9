"""Hudi downgrades a table that mdt has upgraded to version 9."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hudi_session import HudiSession
from reader import bag

import mdt
from mdt.hudi import properties
from mdt.metadata.history.foreign_writers import read_properties
from mdt.stores.storage import LocalStorage


def newer(rows, ts):
    """Return rows with another value of the ordering field."""
    place = rows.schema.get_field_index("ts")
    return rows.set_column(place, rows.schema.field(place), pa.array([ts] * len(rows), pa.int64()))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_downgrade_by_hudi_keeps_the_rows(kind, tmp_path):
    source, path = tmp_path / "made", tmp_path / "t"
    with HudiSession(tmp_path / "session") as hudi:
        hudi.create(source, 6, kind, {})
        hudi.call(source, "upsert", list(range(30)), 10)
        rows = mdt.open(source).scan().to_arrow()
        table = mdt.create(
            path, rows.schema, key=["id"], partition_by=["city"], ordering="ts", table_type=kind
        )
        table.insert(rows)
        table.upsert(newer(rows.slice(0, 9), 20))
        table.delete(rows.slice(20, 3))
        table.upgrade(9)
        table.upsert(newer(rows.slice(3, 4), 30))
        expected = bag(table.scan().to_arrow())
        assert [row["ts"] for row in table.scan("ts > 10").to_arrow().to_pylist()].count(30) == 4
        hudi.create(path, 9, kind, {})
        hudi.call(path, "sql", "call downgrade_table(table => '{t}', to_version => 'SIX')")
        stored = read_properties(LocalStorage(path))
        assert stored is not None and stored[properties.VERSION] == "6"
        assert bag(hudi.rows(path).select(rows.column_names)) == expected
        assert bag(mdt.open(path).scan(columns=rows.column_names).to_arrow()) == expected
