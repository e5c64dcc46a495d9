"""A merge as one says it: a source, clauses, ``execute``."""

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
from mdt.filters.expression import pinned
from mdt.hudi.avro_schema import META_FIELDS
from mdt.progress import Progress, ProgressOption
from mdt.progress import shown as progress_of
from mdt.schema.delete_marks import IS_DELETED, require_boolean
from mdt.schema.input import pieces, to_table
from mdt.write.clauses import ALL, Action, Clause, Clauses, When
from mdt.write.matching import On
from mdt.write.merge import Merge, MergedRows, merge_of
from mdt.write.merge_request import SaidClause, SaidMerge, require_parts
from mdt.write.merge_source import Source
from mdt.write.result import Looked, MergeResult

if TYPE_CHECKING:
    from mdt.schema.definition import TableDefinition
    from mdt.table.handle import Handle

Runner: TypeAlias = Callable[[SaidMerge, pa.Schema, "Progress | None"], Merge]
"""Makes the operation that carries out, in tasks, what was said to a table with these columns."""
Whole: TypeAlias = "Callable[[], pa.Table]"
"""Brings the rows of a large source into memory."""
Params = Mapping[str, object] | None


def source_of(
    table: Handle, source: Any, *, looks: bool
) -> tuple[pa.Table, Runner | None, Whole | None]:
    """Return the rows of a merge, which are held in memory; of a large source its columns, what
    merges it, and what brings it into memory.

    ``looks``: as for :meth:`mdt.engines.engine.Given.few`.
    """
    given = table._given(source)
    if given is not None:
        few = given.few(table.options, looks=looks)
        if few is not None:
            return few, None, None
        of_source = (given.engine, table.metadata, table.options, given.rows, given.schema)
        merge = partial(late.merge_on_engine.merge, *of_source)
        return given.schema.empty_table(), merge, None
    found = pieces(source, table.schema)
    if found is None:
        return to_table(source, table.schema), None, None
    engine = late.spilling.engine_of(table.options)
    rows = late.spilling.read_source(found, engine)
    if isinstance(rows, pa.Table):
        return rows, None, None
    runner = partial(late.spilling.merge_source, table.metadata, table.options, engine, rows)
    return rows.schema.empty_table(), runner, rows.table


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Merging:
    """A merge before it is carried out; each clause makes another one, and :meth:`execute` ends the
    chain.

    Of the clauses of a kind the first one whose condition holds is taken; null is not true.
    Columns are called ``source.fare`` and ``target.fare``.  ``params``: values for ``:name`` in a
    condition, as for a filter.
    """

    _table: Handle
    _source: Source
    _on: On
    _said: SaidMerge
    _clauses: tuple[Clause, ...] = ()
    _runner: Runner | None = None
    _whole: Whole | None = None
    _ignored: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        table: Handle,
        source: pa.Table,
        on: Any,
        runner: Runner | None = None,
        whole: Whole | None = None,
        *,
        dedupe: bool = False,
        ignore: Sequence[str] = (),
    ) -> Merging:
        """Return a merge without clauses; with a ``runner``, which has the rows, ``source`` has the
        columns only.

        ``whole``: what gives the rows where the merge cannot be carried out part by part; None: it
        is refused then.

        Raises Invalid and Unsupported for an ``on`` that does not say how rows are matched.
        """
        named = own_spelling(on, table.definition.schema.names) if isinstance(on, str) else on
        said = SaidMerge(pinned(on) if named is None else on, dedupe=flag("dedupe", dedupe))
        ignored = frozenset(texts("ignore", ignore, "['op']"))
        unknown = sorted(ignored.difference(source.column_names))
        if unknown:
            raise Invalid(f"ignore names columns that the source lacks: {', '.join(unknown)}")
        if IS_DELETED in source.column_names:
            require_boolean(source.schema.field(IS_DELETED).type)
        rows, by, _ = said.read(source, table.definition)
        return cls(table, rows, by, said, (), runner, whole, ignored)._in_parts()

    def when_matched(self, condition: str | None = None, *, params: Params = None) -> Matched:
        """Say what becomes of a row of the table that a row of the source matches."""
        return Matched(*self._when(When.MATCHED, condition, params))

    def when_not_matched(
        self, condition: str | None = None, *, params: Params = None
    ) -> NotMatched:
        """Say what becomes of a row of the source that matches none of the table."""
        return NotMatched(*self._when(When.NOT_MATCHED, condition, params))

    def when_not_matched_by_source(
        self, condition: str | None = None, *, params: Params = None
    ) -> Matched:
        """Say what becomes of a row of the table that no row of the source matches; it has columns
        ``target.…`` only.
        """
        return Matched(*self._when(When.NOT_MATCHED_BY_SOURCE, condition, params))

    @takes_metadata
    def execute(
        self,
        *,
        dry_run: bool = False,
        progress: ProgressOption = None,
        metadata: CommitMetadata = None,
    ) -> MergeResult:
        """Carry it out in one commit; with ``dry_run`` find out what would change, which files and
        bytes, and write nothing.

        Raises Invalid if a row of the table has two rows of the source, for new rows whose keys
        exist, and for values that do not fit: nothing is written then.  Raises Conflict if other
        writers were faster too often, or if the columns were altered since the merge was begun.
        """
        if not self._clauses:
            raise Invalid(
                "the merge has no clause", hint="t.merge(rows).when_matched().update('*').execute()"
            )
        self._refuse_unused()
        if flag("dry_run", dry_run):
            return replace(self, _table=self._table._dry(dry_run)).execute(progress=progress)
        with progress_of(progress, "merge") as told:
            storage = self._table.storage
            since = storage.now_us()
            self._table._before_rows()
            definition = self._table.definition
            if not definition.schema.equals(self._clauses[0].definition.schema):
                raise Conflict(
                    "the columns of the table were altered meanwhile", hint="begin the merge again"
                )
            operation = self._operation(definition, told)
            done = self._table._commit_rows(operation)
            # A batch that the table has is looked at by nobody.
            looked = getattr(done.plan, "looked", Looked(0, 0, 0, 0))
            return self._table._tidied(MergeResult.of_merge(done, looked, storage.now_us() - since))

    def _operation(self, definition: TableDefinition, progress: Progress | None) -> Merge:
        if self._runner is not None:
            return self._runner(self._said, definition.schema, progress)
        metadata, options = self._table.metadata, self._table.options
        rows = MergedRows(metadata, options, self._source, self._on, self._clauses)
        return merge_of(rows, definition.commit_action, definition.schema, progress)

    def _when(
        self, when: When, text: str | None, params: Params
    ) -> tuple[Merging, When, str | None, Params]:
        if any(clause.when is when and clause.condition.is_always for clause in self._clauses):
            raise Invalid(
                f"a clause {when.value} before this one holds for every row",
                hint="give conditions to all but the last",
            )
        self._reader.condition(when, text, params)
        return self, when, text, None if params is None else dict(params)

    @property
    def _reader(self) -> Clauses:
        definition = self._clauses[0].definition if self._clauses else self._table.definition
        return Clauses(self._source, definition, self._on.equal)

    def _and(self, said: SaidClause) -> Merging:
        said = said.pinned()
        more = said.without_marked() if IS_DELETED in self._source.table.column_names else (said,)
        clauses = (*self._clauses, *(one.read(self._reader) for one in more))
        made = replace(
            self, _clauses=clauses, _said=replace(self._said, clauses=(*self._said.clauses, *more))
        )
        return made._in_parts()

    def _refuse_unused(self) -> None:
        """Raise Invalid for columns of the source that the table lacks, if "*" leaves them out and
        nothing else reads them.
        """
        if all(clause.given != ALL for clause in self._said.clauses):
            return
        reads = [self._on.rest.names, *(clause.condition.names for clause in self._clauses)]
        reads += [clause.reads() for clause in self._clauses]
        read = frozenset(name.partition(".")[2] for name in frozenset[str]().union(*reads)).union(
            self._on.equal.values()
        )
        known = {*self._table.definition.schema.names, *META_FIELDS, IS_DELETED, *self._ignored}
        unused = [name for name in self._source.table.column_names if name not in known]
        unused = [
            name
            for name in unused
            if not any(one == name or one.startswith(f"{name}.") for one in read)
        ]
        if unused:
            raise Invalid(
                '"*" would leave out columns of the source that the table lacks:'
                f" {', '.join(map(shown, unused))}",
                hint=f"t.alter adds columns; t.merge(…, ignore={unused[:3]}) leaves these out",
            )

    def _in_parts(self) -> Merging:
        """Return this merge, or one of rows in memory if it cannot be carried out part by part.
        Raises Unsupported if they cannot be brought there.
        """
        if self._runner is None:
            return self
        try:
            require_parts(self._on, self._clauses)
        except Unsupported:
            if self._whole is None:
                raise
            rows, _, _ = replace(self._said, clauses=()).read(self._whole(), self._table.definition)
            return replace(self, _source=rows, _runner=None)
        return self


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Matched:
    """What may become of a row of the table."""

    _merge: Merging
    _when: When
    _condition: str | None
    _params: Params

    def update(self, set: Mapping[str, Any] | str) -> Merging:
        """Set columns; the others stay.

        ``set``: column -> SQL text (``"source.v + target.v"``), ``mdt.col("source.v")``, or a value
        of Python; "*" sets every column to that of the source with its name.  Columns of the key
        cannot change, and those of the partition only under table scope: the row moves.
        """
        return self._merge._and(
            SaidClause(self._when, Action.UPDATE, self._condition, self._params, set)
        )

    def delete(self) -> Merging:
        """Delete it."""
        return self._merge._and(
            SaidClause(self._when, Action.DELETE, self._condition, self._params, None)
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class NotMatched:
    """What may become of a row of the source that is not in the table."""

    _merge: Merging
    _when: When
    _condition: str | None
    _params: Params

    def insert(self, values: Mapping[str, Any] | str = ALL) -> Merging:
        """Insert a row; ``values`` as for :meth:`Matched.update`, and columns that are not named
        are null.
        """
        return self._merge._and(
            SaidClause(self._when, Action.INSERT, self._condition, self._params, values)
        )
