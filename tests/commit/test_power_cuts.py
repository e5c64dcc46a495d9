"""Objects that a transaction writes for Hudi before it commits may be lost in a power cut, although
everything written later is durable.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
from counting import count
from texts import columns
from worlds import COW, MOR, assert_clean, filled, later, ours, rows, theirs

import mdt
from mdt.stores.local import LocalStorage
from mdt.testing.faulty import Crash, FaultyStorage


@pytest.fixture
def table(tmp_path):
    """A table on a disk with a base and a log file."""
    table = mdt.create(tmp_path, columns("id string, v int64"), key=["id"], table_type=MOR)
    table.upsert([{"id": "a", "v": 1}, {"id": "b", "v": 1}])
    table.upsert([{"id": "a", "v": 2}])
    return table


def upsert(storage):
    mdt.open(storage).upsert(rows(range(3), 7, 7.0))


@pytest.fixture(scope="module", params=[MOR, COW])
def table_type(request):
    return str(request.param)


def test_a_power_cut_at_any_change_leaves_all_or_nothing(table_type):
    before = ours(filled(table_type, "record"))
    complete_run = FaultyStorage(filled(table_type, "record"))
    upsert(complete_run)
    after = ours(complete_run.inner)
    assert (
        after != before
        and sum(name.startswith("put_passing") for name in complete_run.operations) == 5
    )
    outcomes = []
    for k in range(1, len(complete_run.operations) + 1):
        survivor = filled(table_type, "record")
        faulty = FaultyStorage(survivor, k, "after")
        with pytest.raises(Crash):
            upsert(faulty)
        faulty.cut_power()
        count("power cuts")
        seen = ours(survivor)
        assert seen in (before, after) and theirs(survivor) in (before, seen)
        outcomes.append(seen == after)
        upsert(later(survivor))
        assert ours(survivor) == after == theirs(survivor)
        assert_clean(survivor)
    assert not outcomes[0] and outcomes[-1] and outcomes == sorted(outcomes), "a commit is durable"


def test_a_power_cut_after_a_commit_loses_no_row(table_type):
    storage = filled(table_type, "record")
    faulty = FaultyStorage(storage)
    upsert(faulty)
    seen = ours(storage)
    faulty.cut_power()
    assert ours(storage) == seen == theirs(storage)
    assert_clean(storage)
    mdt.open(storage).compact()
    assert ours(storage) == seen == theirs(storage)


def test_put_passing_does_not_flush_to_the_disk(tmp_path, monkeypatch):
    storage = LocalStorage(tmp_path / "t")
    storage.create("x", b"")
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    assert storage.put_passing("y", b"") and not storage.put_passing("y", b"")
    assert not storage.put_passing("x", b"") and not flushed
    assert storage.put_passing("z", b"bytes") and not storage.put_passing("z", b"others")
    assert storage.read("z") == b"bytes" and storage.size("y") == 0


def test_a_small_upsert_flushes_thirteen_times(table, monkeypatch):
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    table.upsert([{"id": "a", "v": 3}])
    assert len(flushed) == 13


def test_log_files_and_attachments_are_flushed_at_the_same_time(table, monkeypatch):
    barrier, suffixes = threading.Barrier(2), set[str]()

    def flush(descriptor):
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        if ".log." in name or name.endswith(".attached"):
            suffixes.add(name.rpartition(".")[2])
            barrier.wait(timeout=60)

    monkeypatch.setattr(os, "fsync", flush)
    table.upsert([{"id": "a", "v": 3}])
    assert len(suffixes) == 2


def test_an_upsert_succeeds_while_the_interpreter_exits(tmp_path):
    script = f"""
import atexit, mdt, pyarrow as pa
table = mdt.create({str(tmp_path / "t")!r}, pa.schema([("id", pa.string())]), key=["id"])
table.upsert(pa.table({{"id": ["early"]}}))
atexit.register(lambda: table.upsert(pa.table({{"id": ["late"]}})))
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    assert sorted(mdt.open(tmp_path / "t").scan().to_arrow()["id"].to_pylist()) == ["early", "late"]
