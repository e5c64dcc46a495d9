"""Values of wrong types for every argument of every public call: an error of ours or a result,
never a foreign exception.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

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
    """Equal to everything, iterable without end, and of no use."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 7

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def wrong_values() -> st.SearchStrategy[Any]:
    """Return a strategy for values that somebody may pass by mistake."""
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


def table() -> mdt.Table:
    return mdt.open(worlds.filled("MERGE_ON_READ", "bloom"))


def used(scan: mdt.query.Scan) -> None:
    """Run a scan in every way, so that what was not looked at when it was made is looked at now."""
    scan.to_arrow()
    scan.count()
    str(scan.explain())
    repr(scan)


ROWS = worlds.rows(range(2), 9, 9.0)
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "upsert": (lambda **a: table().upsert(**a), {"data": ROWS, "progress": None}),
    "insert": (lambda **a: table().insert(**a), {"data": ROWS, "progress": None}),
    "bulk_insert": (lambda **a: table().bulk_insert(**a), {"data": ROWS, "progress": None}),
    "upsert that evolves": (lambda **a: table().upsert(**a, evolve=True), {"data": ROWS}),
    "alter": (
        lambda **a: table().alter(**a),
        {
            "add": {"x": "int32"},
            "drop": ["fare"],
            "rename": None,
            "widen": None,
            "reorder": (),
            "nullable": (),
            "defaults": None,
            "beyond_hudi": False,
        },
    ),
    "rename": (
        lambda **a: table().alter(**{"beyond_hudi": True, **a}),
        {"rename": {"fare": "price"}},
    ),
    "widen": (lambda **a: table().alter(**a), {"widen": {"fare": "double"}}),
    "give a default": (
        lambda **a: table().alter(add={"x": "int32"}, beyond_hudi=True, **a),
        {"defaults": {"x": 1}},
    ),
    "delete": (lambda **a: table().delete(**a), {"keys": ROWS, "progress": None}),
    "get": (
        lambda **a: table().get(**a),
        {"keys": "k1", "columns": ["id"], "missing": "null", "as_of": 1},
    ),
    "scan": (
        lambda **a: used(table().scan(**a)),
        {
            "where": "fare > 1",
            "columns": ["id"],
            "params": None,
            "limit": 3,
            "order_by": "id",
            "as_of": 1,
            "query_type": "snapshot",
        },
    ),
    "scan of a range": (
        lambda **a: used(table().scan(**{"since": 0, **a})),
        {"since": 1, "until": 2},
    ),
    "changes": (
        lambda **a: table().changes(**{"since": 0, **a}).to_arrow(),
        {
            "since": 1,
            "until": 2,
            "mode": "net",
            "where": "fare > 1",
            "columns": ["id"],
            "params": None,
            "before": True,
        },
    ),
    "show": (
        lambda **a: str(table().show(**a)),
        {"columns": ["id", "fare"], "before": 1, "commits": 5},
    ),
    "explain": (lambda **a: table().scan().explain(**a), {"spark": None}),
    "to_spark": (lambda **a: table().scan().to_spark(**a), {"spark": None}),
    "warm": (lambda **a: table().warm(**a), {"columns": ["id"], "progress": None}),
    "compact": (lambda **a: table().compact(**a), {"progress": None}),
    "check": (lambda **a: table().check(**a), {"progress": None}),
    "snapshot": (lambda **a: table().snapshot(**a), {"as_of": 1}),
    "restore": (lambda **a: table().restore(**{"to": 1, **a}), {"to": 1, "progress": None}),
    "rollback": (
        lambda **a: table().rollback(**{"commit": 1, **a}),
        {"commit": 1, "progress": None},
    ),
    "tag": (lambda **a: table().tag(**{"name": "a", **a}), {"name": "b", "at": 1}),
    "savepoint": (
        lambda **a: table().savepoint(**{"name": "a", **a}),
        {"name": "b", "at": 1, "comment": "c"},
    ),
    "untag": (lambda **a: table().untag(**a), {"name": "a"}),
    "create_index": (
        lambda **a: table().create_index(**a),
        {"specs": "bitmap(city)", "mode": "sync", "progress": None, "spark": None},
    ),
    "drop_index": (lambda **a: table().drop_index(**a), {"specs": "city"}),
    "rebuild_index": (
        lambda **a: table().rebuild_index(**a),
        {"specs": None, "mode": "sync", "progress": None, "spark": None},
    ),
    "build_indexes": (
        lambda **a: table().build_indexes(**a),
        {"specs": None, "progress": None, "spark": None},
    ),
    "analyze": (
        lambda **a: table().analyze(**a),
        {"columns": ["fare"], "progress": None, "spark": None},
    ),
    "open": (mdt.open, {"path": "t", "options": None, "storage_options": None, "as_of": None}),
    "open as of": (lambda **a: mdt.open(table().storage, **a), {"as_of": 1}),
    "read": (
        mdt.read,
        {
            "spark": None,
            "path": "t",
            "options": None,
            "storage_options": None,
            "as_of": None,
            "query_type": "snapshot",
        },
    ),
    "create": (
        lambda **a: mdt.create(**{"path": MemoryStorage(), **a}),
        {
            "schema": worlds.SCHEMA,
            "key": ["id"],
            "partition_by": ["city"],
            "ordering": "ts",
            "table_type": "MERGE_ON_READ",
            "key_index": "bloom",
            "scope": "partition",
            "indexes": ["bitmap(city)"],
            "options": None,
            "storage_options": None,
            "metadata": {"run": "1"},
        },
    ),
    "create at a path": (
        lambda path: mdt.create(path, worlds.SCHEMA, ["id"], options={"mdt.durable": False}),
        {"path": "new"},
    ),
}
"""Name -> (what to call, arguments that are right, or at least not looked at)."""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield


