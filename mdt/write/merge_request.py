"""The text form of a merge. It can be sent to tasks, which parse it for their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from mdt.errors import Unsupported
from mdt.filters.expression import with_fixed_time
from mdt.schema.definition import TableDefinition
from mdt.schema.delete_marks import IS_DELETED
from mdt.stores.clock import now_us
from mdt.write.clauses import Action, Clause, ClauseKind, Clauses
from mdt.write.matching import JoinCondition, parse_on
from mdt.write.merge_source import GIVEN, SOURCE, Source
from mdt.write.newest import newest_rows


@dataclass(frozen=True, slots=True)
class ClauseText:
    """The text form of a clause.

    Attributes:
        condition: SQL with ``params``. None always holds.
        values: Column -> value, "*" for every column, None for a delete.
    """

    when: ClauseKind
    action: Action
    condition: str | None
    params: Mapping[str, object] | None
    values: Any

    def with_fixed_time(self) -> ClauseText:
        """Replace ``current_timestamp()`` by a literal, so that all tasks use the same value."""
        values, now = self.values, now_us()
        if isinstance(values, Mapping):
            values = {name: with_fixed_time(value, (), now) for name, value in values.items()}
        return replace(self, condition=with_fixed_time(self.condition, (), now), values=values)

    def with_delete_marks(self) -> tuple[ClauseText, ...]:
        """Return the clauses for a source that marks deletes. Marked rows delete their matches and
        are not inserted.
        """
        condition = "" if self.condition is None else f"({self.condition}\n) and "
        if self.action is Action.UPDATE and self.when is ClauseKind.MATCHED:
            marked = f"{condition}{SOURCE}{IS_DELETED} = true"
            return replace(self, action=Action.DELETE, condition=marked, values=None), self
        if self.action is Action.INSERT:
            unmarked = f"{condition}({SOURCE}{IS_DELETED} is null or {SOURCE}{IS_DELETED} = false)"
            return (replace(self, condition=unmarked),)
        return (self,)

    def parse(self, clauses: Clauses) -> Clause:
        """Parse the clause. Raises Invalid if it is not valid."""
        condition = clauses.condition(self.when, self.condition, self.params)
        return clauses.clause(self.when, self.action, condition, self.values)


@dataclass(frozen=True, slots=True)
class MergeText:
    """The text form of a merge.

    Attributes:
        on: Join condition as given by the caller.
        dedupe: True to merge only the newest source row of each key.
        edits: True if the source rows are edits of live rows, so each may match a single one.
    """

    on: Any
    clauses: tuple[ClauseText, ...] = ()
    dedupe: bool = False
    edits: bool = False

    def parse(
        self, rows: pa.Table, definition: TableDefinition
    ) -> tuple[Source, JoinCondition, list[Clause]]:
        """Parse the merge for the source ``rows``. Raises Invalid if it is not valid."""
        source = Source(rows, definition)
        on = parse_on(self.on, source, definition, one_each=self.edits)
        if self.dedupe:
            source = newest_rows(source, on, definition)
        clauses = Clauses(source, definition, on.equal)
        return source, on, [clause.parse(clauses) for clause in self.clauses]

    def source_clauses(self) -> MergeText:
        """Return the clauses for source rows, matched or not."""
        return replace(
            self,
            clauses=tuple(
                c for c in self.clauses if c.when is not ClauseKind.NOT_MATCHED_BY_SOURCE
            ),
        )

    def target_clauses(self) -> MergeText:
        """Return the clauses for unmatched table rows."""
        return replace(
            self,
            clauses=tuple(c for c in self.clauses if c.when is ClauseKind.NOT_MATCHED_BY_SOURCE),
        )


def require_parts(on: JoinCondition, clauses: Sequence[Clause]) -> None:
    """Raise Unsupported if a source cannot be merged in parts that each contain all rows of their
    keys.
    """
    if not on.is_by_key:
        raise Unsupported(
            "a large source can only be matched by the record key",
            hint=(
                "equate all columns of the key in on, or use a source of at most"
                " mdt.spark.local.bytes.max"
            ),
        )
    for clause in clauses:
        if clause.action is Action.INSERT:
            _require_same_key(clause, on)


def _require_same_key(clause: Clause, on: JoinCondition) -> None:
    for name in clause.definition.key:
        if clause.values[name][1] == {GIVEN + on.equal[name]}:
            continue
        problem, hint = "gets another value", f"set it to source.{on.equal[name]}"
        if on.one_each:  # edits of a SQL statement, which have the key only if ON names it
            problem = "may get another value"
            hint = (
                "equate in ON every column of the key and of the partition with a value of the"
                " source that cannot be null"
            )
        raise Unsupported(
            "rows inserted from a large source must have the key by which they are matched,"
            f" but {name!r} {problem}",
            hint=f"{hint}, or use a source of at most mdt.spark.local.bytes.max",
        )
