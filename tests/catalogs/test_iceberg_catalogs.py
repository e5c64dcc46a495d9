"""Iceberg catalogs (SQL, REST and Hive, through pyiceberg) point to the newest commit."""

from __future__ import annotations

import builtins
import json
import shutil
from contextlib import suppress
from unittest.mock import patch

import pyarrow as pa
import pytest
from command_line import error_of, shown
from delta_tables import converted
from hive_server import metastore
from reader import bag
from rest_catalog import rest_catalog
from shared_tables import batch, other_table
from worlds import COW, MOR, SCHEMA, history, make, rows, survivors

import mdt
from mdt.catalogs import pointers
from mdt.formats.iceberg import metadata as versions
from mdt.formats.iceberg.metadata import version_path
from mdt.stores.storage import LocalStorage
from mdt.testing.faulty import Crash

pytest.importorskip("pyiceberg.catalog")
import pyiceberg.catalog
from hive_metastore import ttypes
from hive_metastore.ThriftHiveMetastore import Client
from pyiceberg.catalog import MetastoreCatalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.utils.config import Config

NAME = "raw.trips"
OPTIONS = {
    "mdt.formats": "hudi,iceberg",
    "mdt.services.auto": "false",
    "mdt.formats.retain.hours": 0,
    "mdt.iceberg.table": f"lake.{NAME}",
}


@pytest.fixture(params=["sql", "rest"])
def lake(request, tmp_path):
    """A catalog in the configuration of pyiceberg, under the name lake."""
    if request.param == "sql":
        yield from _catalog_as_lake(_sql(tmp_path / "catalog.db"))
        return
    with rest_catalog() as server:
        yield from _catalog_as_lake(load_catalog("lake", type="rest", uri=server.url))
        assert {status for status, _ in server.refusals} <= {404, 409}, server.refusals


def _sql(path):
    pytest.importorskip("sqlalchemy")
    return load_catalog("lake", type="sql", uri=f"sqlite:///{path}")


def _catalog_as_lake(catalog):
    catalog.create_namespace("raw")
    pointers._catalogs().drop("lake")
    pointers._catalogs().put("lake", catalog)
    yield catalog
    catalog.close()


def registered_table(catalog, path, kind=MOR, **options):
    """Return a new table that is registered in the catalog."""
    table = make(LocalStorage(path, durable=False), kind, "record", **{**OPTIONS, **options})
    mdt.register(table, catalog, NAME)
    return table


def open_with_catalog(storage):
    return mdt.open(storage, {"mdt.iceberg.table": f"lake.{NAME}"})


def rows_in_catalog(catalog, schema=SCHEMA, seq=None):
    """Return the rows that readers of the catalog see."""
    arrow = catalog.load_table(NAME).scan(snapshot_id=seq).to_arrow()
    assert arrow.column_names == schema.names
    return pa.table([converted(arrow[field.name], field.type) for field in schema], schema=schema)


def assert_catalog_is_current(catalog, table):
    assert bag(rows_in_catalog(catalog, table.schema)) == bag(table.scan().to_arrow())
    seq = table.snapshot().seq
    status = {"format": f"iceberg in lake.{NAME}", "seq": seq, "behind": 0}
    assert open_with_catalog(table.storage).formats().to_pylist()[-1] == status


@pytest.mark.parametrize("kind", [MOR, COW])
def test_readers_of_the_catalog_see_every_commit_of_a_history(lake, tmp_path, kind):
    table = registered_table(lake, tmp_path / "t", kind)
    for _ in history(table, kind, 12, retain=3):
        assert_catalog_is_current(lake, table)
    table.alter(add={"note": pa.string()})
    assert_catalog_is_current(lake, table)
    more = rows([1, 9], 50, 2.0).append_column("note", pa.array(["a", "b"]))
    table.upsert(more)
    table.alter(drop=["note"])
    table.clean(retain_commits=4)
    assert_catalog_is_current(lake, table)
    for seq in range(table.snapshot().retention.horizon, table.snapshot().seq + 1):
        old = table.scan(as_of=seq)
        assert bag(rows_in_catalog(lake, old.schema, seq)) == bag(old.to_arrow())
    oldest = min(snapshot.snapshot_id for snapshot in lake.load_table(NAME).snapshots())
    assert oldest == table.snapshot().retention.horizon
    assert table.check().ok


