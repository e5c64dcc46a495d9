"""Structs, lists and maps that are read page by page are those that a full read gives, however they
are nested.
"""

from __future__ import annotations

import datetime
import decimal
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdt.errors import Corrupt
from mdt.hudi import base_file
from mdt.limits import PAGE_VALUES_MAX
from mdt.parquet import page_map
from mdt.parquet import pages as page_reader
from mdt.parquet.nested import leaf_columns, leaf_values
from mdt.parquet.page_map import OFFSET, ROW, ROWS, SIZE, VALUES
from mdt.parquet.pages import Wanted, read_pages
from mdt.schema.convert import filled
from mdt.stores.storage import MemoryStorage

BoolArray = npt.NDArray[np.bool_]
STORAGE = MemoryStorage()
LEAVES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, False]),
    "int": (pa.int32(), [0, -1, 2**31 - 1]),
    "long": (pa.int64(), list(range(0, 1 << 40, 1 << 33))),
    "double": (pa.float64(), [0.0, 1.5, float("inf")]),
    "text": (pa.string(), ["", "a", "ü" * 40, *(f"text {n}" for n in range(50))]),
    "bytes": (pa.binary(), [b"", b"\xff" * 90]),
    "day": (pa.date32(), [datetime.date(1969, 7, 20)]),
    "at": (
        pa.timestamp("us", "UTC"),
        [datetime.datetime(2024, 2, 29, 23, 59, tzinfo=datetime.UTC)],
    ),
    "price": (pa.decimal128(20, 2), [decimal.Decimal("-0.01"), decimal.Decimal("999.99")]),
}
VALUES_OF = dict(LEAVES.values())
LENGTHS = (0, 0, 1, 2, 5, 40)


def types(depth: int = 3) -> st.SearchStrategy[pa.DataType]:
    """Draw types: leaves, and structs, lists and maps of such, with fields that may and may not be
    null.
    """
    leaf = st.sampled_from([type for type, _ in LEAVES.values()])
    if not depth:
        return leaf
    inner = types(depth - 1)
    fields = st.lists(st.tuples(inner, st.booleans()), min_size=1, max_size=3)
    return st.one_of(
        leaf,
        fields.map(
            lambda some: pa.struct(
                [pa.field(f"f{n}", t, nullable) for n, (t, nullable) in enumerate(some)]
            )
        ),
        st.tuples(inner, st.booleans()).map(
            lambda one: pa.list_(pa.field("element", one[0], one[1]))
        ),
        st.tuples(inner, st.booleans()).map(
            lambda one: pa.map_(pa.string(), pa.field("value", one[0], one[1]))
        ),
    )


def arrays(
    type: pa.DataType,
    n: int,
    random: np.random.Generator,
    nulls: float,
    absent: BoolArray | None = None,
) -> pa.Array:
    """Return ``n`` random values; nulls where the type allows them, long lists now and then;
    ``absent``: where a struct around them is null.
    """
    mask = random.random(n) < nulls
    gone = mask if absent is None else mask | absent
    if pa.types.is_struct(type):
        fields = [
            arrays(field.type, n, random, nulls if field.nullable else 0, gone) for field in type
        ]
        return pa.StructArray.from_arrays(fields, fields=list(type), mask=pa.array(mask))
    if pa.types.is_list(type) or pa.types.is_map(type):
        lengths = np.where(gone, 0, random.choice(LENGTHS, n))
        ends = np.append(0, np.cumsum(lengths)).astype(np.int32)
        if pa.types.is_list(type):
            field = type.value_field
            values = arrays(field.type, int(ends[-1]), random, nulls if field.nullable else 0)
            return pa.ListArray.from_arrays(ends, values, type=type, mask=pa.array(mask))
        keys = pa.array([f"k{number}" for number in range(ends[-1])], pa.string())
        items = arrays(
            type.item_type, int(ends[-1]), random, nulls if type.item_field.nullable else 0
        )
        return pa.MapArray.from_arrays(ends, keys, items, type=type, mask=pa.array(mask))
    few = pa.array(VALUES_OF[type], type)
    at = pa.array(random.integers(0, len(few), n), mask=mask)
    return few.take(at)


def encoded(table: pa.Table, *, row_group_rows: int = 4000, page_bytes: int = 1024) -> pa.Buffer:
    data, _ = base_file.encode(
        table,
        row_group_rows=row_group_rows,
        avro_schema="{}",
        min_key=None,
        max_key=None,
        bloom=None,
        page_bytes=page_bytes,
    )
    return data


