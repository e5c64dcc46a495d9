"""Scans of few rows read single pages and return the rows of a full scan, even if page maps are
damaged or missing.
"""

import struct
import zlib
from dataclasses import replace
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from counting import count
from pyroaring import BitMap
from reader import bag
from texts import columns

import mdt
from indexes.predicate import matches
from mdt.errors import Corrupt, Missing
from mdt.filters.where import parse_where
from mdt.metadata.files.attachments import ObjectReader
from mdt.metadata.snapshot import log_tail
from mdt.parquet import page_map
from mdt.plan.planner import ScanPlan, SegmentScan
from mdt.scan import reader as scan
from mdt.scan import scan_tasks as work
from mdt.services.checking.check import check
from mdt.session import Recent
from mdt.stores.storage import MemoryStorage, ObjectStorage

SCHEMA = columns("id string, ts int64, city string, note string")


def rows(first, last, ts):
    n = range(first, last)
    columns = [
        [f"k{i:05}" for i in n],
        [ts] * len(n),
        [f"c{i % 3}" for i in n],
        [f"{i} {ts}" * (i % 9) for i in n],
    ]
    return pa.table(columns, schema=SCHEMA)


def table_in(storage, **options):
    """Return a table with two base files of different compression, log files over both, and deleted
    rows.
    """
    settings = {f"mdt.{name.replace('_', '.')}": value for name, value in options.items()}
    table = mdt.create(
        storage, SCHEMA, ["id"], ordering="ts", options={"mdt.row.group.rows": 2000, **settings}
    )
    table.bulk_insert(rows(0, 6000, 1))
    mdt.open(storage, {"mdt.compression": "zstd"}).bulk_insert(rows(6000, 9000, 1))
    table.upsert(rows(2990, 3010, 2))
    table.upsert(rows(7000, 7300, 3))
    table.delete(rows(100, 200, 0).select(["id"]))
    return table


def rows_by_id(scan):
    return scan.to_arrow().sort_by("id")


def by_positions(metadata, positions_by_file, names):
    """Return the live rows at positions of segments, and the tasks that read them."""
    scans = tuple(SegmentScan(i, None, positions) for i, positions in positions_by_file.items())
    plan = ScanPlan(metadata.newest(), None, scans, ())
    schema = pa.schema([SCHEMA.field(name) for name in names])
    tables = scan.read(metadata, plan, names, threads=2)
    return (
        pa.concat_tables([schema.empty_table(), *tables]),
        list(work.TaskSplitter(metadata, plan, schema).split(2)),
    )


@pytest.mark.parametrize(
    "storage", [MemoryStorage, lambda: ObjectStorage("memory:///")], ids=["memory", "ranges"]
)
@pytest.mark.parametrize("page_bytes", [256, 4096])
def test_rows_at_positions_are_those_of_a_full_scan(storage, page_bytes):
    table = table_in(storage(), page_bytes=page_bytes)
    snapshot, random = table.snapshot(), np.random.default_rng(5)
    sizes = {i: n for i, n in enumerate(snapshot.rows.tolist()) if n}
    for names in (SCHEMA.names, ["city"]):
        all_positions = {i: BitMap(range(n)) for i, n in sizes.items()}
        all_rows, _ = by_positions(table.metadata, all_positions, names)
        for size in (1, 5, 300):
            positions_by_file = {
                i: BitMap(random.integers(0, n + 2, size)) for i, n in sizes.items()
            }
            read_rows, tasks = by_positions(table.metadata, positions_by_file, names)
            live = [
                (p & all_positions[i]) - (snapshot.vector(i) or BitMap())
                for i, p in positions_by_file.items()
            ]
            assert len(read_rows) == sum(map(len, live))
            if size <= 5:
                selections = [selection for task in tasks for selection in task.selections]
                assert sum(len(selection.positions) for selection in selections) == len(read_rows)
                assert all(
                    len({w.page_map.columns for w in task.selections}) == 1 for task in tasks
                )
            assert bag(read_rows) <= bag(all_rows)
    assert table.scan().count() == 9000 - 100


@pytest.fixture(scope="module")
def wide():
    n = 20_000
    data = pa.table(
        {
            "id": [f"{i:05}" for i in range(n)],
            "city": [f"c{i % 3}" for i in range(n)],
            "note": ["x" * (i % 60) for i in range(n)],
            "n": range(n),
            "s": [{"x": i % 5000} for i in range(n)],
        }
    )
    table = mdt.create(MemoryStorage(), data.schema, ["id"], options={"mdt.row.group.rows": 9000})
    table.bulk_insert(data)
    table.upsert(data.slice(4, 4))
    table.delete(data.select(["id"]).slice(0, 2))
    return table, table.scan().to_arrow()


FEW = ["n < 3", "n = 5 and city = 'c1'", "s.x = 7", "n > 19990 or note = ''", "n < 0"]


@pytest.mark.parametrize("where", [*FEW, "n >= 10", "city <> 'c2'"])
@pytest.mark.parametrize("names", [["id", "city", "n", "note"], ["s"], ["n"], ["note", "s", "id"]])
def test_a_filter_returns_the_untested_columns_of_the_matching_rows(wide, where, names):
    table, all_rows = wide
    expected = all_rows.filter(matches(parse_where(where, table.schema), all_rows))
    assert bag(table.scan(where, columns=names).to_arrow()) == bag(expected.select(names))


