from __future__ import annotations

import pytest

from mdt.hudi import timeline
from mdt.hudi.commit_metadata import WRITTEN, CommitMetadata
from mdt.hudi.timeline import COMPLETED, INFLIGHT, REQUESTED, Instant
from mdt.hudi.v6 import Version6

T = "20261121053000123"
V6 = Version6()
NOTHING = CommitMetadata(WRITTEN.empty_table(), "{}", "COMPACT", compacted=True)


@pytest.mark.parametrize("state", [REQUESTED, INFLIGHT, COMPLETED])
@pytest.mark.parametrize("action", sorted(timeline.ACTIONS))
def test_names_round_trip_for_every_action(action: str, state: str) -> None:
    instant = Instant(T, action, state)
    assert V6.instant_at(V6.path_of(instant)) == instant


def test_inflight_commit_has_the_short_name() -> None:
    assert V6.path_of(Instant(T, "commit", INFLIGHT)) == f".hoodie/{T}.inflight"
    assert V6.instant_at(f".hoodie/{T}.commit.inflight") is None


@pytest.mark.parametrize(
    "name",
    [
        "hoodie.properties",
        T,
        f"{T}.",
        f"{T}.ourindex",
        f"{T}.commit.done",
        f".{T}.commit",
        f"{T}.commit\n",
        f"{T}.requested",
        f"{T}.inflight.requested",
        "2026.commit",
        f"timeline/{T}.commit",
        f"../.hoodie/{T}.commit",
    ],
)
def test_foreign_names_are_no_instants(name: str) -> None:
    assert V6.instant_at(f".hoodie/{name}") is None
    assert V6.instant_at(f"{T}.commit") is None


def test_a_commit_is_announced_in_two_steps_and_taken_back_in_the_other_order() -> None:
    pending = [f".hoodie/{T}.deltacommit.requested", f".hoodie/{T}.deltacommit.inflight"]
    assert V6.announced(T, "deltacommit") == [(path, b"") for path in pending]
    assert V6.retracted(T, "deltacommit") == pending[::-1]


def test_a_clustering_is_announced_without_its_plan_which_is_shown_after_it_has_completed() -> None:
    written = [path for path, _ in V6.completed(T, "replacecommit", NOTHING, ())]
    assert V6.announced(T, "replacecommit") == [(path, b"") for path in written[1:]]
    assert written == [f".hoodie/{T}.replacecommit{end}" for end in ("", ".requested", ".inflight")]


def test_a_compaction_is_announced_as_the_commit_that_it_becomes_and_its_plan_is_shown_after_that() -> (
    None
):
    written = [path for path, _ in V6.completed(T, "compaction", NOTHING, ())]
    pending = [f".hoodie/{T}.commit.requested", f".hoodie/{T}.inflight"]
    assert V6.announced(T, "compaction") == [(path, b"") for path in pending]
    assert V6.retracted(T, "compaction") == pending[::-1]
    assert written == [
        f".hoodie/{T}.commit",
        f".hoodie/{T}.compaction.requested",
        f".hoodie/{T}.compaction.inflight",
    ]
