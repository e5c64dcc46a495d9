"""Records of the partition ``record_index`` of Hudi's metadata table.

There is a record for each record key of the table, with the partition and the file group of its
row. The records of all keys that a commit put into a file group have the same value, so it is
encoded once (Apache Hudi, ``HoodieMetadata.avsc``, ``HoodieMetadataPayload.java``).
"""

from __future__ import annotations

import re
import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mdt.errors import Unsupported
from mdt.hudi import avro_values, timeline
from mdt.hudi.hfile_writing import KEY_BYTES_MAX
from mdt.hudi.plain_arrays import plain
from mdt.hudi.read.hfile_format import ENTRIES

LOCATIONS = pa.schema([(name, pa.string()) for name in ("key", "partition", "file_id", "instant")])
"""Record keys with the partition path and the file id of their file group, and an instant of it."""
_NULL, _NOT_NULL = b"\0", b"\2"
_HEAD = b"\0\x0a" + _NULL + _NOT_NULL
"""No key, which the entry has, the type of a location, no names, and the location."""
_UUID, _TEXT_ID = b"\0", b"\2"
"""Encodings of file ids: 0 for a UUID and a number, 1 for a text."""
_BETWEEN = "\0"
"""Separates texts that do not contain it."""
_NUMBERED = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-([0-9]{1,9})")


def index_definition(*, by_partition: bool) -> dict[str, Any]:
    """Return Hudi's definition of the index, as JSON values.

    Args:
        by_partition: True for an index of each partition.
    """
    return {
        "indexName": "record_index",
        "indexType": "record_index",
        "indexFunction": "",
        "sourceFields": [],
        "indexOptions": {"isPartitioned": "true" if by_partition else "false"},
        "version": "V1",
    }


def entries(locations: pa.Table) -> pa.RecordBatch:
    """Return the entries of record keys, unsorted.

    Args:
        locations: LOCATIONS [n], of different keys. An instant is that of a completed commit, since
            Hudi's writers take other keys for new ones.

    Raises Unsupported for a key that is empty or too long.

    >>> one = ["a", "", f"{uuid.UUID(int=7)}-0", "20240229120000123"]
    >>> table = pa.table([[text] for text in one], schema=LOCATIONS)
    >>> entries(table)["key"].to_pylist()
    [b'a']
    """
    places = pc.binary_join_element_wise(
        *(plain(locations[name]) for name in ("partition", "file_id", "instant")), _BETWEEN
    ).dictionary_encode()
    values = [_value(*place.split(_BETWEEN)) for place in places.dictionary.to_pylist()]
    chosen = pa.array(values, pa.large_binary()).take(places.indices)
    return pa.record_batch([encoded(plain(locations["key"])), chosen], schema=ENTRIES)


def encoded(keys: pa.Array) -> pa.Array:
    """Return record keys as keys of entries, large_binary[n].

    Raises Unsupported for a key that is empty or too long.
    """
    data = keys.cast(pa.large_binary())
    bounds = pc.min_max(pc.binary_length(data)) if len(data) else {"min": 1, "max": 1}
    longest = pa.scalar(bounds["max"]).as_py()
    if longest > KEY_BYTES_MAX or pa.scalar(bounds["min"]).as_py() < 1:
        raise Unsupported(
            f"Hudi's record index has no keys without characters or of {longest:,} bytes",
            hint="set mdt.hudi.record.index=false",
        )
    return data


def _value(partition: str, file_id: str, instant: str) -> bytes:
    """Return the value of the keys in a file group."""
    match = _NUMBERED.fullmatch(file_id)
    parts = [_HEAD, _NOT_NULL, _text(partition)]
    if match is None:
        parts += [3 * _NULL, _NOT_NULL, _text(file_id)]
    else:
        high, low = np.array(
            [uuid.UUID(match[1]).int >> 64, uuid.UUID(match[1]).int & (1 << 64) - 1], np.uint64
        ).view(np.int64)
        for number in (high, low, int(match[2])):
            parts += [_NOT_NULL, _long(number)]
        parts.append(_NOT_NULL + _text(""))
    instant_ms = timeline.instant_us(instant) // 1000
    encoding = _TEXT_ID if match is None else _UUID
    parts += [_NOT_NULL, _long(instant_ms), encoding, _NULL]  # the position is not known
    return b"".join(parts)


def _text(text: str) -> bytes:
    return avro_values.texts(pa.array([text]))[0].as_py()


def _long(number: int) -> bytes:
    return avro_values.longs(np.array([number], np.int64))[0].as_py()
