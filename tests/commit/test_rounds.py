"""How often a commit waits for a far storage, and that it does not matter in which order what is
asked at once is answered.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from threading import Event, Thread
from typing import Any

import pyarrow as pa
import pytest
from counting import count
from worlds import (
    BASE_STATE,
    COW,
    MODES,
    MOR,
    assert_clean,
    deleted,
    filled,
    later,
    make,
    ours,
    rows,
    theirs,
    upserted,
)

import mdt
from mdt.errors import Unavailable
from mdt.services.checking import log, timeline, unfinished
from mdt.services.checking.state import TableState
from mdt.session import Recent
from mdt.stores.concurrent_io import StorageThreads
from mdt.stores.contract import wait_all
from mdt.stores.storage import MemoryStorage
from mdt.testing.faulty import Crash, FaultyStorage
from mdt.testing.slow import CountingStorage, SlowStorage

UPSERTED = upserted(BASE_STATE, range(2, 9), 3, 3.0)


def upsert(storage):
    mdt.open(storage).upsert(rows(range(2, 9), 3, 3.0))


def rounds(storage, act):
    """Return what ``act`` asks of the storage, one set for each time that it waits: operation and
    folder.
    """
    before, made = storage.rounds, len(storage.made)
    act()
    found: list[set[str]] = [set() for _ in range(storage.rounds - before)]
    for number, operation in storage.made[made:]:
        name, _, path = operation.partition(" ")
        found[number - before - 1].add(
            f"{name} {path.removeprefix('.hoodie/.mdt/').partition('/')[0]}"
        )
    return found


LOOK = [{"list_dir .hoodie", "read log", "list_dir pending"}, {"read log"}]
CLAIM = [{"put_if_absent pending", "put_passing .hoodie"}, {"read log", "put_passing .hoodie"}]
MARKED, NEW = {"put_passing .hoodie"}, {"create city=x"}
ATTACHED = {"create attachments"}
COMMIT = [{"list_dir .hoodie", "read log"}, {"put_if_absent log"}, {"list_dir archive"}]
PUBLISH = [{"put_if_absent .hoodie", "list .hoodie"}, {"delete pending"}]


@pytest.mark.parametrize(
    "table_type, written",
    [(MOR, [MARKED | ATTACHED, NEW]), (COW, [MARKED | {"read city=x"}, NEW | ATTACHED])],
    ids=[MOR, COW],
)
def test_a_small_upsert_waits_as_often_as_what_it_asks_depends_on_answers(table_type, written):
    storage = CountingStorage(make(MemoryStorage(), table_type, "record").storage)
    table = mdt.open(storage)
    for number in range(3):
        table.upsert(rows(range(8), number, 1.0))
    assert rounds(storage, lambda: table.upsert(rows(range(0, 4, 2), 9, 3.0))) == [
        *LOOK,
        *CLAIM,
        *written,
        *COMMIT,
        *PUBLISH,
    ]


def test_an_upsert_into_many_file_groups_waits_no_more_often_than_one_into_one():
    storage = CountingStorage(
        make(MemoryStorage(), MOR, "record", **{"mdt.services.auto": False}).storage
    )
    table = mdt.open(storage)
    cities = [f"c{number}" for number in range(12)]

    def wide(ts):
        ids, at = pa.array([f"k{name}" for name in cities]), rows(range(12), ts, 1.0)
        return at.set_column(at.column_names.index("id"), "id", ids).set_column(
            at.column_names.index("city"), "city", pa.array(cities)
        )

    assert len(rounds(storage, lambda: table.upsert(wide(1)))) == 11, (
        "new partitions, whose metadata are put beside the files"
    )
    assert len(rounds(storage, lambda: table.upsert(wide(2)))) == 11
    other = CountingStorage(storage.inner)
    cold = mdt.open(other)
    cold.upsert(rows(range(1), 1, 1.0))
    assert len(rounds(other, lambda: cold.upsert(wide(3)))) == 12, (
        "key maps that other processes wrote are read at once"
    )


@pytest.mark.parametrize("table_type", [MOR, COW])
def test_a_crash_while_what_is_begun_last_ends_first_leaves_all_or_nothing(table_type):
    whole = FaultyStorage(filled(table_type, "record"), late=True)
    upsert(whole)
    for k in range(1, len(whole.operations) + 1):
        for mode in MODES:
            survivor = filled(table_type, "record")
            with pytest.raises(Crash):
                upsert(FaultyStorage(survivor, k, mode, late=True))
            count("crash points")
            seen = ours(survivor)
            assert seen in (BASE_STATE, UPSERTED) and theirs(survivor) in (BASE_STATE, seen)
            later(survivor)
            upsert(survivor)
            assert ours(survivor) == UPSERTED == theirs(survivor)
            assert_clean(survivor)


def test_a_reply_that_is_lost_while_what_is_begun_last_ends_first_is_no_lie():
    whole = FaultyStorage(filled(MOR, "record"), late=True)
    upsert(whole)
    for k in range(1, len(whole.operations) + 1):
        storage = filled(MOR, "record")
        try:
            upsert(FaultyStorage(storage, k, "lost_reply", late=True))
        except Unavailable:
            assert ours(storage) in (BASE_STATE, UPSERTED)
        else:
            assert ours(storage) == UPSERTED == theirs(storage)
        count("lost replies")
        upsert(storage)
        mdt.open(storage).abort()
        assert ours(storage) == UPSERTED == theirs(storage)


@pytest.mark.parametrize("table_type", [MOR, COW])
def test_on_a_storage_that_takes_its_time_threads_write_the_same_rows(table_type):
    inner = filled(table_type, "bloom")
    table = mdt.open(SlowStorage(inner, 0.05))
    table.upsert(rows(range(2, 9), 3, 3.0))
    assert ours(inner) == UPSERTED == theirs(inner)
    table.delete(rows((3, 8), 4, 0.0))
    assert ours(inner) == deleted(UPSERTED, (3, 8)) == theirs(inner)
    assert_clean(inner)


def test_operations_that_begin_others_and_wait_for_them_need_no_more_threads_than_there_are():
    at_once = StorageThreads()

    def tree(depth):
        if not depth:
            return 1
        waiting = [at_once.begin(partial(tree, depth - 1)) for _ in range(3)]
        return sum(wait() for wait in waiting)

    assert tree(5) == 3**5


def test_an_operation_runs_once_if_no_thread_can_be_started_for_it(monkeypatch):
    at_once, begun, ending, runs = StorageThreads(), Event(), Event(), []

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    first = at_once.begin(lambda: begun.set() or ending.wait(10))
    assert begun.wait(10)
    monkeypatch.setattr(Thread, "start", refuse)
    at_once.begin(partial(runs.append, "second"))()
    third = at_once.begin(partial(runs.append, "third"))
    ending.set()
    wait_all([first, third])
    at_once._threads.shutdown()
    assert runs == ["second", "third"]


def test_an_error_is_raised_when_everything_else_has_ended():
    at_once, ended = StorageThreads(), []

    def fails():
        raise Unavailable("no answer")

    with pytest.raises(Unavailable, match="no answer"):
        wait_all([at_once.begin(fails), at_once.begin(lambda: ended.append(1))])
    assert ended == [1]


def test_an_open_and_a_look_up_of_one_key_wait_no_more_often_for_a_longer_log_and_more_pages():
    inner = make(MemoryStorage(), MOR, "record", **{"mdt.metadata.compact.records": 4}).storage
    table = mdt.open(inner)
    for number in range(7):
        table.upsert(rows(range(40), 1 + number, 1.0))
        table.bulk_insert(rows(range(100 + 10 * number, 105 + 10 * number), 1, 1.0))
    storage = CountingStorage(inner)
    opened: list[mdt.Table] = []
    waited = rounds(storage, lambda: opened.append(mdt.open(storage, {"mdt.cache.bytes.max": 0})))
    assert len(waited) == 8, (
        "hint, manifest, timeline, properties, pages, records, archive, and what the table is now"
    )
    assert len(rounds(storage, lambda: opened[0].get(["k3"]))) == 6, (
        "news, is the log the same, key maps, page map, size, rows"
    )
    assert len(rounds(storage, lambda: opened[0].get(["k5"]))) == 3


def _check_log(state):
    """Check what follows from the log."""
    for check in (log.check, timeline.check, unfinished.check):
        assert not list(check(state))


@pytest.mark.parametrize("name", ["state", "changes", "abort", "check"])
def test_what_asks_for_many_records_waits_for_sixteen_of_them_at_once(name):
    kept = {"mdt.metadata.compact.records": 500, "mdt.services.auto": False}
    waited = []
    for commits in (2, 34):
        inner = make(MemoryStorage(), MOR, "record", **kept).storage
        table = mdt.open(inner)
        for _ in range(commits):
            table.create_index("bitmap(fare)")
            table.drop_index("bitmap(fare)")
        storage = CountingStorage(inner)
        fresh = mdt.open(storage)
        fresh._metadata._records = Recent(0)  # a table with more of them than it keeps in memory
        act = {
            "state": lambda t=fresh: t.snapshot(t.snapshot().seq - 1),
            "changes": lambda t=fresh: t.changes(since=0).to_arrow(),
            "abort": fresh.abort,
            "check": lambda t=fresh: _check_log(TableState(t.metadata, t.snapshot())),
        }[name]
        waited.append(len(rounds(storage, act)))
    assert waited[1] - waited[0] < 64 // 3, f"64 records more, and it waited {waited} times"


def _lived_in(commits, **more):
    """Return a table with as many small files as commits, all of them live, in a partition each."""
    storage = MemoryStorage()
    table = make(storage, MOR, "record", **{"mdt.services.auto": False, **more})
    for n in range(commits):
        some = rows(range(5 * n, 5 * n + 5), 1, 1.0)
        table.bulk_insert(
            some.set_column(some.column_names.index("city"), "city", pa.array([f"c{n}"] * 5))
        )
    return storage


@pytest.mark.parametrize("name", ["scan", "changes", "get"])
def test_page_maps_of_many_files_are_read_at_once(name):
    storage = CountingStorage(_lived_in(12))
    table = mdt.open(storage)
    act = {
        "scan": lambda: table.scan("fare >= 0").to_arrow(),
        "changes": lambda: table.changes(since=0).to_arrow(),
        "get": lambda: table.get([f"k{n}" for n in range(0, 60, 5)]),
    }[name]
    found: list[Any] = []
    waited = rounds(storage, lambda: found.append(act()))
    assert len(found[0]) == (12 if name == "get" else 60)
    maps = sum("read attachments" in one for one in waited)
    assert maps == (2 if name == "get" else 1), "key maps are read before page maps"


def test_archiving_deletes_from_the_log_while_it_deletes_from_the_timeline():
    table = make(
        MemoryStorage(),
        MOR,
        "record",
        **{"mdt.services.auto": False, "mdt.metadata.compact.records": 4},
    )
    for n in range(80):
        table.upsert(rows(range(3), n, 1.0))
    storage = CountingStorage(table.storage)
    found = rounds(storage, lambda: mdt.open(storage).clean(retain_commits=1))
    assert found.count({"delete log", "delete .hoodie"}) > 10 and {"delete log"} not in found
    assert_clean(table.storage)


def test_what_many_leases_and_partitions_tell_is_asked_at_once():
    inner = _lived_in(12)
    storage = CountingStorage(inner)
    with ExitStack() as stack:
        for _ in range(12):
            stack.enter_context(mdt.open(inner).leased(600))
        found = rounds(storage, lambda: mdt.open(storage).clean(retain_commits=1))
        assert sum("read leases" in one for one in found) == 2, "before the plan and the commit"
    found = rounds(storage, lambda: mdt.open(storage).cluster(["fare"]))
    listed = [one for one in found if any("list_dir city=" in operation for operation in one)]
    assert [len(one) for one in listed] == [12], (
        "of a clustering that gains nothing, whose files are looked for"
    )


def cost_of_an_upsert(version, **options):
    """Return the requests of an upsert with a new key, and how often it waits."""
    storage = CountingStorage(MemoryStorage())
    schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    own = {"mdt.table.version": version, "mdt.services.auto": False, **options}
    table = mdt.create(storage, schema, key="id", options=own)
    for number in range(4):
        before = len(storage.made), storage.rounds
        table.upsert({"id": ["x", f"k{number}"], "n": [1, number]})
    return len(storage.made) - before[0], storage.rounds - before[1]


def test_a_commit_reads_keys_and_values_of_many_files_at_once_for_hudis_indexes():
    """It waits once for the keys of new files and the values of changed rows, and for the state of
    the metadata table.
    """

    def waits(files, **options):
        storage = CountingStorage(MemoryStorage())
        schema = pa.schema([("id", pa.string()), ("c", pa.string()), ("n", pa.int64())])
        own = {"mdt.table.version": 9, "mdt.services.auto": False, "mdt.small.file.bytes": 0}
        settings = {"partition_by": ["c"], "scope": "table", "indexes": ["bitmap(n)"]}
        table = mdt.create(storage, schema, "id", options=own | options, **settings)
        cities = ["c0", *(f"c{n}" for n in range(files))]
        for turn in range(4):
            before, numbers = storage.rounds, [turn] * len(cities)
            ids = ["x", *(f"k{turn}-{n}" for n in range(files))]
            table.upsert({"id": ids, "c": cities, "n": numbers})
        return storage.rounds - before

    indexes = {"mdt.hudi.metadata": True, "mdt.hudi.record.index": True}
    indexes["mdt.hudi.secondary.index"] = True
    for files in (1, 8):
        assert waits(files, **indexes) - waits(files, **{"mdt.hudi.metadata": False}) == 3


@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize(
    ("partitions", "requests", "waits"),
    [((), 6, 3), (("column.stats",), 8, 3), (("column.stats", "record.index"), 10, 3)],
)
def test_a_commit_waits_little_for_hudis_metadata_table(partitions, requests, waits, version):
    """It reads, puts log files and pending instants, and the completed instant. For the record
    index it also reads the new keys, at the same time as the state of the metadata table.
    """
    options = {"mdt.hudi.metadata": True, "mdt.hudi.column.stats": False}
    options |= {f"mdt.hudi.{name}": True for name in partitions}
    with_it = cost_of_an_upsert(version, **options)
    without = cost_of_an_upsert(version, **{"mdt.hudi.metadata": False})
    assert (with_it[0] - without[0], with_it[1] - without[1]) == (requests, waits)
