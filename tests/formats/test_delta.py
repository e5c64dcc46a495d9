"""The Delta log that our commits keep: its readers see our rows after every commit and every crash."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_tables import LOG, delta_rows, newest_version, state, versions
from pausing import Paused
from reader import bag
from worlds import COW, MODES, MOR, SCHEMA, as_state, make, rows, survivors

import mdt
from mdt import create_table
from mdt.errors import Unsupported
from mdt.formats import keeping, twins
from mdt.formats.delta import vectors
from mdt.formats.delta.log import DeltaLog
from mdt.formats.twins import FOLDER as TWINS
from mdt.metadata.files.file_group import LOG as LOG_KIND
from mdt.metadata.metadata import Metadata
from mdt.stores.storage import MemoryStorage
from mdt.testing.faulty import Crash

ON = {"mdt.formats": "hudi,delta", "mdt.services.auto": "false", "mdt.formats.retain.hours": 0}
DELTA = DeltaLog()

both_types = pytest.mark.parametrize("kind", [MOR, COW])


def table_with_delta(kind=MOR, storage=None, **options):
    storage = MemoryStorage() if storage is None else storage
    return storage, make(storage, kind, "record", **{**ON, **options})


def assert_same_rows(storage, seq=None):
    """Assert that Delta's readers see the newest commit, or an older one, as ours do."""
    table = mdt.open(storage)
    assert newest_version(storage) == table.snapshot().seq
    ours = table.scan(as_of=seq).to_arrow()
    assert bag(delta_rows(storage, SCHEMA, seq)) == bag(ours)


@both_types
@pytest.mark.parametrize("version", [6, 9])
def test_its_readers_see_the_rows_of_every_commit_of_a_random_history(kind, version):
    storage, table = table_with_delta(kind, **{"mdt.table.version": version})
    draw = random.Random(kind)
    for ts in range(1, 30):
        table.upsert(rows(draw.sample(range(30), 5), ts, 1.0))
        step = draw.random()
        if step < 0.2:
            table.delete(rows(draw.sample(range(30), 2), ts, 1.0))
        elif step < 0.3:
            table.compact()
        elif step < 0.4:
            table.cluster("fare")
        elif step < 0.5:
            table.clean(retain_commits=3)
        elif step < 0.6:
            table.delete_where("fare > 5 or id = 'k3'")
        elif step < 0.7:
            table.update_where({"fare": "7.0"}, "id = 'k4'")
        assert_same_rows(storage)
    for seq in range(table.snapshot().retention.horizon, table.snapshot().seq + 1):
        assert_same_rows(storage, seq)
    assert table.check().ok


def test_tables_without_other_formats_have_no_objects_of_them():
    storage = MemoryStorage()
    table = make(storage, MOR, "record")
    table.upsert(rows(range(6), 1, 1.0))
    table.upsert(rows(range(3), 2, 1.0))
    names = [info.path for info in storage.list("")]
    assert not [name for name in names if name.startswith((LOG, TWINS))]
    base = next(name for name in names if name.endswith(".parquet"))
    first = pq.read_schema(pa.BufferReader(storage.read(base))).field(0)
    assert not first.metadata, "no field ids"
    assert table.formats().to_pylist() == [{"format": "hudi", "seq": 2, "behind": 0}]


@both_types
@pytest.mark.parametrize("has_objects", [False, True])
def test_a_crash_at_any_change_of_a_commit_leaves_its_readers_behind_and_not_wrong(
    kind, has_objects, monkeypatch
):
    if has_objects:  # large vectors, and a checkpoint with the commit
        monkeypatch.setattr(vectors, "INLINE_BYTES_MAX", 10)
        monkeypatch.setattr(keeping, "CHECKPOINT_COMMITS", 2)

    def start():
        storage, table = table_with_delta(kind)
        for ts in range(1, 4):
            table.upsert(rows(range(ts, ts + 4), ts, 1.0))
        return storage

    def run(storage):
        mdt.open(storage).upsert(rows([1, 2, 9], 50, 2.0))

    before = as_state(mdt.open(start()).scan().to_arrow())
    assert_mended_after_each_crash(start, run, before)


def test_a_crash_at_any_change_of_a_cleaning_leaves_every_version_readable():
    def start():
        storage, table = table_with_delta()
        for ts in range(1, 5):
            table.upsert(rows(range(ts, ts + 4), ts, 1.0))
        table.compact()
        return storage

    def run(storage):
        mdt.open(storage).clean(retain_commits=1)

    before = as_state(mdt.open(start()).scan().to_arrow())
    assert_mended_after_each_crash(start, run, before)


