"""Encoded Parquet rows and their descriptions, for a data file or a log block."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mdt.write.summarize import Summaries


@dataclass(frozen=True, slots=True)
class Encoded:
    """Encoded rows. The default has no rows, for a log file with deletes only.

    Attributes:
        data: Parquet bytes, a buffer.
        row_groups: Number of rows in each row group.
        footer: Length and CRC-32 of the footer.
        summaries: Column statistics and index summaries.
        key_map: Encoded key map.
        page_map: Encoded page map.
    """

    data: Any = b""
    rows: int = 0
    row_groups: tuple[int, ...] = ()
    footer: tuple[int, int] = (0, 0)
    summaries: Summaries = field(default_factory=Summaries)
    key_map: Any = None
    page_map: bytes | None = None
