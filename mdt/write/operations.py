"""The operations upsert, insert, bulk_insert and delete, wherever their rows are.

An operation assigns rows to file groups and commits; it sees how many there are of each kind.
Whoever holds the rows (:class:`Rows`) finds out what becomes of them, by a rule, and writes them:
the calling thread those of one batch (:class:`RowsHere`), an engine those that its tasks have
(:mod:`mdt.engines.write`).
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
from mdt.write.result import Looked
from mdt.write.row_groups import GroupedRows, absent_keys, by_value, inserts_of
from mdt.write.rules import Outcome, Rule
from mdt.write.slice_files import new_partitions, write_slices
from mdt.write.written_bytes import rewriting_warnings

CHECKED = ("insert", "bulk_insert")
"""Operations that take new keys only."""
_NAMED_ROWS = 10
Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Findings:
    """What is known of rows before they are assigned to file groups.

    ``inserts``: place -> how many.  ``updates``, ``deletes``, ``returns``: file group -> how many
    rows are replaced there, go, and have keys that return.  ``falls``: file groups in which rows
    get a smaller ordering value.  ``groups``: all file groups that were looked into.  ``counts``
    and ``left``: as those of a plan.  ``row_bytes``: mean bytes of a row in Arrow.  ``absent``:
    keys that were found absent, as a footprint has them; others are known when they are written.
    ``tombstones``: of deleted keys, schema TOMBSTONES.  ``refused``: why the rows of an insert are
    not all new.  ``looked``: what a merge has looked at.
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
    looked: Looked | None = None


class DecidedRows(ABC):
    """Rows of which it is known what becomes of them, with whoever will write them."""

    __slots__ = ()

    findings: Findings

    @abstractmethod
    def written(
        self, operation: RowOperation, snapshot: Snapshot, plan: RowPlan, claim: Claim
    ) -> Changes:
        """Write the rows as ``plan`` says; return what to commit."""

    def close(self) -> None:
        """Give back what is held outside this process."""
        return


class Rows(ABC):
    """Rows as they were given, and what finds out what becomes of them."""

    __slots__ = ()

    writers: int
    """How many files can be written at a time; 0: as many as the options say."""

    @abstractmethod
    def decided(self, operation: RowOperation, snapshot: Snapshot) -> DecidedRows:
        """Return the rows with what becomes of each."""


@dataclass(frozen=True, slots=True)
class RowPlan(WritePlan):
    """What ``rows`` do to a snapshot.  ``work``: what each file group takes."""

    work: Sequence[Assignment] = ()
    rows: DecidedRows = field(kw_only=True)

    @property
    def row_bytes(self) -> float:
        """Mean bytes of a row in Arrow."""
        return self.rows.findings.row_bytes

    @property
    def looked(self) -> Looked | None:
        """What a merge has looked at."""
        return self.rows.findings.looked

    def close(self) -> None:
        """Give back what the rows hold."""
        self.rows.close()


@dataclass(frozen=True, slots=True)
class RowOperation(Operation[RowPlan]):
    """Write what becomes of ``rows``, or end it.

    ``bulk_insert`` differs from ``insert`` in that it fills new file groups, but for keys that were
    deleted: these return.  ``progress`` is called with the number of written files and of all.
    """

    metadata: Metadata
    options: Options
    rows: Rows
    name: str
    action: str
    progress: Progress | None = None

    def prepare(self, snapshot: Snapshot, txn: str) -> RowPlan:
        """Return the plan for ``snapshot``.  Raises Invalid if keys exist that must not."""
        with self._decided(snapshot) as rows:
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
    def _decided(self, snapshot: Snapshot) -> Iterator[DecidedRows]:
        """Give what becomes of the rows, and close it if what is done with it fails."""
        rows = self.rows.decided(self, snapshot)
        try:
            yield rows
        except BaseException:
            rows.close()
            raise

    def write(self, snapshot: Snapshot, plan: RowPlan, claim: Claim) -> Changes:
        """Write the files of ``plan``."""
        changes = plan.rows.written(self, snapshot, plan, claim)
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
    """Return which file groups take ``rows``; the rest is as in :func:`mdt.write.assign.assign`."""
    known = rows.findings
    work = assign(
        snapshot,
        options,
        can_index_log_files=metadata.key_index(snapshot).can_index_log_files,
        touched={*known.updates, *known.deletes},
        returns=known.returns,
        inserts=known.inserts,
        row_bytes=known.row_bytes,
        writers=writers,
        use_small_files=use_small_files,
        rewritten=known.falls,
    )
    return RowPlan(
        footprint_of(snapshot, txn, known.groups, work, known.absent),
        partitions_of(work),
        known.counts,
        bool(work) or bool(len(known.tombstones)),
        work,
        rows=rows,
        left=known.left,
        warnings=rewriting_warnings(snapshot, work, falls=known.falls, returns=known.returns),
    )


