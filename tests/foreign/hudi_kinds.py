"""The tables that Hudi makes for tests of readers: version, type, options and history of each."""

from __future__ import annotations

from hudi_histories import (
    bootstrapped,
    buckets,
    changes,
    debezium,
    delete_marks,
    deletes_in_a_log,
    dms,
    duplicates,
    evolved,
    indexes,
    keyed_by,
    late_completions,
    left_out,
    log_compaction,
    long_archive,
    merges,
    moved_rows,
    nested_fields,
    ordering_by,
    partial_updates,
    replaced,
    restored,
    rolled_back,
    schema_on_read,
    soft_deletes,
    special_values,
    statements,
    texts,
    three_levels,
    to_strings,
    two_writes,
    upgraded,
    vectors,
    whole_life,
    with_nulls,
)
from hudi_table import COW, MOR, ON_READ

TABLES = {}
"""Name -> version, type, options and history of a table."""

METADATA_TABLE = {
    "hoodie.metadata.enable": "true",
    # without it, tasks of Spark get file slices of the metadata table without their base files
    "hoodie.embed.timeline.server": "true",
}
RECORD_INDEX = {
    **METADATA_TABLE,
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.global.record.level.index.enable": "true",
    "hoodie.metadata.record.index.min.filegroup.count": "2",
    "hoodie.metadata.record.index.max.filegroup.count": "2",
    "hoodie.index.type": "RECORD_INDEX",
}
COLUMN_STATS = {
    **METADATA_TABLE,
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.column.stats.column.list": "v,city,ts,day,at,cost,price,id",
}
BLOOM = {
    **METADATA_TABLE,
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.index.type": "BLOOM",
}
PARQUET_LOGS = {"hoodie.logfile.data.block.format": "parquet"}
COMMIT_TIME = {
    "hoodie.datasource.write.payload.class": (
        "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload"
    ),
    "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
}
FLAT = {"hoodie.datasource.write.partitionpath.field": ""}


def add(name, version, kind, history, **options):
    """Add a table to TABLES."""
    assert name not in TABLES, name
    merged = {}
    for value in options.values():
        merged.update(value)
    TABLES[name] = (version, kind, merged, history)


def payload(name):
    """Return the option for a payload class of Hudi."""
    return {"hoodie.datasource.write.payload.class": f"org.apache.hudi.common.model.{name}"}


def key_generator(name, keys="id", partitions="city", **more):
    """Return the options for a key generator of Hudi."""
    return {
        "hoodie.datasource.write.keygenerator.class": f"org.apache.hudi.keygen.{name}",
        "hoodie.datasource.write.recordkey.field": keys,
        "hoodie.datasource.write.partitionpath.field": partitions,
        **more,
    }


TIMES = {
    "hoodie.keygen.timebased.timestamp.type": "SCALAR",
    "hoodie.keygen.timebased.timestamp.scalar.time.unit": "DAYS",
    "hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd",
    "hoodie.keygen.timebased.timezone": "UTC",
}
NEW_KEYS = {"hoodie.write.complex.keygen.new.encoding": "true"}
OLD_KEYS = {"hoodie.write.complex.keygen.new.encoding": "false"}
CHECK_OFF = {"hoodie.write.complex.keygen.validation.enable": "false"}
PLAIN_PATHS = {"hoodie.datasource.write.hive_style_partitioning": "false"}
ENCODED = {"hoodie.datasource.write.partitionpath.urlencode": "true"}
DROPS = {"hoodie.datasource.write.schema.allow.auto.evolution.column.drop": "true"}
NO_META = {"hoodie.populate.meta.fields": "false"}

