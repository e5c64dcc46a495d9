"""Hudi's metadata table, which commits of mdt maintain: it lists exactly the stored data files."""

from __future__ import annotations

import hashlib
import math
import re
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from unittest.mock import patch

import pytest
from metadata_tables import publish_again
from pausing import Paused, PausedBefore
from worlds import MODES, MOR, as_state, history, make, meanwhile, rows, survivors

import mdt
from mdt.commit import hudi_metadata, metadata_partitions
from mdt.commit.metadata_partitions import PARTITIONS
from mdt.errors import Missing
from mdt.hudi import metadata_table_files, metadata_table_state, properties
from mdt.hudi.file_names import BASE, LOG
from mdt.hudi.metadata_table_files import FILES, GROUPS, LAYOUTS, RECORD_INDEX
from mdt.hudi.read import hfile_entries, metadata_table
from mdt.hudi.read.loading import load_properties, load_timeline
from mdt.hudi.read.metadata_table import load_files_from_metadata
from mdt.metadata import references
from mdt.metadata.history.foreign_writers import read_properties
from mdt.metadata.metadata import Metadata
from mdt.stores.storage import LocalStorage, MemoryStorage
from mdt.testing.faulty import Crash
from mdt.write.operations import RowOperation

FOLDER = ".hoodie/metadata"
ON = {
    "hoodie.metadata.enable": "true",
    "mdt.hudi.column.stats": "false",
    "mdt.services.auto": "false",
}
TIMELINES = {6: f"{FOLDER}/.hoodie", 9: f"{FOLDER}/.hoodie/timeline"}

both_versions = pytest.mark.parametrize("version", [6, 9])


def listed(storage):
    """Return the files that readers list by the metadata table, or None if they do not use it."""
    if PARTITIONS not in (read_properties(storage) or {}):
        return None
    timeline = load_timeline(storage, load_properties(storage))
    listing = load_files_from_metadata(storage, timeline)
    if listing is None:
        return None
    return {
        f"{partition}/{name}": size
        for partition, names in listing.items()
        for name, size in names.items()
    }


def slice_of(storage, version, partition):
    """Return the newest slice of a partition of the metadata table."""
    metadata = mdt.open(storage).metadata
    newest = metadata.newest()
    record = metadata.record(newest.seq)
    keeper = hudi_metadata._Keeper(metadata, record, newest, LAYOUTS[version])
    return keeper._load().files[GROUPS[partition]].slice


def listed_by_hudi(storage, version):
    """Return the files that Hudi lists. It assumes that every metadata table is up to date."""
    if PARTITIONS not in (read_properties(storage) or {}):
        return None
    newest = slice_of(storage, version, FILES)
    listing = metadata_table.load_slice(
        storage, newest.group.path(newest.base_name), newest.log_paths()
    )
    return {
        f"{partition}/{name}": size
        for partition, names in listing.items()
        for name, size in names.items()
    }


def keys_by_hudi(storage, version):
    """Return the keys in the record index as Hudi reads it, None if it does not use it."""
    if "record_index" not in (read_properties(storage) or {}).get(PARTITIONS, ""):
        return None
    newest = slice_of(storage, version, RECORD_INDEX)
    base = newest.group.path(newest.base_name)
    parts = metadata_table.load_entries(storage, base, newest.log_paths(), newest.group.schema)
    return {key.decode() for key in hfile_entries.merge(parts)["key"].to_pylist()}


def stored(storage):
    """Return the data files in storage."""
    return {
        info.path: info.size
        for info in storage.list("")
        if not info.path.startswith(".hoodie")
        and (BASE.fullmatch(name := info.path.rpartition("/")[2]) or LOG.fullmatch(name))
    }


def table_with_option(version, kind=MOR, scope=None, **options):
    storage = MemoryStorage()
    all_options = {**ON, "mdt.table.version": version, **options}
    return storage, make(storage, kind, "record", scope=scope, **all_options)


