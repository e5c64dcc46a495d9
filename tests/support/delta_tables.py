"""Delta's view of a table: through a reader of our own that follows the protocol, and through
delta-rs and polars if they are installed.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any
from urllib.parse import unquote
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap

from mdt.schema.convert import convert
from mdt.stores.storage import Storage

LOG = "_delta_log"
_CHECKPOINT = ".checkpoint.parquet"
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_BITMAP_AT = 16
"""Bytes of magic number, count and key before a single 32-bit bitmap."""
HAS_DELTA_RS = find_spec("deltalake") is not None

Actions = Mapping[str, Any]


def versions(storage: Storage) -> list[int]:
    """Return the versions in the log."""
    names = (info.path.rpartition("/")[2] for info in storage.list_dir(LOG))
    return sorted(int(name[:20]) for name in names if name.endswith(".json") and name[:1] == "0")


def newest_version(storage: Storage) -> int:
    """Return the newest version. Assert that none is missing since the newest checkpoint."""
    stored, names = versions(storage), [info.path for info in storage.list_dir(LOG)]
    checkpoints = [path for path in names if path.endswith(_CHECKPOINT)]
    first = max((int(path[len(LOG) + 1 :][:20]) for path in checkpoints), default=0)
    assert set(range(first, stored[-1] + 1)) <= set(stored), "versions are missing"
    return stored[-1]


def state(storage: Storage, version: int | None = None) -> tuple[dict[str, Any], list[Actions]]:
    """Return the metadata and the files of a version, by default the newest one."""
    last = newest_version(storage) if version is None else version
    metadata: dict[str, Any] = {}
    files: dict[tuple[str, str], Actions] = {}
    removed: set[tuple[str, str]] = set()
    for action in _actions(storage, last):
        if action.get("commitInfo"):
            removed.clear()
        if action.get("metaData"):
            metadata = action["metaData"]
        if action.get("remove"):
            key = _key(action["remove"])
            assert key in files, "a file is removed that does not exist"
            del files[key]
            removed.add(key)
        if action.get("add"):
            path = action["add"]["path"]
            assert path not in {name for name, _ in files}, "a file is listed twice"
            assert _key(action["add"]) not in removed, "a version removes and adds the same file"
            files[_key(action["add"])] = action["add"]
    return metadata, list(files.values())


def _actions(storage: Storage, last: int) -> Iterator[Actions]:
    names = {info.path.rpartition("/")[2] for info in storage.list_dir(LOG)}
    checkpoints = [int(n[:20]) for n in names if n.endswith(_CHECKPOINT)]
    first = max((n for n in checkpoints if n <= last), default=-1)
    if first >= 0:
        data = storage.read(f"{LOG}/{first:020d}.checkpoint.parquet")
        for row in pq.read_table(pa.BufferReader(data)).to_pylist():
            if row["add"] is not None:
                row["add"]["partitionValues"] = dict(row["add"]["partitionValues"])
            yield row
    for version in range(first + 1, last + 1):
        for line in storage.read(f"{LOG}/{version:020d}.json").splitlines():
            yield json.loads(line)


def _key(action: Actions) -> tuple[str, str]:
    vector = action.get("deletionVector")
    if vector is None:
        return action["path"], ""
    offset = vector.get("offset")
    return action["path"], f"{vector['storageType']}{vector['pathOrInlineDv']}@{offset}"


def delta_rows(storage: Storage, schema: pa.Schema, version: int | None = None) -> pa.Table:
    """Return the columns of ``schema`` as the protocol prescribes."""
    metadata, files = state(storage, version)
    names = [field["name"] for field in json.loads(metadata["schemaString"])["fields"]]
    assert names == schema.names
    parts = [schema.empty_table()]
    for file in files:
        data = storage.read(unquote(file["path"]))
        assert len(data) == file["size"]
        table = pq.read_table(pa.BufferReader(data), partitioning=None)
        assert table.num_rows == json.loads(file["stats"])["numRecords"]
        is_live = np.ones(len(table), bool)
        deleted = _deleted_rows(storage, file)
        assert len(deleted) < len(table), "a file without rows is listed"
        is_live[np.array(deleted, np.int64)] = False
        columns = [_column(table, field) for field in schema]
        rows = pa.table(columns, schema=schema)
        for name in metadata["partitionColumns"]:
            texts = {None if v is None else _text(v) for v in rows[name].to_pylist()}
            assert texts == {file["partitionValues"][name]}, "a partition value differs"
        parts.append(rows.filter(pa.array(is_live)))
    return pa.concat_tables(parts)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _column(table: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    if field.name not in table.column_names:
        return pa.chunked_array([pa.nulls(len(table), field.type)])
    return converted(table[field.name], field.type)


def converted(column: pa.ChunkedArray, type: pa.DataType) -> pa.ChunkedArray:
    """Return a column in the declared type."""
    return pa.chunked_array([convert(chunk, type) for chunk in column.chunks], type)


def _deleted_rows(storage: Storage, file: Actions) -> BitMap:
    vector = file.get("deletionVector")
    if vector is None:
        return BitMap()
    text, size = vector["pathOrInlineDv"], vector["sizeInBytes"]
    if vector["storageType"] == "i":
        data = _from_z85(text)[:size]
    else:
        assert vector["storageType"] == "u"
        folder, name = text[:-20], UUID(bytes=_from_z85(text[-20:]))
        content = storage.read(f"{folder}/deletion_vector_{name}.bin")
        at = vector["offset"]
        assert content[0] == 1 and struct.unpack_from(">I", content, at)[0] == size
        data = content[at + 4 : at + 4 + size]
        assert struct.unpack_from(">I", content, at + 4 + size)[0] == zlib.crc32(data)
    magic, count, key = struct.unpack_from("<iqI", data)
    assert (magic, count, key) == (1681511377, 1, 0)
    deleted = BitMap.deserialize(data[_BITMAP_AT:])
    assert len(deleted) == vector["cardinality"]
    return deleted


def _from_z85(text: str) -> bytes:
    return base64.b85decode(text.translate(str.maketrans(_Z85, _B85)))


def others_rows(
    path: Any, schema: pa.Schema, version: int | None = None
) -> Iterator[tuple[str, pa.Table]]:
    """Yield the name of each installed reader of Delta with the rows that it reads."""
    if not HAS_DELTA_RS:
        return
    import polars
    from deltalake import DeltaTable, QueryBuilder

    names = ", ".join(f'"{name}"' for name in schema.names)
    table = DeltaTable(str(path), version=version)
    read = QueryBuilder().register("t", table).execute(f"select {names} from t")
    yield "delta-rs", as_declared(pa.table(read), schema)
    read = polars.scan_delta(str(path), version=version).collect().to_arrow()
    yield "polars", as_declared(read, schema)


def as_declared(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows of another reader in the declared types. Assert that it has the same columns."""
    assert sorted(rows.column_names) == sorted(schema.names)
    columns = [converted(rows[field.name], field.type) for field in schema]
    return pa.table(columns, schema=schema)
