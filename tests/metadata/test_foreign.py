"""Another Hudi writer on our table: whatever it completes is noticed at every open, refresh and
write, and never costs much.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from obstore.store import MemoryStore

import mdt
from mdt.errors import Corrupt, Unsupported
from mdt.hudi import properties, timeline
from mdt.hudi.v6 import Version6
from mdt.limits import FOREIGN_CLOCK_BEHIND_SECONDS
from mdt.metadata.files import paths
from mdt.stores.storage import LocalStorage, MemoryStorage, ObjectStorage, Storage
from mdt.table import Table
from mdt.testing.faulty import FaultyStorage

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])
LATER = "20990101000000000"


def rows(*ids: str, v: int = 1) -> pa.Table:
    return pa.table({"id": list(ids), "v": [v] * len(ids)}, schema=SCHEMA)


def _local(folder: Path) -> Storage:
    return LocalStorage(folder / "t", durable=False)


def _memory(folder: Path) -> Storage:
    return MemoryStorage()


def _objects(folder: Path) -> Storage:
    return ObjectStorage("memory:///", MemoryStore())


@pytest.fixture(params=[_local, _memory, _objects], ids=["local", "memory", "objects"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    made: Storage = request.param(tmp_path)
    mdt.create(made, SCHEMA, ["id"]).upsert(rows("a", "b"))
    return made


def changed(storage: Storage, **values: str) -> None:
    """Rewrite the properties as another writer does: under a backup, with other values."""
    old = storage.read(paths.properties())
    storage.create(f"{paths.properties()}.backup", old)
    new = properties.encode(
        {
            **properties.decode(old),
            **{f"hoodie.{k.replace('_', '.')}": v for k, v in values.items()},
        }
    )
    storage.delete(paths.properties())
    storage.create(paths.properties(), new)
    storage.delete(f"{paths.properties()}.backup")


def upgrade(storage: Storage) -> None:
    """Do what Hudi 1.2 does by default: move the timeline, say version 9."""
    for info in storage.list_dir(".hoodie"):
        name = info.path.rpartition("/")[2]
        if Version6().instant_at(info.path) is not None:
            storage.create(f".hoodie/timeline/{name}", storage.read(info.path))
            storage.delete(info.path)
    changed(storage, table_version="9", timeline_layout_version="2")


def instant(name: str, content: bytes = b"{}") -> Callable[[Storage], None]:
    def happen(storage: Storage) -> None:
        storage.create(f".hoodie/{name}", content)

    return happen


def half_upgraded(storage: Storage) -> None:
    """Leave what stands there while Hudi replaces the properties: only a backup, which says another
    version.
    """
    changed(storage, table_version="8")
    storage.create(f"{paths.properties()}.backup", storage.read(paths.properties()))
    storage.delete(paths.properties())


FOREIGN: dict[str, tuple[Callable[[Storage], None], str]] = {
    "an upgrade": (upgrade, "table version 9"),
    "an upgrade under way": (half_upgraded, "table version 8"),
    "properties without version": (
        lambda storage: changed(storage, table_version=""),
        "table version (none)",
    ),
    "a commit": (instant(f"{LATER}.commit"), f"committed here, first at {LATER}"),
    "a delta commit": (instant(f"{LATER}.deltacommit"), f"committed here, first at {LATER}"),
    "a clustering": (instant(f"{LATER}.replacecommit"), f"committed here, first at {LATER}"),
    "a clean": (instant(f"{LATER}.clean"), f"clean at {LATER}"),
    "a clean under way": (instant(f"{LATER}.clean.inflight", b""), f"clean at {LATER}"),
    "a rollback": (instant(f"{LATER}.rollback.requested"), f"rollback at {LATER}"),
    "a restore": (instant(f"{LATER}.restore"), f"restore at {LATER}"),
    "a planned compaction": (instant(f"{LATER}.compaction.requested"), f"compaction at {LATER}"),
    "a planned clustering": (
        instant(f"{LATER}.replacecommit.requested"),
        f"replacecommit at {LATER}",
    ),
    "a change of the schema": (instant(f"{LATER}.schemacommit"), f"schemacommit at {LATER}"),
}
READS: dict[str, Callable[[Table], object]] = {
    "scan": lambda table: table.scan("id = 'a'").to_arrow(),
    "count": lambda table: table.scan().count(),
    "explain": lambda table: table.scan().explain(),
    "history": lambda table: table.history(),
    "files": lambda table: table.files(),
    "check": lambda table: table.check(),
    "indexes": lambda table: table.indexes(),
    "stats": lambda table: table.stats(),
    "warm": lambda table: table.warm(),
    "snapshot": lambda table: table.snapshot(),
}
WRITES: dict[str, Callable[[Table], object]] = {
    "upsert": lambda table: table.upsert(rows("a", v=2)),
    "insert": lambda table: table.insert(rows("z")),
    "delete": lambda table: table.delete(rows("a")),
    "compact": lambda table: table.compact(),
    "create_index": lambda table: table.create_index("bitmap(v)"),
    "build_indexes": lambda table: table.build_indexes(),
    "rollback": lambda table: table.abort(),
}


def refused(act: Callable[[], object], text: str) -> None:
    with pytest.raises(Unsupported) as caught:
        act()
    assert text in caught.value.message, caught.value
    assert "Hudi" in caught.value.message and "mdt.create(new_path" in caught.value.hint


@pytest.mark.parametrize(("happen", "text"), FOREIGN.values(), ids=FOREIGN.keys())
def test_what_another_writer_has_done_is_noticed_by_an_open_table_and_at_every_open(
    storage: Storage, happen: Callable[[Storage], None], text: str
) -> None:
    table = mdt.open(storage)
    assert table.scan().count() == 2
    happen(storage)
    before = {info.path: storage.read(info.path) for info in storage.list("")}
    for act in (*READS.values(), *WRITES.values()):
        refused(lambda act=act: act(table), text)  # type: ignore[misc]
    refused(lambda: mdt.open(storage), text)
    assert "at " in repr(table), "a table that is refused can still be shown"
    assert {info.path: storage.read(info.path) for info in storage.list("")} == before


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda data: data[:500],
        lambda data: data[:-60],
        lambda _: b"<html><body><h1>Log in</h1></body></html>",
    ],
    ids=["empty", "half", "the end is gone", "a page of another server"],
)
def test_what_cannot_be_read_as_properties_is_not_blamed_on_another_writer(
    storage: Storage, damage: Callable[[bytes], bytes]
) -> None:
    table, whole = mdt.open(storage), storage.read(paths.properties())
    storage.replace(paths.properties(), damage(whole))
    for act in (*READS.values(), *WRITES.values(), lambda _: mdt.open(storage)):
        with pytest.raises(
            Corrupt, match=r"cannot be read as properties.*hoodie\.properties"
        ) as caught:
            act(table)
        assert "mdt.repair" in caught.value.hint and "writer" not in str(caught.value)
    storage.replace(paths.properties(), whole)
    table.upsert(rows("a", v=3))
    assert table.scan().count() == 2 and table.check().ok


@pytest.mark.parametrize(
    "name",
    [
        f"{LATER}.savepoint",
        f"{LATER}.savepoint.inflight",
        f"{LATER}.indexing",
        f"{LATER}.commit.requested",
        "note.txt",
    ],
)
def test_what_changes_no_rows_is_not_in_the_way(storage: Storage, name: str) -> None:
    table = mdt.open(storage)
    storage.create(f".hoodie/{name}", b"")
    for one in (table, mdt.open(storage)):
        assert one.upsert(rows("c")).warnings == ()
        assert one.scan().count() == 3


def test_a_commit_of_another_writer_that_is_under_way_stops_writers_and_its_end_stops_readers(
    storage: Storage,
) -> None:
    table = mdt.open(storage)
    begun = timeline.instant_text(timeline.instant_us(table.snapshot().last_instant) + 5_000)
    storage.create(f".hoodie/{begun}.deltacommit.requested", b"")
    storage.create(f".hoodie/{begun}.deltacommit.inflight", b'{"partitionToWriteStats": {}}')
    for one in (table, mdt.open(storage)):
        assert one.scan().count() == 2
        for act in WRITES.values():
            with pytest.raises(Unsupported, match=f"at work here, or has died: it began {begun}"):
                act(one)
    storage.create(f".hoodie/{begun}.deltacommit", b"{}")
    refused(lambda: table.scan(), begun)
    refused(lambda: mdt.open(storage), begun)


def test_a_commit_that_began_long_before_ours_is_noticed_when_it_ends(storage: Storage) -> None:
    """Refreshes list the newest part of the timeline only; what was pending there keeps that part
    open.
    """
    table = mdt.open(storage)
    begun = timeline.instant_text(timeline.instant_us(table.snapshot().last_instant) + 5_000)
    storage.create(f".hoodie/{begun}.deltacommit.requested", b"")
    assert table.scan().count() == 2
    for number in range(3):
        storage.now_us = lambda n=number: 2_000_000_000_000_000 + n * 10**10  # type: ignore[method-assign, misc]
        mdt.open(storage).upsert(rows(f"later{number}"))
        assert table.scan().count() == 3 + number
    late = mdt.open(storage)
    storage.create(f".hoodie/{begun}.deltacommit", b"{}")
    refused(lambda: table.scan(), begun)
    refused(lambda: late.scan(), begun)
    refused(lambda: mdt.open(storage), begun)


def test_a_commit_by_a_clock_that_is_behind_is_noticed(storage: Storage) -> None:
    table = mdt.open(storage)
    table.upsert(rows("c"))
    behind = (
        timeline.instant_us(table.snapshot().last_instant)
        - (FOREIGN_CLOCK_BEHIND_SECONDS - 1) * 1_000_000
    )
    instant(f"{timeline.instant_text(behind)}.deltacommit")(storage)
    refused(lambda: table.scan(), timeline.instant_text(behind))


def test_a_commit_is_noticed_by_who_opens_on_compacted_metadata(storage: Storage) -> None:
    table = mdt.open(storage)
    begun = timeline.instant_text(timeline.instant_us(table.snapshot().last_instant) + 5_000)
    storage.create(f".hoodie/{begun}.deltacommit.requested", b"")
    for number in range(3):
        storage.now_us = lambda n=number: 2_000_000_000_000_000 + n * 10**10  # type: ignore[method-assign, misc]
        table.upsert(rows(f"later{number}"))
    table.metadata.compact()
    late = mdt.open(storage)
    assert late.scan().count() == 5 and late.metadata.watch.since == begun
    storage.create(f".hoodie/{begun}.deltacommit", b"{}")
    refused(lambda: late.scan(), begun)
    refused(lambda: mdt.open(storage), begun)


def test_a_commit_during_a_transaction_of_ours_is_noticed_before_ours_counts(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = mdt.open(storage)
    seq = table.snapshot().seq
    before = {info.path for info in storage.list("")}
    create = type(storage).create

    def create_beside_another(self: Storage, path: str, data: bytes) -> None:
        create(self, path, data)
        if path.endswith(".parquet"):
            self.put_if_absent(f".hoodie/{LATER}.commit", b"{}")

    monkeypatch.setattr(type(storage), "create", create_beside_another)
    refused(lambda: table.insert(rows(*(f"n{i}" for i in range(3)))), LATER)
    monkeypatch.undo()
    assert {info.path for info in storage.list("")} == before | {f".hoodie/{LATER}.commit"}
    assert storage.size(paths.commit(seq + 1)) is None


def test_a_table_can_be_written_again_when_the_signs_are_gone(storage: Storage) -> None:
    table = mdt.open(storage)
    instant(f"{LATER}.commit")(storage)
    refused(lambda: table.scan(), LATER)
    storage.delete(f".hoodie/{LATER}.commit")
    assert table.upsert(rows("c")).seq == 2
    assert table.scan().count() == 3


def test_a_metadata_table_of_hudi_stops_writers_but_no_readers(storage: Storage) -> None:
    table = mdt.open(storage)
    changed(storage, table_metadata_partitions="files")
    assert table.scan().count() == mdt.open(storage).scan().count() == 2
    for act in WRITES.values():
        with pytest.raises(Unsupported, match="metadata table"):
            act(table)


def test_what_our_own_writers_do_is_never_taken_for_anothers(tmp_path: Path) -> None:
    """Two tables on one directory, crashes in between: everything on the timeline is explained by
    the log.
    """
    storage = MemoryStorage()
    mdt.create(storage, SCHEMA, ["id"], options={"mdt.metadata.compact.records": 2})
    one, other = mdt.open(storage), mdt.open(storage)
    for number in range(6):
        (one, other)[number % 2].upsert(rows(f"k{number}"))
        assert one.scan().count() == other.scan().count() == number + 1
        one.compact()
    assert one.metadata.checkpoint_seq > 2
    assert mdt.open(storage).scan().count() == 6


class _Counting(FaultyStorage):
    """Counts what is read and listed."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner, count_reads=True)

    def since(self) -> list[str]:
        """Return the operations since the last call."""
        found, self.operations = self.operations, []
        return found


