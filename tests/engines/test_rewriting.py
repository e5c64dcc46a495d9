"""Compaction and clustering in the tasks of an engine. Rows, order and index coverage equal those
of one process.
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
    """A table on disk with log files in several file groups with overlapping key ranges."""
    options = {"mdt.max.file.bytes": 4096, "mdt.small.file.bytes": 0, "mdt.services.auto": False}
    table = make(on(tmp_path / "start"), "MERGE_ON_READ", "record", **options)
    fares = pa.array([float(i * 37 % 101) for i in range(500)])
    for n in range(4):
        table.bulk_insert(rows(range(n, 2000, 4), 1, 0.0).set_column(3, "fare", fares))
    table.create_index("bitmap(fare)")
    table.upsert(rows(range(0, 2000, 7), 2, 9.0))
    table.delete(rows(range(0, 2000, 11), 0, 0.0))
    return tmp_path / "start"


def rows_read_by_all(folder):
    """Return the rows that mdt reads, after checking that hudi-rs reads the same rows."""
    visible = state(folder)
    assert as_state(hudi_table(folder, mdt.open(on(folder)).schema)) == visible
    return visible


def state(folder):
    return as_state(mdt.open(on(folder)).scan().to_arrow())


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_in_tasks_rewrites_the_same_rows_as_one_process(start, service):
    copy, before = shutil.copytree(start, start.with_name("copy")), state(start)
    in_tasks, in_process = service(PooledTable(on(start))), service(mdt.open(on(copy)))
    assert in_tasks.seq == in_process.seq > 6 and in_tasks.instant
    files, expected_files = (
        mdt.open(on(folder)).files().sort_by("partition") for folder in (start, copy)
    )
    assert len(files) == len(expected_files) >= 4
    assert sorted(files["rows"].to_pylist()) == sorted(expected_files["rows"].to_pylist())
    assert rows_read_by_all(start) == before == state(copy)
    assert set(mdt.open(on(start)).indexes()["coverage"].to_pylist()) == {100.0}
    plans = [
        mdt.open(on(folder)).scan("fare between 10 and 12").explain() for folder in (start, copy)
    ]
    assert plans[0].files_read == plans[1].files_read <= (len(files) if service is compact else 6)
    assert_clean(on(start))


@pytest.mark.parametrize("service", SERVICES)
def test_after_a_driver_crash_in_a_service_all_rows_remain_and_no_file_is_left_over(start, service):
    before = state(start)
    complete = FaultyStorage(on(shutil.copytree(start, start.with_name("whole"))))
    service(PooledTable(complete))
    for k in range(1, len(complete.operations) + 1, 3):
        mode = MODES[k % len(MODES)]
        if mode == "torn" and complete.operations[k - 1].startswith("delete"):
            continue
        folder = shutil.copytree(start, start.with_name(f"{mode}-{k}"))
        survivor = on(folder)
        with pytest.raises(Crash):
            service(PooledTable(FaultyStorage(survivor, k, mode)))
        count("crash points of the engine of processes")
        mdt.open(survivor).abort()
        assert rows_read_by_all(folder) == before
        assert_clean(survivor)


@pytest.mark.parametrize("service", SERVICES)
def test_a_file_group_that_changes_while_tasks_rewrite_it_is_skipped(start, service):
    run = mdt.engines.rewriting.EngineRewrite.__call__

    class TableWithConcurrentUpsert(PooledTable):
        def _rewriting_on(self, engine):
            runner = super()._rewriting_on(engine)

            def run_with_upsert(*arguments):
                changes = run(runner, *arguments)
                if state(start)["k1"] != (3, 77.0):
                    mdt.open(on(start)).upsert(rows(range(1, 2), 3, 77.0))
                return changes

            return run_with_upsert

    service(TableWithConcurrentUpsert(on(start)))
    after = state(start)
    assert after["k1"] == (3, 77.0) and len(after) == len(
        set(range(2000)) - set(range(0, 2000, 11))
    )
    assert mdt.open(on(start)).history()["operation"].to_pylist()[-1] in ("compact", "cluster")
    assert_clean(on(start))
