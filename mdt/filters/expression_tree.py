"""Expression trees of SQL values: columns, constants, and functions of them.

A node is called with a table of n rows and returns n values, or a scalar for all rows. Nodes are
plain data: they can be compared, pickled for tasks, and converted to Spark columns
(:mod:`mdt.engines.spark.columns`). Semantics are Spark's in ANSI mode: overflow and division by
zero are errors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from indexes.paths import column_at
from indexes.predicate import Predicate, bind, columns
from mdt.filters import arithmetic, dates, scalar_functions
from mdt.filters.arithmetic import Datum
from mdt.filters.comparison_kernels import compare


class Expression(ABC):
    """A value per row. Call it with a table that has the columns in :meth:`paths`.

    Raises Invalid, ``pa.ArrowException``, ValueError or OverflowError for rows without a value,
    e.g. after a division by zero.
    """

    __slots__ = ()

    @abstractmethod
    def __call__(self, rows: pa.Table) -> Datum:
        """Return a value per row, or a scalar for all rows."""

    def parts(self) -> Sequence[Expression]:
        """Return the subexpressions."""
        return ()

    def paths(self) -> Iterator[str]:
        """Yield the paths of the columns that the expression reads, possibly repeated."""
        for part in self.parts():
            yield from part.paths()


@dataclass(frozen=True, slots=True)
class Field(Expression):
    """A column or struct field: ``fare``, ``address.city``."""

    path: str

    def __call__(self, rows: pa.Table) -> Datum:
        """Return the column, without dictionary encoding."""
        column = column_at(rows, self.path)
        if pa.types.is_dictionary(column.type):
            return column.cast(column.type.value_type)
        return column

    def paths(self) -> Iterator[str]:
        """Yield the path."""
        yield self.path


@dataclass(frozen=True, slots=True)
class Constant(Expression):
    """A constant."""

    scalar: pa.Scalar

    def __call__(self, rows: pa.Table) -> Datum:
        """Return the scalar."""
        return self.scalar


@dataclass(frozen=True, slots=True)
class Chain(Expression):
    """Operators of equal precedence, evaluated from left to right: ``a - b + 1``.

    rest: Pairs of an operator of ``+ - * / % ||`` and its right operand.
    """

    first: Expression
    rest: tuple[tuple[str, Expression], ...]

    def __call__(self, rows: pa.Table) -> Datum:
        """Return the result."""
        value = self.first(rows)
        for sign, part in self.rest:
            value = arithmetic.apply_operator(sign, value, part(rows))
        return value

    def parts(self) -> Sequence[Expression]:
        """Return the operands."""
        return (self.first, *(part for _, part in self.rest))


@dataclass(frozen=True, slots=True)
class Apply(Expression):
    """A call of a function in :data:`mdt.filters.scalar_functions.FUNCTIONS`."""

    function: str
    arguments: tuple[Expression, ...]

    def __call__(self, rows: pa.Table) -> Datum:
        """Return the function's result."""
        kernel = scalar_functions.FUNCTIONS[self.function].kernel
        return kernel(*(argument(rows) for argument in self.arguments))

    def parts(self) -> Sequence[Expression]:
        """Return the arguments."""
        return self.arguments


@dataclass(frozen=True, slots=True)
class Coalesce(Expression):
    """The first value that is not null. Later values are not evaluated for such rows."""

    arguments: tuple[Expression, ...]

    def __call__(self, rows: pa.Table) -> Datum:
        """Return the first non-null value of each row."""
        return arithmetic.coalesce(self.arguments)(rows)

    def parts(self) -> Sequence[Expression]:
        """Return the arguments."""
        return self.arguments


@dataclass(frozen=True, slots=True)
class Case(Expression):
    """CASE WHEN: the value of the first true condition, evaluated only for its rows.

    schema: The columns that the conditions read.
    otherwise: None for null.
    """

    branches: tuple[tuple[Predicate, Expression], ...]
    otherwise: Expression | None
    schema: pa.Schema

    def __call__(self, rows: pa.Table) -> Datum:
        """Return the value of each row's branch."""
        branches = [(_Holds(test, self.schema), value) for test, value in self.branches]
        return arithmetic.case_when(branches, self.otherwise)(rows)

    def parts(self) -> Sequence[Expression]:
        """Return the values of all branches, ELSE included."""
        values = [value for _, value in self.branches]
        if self.otherwise is None:
            return values
        return [*values, self.otherwise]

    def paths(self) -> Iterator[str]:
        """Yield the paths in conditions and values."""
        for test, _ in self.branches:
            yield from columns(test)
        for part in self.parts():
            yield from part.paths()


@dataclass(frozen=True, slots=True)
class _Holds:
    """A condition on the columns of ``schema``, as a mask."""

    test: Predicate
    schema: pa.Schema

    def __call__(self, rows: pa.Table) -> Datum:
        columns_read = rows.select(self.schema.names) if self.schema.names else rows
        return bind(self.test, self.schema)(columns_read)


@dataclass(frozen=True, slots=True)
class Among(Expression):
    """IN: True if the value equals a constant, null if that depends on a null."""

    argument: Expression
    constants: tuple[Constant, ...]

    def __call__(self, rows: pa.Table) -> Datum:
        """Return true, false or null for each row."""
        value = self.argument(rows)
        equal = (compare("=", value, constant.scalar) for constant in self.constants)
        return reduce(pc.or_kleene, equal)

    def parts(self) -> Sequence[Expression]:
        """Return the value and the constants."""
        return (self.argument, *self.constants)


@dataclass(frozen=True, slots=True)
class Cast(Expression):
    """A cast to a type of :data:`mdt.filters.scalar_functions.CASTS` or a decimal."""

    argument: Expression
    type: pa.DataType

    def __call__(self, rows: pa.Table) -> Datum:
        """Return the converted value."""
        return scalar_functions.cast(self.argument(rows), self.type)

    def parts(self) -> Sequence[Expression]:
        """Return the argument."""
        return (self.argument,)


@dataclass(frozen=True, slots=True)
class Shift(Expression):
    """A date or timestamp plus intervals."""

    argument: Expression
    intervals: tuple[dates.Interval, ...]

    def __call__(self, rows: pa.Table) -> Datum:
        """Return the shifted date or timestamp."""
        return reduce(dates.add_interval, self.intervals, self.argument(rows))

    def parts(self) -> Sequence[Expression]:
        """Return the argument."""
        return (self.argument,)
