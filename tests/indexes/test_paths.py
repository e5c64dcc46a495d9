"""Paths through structs: which column a path means, and nulls at every level, whatever the array
looks like inside.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexes import column_stats, paths
from indexes.base import InMemory
from indexes.column_bloom import ColumnBloom
from indexes.predicate import Leaf, bind, check, columns, matches
from indexes.testing import leaves_for

GEO = pa.struct([("lat", pa.float64()), ("place", pa.string())])
ADDRESS = pa.struct([("city", pa.string()), ("geo", GEO), ("tags", pa.list_(pa.string()))])
SCHEMA = pa.schema([("id", pa.int64()), ("address", ADDRESS)])
LEAVES = ("id", "address.city", "address.geo.lat", "address.geo.place")

geos = st.none() | st.fixed_dictionaries(
    {
        "lat": st.none() | st.sampled_from((0.0, -1.5, float("nan"))),
        "place": st.none() | st.sampled_from(("a", "b")),
    }
)
addresses = st.none() | st.fixed_dictionaries(
    {
        "city": st.none() | st.sampled_from(("x", "y", "z")),
        "geo": geos,
        "tags": st.none() | st.just(["t"]),
    }
)
rows = st.lists(st.fixed_dictionaries({"id": st.integers(0, 3), "address": addresses}), max_size=8)


def below(row: dict[str, Any], path: str) -> Any:
    """Follow a path in Python."""
    value: Any = row
    for name in path.split("."):
        value = None if value is None else value[name]
    return value


def hidden_values() -> pa.Table:
    """Return rows whose null structs still have values in the arrays below, sliced and in two
    chunks.
    """
    geo = pa.StructArray.from_arrays(
        [pa.array([1.0, 2.0, 3.0, 4.0]), pa.array(["a", "b", "c", None])],
        fields=list(GEO),
        mask=pa.array([False, True, False, False]),
    )
    address = pa.StructArray.from_arrays(
        [pa.array(["x", "y", "z", "w"]), geo, pa.nulls(4, pa.list_(pa.string()))],
        fields=list(ADDRESS),
        mask=pa.array([False, False, True, False]),
    )
    chunks = pa.chunked_array([address, address.slice(1, 3)])
    return pa.table([pa.array(range(7)), chunks], schema=SCHEMA)


def test_values_below_a_null_struct_are_null():
    table = hidden_values()
    assert paths.column_at(table, "address.city").to_pylist() == [
        "x",
        "y",
        None,
        "w",
        "y",
        None,
        "w",
    ]
    assert paths.column_at(table, "address.geo.lat").to_pylist() == [
        1.0,
        None,
        None,
        4.0,
        None,
        None,
        4.0,
    ]
    assert paths.column_at(table.slice(0, 3), "address.geo.place").to_pylist() == ["a", None, None]
    batch = table.to_batches()[1]
    assert paths.column_at(batch, "address.geo.lat").to_pylist() == [None, None, 4.0]
    assert isinstance(paths.column_at(batch, "address.geo.lat"), pa.Array)


@given(rows, st.integers(0, 8), st.integers(0, 8))
def test_a_path_means_the_same_as_in_python(drawn, start, length):
    table = pa.concat_tables(
        [
            pa.Table.from_pylist(drawn, schema=SCHEMA),
            pa.Table.from_pylist(drawn[::-1], schema=SCHEMA),
        ]
    )
    part = table.slice(start, length)
    for path in (*LEAVES, "address", "address.geo", "address.tags"):
        found = paths.column_at(part, path).to_pylist()
        assert repr(found) == repr([below(row, path) for row in part.to_pylist()])


def test_a_column_whose_whole_name_is_the_path_wins():
    inner = pa.struct([("b", pa.int8()), ("b.c", pa.int16())])
    schema = pa.schema(
        [("a", inner), ("a.b", pa.string()), ("a.b.d", pa.struct([("e", pa.bool_())]))]
    )
    assert [paths.steps(schema, path) for path in ("a.b", "a.b.c", "a.b.d.e", "a.b.d", "a")] == [
        (1,),
        (0, 1),
        (2, 0),
        (2,),
        (0,),
    ]
    assert paths.field_at(schema, "a.b").type == pa.string()
    assert [path for path, _ in paths.addressable(schema)] == [
        "a",
        "a.b.c",
        "a.b",
        "a.b.d",
        "a.b.d.e",
    ]
    assert paths.top_level(schema, "a.b.c") == "a" and paths.names(schema, "a.b.c") == ("a", "b.c")


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "b",
        "address.",
        ".city",
        "address.town",
        "id.x",
        "address.tags.element",
        "address..geo",
        "address.city.x",
    ],
)
def test_a_path_that_leads_nowhere_is_none(path):
    assert paths.steps(SCHEMA, path) is None and paths.field_at(SCHEMA, path) is None
    for ask in (paths.type_at, paths.names, paths.top_level):
        with pytest.raises(KeyError, match="no column"):
            ask(SCHEMA, path)
    with pytest.raises(KeyError):
        paths.column_at(SCHEMA.empty_table(), path)


def test_a_name_that_two_fields_share_is_not_addressed():
    twins = pa.struct([pa.field("x", pa.int8()), pa.field("x", pa.int8())])
    schema = pa.schema([pa.field("s", twins), pa.field("t", pa.int8()), pa.field("t", pa.int8())])
    assert paths.steps(schema, "s.x") is paths.steps(schema, "t") is None
    assert [path for path, _ in paths.addressable(schema)] == ["s"]
    with pytest.raises(ValueError, match="more than one column 't'"):
        check(Leaf("t", "=", 1), schema)


def test_the_field_is_nullable_if_a_struct_on_the_way_is():
    inner = pa.field("b", pa.int8(), nullable=False)
    for nullable in (False, True):
        schema = pa.schema([pa.field("a", pa.struct([inner]), nullable=nullable)])
        assert paths.field_at(schema, "a.b") == pa.field("a.b", pa.int8(), nullable=nullable)
    assert paths.type_at(SCHEMA, "address.geo.lat") == pa.float64()


def test_leaves_are_what_is_no_struct():
    assert [path for path, _ in paths.leaf_paths(SCHEMA)] == [
        "id",
        "address.city",
        "address.geo.lat",
        "address.geo.place",
        "address.tags",
    ]
    assert paths.top_levels(SCHEMA, columns(Leaf("address.geo.lat", "=", 1))) == {"address"}


def test_many_dots_are_read_quickly():
    assert paths.steps(SCHEMA, "address" + "." * 20_000) is None
    assert paths.steps(SCHEMA, "address." * 5_000) is None


def test_a_leaf_may_test_a_field_and_a_struct():
    table = hidden_values()
    assert matches(Leaf("address.geo.lat", "is null"), table).to_pylist() == [
        False,
        True,
        True,
        False,
        True,
        True,
        False,
    ]
    assert matches(Leaf("address.geo", "is null"), table).to_pylist() == [
        False,
        True,
        True,
        False,
        True,
        True,
        False,
    ]
    assert matches(Leaf("address.city", "!=", "x"), table).to_pylist() == [
        False,
        True,
        False,
        True,
        True,
        False,
        True,
    ]
    assert bind(Leaf("address.geo.lat", ">", 1), SCHEMA)(table.to_batches()[0]).to_pylist() == [
        False,
        False,
        False,
        True,
    ]
    with pytest.raises(ValueError, match="no column 'address.town'"):
        check(Leaf("address.town", "=", 1), SCHEMA)


@given(st.lists(rows, min_size=1, max_size=4), st.sampled_from(LEAVES))
def test_statistics_and_filters_of_a_field_prove_what_the_rows_say(segments, path):
    tables = [pa.Table.from_pylist(one, schema=SCHEMA) for one in segments]
    type = paths.type_at(SCHEMA, path)
    parts = [paths.column_at(table, path).combine_chunks() for table in tables]
    stats = column_stats.to_batch([column_stats.summarize(part) for part in parts])
    index = ColumnBloom()
    filters = [InMemory(index.summarize(part)) for part in parts]
    drawn = {
        "id": (0, 3),
        "address.city": ("x", "z"),
        "address.geo.lat": (0.0, 0.5, float("nan")),
        "address.geo.place": ("a",),
    }[path]
    for leaf in leaves_for(path, type, drawn):
        hit = [any(matches(leaf, table).to_pylist()) for table in tables]
        for verdict in (column_stats.prune(stats, leaf, type), index.prune(filters, leaf, type)):
            assert all(
                maybe or not found for maybe, found in zip(verdict.tolist(), hit, strict=True)
            ), leaf
