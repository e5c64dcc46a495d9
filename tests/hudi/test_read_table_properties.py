"""Properties of any Hudi table: those that decide how rows are read, and those that are refused."""

from __future__ import annotations

import pytest
from refusals import refused

from mdt.errors import Corrupt, Unsupported
from mdt.hudi import properties
from mdt.hudi.read import table_properties
from mdt.hudi.read.table_properties import COMMIT_TIME, CUSTOM, EVENT_TIME, TableProperties

EVENT_ID = "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"
COMMIT_ID = "ce9acb64-bde0-424c-9b91-f6ebba25356d"
OTHER_ID = "00000000-0000-0000-0000-000000000000"
MODELS = "org.apache.hudi.common.model."
MODE = "hoodie.record.merge.mode"
PAYLOAD = "hoodie.compaction.payload.class"
STRATEGY = "hoodie.record.merge.strategy.id"
DELETE_FIELD = "hoodie.record.merge.property.hoodie.payload.delete.field"
DELETE_MARKER = "hoodie.record.merge.property.hoodie.payload.delete.marker"
UNAVAILABLE = "hoodie.record.merge.property.hoodie.write.partial.update.unavailable.value"
ORDERING = "hoodie.table.ordering.fields"


def parsed(version: int = 9, table_type: str = "MERGE_ON_READ", **more: str) -> TableProperties:
    """Return a table's properties. In the names of ``more``, ``__`` stands for a dot."""
    stored = {
        properties.NAME: "trips",
        properties.TYPE: table_type,
        properties.VERSION: str(version),
        properties.LAYOUT: "1" if version < 8 else "2",
        **{key.replace("__", "."): value for key, value in more.items()},
    }
    return table_properties.parse(properties.encode(stored))


def with_properties(stored: dict[str, str], **named: object) -> TableProperties:
    return parsed(**{key.replace(".", "__"): value for key, value in stored.items()}, **named)


def test_a_table_with_only_the_required_properties_has_hudis_defaults():
    table = parsed()
    assert (table.name, table.version, table.layout, table.is_merge_on_read) == (
        "trips",
        9,
        2,
        True,
    )
    assert (table.timeline_folder, table.history_folder) == (
        ".hoodie/timeline",
        ".hoodie/timeline/history",
    )
    assert table.time_zone == "LOCAL"
    assert table.key_fields == table.partition_fields == table.ordering_fields == ()
    assert table.key_generator == table.partial_update == table.schema_json == ""
    assert not (table.hive_style or table.slash_separated_dates)
    assert table.meta_fields and table.base_format == "PARQUET" and not table.metadata_partitions
    assert table.merge_mode == COMMIT_TIME
    table_properties.refuse(table)


def test_every_property_is_read():
    table = with_properties(
        {
            "hoodie.timeline.path": "t",
            "hoodie.timeline.history.path": "h",
            "hoodie.table.timeline.timezone": "utc",
            "hoodie.table.recordkey.fields": "id, n",
            "hoodie.table.partition.fields": "city,day",
            "hoodie.table.ordering.fields": "ts,v",
            "hoodie.table.keygenerator.type": "COMPLEX_AVRO",
            "hoodie.datasource.write.hive_style_partitioning": "TRUE",
            "hoodie.datasource.write.slash.separated.date.partitioning": "true",
            "hoodie.populate.meta.fields": "false",
            "hoodie.table.partial.update.mode": "ignore_defaults",
            "hoodie.table.metadata.partitions": "files,column_stats",
            "hoodie.table.create.schema": "{}",
        },
        version=8,
    )
    assert (table.timeline_folder, table.history_folder) == (".hoodie/t", ".hoodie/t/h")
    assert table.time_zone == "UTC"
    assert (table.key_fields, table.partition_fields) == (("id", "n"), ("city", "day"))
    assert (table.ordering_fields, table.merge_mode) == (("ts", "v"), EVENT_TIME)
    assert (table.key_generator, table.meta_fields) == ("COMPLEX", False)
    assert table.hive_style and table.slash_separated_dates
    assert table.partial_update == "IGNORE_DEFAULTS"
    assert table.metadata_partitions == {"files", "column_stats"}
    assert table.schema_json == "{}"


def test_layout_1_ignores_the_paths_of_layout_2():
    table = with_properties(
        {"hoodie.timeline.path": "timeline", "hoodie.archivelog.folder": "history"}, version=6
    )
    assert (table.timeline_folder, table.history_folder) == (".hoodie", ".hoodie/history")


