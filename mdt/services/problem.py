"""One thing that is wrong with a table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """``path``: the object; ``offset``: the byte, -1 if it concerns the whole object; ``text``: what is wrong."""

    path: str
    offset: int
    text: str

    def __str__(self) -> str:
        where = self.path
        if self.offset >= 0:
            where += f" at byte {self.offset}"
        return f"{where}: {self.text}"
