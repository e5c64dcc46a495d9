"""Every pair of a service and a writer, and of two services: interleaved, and one after a crash of the
other.

Some pairs have tests of their own in ``test_schedules.py`` and beside the services. Here all pairs run
on the same table. Daily runs draw some of them, nightly runs use all.
"""

import itertools
import random
from functools import cache

import pytest
from counting import count
from schedules import (
    Actor,
    Ended,
    acting,
    alter,
    at_random,
    clustering,
    compaction,
    conditional,
    cutting,
    delete,
    driven,
    drop,
    explore,
    groups_of,
    index_build,
    index_change,
    joining,
    log_compaction,
    overwrite,
    refused,
    restore,
    rollback_of_all,
    upsert,
)
from worlds import MODES, MOR, later, make, ours, rows, theirs, upserted

import mdt
from mdt.commit.recovery import pending, recover, sweep
from mdt.errors import Expired, Invalid, Unsupported
from mdt.metadata.metadata import Metadata
from mdt.services.checking.keys import KeyBuild
from mdt.services.history.tagging import AddTag, DropTag
from mdt.services.layout.compaction import Compaction
from mdt.services.reclaiming.archiving import archive
from mdt.services.reclaiming.cleaning import Clean
from mdt.stores.storage import MemoryStorage
from mdt.testing.faulty import Crash, FaultyStorage

pytestmark = pytest.mark.usefixtures("records_decoded_once")

FIRST = upserted({}, range(6), 1, 1.0)
EARLIER = upserted(FIRST, range(6, 12), 1, 1.5)
START = upserted(EARLIER, (0, 1, 6), 3, 3.0)
TAGGED = 2
"""The seq of EARLIER."""


@cache
def _table_storage(key_index):
    storage = MemoryStorage()
    table = make(storage, MOR, key_index, **{"mdt.services.auto": False})
    table.upsert(rows(range(6), 1, 1.0))
    table.metadata.compact()
    table.bulk_insert(rows(range(6, 12), 1, 1.5))
    table.metadata.compact()
    table.tag("kept", at=TAGGED)
    table.create_index("bitmap(fare)")
    table.upsert(rows((0, 1, 6), 3, 2.5))
    table.metadata.compact()
    table.upsert(rows((0, 1, 6), 3, 3.0))
    table.create_index("bloom(id)", mode="async")
    assert ours(storage) == START == theirs(storage) and table.check().ok
    return storage


def copy_of_table(key_index="record"):
    """Return a copy of a table with two file groups in each partition, log files, checkpoints, a tag, and
    an index that is not built.
    """
    return _table_storage(key_index).copy()


def cleaning():
    """An actor that ends the retention of states, then deletes files, then archives records."""

    def start(storage):
        metadata = Metadata(storage)
        options = metadata.options(metadata.newest().definition)
        clean = lambda m: Clean(m, options, horizon=99, records_min=1)
        ended = yield from driven(storage, clean)
        sweep(metadata)
        yield "swept"
        archive(metadata)
        return ended

    return Actor("clean", start)


def checkpoint():
    """An actor that compacts the metadata."""

    def start(storage):
        metadata = Metadata(storage)
        metadata.newest()
        yield "opened"
        metadata.compact()
        return Ended()

    return Actor("checkpoint", start)


def may_be_refused(actor):
    """Return an actor that may be refused because its state was cleaned or its schema altered."""
    return refused(actor, Expired, Unsupported, Invalid)


WRITERS = [
    upsert([0, 20], 4, 4.0),
    upsert([21, 22], 4, 4.0, "insert"),
    delete([1, 6]),
    may_be_refused(conditional("fare = 2.0")),
    may_be_refused(conditional("fare = 1.0", 8.0)),
    may_be_refused(restore(TAGGED, EARLIER)),
    may_be_refused(alter()),
    may_be_refused(alter(rewrites=True)),
    overwrite([0, 20], 1, 9.0),
    drop("city=x"),
]
SERVICES = [
    compaction(),
    log_compaction(),
    clustering(),
    joining(),
    cutting(),
    index_build(),
    index_change("create_index", added=("bitmap/1(ts)",)),
    index_change("drop_index", dropped=("bloom/1(id)",)),
    index_change("rebuild_index", forgotten=("bitmap/1(fare)",)),
    cleaning(),
    checkpoint(),
    may_be_refused(acting("tag", lambda m, d, o: AddTag(m, "new", 3, None, "tag"))),
    may_be_refused(acting("untag", lambda m, d, o: DropTag("kept"))),
    rollback_of_all(),
    acting("key build", lambda m, d, o: KeyBuild(m, o, sorted(groups_of(m)))),
    acting(
        "rewriting",
        lambda m, d, o: Compaction(m, o, names=sorted(groups_of(m)), everything=True),
    ),
]
PAIRS = [
    *itertools.product(SERVICES, WRITERS),
    *itertools.combinations_with_replacement(SERVICES, 2),
]
SCHEDULES, CRASHES = 6, 6
"""Numbers of pairs drawn in daily runs."""


