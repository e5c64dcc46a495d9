"""Live rows of file slices written by Hudi: merging, partial updates, deletes and damage."""

from __future__ import annotations

import json
import struct
import tempfile

import pyarrow as pa
import pytest
from foreign_tables import (
    COMMIT_TIME_DELETE,
    FILE_ID,
    ForeignTable,
    avro_rows,
    block,
    deletes,
    parquet_rows,
    rollback,
    time,
    wrapped,
    wrapped_list,
)
from hudi import HudiTable
from hypothesis import given, settings
from hypothesis import strategies as st
from test_log_merge import newer_wins

from mdt.errors import Corrupt, Invalid, Unsupported
from mdt.hudi import compaction_plan, log_file
from mdt.stores.storage import LocalStorage

FIELDS = {"id": "string", "ts": "long", "v": "string", "w": "int"}
EVENT_TIME = {
    "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
    "hoodie.table.ordering.fields": "ts",
}
COMMIT_TIME = {"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING"}
PREFIX = "hoodie.record.merge.property."
FORMS = pytest.mark.parametrize("form", [avro_rows, parquet_rows], ids=["avro", "parquet"])
VERSIONS = pytest.mark.parametrize("version", [6, 8, 9])


def row(id, ts, v=None, w=None):
    return {"id": id, "ts": ts, "v": v, "w": w}


def long_ordering(ts):
    return wrapped("LongWrapper", ts)


@VERSIONS
@FORMS
def test_the_larger_ordering_value_wins(version, form):
    table = ForeignTable(FIELDS, EVENT_TIME, version=version)
    table.base(1, [row(id, 5, "base") for id in "abcd"])
    table.log(
        2, table.upsert(2, [row("a", 4, "late"), row("b", 5, "same"), row("e", 1)], form=form)
    )
    table.log(3, table.upsert(3, [row("b", 4, "late"), row("c", 9, "log")], form=form))
    assert table.live("id", "v") == [
        ("a", "base"),
        ("b", "same"),
        ("c", "log"),
        ("d", "base"),
        ("e", None),
    ]


@VERSIONS
def test_the_later_commit_wins_if_rows_are_merged_by_commit_time(version):
    table = ForeignTable(
        FIELDS, {**COMMIT_TIME, "hoodie.table.ordering.fields": "ts"}, version=version
    )
    table.base(1, [row("a", 5), row("b", 5), row("c", 5)])
    table.log(2, table.upsert(2, [row("a", 1)]), deletes(2, {"b": long_ordering(1)}))
    assert table.live("id", "ts") == [("a", 1), ("c", 5)]


def test_a_delete_with_a_smaller_ordering_value_keeps_newer_rows():
    table = ForeignTable(FIELDS, EVENT_TIME)
    table.base(1, [row(id, 5, "base") for id in "abcde"])
    table.log(
        2,
        deletes(
            2,
            {
                "a": long_ordering(4),
                "b": long_ordering(5),
                "c": long_ordering(9),
                "d": COMMIT_TIME_DELETE,
                "e": None,
            },
        ),
    )
    table.log(3, table.upsert(3, [row("c", 8, "late"), row("d", 1, "again")]))
    # as in Hudi, the update of d replaces its delete in the log, and then loses to the base file
    assert table.live("id", "v") == [("a", "base"), ("d", "base")]


def test_ordering_fields_are_compared_in_order():
    fields = {**FIELDS, "at": {"type": "long", "logicalType": "timestamp-micros"}}
    table = ForeignTable(fields, {**EVENT_TIME, "hoodie.table.ordering.fields": "ts,at"})
    rows = [{**row(id, 5), "at": 50} for id in "abcdef"]
    table.base(1, rows)
    ordering_by_key = {
        "a": wrapped_list(wrapped("LongWrapper", 5), wrapped("LongWrapper", 49)),
        "b": wrapped_list(wrapped("LongWrapper", 5), wrapped("LongWrapper", 50)),
        "c": wrapped_list(wrapped("IntWrapper", 6), wrapped("LongWrapper", 1)),
        "d": COMMIT_TIME_DELETE,
        "e": wrapped_list(wrapped("LongWrapper", 1), None),
    }
    table.log(2, deletes(2, ordering_by_key), table.upsert(2, [{**row("f", 4), "at": 99}]))
    assert table.live("id", "ts") == [("a", 5), ("e", 5), ("f", 5)]


