"""Two and three writers, services and readers in every interleaving of their phases have a serial
result.
"""

from dataclasses import replace

import pytest
from counting import count
from schedules import (
    CHECK_EVERY,
    EVERY_PAUSE,
    KINDS,
    alter,
    assert_case,
    assert_serial,
    case,
    clustering,
    compaction,
    delete,
    explore,
    explored,
    index_build,
    index_change,
    joining,
    log_compaction,
    reader,
    restore,
    rollback_of_all,
    row_of,
    states,
    upsert,
)
from worlds import (
    BASE_STATE,
    COW,
    MOR,
    as_state,
    assert_clean,
    filled,
    logged,
    ours,
    spread,
    theirs,
)

import mdt
from mdt.commit import conflicts, publish
from mdt.errors import MdtError
from mdt.metadata.files.file_group import LOG
from mdt.services.layout import small_files
from mdt.stores.storage import MemoryStorage

pytestmark = pytest.mark.usefixtures("records_decoded_once")

RECORD, BLOOM, REWRITTEN = KINDS
FIRST = restore(1, {key: (1, 1.0) for key in BASE_STATE})


def with_kinds(quick, *nightly):
    """Run a test on one kind of table daily, and on others at night."""
    more = [pytest.param(KINDS[n], marks=pytest.mark.nightly) for n in nightly]
    return pytest.mark.parametrize("kind", [KINDS[quick], *more], ids="-".join)


def row_and_commits(run):
    return ours(run.storage)["k0"], len(run.done())


def new_row(ts, name="upsert"):
    return upsert([20], ts, float(ts), name)


CASES = [
    *case(
        "of two writers of one key the larger ordering value wins, and one may come late",
        REWRITTEN,
        upsert([0], 3, 3.0),
        upsert([0], 4, 4.0),
        night=(RECORD, BLOOM),
        conflicts={0, 1},
        look=row_and_commits,
        ends={((4, 4.0), 1), ((4, 4.0), 2)},
    ),
    *case(
        "of two writers of one key with equal ordering values the later commit wins",
        RECORD,
        upsert([0], 3, 3.0),
        upsert([0], 3, 4.0),
        conflicts={0, 1},
        look=row_of("k0"),
        ends={(3, 3.0), (3, 4.0)},
    ),
    *case(
        "writers of different keys in one file group both append",
        RECORD,
        upsert([0], 3, 3.0),
        upsert([2], 3, 4.0),
        night=(BLOOM,),
        conflicts={0},
    ),
    *case(
        "one of two writers of different keys in one file group rewrites it again",
        REWRITTEN,
        upsert([0], 3, 3.0),
        upsert([2], 3, 4.0),
        conflicts={0, 1},
    ),
    *case(
        "a row that came late for one that another writer deletes is looked at again",
        RECORD,
        upsert([0, 4], 1, 9.0),
        delete([0]),
        conflicts={0, 1},
        look=row_of("k0"),
        ends={None, (1, 9.0)},
    ),
    *case("a restore beside a delete", (MOR, "memory"), FIRST, delete([1])),
    *case(
        "writers of different file groups never conflict",
        RECORD,
        upsert([0], 3, 3.0),
        upsert([1], 3, 4.0),
        night=(REWRITTEN,),
        conflicts={0},
    ),
    *case(
        "a new key that two writers upsert lives once",
        BLOOM,
        new_row(3),
        new_row(4),
        night=(RECORD,),
        conflicts={0, 1},
        look=row_of("k20"),
        ends={(4, 4.0)},
    ),
    *case(
        "different new keys in new file groups never conflict",
        BLOOM,
        new_row(3, "bulk_insert"),
        upsert([22], 4, 4.0, "bulk_insert"),
        conflicts={0},
    ),
    *case(
        "of two inserts of one new key exactly one is refused",
        (MOR, "bucket(buckets='1')"),
        new_row(3, "insert"),
        new_row(4, "insert"),
        look=lambda run: sum(bool(ended.refused) for ended in run.ended.values()),
        ends={1},
    ),
    *case(
        "an insert and a delete of one new key",
        (MOR, "simple"),
        new_row(3),
        delete([20, 0]),
        look=row_of("k20"),
        ends={None, (3, 3.0)},
    ),
    *case(
        "an update and a delete of one key",
        REWRITTEN,
        upsert([0], 3, 3.0),
        delete([0]),
        night=(RECORD, BLOOM),
        look=row_of("k0"),
        ends={None, (3, 3.0)},
    ),
]


@pytest.mark.parametrize("values", CASES)
def test_two_actors_have_a_serial_result_in_every_schedule(values):
    assert_case(values)


