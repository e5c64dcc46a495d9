"""The records of Hudi's metadata table, whose Avro schema is in each file.

The key of an entry is the key of its record. The key in the record itself is empty.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from mdt.errors import Corrupt
from mdt.hudi import avro_values
from mdt.hudi.avro_columns import decode
from mdt.hudi.read.untrusted_avro import read_values
from mdt.limits import FILE_BYTES_MAX

Changes = dict[str, int | None]
"""Name -> size in bytes, or None if it was deleted."""


def decode_records(
    entries: pa.RecordBatch, schema: str, path: str, names: Collection[str] | None = None
) -> pa.Table:
    """Return the records of entries as columns, with their keys in ``key``.

    Suits partitions with many records. Entries without a value, which are deletes, are left out.

    Args:
        entries: See :data:`mdt.hudi.read.hfile_format.ENTRIES`.
        schema: Avro schema of the values.
        names: Columns to return besides ``key``, or None for all.

    Raises Corrupt, with ``path``, and Unsupported.
    """
    edges = avro_values.edges(entries["value"])
    lengths = np.diff(edges)
    if not lengths.all():
        entries = entries.filter(pa.array(lengths > 0))
        edges = avro_values.edges(entries["value"])
    data = entries["value"].buffers()[2] or pa.py_buffer(b"")
    try:
        records = decode(data, edges[:-1], edges[1:], schema, names)
        keys = entries["key"].cast(pa.large_string()).cast(pa.string())
    except Corrupt as error:
        raise Corrupt(error.message, path=path) from error
    except pa.ArrowInvalid as error:
        raise Corrupt("a key is not UTF-8", path=path) from error
    if "key" in records.column_names:
        records = records.drop_columns("key")
    return records.add_column(0, "key", keys)


def decode_listings(
    entries: pa.RecordBatch, schema: str, path: str
) -> Iterator[tuple[str, Changes | None]]:
    """Yield the key of each record of the partition ``files``, and the names that it changes.

    None instead of names for an entry without a value, which deletes the record. These partitions
    have few records with many names, so they are decoded one by one.

    Args:
        entries, schema: See :func:`decode_records`.

    Raises Corrupt, with ``path``, and Unsupported.
    """
    keys, values = entries["key"].to_pylist(), entries["value"].to_pylist()
    records = read_values(filter(None, values), schema, path)
    for key, value in zip(keys, values, strict=True):
        try:
            text = key.decode()
        except UnicodeDecodeError as error:
            raise Corrupt("a key is not UTF-8", path=path) from error
        yield text, _changes(next(records), path) if value else None


def _changes(listing: Any, path: str) -> Changes:
    changes: Changes = {}
    try:
        for name, file in (listing.get("filesystemMetadata") or {}).items():
            size, is_deleted = file["size"], file["isDeleted"]
            if type(size) is not int or type(is_deleted) is not bool:
                raise TypeError("the size or the flag of a file has another type")
            if not 0 <= size <= FILE_BYTES_MAX:
                raise Corrupt(f"{name[:200]!r} has {size} bytes", path=path)
            changes[name] = None if is_deleted else size
    except (AttributeError, LookupError, TypeError) as error:
        raise Corrupt(f"unknown records: {str(error)[:200]}", path=path) from error
    return changes
