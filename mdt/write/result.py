"""Results of writes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from mdt.write.written_bytes import count_written, estimate

if TYPE_CHECKING:
    from mdt.commit.transaction import CommitResult


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of a write.

    Attributes:
        seq: Number of its commit, or of the newest commit if nothing changed.
        instant: Its Hudi instant, or "" if nothing changed.
        inserted: Number of inserted rows.
        updated: Number of updated rows.
        deleted: Number of deleted rows.
        late: Number of rows ignored because the table had a larger ordering value, or the batch a
            newer row of the same key.
        missing: Number of keys to delete that did not exist.
        attempts: Number of attempts to commit.
        engine: "arrow" or "spark".
        warnings: Messages for the caller.
        files_written: Number of new data files.
        files_rewritten: Number of new base files that replace a file group, including its rows.
        bytes_written: Size of data files, key maps, page maps and summaries. The commit record
            takes about 10 KB more.

    >>> rows = {"id": ["a", "d"], "city": ["Oslo", "Rome"], "fare": [10.0, 3.5], "ts": [2, 2]}
    >>> result = t.upsert(rows)
    >>> result.inserted, result.updated
    (1, 1)
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
    def from_commit(cls, commit: CommitResult[Any], engine: str = "arrow") -> Self:
        """Return the result of a transaction. There is no record if nothing changed, or in a dry
        run.
        """
        seq, instant, counts = commit.snapshot.seq, "", commit.plan.counts
        if commit.record is not None:
            seq, instant, counts = (
                commit.record.seq,
                commit.record.instant,
                commit.record.header["counts"],
            )
        row_counts = {
            name: counts.get(name, 0)
            for name in ("inserted", "updated", "deleted", "late", "missing")
        }
        written = (
            estimate(commit.snapshot, commit.plan)
            if commit.record is None
            else count_written(commit.record)
        )
        return cls(
            seq,
            instant,
            **row_counts,
            attempts=commit.attempts,
            engine=engine,
            warnings=commit.warnings,
            files_written=written.files,
            files_rewritten=written.rewritten,
            bytes_written=written.bytes,
        )


@dataclass(frozen=True, slots=True)
class ScanStatistics:
    """Scan statistics of a merge.

    Attributes:
        source_rows: Rows of the source, after ``dedupe``.
        scanned: Number of table files that were read.
        files: Number of files of the table.
        microseconds: Time to determine the clause of each row.
        engine: "arrow" or "spark".
    """

    source_rows: int
    scanned: int
    files: int
    microseconds: int
    engine: str = "arrow"


@dataclass(frozen=True, slots=True)
class MergeResult(WriteResult):
    """The result of a merge.

    Attributes:
        source_rows: Rows of the source, after ``dedupe``.
        files_scanned: Number of table files that were read.
        files_skipped: Number of table files that indexes, statistics or the key index ruled out.
        match_ms: Time to determine the clause of each row.
        write_ms: Time for everything else, including attempts that ended in a conflict.
        total_ms: Sum of both.

    >>> source = {"id": ["a", "x"], "city": ["Oslo", "Rome"], "fare": [8.0, 4.0], "ts": [2, 2]}
    >>> merge = t.merge(source).when_matched().update({"fare": "source.fare"})
    >>> result = merge.when_not_matched().insert().execute()
    >>> result.updated, result.inserted, result.source_rows
    (1, 1, 2)
    """

    source_rows: int = 0
    files_scanned: int = 0
    files_skipped: int = 0
    match_ms: float = 0.0
    write_ms: float = 0.0
    total_ms: float = 0.0

    @classmethod
    def from_merge(
        cls, commit: CommitResult[Any], statistics: ScanStatistics, microseconds: int
    ) -> MergeResult:
        """Return the result of a merge that took ``microseconds``."""
        return replace(
            cls.from_commit(commit, statistics.engine),
            source_rows=statistics.source_rows,
            files_scanned=statistics.scanned,
            files_skipped=statistics.files - statistics.scanned,
            match_ms=statistics.microseconds / 1e3,
            write_ms=(microseconds - statistics.microseconds) / 1e3,
            total_ms=microseconds / 1e3,
        )
