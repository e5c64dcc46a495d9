"""The Delta log of our commits. Its readers see our rows after every commit and every crash."""

from __future__ import annotations

import json
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_tables import LOG, state, versions
from format_views import VIEWS
from pyroaring import BitMap
from worlds import MOR, make, rows

import mdt
from mdt.formats import keeping, twins
from mdt.formats.data_files import DataFile
from mdt.formats.delta import checkpoint as checkpoints
from mdt.formats.delta import log, places, vectors
from mdt.formats.delta.checkpoint import checkpoint_bytes, is_intact
from mdt.formats.twins import FOLDER as TWINS
from mdt.metadata.files.file_group import LOG as LOG_KIND
from mdt.metadata.metadata import Metadata
from mdt.stores.storage import MemoryStorage

VIEW = VIEWS["delta"]
DELTA = VIEW.form


table_with_delta, assert_same_rows = VIEW.table, VIEW.assert_same_rows


def test_tables_without_other_formats_have_no_objects_of_them():
    storage = MemoryStorage()
    table = make(storage, MOR, "record")
    table.upsert(rows(range(6), 1, 1.0))
    table.upsert(rows(range(3), 2, 1.0))
    names = [info.path for info in storage.list("")]
    assert not [name for name in names if name.startswith((LOG, TWINS))]
    base = next(name for name in names if name.endswith(".parquet"))
    first = pq.read_schema(pa.BufferReader(storage.read(base))).field(0)
    assert not first.metadata, "columns have no field ids"
    assert table.formats().to_pylist() == [{"format": "hudi", "seq": 2, "behind": 0}]


@pytest.mark.parametrize("damage", ["version", "lost version", "twin", "vector", "checkpoint"])
def test_check_reports_damage_and_repair_rebuilds_the_object(damage, monkeypatch):
    monkeypatch.setattr(vectors, "INLINE_BYTES_MAX", 10)
    monkeypatch.setattr(places, "CHECKPOINT_COMMITS", 3)
    storage, table = table_with_delta()
    for ts in range(1, 6):
        table.upsert(rows([ts % 4, 7], ts, 1.0))
    folder = {"twin": TWINS, "vector": vectors.FOLDER}.get(damage, LOG)
    paths = [info.path for info in storage.list(folder)]
    if damage == "checkpoint":
        path = log.checkpoint_path(3)
        storage.replace(path, checkpoint_bytes([], table.definition, {}))
    elif damage == "lost version":
        path = DELTA.path(2)
        storage.delete(path)
    else:
        path = DELTA.path(4) if damage == "version" else paths[-1]
        storage.replace(path, storage.read(path)[:-2] + b"\0\0")
    assert path in [problem.path for problem in table.check().problems]
    assert mdt.repair(storage).ok
    assert table.check().ok
    assert_same_rows(storage)


def test_check_reports_data_files_left_by_other_writers_of_the_format(monkeypatch):
    monkeypatch.setattr(places, "CHECKPOINT_COMMITS", 1)
    storage, table = table_with_delta()
    table.upsert(rows(range(4), 1, 1.0))
    for path in ("city=x/part-00000-b4-c000.snappy.parquet", "part-00001-b4-c000.parquet"):
        storage.put_if_absent(path, b"PAR1")
        [problem] = table.check().problems
        assert problem.path == path and "another program" in problem.text
        assert_same_rows(storage)
        storage.delete(path)
    assert table.check().ok


def test_large_vectors_are_objects_that_are_deleted_with_the_snapshots_that_need_them(monkeypatch):
    monkeypatch.setattr(vectors, "INLINE_BYTES_MAX", 10)
    storage, table = table_with_delta()
    table.upsert(rows(range(20), 1, 1.0))
    for ts in range(2, 6):
        table.upsert(rows([ts], ts, 1.0))
    assert len(storage.list(vectors.FOLDER)) == 4
    kinds = [
        file["deletionVector"]["storageType"]
        for file in state(storage)[1]
        if "deletionVector" in file
    ]
    assert kinds == ["u", "u"]
    assert_same_rows(storage)
    table.clean(retain_commits=1)
    assert len(storage.list(vectors.FOLDER)) == 2
    table.compact()
    table.clean(retain_commits=1)
    assert storage.list(vectors.FOLDER) == storage.list(TWINS) == []
    assert_same_rows(storage)


