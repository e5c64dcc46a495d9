"""Files rewritten row group by row group are byte for byte those that a rewrite in memory makes."""

import errno
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mdt
from indexes.base import KeyHashes
from mdt.errors import Corrupt, Unavailable
from mdt.metadata.files import key_map, large_key_map
from mdt.metadata.files.large_key_map import LargeKeyMap
from mdt.stores.scratch import Scratch, Sink
from mdt.stores.storage import MemoryStorage
from mdt.write import large_files, new_files


def upsert(table):
    return table.upsert(data(5, range(20, 140)))


COW, MOR = "COPY_ON_WRITE", "MERGE_ON_READ"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("fare", pa.float64()),
        ("note", pa.string()),
        ("at", pa.struct([("lat", pa.float32()), ("road", pa.string())])),
        ("tags", pa.list_(pa.float64())),
    ]
)
GROUP_ROWS = 7


def data(seed, ids, *, nans=False, shuffled=False):
    """Return rows with the keys ``ids``."""
    draw, n = np.random.default_rng(seed), len(ids)
    fare = draw.random(n)
    if nans:
        fare[draw.integers(0, n)] = np.nan
    order = draw.permutation(n) if shuffled else np.arange(n)
    return pa.table(
        {
            "id": np.array(ids)[order],
            "city": draw.choice(["Oslo", "Rome"], n),
            "ts": draw.integers(0, 9, n),
            "fare": fare,
            "note": [None if x == 3 else "é" * x for x in draw.integers(0, 9, n).tolist()],
            "at": [
                {"lat": float(x), "road": f"r{x}"} if x else None
                for x in draw.integers(0, 4, n).tolist()
            ],
            "tags": [[0.5] * x for x in draw.integers(0, 3, n).tolist()],
        },
        schema=SCHEMA,
    )


def objects(storage):
    return {info.path: storage.read(info.path) for info in storage.list("")}


def record_contents(table):
    """Return the content of the commit records, without the estimated sizes of columns in memory."""
    contents = []
    for seq in range(table.snapshot().seq + 1):
        record = table._metadata.record(seq)
        parts = {
            name: record.table(name)
            for name in ("files", "slices", "removed", "stats", "vectors", "fresh")
        }
        parts["stats"] = parts["stats"].drop_columns(["bytes"])
        contents.append((record.header, {name: part.to_pylist() for name, part in parts.items()}))
    return contents


@pytest.fixture
def rewrites(monkeypatch):
    """Row counts of the files that were rewritten row group by row group. Every file of several row
    groups counts as large.
    """
    row_counts = []

    def counted(*of, **more):
        result = large_files.rewrite(*of, **more)
        row_counts.append(result[0].rows)
        return result

    monkeypatch.setattr(large_files, "_FILE_SHARE", 1 << 60)
    monkeypatch.setattr(large_key_map, "_PART_ROWS", 8)
    monkeypatch.setattr(new_files, "rewrite", counted)
    yield row_counts


HISTORIES = {
    "upserts": (
        {},
        lambda t: [t.upsert(data(n, range(30 * n, 30 * n + 60, 1 + n))) for n in (1, 2)],
    ),
    "rows before, between and behind": ({}, lambda t: t.upsert(data(5, range(-9, 220, 3)))),
    "rows that are out of order": (
        {"at_first": "bulk_insert"},
        lambda t: t.upsert(data(5, range(50, 120), shuffled=True)),
    ),
    "nan comes": ({}, lambda t: t.upsert(data(5, range(20, 40), nans=True))),
    "nan stands": ({"nans": True}, lambda t: t.upsert(data(5, range(20, 40)))),
    "delete": ({}, lambda t: t.delete({"id": list(range(3, 60)), "city": ["Oslo"] * 57})),
    "delete of whole row groups": ({}, lambda t: t.delete_where("id between 10 and 60")),
    "delete of all": ({}, lambda t: t.delete_where("id >= 0")),
    "update by condition": ({}, lambda t: t.update_where({"note": "'x'"}, "fare < 0.3")),
    "ordering": ({"ordering": "ts"}, upsert),
    "table scope": ({"scope": "table", "partition_by": ["city"]}, upsert),
    "bucket": ({"key_index": "bucket(buckets='2')"}, upsert),
    "compaction": (
        {"table_type": MOR},
        lambda t: [*(t.upsert(data(n, range(9 * n, 90 * n, n))) for n in (1, 2, 3)), t.compact()],
    ),
    "compaction of deletes": (
        {"table_type": MOR, "ordering": "ts"},
        lambda t: [t.delete_where("fare < 0.5"), t.compact()],
    ),
    "positions": (
        {"table_type": MOR, "mdt.write.record.positions": True},
        lambda t: [t.upsert(data(2, range(9, 90))), t.compact()],
    ),
    "indexes": ({"indexes": ["bitmap(city)", "bloom(note)", "column_stats(fare)"]}, upsert),
    "filters that grow": (
        {
            "mdt.bloom.filter.type": "DYNAMIC_V0",
            "mdt.bloom.entries": 20,
            "mdt.bloom.entries.max": 50,
        },
        upsert,
    ),
    "zstd": ({"mdt.compression": "zstd"}, upsert),
    "a column that files lack": (
        {},
        lambda t: [t.alter(add={"more": pa.float64()}), t.delete_where("id < 8")],
    ),
    "keys that repeat": (
        {"mdt.keys.repeat": True},
        lambda t: [t.insert(data(3, range(40)), check=False), t.delete_where("fare < 0.3")],
    ),
}
"""Settings of a table, copy-on-write by default, and the operations on it."""


