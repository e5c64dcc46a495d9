"""A table of ours, read without our metadata while it is written: its rows, changed columns and
files.
"""

from __future__ import annotations

from functools import partial

import foreign_tables
import pyarrow as pa
import pytest
from hidden import HiddenMetadata, is_private
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from texts import columns

import mdt
from mdt.changes import ChangeStream
from mdt.errors import Expired, Unavailable, Unsupported
from mdt.hudi.read.loading import load_properties
from mdt.importing.imported_definition import changed_version, definition_of, next_version
from mdt.limits import MERGED_FILES_KEPT_SECONDS
from mdt.metadata.log import commit_log
from mdt.schema.definition import from_json
from mdt.stores.storage import MemoryStorage

SCHEMA = columns("id int64, city string, v int64, note string")
TYPES = ("COPY_ON_WRITE", "MERGE_ON_READ")


def rows_of(t: mdt.Table) -> list[str]:
    return sorted(map(repr, t.scan().to_arrow().to_pylist()))


def table(storage, table_type="COPY_ON_WRITE", **more):
    return mdt.create(
        storage, SCHEMA, ["id"], partition_by=["city"], ordering="v", table_type=table_type, **more
    )


def batch(ids, v, city="Oslo"):
    n = len(ids)
    return pa.table({"id": ids, "city": [city] * n, "v": [v] * n, "note": [f"n{v}"] * n})


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["upsert", "delete", "compact", "cluster", "clean", "overwrite", "nothing"]
        ),
        st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True),
        st.sampled_from(["Oslo", "Rome"]),
    ),
    min_size=1,
    max_size=8,
)


@pytest.mark.parametrize("table_type", TYPES)
@settings(max_examples=15)
@given(steps=STEPS)
def test_a_reader_of_hudis_timeline_sees_our_rows_after_each_step(table_type, steps):
    storage = MemoryStorage()
    t = table(storage, table_type)
    other = None
    for number, (action, ids, city) in enumerate(steps):
        step(t, action, ids, city, number)
        other = other or mdt.open(HiddenMetadata(storage))
        assert other.storage.is_imported
        assert rows_of(other) == rows_of(t), (number, action)
        assert rows_of(mdt.open(HiddenMetadata(storage))) == rows_of(t)
        for id in ids:
            key = {"id": id, "city": city}
            if "city" in other.schema.names:
                assert other.get(key) == t.get(key)


def step(t, action, ids, city, number):
    if action == "upsert":
        t.upsert(batch(ids, number, city))
    elif action == "delete":
        t.delete([{"id": id, "city": city} for id in ids])
    elif action == "compact":
        t.compact()
    elif action == "cluster":
        t.cluster(by=["v"])
    elif action == "clean":
        t.clean(retain_commits=1)
    elif action == "overwrite":
        t.insert_overwrite(batch(ids, number, city))


@pytest.mark.parametrize("table_type", TYPES)
def test_a_reader_follows_columns_that_are_added_widened_and_dropped(table_type):
    storage = MemoryStorage()
    t = table(storage, table_type)
    t.upsert(batch([1, 2], 1))
    other = mdt.open(HiddenMetadata(storage))
    assert rows_of(other) == rows_of(t)
    t.alter(add={"ratio": pa.float32(), "small": pa.int32()})
    rows = batch([3], 2, "Rome").append_column("ratio", pa.array([0.1], pa.float32()))
    t.upsert(rows.append_column("small", [[7]]))
    assert other.scan("ratio > 0").count() == 1
    assert rows_of(other) == rows_of(t)
    t.alter(widen={"ratio": pa.float64(), "small": pa.int64()})
    rows = batch([4], 2, "Rome").append_column("ratio", [[0.2]])
    t.upsert(rows.append_column("small", [[5_000_000_000]]))
    assert rows_of(other) == rows_of(t)
    assert other.scan("small > 4000000000 and ratio = 0.2").count() == 1
    assert other.get({"id": 3, "city": "Rome"})["ratio"] == 0.1
    t.alter(drop=["note", "small"])
    t.upsert(batch([1], 3).drop_columns(["note"]).append_column("ratio", [[1.5]]))
    assert rows_of(other) == rows_of(t)
    assert other.schema.names == ["id", "city", "v", "ratio"]
    assert other.schema.field("ratio").type == pa.float64()


def test_a_table_whose_properties_changed_must_be_opened_again():
    storage = MemoryStorage()
    table(storage).upsert(batch([1, 2], 1))
    other = mdt.open(HiddenMetadata(storage))
    path = ".hoodie/hoodie.properties"
    text = storage.read(path).replace(b"partition.fields=city", b"partition.fields=id")
    storage.replace(path, text)
    table_again = mdt.open(HiddenMetadata(storage))
    assert table_again.definition.partition_by == ("id",)
    mdt.open(storage).upsert(batch([3], 2))
    refused("open the table again", lambda: other.scan(), kind=Unsupported)


