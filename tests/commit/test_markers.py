"""Markers: by them a writer of Hudi's finds the files of a transaction of ours that died."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Container

import pytest
from hidden import HiddenMetadata
from hudis_rollback import LATER, data_files, named_by_markers, roll_back
from pooled import PooledTable
from texts import columns
from worlds import BASE_STATE, COW, MOR, assert_clean, filled, later, ours, rows, spread, theirs

import mdt
from mdt.commit import publish, transaction
from mdt.errors import Unavailable, Unsupported
from mdt.hudi.file_names import parse_log
from mdt.hudi.layout import layout_of
from mdt.limits import UNPUBLISHED_SECONDS_MAX
from mdt.metadata.files import paths
from mdt.stores.contract import Listing
from mdt.stores.storage import LocalStorage
from mdt.testing.faulty import Crash, FaultyStorage
from mdt.testing.slow import FarStorage

WRITES: dict[str, Callable[[mdt.Table], object]] = {
    "upsert": lambda table: table.upsert(rows(range(2, 9), 3, 3.0)),
    "delete": lambda table: table.delete(rows((0, 3), 0, 0.0)),
    "delete_where": lambda table: table.delete_where("fare = 2.0"),
    "update_where": lambda table: table.update_where(values={"fare": 9.0}, where="fare = 2.0"),
    "insert_overwrite": lambda table: table.insert_overwrite(rows((0, 22), 1, 9.0)),
    "compact": lambda table: table.compact(),
    "cluster": lambda table: table.cluster("fare"),
    "restore": lambda table: table.restore(1),
}


class Watched(FarStorage):
    """A storage on which a data file is stored only if its marker and the pending instants of its
    transaction stand, and a log file only if the inflight one has its file group.
    """

    def __init__(self, inner, *, is_remote):
        super().__init__(inner)
        self.is_remote = is_remote  # type: ignore[misc]
        self.data_files = 0

    def create(self, path, data):
        """See :class:`Storage`."""
        if not paths.is_hudis(path):
            marked = [i for i in self._under_way() if path in named_by_markers(self.inner, i)]
            assert len(marked) == 1, f"{path} has {len(marked)} markers"
            self.data_files += 1
            partition, _, name = path.rpartition("/")
            log = parse_log(name)
            if log is not None:
                inflight = f"{paths.HUDI}/{marked[0]}.deltacommit.inflight"
                stats = json.loads(self.inner.read(inflight))["partitionToWriteStats"]
                assert {"fileId": log.file_id, "prevCommit": log.instant} in stats[partition]
        super().create(path, data)

    def _under_way(self):
        """Return the instants of transactions that Hudi knows of, with a heartbeat."""
        beating = [info.path.rpartition("/")[2] for info in self.inner.list(paths.HEARTBEATS_DIR)]
        states = [info.path for info in self.inner.list_dir(paths.HUDI)]
        return [
            i for i in beating if sum(path.startswith(f"{paths.HUDI}/{i}.") for path in states) == 2
        ]


@pytest.mark.parametrize("is_remote", [False, True], ids=["near", "far"])
@pytest.mark.parametrize("name", WRITES)
def test_no_data_file_is_stored_before_its_marker_and_nothing_is_left_after_the_commit(
    name, is_remote
):
    inner = spread(COW, "record") if name == "cluster" else filled(MOR, "record")
    storage = Watched(inner, is_remote=is_remote)
    WRITES[name](mdt.open(storage))
    assert storage.data_files
    assert not inner.list(paths.MARKERS_DIR) and not inner.list(paths.HEARTBEATS_DIR)
    assert_clean(inner)


def test_tasks_in_other_processes_mark_their_files(tmp_path, monkeypatch):
    table = local_table(tmp_path)
    seen, original = list[set[str]](), publish.publish

    def looked(storage, record, definition):
        marked, files = named_by_markers(storage, record.instant), data_files(storage)
        seen.append({file for file in files if record.instant in file})
        assert seen[-1] <= marked <= files
        original(storage, record, definition)

    monkeypatch.setattr(publish, "publish", looked)
    PooledTable(table.storage).compact()
    assert len(seen) == 1 and seen[0]


def local_table(path):
    """Return a table on a disk, with log files."""
    options = {"mdt.services.auto": False}
    schema = columns("id string, city string")
    storage = LocalStorage(path / "t", durable=False)
    table = mdt.create(storage, schema, key=["id"], partition_by=["city"], options=options)
    for number in range(3):
        table.upsert({"id": ["a", f"b{number}"], "city": ["x", "y"]})
    return table


def test_a_far_transaction_makes_one_list_of_markers_however_many_files_it_has():
    storage = FarStorage(filled(MOR, "record"))
    table = mdt.open(storage)
    before = len(storage.operations)
    table.upsert(rows(range(30), 5, 5.0))
    made = storage.operations[before:]
    assert sum(one.startswith("create") and ".hoodie" not in one for one in made) > 1
    put = [one for one in made if one.startswith("put_passing")]
    assert len(put) == 5, "two instants, a heartbeat, the type, the list"
    assert sum("/.temp/" in one and "MARKERS.type" not in one for one in put) == 1
    assert sum(one.startswith("delete") for one in made) == 1


def test_a_local_table_keeps_no_directories_of_markers(tmp_path):
    local_table(tmp_path)
    assert os.listdir(tmp_path / "t" / ".hoodie" / ".temp") == []


@pytest.fixture(params=[MOR, COW])
def unpublished(request):
    """Return a table whose newest commit stands in the log, and not on Hudi's timeline: its writer
    died between the two.
    """
    storage = filled(request.param, "record")
    dies_at_the_log(storage, "upsert", "after")
    assert ours(storage) != BASE_STATE == theirs(storage)
    return storage


def dies_at_the_log(storage, name, mode):
    """Let a writer die when it appends to the log."""
    whole = FaultyStorage(storage.copy())
    WRITES[name](mdt.open(whole))
    log = "put_if_absent .hoodie/.mdt/log/"
    (at,) = [k for k, one in enumerate(whole.operations, 1) if one.startswith(log)]
    with pytest.raises(Crash):
        WRITES[name](mdt.open(FaultyStorage(storage, at, mode)))


def completed(storage):
    """Return the paths of the completed commits of Hudi's timeline."""
    return [info.path for info in storage.list_dir(paths.HUDI) if info.path.endswith("commit")]


