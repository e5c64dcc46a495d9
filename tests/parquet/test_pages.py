"""Rows that are read page by page are the rows that a full read gives, whatever the types, however
they are nested, whatever the codecs and layouts.
"""

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paging import STORAGE, assert_found, assert_read, encoded, wanted

from mdt.errors import Corrupt
from mdt.limits import PAGE_ROWS_MAX, PAGE_VALUES_MAX
from mdt.parquet import page_map
from mdt.parquet import pages as page_reader
from mdt.parquet.nested import leaf_columns, leaf_values
from mdt.parquet.page_map import OFFSET, ROW, ROWS, SIZE, VALUES
from mdt.parquet.pages import read_pages
from mdt.parquet.thrift import (
    STOP,
    Malformed,
    find,
    integer,
    list_field,
    read_integer,
    read_list,
    read_varint,
    skip,
    varint,
)
from mdt.schema.convert import fill_required

MOMENT = datetime(2024, 2, 29, 23, 59, 59, 999_000, UTC)
LEAVES = {
    pa.bool_(): [True, False],
    pa.int32(): [0, -1, 2**31 - 1],
    pa.int64(): [0, -1, 2**63 - 1],
    pa.float32(): [0.0, -0.0, float("nan"), float("inf"), 1.5],
    pa.float64(): [0.0, -0.0, float("nan"), float("-inf"), 1.1],
    pa.string(): ["", "a", "ü" * 40, "a\nb"],
    pa.binary(): [b"", b"\0", b"\xff" * 90],
    pa.date32(): [date(1969, 7, 20), date(1, 1, 1)],
    pa.timestamp("ms", "UTC"): [MOMENT],
    pa.timestamp("us", "UTC"): [MOMENT],
    pa.decimal128(5, 2): [Decimal("-0.01"), Decimal("999.99")],
    pa.decimal128(38, 10): [Decimal("1" * 28), Decimal("-0.0000000001")],
}
MANY = (pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary())
"""Types of which columns may have many different values."""
SCHEMA = pa.schema({f"c{number}": type for number, type in enumerate(LEAVES)})
LENGTHS = (0, 0, 1, 2, 5, 40)


@pytest.fixture(
    scope="module", autouse=True, params=[0, 1 << 40], ids=["text stays encoded", "text is decoded"]
)
def encoded_min(request):
    with pytest.MonkeyPatch.context() as patched:
        for name in ("_ENCODED_GROUPS_MIN", "_ENCODED_VALUES_MIN"):
            patched.setattr(page_reader, name, request.param)
        yield


def types(depth=3):
    """Draw types: leaves, and structs, lists and maps of such, with fields that may and may not be
    null.
    """
    leaf = st.sampled_from(list(LEAVES))
    if not depth:
        return leaf
    field = st.builds(pa.field, st.just("value"), types(depth - 1), nullable=st.booleans())
    fields = st.lists(field, min_size=1, max_size=3)
    structs = fields.map(
        lambda some: pa.struct([one.with_name(f"f{n}") for n, one in enumerate(some)])
    )
    lists = field.map(lambda one: pa.list_(one.with_name("element")))
    return st.one_of(leaf, structs, lists, field.map(lambda one: pa.map_(pa.string(), one)))


def arrays(type, n, random, nulls, absent=False):
    """Return ``n`` random values; nulls where the type allows them, long lists now and then;
    ``absent``: where a struct around them is null.
    """
    mask = random.random(n) < nulls

    def inside(field, size, absent=False):
        return arrays(field.type, size, random, nulls if field.nullable else 0, absent)

    if pa.types.is_struct(type):
        fields = [inside(field, n, mask | absent) for field in type]
        return pa.StructArray.from_arrays(fields, fields=list(type), mask=pa.array(mask))
    if pa.types.is_list(type) or pa.types.is_map(type):
        lengths = np.where(mask | absent, 0, random.choice(LENGTHS, n))
        ends = np.append(0, np.cumsum(lengths)).astype(np.int32)
        size, more = int(ends[-1]), {"type": type, "mask": pa.array(mask)}
        if pa.types.is_list(type):
            return pa.ListArray.from_arrays(ends, inside(type.value_field, size), **more)
        keys = pa.array([f"k{number}" for number in range(size)], "string")
        return pa.MapArray.from_arrays(ends, keys, inside(type.item_field, size), **more)
    if type in MANY and random.random() < 0.5:
        numbers = pa.array(random.integers(0, 1 << 22, n), mask=mask)
        return numbers.cast("string").cast(type)
    few = pa.array(LEAVES[type], type)
    return few.take(pa.array(random.integers(0, len(few), n), mask=mask))


