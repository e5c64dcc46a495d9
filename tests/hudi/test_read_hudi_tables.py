"""Tables of Apache Hudi: slices and rows equal those of hudi-rs, now and at each instant."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hudi import HudiReadOptions, HudiTable
from hudi_tables import FIXTURES, ZIPS, unpacked

from mdt.hudi.read import loading, service_metadata, table_properties
from mdt.hudi.read.file_slices import FileSlice
from mdt.hudi.read.slice_rows import slice_rows
from mdt.hudi.read.table_schema import load_schema
from mdt.hudi.read.table_state import load_state
from mdt.hudi.timeline import REQUESTED
from mdt.stores.storage import LocalStorage

NUMERIC_PARTITIONS = {"ts_millis", "ts_epoch"}
"""Numeric columns whose values the timestamp key generator formats as partition folders."""
pytestmark = pytest.mark.skipif(not ZIPS, reason=f"no fixtures in {FIXTURES}")
EVERY_TABLE = pytest.mark.parametrize(
    "path", ZIPS, ids=[f"{path.parent.name}-{path.stem}" for path in ZIPS]
)


def describe(slices: list[FileSlice]) -> list[object]:
    rows: list[object] = []
    for file_slice in slices:
        base = file_slice.base.name if file_slice.base else ""
        files = [*([file_slice.base] if file_slice.base else []), *file_slice.logs]
        sizes = [file.size for file in files]
        rows.append(
            (
                file_slice.partition,
                file_slice.file_id,
                base,
                [file.name for file in file_slice.logs],
                sizes,
            )
        )
    return rows


def slices_of_hudi_rs(
    folder: Path, version: int, at: str, sizes: dict[str, dict[str, int]]
) -> list[object]:
    """Return the slices that hudi-rs finds.

    From version 8 on, it lists log files that are later than ``at``, and skips their blocks.
    """
    table = HudiTable(str(folder))
    rows: list[object] = []
    for file_slice in table.get_file_slices(
        HudiReadOptions().with_as_of_timestamp(at) if at else None
    ):
        base = file_slice.base_file_name or ""
        logs = file_slice.log_file_names
        if at and version >= 8:
            logs = [name for name in logs if name.split("_")[1].partition(".")[0] <= at]
        partition_sizes = sizes[file_slice.partition_path]
        files = [partition_sizes[name] for name in ([base] if base else []) + logs]
        rows.append((file_slice.partition_path, file_slice.file_id, base, logs, files))
    return sorted(rows)


@EVERY_TABLE
def test_slices_equal_those_of_hudi_rs_at_every_instant(path, tmp_path):
    folder = unpacked(path, tmp_path)
    storage = LocalStorage(str(folder))
    table = loading.load_properties(storage)
    table_properties.refuse(table)
    sizes = loading.load_files(storage)
    writes = loading.load_timeline(storage, table).writes()
    assert bool(writes) == bool(sizes)
    for at in ["", *(write.time for write in writes)]:
        state = load_state(storage, table, at=at)
        assert describe(state.slices) == slices_of_hudi_rs(folder, table.version, at, sizes), at


def as_rows(table: pa.Table) -> list[list[object]]:
    return sorted(map(list, zip(*(column.to_pylist() for column in table), strict=True)), key=repr)


@EVERY_TABLE
def test_rows_equal_those_of_hudi_rs_at_every_instant(path, tmp_path):
    folder = unpacked(path, tmp_path)
    storage = LocalStorage(str(folder))
    table = loading.load_properties(storage)
    writes = loading.load_timeline(storage, table).writes()
    for at in ["", *(write.time for write in writes)]:
        state = load_state(storage, table, at=at)
        schema = load_schema(storage, state)
        parts = [slice_rows(storage, state, file_slice, schema) for file_slice in state.slices]
        rows = pa.concat_tables([schema.columns.empty_table(), *parts])
        batches = HudiTable(str(folder)).read(
            HudiReadOptions().with_as_of_timestamp(at) if at else None
        )
        if not batches:
            assert not len(rows)
            continue
        expected = pa.Table.from_batches([pa.record_batch(batch) for batch in batches])
        assert rows.schema.names == expected.schema.names
        for name in NUMERIC_PARTITIONS.intersection(rows.schema.names):
            # hudi-rs returns the partition's folder instead of the values in the file
            index = rows.schema.get_field_index(name)
            rows, expected = rows.remove_column(index), expected.remove_column(index)
        assert rows.schema.types == expected.schema.types
        assert as_rows(rows) == as_rows(expected), at


@EVERY_TABLE
def test_every_instant_is_parsed_and_names_existing_files(path, tmp_path):
    storage = LocalStorage(str(unpacked(path, tmp_path)))
    table = loading.load_properties(storage)
    timeline = loading.load_timeline(storage, table)
    sizes = loading.load_files(storage)
    listed = {info.path for info in storage.list_dir(table.timeline_folder)}
    assert {file.path for file in timeline.files} == listed - {table_properties.PATH}
    for write in timeline.writes():
        content = loading.load_commit(storage, write)
        assert content.schema_json and content.operation
        for file in content.files:
            name = file.path.rpartition("/")[2]
            assert sizes[file.partition][name] == file.size
    for file in timeline.of_action("compaction", REQUESTED):
        body = loading.load_body(storage, file)
        for partition, file_id in service_metadata.decode_compaction_plan(body, file.path):
            assert any(name.startswith(file_id) for name in sizes[partition])