@with_kinds(0, 2)
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
def test_a_writer_in_tasks_beside_another_actor_has_a_serial_result(
    kind, other, of_logs, of_base_files
):
    runs = explored(kind, upsert([0, 2, 20], 3, 3.0, in_tasks=True), other, preemptions=2)
    assert {run.conflicts for run in runs} == (of_logs if kind[0] == MOR else of_base_files)


@with_kinds(2, 0, 1)
def test_a_restore_undoes_only_what_was_committed_before_it(kind):
    runs = explored(kind, FIRST, upsert([0, 9], 3, 3.0))
    assert {run.conflicts for run in runs} >= {0, 1}


@with_kinds(0, 1)
def test_a_compaction_skips_the_file_group_that_changed_and_commits_the_rest(kind):
    runs = explored(kind, upsert([0], 3, 3.0), compaction(), check_every=3)
    skipped_count = 0
    for run in runs:
        upserting, compacting = run.ended[0], run.ended[1]
        assert compacting.attempts == 1, "one changed file group does not cause a retry"
        partitions = set(compacting.record.table("files")["partition"].to_pylist())
        assert "city=y" in partitions
        if "city=x" not in partitions:
            skipped_count += 1
            assert upserting.seq < compacting.seq
            files = mdt.open(run.storage).files().to_pylist()
            assert {f["partition"] for f in files if f["kind"] == LOG} == {"city=x"}
            assert_clean(run.storage)
            assert theirs(run.storage) == ours(run.storage), run.schedule
    assert skipped_count
    assert {run.conflicts for run in runs} == {0, 1}, "an upsert after a compaction is retried"


@pytest.mark.parametrize("first", [None, [0]], ids=["all file groups", "a step"])
def test_two_compactions_leave_one_base_file_for_each_file_group(first):
    for run in explored(RECORD, compaction(first), compaction(first and [0, 1])):
        assert mdt.open(run.storage).files()["kind"].to_pylist() == [0, 0], run.schedule
        committed = [run.ended[n].seq >= 0 for n in range(2)]
        assert committed[1] if first else sorted(committed) == [False, True], (
            "the second compaction does the remaining work"
        )


def test_a_log_compaction_skips_the_file_group_that_changed_and_commits_the_rest():
    skipped_count = 0
    for run in explored((MOR, "lmdb"), upsert([0], 3, 3.0), log_compaction(), start=logged):
        compacting = run.ended[1]
        assert compacting.attempts == 1, "one changed file group does not cause a retry"
        skipped_count += len(compacting.record.table("files")) == 1
        assert theirs(run.storage) == ours(run.storage), run.schedule
    assert skipped_count


@pytest.mark.nightly
@pytest.mark.parametrize(
    "other",
    [delete([0]), compaction(), log_compaction(), clustering()],
    ids=lambda actor: actor.name,
)
def test_a_log_compaction_beside_a_delete_or_a_service_has_a_serial_result(other):
    for kind in KINDS[:2]:
        for run in explored(kind, other, log_compaction(), start=logged):
            assert theirs(run.storage) == ours(run.storage), run.schedule


@with_kinds(0, 1, 2)
def test_a_clustering_skips_the_partition_that_changed_and_commits_the_rest(kind):
    runs = explored(kind, upsert([0], 3, 3.0), clustering(), check_every=3, is_spread=True)
    skipped_count = 0
    for run in runs:
        clustered = run.ended[1]
        assert clustered.attempts == 1, "one changed file group does not cause a retry"
        assert "city=y" in clustered.record.replaced
        if "city=x" not in clustered.record.replaced:
            skipped_count += 1
            assert theirs(run.storage) == ours(run.storage), run.schedule
    assert skipped_count
    assert {run.conflicts for run in runs} == {0, 1}, "an upsert into a replaced group is retried"


@with_kinds(0, 2)
@pytest.mark.parametrize(
    "other", [delete([0, 1]), upsert([20, 21], 3, 3.0, "insert")], ids=["delete", "insert"]
)
def test_a_clustering_beside_a_writer_has_a_serial_result(kind, other):
    explored(kind, clustering(("fare", "id"), "hilbert"), other, is_spread=True)


def test_two_clusterings_or_one_beside_a_compaction_keep_every_row():
    for run in explored(RECORD, clustering(), clustering(("id",)), is_spread=True):
        assert len(mdt.open(run.storage).files()) == 2, "one file for each partition"
    for run in explored(BLOOM, clustering(), compaction(), is_spread=True, check_every=2):
        groups = mdt.open(run.storage).files()["file_id"].to_pylist()
        assert len(groups) == len(set(groups)), "no log files remain"


def test_merging_small_file_groups_beside_writers_and_services_has_a_serial_result(
    monkeypatch,
):
    monkeypatch.setattr(small_files, "JOINED_MIN", 2)
    for other in (upsert([0, 20], 3, 3.0), compaction(), joining()):
        for run in explored(BLOOM, joining(), other, is_spread=True):
            groups = mdt.open(run.storage).files()["file_id"].unique()
            assert len(groups) <= 4, run.schedule


