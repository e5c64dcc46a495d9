"""Indexes are added, built beside writers, dropped and rebuilt. No crash and no order of events
loses a row or leaves lasting damage.
"""

from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from counting import count
from schedules import compaction, explore, index_build, index_change, upsert
from worlds import BASE_STATE, assert_clean, filled, later, ours, rows, survivors, theirs

import mdt
from indexes.base import SkippingIndex
from mdt.errors import Invalid, Unsupported
from mdt.metadata.files import paths
from mdt.metadata.metadata import Metadata
from mdt.metadata.skipping_indexes import index_of
from mdt.metadata.snapshot.shards import Shards
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.metadata.statistics.usage import FOLDED_AFTER_SECONDS, REPORTS_MAX, Counts, IndexUse
from mdt.services.indexing import index_builder
from mdt.stores.storage import MemoryStorage
from mdt.testing.faulty import FaultyStorage
from mdt.write import summarize

FILTERS = {
    "fare = 2.0": pc.field("fare") == 2.0,
    "fare > 1.5 and id = 'k1'": (pc.field("fare") > 1.5) & (pc.field("id") == "k1"),
    "fare = 1.0 or id = 'k2'": (pc.field("fare") == 1.0) | (pc.field("id") == "k2"),
    "id in ('k0', 'nobody')": pc.field("id").isin(["k0", "nobody"]),
}


def storage_with_built_indexes():
    """Return a table with two built indexes."""
    storage = storage_with_planned_indexes()
    mdt.open(storage).build_indexes()
    return storage


pytestmark = pytest.mark.usefixtures("records_decoded_once")

