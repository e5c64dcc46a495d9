"""Every pair of a service and a writer, and of two services: interleaved, and one after the other
has died.

The pairs that have tests of their own stand in ``test_schedules.py`` and beside the services; here
all of them go through one table, whatever they are.  By day some are drawn, at night all are run.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Generator, Iterator
from functools import cache

import pytest
from counting import count
from schedules import (
    PAUSES,
    Actor,
    Ended,
    Run,
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
    index_build,
    index_change,
    joining,
    log_compaction,
    overwrite,
    restore,
    rollback_of_all,
    upsert,
)
from worlds import MODES, MOR, State, later, make, ours, rows, theirs, upserted

import mdt
from mdt.commit.operation import Operation
from mdt.commit.recovery import pending, recover, sweep
from mdt.errors import Expired, Invalid, Unsupported
from mdt.metadata.metadata import Metadata
from mdt.services.checking.keys import KeyBuild
from mdt.services.history.tagging import AddTag, DropTag
from mdt.services.layout.compaction import Compaction
from mdt.services.reclaiming.archiving import archive
from mdt.services.reclaiming.cleaning import Clean
from mdt.stores.storage import MemoryStorage, Storage
from mdt.testing.faulty import Crash, FaultyStorage

pytestmark = pytest.mark.usefixtures("records_decoded_once")

FIRST: State = upserted({}, range(6), 1, 1.0)
EARLIER: State = upserted(FIRST, range(6, 12), 1, 1.5)
START: State = upserted(EARLIER, (0, 1, 6), 3, 3.0)
TAGGED = 2
"""The seq of EARLIER."""


@cache
def _world(key_index: str) -> MemoryStorage:
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


def world(key_index: str = "record") -> MemoryStorage:
    """Return a copy of a table with two file groups a partition, log files, checkpoints, a tag, and
    an index that is not built.
    """
    return _world(key_index).copy()


def of(name: str, operation: Callable[[Metadata], Operation[object]]) -> Actor:
    """Return who carries out an operation that leaves the rows as they are."""
    return Actor(name, lambda storage: driven(storage, operation, PAUSES), lambda state: state)


def groups(metadata: Metadata) -> list[str]:
    return sorted(metadata.newest().file_groups.all_names())


def cleaning() -> Actor:
    """Who lets states go, then files, then records."""

    def start(storage: Storage) -> Generator[str, None, Ended]:
        metadata = Metadata(storage)
        options = metadata.options(metadata.newest().definition)
        ended = yield from driven(
            storage, lambda m: Clean(m, options, horizon=99, records_min=1), PAUSES
        )
        sweep(metadata)
        yield "swept"
        archive(metadata)
        return ended

    return Actor("clean", start, lambda state: state)


def checkpoint() -> Actor:
    """Who compacts the metadata."""

    def start(storage: Storage) -> Generator[str, None, Ended]:
        metadata = Metadata(storage)
        metadata.newest()
        yield "opened"
        metadata.compact()
        return Ended()

    return Actor("checkpoint", start, lambda state: state)


def refused(actor: Actor) -> Actor:
    """Return an actor whose commit may be refused: its state is gone, or the schema another one."""

    def start(storage: Storage) -> Generator[str, None, Ended]:
        try:
            return (yield from actor.start(storage))
        except (Expired, Unsupported, Invalid) as error:
            return Ended(refused=error.message)

    return Actor(actor.name, start, actor.model)


def options(metadata: Metadata) -> mdt.config.Options:
    return metadata.options(metadata.newest().definition)


WRITERS = [
    upsert([0, 20], 4, 4.0),
    upsert([21, 22], 4, 4.0, "insert"),
    delete([1, 6]),
    refused(conditional("fare = 2.0")),
    refused(conditional("fare = 1.0", 8.0)),
    refused(restore(TAGGED, EARLIER)),
    refused(alter()),
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
    refused(of("tag", lambda m: AddTag(m, "new", 3, None, "tag"))),
    refused(of("untag", lambda m: DropTag("kept"))),
    rollback_of_all(),
    of("key build", lambda m: KeyBuild(m, options(m), groups(m))),
    of("rewriting", lambda m: Compaction(m, options(m), names=groups(m), everything=True)),
]
PAIRS = [
    *itertools.product(SERVICES, WRITERS),
    *itertools.combinations_with_replacement(SERVICES, 2),
]
SCHEDULES, DEATHS = 6, 6
"""Of each so many by day."""


def test_the_table_has_every_pair() -> None:
    n = len(SERVICES)
    assert len(PAIRS) == n * len(WRITERS) + n * (n + 1) // 2
    assert len({one.name for one in (*WRITERS, *SERVICES)}) == n + len(WRITERS)


def assert_right(storage: MemoryStorage, expected: State, where: str, *, altered: bool) -> None:
    """Assert that we and Hudi see the rows, that nothing is wrong, and that nobody is under way."""
    assert ours(storage) == expected, where
    if not altered:  # Hudi's readers have no defaults for older rows
        assert theirs(storage) == expected, where
    table = mdt.open(storage)
    report = table.check()
    assert report.ok and not pending(table.metadata), f"{where}: {report}"


def assert_serial(actors: tuple[Actor, ...], run: Run, where: str) -> None:
    """Assert that a run left what its actors, one after the other in the order of their commits,
    would leave.
    """
    expected = START
    for _, n in sorted((ended.seq, n) for n, ended in run.ended.items() if ended.seq >= 0):
        expected = actors[n].model(expected)
    altered = any(actor.name == "alter" for actor in actors)
    assert_right(run.storage, expected, f"{where}: {run.schedule}", altered=altered)


def died(actor: Actor, storage: MemoryStorage, draw: random.Random) -> str:
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


def second_after(first: Actor, second: Actor, draw: random.Random) -> None:
    """Assert that what one leaves that died is in nobody's way: the other commits, before it is
    taken for dead or after.
    """
    storage = world(draw.choice(["record", "bloom"]))
    where = f"{second.name} after {first.name} died {died(first, storage, draw)}"
    seen = ours(storage)
    assert seen in (START, first.model(START)), f"{where}: a mixture"
    if draw.random() < 0.5:
        metadata = Metadata(later(storage))
        recover(metadata, after_seconds=1)
        where += ", and was recovered"
    driver = second.start(storage)
    ended = Ended()
    while True:
        try:
            next(driver)
        except StopIteration as done:
            ended = done.value
            break
    expected = second.model(seen) if ended.seq >= 0 else seen
    mdt.open(later(storage)).abort()
    assert_right(storage, expected, where, altered="alter" in (first.name, second.name))
    count("services and writers after another one died")


def seeded() -> random.Random:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    return random.Random(seed)


def both(pair: tuple[Actor, Actor], draw: random.Random) -> tuple[Actor, Actor]:
    """Return a pair in one of its orders."""
    return pair if draw.random() < 0.5 else pair[::-1]


def test_of_some_pairs_some_schedules_end_as_one_after_the_other() -> None:
    draw = seeded()
    for pair in draw.sample(PAIRS, SCHEDULES):
        actors = both(pair, draw)
        run = at_random(world, actors, draw)
        count("schedules of pairs")
        assert_serial(actors, run, " beside ".join(actor.name for actor in actors))


def test_of_some_pairs_one_goes_on_after_the_other_died() -> None:
    draw = seeded()
    for pair in draw.sample(PAIRS, DEATHS):
        second_after(*both(pair, draw), draw)


def all_runs(actors: tuple[Actor, Actor]) -> Iterator[Run]:
    """Yield the schedules in which one of them takes the turn from the other once, and some
    others.
    """
    yield from explore(world, actors, preemptions=1)
    draw = seeded()
    for _ in range(3):
        yield at_random(world, actors, draw)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "pair", PAIRS, ids=lambda pair: " beside ".join(actor.name for actor in pair)
)
def test_every_pair_ends_as_one_after_the_other(pair: tuple[Actor, Actor]) -> None:
    for run in all_runs(pair):
        count("schedules of pairs")
        assert_serial(pair, run, "")


@pytest.mark.nightly
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: " and ".join(actor.name for actor in pair))
def test_of_every_pair_one_goes_on_after_the_other_died(pair: tuple[Actor, Actor]) -> None:
    draw = seeded()
    for first, second in (pair, pair[::-1]):
        for _ in range(2):
            second_after(first, second, draw)
