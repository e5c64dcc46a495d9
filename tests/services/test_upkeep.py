"""Services after writes stay within a budget. Work that does not fit waits until it is overdue, and
the service thread ends cleanly.
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


def run_writes(clocked, work, writes):
    """Run services after writes that take the given seconds. Return the seconds that services take after
    each write, and the remaining pieces of work.
    """
    upkeep = auto_maintenance.Upkeep()
    took, remaining = [], []
    with patch.object(auto_maintenance, "STEPS", (("compact", work.step),)):
        for seconds in writes:
            took.append(services_after(clocked, upkeep, seconds))
            remaining.append(len(work.need))
    return took, remaining


from unittest.mock import patch

SCHEMA = columns("id int64, x float64")
LIMIT = 4
ROWS = 40_000
"""So many rows that a few log files are a small part of the file group, but few enough that it is
compacted whenever it has LIMIT log files.
"""


def rows(ids, x=0.0):
    return pa.table([pa.array(ids, pa.int64()), [x] * len(ids)], schema=SCHEMA)


def filled_table(location, **options):
    settings = {"mdt.durable": False, "mdt.compact.log.files": LIMIT, **options}
    table = mdt.create(location, SCHEMA, ["id"], key_index="record", options=settings)
    table.insert(
        pa.table([pa.array(range(ROWS)), np.random.default_rng(1).random(ROWS)], schema=SCHEMA)
    )
    return table


def log_files(table):
    return sum(table.files()["kind"].to_pylist())


def service_counts(table):
    counts = Counter(table.history()["operation"].to_pylist())
    return Counter(
        {
            name: n
            for name, n in counts.items()
            if name in ("compact", "log_compact", "cluster", "clean")
        }
    )


def most_log_files(table, writes):
    """Upsert the same rows repeatedly. Return the largest number of log files after a write."""
    most = 0
    for number in range(writes):
        assert table.upsert(rows(range(3), number)).warnings == ()
        most = max(most, log_files(table))
    return most


def test_work_within_the_budget_is_done_as_soon_as_it_is_due():
    assert most_log_files(filled_table(MemoryStorage()), 3 * LIMIT) == LIMIT - 1


def test_work_beyond_the_budget_waits_until_it_is_overdue(monkeypatch):
    monkeypatch.setattr(auto_maintenance, "FREE_BYTES", 0)
    monkeypatch.setattr(auto_maintenance, "SPEED_BYTES", 0)
    table = filled_table(MemoryStorage())
    assert most_log_files(table, 3 * LIMIT) == int(OVERDUE * LIMIT) - 1
    assert service_counts(table)["compact"] == 2 and table.check().ok


def test_postponed_work_is_done_after_a_write_to_another_partition(
    monkeypatch,
):
    monkeypatch.setattr(auto_maintenance, "FREE_BYTES", 0)
    monkeypatch.setattr(auto_maintenance, "SPEED_BYTES", 0)
    schema = SCHEMA.append(pa.field("city", pa.string()))
    options = {"mdt.durable": False, "mdt.compact.log.files": LIMIT}
    table = mdt.create(
        MemoryStorage(), schema, ["id"], partition_by=["city"], key_index="record", options=options
    )
    row_x, row_y = (
        rows([n]).append_column("city", pa.array([city])) for n, city in enumerate(("x", "y"))
    )
    many = pa.table(
        [pa.array(range(ROWS)), np.random.default_rng(1).random(ROWS), ["x"] * ROWS], schema=schema
    )
    table.insert(pa.concat_tables([many.slice(2), row_x, row_y]))
    for _ in range(LIMIT):
        table.upsert(row_x)
    assert log_files(table) == LIMIT
    monkeypatch.setattr(auto_maintenance, "FREE_BYTES", 1 << 40)
    table.upsert(row_y)
    assert log_files(table) == 1, "only the log file of the last write remains"


def test_with_a_budget_of_zero_writes_run_no_services_but_tidy_does():
    table = filled_table(MemoryStorage(), **{"mdt.services.seconds.max": 0})
    assert most_log_files(table, 10 * LIMIT) == 10 * LIMIT and not service_counts(table)
    assert table.tidy()[0] == ("compact",) and log_files(table) == 0


@pytest.mark.parametrize("is_automatic", [True, False])
def test_automatic_cleaning_can_be_disabled_separately(is_automatic):
    settings = {"hoodie.clean.automatic": is_automatic, "mdt.clean.retain.commits": 1}
    table = filled_table(MemoryStorage(), **settings)
    most_log_files(table, 3 * LIMIT)
    for number in range(CLEAN_COMMITS_MIN):
        table.upsert(rows(range(3), number))
    assert service_counts(table)["compact"]
    assert bool(service_counts(table)["clean"]) == is_automatic
    assert table.tidy()[0] == (() if is_automatic else ("clean",))


class Work:
    """A fake service: pieces of work with a need and a size in bytes. A step reads ``speed`` bytes a
    second by the clock of a storage.
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
        chosen = affordable(self.need, self.bytes, scope)
        bytes_read = int(self.bytes[chosen].sum())
        self._storage.sleep(bytes_read / self._speed)
        self.need = np.delete(self.need, chosen)
        self.bytes = np.delete(self.bytes, chosen)
        return auto_maintenance.Outcome(bool(chosen), bool(len(self.need)), bytes_read)


