"""Hudi archives writes that follow a restore or an index build of mdt. It then reads all rows
correctly.
"""

from __future__ import annotations

import pytest
from hudi_kinds import FLAT
from hudi_session import HudiSession
from hudi_table import MOR
from random_steps import ARCHIVING

import mdt

WRITES_MAX = 12
"""Hudi archives the first of its writes within this number of later writes."""


def restore(t: mdt.Table) -> None:
    """Undo a delete."""
    t.tag("here")
    t.delete([{"id": "k002"}])
    t.restore("here")
    t.untag("here")


def build_index(t: mdt.Table) -> None:
    """Build an index of the values of a column."""
    t.create_index("bitmap(v)")


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("step", [restore, build_index])
def test_deleted_row_stays_deleted_after_archiving_and_compaction(step, version, tmp_path):
    path = tmp_path / "archived"
    with HudiSession(tmp_path / "session") as hudi:
        hudi.create(path, version, MOR, FLAT)
        hudi.call(path, "write", "bulk_insert", list(range(0, 60, 2)), 10)
        mdt.adopt(path, key_index="simple")
        step(mdt.open(path))
        hudi.call(path, "write", "upsert", [4, 6], 20)
        written = hudi.call(path, "last")
        times = range(30, 30 + WRITES_MAX)
        for ts in times:
            hudi.call(path, "write", "upsert", [8], ts, **ARCHIVING)
            if not [*(path / ".hoodie" / "timeline").glob(f"{written}*")]:
                break
        else:
            raise AssertionError("Hudi has not archived the write")
        hudi.call(path, "write", "delete", [4], 100)
        hudi.call(path, "sql", "call run_compaction(op => 'scheduleAndExecute', table => '{t}')")
        keys = {f"k{number:03}" for number in range(0, 60, 2)} - {"k004"}
        assert set(hudi.rows(path)["id"].to_pylist()) == keys
        assert set(mdt.open(path).scan().to_arrow()["id"].to_pylist()) == keys
