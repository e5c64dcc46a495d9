"""Deletion vectors of Delta tables: their bytes, and the objects that hold large ones.

A vector is a magic number and a 64-bit roaring bitmap. Small ones are in the log as text. The large
ones of a commit are together in an object, in the order of their files. Its name follows from the
table and the commit.

Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#deletion-vector-format.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import numpy as np

from mdt.formats.data_files import DataFile
from mdt.formats.positions import framed, position_bytes
from mdt.limits import BASE_OBJECT_BYTES
from mdt.metadata.files import paths

FOLDER = f"{paths.PRIVATE}/delta"
"""The directory of large vectors."""
INLINE_BYTES_MAX = 1024
"""Vectors up to this size are in the log. Larger ones would make it longer than its other lines."""

Descriptor = Mapping[str, Any]
"""The fields ``deletionVector`` of an action."""

_OBJECT = re.compile(re.escape(FOLDER) + r"/deletion_vector_(.{36})\.bin")
_FILE_VERSION = b"\1"
_SEQ_BITS = 48
_TABLE_BITS = 64
_WORD_BYTES = 4
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_FROM_Z85 = str.maketrans(_Z85, _B85)
_DIGITS = np.frombuffer(_Z85.encode(), np.uint8)
_PLACES = np.array([85**4, 85**3, 85**2, 85, 1], np.uint32)
"""Values of the five digits of a word."""


@dataclass(frozen=True, slots=True)
class Vectors:
    """The deletion vectors of the files that a commit adds.

    Attributes:
        descriptors: Path of a file -> its vector. Files without deleted rows are left out.
        objects: (path, content) of the objects with large vectors, mostly one or none.
    """

    descriptors: Mapping[str, Descriptor]
    objects: list[tuple[str, bytes]] = field(default_factory=list)

    @classmethod
    def from_files(cls, files: Iterable[DataFile], table_id: str, seq: int) -> Vectors:
        """Return the vectors of files that commit ``seq`` adds."""
        descriptors, parts = dict[str, Descriptor](), list[bytearray]()
        for file in files:
            data = position_bytes(file.dead) if file.dead else b""
            if len(data) <= INLINE_BYTES_MAX:
                if data:
                    descriptors[file.path] = _in_log(data, file)
                continue
            if not parts or len(parts[-1]) > BASE_OBJECT_BYTES:
                parts.append(bytearray(_FILE_VERSION))
            name = _name(table_id, seq, len(parts) - 1)
            descriptors[file.path] = _described(name, len(parts[-1]), data, file)
            parts[-1] += framed(data)
        objects = [
            (_path(_name(table_id, seq, number)), bytes(part)) for number, part in enumerate(parts)
        ]
        return cls(descriptors, objects)


def vectors_in_log(
    files: Iterable[DataFile],
) -> tuple[dict[str, Descriptor], dict[str, Descriptor]]:
    """Return path -> vector of the files whose vectors are in the log, and path -> sizes of the
    large vectors of others.
    """
    descriptors, large = dict[str, Descriptor](), dict[str, Descriptor]()
    for file in files:
        data = position_bytes(file.dead) if file.dead else b""
        if len(data) > INLINE_BYTES_MAX:
            large[file.path] = _sizes(data, file)
        elif data:
            descriptors[file.path] = _in_log(data, file)
    return descriptors, large


def is_large_vector(stored: Any, sizes: Descriptor) -> bool:
    """Return True if a stored descriptor can be that of a large vector with these sizes."""
    try:
        name, offset = _name_in(stored["pathOrInlineDv"]), stored["offset"]
        expected = {**_place(name, offset), **sizes}
    except (KeyError, TypeError, ValueError, AttributeError):
        return False
    is_place = type(offset) is int and 0 < offset <= BASE_OBJECT_BYTES
    return is_place and bool(stored == expected)


def objects_with(
    files: Iterable[DataFile], descriptors: Mapping[str, Descriptor], stored: Mapping[str, bytes]
) -> dict[str, bytes]:
    """Return path -> content of the objects with the large vectors of files.

    Args:
        descriptors: Path of a file -> its vector.
        stored: Path -> stored content of the objects. Other bytes in them stay.
    """
    contents = {path: bytearray(content) for path, content in stored.items()}
    for file in files:
        vector = descriptors[file.path]
        data, start = framed(position_bytes(file.dead)), vector["offset"]
        content = contents.setdefault(object_of(vector["pathOrInlineDv"]), bytearray(_FILE_VERSION))
        content.extend(bytes(max(0, start - len(content))))
        content[start : start + len(data)] = data
    return {path: bytes(content) for path, content in contents.items()}


def object_of(place: str) -> str:
    """Return the path of the object that a descriptor names. Raises ValueError."""
    return _path(_name_in(place))


def seq_of(path: str, table_id: str) -> int | None:
    """Return the commit that has put an object with large vectors, or None for other objects.

    >>> path = ".hoodie/.mdt/delta/deletion_vector_0f38f8b1-1d5c-4a4e-0000-000000000007.bin"
    >>> seq_of(path, "0f38f8b1-1d5c-4a4e-9a4e-3a4e5d5c1d5c")
    7
    """
    match = _OBJECT.fullmatch(path)
    try:
        number = UUID(match[1]).int if match else 0
    except ValueError:
        return None
    if number >> _TABLE_BITS != UUID(table_id).int >> _TABLE_BITS:
        return None
    return number & ((1 << _SEQ_BITS) - 1)


def _in_log(data: bytes, file: DataFile) -> Descriptor:
    return {"storageType": "i", "pathOrInlineDv": z85(data), **_sizes(data, file)}


def _described(name: UUID, offset: int, data: bytes, file: DataFile) -> Descriptor:
    return {**_place(name, offset), **_sizes(data, file)}


def _place(name: UUID, offset: int) -> Descriptor:
    return {"storageType": "u", "pathOrInlineDv": FOLDER + z85(name.bytes), "offset": offset}


def _sizes(data: bytes, file: DataFile) -> Descriptor:
    return {"sizeInBytes": len(data), "cardinality": len(file.dead)}


def _name(table_id: str, seq: int, part: int) -> UUID:
    """Return the name of an object: the first half of the id of the table, 16 bits with the number
    of the object in its commit, and 48 bits with the commit.
    """
    table = UUID(table_id).int >> _TABLE_BITS << _TABLE_BITS
    return UUID(int=table | part << _SEQ_BITS | seq)


def _name_in(text: str) -> UUID:
    """Return the name that the log has for an object. Raises ValueError."""
    if not text.startswith(FOLDER):
        raise ValueError(f"{text[:100]!r} is not in {FOLDER}")
    return UUID(bytes=base64.b85decode(text[len(FOLDER) :].translate(_FROM_Z85)))


def _path(name: UUID) -> str:
    return f"{FOLDER}/deletion_vector_{name}.bin"


def z85(data: bytes) -> str:
    """Return bytes as text in Z85, padded with zeros to a multiple of four bytes.

    >>> z85(bytes.fromhex("864fd26fb559f75b"))
    'HelloWorld'
    """
    padded = data + bytes(-len(data) % _WORD_BYTES)
    words = np.frombuffer(padded, ">u4").astype(np.uint32)
    return _DIGITS[words[:, np.newaxis] // _PLACES % 85].tobytes().decode("ascii")
