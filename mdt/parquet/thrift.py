"""The part of Thrift's compact protocol that Parquet footers and page indexes need.

Source: https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md. Readers
work on bytes and positions. They read the output of our own writer, so damage leads to
:class:`Malformed`, IndexError, or values that the caller validates.
"""

from __future__ import annotations

from collections.abc import Sequence

STOP, TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(13)
"""Wire types. TRUE and FALSE are booleans stored in the field's header."""

LIST_FIELD = 1 << 4 | LIST
"""The header of a list in the field after the field before."""

_LONG_LIST = 15
_DEPTH_MAX = 16
_SHIFT_MAX = 63


class Malformed(ValueError):
    """Bytes that are not a valid Thrift structure."""


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    r"""Return the unsigned number at ``at`` and the position after it.

    Raises Malformed if it has more than 64 bits, and IndexError if it does not end.

    >>> read_varint(b"\xac\x02", 0)
    (300, 2)
    """
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > _SHIFT_MAX:
            raise Malformed("a number has more than 64 bits")


def read_integer(data: bytes, at: int) -> int:
    """Return the signed number (I16, I32, I64) at ``at``."""
    value = read_varint(data, at)[0]
    return (value >> 1) ^ -(value & 1)


def read_list(data: bytes, at: int) -> tuple[int, int, int]:
    """Return element type, length and position of the first element of the list at ``at``."""
    head = data[at]
    size, at = (head >> 4, at + 1) if head >> 4 != _LONG_LIST else read_varint(data, at + 1)
    return head & 0x0F, size, at


def find(data: bytes, at: int, field: int) -> int:
    """Return the position of the value of a field in the structure at ``at``.

    Raises Malformed if the structure does not contain the field.
    """
    number = 0
    while (head := data[at]) != STOP:
        number, at = _number(data, at, number)
        if number == field:
            return at
        at = skip(data, at, head & 0x0F)
    raise Malformed(f"a structure without field {field}")


def skip(data: bytes, at: int, kind: int) -> int:
    """Return the position after the value of type ``kind`` at ``at``, a field of a structure."""
    if kind in (TRUE, FALSE):
        return at
    return _skip(data, at, kind, 0)


def _number(data: bytes, at: int, number: int) -> tuple[int, int]:
    """Return the field id and value position for the field header at ``at``.

    Args:
        number: Id of the previous field.
    """
    if data[at] >> 4:
        return number + (data[at] >> 4), at + 1
    return read_integer(data, at + 1), read_varint(data, at + 1)[1]


def _skip_fields(data: bytes, at: int, depth: int) -> int:
    if depth > _DEPTH_MAX:
        raise Malformed("structures are nested too deeply")
    while (head := data[at]) != STOP:
        at = _number(data, at, 0)[1]
        at = _skip(data, at, head & 0x0F, depth + 1) if head & 0x0F > FALSE else at
    return at + 1


def _skip(data: bytes, at: int, kind: int, depth: int) -> int:
    if kind in (I16, I32, I64):
        while data[at] >= 0x80:
            at += 1
        return at + 1
    if kind == BINARY:
        size, at = read_varint(data, at)
        return at + size
    if kind == STRUCT:
        return _skip_fields(data, at, depth)
    if kind in (LIST, SET):
        element, size, at = read_list(data, at)
        for _ in range(size):
            at = _skip(data, at, element, depth + 1) if element > FALSE else at + 1
        return at
    if kind in (BYTE, DOUBLE):
        return at + (1 if kind == BYTE else 8)
    raise Malformed(f"a value of type {kind} at byte {at}")


def varint(value: int) -> bytes:
    r"""Encode an unsigned number with 7 bits per byte, lowest first, as in protobuf. Avro's long of
    an unsigned number is that of twice the number.

    >>> varint(300)
    b'\xac\x02'
    """
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def integer(step: int, kind: int, value: int) -> bytes:
    """Encode a field of type I16, I32 or I64 with ``value`` >= 0.

    Args:
        step: Difference between its id and the id of the previous field.
    """
    if value < 0x40:
        return bytes((step << 4 | kind, value << 1))
    return bytes((step << 4 | kind,)) + varint(value << 1)


def text(value: str) -> bytes:
    """Encode a BINARY value without a field header."""
    data = value.encode()
    return varint(len(data)) + data


def list_field(kind: int, elements: Sequence[bytes]) -> bytes:
    """Encode a field with the elements of a list of type ``kind``, one after the field before."""
    size = len(elements)
    if size < _LONG_LIST:
        head = bytes((LIST_FIELD, size << 4 | kind))
    else:
        head = bytes((LIST_FIELD, _LONG_LIST << 4 | kind)) + varint(size)
    return head + b"".join(elements)