def test_a_clustering_beside_an_index_build_keeps_the_index_correct():
    def start():
        storage = spread(*RECORD)
        mdt.open(storage).create_index("bitmap(fare)", mode="async")
        return storage

    for run in explore(start, (clustering(), index_build())):
        count("schedules")
        table = mdt.open(run.storage)
        table.build_indexes()
        assert table.scan("fare = 1.5").count() == 6, run.schedule
        assert set(table.indexes()["coverage"].to_pylist()) == {100.0}
        assert_clean(run.storage)


def test_a_clustering_that_was_rolled_back_cannot_commit_and_is_retried():
    actors = clustering(), rollback_of_all()
    runs = explored(RECORD, *actors, preemptions=2, check_every=4, is_spread=True)
    assert {run.ended[0].attempts for run in runs} == {1, 2}


@with_kinds(0, 1, 2)
def test_a_running_writer_that_was_rolled_back_cannot_commit_and_is_retried(kind):
    writer = upsert([0, 20], 3, 3.0, pauses=EVERY_PAUSE)
    runs = explored(kind, writer, rollback_of_all(), preemptions=2, check_every=4)
    assert all(ours(run.storage)["k0"] == (3, 3.0) for run in runs), (
        "an acknowledged commit must be readable"
    )
    assert {run.ended[0].attempts for run in runs} == {1, 2}
    for run in runs:
        snapshot = mdt.open(run.storage).snapshot()
        assert not snapshot.rolled_back & set(snapshot.transactions), "rolled back, yet committed"


def test_two_rollbacks_of_one_crashed_writer_agree():
    def start():
        storage = filled(*RECORD)
        crashed = upsert([0, 20], 3, 3.0).start(storage)
        assert next(crashed) == "written"
        return storage

    actors = (rollback_of_all(), rollback_of_all())
    for run in explore(start, actors, preemptions=2):
        count("schedules")
        mdt.open(run.storage).abort()
        assert_serial(actors, run)
        assert_clean(run.storage)


@with_kinds(0, 2)
def test_an_acknowledged_commit_is_visible_to_hudi_while_another_writer_is_running(kind):
    """A writer that has committed but not published must not hide a later commit or be hidden by it."""
    actors = (upsert([0], 3, 3.0), upsert([1], 3, 4.0))

    def watch(run, ended):
        own_seq = run.ended[ended].seq
        rows_seen = theirs(run.storage)
        alone = actors[ended].model(BASE_STATE)
        both = actors[1 - ended].model(alone)
        # Earlier commits in the log must be visible, later commits may be visible.
        assert (
            rows_seen == both if own_seq == 4 or len(run.ended) == 2 else rows_seen in (alone, both)
        ), run.schedule
        assert mdt.open(run.storage).snapshot().seq >= own_seq

    for _ in explore(lambda: filled(*kind), actors, watch=watch):
        count("schedules")


@with_kinds(0, 1, 2)
def test_a_reader_sees_one_state_from_start_to_end(kind):
    other = delete([1, 3]) if kind[0] == COW else compaction()
    _assert_reads_one_state(kind, other)


@with_kinds(0, 2)
def test_a_reader_sees_one_state_while_file_groups_are_replaced(kind):
    _assert_reads_one_state(kind, clustering(), is_spread=True)


def _assert_reads_one_state(kind, other, *, is_spread=False):
    actors = upsert([0, 1, 20], 3, 3.0), other, reader()
    start = spread if is_spread else filled
    for run in explore(lambda: start(*kind), actors, preemptions=1):
        run.spread = is_spread
        count("schedules")
        after = states(actors, run, mdt.open(run.storage).snapshot().seq)
        assert all(state == after[seq] for seq, state in run.ended[2].record), run.schedule
        assert_serial(actors, run)


class _StoppedClock(MemoryStorage):
    """A storage with a stopped clock, as a slow clock appears to other writers."""

    def now_us(self):
        return self._now_us


def test_writers_with_stopped_clocks_get_unique_instants():
    def start():
        storage = _StoppedClock()
        vars(storage).update(vars(filled(*RECORD)))
        storage.sleep(60)
        return storage

    actors = [upsert([key], 3, 3.0 + key, pauses=EVERY_PAUSE) for key in (0, 1)]
    for run in explore(start, actors, preemptions=2):
        count("schedules")
        assert_serial(actors, run)
        instants = mdt.open(run.storage).history()["instant"].to_pylist()
        assert len(set(instants)) == len(instants), run.schedule
        assert theirs(run.storage) == ours(run.storage)


