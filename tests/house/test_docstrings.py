"""The examples in docstrings show what happens."""

from __future__ import annotations

import doctest
from importlib import import_module

import pyarrow as pa
import pytest

import mdt
from mdt.stores.storage import MemoryStorage

MODULES = ("mdt.filters.order", "mdt.query")
"""Modules with examples.  ``t`` is a table of three trips, ``pa`` is pyarrow."""


@pytest.mark.parametrize("name", MODULES)
def test_examples_show_what_happens(name: str) -> None:
    trips = pa.table(
        {"id": ["a", "b", "c"], "city": ["Oslo", "Rome", "Oslo"], "fare": [9.5, 4.0, 7.25], "ts": [1, 1, 1]}
    )
    table = mdt.create(MemoryStorage(), trips.schema, ["id"], options={"mdt.table.name": "trips"})
    table.bulk_insert(trips)
    result = doctest.testmod(import_module(name), extraglobs={"t": table, "pa": pa})
    assert result.attempted > 0 and result.failed == 0
