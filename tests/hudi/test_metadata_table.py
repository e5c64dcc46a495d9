"""Listings from Hudi's metadata table are those of the storage, and damage never hides files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from foreign_tables import ForeignTable, block, rollback, time
from hfile_writer import hfile
from hypothesis import given
from hypothesis import strategies as st
from metadata_tables import (
    FILE_ID,
    FOLDER,
    SCHEMA,
    MetadataTable,
    delete_block,
    listing,
    records_block,
    records_file,
)
from test_hfile import TABLES
from test_read_hudi_tables import unpacked

from mdt.errors import Corrupt, MdtError, Missing
from mdt.hudi import log_file
from mdt.hudi.read import loading
from mdt.hudi.read.file_slices import group_files
from mdt.hudi.read.instants import Timeline, parse_name, timeline_of
from mdt.hudi.read.metadata_table import FILES, load_files_from_metadata
from mdt.hudi.read.table_state import load_state
from mdt.stores.storage import LocalStorage, MemoryStorage

VERSIONS = pytest.mark.parametrize("version", [6, 8, 9])


def data_timeline(*numbers: int, more: Iterable[str] = ()) -> Timeline:
    """Return a timeline with completed writes and ``more`` instants."""
    names = [f"{time(number)}.deltacommit" for number in numbers]
    files = [parse_name(name, 1) for name in (*names, *more)]
    return timeline_of(file for file in files if file is not None)


def metadata_table(version: int = 9) -> MetadataTable:
    """Return a metadata table with the partition p, which has the files a and b."""
    table = MetadataTable(MemoryStorage(), version)
    table.base(1, records_file(listing({"p": {"a": 1, "b": 2}})))
    return table


def files(table: MetadataTable, timeline: Timeline | None = None):
    """Return the files as of a timeline, by default of all commits of the metadata table."""
    return load_files_from_metadata(table.storage, timeline or data_timeline(*table.committed))


@pytest.mark.skipif(not TABLES, reason="no fixtures")
@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_the_files_of_hudi_are_those_of_the_storage(path: Path, tmp_path):
    storage = LocalStorage(str(unpacked(path, tmp_path)))
    table = loading.load_properties(storage)
    assert FILES in table.metadata_partitions
    timeline = loading.load_timeline(storage, table)
    from_metadata = load_files_from_metadata(storage, timeline)
    assert from_metadata is not None
    listed = loading.load_files(storage)
    assert from_metadata.keys() == listed.keys()
    data_files = {}
    for partition, names in listed.items():
        names = {name: size for name, size in names.items() if not name.endswith(".crc")}
        data_files[partition] = {
            name: size for name, size in names.items() if group_files({"": {name: size}}, table)
        }
    assert from_metadata == data_files
    instants = [write.time for write in timeline.writes()]
    for at in ["", *instants]:
        state = load_state(storage, table, at=at)
        assert state == load_state(storage, table, files=listed, at=at)


@VERSIONS
def test_later_records_add_and_remove_names(version):
    table = metadata_table(version)
    table.log(2, records_block(2, {"p": {"c": 3, "a": None}, "__all_partitions__": {"q": 0}}))
    table.log(3, records_block(3, {"p": {"b": 9, "c": 1}, "q": {"d": 4}, "r": {"e": 5}}))
    assert files(table) == {"p": {"b": 9, "c": 3}, "q": {"d": 4}}


def test_files_with_the_size_1_have_that_of_the_storage():
    """Hudi 0.15 gives the log files of a write that it rolls back this size."""
    table = metadata_table(6)
    table.storage.create("p/a", b"#HUDI#")
    assert files(table) == {"p": {"a": 6, "b": 2}}


@VERSIONS
def test_names_and_partitions_that_were_removed_may_come_back(version):
    table = metadata_table(version)
    gone = {"p": {"a": None, "x": None}, "__all_partitions__": {"p": None}}
    table.log(2, records_block(2, gone))
    assert files(table) == {}
    table.log(3, records_block(3, {"p": {"a": 7, "x": 8}, "__all_partitions__": {"p": 0}}))
    assert files(table) == {"p": {"a": 7, "b": 2, "x": 8}}


def test_deletes_remove_records():
    table = metadata_table()
    table.log(2, delete_block(2, "p", "unknown"))
    assert files(table) == {"p": {}}
    table.log(3, records_block(3, {"p": {"c": 3}}), records_block(3, {"p": None}))
    assert files(table) == {"p": {}}


def test_a_table_without_partitions_has_the_files_of_its_folder():
    table = MetadataTable(MemoryStorage())
    table.base(1, records_file(listing({"": {"a": 1}})))
    assert files(table) == {"": {"a": 1}}


def test_a_new_table_has_no_partitions():
    table = MetadataTable(MemoryStorage())
    table.base(1, records_file(listing({})))
    assert files(table) == {}


@VERSIONS
@pytest.mark.parametrize(
    "state", ["deltacommit.inflight", "deltacommit.requested", "clean.inflight"]
)
def test_records_of_an_instant_that_is_pending_in_the_data_table_do_not_count(version, state):
    table = metadata_table(version)
    table.log(2, records_block(2, {"p": {"c": 3, "a": None}}))
    pending = f"{time(2)}.{state}"
    assert files(table, data_timeline(1, more=[pending])) == {"p": {"a": 1, "b": 2}}
    completed = f"{time(2)}.{state.partition('.')[0]}"
    for more in ([], [pending, completed]):
        assert files(table, data_timeline(1, more=more)) == {"p": {"b": 2, "c": 3}}


@VERSIONS
def test_records_of_an_instant_that_is_pending_in_the_metadata_table_do_not_count(version):
    table = metadata_table(version)
    if version < 8:
        table.create(f".hoodie/{time(2)}.deltacommit.inflight", b"")
    else:
        table.create(f".hoodie/timeline/{time(2)}.deltacommit.inflight", b"")
    table.log(2, records_block(2, {"p": {"c": 3}}), commit=False)
    assert files(table) == {"p": {"a": 1, "b": 2}}


@VERSIONS
def test_records_that_were_rolled_back_do_not_count(version):
    table = metadata_table(version)
    table.log(2, records_block(2, {"p": {"a": None}}))
    table.log(3, rollback(3, 2), records_block(3, {"p": {"c": 3}}))
    assert files(table) == {"p": {"a": 1, "b": 2, "c": 3}}


def test_a_compaction_may_follow_the_initialization_of_a_partition():
    """Its instant has three more digits than that of the initialization."""
    table = metadata_table(6)
    table.log(2, records_block(2, listing({"p": {"c": 3}})))
    instant = f"{time(2)}010001"
    data = records_file(listing({"p": {"a": 1, "d": 4}}))
    table.create(f"files/{FILE_ID}_1-2-3_{instant}.hfile", data)
    table.create(f".hoodie/{instant}.commit", b"{}")
    assert files(table) == {"p": {"a": 1, "d": 4}}


@VERSIONS
def test_a_compaction_begins_a_new_slice(version):
    table = metadata_table(version)
    table.log(2, records_block(2, {"p": {"a": None}}))
    table.base(3, records_file(listing({"p": {"b": 2, "c": 3}})), action="commit")
    table.log(4, records_block(4, {"p": {"d": 4}}))
    assert files(table, data_timeline(1, 2, 4)) == {"p": {"b": 2, "c": 3, "d": 4}}


def foreign_table(version: int) -> tuple[ForeignTable, MetadataTable]:
    """Return a table with two commits, and its metadata table."""
    table = ForeignTable(
        {"id": "string", "n": "int"}, {"hoodie.table.metadata.partitions": "files"}, version=version
    )
    table.base(1, [{"id": "a", "n": 1}, {"id": "b", "n": 1}])
    table.log(2, table.upsert(2, [{"id": "a", "n": 2}]))
    return table, MetadataTable(table.storage, version)


@VERSIONS
def test_rows_are_read_through_the_metadata_table(version):
    table, metadata = foreign_table(version)
    [names] = loading.load_files(table.storage).values()
    base = {name: size for name, size in names.items() if name.endswith(".parquet")}
    metadata.base(1, records_file(listing({"": base})))
    metadata.log(2, records_block(2, {"p": {}}))
    assert table.live("id", "n") == [("a", 1), ("b", 1)]
    metadata.log(3, records_block(3, {".": names}))
    assert table.live("id", "n") == [("a", 2), ("b", 1)]


@VERSIONS
def test_files_are_listed_if_the_metadata_table_lacks_a_commit(version):
    table, metadata = foreign_table(version)
    metadata.base(1, records_file(listing({"": {}})))
    assert table.live("id", "n") == [("a", 2), ("b", 1)]


@VERSIONS
def test_without_a_metadata_table_files_are_listed(version):
    table, metadata = foreign_table(version)
    table.storage.delete(f"{FOLDER}/.hoodie/hoodie.properties")
    assert metadata.version == version
    assert table.live("id", "n") == [("a", 2), ("b", 1)]


def test_with_a_metadata_table_that_is_not_supported_files_are_listed():
    table, metadata = foreign_table(9)
    metadata.base(1, hfile([], trailer={12: 4}))
    assert table.live("id", "n") == [("a", 2), ("b", 1)]


def test_a_metadata_table_that_the_properties_do_not_name_is_not_read():
    table = ForeignTable(
        {"id": "string"}, {"hoodie.table.metadata.partitions": "column_stats,record_index"}
    )
    table.base(1, [{"id": "a"}])
    MetadataTable(table.storage).base(1, b"damaged")
    assert table.live("id") == [("a",)]


OTHER = {**SCHEMA, "fields": [{"name": "filesystemMetadata", "type": ["null", "string"]}]}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        records_file(listing({"p": {"a": 1}}))[:-1],
        records_file({"p": {"a": 1}}),
        records_file({}),
        hfile([(b"__all_partitions__", b"\0\2")], info={"schema": json.dumps(SCHEMA).encode()}),
        hfile(
            [(b"__all_partitions__", b"\0\2\0\0x")], info={"schema": json.dumps(SCHEMA).encode()}
        ),
        hfile([(b"\xff", b"\0\2\0\0")], info={"schema": json.dumps(SCHEMA).encode()}),
        records_file(listing({"p": {"a": -1}})),
        records_file(listing({"p": {"a": 1 << 60}})),
        records_file(listing({"../p": {"a": 1}})),
        records_file(listing({"p//q": {"a": 1}})),
        records_file(listing({"p": {"a": 1}}), schema=OTHER),
        records_file(listing({"p": {"a": 1}}), schema="int"),
    ],
    ids=range(13),
)
def test_damage_is_corrupt_and_has_a_hint(data):
    table = MetadataTable(MemoryStorage())
    table.base(1, data)
    with pytest.raises(Corrupt, match=f"{FOLDER}/files") as caught:
        files(table)
    assert not isinstance(caught.value, Missing) and FOLDER in caught.value.hint


@pytest.mark.parametrize(
    "content",
    [
        block(2, b"", log_file.HFILE),
        block(2, b"\0", log_file.DELETE),
        block(0, b"", log_file.HFILE),
        b"#HUDX#",
    ],
)
def test_damaged_logs_are_corrupt(content):
    table = metadata_table()
    path = table.log(2, content)
    with pytest.raises(Corrupt) as caught:
        files(table)
    assert path in str(caught.value)


def test_a_log_of_another_type_is_not_supported():
    table = metadata_table()
    table.log(2, block(2, b"", log_file.AVRO))
    assert files(table) is None


def test_properties_of_the_metadata_table_may_be_damaged():
    table = metadata_table()
    table.storage.replace(f"{FOLDER}/.hoodie/hoodie.properties", b"hoodie.table.version=9")
    with pytest.raises(Corrupt, match=FOLDER):
        files(table)


def test_a_file_that_was_removed_meanwhile_is_missing(monkeypatch):
    table = metadata_table()
    path = table.log(2, records_block(2, {"p": {"c": 3}}))
    listings = {}
    for folder in (f"{FOLDER}/files", f"{FOLDER}/.hoodie/timeline"):
        listings[folder] = table.storage.list_dir(folder)
    monkeypatch.setattr(table.storage, "list_dir", listings.__getitem__)
    table.storage.delete(path)
    with pytest.raises(Missing):
        files(table)


def test_a_metadata_table_without_files_is_missing():
    with pytest.raises(Missing) as caught:
        files(MetadataTable(MemoryStorage()))
    assert FOLDER in caught.value.hint


@given(st.data())
def test_flipped_bytes_are_read_or_refused(data):
    table = metadata_table()
    path = table.log(2, records_block(2, {"p": {"c": 3}}))
    base = f"{FOLDER}/files/files-0000-0_1-2-3_{time(1)}.hfile"
    damaged = data.draw(st.sampled_from([path, base]))
    stored = bytearray(table.storage.read(damaged))
    stored[data.draw(st.integers(0, len(stored) - 1))] ^= data.draw(st.integers(1, 255))
    table.storage.replace(damaged, bytes(stored))
    try:
        files(table)
    except MdtError as error:
        assert isinstance(error, Corrupt)
