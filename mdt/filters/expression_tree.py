"""Values that SQL text stands for, as a tree: columns, constants, functions of them.

Every node is called with n rows of a table and returns n values, or one scalar for all of them.
Nodes are plain data: they can be compared, sent to tasks, and turned into Spark's columns
(:mod:`mdt.engines.spark.columns`).  The rules are those of Spark in its ANSI mode: overflow and
division by zero are errors.
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
from mdt.filters.comparison_kernels import compared


class Expression(ABC):
    """A value of each row.  Call it with a table that has the columns in :meth:`paths`.

    Raises Invalid, ``pa.ArrowException``, ValueError or OverflowError for rows without a value,
    e.g. after a division by zero.
    """

    __slots__ = ()

    @abstractmethod
    def __call__(self, rows: pa.Table) -> Datum:
        """Return the values of ``rows``: an array of as many, or one scalar for all."""

    def parts(self) -> Sequence[Expression]:
        """Return the values that this one is made of."""
        return ()

    def paths(self) -> Iterator[str]:
        """Yield the paths of the columns that the value depends on, some more than once."""
        for part in self.parts():
            yield from part.paths()


@dataclass(frozen=True, slots=True)
class Field(Expression):
    """A column, or the field of a struct: ``fare``, ``address.city``."""

    path: str

    def __call__(self, rows: pa.Table) -> Datum:
        """Return the column; a dictionary-encoded one as plain values."""
        found = column_at(rows, self.path)
        if pa.types.is_dictionary(found.type):
            return found.cast(found.type.value_type)
        return found

    def paths(self) -> Iterator[str]:
        """Yield the path."""
        yield self.path


@dataclass(frozen=True, slots=True)
class Constant(Expression):
    """The same value in every row."""

    scalar: pa.Scalar

    def __call__(self, rows: pa.Table) -> Datum:
        """Return the scalar."""
        return self.scalar


@dataclass(frozen=True, slots=True)
class Chain(Expression):
    """Values joined by signs of one precedence, from left to right: ``a - b + 1``.

    ``rest``: pairs of a sign, one of ``+ - * / % ||``, and the value after it.
    """

    first: Expression
    rest: tuple[tuple[str, Expression], ...]

    def __call__(self, rows: pa.Table) -> Datum:
        """Return the result of all signs."""
        value = self.first(rows)
        for sign, part in self.rest:
            value = arithmetic.applied(sign, value, part(rows))
        return value

    def parts(self) -> Sequence[Expression]:
        """Return the values between the signs."""
        return (self.first, *(part for _, part in self.rest))


@dataclass(frozen=True, slots=True)
class Apply(Expression):
    """A function of :data:`mdt.filters.scalar_functions.FUNCTIONS` applied to values."""

    function: str
    arguments: tuple[Expression, ...]

    def __call__(self, rows: pa.Table) -> Datum:
        """Return the function's values."""
        kernel = scalar_functions.FUNCTIONS[self.function].kernel
        return kernel(*(argument(rows) for argument in self.arguments))

    def parts(self) -> Sequence[Expression]:
        """Return the arguments."""
        return self.arguments


@dataclass(frozen=True, slots=True)
class Coalesce(Expression):
    """The first value that is not null; those behind it are not evaluated for such rows."""

    arguments: tuple[Expression, ...]

    def __call__(self, rows: pa.Table) -> Datum:
        """Return the first value of each row that is known."""
        return arithmetic.first_known(self.arguments)(rows)

    def parts(self) -> Sequence[Expression]:
        """Return the arguments."""
        return self.arguments


@dataclass(frozen=True, slots=True)
class Case(Expression):
    """CASE WHEN: the value of the first condition that holds, evaluated only for its rows.

    ``schema``: the columns that the conditions test.  ``otherwise`` None stands for null.
    """

    branches: tuple[tuple[Predicate, Expression], ...]
    otherwise: Expression | None
    schema: pa.Schema

    def __call__(self, rows: pa.Table) -> Datum:
        """Return the value of each row's branch."""
        branches = [(_Holds(test, self.schema), value) for test, value in self.branches]
        return arithmetic.chosen(branches, self.otherwise)(rows)

    def parts(self) -> Sequence[Expression]:
        """Return the values of the branches, and the one otherwise."""
        values = [value for _, value in self.branches]
        if self.otherwise is None:
            return values
        return [*values, self.otherwise]

    def paths(self) -> Iterator[str]:
        """Yield the paths of conditions and values."""
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
        some = rows.select(self.schema.names) if self.schema.names else rows
        return bind(self.test, self.schema)(some)


@dataclass(frozen=True, slots=True)
class Among(Expression):
    """IN: whether a value is one of some constants; null if that depends on a null."""

    argument: Expression
    constants: tuple[Constant, ...]

    def __call__(self, rows: pa.Table) -> Datum:
        """Return true, false or null for each row."""
        value = self.argument(rows)
        equal = (compared("=", value, constant.scalar) for constant in self.constants)
        return reduce(pc.or_kleene, equal)

    def parts(self) -> Sequence[Expression]:
        """Return the value and the constants."""
        return (self.argument, *self.constants)


@dataclass(frozen=True, slots=True)
class Cast(Expression):
    """A value as another type, one of :data:`mdt.filters.scalar_functions.CASTS` or a decimal."""

    argument: Expression
    type: pa.DataType

    def __call__(self, rows: pa.Table) -> Datum:
        """Return the value as the type."""
        return scalar_functions.cast(self.argument(rows), self.type)

    def parts(self) -> Sequence[Expression]:
        """Return the argument."""
        return (self.argument,)


@dataclass(frozen=True, slots=True)
class Shift(Expression):
    """A date or a time plus intervals, one after the other."""

    argument: Expression
    intervals: tuple[dates.Interval, ...]

    def __call__(self, rows: pa.Table) -> Datum:
        """Return the later, or earlier, date or time."""
        return reduce(dates.shifted, self.intervals, self.argument(rows))

    def parts(self) -> Sequence[Expression]:
        """Return the argument."""
        return (self.argument,)
