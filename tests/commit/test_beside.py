"""What a conflict check reads of the record that another writer has left."""

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
    """Return what another writer has left: a log file in the file group g, and rows of segment 7
    that it has ended.
    """
    files = pa.Table.from_pylist([{"file_id": "g", "kind": LOG}], schema=FILES)
    vectors = pa.Table.from_pylist([{"segment": 7, "positions": positions}], schema=VECTORS)
    return CommitRecord(3, {"txn": "b" * 32}, {"files": files, "vectors": vectors})


def why(positions):
    mine = Footprint("a" * 32, frozenset({"g"}), rows={7: BitMap([1, 2])})
    return check(
        mine, record(positions), lambda stored: pytest.fail("no file has a key map"), MurmurHash(0)
    )


def test_rows_that_both_touch_are_a_conflict_and_others_are_not():
    assert why(BitMap([3, 4]).serialize()) is None
    assert why(BitMap([2, 3]).serialize()) == "commit 3 changed file group g"


@pytest.mark.parametrize("cut", [0, 3, 9])
def test_positions_that_are_no_bitmap_are_refused_before_the_library_reads_them(cut):
    with pytest.raises(Corrupt, match="a deletion vector cannot be read"):
        why(BitMap([2, 3]).serialize()[:cut])