def completed_instants(storage, version):
    """Return the completed instants of the metadata table, by the time of their request."""
    names = (info.path.rpartition("/")[2] for info in storage.list_dir(TIMELINES[version]))
    matches = (re.fullmatch(r"([0-9]+)(_[0-9]+)?\.[a-z]+", name) for name in names)
    return {match[1]: match[0] for match in matches if match}


@both_versions
@pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_the_listing_equals_the_stored_files_after_every_commit_of_a_random_history(kind, version):
    storage, table = table_with_option(version, kind)
    for _ in history(table, kind, 40, retain=2):
        assert listed(storage) == stored(storage)


@both_versions
def test_the_metadata_table_stays_small_over_many_commits(version):
    storage, table = table_with_option(version)
    sizes = []
    for ts in range(120):
        table.upsert(rows([ts % 4], ts, 1.0))
        if ts % 10 == 9:
            table.compact()
            table.clean(retain_commits=1)
        sizes.append(len(storage.list(FOLDER)))
    assert max(sizes) <= 180, "objects of the metadata table"
    assert max(sizes[60:]) <= max(sizes[:60])
    assert listed(storage) == stored(storage)


@both_versions
@pytest.mark.parametrize("keys", [1, 4], ids=["no log files", "few log files"])
def test_a_record_index_that_seldom_changes_does_not_keep_old_instants(keys, version, monkeypatch):
    monkeypatch.setattr(metadata_table_state, "_SLICE_COMMITS_MAX", 20)
    options = {"hoodie.metadata.record.index.enable": "true"}
    storage, table = table_with_option(version, "COPY_ON_WRITE", scope="table", **options)
    instants = []
    for ts in range(100):
        table.upsert(rows([ts % 4 if ts < keys else 0], ts, 1.0))
        instants.append(len(storage.list(TIMELINES[version])))
    assert max(instants) <= 3 * 70, "objects of the timeline of the metadata table"
    assert listed(storage) == stored(storage)
    assert keys_by_hudi(storage, version) == {f"k{n}" for n in range(keys)}
    assert table.check().ok


@both_versions
def test_the_metadata_table_is_built_and_removed_when_the_option_is_turned_on_and_off(version):
    storage = MemoryStorage()
    options = {**ON, "hoodie.metadata.enable": "false", "mdt.table.version": version}
    table = make(storage, MOR, "record", **options)
    table.upsert(rows(range(6), 1, 1.0))
    assert listed(storage) is None
    table.alter(options={"mdt.hudi.metadata": True})
    table.upsert(rows(range(3), 2, 1.0))
    assert listed(storage) == stored(storage)
    table.alter(options={"mdt.hudi.metadata": False})
    table.upsert(rows(range(3), 3, 1.0))
    assert listed(storage) is None
    assert storage.list(FOLDER) == []


@both_versions
def test_publishing_again_writes_the_same_bytes(version):
    _, table = table_with_option(version)
    for ts in range(13):
        table.upsert(rows([ts % 4], ts, 1.0))
    assert publish_again(table) == 4


@both_versions
@pytest.mark.parametrize("lost", ["instant", "log file", "base file", "property"])
def test_a_metadata_table_with_a_lost_part_is_rebuilt_by_later_commits(lost, version):
    storage, table = table_with_option(version)
    for ts in range(12):
        table.upsert(rows([ts % 4], ts, 1.0))
    names = [info.path for info in storage.list(FOLDER)]
    if lost == "instant":
        name = completed_instants(storage, version)[table.snapshot().last_instant]
        storage.delete(f"{TIMELINES[version]}/{name}")
    elif lost == "log file":
        for name in names:
            if ".log." in name:
                storage.replace(name, b"damaged")
    elif lost == "base file":
        storage.delete_many([name for name in names if name.endswith(".hfile")])
    else:
        metadata_partitions.remove_metadata_table(Metadata(storage))
    rounds = 10 if lost == "log file" else 1  # the next compaction reads them
    for ts in range(20, 20 + rounds):
        mdt.open(storage).upsert(rows([1], ts, 2.0))
    assert listed(storage) == stored(storage)


