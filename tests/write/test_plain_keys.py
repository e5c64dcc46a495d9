"""Deletes accept keys as plain values, as look-ups do."""

from datetime import date

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import trees
from texts import columns

import mdt

PLAIN_KEYS = {
    "a value": ("k3", 1),
    "a list": (["k1", "k2", "none"], 2),
    "a set": ({"k4", "k5"}, 2),
    "a tuple": (("k1", "k2"), 2),
    "numpy": (np.array(["k1", "k6"]), 2),
    "Arrow": (pa.array(["k1", "k7"]), 2),
    "chunks": (pa.chunked_array([["k1"], ["k7"]]), 2),
    "a dict of one": ({"id": "k1"}, 1),
    "dicts": ([{"id": "k1"}, {"id": "k2"}], 2),
    "scalars": ([pa.scalar("k1")], 1),
    "none": ([], 0),
    "pandas": (pd.Series(["k1", "k7"]), 2),
    "an index": (pd.Index(["k1"]), 1),
    "polars": (pl.Series(["k1", "k2", "x"]), 2),
    "columns": ({"id": ["k1", "k2"]}, 2),
    "a struct array": (pa.array([{"id": "k1"}]), 1),
}


@pytest.mark.parametrize("gathered", [False, True])
@pytest.mark.parametrize("keys, deleted", PLAIN_KEYS.values(), ids=PLAIN_KEYS.keys())
def test_deletes_accept_plain_keys(keys, deleted, gathered, tmp_path):
    table = trees.create(tmp_path / "t", columns("id string, n int64"), key=["id"])
    table.upsert([{"id": f"k{n}", "n": n} for n in range(8)])
    if gathered:
        with table.writer() as writer:
            future = writer.delete(keys)
        assert future.result().deleted == deleted
    else:
        assert table.delete(keys).deleted == deleted
    assert len(trees.assert_readers_agree(table, tmp_path / "t")) == 8 - deleted


def test_look_ups_accept_series_and_struct_arrays(tmp_path):
    table = trees.create(tmp_path / "t", columns("id string, n int64"), key=["id"])
    table.upsert([{"id": f"k{n}", "n": n} for n in range(8)])
    for keys in (
        pd.Series(["k5", "k2"]),
        pd.Index(["k5", "k2"]),
        pl.Series(["k5", "k2"]),
        pa.array([{"id": "k5"}, {"id": "k2"}]),
    ):
        assert table.get(keys)["n"].to_pylist() == [5, 2]


def test_deletes_accept_tuples_for_composite_keys(tmp_path):
    schema = columns("a int64, day date32, n int64")
    table = trees.create(tmp_path / "t", schema, key=["a", "day"])
    days = [date(2024, 1, 1), date(2024, 1, 2)]
    table.upsert([{"a": a, "day": day, "n": a} for a in range(4) for day in days])
    assert table.delete((1, days[0])).deleted == 1
    assert table.delete([(2, days[0]), [3, days[1]], (9, days[0])]).deleted == 2
    assert len(trees.assert_readers_agree(table, tmp_path / "t")) == 5


@pytest.mark.parametrize(
    "keys, refusal",
    [
        (1.5, "key column 'id' has type int64, which cannot hold 1.5"),
        (["a"], "key column 'id' has type int64"),
        ([(1, 2)], "key column 'id' has type int64"),
        (None, "data of type NoneType cannot be written"),
        ([1, {"id": 2}], "data of type list with an item of type int"),
        ([None], "data of type list with an item of type NoneType"),
        (object(), "data of type object"),
        (pd.Series([1, "a"]), "the values of the Series are not a column"),
        (np.array([[1]]), "an array of 2 dimensions is not a column"),
    ],
)
def test_a_delete_refuses_values_that_are_not_keys(keys, refusal, tmp_path):
    table = trees.create(tmp_path / "t", columns("id int64"), key=["id"])
    with pytest.raises(mdt.Invalid, match=refusal):
        table.delete(keys)


def test_a_plain_key_is_refused_if_keys_are_unique_per_partition(tmp_path):
    table = trees.create(tmp_path / "t", columns("id string, city string"), partition_by=["city"])
    table.upsert([{"id": "k0", "city": "Oslo"}])
    with pytest.raises(mdt.Invalid, match="city"):
        table.delete("k0")
