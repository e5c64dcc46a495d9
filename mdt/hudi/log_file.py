"""Log files: names, and encoding and decoding of blocks.

Format of a block, with big-endian integers (Apache Hudi, ``HoodieLogFormatWriter.java``)::

    6 "#HUDI#" | 8 size of the rest | 4 format version 1 | 4 block type | header
    | 8 content length | content | footer | 8 size + 6
    header, footer: 4 count, then for each: 4 key, 4 length, UTF-8 text

Positions (header 5) are the row numbers in the base file that the records replace or delete. The
n-th record of the block belongs to the n-th set bit. Records must therefore be sorted by position,
and every record must have a position. Readers rely on it.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyroaring import BitMap, BitMap64

from indexes import positions as roaring
from mdt.errors import Corrupt, Invalid
from mdt.hudi import avro_values
from mdt.hudi.file_names import LOG
from mdt.parquet.thrift import varint

COMMAND, DELETE, CORRUPT, AVRO, HFILE, PARQUET, CDC = range(7)
"""Block types."""

INSTANT_TIME, TARGET_INSTANT_TIME, SCHEMA, COMMAND_TYPE, COMPACTED_TIMES = range(5)
POSITIONS, IDENTIFIER, IS_PARTIAL, BASE_INSTANT = range(5, 9)
"""Header keys, all that Hudi defines. Readers fail on any other key."""

MAGIC = b"#HUDI#"
_FORMAT_VERSION = 1
CONTENT_VERSION = 3
"""Version number before the records of an Avro data block, and in a delete block."""
_MIN_SIZE = 4 + 4 + 4 + 8 + 4 + 8

_ONE_BITMAP = struct.pack("<QI", 1, 0)
"""Start of a 64-bit roaring bitmap: one 32-bit bitmap follows, and its values have high bits 0."""
_STRING_BRANCH = b"\x02"
_COMMIT_TIME_DELETE = b"\x04\x00"
"""Branch 2 (IntWrapper) with value 0: a delete that ignores ordering values."""


@dataclass(frozen=True, slots=True)
class Block:
    """A block and its location: offset and length, in bytes of the file, of the block and its
    content.

    Attributes:
        kind: COMMAND to CDC.
        header: Key -> text.
        content: A view without a copy.
    """

    kind: int
    header: Mapping[int, str]
    offset: int
    length: int
    content_offset: int
    content_length: int
    content: memoryview


def name(file_id: str, instant: str, version: int, token: str) -> str:
    """Return the name of log file number ``version`` (from 1) of its slice.

    Args:
        instant: See :meth:`mdt.hudi.v6.Version6.log_instant`.

    >>> name("6f2c-0", "20240229120000123", 2, "3-77-0")
    '.6f2c-0_20240229120000123.log.2_3-77-0'
    """
    text = f".{file_id}_{instant}.log.{version}_{token}"
    assert LOG.fullmatch(text), text
    return text


# -- writing


def data_block(
    parquet: pa.Buffer | bytes,
    *,
    instant: str,
    avro_schema: str,
    positions: BitMap64 | BitMap | str | None,
    base_instant: str | None,
) -> tuple[bytes, int]:
    """Return a data block with Parquet content, and the offset of the content in the block.

    Args:
        avro_schema: Includes the meta columns.
        positions: The rows of the base file ``base_instant`` that the block replaces, one per row
            and in the same order, or the text of :func:`encode_positions`. None if any row is new.
    """
    return _block(
        PARQUET, _header(instant, avro_schema, positions, base_instant), memoryview(parquet)
    )


def avro_block(content: bytes, *, avro_schema: str) -> bytes:
    """Return a block of Avro records without an instant, as in Hudi's archive of instants."""
    return _block(AVRO, {SCHEMA: avro_schema}, memoryview(content))[0]


def hfile_block(content: bytes, *, instant: str, avro_schema: str) -> bytes:
    """Return a data block with the content of an HFile, as in Hudi's metadata table."""
    return _block(HFILE, {INSTANT_TIME: instant, SCHEMA: avro_schema}, memoryview(content))[0]


