"""Crash sweeps: a process crashes at the k-th change of storage, and the next one finds the state
before or after the operation.
"""

from dataclasses import replace
from functools import cache, partial

import pyarrow as pa
import pytest
from counting import count
from hudis_rollback import data_files, roll_back
from pooled import ThreadTable
from strategies import HUDI_INDEXES
from worlds import (
    BASE_STATE,
    CLUSTERED_STATE,
    COW,
    LATER_SECONDS,
    MODES,
    MOR,
    SCHEMA,
    Flow,
    assert_clean,
    city,
    cluster_while_another_commits,
    compact_logs,
    compact_while_another_commits,
    copied,
    cut,
    cut_while_another_commits,
    deleted,
    fill,
    filled,
    later,
    logged,
    make,
    ours,
    rows,
    spread,
    survivors,
    tables_of,
    theirs,
    upserted,
)

import mdt
from mdt.commit import publish
from mdt.commit.recovery import pending
from mdt.errors import Invalid, Unavailable
from mdt.hudi import properties
from mdt.metadata.files import attachments, paths
from mdt.metadata.history.foreign_writers import read_properties
from mdt.metadata.log import commit_log
from mdt.services import auto_maintenance
from mdt.stores.storage import MemoryStorage
from mdt.testing.faulty import Crash, FaultyStorage

pytestmark = pytest.mark.usefixtures("records_decoded_once")

MIXED = upserted(BASE_STATE, range(2, 9), 3, 3.0)
FIRST_STATE = {key: (1, 1.0) for key in BASE_STATE}
"""The rows of the table of :func:`worlds.filled` after its first commit."""


def upsert_mixed(storage):
    mdt.open(storage).upsert(rows(range(2, 9), 3, 3.0))


def delete_two(storage):
    mdt.open(storage).delete(rows((0, 3), 0, 0.0))


def upsert_with_many_attachments(storage):
    """An upsert with each attachment in an object of its own, stored while files are written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attachments, "ATTACHED_BYTES_MIN", 1)
        upsert_mixed(storage)


def upsert_with_services(storage):
    """An upsert after which one file group is compacted, and the other is left to the next upsert."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auto_maintenance, "FREE_BYTES", 0)
        patch.setattr(auto_maintenance, "SPEED_BYTES", 0)
        table = mdt.open(storage, {"mdt.compact.log.files": 1})
        warnings = table.upsert(rows(range(2, 9), 3, 3.0)).warnings
        if warnings:  # a read has failed
            assert "the storage does not answer" in warnings[0]


MERGED = {
    "k1": (2, 9.0),
    "k2": (2, 7.0),
    "k3": (0, 3.5),
    "k4": (1, 1.0),
    "k5": (1, 1.0),
    "k10": (5, 9.0),
}


def merge_all_kinds(storage, kind_of_table=mdt.Table):
    """An update, a delete, an insert, and updates of rows that the source lacks. A second run has the
    same result.
    """
    merge = kind_of_table(storage).merge(rows([0, 2, 10], 5, 9.0))
    merge = (
        merge.when_matched("source.id = 'k0'")
        .delete()
        .when_matched("target.ts < 5")
        .update({"fare": "7.0"})
    )
    merge = merge.when_not_matched("source.id = 'k10'").insert()
    merge = merge.when_not_matched_by_source("target.ts = 2").update({"fare": 9.0})
    merge.when_not_matched_by_source("target.id = 'k3'").update({"fare": 3.5, "ts": 0}).execute()


def upsert_with_deletes(storage):
    """An upsert with two rows marked as deletes, one of them late. A second run has the same result."""
    marked = pa.concat_tables([rows((0, 3, 22), 3, 3.0), rows((1,), 1, 3.0)])
    mdt.open(storage).upsert(
        marked.append_column("_hoodie_is_deleted", pa.array([True, None, False, True]))
    )


NARROW = SCHEMA.set(3, pa.field("fare", pa.float32()))


