"""The operation merge: join source rows with table rows and apply the first matching clause.

Rows are matched first. Then the first clause whose condition holds is determined for each pair,
each unmatched source row and each unmatched table row. Only the columns in conditions are read for
that. Updated rows are computed file group by file group during the write. New rows, and rows that
move to another partition, are computed before.

An update always applies, even if it decreases the ordering value. In that case the file group gets
a new base file, because Hudi readers would ignore the log record as late.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from indexes.arrays import take_rows
from indexes.base import Int64Array, KeyHashes
from mdt.commit.conflicts import MERGE, TABLE
from mdt.commit.operation import Changes, Claim
from mdt.config import Options
from mdt.errors import Invalid, Unsupported
from mdt.hudi.avro_schema import RECORD_KEY
from mdt.hudi.plain_arrays import plain
from mdt.metadata.files.key_map import ordering_words, words_decide
from mdt.metadata.keys.locate import Located
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.deleted_keys import older_than_delete
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.plan.planner import plan
from mdt.progress import Progress
from mdt.scan.lookup import KeyRows, rows_at
from mdt.scan.matches import matching_rows, places_of
from mdt.write.assign import Assignment, Place
from mdt.write.clauses import Action, Clause, ClauseKind
from mdt.write.deletes import tombstones_of_rows
from mdt.write.matching import (
    NAMED_KEYS,
    JoinCondition,
    Pairs,
    pairs,
    refuse_rows_with_the_same_key,
    refuse_two_rows_for_one,
    without_prefix,
)
from mdt.write.merge_source import Source, target_columns
from mdt.write.new_files import WriteJob
from mdt.write.normalize import (
    Batch,
    columns_altered,
    definition_paths,
    keyed_rows,
    partition_names,
    stored_batch,
    unique,
)
from mdt.write.operations import (
    DecidedRows,
    Findings,
    RowOperation,
    RowPlan,
    Rows,
    sizes,
)
from mdt.write.ordering import is_below
from mdt.write.result import ScanStatistics
from mdt.write.row_groups import absent_keys, by_value, inserts_of
from mdt.write.rules import locate_batch
from mdt.write.slice_files import new_partitions, write_slices
from mdt.write.slices import KeyedRows, Keys, Slice, concat_rows

_NO_ROWS: Int64Array = np.empty(0, np.int64)
_ALONE = -1
"""Source row number of pairs without a source row."""


@dataclass(frozen=True, slots=True)
class MatchedActions:
    """n table rows changed by clauses.

    Attributes:
        pairs: Their locations, and their source rows or -1.
        clause: int64[n], number of the clause.
        moved: bool[n], True if the row moves to another partition. It is then part of the new rows.
    """

    pairs: Pairs
    clause: Int64Array
    moved: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.clause)

    def take(self, rows: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> MatchedActions:
        """Return a selection of the rows."""
        return MatchedActions(self.pairs.take(rows), self.clause[rows], self.moved[rows])


@dataclass(frozen=True, slots=True)
class Merge(RowOperation):
    """The merge operation.

    Attributes:
        schema: Columns of the table when the clauses were parsed.
        chooses: True if rows are selected by their values, not only by keys of the source.
    """

    schema: pa.Schema = field(kw_only=True)
    chooses: bool = field(kw_only=True)

    def prepare(self, snapshot: Snapshot, txn: str) -> RowPlan:
        """Return the plan. Raises Invalid if several source rows match a table row, or if new keys
        exist already.

        Raises Conflict if the columns were altered concurrently.
        """
        if not snapshot.definition.schema.equals(self.schema):
            raise columns_altered()
        plan = RowOperation.prepare(self, snapshot, txn)
        return replace(plan, footprint=replace(plan.footprint, conditional=self.chooses))


@dataclass(frozen=True, slots=True)
class MergedRows(Rows):
    """A merge whose source is in memory.

    Attributes:
        on: Join condition.
        clauses: Clauses in order of precedence.
    """

    metadata: Metadata
    options: Options
    source: Source
    on: JoinCondition
    clauses: Sequence[Clause]
    writers: int = 0

    def decide(self, operation: RowOperation, snapshot: Snapshot) -> DecidedMerge:
        """Return the rows with their actions."""
        since = self.metadata.storage.now_us()
        return Decision(self, snapshot).group(since)

    @property
    def chooses(self) -> bool:
        """True if rows are selected by their values, not only by keys of the source."""
        alone = any(clause.when is ClauseKind.NOT_MATCHED_BY_SOURCE for clause in self.clauses)
        return alone or not self.on.is_by_key

    def updates(self, actions: MatchedActions) -> npt.NDArray[np.bool_]:
        """Return the rows that are updated -> bool[n]."""
        return np.array([clause.action is Action.UPDATE for clause in self.clauses], np.bool_)[
            actions.clause
        ]

    def updated(
        self, snapshot: Snapshot, actions: MatchedActions, names: Sequence[str] | None = None
    ) -> pa.Table:
        """Return the updated rows with the columns ``names``, by default all."""
        selected = list(snapshot.definition.schema.names if names is None else names)
        parts, order = list[pa.Table](), list[Int64Array]()
        for number, rows in by_value(np.arange(len(actions)), actions.clause).items():
            clause, pairs_of_clause = self.clauses[number], actions.pairs.take(rows)
            reads = clause.reads(selected)
            unchanged = [name for name in selected if name not in clause.values]
            target = self.target(
                snapshot, pairs_of_clause, sorted({*unchanged, *target_columns(reads)}), threads=1
            )
            computed = clause.compute(
                self.source.beside(reads, pairs_of_clause.source, target), selected
            )
            columns = [target[name] if name in unchanged else computed[name] for name in selected]
            parts.append(
                pa.table(columns, schema=pa.schema(map(snapshot.definition.schema.field, selected)))
            )
            order.append(rows)
        if len(parts) == 1:
            return parts[0]
        return take_rows(pa.concat_tables(parts), np.argsort(np.concatenate(order)))

    def target(
        self, snapshot: Snapshot, matches: Pairs, names: Sequence[str], *, threads: int
    ) -> pa.Table:
        """Return columns of the table rows of ``matches``, in their order. Reads nothing if
        ``names`` is empty.
        """
        if not names:
            return pa.table({})
        return rows_at(
            self.metadata, snapshot, KeyRows(matches.file, matches.position), names, threads=threads
        )


@dataclass(frozen=True, slots=True)
class MergeOutcome:
    """The result of a merge before rows are assigned to file groups.

    Attributes:
        pairs: All pairs.
        actions: The n table rows that change.
        updates: bool[n], True for updated rows, False for deleted rows.
        falls: bool[n], True if the ordering value of a row that stays in place decreases.
        batch: m rows that get a new location, or None. The first ``inserted`` are new, the rest are
            the ``moved`` rows of ``actions``.
        located: Locations of their keys.
        late: bool[m], True for rows that are skipped as late.
        scanned: Numbers of the files read.
    """

    pairs: Pairs
    actions: MatchedActions
    updates: npt.NDArray[np.bool_]
    falls: npt.NDArray[np.bool_]
    batch: Batch | None
    inserted: int
    located: Located
    late: npt.NDArray[np.bool_]
    scanned: Collection[int]

    def absent(self, is_global: bool) -> dict[str, KeyHashes]:
        """Return the keys that were found absent, in the form of a footprint."""
        parts = [self.pairs.absent]
        if self.batch is not None:
            parts.append(absent_keys(self.batch, np.arange(self.inserted), is_global))
        return _union_by_partition(parts)

    def counts(self) -> dict[str, int]:
        """Return the number of inserted, updated, deleted and late rows."""
        late = int(self.late.sum())
        return {
            "inserted": self.inserted - late,
            "updated": int(self.updates.sum()),
            "deleted": int((~self.updates).sum()),
            "late": late,
        }

    def new_rows(self) -> tuple[Int64Array, Int64Array]:
        """Return (rows of ``batch`` that are new to their file group, re-inserted rows). The latter
        go to the file group of their deleted row.
        """
        dead_in = self.located.dead_in
        return np.flatnonzero((dead_in < 0) & ~self.late), np.flatnonzero(
            (dead_in >= 0) & ~self.late
        )


@dataclass(frozen=True, slots=True)
class DecidedMerge(DecidedRows):
    """A merge with its rows grouped by file group.

    Attributes:
        rows: File group -> numbers of its changed rows in ``outcome.actions``.
        inserts: Place -> rows of ``outcome.batch``.
        returns: File group -> re-inserted rows of ``outcome.batch``.
    """

    merge: MergedRows
    outcome: MergeOutcome
    rows: Mapping[int, Int64Array]
    inserts: Mapping[Place, Int64Array]
    returns: Mapping[int, Int64Array]
    findings: Findings

    def write(
        self, operation: RowOperation, snapshot: Snapshot, plan: RowPlan, claim: Claim
    ) -> Changes:
        """Write the next file of each file group."""
        merge, actions = self.merge, self.outcome.actions
        shared = WriteJob.for_claim(merge.metadata, snapshot, merge.options, claim)
        new_partitions(merge.metadata, snapshot, claim, plan.partitions)
        read = [assignment.group for assignment in plan.work if assignment.group >= 0]
        changes = write_slices(
            shared, plan.work, partial(self._slice, snapshot), operation.progress, read=read
        )
        deleted, threads = (
            actions.pairs.take(~self.outcome.updates),
            merge.options.threads("reader"),
        )
        tombstones = tombstones_of_rows(
            merge.metadata, snapshot, deleted.file, deleted.position, threads=threads
        )
        return replace(changes, tombstones=tombstones)

    def _slice(self, snapshot: Snapshot, assignment: Assignment) -> Slice:
        merge, batch = self.merge, self.outcome.batch
        actions = self.outcome.actions.take(self.rows.get(assignment.group, _NO_ROWS))
        in_place = merge.updates(actions) & ~actions.moved
        parts: list[KeyedRows] = []
        if in_place.any():
            updated = merge.updated(snapshot, actions.take(in_place))
            parts.append(keyed_rows(updated, snapshot.definition))
        if batch is not None:
            new = self.inserts.get(assignment.place, _NO_ROWS)[
                assignment.inserts.start : assignment.inserts.stop
            ]
            new = np.concatenate([new, self.returns.get(assignment.group, _NO_ROWS)])
            if len(new):
                parts.append(batch.rows(new))
        removed = actions.take(~in_place)
        keys = self._keys(snapshot, removed) if assignment.is_log and len(removed) else None
        file, position = actions.pairs.file, actions.pairs.position
        dead = {
            number: BitMap(at.astype(np.uint32)) for number, at in by_value(position, file).items()
        }
        return Slice(
            assignment.partition,
            assignment.group,
            assignment.is_log,
            new=concat_rows(parts) if parts else None,
            updates=int(in_place.sum()),
            dead=dead,
            deleted=keys,
        )

    def _keys(self, snapshot: Snapshot, removed: MatchedActions) -> Keys:
        keys = plain(
            self.merge.target(snapshot, removed.pairs, [RECORD_KEY], threads=1)[RECORD_KEY]
        )
        return Keys(keys, snapshot.definition.key_hash.hash(keys))


class Decision:
    """Computes the effect of a merge on a snapshot."""

    def __init__(self, merge: MergedRows, snapshot: Snapshot) -> None:
        self._merge, self._snapshot = merge, snapshot
        self._threads = merge.options.threads("reader")
        self._scanned = set[int]()

    def group(self, since: int) -> DecidedMerge:
        """Return the changed rows by file group.

        Args:
            since: Start time in microseconds, for the statistics.
        """
        merge, snapshot = self._merge, self._snapshot
        decided = self.decide()
        inserts, returns = dict[Place, Int64Array](), dict[int, Int64Array]()
        if decided.batch is not None:
            fresh, returning = decided.new_rows()
            returns = by_value(returning, decided.located.dead_in[returning])
            inserts = inserts_of(decided.batch, fresh, decided.located.home)
        group_of_files = snapshot.file_groups.of_files
        rows = by_value(np.arange(len(decided.actions)), group_of_files(decided.actions.pairs.file))
        files = [decided.pairs.file, decided.pairs.refused >> 32, decided.actions.pairs.file]
        groups = np.append(decided.located.group, group_of_files(np.concatenate(files)))
        microseconds = merge.metadata.storage.now_us() - since
        findings = Findings(
            sizes(inserts),
            sizes(rows),
            {},
            sizes(returns),
            set(group_of_files(decided.actions.pairs.file[decided.falls]).tolist()),
            np.unique(groups[groups >= 0]).tolist(),
            decided.counts(),
            0.0 if decided.batch is None else decided.batch.row_bytes,
            decided.absent(snapshot.definition.is_global),
            self._rows_read(decided),
            scan_statistics=ScanStatistics(
                len(merge.source), len(decided.scanned), len(snapshot), microseconds
            ),
        )
        return DecidedMerge(merge, decided, rows, inserts, returns, findings)

    def decide(self) -> MergeOutcome:
        """Return the effect on all source and table rows."""
        merge, snapshot = self._merge, self._snapshot
        matches = pairs(
            merge.metadata,
            snapshot,
            merge.source,
            merge.on,
            threads=self._threads,
            scanned=self._scanned,
        )
        if self._numbers(ClauseKind.MATCHED):
            refuse_two_rows_for_one(merge.metadata, snapshot, matches, snapshot.definition.key)
        if merge.on.one_each:
            refuse_rows_with_the_same_key(merge.source, merge.on, matches)
        return self._outcome(matches, self._matched_actions(matches))

    def decide_unmatched(self, matched: Mapping[int, BitMap]) -> MergeOutcome:
        """Return the effect on unmatched table rows in given files.

        Args:
            matched: File number -> positions of matched rows.
        """
        places = [
            _NO_ROWS,
            *(file << 32 | np.asarray(rows.to_array(), np.int64) for file, rows in matched.items()),
        ]
        nothing = Pairs.concat([])
        alone = self._alone(np.concatenate(places), matched.keys())
        return self._outcome(nothing, _concat(nothing, _NO_ROWS, alone))

    def unmatched_files(self) -> set[int]:
        """Return the files that may contain unmatched table rows that meet a clause's condition."""
        predicates = [
            without_prefix(self._merge.clauses[number].condition.predicate)
            for number in self._numbers(ClauseKind.NOT_MATCHED_BY_SOURCE)
        ]
        plans = [plan(self._merge.metadata, self._snapshot, predicate) for predicate in predicates]
        return {scan.file for scan_plan in plans for scan in scan_plan.segments}

    def _outcome(self, matches: Pairs, actions: MatchedActions) -> MergeOutcome:
        merge = self._merge
        updates = merge.updates(actions)
        actions = self._mark_moved(actions, updates)
        batch, inserted = self._new_rows(matches, actions)
        located = (
            Located.empty()
            if batch is None
            else locate_batch(merge.metadata, self._snapshot, batch)
        )
        self._refuse_existing_keys(batch, located, inserted)
        late, falls = self._late(batch, located), self._falls(actions, updates)
        return MergeOutcome(
            matches, actions, updates, falls, batch, inserted, located, late, self._scanned
        )

    def _numbers(self, when: ClauseKind) -> list[int]:
        return [number for number, clause in enumerate(self._merge.clauses) if clause.when is when]

    # Selection of clauses

    def _matched_actions(self, matches: Pairs) -> MatchedActions:
        """Return the table rows changed by clauses."""
        clause = self._first(ClauseKind.MATCHED, matches)
        return _concat(matches.take(clause >= 0), clause[clause >= 0], self._alone(matches.places))

    def _first(self, when: ClauseKind, matches: Pairs) -> Int64Array:
        """Return the number of the first clause that holds for each pair or unmatched source row ->
        int64[m], -1 for none.
        """
        clause = np.full(len(matches), -1)
        numbers = self._numbers(when)
        names = frozenset[str]().union(
            *(self._merge.clauses[number].condition.names for number in numbers)
        )
        undecided = np.arange(len(matches))
        target = None
        for number in numbers:
            condition = self._merge.clauses[number].condition
            is_match = np.ones(len(undecided), np.bool_)
            if not condition.is_always:
                if target is None:
                    columns = sorted(target_columns(names))
                    target = self._merge.target(
                        self._snapshot, matches, columns, threads=self._threads
                    )
                rows = take_rows(target, undecided) if target.num_columns else target
                is_match = condition.holds(
                    self._merge.source.beside(condition.names, matches.source[undecided], rows)
                )
            clause[undecided[is_match]] = number
            undecided = undecided[~is_match]
        return clause

    def _alone(
        self, matched: Int64Array, files: Collection[int] | None = None
    ) -> list[tuple[int, Pairs]]:
        """Return (clause, changed rows) for unmatched table rows.

        Args:
            matched: Places of matched rows.
            files: Restricts the scan to these files.
        """
        merge, parts = self._merge, list[tuple[int, Pairs]]()
        for number in self._numbers(ClauseKind.NOT_MATCHED_BY_SOURCE):
            condition = merge.clauses[number].condition
            rows = matching_rows(
                merge.metadata,
                self._snapshot,
                without_prefix(condition.predicate),
                threads=self._threads,
                scanned=self._scanned,
                files=files,
            )
            places = places_of(rows)
            places = places[~np.isin(places, matched)]
            alone = Pairs(np.full(len(places), _ALONE), places >> 32, places & 0xFFFFFFFF)
            target = merge.target(
                self._snapshot,
                alone,
                sorted(target_columns(condition.names)),
                threads=self._threads,
            )
            alone = alone.take(
                condition.holds(merge.source.beside(condition.names, alone.source, target))
            )
            matched = np.concatenate([matched, alone.places])
            parts.append((number, alone))
        return parts

    # Effects on rows

    def _mark_moved(
        self, actions: MatchedActions, updates: npt.NDArray[np.bool_]
    ) -> MatchedActions:
        """Mark updated rows that move to another partition. Rows only move under table scope."""
        definition = self._snapshot.definition
        rows = np.flatnonzero(updates & self._sets(actions, definition.partition_by))
        if not len(rows) or not definition.is_global:
            return actions
        candidates = actions.take(rows)
        table = self._merge.updated(self._snapshot, candidates, definition.partition_by)
        codes, names = definition_paths(table, definition)
        groups = self._snapshot.file_groups
        current = groups.partitions(groups.of_files(candidates.pairs.file))
        moved = np.zeros(len(actions), np.bool_)
        moved[rows] = np.asarray(current != np.array(names, np.object_)[codes])
        if definition.keys_repeat and moved.any():
            raise Unsupported(
                "an update cannot move rows to another partition if mdt.keys.repeat is true: their"
                " keys may exist there",
                hint="do not set the partition columns, or upsert the rows",
            )
        return MatchedActions(actions.pairs, actions.clause, moved)

    def _sets(self, actions: MatchedActions, names: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Return the rows whose clause sets any of the columns ``names`` -> bool[n]."""
        sets = [not clause.values.keys().isdisjoint(names) for clause in self._merge.clauses]
        return np.array(sets, np.bool_)[actions.clause]

    def _new_rows(self, matches: Pairs, actions: MatchedActions) -> tuple[Batch | None, int]:
        """Return (rows that get a new location, number of inserts). Inserts are first."""
        merge, definition = self._merge, self._snapshot.definition
        alone = np.ones(len(merge.source), np.bool_)
        alone[matches.source] = False
        rows = np.flatnonzero(alone)
        lonely = Pairs(rows, np.full(len(rows), -1), np.full(len(rows), -1))
        clause = self._first(ClauseKind.NOT_MATCHED, lonely)
        parts = []
        for number, rows_of_clause in by_value(rows[clause >= 0], clause[clause >= 0]).items():
            insert = merge.clauses[number]
            parts.append(
                insert.new_rows(merge.source.beside(insert.reads(), rows_of_clause, pa.table({})))
            )
        inserted = sum(map(len, parts))
        if actions.moved.any():
            parts.append(merge.updated(self._snapshot, actions.take(actions.moved)))
        if not parts:
            return None, 0
        batch = stored_batch(pa.concat_tables(parts), definition)
        repeated = unique(batch, definition)
        if repeated.duplicates:
            raise Invalid(
                f"{repeated.duplicates} new rows repeat a key: {list(repeated.repeated)}",
                hint=(
                    "leave one row of the source for each key, in SQL by GROUP BY, or use"
                    " t.merge(…, dedupe=True) to keep the row with the largest ordering value of"
                    " each key"
                ),
            )
        return batch, inserted

    def _refuse_existing_keys(self, batch: Batch | None, located: Located, inserted: int) -> None:
        existing_rows = np.flatnonzero(located.is_live[:inserted])
        if batch is not None and len(existing_rows):
            shown_keys = batch.keys.take(pa.array(existing_rows[:NAMED_KEYS])).to_pylist()
            raise Invalid(
                f"{len(existing_rows)} rows to insert have keys that exist already: {shown_keys}",
                hint="match by the key, or exclude them by a condition",
            )

    def _late(self, batch: Batch | None, located: Located) -> npt.NDArray[np.bool_]:
        """Return the new rows that are skipped because their key was deleted at a larger ordering
        value -> bool[n].
        """
        if batch is None:
            return np.zeros(0, np.bool_)
        return older_than_delete(
            self._snapshot, batch.hashes, partition_names(batch), batch.ordering, located.is_live
        )

    def _falls(
        self, actions: MatchedActions, updates: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.bool_]:
        """Return the rows whose ordering value decreases in place -> bool[n]."""
        definition, falls = self._snapshot.definition, np.zeros(len(actions), np.bool_)
        if not definition.ordering or not definition.is_mor:
            return falls
        rows = np.flatnonzero(updates & ~actions.moved & self._sets(actions, definition.ordering))
        if not len(rows):
            return falls
        candidates, names = actions.take(rows), list(definition.ordering)
        values = self._merge.updated(self._snapshot, candidates, names)
        old = candidates.pairs.ordering
        if old is not None and words_decide(definition.schema, names):
            falls[rows] = ordering_words(values[names[0]]) < old
            return falls
        target = self._merge.target(self._snapshot, candidates.pairs, names, threads=self._threads)
        falls[rows] = is_below(values, target, names)
        return falls

    def _rows_read(self, outcome: MergeOutcome) -> dict[int, BitMap] | None:
        """Return segment id -> positions of all table rows that were read. None if other rows may
        have been read.

        Each source key was found at these rows or was absent. A concurrent change of the merge's
        input ends such a row or inserts an absent key. If neither happens, the merge has the same
        result on the newer snapshot.
        """
        if self._merge.chooses or not self._merge.on.names_one_row(self._snapshot.definition):
            return None
        places = np.unique(np.concatenate([outcome.pairs.places, outcome.pairs.refused]))
        segments = self._snapshot.segment_ids[places >> 32] if len(places) else places
        return {
            segment: BitMap(rows.astype(np.uint32))
            for segment, rows in by_value(places & 0xFFFFFFFF, segments).items()
        }


def _concat(
    matches: Pairs, clause: Int64Array, alone: Sequence[tuple[int, Pairs]]
) -> MatchedActions:
    """Return the changed table rows with their clauses: first the pairs, then the unmatched
    rows.
    """
    if alone:
        matches = Pairs.concat([matches, *(pairs_alone for _, pairs_alone in alone)])
        clause = np.concatenate(
            [clause, *(np.full(len(pairs_alone), number) for number, pairs_alone in alone)]
        )
    return MatchedActions(matches, clause, np.zeros(len(clause), np.bool_))


def _union_by_partition(parts: Sequence[Mapping[str, KeyHashes]]) -> dict[str, KeyHashes]:
    """Return the keys of all parts by partition. If any part uses TABLE, all keys are under
    TABLE.
    """
    by_path: dict[str, list[KeyHashes]] = {}
    everywhere = any(TABLE in part for part in parts)
    for part in parts:
        for path, hashes in part.items():
            by_path.setdefault(TABLE if everywhere else path, []).append(hashes)
    return {path: KeyHashes.concat(hashes_of_path) for path, hashes_of_path in by_path.items()}


def merge_operation(
    rows: MergedRows, action: str, schema: pa.Schema, progress: Progress | None = None
) -> Merge:
    """Return the merge operation for a source in memory.

    Args:
        schema: Columns of the table when the clauses were parsed.
    """
    arguments = (rows.metadata, rows.options, rows, MERGE, action, progress)
    return Merge(*arguments, schema=schema, chooses=rows.chooses)