def test_a_removed_metadata_table_leaves_no_folder(tmp_path):
    """Hudi cannot change the version of a table with such a folder."""
    storage = LocalStorage(tmp_path)
    make(storage, MOR, "record", **ON).upsert(rows([1], 1, 1.0))
    folder = tmp_path / FOLDER
    for other in (folder / ".hoodie/.aux/.bootstrap", folder.with_name("metadata_of_another")):
        other.mkdir(parents=True)
    metadata_partitions.remove_metadata_table(Metadata(storage))
    assert not folder.exists()
    assert folder.with_name("metadata_of_another").exists()


@both_versions
def test_concurrent_writers_leave_no_file_out_of_the_listing(version):
    storage, table = table_with_option(version)

    def write(number):
        own_table = mdt.open(storage)
        for ts in range(12):
            own_table.upsert(rows([10 * number + ts % 8], ts, 1.0))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert table.snapshot().seq >= 48
    assert listed(storage) == stored(storage)
    assert table.check().ok


def test_the_encoding_of_a_log_file_does_not_change():
    changes = {"": {"b.parquet": 7}, "city=x": {"a.parquet": 300, "c.parquet": None}}
    entries = metadata_table_files.records(changes, ["", "city=x"])
    assert entries["key"].to_pylist() == [b".", b"__all_partitions__", b"city=x"]
    data = GROUPS[FILES].log_file(entries, "20240229120000123")
    assert hashlib.sha256(data).hexdigest()[:16] == "b8f38e0342951f0e"


@both_versions
def test_a_metadata_table_that_cannot_be_built_is_removed_from_the_properties(monkeypatch, version):
    storage, table = table_with_option(version)
    table.upsert(rows([1], 1, 1.0))
    storage.delete_many([info.path for info in storage.list(FOLDER)])

    def fail(*arguments):
        raise Missing("a commit record is missing")

    with monkeypatch.context() as patch:
        patch.setattr(references, "hudi_files", fail)
        assert table.upsert(rows([1], 2, 1.0)).warnings == ()
    assert PARTITIONS not in read_properties(storage)
    table.upsert(rows([1], 3, 1.0))
    assert listed(storage) == stored(storage)


@both_versions
def test_check_reports_files_that_the_listing_lacks_and_missing_files_that_it_lists(version):
    storage, table = table_with_option(version)
    table.upsert(rows(range(6), 1, 1.0))
    assert table.check().ok
    [path, _] = sorted(stored(storage))
    partition, _, name = path.rpartition("/")
    changes = {partition: {name: None, name.replace("-0_", "-1_"): 7}}
    instant = table.snapshot().last_instant
    entries = metadata_table_files.records(changes, None)
    [log] = [i.path for i in storage.list(FOLDER) if ".log." in i.path]
    spoiled = storage.read(log) + GROUPS[FILES].log_file(entries, instant)
    storage.replace(log, spoiled)
    texts = [problem.text for problem in table.check().problems]
    assert any("lists None bytes instead of" in text for text in texts)
    assert any("lists a missing file" in text for text in texts)