@pytest.mark.parametrize("ordering", [long_ordering(5), wrapped_list(long_ordering(5))])
def test_a_delete_with_a_wrong_number_of_ordering_values_is_corrupt(ordering):
    table = ForeignTable(FIELDS, {**EVENT_TIME, "hoodie.table.ordering.fields": "ts,w"})
    table.base(1, [row("a", 5)])
    table.log(2, deletes(2, {"a": ordering}))
    with pytest.raises(Corrupt, match="ordering value"):
        table.read()


def test_a_delete_with_an_ordering_value_of_another_type_is_corrupt():
    table = ForeignTable(FIELDS, EVENT_TIME)
    table.log(2, deletes(2, {"a": wrapped("StringWrapper", "x")}))
    with pytest.raises(Corrupt, match=r"is not int64: .*log\.1"):
        table.read()


def test_an_ordering_field_that_is_not_a_column_is_ignored():
    stored = {**EVENT_TIME, "hoodie.table.ordering.fields": "other.field,ts"}
    table = ForeignTable(FIELDS, stored)
    table.base(1, [row("a", 5), row("b", 5)])
    table.log(2, table.upsert(2, [row("a", 4), row("b", 6)]))
    assert table.live("id", "ts") == [("a", 5), ("b", 6)]
    table = ForeignTable(FIELDS, {**EVENT_TIME, "hoodie.table.ordering.fields": "other"})
    table.base(1, [row("a", 5)])
    table.log(2, table.upsert(2, [row("a", 4)]), deletes(2, {"b": long_ordering(1)}))
    assert table.live("id", "ts") == [("a", 4)]


def test_an_ordering_field_may_be_in_a_struct():
    nested = {"type": "record", "name": "n", "fields": [{"name": "ts", "type": "long"}]}
    stored = {**EVENT_TIME, "hoodie.table.ordering.fields": "s.ts"}
    table = ForeignTable({"id": "string", "s": nested}, stored)
    table.base(1, [{"id": "a", "s": {"ts": 5}}, {"id": "b", "s": {"ts": 5}}])
    table.log(2, table.upsert(2, [{"id": "a", "s": {"ts": 4}}, {"id": "b", "s": {"ts": 6}}]))
    assert table.live("id", "s") == [("a", {"ts": 5}), ("b", {"ts": 6})]
    stored = {**EVENT_TIME, "hoodie.table.ordering.fields": "s"}
    table = ForeignTable({"id": "string", "s": nested}, stored)
    table.log(2, table.upsert(2, [{"id": "a", "s": {"ts": 4}}]))
    with pytest.raises(Unsupported, match="ordering field 's'"):
        table.read()


@FORMS
def test_a_partial_update_changes_only_the_columns_that_it_has(form):
    table = ForeignTable(FIELDS, EVENT_TIME)
    table.base(1, [row("a", 5, "base", 1), row("b", 5, "base", 1), row("c", 5, "base", 1)])
    updates = [{"id": "a", "ts": 6, "v": "new"}, {"id": "b", "ts": 4, "v": "late"}]
    table.log(2, table.upsert(2, updates, fields=["id", "ts", "v"], form=form))
    table.log(3, table.upsert(3, [{"id": "a", "ts": 6, "w": None}], fields=["id", "ts", "w"]))
    assert table.live("id", "v", "w") == [("a", "new", None), ("b", "base", 1), ("c", "base", 1)]


