"""Two and three writers, services and readers through every interleaving of their phases: as if one
came after the other.
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


def kinds(quick, *nightly):
    """Run a test on one kind of table, and on others at night."""
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
def test_actors_end_as_one_after_the_other(values):
    assert_case(values)


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
    kind, other, of_logs, of_base_files
):
    runs = explored(kind, upsert([0, 2, 20], 3, 3.0, in_tasks=True), other, preemptions=2)
    assert {run.conflicts for run in runs} == (of_logs if kind[0] == MOR else of_base_files)


@kinds(2, 0, 1)
def test_a_restore_undoes_what_was_committed_before_it_and_nothing_after_it(kind):
    runs = explored(kind, FIRST, upsert([0, 9], 3, 3.0))
    assert {run.conflicts for run in runs} >= {0, 1}


@kinds(0, 1)
def test_a_compaction_leaves_out_the_file_group_that_changed_and_commits_the_rest(kind):
    runs = explored(kind, upsert([0], 3, 3.0), compaction(), check_every=3)
    narrowed = 0
    for run in runs:
        upserting, compacting = run.ended[0], run.ended[1]
        assert compacting.attempts == 1, "it never starts again for one changed file group"
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
    assert {run.conflicts for run in runs} == {0, 1}, "an upsert after a compaction starts again"


@pytest.mark.parametrize("first", [None, [0]], ids=["all file groups", "a step"])
def test_two_compactions_leave_one_base_file_for_each_file_group(first):
    for run in explored(RECORD, compaction(first), compaction(first and [0, 1])):
        assert mdt.open(run.storage).files()["kind"].to_pylist() == [0, 0], run.schedule
        did = [run.ended[n].seq >= 0 for n in range(2)]
        assert did[1] if first else sorted(did) == [False, True], "the second has what is left"


def test_a_log_compaction_leaves_out_the_file_group_that_changed_and_commits_the_rest():
    left_out = 0
    for run in explored((MOR, "lmdb"), upsert([0], 3, 3.0), log_compaction(), start=logged):
        compacting = run.ended[1]
        assert compacting.attempts == 1, "it never starts again for one changed file group"
        left_out += len(compacting.record.table("files")) == 1
        assert theirs(run.storage) == ours(run.storage), run.schedule
    assert left_out


@pytest.mark.nightly
@pytest.mark.parametrize(
    "other", [delete([0]), compaction(), log_compaction(), clustering()], ids=lambda one: one.name
)
def test_a_log_compaction_and_a_delete_or_a_service_end_as_one_after_the_other(other):
    for kind in KINDS[:2]:
        for run in explored(kind, other, log_compaction(), start=logged):
            assert theirs(run.storage) == ours(run.storage), run.schedule


@kinds(0, 1, 2)
def test_a_clustering_leaves_out_the_partition_that_changed_and_commits_the_rest(kind):
    runs = explored(kind, upsert([0], 3, 3.0), clustering(), check_every=3, is_spread=True)
    narrowed = 0
    for run in runs:
        clustered = run.ended[1]
        assert clustered.attempts == 1, "it never starts again for one changed file group"
        assert "city=y" in clustered.record.replaced
        if "city=x" not in clustered.record.replaced:
            narrowed += 1
            assert theirs(run.storage) == ours(run.storage), run.schedule
    assert narrowed
    assert {run.conflicts for run in runs} == {0, 1}, "an upsert into a replaced group starts again"


@kinds(0, 2)
@pytest.mark.parametrize(
    "other", [delete([0, 1]), upsert([20, 21], 3, 3.0, "insert")], ids=["delete", "insert"]
)
def test_a_clustering_and_a_writer_end_as_one_after_the_other(kind, other):
    explored(kind, clustering(("fare", "id"), "hilbert"), other, is_spread=True)


def test_two_clusterings_and_one_beside_a_compaction_keep_every_row():
    for run in explored(RECORD, clustering(), clustering(("id",)), is_spread=True):
        assert len(mdt.open(run.storage).files()) == 2, "one file for each partition"
    for run in explored(BLOOM, clustering(), compaction(), is_spread=True, check_every=2):
        groups = mdt.open(run.storage).files()["file_id"].to_pylist()
        assert len(groups) == len(set(groups)), "no log files are left"


def test_joining_small_file_groups_ends_as_one_after_the_other_with_writers_and_services(
    monkeypatch,
):
    monkeypatch.setattr(small_files, "JOINED_MIN", 2)
    for other in (upsert([0, 20], 3, 3.0), compaction(), joining()):
        for run in explored(BLOOM, joining(), other, is_spread=True):
            groups = mdt.open(run.storage).files()["file_id"].unique()
            assert len(groups) <= 4, run.schedule


def test_a_clustering_beside_the_builder_of_an_index_keeps_what_is_covered_right():
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


def test_a_clustering_that_was_rolled_back_cannot_commit_and_tries_again():
    actors = clustering(), rollback_of_all()
    runs = explored(RECORD, *actors, preemptions=2, check_every=4, is_spread=True)
    assert {run.ended[0].attempts for run in runs} == {1, 2}


@kinds(0, 1, 2)
def test_a_live_writer_that_was_rolled_back_cannot_commit_and_tries_again(kind):
    writer = upsert([0, 20], 3, 3.0, pauses=EVERY_PAUSE)
    runs = explored(kind, writer, rollback_of_all(), preemptions=2, check_every=4)
    assert all(ours(run.storage)["k0"] == (3, 3.0) for run in runs), "acknowledged means readable"
    assert {run.ended[0].attempts for run in runs} == {1, 2}
    for run in runs:
        snapshot = mdt.open(run.storage).snapshot()
        assert not snapshot.rolled_back & set(snapshot.transactions), "declared dead, yet committed"


def test_two_recoveries_of_one_dead_writer_agree():
    def start():
        storage = filled(*RECORD)
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
def test_what_is_acknowledged_is_seen_by_hudi_whoever_else_is_under_way(kind):
    """A writer that has committed but not published must not hide, or be hidden by, one that came
    after it.
    """
    actors = (upsert([0], 3, 3.0), upsert([1], 3, 4.0))

    def watch(run, ended):
        mine = run.ended[ended].seq
        seen = theirs(run.storage)
        alone = actors[ended].model(BASE_STATE)
        both = actors[1 - ended].model(alone)
        # Before it in the log must be visible, behind it may be.
        assert seen == both if mine == 4 or len(run.ended) == 2 else seen in (alone, both), (
            run.schedule
        )
        assert mdt.open(run.storage).snapshot().seq >= mine

    for _ in explore(lambda: filled(*kind), actors, watch=watch):
        count("schedules")


@kinds(0, 1, 2)
def test_a_reader_sees_one_state_from_its_beginning_to_its_end(kind):
    other = delete([1, 3]) if kind[0] == COW else compaction()
    _reads_one_state(kind, other)


@kinds(0, 2)
def test_a_reader_sees_one_state_while_file_groups_are_replaced(kind):
    _reads_one_state(kind, clustering(), is_spread=True)


def _reads_one_state(kind, other, *, is_spread=False):
    actors = upsert([0, 1, 20], 3, 3.0), other, reader()
    start = spread if is_spread else filled
    for run in explore(lambda: start(*kind), actors, preemptions=1):
        run.spread = is_spread
        count("schedules")
        after = states(actors, run, mdt.open(run.storage).snapshot().seq)
        assert all(state == after[seq] for seq, state in run.ended[2].record), run.schedule
        assert_serial(actors, run)


class _StoppedClock(MemoryStorage):
    """A clock that stands still, as a slow one seems to do to the others."""

    def now_us(self):
        return self._now_us


def test_writers_whose_clocks_stand_still_get_instants_of_their_own():
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


COMPANY = {
    "an upsert": upsert([0, 20], 3, 3.0),
    "a delete": delete([0]),
    "a compaction": compaction(),
    "a build": index_build(),
    "another alter": alter(),
    "a change of indexes": index_change("create_index", added=("bitmap/1(ts)",)),
}


@kinds(1, 2)
@pytest.mark.parametrize("other", COMPANY)
@pytest.mark.parametrize("rewrites", [False, True])
def test_an_alter_and_company_end_as_one_after_the_other(other, kind, rewrites):
    specs = ["bitmap(fare)"] if "indexes" in other else ["bitmap(fare)", "bitmap(ts)"]

    def start():
        storage = filled(*kind)
        mdt.open(storage).create_index(specs, mode="async")
        return storage

    actors, conflicts_met = (COMPANY[other], alter(rewrites=rewrites)), 0
    for number, run in enumerate(explore(start, actors)):
        count("schedules")
        table = mdt.open(run.storage)
        expected = BASE_STATE
        for _, n in run.done():
            before, expected = expected, dict(actors[n].model(expected))
            if run.ended[n].attempts > 1:
                # its rows had the older columns: they are altered as those of older files are
                for key, (ts, _) in expected.items():
                    if before.get(key) != expected[key]:
                        expected[key] = ts, 9.0
        assert as_state(table.scan().to_arrow()) == expected, run.schedule
        altered = {key: row for key, row in expected.items() if row[1] == 9.0}
        assert as_state(table.scan("fare = 9.0").to_arrow()) == altered, run.schedule
        if number % CHECK_EVERY == 0:
            assert_clean(run.storage)
        conflicts_met += run.conflicts
    never_meet = other == "a compaction" and kind[0] == COW
    assert conflicts_met or never_meet, "whoever began before an alter starts again"


def trio(kind):
    """Three actors that get in each other's way."""
    last = compaction() if kind[0] == MOR else delete([0, 3])
    return upsert([0, 20], 3, 3.0), upsert([0, 1, 20], 4, 4.0), last


