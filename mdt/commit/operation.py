"""What a change of the table is: one function that decides, one that writes, one that gives way to
others.

:mod:`mdt.commit.transaction` carries operations out.  To add one, derive from :class:`Operation`;
everything that names files, commits, retries and cleans up is there already.
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
    """A transaction's own instant and names.

    ``token`` is the middle number of its write tokens, ``attempt`` the last: tasks that are tried
    again count up. ``is_of_task``: whether a task of an engine has it, which may outlive the
    transaction.
    """

    txn: str
    instant: str
    token: int
    attempt: int = 0
    is_of_task: bool = False

    def tried(self, attempt: int) -> Claim:
        """Return the claim as a task of the transaction has it in one of its attempts."""
        return replace(self, attempt=attempt, is_of_task=True)

    def write_token(self, task: int) -> str:
        """Return the write token of the ``task``-th file."""
        return f"{task}-{self.token}-{self.attempt}"


@dataclass(frozen=True, slots=True)
class Changes:
    """What a transaction has written and wants to commit.

    ``removed``: numbers of segments that leave the newest view.  ``vectors``: segment -> positions
    to add to its deletion vector; of one that leaves, the positions of rows that do not move on.
    ``covers``: (specification, segment, summary) of older segments that an index has caught up
    with. ``extra``: further header fields.  ``absent``: what the plan's footprint could not say,
    because only the tasks that wrote know it; see :attr:`Footprint.absent`.  ``cleaned``: paths of
    the data files that a cleaning lets go.  ``saved``: those of a savepoint. ``tombstones``: of
    deleted keys, schema TOMBSTONES.  ``counts``: what is to be added to those of the plan, which
    could not know it. ``maps``: where maps of older segments stand, schema MAPS.
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


@dataclass(frozen=True, slots=True)
class WritePlan:
    """What an operation decided on one snapshot, before it writes; operations that decide more
    derive from it.

    ``footprint``: what it read and will write.  ``partitions``: paths in which it will write files.
    ``counts``: rows inserted, updated, deleted, late, missing.  ``is_needed``: whether there is
    anything to commit. ``left``: segment -> positions of the rows that it has looked at and leaves,
    if beside those that it ends it has read no other row; else None. ``warnings``: for the caller,
    about what the operation does.
    """

    footprint: Footprint
    partitions: Sequence[str] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    is_needed: bool = True
    left: Mapping[int, BitMap] | None = field(default=None, kw_only=True)
    warnings: tuple[str, ...] = field(default=(), kw_only=True)

    def moved(self) -> Sequence[int]:
        """Return the numbers of the file groups whose rows are written anew, and stay what they
        are.
        """
        return ()

    def mapped(self) -> int:
        """Return how many rows get new key maps, and stay where they are."""
        return 0

    def close(self) -> None:
        """Give back what the plan holds outside this process, as rows that an engine keeps; called
        once.
        """
        return


P = TypeVar("P", bound=WritePlan)


class Operation(ABC, Generic[P]):
    """A change of the table.  ``name``: what the history calls it.  ``action``: Hudi's word for its
    instant, or ``rollback``.
    """

    __slots__ = ()

    name: str
    action: str

    @abstractmethod
    def prepare(self, snapshot: Snapshot, txn: str) -> P:
        """Return what is to be done to ``snapshot``.  Neither the operation nor the storage is
        another one afterwards.
        """

    @abstractmethod
    def write(self, snapshot: Snapshot, plan: P, claim: Claim) -> Changes:
        """Write data files and summaries under new names and return them."""

    def narrow(
        self, snapshot: Snapshot, plan: P, changes: Changes, theirs: CommitRecord
    ) -> tuple[P, Changes] | None:
        """Return the part of ``changes`` that does not conflict with ``theirs``; None, as here, to
        start again.
        """
        return None


@dataclass(frozen=True, slots=True)
class Around(Operation[Any]):
    """``operation``, as those have it that derive from this and say how a step of theirs
    differs.
    """

    operation: Operation[Any]

    @property
    def name(self) -> str:  # type: ignore[override]
        """What the history calls it."""
        return self.operation.name

    @property
    def action(self) -> str:  # type: ignore[override]
        """Hudi's word for its instant."""
        return self.operation.action

    def write(self, snapshot: Snapshot, plan: Any, claim: Claim) -> Changes:
        """Write as the operation does."""
        return self.operation.write(snapshot, plan, claim)

    def narrow(
        self, snapshot: Snapshot, plan: Any, changes: Changes, theirs: CommitRecord
    ) -> tuple[Any, Changes] | None:
        """Give way as the operation does."""
        return self.operation.narrow(snapshot, plan, changes, theirs)
