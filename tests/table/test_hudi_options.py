"""Hudi's options are accepted with a warning, accepted with certain values, or compared with the
table. None is stored.
"""

import logging

import pytest
from documents import ROOT
from hudi_tables import fixture
from option_pages import hudi_options_reference
from refusals import refused
from shared_tables import batch, other_table
from texts import columns

import mdt
from mdt import Unsupported, hudi_options
from mdt.config import CALL_OPTIONS, OPTIONS
from mdt.session import session
from mdt.source.option_keywords import parse_options
from mdt.stores.storage import MemoryStorage

SCHEMA = columns("id string, n int64, city string, ts int64")
PAYLOADS = "org.apache.hudi.common.model."
KEY = "hoodie.datasource.write.recordkey.field"
PARTITION = "hoodie.datasource.write.partitionpath.field"
ORDERING = "hoodie.datasource.write.precombine.field"
TYPE = "hoodie.datasource.write.table.type"
NAME = "hoodie.datasource.write.table.name"
PAYLOAD = "hoodie.datasource.write.payload.class"
MODE = "hoodie.record.merge.mode"
GENERATOR = "hoodie.datasource.write.keygenerator.class"
OPERATION = "hoodie.datasource.write.operation"

COMMON = {
    "hoodie.insert.shuffle.parallelism": 2,
    "hoodie.upsert.shuffle.parallelism": "200",
    "hoodie.bulkinsert.shuffle.parallelism": "200",
    "hoodie.delete.shuffle.parallelism": "200",
    "hoodie.finalize.write.parallelism": "100",
    "hoodie.rollback.parallelism": "100",
    "hoodie.cleaner.parallelism": "200",
    "hoodie.simple.index.parallelism": "100",
    "hoodie.embed.timeline.server": "true",
    "hoodie.embed.timeline.server.port": "0",
    "hoodie.filesystem.view.type": "MEMORY",
    "hoodie.datasource.write.row.writer.enable": "true",
    "hoodie.bulkinsert.sort.mode": "GLOBAL_SORT",
    "hoodie.combine.before.insert": "true",
    "hoodie.combine.before.upsert": "true",
    "hoodie.combine.before.delete": "true",
    "hoodie.datasource.write.insert.drop.duplicates": "false",
    "hoodie.merge.allow.duplicate.on.inserts": "true",
    "hoodie.write.markers.type": "DIRECT",
    "hoodie.rollback.using.markers": "true",
    "hoodie.cleaner.policy.failed.writes": "LAZY",
    "hoodie.memory.merge.max.size": "1073741824",
    "hoodie.memory.spillable.map.path": "/tmp",
    "hoodie.parquet.block.size": "125829120",
    "hoodie.parquet.dictionary.enabled": "true",
    "hoodie.parquet.compression.ratio": "0.1",
    "hoodie.parquet.outputtimestamptype": "TIMESTAMP_MICROS",
    "hoodie.copyonwrite.record.size.estimate": "1024",
    "hoodie.copyonwrite.insert.split.size": "500000",
    "hoodie.keep.min.commits": "20",
    "hoodie.keep.max.commits": "30",
    "hoodie.archive.automatic": "true",
    "hoodie.clean.async": "false",
    "hoodie.compact.inline": "true",
    "hoodie.compact.schedule.inline": "false",
    "hoodie.datasource.compaction.async.enable": "false",
    "hoodie.clustering.inline": "true",
    "hoodie.clustering.inline.max.commits": "4",
    "hoodie.clustering.async.enabled": "false",
    "hoodie.clustering.plan.strategy.sort.columns": "city",
    "hoodie.metadata.auto.initialize": "true",
    "hoodie.metadata.index.column.stats.parallelism": "200",
    "hoodie.metadata.index.bloom.filter.parallelism": "200",
    "hoodie.metadata.record.index.growth.factor": "2.0",
    "hoodie.enable.data.skipping": "true",
    "hoodie.schema.on.read.enable": "false",
    "hoodie.datasource.write.reconcile.schema": "false",
    "hoodie.datasource.hive_sync.enable": "false",
    "hoodie.datasource.hive_sync.database": "lake",
    "hoodie.datasource.meta.sync.enable": False,
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.num_retries": "15",
    "hoodie.write.lock.zookeeper.url": "zk",
    "hoodie.populate.meta.fields": True,
    "hoodie.datasource.write.drop.partition.columns": "false",
    "hoodie.table.base.file.format": "PARQUET",
    "hoodie.logfile.data.block.format": "parquet",
    "hoodie.table.cdc.enabled": "false",
    "hoodie.database.name": "lake",
    "hoodie.datasource.write.streaming.ignore.failed.batch": "false",
    "hoodie.index.bucket.engine": "SIMPLE",
    "hoodie.storage.layout.type": "DEFAULT",
    "hoodie.write.auto.upgrade": "false",
    "hoodie.write.num.retries.on.conflict.failures": "3",
    "hoodie.metrics.on": "true",
    "hoodie.metrics.reporter.type": "PROMETHEUS",
    "hoodie.streamer.source.kafka.topic": "trips",
    "hoodie.deltastreamer.schemaprovider.registry.url": "http://registry",
    "hoodie.datasource.write.partitionpath.urlencode": "false",
    "hoodie.datasource.query.type": "snapshot",
    "hoodie.table.timeline.timezone": "utc",
    "hoodie.precommit.validators": "",
    # options that describe the table
    "hoodie.table.name": "trips",
    NAME: "trips",
    KEY: "id",
    PARTITION: "CITY",
    ORDERING: "ts",
    "hoodie.table.ordering.fields": "ts",
    TYPE: "mor",
    "hoodie.table.type": "MERGE_ON_READ",
    PAYLOAD: PAYLOADS + "DefaultHoodieRecordPayload",
    "hoodie.compaction.payload.class": PAYLOADS + "EventTimeAvroPayload",
    MODE: "EVENT_TIME_ORDERING",
    "hoodie.write.record.merge.mode": "event_time_ordering",
    GENERATOR: "org.apache.hudi.keygen.SimpleKeyGenerator",
    "hoodie.datasource.write.keygenerator.type": "COMPLEX",
    "hoodie.payload.ordering.field": "ts",
}
"""Hudi's options with common values that fit the table of :func:`trips`."""


