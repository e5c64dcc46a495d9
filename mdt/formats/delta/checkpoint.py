"""Checkpoints of a Delta log: all files of a version in a Parquet file.

They have no tombstones, which only the maintenance of other writers needs. Their footer has the
CRC-32 of the bytes before it, so that the next checkpoint follows only from one of ours. Source:
https://github.com/delta-io/delta/blob/master/PROTOCOL.md#checkpoints.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mdt.formats.data_files import DataFile
from mdt.formats.delta.actions import add, table_actions
from mdt.formats.delta.vectors import Descriptor
from mdt.limits import DELTA_CHECKPOINT_BYTES_MAX, DELTA_CHECKPOINT_ROWS_MAX
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
_REPEATED = [f"add.partitionValues.key_value.{name}" for name in ("key", "value")]
"""Columns with a dictionary."""
_WRONG = (ValueError, TypeError, AttributeError, RecursionError)
"""Errors of values that are not those of a checkpoint."""
_BATCH_BYTES = 64 << 20
"""Memory for a batch of rows, if each has the longest text of its dictionary."""
_BATCH_ROWS_MAX = 1 << 16


def checkpoint_bytes(
    files: Iterable[DataFile], definition: TableDefinition, vectors: Mapping[str, Descriptor]
) -> bytes:
    """Return the checkpoint of a state with these files, as Parquet.

    Args:
        vectors: Path of a file -> its deletion vector.
    """
    added = [add(file, definition, 0, False, vectors.get(file.path)) for file in files]
    return _encoded(definition, added, _SCHEMA.empty_table())


def advanced_bytes(
    before: bytes | None, versions: Iterable[bytes], definition: TableDefinition
) -> bytes | None:
    """Return the checkpoint after the ``versions`` that follow the checkpoint ``before``, None for
    the first version, or None if that is damaged or of another program. O(files), without a Python
    object for each.
    """
    stored = _SCHEMA.empty_table()
    if before is not None:
        if not is_intact(before):
            return None
        stored = _read(before, _SCHEMA.names)
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


def large_vectors(checkpoint: bytes) -> pa.Table | None:
    """Return the paths of the files with large deletion vectors in a checkpoint, and these, as
    columns ``path`` and ``vector``. Returns None if it is damaged or of another program.
    """
    try:
        if not is_intact(checkpoint):
            return None
        files = _read(checkpoint, ["add.path", "add.deletionVector"])["add"]
        vectors = pc.struct_field(files, "deletionVector")
        is_large = pc.equal(pc.struct_field(vectors, "storageType"), "u")
        columns = pa.table([pc.struct_field(files, "path"), vectors], ["path", "vector"])
        return columns.filter(is_large)
    except (pa.ArrowException, OSError, ValueError, KeyError):
        return None


def _encoded(
    definition: TableDefinition, added: Iterable[dict[str, Any]], others: pa.Table
) -> bytes:
    """Return the checkpoint with the files ``added`` and those of ``others``, schema _SCHEMA."""
    rows = [_pairs(action) for action in table_actions(definition)]
    rows += [_pairs({"add": file}) for file in added]
    table = pa.concat_tables([pa.Table.from_pylist(rows, _SCHEMA), others])
    sink = io.BytesIO()
    with pq.ParquetWriter(
        sink, table.schema, store_schema=False, use_dictionary=_REPEATED
    ) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({_CRC: str(zlib.crc32(sink.getbuffer()))})
    return sink.getvalue()


def is_intact(checkpoint: bytes) -> bool:
    """Return True for a checkpoint of ours: the bytes before its footer have the CRC-32 in it."""
    try:
        start = len(checkpoint) - footer_length(pa.py_buffer(checkpoint))
        _, entries = footer_facts(checkpoint[start:])
    except (pa.ArrowException, OSError, ValueError):
        return False
    return entries.get(_CRC) == str(zlib.crc32(memoryview(checkpoint)[:start]))


def _read(checkpoint: bytes, columns: Sequence[str]) -> pa.Table:
    """Return columns of a checkpoint. Raises ValueError if it could need much memory, and the
    errors of Arrow.
    """
    parquet = pq.ParquetFile(pa.BufferReader(checkpoint))
    metadata, size, widest = parquet.metadata, 0, 1
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            size += column.total_uncompressed_size
            if column.has_dictionary_page:
                widest = max(widest, column.total_uncompressed_size)
    _require_small(metadata.num_rows, size)
    batches, size = list[pa.RecordBatch](), 0
    rows = max(1, min(_BATCH_ROWS_MAX, _BATCH_BYTES // widest))
    for batch in parquet.iter_batches(rows, columns=columns, use_threads=False):
        size += batch.nbytes
        _require_small(metadata.num_rows, size)
        batches.append(batch)
    schema = batches[0].schema if batches else parquet.schema_arrow
    return pa.Table.from_batches(batches, schema).replace_schema_metadata()


def _require_small(rows: int, size: int) -> None:
    is_small = 0 <= size <= DELTA_CHECKPOINT_BYTES_MAX and rows <= DELTA_CHECKPOINT_ROWS_MAX
    if not is_small:
        raise ValueError(f"a checkpoint with {rows} rows and {size} bytes is too large")


def is_same_checkpoint(stored: bytes, expected: bytes) -> bool:
    """Return True if both checkpoints have the same columns and files. Another program may have
    put one, which is no commit.
    """
    try:
        return _facts(stored) == _facts(expected)
    except (pa.ArrowException, OSError, LookupError, *_WRONG):
        return False


def _facts(checkpoint: bytes) -> tuple[list[Any], list[Any]]:
    """Return the columns in a checkpoint, and its files by path. Statistics of dropped columns,
    which remain in later checkpoints, are left out.
    """
    rows = _read(checkpoint, ["metaData", "add"]).to_pylist()
    tables = [row["metaData"] for row in rows if row["metaData"]]
    columns = [(table["schemaString"], table["partitionColumns"]) for table in tables]
    known = {field["name"] for text, _ in columns for field in json.loads(text)["fields"]}
    files = [row["add"] for row in rows if row["add"]]
    names = ("path", "size", "partitionValues", "deletionVector")
    facts = [[*map(file.get, names), _stats_of(file, known)] for file in files]
    return columns, sorted(facts, key=lambda fact: str(fact[0]))


def _stats_of(file: Mapping[str, Any], columns: AbstractSet[str]) -> dict[str, Any]:
    """Return the statistics of a file for some columns."""
    found = {}
    for name, value in json.loads(file["stats"]).items():
        if isinstance(value, dict):
            value = {key: value[key] for key in value.keys() & columns}
        found[name] = value
    return found


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
