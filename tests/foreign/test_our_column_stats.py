"""Hudi skips files with the column statistics that our commits write to its metadata table."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hudi_session import HudiSession, Refused

import mdt
from mdt.hudi import metadata_table_files as table_files
from mdt.hudi.column_stats_records import FORMS, RANGES, FileKeys, entries
from mdt.hudi.index_definitions import DEFINITIONS
from mdt.hudi.read import hfile_entries

FOLDER = ".hoodie/metadata/column_stats"
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("i", pa.int32()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("s", pa.string()),
        ("b", pa.binary()),
        ("ok", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("ms", pa.timestamp("ms", "UTC")),
        ("cost", pa.decimal128(9, 2)),
        ("tags", pa.list_(pa.string())),
    ]
)
WITH_EXTRA = SCHEMA.append(pa.field("extra", pa.int32()))
COUNT = 120
SKIPPING = {
    "hoodie.metadata.enable": "true",
    "hoodie.enable.data.skipping": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
}
BY_PARTITION = {
    "hoodie.metadata.index.partition.stats.enable": "true",
    "hoodie.metadata.index.column.stats.column.list": ",".join(
        name for name in (*SCHEMA.names, "extra") if name != "b"
    ),
}
"""Options of partitioned tables of version 9: bounds of partitions, and none of binary columns."""
FILTERS = (
    "i = 37",
    "i in (3, 11, 200)",
    "i between 40 and 55",
    "i < 0",
    "i != 5",
    "i is null",
    "i is not null and i > 110",
    "ts > 5",
    "ts > 3 and i < 20",
    "f = cast(7.25 as float)",
    "f > cast(25 as float)",
    "isnan(d)",
    "d >= double('nan')",
    "d < -30",
    "d is null",
    "s = '1éüü1'",
    "s like '2é%'",
    "s like '2éü%'",
    "s not like '3%'",
    "s >= '4éüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüü'",
    "s is null",
    "ok",
    "not ok and i < 10",
    "day = date '2024-01-13'",
    "day >= date '2024-04-01'",
    "day in (date '2024-01-03', date '2030-01-01')",
    "at = timestamp '2024-01-13 00:00:00.012'",
    "at > timestamp '2024-04-20'",
    "ms <= timestamp '2024-01-04'",
    "ms = timestamp '2024-01-13 00:00:00.012'",
    "cost = 3.25",
    "cost > 28",
    "cost < -1 or i = 60",
    "id = 'k012'",
    "id like 'k11%'",
    "_hoodie_record_key = 'k077'",
    "_hoodie_commit_time > '2'",
    "_hoodie_commit_time < '2' and i > 3",
    "_hoodie_partition_path = 'city=oslo' and i = 3",
    "city = 'rome' and i between 30 and 40",
    "size(tags) > 0 and i = 44",
)


BINARY = ("b = X'0C0C'", "b > X'70'")
"""Filters of binary columns. Hudi 1.2 fails on their bounds in version 9, also on bounds that it
has written. By default it then reads all files.
"""
TEXTS = ("nan", "(tags", "cast", "ms", "s ", "id", "_hoodie")
OURS = tuple(where for where in FILTERS if not any(text in where for text in TEXTS))
"""Filters for which the number of file slices is compared with ours. Excluded are texts, whose
lower bounds are a single character, and timestamps in milliseconds, whose bounds Hudi does not use.
"""
SOME = FILTERS[::4]
AFTER_HUDI = tuple(where for where in SOME if " like " not in where and "nan" not in where)
"""Filters for files of Hudi's writer. With its own statistics Hudi finds too few rows for prefixes,
because it compares the prefix with the smallest text. It also finds too few rows with NaN.
"""
NAN_FILES = 1
"""Number of files with NaN in each state. Hudi always reads them."""


def row(n: int, ts: int) -> dict[str, object]:
    at = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(days=n, milliseconds=n)
    text = f"{n // 20}é" + "ü" * (n % 50) + str(ts)
    return {
        "id": f"k{n:03}",
        "city": ("oslo", "paris", "rome")[n % 3],
        "ts": ts,
        "i": None if n % 13 == 1 else n,
        "f": n / 4,
        "d": None if n % 31 == 1 else -n / 3,
        "s": None if n % 17 == 3 else text,
        "b": bytes([n, n]),
        "ok": n % 2 == 0,
        "day": at.date(),
        "at": at,
        "ms": at,
        "cost": Decimal(n) / 4,
        "tags": [f"t{n}"],
    }


def rows(numbers, ts: int, schema: pa.Schema = SCHEMA, **more: object) -> pa.Table:
    return pa.Table.from_pylist([{**row(n, ts), **more} for n in numbers], schema)


def nans(numbers, ts: int) -> pa.Table:
    """Return rows, some with NaN."""
    each = ({**row(n, ts), **({"d": float("nan")} if n % 3 == 0 else {})} for n in numbers)
    return pa.Table.from_pylist(list(each), SCHEMA)


def make(path: Path, kind: str, version: int, partition_by: Sequence[str]) -> mdt.Table:
    """Make a table. Each of its files has a range of numbers. The last files have NaN, unless NaN
    would remove the statistics from the table.
    """
    table = mdt.create(
        path,
        SCHEMA,
        key=["id"],
        partition_by=list(partition_by),
        ordering="ts",
        table_type=kind,
        options={
            "mdt.table.version": str(version),
            "hoodie.metadata.enable": "true",
            "hoodie.metadata.index.column.stats.enable": "true",
            "mdt.services.auto": "false",
            "hoodie.parquet.small.file.limit": "0",
            **(BY_PARTITION if version == 9 and partition_by else {}),
        },
    )
    has_nan = version == 6 or not partition_by
    for first in range(0, COUNT, 20):
        make_rows = nans if has_nan and first == COUNT - 20 else rows
        table.insert(make_rows(range(first, first + 20), 1 + first // 20))
    return table


def change(table: mdt.Table, step: int, draw: random.Random) -> None:
    """Carry out a step: updates, deletes or a service."""
    near = draw.randrange(COUNT - 8)
    match step % 6:
        case 0 | 3:
            table.upsert(rows(range(near, near + 5), 10 + step))
        case 1:
            table.delete(rows(range(near, near + 3), 10 + step))
        case 2:
            table.compact()
        case 4:
            table.cluster(["i"])
        case _:
            table.clean(retain_commits=2)


def compare(hudi: HudiSession, path: Path, filters: Sequence[str] = FILTERS) -> dict[str, int]:
    """Compare the rows that Hudi reads with and without statistics, and return the number of file
    slices that it reads for each filter.
    """
    counts = {}
    expected = json.loads(hudi.call(path, "matches", list(filters)))
    for where, keys in zip(filters, expected, strict=True):
        answer = json.loads(hudi.call(path, "query", where, **SKIPPING))
        assert answer["keys"] == keys, where
        counts[where] = answer["files"]
    return counts


def our_slices(path: Path, where: str) -> int:
    """Return the number of file slices in our plan of a query."""
    plan = mdt.open(path).scan(where).plan
    return len(plan.snapshot.files.take(["file_id"], plan.files)["file_id"].unique())


def spoil(path: Path, file: Path, table: mdt.Table) -> None:
    """Replace a log file by entries whose bounds exclude all rows from the filter ``i = 130``."""
    names = [
        (str(file.relative_to(path).parent).strip("."), file.name)
        for file in path.glob("**/*.*")
        if file.relative_to(path).parts[0] != ".hoodie"
        and not file.name.endswith((".crc", "metadata"))
    ]
    keys = FileKeys.from_files([folder for folder, _ in names], [name for _, name in names])
    bound = pa.array([b"\x80" + bytes(7)] * len(names), pa.binary())
    count = pa.array([1] * len(names), pa.int64())
    zero = pa.array([0] * len(names), pa.int64())
    ranges = pa.table([bound, bound, count, zero, zero], schema=RANGES)
    form = FORMS[table.snapshot().definition.hudi_version]
    spoiled = hfile_entries.sort([entries(form, keys, "i", pa.int32(), ranges)])
    group = table_files.GROUPS[table_files.COLUMN_STATS]
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    file.write_bytes(group.log_file(spoiled, table.snapshot().last_instant))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("version", "partition_by"), [(6, ["city"]), (9, ["city"]), (9, [])], ids=str
)
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_hudi_reads_the_same_rows_with_our_statistics(tmp_path, kind, version, partition_by):
    draw = random.Random(kind)
    with HudiSession(tmp_path / "session") as hudi:
        path = tmp_path / "table"
        table = make(path, kind, version, partition_by)
        has_partitions = version == 9 and bool(partition_by)
        more = BY_PARTITION if has_partitions else {}
        hudi.create(path, version, kind, SKIPPING | keys_of(partition_by) | more)
        counts = compare(hudi, path)
        assert counts["i = 37"] < counts["_hoodie_commit_time > '2'"]
        require_hudi_to_skip_slices(path, counts)
        require_all_rows_of_binary_filters(
            hudi, path, has_bounds=version == 9 and not has_partitions
        )
        for step in range(12):
            change(table, step, draw)
            if step % 2:
                compare(hudi, path, SOME)
        require_hudi_to_skip_slices(path, compare(hudi, path))
        require_use_of_statistics(hudi, path, table)
        require_skipping_with_a_new_column(hudi, path, table)
        write_with_hudi_and_mdt(hudi, path)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_hudi_finds_rows_in_files_with_nan_after_its_own_writes(tmp_path):
    """Hudi derives bounds of a partition from its files with bounds. None of ours has bounds."""
    with HudiSession(tmp_path / "session") as hudi:
        path = tmp_path / "table"
        table = make(path, "COPY_ON_WRITE", 9, ["city"])
        table.insert(nans(range(COUNT, COUNT + 20), 7))
        hudi.create(path, 9, "COPY_ON_WRITE", SKIPPING)
        filters = [f"{where} = {n}" for where in ("i", "cost * 4") for n in (123, 126, 129)]
        compare(hudi, path, filters)
        for ts in (50, 51):
            merge(hudi, path, ts)
            compare(hudi, path, filters)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", FORMS)
def test_hudi_finds_rows_after_it_compacts_our_metadata_table(tmp_path, version):
    """Hudi's first write compacts the metadata table, with the schema of our newest instant."""
    with HudiSession(tmp_path / "session") as hudi:
        path = tmp_path / "table"
        table = make(path, "COPY_ON_WRITE", version, ["city"])
        for ts in range(10, 13):
            table.upsert(rows([1], ts))
        hudi.create(path, version, "COPY_ON_WRITE", SKIPPING)
        for ts in (50, 51):
            merge(hudi, path, ts)
            assert list(path.glob(".hoodie/metadata/.hoodie/**/*.compaction.requested"))
            counts = compare(hudi, path, ["i = 33", "i = 70", "i > 100"])
            assert max(counts.values()) < 18, "Hudi reads all file slices"


