"""Index builds on Hudi's timeline. Hudi's readers see the same rows at every step of a build."""

from io import BytesIO

import fastavro
import pytest
from counting import count
from worlds import BASE_STATE, MOR, assert_clean, filled, later, make, ours, rows, survivors, theirs

import mdt
from mdt.commit.transaction import run
from mdt.hudi.layout import layout_of
from mdt.hudi.timeline import UNARCHIVED
from mdt.metadata.files import paths
from mdt.services.indexing import index_builder
from mdt.services.indexing.index_plans import open_plans
from mdt.stores.storage import MemoryStorage

SPEC = "bitmap/1(fare)"


def instant_states(storage):
    """Return the states of each ``indexing`` instant, by time."""
    layout = layout_of(mdt.open(storage).definition)
    states_by_time = {}
    for info in storage.list_dir(paths.HUDI):
        instant = layout.instant_at(info.path)
        if instant is not None and instant.action == "indexing":
            states_by_time.setdefault(instant.time, []).append(instant.state)
    return {time: sorted(names) for time, names in states_by_time.items()}


def checked_states(storage):
    """Return the states of all plans. Assert that hudi-rs sees the rows and that check is clean."""
    assert ours(storage) == BASE_STATE == theirs(storage)
    assert_clean(storage)
    return list(instant_states(storage).values())


ALL, PENDING = ["completed", "inflight", "requested"], ["inflight", "requested"]


def test_a_build_is_requested_with_its_plan_and_completed_once_all_files_are_covered(
    monkeypatch,
):
    monkeypatch.setattr(index_builder, "INDEX_COMMIT_ROWS", 1)
    storage = filled(MOR, "record")
    table = mdt.open(storage)
    assert checked_states(storage) == []
    table.create_index("bitmap(fare)", mode="async")
    assert checked_states(storage) == [PENDING]
    (time,) = instant_states(storage)
    (plan,) = fastavro.reader(BytesIO(storage.read(f".hoodie/{time}.indexing.requested")))
    (part,) = plan["indexPartitionInfos"]
    assert (part["metadataPartitionPath"], part["indexUptoInstant"]) == (SPEC, time)
    driver = index_builder.IndexBuild(table.metadata, table.options)
    states_after_commits = []
    while run(table.metadata, driver).record is not None:
        states_after_commits.append(checked_states(storage))
    assert (
        len(states_after_commits) > 1
        and states_after_commits[:-1] == [[PENDING]] * (len(states_after_commits) - 1)
        and states_after_commits[-1] == [ALL]
    )
    (completed,) = fastavro.reader(BytesIO(storage.read(f".hoodie/{time}.indexing")))
    assert completed["indexPartitionInfos"] == plan["indexPartitionInfos"]


def table_with_plan():
    storage = filled(MOR, "record")
    mdt.open(storage).create_index("bitmap(fare)", mode="async")
    return storage


def test_the_next_builder_completes_the_plan_of_a_crashed_builder():
    for where, survivor in survivors(
        table_with_plan, lambda storage: mdt.open(storage).build_indexes()
    ):
        count("crash points of builds that Hudi is told of")
        assert ours(survivor) == BASE_STATE == theirs(survivor), where
        mdt.open(later(survivor)).build_indexes()
        assert checked_states(survivor) == [ALL], where
        assert not open_plans(mdt.open(survivor).metadata, mdt.open(survivor).snapshot())


def test_dropping_all_indexes_of_a_plan_before_their_build_removes_the_plan():
    storage = filled(MOR, "record")
    table = mdt.open(storage)
    table.create_index(["bitmap(fare)", "bloom(id)"], mode="async")
    table.drop_index("bloom(id)")
    assert checked_states(storage) == [PENDING]
    table.drop_index("bitmap(fare)")
    assert checked_states(storage) == []


def test_in_version_9_builds_and_restores_leave_no_instants_that_hudi_does_not_archive():
    storage = filled(MOR, "record")
    table = mdt.open(storage)
    table.create_index("bitmap(fare)", mode="async")
    table.upgrade(9)
    table.build_indexes()
    table.tag("here")
    table.upsert(rows([3], 4, 4.0))
    table.restore("here")
    layout = layout_of(mdt.open(storage).definition)
    instants = [layout.instant_at(info.path) for info in storage.list(layout.timeline)]
    assert not UNARCHIVED & {instant.action for instant in instants if instant is not None}
    assert ours(storage) == BASE_STATE == theirs(storage)
    assert_clean(storage)


def test_a_plan_is_completed_after_all_of_its_indexes_are_built():
    storage = filled(MOR, "record")
    table = mdt.open(storage)
    table.create_index(["bitmap(fare)", "bloom(id)"], mode="async")
    table.build_indexes("bitmap(fare)")
    assert checked_states(storage) == [PENDING]
    table.build_indexes()
    assert checked_states(storage) == [ALL]
    table.rebuild_index("bloom(id)")
    assert checked_states(storage) == [ALL, ALL]


def test_an_empty_table_has_no_plan_and_a_plan_of_deleted_files_is_completed():
    storage = MemoryStorage()
    table = make(storage, MOR, "record")
    table.create_index("bitmap(fare)", mode="async")
    assert instant_states(storage) == {}, (
        "Hudi's first write would fail if an index build were the only instant"
    )
    table.upsert(rows(range(3), 1, 1.0))
    table.create_index("bloom(id)", mode="async")
    table.delete(rows(range(3), 2, 0.0))
    table.compact()
    table.build_indexes()
    assert list(instant_states(storage).values()) == [ALL]
    assert_clean(storage)


def test_the_plan_of_an_index_that_cannot_be_built_stays_pending(monkeypatch):
    storage = filled(MOR, "record")
    monkeypatch.setattr(index_builder, "summaries_of", lambda *args: {})
    with pytest.raises(mdt.Unsupported, match="could not be made"):
        mdt.open(storage).create_index("bitmap(fare)")
    assert checked_states(storage) == [PENDING]


def test_repair_restores_the_instants_of_a_plan_deleted_from_the_timeline():
    storage = filled(MOR, "record")
    table = mdt.open(storage)
    table.create_index("bitmap(fare)")
    for info in storage.list(paths.HUDI):
        if ".indexing" in info.path:
            storage.delete(info.path)
    assert len(table.check().problems) == 3
    assert table.repair().ok and checked_states(storage) == [ALL]
