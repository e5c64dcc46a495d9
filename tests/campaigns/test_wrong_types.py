"""Values of wrong types for every argument of every public call lead to mdt errors or results, never to
foreign exceptions.
"""

import inspect
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import worlds
from hypothesis import given, settings
from hypothesis import strategies as st

import mdt
from mdt.errors import Internal, MdtError
from mdt.stores.storage import MemoryStorage


class Odd:
    """Equal to everything and hashable, without other attributes."""

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 7

    def __getattr__(self, name):
        raise AttributeError(name)


def wrong_values():
    """Return a strategy for values that users may pass by mistake."""
    simple = [
        None,
        True,
        False,
        0,
        5,
        -1,
        2**70,
        1.5,
        float("nan"),
        "",
        " ",
        "id",
        "\0",
        "a\0b",
        "id = 'k1'",
        "'",
        "*",
        "é" * 5,
        "\ud800",
        b"",
        b"id",
        bytearray(b"x"),
        3j,
        date(2024, 1, 1),
        datetime(2024, 1, 1, tzinfo=UTC),
        timedelta(1),
        Decimal("NaN"),
        Decimal(1),
        np.int64(3),
        np.float32("nan"),
        np.datetime64("NaT", "us"),
        np.array([1, 2]),
        np.array([[1], [2]]),
        np.array(["k1"]),
        np.array(5),
        pa.scalar(5),
        pa.array(["k1"]),
        pa.array([None]),
        pa.chunked_array([["k1"]]),
        pa.table({}),
        pa.table({"id": ["k1"]}),
        pa.table([pa.array([1]), pa.array([2])], names=["id", "id"]),
        pa.record_batch({"x": [1]}),
        pa.schema([]),
        pa.int64(),
        pa.field("id", pa.string()),
        pc.field("id") == "k1",
        Path("x"),
        Path("\0"),
        object(),
        object,
        int,
        len,
        re.compile("x"),
        range(3),
        slice(3),
        ...,
        NotImplemented,
        memoryview(b"id"),
        Odd(),
        Odd,
        frozenset({"id"}),
        mdt,
        KeyError("x"),
    ]
    value = st.sampled_from(simple)
    nested = st.one_of(
        st.lists(value, max_size=3),
        st.lists(value, max_size=3).map(tuple),
        st.lists(value, max_size=3).map(lambda values: iter(values)),
        st.dictionaries(
            st.sampled_from(["id", "city", "", 5, None, "mdt.durable", b"x"]), value, max_size=2
        ),
        st.lists(st.lists(value, max_size=2), max_size=2),
        st.lists(
            st.dictionaries(st.sampled_from(["id", "city", 5]), value, max_size=2), max_size=2
        ),
        st.lists(st.tuples(value, value, value), max_size=2),
    )
    return st.one_of(value, nested)


def table():
    return mdt.open(worlds.filled("MERGE_ON_READ", "bloom"))


VALID = {
    "add": {"x": "int32"},
    "batch": 1,
    "columns": ["id"],
    "commit": 1,
    "data": worlds.rows(range(20, 22), 9, 9.0),
    "drop": ["fare"],
    "key": ["id"],
    "keys": "k1",
    "limit": 3,
    "name": "b",
    "order_by": "id",
    "partition_by": ["city"],
    "partitions": "city=x",
    "path": "t",
    "schema": worlds.SCHEMA,
    "seq": 2,
    "since": 1,
    "source": worlds.rows(range(2), 9, 9.0),
    "specs": "bitmap(city)",
    "stream": "s",
    "to": 1,
    "values": {"fare": 1.0},
    "where": "fare > 1",
}
"""A valid value for each argument name. Other arguments have their default."""
VALID_FOR_CALLS = {
    "build_indexes": {"specs": None},
    "cluster": {"partitions": None},
    "compact": {"partitions": None},
    "delete": {"keys": VALID["data"]},
    "insert_overwrite": {"partitions": None},
    "rebuild_index": {"specs": None},
    "scan": {"since": None},
    "show": {"columns": ["id", "fare"]},
}
"""Calls with other valid values."""
FIXED = {"cluster": {"by": "fare"}}
PREPARATIONS = {
    "drop_index": lambda t: t.create_index("bitmap(city)"),
    "untag": lambda t: t.tag("b"),
}
"""Preparations of a table for calls that need them."""
UNCHECKED = ("by", "check", "dedupe", "evolve", "forget_deletes", "mergers", "partial")
"""Arguments whose truth is tested before their type, which NumPy arrays do not support."""
METHODS = {
    name: method
    for name, method in inspect.getmembers(mdt.Table, inspect.isfunction)
    if not name.startswith("_") and len(inspect.signature(method).parameters) > 1
}