def narrow_table():
    """Return a table with log files that holds BASE_STATE in a narrower type, which an upsert widens."""
    return fill(make(MemoryStorage(), MOR, "record", schema=NARROW))


def upsert_that_evolves(storage):
    """Up to three commits: a new column together with a wider one requires a compaction of log files
    first.
    """
    table = mdt.open(storage)
    table.upsert(rows(range(2, 9), 3, 3.0).append_column("tip", pa.array([0.5] * 7)), evolve=True)
    assert {"compact", "alter_schema"} <= set(table.history()["operation"].to_pylist())


def upsert_a_column(storage):
    """Set the fares of existing rows and keep their times."""
    mdt.open(storage).upsert(rows((0, 3), 0, 9.0).drop_columns(["ts"]), partial=True)


def upsert_the_larger(storage):
    """Keep the larger fare of an existing row, and add a new row. A second run has the same result."""
    mdt.open(storage).upsert(rows((0, 22), 3, 1.5), mergers={"fare": "max"})


def delete_with_tombstones(storage):
    """Delete an existing and an absent key. Older rows of both keys are then late."""
    table = mdt.open(storage)
    table.delete(rows((0, 22), 5, 0.0))
    assert table.upsert(rows((0, 22), 4, 4.0)).late == 2


def table_with_tombstones():
    """Return a table that holds BASE_STATE, keeps the ordering values of deletes, and compacts its
    metadata often.
    """
    return filled(MOR, "record", 3, **{"mdt.delete.keeps.ordering": True})


def alter_and_upsert(storage):
    """Two commits. The files of the second one have the newer schema, and contain older rows, too."""
    table = mdt.open(storage)
    table.alter(reorder=["fare", "id"])
    table.upsert(rows(range(2, 9), 3, 3.0))


def rekey_and_upsert(storage):
    """Two commits. The second one looks up keys by the new hash."""
    mdt.open(storage).rekey()
    mdt.open(storage).upsert(rows(range(2, 9), 3, 3.0))


def empty(table_type, key_index):
    storage = MemoryStorage()
    make(storage, table_type, key_index)
    return storage


def with_hudi_metadata(storage):
    mdt.open(storage).alter(options={"mdt.hudi.metadata": True})
    return storage


@copied
def with_all_indexes_of_hudi(table_type):
    """Return a table that holds BASE_STATE, with every partition in Hudi's metadata table."""
    options = {"mdt.table.version": 9, "mdt.hudi.metadata": True, "mdt.hudi.column.stats": True}
    options |= dict.fromkeys(HUDI_INDEXES, True)
    empty = make(MemoryStorage(), table_type, "record", scope="table", **options)
    empty.create_index("bitmap(ts)")
    storage = fill(empty)
    stored = read_properties(storage)[properties.METADATA_PARTITIONS]
    assert stored.split(",") == [
        "bloom_filters",
        "column_stats",
        "files",
        "partition_stats",
        "record_index",
        "secondary_index_ts",
    ]
    return storage


def crashed(start, at, mode="before"):
    """Return the table after an upsert that crashed at its ``at``-th change, long enough ago to be
    rolled back.
    """
    with pytest.raises(Crash):
        upsert_mixed(FaultyStorage(start, at, mode))
    start.sleep(LATER_SECONDS)
    return start


def renewed_tag(tag, name):
    """Return an operation that adds a tag with ``name`` after removing it if it exists."""

    def run(storage):
        table = mdt.open(storage)
        if tag in table.snapshot().tags.seqs:
            table.untag(tag)
        name(table)

    return run


def with_savepoint():
    storage = filled(MOR, "record")
    mdt.open(storage).savepoint("s", at=1)
    return storage


OTHERS = {key: row for key, row in BASE_STATE.items() if city(int(key[1:])) == "y"}
FRESH = rows((0, 22), 1, 9.0)


def on_table(act):
    """Return an operation that calls a method of the table."""
    return lambda storage: act(mdt.open(storage))


