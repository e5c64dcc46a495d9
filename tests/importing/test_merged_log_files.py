"""Log files of other writers: deleted rows of base files that are read in place, and merged
files.
"""

from __future__ import annotations

import io
from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from foreign_tables import ForeignTable, time
from hidden import HiddenMetadata
from refusals import refused
from texts import columns

import mdt
from mdt.errors import Corrupt
from mdt.metadata.files.file_group import BASE, LOG, MERGED
from mdt.metadata.log import commit_log
from mdt.metadata.log.commit_log import CommitRecord
from mdt.stores.storage import MemoryStorage

SCHEMA = columns("id int64, v int64")


@pytest.fixture
def storage():
    storage = MemoryStorage()
    t = mdt.create(storage, SCHEMA, ["id"], ordering="v", table_type="MERGE_ON_READ")
    t.upsert(batch(range(500), 1))
    t.upsert(batch([1, 2], 2))
    return storage


def batch(ids, v):
    return pa.table({"id": list(ids), "v": [v] * len(ids)}, schema=SCHEMA)


def files(t: mdt.Table, kind: int) -> dict[int, str]:
    """Return the paths of the live files of a kind by segment."""
    snapshot = t.snapshot()
    numbers = snapshot.live_numbers[snapshot.kind[snapshot.live_numbers] == kind]
    return {snapshot.segment(n).id: snapshot.segment(n).path for n in numbers.tolist()}


def rows_of(t: mdt.Table) -> list[str]:
    return sorted(map(repr, t.scan().to_arrow().to_pylist()))


def test_a_base_file_is_read_in_place_while_log_files_are_added(storage):
    t, other = mdt.open(storage), mdt.open(HiddenMetadata(storage))
    base, merged = files(other, BASE), files(other, MERGED)
    assert [len(files(other, kind)) for kind in (BASE, LOG, MERGED)] == [1, 1, 1]
    assert other.snapshot().dead_rows.sum() == 2
    t.upsert(batch([3], 3))
    t.delete([{"id": 4}])
    assert rows_of(other) == rows_of(t)
    assert files(other, BASE) == base
    assert len(files(other, LOG)) == 3
    assert not files(other, MERGED).items() & merged.items()
    assert other.snapshot().dead_rows.sum() == 4
    assert all(storage.size(path) for path in [*base.values(), *files(other, LOG).values()])


def test_a_merged_file_has_only_the_rows_of_log_files(storage):
    other = mdt.open(HiddenMetadata(storage))
    [merged] = files(other, MERGED)
    snapshot = other.snapshot()
    assert snapshot.rows[np.flatnonzero(snapshot.segment_ids == merged)].tolist() == [2]
    assert other.scan("v = 2", ["id"]).to_arrow()["id"].to_pylist() == [1, 2]
    assert other.get(1) == {"id": 1, "v": 2}


def test_deleted_rows_are_live_again_after_the_log_file_is_rolled_back(storage):
    t, other = mdt.open(storage), mdt.open(HiddenMetadata(storage))
    before, base = rows_of(other), files(other, BASE)
    paths = {info.path for info in storage.list("")}
    t.upsert(batch([7, 8], 9))
    assert rows_of(other) == rows_of(t) != before
    for path in {info.path for info in storage.list("")} - paths:
        if not path.startswith(".hoodie/.mdt/"):
            storage.delete(path)
    assert rows_of(other) == before
    assert list(files(other, BASE).values()) == list(base.values())
    assert files(other, BASE).keys().isdisjoint(base)


def test_updates_and_deletes_in_log_files_are_changes(storage):
    t = mdt.open(storage)
    since = t.history()["instant"].to_pylist()[-1]
    t.upsert(batch([1, 600], 5))
    t.delete([{"id": 9}])
    other = mdt.open(HiddenMetadata(storage))
    changes = other.changes(since, columns=["id", "v"]).to_arrow().sort_by("id")
    names = ["_change", "id", "v"]
    assert [tuple(row[name] for name in names) for row in changes.to_pylist()] == [
        ("update_before", 1, 2),
        ("update_after", 1, 5),
        ("delete", 9, 1),
        ("insert", 600, 5),
    ]


@pytest.mark.parametrize(
    ("column", "value"),
    [("kind", BASE), ("name", "f-0_1-2-3_20240101000000000.parquet"), ("instant", "2" * 17)],
)
def test_a_record_with_an_invalid_merged_file_is_refused(storage, column, value):
    other = mdt.open(HiddenMetadata(storage))
    record = other.metadata.record(1)
    files = record.table("files")
    values = files[column].to_pylist()
    values[files["kind"].to_pylist().index(MERGED)] = value
    at = files.schema.get_field_index(column)
    changed = files.set_column(at, files.schema.field(at), pa.array(values, files[column].type))
    forged = CommitRecord(1, record.header, {**record.tables, "files": changed})
    data = commit_log.encode(forged)
    refused("file names that agree", commit_log.decode, data, seq=1, path="log/1", kind=Corrupt)


