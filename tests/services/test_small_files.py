"""Small commits: inserts do not rewrite large files, log files and small files are merged
automatically, and the number of files is bounded.
"""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from reader import agreed
from texts import columns

import mdt
from mdt.metadata.files.file_group import BASE
from mdt.services import auto_maintenance
from mdt.services.layout import small_files
from mdt.services.layout.budget import OVERDUE
from mdt.stores.storage import MemoryStorage
from mdt.write import assign

SCHEMA = columns("id int64, x float64")
KINDS = [("MERGE_ON_READ", "bloom"), ("MERGE_ON_READ", "record"), ("COPY_ON_WRITE", "bloom")]


def rows(ids, x=0.0):
    return pa.table([pa.array(ids, pa.int64()), [x] * len(ids)], schema=SCHEMA)


def new_table(table_type, key_index, path=None, **options):
    storage = MemoryStorage() if path is None else path
    settings = {"mdt.durable": False, **options}
    return mdt.create(
        storage, SCHEMA, ["id"], table_type=table_type, key_index=key_index, options=settings
    )


def base_file_names(table):
    return {row["name"] for row in table.files().to_pylist() if row["kind"] == BASE}


@pytest.mark.parametrize("table_type, key_index", KINDS)
def test_an_insert_of_ten_rows_does_not_rewrite_a_base_file_of_ten_thousand(table_type, key_index):
    table = new_table(table_type, key_index, **{"mdt.compact.log.files": 100})
    table.bulk_insert(rows(range(10_000)))
    [large] = base_file_names(table)
    for first in range(10_000, 10_200, 10):
        table.insert(rows(range(first, first + 10)))
        assert large in base_file_names(table)
    assert len(table.files()) <= 21 and table.scan().count() == 10_200
    assert table.check().ok


def test_inserted_rows_are_added_to_a_file_that_is_rewritten_anyway():
    table = new_table("COPY_ON_WRITE", "bloom")
    table.bulk_insert(rows(range(10_000)))
    table.upsert(rows([5, *range(10_000, 10_010)], 1.0))
    assert len(table.files()) == 1 and table.scan().count() == 10_010


@pytest.mark.parametrize("key_index", ["bloom", "record"])
def test_a_file_group_with_many_log_files_is_compacted_automatically(key_index, tmp_path):
    table = new_table("MERGE_ON_READ", key_index, tmp_path / "t", **{"mdt.compact.log.files": 4})
    table.insert(rows(range(50)))
    for number in range(20):
        assert table.upsert(rows(range(3), number)).warnings == ()
        assert len(table.files()) <= 4
    assert Counter(table.history()["operation"].to_pylist())["compact"] == 5
    agreed(table)


@pytest.mark.parametrize("table_type, key_index", KINDS[::2])
def test_small_file_groups_are_merged_automatically(table_type, key_index, tmp_path, monkeypatch):
    monkeypatch.setattr(assign, "REWRITTEN_BYTES_MIN", 0)
    monkeypatch.setattr(assign, "REWRITTEN_TIMES_MAX", 0)
    table = new_table(table_type, key_index, tmp_path / "t")
    order = np.random.default_rng(1).permutation(60)
    for number in order.tolist():
        table.insert(rows(range(10 * number, 10 * number + 10), number))
        assert len(table.files()) <= 2 * small_files.JOINED_MIN
    assert Counter(table.history()["operation"].to_pylist())["cluster"] >= 7
    assert table.upsert(rows(range(600), 7.0)).updated == 600
    agreed(table, expected=rows(range(600), 7.0))


def test_small_files_are_not_merged_if_disabled_by_an_option():
    for options in ({"mdt.small.file.bytes": 0}, {"mdt.services.auto": False}):
        table = new_table("MERGE_ON_READ", "bloom", **options)
        for number in range(20):
            table.bulk_insert(rows(range(10 * number, 10 * number + 10)))
        table.insert(rows(range(500, 505)))
        assert len(table.files()) >= 20


def test_run_due_compacts_and_merges_all_files_that_are_due():
    table = new_table("MERGE_ON_READ", "record", **{"mdt.services.auto": False})
    table.insert(rows(range(50)))
    for number in range(20):
        table.upsert(rows(range(3), number))
    for first in range(100, 200, 10):
        table.bulk_insert(rows(range(first, first + 10)))
    assert len(table.files()) == 31
    for services in (("compact", "join"), ()):
        assert auto_maintenance.run_due(table.metadata, table.options) == (services, ())
        assert len(table.files()) <= 3
    assert table.check().ok


def live_files_max(table):
    """Return the bound on live files in a table without partitions, as documented in small_files."""
    size = sum(table.files()["size"].to_pylist())
    groups = small_files.JOINED_MIN * small_files.SIZES + size / small_files.small_bytes(
        table.options
    )
    return groups * (1 + small_files.LOGS_FACTOR * table.options.compact_log_files)


def many_commits(table, commits):
    """Upsert ten rows at a time, half of them new. Return the largest number of live files."""
    rng, most = np.random.default_rng(3), 0
    for number in range(commits):
        new = np.arange(5 * number, 5 * number + 5)
        ids = np.unique(np.concatenate([new, rng.integers(0, 5 * number + 1, 5)]))
        assert table.upsert(rows(ids, number)).warnings == ()
        most = max(most, len(table.snapshot()))
    assert table.scan().count() == 5 * commits
    return most


@pytest.mark.parametrize("table_type, key_index", KINDS)
def test_the_number_of_live_files_is_bounded_independently_of_commits(table_type, key_index):
    table = new_table(table_type, key_index, **{"mdt.max.file.bytes": 40_000})
    assert many_commits(table, 150) <= live_files_max(table)


@pytest.mark.parametrize("table_type, key_index", KINDS[1:])
def test_live_files_are_bounded_even_if_writes_leave_no_time_for_services(
    monkeypatch, table_type, key_index
):
    monkeypatch.setattr(auto_maintenance, "FREE_BYTES", 0)
    monkeypatch.setattr(auto_maintenance, "SPEED_BYTES", 0)
    table = new_table(table_type, key_index, **{"mdt.max.file.bytes": 40_000})
    assert many_commits(table, 300) <= OVERDUE * live_files_max(table)
    assert table.check().ok


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("table_type, key_index", KINDS)
def test_two_thousand_small_commits_leave_few_live_files(table_type, key_index):
    table = new_table(table_type, key_index)
    assert (
        many_commits(table, 2_000)
        <= 2 * table.options.compact_log_files + 2 * small_files.JOINED_MIN
    )
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(10_000))
