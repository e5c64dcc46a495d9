"""One thing that is wrong with a table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What is wrong, by what would mend it: see :mod:`mdt.services.repair`."""

    TABLE = "table"
    """The table as a whole: what its parts say does not fit together."""
    RECORD = "commit record"
    CHECKPOINT = "checkpoint"
    """The hint, too."""
    ARCHIVE = "archive"
    TIMELINE = "timeline"
    """Hudi's instants, properties, and markers of partitions."""
    ROWS = "rows"
    """A data file."""
    ATTACHMENT = "attachment"
    """Key maps, page maps, summaries, key parts: the bytes are not those that were written."""
    DERIVED = "derived"
    """What is kept of a data file is whole, and does not say what the file does."""
    SUMMARY = "summary"
    """The same, of a summary of a skipping index."""
    KEY_INDEX = "key index"
    LEFT_OVER = "left over"
    CLAIM = "claim"


@dataclass(frozen=True, slots=True)
class Problem:
    """``path``: the object; ``offset``: the byte, -1 if it concerns the whole object; ``text``:
    what is wrong.
    """

    path: str
    offset: int
    text: str
    kind: Kind = Kind.TABLE

    def __str__(self) -> str:
        where = self.path
        if self.offset >= 0:
            where += f" at byte {self.offset}"
        return f"{where}: {self.text}"
