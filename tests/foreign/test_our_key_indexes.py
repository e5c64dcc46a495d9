"""Hudi finds rows with the secondary indexes and Bloom filters that our commits write to its
metadata table, and its writers update them.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pyarrow as pa
import pytest
from counting import count
from hidden import HiddenMetadata
from hudi_session import HudiSession
from test_our_column_stats import keys_of
from test_our_metadata_table import instants_of_metadata_table
from test_our_record_index import ALIKE, BY_INDEX, SCHEMA, WRITER, rows
from test_shared_indexes import partitions

import mdt
from mdt.hudi import metadata_table_files as table_files
from mdt.hudi.read import hfile_entries
from mdt.stores.storage import LocalStorage

BY_VALUE = "secondary_index_v"
FILTERS = "bloom_filters"
KEYS = [n for n in ALIKE if n % 5 == 0]
"""Numbers of keys without characters that Hudi and HFiles order differently."""
BLOOM = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.index.type": "BLOOM",
    "hoodie.bloom.index.use.metadata": "true",
    "hoodie.bloom.index.prune.by.ranges": "false",
    "hoodie.metadata.compact.max.delta.commits": "3",
}
OURS = {
    "mdt.table.version": "9",
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "false",
    "mdt.services.auto": "false",
    "hoodie.parquet.small.file.limit": "0",
}
kinds = pytest.mark.parametrize(
    ("kind", "partition_by"), [("COPY_ON_WRITE", ["city"]), ("MERGE_ON_READ", [])]
)


def make(path: Path, kind: str, partition_by: list[str], options: dict[str, str]) -> mdt.Table:
    table = mdt.create(
        path,
        SCHEMA,
        key=["id"],
        partition_by=partition_by,
        ordering="ts",
        scope="table",
        table_type=kind,
        indexes=["bitmap(v)"],
        options=OURS | options,
    )
    for first in range(0, len(KEYS), 20):
        table.insert(rows(KEYS[first : first + 20], 1))
    return table


def change(table: mdt.Table, turn: int, draw: random.Random) -> None:
    numbers = draw.sample(KEYS, 12)
    match turn % 5:
        case 0:
            table.upsert(rows(numbers, 10 * turn))
        case 1:
            table.upsert(rows(numbers, 10 * turn, "bergen"))
        case 2:
            table.delete(rows(numbers[:3], 10 * turn))
        case 3:
            table.compact()
        case _:
            table.cluster(["v"])


def compare(hudi: HudiSession, path: Path, draw: random.Random, **options: str) -> int:
    """Compare the rows that Hudi finds with an index and without it. Return the number of filters
    for which it reads no other file slices than those of the matching rows.
    """
    our_rows = mdt.open(path).scan().to_arrow().to_pylist()
    filters = [f"v = {row['v']}" for row in draw.sample(our_rows, 4)]
    filters += [f"v in ({our_rows[0]['v']}, {our_rows[-1]['v']})", "v = -1", "v is null"]
    exact = 0
    expected = json.loads(hudi.call(path, "matches", filters))
    for where, keys in zip(filters, expected, strict=True):
        answer = json.loads(hudi.call(path, "query", where, **options))
        assert answer["keys"] == keys, where
        exact += 0 < answer["files"] <= len(keys)
        count("look-ups of values by Hudi", len(keys))
    return exact


def merge(hudi: HudiSession, path: Path, numbers: list[int], ts: int, **options: str) -> None:
    """Let Hudi update, delete and insert rows."""
    is_whole = keys_of([]).items() <= options.items()
    update = "*" if is_whole else "id = s.id, city = t.city, ts = s.ts, v = s.v"
    cities = ("oslo", "paris", "rome")  # a Bloom index looks for a key in its partition
    values = ", ".join(f"('k{n:05}', '{cities[n % 3]}', {ts}L, {n + ts})" for n in numbers)
    hudi.call(
        path,
        "sql",
        f"merge into {{t}} t using (select * from values {values} as s(id, city, ts, v)) s"
        " on t.id = s.id when matched and s.v % 5 = 0 then delete"
        f" when matched then update set {update} when not matched then insert *",
        **options,
    )


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@kinds
def test_hudi_finds_values_with_our_secondary_index(kind, partition_by, tmp_path):
    path, draw = tmp_path / "table", random.Random(kind)
    options = {
        "hoodie.metadata.record.index.enable": "true",
        "hoodie.metadata.index.secondary.enable": "true",
    }
    table = make(path, kind, partition_by, options)
    writer = {**WRITER, "hoodie.embed.timeline.server": "true", **keys_of(partition_by)}
    with HudiSession(tmp_path / "session") as hudi:
        hudi.create(path, 9, kind, writer)
        exact = compare(hudi, path, draw, **BY_INDEX)
        for turn in range(10):
            change(table, turn, draw)
            exact += compare(hudi, path, draw, **BY_INDEX)
        assert exact > 30 and table.check().ok
        require_use_of_index(hudi, path, table)
        ours = instants_of_metadata_table(path)
        for turn in range(5):
            merge(hudi, path, [*draw.sample(KEYS, 10), 90_000 + turn], 1000 + turn, **writer)
            assert max(ours) in instants_of_metadata_table(path), (
                "Hudi has rebuilt the metadata table"
            )
            assert BY_VALUE in partitions(path)
            assert mdt.open(HiddenMetadata(LocalStorage(str(path)))).check().problems == ()
            compare(hudi, path, draw, **BY_INDEX)
            table.refresh()
            table.upsert(rows(draw.sample(KEYS, 4), 2000 + turn))
            assert BY_VALUE in partitions(path)
            compare(hudi, path, draw, **BY_INDEX)
        assert table.check().ok


def require_use_of_index(hudi: HudiSession, path: Path, table: mdt.Table) -> None:
    """Assert that Hudi does not find a value whose entry the newest log file deletes."""
    table.insert(rows([80_000], 9))
    where = "v = 80009"
    folder = path / ".hoodie/metadata" / BY_VALUE
    [file] = folder.glob(f".*_0-{table.snapshot().seq}-0")
    before = file.read_bytes()
    deletions = hfile_entries.deletions(pa.array([b"80009$k80000"], pa.large_binary()))
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    instant = table.snapshot().last_instant
    file.write_bytes(before + table_files.group_of(BY_VALUE).log_file(deletions, instant))
    assert not json.loads(hudi.call(path, "query", where, **BY_INDEX))["keys"]
    file.write_bytes(before)
    assert json.loads(hudi.call(path, "query", where, **BY_INDEX))["keys"] == ["k80000"]


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@kinds
def test_hudi_bloom_index_finds_rows_with_our_bloom_filters(kind, partition_by, tmp_path):
    path, draw = tmp_path / "table", random.Random(kind)
    options = {
        "hoodie.metadata.index.bloom.filter.enable": "true",
        "mdt.write.footer.bloom": "true",
    }
    table = make(path, kind, partition_by, options)
    writer = BLOOM | keys_of(partition_by)
    change(table, 0, draw)
    change(table, 3, draw)
    change(table, 4, draw)
    with HudiSession(tmp_path / "session") as hudi:
        hudi.create(path, 9, kind, writer)
        ours = instants_of_metadata_table(path)
        for turn in range(6):
            merge(hudi, path, [*draw.sample(KEYS, 10), 90_000 + turn], 1000 + turn, **writer)
            assert FILTERS in partitions(path)
            assert max(ours) in instants_of_metadata_table(path), (
                "Hudi has rebuilt the metadata table"
            )
            table.refresh()
            keys = table.scan(columns=["id"]).to_arrow()["id"].to_pylist()
            assert len(keys) == len(set(keys)), (
                "Hudi has not found all rows, and has inserted some again"
            )
            table.upsert(rows([*draw.sample(KEYS, 4), 95_000 + 5 * turn], 2000 + turn))
            assert FILTERS in partitions(path) and table.check().ok
