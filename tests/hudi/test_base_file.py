from __future__ import annotations

import math
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdt.hudi import avro_schema, base_file, file_names

T = "20261121053000123"
FILE_ID = base_file.new_file_id("0123456789abcdef0123456789abcdef")
NAME = base_file.name(FILE_ID, "3-7-1", T)


def encode(table, row_group_rows=4, **changes):
    form_fields = changes.keys() & base_file.FileForm.__annotations__.keys()
    form = {"avro_schema": "{}", **{name: changes.pop(name) for name in form_fields}}
    data, _ = base_file.encode(
        table, base_file.FileForm(row_group_rows=row_group_rows, **form), **changes
    )
    return pq.ParquetFile(pa.BufferReader(data)), base_file.row_groups_of(
        len(table), row_group_rows
    )


def chunks(file):
    """Return the column chunks of the first row group, by path."""
    group = file.metadata.row_group(0)
    columns = (group.column(i) for i in range(group.num_columns))
    return {column.path_in_schema: column for column in columns}


def has_bounds(file):
    return {name: column.is_stats_set for name, column in chunks(file).items()}


def dictionary_columns(file):
    return {name for name, column in chunks(file).items() if "RLE_DICTIONARY" in column.encodings}


def test_base_file_names_round_trip():
    assert file_names.parse_base(NAME) == file_names.BaseFileName(FILE_ID, "3-7-1", T)


@pytest.mark.parametrize(
    "name",
    [
        "a.parquet",
        NAME + ".crc",
        f"x/{NAME}",
        f"{FILE_ID}_{T}.parquet",
        f"{FILE_ID}_1-0_{T}.parquet",
        NAME + "\n",
    ],
)
def test_other_names_are_not_base_file_names(name):
    assert file_names.parse_base(name) is None


@given(st.uuids())
def test_file_ids_are_version_4_uuids(random):
    text = base_file.new_file_id(random.hex)
    assert text.endswith("-0")
    parsed = uuid.UUID(text[:-2])
    assert str(parsed) == text[:-2]
    assert (parsed.version, parsed.variant) == (4, uuid.RFC_4122)


@given(st.lists(st.text(min_size=1, max_size=5), max_size=5))
def test_meta_columns_have_instant_sequence_number_key_partition_and_file_of_each_row(keys):
    n = len(keys)
    columns = base_file.meta_columns(
        n,
        instant=T,
        task=3,
        keys=pa.array(keys, pa.string()),
        partition="city=x",
        file_name=NAME,
    )
    table = base_file.with_meta_columns(pa.table({"v": pa.array(range(n))}), columns)
    assert table.column_names == [*avro_schema.META_FIELDS, "v"]
    for i, row in enumerate(table.to_pylist()):
        expected = [T, f"{T}_3_{i}", keys[i], "city=x", NAME, i]
        assert list(row.values()) == expected


def test_files_have_plain_string_columns_and_rows_round_trip():
    data = pa.table({"id": ["a", "b", "c"], "v": [1, 2, None]})
    meta = base_file.meta_columns(
        3, instant=T, task=0, keys=data["id"].chunk(0), partition="", file_name=NAME
    )
    file, rows = encode(base_file.with_meta_columns(data, meta), 2)
    assert rows == (2, 1)
    assert file.schema_arrow.remove_metadata() == avro_schema.with_meta(data.schema)
    assert file.read().select(["id", "v"]).to_pylist() == data.to_pylist()
    assert sorted(dictionary_columns(file)) == [
        "_hoodie_commit_time",
        "_hoodie_file_name",
        "_hoodie_partition_path",
    ]


def test_all_meta_columns_have_bounds():
    """Hudi 0.15 keeps bounds of all columns, and takes a column without bounds for null."""
    data = pa.table({"id": ["a", "b", "c"]})
    meta = base_file.meta_columns(
        3, instant=T, task=0, keys=data["id"].chunk(0), partition="city=x", file_name=NAME
    )
    file, _ = encode(base_file.with_meta_columns(data, meta))
    group = file.metadata.row_group(0)
    statistics = [group.column(number).statistics for number in range(5)]
    assert [(found.min, found.max) for found in statistics] == [
        (T, T),
        (f"{T}_0_0", f"{T}_0_2"),
        ("a", "c"),
        ("city=x", "city=x"),
        (NAME, NAME),
    ]


