from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdt.errors import Invalid
from mdt.hudi.partitions import NULL_PARTITION, escape, partition_paths, unescape
from mdt.hudi.record_keys import record_keys

VALUES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
PIECES = st.lists(st.sampled_from([",b:", ",b", "b:", ",", "x", ":"]), min_size=1, max_size=4).map(
    "".join
)


@pytest.mark.parametrize(
    ("type", "values", "texts"),
    [
        (pa.string(), ["a", "ü:,"], ["a", "ü:,"]),
        (pa.large_string(), ["a"], ["a"]),
        (pa.int8(), [-1], ["-1"]),
        (pa.uint64(), [2**64 - 1], [str(2**64 - 1)]),
        (pa.bool_(), [True, False], ["true", "false"]),
        (pa.date32(), [date(2026, 1, 2)], ["2026-01-02"]),
        (pa.timestamp("ms", "UTC"), [datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)], ["1000000"]),
        (pa.timestamp("us"), [datetime(1969, 12, 31, 23, 59, 59)], ["-1000000"]),
        (pa.dictionary(pa.int8(), pa.string()), ["a", "b", "a"], ["a", "b", "a"]),
    ],
)
def test_the_key_of_one_column_is_its_value(
    type: pa.DataType, values: list[Any], texts: list[str]
) -> None:
    table = pa.table({"k": pa.array(values, type)})
    found = record_keys(table, ["k"])
    assert found.type == pa.string()
    assert found.to_pylist() == texts
    assert record_keys(pa.concat_tables([table, table]), ["k"]).to_pylist() == texts * 2
    assert record_keys(table.schema.empty_table(), ["k"]).to_pylist() == []


def test_the_key_of_several_columns_names_them() -> None:
    table = pa.table({"a": ["x", "y"], "b": [1, 2], "c": [True, False]})
    assert record_keys(table, ["a", "b", "c"]).to_pylist() == ["a:x,b:1,c:true", "a:y,b:2,c:false"]


@given(st.sets(st.tuples(PIECES, PIECES), min_size=1, max_size=8))
def test_different_keys_have_different_texts_or_are_refused(pairs: set[tuple[str, str]]) -> None:
    rows = sorted(pairs)
    table = pa.table({"a": [a for a, _ in rows], "b": [b for _, b in rows]})
    if any(",b:" in a for a, _ in rows):
        with pytest.raises(Invalid, match="name of the next key field"):
            record_keys(table, ["a", "b"])
    else:
        assert len(set(record_keys(table, ["a", "b"]).to_pylist())) == len(rows)


@pytest.mark.parametrize("bad", [None, ""])
def test_absent_keys_are_refused_and_the_first_ten_named(bad: str | None) -> None:
    with pytest.raises(Invalid) as caught:
        record_keys(pa.table({"k": pa.array(["x", *[bad] * 12])}), ["k"])
    assert "12 rows" in caught.value.message
    assert "row 1" in caught.value.message and "row 10" in caught.value.message
    assert "row 11" not in caught.value.message


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
def test_types_without_one_text_cannot_be_keys(type: pa.DataType) -> None:
    with pytest.raises(Invalid):
        record_keys(pa.table({"k": pa.nulls(0, type)}), ["k"])


def paths_of(table: pa.Table, fields: list[str], **options: bool) -> list[str]:
    codes, paths = partition_paths(table, fields, **options)
    assert len(codes) == len(table)
    assert sorted(set(codes.tolist())) == list(range(len(paths)))
    assert len(set(paths)) == len(paths)
    return [paths[code] for code in codes]


def test_levels_are_joined_and_nulls_have_hives_name() -> None:
    table = pa.table(
        {
            "d": pa.array([date(2026, 1, 2), None, date(2026, 1, 2)]),
            "n": [1, 1, None],
            "f": [True, False, True],
        }
    )
    assert paths_of(table, ["d", "n", "f"]) == [
        "d=2026-01-02/n=1/f=true",
        f"d={NULL_PARTITION}/n=1/f=false",
        f"d=2026-01-02/n={NULL_PARTITION}/f=true",
    ]
    assert paths_of(table, ["n"], hive_style=False) == ["1", "1", NULL_PARTITION]
    assert paths_of(table, []) == ["", "", ""]
    assert paths_of(table.schema.empty_table(), ["d", "n"]) == []


def test_chunks_and_dictionaries_make_no_difference() -> None:
    table = pa.table({"c": pa.chunked_array([["a", "b"], ["c", None]])})
    coded = pa.table({"c": pa.chunked_array([["a", "b"], ["c", None]]).dictionary_encode()})
    assert (
        paths_of(table, ["c"])
        == paths_of(coded, ["c"])
        == ["c=a", "c=b", "c=c", f"c={NULL_PARTITION}"]
    )


@given(VALUES)
def test_escaping_is_undone(value: str) -> None:
    assert unescape(escape(value)) == value
    assert not set(escape(value)) & set("/\\:*?\"'#={[]^\n\0")


def test_escaping_is_that_of_hudi() -> None:
    assert escape("a/b c}%=~ü\x7f\t") == "a%2Fb c}%25%3D~ü%7F%09"
    assert unescape("%2f%zz%") == "/%zz%"


@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=8))
def test_no_value_adds_a_level_or_leaves_the_table(rows: list[tuple[str, str]]) -> None:
    table = pa.table({"a": [a for a, _ in rows], "b": [b for _, b in rows]})
    for path, (a, b) in zip(paths_of(table, ["a", "b"]), rows, strict=True):
        parts = PurePosixPath(path).parts
        assert [unescape(part) for part in parts] == [f"a={a}", f"b={b}"]


@pytest.mark.parametrize("value", ["", NULL_PARTITION, "x" * 254, "ü" * 127, "/" * 85])
def test_impossible_partition_values_are_refused(value: str) -> None:
    with pytest.raises(Invalid, match="partition column 'c'"):
        partition_paths(pa.table({"c": [value, "ok"]}), ["c"])


@pytest.mark.parametrize("value", [".", "..", ".hoodie"])
def test_values_that_are_places_cannot_stand_alone(value: str) -> None:
    table = pa.table({"c": [value]})
    assert paths_of(table, ["c"]) == [f"c={value}"]
    with pytest.raises(Invalid):
        partition_paths(table, ["c"], hive_style=False)


@pytest.mark.parametrize(
    "type",
    [pa.float64(), pa.binary(), pa.decimal128(5, 2), pa.timestamp("us"), pa.list_(pa.int8())],
)
def test_types_without_a_readable_path_cannot_partition(type: pa.DataType) -> None:
    with pytest.raises(Invalid, match="cannot partition"):
        partition_paths(pa.table({"c": pa.nulls(1, type)}), ["c"])


def test_a_time_is_told_how_it_makes_paths() -> None:
    rows = pa.table({"at": pa.array([0], pa.timestamp("us", "UTC"))})
    with pytest.raises(Invalid, match="cannot partition") as caught:
        partition_paths(rows, ["at"])
    assert "mdt.partition.time.pattern" in caught.value.hint
