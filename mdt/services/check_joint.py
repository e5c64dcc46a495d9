"""Check one segment's share of a joint summary: it answers about the segment's rows as a summary of them alone does.

The bytes of a joint summary depend on the other segments, some of which may be gone, so it is asked about values instead.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from indexes.base import SkippingIndex, Summary
from indexes.predicate import Leaf, matches
from mdt.summaries import cut

VALUES_ASKED = 10
"""Values of a segment, spread over its distinct ones, about which a joint summary is asked: some 50 µs each."""
_EXACT = ("bitmap/", "text/")
"""Indexes whose answers depend on nothing but the rows that they are about."""
_COLUMN = "values"


def agrees(index: SkippingIndex, joint: Summary, first: int, alone: Summary, values: pa.ChunkedArray) -> bool:
    """Return whether ``joint`` finds the same of a segment's rows, from its position ``first`` on, as ``alone`` does.

    ``values``: the segment's column.  An index of another package may find more, but all that match.
    """
    for leaf in _leaves(index, values):
        try:
            (found,), (expected,) = (index.rows([one], leaf, values.type) for one in (joint, alone))
        except ValueError:
            return False
        if found is None:
            continue
        mine = next(cut(found, np.array([first]), np.array([len(values)])))
        if expected is None or not index.name.startswith(_EXACT):
            here = matches(leaf, pa.table({_COLUMN: values})).to_numpy()
            if BitMap(np.flatnonzero(here).astype(np.uint32)) - mine:
                return False
        elif mine != expected:
            return False
    return True


def _leaves(index: SkippingIndex, values: pa.ChunkedArray) -> Iterator[Leaf]:
    """Yield tests that ``index`` knows: is a value null, has it the words of this one, or is it this one."""
    distinct = pc.unique(values).drop_null()
    step = max(1, -(-len(distinct) // VALUES_ASKED))
    some = distinct.take(pa.array(np.arange(0, len(distinct), step))).to_pylist()
    words = [Leaf(_COLUMN, "match", value) for value in some if isinstance(value, str)]
    asked = [leaf for leaf in words if index.can_test(leaf, values.type)] or [Leaf(_COLUMN, "=", value) for value in some]
    for leaf in (Leaf(_COLUMN, "is null", None), *asked):
        if index.can_test(leaf, values.type):
            yield leaf
