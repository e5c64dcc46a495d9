"""Writes on an engine: tasks locate and write rows, the driver decides and commits.

The driver never reads rows. It gets the number of rows per kind, partition and file group, a sample
of keys where the inserts of a partition are split, and the changes that tasks wrote. If the table
keeps the ordering values of deletes, it also gets their tombstones, 24 bytes per key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexes.base import KeyHashes
from mdt.commit.conflicts import MERGE
from mdt.commit.operation import Changes, Claim
from mdt.engines import loading, tasks, write_tasks
from mdt.engines.absent_keys import AbsentKeys, WrittenKeys, hashes_of
from mdt.engines.engine import BucketAssignment, Engine, R
from mdt.engines.loading import Load
from mdt.engines.results import TASKS_PER_PROCESSOR, drop_lost_attempts, merge_changes
from mdt.engines.tasks import (
    ABSENT,
    BURIED,
    DELETE,
    DROPPED,
    FALLING,
    FURTHER,
    INSERT,
    REPEATED,
    RETURN,
    UPDATE,
    source_of,
)
from mdt.engines.write_tasks import BucketTask, TaggedWrite
from mdt.metadata.files.file_group import NewFile
from mdt.metadata.log.commit_log import NO_TOMBSTONES
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.metadata.snapshot.tombstones import new_tombstones
from mdt.write.assign import NEW, Assignment, Place
from mdt.write.by_name import RowWrite
from mdt.write.operations import CHECKED, DecidedRows, Findings, RowOperation, RowPlan, Rows
from mdt.write.rules import Rule
from mdt.write.slice_files import new_partitions
from mdt.write.transfer import decode

_SAMPLE_ROWS = 20_000
_NAMED_ROWS = 10
_TASK_ROWS = 500_000


def write(request: RowWrite, engine: Engine[R], data: R, schema: pa.Schema) -> RowOperation:
    """Return the operation that upserts, inserts, overwrites with or deletes ``data`` on an engine.
    ``schema``: of ``data``, validated as that of a table.
    """
    definition = request.metadata.newest().definition
    rule = request.rule(definition, schema.names)
    rule.batch(schema.empty_table(), definition)
    columns = schema if request.blend is None else None
    rows = EngineRows(engine, data, rule, columns, engine.processors)
    return request.operation(rows, definition)


@dataclass(frozen=True, slots=True)
class EngineRows(Rows, Generic[R]):
    """``data`` on an engine. ``columns``: the schema of the data, or None for partial rows."""

    engine: Engine[R]
    data: R
    rule: Rule
    columns: pa.Schema | None
    writers: int

    def decide(self, operation: RowOperation, snapshot: Snapshot) -> TaggedRows[R]:
        """Tag every row in tasks. Rows of a load are only labelled."""
        definition, engine, columns = snapshot.definition, self.engine, self.columns
        metadata, options = operation.metadata, operation.options
        if columns is not None and loading.needs_no_lookup(
            metadata, snapshot, operation.name, columns
        ):
            labelled = loading.label_rows(engine, definition, self.data, columns)
            return TaggedRows.from_tagged(engine, labelled, refuses=False, is_load=True)
        source = source_of(metadata, snapshot, options, is_in_process=engine.is_in_process)
        tagged = engine.map_parts(
            engine.group_by(self.data, definition.key, definition.key_hash),
            partial(tasks.tag, self.rule, source),
            tasks.tagged_schema(self.rule.columns(definition)),
            definition.key,
        )
        return TaggedRows.from_tagged(engine, tagged, refuses=operation.name in CHECKED)


@contextmanager
def release_on_error(engine: Engine[R], retained: Sequence[R]) -> Iterator[None]:
    """Release tagged rows if the block raises."""
    try:
        yield
    except BaseException:
        for rows in retained:
            engine.release(rows)
        raise


@dataclass(frozen=True, slots=True)
class TaggedRows(DecidedRows, Generic[R]):
    """Rows tagged with their kind, retained by ``engine`` until :meth:`close`.

    ``is_load``: True if the rows are only labelled and match no row of the table
    (:mod:`mdt.engines.loading`).
    """

    engine: Engine[R]
    tagged: R
    findings: Findings
    is_load: bool = False

    @classmethod
    def from_tagged(
        cls, engine: Engine[R], tagged: R, *, refuses: bool, is_load: bool = False
    ) -> TaggedRows[R]:
        """Return tagged rows with the driver's findings. ``refuses``: True if keys must be new."""
        with release_on_error(engine, [tagged]):
            rows = engine.count_tagged(tagged).to_pylist()
            findings = replace(
                findings_of(rows),
                tombstones=_tombstones(engine, tagged, rows),
                refused=_refusal_reason(engine, tagged, rows) if refuses else None,
            )
        return cls(engine, tagged, findings, is_load)

    def close(self) -> None:
        """Release the tagged rows."""
        self.engine.release(self.tagged)

    def write(
        self, operation: RowOperation, snapshot: Snapshot, plan: RowPlan, claim: Claim
    ) -> Changes:
        """Write the files, with the rows of each bucket in the same task.

        Progress is reported once, with the number of files, because all tasks end together.
        """
        metadata = operation.metadata
        if not plan.work:
            return Changes(absent=self.keys_absent(metadata, snapshot, ()))
        new_partitions(metadata, snapshot, claim, plan.partitions)
        changes = merge_changes(
            [decode(data) for data in self._results(operation, snapshot, plan, claim)]
        )
        if operation.progress is not None:
            operation.progress(len(changes.files), len(changes.files))
        drop_lost_attempts(metadata.storage, claim, plan.partitions, changes)
        if self.is_load:
            changes = loading.correct_counts(plan.counts["inserted"], changes)
        return replace(changes, absent=self.keys_absent(metadata, snapshot, changes.files))

    def keys_absent(
        self, metadata: Metadata, snapshot: Snapshot, files: Sequence[NewFile]
    ) -> Mapping[str, KeyHashes]:
        """Return the keys that were not found: keys written to ``files``, and keys of deletes."""
        is_global = snapshot.definition.is_global
        written = WrittenKeys(metadata.objects, files, is_global)
        if not self.findings.counts["missing"]:
            return written
        return AbsentKeys(self.engine, self.tagged, is_global, written)

    def _results(
        self, operation: RowOperation, snapshot: Snapshot, plan: RowPlan, claim: Claim
    ) -> list[bytes]:
        """Return the encoded changes of each task."""
        name, options = operation.name, operation.options
        source = source_of(
            operation.metadata, snapshot, options, is_in_process=self.engine.is_in_process
        )
        rows = self.engine.shuffle_to_buckets(self.tagged, self._assign_buckets(snapshot, plan))
        shared: BucketTask = TaggedWrite(source, claim, plan.work, name == MERGE)
        if self.is_load:
            shared = Load(source, claim, plan.work, name)
        return self.engine.collect_results(rows, partial(write_tasks.write, shared))

    @property
    def _written_rows(self) -> int:
        """The approximate number of rows that tasks write, or delete."""
        findings = self.findings
        new = (findings.inserts, findings.returns, findings.updates)
        return sum(sum(rows.values()) for rows in new) or sum(findings.deletes.values())

    def _assign_buckets(self, snapshot: Snapshot, plan: RowPlan) -> BucketAssignment:
        """Assign rows to buckets. There are a few tasks per processor, and more where a task would
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
        # In an unpartitioned table these places repeat the ones above.
        places += [home for home in homes if home not in places]
        places += [
            (partition, NEW, bounds, numbers) for partition, (bounds, numbers) in ranges.items()
        ]
        types = (pa.string(), pa.int64(), pa.list_(pa.binary()), pa.list_(pa.int32()))
        columns = [pa.array([place[i] for place in places], type) for i, type in enumerate(types)]
        task_count = max(
            TASKS_PER_PROCESSOR * self.engine.processors, -(-self._written_rows // _TASK_ROWS)
        )
        table = pa.table(columns, ["place", "number", "bounds", "takers"])
        return BucketAssignment(
            table, key, min(len(plan.work), task_count), _copied_rows(snapshot, plan.work)
        )

    def _ranges(
        self, plan: RowPlan, key: Sequence[str]
    ) -> dict[str, tuple[list[bytes], list[int]]]:
        """Return partition -> (bounds, assignments) for partitions with inserts.

        The inserts of a partition are split at quantiles of a sample of the columns ``key``.
        """
        takers: dict[str, list[int]] = {}
        for number, assignment in enumerate(plan.work):
            if len(assignment.inserts) and assignment.home == NEW:
                takers.setdefault(assignment.partition, []).append(number)
        ranges: dict[str, tuple[list[bytes], list[int]]] = {
            name: ([], numbers[:1]) for name, numbers in takers.items()
        }
        cut = {partition for partition, numbers in takers.items() if len(numbers) > 1}
        if cut:
            for partition, keys in self._sample(cut, key).items():
                numbers = takers[partition]
                ends = np.cumsum([len(plan.work[n].inserts) for n in numbers])
                at = np.minimum(ends[:-1] / ends[-1] * len(keys), len(keys) - 1).astype(np.int64)
                ranges[partition] = (keys.take(pa.array(at)).to_pylist(), numbers)
        return ranges

    def _sample(self, partitions: set[str], key: Sequence[str]) -> dict[str, pa.Array]:
        """Return the sorted sort keys of a sample of the inserts into each of ``partitions``."""
        share = min(1.0, _SAMPLE_ROWS / max(1, self._written_rows))
        rows = self.engine.sample_inserts(self.tagged, sorted(partitions), key, share)
        rows = rows.sort_by([(name, "ascending") for name in rows.column_names])
        keys = rows["key"].combine_chunks()
        runs = pc.run_end_encode(rows[0].combine_chunks())
        ends = runs.run_ends.to_pylist()
        starts = [0, *ends[:-1]]
        return {
            partition: keys.slice(start, end - start)
            for partition, start, end in zip(runs.values.to_pylist(), starts, ends, strict=True)
        }


def findings_of(counted: Sequence[Mapping[str, Any]]) -> Findings:
    """Return the driver's findings from the counts of rows per kind, partition and file group.

    Absent keys are known after the write. Only tasks know which newer rows made others late.
    """
    inserts: dict[Place, int] = {}
    counts_by_kind: dict[int, Counter[int]] = {kind: Counter() for kind in range(BURIED + 1)}
    for row in counted:
        kind, group = row["__mdt_kind"], row["__mdt_group"]
        counts_by_kind[kind][group] += row["rows"]
        if kind == INSERT:
            place = row["__mdt_partition"], group
            inserts[place] = inserts.get(place, 0) + row["rows"]
    rows = {kind: groups.total() for kind, groups in counts_by_kind.items()}
    written = [row for row in counted if row["__mdt_kind"] < DROPPED]
    counts = {
        "inserted": rows[INSERT] + rows[RETURN] - rows[DELETE],
        "updated": rows[UPDATE] + rows[FALLING] + rows[DELETE],
        "deleted": rows[FURTHER],
        "late": sum(row["total"] for row in counted if row["__mdt_kind"] == DROPPED),
        "missing": rows[ABSENT],
    }
    return Findings(
        inserts,
        counts_by_kind[UPDATE] + counts_by_kind[FALLING],
        counts_by_kind[DELETE] + counts_by_kind[FURTHER],
        counts_by_kind[RETURN],
        counts_by_kind[FALLING],
        {row["__mdt_group"] for row in counted if row["__mdt_group"] >= 0},
        counts,
        sum(row["total"] for row in written) / max(1, sum(row["rows"] for row in written)),
        left=None if counts["late"] else {},
    )


def _tombstones(engine: Engine[R], tagged: R, counted: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return the tombstones among tagged rows, schema TOMBSTONES."""
    if all(row["__mdt_kind"] != BURIED for row in counted):
        return NO_TOMBSTONES
    names = ["__mdt_segment", "__mdt_position", "__mdt_key"]
    rows = engine.select(tagged, BURIED, names)
    return new_tombstones(hashes_of(rows), rows["__mdt_key"].cast(pa.uint64()).to_numpy())


def _refusal_reason(
    engine: Engine[R], tagged: R, counted: Sequence[Mapping[str, Any]]
) -> str | None:
    """Return the reason to refuse the rows of an insert, or None."""
    existing = sum(row["rows"] for row in counted if row["__mdt_kind"] == UPDATE)
    if existing:
        keys = engine.select(tagged, UPDATE, ["__mdt_key"], rows_max=_NAMED_ROWS)
        return f"{existing} keys exist already: {keys[0].to_pylist()}"
    dropped = [row for row in counted if row["__mdt_kind"] == DROPPED]
    repeated = sum(row["total"] for row in dropped if row["__mdt_group"] == REPEATED)
    return f"{repeated} rows repeat a key" if repeated else None


def _copied_rows(
    snapshot: Snapshot, assignments: Sequence[Assignment]
) -> dict[int, tuple[int, int]]:
    """Return assignment -> (bytes, rows) that each new base file copies from its file group."""
    groups = snapshot.file_groups
    return {
        number: (groups.group(w.group).bytes, int(snapshot.rows[groups.members(w.group)].sum()))
        for number, w in enumerate(assignments)
        if w.group > NEW and not w.is_log
    }
