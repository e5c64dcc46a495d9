"""Deletion vectors of Iceberg tables: one Puffin file for all vectors of a commit.

Source: https://iceberg.apache.org/puffin-spec/#deletion-vector-v1-blob-type.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mdt.formats.data_files import DataFile
from mdt.formats.positions import framed, position_bytes

_MAGIC = b"PFA1"
_NO_FLAGS = bytes(4)
_POSITIONS_ID = 2147483645
"""Id of the row position field, which Iceberg reserves."""


@dataclass(frozen=True, slots=True)
class Blob:
    """The deletion vector of a data file in a Puffin file.

    Attributes:
        offset, size: Its bytes.
    """

    file: DataFile
    offset: int
    size: int


def puffin(files: Sequence[DataFile], location: str) -> tuple[bytes, list[Blob]]:
    """Return a Puffin file with the deletion vectors of data files of the table at ``location``,
    and where each of them is.
    """
    parts, blobs, described = [_MAGIC], list[Blob](), list[dict[str, Any]]()
    offset = len(_MAGIC)
    for file in files:
        data = framed(position_bytes(file.dead))
        blobs.append(Blob(file, offset, len(data)))
        described.append(
            {
                "type": "deletion-vector-v1",
                "fields": [_POSITIONS_ID],
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": offset,
                "length": len(data),
                "properties": {
                    "referenced-data-file": f"{location}/{file.path}",
                    "cardinality": str(len(file.dead)),
                },
            }
        )
        parts.append(data)
        offset += len(data)
    text = {"blobs": described, "properties": {"created-by": "mdt"}}
    footer = json.dumps(text, separators=(",", ":"), ensure_ascii=False).encode()
    parts += [_MAGIC, footer, struct.pack("<i", len(footer)), _NO_FLAGS, _MAGIC]
    return b"".join(parts), blobs