@pytest.mark.parametrize("name", HISTORIES)
def test_a_file_rewritten_by_row_groups_has_the_bytes_of_one_made_in_memory(name, rewrites):
    """So do key maps, statistics, summaries, filters and commit records of the table."""
    settings, history = HISTORIES[name]
    more = {"table_type": COW, "at_first": "upsert", "nans": False}
    more |= {option: value for option, value in settings.items() if "." not in option}
    first_write, nans = more.pop("at_first"), more.pop("nans")
    options = {
        "mdt.row.group.rows": GROUP_ROWS,
        "mdt.services.auto": False,
        "mdt.writer.threads": 1,
        **{option: value for option, value in settings.items() if "." in option},
    }
    results = []
    for is_large in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            if not is_large:
                patch.setattr(new_files, "is_large", lambda segment, options: False)
            storage = MemoryStorage()
            table = mdt.create(storage, SCHEMA, key=["id"], options=options, **more)
            rows = data(0, range(0, 200, 2), nans=nans, shuffled=first_write == "bulk_insert")
            getattr(table, first_write)(rows)
            before = len(rewrites)
            history(table)
            assert (len(rewrites) > before) == (is_large and name != "delete of all")
            assert table.check().ok
            stored = objects(storage)
            assert not [path for path in stored if "/checkpoint" in path]
            files = {path: data for path, data in stored.items() if "/.mdt/log/" not in path}
            results.append((files, record_contents(table)))
    assert results[0][0].keys() == results[1][0].keys()
    assert [path for path, content in results[0][0].items() if results[1][0][path] != content] == []
    assert results[0][1] == results[1][1]


