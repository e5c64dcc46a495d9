"""Alterations that rewrite all rows, so that every reader applies them."""

from __future__ import annotations

from decimal import Decimal
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from delta_tables import others_rows as delta_rows
from iceberg_tables import others_rows as iceberg_rows
from pooled import Pool
from reader import agreed, bag
from worlds import COW, MOR

import mdt
from mdt.metadata.files.file_group import LOG
from mdt.services.history.altering import Alter
from mdt.stores.storage import LocalStorage, MemoryStorage
from mdt.write import large_files

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("n", pa.int32()),
        ("d", pa.decimal128(6, 2)),
        ("day", pa.date32()),
        ("note", pa.string()),
        ("s", pa.struct([("a", pa.int32()), ("b", pa.string())])),
    ]
)
ALL = ["hudi", "delta", "iceberg"]
OFF = {"mdt.services.auto": "false", "mdt.formats.retain.hours": 0}
CHANGES = {
    "rename": {"rename": {"note": "remark", "s.b": "letter"}},
    "widen": {"widen": {"n": "int64", "d": "decimal(9, 2)", "s.a": "int64"}},
    "date": {"widen": {"day": pa.timestamp("us")}},
    "default": {"add": {"more": "int64", "s.c": "string"}, "defaults": {"more": 7, "s.c": "c"}},
    "all": {
        "drop": ["d", "day"],
        "rename": {"note": "d"},
        "add": {"note": "double"},
        "widen": {"n": "double"},
        "reorder": ["ts", "id"],
    },
}
"""Changes that readers of older files would read incorrectly or fail on."""

each_change = pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
each_kind = pytest.mark.parametrize("kind", [MOR, COW])
each_version = pytest.mark.parametrize("version", [6, 9])


def rows(numbers, ts):
    return [
        {
            "id": f"k{n}",
            "city": "xy"[n % 2],
            "ts": ts,
            "n": n,
            "d": Decimal(n) / 4,
            "day": 20_000 + n,
            "note": f"note {n % 5}",
            "s": {"a": n, "b": f"b{n}"} if n % 3 else None,
        }
        for n in numbers
    ]


def create_filled_table(path, kind, *, formats=("hudi",), **options):
    """Return a table with log files or deletion vectors in both of its partitions."""
    table = mdt.create(
        LocalStorage(path, durable=False),
        SCHEMA,
        ["id"],
        table_type=kind,
        partition_by=["city"],
        ordering="ts",
        key_index="record",
        indexes=["bitmap(note)", "column_stats(n)"],
        formats=list(formats),
        options={**OFF, **options},
    )
    return fill(table)


def fill(table):
    table.upsert(rows(range(20), 1))
    table.upsert(rows(range(5, 9), 2))
    table.delete([{"id": "k3", "city": "y", "ts": 2}])
    return table


def expected_rows(table, change):
    """Return the rows that ``table`` should have after a change, from an altered copy in memory."""
    copy = fill(
        mdt.create(
            MemoryStorage(),
            SCHEMA,
            ["id"],
            table_type=table.definition.table_type,
            partition_by=["city"],
            ordering="ts",
            options=OFF,
        )
    )
    assert bag(copy.scan().to_arrow()) == bag(table.scan().to_arrow())
    copy.alter(**change, beyond_hudi=True)
    return copy.scan().to_arrow()


def log_files(table):
    snapshot = table.metadata.newest()
    live = snapshot.live_numbers
    return int((snapshot.kind[live] == LOG).sum())


def assert_formats_read(table, seq=None):
    """Assert that readers of Delta and Iceberg read the rows of ``table``."""
    expected, path = table.scan(as_of=seq), table.path.removeprefix("file://")
    rows_by_reader = [
        *delta_rows(path, expected.schema, seq),
        *iceberg_rows(path, expected.schema, seq),
    ]
    assert {name for name, _ in rows_by_reader} == {"delta-rs", "polars", "pyiceberg"}
    for name, rows_read in rows_by_reader:
        assert bag(rows_read) == bag(expected.to_arrow()), name


@each_change
@each_kind
@each_version
def test_hudis_readers_apply_every_change_after_a_rewrite(tmp_path, kind, version, change):
    table = create_filled_table(tmp_path, kind, **{"mdt.table.version": version})
    expected, before = expected_rows(table, change), table.snapshot().seq
    old_rows = table.scan().to_arrow()
    result = table.alter(**change, rewrite=True)
    assert result.files_written == 2 and not log_files(table)
    agreed(table, expected)
    assert bag(table.scan(as_of=before).to_arrow()) == bag(old_rows)
    assert not len(table.changes(before).to_arrow())
    table.upsert(table.scan("id in ('k1', 'k8')").to_arrow())
    table.delete([{"id": "k9", "city": "y", "ts": 9}])
    agreed(table, expected.filter(pc.field("id") != "k9"))
    table.compact()
    table.clean(retain_commits=1)
    agreed(table, expected.filter(pc.field("id") != "k9"))


