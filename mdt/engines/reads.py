"""How Spark reads tables, as far as a session says it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from mdt.limits import FOOTERS_OF_EXECUTOR_BYTES, VECTORS_OF_EXECUTOR_BYTES

OPTIMIZES = ("joins", "statistics", "top", "totals")
"""What Spark's planner does with a table beside pruning by filters: "joins", the values of one side
of a join prune the other; "statistics", its optimizer is told what is left after pruning; "top",
first rows are looked for where they may be; "totals", count, min and max are answered from the
metadata table where they are exact.
"""

OF_STREAMS = ("joins", "statistics")
"""What of OPTIMIZES is done for a batch of a stream.  First rows and totals of a stream are those
of all its batches, which Spark adds up in its state; of one batch nothing is known of them.
"""


@dataclass(frozen=True, slots=True)
class Reads:
    """How the frames of tables are read.

    ``explains``: whether plans are told of to whom the session names that runs a query.
    ``affinity``: "on", "off", or "auto", which is on where the store is far: whether a file is read
    by the same executor as long as that lives.  ``footer_bytes``: of footers of files on far stores
    that an executor keeps in memory, 0 for none; ``vector_bytes``: of deletion vectors.
    ``optimizes``: which of OPTIMIZES Spark's planner does.
    """

    explains: bool = True
    affinity: str = "auto"
    footer_bytes: int = FOOTERS_OF_EXECUTOR_BYTES
    vector_bytes: int = VECTORS_OF_EXECUTOR_BYTES
    optimizes: tuple[str, ...] = OPTIMIZES

    def of_stream(self) -> Self:
        """Return the same for the batches of a stream."""
        return replace(self, optimizes=tuple(one for one in self.optimizes if one in OF_STREAMS))
