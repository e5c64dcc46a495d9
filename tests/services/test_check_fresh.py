"""A record that calls other rows new than those that its commit wrote is found by a check, and
mended for what is read from then on.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from pyroaring import BitMap
from worlds import COW, make, rows

from mdt.commit import transaction
from mdt.metadata.files.file_group import FRESH, NewFile
from mdt.stores.storage import MemoryStorage


@pytest.mark.parametrize("told", [BitMap([0]), BitMap(), None], ids=["others", "none", "all"])
def test_rows_that_a_record_wrongly_calls_new_or_old_are_found_and_mended(
    told: BitMap | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(MemoryStorage(), COW, "record")
    table.upsert(rows(range(6), 1, 1.0))

    def forged(files: Sequence[NewFile]) -> pa.Table:
        found = [] if told is None else [told.serialize()] * len(files)
        return pa.table([list(range(len(found))), found], schema=FRESH)

    with monkeypatch.context() as patch:
        patch.setattr(transaction, "fresh_table", forged)
        table.upsert(rows([4], 2, 2.0))
    (problem,) = table.check().problems
    assert "its commit record names other rows as new" in problem.text
    before = sorted(table.scan().to_arrow().to_pylist(), key=repr)
    assert table.repair().ok and table.check().ok
    assert sorted(table.scan().to_arrow().to_pylist(), key=repr) == before
