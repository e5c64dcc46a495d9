"""Tables with columns renamed by Hudi's schema on read can be read but not written."""

from __future__ import annotations

import io
import json

import fastavro
import pytest
from foreign_tables import ForeignTable, numbered
from refusals import refused

import mdt
from mdt.errors import Unsupported
from mdt.importing import imported_definition, imported_storage
from mdt.stores.storage import LocalStorage

OLD = numbered(0, id=0, a=(1, "int"))
NEW = numbered(3, id=0, b=(1, "int"))
NEWER = numbered(5, id=0, b=(1, "int"), a=(2, "int"))


def table(storage=None, *, is_renamed=True):
    """Return a table with two writes. Its column a is renamed to b afterwards."""
    foreign_table = ForeignTable({"id": "string", "a": "int"}, storage=storage)
    foreign_table.base(1, [{"id": "1", "a": 10}, {"id": "2", "a": 20}])
    foreign_table.log(2, foreign_table.upsert(2, [{"id": "2", "a": 21}]))
    if is_renamed:
        rename(foreign_table)
    return foreign_table


def rename(foreign_table):
    foreign_table.alter(3, {"id": "string", "b": "int"}, NEW, OLD)


def rows(t, where=None, **more):
    return sorted(tuple(row.values()) for row in t.scan(where, **more).to_arrow().to_pylist())


def test_older_values_are_read_under_the_new_name():
    foreign_table = table()
    t = mdt.open(foreign_table.storage)
    assert rows(t) == [("1", 10), ("2", 21)]
    assert rows(t, "b > 15") == [("2", 21)]
    assert t.get("1")["b"] == 10
    past = t.scan(as_of="20240101000000002").to_arrow()
    assert past.sort_by("id").to_pydict() == {"id": ["1", "2"], "a": [10, 21]}
    assert not t.check().problems
    foreign_table.log(4, foreign_table.upsert(4, [{"id": "1", "b": 11}]))
    assert rows(t) == [("1", 11), ("2", 21)]


def test_a_new_column_with_a_former_name_has_no_older_values():
    foreign_table = table()
    foreign_table.alter(5, {"id": "string", "b": "int", "a": "int"}, NEWER, NEW, OLD)
    foreign_table.log(6, foreign_table.upsert(6, [{"id": "1", "b": 12, "a": 5}]))
    t = mdt.open(foreign_table.storage)
    assert rows(t) == [("1", 12, 5), ("2", 21, None)]
    assert rows(t, "a is null") == [("2", 21, None)]


def test_an_open_table_cannot_follow_a_rename_of_its_columns():
    foreign_table = table(is_renamed=False)
    t = mdt.open(foreign_table.storage)
    rename(foreign_table)
    refused("renamed columns … mdt.open(path)", rows, t, kind=Unsupported)
    reopened = mdt.open(foreign_table.storage)
    foreign_table.alter(5, {"id": "string", "b": "int", "a": "int"}, NEWER, NEW, OLD)
    # the column names that it knows have the same meaning
    assert rows(reopened) == [("1", 10, None), ("2", 21, None)]


def test_changes_across_a_rename_are_refused():
    foreign_table = table()
    t = mdt.open(foreign_table.storage)
    refused("renamed … t.scan(as_of=", t.changes, "20240101000000001", kind=Unsupported)
    foreign_table.log(4, foreign_table.upsert(4, [{"id": "1", "b": 11}]))
    [change] = t.changes("20240101000000003", before=False).to_arrow().to_pylist()
    assert (change["id"], change["b"]) == ("1", 11)


def test_a_table_with_renamed_columns_is_not_adopted():
    foreign_table = table()
    refused("columns were renamed … mdt.open", mdt.adopt, foreign_table.storage, kind=Unsupported)


def test_a_rename_stops_writes_to_an_adopted_table_but_not_reads():
    foreign_table = table(is_renamed=False)
    t = mdt.adopt(foreign_table.storage)
    rename(foreign_table)
    refused("columns were renamed", t.upsert, [{"id": "4", "a": 1}], kind=Unsupported)
    assert rows(mdt.open(foreign_table.storage)) == [("1", 10), ("2", 21)]


@pytest.mark.parametrize("is_renamed", [False, True])
def test_a_cached_import_is_rebuilt_after_a_rename(tmp_path, monkeypatch, is_renamed):
    monkeypatch.setattr(imported_storage, "IMPORT_FOLDER_SLICES_MIN", 1)
    options = {"mdt.cache.dir": str(tmp_path / "cache")}
    foreign_table = table(LocalStorage(str(tmp_path / "t")), is_renamed=is_renamed)
    path = str(tmp_path / "t")
    assert rows(mdt.open(path, options)) == [("1", 10), ("2", 21)]
    if is_renamed:
        foreign_table.alter(5, {"id": "string", "b": "int", "a": "int"}, NEWER, NEW, OLD)
        foreign_table.log(6, foreign_table.upsert(6, [{"id": "1", "b": 12, "a": 5}]))
        expected = [("1", 12, 5), ("2", 21, None)]
    else:
        rename(foreign_table)
        expected = [("1", 10), ("2", 21)]
    for _ in range(2):
        t = mdt.open(path, options)
        assert rows(t) == expected
    assert t.schema.names[1] == "b"


def latest_schemas(foreign_table):
    """Return the numbered schemas in the commits of a table of version 9, the newest last."""
    schemas = []
    for info in foreign_table.storage.list(".hoodie/timeline"):
        if info.path.endswith("commit"):
            commit = next(fastavro.reader(io.BytesIO(foreign_table.storage.read(info.path))))
            schemas.append(json.loads(commit["extraMetadata"].get("latest_schema", "null")))
    return schemas


@pytest.mark.parametrize("is_first", [False, True])
def test_our_commits_keep_the_column_ids_of_hudis_schema(is_first):
    foreign_table = table(is_renamed=False)
    if is_first:
        foreign_table.alter(3, {"id": "string", "a": "int"}, OLD)
    t = mdt.adopt(foreign_table.storage)
    files = t.files()
    if not is_first:
        foreign_table.alter(3, {"id": "string", "a": "int"}, OLD)
        t.refresh()
    assert t.files().equals(files)  # the columns are the same
    t.upsert([{"id": "3", "a": 30}])
    t.compact()
    t.delete(["1"])
    assert latest_schemas(foreign_table)[-3:] == [OLD] * 3
    refused("schema on read … Hudi's ALTER TABLE", t.alter, add={"c": "int32"}, kind=Unsupported)
    assert t.check().ok
    assert rows(mdt.open(foreign_table.storage)) == [("2", 21), ("3", 30)]


def test_schemas_that_are_too_large_for_the_log_stop_writes_but_not_reads(monkeypatch):
    monkeypatch.setattr(imported_definition, "SCHEMA_VERSIONS_BYTES_MAX", 1000)
    foreign_table = table(is_renamed=False)
    t = mdt.adopt(foreign_table.storage)
    foreign_table.alter(3, {"id": "string", "a": "int"}, {**OLD, "comment": "x" * 1000})
    refused("schemas take more than 1,000 bytes", t.delete, ["1"], kind=Unsupported)
    assert rows(mdt.open(foreign_table.storage)) == [("1", 10), ("2", 21)]
