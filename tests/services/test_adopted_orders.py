"""Adoption of tables with several ordering fields."""

import pytest
from foreign_tables import ForeignTable
from hidden import HiddenMetadata
from hypothesis import given, settings
from hypothesis import strategies as st
from other_writer import OtherWriter
from refusals import refused
from shared_tables import batch, rows_of
from test_adopted_paths import change_properties
from texts import columns

import mdt
from mdt.errors import Unsupported
from mdt.stores.storage import MemoryStorage

TYPES = ("COPY_ON_WRITE", "MERGE_ON_READ")
SCHEMA = columns("id int64, at int64, part string, v int64")

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["ours", "theirs"]),
        st.sampled_from(["upsert", "upsert", "upsert", "delete", "compact", "cluster", "update"]),
        st.lists(
            st.tuples(st.integers(0, 3), st.integers(0, 1), st.sampled_from("ab")),
            min_size=1,
            max_size=4,
            unique_by=lambda row: row[0],
        ),
    ),
    min_size=1,
    max_size=8,
)


@pytest.mark.parametrize("table_type", TYPES)
@settings(max_examples=25)
@given(steps=STEPS)
def test_both_writers_compare_the_ordering_fields_in_turn(table_type, steps):
    storage = MemoryStorage()
    settings_of_table = {"ordering": ["at", "part"], "table_type": table_type, "version": 9}
    theirs = mdt.create(OtherWriter(storage), SCHEMA, ["id"], **settings_of_table)
    theirs.upsert([{"id": 0, "at": 1, "part": "a", "v": 0}])
    sides = {"theirs": theirs, "ours": mdt.adopt(storage)}
    assert sides["ours"].definition.ordering == ("at", "part")
    expected = {0: (1, "a", 0)}
    for number, (side, action, rows) in enumerate(steps, 1):
        apply_step(sides[side], expected, action, rows, number)
        for table in (*sides.values(), mdt.open(HiddenMetadata(storage))):
            rows_found = table.scan(columns=SCHEMA.names).to_arrow().to_pylist()
            assert {r["id"]: (r["at"], r["part"], r["v"]) for r in rows_found} == expected, number
            assert len(rows_found) == len(expected), number
    assert sides["ours"].check().ok


@pytest.mark.parametrize("ordering", ["ts", "id,ts"])
def test_a_table_with_a_null_ordering_value_is_not_adopted(ordering):
    stored = {"hoodie.table.ordering.fields": ordering}
    table = ForeignTable({"id": "string", "ts": "int"}, stored)
    table.base(1, [{"id": "a", "ts": 1}, {"id": "b", "ts": None}])
    for _ in range(2):  # the first attempt leaves nothing
        refused(
            "without a value of the ordering field ts", mdt.adopt, table.storage, kind=Unsupported
        )
    rows = mdt.open(table.storage).scan(columns=["id", "ts"]).to_arrow().to_pylist()
    assert rows == [{"id": "a", "ts": 1}, {"id": "b", "ts": None}]


def apply_step(table, expected, action, rows, number):
    if action == "upsert":
        table.upsert([{"id": i, "at": at, "part": part, "v": number} for i, at, part in rows])
        for i, at, part in rows:
            if i not in expected or (at, part) >= expected[i][:2]:
                expected[i] = at, part, number
    elif action == "delete":
        table.delete([{"id": i} for i, _, _ in rows])
        for i, _, _ in rows:
            expected.pop(i, None)
    elif action == "update":
        table.update_where({"part": "'a'"}, "part = 'b'")
        expected |= {i: (at, "a", v) for i, (at, _, v) in expected.items()}
    elif action == "compact":
        table.compact()
    else:
        table.cluster(by=["v"])


@pytest.mark.parametrize("table_type", TYPES)
def test_several_ordering_fields_of_hudi_1_2_are_adopted_in_version_6_too(table_type):
    storage = MemoryStorage()
    settings_of_table = {"ordering": "v", "table_type": table_type, "partition_by": ["city"]}
    theirs = mdt.create(OtherWriter(storage), batch([1], 1).schema, ["id"], **settings_of_table)
    theirs.upsert(batch([1, 2], 1))
    fields = {"ordering.fields": "v,note"}
    change_properties(storage, "hoodie.table.", fields, without="precombine.field")
    ours = mdt.adopt(storage, key_index="record")
    assert (ours.definition.ordering, ours.definition.hudi_version) == (("v", "note"), 6)
    city = {"city": "Oslo", "v": 1}
    result = ours.upsert([{"id": 1, "note": "n0", **city}, {"id": 2, "note": "n2", **city}])
    assert (result.updated, result.late) == (1, 1)
    assert rows_of(mdt.open(HiddenMetadata(storage))) == rows_of(ours)
    assert [row["note"] for row in ours.scan().to_arrow().sort_by("id").to_pylist()] == ["n1", "n2"]
    assert ours.check().ok