def arguments_of(name, function):
    """Return valid arguments for a public call."""
    parameters = list(inspect.signature(function).parameters.values())
    values = {each.name: VALID.get(each.name, each.default) for each in parameters}
    tested = values.keys() - {"self", *UNCHECKED}
    return {name: values[name] for name in sorted(tested)} | VALID_FOR_CALLS.get(name, {})


def use_result(result):
    """Evaluate a result completely, including its lazy parts."""
    if isinstance(result, mdt.query.Scan):
        result.to_arrow()
        result.count()
        str(result.explain())
    if hasattr(result, "to_arrow"):
        result.to_arrow()
    repr(result)
    str(result)


def on_table(name, **fixed):
    """Return a function that calls a method of a table with some fixed arguments."""

    def call(**arguments):
        created = table()
        PREPARATIONS.get(name, lambda _: None)(created)
        use_result(getattr(created, name)(**{**fixed, **arguments}))

    return call


CALLS = {
    **{
        name: (on_table(name, **FIXED.get(name, {})), arguments_of(name, method))
        for name, method in METHODS.items()
    },
    "upsert that evolves": (on_table("upsert", evolve=True), {"data": VALID["data"]}),
    "rename": (on_table("alter", beyond_hudi=True), {"rename": {"fare": "price"}}),
    "widen": (on_table("alter"), {"widen": {"fare": "double"}}),
    "give a default": (
        on_table("alter", add={"x": "int32"}, beyond_hudi=True),
        {"defaults": {"x": 1}},
    ),
    "scan of a range": (on_table("scan", since=0), {"since": 1, "until": 2}),
    "explain": (lambda **given: table().scan().explain(**given), {"spark": None}),
    "to_spark": (lambda **given: table().scan().to_spark(**given), {"spark": None}),
    "open": (mdt.open, arguments_of("open", mdt.open)),
    "open as of": (lambda **given: mdt.open(table().storage, **given), {"as_of": 1}),
    "read": (mdt.read, arguments_of("read", mdt.read)),
    "create": (
        lambda **given: mdt.create(**{**given, "path": MemoryStorage()}),
        arguments_of("create", mdt.create),
    ),
    "create at a path": (
        lambda path: mdt.create(path, worlds.SCHEMA, ["id"], options={"mdt.durable": False}),
        {"path": "new"},
    ),
}
"""The function to call and valid arguments, by name. New public calls and arguments are included
automatically.
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield


def call_and_check(call, arguments):
    """Call a function. An error must be an mdt error with a text, but not Internal."""
    try:
        call(**arguments)
    except Internal:
        raise
    except MdtError as error:
        assert str(error)


def wrong_for(argument):
    """Return a strategy for wrong values. A progress argument is not callable, because errors of a callback
    are its own.
    """
    return (
        wrong_values().filter(lambda value: not callable(value))
        if argument == "progress"
        else wrong_values()
    )


@pytest.mark.parametrize("name", CALLS)
@settings(deadline=None)
@given(data=st.data())
def test_a_value_of_a_wrong_type_raises_no_foreign_exception(name, data):
    call, valid = CALLS[name]
    argument = data.draw(st.sampled_from(sorted(valid)), "argument")
    call_and_check(call, {**valid, argument: data.draw(wrong_for(argument), "value")})


@pytest.mark.nightly
@pytest.mark.parametrize("name", CALLS)
@settings(deadline=None, max_examples=300)
@given(data=st.data())
def test_values_of_wrong_types_for_all_arguments_raise_no_foreign_exception(name, data):
    call, valid = CALLS[name]
    strategies = {
        argument: st.one_of(st.just(valid_value), wrong_for(argument))
        for argument, valid_value in valid.items()
    }
    call_and_check(
        call, {argument: data.draw(values, argument) for argument, values in strategies.items()}
    )


COMMON_MISTAKES = [
    "\ud800",
    "a\0b",
    None,
    5,
    b"id",
    [5],
    ["\ud800"],
    float("nan"),
    True,
    object(),
]


@pytest.mark.parametrize("name", CALLS)
def test_common_mistakes_in_every_argument_raise_no_foreign_exception(name):
    call, valid = CALLS[name]
    for argument in valid:
        for value in COMMON_MISTAKES:
            call_and_check(call, {**valid, argument: value})


@pytest.mark.parametrize("name", sorted(set(CALLS) - {"open", "read", "to_spark", "widen"}))
def test_valid_values_raise_no_error(name):
    """Otherwise the wrong values would not be reached."""
    call, valid = CALLS[name]
    try:
        call(**valid)
    except MdtError as error:
        pytest.fail(str(error))
