"""Advice on indexes compares the bytes that an index saves with its size, counted since its
creation.
"""

import shutil

import numpy as np
import pyarrow as pa
import pytest

import mdt
from mdt.scan.index_use import BLOCK_ROWS, BLOCKS, sample
from mdt.services.indexing.index_report import ADVICE_QUERIES_MIN
from mdt.stores.storage import MemoryStorage

ROWS = 20_000
TABLE = pa.table(
    {
        "id": range(ROWS),
        "fare": np.random.default_rng(0).random(ROWS),
        "same": ["same"] * ROWS,
        "name": [f"n{i * 2654435761 % 2**32:010d}" for i in range(ROWS)],
        "day": np.arange(ROWS) // 1_000,
    }
)


@pytest.fixture
def table():
    options = {"mdt.usage.counts": True, "mdt.row.group.rows": 2_000}
    created = mdt.create(MemoryStorage(), TABLE.schema, key=["id"], options=options)
    created.bulk_insert(TABLE)
    return created


def run_queries(table, *filters):
    for _ in range(ADVICE_QUERIES_MIN):
        for where in filters:
            table.scan(where).to_arrow()


def advice_by_index(table):
    return {(advice.action, advice.index): advice for advice in table.advise()}


def name_of(row):
    return f"name = '{TABLE['name'][row].as_py()}'"


def test_an_index_is_proposed_only_where_it_saves_bytes(table):
    run_queries(table, name_of(7), "same = 'same'", "fare > 0.0001", "day = 3")
    advice = advice_by_index(table)
    assert advice.keys() == {("create", "bitmap(name)")}, (
        "statistics suffice for days, and no index helps if most rows match"
    )
    proposal = advice["create", "bitmap(name)"]
    assert (
        0 < proposal.bytes < proposal.saved <= proposal.read
        and proposal.queries == 250
        and proposal.rows <= 1
        and proposal.seconds >= 0
    )
    assert (
        f"{proposal.saved:,} of {proposal.read:,} bytes" in proposal.reason
        and f"{proposal.bytes:,} bytes" in proposal.reason
    )


def test_the_savings_of_an_index_are_counted_from_its_creation(table):
    run_queries(table, name_of(7), "same = 'same'")
    table.create_index("bitmap(name)")
    assert advice_by_index(table) == {}, "no query has used it yet"
    run_queries(table, name_of(8))
    assert advice_by_index(table) == {}, "it saves more than its size"


def test_dropping_an_index_is_proposed_if_it_saves_nothing_although_queries_use_it(
    table,
):
    table.create_index(["bitmap(fare)", "bloom(id)"])
    run_queries(table, "fare > 0.0001")
    advice = advice_by_index(table)
    assert advice.keys() == {("drop", "bitmap(fare)"), ("drop", "bloom(id)")}
    assert advice["drop", "bitmap(fare)"].saved < advice["drop", "bitmap(fare)"].bytes
    assert (
        "10 used it" in advice["drop", "bitmap(fare)"].reason
        and "0 used it" in advice["drop", "bloom(id)"].reason
    )


def test_a_sample_contains_live_rows_of_the_whole_table(table):
    table.delete_where("day = 3")
    days, ids = (
        sample(table.metadata, table.snapshot(), name).to_pylist() for name in ("day", "id")
    )
    assert (
        set(days) == set(range(20)) - {3}
        and days == [id // 1_000 for id in ids]
        and len(ids) <= BLOCKS * BLOCK_ROWS
    )


def test_indexes_for_two_conditions_that_are_selective_together_share_what_they_save():
    """One row in about nine thousand has a given pair of remainders, but every block has rows with each
    of the two.
    """
    columns = {"tens": np.arange(ROWS) % 97, "more": np.arange(ROWS) // 97 % 89}
    wide = TABLE.select(["id"])
    for name, values in columns.items():
        wide = wide.append_column(name, pa.array(values))
    created = mdt.create(
        MemoryStorage(), wide.schema, key=["id"], options={"mdt.usage.counts": True}
    )
    created.bulk_insert(wide)
    run_queries(created, "tens = 5 and more = 7")
    advice = advice_by_index(created)
    assert advice.keys() == {("create", "bitmap(tens)"), ("create", "bitmap(more)")}
    tens, more = advice["create", "bitmap(tens)"], advice["create", "bitmap(more)"]
    assert tens.read == more.read >= tens.saved + more.saved
    assert tens.saved > more.saved > 0.4 * more.read


def test_queries_are_counted_after_a_backup_was_restored_and_for_older_versions(tmp_path):
    path, saved = tmp_path / "t", tmp_path / "saved"
    options = {"mdt.usage.counts": True, "mdt.durable": False}
    table = mdt.create(path, pa.schema({"id": pa.int64()}), key=["id"], options=options)
    table.insert({"id": [1, 2]})
    shutil.copytree(path, saved)
    for number in (3, 4, 5):
        table.insert({"id": [number]})
    assert table.scan("id > 1").count() == len(table.scan("id > 1").to_arrow()) == 4
    shutil.rmtree(path)
    shutil.copytree(saved, path)
    mdt.open(path).insert({"id": [6]})
    assert table.scan("id > 1").to_arrow()["id"].to_pylist() == [2, 6]
    assert sample(table.metadata, table.snapshot(), "id").to_pylist() == [1, 2, 6]
    assert len(table.scan("id > 1", as_of=1).to_arrow()) == 1
