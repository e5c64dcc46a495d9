"""Tests that compare two values of a row: ``fare > 2 * distance``, ``source.ts > target.ts + 1``.

They stand in a predicate beside its leaves.  No index understands them, so they rule out no file
and are evaluated on the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indexes.predicate import Test, Unknown
from mdt.errors import Invalid
from mdt.filters.arithmetic import FAILURES, column_of
from mdt.filters.comparison_kernels import compared
from mdt.filters.expression_tree import Expression, Field


@dataclass(frozen=True, slots=True)
class Compared(Unknown):
    """``left op right`` of two expressions, or with ``is_negated`` what is true where that is
    false.  ``op``: = != < <= > >= or <=>.
    """

    op: str
    left: Expression
    right: Expression
    is_negated: bool = False

    def parts(self) -> Iterator[Expression]:
        """Yield both sides and every value that they are made of."""
        waiting = [self.left, self.right]
        while waiting:
            part = waiting.pop()
            yield part
            waiting += part.parts()

    @property
    def columns(self) -> tuple[str, ...]:
        """The paths of the columns that are compared."""
        return (*self.left.paths(), *self.right.paths())

    @property
    def names(self) -> tuple[str, str]:
        """The paths of both sides, empty for one that is not a column."""
        left, right = (
            side.path if isinstance(side, Field) else "" for side in (self.left, self.right)
        )
        return left, right

    def negated(self) -> Compared:
        """Return what is true where this is false."""
        return Compared(self.text, self.op, self.left, self.right, not self.is_negated)

    def bound(self, schema: pa.Schema) -> Test:
        """Return the test of rows that have the columns of ``schema``.  The test raises Invalid for
        rows without a value and for values that are not compared.
        """

        def test(table: Any) -> Any:
            try:
                found = compared(self.op, self.left(table), self.right(table))
            except Invalid as error:
                raise Invalid(f"{self.text}: {error.message}", hint=error.hint) from error
            except RecursionError:
                raise Invalid("the filter nests too deeply") from None
            except FAILURES as error:
                raise Invalid(f"{self.text} cannot be tested: {error}") from error
            if self.is_negated:
                found = pc.invert(found)
            return column_of(table, found)

        return test
