"""Options of Hudi that have no equal here, so that the options of a Hudi job can stay.

:data:`TABLE` has one entry for each of them:

- An option without effect is accepted. A warning says once in a process what mdt does instead.
- An option with ``accepted`` values must have one of them, because mdt does nothing else.
- An option with ``agreeing`` values describes the table, and must fit its definition.

Hudi's names of options of mdt are declared in :mod:`mdt.config`. :mod:`mdt.given_options` reads the
options of a call. No option of this module is ever stored with a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from mdt import logs
from mdt.config import OPTIONS
from mdt.errors import Invalid, Unsupported
from mdt.schema.time_paths import TEXT, UNITS
from mdt.session import in_session

if TYPE_CHECKING:
    from mdt.schema.definition import TableDefinition

_HUDI = "org.apache.hudi."
_SHOWN_CHARACTERS_MAX = 80


@dataclass(frozen=True, slots=True)
class HudiOption:
    """Options of Hudi with the same meaning here.

    Attributes:
        names: Names in lower case. A name that ends with a dot stands for all names that begin with
            it.
        here: What mdt does instead.
        accepted: Values, or simple names of Hudi's classes, in any case. None for any value.
        hint: What to do about another value.
        agreeing: Function from a table's definition to the accepted values that fit it.
        decided_by: Fields of the definition, or options, on which ``agreeing`` depends.
        is_compared_on_spark: False if Spark's catalog may have tables with a value that does not
            fit, because older versions did not compare it.
    """

    names: tuple[str, ...]
    here: str
    accepted: tuple[str, ...] | None = None
    hint: str = "remove the option"
    agreeing: Callable[[TableDefinition], tuple[str, ...]] | None = None
    decided_by: tuple[str, ...] = ()
    is_compared_on_spark: bool = True

    def check(self, name: str, value: object) -> None:
        """Accept a value, with a warning if the option has no effect. Raises Unsupported for a
        value that contradicts what mdt does.
        """
        if self.accepted is None:
            if self.agreeing is None:
                logs.warn_once(
                    logs.METADATA, _warned(), name.lower(), "%s has no effect: %s", name, self.here
                )
        elif not _is_among(value, self.accepted):
            allowed = ""
            if self.accepted:
                allowed = f" (allowed: {', '.join(self.accepted)})"
            raise Unsupported(
                f"{name}={shown(value)} is not supported: {self.here}{allowed}", hint=self.hint
            )

    def require(self, name: str, value: object, definition: TableDefinition) -> None:
        """Raise Invalid if a value does not fit a table."""
        if self.agreeing is None or _is_among(value, self.agreeing(definition)):
            return
        facts = " and ".join(_fact(definition, each) for each in self.decided_by)
        raise Invalid(f"{name} is {shown(value)}, but the table has {facts}", hint=self.hint)


def _no_effect(names: str, here: str) -> HudiOption:
    return HudiOption(tuple(names.split()), here)


def _only(accepted: str, names: str, here: str, hint: str = "remove the option") -> HudiOption:
    return HudiOption(tuple(names.split()), here, tuple(accepted.split()), hint)


def _of_table(
    names: str,
    here: str,
    accepted: tuple[str, ...] | None,
    hint: str,
    agreeing: Callable[[TableDefinition], tuple[str, ...]],
    *decided_by: str,
    is_compared_on_spark: bool = True,
) -> HudiOption:
    return HudiOption(
        tuple(names.split()), here, accepted, hint, agreeing, decided_by, is_compared_on_spark
    )


# Options that describe the table

_EVENT_TIME = (
    "DefaultHoodieRecordPayload",
    "EventTimeAvroPayload",
    "EVENT_TIME_ORDERING",
    "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5",
)
_COMMIT_TIME = (
    "OverwriteWithLatestAvroPayload",
    "COMMIT_TIME_ORDERING",
    "ce9acb64-bde0-424c-9b91-f6ebba25356d",
)


def _generators(name: str, kind: str) -> tuple[str, ...]:
    return (f"{name}KeyGenerator", f"{name}AvroKeyGenerator", kind, f"{kind}_AVRO")


_SIMPLE = _generators("Simple", "SIMPLE")
_COMPLEX = _generators("Complex", "COMPLEX")
_NOT_PARTITIONED = _generators("Nonpartitioned", "NON_PARTITION")
_TIME_BASED = _generators("TimestampBased", "TIMESTAMP")


def _merges(definition: TableDefinition) -> tuple[str, ...]:
    if not definition.ordering:
        return _COMMIT_TIME
    return _EVENT_TIME


def _key_generators(definition: TableDefinition) -> tuple[str, ...]:
    if definition.time_path is not None:
        return _TIME_BASED
    generators = _COMPLEX
    if len(definition.key) == 1 and len(definition.partition_by) <= 1:
        generators += _SIMPLE
    if not definition.partition_by:
        generators += _NOT_PARTITIONED
    return generators


def _time_types(definition: TableDefinition) -> tuple[str, ...]:
    """Return Hudi's names of the units of a partition column. Only integers have a unit."""
    path = definition.time_path
    if path is not None and path.input:
        return (TEXT,)
    if path is not None:
        column = definition.schema.field(definition.partition_by[0])
        if pa.types.is_integer(column.type):
            return (UNITS[path.unit],)
    return tuple(UNITS.values())


