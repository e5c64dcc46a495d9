"""Records of Hudi's column statistics: keys and values as Hudi writes and compares them."""

from __future__ import annotations

import hashlib
import json
import math
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexes import column_stats
from mdt.errors import Corrupt
from mdt.hudi import column_stats_records as records
from mdt.hudi.column_stats_records import FORMS, RANGES, FileKeys
from mdt.hudi.metadata_table_files import COLUMN_STATS, GROUPS, STATS_SCHEMA
from mdt.hudi.read import column_statistics, hfile_entries
from mdt.hudi.read.column_statistics import FileColumn
from mdt.hudi.read.hfile_format import ENTRIES
from mdt.hudi.xxhash64 import xxhash64

PARSED = fastavro.parse_schema(json.loads(STATS_SCHEMA))
NAME = "f1-0_0-1-0_20240229120000123.parquet"
INT_KEY = b"\x80" + bytes(7)
V1, V2 = FORMS[6], FORMS[9]


def ranges_of(*columns: pa.Array) -> pa.Table:
    """Return the ranges of files with these values, one file per array."""
    stats = column_stats.to_batch([column_stats.summarize(column) for column in columns])
    names = ("min", "max", "values", "nulls", "bytes")
    return pa.table([stats.column(name) for name in names], schema=RANGES)


def decode_record(value: bytes) -> dict:
    return fastavro.schemaless_reader(
        BytesIO(value), PARSED, None, return_record_name=True, return_record_name_override=True
    )


def statistics(form: records.Form1, column: pa.Array) -> dict:
    """Return the statistics of a file with these values."""
    keys = FileKeys.from_files(["city=x"], [NAME])
    [value] = records.entries(form, keys, "c", column.type, ranges_of(column))["value"].to_pylist()
    return decode_record(value)["ColumnStatsMetadata"]


def bounds(
    column: pa.Array, form: records.Form1 = V1
) -> tuple[tuple[str, object], tuple[str, object]]:
    """Return the bounds of a file with these values, each with the name of its Avro record."""
    stats = statistics(form, column)
    limits = []
    for end in ("minValue", "maxValue"):
        name, bound = stats[end]
        limits.append((name.rpartition(".")[2], bound["value"]))
    return limits[0], limits[1]