def table_of(n, seed, schema=SCHEMA, nulls=0.2):
    random = np.random.default_rng(seed)
    columns = [fill_required(arrays(field.type, n, random, nulls), field.type) for field in schema]
    return pa.table(columns, schema=schema)


@st.composite
def files(draw, schema):
    """Draw rows of a file, and what is to be read for them."""
    n = draw(st.sampled_from((1, 7, 300, 1024, 1025, 2600)))
    nulls = draw(st.sampled_from((0.0, 0.1, 0.9, 1.0)))
    table = table_of(n, draw(st.integers(0, 1000)), schema, nulls)
    data = encoded(
        table,
        row_group_rows=draw(st.sampled_from((100, 300, 1024, 1 << 20))),
        page_bytes=draw(st.sampled_from((256, 1024, 1 << 20))),
    )
    some = draw(st.sets(st.integers(0, n - 1), min_size=1, max_size=30))
    one = wanted(data, draw(st.sampled_from((range(n), some, some | {0, n - 1}))))
    return table.take(one.positions), one


@pytest.mark.parametrize("depth", [0, 3], ids=["flat", "nested"])
@given(data=st.data())
def test_pages_give_the_rows_that_a_full_read_gives(depth, data):
    drawn = data.draw(st.lists(types(depth), min_size=1, max_size=3))
    schema = pa.schema({f"c{number}": type for number, type in enumerate(drawn)})
    rows, parts = zip(*data.draw(st.lists(files(schema), min_size=1, max_size=3)), strict=True)
    names = sorted(data.draw(st.sets(st.sampled_from(schema.names), min_size=1)))
    assert_found(parts, pa.concat_tables(rows).select(names))


@given(type=types())
def test_leaves_have_the_paths_and_types_that_parquet_gives_them(type):
    schema = pa.schema({"id": "int64", "c": type})
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    stored = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    found = leaf_columns(schema)
    assert [leaf.path for leaf in found] == [stored.column(at).path for at in range(len(stored))]
    array = pa.chunked_array([arrays(type, 50, np.random.default_rng(1), 0.1)])
    for leaf in found[1:]:
        assert leaf_values(array, leaf).type == leaf.type


@pytest.mark.parametrize("compression", ["lz4", "zstd", "snappy", "none"])
def test_every_codec_is_read_by_pages(compression):
    assert_read(table_of(3000, 1), [5, 2999], compression=compression)


def test_a_chunk_whose_dictionary_grew_too_large_has_pages_of_both_kinds():
    texts = ["often"] * 2000 + [f"{n:0200}" for n in range(12_000)]
    table = pa.table({"text": texts, "long": range(14_000)})
    rows = [0, 1999, 2000, 5000, 9000, 13_999]
    data = assert_read(table, rows, row_group_rows=1 << 20, page_bytes=4096)
    chunk = pq.read_metadata(pa.BufferReader(data)).row_group(0).column(0)
    assert {"PLAIN", "RLE_DICTIONARY"} <= set(chunk.encodings)


def test_nested_columns_are_left_out_of_page_maps_that_are_made_as_older_writers_made_them():
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


def test_far_pages_are_read_in_ranges():
    table = table_of(5000, 1)
    data, rows = encoded(table, page_bytes=256), [1, 2, 4999]
    STORAGE.put_if_absent("far", [b"front", data])
    far = replace(wanted(data, rows), path="far", offset=5, parquet=None)
    near = wanted(encoded(table.slice(100, 1500)), [0, 1499])
    assert_found([far, near, far], table.take([*rows, 100, 1599, *rows]))