OTHER_ACTORS = {
    "an upsert": upsert([0, 20], 3, 3.0),
    "a delete": delete([0]),
    "a compaction": compaction(),
    "a build": index_build(),
    "another alter": alter(),
    "a change of indexes": index_change("create_index", added=("bitmap/1(ts)",)),
}


@with_kinds(1, 2)
@pytest.mark.parametrize("other", OTHER_ACTORS)
@pytest.mark.parametrize("rewrites", [False, True])
def test_an_alter_beside_another_actor_has_a_serial_result(other, kind, rewrites):
    specs = ["bitmap(fare)"] if "indexes" in other else ["bitmap(fare)", "bitmap(ts)"]

    def start():
        storage = filled(*kind)
        mdt.open(storage).create_index(specs, mode="async")
        return storage

    actors, conflicts_met = (OTHER_ACTORS[other], alter(rewrites=rewrites)), 0
    for number, run in enumerate(explore(start, actors)):
        count("schedules")
        table = mdt.open(run.storage)
        expected = BASE_STATE
        for _, n in run.done():
            before, expected = expected, dict(actors[n].model(expected))
            if run.ended[n].attempts > 1:
                # its rows have the older columns, and are altered like those of older files
                for key, (ts, _) in expected.items():
                    if before.get(key) != expected[key]:
                        expected[key] = ts, 9.0
        assert as_state(table.scan().to_arrow()) == expected, run.schedule
        altered_rows = {key: row for key, row in expected.items() if row[1] == 9.0}
        assert as_state(table.scan("fare = 9.0").to_arrow()) == altered_rows, run.schedule
        if number % CHECK_EVERY == 0:
            assert_clean(run.storage)
        conflicts_met += run.conflicts
    never_conflict = other == "a compaction" and kind[0] == COW
    assert conflicts_met or never_conflict, "an actor that began before an alter is retried"


def three_actors(kind):
    """Return three actors that conflict with each other."""
    last = compaction() if kind[0] == MOR else delete([0, 3])
    return upsert([0, 20], 3, 3.0), upsert([0, 1, 20], 4, 4.0), last


@with_kinds(1, 0, 2)
def test_three_actors_have_a_serial_result(kind):
    assert max(run.conflicts for run in explored(kind, *three_actors(kind), preemptions=1)) >= 1


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
def test_three_actors_with_many_preemptions_and_two_with_all_pauses_have_a_serial_result(kind):
    assert max(run.conflicts for run in explored(kind, *three_actors(kind), preemptions=3)) >= 2
    first = upsert([0, 20], 3, 3.0, pauses=EVERY_PAUSE)
    explored(kind, first, upsert([0, 1, 20], 4, 4.0, pauses=EVERY_PAUSE))


REAL_CHECK = conflicts.check


def check_without(**changes):
    """Return a conflict check that ignores parts of the own footprint."""

    def check(footprint, *more):
        return REAL_CHECK(replace(footprint, **changes), *more)

    return check


def check_without_rows(footprint, *more):
    return REAL_CHECK(replace(footprint, rows=footprint.rows and {}), *more)


def check_without_replaced_groups(footprint, theirs, *more):
    return REAL_CHECK(footprint, replace(theirs, header={**theirs.header, "replaced": {}}), *more)


def check_without_alters(footprint, theirs, *more):
    return None if theirs.alters else REAL_CHECK(footprint, theirs, *more)


MUTANTS = {
    "finds no conflict": (lambda *_: None, upsert([0], 4, 4.0)),
    "ignores absent keys": (check_without(absent={}), new_row(4)),
    "ignores file groups": (check_without(groups=frozenset()), delete([0])),
    "ignores that both end a row": (check_without_rows, delete([0])),
    "ignores file groups that were replaced": (check_without_replaced_groups, clustering()),
    "ignores that the schema was altered": (check_without_alters, alter()),
    "ignores that it was rolled back": (check_without(txn="", token=None), rollback_of_all()),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_schedules_detect_a_wrong_conflict_check(mutant, monkeypatch):
    check, other = MUTANTS[mutant]
    monkeypatch.setattr(conflicts, "check", check)
    writer = new_row(3) if "absent" in mutant else upsert([0], 3, 3.0)
    with pytest.raises((AssertionError, MdtError)):
        explored(BLOOM, writer, other, check_every=1, is_spread="replaced" in mutant)
    count("mutants killed")


def test_the_schedules_detect_a_writer_that_publishes_only_its_own_commit(monkeypatch):
    monkeypatch.setattr(publish, "oldest_unpublished", lambda is_done, load, seq: seq)
    with pytest.raises(AssertionError):
        test_an_acknowledged_commit_is_visible_to_hudi_while_another_writer_is_running(RECORD)
    count("mutants killed")