def assert_mended_after_each_crash(start, run, before):
    """Assert that Delta's readers see the state before or after ``run`` wherever it crashes, and
    the newest one after the next write.
    """
    whole = start()
    run(whole)
    after = as_state(mdt.open(whole).scan().to_arrow())
    crashes = 0
    for where, survivor in survivors(start, run):
        crashes += 1
        assert as_state(delta_rows(survivor, SCHEMA)) in (before, after), where
        mdt.open(survivor).abort()
        mdt.open(survivor).upsert(rows([2], 60, 3.0))
        assert_same_rows(survivor)
        assert mdt.open(survivor).check().ok, where
    assert crashes > 5 * len(MODES)


def test_a_crash_while_a_table_is_made_leaves_no_table_or_one_that_is_mended():
    def run(storage):
        make(storage, MOR, "record", **ON)

    for where, survivor in survivors(MemoryStorage, run):
        if survivor.size(".hoodie/.mdt/log/" + "0" * 20) is None:
            continue
        mdt.open(survivor).upsert(rows([2], 60, 3.0))
        assert_same_rows(survivor)
        assert mdt.open(survivor).check().ok, where


@pytest.mark.parametrize("cleans", [False, True])
def test_a_publisher_that_pauses_anywhere_spoils_nothing_of_later_ones(cleans):
    for k in range(1, 200):
        storage, table = table_with_delta()
        for ts in range(1, 4):
            table.upsert(rows([ts % 4, 5], ts, 1.0))
        with patch.object(keeping, "keep", side_effect=Crash), pytest.raises(Crash):
            mdt.open(storage).upsert(rows([0, 1], 50, 2.0))

        def others(storage=storage):
            mdt.open(storage).abort()
            for ts in range(5):
                mdt.open(storage).upsert(rows([ts % 5], 100 + ts, 3.0))
            if cleans:
                mdt.open(storage).compact()
                mdt.open(storage).clean(retain_commits=1)

        slow = Paused(storage, others)
        metadata = Metadata(slow)
        newest = metadata.newest()
        slow.operations.clear()
        slow.k = k
        try:
            keeping.keep(metadata, metadata.record(newest.seq), newest)
        except mdt.Missing:
            assert cleans, "its log files are gone, and its version exists"
        if len(slow.operations) < k:
            break
        assert_same_rows(storage)
        mdt.open(storage).upsert(rows([2], 200, 4.0))
        assert_same_rows(storage)
        assert mdt.open(storage).check().ok
    assert k > 4


def test_writers_at_the_same_time_keep_one_log():
    storage, table = table_with_delta()

    def write(number):
        own = mdt.open(storage)
        for ts in range(1, 9):
            own.upsert(rows([10 * number + ts % 8], ts, 1.0))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert table.snapshot().seq >= 32
    assert_same_rows(storage)
    assert table.check().ok


def test_publishing_again_puts_the_same_bytes():
    storage, table = table_with_delta(storage=MemoryStorage())
    with patch.object(vectors, "INLINE_BYTES_MAX", 10):
        table.upsert(rows(range(12), 1, 1.0))
        for ts in range(2, 6):
            table.upsert(rows([ts % 4, 7], ts, 1.0))
        folders = (LOG, TWINS, vectors.FOLDER)
        paths = [info.path for folder in folders for info in storage.list(folder)]
        content = {path: storage.read(path) for path in paths}
        assert len(storage.list(vectors.FOLDER)) > 1
        storage.delete_many([path for path in paths if not path.endswith(f"{0:020d}.json")])
        metadata = Metadata(storage)
        newest = metadata.newest()
        keeping.keep(metadata, metadata.record(newest.seq), newest)
    assert {path: storage.read(path) for path in paths} == content


def test_the_version_of_another_writer_is_refused_by_name_and_repaired():
    storage, table = table_with_delta()
    table.upsert(rows(range(4), 1, 1.0))
    seq = table.snapshot().seq
    foreign = json.dumps({"commitInfo": {"engineInfo": "others-1.0"}}).encode()
    storage.replace(DELTA.path(seq + 1), foreign)
    with pytest.raises(Unsupported, match=r"another writer \(others-1.0\) has written _delta_log/"):
        table.upsert(rows([1], 2, 1.0))
    assert mdt.open(storage).snapshot().seq == seq
    [problem] = table.check().problems
    assert (problem.path, problem.kind) == (DELTA.path(seq + 1), "other format")
    assert table.repair().ok
    table.upsert(rows([1], 2, 1.0))
    assert_same_rows(storage)


