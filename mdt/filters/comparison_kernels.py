"""Comparisons of Arrow values in Spark's order: NaN is greater than any number and equal to
itself.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from indexes.decimals import as_floating
from indexes.predicate import KERNELS
from mdt.errors import Invalid
from mdt.filters import dates
from mdt.filters.arithmetic import Datum, is_number, is_text, with_common_types

COMPARISONS = frozenset((*KERNELS, "<=>"))
"""Comparison operators."""
_FAMILIES: tuple[Callable[[pa.DataType], bool], ...] = (
    is_number,
    is_text,
    lambda type: pa.types.is_binary(type) or pa.types.is_large_binary(type),
    pa.types.is_boolean,
    pa.types.is_date,
    pa.types.is_timestamp,
)


def compare(op: str, a: Datum, b: Datum) -> Datum:
    """Return ``a op b``. The result is null if a side is null, except for ``<=>``.

    >>> compare("<", pa.array([1.0, float("nan"), None]), pa.scalar(float("nan"))).to_pylist()
    [True, False, None]
    >>> compare("<=>", pa.array([1, None]), pa.array([2, None])).to_pylist()
    [False, True]
    """
    a, b = with_common_types(*_moments(a, b))
    if pa.types.is_null(a.type):  # both are, because promoted gives an untyped null the other type
        a, b = pc.cast(a, pa.bool_()), pc.cast(b, pa.bool_())
    if not any(family(a.type) and family(b.type) for family in _FAMILIES):
        raise Invalid(
            f"{a.type} cannot be compared with {b.type}", hint="convert one with cast(x as …)"
        )
    if op == "<=>":
        both = pc.and_(pc.is_null(a), pc.is_null(b))
        return pc.or_(pc.fill_null(compare("=", a, b), False), both)
    if pa.types.is_floating(a.type) or pa.types.is_floating(b.type):
        return _of_floats(op, as_floating(a, pa.float64()), as_floating(b, pa.float64()))
    try:
        return KERNELS[op](a, b)
    except pa.ArrowInvalid:  # the common type of both decimals has more than 38 digits
        if not (pa.types.is_decimal(a.type) or pa.types.is_decimal(b.type)):
            raise
        scale = max(side.type.scale for side in (a, b) if pa.types.is_decimal(side.type))
        decimal_type = pa.decimal256(76, scale)
        return KERNELS[op](pc.cast(a, decimal_type), pc.cast(b, decimal_type))


def _moments(a: Datum, b: Datum) -> tuple[Datum, Datum]:
    """Return both values as UTC timestamps if one is a date or lacks a time zone and the other
    differs.
    """
    kinds = {(pa.types.is_timestamp(side.type), getattr(side.type, "tz", None)) for side in (a, b)}
    are_times = all(pa.types.is_temporal(side.type) for side in (a, b))
    if not are_times or len(kinds) == 1:
        return a, b
    return dates.moments(a), dates.moments(b)


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
