"""Advice on indexes: by the bytes that an index saves, against those that it takes, counted since
it is there.
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
    found = mdt.create(MemoryStorage(), TABLE.schema, key=["id"], options=options)
    found.bulk_insert(TABLE)
    return found


def ask(table, *filters):
    for _ in range(ADVICE_QUERIES_MIN):
        for where in filters:
            table.scan(where).to_arrow()


def advice(table):
    return {(one.action, one.index): one for one in table.advise()}


def name_of(row):
    return f"name = '{TABLE['name'][row].as_py()}'"


def test_an_index_is_proposed_where_it_saves_bytes_and_nowhere_else(table):
    ask(table, name_of(7), "same = 'same'", "fare > 0.0001", "day = 3")
    found = advice(table)
    assert found.keys() == {("create", "bitmap(name)")}, (
        "statistics answer for days, and no index for what most rows match"
    )
    one = found["create", "bitmap(name)"]
    assert (
        0 < one.bytes < one.saved <= one.read
        and one.queries == 250
        and one.rows <= 1
        and one.seconds >= 0
    )
    assert (
        f"{one.saved:,} of {one.read:,} bytes" in one.reason
        and f"{one.bytes:,} bytes" in one.reason
    )


def test_what_an_index_saves_is_counted_from_its_creation(table):
    ask(table, name_of(7), "same = 'same'")
    table.create_index("bitmap(name)")
    assert advice(table) == {}, "nothing has asked it yet"
    ask(table, name_of(8))
    assert advice(table) == {}, "it saves more than it takes"


def test_an_index_that_saves_nothing_is_to_be_dropped_though_queries_ask_it(
    table,
):
    table.create_index(["bitmap(fare)", "bloom(id)"])
    ask(table, "fare > 0.0001")
    found = advice(table)
    assert found.keys() == {("drop", "bitmap(fare)"), ("drop", "bloom(id)")}
    assert found["drop", "bitmap(fare)"].saved < found["drop", "bitmap(fare)"].bytes
    assert (
        "10 used it" in found["drop", "bitmap(fare)"].reason
        and "0 used it" in found["drop", "bloom(id)"].reason
    )


def test_a_sample_is_of_live_rows_of_the_whole_table(table):
    table.delete_where("day = 3")
    days, ids = (
        sample(table.metadata, table.snapshot(), name).to_pylist() for name in ("day", "id")
    )
    assert (
        set(days) == set(range(20)) - {3}
        and days == [id // 1_000 for id in ids]
        and len(ids) <= BLOCKS * BLOCK_ROWS
    )


def test_two_tests_that_are_selective_together_share_what_they_save(table):
    """Of each thousand rows one has a given pair of remainders, and of each block some have
    either.
    """
    columns = {"tens": np.arange(ROWS) % 97, "more": np.arange(ROWS) // 97 % 89}
    wide = TABLE.select(["id"])
    for name, values in columns.items():
        wide = wide.append_column(name, pa.array(values))
    found = mdt.create(MemoryStorage(), wide.schema, key=["id"], options={"mdt.usage.counts": True})
    found.bulk_insert(wide)
    ask(found, "tens = 5 and more = 7")
    assert {index for _, index in advice(found)} == {"bitmap(tens)", "bitmap(more)"}


def test_queries_are_counted_of_a_backup_put_in_place_and_of_older_states(tmp_path):
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
