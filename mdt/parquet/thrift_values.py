"""Structures of Thrift's compact protocol as Python values that can be changed and encoded again.

A structure is a dict: field id -> (wire type, value). A value is an int, bytes, a list with its
element type, or a structure. Booleans and doubles keep their bytes. For single fields of large
structures use :mod:`mdt.parquet.thrift`, which decodes nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mdt.parquet.thrift import (
    BINARY,
    BYTE,
    DOUBLE,
    FALSE,
    I16,
    I32,
    I64,
    LIST,
    SET,
    STOP,
    STRUCT,
    TRUE,
    Malformed,
    list_head,
    read_integer,
    read_list,
    read_varint,
    skip,
    varint,
)

Structure = dict[int, tuple[int, Any]]
"""Field id -> (wire type, value)."""

_DEPTH_MAX = 16
_STEP_MAX = 15
_FIXED = {BYTE: 1, DOUBLE: 8}


@dataclass(slots=True)
class Items:
    """A list or set. ``values`` have the wire type ``kind``."""

    kind: int
    values: list[Any]


def decode(data: bytes, at: int = 0) -> tuple[Structure, int]:
    """Return the structure at ``at`` and the position after it.

    Raises Malformed or IndexError for bytes that are not a structure.
    """
    return _structure(data, at, 0)


def encode(structure: Structure) -> bytes:
    r"""Return the bytes of a structure.

    >>> encode({1: (I32, 7), 4: (BINARY, b"id")}), decode(encode({1: (I32, 7)}))
    (b'\x15\x0e8\x02id\x00', ({1: (5, 7)}, 3))
    """
    out = bytearray()
    _put_structure(out, structure)
    return bytes(out)


def _structure(data: bytes, at: int, depth: int) -> tuple[Structure, int]:
    if depth > _DEPTH_MAX:
        raise Malformed("structures are nested too deeply")
    fields: Structure = {}
    number = 0
    while (head := data[at]) != STOP:
        kind, step = head & 0x0F, head >> 4
        at += 1
        if step:
            number += step
        else:
            number = read_integer(data, at)
            at = read_varint(data, at)[1]
        value: Any = None
        if kind not in (TRUE, FALSE):
            value, at = _value(data, at, kind, depth)
        fields[number] = kind, value
    return fields, at + 1


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (I16, I32, I64):
        return read_integer(data, at), read_varint(data, at)[1]
    if kind == BINARY:
        size, start = read_varint(data, at)
        return data[start : start + size], start + size
    if kind == STRUCT:
        return _structure(data, at, depth + 1)
    if kind in (LIST, SET):
        element, size, at = read_list(data, at)
        items = Items(element, [])
        for _ in range(size):
            value, at = _element(data, at, element, depth)
            items.values.append(value)
        return items, at
    end = skip(data, at, kind)
    return data[at:end], end


def _element(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (TRUE, FALSE):
        return data[at : at + 1], at + 1
    return _value(data, at, kind, depth)


def _put_structure(out: bytearray, structure: Structure) -> None:
    before = 0
    for number, (kind, value) in structure.items():
        step = number - before
        if 0 < step <= _STEP_MAX:
            out.append(step << 4 | kind)
        else:
            out.append(kind)
            out += varint(_zigzag(number))
        before = number
        if kind not in (TRUE, FALSE):
            _put(out, kind, value)
    out.append(STOP)


def _put(out: bytearray, kind: int, value: Any) -> None:
    if kind in (I16, I32, I64):
        out += varint(_zigzag(value))
    elif kind == BINARY:
        out += varint(len(value))
        out += value
    elif kind == STRUCT:
        _put_structure(out, value)
    elif kind in (LIST, SET):
        out += list_head(value.kind, len(value.values))
        for item in value.values:
            if value.kind in (TRUE, FALSE):
                out += item
            else:
                _put(out, value.kind, item)
    else:
        assert kind in _FIXED, f"wire type {kind}"
        out += value


def _zigzag(value: int) -> int:
    return (value << 1) ^ (value >> 63)
