"""A metadata table that is out of step with the timeline, or damaged, is detected."""

from __future__ import annotations

import json
from itertools import product

import pytest
from foreign_tables import ForeignTable, block, time
from metadata_tables import FILE_ID, MetadataTable, listing, records_block, records_file

from mdt.errors import Corrupt
from mdt.hudi.read.index_partition import IndexPartition
from mdt.hudi.read.instants import Timeline, parse_name, timeline_of
from mdt.hudi.read.key_indexes import load_key_indexes
from mdt.hudi.read.metadata_state import load_metadata_table
from mdt.stores.storage import MemoryStorage

VERSIONS = pytest.mark.parametrize("version", [6, 8, 9])
INITIAL = "00000000000000000"


def timeline(version: int, *names: str) -> Timeline:
    """Return a data timeline. Names of completed instants are ``<time>.<action>``."""
    files = []
    for name in names:
        start, _, action = name.partition(".")
        if version > 6 and "." not in action:
            name = f"{start}_{start}.{action}"
        files.append(parse_name(name, 1 if version < 8 else 2))
    return timeline_of(file for file in files if file is not None)


def add_initialization(table: MetadataTable, number: int) -> None:
    """Add an instant that initialized partitions after instant ``number``."""
    if table.version < 8:
        table.create(f".hoodie/{INITIAL}10.deltacommit", b"{}")
    else:
        table.create(f".hoodie/timeline/{INITIAL}_{time(number)}.deltacommit", b"{}")


def missing_in(table: MetadataTable, *names: str) -> list[str]:
    metadata = load_metadata_table(table.storage)
    assert metadata is not None
    return metadata.missing_instants(timeline(table.version, *names))


@pytest.mark.parametrize(
    "version, action",
    [
        *product((6, 8, 9), ("commit", "deltacommit", "replacecommit", "clean")),
        (6, "rollback"),
    ],
)
def test_instants_that_change_files_are_missing_until_the_metadata_table_has_them(version, action):
    table = MetadataTable(MemoryStorage(), version)
    table.commit(1)
    table.commit(3)
    names = [f"{time(1)}.commit", f"{time(2)}.{action}", f"{time(3)}.commit"]
    assert missing_in(table, *names) == [time(2)]
    table.commit(2)
    assert missing_in(table, *names) == []


@VERSIONS
def test_archived_and_pending_instants_and_savepoints_are_not_expected(version):
    table = MetadataTable(MemoryStorage(), version)
    table.commit(2)
    names = [f"{time(1)}.commit", f"{time(3)}.savepoint", f"{time(4)}.deltacommit.inflight"]
    assert missing_in(table, *names) == [], (
        "the first is archived in the metadata table, then a savepoint and a pending instant"
    )


@VERSIONS
def test_instants_before_the_initialization_are_not_expected(version):
    table = MetadataTable(MemoryStorage(), version)
    add_initialization(table, 3)
    assert missing_in(table, f"{time(5)}.commit") == [time(5)]
    table.commit(4)
    names = [f"{time(2)}.commit", f"{time(4)}.commit"]
    assert missing_in(table, *names) == []
    assert missing_in(table, *names, f"{time(5)}.commit") == [time(5)]


@VERSIONS
def test_instants_that_the_data_timeline_lacks_are_unknown(version):
    table = MetadataTable(MemoryStorage(), version)
    add_initialization(table, 1)
    for number in (1, 2, 3):
        table.commit(number)
    metadata = load_metadata_table(table.storage)
    names = [f"{time(2)}.commit"]
    assert metadata.unknown_instants(timeline(version, *names)) == [time(3)]
    pending = f"{time(3)}.deltacommit.inflight"
    assert metadata.unknown_instants(timeline(version, *names, pending)) == []


def open_partition(table: MetadataTable, *names: str) -> IndexPartition:
    metadata = load_metadata_table(table.storage)
    data = timeline(table.version, *names)
    return IndexPartition(table.storage, metadata, data, "files")


NAMES = [f"{time(number)}.deltacommit" for number in (1, 2, 3)]


@pytest.mark.parametrize(
    "content, message",
    (
        (records_block(2, {"p": {"c": 3}})[:-9], "torn block"),
        (records_block(2, {"p": {"c": 3}}) + b"#HUDI#", "torn block"),
        (block(9, b""), "unknown instant"),
    ),
)
def test_torn_blocks_and_blocks_of_unknown_instants_in_an_index_are_corrupt(content, message):
    table = MetadataTable(MemoryStorage())
    table.base(1, records_file(listing({"p": {"a": 1}})))
    table.log(2, content)
    with pytest.raises(Corrupt, match=message):
        open_partition(table, *NAMES).group("files", 0)


def test_a_base_file_that_may_contain_a_pending_write_is_corrupt():
    table = MetadataTable(MemoryStorage())
    table.commit(2)
    table.base(3, records_file(listing({"p": {"a": 1}})))
    pending = f"{time(2)}.%s.inflight"
    for action in ("deltacommit", "clustering"):
        partition = open_partition(table, f"{time(1)}.deltacommit", pending % action)
        with pytest.raises(Corrupt, match="pending instant"):
            partition.group("files", 0)
    open_partition(table, f"{time(1)}.deltacommit", pending % "compaction").group("files", 0)


