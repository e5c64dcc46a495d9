"""What is logged: one line a commit and a service, plans on demand, damage once; nothing where
nobody listens.
"""

import logging
import re
import sys

import pyarrow as pa
import pytest
import trees
import worlds
from documents import ROOT, ran
from texts import columns, rows_of

import mdt
from mdt import logs
from mdt.commit.recovery import Rollback
from mdt.metadata.files import paths
from mdt.stores.storage import MemoryStorage
from mdt.testing.faulty import Crash, FaultyStorage

SCHEMA = columns("id string, v int64, status string")
ROWS = rows_of(SCHEMA, "a 1 x", "b 2 y")


INFO, WARNING = logging.INFO, logging.WARNING


def lines(caplog, name, level):
    return [r.getMessage() for r in caplog.records if r.name == name and r.levelno == level]


def facts(caplog, name):
    return [vars(r)["mdt"] for r in caplog.records if r.name == name and r.levelno == INFO]


@pytest.fixture
def table(tmp_path):
    return trees.create(tmp_path / "trips", SCHEMA, options={"mdt.durable": "false"})


def test_each_commit_is_one_line_with_what_it_did(table, caplog):
    caplog.set_level(INFO, "mdt")
    done = table.upsert(ROWS)
    table.upsert(ROWS.slice(0, 1))
    table.delete(ROWS.slice(1, 1))
    table.delete(pa.table({"id": ["nobody"]}))
    found = facts(caplog, "mdt.commit")
    assert [f["attempts"] for f in found] == [1, 1, 1]
    names = ("operation", "seq", "inserted", "updated", "deleted")
    assert [tuple(f.get(name) for name in names) for f in found] == [
        ("upsert", 1, 2, None, None),
        ("upsert", 2, None, 1, None),
        ("delete", 3, None, None, 1),
    ]
    sizes = {f["name"]: f["size"] for f in table.files().to_pylist()}
    assert (found[0]["table"], found[0]["instant"], found[0]["files"]) == ("trips", done.instant, 1)
    assert found[0]["bytes"] in sizes.values()
    line = lines(caplog, "mdt.commit", INFO)[0]
    pattern = (
        rf"trips: upsert seq=1 instant={done.instant} inserted=2 files=1 bytes={found[0]['bytes']}"
        r" attempts=1 ms=\d+"
    )
    assert re.fullmatch(pattern, line), line
    assert all(f["ms"] >= 0 for f in found)


def test_each_service_is_one_line(table, caplog):
    table.upsert(ROWS)
    table.upsert(ROWS)
    caplog.set_level(INFO, "mdt")
    table.compact()
    table.create_index("bitmap(status)")
    table.check()
    assert [
        re.sub(r" (ms|bytes)=\S+", "", line) for line in lines(caplog, "mdt.service", INFO)
    ] == [
        "trips: compact file_groups=1",
        "trips: build_indexes summaries=1 commits=1 failed=0",
        "trips: check files=1 rows=2 problems=0",
    ]


def test_plans_are_told_at_debug_only(table, caplog):
    table.upsert(ROWS)
    caplog.set_level(INFO, "mdt")
    table.scan("v > 1").count()
    assert not [r for r in caplog.records if r.name == "mdt.plan"]
    caplog.set_level(logging.DEBUG, "mdt")
    table.scan("v > 5").count()
    told = lines(caplog, "mdt.plan", logging.DEBUG)
    assert told[0] == "trips: plan at seq 1: 0 of 1 files remain"
    assert any(
        "column_stats pruned 1 of 1 files (used): min, max and counts of v" in line for line in told
    )


def test_a_switched_off_logger_does_not_look_at_the_clock(caplog):
    class Clock(MemoryStorage):
        looks = 0

        def now_us(self):
            self.looks += 1
            return super().now_us()

    def looks():
        storage = Clock()
        table = worlds.make(storage, "MERGE_ON_READ", "bloom")
        table.upsert(worlds.rows(range(3), 1, 1.0))
        return storage.looks

    quiet = looks()
    caplog.set_level(INFO, "mdt")
    assert looks() > quiet


