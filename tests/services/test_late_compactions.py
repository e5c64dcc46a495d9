"""In version 6, a compaction of another writer that completes after later log files are imported."""

from __future__ import annotations

from hidden import HiddenMetadata
from other_writer import OtherWriter
from shared_tables import batch, other_table, rows_of

import mdt
from mdt.hudi.file_names import ANY_LOG, parse_log
from mdt.stores.storage import MemoryStorage
from mdt.write import marked_files, new_files

OPTIONS = {"mdt.services.auto": "false"}


def new_paths(storage, older):
    """Return the paths in ``storage`` that ``older`` lacks, except those of private folders."""
    paths = {info.path for info in storage.list("")} - {info.path for info in older.list("")}
    return sorted(p for p in paths if not p.startswith((".hoodie/.mdt", ".hoodie/.aaa")))


def move_log_files(storage, before, instant):
    """Give log files after a pending compaction its instant in their names, as Hudi does."""
    moved = {}
    for path in new_paths(storage, before):
        folder, _, name = path.rpartition("/")
        log = parse_log(name, ANY_LOG)
        if log is not None:
            moved[name] = name.replace(log.instant, instant)
            storage.create(f"{folder}/{moved[name]}", storage.read(path))
            storage.delete(path)
    for path in new_paths(storage, before):
        if path.startswith(".hoodie/"):
            content = storage.read(path)
            for old, new in moved.items():
                content = content.replace(old.encode(), new.encode())
            storage.replace(path, content)
    return moved


def late_compaction(storage):
    """Create a table in which a compaction of the other writer completes after its later log files
    were imported. Return our table, the table of the other writer, and the instant of the compaction.
    """
    theirs = other_table(storage, "MERGE_ON_READ", 6, options=OPTIONS, key_index="bloom")
    theirs.upsert(batch(list(range(10)), 1))
    theirs.upsert(batch([1, 2], 2))
    ours = mdt.adopt(storage, key_index="bloom", options=OPTIONS)
    compacted = storage.copy()
    mdt.open(OtherWriter(compacted)).compact()
    completed = [path for path in new_paths(compacted, storage) if path.endswith(".commit")]
    [instant] = [path.rpartition("/")[2].partition(".")[0] for path in completed]
    files = {path: compacted.read(path) for path in new_paths(compacted, storage)}
    plan = {path: data for path, data in files.items() if ".compaction." in path}
    assert len(plan) == 2
    for _ in range(1_000):
        storage.now_us()  # later than the compaction
    before = storage.copy()
    assert theirs.upsert(batch([3], 3)).instant > instant
    assert move_log_files(storage, before, instant)
    for path, data in plan.items():
        storage.create(path, data)
    ours.refresh()
    assert len(rows_of(ours)) == 10
    assert rows_of(ours) == rows_of(mdt.open(HiddenMetadata(storage)))
    for path, data in files.items():
        if path not in plan:
            storage.create(path, data)
    ours.refresh()
    return ours, theirs, instant


def log_instants(storage, older):
    """Return the instants in the names of the log files that ``older`` lacks."""
    names = [path.rpartition("/")[2] for path in new_paths(storage, older)]
    logs = [parse_log(name, ANY_LOG) for name in names]
    return {log.instant for log in logs if log is not None}


def test_the_next_log_file_of_mdt_belongs_to_the_base_file_of_the_compaction():
    storage = MemoryStorage()
    ours, _, instant = late_compaction(storage)
    before = storage.copy()
    ours.upsert(batch([1, 4], 9))
    assert log_instants(storage, before) == {instant}
    assert rows_of(ours) == rows_of(mdt.open(HiddenMetadata(storage)))
    assert ours.check().ok


def test_check_reports_a_log_file_of_the_previous_slice_until_a_compaction(monkeypatch):
    storage = MemoryStorage()
    ours, theirs, instant = late_compaction(storage)
    before = storage.copy()
    for module in (new_files, marked_files):  # as mdt did before November 2026
        monkeypatch.setattr(module, "slice_instant", lambda members: members[0].base_instant)
    ours.upsert(batch([1, 4], 9))
    monkeypatch.undo()
    assert max(log_instants(storage, before)) < instant
    assert rows_of(ours) != rows_of(mdt.open(HiddenMetadata(storage)))
    [problem] = ours.check().problems
    assert "has other files in the log than on Hudi's timeline" in problem.text
    imported = storage.copy()
    mdt.open(OtherWriter(imported)).upsert(batch([7], 20))
    late = mdt.open(imported)
    late.refresh()
    assert len(rows_of(late)) == 10 and "'v': 9" not in str(rows_of(late))
    assert rows_of(late) == rows_of(mdt.open(HiddenMetadata(imported)))
    assert late.check().ok
    ours.compact()
    assert str(rows_of(ours)).count("'v': 9") == 2
    theirs.upsert(batch([7], 20))
    ours.refresh()
    assert str(rows_of(ours)).count("'v': 9") == 2
    assert rows_of(ours) == rows_of(mdt.open(HiddenMetadata(storage)))
    assert ours.check().ok