@each_change
@each_kind
@pytest.mark.parametrize("is_added", [True, False])
def test_readers_of_other_formats_apply_every_change_after_a_rewrite(
    tmp_path, kind, change, is_added
):
    """The formats are added by the alteration or before it."""
    pytest.importorskip("deltalake")
    pytest.importorskip("pyiceberg")
    table = create_filled_table(tmp_path, kind, formats=["hudi"] if is_added else ALL)
    expected, before = expected_rows(table, change), table.snapshot().seq
    with pytest.raises(mdt.errors.Invalid, match="cannot have the format") as refused:
        table.alter(**change, formats=ALL, beyond_hudi=True)
    assert "rewrite=True" in refused.value.hint
    table.alter(**change, formats=ALL if is_added else None, rewrite=True)
    agreed(table, expected)
    assert_formats_read(table)
    if not is_added:
        assert_formats_read(table, before)
    table.upsert(table.scan("id in ('k1', 'k8')").to_arrow())
    assert_formats_read(table)
    table.restore(table.snapshot().seq - 1)
    assert_formats_read(table)
    assert table.check().ok


def test_formats_are_added_by_a_rewrite_to_a_table_with_log_files_and_renamed_columns(tmp_path):
    table = create_filled_table(tmp_path, MOR)
    table.alter(rename={"note": "remark"}, beyond_hudi=True)
    assert log_files(table)
    table.alter(formats=ALL, rewrite=True)
    agreed(table)
    assert_formats_read(table)


def test_a_rewrite_applies_changed_options_to_all_files(tmp_path):
    table = create_filled_table(tmp_path, COW)
    table.alter(options={"mdt.compression": "zstd"}, rewrite=True)
    files = [tmp_path / row["partition"] / row["name"] for row in table.files().to_pylist()]
    columns = [pq.read_metadata(file).row_group(0).column(7) for file in files]
    assert {column.compression for column in columns} == {"ZSTD"}
    agreed(table)


def test_an_alteration_without_effect_and_a_dry_run_write_nothing(tmp_path):
    table = create_filled_table(tmp_path, MOR)
    before = table.snapshot().seq
    assert table.alter(reorder=["id"], rewrite=True).files_written == 0
    assert table.snapshot().seq == before
    planned = table.alter(rename={"note": "remark"}, rewrite=True, dry_run=True)
    assert planned.files_written and table.snapshot().seq == before


def test_indexes_cover_the_rewritten_rows(tmp_path):
    table = create_filled_table(tmp_path, COW)
    table.alter(rename={"note": "remark"}, widen={"n": "int64"}, rewrite=True)
    assert table.definition.indexes == ("column_stats/1(n)", "bitmap/1(remark)")
    assert set(table.indexes()["coverage"].to_pylist()) == {100.0}
    all_rows = table.scan().to_arrow()
    for where, test in (
        ("remark = 'note 3'", pc.field("remark") == "note 3"),
        ("n > 17", pc.field("n") > 17),
    ):
        assert bag(table.scan(where).to_arrow()) == bag(all_rows.filter(test))
    agreed(table)


def test_large_files_are_converted_too(tmp_path):
    table = create_filled_table(tmp_path, COW)
    expected = expected_rows(table, CHANGES["all"])
    with patch.object(large_files, "is_large", lambda *_: True):
        table.alter(**CHANGES["all"], rewrite=True)
    agreed(table, expected)


def test_tasks_of_an_engine_write_the_rows(tmp_path):
    table = create_filled_table(tmp_path, MOR)
    expected = expected_rows(table, CHANGES["all"])
    options = {"mdt.compression": "zstd"}
    result = table.alter(**CHANGES["all"], options=options, rewrite=True, spark=Pool())
    assert result.engine == "processes"
    agreed(table, expected)


def test_statistics_are_named_by_the_commit_that_succeeds_after_a_conflict(tmp_path):
    """Statistics of a new column with the name of a dropped one are named by their commit."""
    table = create_filled_table(tmp_path, COW)
    original, other_writer = Alter.write, mdt.open(table.storage)

    def write_after_another_commit(operation, *arguments):
        changes = original(operation, *arguments)
        if not len(other_writer.tags()):
            other_writer.tag("between")
        return changes

    with patch.object(Alter, "write", write_after_another_commit):
        result = table.alter(drop=["note"], add={"note": "string"}, rewrite=True)
    assert result.attempts == 2 and len(table.tags()) == 1
    agreed(table)
