"""Writes on Spark: locate and write in tasks, decide and commit on the driver.

Small inputs are collected and written in process: the result is the same, an order of magnitude sooner.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as sf
from pyspark.storagelevel import StorageLevel

from indexes.base import KeyHashes
from mdt.commit.conflicts import TABLE, Footprint
from mdt.commit.operation import Changes, Claim, Operation, WritePlan
from mdt.commit.transaction import CommitResult, is_written_by, run
from mdt.config import Options
from mdt.engines.spark import tasks
from mdt.engines.spark.columns import quoted
from mdt.engines.spark.failures import in_driver
from mdt.engines.spark.private import from_arrow_schema, java_frame, map_in_arrow
from mdt.engines.spark.schema import to_arrow
from mdt.engines.spark.tasks import BUCKET, DELETE, DROPPED, INSERT, RETURN, UPDATE, Source, Work, source_of
from mdt.errors import Invalid
from mdt.metadata import paths
from mdt.metadata.attachments import Blobs
from mdt.metadata.file_group import NewFile
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot import Snapshot
from mdt.progress import Progress
from mdt.schema.conform import conform
from mdt.write.assign import NEW, Assignment, assign
from mdt.write.operations import STORED_SHARE, new_partitions
from mdt.write.transfer import decode

_UNKNOWN_BYTES = 1 << 60
_PROBE_ROWS = 50_000
_TASK_BYTES = 64 << 20
_SAMPLE_ROWS = 20_000
_NAMED_ROWS = 10
_TASKS_PER_PROCESSOR = 3
_TASK_ROWS = 500_000


def collect(frame: DataFrame, names: Sequence[str] | None = None) -> pa.Table:
    """Return all rows of ``frame`` in the driver; of its columns only those in ``names``, if given."""
    if names is not None and len(set(frame.columns)) == len(frame.columns):
        frame = frame.select(*(quoted(name) for name in frame.columns if name in names))
    return frame.toArrow()


def _estimated_bytes(frame: DataFrame) -> int:
    """Return Spark's estimate of the rows of ``frame``; at least _UNKNOWN_BYTES where it has none."""
    return int(java_frame(frame).queryExecution().optimizedPlan().stats().sizeInBytes())