@pytest.mark.parametrize(
    ("column", "name", "low", "high"),
    [
        (pa.array([True, False]), "BooleanWrapper", False, True),
        (pa.array([3, -7], pa.int32()), "IntWrapper", -7, 3),
        (pa.array([3, -(2**62)]), "LongWrapper", -(2**62), 3),
        (pa.array([0.5, -math.inf], pa.float32()), "FloatWrapper", -math.inf, 0.5),
        (pa.array([0.1, -0.0]), "DoubleWrapper", 0.0, 0.1),
        (pa.array(["oslo", "paris"]), "StringWrapper", "o", "paris"),
        (pa.array(["", "ü"]), "StringWrapper", "", "ü"),
        (pa.array([b"\xff\0", b"\1\2"]), "BytesWrapper", b"\1\2", b"\xff\0"),
        (pa.array([date(1969, 12, 31), date(2024, 1, 1)]), "DateWrapper", -1, 19723),
        (
            pa.array([Decimal("-1.25"), Decimal("9.50")], pa.decimal128(9, 2)),
            "DecimalWrapper",
            Decimal("-1.25"),
            Decimal("9.5"),
        ),
        (
            pa.array([datetime(2024, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")),
            "TimestampMicrosWrapper",
            1704067200000000,
            1704067200000000,
        ),
    ],
)
def test_bounds_of_each_type_are_stored_in_its_avro_wrapper(column, name, low, high):
    assert bounds(column) == ((name, low), (name, high))


TIMES = [datetime(1969, 12, 31, 23, 59, 59, 999000, UTC), datetime(2024, 1, 1, tzinfo=UTC)]


@pytest.mark.parametrize(
    ("column", "number", "name", "low", "high"),
    [
        (pa.array([True, False]), 2, "BooleanWrapper", False, True),
        (pa.array([3, -7], pa.int32()), 3, "IntWrapper", -7, 3),
        (pa.array([3, -(2**62)]), 4, "LongWrapper", -(2**62), 3),
        (pa.array([0.5, 0.25], pa.float32()), 5, "FloatWrapper", 0.25, 0.5),
        (pa.array([0.1, -0.0]), 6, "DoubleWrapper", 0.0, 0.1),
        (pa.array(["oslo", "paris"]), 7, "StringWrapper", "o", "paris"),
        (pa.array([b"\xff\0", b"\1\2"]), 8, "BytesWrapper", b"\1\2", b"\xff\0"),
        (pa.array([date(1969, 12, 31), date(2024, 1, 1)]), 12, "IntWrapper", -1, 19723),
        (pa.array(TIMES, pa.timestamp("ms", "UTC")), 15, "LongWrapper", -1, 1704067200000),
        (pa.array(TIMES, pa.timestamp("us", "UTC")), 16, "LongWrapper", -1000, 1704067200000000),
    ],
    ids=lambda value: None if isinstance(value, pa.Array) else str(value),
)
def test_version_9_stores_the_type_ordinal_and_primitive_bounds_of_each_type(
    column, number, name, low, high
):
    assert bounds(column, V2) == ((name, low), (name, high))
    kind = {"typeOrdinal": number, "additionalInfo": None}
    assert statistics(V2, column)["valueType"] == kind
    assert statistics(V2, pa.nulls(3, column.type))["valueType"] == kind
    assert statistics(V1, column)["valueType"] is None


def test_version_9_stores_bounds_of_decimals_of_any_precision():
    """The bytes are those that Hudi 1.2 wrote for the same values."""
    column = pa.array([Decimal("0.50"), Decimal("7.25")], pa.decimal128(9, 2))
    assert bounds(column, V2) == (("BytesWrapper", b"2"), ("BytesWrapper", b"\x02\xd5"))
    assert statistics(V2, column)["valueType"] == {"typeOrdinal": 10, "additionalInfo": "9,2"}
    column = pa.array([-(10**37), 10**37], pa.decimal128(38, 0))
    (_, low), (_, high) = bounds(column, V2)
    assert (int.from_bytes(low, signed=True), int.from_bytes(high, signed=True)) == (
        -(10**37),
        10**37,
    )


def test_every_prefix_of_a_text_lies_between_the_bounds():
    """Hudi 1.2 compares the prefix of ``like 'prefix%'`` with the bounds to skip files."""
    texts = ["ünder" * 40, "üz", "z" * 100]
    (_, low), (_, high) = bounds(pa.array(texts))
    for text in texts:
        for size in range(1, len(text) + 1):
            assert low.encode() <= text[:size].encode() <= high.encode()


VALUES = {
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.string(): st.text(),
    pa.binary(): st.binary(),
    pa.date32(): st.dates(),
    pa.decimal128(12, 3): st.decimals(-(10**8), 10**8, places=3),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("type", VALUES, ids=str)
def test_bounds_that_are_read_back_contain_all_values(type, form):
    @given(st.lists(st.one_of(st.none(), VALUES[type])))
    def contain(values):
        column = pa.array(values, type)
        keys = FileKeys.from_files([""], [NAME])
        ranges = ranges_of(column)
        [value] = records.entries(form, keys, "c", type, ranges)["value"].to_pylist()
        stats = fastavro.schemaless_reader(BytesIO(value), PARSED, None)["ColumnStatsMetadata"]
        assert (stats["valueCount"], stats["nullCount"]) == (len(values), column.null_count)
        present = column.drop_null()
        if not len(present):
            assert stats["minValue"] is stats["maxValue"] is None
            return
        low, high = (stats[end] and stats[end]["value"] for end in ("minValue", "maxValue"))
        if low is None or high is None:  # a file without one bound gets no entries
            return
        kind = stats["valueType"] or {"typeOrdinal": -1, "additionalInfo": ""}
        edges = FileColumn(low, high, 0, len(values), tuple(kind.values())).bounds(type)
        comparable_values = [column_statistics.comparable(scalar) for scalar in present]
        assert all(edges[0] <= value <= edges[1] for value in comparable_values)

    contain()


def test_keys_are_hashes_of_column_partition_and_name():
    keys = FileKeys.from_files(["city=sao_paulo", ""], [NAME, NAME])
    ranges = pa.table([[None] * 2] * 2 + [[0] * 2] * 3, schema=RANGES)
    encoded_keys = records.entries(V1, keys, "driver", pa.int32(), ranges)["key"].to_pylist()
    assert encoded_keys[0].startswith(b"AjpJ7N1gBZc=6Hj+sBy+gvM=")
    assert [len(key) for key in encoded_keys] == [48, 48]
    assert records.suffix_of(encoded_keys[1]) == keys.suffixes[1].as_py()


def test_xxhash64_of_empty_short_and_long_texts_has_the_published_values():
    assert xxhash64(b"", 0) == 0xEF46DB3751D8E999
    assert xxhash64(b"abc", 0) == 0x44BC2CF5AD770999
    assert xxhash64(b"Nobody inspects the spammish repetition", 0) == 0xFBCEA83C8A378BF1


def test_merging_keeps_the_last_entry_of_each_key_and_drops_deleted_entries():
    keys = FileKeys.from_files(["", ""], ["a", "b"])
    older, newer = (
        records.entries(V1, keys, "c", pa.int64(), ranges_of(pa.array([n]), pa.array([n])))
        for n in (1, 2)
    )
    deletion = records.deletions(V1, FileKeys.from_files([""], ["b"]), "c")
    merged = records.merge(map(hfile_entries.sort, ([older], [newer], [deletion])))
    assert merged.to_pylist() == newer.to_pylist()[:1]
    assert records.name_in(merged["value"][0].as_py()) == "a"
    [value] = deletion["value"].to_pylist()
    assert decode_record(value)["ColumnStatsMetadata"]["isDeleted"]
    [value] = records.deletions(V2, FileKeys.from_files([""], ["b"]), "c")["value"].to_pylist()
    assert decode_record(value)["ColumnStatsMetadata"]["valueType"]["typeOrdinal"] == 1
    added_after_deletion = records.merge(map(hfile_entries.sort, ([deletion], [older])))
    assert added_after_deletion.to_pylist() == hfile_entries.sort([older]).to_pylist()


@pytest.mark.parametrize("value", [b"", b"\0"])
def test_an_entry_that_is_too_short_is_corrupt_when_merged(value):
    columns = [pa.array([data], pa.large_binary()) for data in (b"key", value)]
    entries = pa.record_batch(columns, schema=ENTRIES)
    with pytest.raises(Corrupt, match="cannot be read: it has"):
        records.merge([entries])


@pytest.mark.parametrize("value", [b"", b"\0\6\0\2\2", b"\0\6\0\2\2\x08ab", b"\xff" * 30])
def test_an_entry_without_a_readable_file_name_is_corrupt(value):
    with pytest.raises(Corrupt, match="column statistics cannot be read"):
        records.name_in(value)


def test_fifty_columns_of_a_thousand_files_are_encoded_in_a_second():
    keys_of = [pa.array([INT_KEY] * 1000, pa.binary())] * 2
    counts = [pa.array(range(1000))] * 3
    ranges = pa.table([*keys_of, *counts], schema=RANGES)
    begin = time.process_time()
    keys = FileKeys.from_files(
        ["city=x"] * 1000, [f"{n:036}-0_0-1-0_20240229.parquet" for n in range(1000)]
    )
    parts = [records.entries(V1, keys, f"c{n}", pa.int64(), ranges) for n in range(50)]
    sorted_entries = hfile_entries.sort(parts)
    data = GROUPS[COLUMN_STATS].log_file(sorted_entries, "20240229120000123")
    assert time.process_time() - begin < 1
    assert len(sorted_entries) == 50_000 and sorted_entries.nbytes > 50_000 * 100 > len(data)


@pytest.mark.parametrize(
    ("form", "digest"), [(V1, "c1cde6764e63ae62"), (V2, "f864a9fc2a6d6c15")], ids=["V1", "V2"]
)
def test_the_bytes_of_a_log_file_do_not_change(form, digest):
    columns = {"n": pa.array([1, None, 7]), "t": pa.array(["ü", "b"]), "d": pa.array([0.5])}
    keys = FileKeys.from_files(["city=x"], [NAME])
    parts = [
        records.entries(form, keys, name, column.type, ranges_of(column))
        for name, column in columns.items()
    ]
    data = GROUPS[COLUMN_STATS].log_file(hfile_entries.sort(parts), "20240229120000123")
    assert hashlib.sha256(data).hexdigest()[:16] == digest
