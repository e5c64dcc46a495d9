"""Rows that are read page by page are the rows that a full read gives, whatever the types, codecs
and layouts.
"""

from __future__ import annotations

import datetime
import decimal
import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdt.errors import Corrupt
from mdt.hudi import base_file
from mdt.limits import PAGE_ROWS_MAX
from mdt.parquet import page_map
from mdt.parquet import pages as page_reader
from mdt.parquet.pages import Wanted, read_pages
from mdt.parquet.thrift import (
    Malformed,
    find,
    integer,
    list_head,
    read_integer,
    read_list,
    read_varint,
    skip,
    varint,
)
from mdt.stores.storage import MemoryStorage

STORAGE = MemoryStorage()
DAY, MOMENT = (
    datetime.date(1969, 7, 20),
    datetime.datetime(2024, 2, 29, 23, 59, 59, 999_000, datetime.UTC),
)
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, False]),
    "int": (pa.int32(), [0, -1, 2**31 - 1]),
    "long": (pa.int64(), [0, -1, 2**63 - 1]),
    "float": (pa.float32(), [0.0, -0.0, float("nan"), float("inf"), 1.5]),
    "double": (pa.float64(), [0.0, -0.0, float("nan"), float("-inf"), 1.1]),
    "text": (pa.string(), ["", "a", "ü" * 40, "a\nb"]),
    "bytes": (pa.binary(), [b"", b"\0", b"\xff" * 90]),
    "date": (pa.date32(), [DAY, datetime.date(1, 1, 1)]),
    "millis": (pa.timestamp("ms", "UTC"), [MOMENT]),
    "micros": (pa.timestamp("us", "UTC"), [MOMENT]),
    "small": (pa.decimal128(5, 2), [decimal.Decimal("-0.01"), decimal.Decimal("999.99")]),
    "large": (pa.decimal128(38, 10), [decimal.Decimal("1" * 28), decimal.Decimal("-0.0000000001")]),
}
SCHEMA = pa.schema([(name, type) for name, (type, _) in VALUES.items()])


@pytest.fixture(
    scope="module", autouse=True, params=[0, 1 << 40], ids=["text stays encoded", "text is decoded"]
)
def encoded_groups_min(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(page_reader, "_ENCODED_GROUPS_MIN", request.param)
        yield


def column(name: str, n: int, random: np.random.Generator, style: str) -> pa.Array:
    """Return values of one type: few or many different ones, with or without nulls, or only
    nulls.
    """
    type, few = VALUES[name]
    if style == "many" and name in ("int", "long", "float", "double"):
        return pa.array(random.integers(0, 1 << 22, n)).cast(type)
    if style == "many" and name in ("text", "bytes"):
        return pa.array([f"{x:x}" * (x % 7) for x in random.integers(0, 1 << 40, n).tolist()]).cast(
            type
        )
    values = pa.array([None, *few], type)
    low, high = {"null": (0, 1), "nulls": (0, len(values))}.get(style, (1, len(values)))
    return values.take(pa.array(random.integers(low, high, n)))


def table_of(n: int, seed: int, styles: dict[str, str] | None = None) -> pa.Table:
    random = np.random.default_rng(seed)
    chosen = styles or dict.fromkeys(VALUES, "nulls")
    return pa.table([column(name, n, random, chosen[name]) for name in VALUES], schema=SCHEMA)


def encoded(
    table: pa.Table, *, row_group_rows: int = 4000, page_bytes: int = 1024, compression: str = "lz4"
) -> pa.Buffer:
    data, _ = base_file.encode(
        table,
        row_group_rows=row_group_rows,
        avro_schema="{}",
        min_key=None,
        max_key=None,
        bloom=None,
        page_bytes=page_bytes,
        compression=compression,
    )
    return data


def wanted(data: pa.Buffer, positions: Any, *, name: str = "f", near: bool = True) -> Wanted:
    found = page_map.build(data)
    if not near:
        STORAGE.put_if_absent(name, [b"front", data])
    at = np.array(sorted(positions), dtype=np.int64)
    return Wanted(name, 0 if near else 5, data.size, data if near else None, found, at)


def same(a: pa.Table, b: pa.Table) -> bool:
    """Compare bit by bit, so that NaN equals NaN and -0.0 does not equal 0.0."""
    bits = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}
    plain = [
        pa.table(
            [c.combine_chunks().view(bits[c.type]) if c.type in bits else c for c in t.columns],
            t.column_names,
        )
        for t in (a, b)
    ]
    return a.schema == b.schema and plain[0].equals(plain[1])


