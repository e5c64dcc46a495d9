"""Ranges of the deletion vectors in a checkpoint. With its range, a single vector can be read
without the rest of its page.
"""

import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap
from texts import columns

import mdt
from mdt.metadata.files import paths
from mdt.metadata.files.deletion_vectors import first_vector, serialize
from mdt.metadata.log import codec, commit_log
from mdt.metadata.snapshot import checkpoint
from mdt.metadata.snapshot.checkpoints import MANIFEST, VERSION
from mdt.stores.storage import MemoryStorage

SCHEMA = columns("id int64, v int64")
FILES, LOGS = 11, 7
WHOLE = (3, 6, 7, 8)
"""Files without deleted rows."""
PAGES = 6
OPTIONS = {"mdt.metadata.compact.records": 1000}


def rows(ids, plus=0):
    return pa.table([list(ids), [i * 7919 % 977 + plus for i in ids]], schema=SCHEMA)


@pytest.fixture
def table(monkeypatch):
    """Eleven base files with log files, in pages of three. Most base files have deleted rows."""
    monkeypatch.setattr(checkpoint, "SUMMARIES_PER_PAGE", 3)
    new_table = mdt.create(
        MemoryStorage(),
        SCHEMA,
        ["id"],
        table_type="MERGE_ON_READ",
        options={**OPTIONS, "mdt.small.file.bytes": 0},
    )
    for n in range(FILES):
        new_table.insert(rows(range(1000 * n, 1000 * (n + 1))))
    for n in set(range(FILES)) - {*WHOLE}:
        new_table.delete({"id": [1000 * n + i * i for i in range(n + 2)]})
    new_table.metadata.compact()
    assert len(new_table.files()) == LOGS + FILES
    return new_table


def reopened_snapshot(table):
    """Return the newest snapshot as another process reads it."""
    snapshot = mdt.open(table.storage, OPTIONS).snapshot()
    assert snapshot.checkpoint.rows
    return snapshot


def test_each_vector_can_be_read_by_its_range(table):
    snapshot = reopened_snapshot(table)
    all_files = np.arange(FILES)
    for files in (all_files, all_files[2:7], all_files[::4], all_files[3:4]):
        ranges = snapshot.checkpoint.vectors(files)
        assert ranges is not None and len(ranges.length) == len(files)
        for at, file in enumerate(files.tolist()):
            path, size = ranges.objects[ranges.object[at]]
            assert size == table.storage.size(path)
            data = table.storage.read(path, int(ranges.offset[at]), int(ranges.length[at]))
            vector = snapshot.vector(file)
            assert (not data) == (vector is None) == (file in WHOLE)
            if vector is not None:
                assert BitMap.deserialize(data) == vector and zlib.crc32(data) == ranges.crc[at]
                assert snapshot.checkpoint.vector_bytes(files)[at] == data
                assert ranges.length[at] < ranges.page_bytes[at] < 2000


@pytest.mark.parametrize("tables", [[[b"abc", None, b"de"]], [[None, None]], [[b""], [b"x"]]])
def test_the_position_of_the_first_vector_in_a_page_is_found(tables):
    page = codec.encode_ipc(
        pa.table({"value": pa.chunked_array([pa.array(values, pa.binary()) for values in tables])})
    )
    begin = first_vector(page)
    vector_bytes = b"".join(value or b"" for value in tables[0])
    assert (
        begin == -1
        if len(tables) > 1
        else page.to_pybytes()[begin : begin + len(vector_bytes)] == vector_bytes
    )


def test_a_page_of_a_sliced_column_begins_with_the_first_vector_of_the_slice():
    values = pa.table({"value": pa.array([b"abc", b"defg", None, b"hi"], pa.binary())})
    page = codec.encode_ipc(values.slice(1, 3))
    begin = first_vector(page)
    assert page.to_pybytes()[begin : begin + 6] == b"defghi"


@pytest.mark.parametrize(
    "starts",
    [
        None,
        [-1] * PAGES,
        [1 << 40] * PAGES,
        [[]],
        ["1"] * PAGES,
        [1.5] * PAGES,
        {"a": 1},
        7,
        [True] * PAGES,
        [0] * (PAGES + 1),
    ],
)
def test_missing_or_invalid_vector_positions_in_a_manifest_change_no_rows(table, starts):
    before = table.scan().to_arrow()
    path = paths.checkpoint_manifest(table.snapshot().checkpoint.seq)
    data = codec.unframe(table.storage.read(path), MANIFEST, path=path, version_max=VERSION)
    header, sections = codec.unpack(data, path=path)
    header["vector_starts"] = starts
    if starts is None:
        del header["vector_starts"]
    data = codec.pack(header, sections)
    table.storage.replace(path, codec.frame(MANIFEST, VERSION, data))
    snapshot = mdt.open(table.storage, OPTIONS).snapshot()
    assert snapshot.checkpoint.vectors(np.arange(FILES)) is None
    assert mdt.open(table.storage, OPTIONS).scan().to_arrow().equals(before)