def test_a_refresh_without_changes_lists_nothing_and_one_after_a_commit_lists_once() -> None:
    inner = MemoryStorage()
    mdt.create(inner, SCHEMA, ["id"]).upsert(rows("a"))
    counting = _Counting(inner)
    table = mdt.open(counting)
    table.snapshot()
    counting.since()
    table.snapshot()
    quiet = [op for op in counting.since() if not op.startswith("stamp")]
    log = ".hoodie/.mdt/log/"
    assert quiet == [f"read {log}{2:020d}", f"size {log}{1:020d}"], (
        "is there a newer record, is its own still there"
    )
    mdt.open(inner).upsert(rows("b"))
    table.snapshot()
    assert [op for op in counting.since() if op.startswith("list_dir")] == ["list_dir .hoodie"]


def test_a_look_at_a_long_timeline_sees_its_end_only() -> None:
    inner = MemoryStorage()
    table = mdt.create(inner, SCHEMA, ["id"], options={"mdt.metadata.compact.records": 10})
    for number in range(30):
        inner.sleep(3600)
        table.upsert(rows(f"k{number}"))
    reader = mdt.open(inner)
    listed: list[int] = []
    list_dir = inner.list_dir

    def counted(
        prefix: str, *, after: str = "", before: str = "", known: frozenset[str] = frozenset()
    ) -> list[object]:
        found = list_dir(prefix, after=after, before=before, known=known)
        listed.append(len(found))
        return list(found)

    inner.list_dir = counted  # type: ignore[method-assign, assignment]
    table.upsert(rows("z"))
    listed.clear()
    assert reader.scan().count() == 31
    assert mdt.open(inner).scan().count() == 31
    assert max(listed) < 40 < 3 * 31, listed


