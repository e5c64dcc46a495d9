"""Imports of large tables of other writers are kept in the user's cache directory."""

from __future__ import annotations

import gc
import multiprocessing
import os
import shutil
from pathlib import Path

import pytest
from foreign_tables import FILE_ID, ForeignTable, deletes, time
from hypothesis import given, settings
from refusals import refused
from test_following_others import STEPS, TYPES, batch, rows_of, step, table
from texts import columns

import mdt
from mdt.errors import Unavailable
from mdt.importing import imported_storage
from mdt.metadata.files import paths
from mdt.stores import table_folder
from mdt.stores.storage import LocalStorage
from mdt.stores.table_folder import open_folder


@pytest.fixture(autouse=True)
def _every_table_is_large(monkeypatch):
    monkeypatch.setattr(imported_storage, "IMPORT_FOLDER_SLICES_MIN", 1)


@pytest.fixture
def options(tmp_path):
    return {"mdt.cache.dir": str(tmp_path / "cache")}


def folders(tmp_path: Path) -> list[Path]:
    return sorted(path for path in (tmp_path / "cache-tables").glob("*") if path.is_dir())


def records(folder: Path) -> int:
    return len(list((folder / paths.LOG_DIR).iterdir()))


def foreign(tmp_path: Path, name: str = "t", table_type: str = "COPY_ON_WRITE") -> str:
    """Write a table with two commits and return the path of a copy without ``.mdt``."""
    t = table(str(tmp_path / f"{name}-ours"), table_type)
    t.upsert(batch([1, 2, 3], 1))
    t.upsert(batch([1], 2))
    return copied(tmp_path, name)


def copied(tmp_path: Path, name: str = "t") -> str:
    """Copy a table so that it looks like one of another writer."""
    shutil.copytree(
        tmp_path / f"{name}-ours",
        tmp_path / name,
        ignore=shutil.ignore_patterns(".mdt"),
        dirs_exist_ok=True,
    )
    return str(tmp_path / name)


def opened(path: str, options: dict[str, object]) -> mdt.Table:
    """Open a table after closed tables have released their folders."""
    gc.collect()
    return mdt.open(path, options)


def ours(tmp_path: Path) -> mdt.Table:
    return mdt.open(str(tmp_path / "t-ours"))


@pytest.mark.parametrize("table_type", TYPES)
def test_a_table_is_imported_once(tmp_path, options, table_type):
    path = foreign(tmp_path, table_type=table_type)
    first = mdt.open(path, options)
    rows = rows_of(first)
    assert rows == rows_of(ours(tmp_path))
    [folder] = folders(tmp_path)
    before = records(folder)
    for file in (tmp_path / "t").rglob("*.parquet"):
        file.write_bytes(bytes(file.stat().st_size))  # the files are not read again
    assert mdt.open(path, options).scan("v < 0").count() == 0
    reopened = mdt.open(copied(tmp_path), options)
    assert rows_of(reopened) == rows and records(folder) == before
    assert not reopened.check().problems
    assert not (tmp_path / "t" / paths.PRIVATE).exists()


