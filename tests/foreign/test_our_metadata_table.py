"""Hudi lists files with the metadata table that our commits write, and updates it."""

from __future__ import annotations

import random
import re
import shutil
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from hudi_session import HudiSession

import mdt
from mdt.hudi import log_file
from mdt.hudi import metadata_table_files as table_files
from mdt.stores.storage import LocalStorage
from mdt.testing.faulty import Crash, FaultyStorage

FOLDER = ".hoodie/metadata/files"
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("v", pa.int32()),
        ("day", pa.date32()),
    ]
)
BY_METADATA = {"hoodie.metadata.enable": "true"}


def rows(numbers, ts: int) -> pa.Table:
    cities = ("oslo", "paris", "rome")
    return pa.Table.from_pylist(
        [
            {
                "id": f"k{n:03}",
                "city": cities[n % 3],
                "ts": ts,
                "v": n + ts,
                "day": date(2024, 1, 1),
            }
            for n in numbers
        ],
        SCHEMA,
    )


def make(path: Path, version: int, kind: str, partition_by: list[str]) -> mdt.Table:
    """Make a table with random commits and services."""
    options = {"mdt.table.version": str(version), "mdt.services.auto": "false", **BY_METADATA}
    table = mdt.create(
        path,
        SCHEMA,
        key=["id"],
        partition_by=partition_by,
        ordering="ts",
        table_type=kind,
        options=options,
    )
    draw = random.Random(kind)
    carry_out(table, draw, range(12))
    table.savepoint("kept")
    roll_back_a_failed_write(path)
    carry_out(table, draw, range(12, 24))
    table.restore("kept")
    carry_out(table, draw, range(24, 40))
    return table


def roll_back_a_failed_write(path: Path) -> None:
    """Let a write fail before it commits, and roll it back."""
    crash_before(path, r"\S+ \.hoodie/\.mdt/log/\S+")
    assert mdt.open(path).abort().rolled_back


def crash_before(path: Path, operation: str) -> None:
    """Let a writer of ours crash before the first operation that matches a pattern."""
    scratch = path.with_name(f"{path.name}_copy")
    shutil.copytree(path, scratch)
    counted = FaultyStorage(LocalStorage(str(scratch)))
    single = {"mdt.writer.threads": 1}
    mdt.open(counted, single).upsert(rows(range(5), 11_000))
    shutil.rmtree(scratch)
    numbers = [n for n, name in enumerate(counted.operations, 1) if re.fullmatch(operation, name)]
    crashing = FaultyStorage(LocalStorage(str(path)), numbers[0], "before")
    with pytest.raises(Crash):
        mdt.open(crashing, single).upsert(rows(range(5), 11_000))


def carry_out(table: mdt.Table, draw: random.Random, steps: range) -> None:
    for ts in steps:
        table.upsert(rows(draw.sample(range(60), 12), ts))
        kind = draw.random()
        if kind < 0.2:
            table.delete(rows(draw.sample(range(60), 4), ts))
        elif kind < 0.35:
            table.compact()
        elif kind < 0.5:
            table.cluster(["v"])
        elif kind < 0.6:
            table.clean(retain_commits=2)


def ids(hudi: HudiSession, path: Path, **options: str) -> list[tuple[str, int]]:
    """Return the keys and values that Hudi reads."""
    rows_read = hudi.rows(path, **options)
    return sorted(zip(rows_read["id"].to_pylist(), rows_read["v"].to_pylist(), strict=True))


def our_ids(path: Path) -> list[tuple[str, int]]:
    rows_read = mdt.open(path).scan().to_arrow()
    return sorted(zip(rows_read["id"].to_pylist(), rows_read["v"].to_pylist(), strict=True))


def newest_log(path: Path) -> Path:
    files = (path / FOLDER).glob(".files-0000-0_*.log.*_0-*-0")
    return max(files, key=lambda file: int(file.name.rsplit("-", 2)[1]))


def hudi_options(partition_by: list[str]) -> dict[str, str]:
    """Return the options of Hudi's writer."""
    generator = "SimpleKeyGenerator" if partition_by else "NonpartitionedKeyGenerator"
    return {
        **BY_METADATA,
        "hoodie.datasource.write.partitionpath.field": ",".join(partition_by),
        "hoodie.datasource.write.keygenerator.class": f"org.apache.hudi.keygen.{generator}",
    }


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_hudi_lists_files_with_our_metadata_table_and_updates_it(tmp_path, kind, version):
    with HudiSession(tmp_path / "session") as hudi:
        for name, partition_by in (("parts", ["city"]), ("whole", [])):
            path = tmp_path / f"{kind.lower()}_{name}"
            table = make(path, version, kind, partition_by)
            hudi.create(path, version, kind, hudi_options(partition_by))
            assert ids(hudi, path, **BY_METADATA) == ids(hudi, path) == our_ids(path)
            require_use_of_metadata_table(hudi, path, table)
            require_hudi_to_roll_back_an_unpublished_commit(hudi, path)
            write_with_hudi_and_mdt(hudi, path)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_hudi_uses_our_metadata_table_after_an_upgrade(tmp_path):
    with HudiSession(tmp_path / "session") as hudi:
        path = tmp_path / "upgraded"
        table = make(path, 6, "MERGE_ON_READ", ["city"])
        table.upgrade(9)
        hudi.create(path, 9, "MERGE_ON_READ", hudi_options(["city"]))
        assert ids(hudi, path, **BY_METADATA) == ids(hudi, path) == our_ids(path)
        carry_out(table, random.Random(1), range(100, 104))
        assert ids(hudi, path, **BY_METADATA) == ids(hudi, path) == our_ids(path)
        require_use_of_metadata_table(hudi, path, table)
        write_with_hudi_and_mdt(hudi, path)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", [6, 9])