def test_an_instant_that_a_record_has_is_looked_at_once() -> None:
    inner = MemoryStorage()
    table = mdt.create(inner, SCHEMA, ["id"])
    for number in range(20):
        table.upsert(rows(f"k{number}"))
    looked: list[int] = []
    list_dir = inner.list_dir

    def counted(prefix: str, **bounds: object) -> list[object]:
        found = list_dir(prefix, **bounds)  # type: ignore[arg-type]
        looked.append(len(found))
        return list(found)

    inner.list_dir = counted  # type: ignore[method-assign, assignment]
    table.upsert(rows("z"))
    assert max(looked) <= 6, (
        "the properties, what this commit has put there, and what the one before completed last"
    )
    instant(f"{LATER}.commit")(inner)
    refused(lambda: table.scan(), LATER)


def test_a_change_within_the_tick_of_the_clock_is_noticed_on_a_local_disk(tmp_path: Path) -> None:
    storage = _local(tmp_path)
    table = mdt.create(storage, SCHEMA, ["id"])
    for number in range(40):
        table.upsert(rows(f"k{number}"))
        assert table.scan().count() == number + 1
        instant(f"{LATER}.commit")(storage)
        refused(lambda: table.scan(), LATER)
        storage.delete(f".hoodie/{LATER}.commit")


def test_the_stamp_of_a_local_directory_is_trusted_only_when_the_last_change_is_some_time_ago(
    tmp_path: Path,
) -> None:
    storage = _local(tmp_path)
    storage.create("d/a", b"1")
    for change in (
        lambda: storage.create("d/b", b"2"),
        lambda: storage.delete("d/b"),
        lambda: storage.replace("d/a", b"3"),
    ):
        os.utime(tmp_path / "t" / "d", ns=(10**18, 10**18 + 1))
        assert storage.stamp("d") is not None
        change()
        assert storage.stamp("d") is None
    now = time.time_ns()
    os.utime(tmp_path / "t" / "d", ns=(now, (now // 10**9 - 1) * 10**9))
    assert storage.stamp("d") is None, (
        "a file system that counts whole seconds may hide a change for two"
    )
    shutil.rmtree(tmp_path / "t" / "d")
    assert storage.stamp("d") == storage.stamp("d/a") == "absent"
