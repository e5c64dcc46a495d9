"""Instants: their text, names and order on Hudi's timelines."""

from __future__ import annotations

from io import BytesIO

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdt.errors import Invalid
from mdt.hudi import timeline
from mdt.hudi.commit_metadata import WRITTEN, CommitMetadata
from mdt.hudi.layout import LAYOUTS
from mdt.hudi.read import commit_metadata
from mdt.hudi.timeline import COMPLETED, INFLIGHT, REQUESTED, Instant
from mdt.hudi.v6 import Version6

T = "20261121053000123"
TIMES = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)
C = "20261121053000456"
V6, V9 = Version6(), LAYOUTS[9]


def test_an_instant_is_utc_to_the_millisecond():
    assert timeline.instant_text(0) == "19700101000000000"
    assert timeline.instant_text(1_795_239_000_123_999) == T
    assert timeline.instant_us(T) == 1_795_239_000_123_000
    assert timeline.instant_us(T[:14]) == timeline.instant_us(T[:14] + "999")


@given(TIMES, TIMES)
def test_instants_round_trip_and_sort_as_their_times(a, b):
    first, second = timeline.instant_text(a), timeline.instant_text(b)
    assert timeline.instant_us(first) == a - a % 1000
    assert (first < second) == (a // 1000 < b // 1000)


@pytest.mark.parametrize(
    "text", ["", "2026", T + "0", "20261321053000123", "2026112105300012a", "２" * 17]
)
def test_invalid_instants_are_refused(text):
    with pytest.raises(Invalid):
        timeline.instant_us(text)


def test_times_after_the_year_9999_are_refused():
    with pytest.raises(Invalid):
        timeline.instant_text(10**18)


@pytest.mark.parametrize("text", [T, T[:14]])
def test_times_have_seventeen_digits_or_fourteen_in_old_tables(text):
    assert timeline.is_time(text)
    wrong = ("", f"{text}0", f"{text[:-1]}a", f"{text}\n", "２" * len(text))
    assert not any(map(timeline.is_time, wrong))


@pytest.mark.parametrize("state", [REQUESTED, INFLIGHT, COMPLETED])
@pytest.mark.parametrize("action", sorted(timeline.ACTIONS))
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=map(str, LAYOUTS))
def test_names_of_instants_round_trip_for_every_action_state_and_layout(action, state, layout):
    is_timed = layout.has_completions and state == COMPLETED
    instant = Instant(T, action, state, C if is_timed else "")
    parsed = layout.instant_at(layout.path_of(instant))
    assert parsed == instant and parsed.completion == instant.completion


def test_an_inflight_commit_has_a_short_name():
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
def test_other_names_and_folders_are_not_instants(name):
    assert V6.instant_at(f".hoodie/{name}") is None
    assert V6.instant_at(f"{T}.commit") is None


def test_a_completed_instant_of_version_9_has_its_completion_time_in_its_name():
    assert V9.completed_path(T, "", "commit") == f".hoodie/timeline/{T}_{T}.commit"
    assert V9.completed_path(T, C, "compaction") == f".hoodie/timeline/{T}_{C}.commit"


@pytest.mark.parametrize("name", [f"{T}_{C}.commit.requested", f"{T}_.commit", f"{T}_{C}.ourindex"])
def test_other_names_and_folders_are_not_instants_of_version_9(name):
    assert V9.instant_at(f".hoodie/timeline/{name}") is None
    assert V9.instant_at(f".hoodie/{T}_{C}.commit") is None


@pytest.mark.parametrize(
    ("action", "operation", "planned"),
    [
        ("compaction", "COMPACT", "compaction"),
        ("replacecommit", "CLUSTER", "clustering"),
        ("replacecommit", "INSERT_OVERWRITE", "replacecommit"),
        ("deltacommit", "UPSERT", ""),
    ],
)
def test_in_version_9_the_plan_of_a_table_service_replaces_its_announcement(
    action, operation, planned
):
    replaced = {} if action == "replacecommit" else None
    empty = CommitMetadata(
        WRITTEN.empty_table(), "{}", operation, compacted=False, replaced=replaced
    )
    completed, *plans = [path for path, _ in V9.completed(T, C, action, empty, ())]
    assert completed == V9.completed_path(T, C, action)
    states = (REQUESTED, INFLIGHT) if planned else ()
    assert plans == [V9.path_of(Instant(T, planned, state)) for state in states]
    announced = V9.retracted(T, action)
    is_replaced = planned in ("compaction", "clustering")
    assert list(V9.superseded(T, action, operation)) == (announced if is_replaced else [])


def test_the_write_stat_of_a_version_9_log_file_has_no_base_file_and_no_older_log_files():
    row = {
        "partition": "x",
        "file_id": "f-0",
        "name": f".f-0_{T}.log.1_0-1-0",
        "log_version": 1,
        "size": 5,
        "rows": 2,
        "inserts": 0,
        "updates": 2,
        "deletes": 0,
        "previous_instant": C,
        "base_name": "f-0_0-1-0_1.parquet",
        "log_names": ["older", "newer"],
    }
    files = WRITTEN.empty_table().from_pylist([row], schema=WRITTEN)
    metadata = CommitMetadata(files, "{}", "UPSERT", compacted=False, extra={"mdt.seq": "3"})
    ((_, body),) = V9.completed(T, C, "deltacommit", metadata, ())
    assert V9.extra(body)["mdt.seq"] == "3"
    decoded = commit_metadata.decode(body, "")
    assert [file.path for file in decoded.files] == [f"x/{row['name']}"]
    (stat,) = next(fastavro.reader(BytesIO(body)))["partitionToWriteStats"]["x"]
    assert (stat["prevCommit"], stat["baseFile"], stat["logFiles"]) == (T, "", [row["name"]])
    assert (stat["logVersion"], stat["numUpdateWrites"]) == (1, 2)


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
def test_an_action_is_announced_without_its_plan_which_is_written_after_it_completed(
    action, pending, completed
):
    paths = [f".hoodie/{T}.{name}" for name in pending]
    assert V6.announced(T, action) == [(path, b"") for path in paths]
    assert V6.retracted(T, action) == paths[::-1]
    empty = CommitMetadata(WRITTEN.empty_table(), "{}", "COMPACT", compacted=True)
    written = [path for path, _ in V6.completed(T, "", action, empty, ())]
    assert written == [f".hoodie/{T}.{name}" for name in completed]
