"""What a write returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mdt.commit.transaction import CommitResult


@dataclass(frozen=True, slots=True)
class WriteResult:
    """How a write ended.

    ``seq``: number of its commit, or of the newest one if nothing had to change.  ``instant``: its Hudi instant, or "".
    ``inserted``, ``updated``, ``deleted``: rows.  ``late``: rows dropped because the table had a larger ordering value,
    or the batch a newer row of the same key.  ``missing``: keys to delete that did not exist.  ``attempts``: how often
    it was tried.  ``engine``: "arrow" or "spark".  ``warnings``: what did not matter.
    """

    seq: int
    instant: str
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    late: int = 0
    missing: int = 0
    attempts: int = 1
    engine: str = "arrow"
    warnings: tuple[str, ...] = field(default=())

    @classmethod
    def of(cls, done: CommitResult[Any], engine: str = "arrow") -> WriteResult:
        """Return what to tell of a transaction that ended; without a record nothing had to change."""
        seq, instant = done.snapshot.seq, ""
        if done.record is not None:
            seq, instant = done.record.seq, done.record.instant
        known = {name: done.plan.counts.get(name, 0) for name in ("inserted", "updated", "deleted", "late", "missing")}
        return cls(seq, instant, **known, attempts=done.attempts, engine=engine, warnings=done.warnings)