def delete_block(
    keys: pa.Array,
    partitions: str | pa.Array,
    *,
    instant: str,
    avro_schema: str,
    positions: BitMap64 | BitMap | str | None,
    base_instant: str | None,
) -> bytes:
    """Return a block that deletes record keys.

    The deletes ignore ordering values (commit-time ordering in Hudi).

    Args:
        keys: string[n].
        partitions: Their partition path, or string[n].
        positions: See :func:`data_block`.

    Raises Invalid for null keys.
    """
    if keys.null_count:
        raise Invalid("a null key cannot be deleted")
    if not isinstance(positions, str | None):
        assert len(positions) == len(keys), (len(keys), positions)
    body = _delete_list(keys, partitions)
    content = struct.pack(">ii", CONTENT_VERSION, len(body)) + body
    return _block(
        DELETE, _header(instant, avro_schema, positions, base_instant), memoryview(content)
    )[0]


def _header(
    instant: str,
    avro_schema: str,
    positions: BitMap64 | BitMap | str | None,
    base_instant: str | None,
) -> dict[int, str]:
    header = {INSTANT_TIME: instant, SCHEMA: avro_schema}
    if positions is not None:
        assert base_instant is not None, "positions need the instant of their base file"
        text = positions if isinstance(positions, str) else encode_positions(positions)
        header |= {POSITIONS: text, BASE_INSTANT: base_instant}
    return header


def _block(kind: int, header: Mapping[int, str], content: memoryview) -> tuple[bytes, int]:
    parts = [struct.pack(">i", len(header))]
    for key, text in sorted(header.items()):
        data = text.encode()
        parts += [struct.pack(">ii", key, len(data)), data]
    head = b"".join(parts)
    size = 8 + len(head) + 8 + content.nbytes + 4 + 8
    begin = (
        MAGIC
        + struct.pack(">qii", size, _FORMAT_VERSION, kind)
        + head
        + struct.pack(">q", content.nbytes)
    )
    return b"".join((begin, content, struct.pack(">iq", 0, size + len(MAGIC)))), len(begin)


def encode_positions(positions: BitMap64 | BitMap) -> str:
    """Return positions as header text: base64 of a portable, run-optimized 64-bit roaring
    bitmap.
    """
    bitmap = BitMap64(positions)
    bitmap.run_optimize()
    return base64.b64encode(bitmap.serialize()).decode("ascii")


def decode_positions(text: str) -> BitMap:
    """Return positions below 2**32 from header text. Raises ValueError for any other text.

    >>> decode_positions(encode_positions(BitMap([2, 7])))
    BitMap([2, 7])
    """
    data = base64.b64decode(text, validate=True)
    if data[: len(_ONE_BITMAP)] != _ONE_BITMAP:
        raise ValueError("not a 64-bit roaring bitmap of positions below 2**32")
    return roaring.deserialize(data[len(_ONE_BITMAP) :])


def _delete_list(keys: pa.Array, partitions: str | pa.Array) -> bytes:
    """Return the Avro encoding of a HoodieDeleteRecordList, joined by Arrow without a loop over
    rows.
    """
    if not len(keys):
        return b"\x00"
    tail: list[pa.Array | bytes]
    if isinstance(partitions, str):
        data = partitions.encode()
        tail = [_STRING_BRANCH + _long(len(data)) + data + _COMMIT_TIME_DELETE]
    else:
        tail = [_STRING_BRANCH, avro_values.texts(partitions), _COMMIT_TIME_DELETE]
    records = avro_values.join(_STRING_BRANCH, avro_values.texts(keys), *tail)
    return _long(len(keys)) + _concatenate(records) + b"\x00"


def _concatenate(texts: pa.Array) -> bytes:
    """Return the concatenated elements of large_binary[n]."""
    edges = avro_values.edges(texts)
    data = texts.buffers()[2]
    return data[int(edges[0]) : int(edges[-1])].to_pybytes() if data is not None else b""


def _long(value: int) -> bytes:
    """Return a non-negative number as an Avro long."""
    return varint(value << 1)


# -- reading