@given(st.integers(0, 20), st.integers(1, 7))
def test_row_groups_have_the_reported_sizes(rows, row_group_rows):
    file, groups = encode(pa.table({"v": pa.array(range(rows), pa.int64())}), row_group_rows)
    row_counts = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
    assert tuple(row_counts or [0]) == groups
    assert sum(groups) == rows


def test_the_first_part_of_a_file_may_be_empty():
    numbers, sink = pa.table({"v": pa.array(range(10_000), pa.int64())}), pa.BufferOutputStream()
    base_file.encode_parts(
        [numbers[:0], numbers],
        sink,
        base_file.FileForm("{}", 10_000, page_bytes=4096),
        rows=len(numbers),
        unbounded=frozenset(),
        key_metadata=lambda: (None, None, None),
    )
    assert pq.read_table(pa.BufferReader(sink.getvalue())) == numbers


def test_the_footer_has_hudis_metadata_and_key_metadata_if_given():
    def footer_metadata(**changes):
        metadata = encode(pa.table({"v": [1]}), **changes)[0].metadata.metadata
        return {key.decode(): value.decode() for key, value in metadata.items()}

    keys = {
        "hoodie_min_record_key": "a",
        "hoodie_max_record_key": "ü",
        "org.apache.hudi.bloomfilter": "QUJD",
        "hoodie_bloom_filter_type_code": "SIMPLE",
    }
    plain = footer_metadata(avro_schema='{"a":1}')
    assert plain == {
        "parquet.avro.schema": '{"a":1}',
        "mdt.digests": plain["mdt.digests"],
        "org.apache.spark.version": "4.0.0",
    }
    options = {"key_metadata": lambda: ("a", "ü", b"QUJD")}
    assert footer_metadata(avro_schema='{"a":1}', **options) == plain | keys


def test_all_columns_except_nested_floats_and_columns_with_nan_have_bounds():
    nested = pa.struct([("x", pa.float32()), ("y", pa.int32())])
    table = pa.table(
        {
            "nan": [1.0, math.nan],
            "clean": [1.0, None],
            "int": [1, 2],
            "floats": pa.array([[1.0], [2.0]]),
            "texts": pa.array([["a"], ["b"]], pa.list_(pa.field("item", pa.string()))),
            "struct": pa.array([{"x": 1.0, "y": 1}, None], nested),
            "map": pa.array([[("k", {"x": 1.0, "y": 1})], None], pa.map_(pa.string(), nested)),
        }
    )
    assert has_bounds(encode(table.select(["nan"]))[0]) == {"nan": False}
    file, _ = encode(table)
    assert has_bounds(file) == {
        "nan": False,
        "clean": True,
        "int": True,
        "floats.list.element": False,
        "texts.list.element": True,
        "struct.x": False,
        "struct.y": True,
        "map.key_value.key": True,
        "map.key_value.value.x": False,
        "map.key_value.value.y": True,
    }


def test_strings_that_repeat_are_dictionary_encoded():
    n = 3000
    columns = {
        "few": [f"v{i % 7}" for i in range(n)],
        "many": [f"v{i}" for i in range(n)],
        "flag": [i % 2 == 0 for i in range(n)],
        "nulls": pa.nulls(n, pa.string()),
    }
    assert dictionary_columns(encode(pa.table(columns), n)[0]) == {"few", "nulls"}


@pytest.mark.parametrize("digits", [1, 9, 18, 38])
def test_decimals_are_stored_as_fixed_length_bytes(digits):
    """Hudi loses the scale of decimals that are stored as integers when it rewrites a file."""
    file = encode(pa.table({"d": pa.array([1], pa.decimal128(digits, 0))}))[0]
    assert file.schema.column(0).physical_type == "FIXED_LEN_BYTE_ARRAY"


def test_tables_with_plain_and_dictionary_encoded_meta_columns_can_be_stacked():
    plain = pa.table({"_hoodie_commit_time": ["1"], "v": [1]})
    encoded = pa.table({"_hoodie_commit_time": pa.array(["2"]).dictionary_encode(), "v": [2]})
    assert base_file.stack([plain, encoded]).to_pylist() == [
        *plain.to_pylist(),
        *encoded.to_pylist(),
    ]
    assert base_file.stack([encoded, encoded]).schema == encoded.schema
