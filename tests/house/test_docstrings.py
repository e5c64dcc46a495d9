"""The examples in docstrings are correct."""

import doctest
from importlib import import_module

import numpy as np
import pyarrow as pa
import pytest
import tidy
from documents import ROOT

import mdt
from mdt.stores.storage import MemoryStorage

MODULES = [module.name for module in tidy.load(ROOT, "mdt", "indexes") if ">>> " in module.text]
EXAMPLES_MIN = 80
"""Minimum number of docstrings with examples. With fewer, the search for examples is broken, and
the tests of this module test nothing.
"""


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_pass(name, tmp_path, monkeypatch):
    """Run the examples of a module in an empty folder.

    In examples, ``t`` is a table of three trips, ``pa`` is pyarrow and ``np`` is numpy. "..."
    matches any text.
    """
    monkeypatch.chdir(tmp_path)
    trips = pa.table(
        {
            "id": ["a", "b", "c"],
            "city": ["Oslo", "Rome", "Oslo"],
            "fare": [9.5, 4.0, 7.25],
            "ts": [1, 1, 1],
        }
    )
    table = mdt.create(MemoryStorage(), trips.schema, ["id"], options={"mdt.table.name": "trips"})
    table.bulk_insert(trips)
    names = {"t": table, "pa": pa, "np": np, "mdt": mdt}
    result = doctest.testmod(import_module(name), extraglobs=names, optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0 and result.failed == 0


def test_modules_with_examples_are_found_and_have_enough_examples():
    assert {
        "mdt",
        "mdt.table.reading",
        "mdt.query",
        "mdt.filters.where",
        "indexes.predicate",
    } <= set(MODULES)
    examples = doctest.DocTestFinder(exclude_empty=True)
    tests_with_examples = [
        test for name in MODULES for test in examples.find(import_module(name)) if test.examples
    ]
    assert len(tests_with_examples) >= EXAMPLES_MIN