@pytest.fixture
def dirty(monkeypatch):
    """A table with large vectors after a cleaning, and its horizon."""
    monkeypatch.setattr(vectors, "INLINE_BYTES_MAX", 10)
    monkeypatch.setattr(places, "CHECKPOINT_COMMITS", 4)
    options = {"mdt.max.file.bytes": 4096, "mdt.small.file.bytes": 0}
    storage, table = table_with_delta(**options)
    for first in range(0, 120, 40):
        table.bulk_insert(rows(range(first, first + 40), 1, 1.0))
    for ts in range(2, 12):
        table.upsert(rows([7 * ts % 120, 11 * ts % 60], ts, 1.0))
    table.clean(retain_commits=5)
    assert {vector["storageType"] for vector in deletion_vectors(storage)} == {"u"}
    return storage, table, table.snapshot().retention.horizon


def deletion_vectors(storage):
    """Return the deletion vectors of the files of the newest version."""
    files = state(storage)[1]
    return [file["deletionVector"] for file in files if file.get("deletionVector")]


def assert_every_version_has_our_rows(storage, first):
    for seq in range(first, mdt.open(storage).snapshot().seq + 1):
        assert_same_rows(storage, seq)


def test_large_vectors_of_a_commit_are_stored_in_one_object(monkeypatch):
    monkeypatch.setattr(vectors, "INLINE_BYTES_MAX", 10)
    storage, table = table_with_delta(**{"mdt.max.file.bytes": 4096, "mdt.small.file.bytes": 0})
    for first in range(0, 120, 40):
        table.bulk_insert(rows(range(first, first + 40), 1, 1.0))
    for ts in (2, 3):
        table.delete(rows(range(ts, 120, 5), ts, 1.0))
    assert len(deletion_vectors(storage)) > 4
    assert len({vector["pathOrInlineDv"] for vector in deletion_vectors(storage)}) == 1
    paths = [info.path for info in storage.list(vectors.FOLDER)]
    assert [vectors.seq_of(path, table.definition.table_id) for path in paths] == [4, 5]
    assert_same_rows(storage)


def test_large_vectors_beyond_the_object_size_are_stored_in_several_objects(monkeypatch):
    monkeypatch.setattr(vectors, "INLINE_BYTES_MAX", 10)
    monkeypatch.setattr(vectors, "BASE_OBJECT_BYTES", 50)
    storage, table = table_with_delta(**{"mdt.max.file.bytes": 4096, "mdt.small.file.bytes": 0})
    for first in range(0, 120, 40):
        table.bulk_insert(rows(range(first, first + 40), 1, 1.0))
    table.delete(rows(range(0, 120, 5), 4, 1.0))
    table.delete(rows(range(1, 120, 5), 5, 1.0))
    assert len({vector["pathOrInlineDv"] for vector in deletion_vectors(storage)}) > 1
    assert_same_rows(storage)
    assert table.check().ok


@pytest.mark.parametrize("lost", [True, False])
def test_lost_or_damaged_vectors_of_expired_versions_are_repaired_in_place(dirty, lost):
    storage, table, horizon = dirty
    old_path = next(info.path for info in storage.list(vectors.FOLDER))
    assert vectors.seq_of(old_path, table.definition.table_id) < horizon
    versions_before = {info.path: storage.read(info.path) for info in storage.list(LOG)}
    if lost:
        storage.delete(old_path)
    else:
        storage.replace(old_path, storage.read(old_path)[:9] + b"?" + storage.read(old_path)[10:])
    assert [problem.path for problem in table.check().problems] == [old_path]
    assert table.repair().ok and table.check().ok
    assert {path: storage.read(path) for path in versions_before} == versions_before
    assert_every_version_has_our_rows(storage, horizon)