add("cow_v6", 6, COW, whole_life, index=BLOOM)
add("cow_v8", 8, COW, whole_life)
add("cow_v9", 9, COW, whole_life, index=RECORD_INDEX)
add("mor_v6", 6, MOR, whole_life)
add("mor_v8", 8, MOR, whole_life)
add("mor_v9", 9, MOR, whole_life, index=RECORD_INDEX, stats=COLUMN_STATS)
for version in (6, 8, 9):
    for logs, log_format in (("avro", {}), ("parquet", PARQUET_LOGS)):
        add(f"event_{logs}_v{version}", version, MOR, merges, logs=log_format)
        add(
            f"commit_{logs}_v{version}",
            version,
            MOR,
            merges,
            logs=log_format,
            order=COMMIT_TIME,
            paths=FLAT,
        )
    add(f"soft_v{version}", version, MOR, soft_deletes)
    if version >= 8:
        add(f"partial_v{version}", version, MOR, partial_updates)
    add(f"evolved_v{version}", version, MOR, evolved)
    add(f"log_compaction_v{version}", version, MOR, log_compaction)
    add(
        f"complex_old_v{version}",
        version,
        MOR,
        two_writes,
        keys=key_generator("ComplexKeyGenerator"),
        encoding=OLD_KEYS,
        check=CHECK_OFF,
    )
    add(
        f"complex_new_v{version}",
        version,
        MOR,
        two_writes,
        keys=key_generator("ComplexKeyGenerator"),
        encoding=NEW_KEYS,
        check=CHECK_OFF,
    )
add("soft_cow", 9, COW, soft_deletes)
add("soft_parquet", 9, MOR, soft_deletes, logs=PARQUET_LOGS)
add("partial_parquet", 9, MOR, partial_updates, logs=PARQUET_LOGS)
add("partial_commit_time", 9, MOR, partial_updates, order=COMMIT_TIME)
add("partial_cow", 9, COW, with_nulls, payload=payload("PartialUpdateAvroPayload"))
add("evolved_parquet", 9, MOR, evolved, logs=PARQUET_LOGS)
add("evolved_cow", 9, COW, evolved)
add("strings_cow", 9, COW, to_strings)
add("strings_mor", 9, MOR, to_strings)
add("left_out_cow", 9, COW, left_out, drops=DROPS)
add("left_out_mor", 9, MOR, left_out, null={"hoodie.write.set.null.for.missing.columns": "true"})
RENAMES = {ON_READ: "true", **DROPS}
add("schema_on_read_cow", 9, COW, schema_on_read, on=RENAMES)
add("schema_on_read_mor", 9, MOR, schema_on_read, on=RENAMES)
add("schema_on_read_v6", 6, MOR, schema_on_read, on=RENAMES)
add("vectors_cow", 9, COW, vectors)
add("vectors_mor", 9, MOR, vectors)
for name, expression in {
    "int": "cast({ts} as int)",
    "text": "concat('{ts}'  )",
    "double": "cast({ts} as double)",
    "float": "cast({ts} as float)",
    "time": "timestamp_seconds({ts})",
    "decimal": "cast({ts} as decimal(9, 2))",
    "wide_decimal": "cast({ts} as decimal(30, 4))",
    "null": "if({ts} = 5, null, {ts}L)",
    "null_int": "if({ts} > 12, null, cast({ts} as int))",
    "flag": "{ts} > 12",
}.items():
    add(f"ordered_by_{name}", 9, MOR, ordering_by(expression))
