"""Purge: afterwards no file in the directory of a table contains a byte of a row that is not live."""

import re
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest
from counting import count
from reader import agreed
from texts import columns

import mdt
from mdt.errors import Conflict, Expired, Unavailable
from mdt.stores.storage import LocalStorage, MemoryStorage
from mdt.testing.faulty import Crash, FaultyStorage

SCHEMA = columns("id string, city string, ts int64, name string, note string")
INDEXES = ["bitmap(name)", "text(note)", "bloom(name)", "column_stats(ts)"]
OPTIONS = {
    "mdt.compression": "uncompressed",
    "mdt.services.auto": False,
    "mdt.writer.threads": 1,
    "mdt.write.footer.bloom": False,
}


def rows(ids, ts):
    """Return rows whose values each identify their row and version: number and ts."""
    numbers = list(ids)
    times = [7_000_000_000_000_000 + 1000 * i + ts for i in numbers]
    return pa.table(
        [
            [f"key<{i:04d}>" for i in numbers],
            [f"c{i % 2}" for i in numbers],
            times,
            [f"name<{i:04d}.{ts}>" for i in numbers],
            [f"word{i:04d}x{ts}y here" for i in numbers],
        ],
        schema=SCHEMA,
    )


def traces(i, ts, *, key):
    """Return the byte strings that a row of :func:`rows` may leave. With ``key`` these include the
    record key.
    """
    time = 7_000_000_000_000_000 + 1000 * i + ts
    patterns = [f"name<{i:04d}.{ts}>".encode(), f"word{i:04d}x{ts}y".encode()]
    patterns += [
        time.to_bytes(8, "little"),
        time.to_bytes(8, "big"),
        ((1 << 63) + time).to_bytes(8, "big"),
        ((1 << 63) + time).to_bytes(8, "little"),
    ]
    return patterns + ([f"key<{i:04d}>".encode()] if key else [])


def all_objects(storage):
    return {info.path: MemoryStorage.read(storage, info.path) for info in storage.list("")}


def find_bytes(storage, patterns):
    """Return, for each of ``patterns`` that is found, the path of an object that contains it."""
    objects = all_objects(storage)
    return {
        pattern: path
        for pattern in patterns
        for path, data in objects.items()
        if pattern in data or pattern in path.encode()
    }


def paths_with_hashes(table, ids):
    """Return the paths of the objects that contain the hash of a key."""
    hashed = table.definition.key_hash.hash(pa.array([f"key<{i:04d}>" for i in ids])).hi
    patterns = [int(value).to_bytes(8, "little") for value in np.asarray(hashed).tolist()]
    return sorted(set(find_bytes(table.storage, patterns).values()))


def table_with_history(table_type, key_index):
    """Return a table with a history, and its live rows as a dict of number to ts."""
    storage = MemoryStorage()
    table = mdt.create(
        storage,
        SCHEMA,
        key=["id"],
        partition_by=["city"],
        ordering="ts",
        table_type=table_type,
        key_index=key_index,
        indexes=INDEXES,
        options={
            **OPTIONS,
            "mdt.max.file.bytes": 20_000,
            "mdt.metadata.compact.records": 3,
            "mdt.delete.keeps.ordering": True,
        },
    )
    live = {}

    def write(ids, ts):
        table.upsert(rows(ids, ts))
        live.update(dict.fromkeys(ids, ts))

    def delete(ids):
        table.delete(rows(ids, 0).select(["id", "city"]))
        for i in ids:
            live.pop(i, None)

    table.bulk_insert(rows(range(400), 1))
    live.update(dict.fromkeys(range(400), 1))
    write(range(390, 450), 2)
    delete(range(40))
    table.compact()  # rows deleted here are no longer in data files, but in key parts and shared objects
    write(range(100, 130), 3)
    delete(range(200, 210))
    table.cluster(["name"])
    delete(range(445, 450))
    write(range(500, 520), 4)
    table.drop_index("text(note)")
    return table, live


def _versions_written():
    written = {}
    for ids, ts in (
        (range(400), 1),
        (range(390, 450), 2),
        (range(100, 130), 3),
        (range(500, 520), 4),
    ):
        for i in ids:
            written.setdefault(i, set()).add(ts)
    return written


