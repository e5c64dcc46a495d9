"""The interface of a table change: prepare a plan, write files, give way to concurrent commits.

:mod:`mdt.commit.transaction` runs operations. To add one, derive from :class:`Operation`. File
names, the commit, retries and clean-up are handled by the transaction.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import pyarrow as pa
from pyroaring import BitMap

from indexes.base import KeyHashes
from mdt.commit.conflicts import Footprint
from mdt.metadata.files.file_group import NewFile, SummaryRef
from mdt.metadata.log.commit_log import NO_MAPS, NO_TOMBSTONES, CommitRecord
from mdt.metadata.snapshot.key_parts import KeyPart
from mdt.metadata.snapshot.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Claim:
    """The instant and file-name tokens of a transaction.

    Attributes:
        token: Middle number of the write tokens in file names.
        attempt: Last number of the write tokens. Retried tasks count up.
        is_of_task: True if an engine task holds the claim. A task may outlive its transaction.
    """

    txn: str
    instant: str
    token: int
    attempt: int = 0
    is_of_task: bool = False

    def for_attempt(self, attempt: int) -> Claim:
        """Return the claim for an attempt of a task."""
        return replace(self, attempt=attempt, is_of_task=True)

    def write_token(self, task: int) -> str:
        """Return the write token of file number ``task``.

        >>> Claim("a" * 32, "20260101120000000", token=7).write_token(2)
        '2-7-0'
        """
        return f"{task}-{self.token}-{self.attempt}"


@dataclass(frozen=True, slots=True)
class Changes:
    """The files and metadata that a transaction has written and will commit.

    Attributes:
        removed: Ids of segments that leave the newest snapshot.
        vectors: Segment id -> positions to add to its deletion vector. For a removed segment, the
            positions of rows that are not moved to a new file.
        covers: (specification, segment, summary) of older segments that an index now covers.
        extra: Additional header fields of the commit record.
        absent: Replaces ``absent`` of the plan's footprint if only the writing tasks know it. See
            :attr:`Footprint.absent`.
        cleaned: Paths of the data files that a cleaning releases.
        saved: Paths of the data files of a savepoint.
        tombstones: Tombstones of deleted keys, schema TOMBSTONES.
        counts: Row counts to add to the counts of the plan.
        maps: Locations of key maps and page maps of older segments, schema MAPS.
        imported: Sections of a record that imports files, in place of ``files``.
    """

    files: Sequence[NewFile] = ()
    removed: Sequence[int] = ()
    vectors: Mapping[int, BitMap] = field(default_factory=dict)
    key_parts: Sequence[KeyPart] = ()
    covers: Sequence[tuple[str, int, SummaryRef]] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    absent: Mapping[str, KeyHashes] | None = None
    cleaned: Sequence[str] = ()
    saved: Sequence[str] = ()
    tombstones: pa.Table = field(default_factory=lambda: NO_TOMBSTONES)
    counts: Mapping[str, int] = field(default_factory=dict)
    maps: pa.Table = field(default_factory=lambda: NO_MAPS)
    imported: Mapping[str, pa.Table] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WritePlan:
    """The decisions of an operation on a snapshot, made before it writes. Operations that decide
    more derive from it.

    Attributes:
        footprint: The read set and write set.
        partitions: Paths of the partitions to write files into.
        counts: Rows inserted, updated, deleted, late and missing.
        is_needed: False if there is nothing to commit.
        left: Segment id -> positions of the rows that were read but are not changed. None if other
            rows were read too.
        warnings: Messages for the caller about the effects of the operation.
        after: An instant that the transaction's must follow, or "".
    """

    footprint: Footprint
    partitions: Sequence[str] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    is_needed: bool = True
    left: Mapping[int, BitMap] | None = field(default=None, kw_only=True)
    warnings: tuple[str, ...] = field(default=(), kw_only=True)
    after: str = field(default="", kw_only=True)

    def moved(self) -> Sequence[int]:
        """Return the numbers of the file groups that are rewritten without changing any row."""
        return ()

    def mapped(self) -> int:
        """Return the number of rows that get new key maps without being rewritten."""
        return 0

    def close(self) -> None:
        """Release resources outside this process, such as rows cached by an engine. Called once."""
        return


P = TypeVar("P", bound=WritePlan)
WITHOUT_FILES = "commit_without_files"
"""Name of an operation that commits no files, so that no metadata table of Hudi lacks any."""


class Operation(ABC, Generic[P]):
    """A change of the table.

    Attributes:
        name: Name of the operation in the history.
        action: Hudi action of the instant, or ``rollback``.
    """

    __slots__ = ()

    name: str
    action: str

    @property
    def moves_rows(self) -> bool:
        """True if it moves rows to other files of their file groups, so that a write of Hudi in
        flight might add to files that are no longer read.
        """
        return self.action == "compaction" or self.name == "restore"

    @abstractmethod
    def prepare(self, snapshot: Snapshot, txn: str) -> P:
        """Return the plan for ``snapshot``. Changes neither the operation nor the storage."""

    @abstractmethod
    def write(self, snapshot: Snapshot, plan: P, claim: Claim) -> Changes:
        """Write data files and summaries under new names and return them."""

    def narrow(
        self, snapshot: Snapshot, plan: P, changes: Changes, theirs: CommitRecord
    ) -> tuple[P, Changes] | None:
        """Return the part of ``changes`` that does not conflict with the commit ``theirs``.

        Returns None, the default, if the operation must start again.
        """
        return None


@dataclass(frozen=True, slots=True)
class OperationWrapper(Operation[Any]):
    """A wrapper around ``operation``. Subclasses override single steps."""

    operation: Operation[Any]

    @property
    def name(self) -> str:  # type: ignore[override]
        """Name of the operation in the history."""
        return self.operation.name

    @property
    def action(self) -> str:  # type: ignore[override]
        """Hudi action of the instant."""
        return self.operation.action

    @property
    def moves_rows(self) -> bool:
        """As for the wrapped operation."""
        return self.operation.moves_rows

    def write(self, snapshot: Snapshot, plan: Any, claim: Claim) -> Changes:
        """Write with the wrapped operation."""
        return self.operation.write(snapshot, plan, claim)

    def narrow(
        self, snapshot: Snapshot, plan: Any, changes: Changes, theirs: CommitRecord
    ) -> tuple[Any, Changes] | None:
        """Give way with the wrapped operation."""
        return self.operation.narrow(snapshot, plan, changes, theirs)