def test_a_late_partial_update_fills_columns_that_a_newer_update_lacks():
    table = ForeignTable(FIELDS, EVENT_TIME)
    table.base(1, [row("a", 1, "base", 1), row("b", 1, "base", 1)])
    table.log(2, table.upsert(2, [{"id": "a", "ts": 9, "v": "9"}], fields=["id", "ts", "v"]))
    late_rows = [{"id": "a", "ts": 5, "w": 5}, {"id": "b", "ts": 5, "w": 5}]
    table.log(3, table.upsert(3, late_rows, fields=["id", "ts", "w"]))
    table.log(4, deletes(4, {"b": long_ordering(7)}))
    table.log(5, table.upsert(5, [{"id": "b", "ts": 6, "w": 6}], fields=["id", "ts", "w"]))
    assert table.live("id", "ts", "v", "w") == [("a", 9, "9", 5)]
    table.log(6, table.upsert(6, [{"id": "b", "ts": 7, "w": 7}], fields=["id", "ts", "w"]))
    # the delete removes the columns in the log, but not those in the base file
    assert table.live("id", "ts", "v", "w") == [("a", 9, "9", 5), ("b", 7, "base", 7)]


def test_default_values_do_not_replace_values_if_defaults_are_ignored():
    fields = {**FIELDS, "is_ok": "boolean"}
    table = ForeignTable(
        fields, {**EVENT_TIME, "hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}
    )
    for member in table.schema["fields"]:
        if member["name"] in ("w", "is_ok"):
            member["type"].reverse()
            member["default"] = 0 if member["name"] == "w" else False
    table.base(
        1, [{**row("a", 5, "base", 1), "is_ok": True}, {**row("b", 5, None, 1), "is_ok": True}]
    )
    updates = [{**row("a", 6, None, 0), "is_ok": False}, {**row("b", 4, "late", 7), "is_ok": None}]
    table.log(2, table.upsert(2, updates))
    rows = table.live("id", "ts", "v", "w", "is_ok")
    assert rows == [("a", 6, "base", 1, True), ("b", 5, "late", 1, True)]
    table.log(3, table.upsert(3, [{**row("a", 7, "x", None), "is_ok": None}]))
    assert table.live("id", "w", "is_ok")[0] == ("a", None, None), "null is not the default"


def test_markers_of_unavailable_values_do_not_replace_values():
    stored = {
        **EVENT_TIME,
        "hoodie.table.partial.update.mode": "FILL_UNAVAILABLE",
        f"{PREFIX}hoodie.write.partial.update.unavailable.value": "?",
    }
    table = ForeignTable({**FIELDS, "b": "bytes"}, stored)
    table.base(1, [{**row("a", 5, "base", 1), "b": b"base"}])
    table.log(
        2, table.upsert(2, [{**row("a", 6, "?"), "b": b"?"}, {**row("b", 6, "?"), "b": b"x"}])
    )
    assert table.live("id", "v", "w", "b") == [("a", "base", None, b"base"), ("b", "?", None, b"x")]


def test_rows_that_are_marked_as_deleted_count_as_deletes():
    stored = {
        **EVENT_TIME,
        f"{PREFIX}hoodie.payload.delete.field": "w",
        f"{PREFIX}hoodie.payload.delete.marker": "-1",
    }
    table = ForeignTable({**FIELDS, "_hoodie_is_deleted": "boolean"}, stored)
    table.base(1, [row(id, 5, "base") for id in "abcde"])
    is_deleted = {"_hoodie_is_deleted": True}
    updates = [
        {**row("a", 6), **is_deleted},
        {**row("b", 4), **is_deleted},
        {**row("c", 6), "_hoodie_is_deleted": False},
        row("d", 6, w=-1),
        row("e", 6, w=1),
    ]
    table.log(2, table.upsert(2, updates))
    assert table.live("id", "v") == [("b", "base"), ("c", None), ("e", None)]


def test_rows_of_a_change_log_with_operation_d_or_minus_u_are_deletes():
    table = ForeignTable(FIELDS, COMMIT_TIME)
    table.base(1, [row(id, 5) for id in "abcd"])
    schema = table.file_schema()
    schema["fields"].append({"name": "_hoodie_operation", "type": ["null", "string"]})
    rows = table.rows(2, [row(id, 6) for id in "abcd"])
    for change, operation in zip(rows, ("D", "-U", "U", None), strict=True):
        change["_hoodie_operation"] = operation
    table.log(2, avro_rows(2, rows, schema))
    assert table.live("id", "ts") == [("c", 6), ("d", 6)]


@VERSIONS
def test_record_keys_that_are_not_stored_are_computed(version):
    stored = {
        **EVENT_TIME,
        "hoodie.populate.meta.fields": "false",
        "hoodie.table.recordkey.fields": "id,w",
        "hoodie.table.keygenerator.type": "COMPLEX",
    }
    table = ForeignTable(FIELDS, stored, version=version)
    table.base(1, [row("a", 5, w=1), row("a", 5, w=2), row("b", 5, w=1)])
    assert "_hoodie_record_key" not in table.read().column_names
    table.log(2, table.upsert(2, [row("a", 6, w=2)]), deletes(2, {"id:b,w:1": long_ordering(5)}))
    assert table.live("id", "w", "ts") == [("a", 1, 5), ("a", 2, 6)]


def test_keys_that_cannot_be_computed_are_refused():
    stored = {**COMMIT_TIME, "hoodie.populate.meta.fields": "false"}
    for fields in ({"id": "double"}, {"key": "string"}):
        table = ForeignTable(fields, stored)
        table.log(2, table.upsert(2, []))
        with pytest.raises(Unsupported, match="key"):
            table.read()


@VERSIONS
def test_a_slice_may_have_only_log_files(version):
    table = ForeignTable(FIELDS, EVENT_TIME, version=version)
    table.log(1, table.upsert(1, [row("a", 5, "1"), row("b", 5, "1")]))
    table.log(2, table.upsert(2, [row("a", 6, "2")]), deletes(2, {"b": COMMIT_TIME_DELETE}))
    assert table.live("id", "v") == [("a", "2")]
    assert table.read(["w", "id"]).to_pylist() == [{"w": None, "id": "a"}]
    assert table.live("id", "v", at=1) == [("a", "1"), ("b", "1")]


def test_required_columns_of_a_slice_with_only_log_files_are_read():
    table = ForeignTable({"id": ("string",), "ts": ("long",), "v": "string"}, EVENT_TIME)
    table.log(1, table.upsert(1, [{"id": "a", "ts": 5, "v": "1"}]))
    assert table.read(["id", "ts"]).to_pylist() == [{"id": "a", "ts": 5}]
    assert not table.read().schema.field("ts").nullable


def test_required_columns_of_a_slice_with_only_a_base_file_are_read():
    table = ForeignTable({"id": ("string",), "ts": ("long",), "v": "string"}, EVENT_TIME)
    table.base(1, [{"id": "a", "ts": 5, "v": "1"}])
    assert table.read(["id", "ts"]).to_pylist() == [{"id": "a", "ts": 5}]
    assert not table.read().schema.field("ts").nullable


@VERSIONS
def test_log_files_before_and_after_a_pending_compaction_are_merged(version):
    table = ForeignTable(FIELDS, EVENT_TIME, version=version)
    table.base(1, [row("a", 1), row("b", 1), row("c", 1)])
    table.log(2, table.upsert(2, [row("a", 2), row("b", 2)]))
    folder = ".hoodie" if version < 8 else ".hoodie/timeline"
    operation = {"baseInstantTime": time(1), "fileId": FILE_ID, "partitionPath": ""}
    plan = compaction_plan.encode([operation])
    table.storage.create(f"{folder}/{time(3)}.compaction.requested", plan)
    table.base_instant = 3
    table.log(4, table.upsert(4, [row("b", 4)]), deletes(4, {"c": COMMIT_TIME_DELETE}))
    # hudi-rs 0.5.0 does not read the log file of instant 4 in version 6
    assert table.live("id", "ts") == [("a", 2), ("b", 4)]


def test_a_slice_with_only_deletes_has_no_rows():
    table = ForeignTable(FIELDS, EVENT_TIME)
    table.log(1, deletes(1, {"a": long_ordering(1)}))
    assert table.read().to_pylist() == []
    assert table.read().schema.names[-4:] == list(FIELDS)


@VERSIONS
def test_torn_uncommitted_rolled_back_corrupt_and_cdc_blocks_change_nothing(version):
    table = ForeignTable(FIELDS, EVENT_TIME, version=version)
    table.base(1, [row("a", 5)])
    torn = table.upsert(2, [row("a", 8)])[:-1]
    whole = table.upsert(2, [row("b", 1)])
    table.log(2, torn, whole, block(2, b"", log_file.CDC))
    table.log(3, table.upsert(3, [row("a", 9)]), commit=False)
    table.log(4, table.upsert(4, [row("a", 7)]), rollback(4, 4), block(4, b"", log_file.CORRUPT))
    assert table.live("id", "ts") == [("a", 5), ("b", 1)]


def test_a_log_compaction_replaces_the_blocks_that_it_names():
    table = ForeignTable(FIELDS, COMMIT_TIME)
    table.base(1, [row("a", 1), row("b", 1)])
    table.log(2, table.upsert(2, [row("a", 2), row("b", 2)]))
    table.log(3, table.upsert(3, [row("a", 3)]))
    header = {"COMPACTED_TIMES": time(2)}
    compacted = avro_rows(
        4, table.rows(4, [row("a", 4), row("b", 4)]), table.file_schema(), **header
    )
    table.log(4, compacted)
    assert table.live("id", "ts") == [("a", 3), ("b", 4)]


def test_rows_of_a_base_file_alone_are_unchanged():
    table = ForeignTable(FIELDS, EVENT_TIME)
    table.base(1, [row("a", 5), row("a", 6)])
    assert table.live("id", "ts") == [("a", 5), ("a", 6)]
    assert table.read(["ts"]).schema == pa.schema({"ts": pa.int64()})


def test_unknown_columns_are_refused():
    table = ForeignTable(FIELDS, EVENT_TIME)
    table.base(1, [row("a", 5)])
    with pytest.raises(Invalid, match="no column 'x'"):
        table.read(["id", "x"])


@pytest.mark.parametrize("place", ["base", "rows", "deletes"])
def test_a_null_key_is_corrupt(place):
    table = ForeignTable(FIELDS, EVENT_TIME)
    bad = {"_hoodie_record_key": None}
    table.base(1, [{**row("a", 5), **(bad if place == "base" else {})}])
    update = {**row("b", 5), **(bad if place == "rows" else {})}
    table.log(2, table.upsert(2, [update]), deletes(2, {None if place == "deletes" else "c": None}))
    with pytest.raises(Corrupt, match="record key is null"):
        table.read()


@FORMS
def test_null_and_empty_fields_have_placeholders_in_keys_that_are_not_stored(form):
    stored = {
        "hoodie.populate.meta.fields": "false",
        "hoodie.table.recordkey.fields": "id,v",
        "hoodie.table.keygenerator.type": "COMPLEX",
    }
    table = ForeignTable(FIELDS, {**COMMIT_TIME, **stored})
    table.base(1, [row("a", 1, ""), row("b", 1), row("c", 1, ""), row("d", 1), row("e", 1, "x")])
    ordering_by_key = {
        "id:a,v:__empty__": COMMIT_TIME_DELETE,
        "id:b,v:__null__": COMMIT_TIME_DELETE,
    }
    updates = table.upsert(2, [row("c", 2, ""), row("d", 2)], form=form)
    table.log(2, deletes(2, ordering_by_key), updates)
    assert table.live("id", "ts", "v") == [("c", 2, ""), ("d", 2, None), ("e", 1, "x")]
    table.log(3, table.upsert(3, [{"id": None, "ts": 3, "v": None}], form=form))
    with pytest.raises(Corrupt, match="record key is null"):
        table.read()


def test_a_null_in_a_required_column_is_corrupt():
    table = ForeignTable({"id": ("string",), "ts": ("long",), "v": "string"}, EVENT_TIME)
    table.base(1, [{"id": "a", "ts": 5, "v": None}])
    table.log(2, table.upsert(2, [{"id": "a", "ts": 6}], fields=["id", "ts"]))
    assert table.live("id", "ts") == [("a", 6)]
    table.log(3, table.upsert(3, [{"id": "b", "v": "x"}], fields=["id", "v"]))
    with pytest.raises(Corrupt, match="'ts' is null in file group"):
        table.read()


def test_an_hfile_block_in_a_data_file_is_refused():
    table = ForeignTable(FIELDS, EVENT_TIME)
    table.log(1, block(1, b"", log_file.HFILE))
    with pytest.raises(Unsupported, match="type 4"):
        table.read()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        struct.pack(">ii", 2, 0),
        struct.pack(">ii", 3, 1),
        struct.pack(">ii", 3, 2**31 - 1),
        struct.pack(">iii", 3, 1, 100),
        struct.pack(">iii", 3, 0, 0),
        struct.pack(">iii", 3, 1, 0),
    ],
    ids=range(7),
)
def test_damaged_avro_content_is_corrupt_and_the_error_names_the_file(content):
    table = ForeignTable(FIELDS, EVENT_TIME)
    table.log(1, block(1, content, SCHEMA=json.dumps(table.file_schema())))
    with pytest.raises(Corrupt, match=r"log\.1_1-2-3"):
        table.read()


