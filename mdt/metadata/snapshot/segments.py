"""Conversion of rows of FILES to segments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from indexes.key_hash import KeyHash
from mdt.metadata.files import paths
from mdt.metadata.files.file_group import FILES
from mdt.parquet.segment import Segment
from mdt.session import Recent
from mdt.stores.object_range import ObjectRange

_SAME = tuple(field.name for field in fields(Segment) if field.name in FILES.names)
"""Columns of FILES with the name of an attribute of Segment."""

COLUMNS = tuple(name for name in FILES.names if name not in ("shard", "inserts", "updates"))
"""Columns of FILES needed for a segment."""

KnownSegments = Recent[tuple[KeyHash, int], Segment]
"""Segments that a process has read, by key hash and id."""


def segment_of(row: Mapping[str, Any]) -> Segment:
    """Return the segment in a row of FILES, given as a mapping of COLUMNS."""
    return Segment(
        id=row["segment"],
        path=paths.data_file(row["partition"], row["name"]),
        row_groups=tuple(row["row_group_rows"]),
        key_map=stored_range(row, "key_map"),
        page_map=stored_range(row, "page_map"),
        **{name: row[name] for name in _SAME},
    )


def stored_range(row: Mapping[str, Any], member: str) -> ObjectRange | None:
    """Return the object range of a file's key map or page map.  Both are in one object."""
    if row[f"{member}_offset"] is None:
        return None
    return ObjectRange(
        row["key_map_path"], *(row[f"{member}_{name}"] for name in ("offset", "length", "crc"))
    )