def _tasks(frame: DataFrame) -> int:
    """Return how many tasks should tag the rows of ``frame``.

    One Python task costs some 60 ms however few its rows, and adaptive execution does not join them in a cached plan, so
    their number follows the estimated size, within the number of cores and ``spark.sql.shuffle.partitions``.
    """
    session = frame.sparkSession
    most = int(session.conf.get("spark.sql.shuffle.partitions", "200") or 200)
    wanted = -(-_estimated_bytes(frame) // _TASK_BYTES)
    return max(1, min(most, max(wanted, session.sparkContext.defaultParallelism)))


def collect_if_small(frame: DataFrame, bytes_max: int) -> pa.Table | None:
    """Return the rows of ``frame`` if they are few (by Spark's estimate, or by a look at the first ones), else None."""
    if bytes_max <= 0:
        return None
    size = _estimated_bytes(frame)
    if size <= bytes_max:
        return frame.toArrow()
    if size < _UNKNOWN_BYTES:
        return None
    first = frame.limit(_PROBE_ROWS + 1).toArrow()
    return first if len(first) <= _PROBE_ROWS and first.nbytes <= bytes_max else None


def write(
    metadata: Metadata, options: Options, frame: DataFrame, name: str, progress: Progress | None = None
) -> CommitResult[TaggedPlan]:
    """Upsert, insert or bulk_insert ``frame`` on Spark; return how the transaction ended."""
    given = to_arrow(frame.schema)
    definition = metadata.newest().definition
    conform(given.empty_table(), definition.declared, definition.schema)
    operation = SparkWrite(metadata, options, frame, name, definition.commit_action, progress)
    return run(metadata, operation, attempts=options.commit_attempts)


class _WrittenKeys(Mapping[str, KeyHashes]):
    """The keys of the files that a transaction has written, by partition: a superset of those it found absent.

    Loaded from their key maps when a conflict check asks, which is only when somebody else committed meanwhile.
    """

    def __init__(self, blobs: Blobs, files: Sequence[NewFile], is_global: bool) -> None:
        self._blobs = blobs
        self._files = files
        self._is_global = is_global

    def __getitem__(self, partition: str) -> KeyHashes:
        maps = [
            self._blobs.key_map(f.key_map).whole().hashes
            for f in self._files
            if f.key_map is not None and (f.partition == partition or partition == TABLE)
        ]
        if not maps or (partition == TABLE) != self._is_global:
            raise KeyError(partition)
        return KeyHashes(np.concatenate([m.hi for m in maps]), np.concatenate([m.lo for m in maps]))

    def __iter__(self) -> Iterator[str]:
        return iter([TABLE] if self._is_global else sorted({f.partition for f in self._files}))

    def __len__(self) -> int:
        return len(list(iter(self)))


@dataclass(frozen=True, slots=True)
class TaggedPlan(WritePlan):
    """``tagged``: the rows with what becomes of each, which Spark keeps until the plan is closed."""

    work: Sequence[Assignment] = ()
    tagged: DataFrame = field(kw_only=True)

    def close(self) -> None:
        """Let Spark drop the tagged rows."""
        self.tagged.unpersist()


@dataclass(frozen=True, slots=True)
class SparkWrite(Operation[TaggedPlan]):
    """Upsert, insert or bulk_insert the rows of ``frame``."""

    metadata: Metadata
    options: Options
    frame: DataFrame
    name: str
    action: str
    progress: Progress | None = None

    def prepare(self, snapshot: Snapshot, txn: str) -> TaggedPlan:
        """Tag every row in Spark tasks and return the plan for ``snapshot``.  Raises Invalid if keys exist that must not."""
        tagged = self._tagged(snapshot)
        try:
            with in_driver():
                counted = _counted(tagged)
                counts = _counts(counted)
                if self.name != "upsert":
                    self._refuse(tagged, counts)
        except BaseException:
            tagged.unpersist()
            raise
        work = self._assign(snapshot, counted)
        groups = {row["__mdt_group"] for row in counted if row["__mdt_group"] >= 0}
        groups |= {w.group for w in work if w.group != NEW}
        footprint = Footprint(txn, frozenset(snapshot.file_groups.names(sorted(groups))))
        partitions = sorted({w.partition for w in work})
        return TaggedPlan(footprint, partitions, counts, bool(work), work, tagged=tagged)

    def _tagged(self, snapshot: Snapshot) -> DataFrame:
        """Return the rows with what becomes of each, equal keys in one task; Spark keeps them once they are made."""
        together = self.frame.repartition(_tasks(self.frame), *map(quoted, snapshot.definition.key))
        schema = from_arrow_schema(tasks.tagged_schema(snapshot.definition.schema), prefer_timestamp_ntz=True)
        tagged = map_in_arrow(together, partial(tasks.tag, self._source(snapshot)), schema)
        return tagged.persist(StorageLevel.MEMORY_AND_DISK)

    def write(self, snapshot: Snapshot, plan: TaggedPlan, claim: Claim) -> Changes:
        """Bring the rows of each bucket to one task, which writes its files."""
        new_partitions(self.metadata, snapshot, claim, plan.partitions)
        shared = Work(self._source(snapshot), claim, plan.work)
        with in_driver(writing=True):
            rows = self._bucketed(snapshot, plan).drop("__mdt_key", "__mdt_partition", "__mdt_n")
            rows = rows.repartitionById(self._tasks(plan), sf.col(BUCKET))
            written = map_in_arrow(rows, partial(tasks.write, shared), "result binary").toArrow()
        done = [decode(data) for data in written["result"].to_pylist()]
        files = [f for d in done for f in d.files]
        changes = Changes(
            files=files,
            removed=[s for d in done for s in d.removed],
            vectors={s: v for d in done for s, v in d.vectors.items()},
            units=[u for d in done for u in d.units],
            absent=_WrittenKeys(self.metadata.blobs, files, snapshot.definition.is_global),
        )
        if self.progress is not None:  # all tasks end together here; Spark shows how far they are itself
            self.progress(len(changes.files), len(changes.files))
        self._drop_lost_attempts(claim, plan.partitions, changes)
        return changes

    def _tasks(self, plan: TaggedPlan) -> int:
        """Return how many tasks write: a few for each processor, more where a task would hold too many rows."""
        rows = plan.counts["inserted"] + plan.counts["updated"]
        wanted = max(_TASKS_PER_PROCESSOR * self.frame.sparkSession.sparkContext.defaultParallelism,
                     -(-rows // _TASK_ROWS))  # fmt: skip
        return min(len(plan.work), wanted)

    def _source(self, snapshot: Snapshot) -> Source:
        return source_of(self.metadata, snapshot, self.options, snapshot.base.seq)

    def _refuse(self, tagged: DataFrame, counts: Mapping[str, int]) -> None:
        """Refuse keys that exist or occur twice, as an insert must."""
        if counts["updated"]:
            rows = tagged.where(sf.col("__mdt_kind").isin(UPDATE, DELETE)).select("__mdt_key").take(_NAMED_ROWS)
            what = f"{counts['updated']} keys exist already: {[row[0] for row in rows]}"
        elif counts["late"]:
            what = f"{counts['late']} rows repeat a key or are older than what the table has"
        else:
            return
        raise Invalid(f"{self.name} takes new keys only; {what}", hint="use upsert to replace rows")

    def _assign(self, snapshot: Snapshot, counted: Sequence[Row]) -> list[Assignment]:
        """Return the assignments; only counts of rows are known here."""
        written = [row for row in counted if row["__mdt_kind"] != DROPPED]
        return assign(
            snapshot,
            self.options,
            can_index_log_files=self.metadata.key_index(snapshot).can_index_log_files,
            touched={row["__mdt_group"] for row in counted if row["__mdt_kind"] in (UPDATE, DELETE)},
            returns={row["__mdt_group"] for row in counted if row["__mdt_kind"] == RETURN},
            inserts={row["__mdt_partition"]: row["rows"] for row in counted if row["__mdt_kind"] == INSERT},
            row_bytes_hint=STORED_SHARE * sum(r["n"] for r in written) / max(1, sum(r["rows"] for r in written)),
            use_small_files=self.name != "bulk_insert",
        )

    def _bucketed(self, snapshot: Snapshot, plan: TaggedPlan) -> DataFrame:
        """Return the tagged rows with the number of the assignment that takes each, found natively.

        A row of an existing file group is looked up by the group's number; an insert by its partition path, and among
        several takers by where its key falls between the bounds, which are structs of the columns that order rows.
        """
        names = list(snapshot.definition.key)
        ranges = self._ranges(plan, names)
        bound = pa.struct([field for field in tasks.tagged_schema(snapshot.definition.schema) if field.name in names])
        bound = pa.struct([bound.field(name) for name in names])
        places: list[tuple[Any, ...]] = [
            ("", w.group, [], [number]) for number, w in enumerate(plan.work) if w.group != NEW
        ]
        places += [(partition, -1, bounds, numbers) for partition, (bounds, numbers) in ranges.items()]
        types = (pa.string(), pa.int64(), pa.list_(bound), pa.list_(pa.int32()))
        columns = [pa.array([place[i] for place in places], type) for i, type in enumerate(types)]
        known = self.frame.sparkSession.createDataFrame(pa.table(columns, ["place", "number", "bounds", "takers"]))
        rows = plan.tagged.where(sf.col("__mdt_kind") != DROPPED)
        is_insert = sf.col("__mdt_kind") == INSERT
        place = sf.when(is_insert, sf.col("__mdt_partition")).otherwise("")
        rows = rows.join(sf.broadcast(known), (place == sf.col("place")) & (sf.col("__mdt_group") == sf.col("number")))
        key = sf.struct(*map(quoted, names))
        below = sf.size(sf.filter("bounds", lambda bound: bound <= key))
        return rows.withColumn(BUCKET, sf.get("takers", below)).drop("place", "number", "bounds", "takers")

    def _ranges(self, plan: TaggedPlan, names: Sequence[str]) -> dict[str, tuple[list[Any], list[int]]]:
        """Return for each partition with inserts the bounds between its assignments, and these.

        The inserts of a partition are cut at quantiles of a sample, by the columns ``names``.
        """
        takers: dict[str, list[int]] = {}
        for number, one in enumerate(plan.work):
            if len(one.inserts):
                takers.setdefault(one.partition, []).append(number)
        cut = {partition for partition, numbers in takers.items() if len(numbers) > 1}
        samples = self._sample(plan, cut, names) if cut else {}
        ranges = {}
        for partition, numbers in takers.items():
            rows = np.cumsum([len(plan.work[n].inserts) for n in numbers])
            keys = samples.get(partition, ())
            at = [min(int(end / rows[-1] * len(keys)), len(keys) - 1) for end in rows[:-1]] if len(keys) else []
            bounds = [keys[i].as_py() for i in at]
            ranges[partition] = (bounds, numbers if bounds else numbers[:1])
        return ranges

    def _sample(self, plan: TaggedPlan, partitions: set[str], names: Sequence[str]) -> dict[str, pa.StructArray]:
        """Return the columns ``names`` of a sample of the inserts of each of ``partitions``, sorted by them."""
        total = max(1, plan.counts["inserted"] + plan.counts["updated"])
        rows = (
            plan.tagged.where(sf.col("__mdt_kind") == INSERT)
            .where(sf.col("__mdt_partition").isin(*sorted(partitions)))
            .select("__mdt_partition", *map(quoted, names))
            .sample(fraction=min(1.0, _SAMPLE_ROWS / total), seed=0)
            .toArrow()
            .sort_by([(name, "ascending") for name in ("__mdt_partition", *names)])
        )
        keys = rows.select(names).to_struct_array().combine_chunks()
        runs = pc.run_end_encode(rows[0].combine_chunks())
        ends = runs.run_ends.to_pylist()
        starts = [0, *ends[:-1]]
        return {
            partition: keys.slice(start, end - start)
            for partition, start, end in zip(runs.values.to_pylist(), starts, ends, strict=True)
        }

    def _drop_lost_attempts(self, claim: Claim, partitions: Sequence[str], changes: Changes) -> None:
        """Delete the files and summaries of task attempts whose result was not used."""
        storage = self.metadata.storage
        used = {paths.partition_file(f.partition, f.name) for f in changes.files}
        used |= {f.key_map.path for f in changes.files if f.key_map is not None}
        used |= {u.blob.path for u in changes.units if u.blob is not None}
        found = [info.path for partition in partitions for info in storage.list_dir(partition)]
        found += [info.path for info in storage.list(paths.key_maps_dir(claim.instant))]
        mine = [path for path in found if is_written_by(path, claim.instant, claim.token)]
        storage.delete_many([path for path in mine if path not in used])


def _counted(tagged: DataFrame) -> list[Row]:
    """Return how many rows there are of each kind, partition and file group; tags them on the way."""
    by_place = tagged.groupBy("__mdt_kind", "__mdt_partition", "__mdt_group")
    return by_place.agg(sf.count("*").alias("rows"), sf.sum("__mdt_n").alias("n")).collect()


def _counts(counted: Sequence[Row]) -> dict[str, int]:
    rows = {kind: sum(row["rows"] for row in counted if row["__mdt_kind"] == kind) for kind in range(DROPPED)}
    return {
        "inserted": rows[INSERT] + rows[RETURN] - rows[DELETE],
        "updated": rows[UPDATE] + rows[DELETE],
        "deleted": 0,
        "late": sum(row["n"] for row in counted if row["__mdt_kind"] == DROPPED),
    }