@kinds(1, 0, 2)
def test_three_writers_end_as_one_after_the_other(kind):
    assert max(run.conflicts for run in explored(kind, *trio(kind), preemptions=1)) >= 1


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
def test_many_preemptions_of_three_and_a_pause_after_each_phase_of_two_change_nothing(kind):
    assert max(run.conflicts for run in explored(kind, *trio(kind), preemptions=3)) >= 2
    first = upsert([0, 20], 3, 3.0, pauses=EVERY_PAUSE)
    explored(kind, first, upsert([0, 1, 20], 4, 4.0, pauses=EVERY_PAUSE))


ORIGINAL = conflicts.check


def blind(**what):
    """Return a check of conflicts for which some of my footprint is not there."""

    def check(mine, *more):
        return ORIGINAL(replace(mine, **what), *more)

    return check


def blind_to_rows(mine, *more):
    return ORIGINAL(replace(mine, rows=mine.rows and {}), *more)


def blind_to_replacing(mine, theirs, *more):
    return ORIGINAL(mine, replace(theirs, header={**theirs.header, "replaced": {}}), *more)


def blind_to_alters(mine, theirs, *more):
    return None if theirs.alters else ORIGINAL(mine, theirs, *more)


MUTANTS = {
    "finds no conflict": (lambda *_: None, upsert([0], 4, 4.0)),
    "ignores absent keys": (blind(absent={}), new_row(4)),
    "ignores file groups": (blind(groups=frozenset()), delete([0])),
    "ignores that both end a row": (blind_to_rows, delete([0])),
    "ignores file groups that were replaced": (blind_to_replacing, clustering()),
    "ignores that the schema was altered": (blind_to_alters, alter()),
    "ignores that it was rolled back": (blind(txn="", token=None), rollback_of_all()),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_schedules_notice_a_conflict_check_that(mutant, monkeypatch):
    check, other = MUTANTS[mutant]
    monkeypatch.setattr(conflicts, "check", check)
    writer = new_row(3) if "absent" in mutant else upsert([0], 3, 3.0)
    with pytest.raises((AssertionError, MdtError)):
        explored(BLOOM, writer, other, check_every=1, is_spread="replaced" in mutant)
    count("mutants killed")


def test_the_schedules_notice_a_writer_that_publishes_itself_only(monkeypatch):
    monkeypatch.setattr(publish, "oldest_unpublished", lambda is_done, load, seq: seq)
    with pytest.raises(AssertionError):
        test_what_is_acknowledged_is_seen_by_hudi_whoever_else_is_under_way(RECORD)
    count("mutants killed")
