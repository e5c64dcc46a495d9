"""HFiles of version 3, the sorted files of keys and values of Hudi's metadata table, written.

:mod:`mdt.hudi.read.hfile_format` describes the format. This is the part of it that Hudi 1.2 writes
itself: blocks of data, one level of the index, an empty index of meta blocks, the file info and the
trailer. A Bloom filter of keys is optional for readers and is left out. The bytes depend on the
arguments only, apart from the implementation of gzip.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mdt.errors import Invalid
from mdt.hudi import avro_values
from mdt.parquet.thrift import varint

KEY_BYTES_MAX = (1 << 15) - 1
"""Maximum length of a key. Java reads its length as a signed 16-bit integer."""
BLOCK_BYTES = 1 << 20
"""Size after which a block of data ends, as in Hudi's own writer."""

_DATA, _ROOT, _INFO = b"DATABLK*", b"IDXROOT2", b"FILEINF2"
_BLOCK = struct.Struct(">8siiqBii")
_CHECKSUM_SPAN = 16384
_NO_CHECKSUMS = 0
_GZIP, _NONE = 1, 2
_GZIP_LEVEL = 3
"""Files of record indexes are a tenth larger than with 6, the default, and take half the time."""
_KEY_TAIL = b"\0" + struct.pack(">QB", 0x7FFF_FFFF_FFFF_FFFF, 4)
"""What follows the row in a key: no family, the newest timestamp, the type of a value."""
_ROW_SIZE_BYTES = 2
_VERSION_OF_ENTRY = b"\0"
_COMPARATOR = b"org.apache.hudi.io.storage.HoodieHBaseKVComparator"
_TRAILER_BYTES = 4096
_FORMAT = struct.pack(">I", 3 << 24 | 3)
"""Minor and major version, in the last bytes of the file."""
_SINGLE_BYTE_MAX = 127


def encode(
    entries: pa.RecordBatch,
    *,
    schema: str,
    created_ms: int,
    is_compressed: bool = False,
    block_bytes: int = BLOCK_BYTES,
) -> bytes:
    """Return an HFile.

    Args:
        entries: See :data:`mdt.hudi.read.hfile_format.ENTRIES`. Keys ascend bytewise and differ,
            unlike the order of Java's texts beyond the Basic Multilingual Plane.
        schema: Avro schema of the values.
        created_ms: Time of the file in milliseconds since 1970.
        is_compressed: Compress each block with gzip.

    Raises Invalid if the keys are empty, too long or not in order.

    >>> columns = [pa.array([text], pa.large_binary()) for text in (b"a", b"1")]
    >>> entries = pa.record_batch(columns, names=["key", "value"])
    >>> len(encode(entries, schema="{}", created_ms=0))
    4475
    """
    _require_order(entries["key"])
    writer = _Writer(is_compressed)
    writer.add(entries, block_bytes)
    return writer.end(schema, created_ms)


def _require_order(keys: pa.Array) -> None:
    lengths = pc.binary_length(keys)
    is_short = pc.and_(pc.greater(lengths, 0), pc.less_equal(lengths, KEY_BYTES_MAX))
    is_valid = pc.and_(is_short[1:], pc.less(keys[:-1], keys[1:]))
    if pc.all(is_short[:1]).as_py() is False or pc.all(is_valid).as_py() is False:
        place = pc.index(is_valid, False).as_py() + 1 if pc.all(is_short[:1]).as_py() else 0
        raise Invalid(
            f"the key {keys[place].as_py()[:80]!r} cannot be entry {place} in an HFile",
            hint=f"keys have 1 to {KEY_BYTES_MAX} bytes, ascend and differ",
        )


