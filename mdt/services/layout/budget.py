"""Which work a service does in one step: as much as its budget allows, the most needed first.

Work is due when its need is 1, and overdue at OVERDUE, its hard bound.  Overdue work is done beyond
the budget: each step takes at least an eighth of it, and at least one piece.  So what is overdue
converges: where each write makes at most A bytes overdue, what is left after a step is at most 7/8
of what was there and A more, which never exceeds 8 A and one piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mdt.commit.operation import Operation
from mdt.commit.transaction import run
from mdt.config import Options
from mdt.metadata.metadata import Metadata

OVERDUE = 1.5
"""Need of work at its hard bound.  A file group that is due waits for a budget until it has half as
many log files or dead rows again.
"""
OVERDUE_SHARE = 8
FILE_BYTES = 1 << 16
"""What a file costs besides its bytes: it is read, or written, in about the time of so many bytes.
"""
STEP_BYTES = 64 << 20
"""A step of a service that has no budget of time reads no more, unless a single piece of work has
more.
"""
_STEP_BYTES_MIN = 1 << 20
_MEMORY_SHARE = 16
"""Part of the memory of writes (``mdt.write.memory.max``) that a step reads at most: log files take
some ten times their bytes.
"""


def step_bytes(options: Options) -> int:
    """Return how many bytes one step reads at most, unless a single piece of work has more."""
    return min(STEP_BYTES, max(_STEP_BYTES_MIN, options.write_memory_max // _MEMORY_SHARE))


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a step looks for work, and how much of it it does.

    ``names``: ids of file groups, ``partitions``: paths of partitions that have new file groups;
    None: everywhere.  ``bytes_max``: bytes to read, but for what is overdue.  ``takes_any``:
    whether the most needed piece is taken whatever its size.  ``is_dry``: whether a step only tells
    what it would do.
    """

    names: AbstractSet[str] | None
    partitions: AbstractSet[str] | None
    bytes_max: int
    takes_any: bool = False
    is_dry: bool = False


def everywhere(options: Options, *, is_dry: bool = False) -> Scope:
    """Return the scope of whoever looks after a whole table."""
    return Scope(None, None, step_bytes(options), takes_any=True, is_dry=is_dry)


def carried_out(
    metadata: Metadata, operation: Operation[Any], options: Options, scope: Scope
) -> bool:
    """Carry out the operation of a step, or plan it; return whether it changes something."""
    if scope.is_dry:
        return operation.prepare(metadata.known(), "").is_needed
    return run(metadata, operation, attempts=options.commit_attempts).record is not None


class Outcome(NamedTuple):
    """How a step ended: whether something was committed, whether work is left that did not fit, and
    the cost of what was done, in bytes.
    """

    is_done: bool = False
    is_left: bool = False
    cost: int = 0


NOTHING = Outcome()


def affordable(
    need: npt.NDArray[np.float64], cost: Sequence[int] | npt.NDArray[np.int64], scope: Scope
) -> list[int]:
    """Return which of n pieces of work a step does, the most needed first.

    ``need``: [n], below 1 or NaN for what is not due.  ``cost``: in bytes, [n].

    >>> need = np.array([1.2, 1.0, 0.9, 1.4])
    >>> affordable(need, [50, 40, 10, 90], Scope(None, None, 100))
    [3]
    >>> affordable(need, [50, 40, 10, 200], Scope(None, None, 100))
    [0, 1]
    >>> affordable(need + 0.5, [50, 40, 10, 200], Scope(None, None, 0))
    [3]
    """
    costs = np.asarray(cost, np.int64)
    due = np.flatnonzero(need >= 1)
    order = due[np.argsort(-need[due], kind="stable")]
    bytes_max = max(scope.bytes_max, int(costs[need >= OVERDUE].sum()) // OVERDUE_SHARE)
    taken, used = list[int](), 0
    for at in order.tolist():
        is_first = not taken and (scope.takes_any or need[at] >= OVERDUE)
        if is_first or used + costs[at] <= bytes_max:
            taken.append(at)
            used += int(costs[at])
    return taken
