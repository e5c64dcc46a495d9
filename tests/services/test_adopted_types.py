"""Adoption of Hudi tables with column types that commits of mdt could change in the schema."""

import json
from datetime import UTC, datetime

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from foreign_tables import ForeignTable, record, time
from pyiceberg.table import StaticTable
from refusals import refused

import mdt
from mdt.errors import Unsupported
from mdt.hudi.read.loading import load_properties
from mdt.hudi.read.table_schema import TableSchema, load_schema
from mdt.hudi.read.table_state import load_state
from mdt.importing import imported_files
from mdt.importing.imported_definition import require_writable_columns
from mdt.stores.storage import LocalStorage

LOCAL = {"type": "long", "logicalType": "local-timestamp-micros"}
TIMES = {
    "at": LOCAL,
    "zoned": {"type": "long", "logicalType": "timestamp-micros"},
    "days": {"type": "array", "items": {"type": "long", "logicalType": "local-timestamp-millis"}},
}
NOON = datetime(2024, 2, 29, 12)


def table_with_local_times(kind="MERGE_ON_READ"):
    """Return a table with time columns without a zone, and two rows."""
    table = ForeignTable({"id": "string", **TIMES}, {"hoodie.table.type": kind})
    table.base(1, [{"id": id, "at": 5, "zoned": 6, "days": [7]} for id in "ab"])
    return table


def row(id, at=NOON):
    return {"id": id, "at": at, "zoned": NOON.replace(tzinfo=UTC), "days": [NOON]}


def time_types_of_files(storage):
    """Return the types of the columns ``at`` and ``days`` of each data file."""
    types = []
    for info in storage.list(""):
        if info.path.endswith(".parquet") and not info.path.startswith(".hoodie/"):
            schema = pq.read_schema(pa.BufferReader(storage.read(info.path)))
            types.append((schema.field("at").type, schema.field("days").type.value_type))
    return types


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_times_without_a_zone_are_written_as_hudi_stores_them(kind):
    table = table_with_local_times(kind)
    t = mdt.adopt(table.storage)
    t.upsert([row("b"), row("c", None)])
    t.update_where({"at": "timestamp '2024-03-01 00:00:00'"}, "id = 'a'")
    rows = {item["id"]: item for item in t.scan().to_arrow().to_pylist()}
    assert (rows["b"], rows["c"]) == (row("b"), row("c", None))
    assert rows["a"]["at"] == datetime(2024, 3, 1)
    assert t.scan("at = timestamp '2024-02-29 12:00:00'").to_arrow()["id"].to_pylist() == ["b"]
    t.compact()
    t.cluster(["at"])
    files = time_types_of_files(table.storage)
    assert len(files) > 1 and set(files) == {(pa.timestamp("us"), pa.timestamp("ms"))}
    schema = load_schema(table.storage, load_state(table.storage, load_properties(table.storage)))
    assert [field["type"][1] for field in json.loads(schema.avro)["fields"]][1:3] == [
        LOCAL,
        TIMES["zoned"],
    ]
    assert t.check().ok
    assert {
        item["id"]: item for item in mdt.open(table.storage).scan().to_arrow().to_pylist()
    } == rows


@pytest.mark.parametrize("formats", [["hudi", "delta"], ["hudi", "iceberg"]])
def test_other_readers_see_times_without_a_zone(formats, tmp_path):
    table = ForeignTable({"id": "string", "at": LOCAL}, storage=LocalStorage(str(tmp_path)))
    table.base(1, [{"id": id, "at": 5} for id in "ab"])
    t = mdt.adopt(tmp_path, formats=formats)
    t.upsert([{"id": "b", "at": NOON}, {"id": "c", "at": None}])
    if "delta" in formats:
        times = pl.read_delta(str(tmp_path)).to_dicts()
    else:
        [*_, newest] = sorted(tmp_path.glob("metadata/*.metadata.json"))
        times = StaticTable.from_metadata(str(newest)).scan().to_arrow().to_pylist()
    times = {item["id"]: item["at"] for item in times}
    assert times == {"a": datetime(1970, 1, 1, 0, 0, 0, 5), "b": NOON, "c": None}


def test_a_table_ordered_by_times_without_a_zone_is_not_adopted():
    stored = {
        "hoodie.table.ordering.fields": "at",
        "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
    }
    table = ForeignTable({"id": "string", "at": LOCAL}, stored)
    table.base(1, [{"id": "a", "at": 5}])
    refused("column 'at' … without a time zone", mdt.adopt, table.storage, kind=Unsupported)
    assert mdt.open(table.storage).scan().count() == 1


def test_tables_created_by_mdt_refuse_columns_of_times_without_a_zone():
    schema = TableSchema(pa.schema({"id": pa.string(), "at": pa.timestamp("us")}))
    require_writable_columns(schema, ["id"], is_adopted=True)
    with pytest.raises(Unsupported, match="column 'at': it has times without a time zone"):
        require_writable_columns(schema, ["id"], is_adopted=False)


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


def test_the_other_writer_may_add_a_column_of_times_without_a_zone():
    table = ForeignTable({"id": "string"})
    table.base(1, [{"id": "a"}])
    t = mdt.adopt(table.storage)
    table.schema = record({"id": "string", "at": LOCAL})
    table.log(2, table.upsert(2, [{"id": "a", "at": 5}]))
    t.upsert([{"id": "b", "at": NOON}])
    assert t.scan("at is not null").count() == 2


def test_a_repair_fixes_wrong_bounds_imported_by_an_earlier_version_of_mdt(monkeypatch):
    table = ForeignTable({"id": "string", "x": "double"})
    out = pa.BufferOutputStream()
    rows = {
        "_hoodie_commit_time": [time(1)] * 3,
        "_hoodie_record_key": ["a", "b", "c"],
        "_hoodie_partition_path": [""] * 3,
        "id": ["a", "b", "c"],
        "x": [1.0, float("nan"), 2.0],
    }
    pq.write_table(pa.table(rows), out)
    table.base(1, data=out.getvalue().to_pybytes())
    with monkeypatch.context() as earlier:
        earlier.setattr(imported_files, "_has_bounds", lambda file, type: True)
        t = mdt.adopt(table.storage)
    assert t.scan("x > 5").count() == 0, "NaN is the largest float"
    [problem] = t.check().problems
    assert problem.text.startswith("bounds of the column x exclude rows")
    assert not t.repair().lost
    assert t.scan("x > 5").count() == 1 and t.check().ok
