"""Logging: one line per commit and per service, plans at debug level, each damage once, and no output
without a handler.
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


def logged_fields(caplog, name):
    return [vars(r)["mdt"] for r in caplog.records if r.name == name and r.levelno == INFO]


@pytest.fixture
def table(tmp_path):
    return trees.create(tmp_path / "trips", SCHEMA, options={"mdt.durable": "false"})


def test_each_commit_logs_one_line_with_its_counts(table, caplog):
    caplog.set_level(INFO, "mdt")
    result = table.upsert(ROWS)
    table.upsert(ROWS.slice(0, 1))
    table.delete(ROWS.slice(1, 1))
    table.delete(pa.table({"id": ["nobody"]}))
    commits = logged_fields(caplog, "mdt.commit")
    assert [f["attempts"] for f in commits] == [1, 1, 1]
    names = ("operation", "seq", "inserted", "updated", "deleted")
    assert [tuple(f.get(name) for name in names) for f in commits] == [
        ("upsert", 1, 2, None, None),
        ("upsert", 2, None, 1, None),
        ("delete", 3, None, None, 1),
    ]
    sizes = {f["name"]: f["size"] for f in table.files().to_pylist()}
    assert (commits[0]["table"], commits[0]["instant"], commits[0]["files"]) == (
        "trips",
        result.instant,
        1,
    )
    assert commits[0]["bytes"] in sizes.values()
    line = lines(caplog, "mdt.commit", INFO)[0]
    pattern = (
        rf"trips: upsert seq=1 instant={result.instant} inserted=2 files=1 bytes={commits[0]['bytes']}"
        r" attempts=1 ms=\d+"
    )
    assert re.fullmatch(pattern, line), line
    assert all(f["ms"] >= 0 for f in commits)


def test_each_service_logs_one_line(table, caplog):
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


def test_plans_are_logged_at_debug_level_only(table, caplog):
    table.upsert(ROWS)
    caplog.set_level(INFO, "mdt")
    table.scan("v > 1").count()
    assert not [r for r in caplog.records if r.name == "mdt.plan"]
    caplog.set_level(logging.DEBUG, "mdt")
    table.scan("v > 5").count()
    plan_lines = lines(caplog, "mdt.plan", logging.DEBUG)
    assert plan_lines[0] == "trips: plan at seq 1: 0 of 1 files remain"
    assert any(
        "column_stats pruned 1 of 1 files (used): min, max and counts of v" in line
        for line in plan_lines
    )


@pytest.mark.parametrize("level", [INFO, WARNING])
def test_the_clock_is_read_for_a_log_line_only_if_the_logger_is_enabled(caplog, level):
    class Clock(MemoryStorage):
        looks = 0

        def now_us(self):
            self.looks += 1
            return super().now_us()

    caplog.set_level(level, "mdt")
    storage = Clock()
    since = logs.start_time(logs.COMMIT, storage)
    logs.log_end(logs.COMMIT, storage, "t", "upsert", {}, since)
    assert storage.looks == 2 * (level == INFO) and bool(since) == (level == INFO)
    assert len(lines(caplog, "mdt.commit", INFO)) == (level == INFO)


def test_a_damaged_index_is_ignored_with_one_warning(table, caplog):
    table.create_index("bitmap(status)")
    numbers = range(60_000)
    ids, statuses = [f"k{i}" for i in numbers], [f"s{i}" for i in numbers]
    table.upsert({"id": ids, "v": list(numbers), "status": statuses})
    for info in table.storage.list(f"{paths.PRIVATE}/attachments"):
        data = table.storage.read(info.path)
        table.storage.replace(info.path, data[:8] + b"\xff" * (len(data) - 8))
    reopened = mdt.open(table.storage)
    for _ in range(2):
        assert reopened.scan("status = 's7'").count() == 1
    (line,) = [line for line in lines(caplog, "mdt.plan", WARNING) if "damaged" in line]
    assert "trips: the index bitmap" in line and "rebuild_index" in line


def test_damaged_metadata_are_rebuilt_with_a_warning(table, caplog):
    table.upsert(ROWS)
    table.metadata.compact()
    table.storage.replace(paths.HINT, b"nonsense")
    assert mdt.open(table.path).scan().count() == 2
    assert "is rebuilt from the log" in "".join(lines(caplog, "mdt.metadata", WARNING))


def test_a_retried_conflict_logs_a_warning(caplog):
    storage = worlds.filled("MERGE_ON_READ", "bloom")
    first, second = mdt.open(storage), mdt.open(storage)
    write = first._metadata.storage.put_if_absent

    pending_writes = [lambda: second.upsert(worlds.rows(range(3), 5, 5.0))]

    def put_after_other_writer(path, data):
        if path == paths.commit(3) and pending_writes:
            pending_writes.pop()()
        return write(path, data)

    storage.put_if_absent = put_after_other_writer  # type: ignore[method-assign]
    assert first.upsert(worlds.rows(range(3), 6, 6.0)).attempts == 2
    (line,) = lines(caplog, "mdt.commit", WARNING)
    assert line.startswith("world: upsert: conflict in attempt 1 of ")


def test_recovery_logs_the_commits_and_files_it_removed(caplog):
    storage = worlds.filled("MERGE_ON_READ", "bloom")
    completed = FaultyStorage(storage.copy())
    mdt.open(completed).upsert(worlds.rows(range(3), 5, 5.0))
    k = next(
        n for n, operation in enumerate(completed.operations, 1) if paths.commit(3) in operation
    )
    with pytest.raises(Crash):
        mdt.open(FaultyStorage(storage, k, "before")).upsert(worlds.rows(range(3), 5, 5.0))
    caplog.set_level(INFO, "mdt")
    result = mdt.open(storage).abort()
    (recovery,) = logged_fields(caplog, "mdt.recovery")
    assert result.rolled_back and recovery["rolled_back"] == result.rolled_back[0]
    assert recovery["files_removed"] == result.files_removed > 0
    assert [f["operation"] for f in logged_fields(caplog, "mdt.commit")] == [Rollback(()).name]
    caplog.clear()
    mdt.open(storage).abort()
    assert not logged_fields(caplog, "mdt.recovery")


def test_an_invalid_claim_is_ignored_with_one_warning(caplog):
    storage = worlds.filled("MERGE_ON_READ", "bloom")
    storage.create(paths.pending("20260101000000000"), b"nonsense")
    table = mdt.open(storage)
    table.upsert(worlds.rows(range(3), 5, 5.0))
    table.upsert(worlds.rows(range(3), 6, 6.0))
    (line,) = lines(caplog, "mdt.recovery", WARNING)
    assert "ignored an invalid claim" in line and "20260101000000000" in line


def test_the_library_installs_only_a_null_handler(tmp_path):
    code = (
        "import logging, mdt; print([type(h).__name__ for h in logging.getLogger('mdt').handlers],"
        " logging.root.handlers)"
    )
    process = ran([sys.executable, "-c", code], tmp_path)
    assert (process.stdout, process.stderr) == ("['NullHandler'] []\n", "")


def test_every_logger_is_documented():
    text = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    for logger in (logs.COMMIT, logs.SERVICE, logs.RECOVERY, logs.PLAN, logs.METADATA):
        assert f"`{logger.name}`" in text and f"``{logger.name}``" in (logs.__doc__ or "")
