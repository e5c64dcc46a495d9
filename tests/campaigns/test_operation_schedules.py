"""Conditional updates, partial upserts, overwrites, merges and rekeys beside other operations. Every
schedule ends like a serial order, and no operation misses a change to rows that it has read.
"""

import pytest
from counting import count
from pooled import thread
from schedules import (
    KINDS,
    acting,
    alter,
    assert_case,
    case,
    clustering,
    compaction,
    conditional,
    delete,
    drop,
    explored,
    fares,
    overwrite,
    rekey,
    restore,
    row_of,
    upsert,
    writing,
)
from worlds import BASE_STATE, COW, MOR, SCHEMA, filled, ours, rows

import mdt
from mdt.config import parse_options
from mdt.engines import merge_on_engine
from mdt.metadata.metadata import Metadata
from mdt.stores.storage import MemoryStorage
from mdt.write import conditional as written
from mdt.write.blending import BlendOptions
from mdt.write.clauses import Action, ClauseKind
from mdt.write.merge import Decision, MergedRows, MergeOutcome, merge_operation
from mdt.write.merge_request import ClauseText, MergeText

pytestmark = pytest.mark.usefixtures("records_decoded_once")

RECORD, BLOOM, REWRITTEN = KINDS
REWRITTEN_RECORD = (COW, "record")
AT_ANY_DEPTH = {"depths": (1, None)}
AT_NIGHT = AT_ANY_DEPTH | {"by_day": False}


def partial(ids, *, ts=None, fare=None, mergers=None):
    """A writer of some columns, which keeps the others. ``mergers``: as of an upsert, of ``fare``:
    "sum".
    """
    lacking = [name for name, value in (("ts", ts), ("fare", fare)) if value is None]
    data = rows(ids, ts or 0, fare or 0.0).drop_columns(lacking)

    def blend(old_ts, old_fare):
        if ts is not None and ts < old_ts and not mergers:
            return old_ts, old_fare
        new_fare = old_fare if fare is None else fare
        return max(ts or 0, old_ts), old_fare + fare if mergers else new_fare

    def model(state):
        old_rows = {f"k{i}": state.get(f"k{i}") for i in ids}
        inserted = {
            key: (ts, fare) for key, old in old_rows.items() if old is None and ts is not None
        }
        updated = {key: blend(*old) for key, old in old_rows.items() if old is not None}
        return {**state, **updated, **inserted}

    name = f"partial {ids} {ts} {fare}"
    return writing(name, data, "upsert", model, blend=BlendOptions(True, dict(mergers or {})))


def merge(ids, ts, fare, clauses, model, on=None, *, in_tasks=False):
    """A writer that merges rows, in the calling thread or in tasks. ``model`` applies the clauses to a
    state. ``on``: the merge condition, or None to match by key.
    """
    data, request = rows(ids, ts, fare), MergeText(on, tuple(clauses))

    def make(metadata, definition, options):
        if in_tasks:
            return merge_on_engine.merge(
                thread(), metadata, options, [data], data.schema, request, definition.schema
            )
        merged = MergedRows(metadata, options, *request.parse(data, definition))
        return merge_operation(merged, definition.commit_action, definition.schema)

    return acting(f"merge {ids}", make, model)


def update(values, condition=None, when=ClauseKind.MATCHED):
    return ClauseText(when, Action.UPDATE, condition, None, values)


INSERT = ClauseText(ClauseKind.NOT_MATCHED, Action.INSERT, None, None, "*")
DELETE_OTHERS = ClauseText(ClauseKind.NOT_MATCHED_BY_SOURCE, Action.DELETE, None, None, None)


def counting(ids, *, inserts=True, in_tasks=False):
    """A writer that adds one to the fare of existing rows, and inserts or ignores other rows. No addition
    may be lost.
    """
    clauses = [update({"fare": "target.fare + source.fare"})] + [INSERT] * inserts

    def model(state):
        rows_before = {f"k{i}": (2, 0.0) for i in ids} | {**state} if inserts else state
        matched = {f"k{i}": rows_before[f"k{i}"] for i in ids if f"k{i}" in rows_before}
        return {**state, **{key: (ts, fare + 1.0) for key, (ts, fare) in matched.items()}}

    return merge(ids, 2, 1.0, clauses, model, in_tasks=in_tasks)


def replacing(ids, fare, *, in_tasks=False):
    """A writer that replaces the content of the table by the given rows."""
    model = lambda _: {f"k{i}": (9, fare) for i in ids}
    return merge(ids, 9, fare, [update("*"), INSERT, DELETE_OTHERS], model, in_tasks=in_tasks)


