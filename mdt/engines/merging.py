"""Merges on an engine: each task matches its rows of the source, by key; the driver counts, assigns
and commits as for an upsert.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyroaring import BitMap

from mdt.commit.conflicts import MERGE, TABLE
from mdt.commit.operation import Changes, Claim
from mdt.config import Options
from mdt.engines import merge_tasks
from mdt.engines.absent import AbsentKeys, WrittenKeys
from mdt.engines.engine import Engine, R
from mdt.engines.tasks import ABSENT, READ, tagged_schema
from mdt.engines.write import EngineWrite, Ready, TaggedPlan
from mdt.errors import Conflict
from mdt.metadata.log.codec import decode_ipc
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.progress import Progress
from mdt.write.merge import Decision, Merge
from mdt.write.result import Looked
from mdt.write.said import SaidMerge


def merge(
    engine: Engine[R],
    metadata: Metadata,
    options: Options,
    data: R,
    columns: pa.Schema,
    said: SaidMerge,
    schema: pa.Schema,
    progress: Progress | None = None,
) -> EngineMerge[R]:
    """Return the operation that merges ``data``, which have these ``columns``.  ``schema``: of the
    table, as it was when clauses were read.
    """
    definition = metadata.newest().definition
    _, on, _ = said.read(columns.empty_table(), definition)
    key = tuple(on.equal[name] for name in definition.key)
    return EngineMerge(
        engine,
        metadata,
        options,
        data,
        MERGE,
        definition.commit_action,
        progress,
        said=said,
        key=key,
        columns=columns,
        schema=schema,
    )


@dataclass(frozen=True, slots=True)
class MergedPlan(TaggedPlan[R]):
    """``kept``: what the engine keeps for ``tagged``.  ``finds_everywhere``: whether keys were
    found absent from the whole table.
    """

    looked: Looked = field(kw_only=True)
    kept: Sequence[R] = field(kw_only=True)
    finds_everywhere: bool = False

    def close(self) -> None:
        """Let the engine drop the tagged rows."""
        for rows in self.kept:
            self.engine.dropped(rows)


@dataclass(frozen=True, slots=True)
class EngineMerge(EngineWrite[R]):
    """``key``: the columns of the source that are equal to those of the table's key, ``columns``:
    all of them.  ``schema``: the columns of the table as clauses were read.
    """

    said: SaidMerge = field(kw_only=True)
    key: tuple[str, ...] = field(kw_only=True)
    columns: pa.Schema = field(kw_only=True)
    schema: pa.Schema = field(kw_only=True)

    def prepare(self, snapshot: Snapshot, txn: str) -> MergedPlan[R]:
        """Find out in tasks what becomes of each row.  Raises as
        :meth:`mdt.write.merge.Merge.prepare` does.
        """
        if not snapshot.definition.schema.equals(self.schema):
            raise Conflict("the columns of the table were altered meanwhile", hint="ask again")
        since = self.metadata.storage.now_us()
        others = self.said.of_others()
        tag = partial(merge_tasks.tag_merged, self.said.of_source(), bool(others.clauses))
        tagged, counted = self._tagged(snapshot, tag, self.key, None)
        kept = [tagged]
        with self._or_all_dropped(kept):
            if others.clauses and (alone := self._alone(snapshot, tagged, others)) is not None:
                kept.append(alone)
                tagged, counted = (
                    self.engine.joined(tagged, alone),
                    [*counted, *self._counted(alone)],
                )
            plan = self._planned(snapshot, txn, Ready(tagged, counted))
            looked = self._looked(snapshot, tagged, counted, since)
        absent = {row["__mdt_partition"] for row in counted if row["__mdt_kind"] == ABSENT}
        return MergedPlan(
            replace(plan.footprint, conditional=bool(others.clauses)),
            plan.partitions,
            plan.counts,
            plan.is_needed,
            plan.work,
            tagged=tagged,
            engine=self.engine,
            looked=looked,
            kept=kept,
            finds_everywhere=snapshot.definition.is_global or TABLE in absent,
            warnings=plan.warnings,
        )

    @contextmanager
    def _or_all_dropped(self, kept: Sequence[R]) -> Iterator[None]:
        """Let the engine drop what it keeps if what is done with it fails."""
        try:
            yield
        except BaseException:
            for rows in kept:
                self.engine.dropped(rows)
            raise

    def _alone(self, snapshot: Snapshot, tagged: R, others: SaidMerge) -> R | None:
        """Return what becomes of rows that no row of the source matches; None where no clause can
        hold.

        Which rows are matched comes here as a bitmap of each file, as deletion vectors do.
        """
        definition = snapshot.definition
        read = others.read(self.columns.empty_table(), definition)
        merge = Merge(self.metadata, self.options, *read, definition.schema, self.action)
        taken = {file: BitMap() for file in sorted(Decision(merge, snapshot).scanned_alone())}
        if not taken:
            return None
        for data in self.engine.results(tagged, merge_tasks.matched):
            found = merge_tasks.bitmaps_of(
                decode_ipc(data, merge_tasks.FILES, path="a task's result")
            )
            for file in found.keys() & taken.keys():
                taken[file] |= found[file]
        files = self.engine.spread(merge_tasks.files_of(taken))
        tag = partial(merge_tasks.tag_alone, others, self.columns, self._source(snapshot))
        return self.engine.mapped(files, tag, tagged_schema(definition.schema), definition.key)

    def _looked(
        self, snapshot: Snapshot, tagged: R, counted: Sequence[Mapping[str, Any]], since: int
    ) -> Looked:
        read = self.engine.selected(tagged, {"__mdt_kind": (READ,)}, ["__mdt_segment"])[
            0
        ].drop_null()
        source = sum(row["total"] for row in counted if row["__mdt_kind"] == READ)
        microseconds = self.metadata.storage.now_us() - since
        return Looked(source, len(read.unique()), len(snapshot), microseconds, self.engine.name)

    def write(self, snapshot: Snapshot, plan: TaggedPlan[R], claim: Claim) -> Changes:
        """Write in tasks, as for an upsert."""
        assert isinstance(plan, MergedPlan)
        changes = EngineWrite.write(self, snapshot, plan, claim)
        written = WrittenKeys(self.metadata.objects, changes.files, plan.finds_everywhere)
        return replace(
            changes, absent=AbsentKeys(self.engine, plan.tagged, plan.finds_everywhere, written)
        )
