"""Rows as Parquet bytes, and all that is known of them: what becomes a data file, or a block of
one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mdt.write.summarize import Summaries


@dataclass(frozen=True, slots=True)
class Encoded:
    """``data``: a buffer.  ``footer``: length and CRC-32.  ``key_map``, ``page_map``: encoded.  By
    default of no rows, which a log file of deletes has.
    """

    data: Any = b""
    rows: int = 0
    row_groups: tuple[int, ...] = ()
    footer: tuple[int, int] = (0, 0)
    found: Summaries = field(default_factory=Summaries)
    key_map: Any = None
    page_map: bytes | None = None