def fare_changed(other, fare, ids=None):
    """Return a model that sets the fare to ``fare`` in rows with the fare ``other``."""
    keys = None if ids is None else {f"k{i}" for i in ids}

    def model(state):
        result = dict(state)
        for key, (ts, old) in state.items():
            if old == other and (keys is None or key in keys):
                result[key] = ts, fare
        return result

    return model


def setting_where(other, fare):
    """A writer with rows of unused keys that sets the fare of all rows with the fare ``other``."""
    clause = update({"fare": fare}, f"target.fare = {other}", ClauseKind.NOT_MATCHED_BY_SOURCE)
    return merge([90], 1, 1.0, [clause], fare_changed(other, fare))


def swapping(other, fare, how, ids=(0, 4)):
    """A writer that sets the fare to ``fare`` in rows with the fare ``other``, by default of two rows in
    one file group. The fare is tested by a clause or by the merge condition.
    """
    test, on = f"target.fare = {other}", None
    if how == "on":
        test, on = None, f"source.id = target.id and source.city = target.city and {test}"
    return merge(
        ids, 1, 1.0, [update({"fare": str(fare)}, test)], fare_changed(other, fare, ids), on
    )


def keys(run):
    return tuple(sorted(ours(run.storage)))


def two_rows(run):
    state = ours(run.storage)
    return state["k0"], state["k20"]


EITHER_FARE = frozenset({frozenset({1.0}), frozenset({2.0})})
"""One update sees the rows of the other: they do not swap fares."""
DELETES, UPDATES = conditional("fare = 2.0"), conditional("fare = 2.0", 5.0)
ADDING = [partial([0, 20], ts=ts, fare=1.0, mergers={"fare": "sum"}) for ts in (2, 3)]
CASES = [
    *case(
        "of two updates by a condition one sees what the other makes of a row",
        RECORD,
        conditional("fare = 1.0", 2.0),
        conditional("fare = 2.0", 1.0),
        night=(REWRITTEN,),
        depths=(2, None),
        look=fares,
        ends=EITHER_FARE,
    ),
    *case(
        "a delete by a condition and an update of the same rows",
        REWRITTEN_RECORD,
        DELETES,
        conditional("fare = 1.0", 2.0),
        night=(BLOOM,),
        depths=(2, None),
    ),
    *case(
        "two writers of different columns of a row both stay",
        RECORD,
        partial([0, 1], ts=7),
        partial([0, 1], fare=8.0),
        night=(REWRITTEN,),
        conflicts={0, 1},
        look=row_of("k0"),
        ends={(7, 8.0)},
        **AT_ANY_DEPTH,
    ),
    *case(
        "no addition of two upserts that add is lost",
        RECORD,
        *ADDING,
        look=two_rows,
        ends={((3, BASE_STATE["k0"][1] + 2.0), (3, 2.0))},
        **AT_ANY_DEPTH,
    ),
    *case(
        "an overwrite replaces also a new file group that came meanwhile",
        RECORD,
        overwrite([0, 20], 1, 9.0),
        upsert([22], 3, 3.0, "bulk_insert"),
        night=(REWRITTEN,),
        conflicts={0, 1},
        look=lambda run: (run.ended[1].attempts, run.ended[0].seq < run.ended[1].seq),
        ends={(1, True), (1, False)},
        **AT_ANY_DEPTH,
    ),
    *case(
        "of two overwrites of a partition the later one stays",
        REWRITTEN_RECORD,
        overwrite([0], 1, 8.0),
        overwrite([20], 1, 9.0),
        look=keys,
        ends={("k0", "k1", "k3", "k5"), ("k1", "k20", "k3", "k5")},
        **AT_ANY_DEPTH,
    ),
    *case(
        "overwrites of different partitions never conflict",
        BLOOM,
        overwrite([0], 1, 8.0),
        overwrite([1], 1, 9.0),
        depths=(2,),
        conflicts={0},
    ),
    *case(
        "no addition of two merges of the same keys is lost",
        RECORD,
        counting([0, 20]),
        counting([0, 20]),
        night=(REWRITTEN,),
        conflicts={0, 1},
        look=row_of("k20"),
        ends={(2, 2.0)},
        **AT_ANY_DEPTH,
    ),
    *case(
        "a merge in tasks and one beside it lose no addition",
        RECORD,
        counting([0, 20], in_tasks=True),
        counting([0, 20]),
        conflicts={0, 1},
        look=row_of("k20"),
        ends={(2, 2.0)},
        **AT_ANY_DEPTH,
    ),
    *case(
        "a merge and an update by a condition do not swap",
        BLOOM,
        setting_where(1.0, 2.0),
        conditional("fare = 2.0", 1.0),
        look=fares,
        ends=EITHER_FARE,
        **AT_ANY_DEPTH,
    ),
    *case(
        "a merge counts beside an update by a condition",
        RECORD,
        counting([0, 1]),
        conditional("fare = 2.0", 7.0),
        **AT_ANY_DEPTH,
    ),
    *case(
        "a key that a merge found absent",
        RECORD,
        counting([20]),
        upsert([20], 3, 3.0),
        conflicts={0, 1},
        **AT_ANY_DEPTH,
    ),
]
SET_BY_FARE = [update({"fare": "7.0"})], fare_changed(2.0, 7.0), "source.fare = target.fare"
CASES += case(
    "a merge by values sees a matching row that another writer adds to a file group which it reads",
    RECORD,
    merge([90], 1, 2.0, *SET_BY_FARE),
    upsert([20], 3, 2.0),
    conflicts={0, 1},
    look=row_of("k20"),
    ends={(3, 2.0), (3, 7.0)},
    **AT_ANY_DEPTH,
)
for in_tasks in (False, True):
    CASES += case(
        "of two merges that make the table their own rows one is left" + " in tasks" * in_tasks,
        REWRITTEN_RECORD,
        replacing([0, 20], 5.0, in_tasks=in_tasks),
        replacing([1, 20, 21], 6.0),
        look=keys,
        ends={("k0", "k20"), ("k1", "k20", "k21")},
        **AT_ANY_DEPTH,
    )
