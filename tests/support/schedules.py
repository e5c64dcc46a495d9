"""Run several writers in every order of their phases: a stateless model checker of some forty
lines.

An actor is a generator that pauses where another process could run in between. A schedule is the
list of actors that moved, one entry per step. :func:`explore` runs the actors from the same start
under every schedule, depth first. With a bound, an actor that could continue is preempted at most
so many times.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
import worlds
from counting import count
from pooled import thread
from worlds import (
    COW,
    MOR,
    State,
    as_state,
    city,
    deleted,
    ours,
    rows,
    theirs,
    transaction_log,
    upserted,
)

import mdt
from mdt.commit import recovery as rollback
from mdt.commit.transaction import steps
from mdt.engines import write as writes
from mdt.errors import Invalid
from mdt.filters.where import parse_where
from mdt.metadata.metadata import Metadata
from mdt.schema.alter import Alteration
from mdt.services.history.altering import Alter, Rewriting
from mdt.services.history.restoring import Restore
from mdt.services.indexing.index_builder import IndexBuild, IndexChange
from mdt.services.indexing.rekeying import Rekey
from mdt.services.layout.clustering import Clustering, NothingGained
from mdt.services.layout.compaction import Compaction
from mdt.services.layout.log_compaction import LogCompaction
from mdt.services.layout.small_files import JoinGroups
from mdt.stores.storage import MemoryStorage, Storage
from mdt.write.by_name import RowWrite
from mdt.write.conditional import Conditional
from mdt.write.overwriting import Drop
from mdt.write.setting import parse_assignments

PAUSES = frozenset(("written", "checked", "committed"))
"""Ends of steps. Preparing reads immutable files, and claims and new names commute with everything
that other writers do. So for writers among themselves, more pauses add schedules, but no behaviour.
"""
EVERY_PAUSE = PAUSES | {"begun", "prepared", "claimed"}
"""For writers beside actors that look at claims, clocks or names."""


@dataclass
class Ended:
    """How an actor ended.

    Attributes:
        seq: Its commit, or -1.
        attempts: How often it tried to commit.
        refused: Why its data were refused, or empty.
    """

    seq: int = -1
    attempts: int = 1
    refused: str = ""
    record: Any = None
    begun_at: int = -1


@dataclass(frozen=True)
class Actor:
    """``start`` makes the generator, with a Metadata of its own. ``model`` applies its commit to
    the rows.
    """

    name: str
    start: Callable[[Storage], Generator[str, None, Ended]]
    model: Callable[[State], State] = lambda state: state


@dataclass
class Run:
    """A schedule that was run to its end: the storage, the order of steps and how each
    actor ended.
    """

    storage: MemoryStorage
    schedule: tuple[int, ...] = ()
    ended: dict[int, Ended] = field(default_factory=dict)
    spread: bool = False
    alive: dict[int, Any] = field(default_factory=dict)

    def move(self, choice):
        """Let an actor take a step. Return whether it has ended."""
        self.schedule = (*self.schedule, choice)
        try:
            next(self.alive[choice])
        except StopIteration as stop:
            del self.alive[choice]
            self.ended[choice] = stop.value
        return choice not in self.alive

    @property
    def conflicts(self):
        """The number of attempts that lost."""
        return sum(e.attempts - 1 for e in self.ended.values())

    def done(self):
        """Return (seq, number) of the actors that have committed, in the order of their commits."""
        return sorted((ended.seq, n) for n, ended in self.ended.items() if ended.seq >= 0)


def driven(storage, make, pauses=PAUSES):
    """Run an operation, pausing after some phases."""
    metadata = Metadata(storage)
    driver = steps(metadata, make(metadata), attempts=20)
    while True:
        try:
            phase = next(driver)
        except StopIteration as ended:
            result = ended.value
            seq = -1 if result.record is None else result.record.seq
            return Ended(seq, result.attempts, "", result.record, result.snapshot.seq)
        except Invalid as error:
            return Ended(refused=error.message)
        except NothingGained:
            return Ended()
        if phase in pauses:
            yield phase


def acting(name, make, model=lambda state: state, pauses=PAUSES):
    """Return an actor that runs the operation which ``make`` makes of metadata, definition and
    options.
    """

    def operation(metadata):
        definition = metadata.newest().definition
        return make(metadata, definition, metadata.options(definition))

    return Actor(name, lambda storage: driven(storage, operation, pauses), model)


def refused(actor, *errors):
    """Return an actor whose commit may be refused by one of ``errors``."""

    def start(storage):
        try:
            return (yield from actor.start(storage))
        except errors as error:
            return Ended(refused=error.message)

    return Actor(actor.name, start, actor.model)


def writing(name, data, operation, model=lambda state: state, *, pauses=PAUSES, **how):
    """Return a writer of rows, for the name of an operation or for a rule."""
    return acting(
        name, lambda m, d, o: RowWrite(m, o, operation, **how).in_process(data, d), model, pauses
    )


def writing_in_tasks(name, data, operation, model=lambda state: state, pauses=PAUSES):
    """Return a writer of rows in tasks of an engine."""

    def make(metadata, definition, options):
        request = RowWrite(metadata, options, operation)
        return writes.write(request, thread(), [data], data.schema)

    return acting(name, make, model, pauses)


def upsert(ids, ts, fare, name="upsert", pauses=PAUSES, *, in_tasks=False):
    """A writer of rows, in the calling thread or in tasks of an engine."""
    make = writing_in_tasks if in_tasks else writing
    after = lambda state: upserted(state, ids, ts, fare)
    return make(f"{name} {ids}", rows(ids, ts, fare), name, after, pauses=pauses)


def delete(ids):
    """A writer that deletes keys."""
    return writing(f"delete {ids}", rows(ids, 0, 0.0), "delete", lambda state: deleted(state, ids))


def restore(seq, state):
    """An actor that restores the state after commit ``seq``."""
    make = lambda m, d, o: Restore(m, o, lambda _: seq, d.commit_action)
    return acting(f"restore {seq}", make, lambda _: state)


def conditional(where, fare=None):
    """An actor that deletes the rows that match, or gives them another fare. It only understands
    the condition ``fare = number``.
    """
    old_fare = float(where.removeprefix("fare = "))

    def make(metadata, definition, options):
        assignments = None if fare is None else parse_assignments(definition, {"fare": fare}, {})
        condition, action = parse_where(where, definition.schema), definition.commit_action
        return Conditional(metadata, options, condition, definition.schema, action, assignments)

    def after(state):
        changed = {key: (ts, fare) for key, (ts, old) in state.items() if old == old_fare}
        if fare is not None:
            return {**state, **changed}
        return {key: row for key, row in state.items() if key not in changed}

    name = f"delete where {where}" if fare is None else f"set fare = {fare} where {where}"
    return acting(name, make, after)


def without(state, cities):
    """Return a state without the rows of some cities."""
    return {key: row for key, row in state.items() if city(int(key[1:])) not in cities}


def overwrite(ids, ts, fare, name="insert_overwrite", ends=None):
    """An actor that replaces the partitions of its rows, all partitions (``ends=["*"]``), or the
    whole table.
    """
    replaced = {city(i) for i in ids} if name == "insert_overwrite" and not ends else "xy"
    after = lambda state: upserted(without(state, replaced), ids, ts, fare)
    title = f"{name} {ids}" if ends is None else f"{name} {ids} {ends}"
    return writing(title, rows(ids, ts, fare), name, after, ends=ends)


def drop(pattern):
    """An actor that deletes the partitions that match, ``city=x`` or ``city=*``, or all rows."""
    cities = "x" if pattern == "city=x" else "xy"
    partitions, what = ([pattern], "delete_partition") if pattern else (None, "truncate")
    return acting(
        f"drop {pattern}", lambda *_: Drop(partitions, what), lambda s: without(s, cities)
    )


def compaction(groups=None):
    """A table service. ``groups``: the file groups of one step, by their numbers at the beginning,
    or None for all.
    """

    def make(metadata, definition, options):
        names = None if groups is None else metadata.newest().file_groups.names(groups)
        return Compaction(metadata, options, names=names)

    return acting("compaction", make)


def groups_of(metadata):
    """Return the names of all file groups."""
    groups = metadata.newest().file_groups
    return groups.names(range(groups.count))


def log_compaction():
    """A table service that joins log files."""
    return acting("log compaction", lambda m, d, o: LogCompaction(m, o, names=groups_of(m)))


def clustering(by=("fare", "id"), curve="sort"):
    """A table service that replaces file groups."""
    return acting("clustering", lambda m, d, o: Clustering(m, o, by, curve))


def joining():
    """A table service that joins small file groups."""
    return acting("joining", lambda m, d, o: JoinGroups(m, o, d.key, "sort"))


def cutting():
    """A table service that splits a file group into several."""
    return acting("cutting", lambda m, d, o: worlds.cutting(m))


def index_build():
    """A builder of indexes that makes one commit."""
    return acting("builder", lambda m, d, o: IndexBuild(m, o))


def index_change(name, **change):
    """A user who adds, drops or forgets indexes."""
    return acting(name, lambda m, d, o: IndexChange(m, name, **change))


def rekey():
    """An actor that gives the table another key hash."""
    return acting("rekey", lambda m, d, o: Rekey(m, o))


def alter(*, rewrites=False):
    """An actor that drops the fare and adds it again, so that all rows of older commits have
    another fare.

    Args:
        rewrites: Write all rows again in the same commit.
    """
    alteration = Alteration(
        add={"fare": pa.field("fare", pa.float64())},
        drop=["fare"],
        defaults={"fare": 9.0},
        reorder=["fare", "id"],
    )
    make = lambda m, d, o: Alter(
        m.storage,
        lambda _: alteration,
        d.commit_action,
        beyond_hudi=True,
        rewriting=Rewriting(m) if rewrites else None,
    )
    name = "alter that rewrites" if rewrites else "alter"
    return acting(name, make, lambda state: {key: (ts, 9.0) for key, (ts, _) in state.items()})


def rollback_of_all():
    """An actor that considers every running transaction crashed, and pauses wherever recovery could
    be interrupted.
    """

    def start(storage):
        metadata = Metadata(storage)
        transactions = metadata.newest().transactions
        doomed = [claim for claim in rollback.pending(metadata) if claim.txn not in transactions]
        yield "looked"
        ended = yield from driven(storage, lambda _: rollback.Rollback(doomed))
        for claim in doomed:
            yield "declared dead"
            if claim.txn in metadata.newest().rolled_back:
                rollback.remove(metadata, claim)
        return ended

    return Actor("rollback", start)


def reader():
    """An actor that takes a snapshot, reads it, reads it again later, and must see the
    same rows.
    """

    def start(storage):
        scan = mdt.open(storage).scan()
        first = as_state(scan.to_arrow())
        yield "read"
        old = mdt.open(storage).scan()
        yield "taken"
        repeated, later = as_state(scan.to_arrow()), as_state(old.to_arrow())
        assert repeated == first, "a snapshot changed under its reader"
        seen = [(scan.snapshot.seq, first), (old.snapshot.seq, later)]
        return Ended(begun_at=scan.snapshot.seq, record=seen)

    return Actor("reader", start)


def explore(start, actors, *, preemptions=None, watch=None):
    """Yield the run of every schedule. ``watch`` is called whenever an actor has ended."""
    waiting = [()]
    while waiting:
        prefix, taken = waiting.pop(), 0
        run = begun(start, actors)
        while run.alive:
            last, depth = run.schedule[-1] if run.schedule else -1, len(run.schedule)
            choice = last if last in run.alive else min(run.alive)
            if depth < len(prefix):
                choice = prefix[depth]
            elif preemptions is None or taken + (last in run.alive) <= preemptions:
                waiting += [(*run.schedule, other) for other in run.alive if other != choice]
            taken += last in run.alive and choice != last
            if run.move(choice) and watch is not None:
                watch(run, choice)
        yield run


def at_random(start, actors, draw):
    """Return the run of one random schedule."""
    run = begun(start, actors)
    while run.alive:
        run.move(draw.choice(sorted(run.alive)))
    return run


def begun(start, actors):
    run = Run(start())
    run.alive = {n: actor.start(run.storage) for n, actor in enumerate(actors)}
    return run


def checked(start, actors, depth):
    """Yield the run of every schedule with the table that it leaves. A check of the table finds
    nothing.
    """
    for run in explore(start, actors, preemptions=depth):
        count("schedules")
        table = mdt.open(run.storage)
        assert table.check().ok, run.schedule
        yield run, table


# Schedules of the worlds of worlds.py, whose model is a dict

CHECK_EVERY = 9
"""A full check costs more than a schedule. Rows, history and claims are checked after each one."""
KINDS = [(MOR, "record"), (MOR, "bloom"), (COW, "bloom")]
DEPTH = [1, pytest.param(None, marks=pytest.mark.nightly)]
"""How often an actor may be interrupted in schedules by day. There is no limit at night."""


def states(actors, run, newest):
    """Return the rows that the table must hold after each commit to ``newest``: the model, applied
    in the order of the commits.
    """
    model = {seq: actors[n].model for seq, n in run.done()}
    expected = [{}, {key: (1, 1.0) for key in worlds.BASE_STATE}, worlds.BASE_STATE]
    if run.spread:
        expected.append(worlds.CLUSTERED_STATE)
    for seq in range(len(expected), newest + 1):
        expected.append(model[seq](expected[-1]) if seq in model else expected[-1])
    return expected


def assert_serial(actors, run):
    """Assert that the run left the state that its actors would leave one after the other, in the
    order of their commits.
    """
    commits = transaction_log(run.storage)
    assert commits.seqs == list(range(commits.seq + 1)), run.schedule
    assert ours(run.storage) == states(actors, run, commits.seq)[-1], run.schedule
    assert not commits.pending, run.schedule
    assert {run.ended[n].record.txn for _, n in run.done()} <= commits.txns, run.schedule


def explored(
    kind,
    *actors,
    preemptions=None,
    check_every=CHECK_EVERY,
    is_spread=False,
    is_beyond_hudi=False,
    start=worlds.filled,
):
    """Run every schedule, assert the properties that all runs have, and return the runs.

    ``is_spread``: with two file groups per partition. ``is_beyond_hudi``: columns are altered in a
    way that hudi-rs cannot read, so it is not compared.
    """
    runs = []
    start = worlds.spread if is_spread else start
    for number, run in enumerate(explore(lambda: start(*kind), actors, preemptions=preemptions)):
        run.spread = is_spread
        count("schedules")
        assert_serial(actors, run)
        if number % check_every == 0:
            assert is_beyond_hudi or ours(run.storage) == theirs(run.storage), run.schedule
            worlds.assert_clean(run.storage)
        runs.append(run)
    count("conflicts in schedules", sum(run.conflicts for run in runs))
    return runs


def row_of(key):
    """Return a function that looks up a row after a run."""
    return lambda run: ours(run.storage).get(key)


def fares(run):
    """Return the distinct fares after a run."""
    return frozenset(fare for _, fare in ours(run.storage).values())


def case(
    sentence,
    kind,
    *actors,
    night=(),
    depths=(None,),
    by_day=True,
    conflicts=None,
    look=None,
    ends=None,
):
    """Return the parameters of :func:`assert_case` for each of ``depths``, on one kind of table by
    day and on others at night. All depths but the first are for the night, too.

    conflicts: How many attempts may lose. ends: All results that ``look`` may return after a run.
    """
    parameters = []
    for table_kind in (kind, *night):
        for depth in depths:
            is_late = not by_day or table_kind != kind or depth != depths[0]
            marks = pytest.mark.nightly if is_late else ()
            name = f"{sentence}-{'-'.join(table_kind)}-{depth}"
            values = table_kind, actors, depth, conflicts, look, ends
            parameters.append(pytest.param(values, id=name, marks=marks))
    return parameters


def assert_case(values):
    """Run every schedule of a case. Each of its numbers of conflicts, and each of its ends, must
    occur.
    """
    kind, actors, depth, conflicts, look, ends = values
    runs = explored(kind, *actors, preemptions=depth)
    assert conflicts is None or {run.conflicts for run in runs} == conflicts
    assert look is None or {look(run) for run in runs} == ends
