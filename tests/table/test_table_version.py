"""The table version of new tables: how it is chosen, and what Hudi's properties then are."""

from __future__ import annotations

import pyarrow as pa
import pytest
from refusals import refused

import mdt
from mdt.errors import Invalid, Unsupported
from mdt.hudi import properties
from mdt.hudi.read.table_properties import parse
from mdt.metadata.files import paths
from mdt.stores.storage import MemoryStorage

SCHEMA = pa.schema({"id": pa.string(), "city": pa.string(), "n": pa.int64(), "ts": pa.int64()})


def stored(**named):
    """Return the properties of a new table."""
    storage = MemoryStorage()
    mdt.create(storage, SCHEMA, **{"key": ["id"], **named})
    return properties.decode(storage.read(paths.properties()))


@pytest.mark.parametrize(
    ("named", "version"),
    [
        ({}, "6"),
        ({"version": 6}, "6"),
        ({"version": 9}, "9"),
        ({"options": {"hoodie.write.table.version": 9}}, "9"),
        ({"options": {"mdt.table.version": "9"}, "version": 9}, "9"),
    ],
)
def test_version_6_is_the_default_and_the_argument_or_an_option_chooses_9(named, version):
    found = stored(**named)
    assert found["hoodie.table.version"] == version
    assert found["hoodie.timeline.layout.version"] == {"6": "1", "9": "2"}[version]
    properties.verify(found)


def test_two_versions_and_versions_without_layout_are_refused():
    both = {"version": 9, "options": {"hoodie.write.table.version": 6}}
    refused("version is 9, but the option mdt.table.version is 6", stored, **both, kind=Invalid)
    refused("creates no tables of version 8", stored, version=8, kind=Unsupported)


@pytest.mark.parametrize(
    ("named", "generator"),
    [
        ({}, "NON_PARTITION"),
        ({"partition_by": ["city"]}, "SIMPLE"),
        ({"partition_by": ["city", "n"]}, "COMPLEX"),
        ({"key": ["id", "n"], "partition_by": ["city"]}, "COMPLEX"),
        (
            {"partition_by": ["ts"], "options": {"mdt.partition.time.pattern": "yyyy"}},
            "TIMESTAMP",
        ),
    ],
)
def test_the_properties_of_version_9_name_the_kind_of_key_generator(named, generator):
    assert stored(version=9, **named)["hoodie.table.keygenerator.type"] == generator


@pytest.mark.parametrize(
    ("ordering", "mode"), [(None, "COMMIT_TIME_ORDERING"), ("ts", "EVENT_TIME_ORDERING")]
)
def test_the_properties_of_version_9_say_how_rows_are_merged(ordering, mode):
    found = stored(version=9, ordering=ordering)
    assert found["hoodie.record.merge.mode"] == mode
    assert found.get("hoodie.table.ordering.fields") == ordering
    assert not {"hoodie.compaction.payload.class", "hoodie.table.precombine.field"} & found.keys()
    assert parse(properties.encode(found)).merge_mode == mode


def test_log_blocks_of_version_9_have_positions_unless_the_caller_says_no():
    off = {"mdt.write.record.positions": False}
    for version, options, expected in ((6, {}, False), (9, {}, True), (9, off, False)):
        t = mdt.create(MemoryStorage(), SCHEMA, ["id"], version=version, options=options)
        assert t.options.write_record_positions is expected


def test_tables_of_version_9_have_hudis_metadata_table_unless_the_caller_says_no():
    off = {"hoodie.metadata.enable": False}
    named = "column_stats,files"
    for version, options, expected in ((6, {}, None), (9, {}, named), (9, off, None)):
        storage = MemoryStorage()
        t = mdt.create(storage, SCHEMA, ["id"], version=version, options=options)
        t.upsert([dict.fromkeys(SCHEMA.names, None) | {"id": "a"}])
        written = properties.decode(storage.read(paths.properties()))
        found = written.get("hoodie.table.metadata.partitions")
        assert found == expected
