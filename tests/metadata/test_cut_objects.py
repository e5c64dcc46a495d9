"""A metadata object that is truncated while it is mapped is reported as damaged. Reading past its
end would kill the process with SIGBUS.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from texts import columns

import mdt
from mdt.errors import Corrupt
from mdt.limits import COPIED_OBJECT_BYTES_MAX
from mdt.stores.local import LocalStorage
from mdt.stores.mappings import Mappings
from mdt.stores.memory import MemoryStorage

ROWS, PARTITIONS = 12_000, 400
OPTIONS = {"mdt.durable": False, "mdt.services.auto": False}
SCHEMA = columns("id string, part int64, v int64")


def rows(numbers):
    records = [(f"k{n:06d}", n % PARTITIONS, n % 1000) for n in numbers]
    return pa.table(list(zip(*records, strict=True)), schema=SCHEMA)


def create_table(folder):
    """Create a table with a checkpoint and attachments that are large enough to be mapped."""
    table = mdt.create(
        folder,
        SCHEMA,
        ["id"],
        partition_by=["part"],
        scope="table",
        key_index="record",
        indexes=["bitmap(v)"],
        options={**OPTIONS, "mdt.metadata.compact.records": 4},
    )
    table.upsert(rows(range(ROWS)))
    for number in range(8):
        table.upsert(rows(range(number, number + 1)))


def call_before_and_after_truncation(folder, kind, size):
    """Open a table, truncate its mapped objects of a ``kind`` to ``size`` bytes, and return the
    results of each call before and after.
    """
    table = mdt.open(folder, OPTIONS)
    calls = {
        "scan": lambda: table.scan(where="v = 7").count(),
        "count": lambda: table.scan().count(),
        "files": lambda: len(table.files()),
        "get": lambda: (table.get("k000007") or {}).get("v"),
        "upsert": lambda: table.upsert(rows(range(5, 15))).updated,
        "delete": lambda: table.delete_where("v = 11").deleted,
        "check": lambda: table.check().ok,
    }
    before = {name: call() for name, call in calls.items()}
    files = [path for path in (folder / ".hoodie/.mdt" / kind).rglob("*") if path.is_file()]
    large = [path for path in files if path.stat().st_size > COPIED_OBJECT_BYTES_MAX]
    for path in large:
        os.truncate(path, size)
    after = {}
    for name, call in calls.items():
        try:
            after[name] = call()
        except Corrupt as error:
            after[name] = error.path
    cut = [str(path.relative_to(folder)) for path in large]
    return {"cut": cut, "before": before, "after": after}


def results_of_process(folder, kind, size):
    """Run :func:`call_before_and_after_truncation` in a process that must exit with 0."""
    create_table(folder)
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import test_cut_objects"
        " as tests; tests.main()"
    )
    process = subprocess.run(
        [sys.executable, "-c", code, str(folder), kind, str(size)], capture_output=True, check=False
    )
    assert process.returncode == 0, process.stderr.decode()
    results = json.loads(process.stdout)
    assert results["cut"], "no object was large enough to be mapped"
    expected = {"scan": 12, "count": ROWS, "get": 7, "upsert": 10, "delete": 12, "check": True}
    assert expected.items() <= results["before"].items()
    return results


def main():
    print(
        json.dumps(
            call_before_and_after_truncation(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
        )
    )


@pytest.mark.parametrize("size", [0, 4096])
def test_a_truncated_checkpoint_is_rebuilt_from_the_log(tmp_path, size):
    after = results_of_process(tmp_path / "t", "checkpoints", size)["after"]
    expected = {"scan": 12, "count": ROWS - 12, "get": 7, "upsert": 9}
    assert expected.items() <= after.items(), "k000011 was deleted"


@pytest.mark.parametrize("size", [0, 4096])
def test_truncated_attachments_cost_no_rows_and_fail_only_calls_that_need_them(tmp_path, size):
    results = results_of_process(tmp_path / "t", "attachments", size)
    after = results["after"]
    assert (after["scan"], after["count"]) == (12, ROWS - 12), "reads do not depend on indexes"
    assert after["upsert"] in results["cut"], "keys cannot be found without key maps"
    assert after["check"] is False


def test_small_objects_are_copied_and_mapped_large_ones_are_watched(tmp_path):
    storage = LocalStorage(tmp_path, durable=False)
    storage.create("small", b"s" * COPIED_OBJECT_BYTES_MAX)
    storage.create("large", b"l" * (COPIED_OBJECT_BYTES_MAX + 1))
    mappings = Mappings(storage)
    small, _ = mappings.open("small"), mappings.open("large")
    os.truncate(tmp_path / "small", 0)
    assert small.read() == b"s" * COPIED_OBJECT_BYTES_MAX
    assert mappings.truncated_path() is None
    os.truncate(tmp_path / "large", COPIED_OBJECT_BYTES_MAX)
    assert mappings.truncated_path() == "large"
    os.unlink(tmp_path / "large")
    assert mappings.truncated_path() is None, "a deleted object stays mapped"
    storage.create("large", b"l")
    assert mappings.truncated_path() is None, "an object that was deleted is no longer watched"


def test_objects_in_memory_are_not_watched():
    storage = MemoryStorage()
    storage.create("large", b"l" * (COPIED_OBJECT_BYTES_MAX + 1))
    mappings = Mappings(storage)
    assert mappings.open("large").size() == COPIED_OBJECT_BYTES_MAX + 1
    assert mappings.truncated_path() is None
