"""Services after writes: they stay within a budget, what does not fit waits, what is overdue is
done, and a thread ends cleanly.
"""

import subprocess
import sys
import time
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from texts import columns

import mdt
from mdt.errors import Unavailable
from mdt.limits import CLEAN_COMMITS_MIN
from mdt.metadata.files import paths
from mdt.services import auto_maintenance
from mdt.services.layout.budget import OVERDUE, OVERDUE_SHARE, Scope, affordable
from mdt.stores.storage import MemoryStorage


def carried_out(clocked, work, writes):
    """Return how many seconds services take after each of some writes, which take so many seconds
    themselves, and how much work is left.
    """
    upkept = auto_maintenance.Upkeep()
    took, left = [], []
    with patch.object(auto_maintenance, "STEPS", (("compact", work.step),)):
        for seconds in writes:
            took.append(services_after(clocked, upkept, seconds))
            left.append(len(work.need))
    return took, left


from unittest.mock import patch

SCHEMA = columns("id int64, x float64")
LIMIT = 4
ROWS = 40_000
"""So many that a few log files are a small part of the file group, and it is small enough to be
compacted whenever it has LIMIT of them.
"""


def rows(ids, x=0.0):
    return pa.table([pa.array(ids, pa.int64()), [x] * len(ids)], schema=SCHEMA)


def made(place, **options):
    given = {"mdt.durable": False, "mdt.compact.log.files": LIMIT, **options}
    table = mdt.create(place, SCHEMA, ["id"], key_index="record", options=given)
    table.insert(
        pa.table([pa.array(range(ROWS)), np.random.default_rng(1).random(ROWS)], schema=SCHEMA)
    )
    return table


def log_files(table):
    return sum(table.files()["kind"].to_pylist())


def services(table):
    found = Counter(table.history()["operation"].to_pylist())
    return Counter(
        {
            name: n
            for name, n in found.items()
            if name in ("compact", "log_compact", "cluster", "clean")
        }
    )


def most_log_files(table, writes):
    """Upsert the same rows again and again; return the largest number of log files after a
    write.
    """
    most = 0
    for number in range(writes):
        assert table.upsert(rows(range(3), number)).warnings == ()
        most = max(most, log_files(table))
    return most


def test_work_that_fits_is_done_as_soon_as_it_is_due():
    assert most_log_files(made(MemoryStorage()), 3 * LIMIT) == LIMIT - 1


def test_work_that_does_not_fit_waits_until_it_is_overdue(monkeypatch):
    monkeypatch.setattr(auto_maintenance, "FREE_BYTES", 0)
    monkeypatch.setattr(auto_maintenance, "SPEED_BYTES", 0)
    table = made(MemoryStorage())
    assert most_log_files(table, 3 * LIMIT) == int(OVERDUE * LIMIT) - 1
    assert services(table)["compact"] == 2 and table.check().ok


def test_work_that_did_not_fit_is_done_after_a_write_elsewhere(
    monkeypatch,
):
    monkeypatch.setattr(auto_maintenance, "FREE_BYTES", 0)
    monkeypatch.setattr(auto_maintenance, "SPEED_BYTES", 0)
    schema = SCHEMA.append(pa.field("city", pa.string()))
    options = {"mdt.durable": False, "mdt.compact.log.files": LIMIT}
    table = mdt.create(
        MemoryStorage(), schema, ["id"], partition_by=["city"], key_index="record", options=options
    )
    one, other = (
        rows([n]).append_column("city", pa.array([city])) for n, city in enumerate(("x", "y"))
    )
    many = pa.table(
        [pa.array(range(ROWS)), np.random.default_rng(1).random(ROWS), ["x"] * ROWS], schema=schema
    )
    table.insert(pa.concat_tables([many.slice(2), one, other]))
    for _ in range(LIMIT):
        table.upsert(one)
    assert log_files(table) == LIMIT
    monkeypatch.setattr(auto_maintenance, "FREE_BYTES", 1 << 40)
    table.upsert(other)
    assert log_files(table) == 1, "of the partition that was written last"


