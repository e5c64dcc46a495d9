"""Live rows found by sorting are those that a fold over the rows finds, as Hudi does it."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdt.hudi.log_merge import Events, live_rows

KEYS = st.sampled_from("abcd")
VALUES = st.none() | st.integers(0, 3)


def has_none(ordering, is_delete):
    """Whether an event has no ordering value: in a single field null, in several only deletes."""
    is_null = bool(ordering) and set(ordering) == {None}
    return is_null and (is_delete or len(ordering) == 1)


def newer_wins(old, new, *, old_ends=False, new_ends=False):
    """Whether an event with the ordering values ``new`` replaces an older one.

    Args:
        old_ends, new_ends: Whether the events are deletes.
    """
    if has_none(old, old_ends) or has_none(new, new_ends):
        return True
    smallest = -1
    return [smallest if value is None else value for value in new] >= [
        smallest if value is None else value for value in old
    ]


def folded(base, log):
    """Numbers of the live rows of the base file and of the log."""
    state = {}
    for number, (key, ordering, is_delete) in enumerate(log):
        if key in state and is_delete and state[key][2] and has_none(state[key][1], True):
            continue
        if key not in state or newer_wins(
            state[key][1], ordering, old_ends=state[key][2], new_ends=is_delete
        ):
            state[key] = number, ordering, is_delete
    live_base = set()
    for number, (key, ordering, _) in enumerate(base):
        if key in state and newer_wins(ordering, state[key][1], new_ends=state[key][2]):
            continue
        state.pop(key, None)
        live_base.add(number)
    return live_base, {number for number, _, is_delete in state.values() if not is_delete}


def events(rows, fields, type=None):
    return Events(
        pa.array([key for key, _, _ in rows], pa.string()),
        [
            pa.array([ordering[at] for _, ordering, _ in rows], type or pa.int64())
            for at in range(fields)
        ],
        np.array([is_delete for _, _, is_delete in rows], bool),
    )


@st.composite
def slices(draw):
    fields = draw(st.integers(0, 2))
    ordering = st.tuples(*[VALUES] * fields)
    keys = draw(st.lists(KEYS, unique=True))
    base = [(key, draw(ordering), False) for key in keys]
    return base, draw(st.lists(st.tuples(KEYS, ordering, st.booleans()), max_size=12)), fields


@given(slices())
def test_live_rows_are_those_of_a_fold(case):
    base, log, fields = case
    found = live_rows(events(base, fields), events(log, fields))
    assert tuple(set(np.flatnonzero(live).tolist()) for live in found) == folded(base, log)


def test_a_commit_time_delete_ends_older_rows_of_the_log_and_not_a_newer_base_row():
    base = [("a", (9,), False), ("b", (9,), False), ("c", (9,), False)]
    log = [
        ("a", (20,), False),
        ("a", (None,), True),
        ("a", (1,), False),  # wins in the log, is older than the base row
        ("b", (None,), True),
        ("c", (8,), True),
    ]
    base_live, log_live = live_rows(events(base, 1), events(log, 1))
    assert base_live.tolist() == [True, False, True]
    assert not log_live.any()


def test_a_delete_after_a_commit_time_delete_changes_nothing():
    base = [("a", (9,), False), ("b", (9,), False)]
    log = [
        ("a", (None,), True),
        ("a", (5,), True),
        ("b", (None,), True),
        ("b", (9,), False),
        ("b", (9,), True),
    ]
    base_live, log_live = live_rows(events(base, 1), events(log, 1))
    assert not base_live.any() and not log_live.any()


def test_a_marked_delete_replaces_a_commit_time_delete():
    base = events([("a", (9,), False), ("b", (9,), False)], 1)
    ends = [("a", (None,), True), ("a", (5,), True), ("b", (None,), True), ("b", (10,), True)]
    log = replace(events(ends, 1), is_marked=np.array([False, True, False, True]))
    assert live_rows(base, log)[0].tolist() == [True, False]


def test_a_repeated_key_of_the_base_file_meets_the_log_once():
    base_live, log_live = live_rows(
        events([("a", (1,), False), ("a", (1,), False)], 1), events([("a", (2,), False)], 1)
    )
    assert (base_live.tolist(), log_live.tolist()) == ([False, True], [True])


def test_not_a_number_is_larger_than_all_numbers_and_equal_to_itself():
    base = [("a", (1.0,), False), ("b", (float("nan"),), False), ("c", (float("nan"),), False)]
    log = [("a", (float("nan"),), False), ("b", (5.0,), False), ("c", (float("nan"),), False)]
    base_live, log_live = live_rows(events(base, 1, pa.float64()), events(log, 1, pa.float64()))
    assert base_live.tolist() == [False, True, False]
    assert log_live.tolist() == [True, False, True]


def test_minus_zero_is_below_zero():
    base_live, log_live = live_rows(
        events([("a", (0.0,), False), ("b", (-0.0,), False)], 1, pa.float32()),
        events([("a", (-0.0,), False), ("b", (0.0,), False)], 1, pa.float32()),
    )
    assert (base_live.tolist(), log_live.tolist()) == ([True, False], [False, True])


@pytest.mark.parametrize("type", [pa.int32(), pa.date32()])
def test_null_is_zero_where_hudi_can_compare_it(type):
    base = [("a", (5,), False), ("b", (None,), False), ("c", (-5,), False), ("d", (None,), False)]
    log = [("a", (None,), False), ("b", (-5,), False), ("c", (None,), False), ("d", (5,), False)]
    base_live, log_live = live_rows(events(base, 1, type), events(log, 1, type))
    assert base_live.tolist() == [True, True, False, False]
    assert log_live.tolist() == [False, False, True, True]
    ends = events([(key, (None,), True) for key in "abcd"], 1, type)
    assert not live_rows(events(base, 1, type), ends)[0].any(), "a delete without a value"


def test_a_null_in_a_further_field_matters_only_where_the_first_ones_are_equal():
    base = [(key, (5, 1), False) for key in "abc"]
    log = [("a", (3, None), False), ("b", (6, None), False), ("c", (4, None), True)]
    base_live, log_live = live_rows(events(base, 2), events(log, 2))
    assert (base_live.tolist(), log_live.tolist()) == ([True, False, True], [False, True, False])


def test_a_slice_may_have_no_base_file_or_no_log():
    rows = [("a", (1,), False), ("b", (2,), True)]
    base_live, log_live = live_rows(events([], 1), events(rows, 1))
    assert (base_live.tolist(), log_live.tolist()) == ([], [True, False])
    base_live, log_live = live_rows(events(rows[:1], 1), events([], 1))
    assert (base_live.tolist(), log_live.tolist()) == ([True], [])
