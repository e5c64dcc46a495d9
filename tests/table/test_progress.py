"""The ``progress`` argument of long calls: a callback runs in the calling thread, a bar is shown on
terminals only.
"""

import os
import pty
import subprocess
import sys
import threading
from functools import cache

import pyarrow as pa
import pytest
import trees
from refusals import refused
from texts import columns
from worlds import assert_clean

import mdt
from mdt.stores.storage import MemoryStorage

SCHEMA = columns("id int64, city string, x double")


def rows(numbers, x=0.0):
    cities = ["xyz"[i % 3] for i in numbers]
    return pa.table({"id": numbers, "city": cities, "x": [x] * len(numbers)}, SCHEMA)


def copy_of_filled_table():
    return mdt.open(_filled_storage().copy())


@cache
def _filled_storage():
    storage = MemoryStorage()
    options = {"mdt.reader.threads": 2}
    table = mdt.create(
        storage, SCHEMA, ["id"], partition_by=["city"], indexes=["bitmap(city)"], options=options
    )
    table.bulk_insert(rows(range(3000)))
    table.bulk_insert(rows(range(10_000, 10_100)))
    table.upsert(rows(range(100), 1.0))
    return storage


WRITES = {
    "upsert": lambda t, p: t.upsert(rows(range(50), 2.0), progress=p),
    "insert": lambda t, p: t.insert(rows(range(3000, 3050)), progress=p),
    "bulk_insert": lambda t, p: t.bulk_insert(rows(range(4000, 4100)), progress=p),
    "delete": lambda t, p: t.delete(rows(range(50)), progress=p),
    "compact": lambda t, p: t.compact(progress=p),
    "cluster": lambda t, p: t.cluster("x", progress=p),
    "rebuild_index": lambda t, p: t.rebuild_index(progress=p),
    "create_index": lambda t, p: t.create_index("bitmap(x)", progress=p),
    "analyze": lambda t, p: t.analyze(["x"], progress=p),
}
READS = {
    "check": lambda t, p: t.check(progress=p),
    "to_arrow": lambda t, p: t.scan().to_arrow(progress=p),
    "with a limit": lambda t, p: t.scan("x > 0", limit=5).to_arrow(progress=p),
    "sorted": lambda t, p: t.scan(order_by="x").to_arrow(progress=p),
    "the best": lambda t, p: t.scan(order_by="x", limit=5).to_arrow(progress=p),
    "count": lambda t, p: t.scan("x >= 0").count(progress=p),
}


CALLS = WRITES | READS


@pytest.mark.parametrize("name", CALLS)
def test_a_callback_gets_rising_counts_up_to_the_total_in_the_calling_thread(name):
    table = copy_of_filled_table()
    reports = []
    CALLS[name](table, lambda *done: reports.append((*done, threading.get_ident())))
    done, totals, threads = zip(*reports, strict=True)
    assert list(done) == sorted(set(done)), "the counts increase"
    assert set(totals) == {done[-1]}, "the last count is the total"
    assert set(threads) == {threading.get_ident()}


def test_building_asynchronous_indexes_reports_its_progress():
    table = copy_of_filled_table()
    table.create_index("bitmap(x)", mode="async")
    reports = []
    table.build_indexes(progress=lambda count, total: reports.append((count, total)))
    assert reports[-1] == (len(table.files()), len(table.files())) != (0, 0)


@pytest.mark.parametrize("progress", [5, 1, "yes", [], object()])
@pytest.mark.parametrize("name", CALLS)
def test_an_invalid_progress_argument_is_refused_before_anything_is_written(name, progress):
    table = copy_of_filled_table()
    seq = table.snapshot().seq
    refused("progress takes a function, True or None", CALLS[name], table, progress)
    assert table.snapshot().seq == seq


@pytest.mark.parametrize("name", ["upsert", "bulk_insert", "delete", "compact", "cluster"])
def test_a_callback_that_raises_aborts_the_call_and_leaves_no_files(name):
    table = copy_of_filled_table()
    before = trees.ordered(table.scan().to_arrow())

    def stop(done, total):
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        WRITES[name](table, stop)
    assert trees.ordered(table.scan().to_arrow()) == before
    assert_clean(table.storage)
    WRITES[name](table, None)
    assert_clean(table.storage)


SCRIPT = """
import sys, time, pyarrow as pa, mdt
table = mdt.open(sys.argv[1])
table.scan().to_arrow(progress=True)
from mdt.progress import progress_callback
with progress_callback(True, "scan of a table") as told:
    for n in range(4):
        told(n, 3); time.sleep(0.15)
table.check(progress=None)
"""


def test_a_progress_bar_is_shown_on_a_terminal_only(tmp_path):
    trees.create(tmp_path / "t", SCHEMA).upsert(rows(range(10)))
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "t")]
    environment = {**os.environ, "TERM": "xterm"}
    assert subprocess.run(command, capture_output=True, check=True, env=environment).stderr == b""
    own_end, process_end = pty.openpty()
    with subprocess.Popen(
        command, stderr=process_end, stdout=subprocess.PIPE, env=environment
    ) as process:
        os.close(process_end)
        shown = b""
        while part := _read(own_end):
            shown += part
        assert process.wait() == 0 and process.stdout is not None and process.stdout.read() == b""
    os.close(own_end)
    assert b"scan of a table" in shown and b"100%" in shown


def _read(terminal):
    try:
        return os.read(terminal, 4096)
    except OSError:  # the other end is closed
        return b""
