"""The cost of a write: results count files and bytes, the bytes grow with the number of changed
rows, and a dry run estimates them.
"""

import logging
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from reader import bag, hudi_table
from texts import columns

import mdt
from mdt.errors import Invalid

ROWS = 20_000
SCHEMA = columns("id string, ts int64, fare float64, note string")
FIXED_BYTES = 30_000
"""Bytes of a commit with one data file: Hudi's instants, the commit record and footers."""
ROW_BYTES = 150
"""Bytes of a changed row with its key map entry and log block. A row of the base file has 30."""


def rows(ids, ts):
    numbers = [int(i) for i in ids]
    fares = np.random.default_rng(ts).random(len(numbers))
    columns = [
        [f"id_{i:09d}" for i in numbers],
        [ts] * len(numbers),
        fares,
        [f"note {i % 977}" for i in numbers],
    ]
    return pa.table(columns, schema=SCHEMA)


@pytest.fixture
def table(tmp_path):
    options = {"mdt.services.auto": False, "mdt.durable": False}
    new_table = mdt.create(tmp_path / "t", SCHEMA, ["id"], ordering="ts", options=options)
    new_table.bulk_insert(rows(range(ROWS), 1000))
    return new_table


def bytes_stored(table):
    return sum(
        path.stat().st_size
        for path in Path(table.path.removeprefix("file://")).rglob("*")
        if path.is_file()
    )


def merge_all_columns(table, data):
    return table.merge(data).when_matched().update("*")


SMALL = {
    "insert": lambda t, ids, how: t.insert(rows(np.array(ids) + ROWS, 1)),
    "upsert": lambda t, ids, how: t.upsert(rows(ids, 2000), **how),
    "partial": lambda t, ids, how: t.upsert(
        rows(ids, 2000).select(["id", "fare"]), partial=True, **how
    ),
    "merge": lambda t, ids, how: merge_all_columns(t, rows(ids, 3000)).execute(**how),
    "merge of a column": (
        lambda t, ids, how: (
            t.merge(rows(ids, 1)).when_matched().update({"fare": "source.fare"}).execute(**how)
        )
    ),
    "update_where": lambda t, ids, how: t.update_where(
        {"fare": "fare + 1"}, f"id < 'id_{len(ids):09d}'", **how
    ),
    "update_where, larger": lambda t, ids, how: t.update_where(
        {"ts": "ts + 1"}, f"id < 'id_{len(ids):09d}'", **how
    ),
    "delete": lambda t, ids, how: t.delete(rows(ids, 1)["id"], **how),
    "delete_where": lambda t, ids, how: t.delete_where(f"id < 'id_{len(ids):09d}'", **how),
}


@pytest.mark.parametrize("changed", [1, 1000])
@pytest.mark.parametrize("operation", SMALL)
def test_a_write_stores_bytes_per_changed_row_and_its_result_counts_them(table, operation, changed):
    before = bytes_stored(table)
    result = SMALL[operation](table, list(range(changed)), {})
    bytes_added = bytes_stored(table) - before
    assert result.inserted + result.updated + result.deleted == changed
    assert bytes_added <= FIXED_BYTES + ROW_BYTES * changed
    assert (result.files_written, result.files_rewritten, result.warnings) == (1, 0, ())
    assert bytes_added - FIXED_BYTES <= result.bytes_written <= bytes_added


@pytest.mark.parametrize("operation", [name for name in SMALL if name != "insert"])
def test_a_dry_run_returns_the_counts_of_the_write_and_writes_nothing(table, operation):
    before, seq = bytes_stored(table), table.snapshot().seq
    estimate = SMALL[operation](table, list(range(500)), {"dry_run": True})
    assert (bytes_stored(table), table.snapshot().seq, estimate.seq, estimate.instant) == (
        before,
        seq,
        seq,
        "",
    )
    result = SMALL[operation](table, list(range(500)), {})
    fields = ("inserted", "updated", "deleted", "late", "missing", "files_written")
    assert [getattr(estimate, name) for name in fields] == [
        getattr(result, name) for name in fields
    ]
    if operation != "update_where, larger":  # decreases are known only after evaluation
        assert (
            estimate.files_rewritten == 0
            and estimate.bytes_written <= 5 * result.bytes_written + FIXED_BYTES
        )


DECREASING = {
    "merge": lambda t, ids, how: merge_all_columns(t, rows(ids, 10)).execute(**how),
    "update_where": lambda t, ids, how: t.update_where(
        {"ts": "ts - 1"}, f"id < 'id_{len(ids):09d}'", **how
    ),
}


@pytest.mark.parametrize("operation", DECREASING)
def test_a_rewrite_for_smaller_ordering_values_is_estimated_counted_and_logged(
    table, operation, caplog
):
    estimate = DECREASING[operation](table, list(range(10)), {"dry_run": True})
    before = bytes_stored(table)
    with caplog.at_level(logging.WARNING, logger="mdt.commit"):
        result = DECREASING[operation](table, list(range(10)), {})
    [warning] = result.warnings
    assert (
        re.search(r"base files were rewritten \(1, [0-9.]+ [KM]iB in total\)", warning)
        and "the ordering field 'ts' of existing rows decreased" in warning
    )
    assert warning in caplog.text
    assert (
        (result.files_written, result.files_rewritten)
        == (1, 1)
        == (estimate.files_written, estimate.files_rewritten)
    )
    assert result.bytes_written * 0.8 <= estimate.bytes_written <= result.bytes_written * 1.25
    assert (
        bytes_stored(table) - before - FIXED_BYTES
        <= result.bytes_written
        <= bytes_stored(table) - before
    )


def test_inserting_deleted_keys_rewrites_their_file_groups_and_warns(
    table,
):
    table.delete(rows(range(3), 1)["id"])
    result = table.upsert(rows(range(3), 5000))
    assert result.files_rewritten == 1 and "deleted keys were inserted again" in result.warnings[0]


def test_updates_with_larger_ordering_values_write_log_files_that_hudi_rs_applies(
    table,
):
    result = table.update_where({"ts": "ts + 1", "fare": "0.0"}, "id < 'id_000000100'")
    assert (result.updated, result.files_rewritten) == (100, 0)
    mixed = table.update_where(
        {"ts": "case when id < 'id_000000050' then ts - 1 else ts + 1 end"}, "id < 'id_000000100'"
    )
    assert (mixed.updated, mixed.files_rewritten) == (100, 1)
    path = table.path.removeprefix("file://")
    assert bag(hudi_table(path, SCHEMA)) == bag(table.scan().to_arrow()) and table.check().ok


def test_evolve_cannot_be_combined_with_a_dry_run(table):
    with pytest.raises(Invalid, match="does not support dry_run"):
        table.upsert(rows([1], 1), evolve=True, dry_run=True)


def test_a_dry_run_of_a_batch_that_is_already_committed_counts_nothing(table):
    table.once("s", 1).upsert(rows([1], 2000))
    estimate = table.once("s", 1).upsert(rows([1], 3000), dry_run=True)
    assert (estimate.updated, estimate.files_written, estimate.bytes_written) == (0, 0, 0)
    assert table.once("s", 2).upsert(rows([1], 3000), dry_run=True).updated == 1
    assert table.snapshot().streams.batches["s"][0] == 1