def test_a_damaged_index_is_warned_of_once(table, caplog):
    table.create_index("bitmap(status)")
    numbers = range(60_000)
    ids, statuses = [f"k{i}" for i in numbers], [f"s{i}" for i in numbers]
    table.upsert({"id": ids, "v": list(numbers), "status": statuses})
    for info in table.storage.list(f"{paths.PRIVATE}/attachments"):
        data = table.storage.read(info.path)
        table.storage.replace(info.path, data[:8] + b"\xff" * (len(data) - 8))
    again = mdt.open(table.storage)
    for _ in range(2):
        assert again.scan("status = 's7'").count() == 1
    (line,) = [line for line in lines(caplog, "mdt.plan", WARNING) if "damaged" in line]
    assert "trips: the index bitmap" in line and "rebuild_index" in line


def test_damaged_metadata_are_warned_of(table, caplog):
    table.upsert(ROWS)
    table.metadata.compact()
    table.storage.replace(paths.hint(), b"nonsense")
    assert mdt.open(table.path).scan().count() == 2
    assert "is rebuilt from the log" in "".join(lines(caplog, "mdt.metadata", WARNING))


def test_a_conflict_that_is_tried_again_is_warned_of(caplog):
    storage = worlds.filled("MERGE_ON_READ", "bloom")
    first, second = mdt.open(storage), mdt.open(storage)
    write = first._metadata.storage.put_if_absent

    others = [lambda: second.upsert(worlds.rows(range(3), 5, 5.0))]

    def interrupted(path, data):
        if path == paths.commit(3) and others:
            others.pop()()
        return write(path, data)

    storage.put_if_absent = interrupted  # type: ignore[method-assign]
    assert first.upsert(worlds.rows(range(3), 6, 6.0)).attempts == 2
    (line,) = lines(caplog, "mdt.commit", WARNING)
    assert line.startswith("world: upsert: conflict in attempt 1 of ")


def test_recovery_says_what_it_removed(caplog):
    storage = worlds.filled("MERGE_ON_READ", "bloom")
    whole = FaultyStorage(storage.copy())
    mdt.open(whole).upsert(worlds.rows(range(3), 5, 5.0))
    k = next(n for n, operation in enumerate(whole.operations, 1) if paths.commit(3) in operation)
    with pytest.raises(Crash):
        mdt.open(FaultyStorage(storage, k, "before")).upsert(worlds.rows(range(3), 5, 5.0))
    caplog.set_level(INFO, "mdt")
    done = mdt.open(storage).abort()
    (told,) = facts(caplog, "mdt.recovery")
    assert done.rolled_back and told["rolled_back"] == done.rolled_back[0]
    assert told["files_removed"] == done.files_removed > 0
    assert [f["operation"] for f in facts(caplog, "mdt.commit")] == [Rollback(()).name]
    caplog.clear()
    mdt.open(storage).abort()
    assert not facts(caplog, "mdt.recovery")


def test_a_claim_that_makes_no_sense_is_warned_of_once(caplog):
    storage = worlds.filled("MERGE_ON_READ", "bloom")
    storage.create(paths.pending("20260101000000000"), b"nonsense")
    table = mdt.open(storage)
    table.upsert(worlds.rows(range(3), 5, 5.0))
    table.upsert(worlds.rows(range(3), 6, 6.0))
    (line,) = lines(caplog, "mdt.recovery", WARNING)
    assert "ignored an invalid claim" in line and "20260101000000000" in line


def test_the_library_installs_no_handler_that_prints(tmp_path):
    code = (
        "import logging, mdt; print([type(h).__name__ for h in logging.getLogger('mdt').handlers],"
        " logging.root.handlers)"
    )
    done = ran([sys.executable, "-c", code], tmp_path)
    assert (done.stdout, done.stderr) == ("['NullHandler'] []\n", "")


def test_every_logger_is_documented():
    text = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    for logger in (logs.COMMIT, logs.SERVICE, logs.RECOVERY, logs.PLAN, logs.METADATA):
        assert f"`{logger.name}`" in text and f"``{logger.name}``" in (logs.__doc__ or "")