def merge(hudi: HudiSession, path: Path, ts: int) -> None:
    """Let Hudi's writer update a row of the first files."""
    hudi.call(
        path,
        "sql",
        f"merge into {{t}} t using (select 'k033' as id, 'oslo' as city, {ts}L as ts) s"
        " on t.id = s.id when matched then update set t.id = s.id, t.city = s.city, t.ts = s.ts",
        **SKIPPING,
    )


def keys_of(partition_by: Sequence[str]) -> dict[str, str]:
    """Return the options of Hudi's writer for the partition columns."""
    if partition_by:
        return {}
    return {
        "hoodie.datasource.write.partitionpath.field": "",
        "hoodie.datasource.write.keygenerator.class": (
            "org.apache.hudi.keygen.NonpartitionedKeyGenerator"
        ),
    }


def require_all_rows_of_binary_filters(hudi: HudiSession, path: Path, *, has_bounds: bool) -> None:
    """With bounds of version 9, Hudi must read all files if it cannot use an index. This is its
    default.
    """
    if not has_bounds:
        compare(hudi, path, BINARY)
        return
    expected = json.loads(hudi.call(path, "matches", list(BINARY)))
    for where, keys in zip(BINARY, expected, strict=True):
        with pytest.raises(Refused, match="HeapByteBuffer"):
            hudi.call(path, "query", where, **SKIPPING)
        answer = json.loads(hudi.call(path, "query", where, mode="fallback", **SKIPPING))
        assert answer["keys"] == keys, where