def test_a_log_that_lost_the_places_of_its_vectors_is_restarted_by_repair(dirty):
    storage, table, horizon = dirty
    storage.replace(log.checkpoint_path(horizon), b"PAR1")
    assert not table.check().ok
    assert table.repair().ok and table.check().ok
    assert_every_version_has_our_rows(storage, horizon)
    mdt.open(storage).upsert(rows(range(9), 99, 1.0))
    assert_every_version_has_our_rows(storage, horizon)
    mdt.open(storage).clean(retain_commits=1)
    assert_same_rows(storage)
    assert mdt.open(storage).check().ok


@pytest.mark.parametrize("damage", ["gone", "garbage", "another place", "another size"])
def test_no_version_is_derived_from_damaged_earlier_ones(dirty, damage):
    storage, table, horizon = dirty
    newest = table.snapshot().seq
    paths = [DELTA.path(seq) for seq in range(horizon, newest + 1)]
    paths += [path for path in map(log.checkpoint_path, range(newest + 1)) if storage.size(path)]
    for path in paths[:-1] if damage == "gone" else paths:
        data = storage.read(path)
        if damage == "gone" and path != DELTA.path(newest):
            storage.delete(path)
        elif damage == "garbage":
            storage.replace(path, data[:-9] + b"u" * 9)
        elif damage == "another place":
            storage.replace(path, data.replace(b'"pathOrInlineDv":".', b'"pathOrInlineDv":"/'))
        else:
            storage.replace(path, data.replace(b'"sizeInBytes":', b'"sizeInBytes":1'))
    [warning, *_] = mdt.open(storage).upsert(rows(range(60), 99, 1.0)).warnings
    assert "Delta" in warning and "t.repair()" in warning
    assert storage.size(DELTA.path(newest + 1)) is None
    assert mdt.repair(storage).ok
    mdt.open(storage).upsert(rows(range(60), 100, 1.0))
    assert mdt.open(storage).check().ok
    assert_every_version_has_our_rows(storage, horizon)


PLACES = (".hoodie", vectors.FOLDER, f"{vectors.FOLDER}é", f"{vectors.FOLDER}{'0' * 25}", None)


@pytest.mark.parametrize("place", PLACES)
def test_objects_are_kept_if_a_checkpoint_has_invalid_paths_of_vectors(dirty, place, monkeypatch):
    storage, table, horizon = dirty
    path = log.checkpoint_path(horizon)
    files = pq.read_table(pa.BufferReader(storage.read(path))).to_pylist()
    for row in files:
        if row["add"] and row["add"]["deletionVector"]:
            row["add"]["deletionVector"]["pathOrInlineDv"] = place
    others = pa.Table.from_pylist([row for row in files if row["add"]], checkpoints._SCHEMA)
    storage.replace(path, checkpoints._encoded(table.definition, [], others))
    before = storage.list(vectors.FOLDER)
    DELTA.expire(storage, horizon, table.definition.table_id)
    assert storage.list(vectors.FOLDER) == before
    assert table.repair().ok and table.check().ok
    assert_every_version_has_our_rows(storage, horizon)


@pytest.mark.parametrize("offset", [0, -1, 1.0, True, 10**18, "1", None])
def test_an_invalid_offset_of_a_vector_is_refused(offset):
    file = DataFile("a", "", 1, 9999, BitMap(range(1, 9999, 2)))
    stored = {**vectors.Vectors.from_files([file], "0" * 32, 7).descriptors["a"]}
    [sizes] = vectors.vectors_in_log([file])[1].values()
    assert vectors.is_large_vector(stored, sizes)
    assert not vectors.is_large_vector({**stored, "offset": offset}, sizes)


