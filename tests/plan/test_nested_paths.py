"""Fields of structs in filters, statistics and indexes. A pruned scan returns the rows of a full
scan, with nulls at every level.
"""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_tables import QUIET
from reader import bag

import mdt
from indexes.predicate import Leaf, matches
from mdt.errors import Invalid, Unsupported
from mdt.filters.where import parse_where
from mdt.stores.storage import MemoryStorage

GEO = pa.struct({"lat": "float64", "zone": "int32"})
ADDRESS = pa.struct({"city": "string", "geo": GEO, "active": "bool", "tags": pa.list_(pa.string())})
SCHEMA = pa.schema({"id": "int64", "address": ADDRESS, "city": "string"})
DEEP = pa.int64()
for name in "edcba":
    DEEP = pa.struct([(name, DEEP)])
DEEP = pa.schema(DEEP)
WHERES = (
    "address.city = 'a'",
    "address.city is null",
    "address.city is not null",
    "address.geo.lat > 1.5",
    "address.geo.lat is null",
    "not address.geo.lat <= 0",
    "address.geo.zone in (1, 2, null)",
    "address.geo.zone not in (1)",
    "address.active",
    "address.city = 'b' or address.geo.zone = 3",
    "address.city like 'a%' and id > 2",
    "address.geo is null",
    "address is null",
    "address.geo.zone <=> null",
    "address.city = 'absent'",
    "address.geo.zone = 0 and city = 'c'",
    "address.city != 'a'",
)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("address.city = 'x'", Leaf("address.city", "=", "x")),
        ("ADDRESS.Geo.LAT > 1", Leaf("address.geo.lat", ">", 1)),
        ("1 < address.geo.lat", Leaf("address.geo.lat", ">", 1)),
        ("`address`.`city` in ('x')", Leaf("address.city", "in", ("x",))),
        ("not address.active", Leaf("address.active", "!=", True)),
        ("address.geo is null", Leaf("address.geo", "is null")),
        ([("address.geo.zone", "=", 3)], Leaf("address.geo.zone", "=", 3)),
    ],
)
def test_a_field_of_a_struct_is_named_by_its_path(where, expected):
    assert parse_where(where, SCHEMA) == expected


def test_a_path_may_have_many_levels():
    assert parse_where("a.b.c.d.e = 1", DEEP) == Leaf("a.b.c.d.e", "=", 1)
    assert parse_where("a.b.c.d is null", DEEP) == Leaf("a.b.c.d", "is null")


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("address.town = 'x'", "no column 'address.town'"),
        ("address.cty = 'x'", "address.city"),
        ("id.x = 1", "no column 'id.x'"),
        ("address.geo = 1", "cannot be compared"),
        ("address.tags = 'x'", "cannot be compared"),
        ("address.geo.zone = 'x'", "not a whole number"),
        ([("address.nope", "=", 1)], "no column 'address.nope'"),
        ("address.tags[0] = 'x'", None),
        ("address['city'] = 'x'", None),
        ("a.b.c.d.e.f() = 1", None),
        ("a.b.c.d.* = 1", None),
    ],
)
def test_a_path_to_an_unknown_or_incomparable_field_is_refused(where, message):
    with pytest.raises((Invalid, Unsupported), match=message):
        parse_where(where, SCHEMA)


@pytest.mark.parametrize("index", ["bloom(address.town)", "bloom(address)", "bloom(address.tags)"])
def test_an_index_on_a_field_without_order_or_that_does_not_exist_is_refused(index):
    with pytest.raises(Invalid):
        mdt.create(MemoryStorage(), SCHEMA, ["id"], indexes=[index])


geos = st.none() | st.fixed_dictionaries(
    {
        "lat": st.none() | st.sampled_from((-1.0, 1.5, 2.0, float("nan"))),
        "zone": st.none() | st.integers(0, 4),
    }
)
addresses = st.none() | st.fixed_dictionaries(
    {
        "city": st.none() | st.sampled_from("abc"),
        "geo": geos,
        "active": st.none() | st.booleans(),
        "tags": st.none() | st.just(["t"]),
    }
)


def _create(**more):
    options = {"mdt.row.group.rows": 3, "mdt.small.file.bytes": 0} | more.pop("options", {})
    indexes = ["bloom(address.city)", "bloom(address.geo.zone, fpp='0.1')"]
    return mdt.create(MemoryStorage(), SCHEMA, ["id"], options=options, indexes=indexes, **more)


def _rows(addresses_by_id):
    cities = [None if number % 3 == 0 else "c" for number in addresses_by_id]
    drawn = pa.array(addresses_by_id.values(), ADDRESS)
    return pa.table([list(addresses_by_id), drawn, cities], schema=SCHEMA)


@given(data=st.data())
@settings(max_examples=15, **QUIET)
def test_a_pruned_scan_with_filters_on_fields_returns_the_rows_of_a_full_scan(data):
    table = _create(table_type=data.draw(st.sampled_from(("MERGE_ON_READ", "COPY_ON_WRITE"))))
    live = {}
    for _ in range(data.draw(st.integers(1, 3))):
        drawn = data.draw(st.dictionaries(st.integers(0, 20), addresses, min_size=1, max_size=8))
        table.upsert(_rows(drawn))
        live |= drawn
    rows = _rows(live)
    for where in WHERES:
        expected = rows.filter(matches(parse_where(where, SCHEMA), rows))
        assert bag(table.scan(where).to_arrow()) == bag(expected), where
        assert bag(table.scan(where, ["id"]).to_arrow()) == bag(expected.select(["id"]))


def _clustered_table(**options):
    """Create a table of four files. In file n, cities begin with its letter, latitudes are n, and
    the zones overlap those of the other files.
    """
    table = _create(options=options)
    for n, letter in enumerate("abcd"):
        drawn = {
            9 * n + i: {
                "city": f"{letter}{i}",
                "geo": {"lat": float(n), "zone": 40 * i + n},
                "active": n == 1,
                "tags": None,
            }
            for i in range(9)
        }
        table.bulk_insert(_rows(drawn))
    return table


def test_statistics_of_fields_prune_files_and_row_groups():
    table = _clustered_table()
    for where in ("address.city like 'b%'", "address.geo.lat = 1", "address.active"):
        assert table.scan(where).explain().files_read == 1, where
    explanation = table.scan("address.city = 'c4'").explain()
    assert (explanation.files_read, explanation.row_groups_read) == (1, 1)


def test_a_bloom_filter_on_a_field_prunes_files_with_overlapping_bounds():
    table = _clustered_table()
    assert table.definition.indexes[0] == "bloom/1(address.city)"
    explanation = table.scan("address.geo.zone = 81").explain()
    note = next(
        note for note in explanation.indexes if note.index.startswith("bloom/1(address.geo.zone")
    )
    assert note.used and note.pruned >= 1 and explanation.files_read <= 2
    assert table.scan("address.geo.zone = 81").to_arrow()["id"].to_pylist() == [11]


@pytest.mark.parametrize(
    ("names", "columns"),
    [
        ("address.geo.lat", {"id", "address.geo.lat"}),
        ("address.geo,city", {"id", "address.geo.lat", "address.geo.zone", "city"}),
    ],
)
def test_columns_of_statistics_can_be_chosen_by_field_path_or_struct(names, columns):
    table = _clustered_table(**{"mdt.column.stats.columns": names})
    assert set(table.metadata.newest().stats["column"].to_pylist()) == columns