_DESCRIBING = (
    _of_table(
        "hoodie.datasource.write.payload.class hoodie.compaction.payload.class"
        " hoodie.record.merge.mode hoodie.write.record.merge.mode hoodie.record.merge.strategy.id"
        " hoodie.write.record.merge.strategy.id hoodie.datasource.write.record.merger.strategy"
        " hoodie.compaction.record.merger.strategy",
        "in a table with an ordering column the larger value wins, in others the later write",
        _EVENT_TIME + _COMMIT_TIME,
        "set ordering in mdt.create, or remove the option; t.upsert(…, mergers=…) merges columns",
        _merges,
        "ordering",
    ),
    _of_table(
        "hoodie.datasource.write.keygenerator.class hoodie.datasource.write.keygenerator.type"
        " hoodie.table.keygenerator.class hoodie.table.keygenerator.type",
        "key, partition_by and mdt.partition.time.pattern determine keys and partition paths",
        _SIMPLE + _COMPLEX + _NOT_PARTITIONED + _TIME_BASED,
        "remove it: it follows from key, partition_by and mdt.partition.time.*",
        _key_generators,
        "key",
        "partition_by",
        is_compared_on_spark=False,
    ),
    _of_table(
        "hoodie.keygen.timebased.timestamp.type",
        "mdt.partition.time.unit is the unit of integers in a partition column with a pattern",
        (*UNITS.values(), TEXT),
        "set mdt.partition.time.unit in mdt.create, or remove the option",
        _time_types,
        "mdt.partition.time.unit",
    ),
    _of_table(
        "hoodie.write.complex.keygen.new.encoding",
        "mdt.key.names.column decides whether the record key of a single key column has its name",
        ("true", "false"),
        "set mdt.key.names.column in mdt.create, or remove the option",
        lambda definition: (str(not definition.names_key).lower(),),
        "mdt.key.names.column",
    ),
    _of_table(
        "hoodie.payload.ordering.field",
        "rows are compared by the ordering column of the table",
        None,
        "set ordering in mdt.create, or remove the option",
        lambda definition: tuple(filter(None, (",".join(definition.ordering),))),
        "ordering",
    ),
)

# Options with certain values

_MERGE = (
    "t.merge(rows).when_not_matched().insert() leaves out existing keys, as does SQL MERGE INTO;"
    " t.upsert replaces rows"
)
_BY_OPERATION = "set the option operation in df.write, or call t.insert or t.bulk_insert"

