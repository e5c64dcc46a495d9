"""Where the deletion vectors of a checkpoint stand: whoever knows it reads one of them without the
rest of the page.
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
"""Files without dead rows."""
PAGES = 6
OPTIONS = {"mdt.metadata.compact.records": 1000}


def rows(ids, plus=0):
    return pa.table([list(ids), [i * 7919 % 977 + plus for i in ids]], schema=SCHEMA)


@pytest.fixture
def table(monkeypatch):
    """Eleven base files, and log files, in pages of three; rows of most base files are dead."""
    monkeypatch.setattr(checkpoint, "SUMMARIES_PER_PAGE", 3)
    made = mdt.create(
        MemoryStorage(),
        SCHEMA,
        ["id"],
        table_type="MERGE_ON_READ",
        options={**OPTIONS, "mdt.small.file.bytes": 0},
    )
    for n in range(FILES):
        made.insert(rows(range(1000 * n, 1000 * (n + 1))))
    for n in set(range(FILES)) - {*WHOLE}:
        made.delete({"id": [1000 * n + i * i for i in range(n + 2)]})
    made.metadata.compact()
    assert len(made.files()) == LOGS + FILES
    return made


def stood_on(table):
    """Return the newest state as another process has it."""
    found = mdt.open(table.storage, OPTIONS).snapshot()
    assert found.checkpoint.rows
    return found


def test_each_vector_is_found_by_its_range(table):
    snapshot = stood_on(table)
    every = np.arange(FILES)
    for files in (every, every[2:7], every[::4], every[3:4]):
        found = snapshot.checkpoint.vectors(files)
        assert found is not None and len(found.length) == len(files)
        for at, file in enumerate(files.tolist()):
            path, size = found.objects[found.object[at]]
            assert size == table.storage.size(path)
            data = table.storage.read(path, int(found.offset[at]), int(found.length[at]))
            vector = snapshot.vector(file)
            assert (not data) == (vector is None) == (file in WHOLE)
            if vector is not None:
                assert BitMap.deserialize(data) == vector and zlib.crc32(data) == found.crc[at]
                assert snapshot.checkpoint.vector_bytes(files)[at] == data
                assert found.length[at] < found.page_bytes[at] < 2000


@pytest.mark.parametrize("tables", [[[b"abc", None, b"de"]], [[None, None]], [[b""], [b"x"]]])
def test_a_page_tells_where_its_first_vector_begins(tables):
    page = codec.encode_ipc(
        pa.table({"value": pa.chunked_array([pa.array(one, pa.binary()) for one in tables])})
    )
    begin = first_vector(page)
    text = b"".join(value or b"" for value in tables[0])
    assert begin == -1 if len(tables) > 1 else page.to_pybytes()[begin : begin + len(text)] == text


def test_a_slice_of_a_column_is_a_page_of_its_own():
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
def test_a_manifest_that_says_nothing_or_nonsense_costs_no_row(table, starts):
    before = table.scan().to_arrow()
    path = paths.checkpoint_manifest(table.snapshot().checkpoint.seq)
    data = codec.unframe(table.storage.read(path), MANIFEST, path=path, version_max=VERSION)
    known, sections = codec.unpack(data, path=path)
    known["vector_starts"] = starts
    if starts is None:
        del known["vector_starts"]
    data = codec.pack(known, sections)
    table.storage.replace(path, codec.frame(MANIFEST, VERSION, data))
    snapshot = mdt.open(table.storage, OPTIONS).snapshot()
    assert snapshot.checkpoint.vectors(np.arange(FILES)) is None
    assert mdt.open(table.storage, OPTIONS).scan().to_arrow().equals(before)


def test_objects_that_are_no_parts_of_checkpoints_are_not_referred_to(table):
    columns = stood_on(table).checkpoint
    object.__setattr__(columns._layout, "objects", [".hoodie/.mdt/checkpoints/../../secret"])  # type: ignore[attr-defined]
    assert columns.vectors(np.arange(FILES)) is None


def test_ranges_that_are_damaged_are_made_again_and_not_referred_to(table):
    storage, columns = table.storage, stood_on(table).checkpoint
    place = columns._layout.columns["vector_range"]  # type: ignore[attr-defined]
    path, offset, length, _ = columns._layout.page(place.first)  # type: ignore[attr-defined]
    data = bytearray(storage.read(path))
    data[offset + length - 20] ^= 4
    storage.replace(path, bytes(data))
    snapshot = stood_on(table)
    assert snapshot.checkpoint.vectors(np.arange(FILES)) is None
    assert snapshot.vector(10) == BitMap([i * i for i in range(12)])


def test_what_commits_add_is_what_the_checkpoint_lacks(table):
    table.delete({"id": [10_001, 10_002, 10_003, 3_007]})
    table.upsert(rows(range(10_005, 10_008), 1))
    snapshot = stood_on(table)
    assert snapshot.vectors_since.get(10) == BitMap([2, 3, 5, 6, 7]), (
        "1 was dead before, and was told to be again by nobody"
    )
    assert snapshot.vectors_since.get(3) == BitMap([7]) and snapshot.vectors_since.get(4) is None
    assert snapshot.vector(10) == BitMap([i * i for i in range(12)]) | BitMap([2, 3, 5, 6, 7])
    assert snapshot.dead_rows[10] == 12 + 5 and snapshot.dead_rows[3] == 1
    snapshot.check()
    assert table.check().ok


def test_a_row_that_records_kill_twice_is_counted_once(table):
    snapshot = stood_on(table)
    segment = int(snapshot.segment_ids[10])
    whole = BitMap(range(999))
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
    snapshot = stood_on(table)
    assert snapshot.vector(10) == whole and snapshot.dead_rows[10] == 999 and snapshot.has_rows[10]
    snapshot.check()
    assert table.scan("id >= 10000").to_arrow()["id"].to_pylist() == [10_999], (
        "the row that nobody killed is there"
    )


def test_a_checkpoint_has_the_bytes_that_the_log_gives_whatever_vectors_were_put_together_from():
    made = mdt.create(MemoryStorage(), SCHEMA, ["id"], table_type="MERGE_ON_READ", options=OPTIONS)
    made.insert(rows(range(2000)))
    made.delete({"id": list(range(0, 400, 7))})
    made.metadata.compact()
    made.delete({"id": [*range(100, 140), *range(1000, 1900)]})
    assert made.check().ok
    made.metadata.compact()
    assert mdt.open(made.storage).check().ok


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 5)), min_size=1, max_size=12), st.data()
)
def test_equal_vectors_are_equal_bytes_whatever_they_were_put_together_from(runs, data):
    vector = BitMap()
    for start, rows in runs:
        vector |= BitMap(range(start, start + rows))
        if data.draw(st.booleans()):
            vector = BitMap.deserialize(serialize(vector))
    assert serialize(vector) == serialize(BitMap(vector.to_array()))