def patterns_of_removed_rows(live):
    """Return all byte strings that must not be found."""
    patterns = []
    for i, times in _versions_written().items():
        for ts in times - {live.get(i, -1)}:
            patterns += traces(i, ts, key=i not in live)
    return patterns


def names_by_id(table):
    rows_found = table.scan(columns=["id", "name"]).to_arrow().to_pylist()
    return {row["id"]: row["name"] for row in rows_found}


@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
@pytest.mark.parametrize("key_index", ["bloom", "record"])
def test_a_purge_leaves_no_byte_of_deleted_or_replaced_rows(table_type, key_index):
    table, live = table_with_history(table_type, key_index)
    expected = {f"key<{i:04d}>": f"name<{i:04d}.{ts}>" for i, ts in live.items()}
    patterns = patterns_of_removed_rows(live)
    assert len(find_bytes(table.storage, patterns)) > 0.4 * len(patterns), (
        "before the purge they are stored, except times encoded as differences"
    )  # type: ignore[arg-type]
    report = table.purge()
    assert (
        report.groups > 0 and report.objects > 0 and report.records > 0 and report.ended is not None
    )
    assert find_bytes(table.storage, patterns) == {}  # type: ignore[arg-type]
    removed = [i for i in _versions_written() if i not in live]
    assert paths_with_hashes(table, removed) == []
    count("traces of rows looked for after a purge", len(patterns) + len(removed))
    for reader in (table, mdt.open(table.storage)):
        assert names_by_id(reader) == expected
        assert reader.scan("name = 'name<0390.2>'").count() == 1
        assert reader.get([{"id": "key<0001>", "city": "c1"}], missing="skip").num_rows == 0
    assert table.check().ok and not table.check().warnings
    with pytest.raises(Expired):
        table.scan(as_of=1)
    second = table.purge()
    assert (second.groups, second.ended) == (0, None)
    table.upsert(rows(range(30, 60), 9))
    assert len(names_by_id(table)) == len(live) + 10 and table.check().ok
    assert table.history()["seq"].to_pylist() == list(range(table.snapshot().seq + 1))


@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_a_purge_keeps_the_buckets_of_a_bucket_index(table_type):
    table = mdt.create(
        MemoryStorage(),
        SCHEMA,
        key=["id"],
        partition_by=["city"],
        table_type=table_type,
        key_index="bucket(buckets='2')",
        options=OPTIONS,
    )
    table.bulk_insert(rows(range(100), 1))
    table.delete(rows(range(10), 1).select(["id", "city"]))
    assert table.purge().groups == 4 and table.check().ok
    table.upsert(rows(range(200), 2))
    buckets = set(table.files()["file_id"].to_pylist())
    assert len(buckets) == 4 and {name[:8] for name in buckets} == {"00000000", "00000001"}
    assert len(names_by_id(table)) == 200 and table.check().ok


def test_hudi_rs_reads_the_same_rows_after_a_purge(tmp_path):
    table = mdt.create(
        LocalStorage(tmp_path, durable=False),
        SCHEMA,
        key=["id"],
        partition_by=["city"],
        ordering="ts",
        options=OPTIONS,
    )
    table.bulk_insert(rows(range(100), 1))
    table.delete(rows(range(10), 1))
    table.upsert(rows(range(50, 60), 2))
    for step in (table.purge, lambda: table.upsert(rows(range(5, 20), 3)), table.purge):
        step()
        agreed(table)


def test_a_purge_expires_leases_and_raises_while_transactions_are_running():
    table, _ = table_with_history("MERGE_ON_READ", "record")
    with table.leased(600) as view:
        table.purge()
        with pytest.raises(Expired):
            view.scan().to_arrow()
    storage = table.storage.copy()  # type: ignore[attr-defined]
    table.delete(rows(range(60, 70), 0))
    with pytest.raises(Crash):
        mdt.open(FaultyStorage(storage, 5)).upsert(rows(range(3), 9))
    with pytest.raises(Conflict, match="transactions are running"):
        mdt.open(storage).purge()


