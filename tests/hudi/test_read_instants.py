"""Names of instants in both layouts, and the state of instants on a timeline."""

from __future__ import annotations

import pytest

from mdt.hudi.read.instants import InstantFile, Timeline, parse_name, timeline_of
from mdt.hudi.timeline import ACTIONS, COMPLETED, INFLIGHT, REQUESTED


def time(number: int) -> str:
    return f"20240101{number:09}"


T, C = time(1), time(2)


def timeline(*names: str, layout: int = 2) -> Timeline:
    """Return the timeline of instants such as ``3.commit.requested`` and ``3_5.commit``."""
    files = []
    for name in names:
        times, _, rest = name.partition(".")
        full = "_".join(time(int(number)) for number in times.split("_"))
        file = parse_name(f"{full}.{rest}", layout)
        assert file is not None, name
        files.append(file)
    return timeline_of(files)


@pytest.mark.parametrize("action", sorted(ACTIONS))
@pytest.mark.parametrize("layout", [1, 2])
def test_pending_instants_have_the_same_names_in_both_layouts(layout, action):
    for state in (REQUESTED, INFLIGHT):
        assert parse_name(f"{T}.{action}.{state}", layout) == InstantFile(T, "", action, state)


@pytest.mark.parametrize("action", sorted(ACTIONS))
def test_a_completed_instant_has_its_completion_time_in_layout_2(action):
    assert parse_name(f"{T}_{C}.{action}", 2) == InstantFile(T, C, action, COMPLETED)
    assert parse_name(f"{T}_{C}.{action}", 1) is None
    for layout in (1, 2):
        assert parse_name(f"{T}.{action}", layout) == InstantFile(T, T, action, COMPLETED)


@pytest.mark.parametrize("layout", [1, 2])
def test_an_inflight_commit_has_a_short_name(layout):
    assert parse_name(f"{T}.inflight", layout) == InstantFile(T, "", "commit", INFLIGHT)


@pytest.mark.parametrize("digits", [14, 17, 20])
def test_times_have_14_to_20_digits(digits):
    assert parse_name(f"{'1' * digits}.commit", 1) is not None
    assert parse_name(f"{'1' * digits}_{C}.commit", 2) is not None


@pytest.mark.parametrize(
    "name",
    [
        "hoodie.properties",
        T,
        f"{T}.",
        f"{T}.requested",
        f"{T}.ourindex",
        f"{T}_{C}.commit.inflight",
        f"{T}_{C}.inflight",
        f"{T}_.commit",
        f"{T}.commit.done",
        f"{T}.commit\n",
        f".{T}.commit",
        "2024.commit",
        f"{'1' * 24}.commit",
        "１" * 17 + ".commit",
        "",
    ],
)
@pytest.mark.parametrize("layout", [1, 2])
def test_other_names_are_not_instants(layout, name):
    assert parse_name(name, layout) is None


def test_a_write_is_completed_if_its_completed_file_exists():
    active = timeline("3.commit.requested", "3.inflight", "3_5.commit", "4.deltacommit.requested")
    assert active.is_completed(time(3)) and not active.is_completed(time(4))
    assert active.completion(time(3)) == time(5)
    assert active.completion(time(4)) is None
    assert list(active.pending) == [time(4)]


def test_instants_before_the_first_active_write_are_completed():
    active = timeline("3_4.commit", "5.commit.requested")
    assert active.start == time(3)
    assert active.is_completed(time(2)) and active.completion(time(2)) == time(2)
    assert not active.is_completed(time(6)) and active.completion(time(6)) is None


def test_a_pending_write_at_the_head_starts_the_timeline_and_is_not_completed():
    active = timeline("2.deltacommit.inflight", "3.deltacommit", layout=1)
    assert active.start == time(2) and not active.is_completed(time(2))
    assert active.is_completed(time(1))


def test_instants_of_table_services_do_not_start_the_timeline():
    active = timeline("1_2.clean", "2_3.rollback", "3.indexing.requested", "7_8.commit")
    assert active.start == time(7) and active.is_completed(time(5))


def test_a_savepoint_and_its_commit_do_not_start_the_timeline():
    saved = ("2_3.commit", "2.savepoint.inflight", "2_4.savepoint")
    active = timeline(*saved, "7_8.commit")
    assert active.start == time(7)
    assert active.is_completed(time(5)) and active.completion(time(2)) == time(3)
    assert timeline(*saved).start == ""
    assert not timeline(*saved).is_completed(time(1))


def test_an_empty_timeline_has_no_completed_instants():
    empty = timeline()
    assert (empty.start, empty.files, empty.writes()) == ("", (), [])
    assert not empty.is_completed(time(1))


def test_a_compaction_is_pending_until_its_commit():
    requested = ("3.compaction.requested", "3.compaction.inflight")
    assert timeline(*requested).is_pending_compaction(time(3))
    assert timeline(*requested).pending[time(3)].state == REQUESTED
    assert timeline("3.compaction.inflight").pending[time(3)].state == INFLIGHT
    assert not timeline(*requested, "3_5.commit").is_pending_compaction(time(3))
    assert not timeline("3.clustering.requested").is_pending_compaction(time(3))


def test_completion_times_of_archived_instants_come_from_the_history():
    active = timeline("5_6.commit").with_history({time(2): time(4), time(7): time(8)})
    assert active.completion(time(2)) == time(4) and active.completion(time(1)) == time(1)
    assert active.is_completed(time(7)) and active.completion(time(7)) == time(8)
    assert active.with_history({time(1): time(3)}).completion(time(2)) == time(4)


def test_the_history_does_not_override_the_active_timeline():
    active = timeline("5_6.commit", "7.commit.requested")
    active = active.with_history({time(5): time(9), time(7): time(9)})
    assert active.completion(time(5)) == time(6) and not active.is_completed(time(7))
    assert not active.needs_history(time(5)) and not active.needs_history(time(7))
    assert active.needs_history(time(2))


def test_writes_are_ordered_by_their_completion_time():
    active = timeline("1_9.deltacommit", "2_3.commit", "4_5.clean", "4_6.replacecommit")
    assert [file.time for file in active.writes()] == [time(2), time(4), time(1)]
    assert [file.time for file in active.of_action("clean")] == [time(4)]
    assert active.of_action("commit", REQUESTED) == []


def test_the_earlier_of_two_completion_times_of_an_instant_is_used():
    assert timeline("3_5.commit", "3_4.commit").completion(time(3)) == time(4)
