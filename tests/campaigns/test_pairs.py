"""Every pair of a service and a writer, and of two services: interleaved, and one after the other
has died.

The pairs that have tests of their own stand in ``test_schedules.py`` and beside the services; here
all of them go through one table, whatever they are.  By day some are drawn, at night all are run.
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
def _world(key_index):
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


def world(key_index="record"):
    """Return a copy of a table with two file groups a partition, log files, checkpoints, a tag, and
    an index that is not built.
    """
    return _world(key_index).copy()


def cleaning():
    """Who lets states go, then files, then records."""

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
    """Who compacts the metadata."""

    def start(storage):
        metadata = Metadata(storage)
        metadata.newest()
        yield "opened"
        metadata.compact()
        return Ended()

    return Actor("checkpoint", start)


def may_be_refused(actor):
    """Return an actor whose state may be gone, or its schema another one."""
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
SCHEDULES, DEATHS = 6, 6
"""Of each so many by day."""


def test_the_table_has_every_pair():
    n = len(SERVICES)
    assert len(PAIRS) == n * len(WRITERS) + n * (n + 1) // 2
    assert len({one.name for one in (*WRITERS, *SERVICES)}) == n + len(WRITERS)


def assert_right(storage, actors, expected, where):
    """Assert that we and Hudi see the rows, that nothing is wrong, and that nobody is under way."""
    assert ours(storage) == expected, where
    if not any(actor.name == "alter" for actor in actors):  # Hudi has no defaults for older rows
        assert theirs(storage) == expected, where
    table = mdt.open(storage)
    report = table.check()
    assert report.ok and not pending(table.metadata), f"{where}: {report}"


def assert_serial(actors, run):
    """Assert that a run left what its actors, one after the other in the order of their commits,
    would leave.
    """
    expected = START
    for _, n in run.done():
        expected = actors[n].model(expected)
    where = " beside ".join(actor.name for actor in actors)
    assert_right(run.storage, actors, expected, f"{where}: {run.schedule}")
    count("schedules of pairs")


def died(actor, storage, draw):
    """Run an actor until it dies at some change of storage, perhaps not at all; return where."""
    whole = FaultyStorage(storage.copy())
    for _ in actor.start(whole):
        pass
    if not whole.operations:
        return "not at all"
    at = draw.randrange(1, len(whole.operations) + 1)
    mode = draw.choice(MODES)
    if mode == "torn" and whole.operations[at - 1].startswith("delete"):
        mode = "before"
    with pytest.raises(Crash):
        for _ in actor.start(FaultyStorage(storage, at, mode)):
            pass
    return f"{mode} {at} {whole.operations[at - 1]}"


def second_after(first, second, draw):
    """Assert that what one leaves that died is in nobody's way: the other commits, before it is
    taken for dead or after.
    """
    storage = world(draw.choice(["record", "bloom"]))
    where = f"{second.name} after {first.name} died {died(first, storage, draw)}"
    seen = ours(storage)
    assert seen in (START, first.model(START)), f"{where}: a mixture"
    if draw.random() < 0.5:
        recover(Metadata(later(storage)), after_seconds=1)
        where += ", and was recovered"
    [run] = explore(lambda: storage, [second], preemptions=0)
    expected = second.model(seen) if run.done() else seen
    mdt.open(later(storage)).abort()
    assert_right(storage, (first, second), expected, where)
    count("services and writers after another one died")


def seeded():
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    return random.Random(seed)


def both(pair, draw):
    """Return a pair in one of its orders."""
    return pair if draw.random() < 0.5 else pair[::-1]


def test_of_some_pairs_some_schedules_end_as_one_after_the_other():
    draw = seeded()
    for pair in draw.sample(PAIRS, SCHEDULES):
        actors = both(pair, draw)
        assert_serial(actors, at_random(world, actors, draw))


def test_of_some_pairs_one_goes_on_after_the_other_died():
    draw = seeded()
    for pair in draw.sample(PAIRS, DEATHS):
        second_after(*both(pair, draw), draw)


every_pair = pytest.mark.parametrize(
    "pair", PAIRS, ids=lambda pair: " and ".join(actor.name for actor in pair)
)


@pytest.mark.nightly
@every_pair
def test_every_pair_ends_as_one_after_the_other(pair):
    """In the schedules in which one of them takes the turn from the other once, and some others."""
    for run in explore(world, pair, preemptions=1):
        assert_serial(pair, run)
    draw = seeded()
    for _ in range(3):
        assert_serial(pair, at_random(world, pair, draw))


@pytest.mark.nightly
@every_pair
def test_of_every_pair_one_goes_on_after_the_other_died(pair):
    draw = seeded()
    for first, second in (pair, pair[::-1]):
        for _ in range(2):
            second_after(first, second, draw)