def test_version_6_accepts_old_and_new_names_of_properties():
    old = {
        "hoodie.table.precombine.field": "ts",
        "hoodie.table.keygenerator.class": "org.apache.hudi.keygen.SimpleAvroKeyGenerator",
    }
    new = {ORDERING: "ts", "hoodie.table.keygenerator.type": "SIMPLE"}
    for stored in (old, new):
        table = with_properties(stored, version=6)
        assert (table.ordering_fields, table.key_generator) == (("ts",), "SIMPLE")


def test_types_in_the_partition_fields_of_the_custom_key_generator_are_removed():
    stored = {
        "hoodie.table.partition.fields": "city:SIMPLE,ts:TIMESTAMP",
        "hoodie.table.keygenerator.type": "CUSTOM",
    }
    assert with_properties(stored).partition_fields == ("city", "ts")


def test_an_unknown_key_generator_class_counts_as_user_provided():
    assert (
        with_properties({"hoodie.table.keygenerator.class": "a.B"}).key_generator == "USER_PROVIDED"
    )


@pytest.mark.parametrize(
    ("stored", "mode"),
    [
        ({MODE: "EVENT_TIME_ORDERING", ORDERING: "ts"}, EVENT_TIME),
        ({MODE: "EVENT_TIME_ORDERING"}, COMMIT_TIME),
        ({MODE: "COMMIT_TIME_ORDERING", ORDERING: "ts"}, COMMIT_TIME),
        ({MODE: "CUSTOM", STRATEGY: EVENT_ID, ORDERING: "ts"}, EVENT_TIME),
        ({MODE: "CUSTOM", STRATEGY: COMMIT_ID, ORDERING: "ts"}, COMMIT_TIME),
        ({MODE: "CUSTOM", STRATEGY: OTHER_ID, ORDERING: "ts"}, CUSTOM),
        ({MODE: "CUSTOM"}, CUSTOM),
        ({MODE: "NEWEST"}, CUSTOM),
        ({ORDERING: "ts"}, EVENT_TIME),
        ({}, COMMIT_TIME),
        ({PAYLOAD: f"{MODELS}OverwriteWithLatestAvroPayload", ORDERING: "ts"}, COMMIT_TIME),
        ({PAYLOAD: f"{MODELS}DefaultHoodieRecordPayload", ORDERING: "ts"}, EVENT_TIME),
        ({PAYLOAD: f"{MODELS}DefaultHoodieRecordPayload"}, COMMIT_TIME),
        ({PAYLOAD: f"{MODELS}EventTimeAvroPayload", ORDERING: "ts"}, EVENT_TIME),
        ({PAYLOAD: "com.example.OverwriteWithLatestAvroPayload", ORDERING: "ts"}, CUSTOM),
        (
            # Hudi 0.x always writes this strategy, so the payload class decides
            {
                PAYLOAD: f"{MODELS}OverwriteWithLatestAvroPayload",
                "hoodie.compaction.record.merger.strategy": EVENT_ID,
                ORDERING: "ts",
            },
            COMMIT_TIME,
        ),
        ({STRATEGY: COMMIT_ID, ORDERING: "ts"}, COMMIT_TIME),
        ({STRATEGY: OTHER_ID, ORDERING: "ts"}, CUSTOM),
    ],
)
def test_the_merge_mode_is_explicit_or_follows_from_the_payload_class(stored, mode):
    assert with_properties(stored, version=6).merge_mode == mode


