"""Writes on an engine: rows are located and written in its tasks, the driver decides and commits.

The driver sees how many rows there are of each kind, partition and file group, a sample of keys
where inserts of a partition are cut, and what tasks have written; never a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexes.base import KeyHashes
from indexes.key_hash import KeyHash
from mdt.commit.conflicts import MERGE, Footprint
from mdt.commit.operation import Changes, Claim, Operation, WritePlan
from mdt.config import Options
from mdt.engines import loading, tasks, write_tasks
from mdt.engines.absent import AbsentKeys, WrittenKeys, hashes_of
from mdt.engines.engine import Deal, Engine, R
from mdt.engines.loading import Load
from mdt.engines.results import TASKS_PER_PROCESSOR, drop_lost_attempts, merged
from mdt.engines.tasks import (
    ABSENT,
    BURIED,
    DELETE,
    DROPPED,
    FALLING,
    FURTHER,
    INSERT,
    RETURN,
    UPDATE,
    Source,
    source_of,
)
from mdt.engines.write_tasks import Work
from mdt.metadata.log.commit_log import NO_TOMBSTONES
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.metadata.snapshot.tombstones import new_tombstones
from mdt.progress import Progress
from mdt.schema.conform import conform
from mdt.schema.definition import TableDefinition
from mdt.schema.marked import without_marks
from mdt.write import overwriting
from mdt.write.assign import NEW, Assignment, Place, assign
from mdt.write.blending import Kept, batch_of, blend_of
from mdt.write.bytes import rewriting_warnings
from mdt.write.operations import new_partitions, not_new, opened_by
from mdt.write.overwriting import Ending
from mdt.write.transfer import decode
from mdt.write.unchecked import INSERT_UNCHECKED, require_repeats

_SAMPLE_ROWS = 20_000
_NAMED_ROWS = 10
_TASK_ROWS = 500_000
Tag = Callable[[Source, Iterator[pa.RecordBatch], int], Iterator[pa.RecordBatch]]
"""Gives rows of one part their CONTROL columns, in a task."""
_TOUCHING = (UPDATE, DELETE, FURTHER, FALLING)


def write(
    engine: Engine[R],
    metadata: Metadata,
    options: Options,
    data: R,
    schema: pa.Schema,
    name: str,
    progress: Progress | None = None,
    kept: Kept | None = None,
    ends: Sequence[str] | None = None,
) -> EngineWrite[R]:
    """Return the operation that upserts, inserts or overwrites with ``data`` on an engine.
    ``schema``: of ``data``.

    ``kept``: of an upsert, what stays of older rows.  ``ends``: of insert_overwrite, patterns of
    the partitions that end.
    """
    definition = metadata.newest().definition
    if kept is not None:
        batch_of(schema.empty_table(), blend_of(definition, schema.names, kept))
        return EngineBlend(
            engine, metadata, options, data, name, definition.commit_action, progress, kept
        )
    conform(without_marks(schema.empty_table())[0], definition.declared, definition.schema)
    if name in overwriting.WITH_ROWS:
        action = overwriting.ACTION
        return EngineOverwrite(
            engine, metadata, options, data, name, action, progress, ends, columns=schema
        )
    kind: type[EngineWrite[R]] = EngineWrite
    if name == INSERT_UNCHECKED:
        require_repeats(definition, schema.names)
        kind = EngineInsert
    return kind(
        engine, metadata, options, data, name, definition.commit_action, progress, columns=schema
    )


@dataclass(frozen=True, slots=True)
class TaggedPlan(WritePlan, Generic[R]):
    """``tagged``: the rows with what becomes of each, which ``engine`` keeps until the plan is
    closed.

    ``is_load``: whether they are as they were given, and meet no row of the table
    (:mod:`mdt.engines.loading`).  ``tombstones``: of deleted keys, schema TOMBSTONES.
    """

    work: Sequence[Assignment] = ()
    tagged: R = field(kw_only=True)
    engine: Engine[R] = field(kw_only=True)
    is_load: bool = field(default=False, kw_only=True)
    tombstones: pa.Table = field(default_factory=lambda: NO_TOMBSTONES, kw_only=True)

    def close(self) -> None:
        """Let the engine drop the tagged rows."""
        self.engine.dropped(self.tagged)


@dataclass(frozen=True, slots=True)
class Ready(Generic[R]):
    """What is known before rows are assigned: ``counted`` rows of each kind, partition and file
    group; the others as in :class:`TaggedPlan`.
    """

    tagged: R
    counted: Sequence[Mapping[str, Any]]
    is_load: bool = False


@dataclass(frozen=True, slots=True)
class EngineWrite(Operation[TaggedPlan[R]], Generic[R]):
    """Upsert, insert or bulk_insert the rows of ``data``.

    ``progress`` is called once, with the number of files: all tasks end together here.
    ``columns``: of ``data``, if these are the table's.
    """

    engine: Engine[R]
    metadata: Metadata
    options: Options
    data: R
    name: str
    action: str
    progress: Progress | None = None
    columns: pa.Schema | None = field(default=None, kw_only=True)

    def prepare(self, snapshot: Snapshot, txn: str) -> TaggedPlan[R]:
        """Tag every row in tasks and return the plan for ``snapshot``.  Raises Invalid if keys
        exist that must not.
        """
        ready = self._ready(snapshot, self._tag())
        if self.name != "upsert":
            with self._or_dropped(ready.tagged):
                self._refuse(ready.tagged, ready.counted)
        return self._planned(snapshot, txn, ready)

    def _planned(self, snapshot: Snapshot, txn: str, ready: Ready[R]) -> TaggedPlan[R]:
        """Return the plan for rows of which it is known what becomes of them."""
        counted = ready.counted
        counts, work = _counts(counted), self._assign(snapshot, counted)
        if self.name != MERGE:
            counts["missing"] = sum(row["rows"] for row in counted if row["__mdt_kind"] == ABSENT)
        groups = {row["__mdt_group"] for row in counted if row["__mdt_group"] >= 0}
        groups |= {w.group for w in work if w.group > NEW}
        footprint = Footprint(
            txn, frozenset(snapshot.file_groups.names(sorted(groups))), opens=opened_by(work)
        )
        partitions = sorted({w.partition for w in work})
        falls, returns = (
            {row["__mdt_group"] for row in counted if row["__mdt_kind"] == kind}
            for kind in (FALLING, RETURN)
        )
        tombstones = self._tombstones(ready)
        return TaggedPlan(
            footprint,
            partitions,
            counts,
            bool(work) or bool(len(tombstones)),
            work,
            tagged=ready.tagged,
            engine=self.engine,
            is_load=ready.is_load,
            tombstones=tombstones,
            warnings=rewriting_warnings(snapshot, work, falls=falls, returns=returns),
        )

    def _tombstones(self, ready: Ready[R]) -> pa.Table:
        """Return the tombstones that tagged rows tell, schema TOMBSTONES."""
        if all(row["__mdt_kind"] != BURIED for row in ready.counted):
            return NO_TOMBSTONES
        names = ["__mdt_segment", "__mdt_position", "__mdt_key"]
        rows = self.engine.selected(ready.tagged, {"__mdt_kind": (BURIED,)}, names)
        return new_tombstones(hashes_of(rows), rows["__mdt_key"].cast(pa.uint64()).to_numpy())

    def _ready(self, snapshot: Snapshot, tag: Tag) -> Ready[R]:
        """Return what becomes of the rows; those of a load come as they were given."""
        columns = self.columns
        if columns is None or not loading.meets_none(self.metadata, snapshot, self.name, columns):
            definition = snapshot.definition
            return Ready(*self._tagged(snapshot, tag, definition.key, definition.key_hash))
        found = loading.labelled(self.engine, snapshot.definition, self.data, columns)
        with self._or_dropped(found):
            return Ready(found, self._counted(found), True)

    def _tag(self) -> Tag:
        return tasks.tag

    def _tagged(
        self, snapshot: Snapshot, tag: Tag, by: Sequence[str], key_hash: KeyHash | None
    ) -> tuple[R, list[dict[str, Any]]]:
        """Return the rows with what becomes of each, and how many there are of each kind, partition
        and file group.

        ``by``: columns of the data; rows with equal ones meet in one task.  ``key_hash``: as for
        :meth:`mdt.engines.engine.Engine.grouped`.
        """
        definition = snapshot.definition
        together = self.engine.grouped(self.data, by, key_hash)
        function = partial(tag, self._source(snapshot))
        tagged = self.engine.mapped(together, function, self._schema(definition), definition.key)
        with self._or_dropped(tagged):
            return tagged, self._counted(tagged)

    def _schema(self, definition: TableDefinition) -> pa.Schema:
        """Return the columns of tagged rows."""
        return tasks.tagged_schema(definition.schema)

    def _counted(self, tagged: R) -> list[dict[str, Any]]:
        return self.engine.counted(tagged, tasks.COUNTED.names, "__mdt_n").to_pylist()

    @contextmanager
    def _or_dropped(self, tagged: R) -> Iterator[None]:
        """Let the engine drop the tagged rows if what is done with them fails."""
        try:
            yield
        except BaseException:
            self.engine.dropped(tagged)
            raise

    def write(self, snapshot: Snapshot, plan: TaggedPlan[R], claim: Claim) -> Changes:
        """Bring the rows of each bucket to one task, which writes its files."""
        if not plan.work:
            absent = WrittenKeys(self.metadata.objects, (), snapshot.definition.is_global)
            return Changes(absent=self._absent(snapshot, plan, absent), tombstones=plan.tombstones)
        new_partitions(self.metadata, snapshot, claim, plan.partitions)
        changes = merged([decode(data) for data in self._written(snapshot, plan, claim)])
        if self.progress is not None:
            self.progress(len(changes.files), len(changes.files))
        drop_lost_attempts(self.metadata.storage, claim, plan.partitions, changes)
        if plan.is_load:
            changes = loading.counted(plan.counts["inserted"], changes)
        if len(plan.tombstones):
            changes = replace(changes, tombstones=plan.tombstones)
        absent = WrittenKeys(self.metadata.objects, changes.files, snapshot.definition.is_global)
        return replace(changes, absent=self._absent(snapshot, plan, absent))

    def _absent(
        self, snapshot: Snapshot, plan: TaggedPlan[R], written: WrittenKeys
    ) -> Mapping[str, KeyHashes]:
        """Return the keys that were found absent: those that are ``written``, and those of
        deletes.
        """
        if not plan.counts.get("missing"):
            return written
        return AbsentKeys(self.engine, plan.tagged, snapshot.definition.is_global, written)

    def _written(self, snapshot: Snapshot, plan: TaggedPlan[R], claim: Claim) -> list[bytes]:
        """Return what each task has written."""
        source = self._source(snapshot)
        rows = self.engine.dealt(plan.tagged, self._deal(snapshot, plan))
        if plan.is_load:
            return self.engine.results(
                rows, partial(loading.write, Load(source, claim, plan.work, self.name))
            )
        return self.engine.results(
            rows, partial(write_tasks.write, Work(source, claim, plan.work, self.name == MERGE))
        )

    def _source(self, snapshot: Snapshot) -> Source:
        return source_of(self.metadata, snapshot, self.options, is_here=self.engine.is_here)

    def _refuse(self, tagged: R, counted: Sequence[Mapping[str, Any]]) -> None:
        """Refuse keys that exist or occur twice, as an insert must; rows that are older than the
        delete of their key are late.
        """
        updated = _counts(counted)["updated"]
        refused = _dropped([row for row in counted if row["__mdt_group"] != NEW])
        if updated:
            exist = {"__mdt_kind": (UPDATE, DELETE)}
            rows = self.engine.selected(tagged, exist, ["__mdt_key"], rows_max=_NAMED_ROWS)
            what = f"{updated} keys exist already: {rows[0].to_pylist()}"
        elif refused:
            what = f"{refused} rows repeat a key or are older than what the table has"
        else:
            return
        raise not_new(self.name, what)

    def _assign(self, snapshot: Snapshot, counted: Sequence[Mapping[str, Any]]) -> list[Assignment]:
        """Return the assignments; only counts of rows are known here."""
        return assign(
            snapshot,
            self.options,
            can_index_log_files=self.metadata.key_index(snapshot).can_index_log_files,
            touched={row["__mdt_group"] for row in counted if row["__mdt_kind"] in _TOUCHING},
            returns={row["__mdt_group"] for row in counted if row["__mdt_kind"] == RETURN},
            inserts=_inserts(counted),
            row_bytes=_row_bytes(counted),
            writers=self.engine.processors,
            use_small_files=self.name != "bulk_insert",
            rewritten={row["__mdt_group"] for row in counted if row["__mdt_kind"] == FALLING},
        )

    def _deal(self, snapshot: Snapshot, plan: TaggedPlan[R]) -> Deal:
        """Return which assignment takes which rows; tasks: a few a processor, more where one would
        hold too many rows.
        """
        key = snapshot.definition.key
        ranges = self._ranges(plan, key)
        places: list[tuple[Any, ...]] = [
            ("", w.group, [], [number]) for number, w in enumerate(plan.work) if w.group > NEW
        ]
        homes: list[tuple[Any, ...]] = [
            (*w.place, [], [number]) for number, w in enumerate(plan.work) if w.home != NEW
        ]
        # without partitions an insert has no other place
        places += [home for home in homes if home not in places]
        places += [
            (partition, NEW, bounds, numbers) for partition, (bounds, numbers) in ranges.items()
        ]
        types = (pa.string(), pa.int64(), pa.list_(pa.binary()), pa.list_(pa.int32()))
        columns = [pa.array([place[i] for place in places], type) for i, type in enumerate(types)]
        wanted = max(
            TASKS_PER_PROCESSOR * self.engine.processors, -(-self._dealt_rows(plan) // _TASK_ROWS)
        )
        dealt = pa.table(columns, ["place", "number", "bounds", "takers"])
        return Deal(dealt, key, min(len(plan.work), wanted), _carried(snapshot, plan.work))

    def _dealt_rows(self, plan: TaggedPlan[R]) -> int:
        """Return about how many rows tasks write."""
        return plan.counts["inserted"] + plan.counts.get("updated", 0)

    def _ranges(
        self, plan: TaggedPlan[R], key: Sequence[str]
    ) -> dict[str, tuple[list[bytes], list[int]]]:
        """Return for each partition with inserts the bounds between its assignments, and these.

        The inserts of a partition are cut at quantiles of a sample, by the columns ``key``.
        """
        takers: dict[str, list[int]] = {}
        for number, one in enumerate(plan.work):
            if len(one.inserts) and one.home == NEW:
                takers.setdefault(one.partition, []).append(number)
        ranges: dict[str, tuple[list[bytes], list[int]]] = {
            name: ([], numbers[:1]) for name, numbers in takers.items()
        }
        cut = {partition for partition, numbers in takers.items() if len(numbers) > 1}
        if cut:
            for partition, keys in self._sample(plan, cut, key).items():
                numbers = takers[partition]
                ends = np.cumsum([len(plan.work[n].inserts) for n in numbers])
                at = np.minimum(ends[:-1] / ends[-1] * len(keys), len(keys) - 1).astype(np.int64)
                ranges[partition] = (keys.take(pa.array(at)).to_pylist(), numbers)
        return ranges

    def _sample(
        self, plan: TaggedPlan[R], partitions: set[str], key: Sequence[str]
    ) -> dict[str, pa.Array]:
        """Return the sort keys of a sample of the inserts of each of ``partitions``, in order."""
        total = max(1, plan.counts["inserted"] + plan.counts.get("updated", 0))
        share = min(1.0, _SAMPLE_ROWS / total)
        rows = self.engine.sampled(plan.tagged, sorted(partitions), key, share)
        rows = rows.sort_by([(name, "ascending") for name in rows.column_names])
        keys = rows["key"].combine_chunks()
        runs = pc.run_end_encode(rows[0].combine_chunks())
        ends = runs.run_ends.to_pylist()
        starts = [0, *ends[:-1]]
        return {
            partition: keys.slice(start, end - start)
            for partition, start, end in zip(runs.values.to_pylist(), starts, ends, strict=True)
        }


@dataclass(frozen=True, slots=True)
class EngineBlend(EngineWrite[R]):
    """Upsert the rows of ``data``; tasks read what stays of older ones."""

    kept: Kept | None = None

    def _tag(self) -> Tag:
        assert self.kept is not None
        return partial(tasks.tag_blended, self.kept)


class EngineInsert(EngineWrite[R]):
    """Insert the rows of ``data`` without looking for keys: :mod:`mdt.write.unchecked`."""

    __slots__ = ()

    def prepare(self, snapshot: Snapshot, txn: str) -> TaggedPlan[R]:
        """Tag every row in tasks; the plan depends on no row of the table."""
        ready = self._ready(snapshot, partial(tasks.tag_anew, False))
        counted, inserts = ready.counted, _inserts(ready.counted)
        work = overwriting.assigned(
            snapshot, self.options, inserts, {}, _row_bytes(counted), self.engine.processors
        )
        counts = {"inserted": sum(inserts.values()), "late": _dropped(counted)}
        return TaggedPlan(
            Footprint(txn),
            sorted({partition for partition, _ in inserts}),
            counts,
            bool(work),
            work,
            tagged=ready.tagged,
            engine=self.engine,
            is_load=ready.is_load,
        )


@dataclass(frozen=True, slots=True)
class EngineOverwrite(EngineWrite[R]):
    """Let the rows of ``data`` stand in the place of partitions, or of the whole table:
    :mod:`mdt.write.overwriting`.

    ``ends``: as for :func:`mdt.write.overwriting.overwritten`.
    """

    ends: Sequence[str] | None = None

    def prepare(self, snapshot: Snapshot, txn: str) -> TaggedPlan[R]:
        """Tag every row in tasks, looking for keys only where they may live elsewhere; return the
        plan for ``snapshot``.
        """
        looks_up = snapshot.definition.is_global and not overwriting.is_whole(
            self.name, snapshot.definition
        )
        ready = self._ready(snapshot, partial(tasks.tag_anew, looks_up))
        counted, inserts = ready.counted, _inserts(ready.counted)
        with self._or_dropped(ready.tagged):
            occur = sorted({partition for partition, _ in inserts})
            partitions = overwriting.overwritten(self.name, snapshot, occur, self.ends)
            ending = Ending.of(snapshot, partitions)
        found = [
            (row["__mdt_group"], row["rows"]) for row in counted if row["__mdt_kind"] == DELETE
        ]
        gone = set(ending.groups.tolist())
        moves = {group: rows for group, rows in found if group not in gone}
        work = overwriting.assigned(
            snapshot, self.options, inserts, moves, _row_bytes(counted), self.engine.processors
        )
        groups = np.array(sorted(gone | moves.keys()), np.int64)
        footprint = overwriting.footprint_of(snapshot, txn, partitions, groups)
        counts = {
            "inserted": sum(inserts.values()),
            "deleted": ending.rows + sum(moves.values()),
            "late": _dropped(counted),
        }
        is_needed = bool(work) or bool(gone)
        paths = sorted({w.partition for w in work})
        return TaggedPlan(
            footprint,
            paths,
            counts,
            is_needed,
            work,
            tagged=ready.tagged,
            engine=self.engine,
            is_load=ready.is_load,
        )

    def write(self, snapshot: Snapshot, plan: TaggedPlan[R], claim: Claim) -> Changes:
        """Write the new files in tasks."""
        changes = EngineWrite.write(self, snapshot, plan, claim)
        return Ending.of(snapshot, plan.footprint.overwrites).added_to(snapshot, changes)


def _carried(snapshot: Snapshot, work: Sequence[Assignment]) -> dict[int, tuple[int, int]]:
    """Return bytes and number of the rows that each assignment of a new base file takes over from
    its file group.
    """
    groups = snapshot.file_groups
    return {
        number: (groups.group(w.group).bytes, int(snapshot.rows[groups.members(w.group)].sum()))
        for number, w in enumerate(work)
        if w.group > NEW and not w.is_log
    }


def _row_bytes(counted: Sequence[Mapping[str, Any]]) -> float:
    """Return the mean bytes of a row in Arrow."""
    written = [row for row in counted if row["__mdt_kind"] < DROPPED]
    return float(sum(r["total"] for r in written) / max(1, sum(r["rows"] for r in written)))


def _dropped(counted: Sequence[Mapping[str, Any]]) -> int:
    """Return how many rows came late or repeated a key."""
    return sum(row["total"] for row in counted if row["__mdt_kind"] == DROPPED)


def _inserts(counted: Sequence[Mapping[str, Any]]) -> dict[Place, int]:
    """Return place -> rows to insert there."""
    found: dict[Place, int] = {}
    for row in counted:
        if row["__mdt_kind"] == INSERT:
            place = row["__mdt_partition"], row["__mdt_group"]
            found[place] = found.get(place, 0) + row["rows"]
    return found


def _counts(counted: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    rows = {
        kind: sum(row["rows"] for row in counted if row["__mdt_kind"] == kind)
        for kind in range(DROPPED)
    }
    return {
        "inserted": rows[INSERT] + rows[RETURN] - rows[DELETE],
        "updated": rows[UPDATE] + rows[FALLING] + rows[DELETE],
        "deleted": rows[FURTHER],
        "late": _dropped(counted),
    }
