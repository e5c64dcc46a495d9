"""An object of the metadata that is cut while it is mapped is found damaged; it does not end the
process, as reading behind its end would.
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
    found = [(f"k{n:06d}", n % PARTITIONS, n % 1000) for n in numbers]
    return pa.table(list(zip(*found, strict=True)), schema=SCHEMA)


def fill(folder):
    """Make a table with a checkpoint and attachments that are large enough to be mapped."""
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


def work(folder, kind, size):
    """Use a table, cut its objects of a ``kind`` to ``size`` bytes, and use it again; return what
    each call answers.
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


def answers(folder, kind, size):
    """Return what :func:`work` says in a process of its own, which must end by itself."""
    fill(folder)
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import test_cut_objects"
        " as tests; tests.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder), kind, str(size)], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    found = json.loads(done.stdout)
    assert found["cut"], "nothing was large enough to be mapped"
    expected = {"scan": 12, "count": ROWS, "get": 7, "upsert": 10, "delete": 12, "check": True}
    assert expected.items() <= found["before"].items()
    return found


def main():
    print(json.dumps(work(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))))


@pytest.mark.parametrize("size", [0, 4096])
def test_a_checkpoint_that_is_cut_is_made_again(tmp_path, size):
    after = answers(tmp_path / "t", "checkpoints", size)["after"]
    expected = {"scan": 12, "count": ROWS - 12, "get": 7, "upsert": 9}
    assert expected.items() <= after.items(), "k000011 was deleted"


@pytest.mark.parametrize("size", [0, 4096])
def test_attachments_that_are_cut_are_named_by_whoever_needs_them(tmp_path, size):
    found = answers(tmp_path / "t", "attachments", size)
    after = found["after"]
    assert (after["scan"], after["count"]) == (12, ROWS - 12), "an index only saves time"
    assert after["upsert"] in found["cut"], "keys cannot be found without key maps"
    assert after["check"] is False


def test_small_objects_are_copied_and_large_ones_watched(tmp_path):
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
    assert mappings.truncated_path() is None, "what is gone stays mapped"
    storage.create("large", b"l")
    assert mappings.truncated_path() is None, "what was gone is watched no more"


def test_what_is_in_memory_is_not_watched():
    storage = MemoryStorage()
    storage.create("large", b"l" * (COPIED_OBJECT_BYTES_MAX + 1))
    mappings = Mappings(storage)
    assert mappings.open("large").size() == COPIED_OBJECT_BYTES_MAX + 1
    assert mappings.truncated_path() is None
