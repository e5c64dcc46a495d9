"""Overwrite, delete partition and truncate: replace whole file groups, Hudi's ``replacecommit``.

Deleted rows are not read. Under partition scope no key is looked up. Under table scope the keys of
new rows are looked up, because a key that is live in a remaining partition moves, as in an upsert.

An overwrite replaces only rows that it has seen. A concurrent commit into one of its partitions
makes it start again. Hudi readers of version 6 take a pending ``replacecommit`` for a clustering,
so nothing is announced before the commit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from indexes.base import Int64Array
from mdt.commit.conflicts import TABLE, Footprint
from mdt.commit.operation import Changes, Claim, Operation, WritePlan
from mdt.errors import Invalid, Unsupported
from mdt.limits import LIST_ITEMS_MAX
from mdt.metadata.keys.buckets import key_placeholders
from mdt.metadata.keys.locate import Located
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.live_partitions import live_paths, matching_any, partitioned
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.schema.definition import TableDefinition
from mdt.write.assign import Assignment, assign
from mdt.write.normalize import Batch, convert_to_current, normalize, partition_names
from mdt.write.operations import Findings, RowOperation, RowPlan, partitions_of
from mdt.write.rules import Outcome, Rule, locate_batch

ACTION = "replacecommit"
INSERT_OVERWRITE, INSERT_OVERWRITE_TABLE = "insert_overwrite", "insert_overwrite_table"
DELETE_PARTITION, TRUNCATE = "delete_partition", "truncate"
WITH_ROWS = (INSERT_OVERWRITE, INSERT_OVERWRITE_TABLE)

_EVERYWHERE = frozenset((TABLE,))


@dataclass(frozen=True, slots=True)
class ReplacedGroups:
    """File groups to be removed.

    Attributes:
        groups: int64, sorted numbers of the file groups.
        rows: Number of their live rows.
    """

    groups: Int64Array
    rows: int
    _partitions: Mapping[str, Int64Array]
    _files: Int64Array

    @classmethod
    def in_partitions(cls, snapshot: Snapshot, partitions: frozenset[str]) -> ReplacedGroups:
        """Return the file groups of ``partitions``, or all file groups if TABLE is among them.
        O(files).

        Raises Unsupported if there are more than a commit record can name.
        """
        names = None
        if TABLE not in partitions:
            names = sorted(partitions)
        groups, places = partitioned(snapshot, names)
        if len(groups) > LIST_ITEMS_MAX:
            raise Unsupported(
                f"{len(groups):,} file groups cannot be replaced in one commit",
                hint="select fewer partitions",
            )
        live = snapshot.live_numbers
        files = live[np.isin(snapshot.file_groups.of_files(live), groups)]
        rows = int(snapshot.live_rows[files].sum())
        return cls(groups, rows, places, files)

    def names(self, snapshot: Snapshot) -> dict[str, list[str]]:
        """Return partition path -> ids of its file groups."""
        groups = snapshot.file_groups
        return {
            name: groups.names(self.groups[places].tolist())
            for name, places in self._partitions.items()
        }

    def apply_to(self, snapshot: Snapshot, changes: Changes) -> Changes:
        """Return ``changes`` with the removal of the file groups added. Their live rows go into
        deletion vectors.
        """
        segments = snapshot.segment_ids[self._files].tolist()
        died = {
            segment: rows
            for segment, file in zip(segments, self._files.tolist(), strict=True)
            if (rows := _live_positions(snapshot, file))
        }
        return replace(
            changes,
            removed=[*changes.removed, *segments],
            vectors={**changes.vectors, **died},
            extra={**changes.extra, "replaced": self.names(snapshot)},
        )


def _live_positions(snapshot: Snapshot, file: int) -> BitMap:
    positions = BitMap(range(int(snapshot.rows[file])))
    dead = snapshot.vector(file)
    if dead is not None:
        positions -= dead
        positions.run_optimize()
    return positions


def replaces_table(name: str, definition: TableDefinition) -> bool:
    """Return True if an overwrite with rows replaces the whole table.

    Args:
        name: One of WITH_ROWS.
    """
    return name == INSERT_OVERWRITE_TABLE or not definition.partition_by


def replaced_partitions(
    name: str, snapshot: Snapshot, partitions: Sequence[str], ends: Sequence[str] | None = None
) -> frozenset[str]:
    """Return the partitions that an overwrite with rows replaces, in the form of
    :attr:`mdt.commit.conflicts.Footprint.overwrites`.

    Args:
        partitions: Partitions that occur in the rows.
        ends: Patterns of the partitions to replace. None for the partitions that occur.

    Raises Invalid if ``ends`` does not include the partition of a row.
    """
    if replaces_table(name, snapshot.definition):
        return _EVERYWHERE
    if ends is None:
        return frozenset(partitions)
    outside = set(partitions) - matching_any(partitions, ends)
    if outside:
        raise Invalid(
            f"the data have rows of partition {min(outside)!r}, but the overwrite is limited to"
            f" {' and '.join(map(repr, ends)) or 'none'}",
            hint="remove these rows, or add their partition",
        )
    return frozenset(partitions).union(_matching_partitions(snapshot, ends))


def _matching_partitions(snapshot: Snapshot, patterns: Sequence[str]) -> frozenset[str]:
    """Return the patterns, and the partitions with rows that match them.

    The patterns are included for partitions that other writers create concurrently.
    """
    return frozenset(patterns) | matching_any(live_paths(snapshot), patterns)


@dataclass(frozen=True, slots=True)
class DropPlan(WritePlan):
    """The plan of :class:`Drop`."""

    replaced: ReplacedGroups = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Drop(Operation[DropPlan]):
    """Delete partitions with their file groups, or truncate the table.

    Attributes:
        patterns: Patterns of partition paths. None for the whole table, with the name TRUNCATE.
    """

    patterns: Sequence[str] | None
    name: str
    action: str = ACTION

    def prepare(self, snapshot: Snapshot, txn: str) -> DropPlan:
        """Return the plan. It is not needed if there are no file groups."""
        partitions = _EVERYWHERE
        if self.patterns is not None:
            partitions = _matching_partitions(snapshot, self.patterns)
        replaced = ReplacedGroups.in_partitions(snapshot, partitions)
        footprint = footprint_of(snapshot, txn, partitions, replaced.groups)
        return DropPlan(
            footprint,
            counts={"deleted": replaced.rows},
            is_needed=bool(len(replaced.groups)),
            replaced=replaced,
        )

    def write(self, snapshot: Snapshot, plan: DropPlan, claim: Claim) -> Changes:
        """Return the removal of the file groups. Writes no files."""
        return plan.replaced.apply_to(snapshot, Changes())


@dataclass(frozen=True, slots=True)
class InsertAll(Rule):
    """A rule that inserts all rows without comparing them to the rows of their partition.

    Under table scope keys that are live in remaining partitions move.

    Attributes:
        name: Name of the operation.
    """

    name: str

    def batch(self, data: pa.Table, definition: TableDefinition, *, numbered: bool = True) -> Batch:
        """Return the rows of ``data`` as a batch, without rows that delete their key."""
        return normalize(data, definition, numbered=numbered).without_deletes()

    def outcome(self, metadata: Metadata, snapshot: Snapshot, batch: Batch) -> Outcome:
        """Return all rows as inserts, and the locations of their keys in other partitions."""
        definition = snapshot.definition
        batch = convert_to_current(batch, definition)
        located, names = Located.absent(len(batch)), partition_names(batch)
        rows = np.arange(len(batch))
        matters = self.name in WITH_ROWS and definition.is_global
        if matters and not replaces_table(self.name, definition):
            located = locate_batch(metadata, snapshot, batch)
        places = located.with_further()
        entries = np.flatnonzero(places.file >= 0)
        live_partition = snapshot.file_groups.partitions(places.group[entries])
        moves = entries[np.asarray(live_partition != names[places.keys_of(entries)])]
        home = key_placeholders(metadata, snapshot, batch.keys, names)
        absent = rows[:0]
        if matters:
            absent = np.delete(rows, places.keys_of(moves))
        return Outcome(
            batch,
            replace(located, home=home),
            inserts=rows,
            moves=moves,
            absent=absent,
            repeated=batch.duplicates,
        )


@dataclass(frozen=True, slots=True)
class OverwritePlan(RowPlan):
    """The plan of :class:`Overwrite`."""

    replaced: ReplacedGroups = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Overwrite(RowOperation):
    """Replace partitions, or the whole table, by new rows.

    Attributes:
        name: One of WITH_ROWS.
        ends: Partition patterns, as for :func:`replaced_partitions`.
    """

    ends: Sequence[str] | None = None

    def prepare(self, snapshot: Snapshot, txn: str) -> OverwritePlan:
        """Return the plan for ``snapshot``. Raises Invalid for rows of a partition that is not
        replaced.
        """
        with self._decide(snapshot) as rows:
            findings = rows.findings
            occur = sorted({partition for partition, _ in findings.inserts})
            partitions = replaced_partitions(self.name, snapshot, occur, self.ends)
            replaced = ReplacedGroups.in_partitions(snapshot, partitions)
            ending = set(replaced.groups.tolist())
            moves = {group: n for group, n in findings.deletes.items() if group not in ending}
            assignments = assign_inserts(self, snapshot, findings, moves)
            groups = np.array(sorted(ending | moves.keys()), np.int64)
            footprint = footprint_of(snapshot, txn, partitions, groups)
            footprint = replace(footprint, absent=findings.absent)
            counts = {
                "inserted": sum(findings.inserts.values()),
                "deleted": replaced.rows + sum(moves.values()),
                "late": findings.counts["late"],
            }
            return OverwritePlan(
                footprint,
                partitions_of(assignments),
                counts,
                bool(assignments) or bool(ending),
                assignments,
                rows=rows,
                replaced=replaced,
            )

    def write(self, snapshot: Snapshot, plan: RowPlan, claim: Claim) -> Changes:
        """Write the new files."""
        changes = RowOperation.write(self, snapshot, plan, claim)
        return cast("OverwritePlan", plan).replaced.apply_to(snapshot, changes)


def footprint_of(
    snapshot: Snapshot, txn: str, partitions: frozenset[str], groups: Int64Array
) -> Footprint:
    """Return the footprint of an operation that replaces ``partitions`` and changes the file groups
    ``groups``.
    """
    return Footprint(
        txn, frozenset(snapshot.file_groups.names(groups.tolist())), overwrites=partitions
    )


def assign_inserts(
    operation: RowOperation, snapshot: Snapshot, findings: Findings, shrinking: Collection[int] = ()
) -> list[Assignment]:
    """Return the assignments: inserts fill new file groups, the groups ``shrinking`` lose rows."""
    return assign(
        snapshot,
        operation.options,
        can_index_log_files=True,
        touched=shrinking,
        returns=(),
        inserts=findings.inserts,
        row_bytes=findings.row_bytes,
        writers=operation.rows.writers,
        use_small_files=False,
    )
