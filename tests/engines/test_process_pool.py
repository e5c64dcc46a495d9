"""An engine of worker processes passes the tests of the other engines: random histories, crashes
and failing tasks.
"""

import os

import pooled
import pytest
from counting import count
from hypothesis.stateful import run_state_machine_as_test
from model import TableAgainstDictionary, histories
from pooled import PooledTable, processes
from worlds import CLUSTERED_STATE, as_state, assert_clean, make, ours, rows, upserted

import mdt
from mdt.engines import tasks, write_tasks
from mdt.errors import Corrupt, Unavailable
from mdt.stores.storage import LocalStorage
from mdt.testing.process_pool import process_engine

_EXAMPLES = max(1, int(os.environ.get("MDT_MODEL_EXAMPLES", "40")) // 10)


class PooledAgainstDictionary(TableAgainstDictionary):
    """Runs the same histories. Every upsert, insert, delete, merge by key, conditional delete and
    update, index build, compaction and clustering runs in other processes.
    """

    kind_of_table = kind_of_other = PooledTable

    def _said(self, writer, batch, on, clauses, dedupe):
        if on == "note":  # engines join only the key columns
            return super()._said(mdt.open(writer.storage), batch, on, clauses, dedupe)
        merge = super()._said(writer, batch, on, clauses, dedupe)
        assert merge._runner is not None
        count("merges of the model in processes")
        return merge


@pytest.mark.timeout(900)
def test_readers_see_the_rows_of_the_model_after_writes_by_processes():
    run_state_machine_as_test(PooledAgainstDictionary, settings=histories(_EXAMPLES))


@pytest.fixture
def start(tmp_path):
    """A table on disk with the rows of CLUSTERED_STATE, and log files."""
    table = make(on(tmp_path / "start"), "MERGE_ON_READ", "record")
    table.upsert(rows(range(6), 1, 1.0))
    table.upsert(rows(range(3), 2, 2.0))
    table.bulk_insert(rows(range(6, 12), 1, 1.5))
    return tmp_path / "start"


def on(folder):
    return LocalStorage(folder, durable=False)


def test_an_engine_recognises_its_own_data_and_sessions(start):
    options = {"mdt.spark.driver.summaries.max": 0}
    table, pool = mdt.open(on(start), options), pooled.Pool()
    source = pooled.PooledRows(processes(), rows(range(2, 9), 3, 3.0))
    assert table.upsert(source, evolve=True).engine == "processes"
    after = upserted(CLUSTERED_STATE, range(2, 9), 3, 3.0)
    assert as_state(mdt.open(on(start)).scan().to_arrow()) == after
    results = [
        table.merge(source).when_matched().update({"fare": "source.fare"}).execute(),
        table.update_where({"fare": "fare + 1"}, "id = 'k8'", spark=pool),
        table.compact(spark=pool),
        table.delete(source),
    ]
    assert [result.engine for result in results] == ["processes"] * 4
    table.create_index("bitmap(fare)", spark=pool)
    assert "Processes task" in str(table.scan("fare = 2").explain(spark=pool))
    assert_clean(on(start))
    assert table.upsert(source.table).engine == "arrow", (
        "Arrow data is written in the calling thread"
    )


def test_a_large_insert_is_split_at_keys_so_that_files_hold_narrow_ranges(tmp_path):
    options = {"mdt.max.file.bytes": 4096, "mdt.small.file.bytes": 0}
    make(on(tmp_path / "t"), "MERGE_ON_READ", "record", **options)
    table = PooledTable(on(tmp_path / "t"))
    assert table.bulk_insert(rows(range(2000), 1, 1.0)).inserted == 2000
    assert len(table.files()) > 4 and table.scan().count() == 2000
    assert table.scan("id between 'k1500' and 'k1510'").explain().files_read <= 4
    assert_clean(on(tmp_path / "t"))


UPSERTED = upserted(CLUSTERED_STATE, range(2, 9), 3, 3.0)


@pytest.mark.parametrize(
    "fault, kind, why",
    [
        (pooled.finds_damage, Corrupt, r"a block is damaged \[p at byte 3\]"),
        (pooled.dies, Unavailable, "a worker process died"),
    ],
)
@pytest.mark.parametrize(
    "act, module, name, after",
    [
        (lambda t: t.upsert(rows(range(2, 9), 3, 3.0)), write_tasks, "write", UPSERTED),
        (lambda t: t.compact(), tasks, "rewrite", CLUSTERED_STATE),
        (lambda t: t.cluster("fare"), tasks, "rewrite", CLUSTERED_STATE),
    ],
    ids=["upsert", "compact", "cluster"],
)
def test_a_task_that_fails_after_it_wrote_commits_nothing(
    start,
    monkeypatch,
    act,
    module,
    name,
    after,
    fault,
    kind,
    why,
):
    engine = process_engine(1)
    monkeypatch.setattr(pooled, "processes", lambda: engine)
    monkeypatch.setattr(module, name, fault)
    with pytest.raises(kind, match=why):
        act(PooledTable(on(start)))
    monkeypatch.undo()
    engine.executor.shutdown()
    assert ours(on(start)) == CLUSTERED_STATE
    mdt.open(on(start)).abort()
    assert_clean(on(start))
    act(PooledTable(on(start)))
    assert ours(on(start)) == after


def test_attempts_of_tasks_have_distinct_numbers(start):
    PooledTable(on(start)).create_index("bitmap(fare)")
    first, second = (next(processes()._attempts) for _ in range(2))
    assert first > 0 and second == first + 1
    assert set(mdt.open(on(start)).indexes()["coverage"].to_pylist()) == {100.0}