def trips(options=None, storage=None, **changes):
    arguments = {
        "key": ["id"],
        "partition_by": ["city"],
        "ordering": "ts",
        "options": {"mdt.table.name": "trips"} | (options or {}),
    }
    return mdt.create(storage or MemoryStorage(), SCHEMA, **(arguments | changes))


@pytest.fixture(scope="module")
def table():
    return trips()


@pytest.fixture(autouse=True)
def _no_earlier_warnings():
    session().clear()


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "mdt.metadata"]


@pytest.mark.parametrize(("name", "value"), COMMON.items(), ids=COMMON)
def test_a_common_hudi_option_is_accepted_and_not_stored(name, value, table):
    plain = trips().definition
    created = trips({name: value})
    opened = mdt.open(table.storage, {name: value})
    assert created.definition.options == plain.options
    assert created.options == trips().options
    assert (opened.options, opened.definition) == (table.options, table.definition)


def test_all_common_hudi_options_together_leave_the_definition_unchanged(table):
    created = trips(COMMON)
    created.upsert({"id": ["a"], "n": [1], "city": ["Oslo"], "ts": [1]})
    assert mdt.open(created.storage, COMMON).scan().count() == 1
    assert created.definition.options == table.definition.options
    pinned = mdt.open(created.storage, COMMON, as_of=0)
    assert pinned.scan().count() == 0