def wanted(data: pa.Buffer, positions: Any) -> Wanted:
    told = page_map.decode(page_map.encode(page_map.build(data)), path="", offset=0)
    return Wanted("f", 0, data.size, data, told, np.array(sorted(positions), np.int64))


def same(found: pa.Table, expected: pa.Table) -> bool:
    found.validate(full=True)
    return bool(found.schema.equals(expected.schema) and found.to_pylist() == expected.to_pylist())


@st.composite
def files(draw: st.DrawFn, schema: pa.Schema) -> tuple[pa.Table, Wanted]:
    n = draw(st.sampled_from((1, 6, 300, 1025, 2600)))
    random = np.random.default_rng(draw(st.integers(0, 1000)))
    nulls = draw(st.sampled_from((0.0, 0.1, 0.9)))
    columns = [filled(arrays(field.type, n, random, nulls), field.type) for field in schema]
    table = pa.table(columns, schema=schema)
    data = encoded(
        table,
        row_group_rows=draw(st.sampled_from((100, 1024, 1 << 20))),
        page_bytes=draw(st.sampled_from((256, 1024, 1 << 20))),
    )
    some = draw(st.sets(st.integers(0, n - 1), min_size=1, max_size=30))
    return table, wanted(data, range(n) if draw(st.booleans()) else some | {0, n - 1})