def test_a_commit_that_hudi_has_rolled_back_is_never_published(unpublished):
    before = completed(unpublished)
    assert roll_back(unpublished)
    rows_of_others = mdt.open(HiddenMetadata(unpublished)).scan().count()
    t = mdt.open(unpublished)
    assert t.scan().count() == rows_of_others
    t.refresh()
    assert completed(unpublished) == before
    t.upsert(rows([1], 9, 9.0))
    assert len(completed(unpublished)) == len(before) + 1
    assert t.scan().count() == mdt.open(HiddenMetadata(unpublished)).scan().count()
    assert t.check().ok


def test_a_commit_whose_files_are_gone_is_not_published_even_if_no_rollback_is_seen(
    unpublished,
):
    before = completed(unpublished)
    roll_back(unpublished)
    unpublished.delete(f"{paths.HUDI}/{LATER}.rollback")
    with pytest.raises(
        Unsupported,
        match=r"was not on Hudi's timeline when another Hudi writer took over.*is missing",
    ):
        mdt.open(unpublished).abort()
    assert completed(unpublished) == before


def test_a_writer_that_was_paused_before_it_published_looks_again(
    monkeypatch,
):
    storage = filled(COW, "record")
    before = completed(storage)
    original = transaction.commit_log.append

    def paused(*given):
        done = original(*given)
        storage.sleep(UNPUBLISHED_SECONDS_MAX + 1)
        assert roll_back(storage)
        return done

    monkeypatch.setattr(transaction.commit_log, "append", paused)
    with pytest.raises(Unsupported, match="removes the files of such commits"):
        WRITES["upsert"](mdt.open(storage))
    assert completed(storage) == before


def test_a_commit_that_could_not_be_published_says_what_a_writer_of_hudis_would_do(
    monkeypatch,
):
    def failing(*_):
        raise Unavailable("the disk is away")

    table = mdt.open(filled(MOR, "record"))
    monkeypatch.setattr(publish, "publish", failing)
    result = table.upsert(rows([1], 9, 9.0))
    assert any("a Hudi writer would remove its files" in warning for warning in result.warnings)


