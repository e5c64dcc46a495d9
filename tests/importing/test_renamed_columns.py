"""Tables whose columns Hudi's schema on read has renamed: they are read, and not written."""

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
    """Return a table of two writes, whose column a is then called b."""
    made = ForeignTable({"id": "string", "a": "int"}, storage=storage)
    made.base(1, [{"id": "1", "a": 10}, {"id": "2", "a": 20}])
    made.log(2, made.upsert(2, [{"id": "2", "a": 21}]))
    if is_renamed:
        rename(made)
    return made


def rename(made):
    made.alter(3, {"id": "string", "b": "int"}, NEW, OLD)


def rows(t, where=None, **more):
    return sorted(tuple(row.values()) for row in t.scan(where, **more).to_arrow().to_pylist())


def test_old_values_have_the_new_name():
    made = table()
    t = mdt.open(made.storage)
    assert rows(t) == [("1", 10), ("2", 21)]
    assert rows(t, "b > 15") == [("2", 21)]
    assert t.get("1")["b"] == 10
    past = t.scan(as_of="20240101000000002").to_arrow()
    assert past.sort_by("id").to_pydict() == {"id": ["1", "2"], "a": [10, 21]}
    assert not t.check().problems
    made.log(4, made.upsert(4, [{"id": "1", "b": 11}]))
    assert rows(t) == [("1", 11), ("2", 21)]


def test_a_name_that_is_added_again_has_no_old_values():
    made = table()
    made.alter(5, {"id": "string", "b": "int", "a": "int"}, NEWER, NEW, OLD)
    made.log(6, made.upsert(6, [{"id": "1", "b": 12, "a": 5}]))
    t = mdt.open(made.storage)
    assert rows(t) == [("1", 12, 5), ("2", 21, None)]
    assert rows(t, "a is null") == [("2", 21, None)]


def test_an_open_table_cannot_follow_a_rename():
    made = table(is_renamed=False)
    t = mdt.open(made.storage)
    rename(made)
    refused("renamed columns … mdt.open(path)", rows, t, kind=Unsupported)
    again = mdt.open(made.storage)
    made.alter(5, {"id": "string", "b": "int", "a": "int"}, NEWER, NEW, OLD)
    # the names that it knows have kept their meaning
    assert rows(again) == [("1", 10, None), ("2", 21, None)]


def test_changes_across_a_rename_are_refused():
    made = table()
    t = mdt.open(made.storage)
    refused("renamed … t.scan(as_of=", t.changes, "20240101000000001", kind=Unsupported)
    made.log(4, made.upsert(4, [{"id": "1", "b": 11}]))
    [change] = t.changes("20240101000000003", before=False).to_arrow().to_pylist()
    assert (change["id"], change["b"]) == ("1", 11)


def test_such_a_table_is_not_adopted():
    made = table()
    refused("columns were renamed … mdt.open", mdt.adopt, made.storage, kind=Unsupported)


def test_a_rename_stops_writes_to_an_adopted_table_and_not_reads():
    made = table(is_renamed=False)
    t = mdt.adopt(made.storage)
    rename(made)
    refused("columns were renamed", t.upsert, [{"id": "4", "a": 1}], kind=Unsupported)
    assert rows(mdt.open(made.storage)) == [("1", 10), ("2", 21)]


@pytest.mark.parametrize("is_renamed", [False, True])
def test_a_cached_import_is_made_anew_after_a_rename(tmp_path, monkeypatch, is_renamed):
    monkeypatch.setattr(imported_storage, "IMPORT_FOLDER_SLICES_MIN", 1)
    options = {"mdt.cache.dir": str(tmp_path / "cache")}
    made = table(LocalStorage(str(tmp_path / "t")), is_renamed=is_renamed)
    path = str(tmp_path / "t")
    assert rows(mdt.open(path, options)) == [("1", 10), ("2", 21)]
    if is_renamed:
        made.alter(5, {"id": "string", "b": "int", "a": "int"}, NEWER, NEW, OLD)
        made.log(6, made.upsert(6, [{"id": "1", "b": 12, "a": 5}]))
        expected = [("1", 12, 5), ("2", 21, None)]
    else:
        rename(made)
        expected = [("1", 10), ("2", 21)]
    for _ in range(2):
        t = mdt.open(path, options)
        assert rows(t) == expected
    assert t.schema.names[1] == "b"


def latest_schemas(made):
    """Return the numbered schemas in the commits of a table of version 9, the newest last."""
    found = []
    for info in made.storage.list(".hoodie/timeline"):
        if info.path.endswith("commit"):
            commit = next(fastavro.reader(io.BytesIO(made.storage.read(info.path))))
            found.append(json.loads(commit["extraMetadata"].get("latest_schema", "null")))
    return found


@pytest.mark.parametrize("is_first", [False, True])
def test_commits_keep_the_numbers_of_columns(is_first):
    made = table(is_renamed=False)
    if is_first:
        made.alter(3, {"id": "string", "a": "int"}, OLD)
    t = mdt.adopt(made.storage)
    files = t.files()
    if not is_first:
        made.alter(3, {"id": "string", "a": "int"}, OLD)
        t.refresh()
    assert t.files().equals(files)  # they have the same columns
    t.upsert([{"id": "3", "a": 30}])
    t.compact()
    t.delete(["1"])
    assert latest_schemas(made)[-3:] == [OLD] * 3
    refused("schema on read … Hudi's ALTER TABLE", t.alter, add={"c": "int32"}, kind=Unsupported)
    assert t.check().ok
    assert rows(mdt.open(made.storage)) == [("2", 21), ("3", 30)]


def test_schemas_that_are_too_large_for_the_log_stop_writes_and_not_reads(monkeypatch):
    monkeypatch.setattr(imported_definition, "SCHEMA_VERSIONS_BYTES_MAX", 1000)
    made = table(is_renamed=False)
    t = mdt.adopt(made.storage)
    made.alter(3, {"id": "string", "a": "int"}, {**OLD, "comment": "x" * 1000})
    refused("schemas take more than 1,000 bytes", t.delete, ["1"], kind=Unsupported)
    assert rows(mdt.open(made.storage)) == [("1", 10), ("2", 21)]
