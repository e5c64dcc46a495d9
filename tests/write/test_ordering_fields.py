"""Several ordering fields, compared one after the other."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hidden import HiddenMetadata
from hypothesis import given
from hypothesis import strategies as st
from pooled import EVERY_KIND
from texts import columns, rows_of

import mdt
from mdt.errors import Corrupt, Invalid, Unsupported
from mdt.schema.definition import from_json
from mdt.stores.storage import MemoryStorage
from mdt.write.ordering import is_below, value_ranks

SCHEMA = columns("id string, at int64, part string, v int64")
TYPES = ("MERGE_ON_READ", "COPY_ON_WRITE")


def new_table(storage, **settings):
    settings = {"ordering": ["at", "part"], "version": 9, **settings}
    return mdt.create(storage, SCHEMA, ["id"], **settings)


def values_by_id(table):
    rows = table.scan().to_arrow().to_pylist()
    return {row["id"]: (row["at"], row["part"], row["v"]) for row in rows}


def assert_readers_agree(table):
    """Compare the rows with those of our reader of plain Hudi tables, which merges log files. hudi-rs
    does not support several ordering fields.
    """
    assert values_by_id(mdt.open(HiddenMetadata(table.storage))) == values_by_id(table)
    assert table.check().ok


@EVERY_KIND
@pytest.mark.parametrize("table_type", TYPES)
def test_a_later_ordering_field_decides_if_the_first_ones_are_equal(tmp_path, kind, table_type):
    table = kind(new_table(tmp_path, table_type=table_type).storage)
    table.upsert(rows_of(SCHEMA, "a 5 m 1", "b 5 m 1", "c 5 m 1", "d 5 m 1", "e 5 m 1"))
    later = rows_of(SCHEMA, "a 5 l 2", "b 5 n 2", "c 5 m 2", "d 4 z 2", "e 6 a 2")
    result = table.upsert(later)
    assert (result.updated, result.late) == (3, 2)
    expected = {"a": (5, "m", 1), "b": (5, "n", 2), "c": (5, "m", 2)}
    expected |= {"d": (5, "m", 1), "e": (6, "a", 2)}
    assert values_by_id(table) == expected
    table.upsert(rows_of(SCHEMA, "a 5 o 3", "a 5 p 4", "a 5 n 5", "b 5 n 6", "b 5 n 7"))
    assert values_by_id(table) == expected | {"a": (5, "p", 4), "b": (5, "n", 7)}
    assert_readers_agree(table)


@pytest.mark.parametrize("table_type", TYPES)
def test_updates_may_decrease_ordering_values(tmp_path, table_type):
    table = new_table(tmp_path, table_type=table_type)
    table.upsert(rows_of(SCHEMA, "a 5 m 1", "b 5 m 1", "c 5 m 1", "d 5 m 1"))
    assert table.update_where({"part": "'c'"}, "id = 'a'").updated == 1
    assert table.merge(rows_of(SCHEMA, "b 5 k 2")).when_matched().update("*").execute().updated == 1
    source = rows_of(SCHEMA, "c 5 x 3", "c 5 z 4", "c 5 y 5")
    table.merge(source, dedupe=True).when_matched().update("*").execute()
    table.delete({"id": ["d"]})
    assert values_by_id(table) == {"a": (5, "c", 1), "b": (5, "k", 2), "c": (5, "z", 4)}
    table.upsert(rows_of(SCHEMA, "d 1 a 6", "a 5 d 7"))
    assert values_by_id(table)["d"] == (1, "a", 6) and values_by_id(table)["a"] == (5, "d", 7)
    table.compact()
    assert len(values_by_id(table)) == 4
    assert_readers_agree(table)


def test_a_partial_upsert_needs_all_ordering_fields_or_none(tmp_path):
    table = new_table(tmp_path)
    table.upsert(rows_of(SCHEMA, "a 5 m 1", "b 5 m 1"))
    with pytest.raises(Invalid, match=r"lack part.*other ordering fields"):
        table.upsert(pa.table({"id": ["a"], "at": [6]}), partial=True)
    table.upsert(pa.table({"id": ["a"], "v": [2]}), partial=True)
    table.upsert(pa.table({"id": ["a", "b"], "at": [5, 5], "part": ["l", "n"]}), partial=True)
    assert values_by_id(table) == {"a": (5, "m", 2), "b": (5, "n", 1)}


@pytest.mark.parametrize("name", ["at", "part"])
def test_a_null_in_any_ordering_field_is_refused(name):
    row = {"id": "a", "at": 5, "part": "m", "v": 1, name: None}
    with pytest.raises(Invalid, match="ordering field is null in 1 rows"):
        new_table(MemoryStorage()).upsert([row])


def test_version_6_and_options_that_compare_eight_bytes_need_one_ordering_field():
    with pytest.raises(Unsupported, match="version 6 have one ordering field"):
        new_table(MemoryStorage(), version=6)
    for option in ("mdt.keys.repeat", "mdt.delete.keeps.ordering"):
        with pytest.raises(Invalid, match="text or several: at, v"):
            new_table(MemoryStorage(), ordering=["at", "v"], options={option: True})
    with pytest.raises(Invalid, match="twice"):
        new_table(MemoryStorage(), ordering=["at", "at"])


def test_ordering_fields_cannot_be_dropped(tmp_path):
    table = new_table(tmp_path)
    for name in ("at", "part"):
        with pytest.raises(Invalid, match="is an ordering field"):
            table.alter(drop=[name])


def test_a_definition_with_several_ordering_fields_uses_format_7():
    several = new_table(MemoryStorage()).definition
    document = json.loads(json.dumps(several.to_json()))
    assert (document["format"], document["ordering"]) == (7, ["at", "part"])
    assert from_json(document, path="log") == several
    single = new_table(MemoryStorage(), ordering="at").definition.to_json()
    assert (single["format"], single["ordering"]) == (4, "at")
    for damaged in (["at"], ["at", "at"], ["at", 1], [], 7, ["at", "no"]):
        with pytest.raises(Corrupt):
            from_json({**document, "ordering": damaged}, path="log")


NUMBERS = st.sampled_from([-1.5, -0.0, 0.0, 2.0, float("inf"), float("nan")])
TUPLES = st.tuples(st.sampled_from(["", "a", "a\0", "é", "\uffff", "\U0001f600"]), NUMBERS)


@given(st.lists(st.tuples(TUPLES, TUPLES), min_size=1, max_size=12))
def test_ordering_values_are_compared_as_tuples(pairs):
    new, old = (
        pa.table({"t": [t for t, _ in side], "x": [x for _, x in side]})
        for side in zip(*pairs, strict=True)
    )

    def rank(value):
        text, number = value
        order = ["-1.5", "-0.0", "0.0", "2.0", "inf", "nan"]
        return text.encode(), order.index(str(number))

    assert is_below(new, old, ["t", "x"]).tolist() == [rank(a) < rank(b) for a, b in pairs]
    ranks = value_ranks([new["t"], new["x"]])
    by_rank = [rank(pairs[row][0]) for row in np.argsort(ranks, kind="stable")]
    assert by_rank == sorted(by_rank)
