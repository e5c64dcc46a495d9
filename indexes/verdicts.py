"""Verdicts on a whole predicate: what proofs about its leaves come to under And and Or.

False is a proof that nothing matches, True a guess.  A leaf of which nothing is known, and Unknown,
prove nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce

import numpy as np
import numpy.typing as npt

from indexes.predicate import Leaf, Predicate, Unknown, evaluate

Verdicts = npt.NDArray[np.bool_]


def verdicts(predicate: Predicate, n: int, ask: Callable[[Leaf], Iterable[Verdicts]]) -> Verdicts:
    """Return MAYBE or NO for each of n things under a whole predicate -> bool[n].

    ``ask`` gives verdicts on one leaf, bool[n] each, all of which are proofs; none: nothing is
    known of it.

    >>> from indexes.predicate import And, Or
    >>> both = And((Leaf("a", "=", 1), Or((Leaf("b", "=", 2), Unknown("c")))))
    >>> verdicts(both, 2, lambda leaf: [np.array([leaf.column != "a", True])]).tolist()
    [False, True]
    """

    def both(found: Sequence[Verdicts]) -> Verdicts:
        return reduce(np.logical_and, found) if found else np.ones(n, np.bool_)

    def either(found: Sequence[Verdicts]) -> Verdicts:
        return reduce(np.logical_or, found) if found else np.zeros(n, np.bool_)

    return evaluate(
        predicate,
        lambda leaf: both([] if isinstance(leaf, Unknown) else [*ask(leaf)]),
        both,
        either,
    )
