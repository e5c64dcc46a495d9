"""Struct fields on Spark: the planner gets them as paths, and filters on them find the same rows as
in process.
"""

import pyarrow as pa
import pytest
from trees import create

import mdt
from indexes.predicate import And, Leaf, Unknown, matches
from mdt.engines.spark import frame as frames
from mdt.engines.spark.catalyst import predicate_of
from mdt.engines.spark.columns import to_column
from mdt.filters.where import parse_where

GEO = pa.struct([("lat", pa.float64()), ("at", pa.timestamp("us", "UTC")), ("zone", pa.int32())])
ADDRESS = pa.struct(
    [("city", pa.string()), ("geo", GEO), ("active", pa.bool_()), ("tags", pa.list_(pa.string()))]
)
SCHEMA = pa.schema([("id", pa.int64()), ("address", ADDRESS)])
WHERES = [
    "address.city = 'a'",
    "address.city is null",
    "address.geo.lat > 1.5",
    "address.geo.lat is null",
    "not address.geo.lat <= 1",
    "address.geo.zone in (1, 2)",
    "address.geo.zone not in (1)",
    "address.active",
    "not address.active",
    "address.city <=> null",
    "address.city = 'b' or address.geo.zone = 3",
    "address.city like 'a%' and id > 2",
    "address.geo.zone = 9000000000",
    "address.geo.at < timestamp'2026-01-01 00:00:02+00:00'",
    "address.geo.lat = double('NaN')",
    "address.geo.zone > 1.5",
]


def attribute(name, type, metadata=False):
    return {"op": "AttributeReference", "type": type, "name": name, "metadata": metadata}


def field(name, type, child):
    return {"op": "GetStructField", "type": type, "name": name, "children": [child]}


CITY = field("city", "string", attribute("address", "struct<city:string>"))
X = {"op": "Literal", "type": "string", "value": b"x".hex()}


def equal(left, right=X):
    (predicate,) = predicate_of(
        [{"op": "EqualTo", "type": "boolean", "children": [left, right]}], ["address"]
    ).children  # type: ignore[union-attr]
    return predicate


def test_a_struct_field_becomes_a_path():
    assert equal(CITY) == equal(X, CITY) == Leaf("address.city", "=", "x")
    deep = field(
        "name", "string", field("geo", "struct<name:string>", attribute("address", "struct<…>"))
    )
    assert equal(deep) == Leaf("address.geo.name", "=", "x")
    active = field("active", "boolean", attribute("address", "struct<active:boolean>"))
    assert predicate_of([active], ["address"]) == And((Leaf("address.active", "=", True),))
    assert predicate_of(
        [{"op": "IsNull", "type": "boolean", "children": [CITY]}], ["address"]
    ).children == (Leaf("address.city", "is null"),)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "node",
    [
        field("city", "string", attribute("other", "struct<city:string>")),
        field("city", "string", attribute("address", "struct<city:string>", metadata=True)),
        field("ci.ty", "string", attribute("address", "struct<ci.ty:string>")),
        field(
            "city", "string", {"op": "GetArrayItem", "type": "struct<city:string>", "children": []}
        ),
        field("city", "struct<a:string>", attribute("address", "struct<city:struct<a:string>>")),
    ],
)
def test_fields_that_a_path_cannot_express_are_unknown(node):
    assert isinstance(equal(node), Unknown)


def rows(ids):
    """Return rows with nulls at every level."""

    def address(i):
        lat = [0.5, 1.0, 2.0, float("nan"), None][i % 5]
        geo = (
            None
            if i % 7 == 3
            else {"lat": lat, "at": 1_767_225_600_000_000 + i * 1_000_000, "zone": i % 4}
        )
        return (
            None
            if i % 11 == 5
            else {
                "city": "abc"[i % 3] * (i % 4) or None,
                "geo": geo,
                "active": i % 2 == 0,
                "tags": ["t"],
            }
        )

    return pa.table([pa.array(ids), pa.array([address(i) for i in ids], ADDRESS)], schema=SCHEMA)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Three files, one of them with deleted rows."""
    created = create(
        tmp_path_factory.mktemp("nested") / "t",
        SCHEMA,
        key_index="record",
        options={"mdt.small.file.bytes": 0},
    )
    for start in (0, 20, 40):
        created.upsert(rows(range(start, start + 20)))
    created.delete(rows(range(3, 5)))
    return created


def test_filters_on_struct_fields_find_the_same_rows_on_spark_and_in_process(spark, table):
    """One query for all filters: planning each alone would take a minute."""
    tests = [parse_where(where, SCHEMA) for where in WHERES]
    parts = [to_column(test, SCHEMA).alias(f"q{n}") for n, test in enumerate(tests)]
    everything = table.scan().to_arrow()
    answers = mdt.read(spark, table.path).select("id", *parts).toArrow()
    for n, test in enumerate(tests):
        expected = sorted(everything.filter(matches(test, everything))["id"].to_pylist())
        assert sorted(answers.filter(answers[f"q{n}"])["id"].to_pylist()) == expected, WHERES[n]
        assert expected or "9000000000" in WHERES[n]


def test_the_planner_gets_struct_fields_as_paths_and_prunes_files(spark, table, monkeypatch):
    predicates = []
    plans = []

    def plan(metadata, snapshot, predicate, *more):
        predicates.append(predicate)
        plans.append(original(metadata, snapshot, predicate, *more))
        return plans[-1]

    original = frames.plan
    monkeypatch.setattr(frames, "plan", plan)
    for where in (
        "address.geo.at >= timestamp'2026-01-01 00:00:40+00:00'",
        "address.geo.zone = 1 and address.geo.at < timestamp'2026-01-01 00:00:20+00:00'",
    ):
        predicates.clear()
        plans.clear()
        ids = mdt.read(spark, table.path).where(where).select("id").toArrow()["id"].to_pylist()
        assert sorted(ids) == sorted(table.scan(where).to_arrow()["id"].to_pylist()) != []
        assert any("address.geo.at" in repr(item) for item in predicates)
        assert any(len(item.segments) == 1 for item in plans)
