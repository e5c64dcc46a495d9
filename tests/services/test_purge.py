"""Purge: after it, no byte of a row that is not live stands anywhere in the directory of a
table.
"""

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
    """Return rows every value of which tells who it is of: number and ts."""
    n = list(ids)
    times = [7_000_000_000_000_000 + 1000 * i + ts for i in n]
    return pa.table(
        [
            [f"key<{i:04d}>" for i in n],
            [f"c{i % 2}" for i in n],
            times,
            [f"name<{i:04d}.{ts}>" for i in n],
            [f"word{i:04d}x{ts}y here" for i in n],
        ],
        schema=SCHEMA,
    )


def traces(i, ts, *, key):
    """Return the bytes that a row of :func:`rows` may leave; those of its key only if that is gone,
    too.
    """
    time = 7_000_000_000_000_000 + 1000 * i + ts
    found = [f"name<{i:04d}.{ts}>".encode(), f"word{i:04d}x{ts}y".encode()]
    found += [
        time.to_bytes(8, "little"),
        time.to_bytes(8, "big"),
        ((1 << 63) + time).to_bytes(8, "big"),
        ((1 << 63) + time).to_bytes(8, "little"),
    ]
    return found + ([f"key<{i:04d}>".encode()] if key else [])


def everything(storage):
    return {info.path: MemoryStorage.read(storage, info.path) for info in storage.list("")}


def holding(storage, wanted):
    """Return which of ``wanted`` stands where."""
    objects = everything(storage)
    return {
        one: path
        for one in wanted
        for path, data in objects.items()
        if one in data or one in path.encode()
    }


def hashes_left(table, ids):
    """Return the objects in which the hash of a key stands."""
    hashed = table.definition.key_hash.hash(pa.array([f"key<{i:04d}>" for i in ids])).hi
    wanted = [int(one).to_bytes(8, "little") for one in np.asarray(hashed).tolist()]
    return sorted(set(holding(table.storage, wanted).values()))


def lived(table_type, key_index):
    """Return a table with a history, and its live rows: number -> ts."""
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
    table.compact()  # what was deleted here is not to be seen in the files any more, but in key parts and shared objects
    write(range(100, 130), 3)
    delete(range(200, 210))
    table.cluster(["name"])
    delete(range(445, 450))
    write(range(500, 520), 4)
    table.drop_index("text(note)")
    return table, live


def _everybody():
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


def gone(live):
    """Return all bytes that must not be found."""
    found = []
    for i, times in _everybody().items():
        for ts in times - {live.get(i, -1)}:
            found += traces(i, ts, key=i not in live)
    return found


def read(table):
    found = table.scan(columns=["id", "name"]).to_arrow().to_pylist()
    return {row["id"]: row["name"] for row in found}


@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
@pytest.mark.parametrize("key_index", ["bloom", "record"])
def test_no_byte_is_left_of_rows_that_were_deleted_or_replaced(table_type, key_index):
    table, live = lived(table_type, key_index)
    expected = {f"key<{i:04d}>": f"name<{i:04d}.{ts}>" for i, ts in live.items()}
    wanted = gone(live)
    assert len(holding(table.storage, wanted)) > 0.4 * len(wanted), (
        "before, they are there, but for times that are stored as differences"
    )  # type: ignore[arg-type]
    report = table.purge()
    assert (
        report.groups > 0 and report.objects > 0 and report.records > 0 and report.ended is not None
    )
    assert holding(table.storage, wanted) == {}  # type: ignore[arg-type]
    dead = [i for i in _everybody() if i not in live]
    assert hashes_left(table, dead) == []
    count("traces of rows looked for after a purge", len(wanted) + len(dead))
    for opened in (table, mdt.open(table.storage)):
        assert read(opened) == expected
        assert opened.scan("name = 'name<0390.2>'").count() == 1
        assert opened.get([{"id": "key<0001>", "city": "c1"}], missing="skip").num_rows == 0
    assert table.check().ok and not table.check().warnings
    with pytest.raises(Expired):
        table.scan(as_of=1)
    again = table.purge()
    assert (again.groups, again.ended) == (0, None)
    table.upsert(rows(range(30, 60), 9))
    assert len(read(table)) == len(live) + 10 and table.check().ok
    assert table.history()["seq"].to_pylist() == list(range(table.snapshot().seq + 1))


