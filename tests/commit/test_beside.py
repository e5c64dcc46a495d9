"""Conflict checks against the commit record of a concurrent writer."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyroaring import BitMap

from indexes.key_hash import MurmurHash
from mdt.commit.conflicts import Footprint, check
from mdt.errors import Corrupt
from mdt.metadata.files.file_group import FILES, LOG
from mdt.metadata.log.commit_log import VECTORS, CommitRecord


def record(positions):
    """Return the record of another writer: a log file in file group g, and deleted rows of segment
    7.
    """
    files = pa.Table.from_pylist([{"file_id": "g", "kind": LOG}], schema=FILES)
    vectors = pa.Table.from_pylist([{"segment": 7, "positions": positions}], schema=VECTORS)
    return CommitRecord(3, {"txn": "b" * 32}, {"files": files, "vectors": vectors})


def conflict_reason(positions):
    footprint = Footprint("a" * 32, frozenset({"g"}), rows={7: BitMap([1, 2])})
    return check(
        footprint,
        record(positions),
        lambda stored: pytest.fail("no file has a key map"),
        MurmurHash(0),
    )


def test_changes_of_the_same_rows_conflict_and_changes_of_other_rows_do_not():
    assert conflict_reason(BitMap([3, 4]).serialize()) is None
    assert conflict_reason(BitMap([2, 3]).serialize()) == "commit 3 changed file group g"


@pytest.mark.parametrize("cut", [0, 3, 9])
def test_positions_that_are_not_a_bitmap_are_refused_before_the_library_reads_them(cut):
    with pytest.raises(Corrupt, match="a deletion vector cannot be read"):
        conflict_reason(BitMap([2, 3]).serialize()[:cut])
