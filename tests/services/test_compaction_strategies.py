"""Compaction of some file groups: a strategy ranks them, partitions and a budget bound them, the
others stay as they are.
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


def filled():
    """Return a table of three days: much in the log files of the first, many of the second, most
    rows of the third deleted.
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


def days(table, groups):
    return [table.snapshot().file_groups.partition(group)[-10:] for group in groups]


def with_logs(table):
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
def test_a_strategy_says_which_file_groups_come_first(strategy, first):
    table = filled()
    order = days(table, choose_groups(table.snapshot(), strategy))
    assert order[0] == DAYS[first] and sorted(order) == list(DAYS)
    assert days(table, choose_groups(table.snapshot(), strategy, budget_bytes=0)) == [
        DAYS[first]
    ], "one at least"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_compactions_within_a_budget_end_with_everything_compacted(strategy):
    table = filled()
    before = table.scan().to_arrow().sort_by([("id", "ascending"), ("day", "ascending")])
    for left in (2, 1, 0):
        assert table.compact(strategy=strategy, budget_bytes=1).instant
        assert len(with_logs(table)) == left
    assert not table.compact(strategy=strategy).instant
    assert table.scan().to_arrow().sort_by([("id", "ascending"), ("day", "ascending")]) == before
    assert table.check().ok


def test_partitions_that_are_not_named_stay_as_they_are():
    table = filled()
    table.compact(partitions="day=2026-01-02")
    assert with_logs(table) == {DAYS[0], DAYS[2]}
    table.compact(partitions=["day=*-03", "day=2026-01-04"])
    assert with_logs(table) == {DAYS[0]}
    with pytest.raises(Invalid, match="there is no partition"):
        table.compact(partitions="day=1999-*")


def test_a_function_of_ones_own_ranks_groups_and_leaves_some_out():
    table = filled()

    def only_the_first_day(found):
        return np.where(found.partition == "day=2026-01-01", 1.0, np.nan)

    table.compact(strategy=only_the_first_day)
    assert with_logs(table) == {DAYS[1], DAYS[2]}
    for wrong in (
        lambda found: None,
        lambda found: np.zeros(7),
        lambda found: found.partition,
        "largest",
        5,
    ):
        with pytest.raises(Invalid, match="strateg"):
            table.compact(strategy=wrong)  # type: ignore[arg-type]


def test_what_is_told_of_dirty_groups_is_what_stands_there():
    table = filled()
    found = dirty(table.snapshot())
    files = table.files().to_pylist()
    names = table.snapshot().file_groups.names(found.group.tolist())
    for at, name in enumerate(names):
        mine = [row for row in files if row["file_id"] == name]
        assert found.bytes[at] == sum(row["size"] for row in mine)
        assert found.log_bytes[at] == sum(row["size"] for row in mine if row["kind"] == LOG)
        assert found.log_files[at] == sum(row["kind"] == LOG for row in mine)
        assert found.rows[at] == sum(row["rows"] for row in mine)
    assert found.dead.tolist() == [90, 3, 95]
    assert found.commits.tolist() == found.log_files.tolist(), "none was joined"
    count("strategies compared with listings", len(names))
