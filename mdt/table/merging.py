"""The builder of a merge: a source, clauses, ``execute``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from mdt import late
from mdt.arguments import flag, own_spelling, shown, texts
from mdt.commit.annotation import CommitMetadata, takes_metadata
from mdt.errors import Conflict, Invalid, Unsupported
from mdt.filters.expression import with_fixed_time
from mdt.hudi.avro_schema import META_FIELDS
from mdt.progress import Progress, ProgressOption, progress_callback
from mdt.schema.delete_marks import IS_DELETED, require_boolean
from mdt.schema.input import pieces, to_table
from mdt.write.clauses import ALL, Action, Clause, ClauseKind, Clauses
from mdt.write.matching import JoinCondition
from mdt.write.merge import Merge, MergedRows, merge_operation
from mdt.write.merge_request import ClauseText, MergeText, require_parts
from mdt.write.merge_source import Source
from mdt.write.result import MergeResult, ScanStatistics

if TYPE_CHECKING:
    from mdt.schema.definition import TableDefinition
    from mdt.table.handle import Handle

Runner: TypeAlias = Callable[[MergeText, pa.Schema, "Progress | None"], Merge]
"""Makes the operation that runs the merge in tasks, for a table with this schema."""
Whole: TypeAlias = "Callable[[], pa.Table]"
"""Loads the rows of a large source into memory."""
Params = Mapping[str, object] | None


def source_of(
    table: Handle, source: Any, *, looks: bool
) -> tuple[pa.Table, Runner | None, Whole | None]:
    """Return (rows, None, None) of a source in memory, or (empty table, runner, loader) of a large
    source.

    looks: As for :meth:`mdt.engines.engine.EngineInput.few`.
    """
    frame = table._given(source)
    if frame is not None:
        small_source = frame.few(table.options, looks=looks)
        if small_source is not None:
            return small_source, None, None
        source_rows = (frame.engine, table.metadata, table.options, frame.rows, frame.schema)
        merge = partial(late.merge_on_engine.merge, *source_rows)
        return frame.schema.empty_table(), merge, None
    parts = pieces(source, table.schema)
    if parts is None:
        return to_table(source, table.schema), None, None
    engine = late.spilling.engine_of(table.options)
    rows = late.spilling.read_source(parts, engine)
    if isinstance(rows, pa.Table):
        return rows, None, None
    runner = partial(late.spilling.merge_source, table.metadata, table.options, engine, rows)
    return rows.schema.empty_table(), runner, rows.table


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Merging:
    """A merge that has not been executed. Each clause returns a new merge, and :meth:`execute` runs
    it.

    For each row, the first clause of its kind whose condition is true applies. Columns are named
    ``source.fare`` and ``target.fare``. ``params`` has values for ``:name`` in a condition.

    >>> rows = {"id": ["a", "x"], "city": ["Oslo", "Rome"], "fare": [8.0, 3.0], "ts": [2, 2]}
    >>> merge = t.merge(rows).when_matched("source.ts > target.ts").update("*")
    >>> merge.when_not_matched().insert().execute(dry_run=True).inserted
    1
    """

    _table: Handle
    _source: Source
    _on: JoinCondition
    _said: MergeText
    _clauses: tuple[Clause, ...] = ()
    _runner: Runner | None = None
    _whole: Whole | None = None
    _ignored: frozenset[str] = frozenset()

    @classmethod
    def without_clauses(
        cls,
        table: Handle,
        source: pa.Table,
        on: Any,
        runner: Runner | None = None,
        whole: Whole | None = None,
        *,
        dedupe: bool = False,
        edits: bool = False,
        ignore: Sequence[str] = (),
    ) -> Merging:
        """Return a merge without clauses.

        source: The rows, or only their schema if a ``runner`` has the rows.
        whole: Loads the rows if the merge cannot run in parts. None refuses such a merge.
        edits: As in :class:`mdt.write.merge_request.MergeText`.

        Raises Invalid and Unsupported if ``on`` does not define how rows match.
        """
        column = own_spelling(on, table.definition.schema.names) if isinstance(on, str) else on
        request = MergeText(
            with_fixed_time(on) if column is None else on, (), flag("dedupe", dedupe), edits
        )
        ignored = frozenset(texts("ignore", ignore, "['op']"))
        unknown = sorted(ignored.difference(source.column_names))
        if unknown:
            raise Invalid(
                f"ignore: the source has no column {', '.join(map(repr, unknown))}",
                hint=f"its columns: {', '.join(source.column_names[:20])}",
            )
        if IS_DELETED in source.column_names:
            require_boolean(source.schema.field(IS_DELETED).type)
        rows, matching, _ = request.parse(source, table.definition)
        return cls(
            table, rows, matching, request, (), runner, whole, ignored
        )._partitioned_or_loaded()

    def when_matched(self, condition: str | None = None, *, params: Params = None) -> Matched:
        """Begin a clause for rows of the table that match a row of the source.

        >>> rows = {"id": ["a"], "fare": [8.0]}
        >>> clause = t.merge(rows).when_matched("source.fare < target.fare")
        >>> clause.update({"fare": "source.fare"}).execute(dry_run=True).updated
        1
        """
        return Matched(*self._when(ClauseKind.MATCHED, condition, params))

    def when_not_matched(
        self, condition: str | None = None, *, params: Params = None
    ) -> NotMatched:
        """Begin a clause for rows of the source without a match in the table.

        >>> rows = {"id": ["a", "x"], "city": ["Oslo", "Rome"], "fare": [8.0, 3.0], "ts": [2, 2]}
        >>> t.merge(rows).when_not_matched().insert().execute(dry_run=True).inserted
        1
        """
        return NotMatched(*self._when(ClauseKind.NOT_MATCHED, condition, params))

    def when_not_matched_by_source(
        self, condition: str | None = None, *, params: Params = None
    ) -> Matched:
        """Begin a clause for rows of the table without a match in the source. Only ``target``
        columns exist.

        >>> clause = t.merge({"id": ["a"]}).when_not_matched_by_source("target.city = 'Oslo'")
        >>> clause.delete().execute(dry_run=True).deleted
        1
        """
        return Matched(*self._when(ClauseKind.NOT_MATCHED_BY_SOURCE, condition, params))

    @takes_metadata
    def execute(
        self,
        *,
        dry_run: bool = False,
        progress: ProgressOption = None,
        metadata: CommitMetadata = None,
    ) -> MergeResult:
        """Run the merge in one commit. With ``dry_run``, return the counts, files and bytes without
        writing.

        Raises Invalid, and writes nothing, if two source rows match the same row, if the key of an
        inserted row exists, or if a value does not fit its column. Raises Conflict if concurrent
        writers won too often, or if the columns were altered since the merge began.

        >>> t.merge({"id": ["a"]}).when_matched().delete().execute(dry_run=True).deleted
        1
        """
        if not self._clauses:
            raise Invalid(
                "the merge has no clause",
                hint="e.g. t.merge(rows).when_matched().update('*').execute()",
            )
        self._refuse_unused()
        if flag("dry_run", dry_run):
            return replace(self, _table=self._table._for_dry_run(dry_run)).execute(
                progress=progress
            )
        with progress_callback(progress, "merge") as callback:
            storage = self._table.storage
            since = storage.now_us()
            self._table._prepare_row_write()
            definition = self._table.definition
            if not definition.schema.equals(self._clauses[0].definition.schema):
                raise Conflict(
                    "the table's columns were altered after the merge was created",
                    hint="call t.merge again",
                )
            operation = self._operation(definition, callback)
            committed = self._table._commit_rows(operation)
            # A batch that the table has already is not compared with its rows.
            statistics = getattr(committed.plan, "scan_statistics", ScanStatistics(0, 0, 0, 0))
            return self._table._after_write(
                MergeResult.from_merge(committed, statistics, storage.now_us() - since)
            )

    def _operation(self, definition: TableDefinition, progress: Progress | None) -> Merge:
        if self._runner is not None:
            return self._runner(self._said, definition.schema, progress)
        metadata, options = self._table.metadata, self._table.options
        rows = MergedRows(metadata, options, self._source, self._on, self._clauses)
        return merge_operation(rows, definition.commit_action, definition.schema, progress)

    def _when(
        self, when: ClauseKind, text: str | None, params: Params
    ) -> tuple[Merging, ClauseKind, str | None, Params]:
        if any(clause.when is when and clause.condition.is_always for clause in self._clauses):
            raise Invalid(
                f"an earlier {when.value} clause has no condition, so this one never applies",
                hint="add a condition to each clause but the last",
            )
        self._reader.condition(when, text, params)
        return self, when, text, None if params is None else dict(params)

    @property
    def _reader(self) -> Clauses:
        definition = self._clauses[0].definition if self._clauses else self._table.definition
        return Clauses(self._source, definition, self._on.equal)

    def _with_clause(self, request: ClauseText) -> Merging:
        request = request.with_fixed_time()
        requests = (
            request.with_delete_marks()
            if IS_DELETED in self._source.table.column_names
            else (request,)
        )
        clauses = (*self._clauses, *(text.parse(self._reader) for text in requests))
        merge = replace(
            self,
            _clauses=clauses,
            _said=replace(self._said, clauses=(*self._said.clauses, *requests)),
        )
        return merge._partitioned_or_loaded()

    def _refuse_unused(self) -> None:
        """Raise Invalid for source columns that the table lacks, if "*" omits them and nothing else
        uses them.
        """
        if all(clause.values != ALL for clause in self._said.clauses):
            return
        reads = [self._on.rest.names, *(clause.condition.names for clause in self._clauses)]
        reads += [clause.reads() for clause in self._clauses]
        used = frozenset(name.partition(".")[2] for name in frozenset[str]().union(*reads)).union(
            self._on.equal.values()
        )
        usable = {*self._table.definition.schema.names, *META_FIELDS, IS_DELETED, *self._ignored}
        unused = [name for name in self._source.table.column_names if name not in usable]
        unused = [
            name
            for name in unused
            if not any(path == name or path.startswith(f"{name}.") for path in used)
        ]
        if unused:
            raise Invalid(
                'the source has columns that the table lacks and "*" would drop:'
                f" {', '.join(map(shown, unused))}",
                hint=f"add them with t.alter, or drop them with t.merge(…, ignore={unused[:3]})",
            )

    def _partitioned_or_loaded(self) -> Merging:
        """Return this merge, or a merge with its source in memory if it cannot run in parts. Raises
        Unsupported if the source cannot be loaded.
        """
        if self._runner is None:
            return self
        try:
            require_parts(self._on, self._clauses)
        except Unsupported:
            if self._whole is None:
                raise
            rows, _, _ = replace(self._said, clauses=()).parse(
                self._whole(), self._table.definition
            )
            return replace(self, _source=rows, _runner=None)
        return self


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Matched:
    """A clause for rows of the table: :meth:`update` or :meth:`delete` completes it."""

    _merge: Merging
    _when: ClauseKind
    _condition: str | None
    _params: Params

    def update(self, set: Mapping[str, Any] | str) -> Merging:
        """Update columns. Other columns keep their values.

        set: Maps columns to SQL text (``"source.v + target.v"``), to ``mdt.col("source.v")``, or to
            a Python value. "*" sets every column to the source column of the same name.

        Key columns cannot change. Partition columns can change only under table scope, and the row
        then moves.

        >>> clause = t.merge({"id": ["b"], "bonus": [1.5]}).when_matched()
        >>> clause.update({"fare": "target.fare + source.bonus"}).execute(dry_run=True).updated
        1
        """
        return self._merge._with_clause(
            ClauseText(self._when, Action.UPDATE, self._condition, self._params, set)
        )

    def delete(self) -> Merging:
        """Delete the rows.

        >>> t.merge({"id": ["b"]}).when_matched().delete().execute(dry_run=True).deleted
        1
        """
        return self._merge._with_clause(
            ClauseText(self._when, Action.DELETE, self._condition, self._params, None)
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class NotMatched:
    """A clause for source rows that are not in the table: :meth:`insert` completes it."""

    _merge: Merging
    _when: ClauseKind
    _condition: str | None
    _params: Params

    def insert(self, values: Mapping[str, Any] | str = ALL) -> Merging:
        """Insert a row.

        values: As ``set`` of :meth:`Matched.update`. Columns that are not named are null.

        >>> clause = t.merge({"id": ["x"], "price": [3.0]}).when_not_matched()
        >>> clause.insert({"id": "source.id", "fare": "source.price"}).execute(
        ...     dry_run=True
        ... ).inserted
        1
        """
        return self._merge._with_clause(
            ClauseText(self._when, Action.INSERT, self._condition, self._params, values)
        )
