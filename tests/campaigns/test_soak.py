"""The soak test: processes that write to, maintain, read and follow one table are killed at random. No
row is lost or duplicated.
"""

import multiprocessing
import os
import random
import signal
import time

import pyarrow as pa
import pytest
import soaking
from counting import count
from hudi import HudiTable

import mdt

SECONDS = int(os.environ.get("MDT_SOAK_SECONDS", "25"))
"""Seconds in daily runs, in which the actors use every processor. Nightly runs take half an hour."""
MEGABYTES_MAX = 60
"""Maximum size of the directory at the end of a soak of any length."""
COMPLETED_FILES = ("services", "reads", "followed")
"""Files that record what must have completed at least once."""
PARTITIONS = [["writer"], []]
EXTENSION_MAX = 5
"""Factor by which a soak is extended on a busy system if something has not completed once, because
starting a process takes seconds there.
"""


def soak(folder, seconds, seed):
    """Run all actors, kill one of them now and then, and check that none has failed.

    Either each writer has its own partition, or all writers use the same file groups.
    """
    draw, context = random.Random(seed), multiprocessing.get_context("spawn")
    partition_by = draw.choice(PARTITIONS)
    print(f"seed {seed}, partitions by {partition_by}")
    soaking.create(folder, partition_by)
    processes = {}
    for n, name in enumerate(soaking.ACTORS):
        processes[name] = context.Process(target=soaking.act, args=(name, str(folder), seed + n))
        processes[name].start()
    started, kill_count = time.monotonic(), 0
    while (elapsed := time.monotonic() - started) < EXTENSION_MAX * seconds and not (
        folder / "failed"
    ).exists():
        if elapsed >= seconds and all(
            (folder / file_name).exists() for file_name in COMPLETED_FILES
        ):
            break
        time.sleep(draw.uniform(0.5, 2.5))
        name = draw.choice(list(processes))
        os.kill(processes[name].pid or 0, signal.SIGKILL)
        processes[name].join()
        kill_count += 1
        processes[name] = context.Process(
            target=soaking.act, args=(name, str(folder), seed + 1000 * kill_count)
        )
        processes[name].start()
    for process in processes.values():
        process.kill()
        process.join()
    failed = folder / "failed"
    assert not failed.exists(), failed.read_text()
    count("processes killed in a soak", kill_count)


def check(folder):
    """Assert that the table has the rows of the journals, that check is clean, and that the size on disk
    is bounded.
    """
    table = mdt.open(folder / "t")
    (table.abort if hasattr(table, "abort") else table.rollback)()
    rows_by_writer = soaking.seen(table.scan().to_arrow())
    for writer in range(3):
        acknowledged, tried = soaking.journal(folder, writer)
        assert rows_by_writer.get(writer, soaking.GONE) in (acknowledged, *tried), (
            f"writer {writer} lost a commit"
        )
    report = table.check()
    assert report.ok, str(report)
    batches = HudiTable(str(folder / "t")).read()
    rows = [pa.record_batch(batch) for batch in batches]
    assert (soaking.seen(pa.Table.from_batches(rows)) if rows else {}) == rows_by_writer, (
        "hudi-rs reads other rows"
    )
    assert table.history()["seq"].to_pylist() == list(range(table.snapshot().seq + 1))
    table.clean(retain_commits=3)
    size = sum(file.stat().st_size for file in (folder / "t").rglob("*") if file.is_file())
    assert size < MEGABYTES_MAX << 20, f"{size:,} bytes remain"
    for file_name in COMPLETED_FILES:
        lines = (folder / file_name).read_text().count("\n") if (folder / file_name).exists() else 0
        assert lines, f"none of the {file_name} completed"
        count(f"{file_name} in a soak", lines)
    count("commits in a soak", table.snapshot().seq)


@pytest.mark.slow
@pytest.mark.timeout(EXTENSION_MAX * SECONDS + 300)
def test_killed_writers_services_readers_and_followers_lose_no_row(
    tmp_path,
):
    soak(tmp_path, SECONDS, seed=random.randrange(10**6))
    check(tmp_path)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_half_an_hour_of_kills_loses_no_row(tmp_path):
    soak(tmp_path, 1800, seed=random.randrange(10**6))
    check(tmp_path)
