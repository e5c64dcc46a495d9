"""Tests as ranges of keys, so that an index over sorted keys need not implement operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from indexes import predicate
from indexes import values as order
from indexes.base import BoolArray
from indexes.dictionary import Bounds
from indexes.like import parse_like, split_prefix
from indexes.predicate import Leaf, bind
from indexes.values import sorted_keys

KeyRange = tuple[bytes, bytes | None]
"""Keys from the first (included) to the second (excluded), or without end for None. The empty key
is below all others.
"""

OPS = predicate.OPS - {"match", "not match"}
"""The operators that can be expressed as ranges of keys."""

_ALL: list[KeyRange] = [(b"", None)]


@dataclass(frozen=True, slots=True)
class KeyRanges:
    """The values that match a leaf.

    Attributes:
        nulls: True if null matches.
        ranges: Sorted, disjoint ranges.
        bounds: The distinct ends of the ranges.
        spans: The ranges as pairs of positions in ``bounds``, with -1 for no end.
        test: None if every value in the ranges matches, else a function from keys, binary[n], to
            bool[n].
    """

    nulls: bool
    ranges: tuple[KeyRange, ...]
    bounds: Bounds
    spans: tuple[tuple[int, int], ...]
    test: Callable[[Sequence[bytes]], BoolArray] | None

    @classmethod
    def from_leaf(cls, leaf: Leaf, type: pa.DataType) -> KeyRanges:
        """Return the matching values of ``leaf`` in a column of ``type``.

        Raises ValueError for a literal of the wrong kind, or an operator outside of :data:`OPS`.

        >>> KeyRanges.from_leaf(Leaf("city", "starts with", "Os"), pa.string()).ranges
        ((b'Os', b'Ot'),)
        >>> KeyRanges.from_leaf(Leaf("city", "is null"), pa.string()).nulls
        True
        """
        if leaf.op not in OPS:
            raise ValueError(f"{leaf.op} cannot be expressed as ranges of values")
        width = order.key_width(type)
        nulls = leaf.op == "is null" or (leaf.op == "<=>" and leaf.value is None)
        ranges, inexact = ranges_of(leaf, type)
        ends = sorted({end for end in chain.from_iterable(ranges) if end is not None})
        number = {end: at for at, end in enumerate(ends)}
        spans = tuple(
            (number[start], -1 if stop is None else number[stop]) for start, stop in ranges
        )
        test = _key_test(leaf) if inexact else None
        return cls(nulls, tuple(ranges), Bounds.from_keys(ends, width), spans, test)


def ranges_of(leaf: Leaf, type: pa.DataType) -> tuple[list[KeyRange], bool]:
    """Return the sorted, disjoint ranges of the values that match a leaf, and True if they contain
    other values. The operator is one of :data:`OPS`.

    >>> ranges_of(Leaf("city", "not like", "Os%"), pa.string())
    ([(b'', b'Os'), (b'Ot', None)], False)
    """
    op, value, width = leaf.op, leaf.value, order.key_width(type)
    if op == "is not null":
        return _ALL, False
    if op in ("in", "not in"):
        assert isinstance(value, tuple)
        points = _points(value, type, width)
        if op == "in":
            return points, False
        return [] if None in value else _complement(points), False
    if value is None:
        return [], False
    if op in ("starts with", "like", "not like"):
        return _text_ranges(op, value, type)
    return _comparison(op, order.compare_key(value, type), width), False


def _comparison(op: str, key: order.Key, width: int | None) -> list[KeyRange]:
    """Return the ranges for a comparison with a literal.

    A literal just above its key (tie > 0) is above the key itself. See ``values.Place``.
    """
    after = _next_key(key.data, width)
    match op:
        case "=" | "<=>":
            if key.tie:
                return []
            return [(key.data, after)]
        case "!=":
            if key.tie:
                return _ALL
            return _complement([(key.data, after)])
    end = after
    if key.tie < 0 or (key.tie == 0 and op in ("<", ">=")):
        end = key.data
    if op in ("<", "<="):
        if end == b"":
            return []
        return [(b"", end)]
    if end is None:
        return []
    return [(end, None)]


def _next_key(key: bytes, width: int | None) -> bytes | None:
    """Return the smallest key above ``key``, or None.

    Keys of 8 bytes retain their width, because they are compared as numbers.
    """
    if width != 8:
        return key + b"\0"
    if key == b"\xff" * 8:
        return None
    return (int.from_bytes(key, "big") + 1).to_bytes(8, "big")


def _points(literals: tuple[object, ...], type: pa.DataType, width: int | None) -> list[KeyRange]:
    """Return the ranges of the literals that a value can equal. Adjacent literals are merged."""
    ranges: list[KeyRange] = []
    for key in sorted_keys(literals, type):
        start = ranges.pop()[0] if ranges and ranges[-1][1] == key else key
        ranges.append((start, _next_key(key, width)))
    return ranges


def _complement(ranges: list[KeyRange]) -> list[KeyRange]:
    """Return the complement of sorted, disjoint ranges."""
    starts: list[bytes | None] = [b"", *(stop for _, stop in ranges)]
    stops: list[bytes | None] = [*(start for start, _ in ranges), None]
    return [
        (start, stop)
        for start, stop in zip(starts, stops, strict=True)
        if start is not None and start != stop
    ]


def _text_ranges(op: str, value: object, type: pa.DataType) -> tuple[list[KeyRange], bool]:
    kind = order.kind_of(type)
    if kind != "string" and (kind != "binary" or op != "starts with"):
        raise ValueError(f"{op} needs a text column, got type {type}")
    literal = order.compare_key(value, type).data
    if op == "starts with":
        return [(literal, order.successor(literal))], False
    prefix, remainder = split_prefix(parse_like(literal.decode("utf-8")))
    if not remainder:
        like: list[KeyRange] = [(prefix, prefix + b"\0")]
    else:
        like = [(prefix, order.successor(prefix))]
    inexact = remainder not in ([], [None])
    if op == "like":
        return like, inexact
    return (_ALL if inexact else _complement(like)), inexact


def _key_test(leaf: Leaf) -> Callable[[Sequence[bytes]], BoolArray]:
    """Return the test of ``leaf`` for keys of text."""
    run = bind(leaf, pa.schema([pa.field(leaf.column, pa.string())]))

    def test(keys: Sequence[bytes]) -> Any:
        texts = pa.array(keys, pa.binary()).cast(pa.string())
        return np.asarray(
            run(pa.record_batch([texts], names=[leaf.column])).to_numpy(zero_copy_only=False),
            np.bool_,
        )

    return test
