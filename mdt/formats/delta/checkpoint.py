"""Checkpoints of a Delta log: all files of a version in a Parquet file.

They have no tombstones, which only the maintenance of other writers needs. Their footer has the
CRC-32 of the bytes before it, so that the next checkpoint follows only from one of ours. Source:
https://github.com/delta-io/delta/blob/master/PROTOCOL.md#checkpoints.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mdt.formats.data_files import DataFile
from mdt.formats.delta.actions import add, table_actions
from mdt.parquet.footer import footer_length
from mdt.parquet.joined_files import footer_facts
from mdt.schema.definition import TableDefinition

_TEXTS = pa.map_(pa.string(), pa.string())
_LIST = pa.list_(pa.string())
_VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
_ADD = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", _TEXTS),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
        ("deletionVector", _VECTOR),
    ]
)
_PROTOCOL = pa.struct(
    [
        ("minReaderVersion", pa.int32()),
        ("minWriterVersion", pa.int32()),
        ("readerFeatures", _LIST),
        ("writerFeatures", _LIST),
    ]
)
_METADATA = pa.struct(
    [
        ("id", pa.string()),
        ("name", pa.string()),
        ("format", pa.struct([("provider", pa.string()), ("options", _TEXTS)])),
        ("schemaString", pa.string()),
        ("partitionColumns", _LIST),
        ("configuration", _TEXTS),
    ]
)
_SCHEMA = pa.schema([("protocol", _PROTOCOL), ("metaData", _METADATA), ("add", _ADD)])
_CRC = "mdt.crc"
"""Key of the footer entry with the CRC-32."""
_MAPS = ("partitionValues", "options", "configuration")


def checkpoint_bytes(files: Iterable[DataFile], definition: TableDefinition) -> bytes:
    """Return the checkpoint of a state with these files, as Parquet."""
    added = [add(file, definition, 0, False) for file in files]
    return _encoded(definition, added, _SCHEMA.empty_table())


def advanced_bytes(
    before: bytes, versions: Iterable[bytes], definition: TableDefinition
) -> bytes | None:
    """Return the checkpoint after the ``versions`` that follow the checkpoint ``before``, or None
    if that is damaged or of another program. O(files), without a Python object for each.
    """
    if not _is_intact(before):
        return None
    stored = pq.read_table(pa.BufferReader(before)).replace_schema_metadata()
    if not stored.schema.equals(_SCHEMA):
        return None
    changed: dict[str, dict[str, Any] | None] = {}
    for content in versions:
        for action in map(json.loads, content.splitlines()):
            if "remove" in action:
                changed[action["remove"]["path"]] = None
            if "add" in action:
                changed[action["add"]["path"]] = action["add"]
    added = [file for file in changed.values() if file is not None]
    for file in added:
        file |= {"modificationTime": 0, "dataChange": False}
    paths = pc.struct_field(stored["add"], "path")
    is_new = pc.is_in(paths, pa.array(list(changed), pa.string()))
    stays = pc.and_(paths.is_valid(), pc.invert(is_new))
    return _encoded(definition, added, stored.filter(stays))


def _encoded(
    definition: TableDefinition, added: Iterable[dict[str, Any]], others: pa.Table
) -> bytes:
    """Return the checkpoint with the files ``added`` and those of ``others``, schema _SCHEMA."""
    rows = [_pairs(action) for action in table_actions(definition)]
    rows += [_pairs({"add": file}) for file in added]
    table = pa.concat_tables([pa.Table.from_pylist(rows, _SCHEMA), others])
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({_CRC: str(zlib.crc32(sink.getbuffer()))})
    return sink.getvalue()


def _is_intact(checkpoint: bytes) -> bool:
    """Return True if the bytes before the footer have the CRC-32 in it."""
    start = len(checkpoint) - footer_length(pa.py_buffer(checkpoint))
    _, entries = footer_facts(checkpoint[start:])
    return entries.get(_CRC) == str(zlib.crc32(memoryview(checkpoint)[:start]))


def is_same_checkpoint(stored: bytes, expected: bytes) -> bool:
    """Return True if both checkpoints have the same columns and files. Another program may have
    put one, which is no commit.
    """
    try:
        return _facts(stored) == _facts(expected)
    except (pa.ArrowException, OSError, KeyError, TypeError):
        return False


def _facts(checkpoint: bytes) -> tuple[list[Any], list[Any]]:
    """Return the columns in a checkpoint, and its files by path."""
    rows = pq.read_table(pa.BufferReader(checkpoint), columns=["metaData", "add"]).to_pylist()
    tables = [row["metaData"] for row in rows if row["metaData"]]
    columns = [(table["schemaString"], table["partitionColumns"]) for table in tables]
    files = [row["add"] for row in rows if row["add"]]
    names = ("path", "size", "partitionValues", "deletionVector", "stats")
    facts = [[file.get(name) for name in names] for file in files]
    return columns, sorted(facts, key=lambda fact: str(fact[0]))


def pointer_bytes(version: int, checkpoint: bytes) -> bytes:
    """Return the pointer to the ``checkpoint`` of a version."""
    actions = pq.read_metadata(pa.BufferReader(checkpoint)).num_rows
    return json.dumps({"version": version, "size": actions}, separators=(",", ":")).encode()


def _pairs(value: Any) -> Any:
    """Return an action with its maps as lists of pairs, as Arrow takes them."""
    if not isinstance(value, Mapping):
        return value
    changed = {}
    for name, inner in value.items():
        changed[name] = list(inner.items()) if name in _MAPS else _pairs(inner)
    return changed