def flow_of(start, run, before, after):
    return lambda name: Flow(name, start, run, before, after)


def flow(kind, run, after=BASE_STATE, records=32):
    """Return a function of a name that creates a flow which starts with BASE_STATE."""
    return flow_of(lambda: filled(*kind, records), run, BASE_STATE, after)


def clustered(kind, run, after=CLUSTERED_STATE):
    return flow_of(lambda: spread(*kind), run, CLUSTERED_STATE, after)


LOGS, LOGS_BLOOM = (MOR, "record"), (MOR, "bloom")
BASES, BASES_BLOOM = (COW, "record"), (COW, "bloom")
FLOW_MAKERS = {
    "first upsert": flow_of(
        lambda: empty(*LOGS_BLOOM), upsert_mixed, {}, upserted({}, range(2, 9), 3, 3.0)
    ),
    "upsert into logs, bloom": flow(LOGS_BLOOM, upsert_mixed, MIXED),
    "upsert with many attachments": flow(LOGS, upsert_with_many_attachments, MIXED),
    "upsert with a service step": flow_of(
        lambda: logged(*LOGS), upsert_with_services, BASE_STATE, MIXED
    ),
    "upsert with Hudi's metadata table": flow_of(
        lambda: filled(*LOGS_BLOOM, **{"mdt.hudi.metadata": True}), upsert_mixed, BASE_STATE, MIXED
    ),
    "upsert that makes Hudi's metadata table": flow_of(
        lambda: with_hudi_metadata(filled(*LOGS)), upsert_mixed, BASE_STATE, MIXED
    ),
    **{
        f"{name} with all indexes of Hudi": flow_of(
            partial(with_all_indexes_of_hudi, table_type), run, BASE_STATE, after
        )
        for name, table_type, run, after in (
            ("upsert", MOR, upsert_mixed, MIXED),
            ("upsert by rewrite", COW, upsert_mixed, MIXED),
            ("delete by log", MOR, delete_two, deleted(BASE_STATE, (0, 3))),
            ("compaction", MOR, on_table(mdt.Table.compact), BASE_STATE),
            ("restore", MOR, on_table(lambda t: t.restore(2)), FIRST_STATE),
        )
    },
    "upgrade of a table with Hudi's metadata table": flow_of(
        lambda: filled(*LOGS, **{"mdt.hudi.metadata": True}),
        on_table(lambda t: t.upgrade(9)),
        BASE_STATE,
        BASE_STATE,
    ),
    "upsert into logs, lmdb": flow((MOR, "lmdb"), upsert_mixed, MIXED),
    "upsert by rewrite, bloom": flow(BASES_BLOOM, upsert_mixed, MIXED),
    "upsert by rewrite, buckets": flow((COW, "bucket(buckets='2')"), upsert_mixed, MIXED),
    "delete by log": flow((MOR, "bucket(buckets='2')"), delete_two, deleted(BASE_STATE, (0, 3))),
    "delete by rewrite": flow((COW, "simple"), delete_two, deleted(BASE_STATE, (0, 3))),
    "delete by a condition": flow(
        LOGS_BLOOM,
        on_table(lambda t: t.delete_where("fare = 2.0")),
        deleted(BASE_STATE, range(3)),
    ),
    "update by a condition": flow(
        BASES,
        on_table(lambda t: t.update_where(values={"fare": 9.0}, where="fare = 2.0")),
        {**BASE_STATE, **dict.fromkeys(("k0", "k1", "k2"), (2, 9.0))},
    ),
    "merge into logs and a base file": flow(LOGS, merge_all_kinds, MERGED),
    "merge in tasks": flow(LOGS, lambda s: merge_all_kinds(s, ThreadTable), MERGED),
    "compaction, bloom": flow(LOGS_BLOOM, on_table(mdt.Table.compact)),
    "compaction, record": flow(LOGS, on_table(mdt.Table.compact)),
    "log compaction": flow_of(
        lambda: logged(*LOGS), on_table(compact_logs), BASE_STATE, BASE_STATE
    ),
    "compaction beside an upsert": flow(
        LOGS, compact_while_another_commits, upserted(BASE_STATE, [0], 3, 3.0)
    ),
    "clustering, bloom": clustered(LOGS_BLOOM, on_table(lambda t: t.cluster("fare"))),
    "clustering, record": clustered(
        BASES, on_table(lambda t: t.cluster(["fare", "id"], curve="hilbert"))
    ),
    "clustering beside an upsert": clustered(
        LOGS, cluster_while_another_commits, upserted(CLUSTERED_STATE, [0], 3, 3.0)
    ),
    "cutting, bloom": clustered(LOGS_BLOOM, cut),
    "cutting, record": flow(LOGS, cut),
    "cutting beside an upsert": flow(
        LOGS, cut_while_another_commits, upserted(BASE_STATE, [0], 3, 3.0)
    ),
    "upsert that compacts the metadata": flow(LOGS, upsert_mixed, MIXED, records=3),
    "compaction of the metadata": flow(LOGS_BLOOM, on_table(lambda t: t.metadata.compact())),
    "restore, memory": flow((MOR, "memory"), on_table(lambda t: t.restore(1)), FIRST_STATE),
    "restore, bloom": flow(BASES_BLOOM, on_table(lambda t: t.restore(1)), FIRST_STATE),
    "tag": flow(LOGS, renewed_tag("t", lambda t: t.tag("t"))),
    "savepoint": flow(LOGS, renewed_tag("s", lambda t: t.savepoint("s"))),
    "untag of a savepoint": flow_of(
        with_savepoint, renewed_tag("s", lambda t: None), BASE_STATE, BASE_STATE
    ),
    "rollback": flow_of(
        lambda: crashed(filled(*LOGS), 9), on_table(mdt.Table.abort), BASE_STATE, BASE_STATE
    ),
    "rollback that publishes": flow_of(
        lambda: crashed(filled(*LOGS_BLOOM), 14, "after"),
        on_table(mdt.Table.abort),
        BASE_STATE,
        MIXED,
    ),
    "upsert that rolls back another": flow_of(
        lambda: crashed(filled(*BASES_BLOOM), 9, "after"), upsert_mixed, BASE_STATE, MIXED
    ),
    "alter": flow(LOGS_BLOOM, on_table(lambda t: t.alter(reorder=["fare", "id"]))),
    **{
        f"alter that writes all rows again, {name}": flow(
            base, on_table(lambda t: t.alter(reorder=["fare", "id"], rewrite=True))
        )
        for name, base in (("log files", LOGS), ("base files", BASES_BLOOM))
    },
    "alter of options, with metadata": flow(
        LOGS_BLOOM,
        on_table(lambda t: t.alter(options={"mdt.page.bytes": 4096}, metadata={"run": "1"})),
    ),
    "rekey, bloom": flow(LOGS_BLOOM, on_table(mdt.Table.rekey)),
    "rekey and an upsert, record": flow(BASES, rekey_and_upsert, MIXED),
    "alter and its first files": flow(BASES, alter_and_upsert, MIXED),
    "insert overwrite, record": flow(
        LOGS, on_table(lambda t: t.insert_overwrite(FRESH)), upserted(OTHERS, (0, 22), 1, 9.0)
    ),
    "insert overwrite, named partitions": flow(
        BASES,
        on_table(lambda t: t.insert_overwrite(FRESH, partitions=["city=*"])),
        upserted({}, (0, 22), 1, 9.0),
    ),
    "insert overwrite of the table, bloom": flow(
        BASES_BLOOM,
        on_table(lambda t: t.insert_overwrite_table(FRESH)),
        upserted({}, (0, 22), 1, 9.0),
    ),
    "delete of a partition": flow(
        LOGS_BLOOM, on_table(lambda t: t.delete_partition("city=x")), OTHERS
    ),
    "truncate": flow(BASES, on_table(mdt.Table.truncate), {}),
    "delete that leaves tombstones": flow_of(
        table_with_tombstones, delete_with_tombstones, BASE_STATE, deleted(BASE_STATE, (0,))
    ),
    "partial upsert into logs": flow(
        LOGS, upsert_a_column, {**BASE_STATE, "k0": (2, 9.0), "k3": (1, 9.0)}
    ),
    "upsert that merges a column": flow(
        BASES_BLOOM, upsert_the_larger, {**BASE_STATE, "k0": (3, 2.0), "k22": (3, 1.5)}
    ),
    "upsert with marked deletes": flow(
        LOGS,
        upsert_with_deletes,
        {**deleted(BASE_STATE, (0,)), "k3": (3, 3.0), "k22": (3, 3.0)},
    ),
    "upsert that evolves and compacts": flow_of(
        narrow_table, upsert_that_evolves, BASE_STATE, MIXED
    ),
}
ALSO_IN_VERSION_9 = {
    "first upsert",
    "upsert into logs, bloom",
    "upsert with Hudi's metadata table",
    "upsert that makes Hudi's metadata table",
    "upsert by rewrite, bloom",
    "delete by log",
    "compaction beside an upsert",
    "log compaction",
    "clustering beside an upsert",
    "restore, memory",
    "savepoint",
    "untag of a savepoint",
    "rollback",
    "rollback that publishes",
    "insert overwrite, record",
}


