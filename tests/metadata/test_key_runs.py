"""Key indexes in a local store beside the table find every key, even if the store is damaged."""

import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from key_stores import assert_knows_the_table
from texts import columns

import mdt
from mdt.metadata.files.attachments import ObjectReader
from mdt.metadata.keys import key_runs
from mdt.session import session
from mdt.stores import key_store

SCHEMA = columns("id int64, city string, x double")
BOTH = pytest.mark.parametrize("key_index", ["memory", "lmdb"])


def rows(ids, x=0.0):
    return pa.table([list(ids), [f"c{i % 3}" for i in ids], [x] * len(ids)], schema=SCHEMA)


def create_table(path, key_index, scope="partition", **options):
    settings = {
        "mdt.durable": False,
        "mdt.key.store.dir": str(path / "keys"),
        "mdt.max.file.bytes": 4096,
        **options,
    }
    more = {"partition_by": ["city"], "key_index": key_index, "scope": scope}
    return mdt.create(path / "t", SCHEMA, ["id"], options=settings, **more)


def open_table(path, folder, **more):
    """Open the table at ``path`` with the key store of :func:`create_table` in ``folder``."""
    return mdt.open(path, {"mdt.key.store.dir": str(folder / "keys")}, **more)


def record_key_map_reads(table, monkeypatch):
    """Return a list that receives each key map that is read."""
    reads = []
    original = ObjectReader.key_map

    def record_read(self, stored):
        reads.append(stored)
        return original(self, stored)

    monkeypatch.setattr(ObjectReader, "key_map", record_read)
    return reads


def forget(table):
    """Clear this process's cache of the table's keys, as if it were another process."""
    session().clear()


def store_of(table):
    snapshot = table.snapshot()
    return key_runs.store_of(table.metadata, snapshot, table.metadata.key_index(snapshot))


def run_count(table, scope="city=c0"):
    """Return the number of runs of a partition in the store."""
    with store_of(table).begin(write=False) as view:
        return len(view.items(key_runs.prefix(table.definition.table_id, scope)))


@BOTH
def test_keys_are_found_after_a_restore(tmp_path, key_index):
    table = create_table(tmp_path, key_index, "table")
    table.bulk_insert(rows(range(500)))
    table.upsert(rows(range(400, 600), 1.0))
    table.delete(rows(range(0, 600, 5)))
    table.compact()
    table.restore(2)
    assert not table.snapshot().key_parts and not table.snapshot().uncovered
    assert assert_knows_the_table(table) >= 600
    forget(table)
    assert open_table(table.storage, tmp_path).get([7, 599])["x"].to_pylist() == [0.0, 1.0]


def test_another_process_locates_keys_from_the_store_without_reading_their_key_maps(
    tmp_path, monkeypatch
):
    table = create_table(tmp_path, "lmdb")
    table.bulk_insert(rows(range(2_000)))
    table.scan("id = 5").count()
    reads = record_key_map_reads(table, monkeypatch)
    reopened = open_table(table.path, tmp_path)
    assert len(reopened.files()) == len(table.files()) > 3 and reopened.scan("id = 5").count() == 1
    assert len(reads) == 1, "only the key map of the file with the key"


@BOTH
def test_only_key_maps_of_the_requested_partitions_are_read(tmp_path, key_index, monkeypatch):
    table = create_table(tmp_path, key_index)
    table.bulk_insert(rows(range(2_000)))
    forget(table)
    reads = record_key_map_reads(table, monkeypatch)
    reopened = open_table(table.path, tmp_path)
    reopened.upsert(rows([3, 6], 1.0))
    files = reopened.files()["partition"].to_pylist().count("city=c0")
    assert len({stored.offset for stored in reads}) <= files
    assert run_count(reopened) and not run_count(reopened, "city=c1")


def test_the_store_has_few_runs_after_many_commits(tmp_path):
    table = create_table(tmp_path, "memory", **{"mdt.max.file.bytes": 1 << 20})
    for n in range(60):
        table.upsert(rows(range(30 * n, 30 * n + 30)))
        table.scan("id = 0").count()
    assert run_count(table) <= 4
    assert assert_knows_the_table(table) >= 1_800


