"""Hudi makes indexes of a table that mdt writes, too. mdt cannot update the one of an expression,
so a write of mdt removes the metadata table. Hudi then still finds all rows, and its next write
makes the indexes again.

Hudi 1.2 needs its timeline server to write to a table with such an index, even if it is the only
writer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from counting import count
from hudi_session import HudiSession, Refused

import mdt
from mdt.commit.metadata_partitions import PARTITIONS
from mdt.metadata.history.foreign_writers import read_properties
from mdt.stores.storage import LocalStorage

OPTIONS = {
    "hoodie.embed.timeline.server": "true",
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.global.record.level.index.enable": "true",
}
LOCKED = {
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider"
}
READ = {**OPTIONS, "hoodie.enable.data.skipping": "true"}
INDEXES = {
    "secondary_index_idx_v": "create index idx_v on {t} (v)",
    "expr_index_idx_day": "create index idx_day on {t} using column_stats(day)"
    " options(expr='year')",
}
"""Partition of Hudi's metadata table -> the statement that makes it."""
VALUES = tuple(f"v = {n}" for n in (3, 8, 108, 113, 208))
FILTERS = (*VALUES, "year(day) = 2024", "year(day) = 2031")
FILTERS_OF = {8: VALUES, 9: FILTERS}
"""Table version at the creation -> filters that use the indexes. Hudi 1.2 reads the years in an
index that was defined in version 8 as dates.
"""


def partitions(path: Path) -> set[str]:
    stored = read_properties(LocalStorage(str(path))) or {}
    return set(stored.get(PARTITIONS, "").split(","))


def compare(hudi: HudiSession, path: Path, filters: Sequence[str] = FILTERS) -> list[int]:
    """Compare the rows that Hudi finds with and without its indexes. Return their numbers."""
    expected = json.loads(hudi.call(path, "matches", list(filters)))
    for where, keys in zip(filters, expected, strict=True):
        assert json.loads(hudi.call(path, "query", where, **READ))["keys"] == keys, where
        count("filters by indexes of Hudi", len(keys))
    return list(map(len, expected))


def create(hudi: HudiSession, path: Path, version: int, kind: str) -> None:
    """Create a table with the indexes, and upgrade it to version 9."""
    hudi.create(path, version, kind, OPTIONS)
    hudi.call(path, "insert", list(range(30)), 10)
    for statement in INDEXES.values():
        hudi.call(path, "sql", statement, **LOCKED)
    if version != 9:
        hudi.call(path, "upgrade", 9)
    assert partitions(path) >= INDEXES.keys()


def require_years_read_as_dates(hudi: HudiSession, path: Path) -> None:
    """Assert that Hudi fails on filters with the index of years and finds no row for a day, even
    before a write of mdt.
    """
    with pytest.raises(Refused, match=r"java\.sql\.Date cannot be cast"):
        hudi.call(path, "query", "year(day) = 2024", **READ)
    day = "day = date '2024-01-09'"
    assert json.loads(hudi.call(path, "matches", [day])) == [["k008"]]
    assert json.loads(hudi.call(path, "query", day, **READ))["keys"] == []


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_hudi_finds_all_rows_after_our_write_and_then_makes_its_indexes_again(
    kind, version, tmp_path
):
    path = tmp_path / "shared"
    with HudiSession(tmp_path / "session") as hudi:
        filters = FILTERS_OF[version]
        create(hudi, path, version, kind)
        compare(hudi, path, filters)
        if version == 8:
            require_years_read_as_dates(hudi, path)
        table = mdt.adopt(path)
        changed = table.scan(where="id < 'k010'").to_arrow().to_pylist()
        for row in changed:
            row |= {"ts": 20, "v": row["v"] + 100, "day": row["day"].replace(year=2031)}
        table.upsert(changed)
        assert not partitions(path) & INDEXES.keys()
        assert compare(hudi, path) == [0, 0, 1, 0, 0, 20, 10]
        hudi.call(path, "upsert", list(range(5, 15)), 30, 100)
        assert partitions(path) >= INDEXES.keys()
        assert compare(hudi, path, filters) == [0, 0, 1, 1, 0, 25, 5][: len(filters)]
        table.refresh()
        table.upsert([{**row, "ts": 40, "v": 208} for row in changed])
        assert not partitions(path) & INDEXES.keys()
        assert compare(hudi, path) == [0, 0, 0, 1, 10, 20, 10]
        hudi.call(path, "delete", [1, 2, 14], 50)
        assert compare(hudi, path, filters) == [0, 0, 0, 1, 8, 19, 8][: len(filters)]
        assert table.refresh() and table.check().ok


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_hudi_finds_all_rows_after_our_delete_that_matches_no_row(kind, tmp_path):
    path = tmp_path / "shared"
    with HudiSession(tmp_path / "session") as hudi:
        create(hudi, path, 9, kind)
        mdt.adopt(path).delete_where("v = 9999")
        hudi.call(path, "upsert", [3, 6], 30)
        assert partitions(path) >= INDEXES.keys()
        assert compare(hudi, path) == [1, 1, 0, 0, 0, 30, 0]