CONTRADICTING = {
    "hoodie.combine.before.upsert": ("false", "one row for each key (allowed: true)"),
    "hoodie.datasource.write.insert.drop.duplicates": ("true", "allowed: false … hint: t.merge"),
    "hoodie.datasource.insert.dup.policy": ("drop", "allowed: fail … hint: t.merge"),
    "hoodie.sql.insert.mode": ("strict", "INSERT INTO is an upsert … hint: set the option op"),
    "hoodie.datasource.write.partitions.to.delete": ("a", "hint: call t.delete_partition"),
    "hoodie.table.cdc.enabled": (True, "CDC files … hint: read changes with t.changes"),
    "hoodie.table.partial.update.mode": ("IGNORE_DEFAULTS", "hint: pass partial=True"),
    "hoodie.datasource.merge.type": ("skip_merge", "allowed: payload_combine"),
    "hoodie.write.concurrency.mode": (
        "NON_BLOCKING_CONCURRENCY_CONTROL",
        "conflicts … allowed: single_writer, optimistic_concurrency_control",
    ),
    "hoodie.populate.meta.fields": ("false", "meta columns (allowed: true)"),
    "hoodie.datasource.write.drop.partition.columns": (True, "allowed: false"),
    "hoodie.table.base.file.format": ("ORC", "base files are Parquet files (allowed: PARQUET)"),
    "hoodie.logfile.data.block.format": ("avro", "log blocks contain Parquet (allowed: parquet)"),
    "hoodie.storage.layout.type": ("other", "hint: choose key_index="),
    "hoodie.index.bucket.engine": ("CONSISTENT_HASHING", "buckets is fixed"),
    "hoodie.keygen.timebased.output.timezone": ("UTC", "hint: set hoodie.keygen.timebased."),
    "hoodie.keygen.timebased.timestamp.type": ("SCALAR", "allowed: UNIX_TIMESTAMP"),
    "hoodie.schema.on.read.enable": ("true", "allowed: false) … hint: remove … t.alter"),
    "hoodie.datasource.write.reconcile.schema": ("true", "hint: pass partial=True"),
    "hoodie.datasource.hive_sync.enable": ("true", "metastore … hint: remove"),
    "hoodie.datasource.meta.sync.enable": (True, "=True is not supported: no table is registered"),
    "hoodie.bootstrap.base.path": ("s3://lake/old", "=s3://lake/old is … hint: load the files"),
    "hoodie.precommit.validators": ("my.Validator", "=my.Validator … hint: verify the rows"),
    PAYLOAD: ("com.me.DefaultHoodieRecordPayload", "DefaultHoodieRecordPayload, EventTime"),
    MODE: ("CUSTOM", "=CUSTOM is not supported … allowed: … COMMIT_TIME_ORDERING"),
    GENERATOR: ("my.Generator", "=my.Generator is not supported … hint: remove it"),
}


@pytest.mark.parametrize("name", CONTRADICTING)
def test_an_option_value_that_mdt_does_not_support_is_refused(name, table):
    value, message = CONTRADICTING[name]
    message = f"{name}={value} is not supported" if message.startswith("=") else message
    storage = MemoryStorage()
    refused(message, trips, {name: value}, storage, kind=Unsupported)
    assert not list(storage.list(""))
    refused(message, mdt.open, table.storage, {name: value}, kind=Unsupported)
    refused(message, mdt.adopt, table.storage, options={name: value}, kind=Unsupported)
    refused(message, mdt.repair, table.storage, {name: value}, kind=Unsupported)
    refused(message, table.alter, options={name: value}, kind=Unsupported)
    texts = {"path": "trips", name: str(value)}
    refused(f"{name}={value}", parse_options, texts, kind=Unsupported)


