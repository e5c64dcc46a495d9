"""Rows of a file slice that are made of several rows, because updates have only some columns.

Hudi merges such rows pairwise (``HoodieMergedLogRecordReader``, ``PartialUpdateHandler``): the row
that loses fills the columns that the winner lacks. So the rows of a key form a stack. A winner is
put on top, and a loser below. A delete that wins removes the stack, and the next winner begins
another one. At last the row of the base file meets the stack in the same way.

Each column of the result comes from the topmost row of the stack that has it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mdt.hudi.log_merge import Events, rank

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Stacks:
    """The rows that each of n live rows is made of.

    Attributes:
        rows: m row numbers, from the topmost to the lowest row of each stack. Rows of the base file
            are counted first, then the events of the log.
        starts: Begin of each stack in ``rows``, int64[n].
    """

    rows: Int64s
    starts: Int64s

    def pick(self, has_value: Bools) -> Int64s:
        """Return the number of the topmost row with a value in each stack, int64[n].

        It is the lowest row if none has a value.

        Args:
            has_value: True for the rows of ``rows`` that have a value, bool[m].

        >>> Stacks(np.array([7, 5, 3, 4]), np.array([0, 3])).pick(np.array([0, 1, 1, 0], bool))
        array([5, 4])
        """
        is_last = np.ones(len(self.rows), np.bool_)
        is_last[:-1] = False
        is_last[self.starts[1:] - 1] = True
        places = np.flatnonzero(has_value | is_last)
        picked: Int64s = self.rows[places[np.searchsorted(places, self.starts)]]
        return picked

    def without_single_rows(self, base_rows: int) -> tuple[Bools, Stacks]:
        """Return the rows of the base file that are stacks of their own, and the other stacks.

        The first is a mask, bool[base_rows].

        >>> is_single, others = Stacks(np.array([0, 2, 1]), np.array([0, 1])).without_single_rows(2)
        >>> is_single, others
        (array([ True, False]), Stacks(rows=array([2, 1]), starts=array([0])))
        """
        heights = np.diff(np.append(self.starts, len(self.rows)))
        is_other = (heights > 1) | (self.rows[self.starts] >= base_rows)
        is_single = np.zeros(base_rows, np.bool_)
        is_single[self.rows[self.starts[~is_other]]] = True
        ends = np.cumsum(heights[is_other])
        return is_single, Stacks(self.rows[np.repeat(is_other, heights)], ends - heights[is_other])


def stack_rows(base: Events, log: Events) -> Stacks:
    """Return the stacks of the live rows of a base file and a log. O(n log n).

    Arguments as for :func:`mdt.hudi.log_merge.live_rows`, with at least one event in ``log``.

    >>> import pyarrow as pa
    >>> base = Events(pa.array(["a", "b"]), [pa.array([5, 5])], np.zeros(2, bool))
    >>> log = Events(pa.array(["a", "b"]), [pa.array([6, 4])], np.zeros(2, bool))
    >>> stack_rows(base, log)
    Stacks(rows=array([2, 0, 1, 3]), starts=array([0, 2]))
    """
    ranked = rank(base, log)
    # from here on, events are in the order of their keys
    events = ranked.rows[np.argsort(ranked.key[ranked.rows], kind="stable")]
    key, number = ranked.key[events], np.arange(len(events))
    is_delete = log.is_delete[events]
    begins = np.append(True, key[1:] != key[:-1])
    starts, group = np.flatnonzero(begins), np.cumsum(begins) - 1
    wins = _wins(ranked.rank[events], begins)
    last_winner = np.maximum.reduceat(np.where(wins, number, -1), starts)
    last_delete = np.maximum.reduceat(np.where(wins & is_delete, number, -1), starts)
    is_after = wins & (number > last_delete[group])
    bottom = np.minimum.reduceat(np.where(is_after, number, len(number)), starts)
    is_in = ~is_delete & (number >= bottom[group])
    # the row of the base file is at the bottom, on top, or dead
    rival = ranked.base_row[key[starts]]
    beats_base = ranked.beats_base(events[last_winner], rival)
    is_dead = (rival >= 0) & beats_base & (bottom == len(number))
    base_live = ~base.is_delete
    base_live[rival[is_dead]] = False
    base_height = np.full(len(base), -len(number) - 1)
    base_height[rival[(rival >= 0) & ~beats_base]] = len(number)
    base_rows = np.flatnonzero(base_live)
    owner = np.where(rival >= 0, rival, len(base) + np.arange(len(starts)))
    height = np.where(wins, number, -number - 1)
    return _stacks(
        np.append(base_rows, len(base) + events[is_in]),
        np.append(base_rows, owner[group[is_in]]),
        np.append(base_height[base_rows], height[is_in]),
    )


def _wins(rank: Int64s, begins: Bools) -> Bools:
    """Return True for the events that win over all events of their key before them.

    Args:
        rank: Rank of each event, in the order of their keys.
        begins: True for the first event of each key.
    """
    # an event without an ordering value wins over all before it and loses to the next
    has_none = rank < 0
    restarts = begins | has_none | np.append(False, has_none[:-1])
    width = int(rank.max()) + 2
    offset = np.cumsum(restarts) * width
    largest = np.maximum.accumulate(offset + rank)
    before = np.append(-1, largest[:-1])
    wins: Bools = restarts | (offset + rank >= before)
    return wins


def _stacks(rows: Int64s, owner: Int64s, height: Int64s) -> Stacks:
    """Return the stacks of rows with the same owner, from the largest height down."""
    order = np.lexsort((-height, owner))
    owner = owner[order]
    begins = np.ones(len(owner), np.bool_)
    begins[1:] = owner[1:] != owner[:-1]
    return Stacks(rows[order], np.flatnonzero(begins))
