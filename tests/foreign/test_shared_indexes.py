"""Indexes that Hudi made of a table that it shares with us: a write of ours takes them out of the
properties, so that Hudi finds all rows.

Hudi 1.2 refuses to write afterwards while both indexes are defined: it fails when it makes them.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from counting import count
from hudi_session import HudiSession

import mdt
from mdt.commit.hudi_metadata import PARTITIONS
from mdt.metadata.history.foreign_writers import read_properties
from mdt.stores.storage import LocalStorage

OPTIONS = {
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
FILTERS = [*(f"v = {n}" for n in (3, 8, 108, 113, 208)), "year(day) = 2024", "year(day) = 2031"]


def partitions(path: Path) -> set[str]:
    stored = read_properties(LocalStorage(str(path))) or {}
    return set(stored.get(PARTITIONS, "").split(","))


def compare(hudi: HudiSession, path: Path) -> list[int]:
    """Compare what Hudi finds with its indexes and without. Return the numbers of matches."""
    expected = json.loads(hudi.call(path, "matches", FILTERS))
    for where, keys in zip(FILTERS, expected, strict=True):
        assert json.loads(hudi.call(path, "query", where, **READ))["keys"] == keys, where
        count("filters by indexes of Hudi", len(keys))
    return list(map(len, expected))


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_hudi_finds_our_rows_in_spite_of_its_indexes(kind, tmp_path):
    path = tmp_path / "shared"
    with HudiSession(tmp_path / "session") as hudi:
        hudi.create(path, 9, kind, OPTIONS)
        hudi.call(path, "insert", list(range(30)), 10)
        for statement in INDEXES.values():
            hudi.call(path, "sql", statement, **LOCKED)
        assert partitions(path) >= INDEXES.keys()
        compare(hudi, path)
        table = mdt.adopt(path)
        changed = table.scan(where="id < 'k010'").to_arrow().to_pylist()
        for row in changed:
            row |= {"ts": 20, "v": row["v"] + 100, "day": row["day"].replace(year=2031)}
        table.upsert(changed)
        assert not partitions(path) & INDEXES.keys()
        assert compare(hudi, path) == [0, 0, 1, 0, 0, 20, 10]