def test_the_catalog_has_the_newest_snapshots_up_to_a_limit(lake, tmp_path, monkeypatch):
    monkeypatch.setattr(versions, "SNAPSHOTS_MAX", 3)
    table = registered_table(lake, tmp_path / "t")
    for ts in range(1, 6):
        table.upsert(rows([ts], ts, 1.0))
        assert_catalog_is_current(lake, table)
    behind = mdt.open(table.storage)
    for ts in range(6, 11):  # the newest version lacks all snapshots of the catalog
        behind.upsert(rows([ts], ts, 1.0))
    mdt.register(behind, lake, NAME)
    assert_catalog_is_current(lake, table)
    assert [snapshot.snapshot_id for snapshot in lake.load_table(NAME).snapshots()] == [8, 9, 10]
    assert bag(rows_in_catalog(lake, SCHEMA, 8)) == bag(table.scan(as_of=8).to_arrow())
    assert table.scan(as_of=2).count() == 2, "older states are readable, though not in the catalog"
    assert table.check().ok


def test_readers_of_the_catalog_see_columns_that_another_hudi_writer_adds(lake, tmp_path):
    storage = LocalStorage(tmp_path / "t", durable=False)
    theirs = other_table(storage, COW, 9)
    theirs.upsert(batch([1, 2, 3], 1))
    mdt.register(mdt.adopt(storage, formats=["hudi", "iceberg"]), lake, NAME)
    theirs.alter(add={"extra": pa.int64()})
    theirs.upsert(batch([1], 2).append_column("extra", pa.array([5])))
    ours = open_with_catalog(storage)
    ours.refresh()
    ours.upsert(batch([4], 3, "Rome").append_column("extra", pa.array([6])))
    assert_catalog_is_current(lake, ours)


@pytest.mark.nightly
def test_a_hive_metastore_points_to_the_newest_commit(tmp_path, monkeypatch):
    # the metastore of PySpark's JARs does not support the locks that pyiceberg takes
    held = ttypes.LockResponse(lockid=1, state=ttypes.LockState.ACQUIRED)
    monkeypatch.setattr(Client, "lock", lambda *_: held)
    monkeypatch.setattr(Client, "unlock", lambda *_: None)
    with metastore(tmp_path) as address:
        catalog = load_catalog("lake", type="hive", uri=address)
        for _ in _catalog_as_lake(catalog):
            table = registered_table(catalog, tmp_path / "t")
            for ts in range(1, 4):
                table.upsert(rows([ts, 5], ts, 1.0))
                assert_catalog_is_current(catalog, table)
            table.alter(add={"note": pa.string()})
            assert_catalog_is_current(catalog, table)
            assert table.check().ok


def test_a_crash_at_any_change_leaves_the_catalog_at_this_commit_or_the_previous_one(
    lake, tmp_path
):
    folders = iter(range(10**6))

    def start():
        with suppress(NoSuchTableError):
            lake.drop_table(NAME)
        table = registered_table(lake, tmp_path / str(next(folders)))
        table.upsert(rows(range(4), 1, 1.0))
        return table.storage

    def run(storage):
        open_with_catalog(storage).upsert(rows([1, 2], 5, 2.0))

    crashes = 0
    for where, survivor in survivors(start, run):
        crashes += 1
        behind = lake.load_table(NAME).metadata.current_snapshot_id
        assert behind in (1, 2), where
        assert bag(rows_in_catalog(lake)) == bag(
            mdt.open(survivor).scan(as_of=behind).to_arrow()
        ), where
        table = open_with_catalog(survivor)
        table.abort()
        table.upsert(rows([7], 6, 1.0))
        assert_catalog_is_current(lake, table)
    assert crashes > 20


