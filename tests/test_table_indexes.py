"""Skipping indexes of a table: a class of another package, used, missing and damaged, and what explain says of each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from example_index import LengthIndex

import mdt
from indexes import registry
from indexes.base import BoolArray
from indexes.predicate import Leaf
from mdt.planner import IndexNote
from mdt.stores.memory import MemoryStorage

SCHEMA = pa.schema([("id", pa.int64()), ("note", pa.string())])


@pytest.fixture
def table() -> mdt.Table:
    """Four files; the notes of file n are n + 1 characters long, and sort the same in every file."""
    t = mdt.create(MemoryStorage(), SCHEMA, key=["id"], indexes=["length(note)"], table_type="COPY_ON_WRITE")
    for n in range(4):
        notes = ["a" * (n + 1), "z" * (n + 1)]
        t.bulk_insert(pa.table({"id": [2 * n, 2 * n + 1], "note": notes}, schema=SCHEMA))
    return t


def _note(t: mdt.Table, where: str) -> IndexNote:
    return next(n for n in t.scan(where=where).explain().indexes if n.index.startswith("length"))


def test_an_index_of_another_package_prunes_files_and_is_explained(table: mdt.Table) -> None:
    scan = table.scan(where="note = 'zzz'")
    assert scan.to_arrow()["id"].to_pylist() == [5]
    note = _note(table, "note = 'zzz'")
    # Column statistics leave the files whose notes begin like the literal; the length alone tells them apart.
    assert (note.used, note.covered, note.reason) == (True, 4, "used")
    assert scan.explain().files_read == 1


def test_the_persisted_name_holds_the_version_of_the_index(table: mdt.Table) -> None:
    assert table.definition.indexes == ("length/1(note)",)


def test_an_index_is_not_used_for_another_column(table: mdt.Table) -> None:
    note = _note(table, "id < 3")
    assert (note.used, note.reason) == (False, "column_not_tested")


def test_an_index_that_is_not_installed_costs_no_rows_and_says_so(
    table: mdt.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = registry.Unknown("length/1", "no package offers length/1")
    monkeypatch.setattr(registry, "find", lambda name: gone)
    scan = table.scan(where="note = 'zzz'")
    assert scan.to_arrow()["id"].to_pylist() == [5]
    note = _note(table, "note = 'zzz'")
    assert (note.used, note.reason) == (False, "not_installed") and "no package offers" in note.detail


def test_a_summary_that_cannot_be_read_costs_no_rows_and_says_so(
    table: mdt.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prune(self: LengthIndex, summaries: Sequence[bytes], leaf: Leaf, type: pa.DataType) -> BoolArray:
        raise ValueError("not a summary of length/1")

    monkeypatch.setattr(LengthIndex, "prune", prune)
    assert table.scan(where="note = 'zzz'").to_arrow()["id"].to_pylist() == [5]
    assert _note(table, "note = 'zzz'").reason == "damaged"


def test_a_wrong_index_would_lose_rows(table: mdt.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above can fail: an index that breaks the law is believed."""
    monkeypatch.setattr(LengthIndex, "prune", lambda self, s, leaf, type: np.zeros(len(s), np.bool_))
    assert table.scan(where="note = 'zzz'").to_arrow()["id"].to_pylist() == []


def test_an_unknown_index_is_refused_at_creation() -> None:
    with pytest.raises(mdt.Invalid, match="no_such_index"):
        mdt.create(MemoryStorage(), SCHEMA, key=["id"], indexes=["no_such_index(note)"])
