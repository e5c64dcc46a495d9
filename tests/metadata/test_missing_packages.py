"""A table with indexes from a package that is not installed in this process. Everything except
writes of rows that need a missing key index works, and warnings name the package.
"""

import logging

import pyarrow as pa
import pytest
from reader import bag
from refusals import refused
from texts import columns

import mdt
from indexes import registry
from mdt.errors import Unsupported
from mdt.stores.storage import MemoryStorage

SCHEMA = columns("id int64, note string")
OTHERS = ("length/1", "exact/1")


def _rows(first, note="a"):
    return pa.table(
        [list(range(first, first + 4)), [note * (n + 1) for n in range(4)]], schema=SCHEMA
    )


def _create_table(key_index, **more):
    """Return the storage of a table with two commits, written while the package was installed."""
    table = mdt.create(
        MemoryStorage(), SCHEMA, ["id"], indexes=["length(note)"], key_index=key_index, options=more
    )
    table.bulk_insert(_rows(0))
    table.upsert(_rows(2, "b"))
    return table.storage


def _uninstall(monkeypatch):
    assert set(OTHERS) == {*registry.names(), *registry.key_index_names()}.intersection(OTHERS)
    for name in OTHERS:
        monkeypatch.delitem(registry._SHARED._skipping, name, raising=False)
        monkeypatch.delitem(registry._SHARED._keys, name, raising=False)


def _note(table, where, index):
    notes = table.scan(where).explain().indexes
    return next(note for note in notes if note.index.startswith(index))


def _loggers_of_warnings(caplog):
    return [record.name for record in caplog.records if record.levelno >= logging.WARNING]


def test_writes_without_an_index_succeed_with_a_warning_and_leave_files_uncovered(
    monkeypatch, caplog
):
    storage = _create_table("bloom")
    _uninstall(monkeypatch)
    with caplog.at_level(logging.WARNING, "mdt"):
        table = mdt.open(storage)
        result = table.upsert(_rows(10))
    (warning,) = result.warnings
    assert "length/1(note)" in warning and "install the package example-index" in warning
    assert _loggers_of_warnings(caplog) == ["mdt.commit"]
    assert "length/1(note)" in caplog.text and "example-index" in caplog.text
    ids = table.scan("note = 'aaa'").to_arrow()["id"].to_pylist()
    assert ids == [12], "a file that the index does not cover is read"


def test_files_written_without_an_index_are_not_covered_until_a_later_build(
    monkeypatch,
):
    storage = _create_table("bloom")
    with monkeypatch.context() as patch:
        _uninstall(patch)
        table_without_index = mdt.open(storage)
        table_without_index.upsert(_rows(10))
        assert table_without_index.build_indexes().summaries == 0, (
            "this process cannot build the index"
        )
        (row,) = table_without_index.indexes().to_pylist()
        assert "example-index" in row["problem"] and row["coverage"] < 100
    table = mdt.open(storage)
    (row,) = table.indexes().to_pylist()
    assert row["problem"] is None and row["coverage"] < 100
    assert table.build_indexes().summaries == 1
    assert table.indexes()["coverage"].to_pylist() == [100.0]
    assert not table.upsert(_rows(20)).warnings
    assert table.check().ok


def test_plans_report_the_missing_index_and_its_package_and_log_it_once(monkeypatch, caplog):
    storage = _create_table("bloom")
    _uninstall(monkeypatch)
    table = mdt.open(storage)
    with caplog.at_level(logging.WARNING, "mdt"):
        for _ in range(3):
            note = _note(table, "note = 'aaa'", "length")
            assert (note.used, note.reason) == (False, "not_installed")
            assert "example-index" in note.detail
    assert _loggers_of_warnings(caplog) == ["mdt.plan"], (
        "each index is logged once, not for every plan"
    )


