"""What a write costs: results count files and bytes, which follow the rows that change, and a dry
run tells them before.
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
"""Of a commit with one data file: Hudi's instants, the record, footers."""
ROW_BYTES = 150
"""Of a changed row, its key map entry and log block included; a row of the base file has 30."""


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
    made = mdt.create(tmp_path / "t", SCHEMA, ["id"], ordering="ts", options=options)
    made.bulk_insert(rows(range(ROWS), 1000))
    return made


def size(table):
    return sum(
        path.stat().st_size
        for path in Path(table.path.removeprefix("file://")).rglob("*")
        if path.is_file()
    )


def star(table, data):
    return table.merge(data).when_matched().update("*")


SMALL = {
    "insert": lambda t, ids, how: t.insert(rows(np.array(ids) + ROWS, 1)),
    "upsert": lambda t, ids, how: t.upsert(rows(ids, 2000), **how),
    "partial": lambda t, ids, how: t.upsert(
        rows(ids, 2000).select(["id", "fare"]), partial=True, **how
    ),
    "merge": lambda t, ids, how: star(t, rows(ids, 3000)).execute(**how),
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
def test_a_write_adds_bytes_by_the_rows_that_change_and_its_result_counts_them(
    table, operation, changed
):
    before = size(table)
    done = SMALL[operation](table, list(range(changed)), {})
    grown = size(table) - before
    assert done.inserted + done.updated + done.deleted == changed
    assert grown <= FIXED_BYTES + ROW_BYTES * changed
    assert (done.files_written, done.files_rewritten, done.warnings) == (1, 0, ())
    assert grown - FIXED_BYTES <= done.bytes_written <= grown


@pytest.mark.parametrize("operation", [name for name in SMALL if name != "insert"])
def test_a_dry_run_tells_what_a_write_would_do_and_writes_nothing(table, operation):
    before, seq = size(table), table.snapshot().seq
    told = SMALL[operation](table, list(range(500)), {"dry_run": True})
    assert (size(table), table.snapshot().seq, told.seq, told.instant) == (before, seq, seq, "")
    done = SMALL[operation](table, list(range(500)), {})
    same = ("inserted", "updated", "deleted", "late", "missing", "files_written")
    assert [getattr(told, name) for name in same] == [getattr(done, name) for name in same]
    if operation != "update_where, larger":  # whether values fall is known when they are made
        assert (
            told.files_rewritten == 0 and told.bytes_written <= 5 * done.bytes_written + FIXED_BYTES
        )


FALLING = {
    "merge": lambda t, ids, how: star(t, rows(ids, 10)).execute(**how),
    "update_where": lambda t, ids, how: t.update_where(
        {"ts": "ts - 1"}, f"id < 'id_{len(ids):09d}'", **how
    ),
}


@pytest.mark.parametrize("operation", FALLING)
def test_rewriting_for_smaller_ordering_values_is_told_before_and_after_and_logged(
    table, operation, caplog
):
    told = FALLING[operation](table, list(range(10)), {"dry_run": True})
    before = size(table)
    with caplog.at_level(logging.WARNING, logger="mdt.commit"):
        done = FALLING[operation](table, list(range(10)), {})
    [warning] = done.warnings
    assert (
        re.search(r"base files were rewritten \(1, [0-9.]+ [KM]iB in total\)", warning)
        and "the ordering field 'ts' of existing rows decreased" in warning
    )
    assert warning in caplog.text
    assert (
        (done.files_written, done.files_rewritten)
        == (1, 1)
        == (told.files_written, told.files_rewritten)
    )
    assert done.bytes_written * 0.8 <= told.bytes_written <= done.bytes_written * 1.25
    assert size(table) - before - FIXED_BYTES <= done.bytes_written <= size(table) - before


def test_keys_that_come_back_write_their_file_groups_anew_and_the_result_says_so(
    table,
):
    table.delete(rows(range(3), 1)["id"])
    done = table.upsert(rows(range(3), 5000))
    assert done.files_rewritten == 1 and "deleted keys were inserted again" in done.warnings[0]


def test_larger_ordering_values_set_by_a_condition_go_into_log_files_that_other_readers_prefer(
    table,
):
    done = table.update_where({"ts": "ts + 1", "fare": "0.0"}, "id < 'id_000000100'")
    assert (done.updated, done.files_rewritten) == (100, 0)
    mixed = table.update_where(
        {"ts": "case when id < 'id_000000050' then ts - 1 else ts + 1 end"}, "id < 'id_000000100'"
    )
    assert (mixed.updated, mixed.files_rewritten) == (100, 1)
    path = table.path.removeprefix("file://")
    assert bag(hudi_table(path, SCHEMA)) == bag(table.scan().to_arrow()) and table.check().ok


def test_evolve_alters_the_table_so_it_has_no_dry_run(table):
    with pytest.raises(Invalid, match="does not support dry_run"):
        table.upsert(rows([1], 1), evolve=True, dry_run=True)


def test_a_dry_run_of_a_batch_that_is_there_counts_nothing(table):
    table.once("s", 1).upsert(rows([1], 2000))
    told = table.once("s", 1).upsert(rows([1], 3000), dry_run=True)
    assert (told.updated, told.files_written, told.bytes_written) == (0, 0, 0)
    assert table.once("s", 2).upsert(rows([1], 3000), dry_run=True).updated == 1
    assert table.snapshot().streams.batches["s"][0] == 1
