from __future__ import annotations

from datetime import date
from pathlib import PurePosixPath

import pyarrow as pa
import pytest
import trees
from hudi import HudiReadOptions, HudiTable
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from mdt.hudi.partitions import NULL_PARTITION, escape, partition_paths, unescape
from mdt.hudi.record_keys import record_keys
from mdt.schema.alter import type_of

VALUES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
PIECES = st.lists(st.sampled_from([",b:", ",b", "b:", ",", "x", ":"]), min_size=1, max_size=4).map(
    "".join
)


@pytest.mark.parametrize(
    ("type", "values", "texts"),
    [
        ("string", ["a", "ü:,"], ["a", "ü:,"]),
        ("large_string", ["a"], ["a"]),
        ("int8", [-1], ["-1"]),
        ("uint64", [2**64 - 1], [str(2**64 - 1)]),
        ("bool", [True, False], ["true", "false"]),
        ("date32", [date(2026, 1, 2)], ["2026-01-02"]),
        (pa.timestamp("ms", "UTC"), [1000], ["1000000"]),
        ("timestamp[us]", [-1_000_000], ["-1000000"]),
        (pa.dictionary(pa.int8(), pa.string()), ["a", "b", "a"], ["a", "b", "a"]),
    ],
)
def test_the_key_of_one_column_is_the_text_of_its_value(type, values, texts):
    table = pa.table({"k": pa.array(values, type_of(type))})
    keys = record_keys(table, ["k"])
    assert keys.type == pa.string() and keys.to_pylist() == texts
    assert record_keys(pa.concat_tables([table, table]), ["k"]).to_pylist() == texts * 2
    assert record_keys(table.schema.empty_table(), ["k"]).to_pylist() == []


def test_the_key_of_several_columns_has_their_names_and_values():
    table = pa.table({"a": ["x", "y"], "b": [1, 2], "c": [True, False]})
    assert record_keys(table, ["a", "b", "c"]).to_pylist() == ["a:x,b:1,c:true", "a:y,b:2,c:false"]


@given(st.sets(st.tuples(PIECES, PIECES), min_size=1, max_size=8))
def test_distinct_composite_keys_have_distinct_texts_or_are_refused(pairs):
    rows = sorted(pairs)
    table = pa.table({"a": [a for a, _ in rows], "b": [b for _, b in rows]})
    if any(",b:" in a for a, _ in rows):
        refused("name of the next key field", record_keys, table, ["a", "b"])
    else:
        assert len(set(record_keys(table, ["a", "b"]).to_pylist())) == len(rows)


@pytest.mark.parametrize("bad", [None, ""])
def test_null_and_empty_keys_are_refused_and_the_first_ten_rows_are_named(bad):
    keys = pa.table({"k": ["x", *[bad] * 12]})
    error = refused("12 rows … row 1 … row 10", record_keys, keys, ["k"])
    assert "row 11" not in error.message


@pytest.mark.parametrize(
    "type",
    [
        pa.float64(),
        pa.decimal128(5, 2),
        pa.binary(),
        pa.timestamp("ns"),
        pa.list_(pa.string()),
        pa.null(),
    ],
)
def test_types_without_a_unique_text_are_refused_as_keys(type):
    refused("'k'", record_keys, pa.table({"k": pa.nulls(0, type)}), ["k"])


@pytest.mark.parametrize(("unit", "moment"), [("s", 2**44), ("ms", -(2**53) * 1024)])
def test_timestamps_outside_the_range_of_microseconds_are_refused_as_keys(unit, moment):
    keys = pa.table({"k": pa.array([0, moment], pa.timestamp(unit))})
    refused("'k' has a moment … within 290,000 years", record_keys, keys, ["k"])


def paths_of(table, fields, **options):
    codes, paths = partition_paths(table, fields, **options)
    assert len(codes) == len(table)
    assert sorted(set(codes.tolist())) == list(range(len(paths)))
    assert len(set(paths)) == len(paths)
    return [paths[code] for code in codes]