def test_hudi_writes_the_first_rows_of_our_table_with_an_index(tmp_path, version):
    options = {"mdt.table.version": str(version), **BY_METADATA}
    with HudiSession(tmp_path / "session") as hudi:
        source, path = tmp_path / "made", tmp_path / "t"
        hudi.create(source, version, "MERGE_ON_READ", hudi_options(["city"]))
        hudi.call(source, "upsert", [3], 5)
        schema, settings = mdt.open(source).schema, {"key": ["id"], "partition_by": ["city"]}
        table = mdt.create(path, schema, ordering="ts", options=options, **settings)
        table.create_index("bitmap(v)")
        hudi.create(path, version, "MERGE_ON_READ", hudi_options(["city"]))
        hudi.call(path, "upsert", [1, 2], 20)
        assert ids(hudi, path, **BY_METADATA) == ids(hudi, path) == our_ids(path)
        assert len(our_ids(path)) == 2


def require_use_of_metadata_table(hudi: HudiSession, path: Path, table: mdt.Table) -> None:
    """Assert that Hudi does not read files whose entries the newest delta commit deletes."""
    table.upsert(rows(range(60), 10_000))
    expected = ids(hudi, path, **BY_METADATA)
    file = newest_log(path)
    before = file.read_bytes()
    [block] = log_file.parse(before, path=file.name)
    partition = "city=oslo" if table.definition.partition_by else ""
    hidden: dict[str, dict[str, int | None]] = {
        partition: {
            name.name: None
            for name in (path / partition).iterdir()
            if name.is_file() and not name.name.startswith(".hoodie") and name.suffix != ".crc"
        }
    }
    instant = block.header[log_file.INSTANT_TIME]
    spoiled = table_files.GROUPS[table_files.FILES].log_file(
        table_files.records(hidden, [partition]), instant
    )
    crc = file.with_name(f".{file.name}.crc")
    crc.unlink(missing_ok=True)
    file.write_bytes(before + spoiled)
    assert ids(hudi, path, **BY_METADATA) != expected, (
        "Hudi has not listed files with the metadata table"
    )
    assert ids(hudi, path) == expected
    file.write_bytes(before)
    assert ids(hudi, path, **BY_METADATA) == expected


def require_hudi_to_roll_back_an_unpublished_commit(hudi: HudiSession, path: Path) -> None:
    """Assert that Hudi rolls back a commit of ours that is not on the timeline."""
    before = ids(hudi, path)
    crash_before(path, r"\S+ \.hoodie/(timeline/)?[0-9_]+\.(delta)?commit")
    assert ids(hudi, path, **BY_METADATA) == ids(hudi, path) == before
    merge(hudi, path, 12_000, BY_METADATA)
    expected = ids(hudi, path)
    assert ids(hudi, path, **BY_METADATA) == expected
    assert len(expected) == len({key for key, _ in expected})
    assert our_ids(path) == expected


def merge(hudi: HudiSession, path: Path, ts: int, options: dict[str, str]) -> None:
    """Let Hudi update or insert a row."""
    hudi.call(
        path,
        "sql",
        f"merge into {{t}} t using (select 'k00{ts % 5}' as id, 'oslo' as city, {ts}L as ts,"
        f" {ts} as v, date '2024-01-01' as day) s on t.id = s.id"
        " when matched then update set * when not matched then insert *",
        **options,
    )


def instants_of_metadata_table(path: Path) -> set[str]:
    """Return the names of completed instants of the metadata table."""
    files = (path / ".hoodie/metadata/.hoodie").rglob("*commit")
    return {file.name for file in files if file.name[0].isdigit()}


def write_with_hudi_and_mdt(hudi: HudiSession, path: Path) -> None:
    """Let Hudi update our metadata table and compact it, and then let mdt write. Compare rows."""
    small = {
        **BY_METADATA,
        "hoodie.metadata.compact.max.delta.commits": "2",
        "hoodie.metadata.index.column.stats.enable": "false",
        "hoodie.clean.automatic": "true",
        "hoodie.clean.commits.retained": "2",
    }
    ours = instants_of_metadata_table(path)
    for ts in range(20_000, 20_006):
        merge(hudi, path, ts, small)
        assert max(ours) in instants_of_metadata_table(path), "Hudi has rebuilt the metadata table"
        expected = ids(hudi, path)
        assert ids(hudi, path, **BY_METADATA) == expected
        assert our_ids(path) == expected
    added = instants_of_metadata_table(path) - ours
    assert any(name.endswith(".commit") for name in added), (
        "Hudi has not compacted the metadata table"
    )
    table = mdt.open(path)
    table.upsert(rows(range(10, 30), 30_000))
    assert ids(hudi, path, **BY_METADATA) == ids(hudi, path) == our_ids(path)
