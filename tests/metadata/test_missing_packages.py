"""A table whose indexes came with a package that this process does not have: everything but new
rows goes on, and is said.
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


def _written(key_index, **more):
    """Return a table with two commits, made while the package was there."""
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


def _warned_by(caplog):
    return [record.name for record in caplog.records if record.levelno >= logging.WARNING]


def test_writers_go_on_without_an_index_and_say_that_it_was_not_kept(monkeypatch, caplog):
    storage = _written("bloom")
    _uninstall(monkeypatch)
    with caplog.at_level(logging.WARNING, "mdt"):
        table = mdt.open(storage)
        done = table.upsert(_rows(10))
    (warning,) = done.warnings
    assert "length/1(note)" in warning and "install the package example-index" in warning
    assert _warned_by(caplog) == ["mdt.commit"]
    assert "length/1(note)" in caplog.text and "example-index" in caplog.text
    found = table.scan("note = 'aaa'").to_arrow()["id"].to_pylist()
    assert found == [12], "a file that is not covered is read"


def test_files_written_meanwhile_are_not_covered_and_a_later_build_covers_them(
    monkeypatch,
):
    storage = _written("bloom")
    with monkeypatch.context() as patch:
        _uninstall(patch)
        without = mdt.open(storage)
        without.upsert(_rows(10))
        assert without.build_indexes().summaries == 0, "nobody here can build it"
        (row,) = without.indexes().to_pylist()
        assert "example-index" in row["problem"] and row["coverage"] < 100
    table = mdt.open(storage)
    (row,) = table.indexes().to_pylist()
    assert row["problem"] is None and row["coverage"] < 100
    assert table.build_indexes().summaries == 1
    assert table.indexes()["coverage"].to_pylist() == [100.0]
    assert not table.upsert(_rows(20)).warnings
    assert table.check().ok


def test_plans_and_the_log_name_the_missing_index_and_its_package_once(monkeypatch, caplog):
    storage = _written("bloom")
    _uninstall(monkeypatch)
    table = mdt.open(storage)
    with caplog.at_level(logging.WARNING, "mdt"):
        for _ in range(3):
            note = _note(table, "note = 'aaa'", "length")
            assert (note.used, note.reason) == (False, "not_installed")
            assert "example-index" in note.detail
    assert _warned_by(caplog) == ["mdt.plan"], "each index is logged once, not at every plan"


def test_an_index_created_later_is_known_by_its_package_too_even_after_the_metadata_were_compacted(
    monkeypatch,
):
    table = mdt.create(MemoryStorage(), SCHEMA, ["id"])
    table.create_index("length(note)")
    table.metadata.compact()
    assert mdt.open(table.storage).definition.packages == {"length/1": "example-index"}
    _uninstall(monkeypatch)
    assert "example-index" in mdt.open(table.storage).indexes()["problem"][0].as_py()


def test_a_missing_key_index_does_not_stop_readers(monkeypatch, caplog):
    storage = _written("exact(bits='64')")
    whole = bag(mdt.open(storage).scan().to_arrow())
    _uninstall(monkeypatch)
    table = mdt.open(storage)
    with caplog.at_level(logging.WARNING, "mdt.plan"):
        assert bag(table.scan().to_arrow()) == whole and table.scan().count() == 6
        assert table.scan("id = 3").to_arrow().to_pylist() == [{"id": 3, "note": "bb"}]
        assert table.scan("id in (0, 5, 99)").count() == 2
        note = _note(table, "id = 3", "key:exact")
    assert (note.used, note.reason) == (False, "not_installed")
    assert "install the package example-index" in note.detail
    assert "key:exact/1(bits='64')" in caplog.text
    assert table.get([3, 99, 0])["note"].to_pylist() == ["bb", None, "a"]
    assert len(table.history()) == 3 and len(table.files()) >= 1 and len(table.indexes()) == 1
    table.warm()


def test_writers_of_rows_are_told_which_package_has_the_missing_key_index(
    monkeypatch,
):
    storage = _written("exact")
    before = storage.copy()  # type: ignore[attr-defined]  # it is in memory
    _uninstall(monkeypatch)
    table = mdt.open(storage)
    for write in (table.upsert, table.insert, table.bulk_insert, table.delete):
        said = "exact/1 … install the package example-index"
        refused(said, write, _rows(30), kind=Unsupported)
    assert [info.path for info in storage.list("")] == [info.path for info in before.list("")], (
        "nothing was begun"
    )


def test_services_that_move_rows_or_metadata_go_on_without_the_key_index(
    monkeypatch,
):
    storage = _written("exact")
    with monkeypatch.context() as patch:
        _uninstall(patch)
        table = mdt.open(storage)
        whole = bag(table.scan().to_arrow())
        done = table.compact()
        assert all("length/1" in warning for warning in done.warnings), done.warnings
        table.metadata.compact()
        assert bag(mdt.open(storage).scan().to_arrow()) == whole
        report = table.check()
        assert [p for p in report.problems if "exact/1" not in p.text] == [] and not report.ok, (
            "it cannot be vouched for"
        )
    again = mdt.open(storage)
    assert again.check().ok and again.upsert(_rows(2, "c")).updated == 4


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
    again = mdt.open(_written(given, **{"mdt.metadata.compact.records": 2}))
    assert again.definition.key_index == kept and again.check().ok
    note = _note(again, "id = 3", "key:")
    assert note.used and note.detail == "1 keys looked up, 1 live rows"
    assert not again.snapshot().uncovered, "the key parts of the index cover what was inserted"


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
def test_a_key_index_that_cannot_be_is_refused_at_creation(wrong, told):
    refused(told, mdt.create, MemoryStorage(), SCHEMA, ["id"], key_index=wrong)
