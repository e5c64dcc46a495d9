"""Run several writers in every order of their phases: a stateless model checker of some forty
lines.

An actor is a generator that pauses where another process could come in between.  A schedule is the
list of actors that moved, one entry a step.  :func:`explore` runs the actors from the same start
under every schedule, depth first; with a bound only those that take the turn from an actor that
could go on at most so many times.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import worlds
from pooled import thread
from worlds import State, as_state, city, deleted, rows, upserted

import mdt
from mdt.commit import recovery as rollback
from mdt.commit.operation import Operation
from mdt.commit.transaction import steps
from mdt.config import Options, parse_options
from mdt.engines import write as writes
from mdt.errors import Invalid
from mdt.filters.where import parse_where
from mdt.metadata.metadata import Metadata
from mdt.schema.alter import Alteration
from mdt.schema.definition import TableDefinition
from mdt.services.history.altering import Alter
from mdt.services.history.restoring import Restore
from mdt.services.indexing.index_builder import IndexBuild, IndexChange
from mdt.services.indexing.rekeying import Rekey
from mdt.services.layout.clustering import Clustering, NothingGained
from mdt.services.layout.compaction import Compaction
from mdt.services.layout.log_compaction import LogCompaction
from mdt.services.layout.small_files import Joining
from mdt.stores.storage import MemoryStorage, Storage
from mdt.write.by_name import write_here
from mdt.write.clauses import Clause, Clauses
from mdt.write.conditional import Conditional
from mdt.write.matching import matched_on
from mdt.write.merge import Merge, MergedRows, merge_of
from mdt.write.merge_source import Source
from mdt.write.operations import RowOperation
from mdt.write.overwriting import Drop
from mdt.write.setting import setting

Model = Callable[[State], State]
PAUSES = frozenset(("written", "checked", "committed"))
"""Where a step ends.  Preparing reads immutable files, and claims and new names commute with
everything that other writers do, so that for writers among themselves more pauses add schedules,
but no behaviour.
"""
EVERY_PAUSE = PAUSES | {"begun", "prepared", "claimed"}
"""For company that looks at claims, at clocks or at names."""


@dataclass
class Ended:
    """How an actor ended: ``seq`` of its commit or -1, ``attempts``, ``refused``: why its data were
    not taken.
    """

    seq: int = -1
    attempts: int = 1
    refused: str = ""
    record: Any = None
    begun_at: int = -1


@dataclass(frozen=True)
class Actor:
    """``start`` makes the generator, with a Metadata of its own; ``model`` is what its commit does
    to the rows.
    """

    name: str
    start: Callable[[Storage], Generator[str, None, Ended]]
    model: Model


@dataclass
class Run:
    """One schedule that was run to its end: the storage, the order of steps and how each actor
    ended.
    """

    storage: MemoryStorage
    schedule: tuple[int, ...] = ()
    ended: dict[int, Ended] = field(default_factory=dict)
    spread: bool = False

    @property
    def conflicts(self) -> int:
        """How many attempts lost."""
        return sum(e.attempts - 1 for e in self.ended.values())


def driven(
    storage: Storage, make: Callable[[Metadata], Operation[Any]], pauses: frozenset[str]
) -> Generator[str, None, Ended]:
    """Carry out an operation, pausing after some phases."""
    metadata = Metadata(storage)
    driver = steps(metadata, make(metadata), attempts=20)
    while True:
        try:
            phase = next(driver)
        except StopIteration as done:
            record = done.value.record
            return Ended(
                -1 if record is None else record.seq,
                done.value.attempts,
                "",
                record,
                done.value.snapshot.seq,
            )
        except Invalid as error:
            return Ended(refused=error.message)
        except NothingGained:
            return Ended()
        if phase in pauses:
            yield phase


def _options(definition: TableDefinition) -> Options:
    return parse_options(definition.options)


def upsert(
    ids: Sequence[int],
    ts: int,
    fare: float,
    name: str = "upsert",
    pauses: frozenset[str] = PAUSES,
    *,
    in_tasks: bool = False,
) -> Actor:
    """A writer of rows, in the calling thread or in tasks of an engine."""

    def make(metadata: Metadata) -> RowOperation:
        definition, data = metadata.newest().definition, rows(ids, ts, fare)
        options = _options(definition)
        if in_tasks:
            return writes.write(thread(), metadata, options, [data], data.schema, name)
        return write_here(metadata, options, data, name, definition)

    return Actor(
        f"{name} {ids}",
        lambda s: driven(s, make, pauses),
        lambda state: upserted(state, ids, ts, fare),
    )


def delete(ids: Sequence[int]) -> Actor:
    """A writer that deletes keys."""

    def make(metadata: Metadata) -> RowOperation:
        definition = metadata.newest().definition
        return write_here(metadata, _options(definition), rows(ids, 0, 0.0), "delete", definition)

    return Actor(
        f"delete {ids}", lambda s: driven(s, make, PAUSES), lambda state: deleted(state, ids)
    )


def restore(seq: int, state: State) -> Actor:
    """Somebody who brings the state after commit ``seq`` back."""

    def make(metadata: Metadata) -> Restore:
        definition = metadata.newest().definition
        return Restore(metadata, _options(definition), lambda _: seq, definition.commit_action)

    return Actor(f"restore {seq}", lambda s: driven(s, make, PAUSES), lambda _: state)


def conditional(where: str, fare: float | None = None) -> Actor:
    """Somebody who deletes the rows that match, or gives them another fare; understands ``fare =
    number`` alone.
    """
    wanted = float(where.removeprefix("fare = "))

    def make(metadata: Metadata) -> Conditional:
        definition = metadata.newest().definition
        given = None if fare is None else setting(definition, {"fare": fare}, {})
        asked = parse_where(where, definition.schema)
        return Conditional(
            metadata,
            _options(definition),
            asked,
            definition.schema,
            definition.commit_action,
            given,
        )

    def after(state: State) -> State:
        changed = {
            key: (ts, old if fare is None or old != wanted else fare)
            for key, (ts, old) in state.items()
        }
        return {key: row for key, row in changed.items() if fare is not None or row[1] != wanted}

    name = f"delete where {where}" if fare is None else f"set fare = {fare} where {where}"
    return Actor(name, lambda s: driven(s, make, PAUSES), after)


def overwrite(
    ids: Sequence[int],
    ts: int,
    fare: float,
    name: str = "insert_overwrite",
    ends: Sequence[str] | None = None,
) -> Actor:
    """A writer of rows in the place of their partitions, of those that ``ends`` names, such as
    ``city=x``, or of the whole table.
    """

    def make(metadata: Metadata) -> RowOperation:
        definition = metadata.newest().definition
        data = rows(ids, ts, fare)
        return write_here(metadata, _options(definition), data, name, definition, ends=ends)

    def after(state: State) -> State:
        replaced = (
            {city(i) for i in ids} if name == "insert_overwrite" and ends is None else {"x", "y"}
        )
        if ends is not None and "*" not in ends:
            replaced = {path.removeprefix("city=") for path in ends}
        kept = {key: row for key, row in state.items() if city(int(key[1:])) not in replaced}
        return upserted(kept, ids, ts, fare)

    told = f"{name} {ids}" + ("" if ends is None else f" {ends}")
    return Actor(told, lambda s: driven(s, make, PAUSES), after)


def drop(pattern: str | None) -> Actor:
    """Somebody who deletes the partitions that match, such as ``city=x``, or all rows."""

    def make(metadata: Metadata) -> Drop:
        return Drop(
            None if pattern is None else [pattern], "delete_partition" if pattern else "truncate"
        )

    def after(state: State) -> State:
        gone = {"x", "y"} if pattern in (None, "city=*") else {pattern.removeprefix("city=")}
        return {key: row for key, row in state.items() if city(int(key[1:])) not in gone}

    return Actor(f"drop {pattern}", lambda s: driven(s, make, PAUSES), after)


def merge(
    ids: Sequence[int],
    ts: int,
    fare: float,
    say: Callable[[Clauses], Sequence[Clause]],
    model: Model,
    on: str | None = None,
) -> Actor:
    """Somebody who merges rows; ``say`` makes the clauses, ``model`` says what they do.  ``on``:
    how rows are matched, None by key.
    """

    def make(metadata: Metadata) -> Merge:
        definition = metadata.newest().definition
        source = Source(rows(ids, ts, fare), definition)
        how = matched_on(on, source, definition)
        clauses = say(Clauses(source, definition, how.equal))
        merged = MergedRows(metadata, _options(definition), source, how, clauses)
        return merge_of(merged, definition.commit_action, definition.schema)

    return Actor(f"merge {ids}", lambda s: driven(s, make, PAUSES), model)


def compaction(groups: Sequence[int] | None = None) -> Actor:
    """A table service.  ``groups``: the file groups of one step, by their numbers at the beginning;
    None: all.
    """

    def make(metadata: Metadata) -> Compaction:
        snapshot = metadata.newest()
        names = None if groups is None else snapshot.file_groups.names(groups)
        return Compaction(metadata, _options(snapshot.definition), names=names)

    return Actor("compaction", lambda s: driven(s, make, PAUSES), lambda state: state)


def log_compaction() -> Actor:
    """A table service that joins log files."""

    def make(metadata: Metadata) -> LogCompaction:
        snapshot = metadata.newest()
        names = snapshot.file_groups.names(range(snapshot.file_groups.count))
        return LogCompaction(metadata, _options(snapshot.definition), names=names)

    return Actor("log compaction", lambda s: driven(s, make, PAUSES), lambda state: state)


def clustering(by: Sequence[str] = ("fare", "id"), curve: str = "sort") -> Actor:
    """A table service that replaces file groups."""

    def make(metadata: Metadata) -> Clustering:
        return Clustering(metadata, _options(metadata.newest().definition), by, curve)

    return Actor("clustering", lambda s: driven(s, make, PAUSES), lambda state: state)


def joining() -> Actor:
    """A table service that joins small file groups."""

    def make(metadata: Metadata) -> Joining:
        definition = metadata.newest().definition
        return Joining(metadata, _options(definition), definition.key, "sort")

    return Actor("joining", lambda s: driven(s, make, PAUSES), lambda state: state)


def cutting() -> Actor:
    """A table service that makes several file groups of one."""
    return Actor("cutting", lambda s: driven(s, worlds.cutting, PAUSES), lambda state: state)


def index_build() -> Actor:
    """A builder of indexes that makes one commit."""

    def make(metadata: Metadata) -> IndexBuild:
        return IndexBuild(metadata, _options(metadata.newest().definition))

    return Actor("builder", lambda s: driven(s, make, PAUSES), lambda state: state)


def index_change(name: str, **change: tuple[str, ...]) -> Actor:
    """A user who adds, drops or forgets indexes."""

    def make(metadata: Metadata) -> IndexChange:
        return IndexChange(metadata, name, **change)

    return Actor(name, lambda s: driven(s, make, PAUSES), lambda state: state)


def rekey() -> Actor:
    """Somebody who gives the table another key hash."""

    def make(metadata: Metadata) -> Rekey:
        return Rekey(metadata, _options(metadata.newest().definition))

    return Actor("rekey", lambda s: driven(s, make, PAUSES), lambda state: state)


def alter() -> Actor:
    """Somebody who drops the fare and adds it again: all rows of older commits have another one."""

    def make(metadata: Metadata) -> Alter:
        fresh = pa.field("fare", pa.float64())
        wanted = Alteration(
            add={"fare": fresh}, drop=["fare"], defaults={"fare": 9.0}, reorder=["fare", "id"]
        )
        return Alter(lambda _: wanted, metadata.newest().definition.commit_action, beyond_hudi=True)

    return Actor(
        "alter",
        lambda s: driven(s, make, PAUSES),
        lambda state: {key: (ts, 9.0) for key, (ts, _) in state.items()},
    )


def rollback_of_all() -> Actor:
    """Somebody who takes every running transaction for dead, and pauses wherever recovery could be
    interrupted.
    """

    def start(storage: Storage) -> Generator[str, None, Ended]:
        metadata = Metadata(storage)
        doomed = [
            c for c in rollback.pending(metadata) if c.txn not in metadata.newest().transactions
        ]
        yield "looked"
        ended = yield from driven(storage, lambda _: rollback.Rollback(doomed), PAUSES)
        for claim in doomed:
            yield "declared dead"
            if claim.txn in metadata.newest().rolled_back:
                rollback.remove(metadata, claim)
        return ended

    return Actor("rollback", start, lambda state: state)


def reader() -> Actor:
    """Somebody who takes a snapshot, reads it, reads it again later, and must see the same rows."""

    def start(storage: Storage) -> Generator[str, None, Ended]:

        scan = mdt.open(storage).scan()
        first = as_state(scan.to_arrow())
        yield "read"
        old = mdt.open(storage).scan()
        yield "taken"
        again, later = as_state(scan.to_arrow()), as_state(old.to_arrow())
        assert again == first, "a snapshot changed under its reader"
        return Ended(
            begun_at=scan.snapshot.seq,
            record=[(scan.snapshot.seq, first), (old.snapshot.seq, later)],
        )

    return Actor("reader", start, lambda state: state)


def explore(
    start: Callable[[], MemoryStorage],
    actors: Sequence[Actor],
    *,
    preemptions: int | None = None,
    watch: Callable[[Run, int], None] | None = None,
) -> Iterator[Run]:
    """Yield the run of every schedule; ``watch`` is called whenever an actor has ended."""
    waiting: list[tuple[int, ...]] = [()]
    while waiting:
        prefix = waiting.pop()
        run = Run(start())
        alive = {n: actor.start(run.storage) for n, actor in enumerate(actors)}
        taken = 0
        while alive:
            last = run.schedule[-1] if run.schedule else -1
            choice = last if last in alive else min(alive)
            depth = len(run.schedule)
            if depth < len(prefix):
                choice = prefix[depth]
            else:
                cost = int(last in alive)
                if preemptions is None or taken + cost <= preemptions:
                    waiting += [(*run.schedule, other) for other in alive if other != choice]
            taken += int(last in alive and choice != last)
            run.schedule = (*run.schedule, choice)
            try:
                next(alive[choice])
            except StopIteration as done:
                del alive[choice]
                run.ended[choice] = done.value
                if watch is not None:
                    watch(run, choice)
        yield run


def at_random(
    start: Callable[[], MemoryStorage], actors: Sequence[Actor], draw: random.Random
) -> Run:
    """Return the run of one schedule that is drawn."""
    run = Run(start())
    alive = {n: actor.start(run.storage) for n, actor in enumerate(actors)}
    while alive:
        choice = draw.choice(sorted(alive))
        run.schedule = (*run.schedule, choice)
        try:
            next(alive[choice])
        except StopIteration as done:
            del alive[choice]
            run.ended[choice] = done.value
    return run
