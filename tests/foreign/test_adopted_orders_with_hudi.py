"""Hudi and mdt write in turns to adopted tables with several ordering fields."""

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
def test_hudi_and_mdt_compare_several_ordering_fields_in_sequence(kind, version, tmp_path):
    path = tmp_path / "t"
    with HudiSession(tmp_path / "session") as hudi:
        hudi.create(path, version, kind, OPTIONS)
        hudi.call(path, "set_column", "note", "concat('n', {add})")
        hudi.call(path, "upsert", list(range(12)), 5, 5)
        hudi.call(path, "upsert", [0, 1], 5, 6)
        ours = mdt.adopt(path)
        assert ours.definition.ordering == ("ts", "note")
        rows = require_same_rows(hudi, path, ours, {0: "n6", 1: "n6", 2: "n5"})
        by_number = {int(row["id"][1:]): row for row in rows.to_pylist()}
        changes = {0: (5, "n5"), 1: (5, "n7"), 2: (5, "n4"), 3: (5, "n5"), 4: (4, "n9"), 5: (6, "")}
        changed = [by_number[n] | {"ts": ts, "note": note} for n, (ts, note) in changes.items()]
        result = ours.upsert(type(rows).from_pylist(changed, ours.definition.declared))
        assert (result.updated, result.late) == (3, 3)
        require_same_rows(hudi, path, ours, {0: "n6", 1: "n7", 2: "n5", 4: "n5", 5: ""})
        hudi.call(path, "upsert", [1, 2, 6], 5, 6)  # n6 is below n7
        require_same_rows(hudi, path, ours, {1: "n7", 2: "n6", 6: "n6"})
        ours.update_where({"note": "'n1'"}, "id = 'k001'")
        ours.delete([{"id": "k002", "city": by_number[2]["city"]}])
        hudi.call(path, "upsert", [1, 2], 6, 3)
        require_same_rows(hudi, path, ours, {1: "n3", 2: "n3"})
        if kind == "MERGE_ON_READ":
            hudi.call(path, "upsert", [7], 6, 4, **COMPACTS)  # SQL refuses several fields
            require_same_rows(hudi, path, ours, {1: "n3", 2: "n3", 7: "n4"})
        ours.compact()
        require_same_rows(hudi, path, ours, {0: "n6", 5: "", 6: "n6"})


def require_same_rows(hudi, path, ours, notes):
    """Compare our rows with those of Hudi. Return ours.

    Args:
        notes: Number of a row -> its expected note.
    """
    rows = ours.scan().to_arrow().sort_by("id")
    columns = ["id", "city", "ts", "v", "note"]
    theirs = hudi.rows(path).select(columns).sort_by("id").to_pylist()
    assert rows.select(columns).to_pylist() == theirs
    notes_by_number = {int(row["id"][1:]): row["note"] for row in theirs}
    assert notes_by_number | notes == notes_by_number and len(theirs) == 12
    assert ours.check().ok
    return rows
