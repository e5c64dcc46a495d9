"""Selection of the work that a service does in one step, by need and budget.

Work is due when its need reaches 1, and overdue at OVERDUE, its hard limit. Overdue work may exceed
the budget: each step does at least one piece, and at least 1/OVERDUE_SHARE of the overdue bytes. So
the backlog is bounded. If each write makes at most A bytes overdue, a step leaves at most 7/8 of
the old backlog plus A, which never exceeds 8 A and one piece.
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
"""Need of work at its hard limit. A file group that is due waits for a budget until it has 50 %
more log files or deleted rows.
"""
OVERDUE_SHARE = 8
FILE_BYTES = 1 << 16
"""Fixed cost of reading or writing a file, in bytes that take the same time."""
STEP_BYTES = 64 << 20
"""Maximum bytes that a step without time budget reads, unless one piece of work is larger."""
_STEP_BYTES_MIN = 1 << 20
_MEMORY_SHARE = 16
"""A step reads at most the write memory (``mdt.write.memory.max``) divided by this number, because
log files take about ten times their size in memory.
"""


def step_bytes(options: Options) -> int:
    """Return the maximum bytes that a step reads, unless one piece of work is larger."""
    return min(STEP_BYTES, max(_STEP_BYTES_MIN, options.write_memory_max // _MEMORY_SHARE))


@dataclass(frozen=True, slots=True)
class Scope:
    """The part of a table that a step may work on, and its budget.

    Attributes:
        names: Ids of file groups, or None for all.
        partitions: Paths of partitions with new file groups, or None for all.
        bytes_max: Bytes to read, not counting overdue work.
        takes_any: True to do the most needed piece whatever its size.
        is_dry: True to plan without changing anything.
    """

    names: AbstractSet[str] | None
    partitions: AbstractSet[str] | None
    bytes_max: int
    takes_any: bool = False
    is_dry: bool = False


def everywhere(options: Options, *, is_dry: bool = False) -> Scope:
    """Return the scope for maintenance of a whole table."""
    return Scope(None, None, step_bytes(options), takes_any=True, is_dry=is_dry)


def run_or_plan(
    metadata: Metadata, operation: Operation[Any], options: Options, scope: Scope
) -> bool:
    """Run or, with ``is_dry``, plan an operation. Return True if it changes something."""
    if scope.is_dry:
        return operation.prepare(metadata.cached_snapshot(), "").is_needed
    return run(metadata, operation, attempts=options.commit_attempts).record is not None


class Outcome(NamedTuple):
    """The result of a step.

    Attributes:
        is_done: True if something was committed.
        is_left: True if due work remains that exceeds the budget.
        cost: Cost of the work done, in bytes.
    """

    is_done: bool = False
    is_left: bool = False
    cost: int = 0


NOTHING = Outcome()


def affordable(
    need: npt.NDArray[np.float64], cost: Sequence[int] | npt.NDArray[np.int64], scope: Scope
) -> list[int]:
    """Return the positions of the pieces of work that a step does, the most needed first.

    Args:
        need: Need of n pieces (float64[n]), below 1 or NaN if not due.
        cost: Cost in bytes, [n].

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
    chosen, total = list[int](), 0
    for position in order.tolist():
        is_first = not chosen and (scope.takes_any or need[position] >= OVERDUE)
        if is_first or total + costs[position] <= bytes_max:
            chosen.append(position)
            total += int(costs[position])
    return chosen
