"""Instants: their text, and their names and order on Hudi's timeline of version 6."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdt.errors import Invalid
from mdt.hudi import timeline
from mdt.hudi.commit_metadata import WRITTEN, CommitMetadata
from mdt.hudi.timeline import COMPLETED, INFLIGHT, REQUESTED, Instant
from mdt.hudi.v6 import Version6

T = "20261121053000123"
TIMES = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)
V6 = Version6()


def test_an_instant_is_utc_to_the_millisecond():
    assert timeline.instant_text(0) == "19700101000000000"
    assert timeline.instant_text(1_795_239_000_123_999) == T
    assert timeline.instant_us(T) == 1_795_239_000_123_000
    assert timeline.instant_us(T[:14]) == timeline.instant_us(T[:14] + "999")


@given(TIMES, TIMES)
def test_instants_come_back_and_order_as_their_times(a, b):
    first, second = timeline.instant_text(a), timeline.instant_text(b)
    assert timeline.instant_us(first) == a - a % 1000
    assert (first < second) == (a // 1000 < b // 1000)


@pytest.mark.parametrize(
    "text", ["", "2026", T + "0", "20261321053000123", "2026112105300012a", "２" * 17]
)
def test_what_is_no_instant_is_refused(text):
    with pytest.raises(Invalid):
        timeline.instant_us(text)


def test_times_beyond_the_calendar_are_refused():
    with pytest.raises(Invalid):
        timeline.instant_text(10**18)


@pytest.mark.parametrize("text", [T, T[:14]])
def test_seventeen_digits_are_a_time_and_fourteen_of_old_tables(text):
    assert timeline.is_time(text)
    wrong = ("", f"{text}0", f"{text[:-1]}a", f"{text}\n", "２" * len(text))
    assert not any(map(timeline.is_time, wrong))


@pytest.mark.parametrize("state", [REQUESTED, INFLIGHT, COMPLETED])
@pytest.mark.parametrize("action", sorted(timeline.ACTIONS))
def test_names_come_back_for_every_action(action, state):
    instant = Instant(T, action, state)
    assert V6.instant_at(V6.path_of(instant)) == instant


def test_an_inflight_commit_has_the_short_name():
    assert V6.path_of(Instant(T, "commit", INFLIGHT)) == f".hoodie/{T}.inflight"


@pytest.mark.parametrize(
    "name",
    [
        "hoodie.properties",
        T,
        f"{T}.",
        f"{T}.ourindex",
        f"{T}.commit.done",
        f"{T}.commit.inflight",
        f".{T}.commit",
        f"{T}.commit\n",
        f"{T}.requested",
        f"{T}.inflight.requested",
        "2026.commit",
        f"timeline/{T}.commit",
        f"../.hoodie/{T}.commit",
        f"../{T}.commit",
    ],
)
def test_foreign_names_are_no_instants(name):
    assert V6.instant_at(f".hoodie/{name}") is None
    assert V6.instant_at(f"{T}.commit") is None


@pytest.mark.parametrize(
    ("action", "pending", "completed"),
    [
        ("deltacommit", ["deltacommit.requested", "deltacommit.inflight"], ["deltacommit"]),
        (
            "replacecommit",
            ["replacecommit.requested", "replacecommit.inflight"],
            ["replacecommit", "replacecommit.requested", "replacecommit.inflight"],
        ),
        (
            "compaction",
            ["commit.requested", "inflight"],
            ["commit", "compaction.requested", "compaction.inflight"],
        ),
    ],
)
def test_an_action_is_announced_without_its_plan_which_is_shown_after_it_has_completed(
    action, pending, completed
):
    paths = [f".hoodie/{T}.{name}" for name in pending]
    assert V6.announced(T, action) == [(path, b"") for path in paths]
    assert V6.retracted(T, action) == paths[::-1]
    nothing = CommitMetadata(WRITTEN.empty_table(), "{}", "COMPACT", compacted=True)
    written = [path for path, _ in V6.completed(T, action, nothing, ())]
    assert written == [f".hoodie/{T}.{name}" for name in completed]
