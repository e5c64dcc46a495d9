"""Hudi numbers the columns of a table (schema on read). Commits of mdt keep these numbers."""

from __future__ import annotations

import pytest
from hudi_session import HudiSession
from hudi_table import ON_READ
from refusals import refused
from test_alterations_with_hudi import same_rows

import mdt
from mdt.errors import Unsupported

OPTIONS = {
    ON_READ: "true",
    "hoodie.datasource.write.schema.allow.auto.evolution.column.drop": "true",
}


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("is_numbered", [False, True])
def test_hudi_alters_columns_and_reads_them_by_number_after_our_commits(
    is_numbered, kind, version, tmp_path
):
    with HudiSession(tmp_path / "session") as hudi:
        path = tmp_path / "t"
        hudi.create(path, version, kind, OPTIONS)
        hudi.call(path, "upsert", list(range(30)), 10)
        if is_numbered:  # before the adoption
            hudi.call(path, "sql", "alter table {t} drop column price")
        ours = mdt.adopt(path)
        if not is_numbered:
            hudi.call(path, "sql", "alter table {t} drop column price")
        hudi.call(path, "sql", "alter table {t} add columns (extra int)")
        ours.refresh()
        ours.upsert(ours.scan("v < 12").to_arrow())
        same_rows(hudi, path, ours)
        hudi.call(path, "drop_column", "price")
        hudi.call(path, "set_column", "extra", "cast(n as int)")
        hudi.call(path, "upsert", list(range(10, 40)), 30)
        same_rows(hudi, path, ours)
        ours.delete_where("extra = 13")
        if kind == "MERGE_ON_READ":
            ours.compact()
        hudi.call(path, "sql", "alter table {t} add columns (note string)")
        hudi.call(path, "set_column", "note", "concat('note ', n)")
        hudi.call(path, "upsert", list(range(35, 45)), 40)
        ours.update_where({"note": "'ours'"}, "v = 36")
        same_rows(hudi, path, ours)
        hudi.call(path, "sql", "alter table {t} rename column v to w")
        refused("columns were renamed", ours.delete_where, "v = 1", kind=Unsupported)
        same_rows(hudi, path, mdt.open(path))
        assert mdt.open(path).scan("w = 36 and note = 'ours'").count() == 1