def test_a_version_of_another_writer_beside_a_commit_is_refused_at_the_next_write():
    storage, table = table_with_delta()
    table.upsert(rows(range(4), 1, 1.0))
    path = DELTA.path(table.snapshot().seq + 1)
    keep = keeping.keep

    def beside(*given):
        if storage.size(path) is None:
            storage.replace(path, b"{}")
        keep(*given)

    with patch.object(keeping, "keep", beside):
        [warning, _] = table.upsert(rows([1], 2, 1.0)).warnings
    assert "another writer has written" in warning
    with pytest.raises(Unsupported, match="another writer has written"):
        table.upsert(rows([1], 3, 1.0))
    assert mdt.repair(storage).ok
    table.upsert(rows([1], 3, 1.0))
    assert_same_rows(storage)


@pytest.mark.parametrize("damage", ["version", "lost version", "twin", "vector", "checkpoint"])
def test_check_finds_damage_and_repair_derives_it_again(damage, monkeypatch):
    monkeypatch.setattr(vectors, "INLINE_BYTES_MAX", 10)
    monkeypatch.setattr(keeping, "CHECKPOINT_COMMITS", 3)
    storage, table = table_with_delta()
    for ts in range(1, 6):
        table.upsert(rows([ts % 4, 7], ts, 1.0))
    folder = {"twin": TWINS, "vector": vectors.FOLDER}.get(damage, LOG)
    paths = [info.path for info in storage.list(folder)]
    if damage == "checkpoint":
        path = DELTA.checkpoint(3, [], table.definition)[0]
        storage.replace(path, DELTA.checkpoint(3, [], table.definition)[1])
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


def test_check_finds_data_files_that_other_writers_of_the_format_leave(monkeypatch):
    monkeypatch.setattr(keeping, "CHECKPOINT_COMMITS", 1)
    storage, table = table_with_delta()
    table.upsert(rows(range(4), 1, 1.0))
    for path in ("city=x/part-00000-b4-c000.snappy.parquet", "part-00001-b4-c000.parquet"):
        storage.put_if_absent(path, b"PAR1")
        [problem] = table.check().problems
        assert problem.path == path and "another program" in problem.text
        assert_same_rows(storage)
        storage.delete(path)
    assert table.check().ok


def test_check_leaves_out_a_commit_that_the_next_writer_publishes():
    storage, table = table_with_delta()
    table.upsert(rows(range(4), 1, 1.0))
    with patch.object(keeping, "keep", side_effect=Crash), pytest.raises(Crash):
        mdt.open(storage).upsert(rows([0, 1], 2, 2.0))
    late = mdt.open(storage)
    assert late.formats().to_pylist()[1] == {"format": "delta", "seq": 1, "behind": 1}
    assert late.check().ok
    late.upsert(rows([5], 3, 1.0))
    assert late.formats().to_pylist()[1] == {"format": "delta", "seq": 3, "behind": 0}


def test_large_vectors_are_objects_that_go_with_the_states_that_need_them(monkeypatch):
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


def test_the_blocks_of_a_commit_and_partition_are_one_twin_beside_no_data_files():
    storage, table = table_with_delta(**{"mdt.max.file.bytes": 4096, "mdt.small.file.bytes": 0})
    table.bulk_insert(rows(range(40), 1, 1.0))
    table.bulk_insert(rows(range(40, 80), 1, 1.0))
    groups = table.snapshot().file_groups.count
    before = {info.path for info in storage.list("")}
    table.upsert(rows(range(0, 80, 2), 2, 2.0))
    new = {info.path for info in storage.list("")} - before
    twins = [path for path in new if path.startswith(TWINS)]
    logs = [path for path in new if ".log." in path]
    assert groups == 4 and len(logs) == 2 and len(twins) == 1
    twin = pq.read_table(pa.BufferReader(storage.read(twins[0])))
    blocks = table.scan("ts = 2").to_arrow()
    assert sorted(twin["id"].to_pylist()) == sorted(blocks["id"].to_pylist())
    assert pq.ParquetFile(pa.BufferReader(storage.read(twins[0]))).num_row_groups == 2
    assert_same_rows(storage)


def test_a_checkpoint_lets_readers_begin_later_and_older_versions_expire(monkeypatch):
    monkeypatch.setattr(keeping, "CHECKPOINT_COMMITS", 4)
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


def test_cleaning_keeps_files_for_a_day_after_the_commit_that_ended_them():
    storage, table = table_with_delta(COW, **{"mdt.formats.retain.hours": 24})
    for ts in range(1, 6):
        table.upsert(rows([1], ts, 1.0))
    assert table.clean(retain_commits=1).files == 0
    storage.sleep(25 * 3600)
    table.upsert(rows([1], 6, 1.0))
    assert table.clean(retain_commits=1).files == 4
    assert_same_rows(storage)