@pytest.mark.parametrize("table_type", TYPES)
@settings(max_examples=10)
@given(steps=STEPS)
def test_later_commits_are_imported_into_the_same_folder(table_type, steps, tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("table")
    options = {"mdt.cache.dir": str(tmp_path / "cache")}
    t = table(str(tmp_path / "t-ours"), table_type)
    t.upsert(batch([10, 11], 0))
    long_open = mdt.open(copied(tmp_path), options)
    for number, (action, ids, city) in enumerate(steps):
        step(t, action, ids, city, number)
        shutil.rmtree(tmp_path / "t")
        opened = mdt.open(copied(tmp_path), options)
        assert rows_of(opened) == rows_of(t), (number, action)
        if number % 2:
            assert rows_of(long_open) == rows_of(t)
    assert rows_of(long_open) == rows_of(t)
    assert len(folders(tmp_path)) == 1


def test_processes_that_open_a_table_at_the_same_time_import_it_once(tmp_path, options):
    path = foreign(tmp_path, table_type="MERGE_ON_READ")
    context = multiprocessing.get_context("fork")
    with context.Pool(3) as pool:
        rows = pool.starmap(_rows, [(path, options)] * 6)
    assert rows == [rows_of(ours(tmp_path))] * 6
    [folder] = folders(tmp_path)
    assert records(folder) == 2  # the definition and one import


def _rows(path, options):
    return rows_of(mdt.open(path, options))


@pytest.mark.parametrize("kind", ["log", "checkpoints", "timeline"])
def test_a_damaged_folder_is_rebuilt(tmp_path, options, kind):
    path = foreign(tmp_path)
    rows = rows_of(mdt.open(path, options))
    [folder] = folders(tmp_path)
    damaged = [folder / "timeline"]
    if kind != "timeline":
        damaged = [
            path_in_folder
            for path_in_folder in (folder / paths.PRIVATE / kind).rglob("*")
            if path_in_folder.is_file()
        ]
    assert damaged
    for file in damaged:
        file.write_bytes(b"\xff" * 40)
    assert rows_of(opened(path, options)) == rows


def test_a_damaged_folder_that_another_object_uses_is_not_changed(tmp_path, options):
    path = foreign(tmp_path)
    user = mdt.open(path, options)
    [folder] = folders(tmp_path)
    for file in (folder / paths.PRIVATE).rglob("*"):
        if file.is_file():
            file.write_bytes(b"")
    assert rows_of(mdt.open(path, options)) == rows_of(ours(tmp_path))
    assert folder.exists() and user is not None


def test_records_left_by_a_killed_process_are_removed(tmp_path, options):
    path = foreign(tmp_path)
    mdt.open(path, options)
    [folder] = folders(tmp_path)
    newest = max((folder / paths.LOG_DIR).iterdir())
    shutil.copy(newest, folder / paths.commit(3))  # record 2 is not written yet
    ours(tmp_path).upsert(batch([7], 3))
    assert rows_of(mdt.open(copied(tmp_path), options)) == rows_of(ours(tmp_path))
    assert records(folder) == 3


def test_a_table_with_other_properties_has_another_folder(tmp_path, options):
    path = foreign(tmp_path)
    mdt.open(path, options)
    properties = tmp_path / "t" / ".hoodie" / "hoodie.properties"
    text = properties.read_text()
    properties.write_text(text + "\nhoodie.table.metadata.partitions=")
    mdt.open(path, options)
    assert len(folders(tmp_path)) == 1
    properties.write_text(text + "\nhoodie.table.cdc.enabled=false")
    assert rows_of(mdt.open(path, options)) == rows_of(ours(tmp_path))
    assert len(folders(tmp_path)) == 2


def test_the_oldest_unused_folders_are_removed(tmp_path, options):
    small = options | {"mdt.cache.bytes.max": 1}
    used = mdt.open(foreign(tmp_path, "a"), small)
    mdt.open(foreign(tmp_path, "b"), small)
    assert len(folders(tmp_path)) == 2
    opened(foreign(tmp_path, "c"), small)
    assert len(folders(tmp_path)) == 2
    shutil.rmtree(tmp_path / "b")
    assert rows_of(used) == rows_of(ours_of(tmp_path, "a"))


def ours_of(tmp_path: Path, name: str) -> mdt.Table:
    return mdt.open(str(tmp_path / f"{name}-ours"))


def test_a_folder_with_a_long_log_is_rebuilt(tmp_path, options, monkeypatch):
    path = foreign(tmp_path)
    mdt.open(path, options)
    [folder] = folders(tmp_path)
    monkeypatch.setattr(imported_storage, "IMPORT_FOLDER_RECORDS_MAX", 2)
    for number in range(2, 5):
        ours(tmp_path).upsert(batch([number], number))
        assert rows_of(opened(copied(tmp_path), options)) == rows_of(ours(tmp_path))
        assert records(folder) <= 4


def test_merged_files_replaced_by_earlier_processes_are_removed(tmp_path, options):
    path = foreign(tmp_path, table_type="MERGE_ON_READ")
    assert mdt.open(path, options).storage.merged == 1
    for number in range(3, 6):
        ours(tmp_path).upsert(batch([number - 2], number))
        used = None
        used = opened(copied(tmp_path), options)
        assert rows_of(used) == rows_of(ours(tmp_path))
        assert used.storage.merged <= 2  # the one before this opening, and the newest
    other = mdt.open(path, options)
    ours(tmp_path).upsert(batch([1], 9))
    rows = used.scan()
    assert rows_of(mdt.open(copied(tmp_path), options)) == rows_of(ours(tmp_path))
    assert len(rows.to_arrow()) == 3 and other.storage.merged == 3


def test_small_tables_and_tables_without_a_cache_leave_no_folder(tmp_path, options, monkeypatch):
    path = foreign(tmp_path)
    rows = rows_of(ours(tmp_path))
    assert rows_of(mdt.open(path, options | {"mdt.cache.bytes.max": 0})) == rows
    logs = foreign(tmp_path, "logs", "MERGE_ON_READ")
    assert rows_of(mdt.open(logs, options | {"mdt.cache.bytes.max": 50})) == rows
    monkeypatch.setattr(imported_storage, "IMPORT_FOLDER_SLICES_MIN", 100)
    assert rows_of(mdt.open(path, options)) == rows
    assert not (tmp_path / "cache-tables").exists()


def test_a_cache_directory_with_files_of_another_program_is_not_used(tmp_path, options, caplog):
    path = foreign(tmp_path)
    (tmp_path / "cache-tables").mkdir()
    (tmp_path / "cache-tables" / "letter.txt").write_text("mine")
    assert rows_of(mdt.open(path, options)) == rows_of(ours(tmp_path))
    assert os.listdir(tmp_path / "cache-tables") == ["letter.txt"]
    assert "contains files of another program" in caplog.text


def test_a_folder_that_is_locked_for_too_long_is_not_used(tmp_path, options, monkeypatch):
    path = foreign(tmp_path)
    follower = mdt.open(path, options)
    monkeypatch.setattr(table_folder, "TABLE_FOLDER_WAIT_SECONDS", 0.1)
    with follower.storage._folder.locked():
        assert rows_of(mdt.open(path, options)) == rows_of(ours(tmp_path))
        ours(tmp_path).upsert(batch([4], 4))
        copied(tmp_path)
        refused("cannot be used: another process works in", follower.scan, kind=Unavailable)
    assert rows_of(follower) == rows_of(ours(tmp_path))


def test_a_folder_with_another_user_is_not_removed_even_after_refused_attempts(tmp_path):
    cache = str(tmp_path / "cache")
    first = open_folder(cache, 1 << 20, "one", create=True)
    second = open_folder(cache, 1 << 20, "one", create=False)
    assert not first.remove() and not second.remove() and not first.remove()
    del second
    gc.collect()
    assert first.remove() and open_folder(cache, 1 << 20, "one", create=False) is None
    assert os.listdir(tmp_path / "cache-tables") == ["mdt-store"]


def test_a_reader_continues_after_another_process_has_imported_newer_commits(tmp_path, options):
    path = foreign(tmp_path)
    slow_reader, fast_reader = mdt.open(path, options), mdt.open(path, options)
    list_timeline, is_first = slow_reader.storage._look, True

    def list_before_newer_import():
        nonlocal is_first
        listed, was_first, is_first = list_timeline(), is_first, False
        if was_first:  # has the older timeline when the other reader imports the newer one
            ours(tmp_path).upsert(batch([5], 5))
            copied(tmp_path)
            assert rows_of(fast_reader) == rows_of(ours(tmp_path))
        return listed

    slow_reader.storage._look = list_before_newer_import
    rows_of(slow_reader)
    for number in range(6, 9):
        ours(tmp_path).upsert(batch([number], number))
        copied(tmp_path)
        assert rows_of(slow_reader) == rows_of(ours(tmp_path)) == rows_of(fast_reader)


def test_an_older_timeline_is_not_imported_after_a_newer_one(tmp_path, options):
    path = foreign(tmp_path)
    slow_reader, fast_reader = mdt.open(path, options), mdt.open(path, options)
    list_timeline, is_first = slow_reader.storage._look, True

    def list_before_newer_import():
        nonlocal is_first
        listed, was_first, is_first = list_timeline(), is_first, False
        if was_first:
            ours(tmp_path).upsert(batch([6], 6))
            copied(tmp_path)
            assert rows_of(fast_reader) == rows_of(ours(tmp_path))
        return listed

    ours(tmp_path).upsert(batch([5], 5))
    copied(tmp_path)
    slow_reader.storage._look = list_before_newer_import
    assert rows_of(slow_reader) == rows_of(fast_reader) == rows_of(ours(tmp_path))


def test_a_recreated_table_with_other_columns_is_imported_from_scratch(tmp_path, options):
    mdt.open(foreign(tmp_path), options)
    shutil.rmtree(tmp_path / "t-ours")
    shutil.rmtree(tmp_path / "t")
    t = mdt.create(
        str(tmp_path / "t-ours"),
        columns("id string, city string, v float64"),
        ["id"],
        partition_by=["city"],
        ordering="v",
    )
    t.upsert([{"id": "a", "city": "Oslo", "v": 0.5}])
    reopened = opened(copied(tmp_path), options)
    assert rows_of(reopened) == rows_of(t)


def test_a_log_file_with_the_name_of_one_removed_by_a_backup_is_read_again(tmp_path, options):
    path, saved = tmp_path / "t", tmp_path / "saved"
    other = ForeignTable(
        {"id": "string"}, version=6, storage=LocalStorage(str(path), durable=False)
    )
    other.base(1, [{"id": "a"}, {"id": "b"}, {"id": "c"}])
    shutil.copytree(path, saved)
    name = f".{FILE_ID}_{time(1)}.log.1_1-2-3"  # version 6: the time of the base file
    handles = []
    for number, deleted_id, rows in [(2, "a", ["b", "c"]), (3, "b", ["a", "c"])]:
        other.storage.create(name, deletes(number, {deleted_id: None}))
        other.commit(number)
        handles.append(mdt.open(str(path), options))
        for handle in handles:
            assert sorted(handle.scan().to_arrow()["id"].to_pylist()) == rows
        shutil.rmtree(path)
        shutil.copytree(saved, path)
