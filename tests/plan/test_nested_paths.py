"""Fields of structs: in filters, statistics and indexes; a pruned scan is a full scan with nulls at
every level.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mdt
from indexes.predicate import And, Leaf, matches
from mdt.errors import Invalid, Unsupported
from mdt.filters.where import parse_where
from mdt.stores.storage import MemoryStorage

GEO = pa.struct([("lat", pa.float64()), ("zone", pa.int32())])
ADDRESS = pa.struct(
    [("city", pa.string()), ("geo", GEO), ("active", pa.bool_()), ("tags", pa.list_(pa.string()))]
)
SCHEMA = pa.schema([("id", pa.int64()), ("address", ADDRESS), ("city", pa.string())])
DEEP = pa.schema(
    [
        (
            "a",
            pa.struct(
                [("b", pa.struct([("c", pa.struct([("d", pa.struct([("e", pa.int64())]))]))]))]
            ),
        )
    ]
)
QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}
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
        ("address.active", Leaf("address.active", "=", True)),
        (
            "not address.active and city = 'x'",
            And((Leaf("address.active", "!=", True), Leaf("city", "=", "x"))),
        ),
        ("address.geo is null", Leaf("address.geo", "is null")),
        ([("address.geo.zone", "=", 3)], Leaf("address.geo.zone", "=", 3)),
    ],
)
def test_a_field_of_a_struct_is_named_by_its_path(where: Any, expected: object) -> None:
    assert parse_where(where, SCHEMA) == expected


def test_a_path_may_be_longer_than_the_names_of_a_table() -> None:
    assert parse_where("a.b.c.d.e = 1", DEEP) == Leaf("a.b.c.d.e", "=", 1)
    assert parse_where("a.b.c.d is null", DEEP) == Leaf("a.b.c.d", "is null")


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("address.town = 'x'", "no column 'address.town'"),
        ("addres.city = 'x'", "no column 'addres.city'"),
        ("id.x = 1", "no column 'id.x'"),
        ("address.geo = 1", "cannot be compared"),
        ("address.tags = 'x'", "cannot be compared"),
        ("address.geo.zone = 'x'", "no whole number"),
        ([("address.nope", "=", 1)], "no column 'address.nope'"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused(where: Any, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        parse_where(where, SCHEMA)


def test_the_nearest_path_is_named() -> None:
    with pytest.raises(Invalid) as raised:
        parse_where("address.cty = 'x'", SCHEMA)
    assert "address.city" in raised.value.hint


@pytest.mark.parametrize(
    "where",
    ["address.tags[0] = 'x'", "address['city'] = 'x'", "a.b.c.d.e.f() = 1", "a.b.c.d.* = 1"],
)
def test_what_is_no_plain_path_is_unsupported(where: str) -> None:
    with pytest.raises((Unsupported, Invalid)):
        parse_where(where, SCHEMA)


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


def _create(**more: Any) -> mdt.Table:
    options = {
        "mdt.row.group.rows": 3,
        "mdt.max.file.bytes": 1 << 20,
        "mdt.small.file.bytes": 0,
    } | more.pop("options", {})
    indexes = ["bloom(address.city)", "bloom(address.geo.zone, fpp='0.1')"]
    return mdt.create(MemoryStorage(), SCHEMA, ["id"], options=options, indexes=indexes, **more)


def _texts(table: pa.Table) -> Counter[str]:
    """Return the rows as text, and how often each occurs; structs cannot be counted otherwise."""
    return Counter(map(repr, table.to_pylist()))


def _rows(ids: list[int], drawn: list[Any]) -> pa.Table:
    cities = [None if number % 3 == 0 else "c" for number in ids]
    return pa.table([ids, pa.array(drawn, ADDRESS), cities], schema=SCHEMA)


@given(data=st.data())
@settings(max_examples=15, **QUIET)
def test_a_pruned_scan_on_fields_is_a_full_scan(data: st.DataObject) -> None:
    table = _create(table_type=data.draw(st.sampled_from(("MERGE_ON_READ", "COPY_ON_WRITE"))))
    live: dict[int, Any] = {}
    for _ in range(data.draw(st.integers(1, 3))):
        ids = data.draw(st.lists(st.integers(0, 20), min_size=1, max_size=8, unique=True))
        drawn = data.draw(st.lists(addresses, min_size=len(ids), max_size=len(ids)))
        table.upsert(_rows(ids, drawn))
        live |= dict(zip(ids, drawn, strict=True))
    rows = _rows(list(live), list(live.values()))
    for where in WHERES:
        expected = rows.filter(matches(parse_where(where, SCHEMA), rows))
        assert _texts(table.scan(where).to_arrow()) == _texts(expected), where
        assert sorted(table.scan(where, columns=["id"]).to_arrow()["id"].to_pylist()) == sorted(
            expected["id"].to_pylist()
        )


def _clusters(**options: Any) -> mdt.Table:
    """Four files; file n has the cities a<n>… and zones around 10 n, far apart in bounds but for
    the zones.
    """
    table = _create(options=options)
    for n in range(4):
        geo = [{"lat": float(n), "zone": 40 * i + n} for i in range(9)]
        drawn = [
            {"city": f"{'abcd'[n]}{i}", "geo": geo[i], "active": n == 1, "tags": None}
            for i in range(9)
        ]
        table.bulk_insert(_rows(list(range(9 * n, 9 * n + 9)), drawn))
    return table


def test_statistics_of_fields_prune_files_and_row_groups() -> None:
    table = _clusters()
    for where in ("address.city like 'b%'", "address.geo.lat = 1", "address.active"):
        assert table.scan(where).explain().files_read == 1, where
    told = table.scan("address.city = 'c4'").explain()
    assert (told.files_read, told.row_groups_read) == (1, 1)


def test_a_bloom_filter_of_a_field_prunes_where_bounds_cannot() -> None:
    table = _clusters()
    assert table.definition.indexes[0] == "bloom/1(address.city)"
    told = table.scan("address.geo.zone = 81").explain()
    note = next(note for note in told.indexes if note.index.startswith("bloom/1(address.geo.zone"))
    assert note.used and note.pruned >= 1 and told.files_read <= 2
    assert table.scan("address.geo.zone = 81").to_arrow()["id"].to_pylist() == [11]


def test_statistics_can_be_chosen_by_path_or_by_struct() -> None:
    def columns(names: str) -> set[str]:
        return set(
            _clusters(**{"mdt.column.stats.columns": names})
            .metadata.newest()
            .stats["column"]
            .to_pylist()
        )

    assert columns("address.geo.lat") == {"id", "address.geo.lat"}
    assert columns("address.geo,city") == {"id", "address.geo.lat", "address.geo.zone", "city"}


@pytest.mark.parametrize("index", ["bloom(address.town)", "bloom(address)", "bloom(address.tags)"])
def test_an_index_on_what_has_no_order_is_refused(index: str) -> None:
    with pytest.raises(Invalid):
        mdt.create(MemoryStorage(), SCHEMA, ["id"], indexes=[index])
