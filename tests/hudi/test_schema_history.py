"""Columns that were renamed, or dropped and added again, in files that have their old names."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from foreign_tables import (
    ForeignTable,
    avro_rows,
    numbered,
    parquet_rows,
    put_schemas,
    time,
)

from mdt.errors import Corrupt
from mdt.hudi.read.instants import InstantFile, timeline_of
from mdt.hudi.read.schema_history import load_history
from mdt.stores.storage import MemoryStorage

STRUCT = {"type": "record", "fields": [{"id": 5, "name": "x", "type": "int"}]}
LIST = {"type": "array", "element_id": 6, "element": STRUCT, "element_optional": True}
MAP = {"type": "map", "key_id": 7, "key": "string", "value_id": 8, "value": LIST}
AT = time(9)
TIMELINE = timeline_of([InstantFile(time(99), "", "commit", "requested")])
"""A timeline whose earlier commits are archived."""


def put(storage, number, *schemas):
    put_schemas(storage, time(number), *schemas)
    return storage


def load(*schemas, storage=None):
    """Return the history with ``schemas``, the newest first."""
    if storage is None:
        storage = put(MemoryStorage(), 1, *schemas)
    columns = [member["name"] for member in schemas[0]["fields"]]
    return load_history(storage, TIMELINE, AT, json.dumps(schemas[0]), columns)


def renamed(type, old, new):
    return json.loads(json.dumps(type).replace(f'"{old}"', f'"{new}"'))


def test_a_schema_whose_columns_keep_their_names_has_no_history():
    schemas = [
        numbered(3, c=(2, MAP), a=(0, "long"), d=3),
        numbered(2, a=(0, "int"), b=1, c=(2, MAP)),
        numbered(0, a=(0, "int")),
    ]
    assert load(*schemas) is None
    assert load(*schemas, storage=MemoryStorage()) is None


def test_a_file_is_read_by_the_column_names_at_the_time_of_its_instant():
    history = load(numbered(7, c=0), numbered(4, b=0), numbered(0, a=0))
    names = []
    for number in (1, 3, 4, 6):
        renaming = history.at(time(number))
        names.append(renaming.names_in_file(["c"])[1:])
        rows = pa.table({names[-1][0]: ["x"], "_hoodie_file_name": [None]})
        assert renaming.apply(rows, "f").column_names == ["c", "_hoodie_file_name"]
    assert names == [["a"], ["a"], ["b"], ["b"]]
    assert history.at(time(7)) is history.at(time(8)) is None


def test_a_column_that_was_dropped_and_added_again_is_a_different_column():
    history = load(numbered(5, b=1, a=2), numbered(3, b=1), numbered(0, b=1, a=0))
    old = history.at(time(1))
    rows = old.apply(pa.table({"a": ["old"]}), "f")
    assert (rows.column_names, len(rows)) == ([], 1)
    assert history.at(time(3)) is None  # the schema of that time had no other column called 'a'


def test_columns_that_swapped_their_names_are_distinguished():
    history = load(numbered(5, a=1, b=0), numbered(0, a=0, b=1))
    renaming = history.at(time(1))
    rows = pa.table({name: [name] for name in sorted(renaming.names_in_file(["a", "b"]))})
    assert renaming.apply(rows, "f").to_pydict() == {"b": ["a"], "a": ["b"]}


def test_fields_are_renamed_in_structs_lists_and_maps():
    old, new = (renamed(MAP, "x", name) for name in ("x", "east"))
    history = load(numbered(5, m=(2, new)), numbered(0, m=(2, old)))
    values = [[("k", [{"x": 1}, None]), ("n", None)], None, []]
    type = pa.map_(pa.string(), pa.list_(pa.struct({"x": pa.int32()})))
    rows = pa.table({"m": pa.array(values, type)})
    result = history.at(time(1)).apply(rows, "f")["m"]
    assert result.type == pa.map_(pa.string(), pa.list_(pa.struct({"east": pa.int32()})))
    assert result.to_pylist() == [[("k", [{"east": 1}, None]), ("n", None)], None, []]
    added_again = renamed(renamed(MAP, "x", "y"), "y", "x")
    added_again["value"]["element"]["fields"][0]["id"] = 9
    history = load(numbered(5, m=(2, added_again)), numbered(0, m=(2, MAP)))
    [first, *_] = history.at(time(1)).apply(rows, "f")["m"].to_pylist()
    assert "x" not in first[0][1][0]


def test_a_file_with_a_column_name_of_a_later_time_is_corrupt():
    history = load(numbered(5, b=0), numbered(0, a=0))
    with pytest.raises(Corrupt, match="column 'b' had another name"):
        history.at(time(1)).apply(pa.table({"b": ["x"]}), "f.parquet")


def test_the_newest_completed_history_is_used():
    storage = put(MemoryStorage(), 1)
    put(storage, 3, numbered(5, b=0), numbered(0, a=0))
    put(storage, 10)  # later than the commit
    storage.create(f".hoodie/.schema/{time(4)}.schemacommit.inflight", b"")
    assert load(numbered(5, b=0), storage=storage).at(time(1)) is not None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"schemas": 1}',
        b'{"schemas": []}',
        b'{"schemas": [1]}',
        b'{"schemas": [{"fields": 1}]}',
        b'{"schemas": [{"version_id": "1"}]}',
        b'{"schemas": [{"fields": [{"id": "1", "name": "a"}]}]}',
        b'{"schemas": [{"fields": [{"id": 1, "name": 2}]}]}',
        b'{"schemas": ' + b'[{"fields": [{"id": 1, "name": "a", "type": ' * 9000,
    ],
    ids=range(11),
)
def test_a_damaged_history_is_corrupt_and_the_error_names_it(data):
    storage = MemoryStorage()
    path = f".hoodie/.schema/{time(1)}.schemacommit"
    storage.create(path, data)
    with pytest.raises(Corrupt) as caught:
        load(numbered(5, b=0), storage=storage)
    assert caught.value.path == path


def test_a_commit_that_repeats_a_column_name_is_tolerated():
    repeated = numbered(3, a=0)
    repeated["fields"] *= 2
    repeated["fields"][1] = {**repeated["fields"][1], "id": 1}
    history = load(repeated, numbered(0, b=0))
    assert history.at(AT).apply(pa.table({"a": ["x"]}), "f").column_names == ["a"]


@pytest.mark.parametrize("latest", ["{}", "[", '{"fields": [{"id": 0, "name": "c"}]}'])
def test_a_commit_whose_schema_does_not_match_the_history_is_corrupt(latest):
    storage = put(MemoryStorage(), 1, numbered(3, b=0), numbered(0, a=0))
    with pytest.raises(Corrupt):
        load_history(storage, TIMELINE, AT, latest, ["b"])


def test_a_history_with_deeply_nested_types_is_corrupt():
    type = "string"
    for _ in range(100):
        type = {"type": "array", "element_id": 1, "element": type}
    with pytest.raises(Corrupt, match="levels"):
        load(numbered(3, a=(0, type)))


@pytest.mark.parametrize("form", [avro_rows, parquet_rows])
@pytest.mark.parametrize("version", [6, 9])
def test_rows_of_old_files_have_the_current_column_names(form, version):
    table = ForeignTable({"id": "string", "a": "int", "b": "int"}, version=version)
    table.base(1, [{"id": "1", "a": 10, "b": 1}, {"id": "2", "a": 20, "b": 2}])
    table.log(2, table.upsert(2, [{"id": "2", "a": 21, "b": 2}], form=form))
    new = numbered(3, id=0, c=(1, "int"), b=(9, "int"))
    old = numbered(0, id=0, a=(1, "int"), b=(2, "int"))
    table.alter(3, {"id": "string", "c": "int", "b": "int"}, new, old)
    assert table.live("id", "c", "b") == [("1", 10, None), ("2", 21, None)]
    assert table.live("b") == [(None,), (None,)]
    table.log(4, table.upsert(4, [{"id": "1", "c": 11, "b": 5}], form=form))
    assert table.live("id", "c", "b") == [("1", 11, 5), ("2", 21, None)]
    assert table.live("id", "a", "b", at=2) == [("1", 10, 1), ("2", 21, 2)]