def in_version_9(flow):
    """Return the flow on a table of version 9."""

    def start():
        with tables_of(9):
            return flow.start()

    return replace(flow, name=f"{flow.name}, version 9", start=start)


FLOWS = [make_flow(name) for name, make_flow in FLOW_MAKERS.items()]
FLOWS += [in_version_9(f) for f in FLOWS if f.name in ALSO_IN_VERSION_9]
NAMES = [f.name for f in FLOWS]
NIGHTLY = {
    "insert overwrite of the table, bloom",
    "truncate",
    "delete that leaves tombstones",
    "upsert that merges a column",
    "partial upsert into logs",
    "cutting, bloom",
    "cutting beside an upsert",
    "compaction, bloom",
    "merge in tasks",
}
DAILY_FLOWS = [
    pytest.param(f, marks=pytest.mark.nightly if f.name in NIGHTLY else ()) for f in FLOWS
]
QUICK_NAMES = {
    "compaction beside an upsert, version 9",
    "first upsert",
    "upsert into logs, lmdb",
    "delete by rewrite",
    "compaction beside an upsert",
    "clustering beside an upsert",
    "log compaction",
    "rollback",
}
QUICK_FLOWS = [
    pytest.param(f, marks=() if f.name in QUICK_NAMES else pytest.mark.nightly) for f in FLOWS
]
"""Parameters of expensive tests: a few flows, and all of them at night."""


