"""Hudi makes record indexes and secondary indexes of a table that mdt writes, too. Writes of both
update them, and Hudi finds rows with them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path

import pytest
from counting import count
from hidden import HiddenMetadata
from hudi_session import HudiSession
from test_our_metadata_table import instants_of_metadata_table
from test_shared_indexes import LOCKED, OPTIONS, partitions

import mdt
from mdt.stores.storage import LocalStorage

READ = {**OPTIONS, "hoodie.enable.data.skipping": "true"}
BY_VALUE = "secondary_index_idx_v"
BY_KEY = {
    **OPTIONS,
    "hoodie.index.type": "RECORD_INDEX",
    "hoodie.metadata.index.column.stats.enable": "false",  # we cannot join those of version 8
    "hoodie.metadata.compact.max.delta.commits": "4",
}
BY_PARTITION = {
    "hoodie.embed.timeline.server": "true",
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.record.level.index.enable": "true",
    "hoodie.index.type": "RECORD_LEVEL_INDEX",
    "hoodie.metadata.compact.max.delta.commits": "4",
}
SKIPPING = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "true"}
"""Hudi 1.2 cannot prune with a record index of each partition. Only its writers find rows with it.
"""
CITIES = "concat(element_at(array('2024-01-15', 'a_b', 'c-d_e'), cast(n % 3 as int) + 1), '{more}')"

kinds = pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
versions = pytest.mark.parametrize("version", [8, 9])


def compare(
    hudi: HudiSession,
    path: Path,
    filters: Iterable[str],
    options: dict[str, str],
) -> int:
    """Compare the rows that Hudi finds with and without its indexes. Return the number of filters
    for which it reads no other file slices than those of the matching rows.
    """
    filters, exact = list(filters), 0
    mode = "fallback" if options is SKIPPING else "strict"
    expected = json.loads(hudi.call(path, "matches", filters))
    for where, keys in zip(filters, expected, strict=True):
        answer = json.loads(hudi.call(path, "query", where, mode, **options))
        assert answer["keys"] == keys, where
        exact += 0 < len(keys) == answer["files"]
        count("filters by shared indexes of Hudi", len(keys))
    return exact


def change(table: mdt.Table, draw: random.Random, turn: int) -> None:
    """Write rows with other values and new keys, delete some, or reorganize the table."""
    rows = table.scan().to_arrow()
    chosen = rows.take(draw.sample(range(len(rows)), 6)).to_pylist()
    chosen = [{**row, "ts": 1000 + turn, "v": 5000 + 10 * turn + n} for n, row in enumerate(chosen)]
    match turn % 5:
        case 0 | 3:
            number = 50 + turn  # in the partition that Hudi would write it to
            alike = [row for row in rows.to_pylist() if int(row["id"][1:]) % 3 == number % 3]
            new = {**alike[0], "id": f"k{number:03}", "ts": 1000 + turn, "v": 7000 + turn}
            table.upsert([*chosen, new])
        case 1:
            table.delete([{name: chosen[0][name] for name in ("id", "city")}])
        case 2:
            table.update_where({"v": "v + 7000"}, "v % 5 = 1")
        case _:
            table.cluster(["v"])


def require_correct_index(path: Path, partition: str) -> None:
    """Require a partition of the metadata table, and that its entries match the rows."""
    assert partition in partitions(path)
    problems = mdt.open(HiddenMetadata(LocalStorage(str(path)))).check().problems
    assert problems == ()


def take_turns(
    hudi: HudiSession, path: Path, table: mdt.Table, partition: str, options: dict[str, str]
) -> int:
    """Let Hudi and mdt write in turns, and compare filters.

    Returns the number of filters for which Hudi reads no other file slices than those of the rows.
    """
    draw, exact = random.Random(str(path)), 0
    for turn in range(10):
        change(table, draw, turn)
        require_correct_index(path, partition)
        ours = instants_of_metadata_table(path)
        rows = table.scan().to_arrow()
        rows = rows.take(draw.sample(range(len(rows)), 3)).to_pylist()
        of_values = [f"v = {row['v']}" for row in rows]
        of_keys = [f"id = '{row['id']}'" for row in rows]
        exact += compare(hudi, path, [*of_values, *of_keys, "v = -1"], options)
        numbers = draw.sample(range(60), 6)
        if turn % 4 == 3:
            hudi.call(path, "delete", numbers, 10**6)
        else:
            hudi.call(path, "upsert", numbers, 2000 + turn, 100 * turn)
        assert max(ours) in instants_of_metadata_table(path), "Hudi has rebuilt the metadata table"
        require_correct_index(path, partition)
        exact += compare(hudi, path, [*of_values, *of_keys], options)
        table.refresh()
        assert table.check().ok
    return exact


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@versions
@kinds
def test_hudi_finds_values_with_a_secondary_index_that_hudi_and_mdt_update(kind, version, tmp_path):
    path = tmp_path / "shared"
    with HudiSession(tmp_path / "session") as hudi:
        hudi.create(path, version, kind, BY_KEY)
        hudi.call(path, "insert", list(range(45)), 10)
        hudi.call(path, "sql", "create index idx_v on {t} (v)", **LOCKED)
        table = mdt.adopt(path, scope="table", options={"mdt.services.auto": "false"})
        assert take_turns(hudi, path, table, BY_VALUE, READ) > 30


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@kinds
def test_hudi_and_mdt_update_a_record_index_of_each_partition(kind, tmp_path):
    path = tmp_path / "shared"
    with HudiSession(tmp_path / "session") as hudi:
        hudi.create(path, 9, kind, BY_PARTITION)
        hudi.call(path, "set_column", "city", CITIES.format(more=""))
        hudi.call(path, "insert", list(range(45)), 10)
        read = mdt.open(path)
        for row in read.scan().to_arrow().to_pylist():
            of_key = read.scan(f"_hoodie_record_key = '{row['id']}'", read.schema.names)
            assert of_key.to_arrow().to_pylist() == [row]
            assert "record_index" in {
                n.index for n in of_key.explain().indexes if n.reason == "used"
            }
        table = mdt.adopt(path, options={"mdt.services.auto": "false"})
        take_turns(hudi, path, table, "record_index", SKIPPING)
        rows = table.scan(limit=2).to_arrow().to_pylist()
        table.upsert([{**row, "city": "new-by_us"} for row in rows])
        require_correct_index(path, "record_index")
        hudi.call(path, "set_column", "city", "'new-by_us'")
        hudi.call(path, "upsert", [1, 2, 50], 3000)
        require_correct_index(path, "record_index")
        hudi.call(path, "set_column", "city", "'new-by_hudi'")
        hudi.call(path, "upsert", [1, 2, 51], 3000)
        require_correct_index(path, "record_index")
        keys = [f"id = 'k{n:03}'" for n in (1, 2, 50, 51)]
        compare(hudi, path, keys, SKIPPING)
        assert table.refresh() and table.check().ok