OF_ANOTHER_TABLE = {
    KEY: ("id,n", "is id,n, but the table has key = id … hint: set key in mdt.create"),
    "hoodie.table.recordkey.fields": ("uuid", "is uuid, but the table has key = id"),
    PARTITION: ("", "is , but the table has partition_by = city"),
    ORDERING: ("n", "is n, but the table has ordering = ts … hint: set ordering in mdt.create"),
    "hoodie.table.ordering.fields": ("ts,n", "is ts,n, but the table has ordering = ts"),
    TYPE: ("COPY_ON_WRITE", "is COPY_ON_WRITE, but the table has table_type = MERGE_ON_READ"),
    NAME: ("rides", "is rides, but the table has name = trips … mdt.table.name"),
    PAYLOAD: ("OverwriteWithLatestAvroPayload", "is OverwriteWithLatestAvroPayload, but"),
    MODE: ("COMMIT_TIME_ORDERING", "is COMMIT_TIME_ORDERING, but the table has ordering = ts"),
    GENERATOR: ("NonpartitionedKeyGenerator", "is Nonpa … key = id and partition_by = city"),
    "hoodie.datasource.write.keygenerator.type": ("TIMESTAMP", "is TIMESTAMP, but … key = id"),
    "hoodie.payload.ordering.field": ("n", "is n, but the table has ordering = ts"),
}


@pytest.mark.parametrize("name", OF_ANOTHER_TABLE)
def test_an_option_that_describes_another_table_is_refused(name, table):
    value, message = OF_ANOTHER_TABLE[name]
    storage = MemoryStorage()
    refused(f"{name} {message}", trips, {name: value}, storage)
    assert not list(storage.list(""))
    refused(f"{name} {message}", mdt.open, table.storage, {name: value})
    refused(f"{name} {message}", table.alter, options={name: value})


def test_a_table_without_ordering_accepts_commit_time_payloads_only():
    later = {
        PAYLOAD: "OverwriteWithLatestAvroPayload",
        MODE: "COMMIT_TIME_ORDERING",
        "hoodie.write.record.merge.strategy.id": "ce9acb64-bde0-424c-9b91-f6ebba25356d",
        PARTITION: "",
        ORDERING: "",
        GENERATOR: "org.apache.hudi.keygen.NonpartitionedAvroKeyGenerator",
    }
    created = mdt.create(MemoryStorage(), SCHEMA, ["id"], options=later)
    assert mdt.open(created.storage, later).definition == created.definition
    event_time = {PAYLOAD: PAYLOADS + "DefaultHoodieRecordPayload"}
    refused("ordering = nothing", mdt.open, created.storage, event_time)


def test_key_generator_options_for_times_must_match_the_unit_of_the_column():
    types = "hoodie.keygen.timebased.timestamp.type"
    described = {
        types: "EPOCHMILLISECONDS",
        "hoodie.keygen.timebased.output.dateformat": "yyyy",
        GENERATOR: "org.apache.hudi.keygen.TimestampBasedKeyGenerator",
    }
    created = trips(described, partition_by=["ts"], ordering=None)
    message = "but the table has mdt.partition.time.unit = ms"
    refused(message, mdt.open, created.storage, {types: "UNIX_TIMESTAMP"})
    refused(
        "is SIMPLE, but", mdt.open, created.storage, {"hoodie.table.keygenerator.type": "SIMPLE"}
    )


def test_the_table_name_option_may_be_the_name_of_the_folder(tmp_path):
    name = "hoodie.table.name"
    mdt.create(tmp_path / "rides", SCHEMA, ["id"])
    assert mdt.open(tmp_path / "rides", {name: "rides", NAME: "rides"}).definition.name == "rides"
    refused("this table has 'rides'", mdt.open, tmp_path / "rides", {name: "trips"})


OF_SHARED = {
    KEY: "id",
    PARTITION: "city",
    ORDERING: "v",
    TYPE: "MERGE_ON_READ",
    PAYLOAD: PAYLOADS + "DefaultHoodieRecordPayload",
    "hoodie.upsert.shuffle.parallelism": "2",
}


