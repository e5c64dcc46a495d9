"""File slices of our log compared with those of Hudi's timeline."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa

from mdt.hudi.read.file_slices import DataFile, FileSlice
from mdt.importing.imported_steps import changed_groups, placed_slices
from mdt.metadata.files.file_group import BASE, LOG
from mdt.parquet.segment import slice_instant

ID = "11111111-2222-4333-8444-555555555555-0"
BASE_FILE = DataFile(f"{ID}_0-1-2_20260102000000000.parquet", 100, "20260102000000000")
LOG_FILE = DataFile(f".{ID}_20260102000000000.log.1_0-1-3", 50, "20260102000000000")


def test_a_slice_has_its_base_file_even_if_its_log_files_were_imported_before():
    """In version 6, log files are written before the base file of a compaction that is pending.
    They are imported with the slice before, and are kept when the compaction completes.
    """
    log = file(LOG_FILE, LOG, "20260101000000000", segment=7)
    base = file(BASE_FILE, BASE, "20260102000000000", segment=9)
    files = pa.Table.from_pylist([log, base])
    snapshot = SimpleNamespace(
        live_numbers=np.arange(2),
        files=SimpleNamespace(take=lambda names, numbers: files.select(names)),
        vector=lambda number: None,
    )
    theirs = FileSlice("city=x", ID, "20260102000000000", BASE_FILE, (LOG_FILE,))
    assert changed_groups(placed_slices(snapshot), [theirs], all_change=False) == []
    other = FileSlice("city=x", ID, "20260102000000000", BASE_FILE, ())
    assert changed_groups(placed_slices(snapshot), [other], all_change=False) == [("city=x", ID)]


def test_the_instant_of_a_group_is_that_of_its_newest_file_slice():
    log = SimpleNamespace(base_instant="20260101000000000")
    base = SimpleNamespace(base_instant="20260102000000000")
    assert slice_instant([log, base]) == "20260102000000000"
    assert slice_instant([base, log]) == "20260102000000000"


def file(data_file, kind, base_instant, segment):
    return {
        "partition": "city=x",
        "file_id": ID,
        "segment": segment,
        "name": data_file.name,
        "kind": kind,
        "base_instant": base_instant,
        "instant": data_file.instant,
        "log_version": int(kind == LOG),
        "size": data_file.size,
        "rows": 0,
        "block_offset": 0,
        "block_length": 0,
    }
