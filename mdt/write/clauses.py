"""The clauses of a merge: their conditions and the values that they set. Invalid clauses are
refused before any data are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexes.paths import column_at, top_level
from indexes.predicate import And, Predicate, bind
from mdt.arguments import by_column, shown
from mdt.errors import Invalid, MdtError
from mdt.filters.arithmetic import Value
from mdt.filters.expression import parse_condition, parse_with_columns
from mdt.filters.leaves import column_name
from mdt.filters.named_column import Col
from mdt.schema.definition import TableDefinition
from mdt.write.merge_source import GIVEN, SOURCE, Source, as_target
from mdt.write.setting import constant, fit_columns

ALL = "*"
"""Sets every column from the source column with the same name."""

_ALWAYS = And(())


class ClauseKind(Enum):
    """The rows that a clause applies to: matched pairs, or unmatched rows of the source or of the
    table.
    """

    MATCHED = "when_matched"
    NOT_MATCHED = "when_not_matched"
    NOT_MATCHED_BY_SOURCE = "when_not_matched_by_source"


class Action(Enum):
    """The effect of a clause on a row."""

    UPDATE = "update"
    DELETE = "delete"
    INSERT = "insert"


@dataclass(frozen=True, slots=True)
class Condition:
    """``predicate`` over the columns ``names``, named as by
    :meth:`mdt.write.merge_source.Source.beside`. Null is not true.
    """

    predicate: Predicate = _ALWAYS
    names: frozenset[str] = frozenset()

    @property
    def is_always(self) -> bool:
        """True if the condition holds for every row."""
        return self.predicate == _ALWAYS

    def holds(self, rows: pa.Table) -> npt.NDArray[np.bool_]:
        """Return the rows that meet the condition -> bool[n]. Raises Invalid for values that cannot
        be compared.
        """
        if self.is_always:
            return np.ones(len(rows), np.bool_)
        rows = rows.select(sorted(self.names)) if self.names else rows
        return np.asarray(bind(self.predicate, rows.schema)(rows))


@dataclass(frozen=True, slots=True)
class Clause:
    """A parsed clause.

    Attributes:
        values: Column of the table -> its expression and the columns that the expression reads.
            Other columns keep their values, or are null in new rows.
    """

    when: ClauseKind
    action: Action
    condition: Condition
    values: Mapping[str, tuple[Value, frozenset[str]]]
    definition: TableDefinition

    def reads(self, names: Iterable[str] | None = None) -> frozenset[str]:
        """Return the columns required to set ``names``, by default all columns of the clause."""
        targets = self.values.keys() if names is None else self.values.keys() & set(names)
        return frozenset[str]().union(*(self.values[name][1] for name in targets))

    def compute(self, rows: pa.Table, names: Iterable[str] | None = None) -> pa.Table:
        """Return the columns of ``names`` that the clause sets, in stored types. Raises Invalid for
        a value that does not fit.
        """
        targets = [name for name in self.values if names is None or name in names]
        return fit_columns(
            pa.table({name: self.values[name][0](rows) for name in targets}), self.definition
        )

    def new_rows(self, rows: pa.Table) -> pa.Table:
        """Return the rows that an insert clause creates, in stored types."""
        definition = self.definition
        columns = {name: pa.nulls(len(rows)) for name in definition.schema.names}
        for name, (value, _) in self.values.items():
            columns[name] = value(rows)
        return fit_columns(pa.table(columns), definition, definition.key)


@dataclass(frozen=True, slots=True)
class Clauses:
    """Parser of the clauses of a merge.

    Attributes:
        equated: Column of the table -> column of the source that is equal in every pair.
    """

    source: Source
    definition: TableDefinition
    equated: Mapping[str, str]

    def schema(self, when: ClauseKind) -> pa.Schema:
        """Return the columns that a clause can refer to."""
        source, target = list(self.source.schema), as_target(self.definition.schema)
        if when is ClauseKind.NOT_MATCHED_BY_SOURCE:
            return pa.schema(target)
        return pa.schema(source if when is ClauseKind.NOT_MATCHED else source + target)

    def condition(
        self, when: ClauseKind, text: str | None, params: Mapping[str, object] | None
    ) -> Condition:
        """Return a condition. None always holds."""
        if text is None:
            return Condition()
        predicate, names = parse_condition(text, self.schema(when), params)
        condition = Condition(predicate, names)
        condition.holds(self.source.nothing(names))
        return condition

    def clause(
        self, when: ClauseKind, action: Action, condition: Condition, assignments: Any
    ) -> Clause:
        """Return a clause.

        Args:
            assignments: Column -> value, "*" for every column, None for a delete.
        """
        values = {} if assignments is None else self._values(when, assignments)
        if action is Action.UPDATE:
            self._require_settable(values, assignments)
            if self.definition.is_global and not self.definition.moves_rows:
                # mdt.update.partition.path=false: rows keep their partition
                values = {
                    name: value
                    for name, value in values.items()
                    if name not in self.definition.partition_by
                }
        clause = Clause(when, action, condition, values, self.definition)
        if action is Action.INSERT:
            self._require_whole(clause)
        elif values:
            clause.compute(self.source.nothing(clause.reads()))
        return clause

    def _values(
        self, when: ClauseKind, assignments: Any
    ) -> dict[str, tuple[Value, frozenset[str]]]:
        column_names = self.definition.schema.names
        if (
            isinstance(assignments, str)
            and assignments == ALL
            and when is not ClauseKind.NOT_MATCHED_BY_SOURCE
        ):
            missing = set(column_names).difference(self.source.table.column_names)
            if missing:
                raise Invalid(
                    '"*" sets every column of the table, but the source lacks'
                    f" {', '.join(sorted(missing))}",
                    hint="name the columns: {'fare': 'source.fare'}",
                )
            return {name: _column(GIVEN + name) for name in column_names}
        if not isinstance(assignments, Mapping) or not assignments:
            raise Invalid(
                f"a clause takes a mapping of columns to values, not {shown(assignments)}",
                hint="{'fare': 'source.fare'}",
            )
        schema = self.schema(when)
        columns = by_column("a clause", assignments, column_names)
        return {name: self._value(schema, name, value) for name, value in columns.items()}

    def _value(self, schema: pa.Schema, name: str, value: Any) -> tuple[Value, frozenset[str]]:
        """Return the expression for a column. Text is SQL over ``schema``, a Col is a column, other
        types are Python values.
        """
        if isinstance(value, Col):
            return _copy_column(column_name(value.name, schema), schema)
        if not isinstance(value, str):
            return constant(self.definition, name, value), frozenset()
        try:
            column = column_name(value.strip(), schema)
        except MdtError:  # not a single column name
            return parse_with_columns(value, schema)
        return _copy_column(column, schema)

    def _require_settable(
        self, values: Mapping[str, tuple[Value, frozenset[str]]], assignments: Any
    ) -> None:
        """Raise Invalid for key or partition columns, unless their value is the source column that
        ``on`` equates with them.
        """
        hint = "delete the row, and insert a new row"
        if assignments == ALL:
            hint = "set the other columns by name"
        for name in self.definition.unique_by:
            if name in values and values[name][1] != {GIVEN + self.equated.get(name, "")}:
                raise Invalid(
                    f"an update cannot change the column {name!r}, which identifies the row",
                    hint=hint,
                )

    def _require_whole(self, clause: Clause) -> None:
        """Raise Invalid if new rows lack required columns."""
        definition = self.definition
        required = {field.name for field in definition.declared if not field.nullable}
        for name in dict.fromkeys((*definition.key, *definition.ordering, *required)):
            if name not in clause.values:
                raise Invalid(
                    f"an insert needs a value for the column {name!r}",
                    hint="insert('*') sets all columns",
                )
        clause.compute(self.source.nothing(clause.reads()))


def _copy_column(name: str, schema: pa.Schema) -> tuple[Value, frozenset[str]]:
    """Return a source column as given, so that it is cast as in an upsert."""
    top = top_level(schema, name)
    if not top.startswith(SOURCE):
        return _column(name, top)
    return _column(name.replace(SOURCE, GIVEN, 1), top.replace(SOURCE, GIVEN, 1))


def _column(name: str, top: str = "") -> tuple[Value, frozenset[str]]:
    return lambda rows: column_at(rows, name), frozenset([top or name])