@pytest.mark.parametrize(
    ("commits", "version", "statistics"),
    [(0, 6, 0), (1, 6, 0), (10, 6, 0), (10, 6, 1), (0, 9, 0), (1, 9, 0), (10, 9, 0), (10, 9, 1)],
)
def test_a_crash_at_any_change_of_a_commit_is_repaired_by_the_next_writer(
    commits, version, statistics
):
    """With 0 commits, the metadata table is built. With 10, it is compacted."""

    def start():
        storage, table = table_with_option(version, **{"mdt.hudi.column.stats": bool(statistics)})
        for ts in range(commits):
            table.upsert(rows([ts % 4], ts, 1.0))
        return storage

    def run(storage):
        mdt.open(storage).upsert(rows([0, 1], 50, 2.0))

    crashes = 0
    for where, survivor in survivors(start, run):
        crashes += 1
        in_listing = listed(survivor)
        if in_listing is not None:
            committed = committed_files(survivor)
            assert committed.items() <= in_listing.items(), f"a file is missing {where}"
        mdt.open(survivor).abort()
        mdt.open(survivor).upsert(rows([2], 60, 3.0))
        assert listed(survivor) == stored(survivor), where
        if statistics:
            assert mdt.open(survivor).check().ok, where
        assert as_state(mdt.open(survivor).scan().to_arrow())["k2"] == (60, 3.0)
    assert crashes > 10 * len(MODES)


def test_a_crash_while_statistics_are_removed_is_repaired_by_the_next_writer():
    def start():
        storage, table = table_with_option(9, **{"mdt.hudi.column.stats": True})
        table.upsert(rows(range(4), 1, 1.0))
        return storage

    def run(storage):
        mdt.open(storage).upsert(rows([0], 50, float("nan")))

    left_out = 0
    for where, survivor in survivors(start, run):
        mdt.open(survivor).abort()
        table = mdt.open(survivor)
        table.upsert(rows([2], 60, 3.0))
        has_nan = math.isnan(as_state(table.scan().to_arrow())["k0"][1])
        left_out += has_nan
        expected = "files" if has_nan else "column_stats,files"
        assert read_properties(survivor)[PARTITIONS] == expected, where
        assert listed(survivor) == stored(survivor), where
        assert table.check().ok, where
    assert left_out > 10


def committed_files(storage):
    """Return the files of commits that are on Hudi's timeline."""
    timeline = load_timeline(storage, load_properties(storage))
    metadata = mdt.open(storage).metadata
    files = {}
    for record in metadata.records(0, metadata.newest().seq):
        if timeline.is_completed(record.instant):
            for file in record.table("files").select(["partition", "name", "size"]).to_pylist():
                files[f"{file['partition']}/{file['name']}"] = file["size"]
    return files


def spoil(storage, version, what):
    """Add an object or property to the metadata table that no writer would write."""
    group, folder = GROUPS[FILES], TIMELINES[version]
    match what:
        case "a later file":
            storage.replace(group.path(group.log_name("00000000000000010", 1, 10**17)), b"")
        case "a later instant":
            storage.replace(f"{folder}/{completed_name(version, '29991231235959999')}", b"")
        case "an instant without a time":
            storage.replace(f"{folder}/{completed_name(version, '9' * 17)}", b"")
        case "a folder above":
            changed = {**read_properties(storage), PARTITIONS: "files,record_index,../.mdt,.hoodie"}
            storage.replace(".hoodie/hoodie.properties", properties.encode(changed))
        case "deep definitions":
            storage.replace(hudi_metadata.DEFINITIONS, b'{"indexDefinitions":' + b"[" * 100_000)


def completed_name(version, time):
    return f"{time}_{time}.deltacommit" if version == 9 else f"{time}.deltacommit"


@both_versions
@pytest.mark.parametrize(
    "what",
    [
        "a later file",
        "a later instant",
        "an instant without a time",
        "a folder above",
        "deep definitions",
    ],
)
def test_commits_continue_despite_objects_and_properties_that_no_commit_wrote(what, version):
    options = {"mdt.hudi.record.index": True}
    storage, table = table_with_option(version, scope="table", **options)
    for ts in range(2):
        table.upsert(rows([ts], ts, 1.0))
    spoil(storage, version, what)
    for ts in range(2, 5):
        assert mdt.open(storage).upsert(rows([ts], ts, 1.0)).warnings == ()
        assert listed(storage) == stored(storage)
    assert read_properties(storage)[PARTITIONS] == "files,record_index"
    assert mdt.open(storage).check().ok


