"""Rows merged from several partial rows equal those of a fold over the rows, as Hudi merges."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from test_log_merge import KEYS, RECORD, ROW, VALUES, events, has_none, newer_wins

from mdt.hudi.partial_merge import stack_rows

COLUMNS = "xyz"


def fill(high, low):
    """Return the row ``high``, with missing values filled from ``low``."""
    return {**low, **high}


def kind(row):
    return RECORD if row is None else ROW


def fold(base, log):
    """Return the live rows of events (key, ordering, row). The row of a delete is None."""
    state = {}
    for key, ordering, row in log:
        if key not in state:
            state[key] = ordering, row
            continue
        old_ordering, old = state[key]
        if row is None and old is None and has_none(old_ordering, RECORD):
            continue
        is_overlay = row is not None and old is not None
        if newer_wins(old_ordering, ordering, old_kind=kind(old), new_kind=kind(row)):
            state[key] = ordering, fill(row, old) if is_overlay else row
        elif is_overlay:
            state[key] = old_ordering, fill(old, row)
    live = []
    for key, ordering, row in base:
        if key in state:
            new_ordering, new = state.pop(key)
            wins = newer_wins(ordering, new_ordering, new_kind=kind(new))
            if new is None:
                row = None if wins else row
            else:
                row = fill(new, row) if wins else fill(row, new)
        live.append(row)
    live += [row for _, row in state.values()]
    return [row for row in live if row is not None]


@st.composite
def slices(draw):
    fields = draw(st.integers(0, 2))
    ordering = st.tuples(*[VALUES] * fields)
    rows = st.dictionaries(st.sampled_from(COLUMNS), st.integers(0, 99))
    base = []
    for key in draw(st.lists(KEYS, unique=True)):
        base.append((key, draw(ordering), draw(rows)))
    log = draw(st.lists(st.tuples(KEYS, ordering, st.none() | rows), min_size=1, max_size=14))
    return base, log, fields


def as_events(rows, fields):
    return events([(key, ordering, kind(row)) for key, ordering, row in rows], fields)


@given(slices())
def test_stacked_rows_equal_those_of_a_row_by_row_fold(case):
    base, log, fields = case
    stacks = stack_rows(as_events(base, fields), as_events(log, fields))
    sources = [row for _, _, row in (*base, *log)]
    columns = {}
    for name in COLUMNS:
        has_value = np.array([name in sources[at] for at in stacks.rows], bool)
        columns[name] = [sources[at].get(name) for at in stacks.pick(has_value)]
    rows = [
        {name: columns[name][number] for name in COLUMNS if columns[name][number] is not None}
        for number in range(len(stacks.starts))
    ]

    def order(row):
        return sorted(row.items())

    assert sorted(rows, key=order) == sorted(fold(base, log), key=order)


def test_only_one_of_the_base_rows_with_the_same_key_is_merged_with_the_log():
    base = events([("a", (1,), ROW), ("a", (1,), ROW)], 1)
    stacks = stack_rows(base, events([("a", (2,), ROW)], 1))
    assert (stacks.rows.tolist(), stacks.starts.tolist()) == ([2, 0, 1], [0, 2])


def test_deletes_may_leave_no_rows():
    base = events([("a", (1,), ROW)], 1)
    stacks = stack_rows(base, events([("a", (2,), RECORD)], 1))
    assert len(stacks.rows) == len(stacks.starts) == 0
    assert len(stacks.pick(np.zeros(0, bool))) == 0
    assert pa.array(stacks.rows).type == pa.int64()