def test_a_missing_file_group_is_detected():
    table = MetadataTable(MemoryStorage())
    table.base(1, records_file({}))
    path = f"files/{FILE_ID}_1-2-3_{time(1)}.hfile"
    for number, is_complete in ((2, False), (1, True)):
        other = path.replace("-0000-", f"-000{number}-")
        table.create(other, records_file({}))
        if is_complete:
            assert open_partition(table, *NAMES).size("files") == 3
        else:
            with pytest.raises(Corrupt, match="a file group of 'files' is missing"):
                open_partition(table, *NAMES)


@pytest.mark.parametrize(
    "text",
    (
        b"{",
        b'{"indexDefinitions": []}',
        b'{"indexDefinitions": {"secondary_index_a": {"sourceFields": [1]}}}',
    ),
)
def test_key_indexes_with_damaged_definitions_are_not_used(text):
    stored = {"hoodie.table.metadata.partitions": "files,record_index,secondary_index_a"}
    table = ForeignTable({"id": "string"}, stored)
    table.base(1, [{"id": "a"}])
    MetadataTable(table.storage).commit(1)
    assert load_key_indexes(table.storage) is not None, "definitions may be absent"
    table.storage.create(".hoodie/.index_defs/index.json", text)
    assert load_key_indexes(table.storage) is None


def test_in_version_6_appended_digits_mark_an_instant_that_listed_all_files():
    table = MetadataTable(MemoryStorage(), 6)
    stat = {"path": "files/f", "fileId": "f", "fileSizeInBytes": 1, "numWrites": 1}
    for number, digits, partition in (
        (3, "010", "files"),
        (5, "011", "column_stats"),
        (7, "001", "files"),
    ):
        content = json.dumps({"partitionToWriteStats": {partition: [stat]}}).encode()
        table.create(f".hoodie/{time(number)}{digits}.deltacommit", content)
    metadata = load_metadata_table(table.storage)
    data = timeline(6, *(f"{time(number)}.commit" for number in (2, 3, 9)))
    assert metadata.lost_instants(table.storage, data) == [time(9)]
    assert metadata.missing_instants(data) == [time(9)]


def test_instants_before_a_newer_listing_of_all_files_are_missing_but_not_lost():
    table = MetadataTable(MemoryStorage(), 9)
    stat = {"path": "files/f", "fileId": "f", "fileSizeInBytes": 1, "numWrites": 1}
    for number, partition in ((1, "files"), (5, "files"), (7, "column_stats")):
        content = json.dumps({"partitionToWriteStats": {partition: [stat]}}).encode()
        name = f"{number:017}_{time(number)}.deltacommit"
        table.create(f".hoodie/timeline/{name}", content)
    metadata = load_metadata_table(table.storage)
    data = timeline(9, *(f"{time(number)}.deltacommit" for number in (3, 6)))
    assert metadata.missing_instants(data) == [time(3), time(6)]
    assert metadata.lost_instants(table.storage, data) == [time(6)]


@pytest.mark.parametrize("version", [8, 9])
def test_a_rollback_is_missing_only_if_the_metadata_table_has_the_write(version):
    """Hudi does not record the rollback of a write that crashed before it reached the table."""
    table = MetadataTable(MemoryStorage(), version)
    add_initialization(table, 1)
    table.commit(3)
    instants = (f"{time(3)}.deltacommit", f"{time(7)}.rollback")
    assert missing_in(table, *instants) == []
    table.commit(5)
    assert missing_in(table, *instants) == [time(7)]
    assert missing_in(table, f"{time(5)}.deltacommit", *instants) == []


@pytest.mark.parametrize("version", [6, 9])
def test_instants_added_by_a_restore_are_known_once_the_metadata_table_has_the_restore(version):
    table = MetadataTable(MemoryStorage(), version)
    add_initialization(table, 1)
    table.commit(3)
    added = time(8) + ("003" if version == 6 else "")
    name = f"{added}.deltacommit"
    if version == 9:
        name = f"timeline/{added}_{added}.deltacommit"
    table.create(f".hoodie/{name}", b"{}")
    instants = [(3, 3, "deltacommit"), (5, 9, "restore")]
    data = timeline_of(
        parse_name(f"{time(start)}.{action}", 1)
        if version == 6
        else parse_name(f"{time(start)}_{time(end)}.{action}", 2)
        for start, end, action in instants
    )
    metadata = load_metadata_table(table.storage)
    assert metadata.missing_instants(data) == [time(5)]
    assert metadata.unknown_instants(data) == [added]
    table.commit(6, "restore")
    metadata = load_metadata_table(table.storage)
    assert metadata.missing_instants(data) == metadata.unknown_instants(data) == []
    table.commit(12)  # an instant that began after the timeline was loaded
    assert load_metadata_table(table.storage).unknown_instants(data) == [time(12)]
