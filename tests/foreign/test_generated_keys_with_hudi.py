"""Hudi and mdt write in turns to adopted tables whose record keys Hudi generates."""

from __future__ import annotations

import pyarrow.compute as pc
import pytest
from hudi_session import HudiSession

import mdt

OPTIONS = {
    "hoodie.datasource.write.recordkey.field": None,
    "hoodie.datasource.write.precombine.field": None,
    "hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING",
    "hoodie.index.type": None,
}
COMPACTS = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
KEY = "_hoodie_record_key"


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_hudi_and_mdt_insert_update_and_delete_rows_with_generated_keys(kind, version, tmp_path):
    path = tmp_path / "t"
    with HudiSession(tmp_path / "session") as hudi:
        hudi.create(path, version, kind, OPTIONS)
        hudi.call(path, "insert", list(range(12)), 1)
        hudi.call(path, "insert", [0, 1], 2)
        ours = mdt.adopt(path, indexes=["bitmap(v)"])
        assert ours.definition.key == (KEY,)
        rows = require_same_rows(hudi, path, ours, 14)
        ours.insert(rows.filter(pc.field("v") < 3).drop_columns([KEY]))
        require_same_rows(hudi, path, ours, 19)
        assert ours.update_where({"v": "v + 100"}, "v < 3").updated == 10
        require_same_rows(hudi, path, ours, 19)
        ours.delete_where("v = 5")
        require_same_rows(hudi, path, ours, 18)
        hudi.call(path, "sql", "update {t} set v = v + 1000 where v >= 100")
        assert ours.scan("v >= 1100").count() == 10
        require_same_rows(hudi, path, ours, 18)
        hudi.call(path, "sql", "delete from {t} where v = 7 or v = 1100")
        require_same_rows(hudi, path, ours, 13)
        ours.compact()
        compacts = COMPACTS if kind == "MERGE_ON_READ" else {}
        hudi.call(path, "insert", [20, 21], 3, **compacts)
        require_same_rows(hudi, path, ours, 15)
        ours.cluster(by=["v"])
        ours.update_where({"v": "0"}, "id = 'k020'")
        hudi.call(path, "sql", "update {t} set v = 1 where v = 0")
        require_same_rows(hudi, path, ours, 15)
        assert ours.scan("v = 1").count() == 1


def require_same_rows(hudi, path, ours, count):
    """Compare our rows and their keys with those of Hudi. Return our rows."""
    rows = ours.scan().to_arrow().sort_by(KEY)
    columns = [KEY, "id", "city", "ts", "v"]
    theirs = hudi.rows(path).select(columns).sort_by(KEY).to_pylist()
    assert rows.select(columns).to_pylist() == theirs
    assert len({row[KEY] for row in theirs}) == len(theirs) == count
    assert ours.check().ok
    return rows