def test_objects_with_paths_outside_the_checkpoints_are_not_referenced(table):
    columns = reopened_snapshot(table).checkpoint
    object.__setattr__(columns._layout, "objects", [".hoodie/.mdt/checkpoints/../../secret"])  # type: ignore[attr-defined]
    assert columns.vectors(np.arange(FILES)) is None


def test_damaged_ranges_are_not_referenced_and_the_vectors_are_rebuilt(table):
    storage, columns = table.storage, reopened_snapshot(table).checkpoint
    place = columns._layout.columns["vector_range"]  # type: ignore[attr-defined]
    path, offset, length, _ = columns._layout.page(place.first)  # type: ignore[attr-defined]
    data = bytearray(storage.read(path))
    data[offset + length - 20] ^= 4
    storage.replace(path, bytes(data))
    snapshot = reopened_snapshot(table)
    assert snapshot.checkpoint.vectors(np.arange(FILES)) is None
    assert snapshot.vector(10) == BitMap([i * i for i in range(12)])


def test_vectors_added_since_the_checkpoint_have_only_newly_deleted_rows(table):
    table.delete({"id": [10_001, 10_002, 10_003, 3_007]})
    table.upsert(rows(range(10_005, 10_008), 1))
    snapshot = reopened_snapshot(table)
    assert snapshot.vectors_since.get(10) == BitMap([2, 3, 5, 6, 7]), (
        "row 1 was deleted before the checkpoint, and is not deleted again"
    )
    assert snapshot.vectors_since.get(3) == BitMap([7]) and snapshot.vectors_since.get(4) is None
    assert snapshot.vector(10) == BitMap([i * i for i in range(12)]) | BitMap([2, 3, 5, 6, 7])
    assert snapshot.dead_rows[10] == 12 + 5 and snapshot.dead_rows[3] == 1
    snapshot.check()
    assert table.check().ok


def test_a_row_deleted_by_two_records_is_counted_once(table):
    snapshot = reopened_snapshot(table)
    segment = int(snapshot.segment_ids[10])
    deleted = BitMap(range(999))
    for positions in (BitMap(range(500)), BitMap(range(300, 999))):
        newest = table.metadata.newest()
        header = {
            "txn": table.storage.random_hex(16),
            "instant": str(int(newest.last_instant) + 1),
            "action": "rollback",
            "operation": "forged",
            "begun_at": newest.seq,
            "token": newest.seq + 1,
            "counts": {},
        }
        vectors = pa.table([[segment], [positions.serialize()]], schema=commit_log.VECTORS)
        assert commit_log.append(
            table.storage, commit_log.CommitRecord(newest.seq + 1, header, {"vectors": vectors})
        )
    snapshot = reopened_snapshot(table)
    assert (
        snapshot.vector(10) == deleted and snapshot.dead_rows[10] == 999 and snapshot.has_rows[10]
    )
    snapshot.check()
    assert table.scan("id >= 10000").to_arrow()["id"].to_pylist() == [10_999], (
        "only the row that was not deleted remains"
    )


def test_checkpoints_from_snapshots_and_from_the_log_have_equal_bytes_after_overlapping_deletes():
    table = mdt.create(MemoryStorage(), SCHEMA, ["id"], table_type="MERGE_ON_READ", options=OPTIONS)
    table.insert(rows(range(2000)))
    table.delete({"id": list(range(0, 400, 7))})
    table.metadata.compact()
    table.delete({"id": [*range(100, 140), *range(1000, 1900)]})
    assert table.check().ok
    table.metadata.compact()
    assert mdt.open(table.storage).check().ok


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 5)), min_size=1, max_size=12), st.data()
)
def test_equal_vectors_have_equal_bytes_however_they_were_combined(runs, data):
    vector = BitMap()
    for start, rows in runs:
        vector |= BitMap(range(start, start + rows))
        if data.draw(st.booleans()):
            vector = BitMap.deserialize(serialize(vector))
    assert serialize(vector) == serialize(BitMap(vector.to_array()))