@cache
def _survivors_of(flow):
    completed = flow.start()
    flow.run(completed)
    assert ours(completed) == flow.after == theirs(completed)
    remaining = list(survivors(flow.start, flow.run))
    count("crash points", len(remaining))
    return remaining


def crashes(flow):
    """Yield the survivors of a flow as copies of one sweep that all tests share."""
    return ((where, storage.copy()) for where, storage in _survivors_of(flow))


def is_unpublished(storage):
    """Return whether the newest commit record is not on Hudi's timeline yet."""
    table = mdt.open(storage)
    record = commit_log.read(storage, table.snapshot().seq)
    assert record is not None
    return not publish.is_published(storage, record, table.definition)


def assert_all_or_nothing(flow, storage, where):
    """Assert that readers see the state before or after the operation, and return it."""
    rows_seen = ours(storage)
    assert rows_seen in (flow.before, flow.after), f"a mixture of states {where}"
    other = theirs(storage)
    if is_unpublished(storage):
        assert other in (flow.before, rows_seen), f"Hudi sees a mixture of states {where}"
    else:
        assert other == rows_seen, f"Hudi sees another state {where}"
    return rows_seen


@pytest.mark.parametrize("flow", DAILY_FLOWS, ids=NAMES)
def test_after_a_crash_readers_see_all_or_nothing_and_rollback_cleans_up(flow):
    for where, survivor in crashes(flow):
        rows_seen = assert_all_or_nothing(flow, survivor, where)
        mdt.open(survivor).abort()
        assert ours(survivor) == rows_seen == theirs(survivor), f"rollback changed rows {where}"
        assert_clean(survivor)
        flow.run(survivor)
        assert ours(survivor) == flow.after, f"the repeated operation failed {where}"