@pytest.mark.parametrize("limit", ["DELTA_CHECKPOINT_BYTES_MAX", "DELTA_CHECKPOINT_ROWS_MAX"])
def test_a_checkpoint_over_the_memory_limits_is_not_read(dirty, limit, monkeypatch):
    storage, _, horizon = dirty
    path = log.checkpoint_path(horizon)
    content = storage.read(path)
    assert checkpoints.large_vectors(content) is not None
    assert checkpoints.is_same_checkpoint(content, content)
    monkeypatch.setattr(checkpoints, limit, 3)
    assert checkpoints.large_vectors(content) is None
    assert not checkpoints.is_same_checkpoint(content, content)


def test_a_checkpoint_that_expands_to_many_long_strings_is_read_up_to_the_limit(monkeypatch):
    action = {"path": "x" * (64 << 10)}
    forged = pa.table({"metaData": [{"schemaString": ""}] * 500, "add": [action] * 500})
    out = pa.BufferOutputStream()
    pq.write_table(forged, out)
    content = out.getvalue().to_pybytes()
    assert len(content) < 1 << 20
    monkeypatch.setattr(checkpoints, "DELTA_CHECKPOINT_BYTES_MAX", 4 << 20)
    monkeypatch.setattr(checkpoints, "_BATCH_BYTES", 1 << 20)
    sizes, iter_batches = [], pq.ParquetFile.iter_batches

    def record_batch_sizes(*arguments, **keywords):
        for batch in iter_batches(*arguments, **keywords):
            sizes.append(batch.nbytes)
            yield batch

    with patch.object(pq.ParquetFile, "iter_batches", record_batch_sizes):
        assert not checkpoints.is_same_checkpoint(content, content)
    assert 3 << 20 < sum(sizes) < 6 << 20


def test_the_log_blocks_of_a_commit_and_partition_share_one_twin_file():
    storage, table = table_with_delta(**{"mdt.max.file.bytes": 4096, "mdt.small.file.bytes": 0})
    table.bulk_insert(rows(range(40), 1, 1.0))
    table.bulk_insert(rows(range(40, 80), 1, 1.0))
    groups = table.snapshot().file_groups.count
    before = {info.path for info in storage.list("")}
    table.upsert(rows(range(0, 80, 2), 2, 2.0))
    new_paths = {info.path for info in storage.list("")} - before
    twins = [path for path in new_paths if path.startswith(TWINS)]
    logs = [path for path in new_paths if ".log." in path]
    assert groups == 4 and len(logs) == 2 and len(twins) == 1
    twin = pq.read_table(pa.BufferReader(storage.read(twins[0])))
    blocks = table.scan("ts = 2").to_arrow()
    assert sorted(twin["id"].to_pylist()) == sorted(blocks["id"].to_pylist())
    assert pq.ParquetFile(pa.BufferReader(storage.read(twins[0]))).num_row_groups == 2
    assert_same_rows(storage)


def test_readers_begin_at_a_checkpoint_and_older_versions_expire(monkeypatch):
    monkeypatch.setattr(places, "CHECKPOINT_COMMITS", 4)
    storage, table = table_with_delta()
    for ts in range(1, 11):
        table.upsert(rows([ts % 4, 7], ts, 1.0))
    assert json.loads(storage.read(f"{LOG}/_last_checkpoint"))["version"] == 8
    for seq in range(11):
        assert_same_rows(storage, seq)
    table.clean(retain_commits=3)
    horizon = table.snapshot().retention.horizon
    assert versions(storage)[0] == horizon == 8
    for seq in range(horizon, table.snapshot().seq + 1):
        assert_same_rows(storage, seq)


def test_the_formats_of_a_table_must_include_hudi():
    schema = pa.schema({"id": pa.string()})
    for formats, text in ((["delta"], "every table has the format hudi"), (["orc"], "mdt.formats")):
        with pytest.raises(mdt.Invalid, match=text):
            mdt.create(MemoryStorage(), schema, ["id"], formats=formats)
    table = mdt.create(MemoryStorage(), schema, ["id"], formats=["hudi"])
    with pytest.raises(mdt.Invalid, match="every table has the format hudi"):
        table.alter(formats=["delta"])