def parse(data: bytes | pa.Buffer, *, path: str) -> list[Block]:
    """Return the blocks of a log file, in order.

    Raises Corrupt, with ``path`` and the offset, unless the file consists of whole blocks. Every
    length is checked before it is used.

    >>> data = delete_block(
    ...     pa.array(["a"]),
    ...     "",
    ...     instant="20240229120000123",
    ...     avro_schema="{}",
    ...     positions=None,
    ...     base_instant=None,
    ... )
    >>> [block] = parse(data, path="example")
    >>> block.kind == DELETE, block.header[INSTANT_TIME]
    (True, '20240229120000123')
    >>> parse(data[:-1], path="example")
    Traceback (most recent call last):
        ...
    mdt.errors.Corrupt: damaged log file: a block of 84 bytes does not fit [example at byte 14]
    """
    view = memoryview(data)
    blocks: list[Block] = []
    offset = 0
    while offset < view.nbytes:
        block = parse_block(view, offset, path)
        blocks.append(block)
        offset += block.length
    return blocks


def parse_block(view: memoryview, begin: int, path: str) -> Block:
    """Return the block that begins at the offset ``begin``. Raises Corrupt like :func:`parse`."""
    bytes_ = _Cursor(view, begin, view.nbytes, path)
    bytes_.expect(bytes_.take(6, "magic") == MAGIC, "no block begins here")
    size = bytes_.integer(">q", "block size")
    bytes_.expect(
        _MIN_SIZE <= size <= view.nbytes - bytes_.offset, f"a block of {size} bytes does not fit"
    )
    bytes_.end = bytes_.offset + size
    version = bytes_.integer(">i", "format version")
    bytes_.expect(version == _FORMAT_VERSION, f"unknown log format version {version}")
    kind = bytes_.integer(">i", "block type")
    bytes_.expect(COMMAND <= kind <= CDC, f"unknown block type {kind}")
    header = dict(_texts(bytes_))
    length = bytes_.integer(">q", "content length")
    content = bytes_.offset
    bytes_.skip(length, "content")
    dict(_texts(bytes_))
    total = bytes_.integer(">q", "reverse pointer")
    bytes_.expect(
        total == size + len(MAGIC), f"reverse pointer {total} differs from the block size"
    )
    bytes_.expect(bytes_.offset == bytes_.end, "bytes left over in a block")
    return Block(
        kind, header, begin, bytes_.end - begin, content, length, view[content : content + length]
    )


def _texts(bytes_: _Cursor) -> Iterator[tuple[int, str]]:
    """Yield the entries of a header or footer."""
    count = bytes_.integer(">i", "header count")
    bytes_.expect(0 <= count <= BASE_INSTANT + 1, f"invalid number of header entries: {count}")
    keys = set()
    for _ in range(count):
        key = bytes_.integer(">i", "header key")
        bytes_.expect(
            INSTANT_TIME <= key <= BASE_INSTANT and key not in keys,
            f"unknown or repeated header key {key}",
        )
        keys.add(key)
        text = bytes_.take(bytes_.integer(">i", "header length"), "header text")
        try:
            yield key, text.decode()
        except UnicodeDecodeError:
            bytes_.expect(False, "header text is not UTF-8")


class _Cursor:
    """Reads ``view`` sequentially up to ``end``. Every violation raises Corrupt at the current
    offset.
    """

    __slots__ = ("end", "offset", "path", "view")

    def __init__(self, view: memoryview, offset: int, end: int, path: str) -> None:
        self.view, self.offset, self.end, self.path = view, offset, end, path

    def expect(self, condition: bool, message: str) -> None:
        if not condition:
            raise Corrupt(f"damaged log file: {message}", path=self.path, offset=self.offset)

    def skip(self, length: int, name: str) -> None:
        self.expect(0 <= length <= self.end - self.offset, f"{name} of {length} bytes does not fit")
        self.offset += length

    def take(self, length: int, name: str) -> bytes:
        self.skip(length, name)
        return bytes(self.view[self.offset - length : self.offset])

    def integer(self, form: str, name: str) -> int:
        return int(struct.unpack(form, self.take(struct.calcsize(form), name))[0])
