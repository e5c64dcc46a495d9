"""Problems that a check reports: several at once, on a store with a wrong answer, and in commit
records that mark the wrong rows as new.
"""

import base64
import json
import struct

import pyarrow as pa
import pytest
from counting import count
from pyroaring import BitMap
from texts import columns
from worlds import COW, MOR, filled, make
from worlds import rows as world_rows

import mdt
from indexes.bitmap import BitmapIndex
from mdt.commit import transaction
from mdt.errors import Missing
from mdt.hudi import log_file, properties
from mdt.metadata.files import paths
from mdt.metadata.files.file_group import FRESH
from mdt.services.checking.problems import Kind
from mdt.stores.storage import MemoryStorage
from mdt.testing.slow import FarStorage

SCHEMA = columns("id int64, n int64")
OPTIONS = {"mdt.services.auto": False}


def rows(n):
    return pa.table({"id": range(50), "n": [n] * 50}, schema=SCHEMA)


def flip(storage, path, at):
    data = bytearray(storage.read(path))
    data[at] ^= 1
    storage.replace(path, bytes(data))


def test_check_reports_a_missing_file_of_a_tag_and_a_damaged_record_together():
    storage = MemoryStorage()
    table = mdt.create(storage, SCHEMA, key=["id"], table_type="COPY_ON_WRITE", options=OPTIONS)
    table.upsert(rows(1))
    snapshot = table.snapshot()
    (first,) = snapshot.files.segments(snapshot.live_numbers)
    table.tag("old")
    for n in range(6):
        table.upsert(rows(2 + n))
    table.clean(retain_commits=2)
    table.upsert(rows(99))
    table.upsert(rows(100))
    table.metadata.compact()
    assert mdt.open(storage).check().ok
    storage.delete(first.path)
    flip(storage, paths.commit(table.snapshot().retention.horizon + 1), 200)
    problems = mdt.open(storage).check().problems
    assert {problem.kind for problem in problems} == {Kind.RECORD, Kind.ROWS}
    (missing,) = [problem for problem in problems if problem.kind == Kind.ROWS]
    assert missing.path == first.path and "the tagged state after commit 1" in missing.text


