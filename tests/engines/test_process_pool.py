"""A third engine, of processes, passes what the others pass: random histories, crashes, tasks that
fail.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pooled
import pytest
from counting import count
from hypothesis.stateful import run_state_machine_as_test
from model import TableAgainstDictionary, histories
from model_merge import Said
from pooled import PooledTable, copies, processes
from strategies import Row
from worlds import BASE_STATE, as_state, assert_clean, make, recovered, rows, upserted

import mdt
from mdt.engines import write_tasks
from mdt.errors import Corrupt, Invalid, Unavailable
from mdt.stores.storage import LocalStorage, Storage
from mdt.testing.process_pool import process_engine

_EXAMPLES = max(1, int(os.environ.get("MDT_MODEL_EXAMPLES", "40")) // 10)


class PooledAgainstDictionary(TableAgainstDictionary):
    """The same histories; every upsert, insert and delete, merge by key, delete and update by a
    condition, index build, compaction and clustering runs in other processes.
    """

    kind_of_table = kind_of_other = PooledTable

    def _said(
        self, writer: mdt.Table, batch: list[Row], on: str, clauses: list[Said], dedupe: bool
    ) -> Any:
        if on == "note":  # no engine joins other columns than the key
            return super()._said(mdt.open(writer.storage), batch, on, clauses, dedupe)
        merge = super()._said(writer, batch, on, clauses, dedupe)
        assert merge._runner is not None
        count("merges of the model in processes")
        return merge


@pytest.mark.timeout(900)
def test_every_reader_sees_what_the_model_holds_when_another_engine_writes() -> None:
    run_state_machine_as_test(PooledAgainstDictionary, settings=histories(_EXAMPLES))


AFTER = upserted(BASE_STATE, range(2, 9), 3, 3.0)


@pytest.fixture
def start(tmp_path: Path) -> Path:
    """A table on disk with the rows of BASE_STATE."""
    table = make(on(tmp_path / "start"), "MERGE_ON_READ", "record")
    table.upsert(rows(range(6), 1, 1.0))
    table.upsert(rows(range(3), 2, 2.0))
    return tmp_path / "start"


def on(folder: Path) -> LocalStorage:
    return LocalStorage(folder, durable=False)


def seen(storage: Storage) -> object:
    return as_state(mdt.open(storage).scan().to_arrow())


def upsert_mixed(storage: Storage) -> None:
    PooledTable(storage).upsert(rows(range(2, 9), 3, 3.0))


def test_a_write_by_other_processes_counts_what_one_in_process_counts(start: Path) -> None:
    copy = shutil.copytree(start, start.with_name("copy"))
    there = PooledTable(on(start)).upsert(rows(range(2, 9), 3, 3.0))
    here = mdt.open(on(copy)).upsert(rows(range(2, 9), 3, 3.0))
    assert (
        (there.inserted, there.updated, there.late)
        == (here.inserted, here.updated, here.late)
        == (3, 4, 0)
    )
    assert there.engine == "processes" and seen(on(start)) == seen(on(copy)) == AFTER
    with pytest.raises(Invalid, match=r"2 keys exist already: \['k[78]', 'k[78]'\]"):
        PooledTable(on(start)).insert(rows((7, 8, 30), 9, 9.0))
    assert_clean(on(start))


def test_many_inserts_are_cut_at_keys_so_that_files_hold_narrow_ranges(tmp_path: Path) -> None:
    make(
        on(tmp_path / "t"),
        "MERGE_ON_READ",
        "record",
        **{"mdt.max.file.bytes": 4096, "mdt.small.file.bytes": 0},
    )
    table = PooledTable(on(tmp_path / "t"))
    assert table.bulk_insert(rows(range(2000), 1, 1.0)).inserted == 2000
    assert len(table.files()) > 4 and table.scan().count() == 2000
    assert table.scan("id between 'k1500' and 'k1510'").explain().files_read <= 4
    assert_clean(on(tmp_path / "t"))


def test_after_a_crash_of_the_driver_at_any_change_readers_see_all_or_nothing(start: Path) -> None:
    states, what = (BASE_STATE, AFTER), "crash points of the engine of processes"
    for survivor in recovered(copies(start), upsert_mixed, states, what):
        upsert_mixed(survivor)
        assert seen(survivor) == AFTER


@pytest.mark.parametrize(
    ("fault", "kind", "why"),
    [
        (pooled.finds_damage, Corrupt, r"a block is damaged \[p at byte 3\]"),
        (pooled.dies, Unavailable, "a task has died"),
    ],
)
def test_a_task_that_fails_after_it_wrote_commits_nothing(
    start: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[..., Any],
    kind: type[Exception],
    why: str,
) -> None:
    engine = process_engine(1)
    monkeypatch.setattr(pooled, "processes", lambda: engine)
    monkeypatch.setattr(write_tasks, "write", fault)
    with pytest.raises(kind, match=why):
        upsert_mixed(on(start))
    monkeypatch.undo()
    engine.executor.shutdown()
    assert seen(on(start)) == BASE_STATE
    mdt.open(on(start)).abort()
    assert_clean(on(start))
    upsert_mixed(on(start))
    assert seen(on(start)) == AFTER


def test_attempts_of_tasks_have_names_of_their_own(start: Path) -> None:
    PooledTable(on(start)).create_index("bitmap(fare)")
    first, second = (next(processes()._attempts) for _ in range(2))
    assert first > 0 and second == first + 1
    assert set(mdt.open(on(start)).indexes()["coverage"].to_pylist()) == {100.0}
