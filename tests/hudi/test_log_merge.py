"""Live rows found by sorting equal those of a fold over the rows, which is how Hudi merges."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdt.hudi.log_merge import Events, live_rows

KEYS = st.sampled_from("abcd")
VALUES = st.none() | st.integers(-1, 2)
ROW, RECORD, MARK = "row", "delete record", "marked row"
"""Kinds of events."""


def has_none(ordering, kind, is_int=False):
    """Return True if an event has no ordering value.

    With a single ordering field, that is an event with null. Among 32-bit integers, it is a delete
    with null or 0 instead. With several fields, it is a delete record with nulls only.
    """
    if len(ordering) == 1:
        return kind != ROW and not ordering[0] if is_int else ordering[0] is None
    return kind == RECORD and bool(ordering) and set(ordering) == {None}


def newer_wins(old, new, *, old_kind=ROW, new_kind=ROW, is_int=False):
    """Return True if an event with the ordering values ``new`` replaces an older event."""
    if has_none(old, old_kind, is_int) or has_none(new, new_kind, is_int):
        return True
    null = 0 if is_int else -9
    return [null if value is None else value for value in new] >= [
        null if value is None else value for value in old
    ]


def fold(base, log, is_int):
    """Return the numbers of the live rows in the base file and in the log."""
    state = {}
    for number, (key, ordering, kind) in enumerate(log):
        _, old, old_kind = state.get(key, (0, (), ROW))
        if kind == RECORD and old_kind != ROW and has_none(old, old_kind, is_int):
            continue
        kinds = {"old_kind": old_kind, "new_kind": kind, "is_int": is_int}
        if key not in state or newer_wins(old, ordering, **kinds):
            state[key] = number, ordering, kind
    live_base = set()
    for number, (key, ordering, _) in enumerate(base):
        _, new, kind = state.get(key, (0, (), ROW))
        if key in state and newer_wins(ordering, new, new_kind=kind, is_int=is_int):
            continue
        state.pop(key, None)
        live_base.add(number)
    return live_base, {number for number, _, kind in state.values() if kind == ROW}


def events(rows, fields, type=None):
    return Events(
        pa.array([key for key, _, _ in rows], pa.string()),
        [
            pa.array([ordering[at] for _, ordering, _ in rows], type or pa.int64())
            for at in range(fields)
        ],
        np.array([kind != ROW for _, _, kind in rows], bool),
        np.array([kind == MARK for _, _, kind in rows], bool),
    )


@st.composite
def slices(draw):
    fields = draw(st.integers(0, 2))
    ordering = st.tuples(*[VALUES] * fields)
    keys = draw(st.lists(KEYS, unique=True))
    base = [(key, draw(ordering), ROW) for key in keys]
    kinds = st.sampled_from([ROW, RECORD, MARK])
    return base, draw(st.lists(st.tuples(KEYS, ordering, kinds), max_size=12)), fields


@pytest.mark.parametrize("type", [pa.int64(), pa.int32()])
@given(case=slices())
def test_live_rows_equal_those_of_a_row_by_row_fold(type, case):
    base, log, fields = case
    masks = live_rows(events(base, fields, type), events(log, fields, type))
    numbers = tuple(set(np.flatnonzero(numbers).tolist()) for numbers in masks)
    assert numbers == fold(base, log, pa.types.is_int32(type))


def test_a_commit_time_delete_drops_older_log_rows_and_not_the_base_row_if_a_late_row_follows():
    base = [("a", (9,), ROW), ("b", (9,), ROW), ("c", (9,), ROW)]
    log = [
        ("a", (20,), ROW),
        ("a", (None,), RECORD),
        ("a", (1,), ROW),  # wins in the log, but is older than the base row
        ("b", (None,), RECORD),
        ("c", (8,), RECORD),
    ]
    base_live, log_live = live_rows(events(base, 1), events(log, 1))
    assert base_live.tolist() == [True, False, True]
    assert not log_live.any()


def test_a_delete_after_a_commit_time_delete_changes_nothing():
    base = [("a", (9,), ROW), ("b", (9,), ROW)]
    log = [
        ("a", (None,), RECORD),
        ("a", (5,), RECORD),
        ("b", (None,), RECORD),
        ("b", (9,), ROW),
        ("b", (9,), RECORD),
    ]
    base_live, log_live = live_rows(events(base, 1), events(log, 1))
    assert not base_live.any() and not log_live.any()


def test_a_marked_delete_replaces_a_commit_time_delete():
    base = events([("a", (9,), ROW), ("b", (9,), ROW)], 1)
    deletes = [
        ("a", (None,), RECORD),
        ("a", (5,), MARK),
        ("b", (None,), RECORD),
        ("b", (10,), MARK),
    ]
    assert live_rows(base, events(deletes, 1))[0].tolist() == [True, False]


@pytest.mark.parametrize("type", [pa.int32(), pa.int64()])
def test_a_marked_delete_with_nulls_in_several_ordering_fields_loses_to_the_base_row(type):
    base = events([("a", (5, 5), ROW), ("b", (5, 5), ROW)], 2, type)
    deletes = events([("a", (None, None), MARK), ("b", (None, None), RECORD)], 2, type)
    assert live_rows(base, deletes)[0].tolist() == [True, False]


def test_only_one_of_the_base_rows_with_the_same_key_is_merged_with_the_log():
    base_live, log_live = live_rows(
        events([("a", (1,), ROW), ("a", (1,), ROW)], 1), events([("a", (2,), ROW)], 1)
    )
    assert (base_live.tolist(), log_live.tolist()) == ([False, True], [True])


def test_nan_is_larger_than_all_numbers_and_equal_to_itself():
    base = [("a", (1.0,), ROW), ("b", (float("nan"),), ROW), ("c", (float("nan"),), ROW)]
    log = [("a", (float("nan"),), ROW), ("b", (5.0,), ROW), ("c", (float("nan"),), ROW)]
    base_live, log_live = live_rows(events(base, 1, pa.float64()), events(log, 1, pa.float64()))
    assert base_live.tolist() == [False, True, False]
    assert log_live.tolist() == [True, False, True]


def test_negative_zero_is_smaller_than_positive_zero():
    base_live, log_live = live_rows(
        events([("a", (0.0,), ROW), ("b", (-0.0,), ROW)], 1, pa.float32()),
        events([("a", (-0.0,), ROW), ("b", (0.0,), ROW)], 1, pa.float32()),
    )
    assert (base_live.tolist(), log_live.tolist()) == ([True, False], [False, True])


@pytest.mark.parametrize("type", [pa.int32(), pa.date32()])
def test_null_equals_zero_in_ordering_fields_of_32_bit_integers_and_dates(type):
    base = [("a", (5,), ROW), ("b", (None,), ROW), ("c", (-5,), ROW), ("d", (None,), ROW)]
    log = [("a", (None,), ROW), ("b", (-5,), ROW), ("c", (None,), ROW), ("d", (5,), ROW)]
    base_live, log_live = live_rows(events(base, 1, type), events(log, 1, type))
    assert base_live.tolist() == [True, True, False, False]
    assert log_live.tolist() == [False, False, True, True]
    deletes = events([(key, (None,), RECORD) for key in "abcd"], 1, type)
    assert not live_rows(events(base, 1, type), deletes)[0].any(), (
        "a delete without an ordering value"
    )


def test_a_null_in_a_later_ordering_field_has_no_effect_if_earlier_fields_differ():
    base = [(key, (5, 1), ROW) for key in "abc"]
    log = [("a", (3, None), ROW), ("b", (6, None), ROW), ("c", (4, None), RECORD)]
    base_live, log_live = live_rows(events(base, 2), events(log, 2))
    assert (base_live.tolist(), log_live.tolist()) == ([True, False, True], [False, True, False])


def test_a_slice_may_have_no_base_file_or_no_log():
    rows = [("a", (1,), ROW), ("b", (2,), RECORD)]
    base_live, log_live = live_rows(events([], 1), events(rows, 1))
    assert (base_live.tolist(), log_live.tolist()) == ([], [True, False])
    base_live, log_live = live_rows(events(rows[:1], 1), events([], 1))
    assert (base_live.tolist(), log_live.tolist()) == ([True], [])
