"""The clauses of a merge: when they hold, and what they make of a row.  What cannot be is refused
before anything is read.
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
from mdt.write.setting import constant, fitted

ALL = "*"
"""Every column, from the column of the source that has its name."""

_ALWAYS = And(())


class When(Enum):
    """Which rows a clause is about: pairs of both sides, rows of the source alone, rows of the
    table alone.
    """

    MATCHED = "when_matched"
    NOT_MATCHED = "when_not_matched"
    NOT_MATCHED_BY_SOURCE = "when_not_matched_by_source"


class Action(Enum):
    """What becomes of such a row."""

    UPDATE = "update"
    DELETE = "delete"
    INSERT = "insert"


@dataclass(frozen=True, slots=True)
class Condition:
    """``predicate`` over columns ``names``, as :meth:`mdt.write.merge_source.Source.beside` has
    them; null is not true.
    """

    predicate: Predicate = _ALWAYS
    names: frozenset[str] = frozenset()

    @property
    def is_always(self) -> bool:
        """Whether it holds for every row."""
        return self.predicate == _ALWAYS

    def holds(self, rows: pa.Table) -> npt.NDArray[np.bool_]:
        """Return which rows meet it -> bool[n].  Raises Invalid for values that cannot be
        compared.
        """
        if self.is_always:
            return np.ones(len(rows), np.bool_)
        rows = rows.select(sorted(self.names)) if self.names else rows
        return np.asarray(bind(self.predicate, rows.schema)(rows))


@dataclass(frozen=True, slots=True)
class Clause:
    """``values``: column of the table -> what it gets, and the columns that this needs; the others
    stay, or are null in new rows.
    """

    when: When
    action: Action
    condition: Condition
    values: Mapping[str, tuple[Value, frozenset[str]]]
    definition: TableDefinition

    def reads(self, names: Iterable[str] | None = None) -> frozenset[str]:
        """Return the columns that are needed to set ``names``, by default all that it sets."""
        wanted = self.values.keys() if names is None else self.values.keys() & set(names)
        return frozenset[str]().union(*(self.values[name][1] for name in wanted))

    def made(self, rows: pa.Table, names: Iterable[str] | None = None) -> pa.Table:
        """Return those of the columns ``names`` that it sets, as the table keeps them.  Raises
        Invalid for a value that does not fit.
        """
        wanted = [name for name in self.values if names is None or name in names]
        return fitted(
            pa.table({name: self.values[name][0](rows) for name in wanted}), self.definition
        )

    def new_rows(self, rows: pa.Table) -> pa.Table:
        """Return the rows that an insert makes, as the table keeps them."""
        definition = self.definition
        made = {name: pa.nulls(len(rows)) for name in definition.schema.names}
        for name, (value, _) in self.values.items():
            made[name] = value(rows)
        return fitted(pa.table(made), definition, definition.key)


@dataclass(frozen=True, slots=True)
class Clauses:
    """Reads clauses of one merge.  ``equated``: column of the table -> column of the source that is
    equal in every pair.
    """

    source: Source
    definition: TableDefinition
    equated: Mapping[str, str]

    def schema(self, when: When) -> pa.Schema:
        """Return the columns that a clause may name."""
        source, target = list(self.source.schema), as_target(self.definition.schema)
        if when is When.NOT_MATCHED_BY_SOURCE:
            return pa.schema(target)
        return pa.schema(source if when is When.NOT_MATCHED else source + target)

    def condition(
        self, when: When, text: str | None, params: Mapping[str, object] | None
    ) -> Condition:
        """Return a condition; None holds always."""
        if text is None:
            return Condition()
        predicate, names = parse_condition(text, self.schema(when), params)
        found = Condition(predicate, names)
        found.holds(self.source.nothing(names))
        return found

    def clause(self, when: When, action: Action, condition: Condition, given: Any) -> Clause:
        """Return a clause; ``given``: column -> value, "*" for every column, None for a delete."""
        values = {} if given is None else self._values(when, given)
        if action is Action.UPDATE:
            self._require_settable(values, given)
            if self.definition.is_global and not self.definition.moves_rows:
                # rows stay where they are
                values = {
                    name: made
                    for name, made in values.items()
                    if name not in self.definition.partition_by
                }
        made = Clause(when, action, condition, values, self.definition)
        if action is Action.INSERT:
            self._require_whole(made)
        elif values:
            made.made(self.source.nothing(made.reads()))
        return made

    def _values(self, when: When, given: Any) -> dict[str, tuple[Value, frozenset[str]]]:
        known = self.definition.schema.names
        if isinstance(given, str) and given == ALL and when is not When.NOT_MATCHED_BY_SOURCE:
            missing = set(known).difference(self.source.table.column_names)
            if missing:
                raise Invalid(
                    '"*" takes every column of the table; the source lacks'
                    f" {', '.join(sorted(missing))}",
                    hint="name the columns: {'fare': 'source.fare'}",
                )
            return {name: _column(GIVEN + name) for name in known}
        if not isinstance(given, Mapping) or not given:
            raise Invalid(
                f"a clause takes columns and their values, not {shown(given)}",
                hint="{'fare': 'source.fare'}",
            )
        schema = self.schema(when)
        columns = by_column("a clause", given, known)
        return {name: self._value(schema, name, value) for name, value in columns.items()}

    def _value(self, schema: pa.Schema, name: str, given: Any) -> tuple[Value, frozenset[str]]:
        """Return what a column gets: text is SQL over ``schema``, a Col is a column, and everything
        else a value of Python.
        """
        if isinstance(given, Col):
            return _copied(column_name(given.name, schema), schema)
        if not isinstance(given, str):
            return constant(self.definition, name, given), frozenset()
        try:
            found = column_name(given.strip(), schema)
        except MdtError:  # more than a column, or none: then the parser says where
            return parse_with_columns(given, schema)
        return _copied(found, schema)

    def _require_settable(
        self, values: Mapping[str, tuple[Value, frozenset[str]]], given: Any
    ) -> None:
        """Raise Invalid for columns that say which row it is, unless they get what ``on`` has found
        equal.
        """
        hint = "delete the row, and insert it as it shall be"
        if given == ALL:
            hint = "name the other columns"
        for name in self.definition.unique_by:
            if name in values and values[name][1] != {GIVEN + self.equated.get(name, "")}:
                raise Invalid(
                    f"an update cannot change the column {name!r}, which says which row it is",
                    hint=hint,
                )

    def _require_whole(self, made: Clause) -> None:
        """Raise Invalid if new rows would lack what every row has."""
        definition = self.definition
        required = {field.name for field in definition.declared if not field.nullable}
        for name in dict.fromkeys((*definition.key, definition.ordering, *required)):
            if name is not None and name not in made.values:
                raise Invalid(
                    f"a new row needs a value of the column {name!r}",
                    hint="insert('*') takes all of them",
                )
        made.made(self.source.nothing(made.reads()))


def _copied(name: str, schema: pa.Schema) -> tuple[Value, frozenset[str]]:
    """Return a column as it was given, so that it is cast as an upsert casts it."""
    top = top_level(schema, name)
    if not top.startswith(SOURCE):
        return _column(name, top)
    return _column(name.replace(SOURCE, GIVEN, 1), top.replace(SOURCE, GIVEN, 1))


def _column(name: str, top: str = "") -> tuple[Value, frozenset[str]]:
    return lambda rows: column_at(rows, name), frozenset([top or name])
