"""Byte formats: the frame around every metadata object, and the header and sections inside.

Frame, little endian, 24 bytes before the payload::

    4  magic "MDT1"
    4  kind, four bytes that name the payload's format
    2  version of the kind
    2  zero
    4  CRC-32 (ISO-HDLC, as zlib) of the header with this field zero, then of the payload
    8  length of the payload

A CRC-32 detects every single flipped bit and every burst up to 32 bits.  The length detects
truncation and trailing bytes.

Pack, the payload of most kinds::

    4  length of the JSON text
    4  zero
    n  JSON: {"header": {...}, "sections": [[name, offset, length], ...]},
       then zeros up to a multiple of 8
       the sections, in order, each followed by zeros up to a multiple of 8;
       offsets count from the first section

Frame and pack align sections to 8 bytes, so Arrow reads them in place.  Every byte is checked
before it is parsed, every length before it is used.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any, NoReturn

import pyarrow as pa

from mdt import limits
from mdt.errors import Corrupt, Unsupported
from mdt.stores.contract import Buffer, Data, parts

MAGIC = b"MDT1"
"""The first bytes of every frame."""

_HEADER = struct.Struct("<4s4sHHIQ")
_PACK = struct.Struct("<II")
_ALIGNMENT = 8
_LZ4 = struct.Struct("<8sQ")
_LZ4_MAGIC = b"MDTLZ4\0\0"
_MESSAGE = struct.Struct("<II")
_UINT16, _INT32, _UINT32, _INT64 = (struct.Struct(form) for form in ("<H", "<i", "<I", "<q"))
_CONTINUATION = 0xFFFFFFFF
_FIELD_OFFSETS = 4
_HEADER_TYPE, _MESSAGE_HEADER, _BODY_LENGTH = 1, 2, 3
_COMPRESSION = 3
_DATA = 1
_SCHEMA, _DICTIONARY_BATCH = 1, 2
_IPC_END = b"\xff\xff\xff\xff\0\0\0\0"


def frame(kind: bytes, version: int, payload: Data) -> bytes:
    """Return ``payload`` in a frame.  ``kind`` has 4 bytes; ``version`` is 0 to 65535.  One
    copy.
    """
    assert len(kind) == 4, f"a kind has four bytes, not {kind!r}"
    views = parts(payload)
    length = sum(view.nbytes for view in views)
    assert length <= limits.FRAME_BYTES_MAX, f"a frame of {length} bytes"
    crc = zlib.crc32(_HEADER.pack(MAGIC, kind, version, 0, 0, length))
    for view in views:
        crc = zlib.crc32(view, crc)
    return b"".join([_HEADER.pack(MAGIC, kind, version, 0, crc, length), *views])


def unframe(data: Buffer, kind: bytes, *, path: str, version_max: int) -> memoryview:
    """Return the payload of a frame as a view.  ``path`` is for the error message.

    Raises ``errors.Corrupt`` unless ``data`` is an intact frame of this kind, and
    ``errors.Unsupported`` for a version above ``version_max``.
    """
    view = _view(data)
    if len(view) < _HEADER.size:
        _corrupt(
            "the object ends inside its header",
            path,
            len(view),
            f"{_HEADER.size} bytes",
            f"{len(view)}",
        )
    magic, found_kind, version, reserved, crc, length = _HEADER.unpack_from(view)
    if magic != MAGIC:
        _corrupt("this is not an mdt metadata object", path, 0, repr(MAGIC), repr(magic))
    if length != len(view) - _HEADER.size:
        got = len(view) - _HEADER.size
        _corrupt("the payload has a wrong length", path, 16, f"{length} bytes", f"{got}")
    payload = view[_HEADER.size :]
    actual = zlib.crc32(
        payload, zlib.crc32(_HEADER.pack(magic, found_kind, version, reserved, 0, length))
    )
    if actual != crc:
        _corrupt("the checksum does not match", path, 12, f"{crc:08x}", f"{actual:08x}")
    if found_kind != kind:
        _corrupt("the object has a wrong kind", path, 4, repr(kind), repr(found_kind))
    if version > version_max or reserved:
        raise Unsupported(
            f"{path} has format version {version} of {kind.decode('latin-1')}; this mdt reads up to"
            f" {version_max}",
            hint="upgrade mdt",
        )
    return payload


def encode_ipc(table: pa.Table, *, compression: str | None = None) -> pa.Buffer:
    """Return a table as an Arrow IPC stream.

    With ``compression="lz4"`` the whole stream is compressed, not its buffers.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    stream = sink.getvalue()
    if compression is None:
        return stream
    assert compression == "lz4", f"unknown compression {compression!r}"
    compressed = pa.compress(stream, codec="lz4", asbytes=True)
    return pa.py_buffer(_LZ4.pack(_LZ4_MAGIC, stream.size) + compressed)


