"""The operations upsert, insert, bulk_insert and delete, for rows in this process or on an engine.

An operation assigns rows to file groups and commits. It only sees row counts. The holder of the
rows (:class:`Rows`) applies the rule and writes them. :class:`RowsInProcess` does this for a batch
in the calling thread, :mod:`mdt.engines.write` for rows in engine tasks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from indexes.base import Int64Array, KeyHashes
from mdt.commit.conflicts import Footprint
from mdt.commit.operation import Changes, Claim, Operation, WritePlan
from mdt.config import Options
from mdt.errors import Invalid
from mdt.metadata.keys import buckets
from mdt.metadata.log.commit_log import NO_TOMBSTONES
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.progress import Progress
from mdt.write.assign import NEW, Assignment, Place, assign
from mdt.write.new_files import WriteJob
from mdt.write.normalize import Batch
from mdt.write.result import ScanStatistics
from mdt.write.row_groups import GroupedRows, absent_keys, by_value, inserts_of
from mdt.write.rules import Outcome, Rule
from mdt.write.slice_files import new_partitions, write_slices
from mdt.write.written_bytes import rewriting_warnings

CHECKED = ("insert", "bulk_insert")
"""Operations that accept new keys only."""
_NAMED_ROWS = 10
Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Findings:
    """Row counts and keys, determined before rows are assigned to file groups.

    Attributes:
        inserts: Place -> number of rows.
        updates: File group -> number of replaced rows.
        deletes: File group -> number of deleted rows.
        returns: File group -> number of re-inserted keys.
        falls: File groups with rows whose ordering value decreases.
        groups: All file groups that were read.
        counts: As in :class:`mdt.commit.operation.WritePlan`.
        row_bytes: Mean bytes of a row in Arrow.
        absent: Keys found absent, in the form of a footprint. Further keys may be found during the
            write.
        left: As in :class:`mdt.commit.operation.WritePlan`.
        tombstones: Tombstones of deleted keys, schema TOMBSTONES.
        refused: Reason if the rows of an insert are not all new.
        scan_statistics: Scan statistics of a merge.
    """

    inserts: Mapping[Place, int]
    updates: Mapping[int, int]
    deletes: Mapping[int, int]
    returns: Mapping[int, int]
    falls: Collection[int]
    groups: Collection[int]
    counts: Mapping[str, int]
    row_bytes: float
    absent: Mapping[str, KeyHashes] = field(default_factory=dict)
    left: Mapping[int, BitMap] | None = None
    tombstones: pa.Table = field(default_factory=lambda: NO_TOMBSTONES)
    refused: str | None = None
    scan_statistics: ScanStatistics | None = None


class DecidedRows(ABC):
    """Rows with their outcome, and the ability to write them."""

    __slots__ = ()

    findings: Findings

    @abstractmethod
    def write(
        self, operation: RowOperation, snapshot: Snapshot, plan: RowPlan, claim: Claim
    ) -> Changes:
        """Write the rows according to ``plan``. Return the changes to commit."""

    def close(self) -> None:
        """Release resources outside this process."""
        return


class Rows(ABC):
    """Input rows of an operation, in this process or on an engine."""

    __slots__ = ()

    writers: int
    """Number of files that can be written at a time. 0 takes it from the options."""

    @abstractmethod
    def decide(self, operation: RowOperation, snapshot: Snapshot) -> DecidedRows:
        """Return the rows with their outcome on ``snapshot``."""


@dataclass(frozen=True, slots=True)
class RowPlan(WritePlan):
    """The plan of an operation on rows.

    Attributes:
        work: Assignment of each file group.
        rows: The rows with their outcome.
    """

    work: Sequence[Assignment] = ()
    rows: DecidedRows = field(kw_only=True)

    @property
    def row_bytes(self) -> float:
        """Mean bytes of a row in Arrow."""
        return self.rows.findings.row_bytes

    @property
    def scan_statistics(self) -> ScanStatistics | None:
        """Scan statistics of a merge."""
        return self.rows.findings.scan_statistics

    def close(self) -> None:
        """Release resources of the rows."""
        self.rows.close()


@dataclass(frozen=True, slots=True)
class RowOperation(Operation[RowPlan]):
    """Write or delete rows.

    ``bulk_insert`` differs from ``insert`` in that it only fills new file groups. Re-inserted keys
    still go to the file groups of their deleted rows.

    Attributes:
        progress: Called with the number of written files and the total.
    """

    metadata: Metadata
    options: Options
    rows: Rows
    name: str
    action: str
    progress: Progress | None = None

    def prepare(self, snapshot: Snapshot, txn: str) -> RowPlan:
        """Return the plan for ``snapshot``. Raises Invalid if an insert has existing keys."""
        with self._decide(snapshot) as rows:
            if rows.findings.refused is not None:
                raise not_new(self.name, rows.findings.refused)
            return planned(
                self.metadata,
                self.options,
                snapshot,
                txn,
                rows,
                writers=self.rows.writers,
                use_small_files=self.name != "bulk_insert",
            )

    @contextmanager
    def _decide(self, snapshot: Snapshot) -> Iterator[DecidedRows]:
        """Provide the rows with their outcome. Closes them if the block fails."""
        rows = self.rows.decide(self, snapshot)
        try:
            yield rows
        except BaseException:
            rows.close()
            raise

    def write(self, snapshot: Snapshot, plan: RowPlan, claim: Claim) -> Changes:
        """Write the files of ``plan``."""
        changes = plan.rows.write(self, snapshot, plan, claim)
        tombstones = plan.rows.findings.tombstones
        return replace(changes, tombstones=tombstones) if len(tombstones) else changes


def planned(
    metadata: Metadata,
    options: Options,
    snapshot: Snapshot,
    txn: str,
    rows: DecidedRows,
    *,
    writers: int = 0,
    use_small_files: bool = True,
) -> RowPlan:
    """Return the plan with the file groups for ``rows``. Arguments as for
    :func:`mdt.write.assign.assign`.
    """
    findings = rows.findings
    # Hudi's Bloom and simple indexes do not find keys in log files
    can_index_log_files = metadata.key_index(snapshot).can_index_log_files
    can_index_log_files &= not snapshot.is_shared
    # readers of other formats see rows of log files only in copies
    can_index_log_files &= not snapshot.definition.other_formats
    assignments = assign(
        snapshot,
        options,
        can_index_log_files=can_index_log_files,
        touched={*findings.updates, *findings.deletes},
        returns=findings.returns,
        inserts=findings.inserts,
        row_bytes=findings.row_bytes,
        writers=writers,
        use_small_files=use_small_files,
        rewritten=findings.falls,
    )
    return RowPlan(
        footprint_of(snapshot, txn, findings.groups, assignments, findings.absent),
        partitions_of(assignments),
        findings.counts,
        bool(assignments) or bool(len(findings.tombstones)),
        assignments,
        rows=rows,
        left=findings.left,
        warnings=rewriting_warnings(
            snapshot, assignments, falls=findings.falls, returns=findings.returns
        ),
    )


@dataclass(frozen=True, slots=True)
class RowsInProcess(Rows):
    """A batch of rows in this process."""

    batch: Batch
    rule: Rule
    writers: int = 0

    def decide(self, operation: RowOperation, snapshot: Snapshot) -> DecidedInProcess:
        """Return the rows with their outcome."""
        outcome = self.rule.outcome(operation.metadata, snapshot, self.batch)
        return DecidedInProcess.from_outcome(snapshot, outcome, refuses=operation.name in CHECKED)


@dataclass(frozen=True, slots=True)
class DecidedInProcess(DecidedRows):
    """The rows of a batch, grouped by file group."""

    grouped: GroupedRows
    findings: Findings

    @classmethod
    def from_outcome(
        cls, snapshot: Snapshot, outcome: Outcome, *, refuses: bool
    ) -> DecidedInProcess:
        """Return the rows of ``outcome`` by file group.

        Args:
            refuses: True if keys must be new.
        """
        batch, places = outcome.batch, outcome.places
        removed = np.append(outcome.moves, outcome.ends)
        rows = GroupedRows(
            batch,
            places,
            by_value(outcome.updates, places.group[outcome.updates]),
            by_value(removed, places.group[removed]),
            by_value(outcome.returns, places.dead_in[outcome.returns]),
            inserts_of(batch, outcome.inserts, places.home),
        )
        written = len(outcome.inserts) + len(outcome.returns)
        counts = {
            "inserted": written - len(outcome.moves),
            "updated": len(outcome.updates) + len(outcome.moves),
            "deleted": len(outcome.ends),
            "late": len(outcome.late) + outcome.repeated,
            "missing": len(outcome.missing),
        }
        refused = None
        if refuses:
            refused = _refusal_reason(batch, outcome.updates)
        findings = Findings(
            sizes(rows.inserts),
            sizes(rows.updates),
            sizes(rows.deletes),
            sizes(rows.returns),
            (),
            np.unique(places.group[places.group >= 0]).tolist(),
            counts,
            batch.row_bytes,
            absent_keys(batch, outcome.absent, snapshot.definition.is_global),
            outcome.left(snapshot),
            outcome.tombstones,
            refused,
        )
        return cls(rows, findings)

    def write(
        self, operation: RowOperation, snapshot: Snapshot, plan: RowPlan, claim: Claim
    ) -> Changes:
        """Write the rows on threads."""
        job = WriteJob.for_claim(operation.metadata, snapshot, operation.options, claim)
        return write_rows(job, plan.work, self.grouped, operation.progress)


def _refusal_reason(batch: Batch, existing: Int64Array) -> str | None:
    """Return the reason to refuse an insert, or None.

    Args:
        existing: Rows with existing keys.
    """
    if len(existing):
        shown_keys = batch.keys.take(pa.array(existing[:_NAMED_ROWS])).to_pylist()
        return f"{len(existing)} keys exist already: {shown_keys}"
    if batch.duplicates:
        return f"{batch.duplicates} rows repeat a key: {list(batch.repeated)}"
    return None


def sizes(rows: Mapping[Key, Sized]) -> dict[Key, int]:
    """Return key -> number of rows."""
    return {key: len(rows_of_key) for key, rows_of_key in rows.items()}


def not_new(operation: str, reason: str) -> Invalid:
    """Return the error for an insert of existing or repeated keys."""
    return Invalid(f"{operation} takes new keys only; {reason}", hint="use upsert to replace rows")


def footprint_of(
    snapshot: Snapshot,
    txn: str,
    groups: Collection[int],
    assignments: Sequence[Assignment],
    absent: Mapping[str, KeyHashes],
) -> Footprint:
    """Return the footprint of an operation on rows.

    Args:
        groups: Numbers of the file groups that were read.
        absent: Keys found absent.
    """
    read = sorted(
        {*groups, *(assignment.group for assignment in assignments if assignment.group > NEW)}
    )
    return Footprint(
        txn, frozenset(snapshot.file_groups.names(read)), absent, opens=opened_by(assignments)
    )


def opened_by(assignments: Sequence[Assignment]) -> frozenset[tuple[str, int]]:
    """Return (partition path, bucket) of the buckets whose file group ``assignments`` creates."""
    return frozenset(
        (assignment.partition, buckets.bucket_of(assignment.group))
        for assignment in assignments
        if assignment.group < NEW
    )


def partitions_of(assignments: Sequence[Assignment]) -> list[str]:
    """Return the sorted partition paths of ``assignments``."""
    return sorted({w.partition for w in assignments})


def write_rows(
    job: WriteJob, assignments: Sequence[Assignment], rows: GroupedRows, progress: Progress | None
) -> Changes:
    """Write the files of ``assignments``. The metadata of new partitions are put concurrently."""
    make_partitions = partial(
        new_partitions, job.metadata, job.snapshot, job.claim, partitions_of(assignments)
    )
    partitions_done = job.metadata.storage.begin(make_partitions)
    read = [
        assignment.group
        for assignment in assignments
        if assignment.group >= 0 and not assignment.is_log
    ]
    changes = write_slices(
        job, assignments, rows.slices_of(assignments), progress, read=read, rows=len(rows.batch)
    )
    partitions_done()
    return changes