@pytest.mark.parametrize("has_ordering", [False, True])
@pytest.mark.parametrize("rows", [0, 1, 7, 1023, 1024, 5000, 40_000])
def test_a_key_map_built_in_parts_has_the_bytes_of_one_built_at_once(
    rows, has_ordering, monkeypatch
):
    """Hashes may share their first words, or be equal, as those of a repeated key."""
    monkeypatch.setattr(large_key_map, "_PART_ROWS", 300)
    draw = np.random.default_rng(rows)
    hi, lo, ordering = (draw.integers(0, 2**64, rows, dtype=np.uint64) for _ in range(3))
    hi[: rows // 9] = hi[-1:]
    lo[: rows // 20] = lo[-1:]
    large = LargeKeyMap(rows)
    for start in range(0, rows, 777):
        piece = slice(start, start + 777)
        large.add(KeyHashes(hi[piece], lo[piece]), ordering[piece] if has_ordering else None)
    encoded, expected = (
        large.encode(),
        key_map.build(KeyHashes(hi, lo), ordering if has_ordering else None),
    )
    assert (b"" if encoded is None else encoded.to_pybytes()) == (
        key_map.encode(expected) if rows else b""
    )


def filled_table():
    storage = MemoryStorage()
    options = {"mdt.row.group.rows": GROUP_ROWS, "mdt.services.auto": False}
    table = mdt.create(storage, SCHEMA, key=["id"], table_type=COW, options=options)
    table.upsert(data(0, range(0, 200, 2)))
    return storage, table


def test_a_damaged_row_group_stops_the_rewrite_and_leaves_no_files(rewrites):
    storage, table = filled_table()
    before = {path for path in objects(storage) if path.endswith(".parquet")}
    (path,) = before
    content = storage.read(path)
    groups = pq.read_metadata(pa.BufferReader(content))
    column = groups.schema.to_arrow_schema().names.index("fare")
    at = groups.row_group(5).column(column).data_page_offset + 30
    storage.replace(path, content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    with pytest.raises(Corrupt):
        table.upsert(data(5, range(20, 40)))
    assert not rewrites
    assert {path for path in objects(storage) if path.endswith(".parquet")} == before


def test_a_rewrite_on_a_full_disk_raises_commits_nothing_and_closes_its_files(
    rewrites, monkeypatch
):
    _, table = filled_table()
    opened = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(large_files, "_BUFFER_BYTES", 64)
    writes_left, write = [200], os.pwrite

    def full(*of):
        writes_left[0] -= 1
        if writes_left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(*of)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(Unavailable, match=r"No space left(.|\n)*mdt.write.spill.dir"):
        table.upsert(data(5, range(20, 40)))
    assert not rewrites and table.scan().count() == 100
    monkeypatch.undo()
    assert len(os.listdir("/proc/self/fd")) <= opened
    assert table.upsert(data(5, range(20, 40))).updated


def test_a_mapped_scratch_file_may_be_modified_after_it_is_closed():
    scratch = Scratch()
    sink = Sink(scratch)
    assert [sink.write(b"abc"), sink.write(b"de")] == [3, 2]
    writable, other = scratch.mapped(to_change=True), scratch.mapped()
    scratch.close()
    np.frombuffer(writable, np.uint8)[1] = ord("X")
    assert writable.to_pybytes() == other.to_pybytes() == b"aXcde"
    assert Scratch().mapped().size == 0


def test_appending_a_buffer_stores_its_size_and_not_its_capacity():
    scratch, buffer = Scratch(), pa.compress(b"a" * 1000, "lz4_raw")
    places = [scratch.append(buffer) for _ in range(3)]
    assert places == [0, len(buffer), 2 * len(buffer)]
    for place in places:
        assert (
            pa.decompress(scratch.read(place, len(buffer)), 1000, "lz4_raw").to_pybytes()
            == b"a" * 1000
        )


@pytest.mark.skipif(
    not os.path.exists("/proc/self/fd"), reason="the system has no names for open files"
)
def test_a_mapped_scratch_file_keeps_no_file_open():
    opened = len(os.listdir("/proc/self/fd"))
    mappings = []
    for number in range(50):
        scratch = Scratch()
        scratch.append(bytes([number]))
        mappings.append(scratch.mapped())
        scratch.close()
    assert len(os.listdir("/proc/self/fd")) <= opened
    assert b"".join(mapping.to_pybytes() for mapping in mappings) == bytes(range(50))


def test_a_scratch_file_that_cannot_be_mapped_raises_unavailable(monkeypatch):
    def fails(*of):
        raise OSError(errno.ENOMEM, "no memory")

    scratch = Scratch()
    scratch.append(b"a")
    monkeypatch.setattr(pa, "memory_map", fails)
    with pytest.raises(Unavailable, match="cannot be mapped"):
        scratch.mapped()


def test_the_pages_of_a_large_file_do_not_depend_on_its_first_row_group():
    notes = ["abc"] * 1000 + ["é" * 500 + str(n) for n in range(2000)]
    rows = pa.table({"id": list(range(3000)), "note": notes})
    options = {"mdt.row.group.rows": 1000, "mdt.services.auto": False}
    storage = MemoryStorage()
    mdt.create(storage, rows.schema, key=["id"], table_type=COW, options=options).bulk_insert(rows)
    table = mdt.open(storage, {"mdt.write.memory.max": 1 << 20})
    table.upsert(rows.slice(0, 4))
    content = storage.read(table.files()["name"][0].as_py())
    chunk = pq.read_metadata(pa.BufferReader(content)).row_group(2).column(6)
    assert chunk.path_in_schema == "note" and chunk.has_offset_index
