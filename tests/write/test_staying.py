"""Rows that stay in the partition of their key when an update names another partition."""

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
"""k0 of x with partition y, k1 of y with partition x and a late row, and the new key k9."""


def filled_table(path, kind=mdt.Table, **settings):
    arguments = {"partition_by": ["city"], "ordering": "ts", "scope": "table", "options": STAYS}
    table = kind(mdt.create(path, SCHEMA, ["id"], **{**arguments, **settings}).storage)
    table.upsert(rows(range(4), 1, 1.0))
    return table


@EVERY_KIND
@pytest.mark.parametrize("table_type", [MOR, COW])
def test_an_updated_row_stays_in_its_partition_and_keeps_its_partition_columns(
    tmp_path, kind, table_type
):
    table = filled_table(tmp_path, kind, table_type=table_type)
    result = table.upsert(MOVED)
    assert (result.inserted, result.updated, result.late) == (1, 1, 1)
    stayed = rows_of(SCHEMA, "k0 x 5 7")
    agreed(table, pa.concat_tables([rows(range(1, 4), 1, 1.0), stayed, MOVED.slice(2)]))
    assert table.scan("city = 'x' and id = 'k0'").count() == 1, (
        "the partition column equals the partition of the row"
    )


def test_a_merge_does_not_change_partition_columns_either(tmp_path):
    table = filled_table(tmp_path)
    assert table.merge(MOVED).when_matched().update("*").execute().updated == 2
    assert table.get("k1") == {"id": "k1", "city": "y", "ts": 0, "fare": 7.0}
    agreed(table)


def test_a_deleted_key_may_be_inserted_into_another_partition(tmp_path):
    table = filled_table(tmp_path)
    table.delete("k0")
    assert table.upsert(MOVED.slice(0, 1)).inserted == 1
    assert table.get("k0")["city"] == "y"
    agreed(table)


def test_repeated_keys_and_partitioning_by_the_ordering_field_are_refused():
    with pytest.raises(Invalid, match="mdt.keys.repeat"):
        filled_table(MemoryStorage(), options={**STAYS, "mdt.keys.repeat": True})
    with pytest.raises(Invalid, match="cannot be the ordering field"):
        filled_table(MemoryStorage(), partition_by=["ts"])


@pytest.mark.parametrize("hive_style", [True, False])
def test_partition_columns_are_restored_from_paths_unchanged(hive_style):
    settings = pa.table(
        {
            "a b": ["x/y=z%", None, "ä", "-1"],
            "n": pa.array([-1, 0, None, 2**62]),
            "t": [True, False, None, True],
            "day": pa.array([date(1, 1, 1), None, date(1969, 12, 31), date(9999, 12, 31)]),
        }
    )
    codes, paths = partition_paths(settings, settings.column_names, hive_style)
    assert (
        partition_values(paths, settings.schema, hive_style).take(codes).to_pylist()
        == settings.to_pylist()
    )
    assert NULL_PARTITION in "".join(paths)