@both_types
def test_purging_leaves_no_byte_of_a_deleted_row(kind, monkeypatch):
    monkeypatch.setattr(vectors, "INLINE_BYTES_MAX", 10)
    storage, table = table_with_delta(kind, **{"mdt.compression": "uncompressed"})
    for ts in range(1, 4):
        table.upsert(rows([*range(100, 120), 777], ts, 1.0))
    table.delete(rows([777], 5, 1.0))
    table.purge()
    objects = [info.path for info in storage.list("")]
    assert not [path for path in objects if b"k777" in storage.read(path)]
    assert_same_rows(storage)
    assert table.check().ok


def test_an_upgraded_table_keeps_its_log():
    storage, table = table_with_delta(**{"mdt.table.version": 6})
    table.upsert(rows(range(4), 1, 1.0))
    table.upgrade(9)
    table.upsert(rows([1, 8], 2, 1.0))
    assert_same_rows(storage)
    assert table.check().ok


def test_a_table_whose_first_write_failed_can_be_made_again():
    storage, _ = table_with_delta()
    create_table.discard(storage)
    assert storage.list("") == []
    table_with_delta(storage=storage)[1].upsert(rows([1], 1, 1.0))
    assert_same_rows(storage)


def test_only_names_and_types_that_its_readers_read_alike_are_accepted():
    def refusal(**columns):
        schema = pa.schema({"id": pa.string(), **columns})
        with pytest.raises(mdt.Invalid) as caught:
            mdt.create(MemoryStorage(), schema, ["id"], formats=["hudi", "delta"])
        return str(caught.value)

    for type in (pa.time32("s"), pa.time64("us"), pa.duration("ms"), pa.list_(pa.time64("us"))):
        assert "the format Delta: column 'at" in refusal(at=type)
    assert "column 'fare amount' is 'fare_x20_amount' in files" in refusal(
        **{"fare amount": pa.int64()}
    )
    assert "column 's.a b'" in refusal(s=pa.struct([("a b", pa.int64())]))


def test_formats_include_hudi_and_are_not_shared_with_its_writers():
    schema = pa.schema({"id": pa.string()})
    for formats, text in ((["delta"], "every table has the format hudi"), (["orc"], "mdt.formats")):
        with pytest.raises(mdt.Invalid, match=text):
            mdt.create(MemoryStorage(), schema, ["id"], formats=formats)
    with pytest.raises(mdt.Invalid, match="share"):
        options = {"mdt.lock.provider": "storage", "mdt.formats": "hudi,delta"}
        mdt.create(MemoryStorage(), schema, ["id"], options=options)
    table = mdt.create(MemoryStorage(), schema, ["id"], formats=["hudi"])
    with pytest.raises(mdt.Invalid, match="every table has the format hudi"):
        table.alter(formats=["delta"])


LIES = ("[[2097152,1]]", "[[1048576,2]]", "[[2097152.,2]", "[[2097152,0]]", "[[2097152]]", "{}")


@pytest.mark.parametrize("blocks", LIES)
def test_a_twin_whose_footer_lies_is_refused(blocks):
    storage, table = table_with_delta()
    table.upsert(rows([2, 4, 6], 1, 1.0))
    table.upsert(rows([2, 4], 2, 1.0))
    [twin] = [info.path for info in storage.list(TWINS)]
    data, stored, snapshot = storage.read(twin), b"[[2097152,2]]", table.snapshot()
    assert data.count(stored) == 1 and len(blocks) <= len(stored)
    storage.replace(twin, data.replace(stored, blocks.ljust(len(stored)).encode()))
    logs = snapshot.live_numbers[snapshot.kind[snapshot.live_numbers] == LOG_KIND]
    with pytest.raises(mdt.Corrupt, match="a twin has no list of blocks.*checksum"):
        keeping.twins_of(Metadata(storage)).of_files(snapshot, logs.tolist())
    as_stored = patch.object(twins, "_crc", lambda entries: entries["mdt.crc"])
    with as_stored, pytest.raises(mdt.Corrupt, match="a twin has no list of blocks"):
        keeping.twins_of(Metadata(storage)).of_files(snapshot, logs.tolist())


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
    assert_has(twin, expected)
    mdt.open(storage).upsert(rows([4], 8, 9.5))
    mdt.open(storage).delete(rows([8], 9, 1.0))
    twin = oldest_twin(storage)
    assert_has(twin, expected)
    assert twin["deletionVector"]["cardinality"] == 2


