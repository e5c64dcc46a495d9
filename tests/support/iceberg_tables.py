"""Iceberg's view of a table: through a reader of our own that follows the specification, and
through pyiceberg if it is installed.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from io import BytesIO
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from delta_tables import converted
from pyroaring import BitMap

from mdt.stores.storage import Storage

FOLDER = "metadata"
HINT = f"{FOLDER}/version-hint.text"
HAS_PYICEBERG = find_spec("pyiceberg") is not None
_FIELD_ID = b"PARQUET:field_id"

Fields = Mapping[str, Any]


def metadata_of(storage: Storage, version: int) -> dict[str, Any]:
    """Return a metadata file."""
    metadata: dict[str, Any] = json.loads(storage.read(f"{FOLDER}/v{version}.metadata.json"))
    return metadata


def newest_version(storage: Storage) -> int:
    """Return the version that readers find. Assert that the hint, if any, names an existing
    version, and that no later version is missing.
    """
    names = (info.path.rpartition("/")[2] for info in storage.list_dir(FOLDER))
    versions = {
        int(name[1:].partition(".")[0])
        for name in names
        if name.startswith("v") and "." in name and name[1].isdigit()
    }
    stored = storage.read_if_exists(HINT)
    hint = max(versions) if stored is None else int(stored)
    assert hint in versions, "the hint names a missing version"
    assert set(range(hint, max(versions) + 1)) <= versions, "versions are missing"
    return max(versions)


def iceberg_rows(storage: Storage, schema: pa.Schema, seq: int | None = None) -> pa.Table:
    """Return the columns of ``schema`` of the newest snapshot, or of the snapshot of commit
    ``seq``.
    """
    metadata = metadata_of(storage, newest_version(storage))
    snapshot_id = metadata.get("current-snapshot-id") if seq is None else seq
    snapshots = {entry["snapshot-id"]: entry for entry in metadata["snapshots"]}
    check_metadata(metadata)
    if snapshot_id is None or (seq == 0 and not snapshots):
        return schema.empty_table()
    snapshot = snapshots[snapshot_id]
    [columns] = [s for s in metadata["schemas"] if s["schema-id"] == snapshot["schema-id"]]
    parts = [schema.empty_table()]
    for file, deleted in files_of(storage, metadata, snapshot):
        parts.append(_rows(storage, metadata, file, deleted, columns["fields"], schema))
    return pa.concat_tables(parts)


def check_metadata(metadata: Fields) -> None:
    """Assert the requirements of the specification for a metadata file."""
    assert metadata["format-version"] == 3
    assert metadata["properties"]["gc.enabled"] == "false"
    snapshots = metadata["snapshots"]
    numbers = [entry["sequence-number"] for entry in snapshots]
    assert numbers == sorted(set(numbers))
    assert metadata["last-sequence-number"] == max(numbers, default=0)
    times = [entry["timestamp-ms"] for entry in metadata["snapshot-log"]]
    assert times == sorted(times) and metadata["last-updated-ms"] >= max(times, default=0)
    next_row_id = 0
    for entry in snapshots:
        assert entry["first-row-id"] >= next_row_id
        next_row_id = entry["first-row-id"] + entry["added-rows"]
    assert metadata["next-row-id"] >= next_row_id
    schemas = {entry["schema-id"] for entry in metadata["schemas"]}
    assert metadata["current-schema-id"] in schemas
    assert {entry["schema-id"] for entry in snapshots} <= schemas


def files_of(
    storage: Storage, metadata: Fields, snapshot: Fields
) -> Iterator[tuple[Fields, BitMap]]:
    """Yield the live data files of a snapshot with the positions of deleted rows."""
    files, vectors = dict[str, Fields](), dict[str, tuple[int, Fields]]()
    row_ids = []
    for manifest in _avro(storage, metadata, snapshot["manifest-list"]):
        counts, offsets_by_file = dict.fromkeys((0, 1, 2), 0), dict[str, list[int]]()
        for entry in _avro(storage, metadata, manifest["manifest_path"]):
            counts[entry["status"]] += 1
            file = entry["data_file"]
            if entry["status"] == 2:
                assert not file["lower_bounds"] or file["content"], "bounds of a deleted file"
                continue
            assert file["content"] == manifest["content"]
            assert manifest["min_sequence_number"] <= entry["sequence_number"]
            if file["content"]:
                path = file["referenced_data_file"]
                assert path not in vectors, "two vectors of a data file"
                vectors[path] = entry["sequence_number"], file
                offsets_by_file.setdefault(file["file_path"], []).append(file["content_offset"])
            else:
                assert file["file_path"] not in files, "a file is listed twice"
                files[file["file_path"]] = {**file, "sequence": entry["sequence_number"]}
                row_ids.append((file["first_row_id"], file["record_count"]))
        names = ("existing", "added", "deleted")
        assert [manifest[f"{name}_files_count"] for name in names] == list(counts.values())
        ordered = all(offsets == sorted(offsets) for offsets in offsets_by_file.values())
        assert ordered, "vectors are in another order than in their Puffin file"
    assert vectors.keys() <= files.keys(), "the vector of a missing file"
    row_ids.sort()
    ends = [first + rows for first, rows in row_ids]
    assert all(end <= first for end, (first, _) in zip(ends, row_ids[1:], strict=False))
    assert max(ends, default=0) <= metadata["next-row-id"]
    for path, file in files.items():
        deleted = BitMap()
        if path in vectors:
            sequence, vector = vectors[path]
            assert sequence >= file["sequence"], "a vector is older than its file"
            assert vector["partition"] == file["partition"]
            deleted = _vector(storage, metadata, vector)
        assert len(deleted) < file["record_count"], "a file without rows is listed"
        yield file, deleted


def _relative(metadata: Fields, uri: str) -> str:
    location = metadata["location"]
    assert uri.startswith(f"{location}/")
    return uri[len(location) + 1 :]


def _avro(storage: Storage, metadata: Fields, uri: str) -> Sequence[Fields]:
    return list(fastavro.reader(BytesIO(storage.read(_relative(metadata, uri)))))  # type: ignore[arg-type]


def _vector(storage: Storage, metadata: Fields, file: Fields) -> BitMap:
    content = storage.read(_relative(metadata, file["file_path"]))
    assert file["file_format"] == "puffin" and len(content) == file["file_size_in_bytes"]
    assert content[:4] == content[-4:] == b"PFA1"
    size = struct.unpack("<i", content[-12:-8])[0]
    footer = json.loads(content[-12 - size : -12])
    assert content[-16 - size : -12 - size] == b"PFA1"
    span = {"offset": file["content_offset"], "length": file["content_size_in_bytes"]}
    [blob] = [candidate for candidate in footer["blobs"] if span.items() <= candidate.items()]
    path = file["referenced_data_file"]
    count = str(file["record_count"])
    assert blob["properties"] == {"referenced-data-file": path, "cardinality": count}
    data = content[span["offset"] :][: span["length"]]
    length, magic = struct.unpack_from(">I4s", data)
    assert magic == bytes.fromhex("d1d33964") and length + 8 == len(data)
    assert struct.unpack(">I", data[-4:])[0] == zlib.crc32(data[4:-4])
    bitmaps, key = struct.unpack_from("<QI", data, 8)
    assert (bitmaps, key) == (1, 0)
    deleted = BitMap.deserialize(data[20:-4])
    assert len(deleted) == file["record_count"]
    return deleted


def _rows(
    storage: Storage,
    metadata: Fields,
    file: Fields,
    deleted: BitMap,
    fields: Sequence[Fields],
    schema: pa.Schema,
) -> pa.Table:
    assert [field["name"] for field in fields] == schema.names
    data = storage.read(_relative(metadata, file["file_path"]))
    assert len(data) == file["file_size_in_bytes"]
    table = pq.read_table(pa.BufferReader(data), partitioning=None)
    assert table.num_rows == file["record_count"]
    ids = _positions(metadata, table.schema)
    columns = []
    for iceberg_field, field in zip(fields, schema, strict=True):
        if iceberg_field["id"] in ids:
            column = converted(table.column(ids[iceberg_field["id"]]), field.type)
        else:
            column = pa.chunked_array([pa.nulls(len(table), field.type)])
        columns.append(column)
    rows = pa.table(columns, schema=schema)
    [spec] = metadata["partition-specs"]
    for spec_field, value in zip(spec["fields"], file["partition"].values(), strict=True):
        assert set(rows[spec_field["name"]].to_pylist()) == {value}, "a partition value differs"
    is_live = np.ones(len(rows), bool)
    is_live[np.array(deleted, np.int64)] = False
    return rows.filter(pa.array(is_live))


def _positions(metadata: Fields, schema: pa.Schema) -> dict[int, int]:
    """Return field id -> position in a file. Files without ids use those of the name mapping."""
    if all(field.metadata and _FIELD_ID in field.metadata for field in schema):
        return {int(field.metadata[_FIELD_ID]): n for n, field in enumerate(schema)}
    mapping = json.loads(metadata["properties"]["schema.name-mapping.default"])
    ids = {name: entry["field-id"] for entry in mapping for name in entry["names"]}
    return {ids[field.name]: n for n, field in enumerate(schema) if field.name in ids}


def others_rows(
    path: Any, schema: pa.Schema, seq: int | None = None
) -> Iterator[tuple[str, pa.Table]]:
    """Yield the name of each installed reader of Iceberg with the rows that it reads."""
    if not HAS_PYICEBERG:
        return
    from pyiceberg.table import StaticTable

    read = StaticTable.from_metadata(str(path)).scan(snapshot_id=seq).to_arrow()
    assert read.column_names == schema.names
    columns = [converted(read[field.name], field.type) for field in schema]
    yield "pyiceberg", pa.table(columns, schema=schema)