def test_a_data_block_without_a_schema_is_corrupt():
    table = ForeignTable(FIELDS, EVENT_TIME)
    table.log(1, block(1, struct.pack(">ii", 3, 0)))
    with pytest.raises(Corrupt):
        table.read()


def test_files_that_are_not_parquet_are_corrupt_and_the_error_names_them():
    for is_base in (True, False):
        table = ForeignTable(FIELDS, EVENT_TIME)
        if is_base:
            table.base(1, data=b"PAR1 nothing else PAR1")
        else:
            table.log(1, block(1, b"PAR1 nothing else PAR1", log_file.PARQUET))
        with pytest.raises(Corrupt) as caught:
            table.read()
        assert FILE_ID in caught.value.path


# Random histories


KEYS = st.sampled_from("abcd")
TIMES = st.integers(1, 4)
VALUES = st.none() | st.integers(0, 9)


@st.composite
def histories(draw):
    """Draw a base file or None, and commits of upserts (key, ts, columns) and deletes (key, ts)."""
    base = None
    if draw(st.booleans()):
        base = [(key, draw(TIMES), {"v": "0", "w": 0}) for key in draw(st.sets(KEYS))]
    commits = []
    for number in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["full", "v", "w", "delete"]))
        keys = draw(st.sets(KEYS, min_size=1))
        if kind == "delete":
            ordering = st.just(None) if draw(st.booleans()) else TIMES
            events = [(key, draw(ordering), None) for key in keys]
        else:
            names = "vw" if kind == "full" else kind
            events = []
            for key in keys:
                columns = {name: draw(VALUES) if name == "w" else str(number) for name in names}
                events.append((key, draw(TIMES), columns))
        commits.append((kind, events))
    return base, commits