def test_the_next_write_updates_the_pointer_after_a_crash_before_or_after_it_moved(lake, tmp_path):
    table = registered_table(lake, tmp_path / "t")
    for when in ("before", "after"):

        def crash(*arguments, when=when, follow=pointers.follow):
            if when == "after":
                follow(*arguments)
            raise Crash

        with patch.object(pointers, "follow", crash), pytest.raises(Crash):
            open_with_catalog(table.storage).upsert(rows([1, 2], 5, 2.0))
        late = open_with_catalog(table.storage)
        assert late.check().ok, "the next writer is expected to update the pointer"
        late.upsert(rows([7], 6, 1.0))
        assert_catalog_is_current(lake, late)


def test_a_paused_publisher_does_not_move_the_pointer_back(lake, tmp_path):
    table = registered_table(lake, tmp_path / "t")
    follow, waiting = pointers.follow, [True]

    def pause(metadata, newest):
        if waiting:
            waiting.pop()
            for ts in range(3):
                open_with_catalog(table.storage).upsert(rows([ts], 10 + ts, 3.0))
        return follow(metadata, newest)

    with patch.object(pointers, "follow", pause):
        assert open_with_catalog(table.storage).upsert(rows([1, 2], 5, 2.0)).warnings == ()
    assert_catalog_is_current(lake, mdt.open(table.storage))


def test_the_later_commit_of_two_concurrent_publishers_remains_in_the_catalog(lake, tmp_path):
    table = registered_table(lake, tmp_path / "t")
    kind, waiting = type(lake), [True]
    commit = kind.commit_table

    def second_first(self, *arguments):
        if waiting:
            waiting.pop()
            open_with_catalog(table.storage).upsert(rows([3], 10, 3.0))
        return commit(self, *arguments)

    with patch.object(kind, "commit_table", second_first):
        open_with_catalog(table.storage).upsert(rows([1, 2], 5, 2.0))
    assert_catalog_is_current(lake, mdt.open(table.storage))


def test_an_unreachable_catalog_only_delays_its_readers(lake, tmp_path):
    table = registered_table(lake, tmp_path / "t")
    table.upsert(rows(range(4), 1, 1.0))
    late, kind = open_with_catalog(table.storage), type(lake)
    with patch.object(kind, "load_table", side_effect=OSError("no route")):
        [warning] = late.upsert(rows([1], 2, 1.0)).warnings
        assert "not in the catalog until the next write" in warning and "no route" in warning
        assert late.upsert(rows([2], 3, 1.0)).warnings == (), "it warns once"
        status = {"format": f"iceberg in lake.{NAME}", "seq": None, "behind": None}
        assert late.formats().to_pylist()[-1] == status
        [problem] = late.check().problems
        assert "no route" in problem.text
        assert not late.repair().ok
    assert late.formats().to_pylist()[-1]["behind"] == 2
    [problem] = late.check().problems
    assert (problem.path, problem.kind) == (f"lake.{NAME}", "other format")
    assert "2 commits behind" in problem.text
    assert late.repair().ok and late.check().ok
    assert_catalog_is_current(lake, late)


def test_the_next_commit_or_registration_catches_up(lake, tmp_path):
    table = registered_table(lake, tmp_path / "t")
    for ts in range(1, 5):
        mdt.open(table.storage).upsert(rows([ts], ts, 1.0))
    assert open_with_catalog(table.storage).formats().to_pylist()[-1]["behind"] == 4
    mdt.register(mdt.open(table.storage), lake, NAME)
    assert_catalog_is_current(lake, table)
    mdt.open(table.storage).upsert(rows([5], 9, 1.0))
    mdt.open(table.storage).alter(add={"note": pa.string()})
    more = rows([1], 10, 2.0).append_column("note", pa.array(["a"]))
    open_with_catalog(table.storage).upsert(more)
    assert_catalog_is_current(lake, mdt.open(table.storage))
    for seq in range(1, 8):
        old = table.scan(as_of=seq)
        assert bag(rows_in_catalog(lake, old.schema, seq)) == bag(old.to_arrow())