_CERTAIN = (
    _only(
        "true",
        "hoodie.combine.before.upsert",
        "an upsert writes one row for each key",
        "remove the option; mdt.keys.repeat=true allows several rows for a key",
    ),
    _only(
        "false",
        "hoodie.datasource.write.insert.drop.duplicates",
        "insert refuses keys that exist",
        _MERGE,
    ),
    _only("fail", "hoodie.datasource.insert.dup.policy", "insert refuses keys that exist", _MERGE),
    _only(
        "upsert",
        "hoodie.sql.insert.mode hoodie.spark.sql.insert.into.operation",
        "INSERT INTO is an upsert",
        _BY_OPERATION,
    ),
    _only("false", "hoodie.sql.bulk.insert.enable", "INSERT INTO is an upsert", _BY_OPERATION),
    _only(
        "",
        "hoodie.datasource.overwrite.mode",
        "the option overwrite_mode or spark.sql.sources.partitionOverwriteMode decides",
        "use overwrite_mode in df.write, or t.insert_overwrite(rows)",
    ),
    _only(
        "",
        "hoodie.datasource.write.partitions.to.delete",
        "no option of a write deletes partitions",
        "call t.delete_partition(…), or CALL mdt.delete_partition(…) in SQL",
    ),
    _only(
        "false latest_state",
        "hoodie.table.cdc.enabled hoodie.datasource.query.incremental.format",
        "Hudi's CDC files are not written or read",
        "read changes with t.changes(since, until), on Spark with the options since and changes"
        " (net or all)",
    ),
    _only(
        "HoodieAvroRecordMerger HoodieSparkRecordMerger",
        "hoodie.datasource.write.record.merger.impls"
        " hoodie.write.record.merge.custom.implementation.classes",
        "rows are merged by the ordering column or by commit",
        "merge columns with t.upsert(…, mergers=…), or remove the option",
    ),
    _only(
        "NONE",
        "hoodie.table.partial.update.mode",
        "an upsert replaces whole rows unless partial is true",
        "pass partial=True to t.upsert, on Spark the option partial",
    ),
    _only(
        "payload_combine",
        "hoodie.datasource.merge.type",
        "a query returns one row for each key",
    ),
    _only("false", "hoodie.realtime.merge.skip", "a query returns one row for each key"),
    _only(
        "single_writer optimistic_concurrency_control",
        "hoodie.write.concurrency.mode",
        "writers detect conflicts when they commit, and try again",
    ),
    _only("true", "hoodie.populate.meta.fields", "rows have Hudi's meta columns"),
    _only(
        "false",
        "hoodie.datasource.write.drop.partition.columns",
        "data files contain the partition columns",
    ),
    _only(
        "false",
        "hoodie.datasource.read.extract.partition.values.from.path",
        "partition values are read from data files",
    ),
    _only(
        "PARQUET",
        "hoodie.table.base.file.format hoodie.base.file.format hoodie.table.ro.file.format",
        "base files are Parquet files",
    ),
    _only(
        "false",
        "hoodie.table.multiple.base.file.formats.enable hoodie.partition.metafile.use.base.format",
        "base files are Parquet files, and .hoodie_partition_metadata is a text",
    ),
    _only("HOODIE_LOG", "hoodie.table.log.file.format", "log files have Hudi's format"),
    _only("parquet", "hoodie.logfile.data.block.format", "log blocks contain Parquet"),
    _only(
        "default bucket",
        "hoodie.storage.layout.type",
        "the key index determines the file groups of new rows",
        "choose key_index=\"bucket(buckets='8')\" in mdt.create, or remove the option",
    ),
    _only(
        "simple",
        "hoodie.index.bucket.engine",
        "the number of buckets is fixed when a table is created",
    ),
    _only("UTC", "hoodie.table.timeline.timezone", "instants are in UTC"),
    _only(
        "false",
        "hoodie.datasource.write.slash.separated.date.partitioning",
        "dates form one level of a partition path",
        "set mdt.partition.time.pattern to yyyy/MM/dd in mdt.create",
    ),
    _only(
        "",
        "hoodie.keygen.timebased. hoodie.deltastreamer.keygen.timebased.",
        "partition paths of times follow from mdt.partition.time.pattern, unit and zone",
        "set hoodie.keygen.timebased.output.dateformat and hoodie.keygen.timebased.timezone",
    ),
    _only(
        "false",
        "hoodie.schema.on.read.enable",
        "tables keep versions of their schema without this option",
        "remove the option; t.alter renames, widens and drops columns",
    ),
    _only(
        "false",
        "hoodie.datasource.write.reconcile.schema hoodie.write.set.null.for.missing.columns",
        "an upsert refuses rows without all columns, unless partial or evolve is true",
        "pass partial=True or evolve=True to t.upsert, on Spark the options of these names",
    ),
    _only(
        "false",
        "hoodie.datasource.write.schema.allow.auto.evolution.column.drop",
        "a write drops no columns",
        "call t.alter(drop=[…])",
    ),
    _only(
        "false",
        "hoodie.datasource.hive_sync.enable hoodie.datasource.meta.sync.enable",
        "writes do not register tables in a metastore",
        "remove the option, and call mdt.register(t, HiveMetastore('thrift://…'), 'db.name')",
    ),
    _only("true", "hoodie.auto.commit", "each write is a commit"),
    _only("false", "hoodie.write.ignore.failed", "a write with invalid rows fails"),
    _only("false", "hoodie.allow.operation.metadata.field", "rows have Hudi's five meta columns"),
    _only(
        "false",
        "hoodie.partition.ttl.inline",
        "rows do not expire",
        "call t.delete_where(…) in a job",
    ),
    _only("false", "hoodie.write.commit.callback.on", "commits call nothing"),
    _only(
        "",
        "hoodie.precommit.validators hoodie.prewrite.validators",
        "no classes of Java run before a commit",
        "verify the rows before the write, and remove the option",
    ),
    _only(
        "",
        "hoodie.bootstrap.base.path",
        "tables that Hudi has bootstrapped are not supported",
        "load the files with t.bulk_insert(rows)",
    ),
    _only(
        "",
        "hoodie.datasource.read.incr.path.glob hoodie.datasource.read.incr.filters",
        "changes are read without these filters",
        "filter the rows of t.changes(since, until)",
    ),
    _only(
        "false",
        "hoodie.datasource.read.incr.fallback.fulltablescan.enable",
        "changes whose files are deleted raise Expired",
        "read the whole table with t.scan(), or keep more states (mdt.clean.*)",
    ),
    _only(
        "",
        "hoodie.datasource.streaming.startoffset",
        "a stream starts after the point in the option since",
        "set the option since",
    ),
)

