"""Tables are read page by page where few rows are wanted, with the rows of a full scan, however
damaged the page maps.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from counting import count
from pyroaring import BitMap
from reader import bag

import mdt
from indexes.predicate import matches
from mdt.errors import Corrupt, Missing
from mdt.filters.where import parse_where
from mdt.metadata.files.attachments import ObjectReader
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot import log_tail
from mdt.parquet import page_map
from mdt.plan.planner import ScanPlan, SegmentScan
from mdt.scan import reader as scan
from mdt.scan import scan_tasks as work
from mdt.services.checking.check import check
from mdt.session import Recent
from mdt.stores.object_range import ObjectRange
from mdt.stores.storage import MemoryStorage, ObjectStorage, Storage

SCHEMA = pa.schema(
    [("id", pa.string()), ("ts", pa.int64()), ("city", pa.string()), ("note", pa.string())]
)


def rows(first: int, last: int, ts: int) -> pa.Table:
    n = range(first, last)
    columns = [
        [f"k{i:05}" for i in n],
        [ts] * len(n),
        [f"c{i % 3}" for i in n],
        [f"{i} {ts}" * (i % 9) for i in n],
    ]
    return pa.table(columns, schema=SCHEMA)


def table_in(storage: Storage, **options: Any) -> mdt.Table:
    """Return a table of two base files, log files over both, and deleted rows; its files are of two
    codecs.
    """
    more = {f"mdt.{name.replace('_', '.')}": value for name, value in options.items()}
    table = mdt.create(
        storage, SCHEMA, ["id"], ordering="ts", options={"mdt.row.group.rows": 2000, **more}
    )
    table.bulk_insert(rows(0, 6000, 1))
    mdt.open(storage, {"mdt.compression": "zstd"}).bulk_insert(rows(6000, 9000, 1))
    table.upsert(rows(2990, 3010, 2))
    table.upsert(rows(7000, 7300, 3))
    table.delete(rows(100, 200, 0).select(["id"]))
    return table


def full(table: mdt.Table) -> pa.Table:
    return table.scan().to_arrow().sort_by("id")


def by_positions(
    metadata: Metadata, wanted: dict[int, BitMap], names: list[str]
) -> tuple[pa.Table, list[object]]:
    """Return live rows at positions of segments, and the tasks they took."""
    snapshot = metadata.newest()
    plan = ScanPlan(snapshot, None, tuple(SegmentScan(i, None, p) for i, p in wanted.items()), ())
    schema = pa.schema([SCHEMA.field(name) for name in names])
    tasks: list[object] = list(work.Cutter(metadata, plan, schema).cut(2))
    return (
        pa.concat_tables([schema.empty_table(), *scan.read(metadata, plan, names, threads=2)]),
        tasks,
    )


@pytest.mark.parametrize(
    "storage", [MemoryStorage, lambda: ObjectStorage("memory:///")], ids=["memory", "ranges"]
)
@pytest.mark.parametrize("page_bytes", [256, 4096])
def test_rows_at_positions_are_those_of_a_full_scan(storage: Any, page_bytes: int) -> None:
    table = table_in(storage(), page_bytes=page_bytes)
    snapshot, random = table.snapshot(), np.random.default_rng(5)
    for names in (["id", "ts", "city", "note"], ["city"]):
        for size in (1, 5, 300):
            wanted = {
                i: BitMap(random.integers(0, n + 2, size))
                for i, n in enumerate(snapshot.rows.tolist())
                if n
            }
            found, tasks = by_positions(table.metadata, wanted, names)
            assert size > 5 or all(isinstance(task, work.Rows) for task in tasks)
            live = [
                p
                for i, p in wanted.items()
                for p in p - (snapshot.vector(i) or BitMap())
                if p < snapshot.rows[i]
            ]
            assert len(found) == len(live)
            whole = {i: BitMap(range(int(snapshot.rows[i]))) for i in wanted}
            everything, tasks = by_positions(table.metadata, whole, names)
            assert bag(found) <= bag(everything)
    assert full(table).num_rows == 9000 - 100


def test_look_ups_by_key_give_the_newest_rows() -> None:
    table = table_in(MemoryStorage())
    expected = {row["id"]: row for row in full(table).to_pylist()}
    keys = [
        f"k{i:05}"
        for i in (0, 99, 100, 199, 200, 2989, 2990, 3009, 5999, 6000, 7000, 7299, 8999, 9000)
    ]
    found = table.scan([("id", "in", tuple(keys))]).to_arrow().to_pylist()
    assert sorted(row["id"] for row in found) == [key for key in keys if key in expected]
    assert all(row == expected[row["id"]] for row in found)
    assert table.scan("id = 'k03000'", columns=["note"]).to_arrow().to_pylist() == [
        {"note": expected["k03000"]["note"]}
    ]


FEW = ["n < 3", "n = 5 and city = 'c1'", "s.x = 7", "n > 19990 or note = ''", "n < 0"]
MANY = ["n >= 10", "city <> 'c2'"]


@pytest.mark.parametrize("where", [*FEW, *MANY])
@pytest.mark.parametrize("names", [["id", "city", "n", "note"], ["s"], ["n"], ["note", "s", "id"]])
def test_columns_that_are_not_tested_are_those_of_the_rows_that_match(
    where: str, names: list[str]
) -> None:
    found = _WIDE.scan(where, columns=names).to_arrow().to_pylist()
    mask = matches(parse_where(where, _WIDE.schema), _EVERYTHING)
    assert sorted(map(repr, found)) == sorted(
        map(repr, _EVERYTHING.filter(mask).select(names).to_pylist())
    )


def _wide() -> mdt.Table:
    n = 20_000
    texts = {
        "id": [f"{i:05}" for i in range(n)],
        "city": [f"c{i % 3}" for i in range(n)],
        "note": ["x" * (i % 60) for i in range(n)],
    }
    data = pa.table({**texts, "n": range(n), "s": [{"x": i % 5000} for i in range(n)]})
    table = mdt.create(MemoryStorage(), data.schema, ["id"], options={"mdt.row.group.rows": 9000})
    table.bulk_insert(data)
    table.upsert(data.slice(4, 4))
    table.delete(data.select(["id"]).slice(0, 2))
    return table


_WIDE = _wide()
_EVERYTHING = _WIDE.scan().to_arrow()


def test_work_is_cut_into_bounded_pieces_that_hold_every_row_once() -> None:
    table = table_in(MemoryStorage(), page_bytes=256)
    snapshot = table.snapshot()
    positions = {i: BitMap(range(0, int(n), 700)) for i, n in enumerate(snapshot.rows.tolist())}
    scans = tuple(SegmentScan(i, None, p) for i, p in positions.items())
    cutter = work.Cutter(table.metadata, ScanPlan(snapshot, None, scans, ()), SCHEMA)
    for threads in (1, 8):
        tasks = [task for task in cutter.cut(threads) if isinstance(task, work.Rows)]
        assert sum(len(w.positions) for task in tasks for w in task.wanted) == sum(
            len(p - (snapshot.vector(i) or BitMap())) for i, p in positions.items()
        )
        for task in tasks:
            assert len({w.page_map.columns for w in task.wanted}) == 1
    zoned = ScanPlan(
        snapshot, None, (SegmentScan(0, (1,), BitMap([0, 1999, 2000, 3999, 4000])),), ()
    )
    (task,) = work.Cutter(table.metadata, zoned, SCHEMA).cut(1)
    assert isinstance(task, work.Rows) and task.wanted[0].positions.tolist() == [2000, 3999]


def test_pages_of_files_that_are_gone_or_cut_are_not_read(tmp_path: Any) -> None:
    table = table_in(mdt.stores.storage.LocalStorage(tmp_path, durable=False))
    assert table.scan("id = 'k00500'").count() == 1
    name = next(f["name"] for f in table.files().to_pylist() if f["rows"] == 6000)
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(data[:-1])
    with pytest.raises(Corrupt, match="another size"):
        table.scan("id = 'k00500'").count()
    (tmp_path / name).unlink()
    with pytest.raises(Missing):
        table.scan("id = 'k00500'").count()


def _page_maps(table: mdt.Table) -> Iterator[tuple[int, ObjectRange]]:
    snapshot = table.snapshot()
    for i in snapshot.live_numbers.tolist():
        stored = snapshot.segment(i).page_map
        assert (stored is None) == (snapshot.rows[i] == 0)
        if stored is not None:
            yield i, stored


def test_every_flipped_bit_and_truncation_of_a_page_map_is_found() -> None:
    storage = MemoryStorage()
    table = mdt.create(storage, SCHEMA, ["id"], ordering="ts")
    table.bulk_insert(rows(0, 5, 1))
    ((_, stored),) = _page_maps(table)
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
    task = data[stored.offset : stored.offset + stored.length]
    for length in range(len(task)):
        with pytest.raises(Corrupt):
            page_map.decode(task[:length], path="p", offset=0)
        count("truncations of page maps, all found")


def test_a_well_checked_page_map_with_senseless_content_is_corrupt_or_none_of_its_rows_is_read() -> (
    None
):
    found = page_map.encode(page_map.build(pa.py_buffer(_parquet())))
    for at in range(len(found)):
        for value in (0, 1, 127, 255):
            data = found[:at] + bytes((value,)) + found[at + 1 :]
            try:
                page_map.decode(data, path="p", offset=7).check()
            except Corrupt as error:
                assert (error.path, error.offset) == ("p", 7)
            count("page maps with a changed byte, read or refused as Corrupt")
    for number in (1, 2**31, 2**32 - 1):
        for magic in (b"MPM2", b"MPM3"):
            with pytest.raises(Corrupt, match="wrong length"):
                page_map.decode(
                    struct.pack("<4s7I", magic, 7, number, number, number, 1, 0, 0),
                    path="p",
                    offset=0,
                )


def _parquet() -> bytes:
    table = table_in(MemoryStorage())
    file = table.snapshot().segment(0)
    return table.storage.read(file.path, file.block_offset, file.block_length)


@pytest.mark.parametrize("how", ["flipped", "gone"])
def test_damaged_page_maps_cost_no_rows_and_check_names_them(how: str) -> None:
    table = table_in(MemoryStorage())
    expected = table.scan([("id", "in", ("k00001", "k07001", "k03000"))]).to_arrow().sort_by("id")
    storage = table.storage
    assert isinstance(storage, MemoryStorage)
    damaged = storage.copy()
    objects = dict(_page_maps(table))
    for stored in objects.values():
        data = bytearray(damaged.read(stored.path))
        data[stored.offset + 40] ^= 1
        damaged.replace(stored.path, bytes(data)) if how == "flipped" else None
    again = mdt.open(damaged)
    if how == "gone":
        again.metadata.objects.page_map = _gone  # type: ignore[method-assign]
    assert (
        again.scan([("id", "in", ("k00001", "k07001", "k03000"))])
        .to_arrow()
        .sort_by("id")
        .equals(expected)
    )
    if how == "flipped":
        found = {(p.path, p.offset) for p in again.check().problems}
        assert {(stored.path, stored.offset) for stored in objects.values()} <= found
    assert table.check().ok


def _gone(stored: ObjectRange) -> page_map.PageMap:
    raise Missing("there is no such object", path=stored.path)


def test_check_compares_page_maps_with_the_files() -> None:
    table = table_in(MemoryStorage())
    storage, snapshot = table.storage, table.snapshot()
    assert isinstance(storage, MemoryStorage)
    stored = next(stored for i, stored in _page_maps(table) if i == 0)
    data = storage.read(stored.path)
    lie = data[stored.offset : stored.offset + stored.length].replace(b"city", b"tyci")
    storage.replace(
        stored.path, data[: stored.offset] + lie + data[stored.offset + stored.length :]
    )
    crcs = pa.array(
        [zlib.crc32(lie), *snapshot.files.column("page_map_crc").to_pylist()[1:]], pa.int64()
    )
    task = log_tail.merged(snapshot.additions)
    at = task.files.schema.get_field_index("page_map_crc")
    lying = replace(task, files=task.files.set_column(at, "page_map_crc", crcs))
    report = check(
        mdt.open(storage).metadata, replace(snapshot, additions=(lying,), known=Recent(1))
    )
    assert f"the page map at {stored.path}:{stored.offset} differs from the file" in [
        p.text for p in report.problems
    ]
