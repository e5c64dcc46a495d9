"""Single rows of a table with structs, lists and maps are read by pages, except from files of older
writers. The rows are those of a full scan.
"""

from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from reader import bag

import mdt
from mdt.parquet import page_map
from mdt.parquet.segment_rows import read_columns
from mdt.scan import reader as scan
from mdt.stores.storage import MemoryStorage

N = 9_000
NEAR = pa.list_(pa.struct({"zip": "string"}))
SCHEMA = pa.schema(
    {
        "id": "string",
        "ts": "int64",
        "city": "string",
        "geo": pa.struct({"lat": pa.float64(), "near": NEAR}),
        "tags": pa.map_(pa.string(), pa.int64()),
    }
)


def rows(numbers, ts=1):
    records = [
        {
            "id": f"k{i:05}",
            "ts": ts,
            "city": f"c{i % 1000}",
            "geo": {"lat": i / 3, "near": [{"zip": f"{i}"}, None] * (i % 3)},
            "tags": [(f"t{i % 4}", i)] * (i % 2),
        }
        for i in numbers
    ]
    for i, row in zip(numbers, records, strict=True):
        if i % 5 == 0:
            row["geo"]["near"] = None
        if i % 7 == 0:
            row["geo"] = None
        if i % 11 == 0:
            row["tags"] = None
    return pa.Table.from_pylist(records, schema=SCHEMA)


def create_filled_table(storage):
    """Return a table with a base file of five row groups, a log file over it, and deleted rows."""
    options = {"mdt.row.group.rows": 2000, "mdt.page.bytes": 512}
    table = mdt.create(
        storage, SCHEMA, ["id"], ordering="ts", indexes=["bitmap(city)"], options=options
    )
    table.bulk_insert(rows(range(N)))
    table.upsert(rows(range(2990, 3010), 2))
    table.delete(rows(range(100, 120)).select(["id"]))
    return table


@pytest.fixture
def by_row_groups(monkeypatch):
    """Return a list that receives the columns and row groups of each read by row groups."""
    reads = []

    def record_read(*args, row_groups=None, **more):
        reads.append((tuple(args[3].names), row_groups and tuple(row_groups)))
        return read_columns(*args, row_groups=row_groups, **more)

    monkeypatch.setattr(scan, "read_columns", record_read)
    return reads


@pytest.fixture
def older_writer():
    """Write page maps as older writers did, without nested columns."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(page_map, "encode_file", partial(page_map.encode_file, nested=False))
        yield


def assert_few_rows_are_right(table, seed):
    all_rows = table.scan().to_arrow()
    random_numbers = np.random.default_rng(seed).integers(0, N, 30).tolist()
    keys = [f"k{i:05}" for i in sorted({0, 100, 119, 2989, 2990, 3009, 8999, *random_numbers})]
    rows_of_keys = all_rows.filter(pa.compute.is_in(all_rows["id"], pa.array(keys)))
    for names in (SCHEMA.names, ["id", "geo"], ["tags", "id"], ["id", "city"]):
        read_rows = table.scan([("id", "in", tuple(keys))], columns=names).to_arrow()
        assert bag(read_rows) == bag(rows_of_keys.select(names))
    expected = {row["id"]: row for row in rows_of_keys.to_pylist()}
    assert [table.get(key) for key in keys] == [expected.get(key) for key in keys]
    in_town = all_rows.filter(pa.compute.equal(all_rows["city"], "c17"))
    assert bag(table.scan("city = 'c17'").to_arrow()) == bag(in_town)


def test_single_rows_with_nested_columns_are_read_without_row_groups(by_row_groups):
    table = create_filled_table(MemoryStorage())
    for key in ("k02995", "k08999"):
        assert table.get(key)["id"] == key
    assert table.scan("city = 'c17'").count() == 9
    assert by_row_groups == []
    assert_few_rows_are_right(table, 1)


@pytest.mark.usefixtures("older_writer")
def test_rows_with_nested_columns_in_files_of_older_writers_are_read_by_row_groups(by_row_groups):
    table = create_filled_table(MemoryStorage())
    assert table.get("k08999")["id"] == "k08999"
    [(names, row_groups)] = by_row_groups
    assert sorted(names) == sorted(SCHEMA.names) and row_groups == (4,)
    assert table.scan("city = 'c17'", columns=["id"]).count() == 9
    assert len(by_row_groups) == 1
    assert_few_rows_are_right(table, 2)


@pytest.mark.parametrize("is_old", [False, True], ids=["new page maps", "older page maps"])
def test_nested_fields_added_later_are_null_in_rows_read_by_pages_of_older_files(is_old, request):
    if is_old:
        request.getfixturevalue("older_writer")
    table = create_filled_table(MemoryStorage())
    table.alter(
        add={"geo.height": pa.float32(), "geo.near.element.name": pa.string()},
        widen={"tags.value": pa.float64()},
        beyond_hudi=True,
    )
    near = [{"zip": "1", "name": None}, None]
    assert table.get("k00001")["geo"] == {"lat": 1 / 3, "near": near, "height": None}
    table.upsert(table.scan("city = 'c5'").to_arrow())
    assert_few_rows_are_right(table, 3)


@pytest.mark.parametrize("is_old", [False, True], ids=["new page maps", "older page maps"])
def test_page_maps_of_both_kinds_pass_the_check_and_are_repaired_to_the_same_bytes(
    is_old, monkeypatch
):
    storage, encode_file = MemoryStorage(), page_map.encode_file
    with monkeypatch.context() as patched:
        if is_old:
            patched.setattr(page_map, "encode_file", partial(encode_file, nested=False))
        table = create_filled_table(storage)
    assert table.check().ok
    stored = table.snapshot().segment(0).page_map
    original = storage.read(stored.path)
    end = stored.offset + stored.length
    storage.replace(stored.path, original[: stored.offset] + bytes(stored.length) + original[end:])
    assert_few_rows_are_right(mdt.open(storage), 4)
    mdt.open(storage).repair()
    assert storage.read(stored.path) == original