SPECS = ("bitmap/1(fare)", "bloom/1(id)")
COUNTED = {"mdt.usage.counts": True}
MOR = "MERGE_ON_READ"


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Give the small tables the structures of large ones: summaries in separate objects, and builds
    of several commits.
    """
    monkeypatch.setattr(summarize, "INLINE_INDEX_BYTES_MAX", 64)
    monkeypatch.setattr(index_builder, "INDEX_COMMIT_ROWS", 4)
    yield


def storage_with_planned_indexes(table_type=MOR):
    """Return a table with two indexes that do not cover any rows yet."""
    storage = filled(table_type, "record")
    mdt.open(storage).create_index(SPECS, mode="async")
    return storage


def build(storage):
    mdt.open(storage).build_indexes()


def summary_bytes(storage):
    """Return the bytes of every live summary, by index and shard."""
    metadata = Metadata(storage)
    snapshot, summaries_by_shard = metadata.newest(), {}
    for spec in snapshot.definition.indexes:
        files = np.flatnonzero(snapshot.covered(spec) & snapshot.has_rows)
        shards = snapshot.shards.of_files(files)
        numbers = snapshot.shards.number[shards].tolist()
        summaries = snapshot.index_summaries(spec, shards)
        for number, summary in zip(numbers, summaries, strict=True):
            if not isinstance(summary, bytes):
                summary = metadata.objects.read(summary, verify=True).to_pybytes()
            summaries_by_shard[spec, number] = summary
    return summaries_by_shard


def coverages(table):
    return list(table.indexes()["coverage"].to_pylist())


def note(table, where, kind):
    return next(n for n in table.scan(where).explain().indexes if n.index.startswith(kind))


def assert_answers(table):
    """Assert that scans with indexes return the rows of a filtered full scan."""
    all_rows = table.scan().to_arrow()
    for where, test in FILTERS.items():
        expected = sorted(all_rows.filter(test)["id"].to_pylist())
        assert sorted(table.scan(where).to_arrow()["id"].to_pylist()) == expected, where
        assert table.scan(where).count() == len(expected)


def test_an_added_index_covers_all_rows_and_is_maintained_by_writers():
    storage = filled(MOR, "record")
    table = mdt.open(storage)
    result = table.create_index("bitmap(fare)")
    assert (
        result.summaries == len(table.snapshot().shards)
        and result.commits >= 1
        and result.bytes > 0
    )
    assert coverages(table) == [100.0] and note(table, "fare = 2.0", "bitmap").reason == "used"
    mdt.open(storage).upsert(rows([1, 20], 5, 5.0))
    assert coverages(table) == [100.0]
    table.compact()
    assert coverages(table) == [100.0]
    assert_answers(table)
    assert_clean(storage)


def test_creating_an_existing_index_only_builds_what_it_does_not_cover():
    table = mdt.open(storage_with_planned_indexes())
    assert coverages(table) == [0.0, 0.0]
    assert note(table, "fare = 2.0", "bitmap").reason == "not_covered"
    assert_answers(table)
    assert table.create_index("bitmap(fare)").summaries == len(table.snapshot().shards)
    assert coverages(table) == [100.0, 0.0]
    seq = table.snapshot().seq
    assert table.create_index("bitmap(fare)").summaries == 0
    assert table.snapshot().seq == seq, "there is nothing to build, so nothing is committed"


def test_a_batch_of_an_index_build_lists_the_files_of_its_own_shards_only(
    monkeypatch,
):
    table = mdt.open(storage_with_planned_indexes())
    for first in (30, 40, 50):
        table.upsert(rows(range(first, first + 9), 5, 5.0))
    table.rebuild_index(mode="async")
    listed = []
    members = Shards.members
    monkeypatch.setattr(
        Shards, "members", lambda shards, shard: (listed.append(shard), members(shards, shard))[1]
    )
    snapshot = table.snapshot()
    options = table.metadata.options(snapshot.definition)
    batch = index_builder.IndexBuild(table.metadata, options).prepare(snapshot, "0" * 32)
    assert [shard.shard for shard in batch.shards] == listed == [0], (
        "one shard has the rows of a commit"
    )
    assert batch.total == len(snapshot.live_numbers) > len(batch.shards[0].files)


def test_the_work_to_create_an_index_does_not_grow_with_the_number_of_indexes(
    monkeypatch,
):
    columns = pa.schema([("id", pa.string()), *((f"c{n}", pa.int64()) for n in range(12))])
    table = mdt.create(MemoryStorage(), columns, ["id"], options={"mdt.services.auto": False})
    table.upsert({"id": ["a"], **{f"c{n}": [n] for n in range(12)}})
    calls = []
    covered_shards = Snapshot.covered_shards

    def recording(self, index):
        calls.append(index)
        return covered_shards(self, index)

    monkeypatch.setattr(Snapshot, "covered_shards", recording)
    counts = []
    for n in range(12):
        calls.clear()
        table.create_index(f"bitmap(c{n})")
        counts.append(len(calls))
    assert (
        counts[1:] == [counts[0]] * 11 and table.indexes()["coverage"].to_pylist() == [100.0] * 12
    )


@pytest.mark.parametrize("name", ["bitmap(fare)", "bitmap/1(fare)", "fare"])
def test_an_index_can_be_dropped_by_its_specification_or_its_column(name):
    storage = storage_with_built_indexes()
    table = mdt.open(storage)
    table.drop_index(name)
    assert table.definition.indexes == ("bloom/1(id)",)
    assert [
        spec for spec in ("bitmap/1(fare)", "bloom/1(id)") if table.snapshot().covered(spec).any()
    ] == ["bloom/1(id)"]
    table.upsert(rows([3], 8, 8.0))
    table.metadata.compact()
    assert mdt.open(storage).definition.indexes == ("bloom/1(id)",)
    assert_answers(mdt.open(storage))
    table.create_index("bitmap(fare)")
    assert sorted(coverages(table)) == [100.0, 100.0]


def test_errors_of_index_operations_name_the_allowed_values():
    table = mdt.open(storage_with_planned_indexes())
    for call, text in (
        (lambda: table.create_index("bitmap(fair)"), "no column 'fair'"),
        (lambda: table.create_index("btree(fare)"), "btree"),
        (lambda: table.create_index("bitmap(fare)", mode="later"), "use one of sync, async"),
        (lambda: table.rebuild_index(mode="later"), "use one of sync, async"),
        (lambda: table.drop_index("bitmap(city)"), "bitmap\\(fare\\), bloom\\(id\\)"),
        (lambda: table.drop_index(None), "specs takes text"),  # type: ignore[arg-type]
        (lambda: table.rebuild_index("bitmap(city)"), "no index"),
        (lambda: table.build_indexes("nothing"), "no index"),
    ):
        with pytest.raises(Invalid, match=text):
            call()
    assert table.definition.indexes == SPECS


def test_a_rebuilt_index_equals_the_index_maintained_by_writers(monkeypatch):
    # a shard with removed files has other summaries
    monkeypatch.setattr(summarize, "SHARD_SEGMENT_ROWS_MAX", 0)
    storage = storage_with_built_indexes()
    table = mdt.open(storage)
    table.upsert(rows(range(2, 9), 3, 3.0))
    maintained = summary_bytes(storage)
    table.rebuild_index()
    assert summary_bytes(storage) == maintained
    assert_clean(storage)


def test_an_index_that_raises_does_not_fail_writes_but_fails_its_build(
    monkeypatch,
):
    storage = storage_with_planned_indexes()
    _, bitmap = index_of(SPECS[0])
    assert isinstance(bitmap, SkippingIndex)

    def fail(self, values):
        raise RuntimeError("out of order")

    monkeypatch.setattr(type(bitmap), "summarize", fail)
    table = mdt.open(storage)
    assert table.upsert(rows([1], 7, 7.0)).updated == 1
    with pytest.raises(Unsupported, match="drop the index"):
        table.build_indexes()
    assert coverages(table) == [0.0, 100.0]
    assert_answers(table)
    assert_clean(storage)


def test_damaged_summaries_are_ignored_by_scans_and_can_be_rebuilt():
    storage = storage_with_built_indexes()
    damaged = storage.copy()
    for info in storage.list(".hoodie/.mdt/attachments"):
        data = bytearray(MemoryStorage.read(storage, info.path))
        for at in range(0, len(data), 3):
            data[at] ^= 0x5A
        damaged.replace(info.path, bytes(data))
    table, intact = mdt.open(damaged), mdt.open(storage)
    for where in ("fare = 2.0", "fare = 1.0", "fare >= 0", "fare < 100 and fare > 1.5"):
        rows_found, expected = (t.scan(where).to_arrow().sort_by("id") for t in (table, intact))
        assert rows_found.equals(expected), where
        assert note(table, where, "bitmap").reason == "damaged"
    table.rebuild_index("fare")
    assert note(table, "fare = 2.0", "bitmap").reason == "used"


@pytest.mark.parametrize("table_type", [MOR, "COPY_ON_WRITE"])
def test_a_build_continued_after_a_crash_at_any_change_has_the_same_result(
    table_type,
):
    uninterrupted = storage_with_planned_indexes(table_type)
    build(uninterrupted)
    expected = summary_bytes(uninterrupted)
    assert len(expected) == 2 * len(mdt.open(uninterrupted).snapshot().live_shards)
    for where, survivor in survivors(lambda: storage_with_planned_indexes(table_type), build):
        count("crash points of an index build")
        assert ours(survivor) == BASE_STATE == theirs(survivor), where
        assert_answers(mdt.open(survivor))
        later(survivor)
        build(survivor)
        assert summary_bytes(survivor) == expected, where
        assert ours(survivor) == BASE_STATE == theirs(survivor), where
        mdt.open(survivor).abort()
        assert_clean(survivor)


@pytest.mark.parametrize("change", ["create", "drop", "rebuild"])
def test_a_change_of_indexes_is_atomic_after_a_crash_at_any_change(change):
    run = {
        "create": lambda s: mdt.open(s).create_index("bitmap(ts)", mode="async"),
        "drop": lambda s: mdt.open(s).drop_index("fare"),
        "rebuild": lambda s: mdt.open(s).rebuild_index(mode="async"),
    }[change]

    for where, survivor in survivors(storage_with_built_indexes, run):
        count("crash points of an index build")
        assert ours(survivor) == BASE_STATE == theirs(survivor), where
        mdt.open(survivor).abort()
        assert_answers(mdt.open(survivor))
        mdt.open(survivor).build_indexes()
        assert set(coverages(mdt.open(survivor))) == {100.0}
        assert_clean(survivor)


@pytest.mark.parametrize(
    "company",
    [
        [index_build(), index_build()],
        [index_build(), upsert([1, 20], 3, 3.0)],
        [index_build(), compaction()],
        [index_build(), index_change("drop_index", dropped=SPECS[:1])],
        [index_build(), index_change("rebuild_index", forgotten=SPECS)],
        [
            index_change("create_index", added=("bitmap/1(ts)",)),
            index_change("add_another", added=("bloom/1(fare)",)),
        ],
        [index_change("create_index", added=("bitmap/1(ts)",)), upsert([1, 20], 3, 3.0)],
    ],
    ids=lambda company: " beside ".join(actor.name for actor in company),
)
def test_index_builds_and_changes_beside_writers_never_conflict(company):
    runs = 0
    for run in explore(storage_with_planned_indexes().copy, company, preemptions=2):
        runs += 1
        assert all(end.attempts == 1 for end in run.ended.values()), run.schedule
        table = mdt.open(run.storage)
        rows_seen = ours(run.storage)
        assert rows_seen == theirs(run.storage)
        assert rows_seen == reduce(lambda state, actor: actor.model(state), company, BASE_STATE)
        assert_answers(table)
        table.build_indexes()
        assert set(coverages(table)) <= {100.0}
        for change in [
            end.record.header["indexes"]
            for end in run.ended.values()
            if end.record and "indexes" in end.record.header
        ]:
            assert set(change.get("add", ())) <= set(table.definition.indexes)
            assert not set(change.get("drop", ())) & set(table.definition.indexes)
        assert_clean(run.storage)
    count("schedules with index builders", runs)
    assert runs > 5


def test_index_use_is_counted_across_processes_and_leads_to_advice():
    storage = storage_with_built_indexes()
    first, second = mdt.open(storage, COUNTED), mdt.open(storage, COUNTED)
    assert first.advise() == [], "without queries there is no advice"
    for _ in range(6):
        first.scan("fare = 2.0 and city = 'x'").to_arrow()
        second.scan("fare = 77.0 and city like '%z%'").count()
    first.metadata.usage.report()
    second.metadata.usage.report()
    third = mdt.open(storage)
    use_by_index = {row["index"]: row for row in third.indexes().to_pylist()}
    assert use_by_index["bitmap(fare)"]["queries"] == 6, "statistics suffice for the others"
    assert use_by_index["bitmap(fare)"]["last_used"] is not None
    assert (
        use_by_index["bloom(id)"]["queries"] == 0 and use_by_index["bloom(id)"]["last_used"] is None
    )
    advice = {(a.action, a.index): a for a in third.advise()}
    assert (
        advice["drop", "bloom(id)"].bytes > 0 and "12 queries" in advice["drop", "bloom(id)"].reason
    )


def test_damaged_and_unwritable_usage_reports_are_ignored():
    storage = storage_with_built_indexes()
    table = mdt.open(storage, COUNTED)
    table.scan("fare = 2.0").to_arrow()
    storage.replace(".hoodie/.mdt/usage/x.json", b"[not json")
    storage.replace(".hoodie/.mdt/usage/y.json", b'{"since_us": 1}')
    assert table.indexes()["queries"].to_pylist() == [1, 0]
    broken = mdt.open(FaultyStorage(storage))
    broken.metadata.usage.record(Counts(queries=1, indexes={SPECS[0]: IndexUse(1, 1, 1)}))
    broken.metadata.usage.report()
    assert mdt.open(storage).indexes()["queries"].to_pylist()[0] == 1


def test_warm_loads_summaries_and_explain_shows_their_cache_hits():
    storage = storage_with_built_indexes()
    table = mdt.open(storage)
    table.warm()
    before = table.scan("fare = 2.0").explain().caches
    opened = before["summaries"]
    assert opened[1] > 0, "warm() opened them"
    table.scan("fare = 2.0").to_arrow()
    plan = table.scan("fare = 2.0").explain()
    assert plan.caches["summaries"][0] > opened[0] and plan.caches["summaries"][1] == opened[1]
    assert "cache hits" in str(plan)
    table.warm(["id"])
    assert table.scan("fare = 2.0").count() == mdt.open(storage).scan("fare = 2.0").count()


def test_readers_write_no_usage_reports_by_default_and_advice_names_the_option():
    storage = storage_with_built_indexes()
    before = storage.list("")
    silent = mdt.open(storage)
    for _ in range(12):
        silent.scan("fare = 2.0").to_arrow()
    silent.metadata.usage.report()
    assert silent.indexes()["queries"].to_pylist() == [None, None], "unknown, which differs from 0"
    (advice,) = silent.advise()
    assert (advice.action, advice.index) == ("count", "") and "mdt.usage.counts=true" in str(advice)
    assert storage.list("") == before

    counting = mdt.open(storage, COUNTED)
    counting.scan("fare = 2.0").to_arrow()
    counting.metadata.usage.report()
    assert len(storage.list(".hoodie/.mdt/usage")) == 1
    assert silent.indexes()["queries"].to_pylist() == [1, 0], (
        "processes that write no reports read them"
    )
    assert silent.advise() == [], "too few queries"


def test_old_usage_reports_are_merged_by_reporting_processes_and_not_by_readers():
    storage = storage_with_built_indexes()
    for _ in range(REPORTS_MAX):
        storage.replace(
            paths.usage(storage.random_hex(16)),
            Counts(1, 2, {SPECS[0]: IndexUse(2, 2, 3, 4)}).encode(),
        )
    storage.sleep(FOLDED_AFTER_SECONDS + 1)
    before = mdt.open(storage).indexes().to_pylist()
    assert before[0]["queries"] == 2 * REPORTS_MAX
    assert len(storage.list(".hoodie/.mdt/usage")) == REPORTS_MAX
    counting = mdt.open(storage, COUNTED)
    counting.scan("fare = 2.0").to_arrow()
    counting.metadata.usage.report()
    assert len(storage.list(".hoodie/.mdt/usage")) == 2
    assert mdt.open(storage).indexes()["queries"].to_pylist() == [2 * REPORTS_MAX + 1, 0]