def fold(base, commits, is_event_time):
    """Return the live rows (id, v, w), merged one event at a time."""
    state = {}

    def wins(new, old):
        return not is_event_time or newer_wins((old,), (new,))

    for _, events in commits:
        for key, ts, columns in events:
            if key not in state:
                state[key] = ts, columns
                continue
            old_ts, old = state[key]
            if is_event_time and columns is None and old is None and old_ts is None:
                continue
            is_update_of_row = columns is not None and old is not None
            if wins(ts, old_ts):
                state[key] = ts, {**old, **columns} if is_update_of_row else columns
            elif is_update_of_row:
                state[key] = old_ts, {**columns, **old}
    live = {}
    for key, ts, columns in base or []:
        new_ts, new = state.pop(key, (ts, columns))
        if not wins(new_ts, ts):
            live[key] = columns
        elif new is not None:
            live[key] = {**columns, **new}
    live |= {key: columns for key, (_, columns) in state.items() if columns is not None}
    return sorted((key, row.get("v"), row.get("w")) for key, row in live.items())


def write_history(base, commits, stored, version, form, storage=None):
    table = ForeignTable(FIELDS, stored, version=version, storage=storage)
    if base is not None:
        table.base(1, [{"id": key, "ts": ts, **columns} for key, ts, columns in base])
    for number, (kind, events) in enumerate(commits, start=2):
        if kind == "delete":
            ordering = {}
            for key, ts, _ in events:
                ordering[key] = COMMIT_TIME_DELETE if ts is None else long_ordering(ts)
            table.log(number, deletes(number, ordering, SCHEMA=json.dumps(table.file_schema())))
            continue
        rows = [{"id": key, "ts": ts, **columns} for key, ts, columns in events]
        fields = None if kind == "full" else ["id", "ts", kind]
        table.log(number, table.upsert(number, rows, fields=fields, form=form))
    return table


