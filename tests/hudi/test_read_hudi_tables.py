"""Tables written by Apache Hudi: the slices and rows are those that hudi-rs finds, now and at each
instant.
"""

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
"""Columns of numbers from which the timestamp key generator makes partition folders."""
pytestmark = pytest.mark.skipif(not ZIPS, reason=f"no fixtures in {FIXTURES}")
EVERY_TABLE = pytest.mark.parametrize(
    "path", ZIPS, ids=[f"{path.parent.name}-{path.stem}" for path in ZIPS]
)


def found(slices: list[FileSlice]) -> list[object]:
    rows: list[object] = []
    for one in slices:
        base = one.base.name if one.base else ""
        files = [*([one.base] if one.base else []), *one.logs]
        sizes = [file.size for file in files]
        rows.append((one.partition, one.file_id, base, [file.name for file in one.logs], sizes))
    return rows


def of_hudi_rs(
    folder: Path, version: int, at: str, sizes: dict[str, dict[str, int]]
) -> list[object]:
    """Return the slices that hudi-rs finds.

    From version 8 on, it lists log files that are later than ``at``, and skips their blocks.
    """
    table = HudiTable(str(folder))
    rows: list[object] = []
    for one in table.get_file_slices(HudiReadOptions().with_as_of_timestamp(at) if at else None):
        base = one.base_file_name or ""
        logs = one.log_file_names
        if at and version >= 8:
            logs = [name for name in logs if name.split("_")[1].partition(".")[0] <= at]
        of_partition = sizes[one.partition_path]
        files = [of_partition[name] for name in ([base] if base else []) + logs]
        rows.append((one.partition_path, one.file_id, base, logs, files))
    return sorted(rows)


@EVERY_TABLE
def test_slices_are_those_of_hudi_rs_at_every_instant(path, tmp_path):
    folder = unpacked(path, tmp_path)
    storage = LocalStorage(str(folder))
    table = loading.load_properties(storage)
    table_properties.refuse(table)
    sizes = loading.load_files(storage)
    writes = loading.load_timeline(storage, table).writes()
    assert bool(writes) == bool(sizes)
    for at in ["", *(write.time for write in writes)]:
        state = load_state(storage, table, at=at)
        assert found(state.slices) == of_hudi_rs(folder, table.version, at, sizes), at


def as_rows(table: pa.Table) -> list[list[object]]:
    return sorted(map(list, zip(*(column.to_pylist() for column in table), strict=True)), key=repr)


@EVERY_TABLE
def test_rows_are_those_of_hudi_rs_at_every_instant(path, tmp_path):
    folder = unpacked(path, tmp_path)
    storage = LocalStorage(str(folder))
    table = loading.load_properties(storage)
    writes = loading.load_timeline(storage, table).writes()
    for at in ["", *(write.time for write in writes)]:
        state = load_state(storage, table, at=at)
        schema = load_schema(storage, state)
        parts = [slice_rows(storage, state, one, schema) for one in state.slices]
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
            # hudi-rs gives the partition's folder instead of the column of the file
            place = rows.schema.get_field_index(name)
            rows, expected = rows.remove_column(place), expected.remove_column(place)
        assert rows.schema.types == expected.schema.types
        assert as_rows(rows) == as_rows(expected), at


@EVERY_TABLE
def test_every_instant_is_understood(path, tmp_path):
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
