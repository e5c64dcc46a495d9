"""Loading of a snapshot: properties, timeline, file names, plans and replaced file groups."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mdt.errors import Corrupt, Missing, Unsupported
from mdt.hudi import compaction_plan, properties
from mdt.hudi.read import loading
from mdt.hudi.read.table_state import load_state
from mdt.stores.storage import MemoryStorage

MARKER = ".hoodie_partition_metadata"


def time(number: int) -> str:
    return f"20240101{number:09}"


def base(file_id: str, number: int) -> str:
    return f"{file_id}_1-2-3_{time(number)}.parquet"


def log(file_id: str, number: int) -> str:
    return f".{file_id}_{time(number)}.log.1_1-2-3"


def table_storage(version: int, objects: Mapping[str, bytes]) -> MemoryStorage:
    stored = {
        properties.NAME: "trips",
        properties.TYPE: "MERGE_ON_READ",
        properties.VERSION: str(version),
        properties.LAYOUT: "1" if version < 8 else "2",
    }
    storage = MemoryStorage()
    storage.create(".hoodie/hoodie.properties", properties.encode(stored))
    for path, data in objects.items():
        storage.create(path, data)
    return storage


def instant(version: int, number: int, action: str, completion: int = 0) -> str:
    """Return the path of an instant, completed if ``completion`` is given or version is 6."""
    if version < 8:
        return f".hoodie/{time(number)}.{action}"
    times = f"{time(number)}_{time(completion)}" if completion else time(number)
    return f".hoodie/timeline/{times}.{action}"


def compaction(file_id: str) -> bytes:
    return compaction_plan.encode(
        [{"baseInstantTime": "", "fileId": file_id, "partitionPath": "p"}]
    )


def replacing(*file_ids: str) -> bytes:
    return json.dumps({"partitionToReplaceFileIds": {"p": file_ids}}).encode()


def slice_paths(storage: MemoryStorage, at: str = "") -> list[str]:
    """Return the paths of all files in the newest slices."""
    state = load_state(storage, loading.load_properties(storage), at=at)
    paths = []
    for file_slice in state.slices:
        paths += [
            file_slice.path(file)
            for file in ([file_slice.base] if file_slice.base else []) + list(file_slice.logs)
        ]
    return paths


def objects_of(version: int) -> dict[str, bytes]:
    """Return the objects of a table with replaced file groups and one with a pending compaction."""
    compacted_log = 1 if version < 8 else 2
    later_log = 5 if version < 8 else 6
    return {
        instant(version, 1, "deltacommit", 1): b"{}",
        instant(version, 2, "deltacommit", 2): b"{}",
        instant(version, 3, "replacecommit", 3): replacing("r-0"),
        instant(version, 4, "replacecommit", 4): replacing("r-0", "s-0"),
        instant(version, 5, "compaction.requested"): compaction("c-0"),
        instant(version, 6, "deltacommit", 6): b"{}",
        f"p/{MARKER}": b"",
        f"p/{base('c-0', 1)}": b"1",
        f"p/{log('c-0', compacted_log)}": b"1",
        f"p/{log('c-0', later_log)}": b"1",
        f"p/{base('r-0', 1)}": b"1",
        f"p/{base('s-0', 1)}": b"1",
    }


@pytest.mark.parametrize("version", [6, 8, 9])
def test_a_snapshot_has_groups_with_a_pending_compaction_and_no_replaced_groups(version):
    storage = table_storage(version, objects_of(version))
    logs = (1, 5) if version < 8 else (2, 6)
    expected = [base("c-0", 1), *(log("c-0", number) for number in logs)]
    assert slice_paths(storage) == [f"p/{name}" for name in expected]


@pytest.mark.parametrize("version", [6, 8, 9])
def test_a_snapshot_as_of_an_instant_has_groups_that_were_replaced_later(version):
    storage = table_storage(version, objects_of(version))
    assert f"p/{base('r-0', 1)}" in slice_paths(storage, at=time(2))
    paths = slice_paths(storage, at=time(3))
    assert f"p/{base('s-0', 1)}" in paths and f"p/{base('r-0', 1)}" not in paths


@pytest.mark.parametrize("version", [6, 9])
def test_the_timeline_has_only_the_instants_in_its_folder(version):
    other = 9 if version < 8 else 6
    storage = table_storage(
        version,
        {
            instant(version, 1, "commit", 2): b"{}",
            instant(other, 3, "commit", 4): b"{}",
            ".hoodie/metadata/.hoodie/20240101000000009.commit": b"{}",
            ".hoodie/timeline/history/_version_": b"1",
        },
    )
    timeline = loading.load_timeline(storage, loading.load_properties(storage))
    [file] = timeline.files
    assert (file.time, file.path, file.size) == (time(1), instant(version, 1, "commit", 2), 2)


def test_archived_log_files_are_assigned_to_slices_by_the_history():
    out = io.BytesIO()
    times = {"instantTime": [time(2)], "completionTime": [time(6)]}
    pq.write_table(pa.table(times), out)
    name = f"{time(1)}_{time(5)}_0.parquet"
    folder = ".hoodie/timeline/history"
    objects = {
        instant(9, 9, "commit", 10): b"{}",
        f"{folder}/{name}": out.getvalue(),
        f"{folder}/manifest_1": json.dumps({"files": [{"fileName": name}]}).encode(),
        f"p/{MARKER}": b"",
        f"p/{base('a-0', 1)}": b"1",
        f"p/{log('a-0', 2)}": b"1",
        f"p/{base('a-0', 4)}": b"1",
    }
    assert slice_paths(table_storage(9, objects)) == [f"p/{base('a-0', 4)}", f"p/{log('a-0', 2)}"]


def test_partitions_are_the_folders_with_a_marker():
    storage = table_storage(
        9,
        {
            f"a=1/b=2/{MARKER}": b"",
            f"a=1/b=2/{base('x-0', 1)}": b"12",
            f"c/{MARKER}.parquet": b"",
            f"other/{base('x-0', 1)}": b"",
            f".hoodie/metadata/files/{MARKER}": b"",
            "readme.txt": b"",
        },
    )
    files = loading.load_files(storage)
    assert files == {
        "a=1/b=2": {MARKER: 0, base("x-0", 1): 2},
        "c": {f"{MARKER}.parquet": 0},
    }


def test_a_table_without_partitions_has_the_files_of_its_own_folder():
    storage = table_storage(9, {MARKER: b"", base("x-0", 1): b"12", f"below/{MARKER}": b""})
    assert loading.load_files(storage) == {"": {MARKER: 0, base("x-0", 1): 2}}


def test_files_can_be_passed_instead_of_listed():
    storage = table_storage(9, {instant(9, 1, "commit", 2): b"{}"})
    table = loading.load_properties(storage)
    state = load_state(storage, table, files={"p": {base("x-0", 1): 5}})
    assert [file_slice.file_id for file_slice in state.slices] == ["x-0"]
    assert state.timeline.is_completed(time(1)) and state.table is table


def test_a_new_table_has_no_slices():
    assert slice_paths(table_storage(9, {})) == slice_paths(table_storage(6, {})) == []


def test_missing_properties_and_unsupported_table_versions_are_refused():
    with pytest.raises(Missing):
        loading.load_properties(MemoryStorage())
    storage = table_storage(9, {})
    storage.replace(".hoodie/hoodie.properties", b"hoodie.table.version=7")
    with pytest.raises(Unsupported):
        loading.load_properties(storage)


@pytest.mark.parametrize(
    "objects",
    [
        {instant(9, 1, "replacecommit", 2): b""},
        {instant(9, 1, "replacecommit", 2): b"{"},
        {instant(9, 1, "compaction.requested"): b""},
        {instant(9, 1, "compaction.requested"): b"{}"},
        {instant(9, 1, "compaction.inflight"): b""},
    ],
    ids=range(5),
)
def test_damaged_instants_are_corrupt_and_the_error_names_them(objects):
    storage = table_storage(9, objects)
    with pytest.raises(Corrupt) as caught:
        slice_paths(storage)
    assert caught.value.path == next(iter(objects))


def test_an_instant_that_is_too_large_is_not_read(monkeypatch):
    monkeypatch.setattr(loading, "INSTANT_BYTES_MAX", 10)
    storage = table_storage(9, {instant(9, 1, "replacecommit", 2): replacing("a-0")})
    monkeypatch.setattr(storage, "read", None)
    table = loading.table_properties.parse(properties.encode(stored_properties()))
    timeline = loading.load_timeline(storage, table)
    with pytest.raises(Corrupt, match="too large"):
        loading.load_replaced_groups(storage, timeline)


def stored_properties() -> dict[str, str]:
    return {
        properties.NAME: "trips",
        properties.TYPE: "MERGE_ON_READ",
        properties.VERSION: "9",
        properties.LAYOUT: "2",
    }
