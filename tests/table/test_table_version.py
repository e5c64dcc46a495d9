"""The table version of new tables: how it is chosen, and the Hudi properties that follow."""

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


def properties_of_new_table(**settings):
    """Return the properties of a new table."""
    storage = MemoryStorage()
    mdt.create(storage, SCHEMA, **{"key": ["id"], **settings})
    return properties.decode(storage.read(paths.PROPERTIES))


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
def test_version_6_is_the_default_and_9_is_chosen_by_argument_or_option(named, version):
    hudi_properties = properties_of_new_table(**named)
    assert hudi_properties["hoodie.table.version"] == version
    assert hudi_properties["hoodie.timeline.layout.version"] == {"6": "1", "9": "2"}[version]
    properties.verify(hudi_properties)


def test_contradicting_and_unsupported_versions_are_refused():
    both = {"version": 9, "options": {"hoodie.write.table.version": 6}}
    refused(
        "version is 9, but the option mdt.table.version is 6",
        properties_of_new_table,
        **both,
        kind=Invalid,
    )
    refused("creates no tables of version 8", properties_of_new_table, version=8, kind=Unsupported)


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
    assert (
        properties_of_new_table(version=9, **named)["hoodie.table.keygenerator.type"] == generator
    )


@pytest.mark.parametrize(
    ("ordering", "mode"), [(None, "COMMIT_TIME_ORDERING"), ("ts", "EVENT_TIME_ORDERING")]
)
def test_the_properties_of_version_9_name_the_merge_mode_and_ordering_field(ordering, mode):
    hudi_properties = properties_of_new_table(version=9, ordering=ordering)
    assert hudi_properties["hoodie.record.merge.mode"] == mode
    assert hudi_properties.get("hoodie.table.ordering.fields") == ordering
    assert (
        not {"hoodie.compaction.payload.class", "hoodie.table.precombine.field"}
        & hudi_properties.keys()
    )
    assert parse(properties.encode(hudi_properties)).merge_mode == mode


def test_log_blocks_of_version_9_have_positions_unless_disabled():
    off = {"mdt.write.record.positions": False}
    for version, options, expected in ((6, {}, False), (9, {}, True), (9, off, False)):
        t = mdt.create(MemoryStorage(), SCHEMA, ["id"], version=version, options=options)
        assert t.options.write_record_positions is expected


def test_tables_of_version_9_have_hudis_metadata_table_unless_disabled():
    off = {"hoodie.metadata.enable": False}
    partition_names = "column_stats,files"
    for version, options, expected in ((6, {}, None), (9, {}, partition_names), (9, off, None)):
        storage = MemoryStorage()
        t = mdt.create(storage, SCHEMA, ["id"], version=version, options=options)
        t.upsert([dict.fromkeys(SCHEMA.names, None) | {"id": "a"}])
        written = properties.decode(storage.read(paths.PROPERTIES))
        hudi_properties = written.get("hoodie.table.metadata.partitions")
        assert hudi_properties == expected