def test_an_upgrade_removes_the_metadata_table_and_the_next_commit_builds_a_new_one():
    storage, table = table_with_option(6)
    for ts in range(12):
        table.upsert(rows([ts % 4], ts, 1.0))
    table.upgrade(9)
    assert listed(storage) is None
    assert not storage.list(FOLDER)
    assert table.check().ok
    table.upsert(rows([1], 20, 1.0))
    assert listed(storage) == stored(storage)
    assert b"hoodie.table.version=9" in storage.read(f"{FOLDER}/.hoodie/hoodie.properties")
    assert table.check().ok


def test_a_commit_that_began_before_many_others_is_listed():
    storage, table = table_with_option(9)
    table.upsert(rows(range(9), 1, 1.0))

    def others():
        for ts in range(2, 42):
            mdt.open(storage).upsert(rows([0], ts, 1.0))

    with meanwhile(RowOperation, others):
        result = table.upsert(rows([8], 50, 2.0))
    begun = table.metadata.record(result.seq).instant
    assert begun < min(table.metadata.record(seq).instant for seq in range(2, result.seq))
    assert begun in completed_instants(storage, 9)
    for ts in range(60, 100):
        assert listed(storage) == stored(storage)
        table.upsert(rows([0], ts, 1.0))
    assert table.check().ok
    assert begun not in completed_instants(storage, 9)


def test_a_commit_with_the_instant_of_a_compaction_rebuilds_the_metadata_table():
    storage, table = table_with_option(9)
    for ts in range(13):
        table.upsert(rows([ts % 4], ts, 1.0))
    metadata, instant = table.metadata, table.snapshot().last_instant
    timeline = TIMELINES[9]
    [body] = [storage.read(i.path) for i in storage.list_dir(timeline) if ".commit" in i.path]
    storage.delete(f"{timeline}/{completed_instants(storage, 9)[instant]}")
    storage.replace(f"{timeline}/{instant}_{instant}.commit", body)
    hudi_metadata.keep(metadata, metadata.record(table.snapshot().seq), metadata.newest())
    assert listed(storage) == stored(storage)
    assert not [i for i in storage.list_dir(timeline) if ".commit" in i.path]


def test_a_log_file_without_an_instant_is_not_merged_and_is_removed():
    storage, table = table_with_option(9)
    for ts in range(13):
        table.upsert(rows([ts % 4], ts, 1.0))
    entries = metadata_table_files.records({"city=x": {"missing.parquet": 7}}, None)
    instant = "20240229120000123"
    group = GROUPS[FILES]
    stray = group.path(group.log_name(instant, 1, 2))
    storage.replace(stray, group.log_file(entries, instant))
    for ts in range(20, 30):
        table.upsert(rows([1], ts, 1.0))
    assert listed(storage) == stored(storage)
    assert storage.size(stray) is None


def test_a_log_file_belongs_to_the_newest_base_file_before_its_completion():
    layout = metadata_table_files.LAYOUTS[9]
    bases = ["00000000000000000", "20240229120000100", "20240229120000200"]
    begun = "20240229120000050"
    assert layout.base_of(begun, "20240229120000099", bases) == bases[0]
    assert layout.base_of(begun, "20240229120000100", bases) == bases[1]
    assert layout.base_of(begun, None, bases) == "", "its slice is not known yet"
    assert layout.base_of(begun, "20240229120000150", bases[2:]) == ""


