"""Round trips of commits and reads to a remote storage. The order in which concurrent requests are
answered does not matter.
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
    """Return the requests of ``act`` as operation and folder, one set per round trip."""
    before, made = storage.rounds, len(storage.made)
    act()
    requests: list[set[str]] = [set() for _ in range(storage.rounds - before)]
    for number, operation in storage.made[made:]:
        name, _, path = operation.partition(" ")
        requests[number - before - 1].add(
            f"{name} {path.removeprefix('.hoodie/.mdt/').partition('/')[0]}"
        )
    return requests


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
def test_a_small_upsert_makes_only_the_expected_requests_in_each_round_trip(table_type, written):
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


def test_an_upsert_into_many_file_groups_needs_as_many_round_trips_as_into_one():
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
        "partition metadata are written at the same time as the files"
    )
    assert len(rounds(storage, lambda: table.upsert(wide(2)))) == 11
    other = CountingStorage(storage.inner)
    cold = mdt.open(other)
    cold.upsert(rows(range(1), 1, 1.0))
    assert len(rounds(other, lambda: cold.upsert(wide(3)))) == 12, (
        "key maps that other processes wrote are read at the same time"
    )


@pytest.mark.parametrize("table_type", [MOR, COW])
def test_a_crash_while_later_requests_end_first_leaves_all_or_nothing(table_type):
    complete_run, committed = FaultyStorage(filled(table_type, "record"), late=True), set()
    upsert(complete_run)
    for k in range(1, len(complete_run.operations) + 1):
        for mode in MODES:
            survivor = filled(table_type, "record")
            with pytest.raises(Crash):
                upsert(FaultyStorage(survivor, k, mode, late=True))
            count("crash points")
            seen = ours(survivor)
            assert seen in (BASE_STATE, UPSERTED) and theirs(survivor) in (BASE_STATE, seen)
            committed.add(seen == UPSERTED)
            later(survivor)
            upsert(survivor)
            assert ours(survivor) == UPSERTED == theirs(survivor)
            assert_clean(survivor)
    assert committed == {False, True}


def test_a_write_with_a_lost_reply_while_later_requests_end_first_commits_or_raises():
    complete_run = FaultyStorage(filled(MOR, "record"), late=True)
    upsert(complete_run)
    for k in range(1, len(complete_run.operations) + 1):
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
def test_threads_write_the_same_rows_to_a_slow_storage(table_type):
    inner = filled(table_type, "bloom")
    table = mdt.open(SlowStorage(inner, 0.05))
    table.upsert(rows(range(2, 9), 3, 3.0))
    assert ours(inner) == UPSERTED == theirs(inner)
    table.delete(rows((3, 8), 4, 0.0))
    assert ours(inner) == deleted(UPSERTED, (3, 8)) == theirs(inner)
    assert_clean(inner)


def test_nested_operations_finish_although_the_number_of_threads_is_limited():
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


def test_an_error_is_raised_after_all_other_operations_have_ended():
    at_once, ended = StorageThreads(), []

    def fails():
        raise Unavailable("no answer")

    with pytest.raises(Unavailable, match="no answer"):
        wait_all([at_once.begin(fails), at_once.begin(lambda: ended.append(1))])
    assert ended == [1]


def test_opening_and_looking_up_a_key_need_few_round_trips_with_a_long_log_and_many_pages():
    inner = make(MemoryStorage(), MOR, "record", **{"mdt.metadata.compact.records": 4}).storage
    table = mdt.open(inner)
    for number in range(7):
        table.upsert(rows(range(40), 1 + number, 1.0))
        table.bulk_insert(rows(range(100 + 10 * number, 105 + 10 * number), 1, 1.0))
    storage = CountingStorage(inner)
    opened: list[mdt.Table] = []
    waited = rounds(storage, lambda: opened.append(mdt.open(storage, {"mdt.cache.bytes.max": 0})))
    assert len(waited) == 8, (
        "hint, manifest, timeline, properties, pages, records, archive, and the current state"
    )
    assert len(rounds(storage, lambda: opened[0].get(["k3"]))) == 6, (
        "new commits, identity of the log, key maps, page map, size, rows"
    )
    assert len(rounds(storage, lambda: opened[0].get(["k5"]))) == 3


def _check_log(state):
    """Check what follows from the log."""
    for check in (log.check, timeline.check, unfinished.check):
        assert not list(check(state))


@pytest.mark.parametrize("name", ["state", "changes", "abort", "check"])
def test_operations_on_many_records_read_several_records_per_round_trip(name):
    options = {"mdt.metadata.compact.records": 500, "mdt.services.auto": False}
    waited = []
    for commits in (2, 34):
        inner = make(MemoryStorage(), MOR, "record", **options).storage
        table = mdt.open(inner)
        for _ in range(commits):
            table.create_index("bitmap(fare)")
            table.drop_index("bitmap(fare)")
        storage = CountingStorage(inner)
        fresh = mdt.open(storage)
        fresh._metadata._records = Recent(
            0
        )  # as if the table had more records than fit into memory
        act = {
            "state": lambda t=fresh: t.snapshot(t.snapshot().seq - 1),
            "changes": lambda t=fresh: t.changes(since=0).to_arrow(),
            "abort": fresh.abort,
            "check": lambda t=fresh: _check_log(TableState(t.metadata, t.snapshot())),
        }[name]
        waited.append(len(rounds(storage, act)))
    assert waited[1] - waited[0] < 64 // 3, (
        f"round trips without and with 64 more records: {waited}"
    )


def _storage_with_files(commits, **options):
    """Return the storage of a table with as many small files as commits, all of them live, each in
    its own partition.
    """
    storage = MemoryStorage()
    table = make(storage, MOR, "record", **{"mdt.services.auto": False, **options})
    for n in range(commits):
        new_rows = rows(range(5 * n, 5 * n + 5), 1, 1.0)
        table.bulk_insert(
            new_rows.set_column(
                new_rows.column_names.index("city"), "city", pa.array([f"c{n}"] * 5)
            )
        )
    return storage


@pytest.mark.parametrize("name", ["scan", "changes", "get"])
def test_page_maps_of_many_files_are_read_in_one_round_trip(name):
    storage = CountingStorage(_storage_with_files(12))
    table = mdt.open(storage)
    act = {
        "scan": lambda: table.scan("fare >= 0").to_arrow(),
        "changes": lambda: table.changes(since=0).to_arrow(),
        "get": lambda: table.get([f"k{n}" for n in range(0, 60, 5)]),
    }[name]
    results: list[Any] = []
    waited = rounds(storage, lambda: results.append(act()))
    assert len(results[0]) == (12 if name == "get" else 60)
    maps = sum("read attachments" in requests for requests in waited)
    assert maps == (2 if name == "get" else 1), "key maps are read before page maps"


def test_archiving_deletes_from_the_log_and_the_timeline_at_the_same_time():
    table = make(
        MemoryStorage(),
        MOR,
        "record",
        **{"mdt.services.auto": False, "mdt.metadata.compact.records": 4},
    )
    for n in range(80):
        table.upsert(rows(range(3), n, 1.0))
    storage = CountingStorage(table.storage)
    requests = rounds(storage, lambda: mdt.open(storage).clean(retain_commits=1))
    assert requests.count({"delete log", "delete .hoodie"}) > 10 and {"delete log"} not in requests
    assert_clean(table.storage)


def test_leases_and_listings_of_many_partitions_are_read_at_the_same_time():
    inner = _storage_with_files(12)
    storage = CountingStorage(inner)
    with ExitStack() as stack:
        for _ in range(12):
            stack.enter_context(mdt.open(inner).leased(600))
        rounds_of_requests = rounds(storage, lambda: mdt.open(storage).clean(retain_commits=1))
        assert sum("read leases" in requests for requests in rounds_of_requests) == 2, (
            "before the plan and the commit"
        )
    rounds_of_requests = rounds(storage, lambda: mdt.open(storage).cluster(["fare"]))
    listings = [
        requests
        for requests in rounds_of_requests
        if any("list_dir city=" in operation for operation in requests)
    ]
    assert [len(requests) for requests in listings] == [12], (
        "a clustering that changes nothing lists the folders of its files"
    )


def cost_of_an_upsert(version, **options):
    """Return the number of requests and the number of round trips of an upsert with a new key."""
    storage = CountingStorage(MemoryStorage())
    schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    own = {"mdt.table.version": version, "mdt.services.auto": False, **options}
    table = mdt.create(storage, schema, key="id", options=own)
    for number in range(4):
        before = len(storage.made), storage.rounds
        table.upsert({"id": ["x", f"k{number}"], "n": [1, number]})
    return len(storage.made) - before[0], storage.rounds - before[1]


def test_a_commit_reads_keys_and_values_for_hudis_indexes_in_one_round_trip():
    """One round trip reads the keys of new files, the values of changed rows, and the state of the
    metadata table.
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
def test_a_commit_needs_three_round_trips_for_hudis_metadata_table(
    partitions, requests, waits, version
):
    """It reads, puts log files and pending instants, and the completed instant. For the record
    index it also reads the new keys, at the same time as the state of the metadata table.
    """
    options = {"mdt.hudi.metadata": True, "mdt.hudi.column.stats": False}
    options |= {f"mdt.hudi.{name}": True for name in partitions}
    with_it = cost_of_an_upsert(version, **options)
    without = cost_of_an_upsert(version, **{"mdt.hudi.metadata": False})
    assert (with_it[0] - without[0], with_it[1] - without[1]) == (requests, waits)
