"""Merges on an engine: each task matches its rows of the source, by key; the driver counts, assigns and commits as for an upsert."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from indexes.base import KeyHashes
from mdt.commit.conflicts import MERGE, TABLE
from mdt.commit.operation import Changes, Claim
from mdt.config import Options
from mdt.engines import merge_tasks
from mdt.engines.engine import Engine, R
from mdt.engines.tasks import ABSENT, READ
from mdt.engines.write import EngineWrite, TaggedPlan, WrittenKeys
from mdt.errors import Conflict
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot import Snapshot
from mdt.progress import Progress
from mdt.write.result import Looked
from mdt.write.said import SaidMerge


def merge(
    engine: Engine[R], metadata: Metadata, options: Options, data: R, columns: pa.Schema, said: SaidMerge,
    schema: pa.Schema, progress: Progress | None = None,
) -> EngineMerge[R]:  # fmt: skip
    """Return the operation that merges ``data``, which have these ``columns``.  ``schema``: of the table, as it was when clauses were read."""
    definition = metadata.newest().definition
    _, on, _ = said.read(columns.empty_table(), definition)
    key = tuple(on.equal[name] for name in definition.key)
    return EngineMerge(
        engine, metadata, options, data, MERGE, definition.commit_action, progress, said=said, key=key, schema=schema
    )


@dataclass(frozen=True, slots=True)
class MergedPlan(TaggedPlan[R]):
    """``finds_everywhere``: whether keys were found absent from the whole table."""

    looked: Looked = field(kw_only=True)
    finds_everywhere: bool = False


@dataclass(frozen=True, slots=True)
class EngineMerge(EngineWrite[R]):
    """``key``: the columns of the source that are equal to those of the table's key.  ``schema``: the columns of the table as clauses were read."""

    said: SaidMerge = field(kw_only=True)
    key: tuple[str, ...] = field(kw_only=True)
    schema: pa.Schema = field(kw_only=True)

    def prepare(self, snapshot: Snapshot, txn: str) -> MergedPlan[R]:
        """Find out in tasks what becomes of each row.  Raises as :meth:`mdt.write.merge.Merge.prepare` does."""
        if not snapshot.definition.schema.equals(self.schema):
            raise Conflict("the columns of the table were altered meanwhile", hint="ask again")
        since = self.metadata.storage.now_us()
        tagged, counted = self._tagged(snapshot, partial(merge_tasks.tag_merged, self.said), self.key)
        with self._or_dropped(tagged):
            plan = self._planned(snapshot, txn, tagged, counted)
            read = self.engine.selected(tagged, {"__mdt_kind": (READ,)}, ["__mdt_segment"])[0].drop_null()
        source = sum(row["total"] for row in counted if row["__mdt_kind"] == READ)
        scanned, microseconds = len(read.unique()), self.metadata.storage.now_us() - since
        looked = Looked(source, scanned, len(snapshot), microseconds, self.engine.name)
        absent = {row["__mdt_partition"] for row in counted if row["__mdt_kind"] == ABSENT}
        return MergedPlan(
            plan.footprint, plan.partitions, plan.counts, plan.is_needed, plan.work, tagged=tagged, engine=self.engine,
            looked=looked, finds_everywhere=snapshot.definition.is_global or TABLE in absent,
        )  # fmt: skip

    def write(self, snapshot: Snapshot, plan: TaggedPlan[R], claim: Claim) -> Changes:
        """Write in tasks, as for an upsert."""
        assert isinstance(plan, MergedPlan)
        changes = EngineWrite.write(self, snapshot, plan, claim)
        written = WrittenKeys(self.metadata.objects, changes.files, plan.finds_everywhere)
        return replace(changes, absent=_AbsentKeys(written, plan))


class _AbsentKeys(Mapping[str, KeyHashes]):
    """The keys that a merge has found absent: those that it has written, and those that it has not inserted.

    Brought here when a conflict check asks, which is only when somebody else committed meanwhile: 16 bytes a key.
    """

    def __init__(self, written: WrittenKeys, plan: MergedPlan[Any]) -> None:
        self._written, self._plan = written, plan
        self._left: dict[str, KeyHashes] | None = None

    def __getitem__(self, partition: str) -> KeyHashes:
        found = [keys[partition] for keys in (self._written, self._not_inserted()) if partition in keys]
        if not found:
            raise KeyError(partition)
        return KeyHashes(*np.hstack([(one.hi, one.lo) for one in found]))

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._written, *self._not_inserted()}))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def _not_inserted(self) -> Mapping[str, KeyHashes]:
        if self._left is None:
            names = ["__mdt_partition", "__mdt_segment", "__mdt_position"]
            rows = self._plan.engine.selected(self._plan.tagged, {"__mdt_kind": (ABSENT,)}, names)
            self._left = _by_partition(rows, self._plan.finds_everywhere)
        return self._left


def _by_partition(rows: pa.Table, everywhere: bool) -> dict[str, KeyHashes]:
    """Return ABSENT rows as hashes by partition; under TABLE all of them, if ``everywhere``."""
    hi, lo = (rows[name].to_numpy().view(np.uint64) for name in ("__mdt_segment", "__mdt_position"))
    hashes = KeyHashes(hi, lo)
    if everywhere:
        return {TABLE: hashes} if len(hashes) else {}
    codes = rows["__mdt_partition"].combine_chunks().dictionary_encode()
    number = codes.indices.to_numpy()
    return {path: hashes.take(number == n) for n, path in enumerate(codes.dictionary.to_pylist())}