LIES = ("[[2097152,1]]", "[[1048576,2]]", "[[2097152.,2]", "[[2097152,0]]", "[[2097152]]", "{}")


@pytest.mark.parametrize("blocks", LIES)
def test_a_twin_with_a_forged_list_of_blocks_is_refused(blocks):
    storage, table = table_with_delta()
    table.upsert(rows([2, 4, 6], 1, 1.0))
    table.upsert(rows([2, 4], 2, 1.0))
    [twin] = [info.path for info in storage.list(TWINS)]
    data, stored, snapshot = storage.read(twin), b"[[2097152,2]]", table.snapshot()
    assert data.count(stored) == 1 and len(blocks) <= len(stored)
    storage.replace(twin, data.replace(stored, blocks.ljust(len(stored)).encode()))
    logs = snapshot.live_numbers[snapshot.kind[snapshot.live_numbers] == LOG_KIND]
    with pytest.raises(mdt.Corrupt, match="a twin has no list of blocks.*checksum"):
        keeping.twins_of(Metadata(storage)).find(snapshot, logs.tolist())
    assert_refused_with_valid_checksum(storage, snapshot, logs)


@pytest.mark.parametrize("text", [b"[]", b'{"id":7}', b'{"id":"00"}', b"[" * 10_000])
def test_a_twin_with_forged_statistics_is_refused(text, monkeypatch):
    storage, table = table_with_delta()
    table.upsert(rows([2, 4, 6], 1, 1.0))
    compact = twins._compact
    forged = {dict: text.decode()}
    monkeypatch.setattr(twins, "_compact", lambda value: forged.get(type(value)) or compact(value))
    table.upsert(rows([2, 4], 2, 1.0))
    snapshot = table.snapshot()
    logs = snapshot.live_numbers[snapshot.kind[snapshot.live_numbers] == LOG_KIND]
    assert_refused_with_valid_checksum(storage, snapshot, logs)


def assert_refused_with_valid_checksum(storage, snapshot, logs):
    as_stored = patch.object(twins, "_crc", lambda entries: entries["mdt.crc"])
    with as_stored, pytest.raises(mdt.Corrupt, match="a twin has no list of blocks"):
        keeping.twins_of(Metadata(storage)).find(snapshot, logs.tolist())


def test_twins_have_bounds_of_all_their_rows():
    storage, table = table_with_delta()
    table.upsert(rows(range(0, 20, 2), 1, 1.0))
    table.upsert(rows([4, 8, 12], 7, 9.5))
    expected = {
        "minValues": {"id": "k12", "ts": 7, "fare": 9.5},
        "maxValues": {"id": "k8", "ts": 7, "fare": 9.5},
        "nullCount": {"id": 0, "ts": 0, "fare": 0},
    }
    twin = oldest_twin(storage)
    assert_has_stats(twin, expected)
    mdt.open(storage).upsert(rows([4], 8, 9.5))
    mdt.open(storage).delete(rows([8], 9, 1.0))
    twin = oldest_twin(storage)
    assert_has_stats(twin, expected)
    assert twin["deletionVector"]["cardinality"] == 2


def oldest_twin(storage):
    """Return the add action of the oldest twin."""
    files = [file for file in state(storage)[1] if TWINS in file["path"]]
    return min(files, key=lambda file: file["path"])


def assert_has_stats(file, bounds):
    stats = json.loads(file["stats"])
    assert {name: stats[name] for name in bounds} == bounds


