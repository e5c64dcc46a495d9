"""Rewrites indexes in the metadata table of a fixture, as a compaction does, with changes."""

import io
import json

import fastavro
from hfile_writer import GZIP, hfile

from mdt.hudi.delete_records import decode_delete_block
from mdt.hudi.log_file import DELETE
from mdt.hudi.metadata_table_files import index_group
from mdt.hudi.read import hfile as hfile_reader
from mdt.hudi.read.index_partition import group_numbers
from mdt.hudi.read.loading import load_properties, load_timeline
from mdt.hudi.read.metadata_state import (
    FOLDER,
    load_live_blocks,
    load_metadata_table,
    pending_instants,
)
from mdt.stores.storage import LocalStorage


def compact(
    folder,
    partition,
    change=None,
    *,
    rename=None,
):
    """Merge each file group of a partition into a base file, and return the base files.

    Args:
        change: Function that is applied to each record.
        rename: Key -> another key that replaces it, in the same file group.
    """
    storage = LocalStorage(str(folder))
    metadata = load_metadata_table(storage)
    assert metadata is not None
    data = load_timeline(storage, load_properties(storage))
    state = metadata.state(storage, partition)
    paths = []
    for file_slice in state.slices:
        files = [file_slice.base] if file_slice.base else []
        entries = {}
        schema = b""
        for base in files:
            path = f"{FOLDER}/{file_slice.path(base)}"
            schema = _add(entries, hfile_reader.open_object(storage, path, base.size)) or schema
        for block in load_live_blocks(storage, state, file_slice, pending_instants(data)):
            if block.block.kind == DELETE:
                for key in decode_delete_block(block.block.content)["key"].to_pylist():
                    entries.pop(key.encode(), None)
            else:
                file = hfile_reader.open_bytes(block.block.content, block.path)
                schema = _add(entries, file) or schema
        if change is not None and entries:
            entries = _change_records(entries, schema, change)
        for old, new in (rename or {}).items():
            if old.encode() in entries:
                entries[new.encode()] = entries.pop(old.encode())
        for file in (*files, *file_slice.logs):
            (folder / FOLDER / file_slice.path(file)).unlink()
        instant = file_slice.base.instant if file_slice.base else file_slice.logs[-1].instant
        name = f"{file_slice.file_id}_0-1-1_{instant}.hfile"
        paths.append(folder / FOLDER / partition / name)
        paths[-1].write_bytes(hfile(sorted(entries.items()), info={"schema": schema}, codec=GZIP))
    return paths


def part_record_index(folder):
    """Turn the record index of a table into a partitioned one, with two file groups per
    partition.
    """
    groups, schema = {}, b""
    for path in compact(folder, "record_index"):
        entries, records = {}, {}
        schema = _add(entries, hfile_reader.open_bytes(path.read_bytes(), str(path))) or schema
        _change_records(entries, schema, records.setdefault)
        instant = path.stem.rpartition("_")[2]
        for key, record in records.items():
            file_id = index_group(record["recordIndexMetadata"][1]["partitionName"]).file_id
            names = [f"{file_id[:-6]}{number:04}-0_0-1-1_{instant}.hfile" for number in (0, 1)]
            for name in names:
                groups.setdefault(name, {})
            groups[names[group_numbers([key], 2)[0]]][key.encode()] = entries[key.encode()]
    for older in (folder / FOLDER / "record_index").glob("*record-index*"):
        older.unlink()
    for name, entries in groups.items():
        content = hfile(sorted(entries.items()), info={"schema": schema}, codec=GZIP)
        (folder / FOLDER / "record_index" / name).write_bytes(content)


def _add(entries, file):
    batch = file.all()
    entries |= zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)
    return file.info.get("schema", b"")


def _change_records(entries, schema, change):
    parsed = fastavro.parse_schema(json.loads(schema))
    changed = {}
    for key, value in entries.items():
        record = fastavro.schemaless_reader(
            io.BytesIO(value), parsed, None, return_record_name=True
        )
        record = change(key.decode(), record)
        if record is not None:
            out = io.BytesIO()
            fastavro.schemaless_writer(out, parsed, record)
            changed[key] = out.getvalue()
    return changed
