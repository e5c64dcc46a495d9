"""Points in the history: seqs, instants and times. Anything else is refused."""

from datetime import UTC, date, datetime, timedelta, timezone

import pandas as pd
import pytest
from refusals import refused
from texts import columns

import mdt
from mdt.hudi import timeline
from mdt.metadata.snapshot.as_of import seq_at
from mdt.stores.storage import MemoryStorage


@pytest.fixture(scope="module")
def table():
    """Return a table with four commits, an hour apart."""
    storage = MemoryStorage()
    new_table = mdt.create(storage, columns("id string"), ["id"])
    for key in "abc":
        storage.sleep(3600)
        new_table.upsert([{"id": key}])
    return new_table


def moment(table, seq):
    """Return the time at which a commit began."""
    us = timeline.instant_us(table.history()["instant"][seq].as_py())
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)


def test_a_time_selects_the_newest_commit_not_later_than_it(table):
    newest = table.snapshot()
    for seq in range(4):
        at = moment(table, seq)
        later, earlier = at + timedelta(minutes=5), at - timedelta(milliseconds=1)
        assert seq_at(newest, at) == seq_at(newest, later) == seq
        if seq:
            assert seq_at(newest, earlier) == seq - 1
    assert seq_at(newest, date(9999, 1, 1)) == 3


def test_every_notation_of_a_time_selects_the_same_commit(table):
    at, newest = moment(table, 2), table.snapshot()
    instant = table.history()["instant"][2].as_py()
    in_another_zone = at.astimezone(timezone(timedelta(hours=5, minutes=30)))
    local = at.replace(tzinfo=None)
    texts = [local.isoformat(sep=" "), at.isoformat().replace("+00:00", "Z"), instant, instant[:14]]
    ways = [at, local, in_another_zone, at.isoformat(), in_another_zone.isoformat(), *texts, 2]
    assert [seq_at(newest, way) for way in ways] == [2] * len(ways)


def test_a_time_before_the_first_commit_is_refused_with_the_instant_of_that_commit(
    table,
):
    first = table.history()["instant"][0].as_py()
    refused(f"did not exist yet … {first}", seq_at, table.snapshot(), "1970-01-01")


@pytest.mark.parametrize(
    "point",
    [
        "yesterday",
        "",
        "2026-13-01",
        "123",
        1.5,
        True,
        b"1",
        None,
        ["a"],
        "\ud800",
        "9" * 400,
        pd.NaT,
    ],
)
def test_an_invalid_point_is_refused(table, point):
    refused("as_of", seq_at, table.snapshot(), point)


def test_with_instants_out_of_order_a_time_selects_the_newest_commit_not_later_than_it():
    storage = MemoryStorage()
    table = mdt.create(storage, columns("id string"), ["id"])
    table.upsert([{"id": "a"}])
    newest = table.snapshot()
    history = [dict(row) for row in newest.history_since]
    history[0]["instant"], history[1]["instant"] = "20260101000000002", "20260101000000001"
    object.__setattr__(newest, "history_since", tuple(history))
    newest.__dict__.pop("log", None), newest.__dict__.pop("history", None)
    assert seq_at(newest, "20260101000000001") == 1