@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_buckets_stay_buckets_in_a_purge(table_type):
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
    assert len(read(table)) == 200 and table.check().ok


def test_hudi_reads_the_same_rows_after_a_purge(tmp_path):
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


def test_a_purge_ends_leases_and_waits_for_nobody():
    table, _ = lived("MERGE_ON_READ", "record")
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


def test_a_purge_that_dies_is_carried_out_by_the_next():
    start, live = lived("MERGE_ON_READ", "bloom")
    expected = {f"key<{i:04d}>": f"name<{i:04d}.{ts}>" for i, ts in live.items()}
    whole = FaultyStorage(start.storage.copy())
    mdt.open(whole).purge()
    steps = len(whole.operations)
    for k in range(1, steps + 1, max(1, steps // 12)):
        storage = start.storage.copy()
        with pytest.raises(Crash):
            mdt.open(FaultyStorage(storage, k, "after")).purge()
        count("crash points")
        table = mdt.open(storage)
        assert read(table) == expected
        table.abort()
        table.purge()
        assert holding(storage, gone(live)) == {}
        assert read(table) == expected
        report = table.check()
        assert report.ok, str(report)


def test_a_purge_after_one_of_whose_commits_a_reply_was_lost_does_not_take_itself_for_another_transaction():
    start, live = lived("MERGE_ON_READ", "bloom")
    whole = FaultyStorage(start.storage.copy())  # type: ignore[attr-defined]
    mdt.open(whole).purge()
    published = [
        k for k, told in enumerate(whole.operations, 1) if re.search(r"\.hoodie/\d+\.", told)
    ]
    assert len(published) > 3
    for k in published:
        storage = start.storage.copy()  # type: ignore[attr-defined]
        with suppress(Unavailable):
            mdt.open(FaultyStorage(storage, k, "lost_reply")).purge()
            assert holding(storage, gone(live)) == {}
        count("crash points")
        table = mdt.open(storage)
        table.abort()
        table.purge()
        assert holding(storage, gone(live)) == {} and table.check().ok


def test_values_of_a_column_that_was_dropped_go_too_and_tags_with_them():
    table, live = lived("MERGE_ON_READ", "record")
    table.tag("before")
    table.alter(drop=["note"])
    table.purge()
    wanted = [f"word{i:04d}x{ts}y".encode() for i, times in _everybody().items() for ts in times]
    assert holding(table.storage, [*gone(live), *wanted]) == {}  # type: ignore[arg-type]
    assert not len(table.tags()) and len(read(table)) == len(live) and table.check().ok


def test_no_byte_is_left_in_hudis_metadata_table():
    options = {**OPTIONS, "mdt.table.version": 9, "mdt.hudi.record.index": True}
    table = mdt.create(
        MemoryStorage(), SCHEMA, key=["id"], ordering="ts", key_index="record", options=options
    )
    for n in range(4):
        table.upsert(rows([n], 1))
    table.delete(rows([3], 2))
    wanted = traces(3, 1, key=True)
    assert any(".hoodie/metadata/" in path for path in holding(table.storage, wanted).values())
    table.purge()
    assert holding(table.storage, wanted) == {}
    assert table.storage.list(".hoodie/metadata/"), "it is made again"
    assert table.check().ok and not table.check().warnings


def test_no_key_is_left_of_a_file_group_that_has_lost_all_rows():
    table = mdt.create(MemoryStorage(), SCHEMA, key=["id"], key_index="bloom", options=OPTIONS)
    table.bulk_insert(rows([3], 1))
    table.delete(rows([3], 2))
    table.compact()
    table.purge()
    assert holding(table.storage, traces(3, 1, key=True)) == {}
    assert table.check().ok


def test_a_table_that_has_lost_nothing_is_not_written_anew():
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