def test_a_crashed_purge_is_completed_by_the_next_purge():
    start, live = table_with_history("MERGE_ON_READ", "bloom")
    expected = {f"key<{i:04d}>": f"name<{i:04d}.{ts}>" for i, ts in live.items()}
    completed = FaultyStorage(start.storage.copy())
    mdt.open(completed).purge()
    steps = len(completed.operations)
    for k in range(1, steps + 1, max(1, steps // 12)):
        storage = start.storage.copy()
        with pytest.raises(Crash):
            mdt.open(FaultyStorage(storage, k, "after")).purge()
        count("crash points")
        table = mdt.open(storage)
        assert names_by_id(table) == expected
        table.abort()
        table.purge()
        assert find_bytes(storage, patterns_of_removed_rows(live)) == {}
        assert names_by_id(table) == expected
        report = table.check()
        assert report.ok, str(report)


def test_a_purge_whose_commit_lost_its_reply_does_not_conflict_with_itself():
    start, live = table_with_history("MERGE_ON_READ", "bloom")
    completed = FaultyStorage(start.storage.copy())  # type: ignore[attr-defined]
    mdt.open(completed).purge()
    published = [
        k
        for k, operation in enumerate(completed.operations, 1)
        if re.search(r"\.hoodie/\d+\.", operation)
    ]
    assert len(published) > 3
    for k in published:
        storage = start.storage.copy()  # type: ignore[attr-defined]
        with suppress(Unavailable):
            mdt.open(FaultyStorage(storage, k, "lost_reply")).purge()
            assert find_bytes(storage, patterns_of_removed_rows(live)) == {}
        count("crash points")
        table = mdt.open(storage)
        table.abort()
        table.purge()
        assert find_bytes(storage, patterns_of_removed_rows(live)) == {} and table.check().ok


def test_a_purge_also_removes_values_of_dropped_columns_and_tags():
    table, live = table_with_history("MERGE_ON_READ", "record")
    table.tag("before")
    table.alter(drop=["note"])
    table.purge()
    dropped_values = [
        f"word{i:04d}x{ts}y".encode() for i, times in _versions_written().items() for ts in times
    ]
    assert find_bytes(table.storage, [*patterns_of_removed_rows(live), *dropped_values]) == {}  # type: ignore[arg-type]
    assert not len(table.tags()) and len(names_by_id(table)) == len(live) and table.check().ok


def test_a_purge_leaves_no_byte_of_deleted_rows_in_hudis_metadata_table():
    options = {**OPTIONS, "mdt.table.version": 9, "mdt.hudi.record.index": True}
    table = mdt.create(
        MemoryStorage(), SCHEMA, key=["id"], ordering="ts", key_index="record", options=options
    )
    for n in range(4):
        table.upsert(rows([n], 1))
    table.delete(rows([3], 2))
    patterns = traces(3, 1, key=True)
    assert any(".hoodie/metadata/" in path for path in find_bytes(table.storage, patterns).values())
    table.purge()
    assert find_bytes(table.storage, patterns) == {}
    assert table.storage.list(".hoodie/metadata/"), "the metadata table is created again"
    assert table.check().ok and not table.check().warnings


def test_a_purge_leaves_no_key_of_a_file_group_without_live_rows():
    table = mdt.create(MemoryStorage(), SCHEMA, key=["id"], key_index="bloom", options=OPTIONS)
    table.bulk_insert(rows([3], 1))
    table.delete(rows([3], 2))
    table.compact()
    table.purge()
    assert find_bytes(table.storage, traces(3, 1, key=True)) == {}
    assert table.check().ok


def test_a_purge_rewrites_only_file_groups_with_deleted_rows():
    storage = MemoryStorage()
    table = mdt.create(
        storage, SCHEMA, key=["id"], partition_by=["city"], options=OPTIONS, indexes=INDEXES
    )
    table.bulk_insert(rows(range(100), 1))
    before = table.files()["name"].to_pylist()
    report = table.purge()
    assert report.groups == 0 and table.files()["name"].to_pylist() == before
    table.delete(rows([1], 1))
    assert 0 < table.purge().groups <= 2