@BOTH
@pytest.mark.parametrize("damage", ["flip", "cut", "gone", "other"])
def test_a_damaged_store_is_rebuilt(tmp_path, key_index, damage):
    table = create_table(tmp_path, key_index)
    table.bulk_insert(rows(range(300)))
    table.upsert(rows(range(300, 330)))
    table.scan("id = 0").count()
    draw = np.random.default_rng(5)
    for _ in range(12):
        with store_of(table).begin(write=True) as view:
            for key, data in [(key, bytearray(data)) for key, data in view.items(b"")]:
                at = int(draw.integers(len(data)))
                if damage == "flip":
                    data[at] ^= 1 << int(draw.integers(8))
                    view.put(key, bytes(data))
                elif damage == "gone":
                    view.delete(key)
                else:
                    view.put(key, bytes(data[:at]) if damage == "cut" else b"something else")
        done = table.upsert(rows(range(310, 320), 1.0))
        assert (done.inserted, done.updated) == (0, 10)
    assert assert_knows_the_table(table) >= 330


@BOTH
def test_two_copies_of_a_table_with_different_commits_share_a_store_without_errors(
    tmp_path, key_index
):
    table = create_table(tmp_path, key_index)
    table.upsert(rows(range(30)))
    shutil.copytree(tmp_path / "t", tmp_path / "copy")
    other = open_table(tmp_path / "copy", tmp_path)
    for n in range(4):
        table.upsert(rows(range(100 * n + 30, 100 * n + 40)))
        other.upsert(rows(range(100 * n + 60, 100 * n + 70)))
        assert table.upsert(rows(range(100 * n + 30, 100 * n + 40), 1.0)).inserted == 0
        assert other.upsert(rows(range(100 * n + 30, 100 * n + 50), 1.0)).inserted == 20
        assert other.upsert(rows(range(100 * n + 60, 100 * n + 70), 1.0)).inserted == 0
    for each_table in (table, other):
        assert_knows_the_table(each_table)


@BOTH
def test_a_table_restored_from_a_backup_finds_the_keys_of_the_backup(tmp_path, key_index):
    table = create_table(tmp_path, key_index)
    table.upsert(rows(range(30)))
    shutil.copytree(tmp_path / "t", tmp_path / "backup")
    table.upsert(rows(range(30, 60)))
    table.compact()
    table.scan("id = 0").count()
    shutil.rmtree(tmp_path / "t")
    shutil.copytree(tmp_path / "backup", tmp_path / "t")
    restored = open_table(tmp_path / "t", tmp_path)
    assert restored.upsert(rows(range(60), 1.0)).inserted == 30
    assert_knows_the_table(restored)


@BOTH
def test_keys_are_found_in_past_snapshots_while_the_store_has_the_newest(tmp_path, key_index):
    table = create_table(tmp_path, key_index)
    table.upsert(rows(range(30)))
    table.upsert(rows(range(20, 60), 1.0))
    table.compact()
    table.delete(rows(range(10)))
    table.scan("id = 0").count()
    for seq, count in ((1, 30), (2, 60), (3, 60), (4, 50)):
        past = open_table(table.path, tmp_path, as_of=seq)
        assert past.get(list(range(60)), missing="skip").num_rows == count


def test_a_store_that_cannot_be_opened_costs_time_but_no_keys(tmp_path, caplog):
    (tmp_path / "file").write_text("no directory")
    table = create_table(tmp_path, "lmdb", **{"mdt.key.store.dir": str(tmp_path / "file")})
    table.upsert(rows(range(30)))
    assert table.upsert(rows(range(20, 40), 1.0)).inserted == 10 and table.check().ok
    assert "keys are looked up in all file groups" in caplog.text


def test_a_transaction_of_a_store_is_atomic(tmp_path):
    for store in (key_store.MemoryStore(), key_store.open_key_store(str(tmp_path), durable=False)):
        with store.begin(write=True) as view:
            for key, value in ((b"b", b"1"), (b"a", b"2"), (b"aa", b"3")):
                view.put(key, value)
        with pytest.raises(RuntimeError), store.begin(write=True) as view:
            view.put(b"c", b"4")
            view.delete(b"a")
            raise RuntimeError
        with store.begin(write=False) as view:
            found = [(key, bytes(data)) for key, data in view.items(b"a")]
            assert found == [(b"a", b"2"), (b"aa", b"3")]
            assert len(view.items(b"")) == 3


@BOTH
def test_threads_share_the_keys_that_one_of_them_has_read(tmp_path, key_index):
    table = create_table(tmp_path, key_index)
    table.bulk_insert(rows(range(1_000)))
    forget(table)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda n: table.get([n])["id"].to_pylist(), range(0, 1_000, 50)))
    assert results == [[n] for n in range(0, 1_000, 50)]
    assert_knows_the_table(table)