def test_positions_outside_of_the_remaining_row_groups_are_not_read():
    table = table_in(MemoryStorage(), page_bytes=256)
    segment_scan = SegmentScan(0, (1,), BitMap([0, 1999, 2000, 3999, 4000]))
    scan_plan = ScanPlan(table.snapshot(), None, (segment_scan,), ())
    (task,) = work.TaskSplitter(table.metadata, scan_plan, SCHEMA).split(1)
    assert isinstance(task, work.Rows) and task.selections[0].positions.tolist() == [2000, 3999]


def test_a_truncated_or_deleted_file_raises_an_error_instead_of_being_read_by_pages(tmp_path):
    table = table_in(mdt.stores.storage.LocalStorage(tmp_path, durable=False))
    assert table.scan("id = 'k00500'").count() == 1
    name = next(f["name"] for f in table.files().to_pylist() if f["rows"] == 6000)
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(data[:-1])
    with pytest.raises(Corrupt, match="wrong size"):
        table.scan("id = 'k00500'").count()
    (tmp_path / name).unlink()
    with pytest.raises(Missing):
        table.scan("id = 'k00500'").count()


def _page_maps(table):
    """Return the ranges of page maps by file number."""
    snapshot = table.snapshot()
    ranges = {i: snapshot.segment(i).page_map for i in snapshot.live_numbers.tolist()}
    assert all((stored is None) == (snapshot.rows[i] == 0) for i, stored in ranges.items())
    return {i: stored for i, stored in ranges.items() if stored is not None}


def test_every_flipped_bit_and_truncation_of_a_page_map_is_detected():
    storage = MemoryStorage()
    table = mdt.create(storage, SCHEMA, ["id"], ordering="ts")
    table.bulk_insert(rows(0, 5, 1))
    (stored,) = _page_maps(table).values()
    data = storage.read(stored.path)
    assert len(ObjectReader(storage).page_map(stored).keys) == 9
    for bit in range(8 * stored.offset, 8 * (stored.offset + stored.length)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        storage.replace(stored.path, bytes(damaged))
        with pytest.raises(Corrupt) as caught:
            ObjectReader(storage).page_map(stored)
        assert (caught.value.path, caught.value.offset) == (stored.path, stored.offset)
        count("flipped bits of page maps, all found")
    for length in range(stored.length):
        with pytest.raises(Corrupt):
            page_map.decode(data[stored.offset :][:length], path="p", offset=0)
        count("truncations of page maps, all found")


def test_a_page_map_with_a_changed_byte_and_a_valid_checksum_is_decoded_or_corrupt():
    table = table_in(MemoryStorage())
    file = table.snapshot().segment(0)
    parquet = table.storage.read(file.path, file.block_offset, file.block_length)
    original = page_map.encode(page_map.build(pa.py_buffer(parquet)))
    for at, value in product(range(len(original)), (0, 1, 127, 255)):
        try:
            page_map.decode(
                original[:at] + bytes((value,)) + original[at + 1 :], path="p", offset=7
            ).check()
        except Corrupt as error:
            assert (error.path, error.offset) == ("p", 7)
        count("page maps with a changed byte, read or refused as Corrupt")
    for number in (1, 2**31, 2**32 - 1):
        head = struct.pack("<4s7I", b"MPM3", 7, number, number, number, 1, 0, 0)
        with pytest.raises(Corrupt, match="wrong length"):
            page_map.decode(head, path="p", offset=0)


def test_damaged_page_maps_lose_no_rows_and_check_reports_them():
    table = table_in(MemoryStorage())
    where = [("id", "in", ("k00001", "k07001", "k03000"))]
    expected, damaged = rows_by_id(table.scan(where)), table.storage.copy()
    stored = _page_maps(table).values()
    for object_range in stored:
        data = bytearray(damaged.read(object_range.path))
        data[object_range.offset + 40] ^= 1
        damaged.replace(object_range.path, bytes(data))
    assert rows_by_id(mdt.open(damaged).scan(where)).equals(expected)
    reported = {(problem.path, problem.offset) for problem in mdt.open(damaged).check().problems}
    assert {(object_range.path, object_range.offset) for object_range in stored} <= reported
    assert table.check().ok


def test_missing_page_maps_lose_no_rows(monkeypatch):
    table = table_in(MemoryStorage())
    where = [("id", "in", ("k00001", "k07001", "k03000"))]
    expected, reopened = rows_by_id(table.scan(where)), mdt.open(table.storage)

    def raise_missing(stored):
        raise Missing("there is no such object", path=stored.path)

    monkeypatch.setattr(reopened.metadata.objects, "page_map", raise_missing)
    assert rows_by_id(reopened.scan(where)).equals(expected)


def test_check_compares_page_maps_with_their_files():
    table = table_in(MemoryStorage())
    storage, snapshot = table.storage, table.snapshot()
    stored = _page_maps(table)[0]
    data, end = storage.read(stored.path), stored.offset + stored.length
    forged = data[stored.offset : end].replace(b"city", b"tyci")
    storage.replace(stored.path, data[: stored.offset] + forged + data[end:])
    _, *crcs = snapshot.files.column("page_map_crc").to_pylist()
    task = log_tail.merge(snapshot.additions)
    at = task.files.schema.get_field_index("page_map_crc")
    crcs = pa.array([zlib.crc32(forged), *crcs], "int64")
    forged_additions = replace(task, files=task.files.set_column(at, "page_map_crc", crcs))
    forged_snapshot = replace(snapshot, additions=(forged_additions,), known=Recent(1))
    texts = [
        problem.text for problem in check(mdt.open(storage).metadata, forged_snapshot).problems
    ]
    assert f"the page map at {stored.path}:{stored.offset} differs from the file" in texts
