"""Tables with several ordering fields, adopted and written in turns."""

from __future__ import annotations

import pytest
from hudi_session import HudiSession

import mdt

COMPACTS = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
OPTIONS = {
    "hoodie.datasource.write.precombine.field": None,
    "hoodie.table.ordering.fields": "ts,note",
    "hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING",
}


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_both_writers_compare_fields_one_after_the_other(kind, version, tmp_path):
    path = tmp_path / "t"
    with HudiSession(tmp_path / "session") as hudi:
        hudi.create(path, version, kind, OPTIONS)
        hudi.call(path, "set_column", "note", "concat('n', {add})")
        hudi.call(path, "upsert", list(range(12)), 5, 5)
        hudi.call(path, "upsert", [0, 1], 5, 6)
        ours = mdt.adopt(path)
        assert ours.definition.ordering == ("ts", "note")
        rows = same_rows(hudi, path, ours, {0: "n6", 1: "n6", 2: "n5"})
        by_number = {int(row["id"][1:]): row for row in rows.to_pylist()}
        changes = {0: (5, "n5"), 1: (5, "n7"), 2: (5, "n4"), 3: (5, "n5"), 4: (4, "n9"), 5: (6, "")}
        changed = [by_number[n] | {"ts": ts, "note": note} for n, (ts, note) in changes.items()]
        done = ours.upsert(type(rows).from_pylist(changed, ours.definition.declared))
        assert (done.updated, done.late) == (3, 3)
        same_rows(hudi, path, ours, {0: "n6", 1: "n7", 2: "n5", 4: "n5", 5: ""})
        hudi.call(path, "upsert", [1, 2, 6], 5, 6)  # n6 is below n7
        same_rows(hudi, path, ours, {1: "n7", 2: "n6", 6: "n6"})
        ours.update_where({"note": "'n1'"}, "id = 'k001'")
        ours.delete([{"id": "k002", "city": by_number[2]["city"]}])
        hudi.call(path, "upsert", [1, 2], 6, 3)
        same_rows(hudi, path, ours, {1: "n3", 2: "n3"})
        if kind == "MERGE_ON_READ":
            hudi.call(path, "upsert", [7], 6, 4, **COMPACTS)  # SQL refuses several fields
            same_rows(hudi, path, ours, {1: "n3", 2: "n3", 7: "n4"})
        ours.compact()
        same_rows(hudi, path, ours, {0: "n6", 5: "", 6: "n6"})


def same_rows(hudi, path, ours, notes):
    """Compare the rows, and some notes by the number of their row. Return our rows."""
    rows = ours.scan().to_arrow().sort_by("id")
    columns = ["id", "city", "ts", "v", "note"]
    theirs = hudi.rows(path).select(columns).sort_by("id").to_pylist()
    assert rows.select(columns).to_pylist() == theirs
    found = {int(row["id"][1:]): row["note"] for row in theirs}
    assert found | notes == found and len(theirs) == 12
    assert ours.check().ok
    return rows