@pytest.fixture
def clocked():
    """A table, and its storage with a clock that the tests advance."""
    storage = MemoryStorage()
    table = mdt.create(storage, SCHEMA, ["id"])
    table.insert(rows(range(3)))
    return table, storage


def services_after(clocked, upkeep, seconds):
    """Return the seconds that services take after a write of ``seconds``."""
    table, storage = clocked
    upkeep.begin_write(storage.now_us())
    storage.sleep(seconds)
    since = storage.now_us()
    assert upkeep.after_write(table.metadata, table.options, table.snapshot().seq) == ()
    return (storage.now_us() - since) / 1e6


def test_services_stop_at_their_budget_and_continue_after_the_next_write(
    clocked,
):
    writes = (1.05, 0.5, 0.2, 9.0, 1.05)
    took, remaining = run_writes(clocked, Work(clocked[1], 1.1, [10] * 9), writes)
    assert all(seconds <= min(write, 1.0) for seconds, write in zip(took, writes, strict=True))
    assert remaining == [6, 5, 5, 2, 0], (
        "at 32 MiB a second: three pieces, one, none, and at most one second's after a long write"
    )


def test_the_time_of_a_cleaning_reduces_the_budget_of_other_services(monkeypatch, clocked):
    first, second = Work(clocked[1], 1.0, [20]), Work(clocked[1], 1.0, [10, 5, 3])
    steps_by_name = {"clean": first.step, "compact": second.step}
    steps = tuple(
        (name, steps_by_name[name]) for name, _ in auto_maintenance.STEPS if name in steps_by_name
    )
    monkeypatch.setattr(auto_maintenance, "STEPS", steps)
    assert services_after(clocked, auto_maintenance.Upkeep(), 1.0) < 1.0
    assert not len(first.need) and second.bytes.tolist() == [5 << 20, 3 << 20]


def test_the_budget_adapts_to_the_measured_speed_of_previous_steps(
    clocked,
):
    work = Work(clocked[1], 1.1, [1] * 200, speed=8 << 20)
    took, _ = run_writes(clocked, work, [1.0] * 8)
    assert took[0] > 3 and took == sorted(took, reverse=True) and 0.9 < took[-1] < 1.1


def test_overdue_work_is_done_beyond_the_budget_in_parts(
    clocked,
):
    _, remaining = run_writes(clocked, Work(clocked[1], OVERDUE, [40] * 16), [0.1] * 12)
    assert remaining == [14, *range(13, 2, -1)], (
        "an eighth of the overdue work, and at least one piece"
    )


def test_overdue_work_converges_whatever_the_budget():
    """Two thousand writes into 300 file groups. Each write increases the need of some groups, and no
    step has a budget.
    """
    random = np.random.default_rng(4)
    cost, need, added = random.integers(1, 1_000, 300), np.zeros(300), 0
    longest = 0
    for _ in range(2_000):
        touched = random.random(300) < random.choice([0.01, 0.3])
        before = need >= OVERDUE
        need = need + touched * random.random(300) * 0.2
        added = max(added, int(cost[(need >= OVERDUE) & ~before].sum()))
        chosen = affordable(need, cost, Scope(None, None, 0))
        need[chosen] = 0
        longest = max(longest, int(cost[need >= OVERDUE].sum()))
    assert 0 < longest <= OVERDUE_SHARE * (added + int(cost.max()))


def wait_for_fewer_log_files(table):
    """Wait until a service has reduced the number of log files.

    If the thread sees the last write between two of its steps it merges the log files, otherwise it
    compacts the file group.
    """
    deadline = time.monotonic() + 60
    while not service_counts(table):
        assert time.monotonic() < deadline, "no service runs"
        time.sleep(0.02)
    assert log_files(table) < 2 and service_counts(table).keys() <= {"compact", "log_compact"}


def test_the_service_thread_does_due_work_and_ends_when_the_table_is_closed(tmp_path):
    table = filled_table(tmp_path / "t", **{"mdt.services.thread": True})
    for number in range(LIMIT):
        assert table.upsert(rows(range(3), number)).warnings == ()
    wait_for_fewer_log_files(table)
    table.close()
    table.close()
    assert not table._upkeep._thread._thread.is_alive()  # type: ignore[union-attr]
    assert table.upsert(rows(range(3), 9.0)).updated == 3, "a closed table can still be used"
    table.close()
    assert table.check().ok and not table.storage.list_dir(paths.PENDING_DIR)


def test_errors_in_the_service_thread_are_warnings_of_the_next_write(
    monkeypatch,
):
    def fail(*_):
        raise Unavailable("no answer (a fault made by a test)")

    table = filled_table(MemoryStorage(), **{"mdt.services.thread": True})
    table.close()
    monkeypatch.setattr(auto_maintenance, "STEPS", (("compact", fail),))
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
def test_a_process_that_does_not_close_its_table_exits_cleanly(tmp_path, more):
    table = filled_table(tmp_path / "t")
    call = [sys.executable, "-W", "error", "-c", SCRIPT, str(tmp_path / "t"), *more]
    process = subprocess.run(call, capture_output=True, text=True, timeout=100, check=False)
    assert (process.returncode, process.stderr) == (0, "")
    assert not table.storage.list_dir(paths.PENDING_DIR), "no transaction is pending"
    assert table.scan("x = 5").count() == 3 and table.check().ok
