"""Hudi finds rows with the record index that our commits write to its metadata table, and its
writers update it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from counting import count
from hidden import HiddenMetadata
from hudi_session import HudiSession
from test_our_metadata_table import ids, instants_of_metadata_table, our_ids
from test_shared_indexes import partitions

import mdt
from mdt.commit.metadata_partitions import PARTITIONS
from mdt.hudi import metadata_table_files as table_files
from mdt.hudi.metadata_table_files import RECORD_INDEX
from mdt.hudi.read import hfile_entries
from mdt.metadata.history.foreign_writers import read_properties
from mdt.stores.storage import LocalStorage

FOLDER = ".hoodie/metadata/record_index"
SCHEMA = pa.schema(
    [("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("v", pa.int32())]
)
BY_INDEX = {
    "hoodie.metadata.enable": "true",
    "hoodie.enable.data.skipping": "true",
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.global.record.level.index.enable": "true",
}
WRITER = {
    **BY_INDEX,
    "hoodie.index.type": "RECORD_INDEX",
    "hoodie.spark.sql.merge.into.partial.updates": "false",
    "hoodie.metadata.compact.max.delta.commits": "3",
}
MARKS = ("", "é", "\U00010000", "\U0001f600", "\uffee")
"""First characters of keys. Java orders the last one after the two before it, and HFiles before
them.
"""
COUNT = 400
ALL = range(2 * COUNT)
ALIKE = [n for n in ALL if n % len(MARKS) < len(MARKS) - 1]
"""Numbers of keys that Java orders like HFiles. Hudi finds other keys only one by one. Its writers
lose them, because they write them to HFiles in Java's order.
"""


BY_PARTITION = {
    "hoodie.embed.timeline.server": "true",
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.record.level.index.enable": "true",
    "hoodie.index.type": "RECORD_LEVEL_INDEX",
    "hoodie.metadata.compact.max.delta.commits": "3",
}
CITIES = ("2024-01-15", "a_b")


def key(n: int) -> str:
    return f"k{MARKS[n % len(MARKS)]}{n:05}"


def rows(numbers: Sequence[int], ts: int, city: str = "") -> pa.Table:
    cities = ("oslo", "paris", "rome")
    values = [{"id": key(n), "city": city or cities[n % 3], "ts": ts, "v": n + ts} for n in numbers]
    return pa.Table.from_pylist(values, SCHEMA)


def make(path: Path, version: int, kind: str, partition_by: list[str]) -> mdt.Table:
    return mdt.create(
        path,
        SCHEMA,
        key=["id"],
        partition_by=partition_by,
        ordering="ts",
        scope="table",
        table_type=kind,
        options={
            "mdt.table.version": str(version),
            "hoodie.metadata.enable": "true",
            "hoodie.metadata.record.index.enable": "true",
            "mdt.services.auto": "false",
            "hoodie.parquet.small.file.limit": "0",
        },
    )


def change(table: mdt.Table, step: int, numbers: Sequence[int]) -> None:
    """Carry out a step: new, changed, moved and deleted rows, or a service."""
    match step % 8:
        case 0 | 4:
            table.upsert(rows(numbers, 10 + step))
        case 1:
            table.upsert(rows(numbers, 10 + step, "bergen"))
        case 2 | 5:
            table.delete(rows(numbers, 10 + step))
        case 3:
            table.compact()
        case 6:
            table.cluster(["v"])
        case _:
            table.clean(retain_commits=2)


def compare(hudi: HudiSession, path: Path, numbers: Sequence[int]) -> None:
    """Look keys up with the index, one by one and together, and compare them with the rows."""
    alike = [key(n) for n in numbers if n % len(MARKS) < len(MARKS) - 1]
    look_up(hudi, path, [*map(key, numbers[:4])], alike)
    live = ids(hudi, path)
    assert ids(hudi, path, **BY_INDEX) == live == our_ids(path)
    assert len(live) == len({record_key for record_key, _ in live})


def look_up(hudi: HudiSession, path: Path, single: Sequence[str], together: Sequence[str]) -> None:
    """Compare the rows of keys that Hudi finds with the index and without it.

    Args:
        single: Keys that are looked up one by one.
        together: Keys that are looked up in one query.
    """
    has_index = RECORD_INDEX in (read_properties(LocalStorage(path)) or {}).get(PARTITIONS, "")
    wheres = [f"id = '{text}'" for text in single]
    texts = ", ".join(f"'{text}'" for text in together)
    wheres += [f"id in ({texts})", f"_hoodie_record_key = '{single[0]}'"]
    expected = json.loads(hudi.call(path, "matches", wheres))
    for where, keys in zip(wheres, expected, strict=True):
        answer = json.loads(hudi.call(path, "query", where, **BY_INDEX))
        assert answer["keys"] == keys, where
        if "=" in where and keys and has_index:
            assert answer["files"] == len(keys) == 1, (
                "Hudi reads other file slices than that of the key"
            )
        count("look-ups of keys by Hudi", len(keys))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize(
    ("kind", "partition_by"), [("COPY_ON_WRITE", ["city"]), ("MERGE_ON_READ", [])]
)
def test_hudi_finds_keys_with_our_record_index(tmp_path, kind, partition_by, version):
    draw = random.Random(version)
    with HudiSession(tmp_path / "session") as hudi:
        generator = "SimpleKeyGenerator" if partition_by else "NonpartitionedKeyGenerator"
        writer = {
            **WRITER,
            "hoodie.datasource.write.partitionpath.field": ",".join(partition_by),
            "hoodie.datasource.write.keygenerator.class": f"org.apache.hudi.keygen.{generator}",
        }
        for name, numbers in (("all", ALL), ("alike", ALIKE)):
            path = tmp_path / name
            table = make(path, version, kind, partition_by)
            for first in range(0, len(numbers), 100):
                table.insert(rows(numbers[first : first + 100], 1))
            hudi.create(path, version, kind, writer)
            compare(hudi, path, numbers[:20])
            for step in range(16):
                change(table, step, draw.sample(numbers, 30))
                if step % 8 == 5:
                    compare(hudi, path, draw.sample(numbers, 20))
            compare(hudi, path, draw.sample(numbers, 20))
            require_use_of_index(hudi, path, table)
        write_with_hudi_and_mdt(hudi, path, writer, draw)


def require_use_of_index(hudi: HudiSession, path: Path, table: mdt.Table) -> None:
    """Assert that Hudi does not find a key whose entry the newest log file deletes."""
    n = 3 * COUNT
    table.insert(rows([n], 100))
    where = f"id = '{key(n)}'"
    [file] = (path / FOLDER).glob(f".record-index-0000-0_*_0-{table.snapshot().seq}-0")
    before = file.read_bytes()
    deletions = hfile_entries.deletions(pa.array([key(n).encode()], pa.large_binary()))
    group = table_files.GROUPS[RECORD_INDEX]
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    file.write_bytes(before + group.log_file(deletions, table.snapshot().last_instant))
    answer = json.loads(hudi.call(path, "query", where, **BY_INDEX))
    assert not answer["keys"], "Hudi finds the key without the index"
    assert not table.check().ok
    file.write_bytes(before)
    compare(hudi, path, [n, 0, 1, 2])
    assert table.check().ok


def write_with_hudi_and_mdt(
    hudi: HudiSession, path: Path, writer: dict[str, str], draw: random.Random
) -> None:
    """Let Hudi's writer find rows with our index and update it, then let mdt write."""
    is_whole = "city=" not in "".join(folder.name for folder in path.iterdir())
    update = "*" if is_whole else "id = s.id, city = t.city, ts = s.ts, v = s.v"
    ours = instants_of_metadata_table(path)
    for ts in range(1000, 1006):
        numbers = draw.sample([n + 5 * (n % 2) * COUNT for n in ALIKE], 40)
        values = ", ".join(f"('{key(n)}', 'oslo', {ts}L, {n + ts})" for n in numbers)
        hudi.call(
            path,
            "sql",
            f"merge into {{t}} t using (select * from values {values} as s(id, city, ts, v)) s"
            " on t.id = s.id when matched and s.v % 5 = 0 then delete"
            f" when matched then update set {update} when not matched then insert *",
            **writer,
        )
        assert max(ours) in instants_of_metadata_table(path), "Hudi has rebuilt the metadata table"
        compare(hudi, path, numbers[:20])
    added = instants_of_metadata_table(path) - ours
    assert any(name.endswith(".commit") for name in added), (
        "Hudi has not compacted the metadata table"
    )
    table = mdt.open(path)
    table.upsert(rows(ALIKE[10:30], 2000))
    table.delete(rows(ALIKE[30:40], 2000))
    assert RECORD_INDEX in (read_properties(LocalStorage(path)) or {}).get(PARTITIONS, "")
    compare(hudi, path, ALIKE[8:34])


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("version", [6, 9])
def test_hudi_reads_a_record_index_that_is_older_than_the_timeline(tmp_path, version):
    """Commits without new keys do not change the index. The instant of its file is archived."""
    draw, path = random.Random(version), tmp_path / "table"
    writer = {
        **WRITER,
        "hoodie.datasource.write.partitionpath.field": "",
        "hoodie.datasource.write.keygenerator.class": (
            "org.apache.hudi.keygen.NonpartitionedKeyGenerator"
        ),
    }
    table = make(path, version, "COPY_ON_WRITE", [])
    table.insert(rows(ALIKE[:60], 1))
    for ts in range(2, 162):
        table.upsert(rows(ALIKE[:3], ts))
    [base] = (path / FOLDER).glob("*.hfile")
    instant = base.stem.rpartition("_")[2]
    assert not any(name.startswith(instant) for name in instants_of_metadata_table(path))
    with HudiSession(tmp_path / "session") as hudi:
        hudi.create(path, version, "COPY_ON_WRITE", writer)
        compare(hudi, path, ALIKE[:20])
        write_with_hudi_and_mdt(hudi, path, writer, draw)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_hudi_writers_find_keys_with_our_record_index_of_each_partition(tmp_path, kind):
    """Queries of Hudi 1.2 do not skip files with such an index. Its writers find rows with it."""
    draw, path = random.Random(kind), tmp_path / "table"
    with HudiSession(tmp_path / "session") as hudi:
        hudi.create(tmp_path / "made", 9, kind, BY_PARTITION)
        hudi.call(tmp_path / "made", "insert", list(range(60)), 10)
        source_rows = mdt.open(tmp_path / "made").scan().to_arrow()
        table = mdt.create(
            path,
            source_rows.schema,
            key=["id"],
            partition_by=["city"],
            ordering="ts",
            table_type=kind,
            options={
                "mdt.table.version": "9",
                "mdt.hudi.column.stats": "false",
                "hoodie.metadata.record.level.index.enable": "true",
                "mdt.services.auto": "false",
                "hoodie.parquet.small.file.limit": "0",
            },
        )

        def upsert_rows(city: str, numbers: Sequence[int], ts: int) -> None:
            chosen = source_rows.take(list(numbers)).to_pylist()
            table.upsert([{**row, "city": city, "ts": ts, "v": ts} for row in chosen])

        for city in CITIES:  # keys with rows in both partitions
            upsert_rows(city, range(50), 100)
        hudi.create(path, 9, kind, BY_PARTITION)
        for turn in range(12):
            numbers, city = draw.sample(range(60), 12), draw.choice([*CITIES, f"n{turn}"])
            match turn % 6:
                case 3:
                    table.delete([{"id": f"k{n:03}", "city": city} for n in numbers])
                case 4:
                    table.compact()
                case 5:
                    table.cluster(["v"])
                case _:
                    upsert_rows(city, numbers, 200 + turn)
            assert ids(hudi, path) == our_ids(path)
        for turn in range(8):
            ours = instants_of_metadata_table(path)
            city = draw.choice([*CITIES, "by-hudi"])
            hudi.call(path, "set_column", "city", f"'{city}'")
            numbers = draw.sample(range(60), 8)
            if turn % 4 == 3:
                hudi.call(path, "delete", numbers, 10**6)
            else:
                hudi.call(path, "upsert", numbers, 2000 + turn)
            assert max(ours) in instants_of_metadata_table(path), (
                "Hudi has rebuilt the metadata table"
            )
            assert RECORD_INDEX in partitions(path)
            assert mdt.open(HiddenMetadata(LocalStorage(str(path)))).check().problems == ()
            table.refresh()
            keys = table.scan(columns=["id", "city"]).to_arrow().to_pylist()
            assert len(keys) == len({tuple(row_key.values()) for row_key in keys}), (
                "Hudi has not found all rows, and has inserted some again"
            )
            upsert_rows(draw.choice([*CITIES, f"m{turn}"]), draw.sample(range(60), 6), 3000 + turn)
            assert RECORD_INDEX in partitions(path)
            assert ids(hudi, path) == our_ids(path) and table.check().ok