def test_a_record_with_deleted_rows_in_new_files_of_our_own_is_refused(storage):
    imported = mdt.open(HiddenMetadata(storage)).metadata.record(1)
    our_record = mdt.open(storage).metadata.record(1)
    tables = {**our_record.tables, "dead": imported.table("dead")}
    data = commit_log.encode(CommitRecord(1, our_record.header, tables))
    refused("only imported files", commit_log.decode, data, seq=1, path="log/1", kind=Corrupt)


@pytest.mark.parametrize("ignores_defaults", [False, True])
def test_a_late_partial_update_changes_no_row_unless_it_fills_a_null(ignores_defaults):
    properties = {
        "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
        "hoodie.table.ordering.fields": "ts",
    }
    if ignores_defaults:
        properties["hoodie.table.partial.update.mode"] = "IGNORE_DEFAULTS"
    table = ForeignTable({"id": "string", "ts": "long", "v": "string"}, properties)
    table.base(
        1, [{"id": name, "ts": 5, "v": v} for name, v in (("a", "x"), ("b", "x"), ("c", None))]
    )
    updates = [{"id": "a", "ts": 6, "v": "y"}, *({"id": name, "ts": 4, "v": "y"} for name in "bc")]
    table.log(2, table.upsert(2, updates, fields=["id", "ts", "v"]))
    t = mdt.open(table.storage)
    changes = t.changes(time(1)).to_arrow().to_pylist()
    expected = [("update_before", "a", "x"), ("update_after", "a", "y")]
    if ignores_defaults:
        expected += [("update_before", "c", None), ("update_after", "c", "y")]
    actual = [(row["_change"], row["id"], row["v"]) for row in changes]
    assert sorted(actual, key=repr) == sorted(expected, key=repr)
    assert t.snapshot().dead_rows.sum() == len(expected) // 2


def test_int96_times_beyond_the_range_of_nanoseconds_are_read_in_place():
    table = ForeignTable(
        {"id": "string", "at": {"type": "long", "logicalType": "timestamp-micros"}}
    )
    times = [datetime(1000, 1, 1), datetime(2024, 2, 29, 12), datetime(9999, 12, 31)]
    rows = pa.table(
        {
            "_hoodie_commit_time": [time(1)] * 3,
            "_hoodie_record_key": ["a", "b", "c"],
            "id": ["a", "b", "c"],
            "at": pa.array(times, pa.timestamp("us")),
        }
    )
    out = io.BytesIO()
    pq.write_table(rows, out, use_deprecated_int96_timestamps=True, store_schema=False)
    table.base(1, data=out.getvalue())
    t = mdt.open(table.storage)
    assert len(files(t, BASE)) == 1 and not files(t, MERGED)
    moments = t.scan(columns=["at"]).to_arrow()["at"].to_pylist()
    assert moments == [moment.replace(tzinfo=UTC) for moment in times]
    assert t.scan("at > '2300-01-01T00:00:00Z'").count() == 1


@pytest.mark.parametrize(
    "writer", ["parquet-mr version 1.9.0 (x)", "parquet-mr version 1.18.0 (x)", "parquet-mr (x)"]
)
def test_bounds_without_nan_and_bounds_of_decimals_by_signed_bytes_exclude_no_rows(writer):
    kind = {"type": "fixed", "name": "d", "size": 9, "logicalType": "decimal"}
    table = ForeignTable(
        {"id": "string", "x": "double", "d": {**kind, "precision": 20, "scale": 2}}
    )
    decimals = [Decimal("0.01"), Decimal("1.28"), Decimal("2.56")]
    rows = pa.table(
        {
            "_hoodie_commit_time": [time(1)] * 3,
            "_hoodie_record_key": ["a", "b", "c"],
            "id": ["a", "b", "c"],
            "x": [1.0, float("nan"), 2.0],
            "d": pa.array(decimals, pa.decimal128(20, 2)),
        }
    )
    out = io.BytesIO()
    pq.write_table(rows, out, store_schema=False)
    table.base(1, data=_as_written_by(writer, out.getvalue()))
    t = mdt.open(table.storage)
    assert len(files(t, BASE)) == 1
    assert t.scan("x > 5").count() == 1, "NaN is the largest float"
    assert t.scan("d < 1").count() == 1


def _as_written_by(writer: str, data: bytes) -> bytes:
    """Return a Parquet file with another name of its writer and changed bounds of decimals.

    Compared by signed bytes, 1.28 is the smallest of 0.01, 1.28 and 2.56.
    """
    current_writer = pq.read_metadata(io.BytesIO(data)).created_by
    begin = len(data) - int.from_bytes(data[-8:-4], "little") - 8
    footer = data[begin:].replace(
        current_writer.encode(), writer.ljust(len(current_writer)).encode()
    )
    if "1.18" not in writer:
        footer = footer.replace((1).to_bytes(9, "big"), (128).to_bytes(9, "big"))
    return data[:begin] + footer
