"""Several ordering fields, which are compared one after the other."""

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


def created(storage, **named):
    named = {"ordering": ["at", "part"], "version": 9, **named}
    return mdt.create(storage, SCHEMA, ["id"], **named)


def held(table):
    rows = table.scan().to_arrow().to_pylist()
    return {row["id"]: (row["at"], row["part"], row["v"]) for row in rows}


def agreed(table):
    """Compare the rows with those that our reader of Hudi's tables finds, which merges log files.
    hudi-rs refuses several ordering fields.
    """
    assert held(mdt.open(HiddenMetadata(table.storage))) == held(table)
    assert table.check().ok


@EVERY_KIND
@pytest.mark.parametrize("table_type", TYPES)
def test_a_later_field_decides_where_the_first_ones_are_equal(tmp_path, kind, table_type):
    table = kind(created(tmp_path, table_type=table_type).storage)
    table.upsert(rows_of(SCHEMA, "a 5 m 1", "b 5 m 1", "c 5 m 1", "d 5 m 1", "e 5 m 1"))
    later = rows_of(SCHEMA, "a 5 l 2", "b 5 n 2", "c 5 m 2", "d 4 z 2", "e 6 a 2")
    done = table.upsert(later)
    assert (done.updated, done.late) == (3, 2)
    expected = {"a": (5, "m", 1), "b": (5, "n", 2), "c": (5, "m", 2)}
    expected |= {"d": (5, "m", 1), "e": (6, "a", 2)}
    assert held(table) == expected
    table.upsert(rows_of(SCHEMA, "a 5 o 3", "a 5 p 4", "a 5 n 5", "b 5 n 6", "b 5 n 7"))
    assert held(table) == expected | {"a": (5, "p", 4), "b": (5, "n", 7)}
    agreed(table)


@pytest.mark.parametrize("table_type", TYPES)
def test_updates_may_set_smaller_values(tmp_path, table_type):
    table = created(tmp_path, table_type=table_type)
    table.upsert(rows_of(SCHEMA, "a 5 m 1", "b 5 m 1", "c 5 m 1", "d 5 m 1"))
    assert table.update_where({"part": "'c'"}, "id = 'a'").updated == 1
    assert table.merge(rows_of(SCHEMA, "b 5 k 2")).when_matched().update("*").execute().updated == 1
    source = rows_of(SCHEMA, "c 5 x 3", "c 5 z 4", "c 5 y 5")
    table.merge(source, dedupe=True).when_matched().update("*").execute()
    table.delete({"id": ["d"]})
    assert held(table) == {"a": (5, "c", 1), "b": (5, "k", 2), "c": (5, "z", 4)}
    table.upsert(rows_of(SCHEMA, "d 1 a 6", "a 5 d 7"))
    assert held(table)["d"] == (1, "a", 6) and held(table)["a"] == (5, "d", 7)
    table.compact()
    assert len(held(table)) == 4
    agreed(table)


def test_a_partial_upsert_has_all_ordering_fields_or_none(tmp_path):
    table = created(tmp_path)
    table.upsert(rows_of(SCHEMA, "a 5 m 1", "b 5 m 1"))
    with pytest.raises(Invalid, match=r"lack part.*other ordering fields"):
        table.upsert(pa.table({"id": ["a"], "at": [6]}), partial=True)
    table.upsert(pa.table({"id": ["a"], "v": [2]}), partial=True)
    table.upsert(pa.table({"id": ["a", "b"], "at": [5, 5], "part": ["l", "n"]}), partial=True)
    assert held(table) == {"a": (5, "m", 2), "b": (5, "n", 1)}


@pytest.mark.parametrize("name", ["at", "part"])
def test_no_ordering_field_is_null(name):
    row = {"id": "a", "at": 5, "part": "m", "v": 1, name: None}
    with pytest.raises(Invalid, match="ordering field is null in 1 rows"):
        created(MemoryStorage()).upsert([row])


def test_version_6_and_options_that_compare_words_have_one_field():
    with pytest.raises(Unsupported, match="version 6 have one ordering field"):
        created(MemoryStorage(), version=6)
    for option in ("mdt.keys.repeat", "mdt.delete.keeps.ordering"):
        with pytest.raises(Invalid, match="text or several: at, v"):
            created(MemoryStorage(), ordering=["at", "v"], options={option: True})
    with pytest.raises(Invalid, match="twice"):
        created(MemoryStorage(), ordering=["at", "at"])


def test_no_ordering_field_can_be_altered(tmp_path):
    table = created(tmp_path)
    for name in ("at", "part"):
        with pytest.raises(Invalid, match="is an ordering field"):
            table.alter(drop=[name])


def test_a_definition_with_several_fields_has_a_format_of_its_own():
    several = created(MemoryStorage()).definition
    document = json.loads(json.dumps(several.to_json()))
    assert (document["format"], document["ordering"]) == (7, ["at", "part"])
    assert from_json(document, path="log") == several
    single = created(MemoryStorage(), ordering="at").definition.to_json()
    assert (single["format"], single["ordering"]) == (4, "at")
    for damaged in (["at"], ["at", "at"], ["at", 1], [], 7, ["at", "no"]):
        with pytest.raises(Corrupt):
            from_json({**document, "ordering": damaged}, path="log")


NUMBERS = st.sampled_from([-1.5, -0.0, 0.0, 2.0, float("inf"), float("nan")])
TUPLES = st.tuples(st.sampled_from(["", "a", "a\0", "é", "\uffff", "\U0001f600"]), NUMBERS)


@given(st.lists(st.tuples(TUPLES, TUPLES), min_size=1, max_size=12))
def test_values_are_compared_as_tuples(pairs):
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
