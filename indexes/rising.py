"""Whether a column stands in order already."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from indexes.threads import side_by_side, spans

MANY_VALUES = 1000
"""For the bounds of so many texts it pays to ask for their order first: these take a seventh of the time then.  Fewer have their bounds sooner."""
_PIECE_ROWS = 1 << 16
_LOOK = 64
"""Values at which an order is looked for before all are."""


def is_rising(values: pa.Array, *, strictly: bool = False) -> bool:
    """Return whether no value is below the one before, or ``strictly`` each above it, and none is null.

    ``values``: of a type that Arrow compares, without NaN.

    >>> is_rising(pa.array(["a", "b", "b"])), is_rising(pa.array(["a", None])), is_rising(pa.array(["b", "a"]))
    (True, False, False)
    >>> is_rising(pa.array(["a", "b", "b"]), strictly=True)
    False
    """
    compare = pc.less if strictly else pc.less_equal

    def rises(piece: slice) -> bool:
        part = values.slice(piece.start, piece.stop + 1 - piece.start)
        return bool(pc.all(compare(part.slice(0, max(0, len(part) - 1)), part.slice(1)), min_count=0).as_py())

    if values.null_count or not rises(slice(0, _LOOK)):  # what is in no order mostly shows it soon
        return False
    return all(side_by_side(rises, spans(len(values), _PIECE_ROWS), len(values)))