def decode_ipc(buffer: Buffer, schema: pa.Schema | None, *, path: str, added: int = 0) -> pa.Table:
    """Return the table in an Arrow IPC stream, fully validated.  Uncompressed bytes are not copied.

    The table must have ``schema``, metadata aside, or any schema if None.  The last ``added``
    columns of the schema may all be missing, as older writers leave them out; they are then null.
    Raises ``errors.Corrupt``.
    """
    try:
        stream = _uncompressed(pa.py_buffer(buffer), path)
        _refuse_compressed_bodies(memoryview(stream), path)
        table = _read_stream(stream, schema, path, added)
        table.validate(full=True)
    except (
        pa.ArrowException,
        OSError,
        ValueError,
        KeyError,
        TypeError,
        IndexError,
        MemoryError,
        struct.error,
    ) as error:
        raise Corrupt(f"an Arrow section cannot be read: {error}", path=path) from error
    return table


def pack(header: Mapping[str, Any], sections: Mapping[str, Buffer]) -> list[Buffer]:
    """Return a JSON header and named sections as a list of buffers.  Sections are not copied."""
    entries: list[tuple[str, int, int]] = []
    body: list[Buffer] = []
    offset = 0
    for name, section in sections.items():
        length = memoryview(section).nbytes
        entries.append((name, offset, length))
        body += [section, bytes(-length % _ALIGNMENT)]
        offset += length + -length % _ALIGNMENT
    document = {"header": header, "sections": entries}
    text = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
    assert len(text) <= limits.HEADER_JSON_BYTES_MAX, f"a header of {len(text)} bytes"
    assert len(entries) <= limits.SECTIONS_MAX, f"{len(entries)} sections"
    return [_PACK.pack(len(text), 0), text, bytes(-len(text) % _ALIGNMENT), *body]


def _view(data: Buffer) -> memoryview:
    view = memoryview(data)
    if not view.nbytes:  # an empty view cannot be cast
        return memoryview(b"")
    return view.cast("B")


def unpack(payload: Buffer, *, path: str) -> tuple[dict[str, Any], dict[str, memoryview]]:
    """Return the header and the sections in the output of :func:`pack`, as views.

    Raises ``errors.Corrupt``.
    """
    view = _view(payload)
    if len(view) < _PACK.size:
        _corrupt(
            "the payload ends inside its prefix",
            path,
            len(view),
            f"{_PACK.size} bytes",
            f"{len(view)}",
        )
    length, reserved = _PACK.unpack_from(view)
    start = _PACK.size + length + -length % _ALIGNMENT
    if reserved or start > len(view) or length > limits.HEADER_JSON_BYTES_MAX:
        _corrupt(
            "the header's length is impossible",
            path,
            0,
            f"at most {len(view) - _PACK.size}",
            f"{length}",
        )
    header, entries = _parse_header(bytes(view[_PACK.size : _PACK.size + length]), path)
    return header, _slice(view[start:], entries, path)