def tried(call: Callable[..., Any], arguments: dict[str, Any]) -> None:
    """Call; an error must be one of ours, for the caller, and have a text."""
    try:
        call(**arguments)
    except Internal:
        raise
    except MdtError as error:
        assert str(error)


def wrong_for(argument: str) -> st.SearchStrategy[Any]:
    """Return a strategy for wrong values; what a progress callback raises is its own, so none is
    called.
    """
    return (
        wrong_values().filter(lambda value: not callable(value))
        if argument == "progress"
        else wrong_values()
    )


@pytest.mark.parametrize("name", CALLS)
@settings(deadline=None)
@given(data=st.data())
def test_a_value_of_a_wrong_type_for(name: str, data: st.DataObject) -> None:
    call, right = CALLS[name]
    argument = data.draw(st.sampled_from(sorted(right)), "argument")
    tried(call, {**right, argument: data.draw(wrong_for(argument), "value")})


@pytest.mark.nightly
@pytest.mark.parametrize("name", CALLS)
@settings(deadline=None, max_examples=300)
@given(data=st.data())
def test_values_of_wrong_types_for_all_arguments_of(name: str, data: st.DataObject) -> None:
    call, right = CALLS[name]
    drawn = {
        argument: st.one_of(st.just(usual), wrong_for(argument))
        for argument, usual in right.items()
    }
    tried(call, {argument: data.draw(values, argument) for argument, values in drawn.items()})


@pytest.mark.parametrize(
    "value", ["\ud800", "a\0b", None, 5, b"id", [5], ["\ud800"], float("nan"), True, object()]
)
@pytest.mark.parametrize("name", CALLS)
def test_the_usual_mistakes_in_every_argument_of(name: str, value: Any) -> None:
    call, right = CALLS[name]
    for argument in right:
        tried(call, {**right, argument: value})


def test_every_public_call_and_each_of_its_arguments_is_tried() -> None:
    methods = {
        n: m for n, m in vars(mdt.Table).items() if inspect.isfunction(m) and not n.startswith("_")
    }
    calls = {**methods, "open": mdt.open, "create": mdt.create, "read": mdt.read}
    for name, function in calls.items():
        arguments = set(inspect.signature(function).parameters) - {"self"}
        if arguments:
            assert arguments - {"path"} <= set(CALLS[name][1]), name
