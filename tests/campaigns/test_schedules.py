"""Two and three writers, services and readers through every interleaving of their phases: as if one
came after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from counting import count
from schedules import (
    EVERY_PAUSE,
    Actor,
    Run,
    alter,
    clustering,
    compaction,
    delete,
    explore,
    index_build,
    index_change,
    joining,
    log_compaction,
    reader,
    restore,
    rollback_of_all,
    upsert,
)
from worlds import (
    BASE_STATE,
    CLUSTERED_STATE,
    COW,
    MOR,
    State,
    as_state,
    assert_clean,
    filled,
    logged,
    ours,
    spread,
    theirs,
    told,
)

import mdt
from mdt.commit import conflicts, publish
from mdt.commit.conflicts import Footprint
from mdt.errors import MdtError
from mdt.metadata.files.file_group import LOG
from mdt.metadata.log.commit_log import CommitRecord
from mdt.services.layout import small_files
from mdt.stores.storage import MemoryStorage

pytestmark = pytest.mark.usefixtures("records_decoded_once")

KINDS = [(MOR, "record"), (MOR, "bloom"), (COW, "bloom")]


def kinds(quick: int, *nightly: int) -> pytest.MarkDecorator:
    """Run a test on one kind of table, and on others at night."""
    more = [pytest.param(KINDS[n], marks=pytest.mark.nightly) for n in nightly]
    return pytest.mark.parametrize("kind", [KINDS[quick], *more], ids="-".join)


CHECK_EVERY = 9
"""A full check costs more than a schedule; rows, history and claims are looked at after each one.
"""


def states(actors: Sequence[Actor], run: Run, newest: int) -> list[State]:
    """Return what the table must hold after each commit to ``newest``: the model, applied in the
    order of the commits.
    """
    model = {e.seq: actors[n].model for n, e in run.ended.items() if e.seq >= 0}
    found: list[State] = [{}, upserted_first(), BASE_STATE]
    if run.spread:
        found.append(CLUSTERED_STATE)
    for seq in range(len(found), newest + 1):
        found.append(model.get(seq, lambda state: state)(found[-1]))
    return found


def upserted_first() -> State:
    return {key: (1, 1.0) for key in BASE_STATE}


def assert_serial(actors: Sequence[Actor], run: Run) -> None:
    """Assert that the run left what its actors, one after the other in the order of their commits,
    would leave.
    """
    commits = told(run.storage)
    assert commits.seqs == list(range(commits.seq + 1)), run.schedule
    assert ours(run.storage) == states(actors, run, commits.seq)[-1], run.schedule
    assert not commits.pending, run.schedule
    acknowledged = {e.record.txn for e in run.ended.values() if e.seq >= 0}
    assert acknowledged <= commits.txns, run.schedule


def explored(
    kind: tuple[str, str],
    *actors: Actor,
    preemptions: int | None = None,
    check_every: int = CHECK_EVERY,
    is_spread: bool = False,
    is_beyond_hudi: bool = False,
    start: Callable[..., MemoryStorage] = filled,
) -> list[Run]:
    """Run every schedule, assert what holds for all, and return the runs.

    ``is_spread``: with two file groups a partition.  ``is_beyond_hudi``: columns are altered as
    hudi-rs does not read them, so it is not asked.
    """
    runs = []
    start = spread if is_spread else start
    for number, run in enumerate(explore(lambda: start(*kind), actors, preemptions=preemptions)):
        run.spread = is_spread
        count("schedules")
        assert_serial(actors, run)
        if number % check_every == 0:
            assert is_beyond_hudi or ours(run.storage) == theirs(run.storage), run.schedule
            assert_clean(run.storage)
        runs.append(run)
    count("conflicts in schedules", sum(run.conflicts for run in runs))
    return runs


@kinds(0, 2)
@pytest.mark.parametrize(
    ("other", "of_logs", "of_base_files"),
    [
        (upsert([0, 20], 4, 4.0), {0, 1}, {0, 1}),
        (upsert([20, 21], 4, 4.0), {0, 1}, {0, 1}),
        (upsert([1, 22], 4, 4.0), {0}, {0, 1}),
        (delete([0, 1]), {0, 1}, {0, 1}),
        (compaction(), {0, 1}, {0}),
    ],
    ids=["same rows", "same new key", "other rows", "delete", "compaction"],
)
def test_a_writer_in_tasks_and_another_end_as_one_after_the_other_in_every_schedule(
    kind: tuple[str, str], other: Actor, of_logs: set[int], of_base_files: set[int]
) -> None:
    runs = explored(kind, upsert([0, 2, 20], 3, 3.0, in_tasks=True), other, preemptions=2)
    assert {run.conflicts for run in runs} == (of_logs if kind[0] == MOR else of_base_files)


@kinds(2, 0, 1)
def test_of_two_writers_of_one_key_the_larger_ordering_value_wins_in_every_schedule(
    kind: tuple[str, str],
) -> None:
    runs = explored(kind, upsert([0], 3, 3.0), upsert([0], 4, 4.0))
    assert all(ours(run.storage)["k0"] == (4, 4.0) for run in runs)
    assert {run.conflicts for run in runs} == {0, 1}
    assert {len([e for e in run.ended.values() if e.seq >= 0]) for run in runs} == {1, 2}, (
        "one may come late"
    )


@pytest.mark.nightly
def test_of_two_writers_of_one_key_with_equal_ordering_values_the_later_commit_wins() -> None:
    runs = explored((MOR, "record"), upsert([0], 3, 3.0), upsert([0], 3, 4.0))
    assert {ours(run.storage)["k0"] for run in runs} == {(3, 3.0), (3, 4.0)}
    assert {run.conflicts for run in runs} == {0, 1}


@kinds(0, 1, 2)
def test_writers_of_different_keys_in_one_file_group_both_succeed(kind: tuple[str, str]) -> None:
    runs = explored(kind, upsert([0], 3, 3.0), upsert([2], 3, 4.0))
    assert {run.conflicts for run in runs} == ({0} if kind[0] == MOR else {0, 1})


def test_a_row_that_came_late_for_one_that_another_writer_deletes_is_looked_at_again() -> None:
    runs = explored((MOR, "record"), upsert([0, 4], 1, 9.0), delete([0]))
    assert {run.conflicts for run in runs} == {0, 1}
    assert {"k0" in ours(run.storage) for run in runs} == {False, True}


@kinds(2, 0, 1)
def test_a_restore_undoes_what_was_committed_before_it_and_nothing_after_it(
    kind: tuple[str, str],
) -> None:
    runs = explored(kind, restore(1, upserted_first()), upsert([0, 9], 3, 3.0))
    assert {run.conflicts for run in runs} >= {0, 1}


@pytest.mark.nightly
def test_a_restore_and_a_delete_are_one_after_the_other() -> None:
    explored((MOR, "memory"), restore(1, upserted_first()), delete([1]))


@kinds(0, 2)
def test_writers_of_different_file_groups_never_conflict(kind: tuple[str, str]) -> None:
    runs = explored(kind, upsert([0], 3, 3.0), upsert([1], 3, 4.0))
    assert {run.conflicts for run in runs} == {0}


@kinds(1, 0)
def test_a_new_key_that_two_writers_upsert_lives_once(kind: tuple[str, str]) -> None:
    runs = explored(kind, upsert([20], 3, 3.0), upsert([20], 4, 4.0))
    assert {ours(run.storage)["k20"] for run in runs} == {(4, 4.0)}
    assert {run.conflicts for run in runs} == {0, 1}


def test_different_new_keys_in_new_file_groups_never_conflict() -> None:
    runs = explored(
        (MOR, "bloom"), upsert([20], 3, 3.0, "bulk_insert"), upsert([22], 4, 4.0, "bulk_insert")
    )
    assert {run.conflicts for run in runs} == {0}


def test_of_two_inserts_of_one_new_key_exactly_one_is_refused() -> None:
    for run in explored(
        (MOR, "bucket(buckets='1')"), upsert([20], 3, 3.0, "insert"), upsert([20], 4, 4.0, "insert")
    ):
        assert sorted(bool(e.refused) for e in run.ended.values()) == [False, True]


@pytest.mark.nightly
def test_an_insert_and_a_delete_of_one_new_key_end_as_one_after_the_other() -> None:
    runs = explored((MOR, "simple"), upsert([20], 3, 3.0), delete([20, 0]))
    assert {"k20" in ours(run.storage) for run in runs} == {True, False}


@kinds(2, 0, 1)
def test_an_update_and_a_delete_of_one_key_end_as_one_after_the_other(
    kind: tuple[str, str],
) -> None:
    runs = explored(kind, upsert([0], 3, 3.0), delete([0]))
    assert {"k0" in ours(run.storage) for run in runs} == {True, False}


@kinds(0, 1)
def test_a_compaction_leaves_out_the_file_group_that_changed_and_commits_the_rest(
    kind: tuple[str, str],
) -> None:
    runs = explored(kind, upsert([0], 3, 3.0), compaction(), check_every=3)
    narrowed = 0
    for run in runs:
        upserting, compacting = run.ended[0], run.ended[1]
        assert compacting.attempts == 1, (
            "a compaction never starts again for one changed file group"
        )
        partitions = set(compacting.record.table("files")["partition"].to_pylist())
        assert "city=y" in partitions
        if "city=x" not in partitions:
            narrowed += 1
            assert upserting.seq < compacting.seq
            files = mdt.open(run.storage).files().to_pylist()
            assert {f["partition"] for f in files if f["kind"] == LOG} == {"city=x"}
            assert_clean(run.storage)
            assert theirs(run.storage) == ours(run.storage), run.schedule
    assert narrowed
    assert {run.conflicts for run in runs} == {0, 1}, (
        "the upsert starts again if the compaction was first"
    )


def test_two_compactions_leave_one_base_file_for_each_file_group() -> None:
    for run in explored((MOR, "record"), compaction(), compaction()):
        assert sorted(mdt.open(run.storage).files()["kind"].to_pylist()) == [0, 0]
        assert sorted(e.seq >= 0 for e in run.ended.values()) == [False, True], (
            "the second finds nothing to do"
        )


def test_two_handles_that_take_steps_at_once_end_with_a_base_file_for_each_file_group() -> None:
    for run in explored((MOR, "record"), compaction([0]), compaction([0, 1])):
        assert sorted(mdt.open(run.storage).files()["kind"].to_pylist()) == [0, 0], run.schedule
        assert run.ended[1].seq >= 0, "one of its file groups is left to it"


def test_a_log_compaction_leaves_out_the_file_group_that_changed_and_commits_the_rest() -> None:
    left_out = 0
    for run in explored((MOR, "lmdb"), upsert([0], 3, 3.0), log_compaction(), start=logged):
        compacting = run.ended[1]
        assert compacting.attempts == 1, (
            "a log compaction never starts again for one changed file group"
        )
        left_out += len(compacting.record.table("files")) == 1
        assert theirs(run.storage) == ours(run.storage), run.schedule
    assert left_out


@pytest.mark.nightly
@pytest.mark.parametrize(
    "other", [delete([0]), compaction(), log_compaction(), clustering()], ids=lambda one: one.name
)
def test_a_log_compaction_and_a_delete_or_a_service_end_as_one_after_the_other(
    other: Actor,
) -> None:
    for kind in KINDS[:2]:
        for run in explored(kind, other, log_compaction(), start=logged):
            assert theirs(run.storage) == ours(run.storage), run.schedule


@kinds(0, 1, 2)
def test_a_clustering_leaves_out_the_partition_that_changed_and_commits_the_rest(
    kind: tuple[str, str],
) -> None:
    runs = explored(kind, upsert([0], 3, 3.0), clustering(), check_every=3, is_spread=True)
    narrowed = 0
    for run in runs:
        clustered = run.ended[1]
        assert clustered.attempts == 1, "a clustering never starts again for one changed file group"
        assert "city=y" in clustered.record.replaced
        if "city=x" not in clustered.record.replaced:
            narrowed += 1
            assert theirs(run.storage) == ours(run.storage), run.schedule
    assert narrowed
    assert {run.conflicts for run in runs} == {0, 1}, (
        "the upsert starts again if its file group was replaced"
    )


@kinds(0, 2)
@pytest.mark.parametrize(
    "other", [delete([0, 1]), upsert([20, 21], 3, 3.0, "insert")], ids=["delete", "insert"]
)
def test_a_clustering_and_a_writer_end_as_one_after_the_other(
    kind: tuple[str, str], other: Actor
) -> None:
    explored(kind, clustering(("fare", "id"), "hilbert"), other, is_spread=True)


def test_two_clusterings_and_one_beside_a_compaction_keep_every_row() -> None:
    for run in explored((MOR, "record"), clustering(), clustering(("id",)), is_spread=True):
        assert len(mdt.open(run.storage).files()) == 2, "one file for each partition"
    for run in explored((MOR, "bloom"), clustering(), compaction(), is_spread=True, check_every=2):
        groups = mdt.open(run.storage).files()["file_id"].to_pylist()
        assert len(groups) == len(set(groups)), "no log files are left"


def test_joining_small_file_groups_ends_as_one_after_the_other_with_writers_and_services(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(small_files, "JOINED_MIN", 2)
    for other in (upsert([0, 20], 3, 3.0), compaction(), joining()):
        for run in explored((MOR, "bloom"), joining(), other, is_spread=True):
            assert (
                len({row["file_id"] for row in mdt.open(run.storage).files().to_pylist()}) <= 4
            ), run.schedule


def test_a_clustering_beside_the_builder_of_an_index_keeps_what_is_covered_right() -> None:
    def start() -> MemoryStorage:
        storage = spread(MOR, "record")
        mdt.open(storage).create_index("bitmap(fare)", mode="async")
        return storage

    actors = (clustering(), index_build())
    for run in explore(start, actors):
        count("schedules")
        table = mdt.open(run.storage)
        table.build_indexes()
        assert table.scan("fare = 1.5").count() == 6, run.schedule
        assert set(table.indexes()["coverage"].to_pylist()) == {100.0}
        assert_clean(run.storage)


def test_a_clustering_that_was_rolled_back_cannot_commit_and_tries_again() -> None:
    runs = explored(
        (MOR, "record"),
        clustering(),
        rollback_of_all(),
        preemptions=2,
        check_every=4,
        is_spread=True,
    )
    assert {run.ended[0].attempts for run in runs} == {1, 2}


@kinds(0, 1, 2)
def test_a_live_writer_that_was_rolled_back_cannot_commit_and_tries_again(
    kind: tuple[str, str],
) -> None:
    writer = upsert([0, 20], 3, 3.0, pauses=EVERY_PAUSE)
    runs = explored(kind, writer, rollback_of_all(), preemptions=2, check_every=4)
    assert all(ours(run.storage)["k0"] == (3, 3.0) for run in runs), "acknowledged means readable"
    assert {run.ended[0].attempts for run in runs} == {1, 2}
    for run in runs:
        table = mdt.open(run.storage)
        assert not table.snapshot().rolled_back & set(table.snapshot().transactions), (
            "declared dead, yet committed"
        )


def test_two_recoveries_of_one_dead_writer_agree() -> None:
    def start() -> MemoryStorage:
        storage = filled(MOR, "record")
        dead = upsert([0, 20], 3, 3.0).start(storage)
        assert next(dead) == "written"
        return storage

    actors = (rollback_of_all(), rollback_of_all())
    for run in explore(start, actors, preemptions=2):
        count("schedules")
        mdt.open(run.storage).abort()
        assert_serial(actors, run)
        assert_clean(run.storage)


@kinds(0, 2)
def test_what_is_acknowledged_is_seen_by_hudi_whoever_else_is_under_way(
    kind: tuple[str, str],
) -> None:
    """A writer that has committed but not published must not hide, or be hidden by, one that came
    after it.
    """
    actors = (upsert([0], 3, 3.0), upsert([1], 3, 4.0))

    def watch(run: Run, ended: int) -> None:
        model = states(actors, run, mdt.open(run.storage).snapshot().seq)
        mine = run.ended[ended].seq
        other = {n: e for n, e in run.ended.items() if n != ended}
        seen = theirs(run.storage)
        both = actors[1 - ended].model(actors[ended].model(BASE_STATE))
        alone = actors[ended].model(BASE_STATE)
        # Before it in the log must be visible, behind it may be.
        assert seen == both if mine == 4 or other else seen in (alone, both), run.schedule
        assert len(model) > mine

    for _ in explore(lambda: filled(*kind), actors, watch=watch):
        count("schedules")


@kinds(0, 1, 2)
def test_a_reader_sees_one_state_from_its_beginning_to_its_end(kind: tuple[str, str]) -> None:
    other = delete([1, 3]) if kind[0] == COW else compaction()
    _reads_one_state(kind, (upsert([0, 1, 20], 3, 3.0), other, reader()))


@kinds(0, 2)
def test_a_reader_sees_one_state_while_file_groups_are_replaced(kind: tuple[str, str]) -> None:
    _reads_one_state(kind, (upsert([0, 1, 20], 3, 3.0), clustering(), reader()), is_spread=True)


def _reads_one_state(
    kind: tuple[str, str], actors: Sequence[Actor], *, is_spread: bool = False
) -> None:
    start = spread if is_spread else filled
    for run in explore(lambda: start(*kind), actors, preemptions=1):
        run.spread = is_spread
        count("schedules")
        after = states(actors, run, mdt.open(run.storage).snapshot().seq)
        assert all(state == after[seq] for seq, state in run.ended[2].record), run.schedule
        assert_serial(actors, run)


class _StoppedClock(MemoryStorage):
    """A clock that stands still, as a slow one seems to do to the others."""

    def now_us(self) -> int:
        return self._now_us


def test_writers_whose_clocks_stand_still_get_instants_of_their_own() -> None:
    def start() -> MemoryStorage:
        storage = _StoppedClock()
        vars(storage).update(vars(filled(MOR, "record")))
        storage.sleep(60)
        return storage

    actors = (upsert([0], 3, 3.0, pauses=EVERY_PAUSE), upsert([1], 3, 4.0, pauses=EVERY_PAUSE))
    for run in explore(start, actors, preemptions=2):
        count("schedules")
        assert_serial(actors, run)
        instants = mdt.open(run.storage).history()["instant"].to_pylist()
        assert len(set(instants)) == len(instants), run.schedule
        assert theirs(run.storage) == ours(run.storage)


COMPANY: dict[str, Actor] = {
    "an upsert": upsert([0, 20], 3, 3.0),
    "a delete": delete([0]),
    "a compaction": compaction(),
    "a build": index_build(),
    "another alter": alter(),
    "a change of indexes": index_change("create_index", added=("bitmap/1(ts)",)),
}


@kinds(1, 2)
@pytest.mark.parametrize("other", COMPANY)
def test_an_alter_and_company_end_as_one_after_the_other(other: str, kind: tuple[str, str]) -> None:
    def start() -> MemoryStorage:
        storage = filled(*kind)
        mdt.open(storage).create_index(
            ["bitmap(fare)", "bitmap(ts)"][: 1 if "indexes" in other else 2], mode="async"
        )
        return storage

    actors, conflicts_met = (COMPANY[other], alter()), 0
    for number, run in enumerate(explore(start, actors)):
        count("schedules")
        table = mdt.open(run.storage)
        expected = BASE_STATE
        for _, n in sorted((ended.seq, n) for n, ended in run.ended.items() if ended.seq >= 0):
            before, expected = expected, actors[n].model(expected)
            if run.ended[n].attempts > 1:
                # its rows had the older columns: they are altered as those of older files are
                expected = {
                    k: row if before.get(k) == row else (row[0], 9.0) for k, row in expected.items()
                }
        assert as_state(table.scan().to_arrow()) == expected, run.schedule
        assert as_state(table.scan("fare = 9.0").to_arrow()) == {
            k: v for k, v in expected.items() if v[1] == 9.0
        }, run.schedule
        if number % CHECK_EVERY == 0:
            assert_clean(run.storage)
        conflicts_met += run.conflicts
    assert conflicts_met or (other == "a compaction" and kind[0] == COW), (
        "whoever began before an alter starts again"
    )


def trio(kind: tuple[str, str]) -> tuple[Actor, ...]:
    """Three actors that get in each other's way."""
    last = compaction() if kind[0] == MOR else delete([0, 3])
    return upsert([0, 20], 3, 3.0), upsert([0, 1, 20], 4, 4.0), last


