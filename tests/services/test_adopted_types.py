"""Types of columns that commits of mdt would change in the schema of a table of Hudi."""

import pytest
from foreign_tables import ForeignTable, record
from refusals import refused

import mdt
from mdt.errors import Unsupported


@pytest.mark.parametrize("is_nested", [False, True])
def test_a_table_with_times_without_a_zone_is_not_adopted(is_nested):
    local = {"type": "long", "logicalType": "local-timestamp-micros"}
    at = {"type": "array", "items": local} if is_nested else local
    table = ForeignTable({"id": "string", "at": at})
    table.base(1, [{"id": "a", "at": [5] if is_nested else 5}])
    refused("column 'at' … without a time zone", mdt.adopt, table.storage, kind=Unsupported)
    assert mdt.open(table.storage).scan().count() == 1


@pytest.mark.parametrize(
    ("type", "value", "reason"),
    [
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "A", "type enum"),
        ({"type": "fixed", "name": "F", "size": 2}, b"ab", "type fixed"),
    ],
)
@pytest.mark.parametrize("is_nested", [False, True])
def test_a_table_with_types_that_mdt_would_change_is_not_adopted(is_nested, type, value, reason):
    if is_nested:
        type, value = {"type": "map", "values": ["null", type]}, {"k": value}
    table = ForeignTable({"id": "string", "c": type})
    table.log(1, table.upsert(1, [{"id": "a", "c": value}]))
    refused(f"column 'c' … {reason}", mdt.adopt, table.storage, kind=Unsupported)
    assert mdt.open(table.storage).scan().count() == 1


def test_a_column_of_times_without_a_zone_stops_writes_and_not_reads():
    table = ForeignTable({"id": "string"})
    table.base(1, [{"id": "a"}])
    t = mdt.adopt(table.storage)
    local = {"type": "long", "logicalType": "local-timestamp-micros"}
    table.schema = record({"id": "string", "at": local})
    table.log(2, table.upsert(2, [{"id": "a", "at": 5}]))
    refused("column 'at' … without a time zone", t.upsert, [{"id": "b"}], kind=Unsupported)
    assert mdt.open(table.storage).scan("at is not null").count() == 1
