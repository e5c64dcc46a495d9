"""Hudi reads and writes tables after mdt has rewritten all rows for a change of the schema."""

from __future__ import annotations

import pytest
from hudi_session import HudiSession
from reader import bag

import mdt


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_hudi_reads_and_writes_after_our_schema_change_that_rewrites_all_rows(
    kind, version, tmp_path
):
    with HudiSession(tmp_path / "session") as hudi:
        path = tmp_path / "t"
        hudi.create(path, version, kind, {})
        hudi.call(path, "upsert", list(range(30)), 10)
        hudi.call(path, "upsert", list(range(0, 30, 4)), 20)
        ours = mdt.adopt(path)
        ours.alter(
            widen={"v": "int64"},
            rename={"price": "amount", "spot.name": "label"},
            add={"note": "string", "price": "string"},
            defaults={"note": "older"},
            rewrite=True,
        )
        assert ours.scan("note = 'older' and price is null").count() == 30
        same_rows(hudi, path, ours)
        ours.upsert(ours.scan("v < 12").to_arrow())
        same_rows(hudi, path, ours)
        hudi.call(path, "set_column", "v", "cast(n + {add} as bigint)")
        hudi.call(path, "set_column", "amount", "n / 4 + {add}")
        hudi.call(path, "set_column", "price", "concat('p', n)")
        hudi.call(path, "set_column", "note", "'newer'")
        spot = "named_struct('x', cast(n as int), 'label', 'at {ts}')"
        hudi.call(path, "set_column", "spot", spot)
        hudi.call(path, "upsert", list(range(10, 40)), 30)
        same_rows(hudi, path, ours)
        assert ours.scan("note = 'newer'").count() == 30
        ours.delete_where("v = 3")
        same_rows(hudi, path, ours)


def same_rows(hudi, path, ours):
    theirs = hudi.rows(path)
    names = [name for name in theirs.column_names if not name.startswith("_hoodie_")]
    our_rows = ours.scan(columns=names).to_arrow()
    assert bag(theirs.select(names).cast(our_rows.schema)) == bag(our_rows)
    report = ours.check()
    assert report.ok, str(report)