@dataclass(frozen=True, slots=True)
class RowsHere(Rows):
    """The rows of one batch, which the calling thread and threads of this process write: they are
    passed on as they are, and what becomes of them as numbers of rows.
    """

    batch: Batch
    rule: Rule
    writers: int = 0

    def decided(self, operation: RowOperation, snapshot: Snapshot) -> DecidedHere:
        """Return the rows with what becomes of each."""
        outcome = self.rule.outcome(operation.metadata, operation.options, snapshot, self.batch)
        return DecidedHere.of(snapshot, outcome, refuses=operation.name in CHECKED)


@dataclass(frozen=True, slots=True)
class DecidedHere(DecidedRows):
    """The rows of one batch, by the file groups that take them."""

    grouped: GroupedRows
    findings: Findings

    @classmethod
    def of(cls, snapshot: Snapshot, outcome: Outcome, *, refuses: bool) -> DecidedHere:
        """Return the rows of ``outcome`` by file group.  ``refuses``: keys must be new."""
        batch, places = outcome.batch, outcome.places
        gone = np.append(outcome.moves, outcome.ends)
        rows = GroupedRows(
            batch,
            places,
            by_value(outcome.updates, places.group[outcome.updates]),
            by_value(gone, places.group[gone]),
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
            refused = _refused(batch, outcome.updates)
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

    def written(
        self, operation: RowOperation, snapshot: Snapshot, plan: RowPlan, claim: Claim
    ) -> Changes:
        """Write the rows on threads."""
        job = WriteJob.of(operation.metadata, snapshot, operation.options, claim)
        return write_rows(job, plan.work, self.grouped, operation.progress)


def _refused(batch: Batch, known: Int64Array) -> str | None:
    """Return why the rows of an insert are refused.  ``known``: those whose keys live."""
    if len(known):
        named = batch.keys.take(pa.array(known[:_NAMED_ROWS])).to_pylist()
        return f"{len(known)} keys exist already: {named}"
    if batch.duplicates:
        return f"{batch.duplicates} rows repeat a key: {list(batch.repeated)}"
    return None


def sizes(rows: Mapping[Key, Sized]) -> dict[Key, int]:
    """Return how many rows there are of each."""
    return {of: len(some) for of, some in rows.items()}


def not_new(operation: str, what: str) -> Invalid:
    """Return the refusal of rows that an insert does not take."""
    return Invalid(f"{operation} takes new keys only; {what}", hint="use upsert to replace rows")


def footprint_of(
    snapshot: Snapshot,
    txn: str,
    groups: Collection[int],
    work: Sequence[Assignment],
    absent: Mapping[str, KeyHashes],
) -> Footprint:
    """Return the footprint of everything that was read.  ``groups``: numbers of file groups."""
    read = sorted({*groups, *(one.group for one in work if one.group > NEW)})
    return Footprint(
        txn, frozenset(snapshot.file_groups.names(read)), absent, opens=opened_by(work)
    )


def opened_by(work: Sequence[Assignment]) -> frozenset[tuple[str, int]]:
    """Return the buckets, by partition, of which ``work`` makes the file group."""
    return frozenset((one.partition, buckets.number(one.group)) for one in work if one.group < NEW)


def partitions_of(work: Sequence[Assignment]) -> list[str]:
    """Return the paths of the partitions of ``work``."""
    return sorted({w.partition for w in work})


def write_rows(
    job: WriteJob, work: Sequence[Assignment], rows: GroupedRows, progress: Progress | None
) -> Changes:
    """Write the files of ``work``, and the metadata of new partitions meanwhile."""
    make_partitions = partial(
        new_partitions, job.metadata, job.snapshot, job.claim, partitions_of(work)
    )
    made = job.metadata.storage.begin(make_partitions)
    read = [one.group for one in work if one.group >= 0 and not one.is_log]
    changes = write_slices(
        job, work, rows.slices_of(work), progress, read=read, rows=len(rows.batch)
    )
    made()
    return changes