@st.composite
def files(draw: st.DrawFn) -> tuple[pa.Table, pa.Buffer, list[int]]:
    n = draw(st.sampled_from((1, 7, 700, 1024, 1025, 2600, 5000)))
    styles = {name: draw(st.sampled_from(("few", "many", "nulls", "null"))) for name in VALUES}
    table = table_of(n, draw(st.integers(0, 1000)), styles)
    group = draw(st.sampled_from((300, 1024, 2000, 1 << 20)))
    data = encoded(
        table, row_group_rows=group, page_bytes=draw(st.sampled_from((256, 2048, 1 << 20)))
    )
    some = draw(st.sets(st.integers(0, n - 1), min_size=1, max_size=30))
    return table, data, sorted(some | ({0, n - 1} if draw(st.booleans()) else set()))


@given(
    given_files=st.lists(files(), min_size=1, max_size=3),
    names=st.sets(st.sampled_from(sorted(VALUES)), min_size=1),
)
def test_pages_give_the_rows_that_a_full_read_gives(
    given_files: list[tuple[pa.Table, pa.Buffer, list[int]]], names: set[str]
) -> None:
    schema = pa.schema([f for f in SCHEMA if f.name in names])
    expected = pa.concat_tables([table.take(rows) for table, _, rows in given_files]).select(
        schema.names
    )
    assert same(
        read_pages(STORAGE, [wanted(data, rows) for _, data, rows in given_files], schema), expected
    )


@pytest.mark.parametrize("compression", ["lz4", "zstd", "snappy", "none"])
def test_every_codec_is_read_by_pages(compression: str) -> None:
    table = table_of(3000, 1)
    found = read_pages(
        STORAGE, [wanted(encoded(table, compression=compression), [5, 2999])], SCHEMA
    )
    assert same(found, table.take([5, 2999]))


def test_a_chunk_whose_dictionary_grew_too_large_has_pages_of_both_kinds() -> None:
    texts = ["often"] * 2000 + [f"{n:0200}" for n in range(12_000)]
    table = pa.table({"text": texts, "long": list(range(14_000))})
    data = encoded(table, row_group_rows=1 << 20, page_bytes=4096)
    chunk = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0).column(0)
    assert {"PLAIN", "RLE_DICTIONARY"} <= set(chunk.encodings)
    rows = [0, 1999, 2000, 5000, 9000, 13_999]
    assert same(read_pages(STORAGE, [wanted(data, rows)], table.schema), table.take(rows))


def test_nested_columns_are_left_out_of_page_maps_that_are_made_as_older_writers_made_them() -> (
    None
):
    table = pa.table(
        {
            "list": [[1, 2], []] * 2000,
            "long": range(4000),
            "struct": [{"long": 1}] * 4000,
            "text": ["x"] * 4000,
        }
    )
    data = encoded(table)
    assert page_map.build(data).columns == ("list.list.element", "long", "struct.long", "text")
    found = page_map.build(data, nested=False)
    assert found.columns == ("long", "text") and page_map.encode(found)[:4] == b"MPM3"
    flat = table.select(["text", "long"])
    assert same(read_pages(STORAGE, [wanted(data, [3, 3999])], flat.schema), flat.take([3, 3999]))


@pytest.mark.parametrize("seed", range(3))
def test_far_pages_are_read_in_ranges(seed: int) -> None:
    table = table_of(5000, seed, dict.fromkeys(VALUES, "many"))
    data = encoded(table, page_bytes=256)
    far = wanted(data, [1, 2, 4999], name=f"far-{seed}", near=False)
    near = wanted(encoded(table.slice(100, 1500)), [0, 1499])
    found = read_pages(STORAGE, [far, near, far], SCHEMA)
    assert same(found, table.take([1, 2, 4999, 100, 1599, 1, 2, 4999]))


