"""Hudi downgrades a table that mdt has upgraded to version 9."""

from __future__ import annotations

import pytest
from hudi_session import HudiSession
from reader import bag

import mdt
from mdt.hudi import properties
from mdt.metadata.history.foreign_writers import read_properties
from mdt.stores.storage import LocalStorage


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
        table.upsert(rows.slice(0, 9))
        table.delete(rows.slice(20, 3))
        before = bag(table.scan().to_arrow())
        table.upgrade(9)
        table.upsert(rows.slice(3, 4))
        hudi.create(path, 9, kind, {})
        hudi.call(path, "sql", "call downgrade_table(table => '{t}', to_version => 'SIX')")
        stored = read_properties(LocalStorage(path))
        assert stored is not None and stored[properties.VERSION] == "6"
        assert bag(hudi.rows(path).select(rows.column_names)) == before
        assert bag(mdt.open(path).scan(columns=rows.column_names).to_arrow()) == before
