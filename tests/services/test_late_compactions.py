"""A compaction of another writer that completes after later log files were imported, in version 6."""

from __future__ import annotations

from hidden import HiddenMetadata
from other_writer import OtherWriter
from shared_tables import batch, other_table, rows_of

import mdt
from mdt.hudi.file_names import ANY_LOG, parse_log
from mdt.stores.storage import MemoryStorage

OPTIONS = {"mdt.services.auto": "false"}


def new_paths(storage, older):
    """Return the paths of what ``storage`` has and ``older`` has not, outside of private folders."""
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


def test_our_next_log_file_belongs_to_the_base_file_of_the_compaction():
    storage = MemoryStorage()
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
    before = storage.copy()
    ours.upsert(batch([1, 4], 9))
    names = [path.rpartition("/")[2] for path in new_paths(storage, before)]
    logs = [log for log in (parse_log(name, ANY_LOG) for name in names) if log is not None]
    assert logs and {log.instant for log in logs} == {instant}
    assert rows_of(ours) == rows_of(mdt.open(HiddenMetadata(storage)))
    assert ours.check().ok
