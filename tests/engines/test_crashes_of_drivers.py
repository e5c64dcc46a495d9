"""After the driver crashes at any change of storage while it commits rows written by tasks, readers
see the whole operation or nothing of it.
"""

import pytest
from merges import merged
from pooled import PooledTable, copies
from spilled import SpilledTable
from worlds import (
    BASE_STATE,
    COW,
    MOR,
    deleted,
    filled,
    make,
    ours,
    recovered,
    rows,
    theirs,
    upserted,
)

from mdt.stores.storage import LocalStorage, MemoryStorage


def merge_all_kinds(table):
    return merged(
        table,
        rows([0, 1, 3, 8, 9], 3, 9.0),
        ("matched", "source.id = 'k0'", None),
        ("matched", "target.ts = 1", {"fare": "target.fare + source.fare", "ts": 0}),
        ("matched", "target.ts = 2", {"fare": "source.fare + 2"}),
        ("not_matched", "source.id = 'k8'", "*"),
    )


def by_conditions(table):
    table.delete_where("ts < 2")
    return table.update_where(values={"fare": 3.0}, where="fare = 2")


AFTER_DELETE = {key: row for key, row in BASE_STATE.items() if row[0] == 2}
AFTER_MERGE = {**deleted(BASE_STATE, [0]), "k1": (2, 11.0), "k3": (0, 10.0), "k8": (3, 9.0)}
OPERATIONS = {
    "upsert": (
        lambda t: t.upsert(rows(range(2, 9), 3, 3.0)),
        [upserted(BASE_STATE, range(2, 9), 3, 3.0)],
    ),
    "delete": (lambda t: t.delete(rows([0, 3, 50], 9, 1.0)), [deleted(BASE_STATE, [0, 3])]),
    "merge": (merge_all_kinds, [AFTER_MERGE]),
    "conditions": (
        by_conditions,
        [AFTER_DELETE, {key: (ts, 3.0) for key, (ts, _) in AFTER_DELETE.items()}],
    ),
}
"""Idempotent operations, each with the table states that it passes through."""


@pytest.mark.parametrize(
    "kind, table_type, name",
    [
        *((PooledTable, MOR, name) for name in OPERATIONS),
        (SpilledTable, MOR, "upsert"),
        (SpilledTable, MOR, "delete"),
        pytest.param(SpilledTable, COW, "upsert", marks=pytest.mark.nightly),
        pytest.param(SpilledTable, COW, "delete", marks=pytest.mark.nightly),
    ],
)
def test_after_a_driver_crash_at_any_change_readers_see_all_or_nothing(
    tmp_path, kind, table_type, name
):
    act, states = OPERATIONS[name]

    def run(storage):
        act(kind(storage))

    start = lambda: filled(table_type, "bloom")
    if kind is PooledTable:
        table = make(LocalStorage(tmp_path / "start", durable=False), table_type, "record")
        table.upsert(rows(range(6), 1, 1.0))
        table.upsert(rows(range(3), 2, 2.0))
        start = copies(tmp_path / "start")
    description = f"crash points of {name} by a {kind.__name__}"
    for survivor in recovered(start, run, (BASE_STATE, *states), description):
        assert not isinstance(survivor, MemoryStorage) or theirs(survivor) == ours(survivor)
        run(survivor)
        assert ours(survivor) == states[-1]