class _Writer:
    """Collects the bytes of a file."""

    def __init__(self, is_compressed: bool) -> None:
        self._is_compressed = is_compressed
        self._out = bytearray()
        self._index: list[tuple[int, int, bytes]] = []
        self._previous: dict[bytes, int] = {}
        self._last = b""
        self._count = self._key_bytes = self._value_bytes = self._plain_bytes = 0

    def add(self, entries: pa.RecordBatch, block_bytes: int) -> None:
        """Append all blocks of data. Each ends with the entry that fills ``block_bytes``."""
        if not len(entries):
            return
        keys, values = entries["key"], entries["value"]
        sizes = np.empty(len(entries), [("key", ">i4"), ("value", ">i4"), ("row", ">u2")])
        sizes["row"] = pc.binary_length(keys)
        sizes["key"] = pc.binary_length(keys).to_numpy() + _ROW_SIZE_BYTES + len(_KEY_TAIL)
        sizes["value"] = pc.binary_length(values)
        framed = avro_values.join(
            avro_values.fixed(sizes), keys, _KEY_TAIL, values, _VERSION_OF_ENTRY
        )
        edges = avro_values.edges(framed)
        content = memoryview(framed.buffers()[2])
        first = 0
        while first < len(entries):
            after = int(np.searchsorted(edges[:-1], edges[first] + block_bytes))
            row = _row(keys[first].as_py())
            block = self._block(_DATA, bytes(content[edges[first] : edges[after]]))
            self._index.append((*block, row))
            first = after
        self._plain_bytes = int(edges[-1] - edges[0])
        self._last = keys[-1].as_py()
        self._count = len(entries)
        self._key_bytes = pc.sum(pc.binary_length(keys)).as_py()
        self._value_bytes = pc.sum(pc.binary_length(values)).as_py()

    def _block(self, magic: bytes, content: bytes) -> tuple[int, int]:
        """Append a block, and return its offset and length."""
        stored = content
        if self._is_compressed:  # Hudi decompresses empty blocks, too
            stored = gzip.compress(content, _GZIP_LEVEL, mtime=0)
        end = _BLOCK.size + len(stored)
        checksums = bytes(4 * -(-end // _CHECKSUM_SPAN))
        offset = len(self._out)
        self._out += _BLOCK.pack(
            magic,
            len(stored) + len(checksums),
            len(content),
            self._previous.get(magic, -1),
            _NO_CHECKSUMS,
            _CHECKSUM_SPAN,
            end,
        )
        self._out += stored + checksums
        self._previous[magic] = offset
        return offset, len(self._out) - offset

    def end(self, schema: str, created_ms: int) -> bytes:
        """Return the whole file."""
        index_offset = len(self._out)
        self._block(_ROOT, b"".join(map(_index_entry, self._index)))
        del self._previous[_ROOT]
        self._block(_ROOT, b"")  # the index of meta blocks
        info_offset, _ = self._block(_INFO, self._info(schema, created_ms))
        codec = _GZIP if self._is_compressed else _NONE
        offsets = [offset for offset, _, _ in self._index] or [0]
        fields: Sequence[tuple[int, int | bytes]] = (
            (1, info_offset),
            (2, index_offset),
            (3, self._plain_bytes),
            (5, len(self._index)),
            (6, 0),
            (7, self._count),
            (8, 1),
            (9, offsets[0]),
            (10, offsets[-1]),
            (11, _COMPARATOR),
            (12, codec),
        )
        message = b"".join(_field(number, value) for number, value in fields)
        head = b'TRABLK"$' + varint(len(message)) + message
        return bytes(self._out) + head.ljust(_TRAILER_BYTES - len(_FORMAT), b"\0") + _FORMAT

    def _info(self, schema: str, created_ms: int) -> bytes:
        """Return the content of the file info."""
        count = max(self._count, 1)
        pairs = {
            "schema": schema.encode(),
            "hfile.LASTKEY": _row(self._last),  # Hudi 0.15 reads two bytes of it, also if empty
            "hfile.AVG_KEY_LEN": struct.pack(">i", self._key_bytes // count),
            "hfile.AVG_VALUE_LEN": struct.pack(">i", self._value_bytes // count),
            "hfile.CREATE_TIME_TS": struct.pack(">q", created_ms),
            "KEY_VALUE_VERSION": struct.pack(">i", 1),
            "MAX_MEMSTORE_TS_KEY": bytes(8),
        }
        body = b"".join(
            _field(1, _field(1, name.encode()) + _field(2, value)) for name, value in pairs.items()
        )
        return b"PBUF" + varint(len(body)) + body


def _row(key: bytes) -> bytes:
    return struct.pack(">H", len(key)) + key


def _index_entry(entry: tuple[int, int, bytes]) -> bytes:
    """Return the place of a block and its first key."""
    offset, size, key = entry
    return struct.pack(">qi", offset, size) + _hadoop_integer(len(key)) + key


def _hadoop_integer(value: int) -> bytes:
    """Return a non-negative number as Hadoop's variable-length integer."""
    if value <= _SINGLE_BYTE_MAX:
        return bytes([value])
    data = value.to_bytes((value.bit_length() + 7) // 8)
    return bytes([0x90 - len(data)]) + data


def _field(number: int, value: int | bytes) -> bytes:
    """Return a field of a protobuf message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value