def test_markers_that_a_dead_writer_left_go_with_it():
    storage = filled(MOR, "record")
    with pytest.raises(Crash):
        WRITES["upsert"](mdt.open(FaultyStorage(storage, 8)))
    assert storage.list(paths.MARKERS_DIR) and storage.list(paths.HEARTBEATS_DIR)
    mdt.open(later(storage)).upsert(rows([1], 9, 9.0))
    assert not storage.list(paths.MARKERS_DIR) and not storage.list(paths.HEARTBEATS_DIR)


def test_markers_of_a_transaction_that_ended_are_named_by_check_and_removed():
    storage = filled(MOR, "record")
    instant = mdt.open(storage).snapshot().last_instant
    left = [f"{paths.markers_of(instant)}/city=x/f.parquet.marker.CREATE", paths.heartbeat(instant)]
    other = f"{paths.markers_of('20990101000000000')}/MARKERS0"
    for path in [*left, other]:
        storage.create(path, b"")
    named = [problem.path for problem in mdt.open(storage).check().problems]
    assert sorted(named) == sorted(left)
    mdt.open(storage).abort()
    assert storage.size(other) == 0 and all(storage.size(path) is None for path in left)


def test_a_pending_overwrite_of_ours_is_not_taken_for_another_writers():
    storage = filled(MOR, "record")
    dies_at_the_log(storage, "insert_overwrite", "before")
    assert ours(storage) == BASE_STATE == theirs(storage)
    mdt.open(storage).upsert(rows([1], 9, 9.0))


class BusyStorage(FaultyStorage):
    """A storage on which a writer of ours begins after each listing of the claims."""

    def list_dir(
        self, prefix: str, *, after: str = "", before: str = "", skip: Container[str] = frozenset()
    ) -> Listing:
        listed = super().list_dir(prefix, after=after, before=before, skip=skip)
        if prefix == paths.PENDING_DIR:
            dies_at_the_log(self.inner, "upsert", "before")
        return listed


@pytest.mark.parametrize("name", ["upsert", "compact"])
def test_writers_of_ours_that_begin_meanwhile_are_not_taken_for_other_writers(name):
    storage = filled(MOR, "record")
    dies_at_the_log(storage, "upsert", "before")
    before = mdt.open(storage).snapshot().seq
    WRITES[name](mdt.open(BusyStorage(storage)))
    assert mdt.open(storage).snapshot().seq == before + 1


@pytest.mark.parametrize(
    "name, action", [("insert_overwrite", "replacecommit"), ("compact", "compaction")]
)
def test_the_plan_of_a_service_stands_in_the_place_of_what_announced_it(name, action):
    storage = filled(MOR, "record")
    table = mdt.open(storage)
    WRITES[name](table)
    assert storage.size(f"{paths.HUDI}/{table.snapshot().last_instant}.{action}.requested")


def test_a_pending_service_of_another_writer_stops_writers():
    storage = filled(MOR, "record")
    path = layout_of(mdt.open(storage).definition).retracted("20990101000000000", "replacecommit")[
        1
    ]
    storage.create(path, b"a plan")
    with pytest.raises(Unsupported, match="it has pending instants 20990101000000000"):
        WRITES["upsert"](mdt.Table(storage))


def test_a_heartbeat_stands_before_the_instant_without_it_hudi_refuses_to_roll_back_what_later_commits_follow():
    storage = FarStorage(filled(MOR, "record"))
    WRITES["upsert"](mdt.open(storage))
    put = [one.partition(" ")[2] for one in storage.operations if one.startswith("put_")]
    kinds = [path.removeprefix(f"{paths.HUDI}/").partition("/")[0] for path in put]
    assert (
        kinds.index(".heartbeat")
        < kinds.index(".mdt")
        < min(n for n, kind in enumerate(kinds) if kind[0] == "2")
    )


def test_marker_directories_of_other_writers_stay(tmp_path):
    t = mdt.create(tmp_path / "t", columns("id int64"), key=["id"])
    theirs = tmp_path / "t" / ".hoodie" / ".temp" / "20200101000000000"
    theirs.mkdir(parents=True)
    t.upsert({"id": [1]})
    assert [folder.name for folder in theirs.parent.iterdir()] == [theirs.name]
