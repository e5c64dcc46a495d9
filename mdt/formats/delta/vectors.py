"""Deletion vectors of Delta tables: their bytes, and the objects that hold large ones.

A vector is a magic number and a 64-bit roaring bitmap. Small ones are in the log as text, each
large one is an object of its own. Its name follows from the data file and the number of deleted
rows, which grows with each change. So the name of a vector is known from the state of a table
alone, and a later commit can take the vector back without a look at earlier commits.

Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#deletion-vector-format.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid5

from mdt.formats.data_files import DataFile
from mdt.formats.positions import framed, position_bytes
from mdt.metadata.files import paths

FOLDER = f"{paths.PRIVATE}/delta"
"""The directory of large vectors."""
INLINE_BYTES_MAX = 1024
"""Vectors up to this size are in the log. Larger ones would make it longer than its other lines."""

_FILE_VERSION = b"\1"
_WORD_BYTES = 4
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_TO_Z85 = str.maketrans(_B85, _Z85)


@dataclass(frozen=True, slots=True)
class Vector:
    """A deletion vector as the log describes it.

    Attributes:
        descriptor: Fields of the action.
        path: Path of its object, or "" for a vector in the log.
        content: Bytes of the object.
    """

    descriptor: dict[str, Any]
    path: str = ""
    content: bytes = b""


def vector_of(file: DataFile, table_id: str) -> Vector | None:
    """Return the vector of a file, or None if no row is deleted."""
    count = len(file.dead)
    if not count:
        return None
    data = position_bytes(file.dead)
    sizes = {"sizeInBytes": len(data), "cardinality": count}
    if len(data) <= INLINE_BYTES_MAX:
        return Vector({"storageType": "i", "pathOrInlineDv": z85(data), **sizes})
    name = uuid5(UUID(table_id), f"{file.path}/{count}")
    text = {"storageType": "u", "pathOrInlineDv": FOLDER + z85(name.bytes)}
    descriptor = {**text, "offset": len(_FILE_VERSION), **sizes}
    return Vector(descriptor, f"{FOLDER}/deletion_vector_{name}.bin", _FILE_VERSION + framed(data))


def z85(data: bytes) -> str:
    """Return bytes as text in Z85, padded with zeros to a multiple of four bytes.

    >>> z85(bytes.fromhex("864fd26fb559f75b"))
    'HelloWorld'
    """
    padded = data + bytes(-len(data) % _WORD_BYTES)
    return base64.b85encode(padded).decode("ascii").translate(_TO_Z85)
