"""What a write returns."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from mdt.write.written_bytes import estimated, written_by

if TYPE_CHECKING:
    from mdt.commit.transaction import CommitResult


@dataclass(frozen=True, slots=True)
class WriteResult:
    """How a write ended.

    ``seq``: number of its commit, or of the newest one if nothing had to change.  ``instant``: its
    Hudi instant, or "". ``inserted``, ``updated``, ``deleted``: rows.  ``late``: rows dropped
    because the table had a larger ordering value, or the batch a newer row of the same key.
    ``missing``: keys to delete that did not exist.  ``attempts``: how often it was tried.
    ``engine``: "arrow" or "spark".  ``warnings``: what else the caller should know.

    ``files_written``: new data files; ``files_rewritten``: those of them that are base files in the
    place of a file group, whose rows they hold. ``bytes_written``: of data files with key maps,
    page maps and summaries; the commit itself takes some 10 KB more.
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
    files_written: int = 0
    files_rewritten: int = 0
    bytes_written: int = 0

    @classmethod
    def of(cls, done: CommitResult[Any], engine: str = "arrow") -> Self:
        """Return what to tell of a transaction that ended; without a record nothing had to change,
        or it was a dry run.
        """
        seq, instant, counts = done.snapshot.seq, "", done.plan.counts
        if done.record is not None:
            seq, instant, counts = (
                done.record.seq,
                done.record.instant,
                done.record.header["counts"],
            )
        known = {
            name: counts.get(name, 0)
            for name in ("inserted", "updated", "deleted", "late", "missing")
        }
        wrote = (
            estimated(done.snapshot, done.plan) if done.record is None else written_by(done.record)
        )
        return cls(
            seq,
            instant,
            **known,
            attempts=done.attempts,
            engine=engine,
            warnings=done.warnings,
            files_written=wrote.files,
            files_rewritten=wrote.rewritten,
            bytes_written=wrote.bytes,
        )


@dataclass(frozen=True, slots=True)
class Looked:
    """What a merge has looked at.

    ``source_rows``: of the source, with ``dedupe`` one for each key; ``scanned``: how many of the
    ``files`` of the table; ``microseconds``: of finding out which clause holds for which row;
    ``engine``: where.
    """

    source_rows: int
    scanned: int
    files: int
    microseconds: int
    engine: str = "arrow"


@dataclass(frozen=True, slots=True)
class MergeResult(WriteResult):
    """How a merge ended.

    ``source_rows``: rows of the source, with ``dedupe`` one for each key.  ``files_scanned``: files
    of the table that were looked into, ``files_skipped``: those that indexes, statistics and the
    key index ruled out.  ``match_ms``: of finding out which clause holds for which row,
    ``write_ms``: of all else, ``total_ms``: of both, attempts that met a conflict included in the
    latter.
    """

    source_rows: int = 0
    files_scanned: int = 0
    files_skipped: int = 0
    match_ms: float = 0.0
    write_ms: float = 0.0
    total_ms: float = 0.0

    @classmethod
    def of_merge(cls, done: CommitResult[Any], looked: Looked, microseconds: int) -> MergeResult:
        """Return what to tell of a merge that took so many ``microseconds``."""
        return replace(
            cls.of(done, looked.engine),
            source_rows=looked.source_rows,
            files_scanned=looked.scanned,
            files_skipped=looked.files - looked.scanned,
            match_ms=looked.microseconds / 1e3,
            write_ms=(microseconds - looked.microseconds) / 1e3,
            total_ms=microseconds / 1e3,
        )