def test_a_checkpoint_is_advanced_only_from_an_intact_one_and_else_rebuilt(monkeypatch):
    monkeypatch.setattr(places, "CHECKPOINT_COMMITS", 2)
    storage, table = table_with_delta()
    for ts in range(1, 4):
        table.upsert(rows(range(3), ts, 1.0))
    metadata, newest = Metadata(storage), table.snapshot()
    path, older = map(log.checkpoint_path, (3, 2))
    files = keeping.files_at(metadata, 3, newest)()
    in_log, _ = vectors.vectors_in_log(files)
    expected = checkpoint_bytes(files, newest.definition, in_log)
    stored = storage.read(older)
    advanced = log.advanced_checkpoint(storage, 3, newest.definition)
    assert DELTA.is_same(path, advanced, expected)
    forged = pa.BufferOutputStream()
    pq.write_table(pq.read_table(pa.BufferReader(stored)).slice(0, 3), forged)
    flipped = stored[:99] + bytes([stored[99] ^ 1]) + stored[100:]
    assert not is_intact(flipped) and not is_intact(forged.getvalue().to_pybytes())
    for other in (flipped, forged.getvalue().to_pybytes(), b"PAR1"):
        storage.replace(older, other)
        storage.delete(path)
        keeping.put_start(metadata, DELTA, 3, newest)
        assert DELTA.is_same(path, storage.read(path), expected)
    storage.delete(path)
    storage.delete(DELTA.path(1))
    keeping.put_start(metadata, DELTA, 3, newest)
    assert storage.size(path) is None, "no checkpoint is written if a version is missing"


def test_a_new_table_has_an_empty_version_0_and_a_hint(monkeypatch):
    monkeypatch.setattr(places, "CHECKPOINT_COMMITS", 2)
    storage, table = table_with_delta()
    table.upsert(rows(range(3), 1, 1.0))
    table.alter(drop=["fare"])
    for ts in (2, 3):
        table.upsert(rows(range(2), ts, 1.0).drop(["fare"]))
    assert table.check().ok
    path = log.checkpoint_path(4)
    content = storage.read(path)
    forged = pq.read_table(pa.BufferReader(content)).to_pylist()
    for row in forged:
        if row["add"]:
            row["add"]["stats"] = row["add"]["stats"].replace('"ts":', '"ts":1')
    out = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(forged, checkpoints._SCHEMA), out)
    storage.replace(path, out.getvalue().to_pybytes())
    assert [problem.path for problem in table.check().problems] == [path]


POINTERS = (
    b"",
    b"[" * 4000,
    b"{" * 100_000,
    b'{"version": 1e999}',
    b'{"version": -7}',
    b'{"version": true}',
    b'{"version": %s}' % (b"9" * 4000),
)


@pytest.mark.parametrize("pointer", POINTERS, ids=range(len(POINTERS)))
def test_a_damaged_checkpoint_pointer_is_reported_and_repaired(pointer):
    storage, table = table_with_delta()
    table.upsert(rows(range(3), 1, 1.0))
    storage.replace(log.POINTER, pointer)
    storage.delete(DELTA.path(1))
    table.upsert(rows(range(3), 2, 2.0))
    assert [problem.path for problem in table.check().problems] == [log.POINTER]
    assert table.repair().ok and table.check().ok
    assert_same_rows(storage)


@pytest.mark.parametrize("deep", [b"[" * 60_000, b'{"a":' * 10_000])
def test_a_deeply_nested_version_of_another_writer_is_refused(deep):
    storage, table = table_with_delta()
    storage.put_if_absent(DELTA.path(1), deep)
    with pytest.raises(mdt.Unsupported, match="another writer has written"):
        table.upsert(rows(range(3), 1, 1.0))


@pytest.mark.parametrize("part", ["", ".0000000001.0000000001", "." + "a" * 8])
def test_check_reports_and_repair_removes_checkpoints_of_other_programs(part):
    storage, table = table_with_delta()
    for ts in range(1, 4):
        table.upsert(rows(range(3), ts, 1.0))
    forged = checkpoint_bytes([], table.definition, {})
    paths = [f"{LOG}/{seq:020d}.checkpoint{part}.parquet" for seq in (2, 90)]
    for path in paths:
        storage.replace(path, forged)
    assert sorted(problem.path for problem in table.check().problems) == paths
    assert table.repair().ok
    assert table.check().ok
    assert_same_rows(storage)