def test_the_package_of_an_index_created_later_is_stored_and_survives_metadata_compaction(
    monkeypatch,
):
    table = mdt.create(MemoryStorage(), SCHEMA, ["id"])
    table.create_index("length(note)")
    table.metadata.compact()
    assert mdt.open(table.storage).definition.packages == {"length/1": "example-index"}
    _uninstall(monkeypatch)
    assert "example-index" in mdt.open(table.storage).indexes()["problem"][0].as_py()


def test_a_missing_key_index_does_not_stop_readers(monkeypatch, caplog):
    storage = _create_table("exact(bits='64')")
    rows = bag(mdt.open(storage).scan().to_arrow())
    _uninstall(monkeypatch)
    table = mdt.open(storage)
    with caplog.at_level(logging.WARNING, "mdt.plan"):
        assert bag(table.scan().to_arrow()) == rows and table.scan().count() == 6
        assert table.scan("id = 3").to_arrow().to_pylist() == [{"id": 3, "note": "bb"}]
        assert table.scan("id in (0, 5, 99)").count() == 2
        note = _note(table, "id = 3", "key:exact")
    assert (note.used, note.reason) == (False, "not_installed")
    assert "install the package example-index" in note.detail
    assert "key:exact/1(bits='64')" in caplog.text
    assert table.get([3, 99, 0])["note"].to_pylist() == ["bb", None, "a"]
    assert len(table.history()) == 3 and len(table.files()) >= 1 and len(table.indexes()) == 1
    table.warm()


def test_writes_of_rows_without_the_key_index_are_refused_with_its_package(
    monkeypatch,
):
    storage = _create_table("exact")
    before = storage.copy()  # type: ignore[attr-defined]  # it is in memory
    _uninstall(monkeypatch)
    table = mdt.open(storage)
    for write in (table.upsert, table.insert, table.bulk_insert, table.delete):
        message = "exact/1 … install the package example-index"
        refused(message, write, _rows(30), kind=Unsupported)
    assert [info.path for info in storage.list("")] == [info.path for info in before.list("")], (
        "no file was created or deleted"
    )


def test_services_that_move_rows_or_metadata_run_without_the_key_index(
    monkeypatch,
):
    storage = _create_table("exact")
    with monkeypatch.context() as patch:
        _uninstall(patch)
        table = mdt.open(storage)
        rows = bag(table.scan().to_arrow())
        result = table.compact()
        assert all("length/1" in warning for warning in result.warnings), result.warnings
        table.metadata.compact()
        assert bag(mdt.open(storage).scan().to_arrow()) == rows
        report = table.check()
        assert [p for p in report.problems if "exact/1" not in p.text] == [] and not report.ok, (
            "a missing key index cannot be checked"
        )
    reopened = mdt.open(storage)
    assert reopened.check().ok and reopened.upsert(_rows(2, "c")).updated == 4


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("bloom", "bloom"),
        ("record/1", "record"),
        ("exact", "exact/1"),
        ("exact(bits='64')", "exact/1(bits='64')"),
        ("bloom(fpp='0.2')", "bloom(fpp='0.2')"),
        ("simple/1", "simple"),
    ],
)
def test_every_registered_key_index_can_be_chosen_with_its_options(given, kept):
    reopened = mdt.open(_create_table(given, **{"mdt.metadata.compact.records": 2}))
    assert reopened.definition.key_index == kept and reopened.check().ok
    note = _note(reopened, "id = 3", "key:")
    assert note.used and note.detail == "1 keys looked up, 1 live rows"
    assert not reopened.snapshot().uncovered, "the key parts of the index cover all inserted rows"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("nothing", "bloom/1, bucket/1, exact/1, lmdb/1, memory/1, record/1, simple/1"),
        ("exact(bits='7')", "bits='7' must be 64 or 128"),
        ("exact(size='1')", "options"),
        ("exact(id)", "names a column"),
        ("length", "use one of"),
        ("exact(", "expected"),
        (5, "must be text, not int"),
    ],
)
def test_an_invalid_key_index_is_refused_at_creation(wrong, told):
    refused(told, mdt.create, MemoryStorage(), SCHEMA, ["id"], key_index=wrong)