def test_partition_levels_are_joined_and_nulls_have_hives_default_name():
    day = date(2026, 1, 2)
    table = pa.table({"d": [day, None, day], "n": [1, 1, None], "f": [True, False, True]})
    assert paths_of(table, ["d", "n", "f"]) == [
        "d=2026-01-02/n=1/f=true",
        f"d={NULL_PARTITION}/n=1/f=false",
        f"d=2026-01-02/n={NULL_PARTITION}/f=true",
    ]
    assert paths_of(table, ["n"], hive_style=False) == ["1", "1", NULL_PARTITION]
    assert paths_of(table, []) == ["", "", ""]
    assert paths_of(table.schema.empty_table(), ["d", "n"]) == []


def test_chunked_and_dictionary_encoded_columns_have_the_same_partition_paths():
    values = pa.chunked_array([["a", "b"], ["c", None]])
    for column in (values, values.dictionary_encode()):
        paths = paths_of(pa.table({"c": column}), ["c"])
        assert paths == ["c=a", "c=b", "c=c", f"c={NULL_PARTITION}"]


@given(VALUES)
def test_unescape_inverts_escape_and_no_special_character_is_left(value):
    assert unescape(escape(value)) == value
    assert not set(escape(value)) & set("/\\:*?\"'#={[]^\n\0")


def test_values_are_escaped_as_by_hudi():
    assert escape("a/b c}%=~ü\x7f\t") == "a%2Fb c}%25%3D~ü%7F%09"
    assert unescape("%2f%zz%") == "/%zz%"


@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=8))
def test_no_partition_value_adds_a_level_or_leaves_the_table_folder(rows):
    table = pa.table({"a": [a for a, _ in rows], "b": [b for _, b in rows]})
    for path, (a, b) in zip(paths_of(table, ["a", "b"]), rows, strict=True):
        parts = PurePosixPath(path).parts
        assert [unescape(part) for part in parts] == [f"a={a}", f"b={b}"]


@pytest.mark.parametrize("value", ["", NULL_PARTITION, "x" * 254, "ü" * 127, "/" * 85])
def test_invalid_partition_values_are_refused(value):
    values = pa.table({"c": [value, "ok"]})
    refused("partition column 'c'", partition_paths, values, ["c"])


@pytest.mark.parametrize("days", [-800_000, -719_163, 2_932_897])
def test_dates_outside_the_years_1_to_9999_are_refused_as_partition_values(days):
    dates = pa.array([days, days % 719_163], pa.int32()).cast(pa.date32())
    refused("years 1 to 9999", partition_paths, pa.table({"day": dates}), ["day"])


@pytest.mark.parametrize("value", [".", "..", ".hoodie"])
def test_values_that_are_special_folder_names_are_refused_without_hive_style(value):
    table = pa.table({"c": [value]})
    assert paths_of(table, ["c"]) == [f"c={value}"]
    refused(value, partition_paths, table, ["c"], hive_style=False)


@pytest.mark.parametrize(
    "type",
    [
        pa.float64(),
        pa.binary(),
        pa.decimal128(5, 2),
        pa.timestamp("us", "UTC"),
        pa.list_(pa.int8()),
    ],
)
def test_types_without_a_readable_path_are_refused_as_partition_columns(type):
    rows = pa.table({"c": pa.nulls(1, type)})
    error = refused("cannot partition", partition_paths, rows, ["c"])
    assert ("mdt.partition.time.pattern" in error.hint) == pa.types.is_timestamp(type)


def test_hudi_rs_reads_a_table_with_special_characters_in_its_name_and_partitions(tmp_path):
    cities = ["a b", "ü/ö", "100%", "x=y", "..", "[1]", "tab\there"]
    rows = pa.table({"id": [f"id{n}" for n in range(len(cities))], "city": cities})
    options = {"hoodie.table.name": "1 tägliche=fahrten: #1!"}
    table = trees.create(tmp_path, rows.schema, partition_by=["city"], options=options)
    table.upsert(rows)
    for row in rows.to_pylist():
        options_of_city = HudiReadOptions(filters=[("city", "=", row["city"])])
        batches = HudiTable(str(tmp_path)).read(options_of_city)
        assert [record["id"] for batch in batches for record in batch.to_pylist()] == [row["id"]]
