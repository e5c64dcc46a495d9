"""Tables whose partition paths Hudi makes of a time, adopted and written in turns."""

from __future__ import annotations

import pytest
from hudi_session import HudiSession

import mdt

PREFIX = "hoodie.keygen.timebased."
OPTIONS = {
    "hoodie.datasource.write.keygenerator.class": (
        "org.apache.hudi.keygen.TimestampBasedKeyGenerator"
    ),
    "hoodie.datasource.write.partitionpath.field": "seen",
    "hoodie.datasource.write.hive_style_partitioning": "false",
    f"{PREFIX}output.dateformat": "yyyy/MM/dd",
    f"{PREFIX}timezone": "Asia/Tokyo",
}
UNITS = {"UNIX_TIMESTAMP": 1, "EPOCHMILLISECONDS": 1_000, "EPOCHMICROSECONDS": 1_000_000}


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_both_writers_put_each_time_into_the_same_partition(kind, version, tmp_path):
    with HudiSession(tmp_path / "session") as hudi:
        for unit, per_second in UNITS.items():
            path = tmp_path / unit
            options = {**OPTIONS, f"{PREFIX}timestamp.type": unit}
            hudi.create(path, version, kind, options)
            seconds = f"(1700000000L + n * 40000L) * {per_second}L"
            hudi.call(path, "set_column", "seen", f"if(n % 5 = 0, null, {seconds})")
            hudi.call(path, "upsert", list(range(20)), 10)
            ours = mdt.adopt(path)
            paths = set(ours.files()["partition"].to_pylist())
            assert "1970/01/01" in paths and len(paths) > 5
            changed = ours.scan("v < 12").to_arrow()
            new = changed.set_column(
                changed.schema.get_field_index("id"),
                "id",
                [[f"new{number}" for number in range(len(changed))]],
            )
            ours.upsert(changed)
            ours.insert(new)
            assert set(ours.files()["partition"].to_pylist()) == paths
            same_rows(hudi, path, ours, 20 + len(new))
            hudi.call(path, "upsert", list(range(5, 25)), 20)
            same_rows(hudi, path, ours, 25 + len(new))


def same_rows(hudi, path, ours, count):
    columns = ["id", "city", "ts", "v", "_hoodie_partition_path"]
    theirs = hudi.rows(path).select(columns).sort_by("id").to_pylist()
    found = ours.scan(columns=columns).to_arrow().sort_by("id").to_pylist()
    assert found == theirs and len(found) == count
    assert ours.check().ok