@pytest.mark.parametrize("n", [1, 900, 3000])
@pytest.mark.parametrize(
    ("group", "page_bytes"), [(250, 256), (250, 4096), (4096, 256), (4096, 4096)]
)
def test_page_maps_come_back_as_they_were(n, group, page_bytes):
    data = encoded(table_of(n, n), row_group_rows=group, page_bytes=page_bytes)
    found = page_map.build(data)
    found.check()
    again = wanted(data, []).page_map
    assert page_map.encode(again) == page_map.encode(found)
    for name in ("start", "dictionary", "first", "keys", "before", "codec"):
        assert np.array_equal(getattr(found, name), getattr(again, name)), name
    assert (list(again.columns), again.rows, again.groups) == (SCHEMA.names, n, -(-n // group))
    assert set(found.codec.tolist()) <= {0, 1, 7}


def test_pages_of_several_codecs_and_encodings_are_read_together():
    table = table_of(3000, 3)
    codecs = ("zstd", "lz4", "none", "snappy")
    parts = [wanted(encoded(table, compression=codec), [5, 2999]) for codec in codecs]
    few = wanted(encoded(table.slice(0, 900)), [7])
    assert_found([*parts, few, parts[0]], table.take([5, 2999] * 4 + [7, 5, 2999]))


def test_sorted_texts_and_integers_are_packed_and_read_by_pages():
    n = 5000
    draw = np.random.default_rng(5)
    table = pa.table(
        {
            "key": [f"id_{i:012}" for i in range(n)],
            "null": [None if i % 10 == 0 else f"some/longer/path/{i:08}" for i in range(n)],
            "hash": [bytes(draw.bytes(12)).hex() for _ in range(n)],
            "at": pa.array(draw.integers(0, 1 << 62, n), pa.timestamp("us", "UTC")),
            "day": pa.array(draw.integers(0, 1 << 20, n).astype(np.int32), "date32"),
            "u64": draw.integers(0, 1 << 64, n, np.uint64),
            "i8": draw.integers(-128, 128, n).astype(np.int8),
            "i32": pa.array(draw.integers(-(2**31), 2**31, n), "int32", mask=np.arange(n) % 5 == 0),
        }
    )
    rows = [0, 17, 511, 512, 4999]
    data = encoded(table, compression="zstd")
    assert pq.read_table(pa.BufferReader(data)).equals(table)
    assert read_pages(STORAGE, [wanted(data, rows)], table.schema).equals(table.take(rows))
    group = pq.read_metadata(pa.BufferReader(data)).row_group(0)
    chunks = map(group.column, range(group.num_columns))
    found = {one.path_in_schema: " ".join(sorted({*one.encodings} - {"RLE"})) for one in chunks}
    assert found == {
        **dict.fromkeys(("key", "null"), "DELTA_BYTE_ARRAY"),
        **dict.fromkeys(("hash", "at", "day", "u64", "i32"), "PLAIN"),
        "i8": "PLAIN RLE_DICTIONARY",
    }


def test_pages_are_small_where_a_table_is_large():
    texts = pa.table({"n": range(20_000), "text": [f"{n:x}" * (n % 7) for n in range(20_000)]})
    found = page_map.build(encoded(texts, row_group_rows=1 << 20, page_bytes=2048))
    assert int(found.info[:, ROWS].max()) <= PAGE_ROWS_MAX
    assert int(found.info[found.keys >> 32 == 1][:, ROWS].max()) < PAGE_ROWS_MAX
    assert page_map.build(encoded(texts.slice(0, 1000))).count == 2


@pytest.mark.parametrize("n", [30, 700])
def test_long_values_have_pages_of_their_own_in_large_and_small_tables(n):
    table = pa.table({"text": [f"{i:060000}" for i in range(n)], "long": range(n)})
    found = page_map.build(encoded(table, page_bytes=4096))
    rows = found.info[:, ROWS]
    assert int(rows[found.keys < 1 << 32].max()) == 1
    assert int(rows.max()) > 20


# Lists


def long_lists(n, length):
    ends = np.arange(0, n * length + 1, length, dtype=np.int32)
    values = pa.array(np.arange(n * length))
    return pa.table({"id": range(n), "l": pa.ListArray.from_arrays(ends, values)})


def test_of_lists_that_are_longer_than_a_page_only_the_pages_of_wanted_rows_are_read():
    table = long_lists(300, 3000)
    one = wanted(assert_read(table, [0, 17, 299], page_bytes=4096), [17])
    of_list = one.page_map.info[one.page_map.keys >> 32 == 1]
    assert of_list[:, [ROWS, VALUES]].tolist() == [[1, 3000]] * 300
    others = bytearray(one.parquet.to_pybytes())
    for offset, size, row, rows in one.page_map.info[:, [OFFSET, SIZE, ROW, ROWS]].tolist():
        if not row <= 17 < row + rows:
            others[offset : offset + size] = bytes(size)
    assert_found([replace(one, parquet=pa.py_buffer(bytes(others)))], table.take([17]))


def test_a_page_without_values_is_part_of_the_page_before():
    table = pa.table({"l": [[n * 7919 % 97] * (n % 4) for n in range(5000)]})
    data = assert_read(table, range(5000), row_group_rows=505, page_bytes=256)
    groups = pq.read_metadata(pa.BufferReader(data)).num_row_groups
    if page_map.value_counts(data, page_map.locations(data, groups).offset).all():
        pytest.skip("this release of pyarrow writes no page without values")
    assert int(page_map.build(data).info[:, ROWS].min()) > 0
    for last in range(504, 5000, 505):
        for some in ([last - 2, last - 1, last], [last]):
            assert_found([wanted(data, some)], table.take(some))


def test_repetitive_texts_in_lists_have_a_dictionary_and_others_have_none():
    n = 5000
    many = [
        {"name": f"{i * 2654435761 % 2**32:x}", "kind": f"k{i % 5}", "ok": True} for i in range(n)
    ]
    table = pa.table({"s": many, "l": [[f"k{i % 5}"] for i in range(n)]})
    group = pq.read_metadata(pa.BufferReader(encoded(table))).row_group(0)
    chunks = map(group.column, range(group.num_columns))
    found = {chunk.path_in_schema for chunk in chunks if chunk.has_dictionary_page}
    assert found == {"s.kind", "l.list.element"}


# Damage


def test_a_page_map_that_claims_too_many_values_is_corrupt_and_one_below_takes_no_memory():
    table = long_lists(50, 100)
    one = wanted(encoded(table, page_bytes=512), [3, 40])

    def claiming(count):
        return replace(one.page_map, values=np.full_like(one.page_map.values, count))

    with pytest.raises(Corrupt, match="values"):
        page_map.decode(page_map.encode(claiming(PAGE_VALUES_MAX + 1)), path="", offset=0)
    assert_found([replace(one, page_map=claiming(PAGE_VALUES_MAX >> 6))], table.take([3, 40]))
    for count in (0, 1):
        with suppress(Corrupt):
            assert_found([replace(one, page_map=claiming(count))], table.take([3, 40]))


NESTED = pa.table(
    {
        "s": [{"a": n, "l": [f"{n % 7}", None] * (n % 4)} for n in range(2500)],
        "m": pa.array(
            [[(f"k{n % 3}", n)] * (n % 3) for n in range(2500)], pa.map_(pa.string(), pa.int64())
        ),
    }
)
GOOD = [(table, wanted(encoded(table), [0, 1000, 2499])) for table in (table_of(2500, 3), NESTED)]
TABLES = pytest.mark.parametrize(("table", "good"), GOOD, ids=["flat", "nested"])


@TABLES
@given(data=st.data())
def test_damaged_pages_are_corrupt_or_read_but_nothing_else_happens(table, good, data):
    at = data.draw(st.integers(0, good.length - 1))
    junk = data.draw(st.binary(min_size=1, max_size=12))
    whole = good.parquet.to_pybytes()
    damaged = pa.py_buffer((whole[:at] + junk + whole[at + len(junk) :])[: len(whole)])
    try:
        found = read_pages(STORAGE, [replace(good, parquet=damaged)], table.schema)
    except Corrupt as error:
        assert error.path == "f"
    else:
        assert len(found) == len(good.positions)


@TABLES
@given(data=st.data())
def test_a_forged_page_map_is_refused_or_gives_rows_or_is_corrupt(table, good, data):
    true = page_map.encode(good.page_map)
    at = data.draw(st.integers(0, len(true) - 1))
    forged = true[:at] + bytes((data.draw(st.integers(0, 255)),)) + true[at + 1 :]
    try:
        told = page_map.decode(forged, path="f", offset=0)
        if told.rows == len(table):
            assert_found([replace(good, page_map=told)], table.take(good.positions))
    except Corrupt as error:
        assert error.path == "f"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"page_map": page_map.build(encoded(table_of(2500, 3), page_bytes=256))}, None),
        ({"length": 900}, "impossible page"),
        ({"page_map": replace(GOOD[0][1].page_map, rows=2501)}, "values instead of"),
    ],
    ids=["another file", "a shorter file", "another number of rows"],
)
def test_a_page_map_that_does_not_fit_its_file_is_corrupt(change, why):
    table, good = GOOD[0]
    positions = np.array([0, 1, 600, 2499])
    with pytest.raises(Corrupt, match=why):
        read_pages(STORAGE, [replace(good, positions=positions, **change)], table.schema)


# Thrift


@given(value=st.integers(0, 2**62), kind=st.sampled_from((5, 6)), step=st.integers(1, 15))
def test_numbers_come_back_from_thrift(value, kind, step):
    data = integer(step, kind, value) + b"\0"
    assert read_integer(data, find(data, 0, step)) == value
    assert skip(data, 0, 12) == len(data)
    assert read_varint(varint(value) + b"?", 0) == (value, len(varint(value)))
    with pytest.raises(Malformed):
        find(data, 0, step + 1)


@given(size=st.integers(0, 10**6), kind=st.integers(1, 12))
def test_lists_come_back_from_thrift(size, kind):
    data = list_field(kind, [b""] * size) + bytes((STOP,))
    assert read_list(data, find(data, 0, 1)) == (kind, size, len(data) - 1)


@pytest.mark.parametrize(("data", "why"), [(b"\x1c" * 100, "deep"), (b"\x1d", "type 13")])
def test_deep_nesting_and_unknown_types_are_malformed(data, why):
    with pytest.raises(Malformed, match=why):
        skip(data, 0, 12)