for how in ("clause", "on"):
    for ids in ((0, 4), (0, 3)):
        CASES += case(
            f"two merges that look by {how} at what the other changes, rows {ids}, do not swap",
            RECORD,
            swapping(1.0, 2.0, how, ids),
            swapping(2.0, 1.0, how, ids),
            conflicts={0, 1},
            look=lambda run, ids=ids: tuple(ours(run.storage)[f"k{i}"][1] for i in ids),
            ends={(1.0, 1.0), (2.0, 2.0)},
            **AT_ANY_DEPTH,
        )
for condition in (DELETES, UPDATES):
    # k0 has the fare 2.0, k4 does not. Both are in one file group
    for other, conflicts in (
        (upsert([4], 3, 3.0), {0}),
        (upsert([4], 3, 2.0), {0, 1}),  # the new row matches
        (upsert([0], 3, 3.0), {0, 1}),  # the row itself changes
        (compaction(), None),
    ):
        name = f"{condition.name} beside {other.name}, of attempts that lose {conflicts}"
        CASES += case(name, RECORD, condition, other, conflicts=conflicts, **AT_NIGHT)
for other, conflicts in (
    # k0, k2 and k4 are in one file group, and k20 is inserted into it
    (upsert([2], 3, 3.0), {0}),
    (delete([2]), {0}),
    (counting([2]), {0}),
    (upsert([0], 3, 3.0), {0, 1}),
    (delete([0]), {0, 1}),
    (upsert([0, 20], 3, 3.0), {0, 1}),
    (compaction(), {0, 1}),
):
    merging = counting([0]) if conflicts == {0} else counting([0, 20])
    CASES += case(
        f"merge beside {other.name}", RECORD, merging, other, conflicts=conflicts, **AT_NIGHT
    )
for other in (upsert([0, 21], 1, 5.0), delete([0, 1]), compaction()):
    merging = counting([0, 21], inserts=False, in_tasks=True)
    CASES += case(f"merge in tasks beside {other.name}", RECORD, merging, other, **AT_NIGHT)
for other in (upsert([0, 20], 1, 5.0), compaction(), delete([3])):
    named = f"partial upsert beside {other.name}"
    CASES += case(named, RECORD, partial([0, 1], fare=8.0), other, **AT_NIGHT)


@pytest.mark.parametrize("values", CASES)
def test_operations_have_a_serial_result_in_every_schedule(values):
    assert_case(values)


def _only_x(*kind):
    storage = filled(*kind)
    mdt.open(storage).delete_partition("city=y")
    return storage


OVERWRITE_ALL = overwrite([0], 1, 9.0, ends=["*"])


