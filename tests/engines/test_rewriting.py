"""Compaction and clustering in the tasks of an engine: the rows, the order and the coverage are
those of one process.
"""

import shutil

import pyarrow as pa
import pytest
from counting import count
from pooled import PooledTable
from reader import hudi_table
from worlds import MODES, as_state, assert_clean, make, rows

import mdt
from mdt.stores.storage import LocalStorage
from mdt.testing.faulty import Crash, FaultyStorage


def compact(table):
    return table.compact()


def cluster(table):
    return table.cluster("fare")


SERVICES = [compact, cluster]


def on(folder):
    return LocalStorage(folder, durable=False)


@pytest.fixture
def start(tmp_path):
    """A table on disk with log files in several file groups, whose ranges overlap."""
    options = {"mdt.max.file.bytes": 4096, "mdt.small.file.bytes": 0, "mdt.services.auto": False}
    table = make(on(tmp_path / "start"), "MERGE_ON_READ", "record", **options)
    fares = pa.array([float(i * 37 % 101) for i in range(500)])
    for n in range(4):
        table.bulk_insert(rows(range(n, 2000, 4), 1, 0.0).set_column(3, "fare", fares))
    table.create_index("bitmap(fare)")
    table.upsert(rows(range(0, 2000, 7), 2, 9.0))
    table.delete(rows(range(0, 2000, 11), 0, 0.0))
    return tmp_path / "start"


def seen_by_all(folder):
    """Return what we see, after hudi-rs has seen the same."""
    found = state(folder)
    assert as_state(hudi_table(folder, mdt.open(on(folder)).schema)) == found
    return found


def state(folder):
    return as_state(mdt.open(on(folder)).scan().to_arrow())


@pytest.mark.parametrize("service", SERVICES)
def test_what_tasks_write_anew_is_what_one_process_writes(start, service):
    copy, before = shutil.copytree(start, start.with_name("copy")), state(start)
    there, here = service(PooledTable(on(start))), service(mdt.open(on(copy)))
    assert there.seq == here.seq > 6 and there.instant
    found, expected = (
        mdt.open(on(folder)).files().sort_by("partition") for folder in (start, copy)
    )
    assert len(found) == len(expected) >= 4
    assert sorted(found["rows"].to_pylist()) == sorted(expected["rows"].to_pylist())
    assert seen_by_all(start) == before == state(copy)
    assert set(mdt.open(on(start)).indexes()["coverage"].to_pylist()) == {100.0}
    plans = [
        mdt.open(on(folder)).scan("fare between 10 and 12").explain() for folder in (start, copy)
    ]
    assert plans[0].files_read == plans[1].files_read <= (len(found) if service is compact else 6)
    assert_clean(on(start))


@pytest.mark.parametrize("service", SERVICES)
def test_after_a_crash_of_the_driver_the_rows_are_there_and_nothing_is_left(start, service):
    before = state(start)
    whole = FaultyStorage(on(shutil.copytree(start, start.with_name("whole"))))
    service(PooledTable(whole))
    for k in range(1, len(whole.operations) + 1, 3):
        mode = MODES[k % len(MODES)]
        if mode == "torn" and whole.operations[k - 1].startswith("delete"):
            continue
        folder = shutil.copytree(start, start.with_name(f"{mode}-{k}"))
        survivor = on(folder)
        with pytest.raises(Crash):
            service(PooledTable(FaultyStorage(survivor, k, mode)))
        count("crash points of the engine of processes")
        mdt.open(survivor).abort()
        assert seen_by_all(folder) == before
        assert_clean(survivor)


@pytest.mark.parametrize("service", SERVICES)
def test_a_file_group_that_changes_while_tasks_write_is_left_out(start, service):
    run = mdt.engines.rewriting.EngineRewrite.__call__

    class Beside(PooledTable):
        def _rewriting_on(self, engine):
            runner = super()._rewriting_on(engine)

            def beside(*given):
                changes = run(runner, *given)
                if state(start)["k1"] != (3, 77.0):
                    mdt.open(on(start)).upsert(rows(range(1, 2), 3, 77.0))
                return changes

            return beside

    service(Beside(on(start)))
    found = state(start)
    assert found["k1"] == (3, 77.0) and len(found) == len(
        set(range(2000)) - set(range(0, 2000, 11))
    )
    assert mdt.open(on(start)).history()["operation"].to_pylist()[-1] in ("compact", "cluster")
    assert_clean(on(start))
