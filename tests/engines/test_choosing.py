"""Deletes and updates by a condition in tasks. Counts, rows and remembered deletes equal those of
one process.
"""

import shutil

import pyarrow as pa
import pytest
from counting import count
from pooled import PooledTable
from reader import agreed
from worlds import COW, MOR, assert_clean, make, ours, rows

import mdt
from mdt.engines import conditional_tasks
from mdt.errors import Invalid
from mdt.stores.storage import LocalStorage

STEPS = [
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


def on(folder):
    return LocalStorage(folder, durable=False)


@pytest.mark.parametrize("keeps", [True, pytest.param(False, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("table_type", [MOR, COW])
def test_conditional_writes_in_tasks_equal_those_in_one_process(tmp_path, table_type, keeps):
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
        results = [step(table) for table in tables]
        in_process, in_tasks = (
            (result.updated, result.deleted, result.late, result.seq) for result in results
        )
        assert in_process == in_tasks and bool(results[0].instant) == bool(results[1].instant)
        agreed(tables[1], expected=tables[0].scan().to_arrow())
        count("rows that tasks change by a condition", results[1].updated + results[1].deleted)
    assert_clean(on(tmp_path / "tasks"))


def test_an_expression_that_fails_in_a_task_raises_and_leaves_no_files(tmp_path):
    storage = on(tmp_path)
    table = make(storage, MOR, "record")
    table.upsert(rows(range(9), 1, 1.0))
    with pytest.raises(Invalid, match="division by zero"):
        PooledTable(storage).update_where({"fare": "1 / (ts - 1)"}, "fare = 1")
    assert ours(storage) == {f"k{n}": (1, 1.0) for n in range(9)}
    assert_clean(storage)


def test_the_driver_reads_no_rows_and_plans_only_files_that_may_match(tmp_path, monkeypatch):
    options = {"mdt.max.file.bytes": 4096, "mdt.small.file.bytes": 0}
    table = make(on(tmp_path / "t"), MOR, "record", **options)
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
    result = PooledTable(on(tmp_path / "t")).delete_where("id between 'k100' and 'k104'")
    assert result.deleted == 45
    assert 0 < len(planned) < len(table.snapshot()) // 2