add(
    "ordered_by_two",
    9,
    MOR,
    soft_deletes,
    order={
        "hoodie.datasource.write.precombine.field": "ts,v",
        "hoodie.table.ordering.fields": "ts,v",
    },
)
# Hudi 1.2 cannot write deletes with a date
DATES = "date_add(date '2024-01-01', {ts})"
add("ordered_by_date", 9, MOR, ordering_by(DATES, merges))
add("ordered_by_date_v6", 6, MOR, ordering_by(DATES, merges))
add("ordered_by_decimal_v6", 6, MOR, ordering_by("cast({ts} as decimal(9, 2))"))
add("unordered", 9, MOR, soft_deletes, order={"hoodie.datasource.write.precombine.field": None})
add("simple_keys", 9, MOR, texts, keys=key_generator("SimpleKeyGenerator"))
add("encoded_paths", 9, MOR, texts, keys=key_generator("SimpleKeyGenerator"), paths=ENCODED)
add("encoded_paths_cow", 6, COW, texts, paths=ENCODED)
add("plain_paths", 9, MOR, two_writes, paths=PLAIN_PATHS)
add("complex_two", 9, MOR, deletes_in_a_log, keys=key_generator("ComplexKeyGenerator", "id,day"))
add("complex_two_v6", 6, MOR, two_writes, keys=key_generator("ComplexKeyGenerator", "id,day"))
add(
    "time_paths",
    9,
    MOR,
    two_writes,
    keys=key_generator("TimestampBasedKeyGenerator", partitions="v", **TIMES),
    paths=PLAIN_PATHS,
)
add(
    "time_paths_cow",
    9,
    COW,
    two_writes,
    keys=key_generator("TimestampBasedKeyGenerator", partitions="v", **TIMES),
)
add(
    "custom_paths",
    9,
    MOR,
    two_writes,
    keys=key_generator("CustomKeyGenerator", partitions="city:SIMPLE,v:TIMESTAMP", **TIMES),
)
add(
    "nonpartitioned",
    9,
    COW,
    two_writes,
    keys=key_generator("NonpartitionedKeyGenerator", partitions=""),
)
add(
    "three_levels",
    9,
    MOR,
    three_levels,
    keys=key_generator("ComplexKeyGenerator", "id", "country,city,day"),
)
add(
    "three_levels_plain",
    9,
    COW,
    three_levels,
    keys=key_generator("ComplexKeyGenerator", "id", "country,city,day"),
    paths=PLAIN_PATHS,
)
add("no_meta_mor", 9, MOR, merges, meta=NO_META)
add("no_meta_parquet", 9, MOR, merges, meta=NO_META, logs=PARQUET_LOGS)
add("no_meta_cow", 9, COW, two_writes, meta=NO_META)
add(
    "no_meta_complex",
    9,
    MOR,
    two_writes,
    meta=NO_META,
    keys=key_generator("ComplexKeyGenerator", "id,day"),
)
add("no_meta_v6", 6, MOR, two_writes, meta=NO_META)
add("values_cow", 9, COW, special_values)
add("values_avro", 9, MOR, special_values)
add("values_parquet", 9, MOR, special_values, logs=PARQUET_LOGS)
add("values_v6", 6, MOR, special_values)
add(
    "legacy_decimals",
    9,
    MOR,
    special_values,
    form={"hoodie.parquet.writelegacyformat.enabled": "true"},
)
add("millis", 9, MOR, two_writes, form={"hoodie.parquet.outputtimestamptype": "TIMESTAMP_MILLIS"})
add("duplicates_mor", 9, MOR, duplicates, two={"hoodie.datasource.insert.drop.duplicates": "false"})
add("duplicates_cow", 9, COW, duplicates)
add("duplicates_v6", 6, MOR, duplicates)
add(
    "moved",
    9,
    MOR,
    moved_rows,
    index={
        "hoodie.index.type": "GLOBAL_SIMPLE",
        "hoodie.simple.index.update.partition.path": "true",
    },
)
add(
    "moved_cow",
    9,
    COW,
    moved_rows,
    index={
        "hoodie.index.type": "GLOBAL_SIMPLE",
        "hoodie.simple.index.update.partition.path": "true",
    },
)
add("restored_mor", 9, MOR, restored)
add("restored_cow", 9, COW, restored)
add("rolled_back_mor", 9, MOR, rolled_back)
add("rolled_back_cow", 9, COW, rolled_back)
add("upgraded_mor", 6, MOR, upgraded)
add("upgraded_cow", 6, COW, upgraded)
add("archive_v6", 6, COW, long_archive)
add("archive_v9", 9, MOR, long_archive)
add("cdc_cow", 9, COW, changes, cdc={"hoodie.table.cdc.enabled": "true"})
add(
    "cdc_mor",
    9,
    MOR,
    changes,
    cdc={
        "hoodie.table.cdc.enabled": "true",
        "hoodie.table.cdc.supplemental.logging.mode": "OP_KEY_ONLY",
    },
    index=RECORD_INDEX,
)
add(
    "buckets_mor",
    9,
    MOR,
    buckets,
    index={"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "3"},
)
add(
    "buckets_v6",
    6,
    MOR,
    buckets,
    index={"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "3"},
)
add(
    "buckets_cow",
    9,
    COW,
    buckets,
    index={"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "3"},
    paths=FLAT,
)
add(
    "consistent_buckets",
    9,
    MOR,
    buckets,
    index={
        "hoodie.index.type": "BUCKET",
        "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
        "hoodie.bucket.index.num.buckets": "3",
    },
)
add(
    "secondary_index",
    9,
    MOR,
    indexes,
    index=RECORD_INDEX,
    lock={
        "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider"
    },
)
add(
    "partitioned_record_index",
    9,
    MOR,
    two_writes,
    index={
        **METADATA_TABLE,
        "hoodie.metadata.record.level.index.enable": "true",
        "hoodie.index.type": "RECORD_LEVEL_INDEX",
    },
)
add("small_blocks", 9, MOR, merges, size={"hoodie.logfile.data.block.max.size": "600"})
add(
    "small_files",
    9,
    COW,
    merges,
    size={
        "hoodie.parquet.max.file.size": "20000",
        "hoodie.parquet.small.file.limit": "0",
        "hoodie.copyonwrite.insert.split.size": "7",
        "hoodie.copyonwrite.insert.auto.split": "false",
    },
)
add(
    "no_keys_mor",
    9,
    MOR,
    statements,
    keys={
        "hoodie.datasource.write.recordkey.field": None,
        "hoodie.datasource.write.precombine.field": None,
    },
)
add(
    "no_keys_cow",
    9,
    COW,
    statements,
    keys={
        "hoodie.datasource.write.recordkey.field": None,
        "hoodie.datasource.write.precombine.field": None,
    },
)
add("partial_payload", 9, MOR, with_nulls, payload=payload("PartialUpdateAvroPayload"))
add(
    "partial_payload_parquet",
    9,
    MOR,
    with_nulls,
    logs=PARQUET_LOGS,
    payload=payload("PartialUpdateAvroPayload"),
)
add(
    "non_defaults", 9, MOR, with_nulls, payload=payload("OverwriteNonDefaultsWithLatestAvroPayload")
)
add("event_time_payload", 9, MOR, merges, payload=payload("EventTimeAvroPayload"))
add(
    "delete_marks",
    9,
    MOR,
    delete_marks,
    payload=payload("DefaultHoodieRecordPayload"),
    mark={"hoodie.payload.delete.field": "what", "hoodie.payload.delete.marker": "gone"},
)
add(
    "delete_marks_v6",
    6,
    MOR,
    delete_marks,
    payload=payload("DefaultHoodieRecordPayload"),
    mark={"hoodie.payload.delete.field": "what", "hoodie.payload.delete.marker": "gone"},
)
add("dms", 9, MOR, dms, payload=payload("AWSDmsAvroPayload"))
add(
    "debezium",
    9,
    MOR,
    debezium,
    payload=payload("debezium.PostgresDebeziumAvroPayload"),
    order={"hoodie.datasource.write.precombine.field": "_event_lsn"},
)
add("partial_payload_v6", 6, MOR, with_nulls, payload=payload("PartialUpdateAvroPayload"))
add("partial_payload_v8", 8, MOR, with_nulls, payload=payload("PartialUpdateAvroPayload"))
add(
    "dropped_columns",
    9,
    COW,
    two_writes,
    drop={"hoodie.datasource.write.drop.partition.columns": "true"},
)
add(
    "dropped_columns_mor",
    9,
    MOR,
    two_writes,
    drop={"hoodie.datasource.write.drop.partition.columns": "true"},
)
add("replaced_cow", 9, COW, replaced)
add("replaced_mor", 9, MOR, replaced)
add("replaced_v6", 6, MOR, replaced)
for name, expression in {
    "int": "cast(n as int)",
    "long": "n * 10000000000",
    "date": "date_add(date '2024-01-01', n)",
    "time": "timestamp_micros(1700000000123456 + n * 1000000)",
    "decimal": "cast(n / 4 as decimal(9, 2))",
    "double": "n / 4D",
}.items():
    add(f"keyed_by_{name}", 9, MOR, keyed_by(expression), meta=NO_META)
add("keyed_by_int_with_meta", 9, MOR, keyed_by("cast(n as int)"))
add(
    "nested_fields",
    9,
    MOR,
    nested_fields,
    keys={
        "hoodie.datasource.write.recordkey.field": "who.id",
        "hoodie.datasource.write.partitionpath.field": "who.city",
        "hoodie.datasource.write.precombine.field": "who.ts",
    },
)
add(
    "typed_paths",
    9,
    MOR,
    two_writes,
    keys=key_generator("ComplexKeyGenerator", "id", "ok,day,cost"),
)
add("operations", 9, MOR, soft_deletes, field={"hoodie.allow.operation.metadata.field": "true"})
LAZY = {
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
}
for version in (8, 9):
    add(f"late_event_v{version}", version, MOR, late_completions, lazy=LAZY)
    add(f"late_commit_v{version}", version, MOR, late_completions, lazy=LAZY, order=COMMIT_TIME)
add("bootstrapped", 9, MOR, bootstrapped)
