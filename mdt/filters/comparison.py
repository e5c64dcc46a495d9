"""Comparisons of two values of a row: ``fare > 2 * distance``, ``source.ts > target.ts + 1``.

They are part of a predicate like leaves. No index supports them, so they are evaluated on rows and
skip no file.
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
from mdt.filters.comparison_kernels import compare
from mdt.filters.expression_tree import Expression, Field


@dataclass(frozen=True, slots=True)
class Comparison(Unknown):
    """``left op right`` of two expressions, or its negation. ``op`` is = != < <= > >= or <=>."""

    op: str
    left: Expression
    right: Expression
    is_negated: bool = False

    def parts(self) -> Iterator[Expression]:
        """Yield both sides and all expressions inside them."""
        pending = [self.left, self.right]
        while pending:
            part = pending.pop()
            yield part
            pending += part.parts()

    @property
    def columns(self) -> tuple[str, ...]:
        """The paths of the compared columns."""
        return (*self.left.paths(), *self.right.paths())

    @property
    def names(self) -> tuple[str, str]:
        """The paths of both sides, "" for a side that is not a column."""
        left, right = (
            side.path if isinstance(side, Field) else "" for side in (self.left, self.right)
        )
        return left, right

    def negated(self) -> Comparison:
        """Return the negation."""
        return Comparison(self.text, self.op, self.left, self.right, not self.is_negated)

    def bound(self, schema: pa.Schema) -> Test:
        """Return the test for rows with the columns of ``schema``. It raises Invalid for rows
        without a value, e.g. after a division by zero, and for types that cannot be compared.
        """

        def test(table: Any) -> Any:
            try:
                mask = compare(self.op, self.left(table), self.right(table))
            except Invalid as error:
                raise Invalid(f"{self.text}: {error.message}", hint=error.hint) from error
            except RecursionError:
                raise Invalid("the filter is nested too deeply") from None
            except FAILURES as error:
                raise Invalid(f"{self.text} cannot be evaluated: {error}") from error
            if self.is_negated:
                mask = pc.invert(mask)
            return column_of(table, mask)

        return test