@pytest.mark.parametrize(
    ("stored", "named"),
    [
        ({MODE: "CUSTOM", STRATEGY: OTHER_ID}, f"{STRATEGY}={OTHER_ID}"),
        ({MODE: "CUSTOM", PAYLOAD: "a.B"}, f"{PAYLOAD}=a.B"),
        ({MODE: "CUSTOM"}, f"{MODE}=CUSTOM"),
        ({MODE: "NEWEST", STRATEGY: EVENT_ID}, f"{MODE}=NEWEST"),
        ({PAYLOAD: "a.B", STRATEGY: EVENT_ID}, f"{PAYLOAD}=a.B"),
        ({STRATEGY: OTHER_ID}, f"{STRATEGY}={OTHER_ID}"),
        (
            {MODE: COMMIT_TIME, "hoodie.table.legacy.payload.class": "com.example.Payload"},
            "hoodie.table.legacy.payload.class=com.example.Payload",
        ),
        (
            {"hoodie.table.partial.update.mode": "KEEP_VALUES"},
            "hoodie.table.partial.update.mode=KEEP_VALUES",
        ),
        (
            {DELETE_FIELD: "op"},
            "hoodie.record.merge.property.hoodie.payload.delete.field=op",
        ),
        (
            {DELETE_MARKER: "D"},
            "hoodie.record.merge.property.hoodie.payload.delete.marker=D",
        ),
        (
            {"hoodie.record.merge.property.my.own": "x"},
            "hoodie.record.merge.property.my.own=x",
        ),
        ({"hoodie.populate.meta.fields": "false"}, "hoodie.table.recordkey.fields="),
        (
            {
                "hoodie.populate.meta.fields": "false",
                "hoodie.table.recordkey.fields": "id",
                "hoodie.table.keygenerator.class": "a.B",
            },
            "hoodie.table.keygenerator.class=a.B",
        ),
    ],
)
def test_an_unsupported_merge_is_refused_by_its_property_only_for_merge_on_read(stored, named):
    table = with_properties(stored)
    refused(f"tables with {named} cannot be read", table_properties.refuse, table, kind=Unsupported)
    table_properties.refuse(with_properties(stored, table_type="COPY_ON_WRITE"))


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hoodie.table.base.file.format", "ORC"),
        ("hoodie.table.ro.file.format", "HFILE"),
        ("hoodie.table.multiple.base.file.formats.enable", "true"),
        ("hoodie.table.log.file.format", "PARQUET"),
        ("hoodie.bootstrap.base.path", "s3://bucket/old"),
        ("hoodie.datasource.write.drop.partition.columns", "true"),
        ("hoodie.table.storage.layout", "LSM"),
        ("hoodie.table.format", "iceberg"),
    ],
)
def test_unsupported_file_formats_and_layouts_are_refused_by_their_property(key, value, table_type):
    table = with_properties({key: value}, table_type=table_type)
    refused(f"{key}={value}", table_properties.refuse, table, kind=Unsupported)


@pytest.mark.parametrize(
    "stored",
    [
        {"hoodie.table.format": "native", "hoodie.table.base.file.format": "parquet"},
        {"hoodie.table.partial.update.mode": "NONE"},
        {"hoodie.table.partial.update.mode": "ignore_defaults"},
        {"hoodie.table.partial.update.mode": "FILL_UNAVAILABLE", UNAVAILABLE: "?"},
        {DELETE_FIELD: "op", DELETE_MARKER: "D"},
        {MODE: COMMIT_TIME, "hoodie.table.legacy.payload.class": f"{MODELS}AWSDmsAvroPayload"},
        {MODE: COMMIT_TIME, "hoodie.table.legacy.payload.class": f"{MODELS}EventTimeAvroPayload"},
        {"hoodie.table.cdc.enabled": "true", "hoodie.bootstrap.index.enable": "true"},
        {
            "hoodie.populate.meta.fields": "false",
            "hoodie.table.recordkey.fields": "id",
            "hoodie.table.keygenerator.type": "SIMPLE",
        },
    ],
)
def test_supported_properties_are_not_refused(stored):
    table_properties.refuse(with_properties(stored))


def test_values_that_mark_deletes_and_unavailable_values_are_read():
    table = with_properties({DELETE_FIELD: "op", DELETE_MARKER: "D", UNAVAILABLE: "?"})
    assert (table.delete_mark, table.unavailable_value) == (("op", "D"), "?")
    other = with_properties({UNAVAILABLE.replace("hoodie.write.", ""): "?"})
    assert (other.delete_mark, other.unavailable_value) == (("", ""), "?")


@pytest.mark.parametrize("version", ["5", "7", "10"])
def test_unsupported_table_versions_are_refused(version):
    stored = {properties.VERSION: version}
    refused(f"hoodie.table.version={version} … 6, 8, 9", parse_stored, stored, kind=Unsupported)


def parse_stored(stored: dict[str, str]) -> TableProperties:
    return table_properties.parse(properties.encode(stored), "x/hoodie.properties")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hoodie.table.version=six",
        b"hoodie.table.version=9",
        b"a=\\u12",
        b"hoodie.table.version=\xb2",
    ],
)
def test_damaged_properties_are_corrupt_and_the_error_names_the_object(data):
    with pytest.raises(Corrupt) as caught:
        table_properties.parse(data, "x/hoodie.properties")
    assert "hoodie.properties" in str(caught.value) and caught.value.path == "x/hoodie.properties"


@pytest.mark.parametrize("path", ["..", "a/../../b", "/etc", "a//b", "a\0b"])
@pytest.mark.parametrize("key", ["hoodie.timeline.path", "hoodie.timeline.history.path"])
def test_folders_outside_the_table_are_corrupt(key, path):
    with pytest.raises(Corrupt, match="not the path of a folder"):
        with_properties({key: path})