def oldest_twin(storage):
    """Return the action that adds the oldest twin."""
    files = [file for file in state(storage)[1] if TWINS in file["path"]]
    return min(files, key=lambda file: file["path"])


def assert_has(file, bounds):
    stats = json.loads(file["stats"])
    assert {name: stats[name] for name in bounds} == bounds


def test_a_dry_run_puts_no_version():
    storage, table = table_with_delta()
    table.upsert(rows([2, 4, 6], 1, 1.0))
    before = [info.path for info in storage.list("")]
    assert table.upsert(rows([2, 8], 2, 1.0), dry_run=True).updated == 1
    assert [info.path for info in storage.list("")] == before


def test_alterations_that_its_readers_would_read_differently_are_refused():
    storage, table = table_with_delta()
    table.upsert(rows(range(4), 1, 1.0))
    table.alter(add={"tip": pa.int32()})
    assert newest_version(storage) == 2
    more = rows([1, 9], 2, 2.0).append_column("tip", pa.array([1, 2], pa.int32()))
    table.upsert(more)
    assert bag(delta_rows(storage, table.schema)) == bag(table.scan().to_arrow())
    for text, change in {
        "column 'charge' was 'fare'": {"rename": {"fare": "charge"}},
        "column 'tip' is int32 in older files": {"widen": {"tip": "int64"}},
        "column 'note' has a default": {"add": {"note": pa.string()}, "defaults": {"note": "-"}},
        "column 'at' has the type time64": {"add": {"at": pa.time64("us")}},
    }.items():
        with pytest.raises(mdt.Invalid, match=text):
            table.alter(**change, beyond_hudi=True)
    table.alter(drop=["tip"])
    assert bag(delta_rows(storage, table.schema)) == bag(table.scan().to_arrow())
    with pytest.raises(mdt.Invalid, match="column 'tip' would have the values of the dropped"):
        table.alter(add={"tip": pa.int32()}, beyond_hudi=True)
    assert table.check().ok


def test_a_forged_pointer_does_not_stop_versions():
    storage, table = table_with_delta()
    table.upsert(rows(range(3), 1, 1.0))
    storage.replace("_delta_log/_last_checkpoint", b'{"version": 999999999}')
    newest = DELTA.path(table.snapshot().seq)
    storage.delete(newest)
    table.upsert(rows(range(3), 2, 2.0))
    assert storage.size(newest) is not None
    assert [row["behind"] for row in table.formats().to_pylist()] == [0, 0]
    [problem] = table.check().problems
    assert problem.path == "_delta_log/_last_checkpoint"
    assert "another program has put" in problem.text
    assert table.repair().ok
    assert_same_rows(storage)


def test_a_checkpoint_follows_only_from_one_of_ours(monkeypatch):
    monkeypatch.setattr(keeping, "CHECKPOINT_COMMITS", 2)
    storage, table = table_with_delta()
    for ts in range(1, 4):
        table.upsert(rows(range(3), ts, 1.0))
    metadata, newest = Metadata(storage), table.snapshot()
    path, expected = keeping.checkpoint_of(metadata, DELTA, 3, newest)
    stored = storage.read(DELTA.checkpoint_path(2))
    advanced = DELTA.advanced_checkpoint(storage, 3, newest.definition)
    assert DELTA.is_same(path, advanced, expected)
    forged = pa.BufferOutputStream()
    pq.write_table(pq.read_table(pa.BufferReader(stored)).slice(0, 3), forged)
    flipped = stored[:99] + bytes([stored[99] ^ 1]) + stored[100:]
    for other in (flipped, forged.getvalue().to_pybytes()):
        storage.replace(DELTA.checkpoint_path(2), other)
        assert DELTA.advanced_checkpoint(storage, 3, newest.definition) is None
        storage.delete(path)
        keeping.put_checkpoint(metadata, DELTA, 3, newest)
        assert DELTA.is_same(path, storage.read(path), expected)


@pytest.mark.parametrize("part", ["", ".0000000001.0000000001", "." + "a" * 8])
def test_check_finds_checkpoints_of_other_programs(part):
    storage, table = table_with_delta()
    for ts in range(1, 4):
        table.upsert(rows(range(3), ts, 1.0))
    _, forged = DELTA.checkpoint(2, [], table.definition)
    paths = [f"{LOG}/{seq:020d}.checkpoint{part}.parquet" for seq in (2, 90)]
    for path in paths:
        storage.replace(path, forged)
    assert sorted(problem.path for problem in table.check().problems) == paths
    assert table.repair().ok
    assert table.check().ok
    assert_same_rows(storage)
