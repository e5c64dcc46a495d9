"""Mapped metadata objects hold no file descriptors. A process has only some thousands of them and
may have many tables open.
"""

import os
import sys

import pytest
from texts import columns

import mdt

SCHEMA = columns("id string, note string")
OPTIONS = {"mdt.durable": False, "mdt.services.auto": False}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="descriptors are counted by /proc")
def test_open_tables_hold_at_most_one_file_descriptor_each(tmp_path):
    folders = [tmp_path / f"t{n}" for n in range(3)]
    tables = [mdt.create(p, SCHEMA, ["id"], key_index="record", options=OPTIONS) for p in folders]
    before = len(os.listdir("/proc/self/fd"))
    for table in tables:
        for commit in range(12):
            ids = [f"{commit}-{i}" for i in range(200)]
            table.upsert({"id": ids, "note": ids})
        assert table.get([{"id": f"{commit}-7"} for commit in range(12)]).num_rows == 12
        assert table.scan("note = '3-5'").to_arrow().num_rows == 1
    assert len(os.listdir("/proc/self/fd")) - before <= len(tables), (
        "at most one descriptor per table, of its directory"
    )
