"""The history of version 9 tables: added instants can be read, also after a writer crashed."""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from worlds import MOR, as_state, assert_clean, make, ours, rows, tables_of, theirs

import mdt
from mdt.commit import hudi_archive
from mdt.errors import Corrupt
from mdt.hudi import history_files
from mdt.hudi.layout import LAYOUTS
from mdt.hudi.read.history import completion_times, manifest_files, parse_file
from mdt.hudi.timeline import COMPLETED, Instant, InstantContent
from mdt.services.reclaiming import cleaning
from mdt.stores.storage import MemoryStorage

V9 = LAYOUTS[9]
FOLDER = V9.archive


def content(number: int) -> InstantContent:
    time = f"202401010000{number:05}"
    instant = Instant(time, "commit", COMPLETED, f"202401020000{number:05}")
    return InstantContent(instant, f"body {number}".encode(), b"plan" if number % 2 else None)


def archive_of(storage, numbers):
    existing = [info.path for info in storage.list_dir(FOLDER)]
    return V9.archived(existing, storage.read, [content(number) for number in numbers])


def add(storage, numbers):
    """Add instants to the history, as cleaning does."""
    assert hudi_archive.add(storage, V9, [content(number) for number in numbers])


def files_of(storage):
    """Return the valid files of the history and their sizes."""
    number = storage.read(f"{FOLDER}/_version_").decode()
    return manifest_files(storage.read(f"{FOLDER}/manifest_{number}"), "")


def instants_of(storage):
    """Return the rows of all valid files, in order."""
    names = sorted(files_of(storage))
    tables = [pq.read_table(pa.BufferReader(storage.read(f"{FOLDER}/{n}"))) for n in names]
    return pa.concat_tables(tables).to_pylist()


def test_instants_are_in_the_history_with_body_plan_and_completion_time():
    storage = MemoryStorage()
    add(storage, range(3))
    assert instants_of(storage) == [
        {
            "instantTime": added.instant.time,
            "completionTime": added.instant.completion,
            "action": "commit",
            "metadata": added.body,
            "plan": added.plan,
            "version": 1,
        }
        for added in map(content, range(3))
    ]
    for name, size in files_of(storage).items():
        assert storage.size(f"{FOLDER}/{name}") == size


def test_ten_files_of_a_layer_are_merged_into_the_next_layer_and_old_manifests_are_deleted():
    storage = MemoryStorage()
    for n in range(123):
        add(storage, [n])
    assert sorted(parse_file(name)[2] for name in files_of(storage)) == [0, 0, 0, 1, 1, 2]
    assert [row["metadata"] for row in instants_of(storage)] == [
        f"body {n}".encode() for n in range(123)
    ]
    times = [content(n).instant.time for n in (0, 60, 122)]
    completions = completion_times(storage, FOLDER, times)
    assert completions == {
        content(n).instant.time: content(n).instant.completion for n in (0, 60, 122)
    }
    listed = [info.path.rpartition("/")[2] for info in storage.list_dir(FOLDER)]
    manifests = [name for name in listed if name.startswith("manifest_")]
    assert len(manifests) == history_files.MANIFESTS_KEPT + 1
    assert len(listed) < 30


@pytest.mark.parametrize("done", ["files", "commit", "pointer"])
def test_instants_added_by_a_crashed_writer_are_in_the_history_once(done):
    storage = MemoryStorage()
    add(storage, range(3))
    archive = archive_of(storage, range(3, 6))
    for path, data in archive.files:
        storage.replace(path, data)
    if done != "files":
        storage.put_if_absent(*archive.commit)
    if done == "pointer":
        storage.replace(*V9.archive_pointer([archive.commit[0]]))
    add(storage, range(3, 8))
    assert [row["metadata"] for row in instants_of(storage)] == [
        f"body {n}".encode() for n in range(8)
    ]


def test_files_with_large_rows_are_not_merged_so_that_they_stay_readable(monkeypatch):
    monkeypatch.setattr(history_files, "HISTORY_BYTES_MAX", 150_000)
    monkeypatch.setattr(history_files, "_MERGED_BYTES_MAX", 75_000)
    monkeypatch.setattr(history_files, "_FILE_BYTES_MAX", 2_000)
    storage, repeats = MemoryStorage(), 20_000
    for n in range(23):
        added = content(n)
        body = added.body * (repeats // len(added.body))
        assert hudi_archive.add(storage, V9, [replace(added, body=body)])
    assert {parse_file(name)[2] for name in files_of(storage)} == {0}
    assert sum(files_of(storage).values()) < 75_000 < 10 * repeats
    add(storage, [22, 23])
    assert len(instants_of(storage)) == 24


def test_large_files_are_kept_and_small_files_beside_them_are_merged(monkeypatch):
    monkeypatch.setattr(history_files, "_FILE_BYTES_MAX", 5_000)
    storage = MemoryStorage()
    for n in range(3):
        noise = replace(content(n), body=random.Random(n).randbytes(10_000))
        assert hudi_archive.add(storage, V9, [noise])
    for n in range(3, 25):
        add(storage, [n])
    assert sorted(parse_file(name)[2] for name in files_of(storage)) == [0] * 5 + [1, 1]
    assert len(instants_of(storage)) == 25


class ConcurrentHistoryWriter(MemoryStorage):
    """A storage where another process adds to the history just before the pointer is replaced."""

    is_first = True

    def replace(self, path, data):
        if path.endswith("_version_") and self.is_first:
            self.is_first = False
            add(self, range(3, 6))
        super().replace(path, data)


def test_readers_use_the_newest_manifest_after_two_processes_added_instants_at_once():
    storage = ConcurrentHistoryWriter()
    add(storage, range(3))
    assert storage.read(f"{FOLDER}/_version_") == b"2"
    assert len(instants_of(storage)) == 6


def test_a_damaged_history_file_is_corrupt():
    storage = MemoryStorage()
    add(storage, range(3))
    (name,) = files_of(storage)
    storage.replace(f"{FOLDER}/{name}", b"PAR1")
    with pytest.raises(Corrupt, match="history file cannot be read"):
        archive_of(storage, range(1, 5))


def test_log_files_of_archived_commits_are_read_by_mdt_and_hudi_rs(monkeypatch):
    monkeypatch.setattr(cleaning, "ARCHIVE_RECORDS_MIN", 4)
    with tables_of(9):
        table = make(MemoryStorage(), MOR, "record", **{"mdt.metadata.compact.records": 3})
    table.insert(rows(range(8), 1, 1.0))
    table.upsert(rows([0, 1], 2, 2.0))
    table.delete(rows([2], 0, 0.0))
    table.savepoint("s")
    table.untag("s")
    for n in range(30):
        table.upsert(rows([4 + n % 4], n + 3, 3.0))
        if n % 10 == 9:
            table.clean(retain_commits=2)
    storage = table.storage
    archived_times = {row["instantTime"] for row in instants_of(storage)}
    assert len(archived_times) > 20
    on_timeline = {V9.instant_at(info.path).time for info in storage.list_dir(V9.timeline)}
    assert not archived_times & on_timeline
    file_names = {row["name"] for row in table.files().to_pylist()}
    assert any(time in name for time in archived_times for name in file_names if ".log." in name)
    expected = as_state(table.scan().to_arrow())
    assert expected["k0"] == (2, 2.0) and "k2" not in expected
    assert ours(storage) == expected == theirs(storage)
    assert_clean(storage)
    assert mdt.open(storage).upsert(rows([0], 50, 5.0)).updated == 1
