"""Markers, by which Hudi's writers find the files of a crashed transaction of mdt."""

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
    """A storage that asserts for each new data file that its marker and the pending instants of its
    transaction exist, and that the inflight instant names the file group of a log file.
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
        """Return the instants with a heartbeat and both pending states."""
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

    def check_and_publish(storage, record, definition):
        marked, files = named_by_markers(storage, record.instant), data_files(storage)
        seen.append({file for file in files if record.instant in file})
        assert seen[-1] <= marked <= files
        original(storage, record, definition)

    monkeypatch.setattr(publish, "publish", check_and_publish)
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


def test_a_transaction_on_a_remote_storage_writes_one_list_of_markers_for_all_files():
    storage = FarStorage(filled(MOR, "record"))
    table = mdt.open(storage)
    before = len(storage.operations)
    table.upsert(rows(range(30), 5, 5.0))
    operations = storage.operations[before:]
    assert (
        sum(
            operation.startswith("create") and ".hoodie" not in operation
            for operation in operations
        )
        > 1
    )
    puts = [operation for operation in operations if operation.startswith("put_passing")]
    assert len(puts) == 5, "two instants, a heartbeat, the type, the list"
    assert (
        sum("/.temp/" in operation and "MARKERS.type" not in operation for operation in puts) == 1
    )
    assert sum(operation.startswith("delete") for operation in operations) == 1


def test_a_local_table_leaves_no_marker_directories(tmp_path):
    local_table(tmp_path)
    assert os.listdir(tmp_path / "t" / ".hoodie" / ".temp") == []


@pytest.fixture(params=[MOR, COW])
def unpublished(request):
    """Return a table whose newest commit is in the log, but not on Hudi's timeline, because its
    writer crashed between the two.
    """
    storage = filled(request.param, "record")
    crash_at_the_log(storage, "upsert", "after")
    assert ours(storage) != BASE_STATE == theirs(storage)
    return storage


def crash_at_the_log(storage, name, mode):
    """Run a writer that crashes when it appends to the log."""
    complete_run = FaultyStorage(storage.copy())
    WRITES[name](mdt.open(complete_run))
    log = "put_if_absent .hoodie/.mdt/log/"
    (at,) = [
        k for k, operation in enumerate(complete_run.operations, 1) if operation.startswith(log)
    ]
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


def test_a_commit_whose_files_are_missing_is_not_published_even_without_a_rollback_instant(
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


def test_a_writer_that_paused_before_publishing_detects_a_rollback_by_hudi(
    monkeypatch,
):
    storage = filled(COW, "record")
    before = completed(storage)
    original = transaction.commit_log.append

    def append_and_pause(*arguments):
        result = original(*arguments)
        storage.sleep(UNPUBLISHED_SECONDS_MAX + 1)
        assert roll_back(storage)
        return result

    monkeypatch.setattr(transaction.commit_log, "append", append_and_pause)
    with pytest.raises(Unsupported, match="removes the files of such commits"):
        WRITES["upsert"](mdt.open(storage))
    assert completed(storage) == before


def test_a_commit_that_cannot_be_published_warns_that_hudi_would_remove_its_files(
    monkeypatch,
):
    def failing(*_):
        raise Unavailable("the disk is away")

    table = mdt.open(filled(MOR, "record"))
    monkeypatch.setattr(publish, "publish", failing)
    result = table.upsert(rows([1], 9, 9.0))
    assert any("a Hudi writer would remove its files" in warning for warning in result.warnings)


def test_markers_of_a_crashed_writer_are_removed_by_the_rollback():
    storage = filled(MOR, "record")
    with pytest.raises(Crash):
        WRITES["upsert"](mdt.open(FaultyStorage(storage, 8)))
    assert storage.list(paths.MARKERS_DIR) and storage.list(paths.HEARTBEATS_DIR)
    mdt.open(later(storage)).upsert(rows([1], 9, 9.0))
    assert not storage.list(paths.MARKERS_DIR) and not storage.list(paths.HEARTBEATS_DIR)


def test_markers_of_an_ended_transaction_are_reported_by_check_and_removed_by_abort():
    storage = filled(MOR, "record")
    instant = mdt.open(storage).snapshot().last_instant
    leftovers = [
        f"{paths.markers_of(instant)}/city=x/f.parquet.marker.CREATE",
        paths.heartbeat(instant),
    ]
    other = f"{paths.markers_of('20990101000000000')}/MARKERS0"
    for path in [*leftovers, other]:
        storage.create(path, b"")
    reported_paths = [problem.path for problem in mdt.open(storage).check().problems]
    assert sorted(reported_paths) == sorted(leftovers)
    mdt.open(storage).abort()
    assert storage.size(other) == 0 and all(storage.size(path) is None for path in leftovers)


def test_a_pending_overwrite_of_mdt_is_not_mistaken_for_one_of_another_writer():
    storage = filled(MOR, "record")
    crash_at_the_log(storage, "insert_overwrite", "before")
    assert ours(storage) == BASE_STATE == theirs(storage)
    mdt.open(storage).upsert(rows([1], 9, 9.0))


class BusyStorage(FaultyStorage):
    """A storage on which another mdt writer begins after each listing of the claims."""

    def list_dir(
        self, prefix: str, *, after: str = "", before: str = "", skip: Container[str] = frozenset()
    ) -> Listing:
        listed = super().list_dir(prefix, after=after, before=before, skip=skip)
        if prefix == paths.PENDING_DIR:
            crash_at_the_log(self.inner, "upsert", "before")
        return listed


@pytest.mark.parametrize("name", ["upsert", "compact"])
def test_mdt_writers_that_begin_meanwhile_are_not_mistaken_for_hudi_writers(name):
    storage = filled(MOR, "record")
    crash_at_the_log(storage, "upsert", "before")
    before = mdt.open(storage).snapshot().seq
    WRITES[name](mdt.open(BusyStorage(storage)))
    assert mdt.open(storage).snapshot().seq == before + 1


@pytest.mark.parametrize(
    "name, action", [("insert_overwrite", "replacecommit"), ("compact", "compaction")]
)
def test_the_requested_instant_of_a_service_is_not_empty(name, action):
    storage = filled(MOR, "record")
    table = mdt.open(storage)
    WRITES[name](table)
    assert storage.size(f"{paths.HUDI}/{table.snapshot().last_instant}.{action}.requested")


def test_a_pending_service_of_another_writer_blocks_writers():
    storage = filled(MOR, "record")
    path = layout_of(mdt.open(storage).definition).retracted("20990101000000000", "replacecommit")[
        1
    ]
    storage.create(path, b"a plan")
    with pytest.raises(Unsupported, match="it has pending instants 20990101000000000"):
        WRITES["upsert"](mdt.Table(storage))


def test_the_heartbeat_is_written_before_the_claim_and_the_pending_instants():
    """Without it, Hudi does not roll back an instant that later commits follow."""
    storage = FarStorage(filled(MOR, "record"))
    WRITES["upsert"](mdt.open(storage))
    put_paths = [
        operation.partition(" ")[2]
        for operation in storage.operations
        if operation.startswith("put_")
    ]
    kinds = [path.removeprefix(f"{paths.HUDI}/").partition("/")[0] for path in put_paths]
    assert (
        kinds.index(".heartbeat")
        < kinds.index(".mdt")
        < min(n for n, kind in enumerate(kinds) if kind[0] == "2")
    )


def test_marker_directories_of_other_writers_are_kept(tmp_path):
    t = mdt.create(tmp_path / "t", columns("id int64"), key=["id"])
    theirs = tmp_path / "t" / ".hoodie" / ".temp" / "20200101000000000"
    theirs.mkdir(parents=True)
    t.upsert({"id": [1]})
    assert [folder.name for folder in theirs.parent.iterdir()] == [theirs.name]
