"""Few rows of a table with structs, lists and maps are read by pages, of files of older writers in
part; the rows are those of a full scan.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from reader import bag

import mdt
from mdt.metadata.files.segment_columns import read_columns
from mdt.parquet import page_map
from mdt.parquet.segment_rows import read_rows
from mdt.scan import reader as scan
from mdt.stores.storage import MemoryStorage

N = 9_000
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("city", pa.string()),
        (
            "geo",
            pa.struct(
                [("lat", pa.float64()), ("near", pa.list_(pa.struct([("zip", pa.string())])))]
            ),
        ),
        ("tags", pa.map_(pa.string(), pa.int64())),
    ]
)


def rows(numbers: range, ts: int = 1) -> pa.Table:
    found = [
        {
            "id": f"k{i:05}",
            "ts": ts,
            "city": f"c{i % 1000}",
            "geo": (
                None
                if i % 7 == 0
                else {
                    "lat": i / 3,
                    "near": None if i % 5 == 0 else [{"zip": f"{i}"}, None] * (i % 3),
                }
            ),
            "tags": None if i % 11 == 0 else [(f"t{i % 4}", i)] * (i % 2),
        }
        for i in numbers
    ]
    return pa.Table.from_pylist(found, schema=SCHEMA)


def filled(storage: MemoryStorage) -> mdt.Table:
    """Return a table of a base file of five row groups, a log file over it, and deleted rows."""
    options = {"mdt.row.group.rows": 2000, "mdt.page.bytes": 512}
    table = mdt.create(
        storage, SCHEMA, ["id"], ordering="ts", indexes=["bitmap(city)"], options=options
    )
    table.bulk_insert(rows(range(N)))
    table.upsert(rows(range(2990, 3010), 2))
    table.delete(rows(range(100, 120)).select(["id"]))
    return table


@pytest.fixture
def by_row_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> list[tuple[tuple[str, ...], tuple[int, ...] | None]]:
    """Return a list to which each read of row groups adds its columns and row groups."""
    found: list[tuple[tuple[str, ...], tuple[int, ...] | None]] = []

    def seen(
        read: Any, schema_at: int, *args: Any, row_groups: Any = None, **more: Any
    ) -> pa.Table:
        found.append(
            (tuple(args[schema_at].names), None if row_groups is None else tuple(row_groups))
        )
        return read(*args, row_groups=row_groups, **more)

    monkeypatch.setattr(scan, "read_columns", partial(seen, read_columns, 3))
    monkeypatch.setattr(scan, "read_rows", partial(seen, read_rows, 2))
    return found


@pytest.fixture
def older_writer() -> Iterator[None]:
    """Let page maps be written as older writers wrote them, without nested columns."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(page_map, "encoded", partial(page_map.encoded, nested=False))
        yield


def assert_few_rows_are_right(table: mdt.Table, random: np.random.Generator) -> None:
    everything = table.scan().to_arrow()
    keys = [
        f"k{i:05}"
        for i in sorted({0, 100, 119, 2989, 2990, 3009, 8999, *random.integers(0, N, 30).tolist()})
    ]
    expected = {row["id"]: row for row in everything.to_pylist() if row["id"] in keys}
    for names in (None, ["id", "geo"], ["tags", "id"], ["id", "city"]):
        wanted = [{name: row[name] for name in names or SCHEMA.names} for row in expected.values()]
        asked = [("id", "in", tuple(keys))]
        schema = everything.select(names or SCHEMA.names).schema
        assert bag(table.scan(asked, columns=names).to_arrow()) == bag(
            pa.Table.from_pylist(wanted, schema=schema)
        )
    assert [table.get(key) for key in keys] == [expected.get(key) for key in keys]
    assert bag(table.scan("city = 'c17'").to_arrow()) == bag(
        everything.filter(pa.compute.equal(everything["city"], "c17"))
    )


def test_few_rows_with_nested_columns_are_read_without_row_groups(by_row_groups: list[Any]) -> None:
    table = filled(MemoryStorage())
    everything = {row["id"]: row for row in table.scan().to_arrow().to_pylist()}
    by_row_groups.clear()
    assert (
        table.get("k02995") == everything["k02995"] and table.get("k08999") == everything["k08999"]
    )
    assert table.scan("city = 'c17'").count() == 9
    assert by_row_groups == []
    assert_few_rows_are_right(table, np.random.default_rng(1))


@pytest.mark.usefixtures("older_writer")
def test_of_files_of_older_writers_only_nested_columns_are_read_by_row_groups(
    by_row_groups: list[Any],
) -> None:
    table = filled(MemoryStorage())
    everything = {row["id"]: row for row in table.scan().to_arrow().to_pylist()}
    by_row_groups.clear()
    assert table.get("k08999") == everything["k08999"]
    assert by_row_groups == [(("geo", "tags"), (4,))]
    assert table.scan("city = 'c17'", columns=["id"]).count() == 9
    assert len(by_row_groups) == 1
    assert_few_rows_are_right(table, np.random.default_rng(2))


@pytest.mark.parametrize("is_old", [False, True], ids=["new page maps", "older page maps"])
def test_fields_that_were_added_to_a_struct_later_are_read_by_pages_of_older_files(
    is_old: bool, request: pytest.FixtureRequest
) -> None:
    if is_old:
        request.getfixturevalue("older_writer")
    table = filled(MemoryStorage())
    table.alter(
        add={"geo.height": pa.float32(), "geo.near.element.name": pa.string()},
        widen={"tags.value": pa.float64()},
        beyond_hudi=True,
    )
    found = table.get("k00001")
    assert found["geo"] == {
        "lat": 1 / 3,
        "near": [{"zip": "1", "name": None}, None],
        "height": None,
    }
    table.upsert(table.scan("city = 'c5'").to_arrow())
    assert_few_rows_are_right(table, np.random.default_rng(3))


@pytest.mark.usefixtures("older_writer")
def test_page_maps_of_older_writers_pass_the_check_and_are_put_back_as_they_were() -> None:
    storage = MemoryStorage()
    table = filled(storage)
    stored = table.snapshot().segment(0).page_map
    assert stored is not None
    good = storage.read(stored.path)
    damaged = bytearray(good)
    damaged[stored.offset + 40] ^= 1
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(page_map, "encoded", page_map.encoded.func)  # type: ignore[attr-defined]  # as it is now
        assert table.check().ok
        storage.replace(stored.path, bytes(damaged))
        mdt.open(storage).repair()
    assert storage.read(stored.path) == good


def test_tables_with_lists_pass_the_check_and_their_page_maps_are_put_back() -> None:
    storage = MemoryStorage()
    table = filled(storage)
    assert table.check().ok
    stored = table.snapshot().segment(0).page_map
    assert stored is not None
    good = storage.read(stored.path)
    storage.replace(
        stored.path,
        good[: stored.offset] + bytes(stored.length) + good[stored.offset + stored.length :],
    )
    assert_few_rows_are_right(mdt.open(storage), np.random.default_rng(4))
    mdt.open(storage).repair()
    assert storage.read(stored.path) == good