def test_a_budget_of_nothing_leaves_everything_to_others():
    table = made(MemoryStorage(), **{"mdt.services.seconds.max": 0})
    assert most_log_files(table, 10 * LIMIT) == 10 * LIMIT and not services(table)
    assert table.tidy()[0] == ("compact",) and log_files(table) == 0


@pytest.mark.parametrize("is_automatic", [True, False])
def test_cleaning_alone_can_be_left_to_others(is_automatic):
    named = {"hoodie.clean.automatic": is_automatic, "mdt.clean.retain.commits": 1}
    table = made(MemoryStorage(), **named)
    most_log_files(table, 3 * LIMIT)
    for number in range(CLEAN_COMMITS_MIN):
        table.upsert(rows(range(3), number))
    assert services(table)["compact"]
    assert bool(services(table)["clean"]) == is_automatic
    assert table.tidy()[0] == (() if is_automatic else ("clean",))


class Work:
    """A service of a test: pieces of work, each with its need and its bytes, of which a step reads
    ``speed`` a second by the clock of a storage.
    """

    def __init__(
        self,
        storage,
        need,
        mebibytes,
        speed=auto_maintenance.SPEED_BYTES,
    ):
        self.need = np.full(len(mebibytes), need)
        self.bytes = np.array(mebibytes, np.int64) << 20
        self._storage, self._speed = storage, speed

    def step(self, _, __, ___, scope):
        taken = affordable(self.need, self.bytes, scope)
        done = int(self.bytes[taken].sum())
        self._storage.sleep(done / self._speed)
        self.need = np.delete(self.need, taken)
        self.bytes = np.delete(self.bytes, taken)
        return auto_maintenance.Outcome(bool(taken), bool(len(self.need)), done)


@pytest.fixture
def clocked():
    """A table, and its storage, whose clock moves when the test says so."""
    storage = MemoryStorage()
    table = mdt.create(storage, SCHEMA, ["id"])
    table.insert(rows(range(3)))
    return table, storage


def services_after(clocked, upkept, seconds):
    """Return how many seconds services take after a write of so many seconds."""
    table, storage = clocked
    upkept.begin_write(storage.now_us())
    storage.sleep(seconds)
    since = storage.now_us()
    assert upkept.after_write(table.metadata, table.options, table.snapshot().seq) == ()
    return (storage.now_us() - since) / 1e6


def test_steps_end_with_the_budget_and_go_on_after_the_next_write(
    clocked,
):
    writes = (1.05, 0.5, 0.2, 9.0, 1.05)
    took, left = carried_out(clocked, Work(clocked[1], 1.1, [10] * 9), writes)
    assert all(seconds <= min(write, 1.0) for seconds, write in zip(took, writes, strict=True))
    assert left == [6, 5, 5, 2, 0], (
        "32 MiB a second: three pieces, one, none, and no more than a second's after a long write"
    )


def test_what_a_cleaning_takes_of_the_budget_the_others_do_not(monkeypatch, clocked):
    first, second = Work(clocked[1], 1.0, [20]), Work(clocked[1], 1.0, [10, 5, 3])
    of = {"clean": first.step, "compact": second.step}
    steps = tuple((name, of[name]) for name, _ in auto_maintenance.STEPS if name in of)
    monkeypatch.setattr(auto_maintenance, "STEPS", steps)
    assert services_after(clocked, auto_maintenance.Upkeep(), 1.0) < 1.0
    assert not len(first.need) and second.bytes.tolist() == [5 << 20, 3 << 20]


def test_the_budget_follows_the_speed_of_the_steps_before(
    clocked,
):
    work = Work(clocked[1], 1.1, [1] * 200, speed=8 << 20)
    took, _ = carried_out(clocked, work, [1.0] * 8)
    assert took[0] > 3 and took == sorted(took, reverse=True) and 0.9 < took[-1] < 1.1


