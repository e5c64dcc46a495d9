"""Delete and update by condition.

Rows are found by a scan, and their positions go directly into deletion vectors, without key lookup.
Rows that other writers upsert concurrently are ignored. The serial order is this operation first,
then the upsert. An operation that selects rows by value starts again if another update by condition
or a merge commits first.

Within a file group that it changes, this operation is compatible with a concurrent write if that
write ends none of the selected rows, and min/max prove that it adds no matching row. The serial
order is then the other write first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from indexes.predicate import Predicate
from mdt.commit.conflicts import UPDATE_WHERE, Footprint
from mdt.commit.operation import Changes, Claim, Operation, WritePlan
from mdt.config import Options
from mdt.formats.uris import takes_log_files
from mdt.hudi.avro_schema import RECORD_KEY
from mdt.hudi.plain_arrays import plain
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.metadata.statistics.added_rows import may_match
from mdt.progress import Progress
from mdt.scan.matches import matching_rows
from mdt.scan.reader import FileRows, read_at
from mdt.write.assign import Assignment, assign
from mdt.write.deletes import tombstones_of_rows
from mdt.write.new_files import WriteJob
from mdt.write.normalize import columns_altered, keyed_rows
from mdt.write.ordering import any_decrease
from mdt.write.setting import UpdateAssignments
from mdt.write.slice_files import write_slices
from mdt.write.slices import Keys, Slice

Matches = Mapping[int, BitMap]
"""File number -> positions of matching rows."""


@dataclass(frozen=True, slots=True)
class Part:
    """The change of a file group.

    Attributes:
        matches: Its selected rows.
    """

    assignment: Assignment
    matches: Matches

    @property
    def places(self) -> list[FileRows]:
        """The rows in the form of :func:`mdt.scan.matches.matching_rows`."""
        return [
            (file, np.asarray(rows.to_array()).astype(np.int64))
            for file, rows in self.matches.items()
        ]


@dataclass(frozen=True, slots=True)
class ConditionalPlan(WritePlan):
    """The plan of a conditional operation.

    Attributes:
        work: A change for each file group with matching rows.
    """

    work: Sequence[Part] = ()


@dataclass(frozen=True, slots=True)
class Conditional(Operation[ConditionalPlan]):
    """A delete or update of the rows that match a predicate.

    Attributes:
        predicate: And(()) selects every row.
        schema: Columns of the table when the condition was parsed.
        setting: Assignments of an update, or None for a delete.
        progress: Called with the number of written files and the total.
    """

    metadata: Metadata
    options: Options
    predicate: Predicate
    schema: pa.Schema
    action: str
    setting: UpdateAssignments | None = None
    progress: Progress | None = None

    @property
    def name(self) -> str:  # type: ignore[override]
        """Name of the operation in the history."""
        return "delete_where" if self.setting is None else UPDATE_WHERE

    def prepare(self, snapshot: Snapshot, txn: str) -> ConditionalPlan:
        """Return the plan with the matching rows. Raises Conflict if the columns were altered
        concurrently.
        """
        if not snapshot.definition.schema.equals(self.schema):
            raise columns_altered()
        matches = self.find_matches(snapshot)
        groups = snapshot.file_groups
        rows: dict[int, dict[int, BitMap]] = {}
        for group, file in zip(
            groups.of_files(np.array(list(matches), np.int64)).tolist(), matches, strict=True
        ):
            rows.setdefault(group, {})[file] = matches[file]
        rewritten: Collection[int] = ()
        if self._may_fall(snapshot):
            rewritten = rows
        assignments = assign(
            snapshot,
            self.options,
            can_index_log_files=True,
            touched=rows,
            returns=(),
            inserts={},
            rewritten=rewritten,
        )
        counts = {"updated" if self.setting else "deleted": sum(map(len, matches.values()))}
        may_choose = partial(may_match, predicate=self.predicate, definition=snapshot.definition)
        footprint = Footprint(
            txn, frozenset(groups.names(sorted(rows))), conditional=True, may_choose=may_choose
        )
        partitions = sorted({assignment.partition for assignment in assignments})
        parts = [Part(assignment, rows[assignment.group]) for assignment in assignments]
        return ConditionalPlan(footprint, partitions, counts, bool(assignments), parts, left={})

    def find_matches(self, snapshot: Snapshot) -> Matches:
        """Return the matching rows."""
        places = matching_rows(
            self.metadata, snapshot, self.predicate, threads=self.options.threads("reader")
        )
        return {file: BitMap(rows.astype(np.uint32)) for file, rows in places}

    def _may_fall(self, snapshot: Snapshot) -> bool:
        """Return True if the update sets the ordering field, so that its value may decrease.

        The new values are only known during the write. Hudi readers would ignore a log record with
        a smaller value as late.
        """
        ordering = snapshot.definition.ordering
        return self.setting is not None and not set(ordering).isdisjoint(self.setting.names)

    def write(self, snapshot: Snapshot, plan: ConditionalPlan, claim: Claim) -> Changes:
        """Write the next file of each file group."""
        return self.write_groups(
            WriteJob.for_claim(self.metadata, snapshot, self.options, claim), plan.work
        )

    def write_groups(self, shared: WriteJob, changes: Sequence[Part]) -> Changes:
        """Write the files of ``changes``."""
        return write_parts(self.setting, shared, changes, "", self.progress)


def write_parts(
    setting: UpdateAssignments | None,
    shared: WriteJob,
    groups: Sequence[Part],
    part: str,
    progress: Progress | None,
) -> Changes:
    """Write the next file of each file group in ``groups``.

    Args:
        part: Object suffix, as for :func:`mdt.write.slice_files.collect`.
    """
    snapshot, threads = shared.snapshot, shared.options.threads("reader")
    parts = {change.assignment.group: change for change in groups}

    def slice_of(assignment: Assignment) -> Slice:
        return _slice(shared.metadata, snapshot, setting, parts[assignment.group])

    assignments = [change.assignment for change in groups]
    changes = write_slices(shared, assignments, slice_of, progress, read=list(parts), part=part)
    if setting is not None or not snapshot.definition.keeps_deletes:
        return changes
    places = [place for change in groups for place in change.places]
    file = np.repeat(
        np.array([file for file, _ in places], np.int64),
        [len(positions) for _, positions in places],
    )
    position = np.concatenate([positions for _, positions in places])
    return replace(
        changes,
        tombstones=tombstones_of_rows(shared.metadata, snapshot, file, position, threads=threads),
    )


def _slice(
    metadata: Metadata, snapshot: Snapshot, setting: UpdateAssignments | None, part: Part
) -> Slice:
    assignment, definition = part.assignment, snapshot.definition

    def read(names: Sequence[str]) -> pa.Table:
        return read_at(metadata, snapshot, part.places, names, threads=1)[0].select(names)

    if setting is not None:
        old = read(definition.schema.names)
        new = keyed_rows(setting.apply(old), definition)
        may_log = definition.is_mor and takes_log_files(definition, assignment.partition)
        is_log = assignment.is_log or (may_log and not any_decrease(old, new, definition))
        return Slice(
            assignment.partition,
            assignment.group,
            is_log,
            new=new,
            updates=len(new),
            dead=part.matches,
        )
    if not assignment.is_log:
        return Slice(assignment.partition, assignment.group, False, dead=part.matches)
    keys = plain(read([RECORD_KEY])[RECORD_KEY])
    deleted = Keys(keys, definition.key_hash.hash(keys))
    return Slice(assignment.partition, assignment.group, True, dead=part.matches, deleted=deleted)
