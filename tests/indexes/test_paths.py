"""Paths through structs: the column that a path means, and nulls at every level, for all layouts of
arrays.
"""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexes import paths
from indexes.predicate import Leaf, bind, check, columns, matches

GEO = pa.struct({"lat": "float64", "place": "string"})
ADDRESS = pa.struct({"city": "string", "geo": GEO, "tags": pa.list_(pa.string())})
SCHEMA = pa.schema({"id": "int64", "address": ADDRESS})
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


def value_at(row, path):
    """Follow a path through Python dicts."""
    value = row
    for name in path.split("."):
        value = None if value is None else value[name]
    return value


def rows_with_values_in_null_structs():
    """Return rows, in two chunks, one of them sliced. The arrays below null structs still have
    values.
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


@pytest.mark.parametrize("path", ["id", "address", *LEAVES[1:], "address.geo", "address.tags"])
def test_values_below_a_null_struct_are_null(path):
    table = rows_with_values_in_null_structs()
    for part in (table, table.slice(0, 3), *table.to_batches()):
        expected = [value_at(row, path) for row in part.to_pylist()]
        assert paths.column_at(part, path).to_pylist() == expected
    assert isinstance(paths.column_at(table.to_batches()[1], path), pa.Array)


@given(rows, st.integers(0, 8), st.integers(0, 8))
def test_a_path_has_the_same_values_as_in_python(drawn, start, length):
    halves = [pa.Table.from_pylist(records, schema=SCHEMA) for records in (drawn, drawn[::-1])]
    part = pa.concat_tables(halves).slice(start, length)
    for path in (*LEAVES, "address", "address.geo", "address.tags"):
        actual = paths.column_at(part, path).to_pylist()
        assert repr(actual) == repr([value_at(row, path) for row in part.to_pylist()])


def test_a_column_with_the_path_as_its_name_takes_precedence():
    inner = pa.struct({"b": "int8", "b.c": "int16"})
    deep = pa.struct({"e": "bool"})
    schema = pa.schema({"a": inner, "a.b": "string", "a.b.d": deep})
    steps = {"a.b": (1,), "a.b.c": (0, 1), "a.b.d.e": (2, 0), "a.b.d": (2,), "a": (0,)}
    assert {path: paths.steps(schema, path) for path in steps} == steps
    assert paths.field_at(schema, "a.b").type == pa.string()
    addressable = [path for path, _ in paths.addressable(schema)]
    assert addressable == ["a", "a.b.c", "a.b", "a.b.d", "a.b.d.e"]
    assert paths.top_level(schema, "a.b.c") == "a" and paths.names(schema, "a.b.c") == ("a", "b.c")


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "address" + "." * 20_000,
        "address." * 5_000,
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
def test_a_path_to_an_unknown_field_is_none_and_raises_on_use(path):
    assert paths.steps(SCHEMA, path) is None and paths.field_at(SCHEMA, path) is None
    for ask in (paths.type_at, paths.names, paths.top_level):
        with pytest.raises(KeyError, match="no column"):
            ask(SCHEMA, path)
    with pytest.raises(KeyError):
        paths.column_at(SCHEMA.empty_table(), path)


def test_a_name_shared_by_two_fields_cannot_be_addressed():
    twins = pa.struct([pa.field("x", "int8"), pa.field("x", "int8")])
    schema = pa.schema([pa.field("s", twins), pa.field("t", "int8"), pa.field("t", "int8")])
    assert paths.steps(schema, "s.x") is paths.steps(schema, "t") is None
    assert [path for path, _ in paths.addressable(schema)] == ["s"]
    with pytest.raises(ValueError, match="more than one column 't'"):
        check(Leaf("t", "=", 1), schema)


@pytest.mark.parametrize("nullable", [False, True])
def test_a_nested_field_is_nullable_if_a_struct_around_it_is(nullable):
    inner = pa.struct([pa.field("b", "int8", nullable=False)])
    schema = pa.schema([pa.field("a", inner, nullable=nullable)])
    assert paths.field_at(schema, "a.b") == pa.field("a.b", "int8", nullable=nullable)


def test_leaf_paths_are_those_of_fields_that_are_not_structs():
    assert [path for path, _ in paths.leaf_paths(SCHEMA)] == [*LEAVES, "address.tags"]
    assert paths.top_levels(SCHEMA, columns(Leaf("address.geo.lat", "=", 1))) == {"address"}


@pytest.mark.parametrize(
    ("leaf", "holds"),
    [
        (Leaf("address.geo.lat", "is null"), lambda value: value is None),
        (Leaf("address.geo", "is null"), lambda value: value is None),
        (Leaf("address.city", "!=", "x"), lambda value: value not in ("x", None)),
        (Leaf("address.geo.lat", ">", 1), lambda value: value is not None and value > 1),
    ],
)
def test_a_leaf_may_test_a_field_and_a_struct(leaf, holds):
    table = rows_with_values_in_null_structs()
    expected = [holds(value_at(row, leaf.column)) for row in table.to_pylist()]
    assert matches(leaf, table).to_pylist() == expected
    first = table.to_batches()[0]
    assert bind(leaf, SCHEMA)(first).to_pylist() == expected[: len(first)]


def test_a_leaf_on_an_unknown_path_is_refused():
    with pytest.raises(ValueError, match="no column 'address.town'"):
        check(Leaf("address.town", "=", 1), SCHEMA)