def test_a_catalog_that_points_to_deleted_metadata_is_repaired_or_registered_again(lake, tmp_path):
    table = mdt.open(registered_table(lake, tmp_path / "t").storage)
    for ts in range(1, 4):
        table.upsert(rows([ts], ts, 1.0))
    table.clean(retain_commits=1)
    warnings = open_with_catalog(table.storage).upsert(rows([2], 9, 1.0)).warnings
    if isinstance(lake, MetastoreCatalog):
        assert "register it" in warnings[0]
        lake.drop_table(NAME)
        mdt.register(table, lake, NAME)
    assert_catalog_is_current(lake, open_with_catalog(table.storage))


@pytest.mark.parametrize("later", [0, 2, 3])
def test_a_commit_that_a_restored_backup_has_undone_is_reported(lake, tmp_path, later):
    table = registered_table(lake, tmp_path / "t")
    table.upsert(rows([1], 1, 1.0))
    shutil.copytree(tmp_path / "t", tmp_path / "backup")
    for ts in (2, 3):
        table.upsert(rows([ts], ts, 1.0))
    shutil.rmtree(tmp_path / "t")
    shutil.move(tmp_path / "backup", tmp_path / "t")
    for ts in range(later):  # without the catalog
        mdt.open(table.path).upsert(rows([5], 10 + ts, 2.0))
    late = open_with_catalog(LocalStorage(tmp_path / "t", durable=False))
    is_location = isinstance(lake, MetastoreCatalog)
    if is_location and later:  # the path names the version of the new history
        late.upsert(rows([6], 20, 3.0))
        assert_catalog_is_current(lake, late)
        return
    assert late.formats().to_pylist()[-1]["seq"] is None
    [problem] = late.check().problems
    text = "register it" if is_location else "is at a commit 3 that a restored backup"
    assert text in problem.text
    if is_location:
        [warning] = late.upsert(rows([6], 20, 3.0)).warnings
        assert text in warning
    else:
        with pytest.raises(mdt.Unsupported, match=text):
            late.upsert(rows([6], 20, 3.0))
    lake.drop_table(NAME)
    mdt.register(mdt.open(late.path), lake, NAME)
    late.upsert(rows([7], 30, 3.0))
    assert_catalog_is_current(lake, late)
    assert late.check().ok


def test_a_missing_manifest_list_does_not_stop_writes_and_is_repaired(lake, tmp_path):
    table = registered_table(lake, tmp_path / "t")
    table.upsert(rows([1], 1, 1.0))
    [path] = [info.path for info in table.storage.list("metadata") if "snap-1-" in info.path]
    table.storage.delete(path)
    late = open_with_catalog(table.storage)
    assert "t.repair() makes them" in late.upsert(rows([2], 2, 1.0)).warnings[0]
    assert late.repair().ok
    assert_catalog_is_current(lake, late)


def test_a_dropped_table_is_reported_and_can_be_registered_again(lake, tmp_path):
    table = registered_table(lake, tmp_path / "t")
    table.upsert(rows([1], 1, 1.0))
    lake.drop_table(NAME)
    late = open_with_catalog(table.storage)
    [warning] = late.upsert(rows([2], 2, 1.0)).warnings
    assert f"the catalog lake has no table {NAME}" in warning and "mdt.register" in warning
    with pytest.raises(NoSuchTableError):
        lake.load_table(NAME)
    [problem] = late.check().problems
    assert f"has no table {NAME}" in problem.text
    mdt.register(late, lake, NAME)
    assert late.upsert(rows([3], 3, 1.0)).warnings == ()
    assert_catalog_is_current(lake, late)
    assert late.check().ok


@pytest.mark.parametrize("data", [b"\xff", b"{}", b"[" * 10_000])
def test_a_damaged_version_cannot_be_registered_until_it_is_restored(lake, tmp_path, data):
    table = registered_table(lake, tmp_path / "t")
    mdt.open(table.storage).upsert(rows([1], 1, 1.0))
    seq, path = table.snapshot().seq, version_path(table.snapshot().seq)
    content = table.storage.read(path)
    table.storage.replace(path, data)
    with pytest.raises(mdt.Corrupt, match="Iceberg cannot be read"):
        mdt.register(table, lake, NAME)
    table.storage.replace(path, content)
    mdt.register(table, lake, NAME)
    assert open_with_catalog(table.storage).formats().to_pylist()[-1]["seq"] == seq


