"""Deletes and updates by a condition in tasks: counts, rows and what is remembered are those of one
process.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from counting import count
from pooled import PooledTable, copies
from reader import bag, hudi_table
from worlds import BASE_STATE, COW, MOR, as_state, assert_clean, make, recovered, rows

import mdt
from mdt.engines import conditional_tasks
from mdt.errors import Invalid
from mdt.stores.storage import LocalStorage, Storage
from mdt.write.setting import setting

STEPS: list[Callable[[mdt.Table], Any]] = [
    lambda t: t.delete_where("fare > 7 and ts = 1"),
    lambda t: t.update_where({"fare": "fare * 10 + ts"}, "fare between 2 and 5"),
    lambda t: t.update_where(
        values={"fare": None}, where="id in :ids", params={"ids": ["k3", "k5", "k70", "no"]}
    ),
    lambda t: t.delete_where("city = 'y' and fare is null"),
    lambda t: t.update_where({"ts": "ts - 1"}, "id < 'k2'"),
    lambda t: t.delete_where("false"),
    lambda t: t.update_where({"fare": "coalesce(fare, 0) + 1"}),
    lambda t: t.upsert(rows(range(0, 300, 7), 1, 3.0)),
    lambda t: t.delete_where(None),
    lambda t: t.upsert(rows(range(0, 300, 7), 1, 3.0)),
]


def on(folder: Path) -> LocalStorage:
    return LocalStorage(folder, durable=False)


@pytest.mark.parametrize("keeps", [True, pytest.param(False, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("table_type", [MOR, COW])
def test_what_tasks_choose_and_write_is_what_one_process_does(
    tmp_path: Path, table_type: str, keeps: bool
) -> None:
    options = {
        "mdt.max.file.bytes": 4096,
        "mdt.small.file.bytes": 0,
        "mdt.delete.keeps.ordering": keeps,
    }
    start = make(on(tmp_path / "here"), table_type, "record", **options)
    start.create_index("bitmap(fare)")
    fares = pa.array([float(i * 37 % 11) for i in range(300)])
    start.upsert(rows(range(300), 1, 0.0).set_column(3, "fare", fares))
    start.upsert(rows(range(0, 300, 5), 2, 3.0))
    shutil.copytree(tmp_path / "here", tmp_path / "tasks")
    tables = [mdt.open(on(tmp_path / "here")), PooledTable(on(tmp_path / "tasks"))]
    for step in STEPS:
        here, there = (step(table) for table in tables)
        assert (here.updated, here.deleted, here.late, here.seq) == (
            there.updated,
            there.deleted,
            there.late,
            there.seq,
        )
        assert bool(here.instant) == bool(there.instant)
        found = [bag(table.scan().to_arrow()) for table in tables]
        assert found[0] == found[1] == bag(hudi_table(tmp_path / "tasks", start.schema))
        count("rows that tasks change by a condition", there.updated + there.deleted)
    assert_clean(on(tmp_path / "tasks"))


def test_values_that_do_not_fit_are_named_and_nothing_is_left(tmp_path: Path) -> None:
    table = make(on(tmp_path / "t"), MOR, "record")
    table.upsert(rows(range(9), 1, 1.0))
    with pytest.raises(Invalid, match="divided by zero"):
        PooledTable(on(tmp_path / "t")).update_where({"fare": "1 / (ts - 1)"}, "fare = 1")
    assert as_state(table.scan().to_arrow()) == {f"k{n}": (1, 1.0) for n in range(9)}
    assert_clean(on(tmp_path / "t"))


CHANGED = {key: (ts, fare + 1) for key, (ts, fare) in BASE_STATE.items() if ts == 2}


def test_after_a_crash_of_the_driver_at_any_change_readers_see_all_or_nothing(
    tmp_path: Path,
) -> None:
    def flow(storage: Storage) -> None:
        PooledTable(storage).delete_where("ts < 2")
        PooledTable(storage).update_where({"fare": "fare + 1"}, "fare = 2")

    start = make(on(tmp_path / "start"), MOR, "record")
    start.upsert(rows(range(6), 1, 1.0))
    start.upsert(rows(range(3), 2, 2.0))
    between = {key: row for key, row in BASE_STATE.items() if row[0] == 2}
    what = "crash points of conditions in processes"
    for crashed in recovered(
        copies(tmp_path / "start"), flow, (BASE_STATE, between, CHANGED), what
    ):
        flow(crashed)
        assert as_state(mdt.open(crashed).scan().to_arrow()) == CHANGED


def test_the_driver_reads_no_row_and_what_it_plans_is_all_that_tasks_look_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(
        on(tmp_path / "t"), MOR, "record", **{"mdt.max.file.bytes": 4096, "mdt.small.file.bytes": 0}
    )
    table.bulk_insert(rows(range(3000), 1, 1.0))
    planned = []
    shares = conditional_tasks.shares
    monkeypatch.setattr(
        conditional_tasks,
        "shares",
        lambda engine, work: planned.extend(work) or shares(engine, work),
    )
    for name in ("read_at", "matching_rows"):
        monkeypatch.setattr(f"mdt.write.conditional.{name}", None)
    done = PooledTable(on(tmp_path / "t")).delete_where("id between 'k100' and 'k104'")
    assert done.deleted == 45
    assert 0 < len(planned) < len(table.snapshot()) // 2


def test_a_setting_travels_as_it_was_said(tmp_path: Path) -> None:
    import pickle

    table = make(on(tmp_path / "t"), MOR, "record")
    given = setting(table.definition, {"ts": 5}, {"fare": "fare + 1"})
    found = pickle.loads(pickle.dumps(given))
    row = rows([1], 1, 1.0)
    assert found.of(row) == given.of(row) and found.names == {"ts", "fare"}
