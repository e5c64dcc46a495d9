"""The soak: processes write, look after, read and follow one table, and are killed at random; no
row is lost or doubled.
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
"""By day: the actors take every processor meanwhile.  At night it is half an hour."""
MEGABYTES_MAX = 60
"""Of the directory, at the end of a soak of any length."""
ENDED = ("services", "reads", "followed")
"""What must have ended once at least, and where it is noted."""
PARTITIONS = [["writer"], []]
STARVED = 5
"""Times as long a soak goes on where the machine is so busy that something has not ended once:
starting a process takes seconds there.
"""


def soak(folder, seconds, seed):
    """Let all actors run, kill one of them every now and then, and check what is left.

    Each writer has a partition of its own, or all of them write into the same file groups.
    """
    draw, context = random.Random(seed), multiprocessing.get_context("spawn")
    partition_by = draw.choice(PARTITIONS)
    print(f"seed {seed}, partitions by {partition_by}")
    soaking.create(folder, partition_by)
    alive = {}
    for n, name in enumerate(soaking.ACTORS):
        alive[name] = context.Process(target=soaking.act, args=(name, str(folder), seed + n))
        alive[name].start()
    begun, killed = time.monotonic(), 0
    while (ran := time.monotonic() - begun) < STARVED * seconds and not (
        folder / "failed"
    ).exists():
        if ran >= seconds and all((folder / what).exists() for what in ENDED):
            break
        time.sleep(draw.uniform(0.5, 2.5))
        name = draw.choice(list(alive))
        os.kill(alive[name].pid or 0, signal.SIGKILL)
        alive[name].join()
        killed += 1
        alive[name] = context.Process(
            target=soaking.act, args=(name, str(folder), seed + 1000 * killed)
        )
        alive[name].start()
    for process in alive.values():
        process.kill()
        process.join()
    failed = folder / "failed"
    assert not failed.exists(), failed.read_text()
    count("processes killed in a soak", killed)


def check(folder):
    """Assert that the table holds what the journals say, that nothing is damaged, and that the disk
    is bounded.
    """
    table = mdt.open(folder / "t")
    (table.abort if hasattr(table, "abort") else table.rollback)()
    found = soaking.seen(table.scan().to_arrow())
    for writer in range(3):
        acknowledged, tried = soaking.journal(folder, writer)
        assert found.get(writer, soaking.GONE) in (acknowledged, *tried), (
            f"writer {writer} lost a commit"
        )
    report = table.check()
    assert report.ok, str(report)
    batches = HudiTable(str(folder / "t")).read()
    rows = [pa.record_batch(batch) for batch in batches]
    assert (soaking.seen(pa.Table.from_batches(rows)) if rows else {}) == found, (
        "hudi-rs reads other rows"
    )
    assert table.history()["seq"].to_pylist() == list(range(table.snapshot().seq + 1))
    table.clean(retain_commits=3)
    size = sum(file.stat().st_size for file in (folder / "t").rglob("*") if file.is_file())
    assert size < MEGABYTES_MAX << 20, f"{size:,} bytes are left"
    for what in ENDED:
        lines = (folder / what).read_text().count("\n") if (folder / what).exists() else 0
        assert lines, f"no {what} ended"
        count(f"{what} in a soak", lines)
    count("commits in a soak", table.snapshot().seq)


@pytest.mark.slow
@pytest.mark.timeout(STARVED * SECONDS + 300)
def test_killed_writers_services_and_readers_lose_no_row_and_a_follower_keeps_up(
    tmp_path,
):
    soak(tmp_path, SECONDS, seed=random.randrange(10**6))
    check(tmp_path)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_half_an_hour_of_it(tmp_path):
    soak(tmp_path, 1800, seed=random.randrange(10**6))
    check(tmp_path)