def test_an_adopted_table_keeps_its_definition_and_stores_no_hudi_option():
    storage, plain = MemoryStorage(), MemoryStorage()
    for each in (storage, plain):
        other_table(each).upsert(batch([1, 2], 1))
    name = other_table(MemoryStorage()).definition.name
    options = {**OF_SHARED, NAME: name, "hoodie.parquet.compression.codec": "zstd"}
    adopted = mdt.adopt(storage, options=options)
    expected = mdt.adopt(plain, options={"mdt.compression": "zstd"})
    assert adopted.definition.options == expected.definition.options
    assert adopted.scan().count() == 2


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (KEY, "city", "is city, but the table has key = id"),
        (PARTITION, "note", "but the table has partition_by = city"),
        (ORDERING, "id", "but the table has ordering = v"),
        (TYPE, "COPY_ON_WRITE", "but the table has table_type = MERGE_ON_READ"),
        (NAME, "other", "but the table has name = "),
        ("hoodie.table.name", "other", "mdt.table.name is fixed at creation"),
        (PAYLOAD, "OverwriteWithLatestAvroPayload", "but the table has ordering = v"),
    ],
)
def test_an_adoption_with_options_of_another_table_is_refused_and_writes_nothing(name, value, said):
    storage = MemoryStorage()
    other_table(storage).upsert(batch([1], 1))
    before = {info.path for info in storage.list("")}
    refused(said, mdt.adopt, storage, options={name: value})
    assert {info.path for info in storage.list("")} == before


def test_merge_options_are_not_compared_with_a_table_of_other_writers(tmp_path):
    storage = fixture("mor_avro_v6_trips_8i1u", tmp_path)
    later = {PAYLOAD: "OverwriteWithLatestAvroPayload", "hoodie.metadata.auto.initialize": "true"}
    plain = mdt.open(storage)
    assert plain.storage.is_imported
    for options in (later, {PAYLOAD: "DefaultHoodieRecordPayload"}):
        assert mdt.open(storage, options).scan().count() == plain.scan().count()
    refused("but the table has table_type", mdt.open, storage, {TYPE: "COPY_ON_WRITE"})


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        (OPERATION, "upsert", "call t.upsert(…)"),
        (OPERATION, "insert_overwrite_table", "call t.insert_overwrite_table(…)"),
        (OPERATION, "boost", "call t.upsert, t.insert"),
        ("hoodie.datasource.query.type", "incremental", "t.changes(since, until)"),
        ("hoodie.datasource.query.type", "read_optimized", "query_type='read_optimized'"),
        ("hoodie.datasource.read.begin.instanttime", "20240101", "t.changes(since, until)"),
        ("hoodie.datasource.read.end.instanttime", "20240101", "t.changes(since, until)"),
        ("as.of.instant", "20240101", "mdt.open(path, as_of=…)"),
    ],
)
def test_an_option_of_one_read_or_write_gets_the_python_call_as_a_hint(name, value, hint, table):
    message = f"{name}={value} is an option of one read or write, not of a table … hint: … {hint}"
    refused(
        message.replace("… hint: … call", "… hint: call"), mdt.open, table.storage, {name: value}
    )
    refused("is an option of one read or write", trips, {name: value})


def test_an_ignored_option_is_warned_of_once_per_name(table, caplog):
    caplog.set_level(logging.WARNING)
    options = {
        "hoodie.upsert.shuffle.parallelism": "secret",
        "hoodie.metrics.on": "true",
        "hoodie.metrics.reporter.type": "JMX",
        "hoodie.populate.meta.fields": "true",
        KEY: "id",
        MODE: "EVENT_TIME_ORDERING",
    }
    for _ in range(2):
        trips(options)
        mdt.open(table.storage, options)
        parse_options({"path": "trips", **{name.upper(): text for name, text in options.items()}})
    logged = warnings(caplog)
    assert [line.split()[0] for line in logged] == list(options)[:3]
    assert "the size of the data and Spark determine the number of tasks" in logged[0]
    assert "secret" not in "".join(logged)


