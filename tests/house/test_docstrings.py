"""The examples in docstrings show what happens."""

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
"""Examples are for people, and a file that is searched in vain for them is a test that runs
nothing.
"""


@pytest.mark.parametrize("name", MODULES)
def test_examples_show_what_happens(name, tmp_path, monkeypatch):
    """``t`` is a table of three trips, ``pa`` pyarrow, ``np`` numpy; "..." stands for any text; the
    folder is empty.
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
    known = {"t": table, "pa": pa, "np": np, "mdt": mdt}
    result = doctest.testmod(import_module(name), extraglobs=known, optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0 and result.failed == 0


def test_examples_are_found_where_they_stand():
    assert {
        "mdt",
        "mdt.table.reading",
        "mdt.query",
        "mdt.filters.where",
        "indexes.predicate",
    } <= set(MODULES)
    examples = doctest.DocTestFinder(exclude_empty=True)
    found = [
        test for name in MODULES for test in examples.find(import_module(name)) if test.examples
    ]
    assert len(found) >= EXAMPLES_MIN
