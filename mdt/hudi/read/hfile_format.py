"""The parts of an HFile of version 3: trailer, file info, index and entries, from untrusted bytes.

Written by HBase (Hudi before 1.1) or by Hudi itself, with big-endian integers::

    data blocks, meta blocks, lower levels of the index
    from the load-on-open offset: root index, index of meta blocks, file info
    trailer: "TRABLK"$" | length | protobuf | zeros | 4 version, in the last 4,096 bytes

    block: 8 magic | 4 size on disk | 4 size | 8 previous block | 1 type of checksums
        | 4 bytes per checksum | 4 size on disk with header, without checksums
        | content | checksums
    entry: 4 key length | 4 value length | key | value | tags | integer of the version
    key: 2 row length | row | family | 8 timestamp | 1 type

The row is the key that Hudi knows. The index has a key for each block: its first key, or any that
is smaller, but larger than the keys before the block.

Hudi's own files have no checksums, and the CRC-32C in HBase's files is not verified. Compressed
blocks are verified by the checksum of gzip.

Functions raise ValueError, IndexError, struct.error or zlib.error for damaged bytes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mdt.errors import Unsupported
from mdt.hudi.avro_values import slices
from mdt.parquet.thrift import read_varint

Int64s = npt.NDArray[np.int64]

ENTRIES: Final = pa.schema(
    [pa.field("key", pa.large_binary(), False), pa.field("value", pa.large_binary(), False)]
)
"""The columns of entries."""

DATA, ROOT, INTERMEDIATE, LEAF = b"DATABLK*", b"IDXROOT2", b"IDXINTE2", b"IDXLEAF2"
INFO = b"FILEINF2"
"""The first bytes of blocks."""
TRAILER_BYTES = 4096
HEADER_BYTES = 33

_TRAILER = b'TRABLK"$'
_INFO_MAGIC = b"PBUF"
_VERSION = 3
_HEADER = struct.Struct(">8siiqBii")
_GZIP, _NONE = 1, 2
_CODECS = ("LZO", "GZIP", "NONE", "SNAPPY", "LZ4", "BZIP2", "ZSTD")
_KEY_BYTES_MIN = 2 + 1 + 8 + 1
"""A key without a row: lengths of row and family, timestamp, type."""
_PUT = 4
"""Type of a key that has a value. The others are HBase's deletes."""
_ONE_BYTE = frozenset((*range(0x80), *range(0x90, 0x100)))
_INTEGER_BYTES = bytes(1 if first in _ONE_BYTE else 9 - (first & 7) for first in range(256))
"""First byte of Hadoop's variable-length integer -> its number of bytes."""


def require(condition: bool, message: str) -> None:
    """Raise ValueError unless ``condition`` is true."""
    if not condition:
        raise ValueError(message)


# -- trailer and file info


@dataclass(frozen=True, slots=True)
class Trailer:
    """What a reader needs of the trailer.

    Attributes:
        info_offset: Offset of the file info.
        index_offset: Offset of the root index. Blocks of data and of the lower index end before.
        blocks: Number of blocks that the root index names.
        entries: Number of entries.
        levels: Number of levels of the index. With 1, the root index names data blocks.
        is_compressed: True for gzip.
    """

    info_offset: int
    index_offset: int
    blocks: int
    entries: int
    levels: int
    is_compressed: bool


def parse_trailer(data: bytes) -> Trailer:
    """Return the trailer in the last TRAILER_BYTES of a file.

    Raises Unsupported for other versions, for encryption, and for compression other than gzip.
    """
    require(data.startswith(_TRAILER), "no trailer at the end")
    version = int.from_bytes(data[-3:])
    if version != _VERSION:
        raise Unsupported(f"HFiles of version {version}; version {_VERSION} can be read")
    length, at = read_varint(data, len(_TRAILER))
    require(at + length <= TRAILER_BYTES - 4, "the trailer does not fit")
    message = _Message(data[at : at + length])
    if message.text(13):
        raise Unsupported("encrypted HFiles")
    codec = message.number(12, _NONE)
    if codec not in (_GZIP, _NONE):
        name = dict(enumerate(_CODECS)).get(codec, str(codec))
        raise Unsupported(f"HFiles with compression {name}; GZIP and NONE can be read")
    return Trailer(
        info_offset=message.number(1),
        index_offset=message.number(2),
        blocks=message.number(5),
        entries=message.number(7),
        levels=message.number(8, 1),
        is_compressed=codec == _GZIP,
    )


def parse_info(data: bytes) -> dict[str, bytes]:
    """Return the names and values of the file info."""
    require(data.startswith(_INFO_MAGIC), "the file info is not a protobuf message")
    length, at = read_varint(data, len(_INFO_MAGIC))
    require(at + length <= len(data), "the file info does not fit")
    pairs = map(_Message, _Message(data[at : at + length]).texts.get(1, []))
    return {pair.text(1).decode(): pair.text(2) for pair in pairs}


class _Message:
    """The numbers and texts of a protobuf message, by number of the field."""

    def __init__(self, data: bytes) -> None:
        self.numbers: dict[int, int] = {}
        self.texts: dict[int, list[bytes]] = {}
        at = 0
        while at < len(data):
            tag, at = read_varint(data, at)
            value, at = read_varint(data, at)
            number, kind = tag >> 3, tag & 7
            require(kind in (0, 2), f"a field of the unknown type {kind}")
            if kind == 0:
                self.numbers[number] = value
                continue
            require(at + value <= len(data), "a text does not fit")
            self.texts.setdefault(number, []).append(data[at : at + value])
            at += value

    def number(self, field: int, default: int = 0) -> int:
        return self.numbers.get(field, default)

    def text(self, field: int) -> bytes:
        return self.texts.get(field, [b""])[-1]


