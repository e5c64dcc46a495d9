"""Base files that can no longer be committed do not hide the log files of a later commit."""

from __future__ import annotations

import pytest
from worlds import (
    BASE_STATE,
    MOR,
    assert_clean,
    filled,
    later,
    ours,
    rows,
    tables_of,
    theirs,
    upserted,
)

import mdt
from mdt.commit.transaction import steps
from mdt.services.layout.compaction import Compaction


def begun_compaction(storage):
    """Return a compaction that has written its base files, and the paths of these files."""
    table = mdt.open(storage)
    before = set(base_files(storage))
    driver = steps(table.metadata, Compaction(table.metadata, table.options))
    while next(driver) != "written":
        pass
    return driver, set(base_files(storage)) - before


def base_files(storage):
    return [i.path for i in storage.list("") if i.path.startswith("city=") and "parquet" in i.path]


@pytest.mark.parametrize("is_dead", [False, True])
@pytest.mark.parametrize("version", [6, 9])
def test_a_base_file_that_cannot_be_committed_does_not_hide_a_later_log_file(version, is_dead):
    with tables_of(version):
        storage = filled(MOR, "record")
    driver, written = begun_compaction(storage)
    assert len(written) == 2
    mdt.open(storage).upsert(rows([0], 5, 5.0))
    expected = upserted(BASE_STATE, [0], 5, 5.0)
    assert ours(storage) == expected == theirs(storage)
    remaining = written & set(base_files(storage))
    assert {path.split("/")[0] for path in written - remaining} == (
        {"city=x"} if version == 9 else set()
    )
    if is_dead:
        mdt.open(later(storage)).abort()
        assert not written & set(base_files(storage))
    else:
        for _ in driver:
            pass
        assert {path.split("/")[0] for path in written & set(base_files(storage))} == {"city=y"}
    assert ours(storage) == expected == theirs(storage)
    assert_clean(storage)
