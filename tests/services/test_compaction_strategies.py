"""Compaction of some file groups: a strategy ranks them, and partitions and a budget limit them.
Other file groups stay unchanged.
"""

import numpy as np
import pyarrow as pa
import pytest
from counting import count
from texts import columns

import mdt
from mdt.errors import Invalid
from mdt.metadata.files.file_group import LOG
from mdt.services.layout.compaction_strategies import STRATEGIES, choose_groups, dirty
from mdt.stores.storage import MemoryStorage

SCHEMA = columns("id int64, day string, x string")
DAYS = ("2026-01-01", "2026-01-02", "2026-01-03")


def rows(ids, day, x=""):
    return pa.table([list(ids), [day] * len(ids), [x] * len(ids)], schema=SCHEMA)


def filled_table():
    """Return a table of three days with log files: many bytes in the first day, many files in the
    second, mostly deleted rows in the third.
    """
    table = mdt.create(MemoryStorage(), SCHEMA, ["id"], partition_by=["day"], key_index="record")
    for day in DAYS:
        table.upsert(rows(range(100), day))
    table.upsert(rows(range(90), DAYS[0], "much" * 1_000))
    for number in range(3):
        table.upsert(rows(range(number, number + 1), DAYS[1]))
    table.delete(rows(range(95), DAYS[2]).select(["id", "day"]))
    table.upsert(rows(range(200, 300), "2026-01-04"))
    return table


def days_of_groups(table, groups):
    return [table.snapshot().file_groups.partition(group)[-10:] for group in groups]


def days_with_log_files(table):
    return {row["partition"][-10:] for row in table.files().to_pylist() if row["kind"] == LOG}


@pytest.mark.parametrize(
    "strategy, first",
    [
        ("log_bytes", 0),
        ("log_files", 1),
        ("dead_share", 2),
        ("oldest", 0),
        ("newest_partitions", 2),
    ],
)
def test_a_strategy_determines_the_order_of_file_groups(strategy, first):
    table = filled_table()
    order = days_of_groups(table, choose_groups(table.snapshot(), strategy))
    assert order[0] == DAYS[first] and sorted(order) == list(DAYS)
    assert days_of_groups(table, choose_groups(table.snapshot(), strategy, budget_bytes=0)) == [
        DAYS[first]
    ], "a budget always allows one file group"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_repeated_compactions_within_a_budget_compact_all_file_groups(strategy):
    table = filled_table()
    before = table.scan().to_arrow().sort_by([("id", "ascending"), ("day", "ascending")])
    for days_left in (2, 1, 0):
        assert table.compact(strategy=strategy, budget_bytes=1).instant
        assert len(days_with_log_files(table)) == days_left
    assert not table.compact(strategy=strategy).instant
    assert table.scan().to_arrow().sort_by([("id", "ascending"), ("day", "ascending")]) == before
    assert table.check().ok


def test_only_the_given_partitions_are_compacted():
    table = filled_table()
    table.compact(partitions="day=2026-01-02")
    assert days_with_log_files(table) == {DAYS[0], DAYS[2]}
    table.compact(partitions=["day=*-03", "day=2026-01-04"])
    assert days_with_log_files(table) == {DAYS[0]}
    with pytest.raises(Invalid, match="there is no partition"):
        table.compact(partitions="day=1999-*")


def test_a_custom_function_can_rank_and_exclude_file_groups():
    table = filled_table()

    def only_the_first_day(dirty_groups):
        return np.where(dirty_groups.partition == "day=2026-01-01", 1.0, np.nan)

    table.compact(strategy=only_the_first_day)
    assert days_with_log_files(table) == {DAYS[1], DAYS[2]}
    for invalid in (
        lambda dirty_groups: None,
        lambda dirty_groups: np.zeros(7),
        lambda dirty_groups: dirty_groups.partition,
        "largest",
        5,
    ):
        with pytest.raises(Invalid, match="strateg"):
            table.compact(strategy=invalid)  # type: ignore[arg-type]


def test_the_statistics_of_dirty_groups_equal_those_of_the_file_listing():
    table = filled_table()
    dirty_groups = dirty(table.snapshot())
    files = table.files().to_pylist()
    names = table.snapshot().file_groups.names(dirty_groups.group.tolist())
    for at, name in enumerate(names):
        group_files = [row for row in files if row["file_id"] == name]
        assert dirty_groups.bytes[at] == sum(row["size"] for row in group_files)
        assert dirty_groups.log_bytes[at] == sum(
            row["size"] for row in group_files if row["kind"] == LOG
        )
        assert dirty_groups.log_files[at] == sum(row["kind"] == LOG for row in group_files)
        assert dirty_groups.rows[at] == sum(row["rows"] for row in group_files)
    assert dirty_groups.dead.tolist() == [90, 3, 95]
    assert dirty_groups.commits.tolist() == dirty_groups.log_files.tolist(), (
        "no log files were merged"
    )
    count("strategies compared with listings", len(names))