def test_another_table_under_the_name_is_refused(lake, tmp_path):
    registered_table(lake, tmp_path / "one")
    two = make(LocalStorage(tmp_path / "two", durable=False), MOR, "record", **OPTIONS)
    with pytest.raises(mdt.Invalid, match=r"raw.trips is another table .*/one"):
        mdt.register(two, lake, NAME)
    with pytest.raises(mdt.Invalid, match=r"raw.trips is another table .*/one"):
        two.upsert(rows([1], 1, 1.0))
    assert lake.load_table(NAME).metadata.location == str(tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    copy = open_with_catalog(LocalStorage(tmp_path / "copy", durable=False))
    with pytest.raises(mdt.Invalid, match=r"raw.trips is another table .*/one"):
        copy.upsert(rows([1], 1, 1.0))


def foreign_commit(catalog, table):
    """Commit to the catalog as another program would, without the log of the table."""
    seq = table.snapshot().seq
    metadata = json.loads(table.storage.read(f"metadata/v{seq}.metadata.json"))
    [snapshot] = [
        old_snapshot for old_snapshot in metadata["snapshots"] if old_snapshot["snapshot-id"] == seq
    ]
    new_snapshot = {
        **snapshot,
        "snapshot-id": 987654321,
        "parent-snapshot-id": seq,
        "sequence-number": seq + 1,
        "first-row-id": metadata["next-row-id"],
        "added-rows": 0,
        "manifest-list": f"{metadata['location']}/metadata/snap-987654321-0-uuid.avro",
        "summary": {"operation": "append", "engine-name": "others-1.0"},
    }
    if not isinstance(catalog, MetastoreCatalog):
        ref = {"ref-name": "main", "type": "branch", "snapshot-id": 987654321}
        updates = (
            AddSnapshotUpdate(snapshot=Snapshot(**new_snapshot)),
            SetSnapshotRefUpdate(**ref),
        )
        catalog.commit_table(catalog.load_table(NAME), (), updates)
        return
    metadata["snapshots"].append(new_snapshot)
    metadata["current-snapshot-id"] = metadata["refs"]["main"]["snapshot-id"] = 987654321
    path = f"{metadata['location']}/metadata/00009-uuid.metadata.json"
    with open(path, "w") as file:
        json.dump(metadata, file)
    from sqlalchemy import text

    with catalog.engine.begin() as connection:
        connection.execute(text("update iceberg_tables set metadata_location = :p"), {"p": path})


def test_a_commit_of_another_program_is_refused_with_its_name_and_can_be_repaired(lake, tmp_path):
    table = registered_table(lake, tmp_path / "t")
    table.upsert(rows([1], 1, 1.0))
    foreign_commit(lake, table)
    late = open_with_catalog(table.storage)
    with pytest.raises(
        mdt.Unsupported, match=r"another program \(others-1.0\) has committed to lake"
    ):
        late.upsert(rows([2], 2, 1.0))
    assert late.snapshot().seq == 1
    [problem] = late.check().problems
    assert "others-1.0" in problem.text
    with pytest.raises(mdt.Unsupported, match="others-1.0"):
        mdt.register(late, lake, NAME)
    if isinstance(lake, MetastoreCatalog):
        assert late.repair().ok
    else:
        assert not late.repair().ok, "the history of a server cannot be replaced"
        lake.drop_table(NAME)
        mdt.register(late, lake, NAME)
    late.upsert(rows([2], 2, 1.0))
    assert_catalog_is_current(lake, late)
    assert late.check().ok


def test_a_foreign_commit_during_a_write_is_a_warning_and_refused_by_the_next_write(lake, tmp_path):
    table = registered_table(lake, tmp_path / "t")
    table.upsert(rows([1], 1, 1.0))
    late, follow = open_with_catalog(table.storage), pointers.follow

    def commit_and_follow(*arguments):
        foreign_commit(lake, table)
        return follow(*arguments)

    with patch.object(pointers, "follow", commit_and_follow):
        [warning] = late.upsert(rows([2], 2, 1.0)).warnings
    assert "others-1.0" in warning
    with pytest.raises(mdt.Unsupported, match="others-1.0"):
        late.upsert(rows([3], 3, 1.0))


def test_pyiceberg_itself_cannot_append(lake, tmp_path):
    table = registered_table(lake, tmp_path / "t")
    table.upsert(rows([1], 1, 1.0))
    with pytest.raises((NotImplementedError, ValueError)):
        lake.load_table(NAME).append(rows_in_catalog(lake))
    assert_catalog_is_current(lake, table)


def test_a_table_does_not_store_the_name_of_its_catalog(lake, tmp_path):
    table = registered_table(lake, tmp_path / "t")
    table.upsert(rows([1], 1, 1.0))
    assert "mdt.iceberg.table" not in mdt.open(table.storage).definition.options
    stored = [info.path for info in table.storage.list("") if "raw.trips" in info.path]
    assert not stored
    assert all(b"raw.trips" not in table.storage.read(info.path) for info in table.storage.list(""))


def test_the_configuration_of_pyiceberg_names_the_catalog(tmp_path, monkeypatch):
    monkeypatch.setenv("PYICEBERG_CATALOG__SEA__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__SEA__URI", f"sqlite:///{tmp_path}/sea.db")
    pytest.importorskip("sqlalchemy")
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())
    table = make(LocalStorage(tmp_path / "t"), MOR, "record", **{"mdt.formats": "hudi,iceberg"})
    load_catalog("sea").create_namespace("raw")
    error = error_of("register", table.path, "raw.t")
    assert "--iceberg" in error
    assert "registered" in shown("register", table.path, "raw.t", "--iceberg", "sea")
    late = mdt.open(table.path, {"mdt.iceberg.table": "sea.raw.t"})
    late.upsert(rows([1], 1, 1.0))
    assert late.formats().to_pylist()[-1] == {
        "format": "iceberg in sea.raw.t",
        "seq": 1,
        "behind": 0,
    }
    wrong = mdt.open(table.path, {"mdt.iceberg.table": "ocean.raw.t"})
    with pytest.raises(mdt.Invalid, match="cannot use the catalog 'ocean'"):
        wrong.upsert(rows([1], 2, 1.0))
    for name in ("sea", "sea.t", "sea..t", ".a.b"):
        with pytest.raises(mdt.Invalid, match=r"catalog\.namespace\.table"):
            mdt.open(table.path, {"mdt.iceberg.table": name})


def test_tables_without_iceberg_and_missing_namespaces_are_refused(lake, tmp_path):
    plain = make(LocalStorage(tmp_path / "plain"), MOR, "record")
    with pytest.raises(mdt.Invalid, match="tables with the format iceberg only"):
        mdt.register(plain, lake, NAME)
    table = registered_table(lake, tmp_path / "t")
    with pytest.raises(mdt.Invalid, match="no namespace 'nowhere'"):
        mdt.register(table, lake, "nowhere.trips")
    with pytest.raises(mdt.Invalid, match="location is not for Iceberg"):
        mdt.register(table, lake, NAME, location="s3://x")


def test_without_pyiceberg_the_extra_is_named(lake, tmp_path, monkeypatch):
    table = registered_table(lake, tmp_path / "t")
    original_import = builtins.__import__

    def refuse_import(name, *rest):
        if name.partition(".")[0] == "pyiceberg":
            raise ImportError(name)
        return original_import(name, *rest)

    pointers._catalogs().drop("lake")
    monkeypatch.setattr(builtins, "__import__", refuse_import)
    with pytest.raises(mdt.Unsupported, match=r"pyspark-mdt\[iceberg\]"):
        table.upsert(rows([1], 1, 1.0))