@pytest.mark.parametrize("first", [OVERWRITE_ALL, drop("city=*")], ids=lambda actor: actor.name)
def test_named_partitions_are_replaced_even_if_created_by_another_writer_meanwhile(first):
    runs = explored(BLOOM, first, upsert([1], 3, 3.0), preemptions=2, start=_only_x)
    assert any(run.conflicts for run in runs)


DAILY_ACTORS = [upsert([0, 20], 3, 3.0), compaction(), drop("city=x")]
NIGHTLY_ACTORS = [
    delete([0, 1]),
    clustering(),
    DELETES,
    conditional("fare = 1.0", 8.0),
    restore(1, {key: (1, 1.0) for key in BASE_STATE}),
    drop(None),
    overwrite([1], 1, 7.0, "insert_overwrite_table"),
]


@pytest.mark.parametrize(
    "other",
    DAILY_ACTORS + [pytest.param(actor, marks=pytest.mark.nightly) for actor in NIGHTLY_ACTORS],
)
@pytest.mark.parametrize(
    "first", [overwrite([0, 20], 1, 9.0), OVERWRITE_ALL, drop("city=x"), drop(None)]
)
def test_an_overwrite_beside_another_operation_has_a_serial_result(first, other):
    explored(RECORD, first, other, preemptions=1)


@pytest.mark.parametrize("kind", [RECORD, REWRITTEN, (MOR, "memory")], ids="-".join)
@pytest.mark.parametrize(
    "other",
    [upsert([0, 20], 3, 3.0), delete([0, 3]), compaction(), clustering(), rekey()],
    ids=lambda other: other.name,
)
def test_a_rekey_beside_another_operation_has_a_serial_result(kind, other):
    runs = explored(kind, rekey(), other)
    for run in runs:
        if other.name != "rekey":
            assert run.ended[0].attempts == 1, "a rekey includes the commits of others meanwhile"
        table = mdt.open(run.storage)
        rows_found = table.scan().to_arrow()
        assert table.get(rows_found.select(["id", "city"])).to_pylist() == rows_found.to_pylist()
    assert max(run.conflicts for run in runs) <= 1


def test_a_rekey_beside_an_alter_or_upserts_has_a_serial_result():
    explored(BLOOM, rekey(), upsert([0, 20], 3, 3.0), upsert([1, 20], 4, 4.0), preemptions=2)
    explored(RECORD, rekey(), alter(), is_beyond_hudi=True)


MUTANTS = {
    "a condition that does not look at the rows that others added": (
        (written, "may_match", lambda record, predicate, definition: False),
        (UPDATES, upsert([4], 3, 2.0)),
    ),
    "a merge that forgets keys that it found absent": (
        (MergeOutcome, "absent", lambda self, is_global: {}),
        (counting([20]), upsert([20], 1, 3.0)),
    ),
    **{
        f"a merge by {how} that forgets rows which it leaves": (
            (Decision, "_rows_read", lambda self, done: {}),
            (swapping(1.0, 2.0, how), swapping(2.0, 1.0, how)),
        )
        for how in ("clause", "on")
    },
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_schedules_detect_a_mutant(mutant, monkeypatch):
    patch, actors = MUTANTS[mutant]
    monkeypatch.setattr(*patch)
    with pytest.raises(AssertionError):
        explored(RECORD, *actors, preemptions=1)
    count("mutants killed")


@pytest.mark.parametrize(
    ("more", "on"),
    [
        (
            {"scope": "partition"},
            ["id"],
        ),  # a row with the same id may be inserted in another partition
        (
            {"options": {"mdt.keys.repeat": True}},
            None,
        ),  # a row with the same key may be inserted in any file group
        ({}, "source.fare = target.fare"),  # rows are selected by their values
    ],
)
def test_a_merge_that_may_match_new_rows_does_not_limit_conflicts_to_the_rows_read(more, on):
    delete_matched = ClauseText(ClauseKind.MATCHED, Action.DELETE, None, None, None)

    def unchanged_rows(on, **more):
        storage = MemoryStorage()
        table = mdt.create(
            storage, SCHEMA, key=["id"], partition_by=["city"], table_type=MOR, **more
        )
        table.upsert(rows(range(8), 1, 1.0))
        snapshot = table.snapshot()
        definition = snapshot.definition
        read = MergeText(on, (delete_matched,)).parse(rows([0], 1, 1.0), definition)
        merged = MergedRows(Metadata(storage), parse_options(definition.options), *read)
        operation = merge_operation(merged, "deltacommit", definition.schema)
        return operation.prepare(snapshot, "a" * 32).left

    assert unchanged_rows(on, **more) is None
    assert list(map(len, unchanged_rows(None).values())) == [1]
