"""Comparisons of two values of a row, where a filter knows columns and literals only: ``source.ts >
target.ts + 1``.

They stand in a predicate beside its leaves, and prove nothing to an index.  The order is Spark's:
NaN above everything and equal to itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indexes.decimals import as_floating
from indexes.predicate import Test, Unknown
from mdt.errors import Invalid
from mdt.filters.arithmetic import Datum, Value, column_of, promoted

_KERNELS: dict[str, Callable[[Datum, Datum], Any]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
COMPARISONS = frozenset((*_KERNELS, "<=>"))
"""What stands between two values."""
_FAMILIES: tuple[Callable[[pa.DataType], bool], ...] = (
    lambda type: (
        pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_decimal(type)
    ),
    lambda type: pa.types.is_string(type) or pa.types.is_large_string(type),
    lambda type: pa.types.is_binary(type) or pa.types.is_large_binary(type),
    pa.types.is_boolean,
    pa.types.is_date,
    pa.types.is_timestamp,
)


@dataclass(frozen=True, slots=True)
class Compared(Unknown):
    """``left op right`` of two expressions, or with ``is_negated`` what is true where that is
    false.  ``op``: = != < <= > >= or <=>.

    ``names``: of both sides, empty for one that is no column.
    """

    op: str
    left: Value
    right: Value
    names: tuple[str, str] = ("", "")
    is_negated: bool = False

    def negated(self) -> Compared:
        """Return what is true where this is false."""
        return Compared(self.text, self.op, self.left, self.right, self.names, not self.is_negated)

    def bound(self, schema: pa.Schema) -> Test:
        """Return the test of rows that have the columns of ``schema``.  The test raises Invalid for
        values of two families.
        """

        def test(table: Any) -> Any:
            try:
                found = compared(self.op, self.left(table), self.right(table))
            except pa.ArrowException as error:
                raise Invalid(f"{self.text} cannot be tested: {error}") from error
            return column_of(table, pc.invert(found) if self.is_negated else found)

        return test


def compared(op: str, a: Datum, b: Datum) -> Datum:
    """Return whether ``a op b`` holds; null where one of them is null, but for ``<=>``.

    >>> compared("<", pa.array([1.0, float("nan"), None]), pa.scalar(float("nan"))).to_pylist()
    [True, False, None]
    >>> compared("<=>", pa.array([1, None]), pa.array([2, None])).to_pylist()
    [False, True]
    """
    a, b = promoted(a, b)
    if pa.types.is_null(a.type):  # both: promoted gives one of them the type of the other
        a, b = pc.cast(a, pa.bool_()), pc.cast(b, pa.bool_())
    if not any(family(a.type) and family(b.type) for family in _FAMILIES):
        raise Invalid(
            f"{a.type} is not compared with {b.type}", hint="cast(x as …) gives another type"
        )
    if op == "<=>":
        both = pc.and_(pc.is_null(a), pc.is_null(b))
        return pc.or_(pc.fill_null(compared("=", a, b), False), both)
    if pa.types.is_floating(a.type) or pa.types.is_floating(b.type):
        return _of_floats(op, as_floating(a, pa.float64()), as_floating(b, pa.float64()))
    return _KERNELS[op](a, b)


def _of_floats(op: str, a: Datum, b: Datum) -> Datum:
    if op in (">", ">="):
        return _of_floats(op.replace(">", "<"), b, a)
    if op == "!=":
        return pc.invert(_of_floats("=", a, b))
    if op == "<=":
        return pc.invert(_of_floats("<", b, a))
    a_is_nan, b_is_nan = pc.is_nan(a), pc.is_nan(b)
    if op == "=":
        return pc.or_kleene(pc.equal(a, b), pc.and_(a_is_nan, b_is_nan))
    return pc.or_kleene(pc.less(a, b), pc.and_(pc.invert(a_is_nan), b_is_nan))