def test_the_list_contains_every_pair_once():
    service_count = len(SERVICES)
    assert len(PAIRS) == service_count * len(WRITERS) + service_count * (service_count + 1) // 2
    assert len({actor.name for actor in (*WRITERS, *SERVICES)}) == service_count + len(WRITERS)


def assert_consistent(storage, actors, expected, where):
    """Assert that mdt and Hudi see the rows, that check is clean, and that no claim is pending."""
    assert ours(storage) == expected, where
    if not any(actor.name == "alter" for actor in actors):  # Hudi has no defaults for older rows
        assert theirs(storage) == expected, where
    table = mdt.open(storage)
    report = table.check()
    assert report.ok and not pending(table.metadata), f"{where}: {report}"


def assert_serial(actors, run):
    """Assert that a run has the result of its actors one after the other in the order of their commits."""
    expected = START
    for _, n in run.done():
        expected = actors[n].model(expected)
    where = " beside ".join(actor.name for actor in actors)
    assert_consistent(run.storage, actors, expected, f"{where}: {run.schedule}")
    count("schedules of pairs")


def crash_actor(actor, storage, draw):
    """Run an actor until it crashes at a random change of storage. Return a description of the change."""
    completed = FaultyStorage(storage.copy())
    for _ in actor.start(completed):
        pass
    if not completed.operations:
        return "not at all"
    at = draw.randrange(1, len(completed.operations) + 1)
    mode = draw.choice(MODES)
    if mode == "torn" and completed.operations[at - 1].startswith("delete"):
        mode = "before"
    with pytest.raises(Crash):
        for _ in actor.start(FaultyStorage(storage, at, mode)):
            pass
    return f"{mode} {at} {completed.operations[at - 1]}"


def assert_runs_after_crash(first, second, draw):
    """Assert that a crash of the first actor does not prevent the second from committing, before or after
    the first is rolled back.
    """
    storage = copy_of_table(draw.choice(["record", "bloom"]))
    where = f"{second.name} after {first.name} died {crash_actor(first, storage, draw)}"
    state_after_crash = ours(storage)
    assert state_after_crash in (START, first.model(START)), f"{where}: a mixture of states"
    if draw.random() < 0.5:
        recover(Metadata(later(storage)), after_seconds=1)
        where += ", and was recovered"
    [run] = explore(lambda: storage, [second], preemptions=0)
    expected = second.model(state_after_crash) if run.done() else state_after_crash
    mdt.open(later(storage)).abort()
    assert_consistent(storage, (first, second), expected, where)
    count("services and writers after another one died")


def seeded_random():
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    return random.Random(seed)


def random_order(pair, draw):
    """Return a pair in one of its two orders."""
    return pair if draw.random() < 0.5 else pair[::-1]


def test_random_schedules_of_random_pairs_have_a_serial_result():
    draw = seeded_random()
    for pair in draw.sample(PAIRS, SCHEDULES):
        actors = random_order(pair, draw)
        assert_serial(actors, at_random(copy_of_table, actors, draw))


def test_of_random_pairs_one_can_commit_after_a_crash_of_the_other():
    draw = seeded_random()
    for pair in draw.sample(PAIRS, CRASHES):
        assert_runs_after_crash(*random_order(pair, draw), draw)


every_pair = pytest.mark.parametrize(
    "pair", PAIRS, ids=lambda pair: " and ".join(actor.name for actor in pair)
)


@pytest.mark.nightly
@every_pair
def test_every_pair_has_a_serial_result(pair):
    """Uses all schedules with one preemption, and some random schedules."""
    for run in explore(copy_of_table, pair, preemptions=1):
        assert_serial(pair, run)
    draw = seeded_random()
    for _ in range(3):
        assert_serial(pair, at_random(copy_of_table, pair, draw))


@pytest.mark.nightly
@every_pair
def test_of_every_pair_one_can_commit_after_a_crash_of_the_other(pair):
    draw = seeded_random()
    for first, second in (pair, pair[::-1]):
        for _ in range(2):
            assert_runs_after_crash(first, second, draw)