def parse_json(text: bytes, *, path: str, offset: int = 0) -> Any:
    """Return the value of JSON text.

    Raises ``errors.Corrupt`` for invalid JSON, NaN, infinity, and nesting beyond Python's recursion
    limit.  ``path`` and ``offset`` locate the text in the message.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"this is not JSON: {str(error)[:200]}", path=path, offset=offset) from error


def _parse_header(text: bytes, path: str) -> tuple[dict[str, Any], list[Any]]:
    document = parse_json(text, path=path, offset=_PACK.size)
    if isinstance(document, dict) and document.keys() == {"header", "sections"}:
        header, entries = document["header"], document["sections"]
        if (
            isinstance(header, dict)
            and isinstance(entries, list)
            and len(entries) <= limits.SECTIONS_MAX
        ):
            return header, entries
    _corrupt(
        "the header is malformed",
        path,
        _PACK.size,
        "an object with header and sections",
        repr(text[:60]),
    )


def _slice(body: memoryview, entries: list[Any], path: str) -> dict[str, memoryview]:
    """Return the sections.  They must be contiguous and fill the body."""
    sections: dict[str, memoryview] = {}
    at = 0
    for entry in entries:
        if not (isinstance(entry, list) and [type(item) for item in entry] == [str, int, int]):
            _corrupt(
                "a section entry is malformed",
                path,
                -1,
                "[name, offset, length]",
                repr(entry)[:100],
            )
        name, offset, length = entry
        if name in sections or offset != at or not 0 <= length <= len(body) - offset:
            _corrupt(
                f"section {name[:60]!r} is misplaced",
                path,
                -1,
                f"offset {at}",
                f"{offset}, {length} bytes",
            )
        sections[name] = body[offset : offset + length]
        at = offset + length + -length % _ALIGNMENT
    if at != len(body):
        _corrupt("the sections do not fill the payload", path, -1, f"{at} bytes", f"{len(body)}")
    return sections


def unfolded_bytes(section: Buffer) -> int:
    """Return the decompressed size that a section claims, or 0 if it is not compressed."""
    view = memoryview(section)
    if view.nbytes < _LZ4.size or bytes(view[:8]) != _LZ4_MAGIC:
        return 0
    return int(_LZ4.unpack_from(view)[1])


def _uncompressed(buffer: pa.Buffer, path: str) -> pa.Buffer:
    if buffer.size < _LZ4.size or bytes(memoryview(buffer)[:8]) != _LZ4_MAGIC:
        return buffer
    size = unfolded_bytes(memoryview(buffer))
    size_max = min(limits.UNFOLDED_BYTES_MAX, limits.LZ4_RATIO_MAX * (buffer.size - _LZ4.size))
    if size > size_max:
        _corrupt(
            "a compressed section claims too many bytes",
            path,
            8,
            f"at most {size_max} bytes",
            f"{size}",
        )
    return pa.decompress(buffer.slice(_LZ4.size), decompressed_size=size, codec="lz4")


def _refuse_compressed_bodies(stream: memoryview, path: str) -> None:
    """Raise Corrupt unless a stream is a schema and batches without compression.

    Arrow would allocate any length that a compressed body claims, and our writers compress none.
    The messages are flatbuffers (Arrow's Message.fbs).  A flatbuffer table begins with the distance
    back to its list of field offsets.
    """
    at = batch = 0
    while at + _MESSAGE.size <= len(stream):
        mark, length = _MESSAGE.unpack_from(stream, at)
        if mark != _CONTINUATION or not length:
            break
        message = stream[at + _MESSAGE.size : at + _MESSAGE.size + length]
        root = _UINT32.unpack_from(message)[0]
        kind = _flatbuffer_field(message, root, _HEADER_TYPE)
        if not kind or (message[kind] == _SCHEMA) != (not batch):
            _corrupt(
                "an Arrow section has an unexpected message",
                path,
                at,
                "a schema, then batches",
                "another kind",
            )
        header = _flatbuffer_table(message, root, _MESSAGE_HEADER)
        if message[kind] == _DICTIONARY_BATCH:
            header = _flatbuffer_table(message, header, _DATA)
        if batch and _flatbuffer_field(message, header, _COMPRESSION):
            _corrupt("an Arrow section has a compressed body", path, at, "plain buffers", "a codec")
        body = _flatbuffer_field(message, root, _BODY_LENGTH)
        size = _INT64.unpack_from(message, body)[0] if body else 0
        if not 0 <= size <= len(stream):
            _corrupt(
                "an Arrow section has an impossible body",
                path,
                at,
                f"at most {len(stream)} bytes",
                f"{size}",
            )
        at += _MESSAGE.size + length + size
        batch += 1


def _flatbuffer_field(message: memoryview, table: int, field: int) -> int:
    """Return the offset of a field of a flatbuffer table, or 0 if it is missing.

    Raises struct.error outside of the message.
    """
    fields = table - _INT32.unpack_from(message, table)[0]
    if fields < 0 or _UINT16.unpack_from(message, fields)[0] < _FIELD_OFFSETS + 2 * field + 2:
        return 0
    offset = _UINT16.unpack_from(message, fields + _FIELD_OFFSETS + 2 * field)[0]
    return table + int(offset) if offset else 0


def _flatbuffer_table(message: memoryview, table: int, field: int) -> int:
    """Return the offset of the table in a field of a flatbuffer table.

    Raises struct.error if it is missing.
    """
    at = _flatbuffer_field(message, table, field)
    return at + int(_UINT32.unpack_from(message, at or len(message))[0])


def _read_stream(buffer: pa.Buffer, schema: pa.Schema | None, path: str, added: int) -> pa.Table:
    """Return the table of a stream that ends with an end mark.

    pyarrow accepts a stream that is cut between two batches as complete.
    """
    source = pa.BufferReader(buffer)
    with pa.ipc.open_stream(source) as reader:
        missing: list[pa.Field] = []
        if added and schema is not None and reader.schema == pa.schema(list(schema)[:-added]):
            missing = list(schema)[-added:]
        if schema is not None and not missing and not reader.schema.equals(schema):
            _corrupt(
                "an Arrow section has a wrong schema",
                path,
                -1,
                _describe(schema),
                _describe(reader.schema),
            )
        table = reader.read_all()
    if source.tell() != buffer.size or bytes(memoryview(buffer)[-8:]) != _IPC_END:
        _corrupt(
            "an Arrow section has no end mark",
            path,
            -1,
            "the end mark",
            f"{buffer.size} bytes",
        )
    for field in missing:
        table = table.append_column(field, pa.nulls(len(table), field.type))
    return table


def _describe(schema: pa.Schema) -> str:
    return ", ".join(
        f"{field.name}: {field.type}{'' if field.nullable else ' not null'}" for field in schema
    )


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _corrupt(message: str, path: str, offset: int, expected: str, actual: str) -> NoReturn:
    raise Corrupt(message, path=path, offset=offset, expected=expected, got=actual)