@pytest.mark.parametrize("flow", DAILY_FLOWS, ids=NAMES)
def test_after_a_crash_a_rollback_by_hudi_deletes_exactly_the_uncommitted_files(
    flow,
):
    start = flow.start()
    roll_back(start)
    before = data_files(start)
    for where, survivor in crashes(flow):
        committed = (before | published_files(survivor)) & data_files(survivor)
        roll_back(survivor)
        assert data_files(survivor) == committed, where


def published_files(storage):
    """Return the data files of the commits on Hudi's timeline."""
    metadata = mdt.open(storage).metadata
    published = set[str]()
    for record in metadata.records(metadata.newest().retention.first, metadata.newest().seq):
        if publish.is_published(storage, record, metadata.newest().definition):
            files = record.table("files").select(["partition", "name"]).to_pylist()
            published.update(
                paths.partition_file(file["partition"], file["name"]) for file in files
            )
    return published


@pytest.mark.parametrize("flow", DAILY_FLOWS, ids=NAMES)
def test_after_a_crash_the_next_writer_recovers_automatically(flow):
    for where, survivor in crashes(flow):
        later(survivor)
        flow.run(survivor)
        upserting = mdt.open(survivor).upsert(rows([20], 9, 9.0), evolve=True)
        assert (upserting.inserted, upserting.warnings) == (1, ())
        expected = upserted(flow.after, [20], 9, 9.0)
        assert ours(survivor) == expected == theirs(survivor), where
        assert_clean(survivor)


@pytest.mark.parametrize("flow", QUICK_FLOWS, ids=NAMES)
def test_after_a_crash_a_writer_can_commit_before_the_rollback(flow):
    for where, survivor in crashes(flow):
        rows_seen = ours(survivor)
        table = mdt.open(survivor)
        table.upsert(rows([0, 20], 9, 9.0), partial="tip" in table.schema.names)
        expected = upserted(rows_seen, [0, 20], 9, 9.0)
        assert ours(survivor) == expected == theirs(survivor), where
        mdt.open(survivor).abort()
        assert ours(survivor) == expected == theirs(survivor), where
        assert_clean(survivor)


@pytest.mark.parametrize("mode", MODES)
def test_a_crash_during_the_creation_of_a_table_leaves_no_table_or_a_complete_one(mode):
    completed = FaultyStorage(MemoryStorage())
    make(completed, MOR, "record")
    for k in range(1, len(completed.operations) + 1):
        survivor = MemoryStorage()
        with pytest.raises(Crash):
            make(FaultyStorage(survivor, k, mode), MOR, "record")
        count("crash points")
        assert not theirs(survivor), "Hudi sees no table or an empty table"
        if survivor.size(paths.commit(0)) is None:
            with pytest.raises(Invalid):
                mdt.open(survivor)
            make(survivor, MOR, "record")
        else:
            with pytest.raises(Invalid, match="mdt.open"):
                make(survivor, MOR, "record")
        rolled_back = survivor.copy()
        mdt.open(rolled_back).abort()
        assert_clean(rolled_back)
        assert ours(survivor) == {}
        mdt.open(survivor).upsert(rows(range(3), 1, 1.0))
        assert ours(survivor) == upserted({}, range(3), 1, 1.0) == theirs(survivor)
        assert_clean(survivor)


