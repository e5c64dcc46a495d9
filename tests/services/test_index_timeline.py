"""What Hudi's timeline shows of the building of indexes, and that its readers see the same rows at
every moment of it.
"""

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


def states(storage):
    """Return the states of each ``indexing`` instant."""
    layout = layout_of(mdt.open(storage).definition)
    found = {}
    for info in storage.list_dir(paths.HUDI):
        instant = layout.instant_at(info.path)
        if instant is not None and instant.action == "indexing":
            found.setdefault(instant.time, []).append(instant.state)
    return {time: sorted(of) for time, of in found.items()}


def seen(storage):
    """Return the states of all plans; hudi-rs must see the rows, and nothing be wrong."""
    assert ours(storage) == BASE_STATE == theirs(storage)
    assert_clean(storage)
    return list(states(storage).values())


ALL, PENDING = ["completed", "inflight", "requested"], ["inflight", "requested"]


def test_a_build_is_requested_with_its_plan_and_completed_when_all_files_are_covered(
    monkeypatch,
):
    monkeypatch.setattr(index_builder, "INDEX_COMMIT_ROWS", 1)
    storage = filled(MOR, "record")
    table = mdt.open(storage)
    assert seen(storage) == []
    table.create_index("bitmap(fare)", mode="async")
    assert seen(storage) == [PENDING]
    (time,) = states(storage)
    (plan,) = fastavro.reader(BytesIO(storage.read(f".hoodie/{time}.indexing.requested")))
    (part,) = plan["indexPartitionInfos"]
    assert (part["metadataPartitionPath"], part["indexUptoInstant"]) == (SPEC, time)
    driver = index_builder.IndexBuild(table.metadata, table.options)
    moments = []
    while run(table.metadata, driver).record is not None:
        moments.append(seen(storage))
    assert (
        len(moments) > 1
        and moments[:-1] == [[PENDING]] * (len(moments) - 1)
        and moments[-1] == [ALL]
    )
    (told,) = fastavro.reader(BytesIO(storage.read(f".hoodie/{time}.indexing")))
    assert told["indexPartitionInfos"] == plan["indexPartitionInfos"]


def planned():
    storage = filled(MOR, "record")
    mdt.open(storage).create_index("bitmap(fare)", mode="async")
    return storage


def test_who_comes_after_a_builder_that_died_completes_its_plan():
    for where, survivor in survivors(planned, lambda storage: mdt.open(storage).build_indexes()):
        count("crash points of builds that Hudi is told of")
        assert ours(survivor) == BASE_STATE == theirs(survivor), where
        mdt.open(later(survivor)).build_indexes()
        assert seen(survivor) == [ALL], where
        assert not open_plans(mdt.open(survivor).metadata, mdt.open(survivor).snapshot())


def test_an_index_that_is_dropped_before_it_was_built_leaves_no_plan():
    storage = filled(MOR, "record")
    table = mdt.open(storage)
    table.create_index(["bitmap(fare)", "bloom(id)"], mode="async")
    table.drop_index("bloom(id)")
    assert seen(storage) == [PENDING]
    table.drop_index("bitmap(fare)")
    assert seen(storage) == []


def test_since_version_8_builds_and_restores_leave_nothing_that_hudi_does_not_archive():
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


def test_of_two_indexes_of_a_plan_both_must_be_built():
    storage = filled(MOR, "record")
    table = mdt.open(storage)
    table.create_index(["bitmap(fare)", "bloom(id)"], mode="async")
    table.build_indexes("bitmap(fare)")
    assert seen(storage) == [PENDING]
    table.build_indexes()
    assert seen(storage) == [ALL]
    table.rebuild_index("bloom(id)")
    assert seen(storage) == [ALL, ALL]


def test_of_an_empty_table_there_is_nothing_to_build_and_a_plan_whose_files_went_ends():
    storage = MemoryStorage()
    table = make(storage, MOR, "record")
    table.create_index("bitmap(fare)", mode="async")
    assert states(storage) == {}, "the first write of Hudi fails beside an index build alone"
    table.upsert(rows(range(3), 1, 1.0))
    table.create_index("bloom(id)", mode="async")
    table.delete(rows(range(3), 2, 0.0))
    table.compact()
    table.build_indexes()
    assert list(states(storage).values()) == [ALL]
    assert_clean(storage)


def test_an_index_that_cannot_be_built_stays_planned(monkeypatch):
    storage = filled(MOR, "record")
    monkeypatch.setattr(index_builder, "summaries_of", lambda *given: {})
    with pytest.raises(mdt.Unsupported, match="could not be made"):
        mdt.open(storage).create_index("bitmap(fare)")
    assert seen(storage) == [PENDING]


def test_a_plan_that_is_damaged_on_the_timeline_is_written_again():
    storage = filled(MOR, "record")
    table = mdt.open(storage)
    table.create_index("bitmap(fare)")
    for info in storage.list(paths.HUDI):
        if ".indexing" in info.path:
            storage.delete(info.path)
    assert len(table.check().problems) == 3
    assert table.repair().ok and seen(storage) == [ALL]