def pause_at(k, commits, version):
    """Pause a publisher before its k-th operation while other writers commit. Return False if it
    has fewer operations.
    """
    options = {"mdt.hudi.record.index": True}
    storage, table = table_with_option(version, scope="table", **options)
    for ts in range(commits):
        table.upsert(rows([ts % 4], ts, 1.0))
    if commits == 1:
        metadata_partitions.remove_metadata_table(Metadata(storage))
    with patch.object(hudi_metadata, "keep", side_effect=Crash), pytest.raises(Crash):
        mdt.open(storage).upsert(rows([0, 1], 50, 2.0))

    def others():
        mdt.open(storage).abort()
        for ts in range((1, 12)[k % 2]):
            mdt.open(storage).upsert(rows([ts % 5], 100 + ts, 3.0))

    slow = Paused(storage, others)
    metadata = Metadata(slow)
    newest = metadata.newest()
    slow.operations.clear()
    slow.k = k
    hudi_metadata.keep(metadata, metadata.record(newest.seq), newest)
    if len(slow.operations) < k:
        return False
    by_hudi = listed_by_hudi(storage, version)
    is_complete = by_hudi is None or committed_files(storage).items() <= by_hudi.items()
    assert is_complete, slow.operations
    rows_by_key = as_state(mdt.open(storage).scan().to_arrow())
    assert keys_by_hudi(storage, version) in (None, rows_by_key.keys()), slow.operations
    mdt.open(storage).upsert(rows([2], 200, 4.0))
    assert listed(storage) == listed_by_hudi(storage, version) == stored(storage), slow.operations
    assert mdt.open(storage).check().ok
    return True


@both_versions
@pytest.mark.parametrize("commits", [0, 1, 10])
def test_a_publisher_that_pauses_anywhere_damages_no_entries_of_later_publishers(commits, version):
    """It builds the metadata table, adds a commit, or compacts first. Other writers commit
    meanwhile.
    """
    paused = list(takewhile(lambda k: pause_at(k, commits, version), range(1, 200)))
    assert 7 < len(paused) == paused[-1] < 199


@pytest.mark.parametrize("k", [3, 5])
def test_a_publisher_whose_listings_are_of_different_times_loses_no_files(k):
    """Its listings lack files that other writers have merged, and the instants of the merge."""
    assert pause_at(k, 10, 6)


def publish_with_a_pause(storage, at, meanwhile):
    """Publish the newest record, and call ``meanwhile`` before the operation ``at``."""
    slow = PausedBefore(storage, at, meanwhile)
    metadata = Metadata(slow)
    newest = metadata.newest()
    hudi_metadata.keep(metadata, metadata.record(newest.seq), newest)
    assert not slow.waiting, at


def table_with_an_unpublished_commit(version, *, is_made):
    storage, table = table_with_option(version, scope="table", **{"mdt.hudi.record.index": True})
    table.upsert(rows(range(3), 1, 1.0))
    if not is_made:
        metadata_partitions.remove_metadata_table(Metadata(storage))
    with patch.object(hudi_metadata, "keep", side_effect=Crash), pytest.raises(Crash):
        mdt.open(storage).upsert(rows([0, 5], 50, 2.0))
    return storage


@both_versions
@pytest.mark.parametrize(
    ("at", "is_made"),
    [
        ("put_if_absent .hoodie/metadata/record_index/", True),
        ("put_if_absent .hoodie/metadata/.hoodie/", True),
        ("replace .hoodie/metadata/record_index/record-index", False),
        ("replace .hoodie/metadata/.hoodie/", False),
    ],
)
def test_entries_that_a_paused_publisher_adds_to_a_rebuilt_metadata_table_are_removed(
    at, is_made, version
):
    storage = table_with_an_unpublished_commit(version, is_made=is_made)

    def others():
        mdt.open(storage).abort()
        for number, value in enumerate((False, True)):
            mdt.open(storage).alter(options={"mdt.hudi.metadata": value})
            mdt.open(storage).delete(rows([0, 5], 50, 2.0))
            mdt.open(storage).bulk_insert(rows([0, 5], 60 + number, 2.0))

    publish_with_a_pause(storage, at, others)
    mdt.open(storage).upsert(rows([2], 200, 4.0))
    assert listed(storage) == stored(storage)
    assert mdt.open(storage).check().ok