@pytest.mark.parametrize("table_type", [MOR, COW])
@pytest.mark.parametrize(
    "first", [2, 6, 8, *(pytest.param(k, marks=pytest.mark.nightly) for k in (1, 3, 4, 5, 7))]
)
def test_after_a_crash_during_the_rollback_of_a_crash_the_table_can_be_recovered(first, table_type):
    for mode in ("torn", "after"):
        start = crashed(filled(table_type, "record"), first, mode)
        rows_seen = ours(start)
        for _, survivor in survivors(start.copy, lambda s: mdt.open(s).abort()):
            count("crash points, second level")
            assert ours(survivor) == rows_seen
            assert theirs(survivor) in (rows_seen, BASE_STATE)
            mdt.open(survivor).abort()
            assert ours(survivor) == rows_seen == theirs(survivor)
            assert_clean(survivor)
            upsert_mixed(survivor)
            assert ours(survivor) == MIXED


def test_after_crashes_of_three_processes_in_a_row_the_table_can_be_recovered():
    start = crashed(filled(MOR, "record"), 6, "torn")
    for first in range(1, 9):
        for second in range(1, 9, 2):
            survivor = start.copy()
            for at in (first, second):
                try:
                    mdt.open(FaultyStorage(survivor, at, "after")).abort()
                except Crash:
                    count("crash points, second level")
            mdt.open(survivor).abort()
            assert ours(survivor) == BASE_STATE == theirs(survivor)
            assert_clean(survivor)


class _Unreadable(MemoryStorage):
    """Raises Unavailable in the k-th reading operation."""

    fail_at = 0
    reads = 0

    def read(self, path, offset=0, length=None):
        self._fail()
        return super().read(path, offset, length)

    def open(self, path):
        self._fail()
        return super().open(path)

    def size(self, path):
        self._fail()
        return super().size(path)

    def list(self, prefix):
        self._fail()
        return super().list(prefix)

    def _fail(self):
        self.reads += 1
        if self.reads == self.fail_at:
            raise Unavailable("the storage does not answer (a fault made by a test)")


def with_failing_read(storage, fail_at):
    failing = _Unreadable()
    vars(failing).update(vars(storage.copy()), fail_at=fail_at)
    return failing


@pytest.mark.parametrize("flow", QUICK_FLOWS, ids=NAMES)
def test_a_failed_read_raises_unavailable_and_leaves_all_or_nothing(flow):
    completed = with_failing_read(flow.start(), 0)
    flow.run(completed)
    for k in range(1, completed.reads + 1):
        storage = with_failing_read(flow.start(), k)
        try:
            flow.run(storage)
            acknowledged = True
        except Unavailable:
            acknowledged = False
        count("failed reads")
        # a copy no longer fails, and results for equal bytes are cached
        storage = storage.copy()
        rows_seen = assert_all_or_nothing(flow, storage, f"at read {k}")
        assert not acknowledged or rows_seen == flow.after, (
            "an acknowledged commit must be readable"
        )
        mdt.open(storage).abort()
        assert ours(storage) == rows_seen == theirs(storage)
        assert_clean(storage)


def test_a_failed_read_in_a_scan_raises_unavailable():
    completed = with_failing_read(filled(MOR, "bloom"), 0)
    assert ours(completed) == BASE_STATE
    for k in range(1, completed.reads + 1):
        storage = with_failing_read(filled(MOR, "bloom"), k)
        with pytest.raises(Unavailable):
            ours(storage)
        count("failed reads")


def test_the_claim_of_a_crashed_writer_is_kept_until_it_is_old_enough():
    storage = filled(MOR, "record")
    with pytest.raises(Crash):
        upsert_mixed(FaultyStorage(storage, 6))
    mdt.open(storage).upsert(rows([0], 5, 5.0))
    assert len(pending(mdt.open(storage).metadata)) == 1
    later(storage)
    mdt.open(storage).upsert(rows([0], 5, 5.0))
    assert_clean(storage)