def require_hudi_to_skip_slices(path: Path, counts: dict[str, int]) -> None:
    """Assert that Hudi reads at most as many slices as our plan and those with NaN."""
    for where in OURS:
        assert counts[where] <= our_slices(path, where) + NAN_FILES, where


def require_use_of_statistics(hudi: HudiSession, path: Path, table: mdt.Table) -> None:
    """Assert that wrong entries hide a row in a new file. Wrong bounds of older files have no
    effect, because Hudi merges them with the right ones.
    """
    table.insert(rows([130], 100))
    files = (path / FOLDER).glob(".col-stats-0000-0_*.log.*-0")
    file = max(files, key=lambda f: int(f.name.rsplit("-", 2)[1]))
    before = file.read_bytes()
    spoil(path, file, table)
    [keys] = json.loads(hudi.call(path, "matches", ["i = 130"]))
    answer = json.loads(hudi.call(path, "query", "i = 130", **SKIPPING))
    assert keys and not answer["keys"]
    assert not table.check().ok
    file.write_bytes(before)
    compare(hudi, path, ["i = 130"])
    assert table.check().ok


def require_skipping_with_a_new_column(hudi: HudiSession, path: Path, table: mdt.Table) -> None:
    """Add a column. Assert that Hudi skips older files, whose values of this column are null."""
    table.alter(add={"extra": pa.int32()})
    table.upsert(rows(range(50, 60), 200, WITH_EXTRA, extra=7))
    filters = ["extra = 7", "extra is null", "extra > 7 or i = 3", "extra is not null and i > 55"]
    counts = compare(hudi, path, [*filters, *SOME])
    for where in filters:
        assert counts[where] <= our_slices(path, where) + NAN_FILES, where
    assert table.check().ok


def indexed_columns(path: Path) -> set[str]:
    """Return the columns in Hudi's definition of the column statistics."""
    definitions = json.loads((path / DEFINITIONS).read_text())["indexDefinitions"]
    return set(definitions["column_stats"]["sourceFields"])


def write_with_hudi_and_mdt(hudi: HudiSession, path: Path) -> None:
    """Let Hudi update the table and its column statistics, and then mdt. Compare filters."""
    before = indexed_columns(path)
    for ts in (1000, 1001, 1002):
        hudi.call(
            path,
            "sql",
            f"merge into {{t}} t using (select 'k03{ts % 10}' as id, 'rome' as city, {ts}L as ts,"
            f" {ts} as i, 5 as extra) s on t.id = s.id when matched then update set"
            " t.id = s.id, t.city = s.city, t.ts = s.ts, t.i = s.i, t.extra = s.extra",
            **SKIPPING,
        )
        compare(hudi, path, [*AFTER_HUDI, f"i = {ts}", "extra = 5 and i > 1000"])
    assert indexed_columns(path) == before
    table = mdt.open(path)
    table.upsert(rows([5], 2000, WITH_EXTRA, extra=1))
    compare(hudi, path, AFTER_HUDI)
