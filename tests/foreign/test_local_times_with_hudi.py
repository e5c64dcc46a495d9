"""Hudi and mdt read and write times without a time zone, which both store as local timestamps."""

from __future__ import annotations

import json

import pytest
from hudi_session import HudiSession
from reader import bag

import mdt

LOCAL = "cast(timestamp_micros(1700000000123456 + n * 1000000 + {add}) as timestamp_ntz)"
SKIPPING = {"hoodie.enable.data.skipping": "true"}
STATISTICS = {
    "hoodie.metadata.enable": "true",
    "hoodie.embed.timeline.server": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
}


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("options", [{}, STATISTICS], ids=["plain", "statistics"])
@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_hudi_and_mdt_read_and_write_local_timestamps_in_turns(kind, version, options, tmp_path):
    with HudiSession(tmp_path / "session") as hudi:
        path = tmp_path / "t"
        hudi.create(path, version, kind, options)
        hudi.call(path, "set_column", "at", LOCAL)
        hudi.call(path, "upsert", list(range(30)), 10)
        hudi.call(path, "upsert", list(range(0, 30, 4)), 20, 7)
        ours = mdt.adopt(path)
        require_same_rows(hudi, path, ours)
        ours.upsert(ours.scan("v < 12").to_arrow())
        ours.update_where({"at": "timestamp '2024-05-06 07:08:09'"}, "v = 13")
        require_same_rows(hudi, path, ours)
        hudi.call(path, "upsert", list(range(10, 40)), 30, 3)
        require_same_rows(hudi, path, ours)
        ours.delete_where("v = 3")
        if kind == "MERGE_ON_READ":
            ours.compact()
        hudi.call(path, "set_column", "later", f"if(n < 0, null, {LOCAL})")
        hudi.call(path, "upsert", list(range(38, 45)), 40, 9)
        ours.upsert(ours.scan("later is null").to_arrow())
        require_same_rows(hudi, path, ours)
        if options:
            # Hudi skips files with the statistics that our commits store
            query = "at >= timestamp_ntz'2024-05-06 07:08:09'"
            answer = json.loads(hudi.call(path, "query", query, **options, **SKIPPING))
            assert len(answer["keys"]) == ours.scan("at >= timestamp '2024-05-06 07:08:09'").count()


def require_same_rows(hudi, path, ours):
    theirs = hudi.rows(path)
    names = [name for name in theirs.column_names if not name.startswith("_hoodie_")]
    our_rows = ours.scan(columns=names).to_arrow()
    assert bag(theirs.select(names)) == bag(our_rows)
    report = ours.check()
    assert report.ok, str(report)