def test_changes_of_a_table_of_others_need_instants():
    storage = MemoryStorage()
    table(storage).upsert(batch([1, 2], 1))
    other = mdt.open(HiddenMetadata(storage))
    changes = partial(ChangeStream, other.metadata, 0, 1, "net", None, None)
    refused("between two instants", changes, kind=Unsupported)
    refused("since='0' is not a tag, instant or time", other.changes, 0)


def test_a_table_opened_at_an_instant_keeps_its_rows():
    storage = MemoryStorage()
    t = table(storage)
    t.upsert(batch([1, 2], 1))
    instant = t.history()["instant"].to_pylist()[-1]
    pinned = mdt.open(HiddenMetadata(storage), as_of=instant)
    t.upsert(batch([1, 3], 2))
    assert rows_of(pinned) == sorted(map(repr, t.scan(as_of=1).to_arrow().to_pylist()))
    assert pinned.scan(query_type="read_optimized").count() == 2
    newest = mdt.open(HiddenMetadata(storage))
    assert newest.scan(as_of=instant).count() == 2
    assert newest.scan(since=instant).to_arrow()["id"].to_pylist() == [1, 3]
    assert newest.changes(instant).to_arrow()["_change"].to_pylist().count("insert") == 1


@pytest.mark.parametrize("table_type", TYPES)
def test_a_state_whose_files_were_cleaned_has_expired(table_type):
    storage = MemoryStorage()
    t = table(storage, table_type)
    for number in range(3):
        t.upsert(batch([1, 2], number))
        t.compact()
    times = t.history()["instant"].to_pylist()[1:]
    old = mdt.open(HiddenMetadata(storage), as_of=times[0])
    assert rows_of(old) == sorted(map(repr, batch([1, 2], 0).to_pylist()))
    t.clean(retain_commits=1)
    other = mdt.open(HiddenMetadata(storage))
    refused("its files were cleaned", other.scan, as_of=times[0], kind=Expired)
    refused("its files were cleaned", mdt.open, other.storage, as_of=times[0], kind=Expired)
    assert rows_of(mdt.open(HiddenMetadata(storage), as_of=times[-1])) == rows_of(t)


def test_commits_of_another_writer_to_our_table_are_read_and_imported_by_a_write():
    ours = MemoryStorage()
    t = table(ours)
    t.upsert(batch([1, 2], 1))
    theirs = ours.copy()
    other = mdt.open(theirs)
    other.upsert(batch([2, 3], 2, "Rome"))
    for info in theirs.list(""):
        if not is_private(info.path) and ours.size(info.path) is None:
            # other names for our own entries in commits
            ours.create(info.path, theirs.read(info.path).replace(b"mdt.", b"xyz."))
    refused("another Hudi writer has completed", t.snapshot, kind=Unsupported)
    for each_table in (t, mdt.open(ours)):
        assert rows_of(each_table) == rows_of(other)
        assert each_table.get({"id": 3, "city": "Rome"})["v"] == 2
    assert t.upsert(batch([3], 3, "Rome")).updated == 1
    assert rows_of(t) == rows_of(mdt.open(HiddenMetadata(ours)))
    assert t.check().ok


def test_changes_since_before_the_first_commit_are_inserts():
    storage = MemoryStorage()
    table(storage).upsert(batch([1, 2], 1))
    other = mdt.open(HiddenMetadata(storage))
    changes = other.changes("2000-01-01").to_arrow()
    assert changes["_change"].to_pylist() == ["insert", "insert"]
    assert other.changes("2000-01-01", "2000-01-02").to_arrow().num_rows == 0


def test_a_table_with_keys_generated_by_hudi_is_read_without_look_ups():
    storage = MemoryStorage()
    table(storage).upsert(batch([1, 2], 1))
    path = ".hoodie/hoodie.properties"
    lines = storage.read(path).splitlines(keepends=True)
    storage.replace(path, b"".join(line for line in lines if b".recordkey." not in line))
    other = mdt.open(HiddenMetadata(storage))
    assert other.definition.key == ()
    assert other.scan("id = 1").count() == 1
    assert other.warm().seq == 1
    refused("has no key columns", other.get, 1)


def test_a_reader_follows_added_columns_of_a_table_without_rows():
    storage = MemoryStorage()
    t = table(storage)
    other = mdt.open(HiddenMetadata(storage))
    assert other.scan().count() == 0
    t.alter(add={"extra": pa.int64()})
    t.upsert(batch([1], 1).append_column("extra", [[7]]))
    assert rows_of(other) == rows_of(t)
    t.truncate()
    t.alter(add={"more": pa.int64()})
    assert other.scan().count() == 0
    t.upsert([{"id": 2, "city": "Oslo", "v": 1, "note": "n", "extra": 1, "more": 2}])
    assert rows_of(other) == rows_of(t)


def test_columns_of_imported_tables_may_have_names_that_we_reserve():
    storage = MemoryStorage()
    table(storage)
    properties = load_properties(HiddenMetadata(storage))
    schema = pa.schema({"id": pa.int64(), "_hoodie_is_deleted": pa.bool_(), "_change": pa.int8()})
    definition = definition_of(properties, schema, storage)
    assert definition.schema.names == schema.names
    assert definition.schema.field("_change").type == pa.int32()
    decoded = from_json(definition.to_json(), path="")
    assert decoded.schema == definition.schema