@given(
    histories(), st.booleans(), st.sampled_from([6, 9]), st.sampled_from([avro_rows, parquet_rows])
)
def test_random_histories_are_merged_like_a_fold(history, is_event_time, version, form):
    stored = EVENT_TIME if is_event_time else COMMIT_TIME
    table = write_history(*history, stored, version, form)
    rows = sorted(table.live("id", "v", "w"))
    assert rows == fold(*history, is_event_time)


def rows_of_hudi_rs(folder):
    """Return the live rows that hudi-rs reads. It refuses tables with two ordering fields."""
    batches = HudiTable(folder).read()
    rows = pa.Table.from_batches(map(pa.record_batch, batches)) if batches else None
    return (
        []
        if rows is None
        else zip(*(rows[name].to_pylist() for name in ["id", "v", "w"]), strict=True)
    )


def updates_whole_rows_first(history):
    """Return False if a whole row follows a partial update.

    hudi-rs drops such a row if it is late, while Hudi fills the columns of the partial update.
    """
    kinds = [kind for kind, _ in history[1]]
    partial = [kind in ("v", "w") for kind in kinds]
    return True not in partial or "full" not in kinds[partial.index(True) :]


def assert_same_as_hudi_rs(history, is_event_time, version, form):
    stored = EVENT_TIME if is_event_time else COMMIT_TIME
    with tempfile.TemporaryDirectory() as folder:
        table = write_history(*history, stored, version, form, LocalStorage(folder))
        assert sorted(table.live("id", "v", "w")) == sorted(rows_of_hudi_rs(folder))


CASES = (
    histories().filter(updates_whole_rows_first),
    st.booleans(),
    st.sampled_from([6, 9]),
    st.sampled_from([avro_rows, parquet_rows]),
)


@given(*CASES)
@settings(max_examples=10)
def test_random_histories_are_merged_like_hudi_rs(history, is_event_time, version, form):
    assert_same_as_hudi_rs(history, is_event_time, version, form)


@pytest.mark.nightly
@given(*CASES)
@settings(max_examples=1000, deadline=None)
def test_many_random_histories_are_merged_like_hudi_rs(history, is_event_time, version, form):
    assert_same_as_hudi_rs(history, is_event_time, version, form)
