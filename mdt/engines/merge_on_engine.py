"""Merges on an engine: each task matches its rows of the source by key; the driver counts, assigns
and commits as for an upsert.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic

import pyarrow as pa
from pyroaring import BitMap

from indexes.base import KeyHashes
from mdt.commit.conflicts import MERGE, TABLE
from mdt.config import Options
from mdt.engines import merge_tasks
from mdt.engines.absent_keys import AbsentKeys, WrittenKeys
from mdt.engines.engine import Engine, R
from mdt.engines.tasks import ABSENT, READ, source_of, tagged_schema
from mdt.engines.write import TaggedRows, findings_of, release_on_error
from mdt.metadata.files.file_group import NewFile
from mdt.metadata.log.codec import decode_ipc
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.progress import Progress
from mdt.write.merge import Decision, Merge, MergedRows
from mdt.write.merge_request import MergeText
from mdt.write.operations import RowOperation, Rows
from mdt.write.result import ScanStatistics


def merge(
    engine: Engine[R],
    metadata: Metadata,
    options: Options,
    data: R,
    columns: pa.Schema,
    request: MergeText,
    schema: pa.Schema,
    progress: Progress | None = None,
) -> Merge:
    """Return the operation that merges ``data`` with schema ``columns``. ``schema``: of the table
    when the clauses were parsed.
    """
    definition = metadata.newest().definition
    _, on, _ = request.parse(columns.empty_table(), definition)
    key = tuple(on.equal[name] for name in definition.key)
    rows = EngineSource(engine, data, request, key, columns, engine.processors)
    arguments = (metadata, options, rows, MERGE, definition.commit_action, progress)
    return Merge(*arguments, schema=schema, chooses=bool(request.target_clauses().clauses))


@dataclass(frozen=True, slots=True)
class EngineSource(Rows, Generic[R]):
    """Rows to merge on an engine. ``key``: the source columns that equal the table's key columns.
    ``columns``: all source columns.
    """

    engine: Engine[R]
    data: R
    request: MergeText
    key: tuple[str, ...]
    columns: pa.Schema
    writers: int

    def decide(self, operation: RowOperation, snapshot: Snapshot) -> TaggedMerge[R]:
        """Decide in tasks the action for each row."""
        engine, metadata, definition = self.engine, operation.metadata, snapshot.definition
        started_us = metadata.storage.now_us()
        source = source_of(
            metadata, snapshot, operation.options, is_in_process=engine.is_in_process
        )
        target_clauses = self.request.target_clauses()
        tag = partial(
            merge_tasks.tag_merged,
            self.request.source_clauses(),
            bool(target_clauses.clauses),
            source,
        )
        together = engine.group_by(self.data, self.key)
        schema = tagged_schema(definition.schema)
        tagged = engine.map_parts(together, tag, schema, definition.key)
        retained = [tagged]
        with release_on_error(engine, retained):
            rows = engine.count_tagged(tagged).to_pylist()
            files = (
                self._files(operation, snapshot, tagged, target_clauses)
                if target_clauses.clauses
                else None
            )
            if files is not None:
                tag_alone = partial(merge_tasks.tag_alone, target_clauses, self.columns, source)
                alone = engine.map_parts(files, tag_alone, schema, definition.key)
                retained.append(alone)
                tagged = engine.union(tagged, alone)
                rows += engine.count_tagged(alone).to_pylist()
            read = engine.select(tagged, READ, ["__mdt_segment"])
            scanned = len(read[0].drop_null().unique())
        findings = findings_of(rows)
        counts = {name: n for name, n in findings.counts.items() if name != "missing"}
        source_rows = sum(row["total"] for row in rows if row["__mdt_kind"] == READ)
        microseconds = metadata.storage.now_us() - started_us
        statistics = ScanStatistics(source_rows, scanned, len(snapshot), microseconds, engine.name)
        absent = {row["__mdt_partition"] for row in rows if row["__mdt_kind"] == ABSENT}
        return TaggedMerge(
            engine,
            tagged,
            replace(findings, counts=counts, left=None, scan_statistics=statistics),
            retained=retained,
            finds_everywhere=definition.is_global or TABLE in absent,
        )

    def _files(
        self, operation: RowOperation, snapshot: Snapshot, tagged: R, clauses: MergeText
    ) -> R | None:
        """Return the files that tasks search for rows without a match in the source, or None if no
        clause can hold.

        Tasks return the matched rows as a bitmap per file, like deletion vectors.
        """
        read = clauses.parse(self.columns.empty_table(), snapshot.definition)
        merge = MergedRows(operation.metadata, operation.options, *read)
        taken = {file: BitMap() for file in sorted(Decision(merge, snapshot).unmatched_files())}
        if not taken:
            return None
        for data in self.engine.collect_results(tagged, merge_tasks.matched_rows):
            bitmaps = merge_tasks.bitmaps_of(
                decode_ipc(data, merge_tasks.FILES, path="a task's result")
            )
            for file in bitmaps.keys() & taken.keys():
                taken[file] |= bitmaps[file]
        return self.engine.distribute(merge_tasks.files_table(taken))


@dataclass(frozen=True, slots=True)
class TaggedMerge(TaggedRows[R]):
    """Tagged rows of a merge. ``retained``: the rows that the engine retains for ``tagged``.
    ``finds_everywhere``: True if keys were absent from the whole table. The merge may have read
    rows that do not change.
    """

    retained: Sequence[R] = ()
    finds_everywhere: bool = False

    def close(self) -> None:
        """Release the tagged rows."""
        for rows in self.retained:
            self.engine.release(rows)

    def keys_absent(
        self, metadata: Metadata, snapshot: Snapshot, files: Sequence[NewFile]
    ) -> Mapping[str, KeyHashes]:
        """Return the keys that were not found."""
        written = WrittenKeys(metadata.objects, files, self.finds_everywhere)
        return AbsentKeys(self.engine, self.tagged, self.finds_everywhere, written)