@given(
    n=st.sampled_from((1, 900, 3000)),
    group=st.sampled_from((250, 4096)),
    page_bytes=st.sampled_from((256, 4096)),
)
def test_page_maps_come_back_as_they_were(n: int, group: int, page_bytes: int) -> None:
    found = page_map.build(encoded(table_of(n, n), row_group_rows=group, page_bytes=page_bytes))
    found.check()
    data = page_map.encode(found)
    again = page_map.decode(data, path="", offset=0)
    assert page_map.encode(again) == data
    assert all(
        np.array_equal(getattr(found, a), getattr(again, a))
        for a in ("start", "dictionary", "first", "keys", "before")
    )
    assert (again.columns, again.rows, again.groups) == (tuple(VALUES), n, -(-n // group))
    assert again.codec.tolist() == found.codec.tolist() and set(found.codec.tolist()) <= {0, 1, 7}


def test_page_maps_of_the_format_before_are_read() -> None:
    table = pa.table(
        {"fare": [float(n % 7) for n in range(3000)], "status": [f"s{n % 3}" for n in range(3000)]}
    )
    found = page_map.build(encoded(table))
    data = page_map.encode(found)
    chunks = len(found.codec)
    names = len("fare\nstatus")
    older = (
        struct.pack("<4sI", b"MPM2", 7 | 1 << 8)
        + data[8 : len(data) - chunks - names]
        + data[len(data) - names :]
    )
    assert found.codec.tolist() == [7, 1]
    assert page_map.encode(page_map.decode(older, path="", offset=0)) == data


def test_pages_of_several_codecs_and_encodings_are_read_together() -> None:
    table = table_of(3000, 3)
    few = table.slice(0, 900)
    parts = [encoded(table, compression=codec) for codec in ("zstd", "lz4", "none", "snappy")]
    given_pages = [
        *(wanted(data, [5, 2999]) for data in parts),
        wanted(encoded(few), [7]),
        wanted(parts[0], [6, 9]),
    ]
    expected = [*(table.take([5, 2999]) for _ in parts), few.take([7]), table.take([6, 9])]
    assert same(read_pages(STORAGE, given_pages, SCHEMA), pa.concat_tables(expected))


def test_sorted_texts_and_integers_are_packed_and_read_by_pages() -> None:
    n = 5000
    draw = np.random.default_rng(5)
    table = pa.table(
        {
            "key": [f"id_{i:012}" for i in range(n)],
            "null": [None if i % 10 == 0 else f"some/longer/path/{i:08}" for i in range(n)],
            "hash": [bytes(draw.bytes(12)).hex() for _ in range(n)],
            "at": pa.array(draw.integers(0, 1 << 62, n), pa.timestamp("us", "UTC")),
            "day": pa.array(draw.integers(0, 1 << 20, n).astype(np.int32), pa.date32()),
            "u64": pa.array(draw.integers(0, 1 << 64, n, np.uint64)),
            "i8": pa.array(draw.integers(-128, 128, n).astype(np.int8)),
            "i32": pa.array(
                [
                    None if i % 5 == 0 else int(v)
                    for i, v in enumerate(draw.integers(-(2**31), 2**31, n))
                ],
                pa.int32(),
            ),
        }
    )
    data = encoded(table, compression="zstd")
    group = pq.read_metadata(pa.BufferReader(data)).row_group(0)
    encodings = {
        group.column(i).path_in_schema: set(group.column(i).encodings) - {"RLE"}
        for i in range(len(table.columns))
    }
    assert encodings.pop("i8") == {"PLAIN", "RLE_DICTIONARY"}
    assert encodings.pop("hash") == {"PLAIN"}
    assert {name for name, found in encodings.items() if found == {"DELTA_BYTE_ARRAY"}} == {
        "key",
        "null",
    }
    assert {name for name, found in encodings.items() if found == {"PLAIN"}} == {
        "at",
        "day",
        "u64",
        "i32",
    }
    rows = [0, 17, 511, 512, 4999]
    assert pq.read_table(pa.BufferReader(data)).equals(table)
    assert read_pages(STORAGE, [wanted(data, rows)], table.schema).equals(table.take(rows))


def test_pages_are_small_where_a_table_is_large() -> None:
    found = page_map.build(
        encoded(
            table_of(20_000, 2, dict.fromkeys(VALUES, "many")),
            row_group_rows=1 << 20,
            page_bytes=2048,
        )
    )
    pages = found.info
    assert int(pages[:, page_map.ROWS].max()) <= PAGE_ROWS_MAX
    text = pages[(found.keys >> 32) == list(VALUES).index("text")]
    assert int(text[:, page_map.ROWS].max()) < PAGE_ROWS_MAX
    small = page_map.build(encoded(table_of(1000, 2)))
    assert small.count == len(VALUES)


def test_long_values_have_pages_of_their_own_in_large_and_small_tables() -> None:
    for n in (30, 700):
        table = pa.table({"text": [f"{i:060000}" for i in range(n)], "long": range(n)})
        found = page_map.build(encoded(table, page_bytes=4096))
        rows = found.info[:, page_map.ROWS]
        assert int(rows[found.keys < 1 << 32].max()) == 1
        assert int(rows.max()) > 20


@given(data=st.data())
def test_damaged_pages_are_corrupt_or_read_but_nothing_else_happens(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, _GOOD.length - 1))
    junk = data.draw(st.binary(min_size=1, max_size=12))
    whole = _GOOD.parquet.to_pybytes()
    damaged = pa.py_buffer((whole[:at] + junk + whole[at + len(junk) :])[: len(whole)])
    try:
        found = read_pages(
            STORAGE, [Wanted("f", 0, len(whole), damaged, _GOOD.page_map, _GOOD.positions)], SCHEMA
        )
    except Corrupt as error:
        assert error.path == "f"
    else:
        assert len(found) == len(_GOOD.positions)


_GOOD = wanted(encoded(table_of(2500, 3)), [0, 1000, 2499])


def test_a_page_map_of_another_file_is_corrupt() -> None:
    table = table_of(2500, 4)
    other = page_map.build(encoded(table, page_bytes=256))
    mine = wanted(encoded(table), [0, 1, 600, 2000])
    with pytest.raises(Corrupt):
        read_pages(
            STORAGE, [Wanted("f", 0, mine.length, mine.parquet, other, mine.positions)], SCHEMA
        )
    with pytest.raises(Corrupt, match="impossible page"):
        read_pages(
            STORAGE, [Wanted("f", 0, 900, mine.parquet, mine.page_map, mine.positions)], SCHEMA
        )


def test_other_numbers_of_values_than_the_page_map_says_are_corrupt() -> None:
    table = pa.table({"long": range(100)})
    data = encoded(table)
    true = page_map.build(data)
    lie = replace(true, rows=101)
    with pytest.raises(Corrupt, match="100 values instead of 101"):
        read_pages(STORAGE, [Wanted("f", 0, data.size, data, lie, np.array([5]))], table.schema)


# Thrift


@given(value=st.integers(0, 2**62), kind=st.sampled_from((5, 6)), step=st.integers(1, 15))
def test_numbers_come_back_from_thrift(value: int, kind: int, step: int) -> None:
    data = integer(step, kind, value) + b"\0"
    assert read_integer(data, find(data, 0, step)) == value
    assert skip(data, 0, 12) == len(data)
    assert read_varint(varint(value) + b"?", 0) == (value, len(varint(value)))
    with pytest.raises(Malformed):
        find(data, 0, step + 1)


@given(size=st.integers(0, 10**6), kind=st.integers(1, 12))
def test_list_heads_come_back_from_thrift(size: int, kind: int) -> None:
    head = list_head(kind, size)
    assert read_list(head, 0) == (kind, size, len(head))


def test_deep_nesting_is_malformed() -> None:
    with pytest.raises(Malformed, match="deep"):
        skip(b"\x1c" * 100, 0, 12)
    with pytest.raises(Malformed, match="type 13"):
        skip(b"\x1d", 0, 12)