@kinds(1, 0, 2)
def test_three_writers_end_as_one_after_the_other(kind: tuple[str, str]) -> None:
    assert max(run.conflicts for run in explored(kind, *trio(kind), preemptions=1)) >= 1


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
def test_three_writers_with_many_preemptions_end_as_one_after_the_other(
    kind: tuple[str, str],
) -> None:
    assert max(run.conflicts for run in explored(kind, *trio(kind), preemptions=3)) >= 2


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
def test_two_writers_with_a_pause_after_each_phase_end_as_one_after_the_other(
    kind: tuple[str, str],
) -> None:
    explored(
        kind,
        upsert([0, 20], 3, 3.0, pauses=EVERY_PAUSE),
        upsert([0, 1, 20], 4, 4.0, pauses=EVERY_PAUSE),
    )


Check = Callable[[Footprint, CommitRecord, Any, Any], str | None]
ORIGINAL: Check = conflicts.check
MUTANTS: dict[str, tuple[Check, tuple[Actor, ...]]] = {
    "finds no conflict": (
        lambda mine, theirs, load, key_hash: None,
        (upsert([0], 3, 3.0), upsert([0], 4, 4.0)),
    ),
    "ignores absent keys": (
        lambda mine, theirs, load, key_hash: ORIGINAL(
            replace(mine, absent={}), theirs, load, key_hash
        ),
        (upsert([20], 3, 3.0), upsert([20], 4, 4.0)),
    ),
    "ignores file groups": (
        lambda mine, theirs, load, key_hash: ORIGINAL(
            replace(mine, groups=frozenset()), theirs, load, key_hash
        ),
        (upsert([0], 3, 3.0), delete([0])),
    ),
    "ignores that both end a row": (
        lambda mine, theirs, load, key_hash: ORIGINAL(
            replace(mine, rows=None if mine.rows is None else {}), theirs, load, key_hash
        ),
        (upsert([0], 3, 3.0), delete([0])),
    ),
    "ignores file groups that were replaced": (
        lambda mine, theirs, load, key_hash: ORIGINAL(
            mine, replace(theirs, header={**theirs.header, "replaced": {}}), load, key_hash
        ),
        (upsert([0], 3, 3.0), clustering()),
    ),
    "ignores that the schema was altered": (
        lambda mine, theirs, load, key_hash: (
            None if theirs.alters else ORIGINAL(mine, theirs, load, key_hash)
        ),
        (upsert([0], 3, 3.0), alter()),
    ),
    "ignores that it was rolled back": (
        lambda mine, theirs, load, key_hash: ORIGINAL(
            replace(mine, txn="", token=None), theirs, load, key_hash
        ),
        (upsert([0], 3, 3.0), rollback_of_all()),
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_schedules_notice_a_conflict_check_that(
    mutant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, actors = MUTANTS[mutant]
    monkeypatch.setattr(conflicts, "check", check)
    with pytest.raises((AssertionError, MdtError)):
        explored((MOR, "bloom"), *actors, check_every=1, is_spread="replaced" in mutant)
    count("mutants killed")


def test_the_schedules_notice_a_writer_that_publishes_itself_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publish, "oldest_unpublished", lambda is_done, load, seq: seq)
    with pytest.raises(AssertionError):
        test_what_is_acknowledged_is_seen_by_hudi_whoever_else_is_under_way((MOR, "record"))
    count("mutants killed")