def test_altering_an_option_without_effect_is_not_a_commit():
    created = trips()
    seq = created.snapshot().seq
    assert created.alter(options={"hoodie.metadata.auto.initialize": "true", KEY: "id"}).seq == seq
    assert created.alter(options={"hoodie.metadata.auto.initialize": None, KEY: None}).seq == seq
    changed = created.alter(
        options={"hoodie.metadata.auto.initialize": "true", "mdt.page.bytes": 512}
    )
    assert changed.seq == seq + 1
    assert created.definition.options["mdt.page.bytes"] == "512"
    assert "hoodie.metadata.auto.initialize" not in created.definition.options
    refused("no alteration was given", created.alter, options={})


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("hoodie.upsert.shuffel.parallelism", "did you mean hoodie.upsert.shuffle.parallelism"),
        ("hoodie.metadata.enabled", "did you mean hoodie.metadata.enable?"),
        ("hoodie.datasource.write.recordkey.fields", f"did you mean {KEY}"),
        ("hoodie.parquet.max.file.sizes", "did you mean hoodie.parquet.max.file.size"),
        ("hoodie.nothing", ""),
    ],
)
def test_a_typo_gets_a_suggestion(name, hint, table):
    refused(f"unknown option '{name}' … {hint}", mdt.open, table.storage, {name: "1"})
    refused(f"unknown option '{name}' … {hint}", trips, {name: "1"})
    refused(f"unknown option '{name}' … {hint}", table.alter, options={name: None})
    refused(f"unknown option '{name}'", parse_options, {"path": "trips", name: "1"})


def test_spark_suggests_hudi_names_without_an_mdt_equivalent_too():
    name = "hoodie.metadata.enabled"
    refused("mean hoodie.metadata.enable?", parse_options, {"path": "t", name: "true"})


def test_spark_accepts_all_common_hudi_options():
    parsed = parse_options({"path": "trips", **{n: str(v) for n, v in COMMON.items()}})
    assert parsed.table["key"] == ("id",)
    assert parsed.options == {}
    assert parsed.described[MODE] == "EVENT_TIME_ORDERING"
    assert GENERATOR not in parsed.described and "hoodie.metrics.on" not in parsed.described


@pytest.mark.parametrize("name", ["Simple", "Complex", "Nonpartitioned", "TimestampBased"])
def test_spark_accepts_every_key_generator_of_hudi(name):
    text = f"org.apache.hudi.keygen.{name}KeyGenerator"
    assert parse_options({"path": "trips", GENERATOR: text}).described == {}


def test_names_of_hudi_options_are_lower_case_and_unique():
    listed = [name for option in hudi_options.TABLE for name in option.names]
    assert len(listed) == len(set(listed)) > 200
    assert [name for name in listed if name != name.lower()] == []
    assert [name for name in listed if name in OPTIONS or name in CALL_OPTIONS] == []


def test_no_ignored_prefix_matches_misspelled_names_of_mdt_options():
    def is_ignored(name):
        option = hudi_options.find(name + "x")
        return option is not None and option.accepted is None

    assert [name for name in (*OPTIONS, *CALL_OPTIONS) if is_ignored(name)] == []


def test_an_exact_name_takes_precedence_over_a_prefix():
    assert hudi_options.find("hoodie.datasource.hive_sync.enable").accepted == ("false",)
    assert hudi_options.find("hoodie.datasource.hive_sync.mode").accepted is None
    keygen = hudi_options.find("hoodie.deltastreamer.keygen.timebased.timezone")
    assert keygen.accepted == ()
    assert hudi_options.find("hoodie.deltastreamer.source.dfs.root").accepted is None
    assert hudi_options.find("hoodie.") is hudi_options.find(5) is None


def test_the_page_of_hudi_options_ends_with_the_table_of_all_options():
    page = (ROOT / "docs/hudi-options.md").read_text()
    assert page.endswith(hudi_options_reference()), (
        "write hudi_options_reference() to the end of docs/hudi-options.md"
    )


def test_the_reference_lists_every_hudi_name_once():
    text = hudi_options_reference()
    aliases = [name for table in (OPTIONS, CALL_OPTIONS) for name in table]
    hudis = {name for name in aliases if name.startswith("hoodie.")}
    listed = hudis | set(hudi_options.names())
    listed_twice = {"hoodie.table.name"}  # an option of the session and of a call
    assert {name for name in listed if text.count(f"`{name}`") != 1} == listed_twice