# Options without effect

_WITHOUT_EFFECT = (
    _no_effect(
        "hoodie.insert.shuffle.parallelism hoodie.upsert.shuffle.parallelism"
        " hoodie.bulkinsert.shuffle.parallelism hoodie.delete.shuffle.parallelism"
        " hoodie.finalize.write.parallelism hoodie.rollback.parallelism"
        " hoodie.cleaner.parallelism hoodie.clean.parallelism hoodie.simple.index.parallelism"
        " hoodie.global.simple.index.parallelism hoodie.global.index.reconcile.parallelism"
        " hoodie.archive.delete.parallelism hoodie.markers.delete.parallelism"
        " hoodie.file.listing.parallelism hoodie.clustering.max.parallelism"
        " hoodie.clustering.group.read.parallelism",
        "the size of the data and Spark determine the number of tasks; mdt.writer.threads and"
        " mdt.reader.threads limit the threads of a process",
    ),
    _no_effect(
        "hoodie.embed.timeline.server hoodie.embed.timeline.server. hoodie.filesystem.view."
        " hoodie.filesystem.remote.backup.view.enable",
        "there is no timeline server; each process reads the log of the table",
    ),
    _no_effect(
        "hoodie.datasource.write.row.writer.enable hoodie.spark.sql.optimized.writes.enable"
        " hoodie.write.executor. hoodie.write.buffer. hoodie.avro.schema.validate"
        " hoodie.schema.cache.enable",
        "rows are written as Arrow data",
    ),
    _no_effect(
        "hoodie.bulkinsert.sort.mode hoodie.bulkinsert.user.defined.partitioner."
        " hoodie.bulkinsert.are.partitioner.records.sorted"
        " hoodie.bulkinsert.sort.suffix.record_key",
        "a bulk insert sorts rows by key; t.cluster(by) sorts them by other columns",
    ),
    _no_effect(
        "hoodie.combine.before.insert hoodie.merge.allow.duplicate.on.inserts",
        "insert refuses keys that exist or repeat; insert(check=False) adds rows to a table with"
        " mdt.keys.repeat",
    ),
    _no_effect("hoodie.combine.before.delete", "a delete may name a key several times"),
    _no_effect(
        "hoodie.write.markers.type hoodie.markers. hoodie.rollback.using.markers",
        "writes put markers for Hudi, files on a disk and lists on object storage",
    ),
    _no_effect(
        "hoodie.clean.failed.writes.policy hoodie.cleaner.policy.failed.writes"
        " hoodie.client.heartbeat. hoodie.rollback.instant.backup."
        " hoodie.rollback.avoid.duplicate.plan",
        "later writes remove unfinished ones after mdt.rollback.after.seconds",
    ),
    _no_effect(
        "hoodie.memory. hoodie.common.spillable.diskmap.type hoodie.common.diskmap."
        " hoodie.file.index.cache.",
        "mdt.write.memory.max and mdt.cache.memory.max limit the memory",
    ),
    _no_effect(
        "hoodie.write.status.storage.level hoodie.write.tagged.record.storage.level"
        " hoodie.bloom.index.input.storage.level hoodie.simple.index.input.storage.level"
        " hoodie.simple.index.use.caching hoodie.record.index.input.storage.level"
        " hoodie.record.index.use.caching hoodie.bloom.index.bucketized.checking"
        " hoodie.bloom.index.fileid.key.sorting.enable",
        "look-ups of keys store no data in Spark",
    ),
    _no_effect(
        "hoodie.parquet.block.size", "mdt.row.group.rows limits the rows of a Parquet row group"
    ),
    _no_effect(
        "hoodie.parquet.dictionary.enabled hoodie.parquet.writelegacyformat.enabled"
        " hoodie.parquet.outputtimestamptype hoodie.parquet.field_id.write.enabled",
        "the type and the values of a column determine its form in Parquet",
    ),
    _no_effect(
        "hoodie.parquet.bloom.filter.enabled",
        "mdt.write.footer.bloom decides about Hudi's Bloom filters in footers",
    ),
    _no_effect(
        "hoodie.parquet.compression.ratio hoodie.logfile.to.parquet.compression.ratio"
        " hoodie.copyonwrite.record.size.estimate hoodie.record.size."
        " hoodie.copyonwrite.insert.split.size hoodie.copyonwrite.insert.auto.split"
        " hoodie.merge.small.file.group.candidates.limit",
        "mdt estimates the size of rows from their values and existing files; mdt.max.file.bytes"
        " and mdt.small.file.bytes limit files",
    ),
    _no_effect(
        "hoodie.logfile.max.size hoodie.logfile.data.block.max.size",
        "a write adds a log file to a file group, or a new base file",
    ),
    _no_effect(
        "hoodie.keep.min.commits hoodie.keep.max.commits hoodie.commits.archival.batch"
        " hoodie.archive.automatic hoodie.archive.async hoodie.archive.merge."
        " hoodie.archive.beyond.savepoint hoodie.fail.on.timeline.archiving",
        "the log and the timeline are archived after cleaning, as far as mdt.clean.* allows",
    ),
    _no_effect(
        "hoodie.clean.async hoodie.clean.async.enabled hoodie.cleaner.incremental.mode"
        " hoodie.clean.incremental.enabled hoodie.clean.max.commits hoodie.clean.trigger.strategy"
        " hoodie.clean.trigger.max.commits hoodie.clean.allow.multiple"
        " hoodie.clean.multiple.enabled hoodie.cleaner.delete.bootstrap.base.file"
        " hoodie.clean.delete.bootstrap.base.file",
        "cleaning runs after writes when it is due; mdt.clean.auto=false turns it off",
    ),
    _no_effect(
        "hoodie.compact.inline hoodie.compact.schedule.inline"
        " hoodie.compact.inline.trigger.strategy hoodie.compact.inline.max.delta.seconds"
        " hoodie.datasource.compaction.async.enable hoodie.compaction.strategy"
        " hoodie.compaction.target.io hoodie.compaction.lazy.block.read"
        " hoodie.compaction.reverse.log.read hoodie.compaction.daybased.target.partitions"
        " hoodie.compaction.logfile.num.threshold hoodie.compaction.logfile.size.threshold"
        " hoodie.log.compaction. hoodie.fail.writes.on.inline.table.service.exception",
        "file groups are compacted after writes when it is due, or by t.compact();"
        " mdt.services.auto=false turns it off",
    ),
    _no_effect(
        "hoodie.clustering.inline hoodie.clustering.inline.max.commits"
        " hoodie.clustering.schedule.inline hoodie.clustering.async.enabled"
        " hoodie.clustering.async.max.commits hoodie.datasource.clustering.inline.enable"
        " hoodie.datasource.clustering.async.enable hoodie.clustering.execution.strategy.class"
        " hoodie.clustering.updates.strategy hoodie.clustering.plan.partition.filter.mode"
        " hoodie.clustering.rollback.pending.replacecommit.on.conflict"
        " hoodie.clustering.plan.strategy.class hoodie.clustering.plan.strategy.sort.columns"
        " hoodie.clustering.plan.strategy.small.file.limit"
        " hoodie.clustering.plan.strategy.target.file.max.bytes"
        " hoodie.clustering.plan.strategy.max.num.groups"
        " hoodie.clustering.plan.strategy.daybased.lookback.partitions"
        " hoodie.clustering.plan.strategy.daybased.skipfromlatest.partitions"
        " hoodie.clustering.plan.strategy.partition.selected"
        " hoodie.clustering.plan.strategy.partition.regex.pattern hoodie.layout.optimize.",
        "small files are joined after writes; t.cluster(by) sorts a table or partitions of it",
    ),
    _no_effect(
        "hoodie.metadata.auto.initialize"
        " hoodie.metadata.auto.delete.partitions hoodie.metadata.fallback.enable"
        " hoodie.metadata.metrics.enable hoodie.metadata.max.init.parallelism"
        " hoodie.metadata.max.reader.memory hoodie.metadata.max.reader.buffer.size"
        " hoodie.metadata.log.compaction.enable hoodie.metadata.streaming.write.enabled",
        "mdt.hudi.metadata keeps Hudi's metadata table with its partition files",
    ),
    _no_effect(
        "hoodie.metadata.index.async hoodie.metadata.index.bloom.filter.column.list"
        " hoodie.metadata.index.bloom.filter.file.group.count"
        " hoodie.metadata.index.bloom.filter.parallelism"
        " hoodie.metadata.index.secondary.column hoodie.metadata.index.expression.enable",
        "key_index and indexes in mdt.create decide about indexes; t.create_index adds one",
    ),
    _no_effect(
        "hoodie.metadata.record.index.min.filegroup.count"
        " hoodie.metadata.record.index.max.filegroup.count"
        " hoodie.metadata.record.index.growth.factor"
        " hoodie.metadata.global.record.level.index.min.filegroup.count"
        " hoodie.metadata.global.record.level.index.max.filegroup.count",
        "mdt.hudi.record.index has one file group, or one for each partition",
    ),
    _no_effect(
        "hoodie.metadata.index.column.stats.file.group.count"
        " hoodie.metadata.index.column.stats.parallelism"
        " hoodie.metadata.index.column.stats.max.columns.to.index"
        " hoodie.metadata.index.column.stats.processing.mode.override",
        "columns have statistics, those of mdt.column.stats.columns",
    ),
    _no_effect(
        "hoodie.enable.data.skipping hoodie.fileindex.dataskippingfailuremode"
        " hoodie.file.index.enable hoodie.datasource.read.file.index.listing.mode"
        " hoodie.datasource.read.use.new.parquet.file.format hoodie.file.group.reader.enabled"
        " hoodie.optimized.log.blocks.scan.enable hoodie.merge.use.record.positions"
        " hoodie.bucket.index.query.pruning",
        "scans skip files by statistics and indexes",
    ),
    _no_effect(
        "hoodie.datasource.hive_sync. hoodie.datasource.meta_sync. hoodie.meta.sync."
        " hoodie.meta_sync. hoodie.datasource.meta.sync.base.path"
        " hoodie.datasource.partition_extractor_class hoodie.table.partition_extractor_class",
        "mdt.register enters a table in a metastore",
    ),
    _no_effect(
        "hoodie.write.num.retries.on.conflict.failures hoodie.write.concurrency.early."
        " hoodie.write.concurrency.async."
        " hoodie.write.concurrency.schema.conflict.resolution.enable",
        "a write with a conflict starts again, mdt.commit.attempts times",
    ),
    _no_effect(
        "hoodie.write.lock.num_retries hoodie.write.lock.wait_time_ms_between_retry"
        " hoodie.write.lock.max_wait_time_ms_between_retry hoodie.write.lock.client.num_retries"
        " hoodie.write.lock.client.wait_time_ms_between_retry"
        " hoodie.write.lock.heartbeat_interval_ms hoodie.write.lock.conflict.resolution.strategy"
        " hoodie.write.lock.storage. hoodie.auto.adjust.lock.configs",
        "mdt.lock.wait.ms limits the wait for a lock; the other times are fixed",
    ),
    _no_effect(
        "hoodie.write.lock.zookeeper. hoodie.write.lock.dynamodb. hoodie.write.lock.hivemetastore.",
        "only locks of mdt.lock.provider are used",
    ),
    _no_effect(
        "hoodie.database.name hoodie.incremental.use.database",
        "hoodie.properties of a new table has the database default",
    ),
    _no_effect(
        "hoodie.datasource.write.partitionpath.urlencode",
        "values in partition paths are encoded, except those with mdt.partition.time.pattern",
    ),
    _no_effect(
        "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled"
        " hoodie.write.complex.keygen.validation.enable hoodie.skip.default.partition.validation",
        "the type of a column determines the text of its values in keys and paths",
    ),
    _no_effect(
        "hoodie.bucket.index.min.num.buckets hoodie.bucket.index.max.num.buckets"
        " hoodie.bucket.index.split.threshold hoodie.bucket.index.merge.threshold"
        " hoodie.bucket.index.remote.partitioner.enable hoodie.storage.layout.partitioner.class",
        "mdt.bucket.count is fixed when a table is created",
    ),
    _no_effect("hoodie.write.auto.upgrade", "a table keeps the version of its creation"),
    _no_effect(
        "hoodie.table.cdc.supplemental.logging.mode", "Hudi's CDC files are not written or read"
    ),
    _no_effect(
        "hoodie.datasource.write.streaming.",
        "a batch of a stream is written once; if it fails, the query stops",
    ),
    _no_effect(
        "hoodie.datasource.write.commitmeta.key.prefix",
        "metadata= and the options commit.metadata.* annotate commits",
    ),
    _no_effect("hoodie.payload.event.time.field", "commits have no event times"),
    _no_effect(
        "hoodie.consistency.check. hoodie.filesystem.operation.retry.",
        "the client of the object store repeats failed requests",
    ),
    _no_effect(
        "hoodie.metrics. hoodie.metricscompaction.",
        "Python's logging has a line for each commit and service (loggers below mdt)",
    ),
    _no_effect("hoodie.write.commit.callback.", "commits call nothing"),
    _no_effect(
        "hoodie.streamer. hoodie.deltastreamer. hoodie.bootstrap.",
        "mdt has no Hudi Streamer and no bootstrap",
    ),
)

