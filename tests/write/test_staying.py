"""Rows that stay in the partition of their key: what they say, where they stand, and who sees
them.
"""

from datetime import date

import pyarrow as pa
import pytest
from pooled import EVERY_KIND
from reader import agreed
from texts import rows_of
from worlds import COW, MOR, OPTIONS, SCHEMA, rows

import mdt
from mdt.errors import Invalid
from mdt.hudi.partitions import NULL_PARTITION, partition_paths, partition_values
from mdt.stores.storage import MemoryStorage

STAYS = {**OPTIONS, "hoodie.bloom.index.update.partition.path": False}
MOVED = rows_of(SCHEMA, "k0 y 5 7", "k1 x 0 7", "k9 x 5 7")
"""k0 of x in y, k1 of y in x, and late, and a key that is new."""


def made(path, kind=mdt.Table, **given):
    arguments = {"partition_by": ["city"], "ordering": "ts", "scope": "table", "options": STAYS}
    table = kind(mdt.create(path, SCHEMA, ["id"], **{**arguments, **given}).storage)
    table.upsert(rows(range(4), 1, 1.0))
    return table


@EVERY_KIND
@pytest.mark.parametrize("table_type", [MOR, COW])
def test_a_row_stays_where_its_key_lives_and_keeps_its_partition_columns(
    tmp_path, kind, table_type
):
    table = made(tmp_path, kind, table_type=table_type)
    done = table.upsert(MOVED)
    assert (done.inserted, done.updated, done.late) == (1, 1, 1)
    stayed = rows_of(SCHEMA, "k0 x 5 7")
    agreed(table, pa.concat_tables([rows(range(1, 4), 1, 1.0), stayed, MOVED.slice(2)]))
    assert table.scan("city = 'x' and id = 'k0'").count() == 1, "what it says is where it stands"


def test_a_merge_leaves_partition_columns_alone_too(tmp_path):
    table = made(tmp_path)
    assert table.merge(MOVED).when_matched().update("*").execute().updated == 2
    assert table.get("k1") == {"id": "k1", "city": "y", "ts": 0, "fare": 7.0}
    agreed(table)


def test_a_key_that_was_deleted_may_come_back_elsewhere(tmp_path):
    table = made(tmp_path)
    table.delete("k0")
    assert table.upsert(MOVED.slice(0, 1)).inserted == 1
    assert table.get("k0")["city"] == "y"
    agreed(table)


def test_what_leaves_open_where_a_row_stays_is_refused():
    with pytest.raises(Invalid, match="mdt.keys.repeat"):
        made(MemoryStorage(), options={**STAYS, "mdt.keys.repeat": True})
    with pytest.raises(Invalid, match="cannot be the ordering field"):
        made(MemoryStorage(), partition_by=["ts"])


@pytest.mark.parametrize("hive_style", [True, False])
def test_partition_columns_come_out_of_paths_as_they_went_in(hive_style):
    given = pa.table(
        {
            "a b": ["x/y=z%", None, "ä", "-1"],
            "n": pa.array([-1, 0, None, 2**62]),
            "t": [True, False, None, True],
            "day": pa.array([date(1, 1, 1), None, date(1969, 12, 31), date(9999, 12, 31)]),
        }
    )
    codes, paths = partition_paths(given, given.column_names, hive_style)
    assert (
        partition_values(paths, given.schema, hive_style).take(codes).to_pylist()
        == given.to_pylist()
    )
    assert NULL_PARTITION in "".join(paths)