def test_what_is_overdue_is_done_beyond_the_budget_a_part_at_a_time(
    clocked,
):
    _, left = carried_out(clocked, Work(clocked[1], OVERDUE, [40] * 16), [0.1] * 12)
    assert left == [14, *range(13, 2, -1)], "an eighth of what is overdue, and at least one piece"


def test_overdue_work_converges_whatever_the_budget():
    """Two thousand writes into 300 file groups, each of which makes some of them need more; no step
    has a budget.
    """
    random = np.random.default_rng(4)
    cost, need, added = random.integers(1, 1_000, 300), np.zeros(300), 0
    longest = 0
    for _ in range(2_000):
        touched = random.random(300) < random.choice([0.01, 0.3])
        before = need >= OVERDUE
        need = need + touched * random.random(300) * 0.2
        added = max(added, int(cost[(need >= OVERDUE) & ~before].sum()))
        taken = affordable(need, cost, Scope(None, None, 0))
        need[taken] = 0
        longest = max(longest, int(cost[need >= OVERDUE].sum()))
    assert 0 < longest <= OVERDUE_SHARE * (added + int(cost.max()))


def wait_for_fewer_log_files(table):
    """Wait until a service has made the log files fewer.

    A thread that sees the last write between two of its steps merges the log files, else it
    compacts the file group.
    """
    deadline = time.monotonic() + 60
    while not services(table):
        assert time.monotonic() < deadline, "no service runs"
        time.sleep(0.02)
    assert log_files(table) < 2 and services(table).keys() <= {"compact", "log_compact"}


def test_a_thread_does_what_is_due_and_ends_with_the_table(tmp_path):
    table = made(tmp_path / "t", **{"mdt.services.thread": True})
    for number in range(LIMIT):
        assert table.upsert(rows(range(3), number)).warnings == ()
    wait_for_fewer_log_files(table)
    table.close()
    table.close()
    assert not table._upkeep._thread._thread.is_alive()  # type: ignore[union-attr]
    assert table.upsert(rows(range(3), 9.0)).updated == 3, "it may be used after that"
    table.close()
    assert table.check().ok and not table.storage.list_dir(paths.pending_dir())


def test_what_goes_wrong_in_the_thread_stands_in_the_next_result(
    monkeypatch,
):
    def broken(*_):
        raise Unavailable("no answer (a fault made by a test)")

    table = made(MemoryStorage(), **{"mdt.services.thread": True})
    table.close()
    monkeypatch.setattr(auto_maintenance, "STEPS", (("compact", broken),))
    thread = auto_maintenance.ServiceThread(auto_maintenance.Upkeep(), table.metadata)
    thread.wake()
    deadline, warnings = time.monotonic() + 60, tuple[str, ...]()
    while not warnings:
        assert time.monotonic() < deadline
        time.sleep(0.02)
        warnings = thread.wake()
    thread.close()
    assert "compact did not finish: no answer" in warnings[0]


SCRIPT = """
import sys
import mdt, pyarrow as pa
table = mdt.open(sys.argv[1], {"mdt.services.thread": True, "mdt.compact.log.files": 2})
for number in range(6):
    table.upsert(pa.table({"id": [0, 1, 2], "x": [float(number)] * 3}))
if len(sys.argv) > 2:
    del table
"""


@pytest.mark.parametrize(
    "more", [[], ["del"]], ids=["at the end of the process", "when nobody has the table any more"]
)
def test_a_process_that_does_not_close_its_table_ends_cleanly(tmp_path, more):
    table = made(tmp_path / "t")
    call = [sys.executable, "-W", "error", "-c", SCRIPT, str(tmp_path / "t"), *more]
    done = subprocess.run(call, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert not table.storage.list_dir(paths.pending_dir()), "no transaction is left under way"
    assert table.scan("x = 5").count() == 3 and table.check().ok