TABLE: tuple[HudiOption, ...] = (*_DESCRIBING, *_CERTAIN, *_WITHOUT_EFFECT)


def _by_name() -> dict[str, HudiOption]:
    named: dict[str, HudiOption] = {}
    for known in TABLE:
        named |= dict.fromkeys(known.names, known)
    return named


_NAMED: Mapping[str, HudiOption] = _by_name()


@in_session
def _warned() -> set[str]:
    """Return the names of options about which this process has warned."""
    return set()


def find(name: object) -> HudiOption | None:
    """Return the entry of an option of Hudi, in any case, or None for an unknown name. An exact
    name wins over a longer, and that over a shorter prefix.

    >>> find("hoodie.metrics.on").names[0], find("hoodie.unknown")
    ('hoodie.metrics.', None)
    """
    fold = str(name).lower()
    while fold and fold not in _NAMED:
        fold = fold.removesuffix(".").rpartition(".")[0] + "."
        if fold == ".":
            return None
    return _NAMED.get(fold)


def names() -> Iterator[str]:
    """Yield all names, without prefixes."""
    return (name for name in _NAMED if not name.endswith("."))


def _is_among(value: object, accepted: tuple[str, ...]) -> bool:
    text = str(value).strip().lower()
    if text.startswith(_HUDI):
        text = text.rpartition(".")[2]
    return text in map(str.lower, accepted)


def shown(value: object) -> str:
    """Return the text of a value for messages, cut to 80 characters."""
    return str(value)[:_SHOWN_CHARACTERS_MAX]


def text_of(value: object) -> str:
    """Return the text of a field of a definition for messages.

    >>> text_of(("id", "n")), text_of(())
    ('id, n', 'nothing')
    """
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "nothing"
    return str(value)


def _fact(definition: TableDefinition, name: str) -> str:
    if name in OPTIONS:
        return f"{name} = {getattr(definition.parsed, OPTIONS.find(name).member)}"
    return f"{name} = {text_of(getattr(definition, name))}"
