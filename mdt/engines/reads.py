"""How Spark reads tables, as far as a session says it."""

from __future__ import annotations

from dataclasses import dataclass

from mdt.limits import FOOTERS_OF_EXECUTOR_BYTES


@dataclass(frozen=True, slots=True)
class Reads:
    """How the frames of tables are read.

    ``explains``: who is told of each plan: "log", Spark's, by the logger ``mdt.plan``; "metrics", those of Spark's UI.  ``affinity``: "on", "off",
    or "auto", which is on where the store is far: whether a file is read by the same executor as long as that lives.  ``footer_bytes``: of
    footers of files on far stores that an executor keeps in memory, 0 for none.
    """

    explains: tuple[str, ...] = ()
    affinity: str = "auto"
    footer_bytes: int = FOOTERS_OF_EXECUTOR_BYTES