def test_changes_have_the_old_values_if_a_commit_adds_and_widens_columns():
    storage = MemoryStorage()
    t = mdt.create(storage, columns("id int64, n int32, note string"), ["id"])
    t.upsert([{"id": 1, "n": 1, "note": "a"}, {"id": 2, "n": 2, "note": "b"}])
    t.alter(add={"extra": pa.int64()}, widen={"n": pa.int64()})
    since, of_alter = t.history()["instant"].to_pylist()[-2:]
    t.upsert([{"id": 1, "n": 5_000_000_000, "note": "c", "extra": 7}])
    for info in storage.list(""):
        if not is_private(info.path) and of_alter in info.path:
            storage.delete(info.path)
    changes = mdt.open(HiddenMetadata(storage)).changes(since).to_arrow()
    rows = changes.select(["_change", "n", "note", "extra"]).to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == [
        ("update_after", 5_000_000_000, "c", 7),
        ("update_before", 1, "a", None),
    ]


def test_files_are_converted_only_if_floats_become_doubles():
    storage = MemoryStorage()
    t = mdt.create(storage, columns("id int64, small int32, ratio float32"), ["id"])
    t.upsert([{"id": 1, "small": 1, "ratio": 0.1}])
    t.alter(widen={"small": pa.int64()})
    assert mdt.open(HiddenMetadata(storage)).storage.merged == 0
    t.alter(widen={"ratio": pa.float64()})
    other = mdt.open(HiddenMetadata(storage))
    assert other.storage.merged == 1
    assert other.get(1) == {"id": 1, "small": 1, "ratio": 0.1}


def test_a_required_key_may_become_nullable():
    storage = MemoryStorage()
    table(storage)
    properties = load_properties(HiddenMetadata(storage))
    required = pa.schema([field.with_nullable(False) for field in SCHEMA])
    definition = definition_of(properties, required, storage)
    for since, schema in ((1, SCHEMA), (2, required)):
        definition = definition.with_version(next_version(definition, schema, since))
        assert definition.declared == schema
        assert definition.version.ids == (0, 1, 2, 3)


def test_nested_fields_stay_nullable_if_another_writer_requires_them():
    storage = MemoryStorage()
    table(storage)
    properties = load_properties(HiddenMetadata(storage))
    optional, required = (
        columns("id int64").append(pa.field("s", pa.struct([("m", pa.map_(pa.string(), value))])))
        for value in (pa.field("value", pa.int32()), pa.field("value", pa.int32(), False))
    )
    definition = definition_of(properties, optional, storage)
    assert changed_version(definition, required, 1) is None
    definition = definition_of(properties, required, storage)
    version = changed_version(definition, optional, 1)
    assert version.declared == optional
    assert version.ids == definition.version.ids


def test_a_failed_import_is_tried_again_at_the_next_read(monkeypatch):
    storage = MemoryStorage()
    t = table(storage)
    t.upsert(batch([1, 2], 1))
    other = mdt.open(HiddenMetadata(storage))
    t.upsert(batch([2, 3], 2))

    def raise_unavailable(record):
        raise Unavailable("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(commit_log, "encode", raise_unavailable)
        refused("the disk is full", other.scan, kind=Unavailable)
    assert rows_of(other) == rows_of(t)


def test_merged_files_are_removed_an_hour_after_newer_ones_replaced_them():
    storage = MemoryStorage()
    t = table(storage, "MERGE_ON_READ")
    t.upsert(batch(list(range(200)), 1))
    t.upsert(batch([1], 2))
    other = mdt.open(HiddenMetadata(storage))
    assert other.storage.merged == 1
    old_scan = other.scan()
    old_rows = old_scan.to_arrow()
    t.upsert(batch([2], 3))
    assert rows_of(other) == rows_of(t)
    assert other.storage.merged == 2 and old_scan.to_arrow() == old_rows
    storage.sleep(MERGED_FILES_KEPT_SECONDS + 1)
    t.upsert(batch([3], 4))
    assert rows_of(other) == rows_of(t)
    assert other.storage.merged == 2  # the newest file and the one it replaced


@pytest.mark.parametrize("version", [6, 9])
def test_an_instant_that_is_not_a_date_is_read_like_any_other_unless_it_is_all_nines(
    version, monkeypatch
):
    time = foreign_tables.time
    invalid_times = {3: "20261399000000000"}
    monkeypatch.setattr(
        foreign_tables, "time", lambda number: invalid_times.get(number, time(number))
    )
    other = foreign_tables.ForeignTable({"id": "string", "v": "long"}, version=version)
    for number in (1, 2, 3):
        other.base(number, [{"id": "a", "v": number}])
    t = mdt.open(other.storage)
    assert t.scan().to_arrow()["v"].to_pylist() == [3]
    assert t.snapshot().last_instant == "20270101000000000"
    invalid_times[3] = "99999999999999999"
    other.base(3, [{"id": "a", "v": 4}])
    refused("99999999999999999, which is not a date", mdt.open, other.storage, kind=Unsupported)