def test_check_reports_a_damaged_file_and_its_damaged_key_map_together():
    storage = MemoryStorage()
    table = mdt.create(storage, SCHEMA, key=["id"], table_type="MERGE_ON_READ", options=OPTIONS)
    table.upsert(rows(1))
    snapshot = table.snapshot()
    (segment,) = snapshot.files.segments(snapshot.live_numbers)
    flip(storage, segment.path, segment.size // 2)
    flip(storage, segment.key_map.path, segment.key_map.offset + segment.key_map.length // 2)
    problems = {(problem.kind, problem.path) for problem in mdt.open(storage).check().problems}
    assert problems == {(Kind.ROWS, segment.path), (Kind.ATTACHMENT, segment.key_map.path)}


@pytest.mark.parametrize("name", ["summarize", "rows", "can_test"])
def test_an_index_that_raises_neither_stops_a_check_nor_is_reported_as_damage(name, monkeypatch):
    storage = MemoryStorage()
    table = mdt.create(storage, SCHEMA, key=["id"], indexes=["bitmap(n)"], options=OPTIONS)
    table.upsert(rows(1))

    calls = []

    def fail(*args, **more):
        calls.append(args)
        raise ZeroDivisionError("a broken index")

    original = BitmapIndex.summarize
    monkeypatch.setattr(
        BitmapIndex, "summarize", lambda self, values: original(self, values) + b"\0"
    )
    monkeypatch.setattr(BitmapIndex, name, fail)
    report = mdt.open(storage).check()
    assert report.rows == 50 and report.ok and calls


class Forgetful(FarStorage):
    """A store whose answer number ``false`` is that nothing exists."""

    def __init__(self, inner):
        super().__init__(inner)
        self.looks = self.false = 0

    def _look(self, name, path, act):
        self.looks += 1
        if self.looks != self.false:
            return super()._look(name, path, act)
        if name == "read":
            raise Missing("there is no such object", path=path)
        return None if name == "size" else []  # type: ignore[return-value]


def open_forgetful(inner, wrong_read):
    storage = Forgetful(inner)
    table = mdt.open(storage)
    storage.looks, storage.false = 0, wrong_read
    return table, storage


def test_check_reports_no_problem_after_one_wrong_answer_of_an_object_store():
    inner = filled(MOR, "record")
    table, storage = open_forgetful(inner, 0)
    assert table.check().ok
    reads = storage.looks
    assert reads > 20
    for wrong_read in range(1, reads + 1):
        table, storage = open_forgetful(inner, wrong_read)
        assert table.check().ok, wrong_read
        count("false answers of a store")


def test_check_reports_damage_on_an_object_store():
    inner = filled(MOR, "record")
    marker, *_ = [
        info.path for info in inner.list("") if info.path.endswith(".hoodie_partition_metadata")
    ]
    inner.delete(marker)
    inner.delete(paths.HINT)
    problems = open_forgetful(inner, 0)[0].check().problems
    assert [problem.path for problem in problems] == [marker]


@pytest.mark.parametrize("told", [BitMap([0]), BitMap(), None], ids=["others", "none", "all"])
def test_commit_records_that_mark_the_wrong_rows_as_new_are_reported_and_repaired(
    told, monkeypatch
):
    table = make(MemoryStorage(), COW, "record")
    table.upsert(world_rows(range(6), 1, 1.0))

    def wrong_fresh_table(files):
        bitmaps = [] if told is None else [told.serialize()] * len(files)
        return pa.table([list(range(len(bitmaps))), bitmaps], schema=FRESH)

    with monkeypatch.context() as patch:
        patch.setattr(transaction, "fresh_table", wrong_fresh_table)
        table.upsert(world_rows([4], 2, 2.0))
    (problem,) = table.check().problems
    assert "the new rows in its commit record differ" in problem.text
    before = sorted(table.scan().to_arrow().to_pylist(), key=repr)
    assert table.repair().ok and table.check().ok
    assert sorted(table.scan().to_arrow().to_pylist(), key=repr) == before


@pytest.mark.parametrize("shift", [0, 1])
def test_wrong_positions_in_a_log_block_are_reported_but_other_encodings_are_not(
    shift, monkeypatch
):
    """Shift 0 writes the same positions as another release of CRoaring encodes them."""
    storage = MemoryStorage()
    options = {**OPTIONS, "mdt.write.record.positions": True}
    table = mdt.create(
        storage, SCHEMA, key=["id"], key_index="record", table_type="MERGE_ON_READ", options=options
    )
    table.bulk_insert(rows(0))

    def encode(positions):
        data = BitMap([row + shift for row in positions], optimize=False).serialize()
        return base64.b64encode(struct.pack("<QI", 1, 0) + data).decode()

    with monkeypatch.context() as patch:
        patch.setattr(log_file, "encode_positions", encode)
        table.upsert(rows(1).slice(6, 30))
    snapshot = table.snapshot()
    _, log = snapshot.files.segments(snapshot.live_numbers)
    (block,) = log_file.parse(storage.read(log.path), path=log.path)
    bits = log_file.decode_positions(block.header[log_file.POSITIONS])
    assert bits == BitMap(range(6 + shift, 36 + shift))
    assert log_file.encode_positions(bits) != block.header[log_file.POSITIONS]
    texts = [problem.text for problem in mdt.open(storage).check().problems]
    assert len(texts) == shift and all("differs from the block expected" in text for text in texts)


@pytest.mark.parametrize(
    ("name", "type", "is_ok"), [("id", "int", True), ("id", "long", False), ("key", "int", False)]
)
def test_check_accepts_the_create_schema_as_other_engines_rewrite_it(name, type, is_ok):
    """CREATE TABLE of Hudi 0.15 makes all of its columns nullable and renames its records."""
    storage = MemoryStorage()
    t = mdt.create(storage, pa.schema({"id": pa.int32()}), key=["id"])
    stored = properties.decode(storage.read(paths.PROPERTIES))
    field = {"name": name, "type": [type, "null"]}
    schema = {"type": "record", "name": "t_record", "namespace": "hoodie.t", "fields": [field]}
    stored[properties.CREATE_SCHEMA] = json.dumps(schema)
    storage.replace(paths.PROPERTIES, properties.encode(stored))
    assert t.check().ok is is_ok