@pytest.mark.parametrize("option", ["mdt.hudi.metadata", "mdt.hudi.record.index"])
@pytest.mark.parametrize(
    "at",
    [
        "replace .hoodie/metadata/files/",
        "replace .hoodie/hoodie.properties",
        "delete .hoodie/hoodie.properties.backup",
    ],
)
def test_a_paused_publisher_does_not_restore_partitions_that_were_turned_off(at, option):
    storage = table_with_an_unpublished_commit(9, is_made=False)

    def others():
        mdt.open(storage).abort()
        mdt.open(storage).alter(options={option: False})

    publish_with_a_pause(storage, at, others)
    partitions = read_properties(storage).get(PARTITIONS, "")
    assert partitions == ("" if option == "mdt.hudi.metadata" else "files")
    assert mdt.open(storage).upsert(rows([2], 200, 4.0)).warnings == ()
    assert mdt.open(storage).check().ok


@both_versions
@pytest.mark.parametrize("then", ["upsert", "abort", "repair"])
def test_the_metadata_table_is_removed_later_if_the_writer_that_turned_it_off_crashed(
    then, version
):
    storage, table = table_with_option(version)
    table.upsert(rows(range(3), 1, 1.0))
    with patch.object(hudi_metadata, "keep", side_effect=Crash), pytest.raises(Crash):
        table.alter(options={"mdt.hudi.metadata": False})
    assert listed(storage) is not None
    if then == "repair":
        mdt.repair(storage)
    else:
        getattr(mdt.open(storage), then)(*[rows([1], 2, 2.0)] * (then == "upsert"))
    assert mdt.open(storage).upsert(rows([2], 3, 3.0)).warnings == ()
    assert listed(storage) is None and not storage.list(FOLDER)
    assert mdt.open(storage).check().ok


@both_versions
@pytest.mark.parametrize("number", [0, 1, -1])
def test_the_next_commit_rebuilds_a_listing_that_lost_a_log_file(number, version):
    storage, table = table_with_option(version)
    for at in range(4):
        table.upsert(rows(range(3), at, 1.0))
    path = slice_of(storage, version, FILES).log_paths()[number]
    storage.delete(path)
    assert listed(storage) != stored(storage)
    table.upsert(rows([1], 9, 1.0))
    assert listed(storage) == stored(storage) == listed_by_hudi(storage, version)
    assert mdt.open(storage).check().ok


PROPERTIES_REPLACED = (
    "delete .hoodie/.hoodie.properties.crc",
    "replace .hoodie/hoodie.properties",
    "delete .hoodie/hoodie.properties.backup",
)


@pytest.mark.parametrize(
    ("at", "is_made"),
    [
        *((at, True) for at in PROPERTIES_REPLACED),
        *((at, False) for at in ("replace .hoodie/metadata/files/", *PROPERTIES_REPLACED)),
    ],
)
def test_a_paused_publisher_does_not_undo_an_upgrade(at, is_made):
    """It builds the metadata table, or removes it because it was turned off."""
    storage = table_with_an_unpublished_commit(6, is_made=is_made)
    if is_made:
        mdt.open(storage).abort()
        with patch.object(hudi_metadata, "keep", side_effect=Crash), pytest.raises(Crash):
            mdt.open(storage).alter(options={"mdt.hudi.metadata": False})

    def others():
        mdt.open(storage).abort()
        mdt.open(storage).upgrade(9)
        mdt.open(storage).upsert(rows([7], 70, 2.0))

    publish_with_a_pause(storage, at, others)
    assert read_properties(storage)[properties.VERSION] == "9"
    assert mdt.open(storage).upsert(rows([2], 200, 4.0)).warnings == ()
    assert mdt.open(storage).check().ok
    assert listed(storage) == (None if is_made else stored(storage))
