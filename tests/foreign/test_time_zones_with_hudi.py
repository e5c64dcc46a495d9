"""Hudi in time zones other than UTC and mdt write to a table in turns."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hudi_kinds import RECORD_INDEX
from hudi_session import HudiSession
from reader import bag

import mdt


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
@pytest.mark.parametrize("options", [{}, RECORD_INDEX], ids=["plain", "record index"])
@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_each_write_replaces_rows_of_the_write_before_in_any_time_zone(
    kind, version, options, zone, tmp_path
):
    with HudiSession(tmp_path / "session", zone) as hudi:
        path = tmp_path / "t"
        hudi.create(path, version, kind, options)
        hudi.call(path, "upsert", list(range(30)), 10)
        ours = mdt.adopt(path)
        for ts in range(20, 50, 10):
            require_times(hudi, path, ours, ours.scan("ts >= 10").count())
            rows = ours.scan().to_arrow().slice(0, 12)
            at = rows.schema.get_field_index("ts")
            times = pa.repeat(pa.scalar(ts, rows.schema.field(at).type), len(rows))
            ours.upsert(rows.set_column(at, rows.schema.field(at), times))
            require_times(hudi, path, ours, 12, ts)
            hudi.call(path, "upsert", list(range(5, 10 + ts)), ts + 5)
            require_times(hudi, path, ours, 5 + ts, ts + 5)


def require_times(hudi, path, ours, count, ts=None):
    """Require that Hudi and mdt read the same rows, each key once, and ``count`` with ``ts``."""
    theirs = hudi.rows(path)
    names = [name for name in theirs.column_names if not name.startswith("_hoodie_")]
    rows = ours.scan(columns=names).to_arrow()
    assert bag(theirs.select(names)) == bag(rows)
    assert len(set(rows["id"].to_pylist())) == len(rows)
    if ts is not None:
        assert rows["ts"].to_pylist().count(ts) == count