# -- blocks


def block_content(
    block: memoryview, magic: bytes, *, is_compressed: bool, bytes_max: int
) -> memoryview | bytes:
    """Return the content of the block that begins at ``block``, of at most ``bytes_max`` bytes."""
    block_magic, disk_bytes, content_bytes, _, _, _, end = _HEADER.unpack_from(block)
    require(block_magic == magic, f"a block {magic!r} is expected, not {block_magic!r}")
    require(0 <= content_bytes <= bytes_max, f"a block of {content_bytes} bytes is too large")
    require(
        HEADER_BYTES <= end <= HEADER_BYTES + disk_bytes <= len(block),
        f"a block of {disk_bytes} bytes does not fit",
    )
    content: memoryview | bytes = block[HEADER_BYTES:end]
    if is_compressed and content:
        stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        # a byte more, so that the end with the checksum is read
        content = stream.decompress(content, content_bytes + 1)
        require(stream.eof, "a compressed block has a wrong size")
    require(len(content) == content_bytes, "a block has a wrong size")
    return content


# -- index


@dataclass(frozen=True, slots=True)
class Index:
    """Blocks of one level, in order of their keys.

    Attributes:
        keys: Of each block, a key that is not larger than those in the block.
        places: Offset and size of each block.
    """

    keys: list[bytes]
    places: list[tuple[int, int]]


def parse_root(data: bytes | memoryview, count: int) -> Index:
    """Return the ``count`` blocks that a root index names."""
    index = Index([], [])
    at = 0
    for _ in range(count):
        index.places.append(struct.unpack_from(">qi", data, at))
        at += 12
        size = _INTEGER_BYTES[data[at]]
        require(data[at] < 0x80 or 0x88 <= data[at] < 0x90, "the length of a key is negative")
        length = int.from_bytes(data[at + min(size - 1, 1) : at + size])
        at += size
        index.keys.append(_row(bytes(data[at : at + length])))
        at += length
    require(at <= len(data), "the root index does not fit")
    return index


def parse_index(data: bytes | memoryview) -> Index:
    """Return the blocks that a lower level of the index names.

    Format: 4 count, count + 1 offsets of the entries and of their end, entries.
    """
    (count,) = struct.unpack_from(">i", data)
    require(0 < count <= len(data) // 4 - 2, "an index is larger than its block")
    begin = 4 * (count + 2)
    edges = np.frombuffer(data, ">i4", count + 1, 4).astype(np.int64) + begin
    is_inside = edges[0] == begin and edges[-1] <= len(data)
    require(bool(is_inside and (np.diff(edges) > 12).all()), "an index is larger than its block")
    ends = edges.tolist()
    places = [struct.unpack_from(">qi", data, at) for at in ends[:-1]]
    keys = [_row(bytes(data[at + 12 : end])) for at, end in pairwise(ends)]
    return Index(keys, places)


def _row(key: bytes) -> bytes:
    """Return the row at the beginning of a key. In Hudi's own index, keys end after it."""
    (length,) = struct.unpack_from(">H", key)
    require(2 + length <= len(key), "a key of the index does not fit")
    return key[2 : 2 + length]


# -- entries


def parse_entries(
    blocks: Iterable[bytes | memoryview], info: Mapping[str, bytes]
) -> pa.RecordBatch:
    """Return the entries of data blocks as ENTRIES.

    Args:
        info: The file info, which tells what follows a value.
    """
    has_tags = "MAX_TAGS_LEN" in info
    has_version = info.get("KEY_VALUE_VERSION") == b"\0\0\0\1"
    parts = []
    starts = [np.empty(0, np.int64)]
    offset = 0
    for block in blocks:
        starts.append(_starts(block, has_tags=has_tags, has_version=has_version) + offset)
        parts.append(block)
        offset += len(block)
    data = b"".join(parts)
    begin = np.concatenate(starts)
    key_bytes, value_bytes = _integers(data, begin, 4), _integers(data, begin + 4, 4)
    require(bool((key_bytes >= _KEY_BYTES_MIN).all()), "a key is too short")
    row_bytes = _integers(data, begin + 8, 2)
    require(bool((row_bytes <= key_bytes - _KEY_BYTES_MIN).all()), "a row does not fit")
    values = begin + 8 + key_bytes
    require(bool((_integers(data, values - 1, 1) == _PUT).all()), "an entry has no value")
    rows, content = begin + 10, pa.py_buffer(data)
    keys = slices(content, rows, rows + row_bytes, pa.large_binary())
    require(pc.all(pc.less_equal(keys[:-1], keys[1:])).as_py() is not False, "keys do not ascend")
    texts = slices(content, values, values + value_bytes, pa.large_binary())
    return pa.record_batch([keys, texts], schema=ENTRIES)


def _starts(block: bytes | memoryview, *, has_tags: bool, has_version: bool) -> Int64s:
    """Return the offset of each entry in a block, int64[n].

    An entry begins where the one before it ends, so this cannot be done for all at once.
    """
    lengths = struct.Struct(">II").unpack_from
    starts = []
    at, end = 0, len(block)
    while at < end:
        starts.append(at)
        key_bytes, value_bytes = lengths(block, at)
        at += 8 + key_bytes + value_bytes
        if has_tags:
            at += 2 + int.from_bytes(block[at : at + 2])
        if has_version:
            at += _INTEGER_BYTES[block[at]]
    require(at == end, "an entry does not fit")
    return np.array(starts, np.int64)


def _integers(data: bytes, offsets: Int64s, size: int) -> Int64s:
    """Return the unsigned integer of ``size`` bytes at each offset, int64[n]."""
    places = offsets[:, None] + np.arange(size)
    return np.frombuffer(data, np.uint8)[places].view(f">u{size}").ravel().astype(np.int64)
