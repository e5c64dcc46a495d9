"""Rows that are read by pages are the rows of a full read, for all types, nesting, codecs and
layouts.
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
"""Types of columns that may have many different values."""
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
    """Draw types: leaves, and structs, lists and maps of them, with fields that may or may not be
    null.
    """
    leaf = st.sampled_from(list(LEAVES))
    if not depth:
        return leaf
    field = st.builds(pa.field, st.just("value"), types(depth - 1), nullable=st.booleans())
    fields = st.lists(field, min_size=1, max_size=3)
    structs = fields.map(
        lambda drawn_fields: pa.struct(
            [field_type.with_name(f"f{n}") for n, field_type in enumerate(drawn_fields)]
        )
    )
    lists = field.map(lambda element: pa.list_(element.with_name("element")))
    return st.one_of(leaf, structs, lists, field.map(lambda value: pa.map_(pa.string(), value)))


def arrays(type, n, random, nulls, absent=False):
    """Return ``n`` random values, with nulls where the type allows them and some long lists.
    ``absent`` is True where a struct around the value is null.
    """
    mask = random.random(n) < nulls

    def nested_values(field, size, absent=False):
        return arrays(field.type, size, random, nulls if field.nullable else 0, absent)

    if pa.types.is_struct(type):
        fields = [nested_values(field, n, mask | absent) for field in type]
        return pa.StructArray.from_arrays(fields, fields=list(type), mask=pa.array(mask))
    if pa.types.is_list(type) or pa.types.is_map(type):
        lengths = np.where(mask | absent, 0, random.choice(LENGTHS, n))
        ends = np.append(0, np.cumsum(lengths)).astype(np.int32)
        size, more = int(ends[-1]), {"type": type, "mask": pa.array(mask)}
        if pa.types.is_list(type):
            return pa.ListArray.from_arrays(ends, nested_values(type.value_field, size), **more)
        keys = pa.array([f"k{number}" for number in range(size)], "string")
        return pa.MapArray.from_arrays(ends, keys, nested_values(type.item_field, size), **more)
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
    """Draw the rows of a file and a selection of them."""
    n = draw(st.sampled_from((1, 7, 300, 1024, 1025, 2600)))
    nulls = draw(st.sampled_from((0.0, 0.1, 0.9, 1.0)))
    table = table_of(n, draw(st.integers(0, 1000)), schema, nulls)
    data = encoded(
        table,
        row_group_rows=draw(st.sampled_from((100, 300, 1024, 1 << 20))),
        page_bytes=draw(st.sampled_from((256, 1024, 1 << 20))),
    )
    positions = draw(st.sets(st.integers(0, n - 1), min_size=1, max_size=30))
    selection = wanted(data, draw(st.sampled_from((range(n), positions, positions | {0, n - 1}))))
    return table.take(selection.positions), selection


@pytest.mark.parametrize("depth", [0, 3], ids=["flat", "nested"])
@given(data=st.data())
def test_pages_give_the_rows_of_a_full_read(depth, data):
    drawn = data.draw(st.lists(types(depth), min_size=1, max_size=3))
    schema = pa.schema({f"c{number}": type for number, type in enumerate(drawn)})
    rows, parts = zip(*data.draw(st.lists(files(schema), min_size=1, max_size=3)), strict=True)
    names = sorted(data.draw(st.sets(st.sampled_from(schema.names), min_size=1)))
    assert_found(parts, pa.concat_tables(rows).select(names))


@given(type=types())
def test_leaves_have_the_paths_and_types_that_parquet_stores(type):
    schema = pa.schema({"id": "int64", "c": type})
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    stored = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    leaves = leaf_columns(schema)
    assert [leaf.path for leaf in leaves] == [stored.column(at).path for at in range(len(stored))]
    array = pa.chunked_array([arrays(type, 50, np.random.default_rng(1), 0.1)])
    for leaf in leaves[1:]:
        assert leaf_values(array, leaf).type == leaf.type


@pytest.mark.parametrize("compression", ["lz4", "zstd", "snappy", "none"])
def test_files_of_every_codec_are_read_by_pages(compression):
    assert_read(table_of(3000, 1), [5, 2999], compression=compression)


def test_a_chunk_whose_dictionary_grew_too_large_has_pages_of_both_encodings():
    texts = ["often"] * 2000 + [f"{n:0200}" for n in range(12_000)]
    table = pa.table({"text": texts, "long": range(14_000)})
    rows = [0, 1999, 2000, 5000, 9000, 13_999]
    data = assert_read(table, rows, row_group_rows=1 << 20, page_bytes=4096)
    chunk = pq.read_metadata(pa.BufferReader(data)).row_group(0).column(0)
    assert {"PLAIN", "RLE_DICTIONARY"} <= set(chunk.encodings)


def test_nested_columns_are_omitted_from_page_maps_in_the_older_format():
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
    older_map = page_map.build(data, nested=False)
    assert older_map.columns == ("long", "text") and page_map.encode(older_map)[:4] == b"MPM3"


def test_remote_pages_are_read_in_ranges():
    table = table_of(5000, 1)
    data, rows = encoded(table, page_bytes=256), [1, 2, 4999]
    STORAGE.put_if_absent("far", [b"front", data])
    remote = replace(wanted(data, rows), path="far", offset=5, parquet=None)
    local = wanted(encoded(table.slice(100, 1500)), [0, 1499])
    assert_found([remote, local, remote], table.take([*rows, 100, 1599, *rows]))


@pytest.mark.parametrize("n", [1, 900, 3000])
@pytest.mark.parametrize(
    ("group", "page_bytes"), [(250, 256), (250, 4096), (4096, 256), (4096, 4096)]
)
def test_page_maps_are_decoded_as_they_were_encoded(n, group, page_bytes):
    data = encoded(table_of(n, n), row_group_rows=group, page_bytes=page_bytes)
    built = page_map.build(data)
    built.check()
    decoded = wanted(data, []).page_map
    assert page_map.encode(decoded) == page_map.encode(built)
    for name in ("start", "dictionary", "first", "keys", "before", "codec"):
        assert np.array_equal(getattr(built, name), getattr(decoded, name)), name
    assert (list(decoded.columns), decoded.rows, decoded.groups) == (
        SCHEMA.names,
        n,
        -(-n // group),
    )
    assert set(built.codec.tolist()) <= {0, 1, 7}


def test_pages_of_several_codecs_and_encodings_are_read_together():
    table = table_of(3000, 3)
    codecs = ("zstd", "lz4", "none", "snappy")
    parts = [wanted(encoded(table, compression=codec), [5, 2999]) for codec in codecs]
    small_file = wanted(encoded(table.slice(0, 900)), [7])
    assert_found([*parts, small_file, parts[0]], table.take([5, 2999] * 4 + [7, 5, 2999]))


def test_sorted_strings_have_delta_encoding_and_are_read_by_pages():
    n = 5000
    random = np.random.default_rng(5)
    table = pa.table(
        {
            "key": [f"id_{i:012}" for i in range(n)],
            "null": [None if i % 10 == 0 else f"some/longer/path/{i:08}" for i in range(n)],
            "hash": [bytes(random.bytes(12)).hex() for _ in range(n)],
            "at": pa.array(random.integers(0, 1 << 62, n), pa.timestamp("us", "UTC")),
            "day": pa.array(random.integers(0, 1 << 20, n).astype(np.int32), "date32"),
            "u64": random.integers(0, 1 << 64, n, np.uint64),
            "i8": random.integers(-128, 128, n).astype(np.int8),
            "i32": pa.array(
                random.integers(-(2**31), 2**31, n), "int32", mask=np.arange(n) % 5 == 0
            ),
        }
    )
    rows = [0, 17, 511, 512, 4999]
    data = encoded(table, compression="zstd")
    assert pq.read_table(pa.BufferReader(data)).equals(table)
    assert read_pages(STORAGE, [wanted(data, rows)], table.schema).equals(table.take(rows))
    group = pq.read_metadata(pa.BufferReader(data)).row_group(0)
    chunks = map(group.column, range(group.num_columns))
    encodings = {
        chunk.path_in_schema: " ".join(sorted({*chunk.encodings} - {"RLE"})) for chunk in chunks
    }
    assert encodings == {
        **dict.fromkeys(("key", "null"), "DELTA_BYTE_ARRAY"),
        **dict.fromkeys(("hash", "at", "day", "u64", "i32"), "PLAIN"),
        "i8": "PLAIN RLE_DICTIONARY",
    }


def test_pages_of_large_tables_have_limited_rows():
    texts = pa.table({"n": range(20_000), "text": [f"{n:x}" * (n % 7) for n in range(20_000)]})
    built = page_map.build(encoded(texts, row_group_rows=1 << 20, page_bytes=2048))
    assert int(built.info[:, ROWS].max()) <= PAGE_ROWS_MAX
    assert int(built.info[built.keys >> 32 == 1][:, ROWS].max()) < PAGE_ROWS_MAX
    assert page_map.build(encoded(texts.slice(0, 1000))).count == 2


@pytest.mark.parametrize("n", [30, 700])
def test_long_values_have_their_own_pages_in_large_and_small_tables(n):
    table = pa.table({"text": [f"{i:060000}" for i in range(n)], "long": range(n)})
    built = page_map.build(encoded(table, page_bytes=4096))
    rows = built.info[:, ROWS]
    assert int(rows[built.keys < 1 << 32].max()) == 1
    assert int(rows.max()) > 20


# Lists


def long_lists(n, length):
    ends = np.arange(0, n * length + 1, length, dtype=np.int32)
    values = pa.array(np.arange(n * length))
    return pa.table({"id": range(n), "l": pa.ListArray.from_arrays(ends, values)})


def test_only_the_pages_of_requested_rows_are_read_of_lists_longer_than_a_page():
    table = long_lists(300, 3000)
    selection = wanted(assert_read(table, [0, 17, 299], page_bytes=4096), [17])
    of_list = selection.page_map.info[selection.page_map.keys >> 32 == 1]
    assert of_list[:, [ROWS, VALUES]].tolist() == [[1, 3000]] * 300
    other_pages_erased = bytearray(selection.parquet.to_pybytes())
    for offset, size, row, rows in selection.page_map.info[:, [OFFSET, SIZE, ROW, ROWS]].tolist():
        if not row <= 17 < row + rows:
            other_pages_erased[offset : offset + size] = bytes(size)
    assert_found(
        [replace(selection, parquet=pa.py_buffer(bytes(other_pages_erased)))], table.take([17])
    )


def test_a_page_without_values_is_merged_into_the_page_before():
    table = pa.table({"l": [[n * 7919 % 97] * (n % 4) for n in range(5000)]})
    data = assert_read(table, range(5000), row_group_rows=505, page_bytes=256)
    groups = pq.read_metadata(pa.BufferReader(data)).num_row_groups
    if page_map.value_counts(data, page_map.locations(data, groups).offset).all():
        pytest.skip("this release of pyarrow writes no page without values")
    assert int(page_map.build(data).info[:, ROWS].min()) > 0
    for last in range(504, 5000, 505):
        for positions in ([last - 2, last - 1, last], [last]):
            assert_found([wanted(data, positions)], table.take(positions))


def test_only_repetitive_strings_in_structs_and_lists_have_a_dictionary():
    n = 5000
    structs = [
        {"name": f"{i * 2654435761 % 2**32:x}", "kind": f"k{i % 5}", "ok": True} for i in range(n)
    ]
    table = pa.table({"s": structs, "l": [[f"k{i % 5}"] for i in range(n)]})
    group = pq.read_metadata(pa.BufferReader(encoded(table))).row_group(0)
    chunks = map(group.column, range(group.num_columns))
    with_dictionary = {chunk.path_in_schema for chunk in chunks if chunk.has_dictionary_page}
    assert with_dictionary == {"s.kind", "l.list.element"}


# Damage


def test_a_page_map_with_too_many_values_is_corrupt_and_a_high_valid_count_takes_no_memory():
    table = long_lists(50, 100)
    selection = wanted(encoded(table, page_bytes=512), [3, 40])

    def with_value_count(count):
        return replace(selection.page_map, values=np.full_like(selection.page_map.values, count))

    with pytest.raises(Corrupt, match="values"):
        page_map.decode(page_map.encode(with_value_count(PAGE_VALUES_MAX + 1)), path="", offset=0)
    assert_found(
        [replace(selection, page_map=with_value_count(PAGE_VALUES_MAX >> 6))], table.take([3, 40])
    )
    for count in (0, 1):
        with suppress(Corrupt):
            assert_found(
                [replace(selection, page_map=with_value_count(count))], table.take([3, 40])
            )


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
def test_damaged_pages_are_corrupt_or_read_without_any_other_error(table, good, data):
    at = data.draw(st.integers(0, good.length - 1))
    junk = data.draw(st.binary(min_size=1, max_size=12))
    original = good.parquet.to_pybytes()
    damaged = pa.py_buffer((original[:at] + junk + original[at + len(junk) :])[: len(original)])
    try:
        read_rows = read_pages(STORAGE, [replace(good, parquet=damaged)], table.schema)
    except Corrupt as error:
        assert error.path == "f"
    else:
        assert len(read_rows) == len(good.positions)


@TABLES
@given(data=st.data())
def test_a_forged_page_map_is_corrupt_or_gives_the_right_rows(table, good, data):
    original = page_map.encode(good.page_map)
    at = data.draw(st.integers(0, len(original) - 1))
    forged = original[:at] + bytes((data.draw(st.integers(0, 255)),)) + original[at + 1 :]
    try:
        decoded = page_map.decode(forged, path="f", offset=0)
        if decoded.rows == len(table):
            assert_found([replace(good, page_map=decoded)], table.take(good.positions))
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
def test_a_page_map_of_another_file_is_corrupt(change, why):
    table, good = GOOD[0]
    positions = np.array([0, 1, 600, 2499])
    with pytest.raises(Corrupt, match=why):
        read_pages(STORAGE, [replace(good, positions=positions, **change)], table.schema)


# Thrift


@given(value=st.integers(0, 2**62), kind=st.sampled_from((5, 6)), step=st.integers(1, 15))
def test_thrift_integers_are_decoded_as_they_were_encoded(value, kind, step):
    data = integer(step, kind, value) + b"\0"
    assert read_integer(data, find(data, 0, step)) == value
    assert skip(data, 0, 12) == len(data)
    assert read_varint(varint(value) + b"?", 0) == (value, len(varint(value)))
    with pytest.raises(Malformed):
        find(data, 0, step + 1)


@given(size=st.integers(0, 10**6), kind=st.integers(1, 12))
def test_thrift_list_headers_are_decoded_as_they_were_encoded(size, kind):
    data = list_field(kind, [b""] * size) + bytes((STOP,))
    assert read_list(data, find(data, 0, 1)) == (kind, size, len(data) - 1)


@pytest.mark.parametrize(("data", "why"), [(b"\x1c" * 100, "deep"), (b"\x1d", "type 13")])
def test_deep_nesting_and_unknown_types_are_malformed(data, why):
    with pytest.raises(Malformed, match=why):
        skip(data, 0, 12)