@pytest.mark.parametrize(
    "encoded_values_min", [0, 1 << 40], ids=["text stays encoded", "text is decoded"]
)
@given(data=st.data())
@settings(deadline=None)
def test_pages_of_nested_columns_give_the_rows_that_a_full_read_gives(
    encoded_values_min: int, data: st.DataObject
) -> None:
    drawn = data.draw(st.lists(types(), min_size=1, max_size=3))
    schema = pa.schema([(f"c{number}", type) for number, type in enumerate(drawn)])
    some = data.draw(st.lists(files(schema), min_size=1, max_size=3))
    names = data.draw(st.sets(st.sampled_from(schema.names), min_size=1))
    asked = pa.schema([field for field in schema if field.name in names])
    expected = pa.concat_tables(table.take(one.positions) for table, one in some).select(
        asked.names
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(page_reader, "_ENCODED_VALUES_MIN", encoded_values_min)
        assert same(read_pages(STORAGE, [one for _, one in some], asked), expected)


@given(type=types())
def test_leaves_have_the_paths_and_types_that_parquet_gives_them(type: pa.DataType) -> None:
    schema = pa.schema([("id", pa.int64()), ("c", type)])
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    stored = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    found = leaf_columns(schema)
    assert [leaf.path for leaf in found] == [stored.column(at).path for at in range(len(stored))]
    array = pa.chunked_array([arrays(type, 50, np.random.default_rng(1), 0.1)])
    assert [leaf_values(array, leaf).type for leaf in found[1:]] == [
        leaf.type for leaf in found[1:]
    ]


def long_lists(n: int = 300, length: int = 3000) -> pa.Table:
    ends = np.arange(0, n * length + 1, length, dtype=np.int32)
    return pa.table(
        {"id": range(n), "l": pa.ListArray.from_arrays(ends, pa.array(np.arange(n * length)))}
    )


def test_a_row_whose_list_is_longer_than_a_page_stands_in_one_page() -> None:
    table = long_lists()
    one = wanted(encoded(table, page_bytes=4096), [0, 17, 299])
    of_list = one.page_map.info[one.page_map.keys >> 32 == 1]
    assert of_list[:, ROWS].tolist() == [1] * 300
    assert of_list[:, VALUES].tolist() == [3000] * 300
    assert same(read_pages(STORAGE, [one], table.schema), table.take([0, 17, 299]))


def test_only_the_pages_of_wanted_rows_are_read_of_lists() -> None:
    table = long_lists()
    data = encoded(table, page_bytes=4096)
    one = wanted(data, [17])
    pages = one.page_map.info[:, [OFFSET, SIZE, ROW, ROWS]]
    others = bytearray(data.to_pybytes())
    for offset, size, row, rows in pages.tolist():
        if not row <= 17 < row + rows:
            others[offset : offset + size] = bytes(size)
    found = read_pages(STORAGE, [replace(one, parquet=pa.py_buffer(bytes(others)))], table.schema)
    assert same(found, table.take([17]))


def test_a_page_without_values_is_part_of_the_page_before() -> None:
    table = pa.table({"l": [[n * 7919 % 97] * (n % 4) for n in range(5000)]})
    data = encoded(table, row_group_rows=505, page_bytes=256)
    if all(values for _, values in _pages(data)):
        pytest.skip("this release of pyarrow writes no page without values")
    whole = wanted(data, range(5000))
    assert int(whole.page_map.info[:, ROWS].min()) > 0
    assert same(read_pages(STORAGE, [whole], table.schema), table)
    for last in range(504, 5000, 505):
        some = [last - 2, last - 1, last]
        assert same(read_pages(STORAGE, [wanted(data, some)], table.schema), table.take(some))
        assert same(read_pages(STORAGE, [wanted(data, [last])], table.schema), table.take([last]))


def _pages(data: pa.Buffer) -> list[tuple[int, int]]:
    metadata = pq.read_metadata(pa.BufferReader(data))
    found = page_map.locations(data, metadata.num_row_groups * metadata.num_columns)
    return list(
        zip(found.size.tolist(), page_map.value_counts(data, found.offset).tolist(), strict=True)
    )


def test_repetitive_texts_in_lists_have_a_dictionary_and_others_have_none() -> None:
    n = 5000
    many = [
        {"name": f"{i * 2654435761 % 2**32:x}", "kind": f"k{i % 5}", "ok": True} for i in range(n)
    ]
    table = pa.table({"s": many, "l": [[f"k{i % 5}"] for i in range(n)]})
    group = pq.read_metadata(pa.BufferReader(encoded(table))).row_group(0)
    dictionaries = {
        group.column(at).path_in_schema
        for at in range(group.num_columns)
        if group.column(at).has_dictionary_page
    }
    assert dictionaries == {"s.kind", "l.list.element"}


def test_a_page_map_that_claims_too_many_values_is_corrupt_and_one_below_takes_no_memory() -> None:
    table = long_lists(50, 100)
    one = wanted(encoded(table, page_bytes=512), [3, 40])
    assert one.page_map.values is not None
    lie = replace(one.page_map, values=np.full_like(one.page_map.values, PAGE_VALUES_MAX + 1))
    with pytest.raises(Corrupt, match="values"):
        page_map.decode(page_map.encode(lie), path="", offset=0)
    for claim in (0, 1, PAGE_VALUES_MAX >> 6):
        told = replace(one.page_map, values=np.full_like(one.page_map.values, claim))
        try:
            assert same(
                read_pages(STORAGE, [replace(one, page_map=told)], table.schema),
                table.take([3, 40]),
            )
        except Corrupt:
            assert claim < 100


@given(data=st.data())
@settings(deadline=None)
def test_damaged_pages_of_nested_columns_are_corrupt(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, _GOOD.length - 1))
    junk = data.draw(st.binary(min_size=1, max_size=12))
    assert _GOOD.parquet is not None
    whole = _GOOD.parquet.to_pybytes()
    damaged = pa.py_buffer((whole[:at] + junk + whole[at + len(junk) :])[: len(whole)])
    try:
        found = read_pages(STORAGE, [replace(_GOOD, parquet=damaged)], _TABLE.schema)
    except Corrupt as error:
        assert error.path == "f"
    else:
        assert same(found, _TABLE.take(_GOOD.positions))


_TABLE = pa.table(
    {
        "s": [{"a": n, "l": [f"{n % 7}", None] * (n % 4)} for n in range(2500)],
        "m": pa.array(
            [[(f"k{n % 3}", n)] * (n % 3) for n in range(2500)], pa.map_(pa.string(), pa.int64())
        ),
    }
)
_GOOD = wanted(encoded(_TABLE), [0, 1000, 2499])


@given(data=st.data())
@settings(deadline=None)
def test_a_forged_page_map_of_nested_columns_is_refused_or_gives_rows_or_is_corrupt(
    data: st.DataObject,
) -> None:
    good = page_map.encode(_GOOD.page_map)
    at = data.draw(st.integers(0, len(good) - 1))
    forged = good[:at] + bytes((data.draw(st.integers(0, 255)),)) + good[at + 1 :]
    try:
        told = page_map.decode(forged, path="f", offset=0)
        if told.rows == len(_TABLE):
            found = read_pages(STORAGE, [replace(_GOOD, page_map=told)], _TABLE.schema)
            assert same(found, _TABLE.take(_GOOD.positions))
    except Corrupt as error:
        assert error.path == "f"
