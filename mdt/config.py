"""All options, with name, scope, type, default, Hudi's names and meaning.

:class:`Options` has the options of a table and of the program that opens it, :class:`CallOptions`
those of a read or write by name on Spark, and :class:`mdt.spark_settings.SparkSettings` those of a
Spark session. All code that reads options, and docs/options.md, derive from these three classes.

Values may be text, as in Spark and ``hoodie.properties``. Unknown names, wrong types and values out
of range are refused. Only options of the scope ``table`` (:data:`mdt.option.Scope`) are written
into a table or read from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import pyarrow as pa

from mdt import limits
from mdt.arguments import mapping as checked_mapping
from mdt.errors import Invalid
from mdt.option import (
    CATALOG_TABLE,
    COLUMN,
    COLUMNS,
    PARTITIONS,
    POINT,
    SOME_COLUMNS,
    SPECS,
    TEXT,
    WORD,
    Option,
    OptionTable,
    Scope,
    choice,
    option,
    real,
    some_of,
    to_text,
    whole,
)
from mdt.session import memo

INDEX_TYPES: Mapping[str, tuple[str, str]] = {
    "BLOOM": ("bloom", "partition"),
    "GLOBAL_BLOOM": ("bloom", "table"),
    "SIMPLE": ("simple", "partition"),
    "GLOBAL_SIMPLE": ("simple", "table"),
    "RECORD_INDEX": ("record", "table"),
    "BUCKET": ("bucket", "partition"),
    "INMEMORY": ("memory", "table"),
    "GLOBAL_RECORD_LEVEL_INDEX": ("record", "table"),
    "RECORD_LEVEL_INDEX": ("record", "partition"),
}
"""Hudi's index names, each with its key index and scope here."""

_LOCK_PROVIDERS: Mapping[str, str] = {
    "org.apache.hudi.client.transaction.lock.filesystembasedlockprovider": "file_system",
    "org.apache.hudi.client.transaction.lock.storagebasedlockprovider": "storage",
}
"""Hudi's lock providers in lower case, each with its name here."""

IN_KEY_INDEX = ("mdt.index.type", "mdt.bucket.count", "mdt.bucket.fields")
"""Options that replace ``key_index`` and ``scope``. A table stores the latter instead."""

HUDI_FORMAT = "hudi"
"""The format that every table has."""
FORMATS_OPTION = "mdt.formats"
ALTERABLE = frozenset({FORMATS_OPTION})
"""Fixed options that only :meth:`mdt.Table.alter` changes."""
_MEBI = 1 << 20
_TEBI = 1 << 40

_fixed = partial(option, scope="table", fixed=True)
_table = partial(option, scope="table")
_machine = partial(option, scope="machine")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a table and of the program that opens it, made by :func:`parse_options`.

    An option's name is its field with dots: ``page_bytes`` is ``mdt.page.bytes``.
    """

    table_name: str = _fixed(
        "",
        "name of the table in hoodie.properties; empty for the last part of its path",
        hudi="hoodie.table.name",
    )
    table_version: int = _fixed(
        6,
        "Hudi's table version, 6 or 9",
        whole(0, limits.COUNT_MAX),
        "hoodie.write.table.version",
    )
    formats: tuple[str, ...] = _fixed(
        (HUDI_FORMAT,),
        "table formats whose readers can read the table: hudi, and any of delta and iceberg;"
        " t.alter(formats=…) changes them",
        some_of(HUDI_FORMAT, "delta", "iceberg"),
    )
    hive_style: bool = _fixed(
        True,
        "name partition directories column=value instead of value",
        hudi="hoodie.datasource.write.hive_style_partitioning",
    )
    keys_repeat: bool = _fixed(
        False,
        "a key may have several rows, which insert(check=False) adds without a key look-up",
    )
    key_names_column: bool = _fixed(
        False,
        "the record key of a single key column is column:value, and not the value; true for new"
        " tables of version 9 with several partition columns, as in Hudi",
    )
    delete_keeps_ordering: bool = _fixed(
        False,
        "a deleted key stays deleted when a row with a smaller ordering value arrives later",
    )
    delete_keeps_ordering_hours: int = _fixed(
        168, "hours for which such a delete is remembered; 0 for ever", whole(0, 10**7)
    )
    update_partition_path: bool = _fixed(
        True,
        "with table scope, a row with a new partition moves there; false updates it in place and"
        " keeps its partition columns",
        hudi="hoodie.record.index.update.partition.path hoodie.bloom.index.update.partition.path"
        " hoodie.simple.index.update.partition.path",
    )
    partition_time_pattern: str = _fixed(
        "",
        "Java pattern such as yyyy-MM-dd for partition paths, with a single partition column of"
        " timestamps; empty to use its values",
        hudi="hoodie.keygen.timebased.output.dateformat",
    )
    partition_time_unit: str = _fixed(
        "ms", "unit of integers in such a partition column", choice("s", "ms", "us")
    )
    partition_time_input: str = _fixed(
        "",
        "Java pattern of the texts in such a partition column, such as yyyy-MM-dd'T'HH:mm:ssZ",
        hudi="hoodie.keygen.timebased.input.dateformat",
    )
    partition_time_zone: str = _fixed(
        "UTC",
        "time zone of partition paths with a pattern",
        hudi="hoodie.keygen.timebased.timezone",
    )
    index_type: str = _fixed(
        "",
        "Hudi's name for key_index and scope, at creation in place of both; afterwards it must"
        " agree with them",
        choice("", *INDEX_TYPES),
        "hoodie.index.type",
    )
    bucket_count: int = _fixed(
        0,
        "buckets per partition for the key index bucket, at creation; 0 for the number in"
        " key_index, 4 by default",
        whole(0, 1 << 24),
        "hoodie.bucket.index.num.buckets",
    )
    bucket_fields: str = _fixed(
        "",
        "key columns that determine a row's bucket, at creation; empty for all",
        hudi="hoodie.bucket.index.hash.field",
    )
    bucket_partitions: str = _fixed(
        "",
        "partitions with another number of buckets, at creation, as"
        " expression,number;expression,number",
        hudi="hoodie.bucket.index.partition.expressions",
    )
    bucket_rule: str = _fixed(
        "regex",
        "kind of these expressions",
        choice("regex"),
        "hoodie.bucket.index.partition.rule.type",
    )
    write_footer_bloom: bool = _fixed(
        False,
        "write Hudi's Bloom filter of the keys into Parquet footers, 1.6 bytes a row; Hudi's Bloom"
        " index requires it; true by default in new tables with the key index bloom",
    )
    write_record_positions: bool = _fixed(
        False,
        "write the positions of replaced rows of the base file into log blocks; Hudi 1 can use"
        " them, Hudi 0.14 and 0.15 fail on them; true by default in new tables of version 9",
        hudi="hoodie.write.record.positions",
    )
    hudi_metadata: bool = _table(
        False,
        "keep Hudi's own metadata table in each commit; only the value stored with a table counts;"
        " true by default in new tables of version 9",
        hudi="hoodie.metadata.enable",
    )
    hudi_column_stats: bool = _table(
        False,
        "with mdt.hudi.metadata: keep column statistics there, by which Hudi's engines skip files;"
        " true by default in new tables of version 9",
        hudi="hoodie.metadata.index.column.stats.enable",
    )
    hudi_partition_stats: bool = _table(
        False,
        "with mdt.hudi.column.stats, in version 9: keep the bounds of whole partitions there",
        hudi="hoodie.metadata.index.partition.stats.enable",
    )
    hudi_record_index: bool = _table(
        False,
        "with mdt.hudi.metadata: keep the file group of each record key there; keys must be unique"
        " in the whole table, or in their partitions in version 9",
        hudi="hoodie.metadata.global.record.level.index.enable hoodie.metadata.record.index.enable"
        " hoodie.metadata.record.level.index.enable",
    )
    hudi_secondary_index: bool = _table(
        False,
        "with mdt.hudi.record.index, in version 9: keep the record keys of each value there, for"
        " columns with a bitmap index",
        hudi="hoodie.metadata.index.secondary.enable",
    )
    hudi_bloom_filters: bool = _table(
        False,
        "with mdt.hudi.metadata and mdt.write.footer.bloom: keep the Bloom filters of base files"
        " there",
        hudi="hoodie.metadata.index.bloom.filter.enable",
    )
    column_stats_columns: tuple[str, ...] | None = _table(
        None,
        "columns with min/max statistics",
        SOME_COLUMNS,
        "hoodie.metadata.index.column.stats.column.list",
    )
    bloom_fpp: float = _table(
        0.01,
        "false positive rate of our Bloom filters",
        real(1e-9, 0.5),
        "hoodie.index.bloom.fpp",
    )
    bloom_ranges: bool = option(
        True,
        "compare keys with the key ranges of file groups before a look-up in the Bloom index",
        hudi="hoodie.bloom.index.prune.by.ranges",
    )
    bloom_tree: bool = option(
        True,
        "find these ranges in an interval tree; false compares all",
        hudi="hoodie.bloom.index.use.treebased.filter",
    )
    bloom_caching: bool = option(
        True,
        "keep opened and verified parts of the Bloom index open in the process",
        hudi="hoodie.bloom.index.use.caching",
    )
    bloom_metadata: bool = option(
        True,
        "look up keys in the metadata; false reads the footers of all base files, which have ranges"
        " and filters with mdt.write.footer.bloom",
        hudi="hoodie.bloom.index.use.metadata",
    )
    bloom_parallelism: int = _machine(
        0,
        "threads of a look-up in the Bloom index; 0 for the number that write files",
        whole(0, 1 << 20),
        "hoodie.bloom.index.parallelism",
    )
    bloom_pairs: int = _machine(
        2_000_000,
        "pairs of a key and a file group, about 50 bytes each, that such a thread holds in memory",
        whole(1, _TEBI),
        "hoodie.bloom.index.keys.per.bucket",
    )
    bloom_filter_type: str = _table(
        "SIMPLE",
        "Hudi's filter in Parquet footers, sized for the file's keys or in rows of equal size",
        choice("SIMPLE", "DYNAMIC_V0"),
        "hoodie.bloom.index.filter.type",
    )
    bloom_entries: int = _table(
        60_000,
        "keys per row of a DYNAMIC_V0 filter",
        whole(1, 1 << 24),
        "hoodie.index.bloom.num_entries",
    )
    bloom_entries_max: int = _table(
        100_000,
        "number of keys after which a DYNAMIC_V0 filter gets no more rows",
        whole(1, 1 << 30),
        "hoodie.bloom.index.filter.dynamic.max.entries",
    )
    max_file_bytes: int = _table(
        120 * _MEBI,
        "maximum size of a base file",
        whole(1024, _TEBI),
        "hoodie.parquet.max.file.size",
    )
    small_file_bytes: int = _table(
        100 * _MEBI,
        "inserts go to file groups below this size first; 0 for never",
        whole(0, _TEBI),
        "hoodie.parquet.small.file.limit",
    )
    cluster_unit_bytes: int = _machine(
        512 * _MEBI,
        "bytes of files that a clustering sorts together, with about five times the memory",
        whole(1024, _TEBI),
        "hoodie.clustering.plan.strategy.max.bytes.per.group",
    )
    compression: str = _table(
        "lz4",
        "compression of Parquet pages; zstd, the default for new tables on object storage, takes"
        " two thirds of the space, 1.5 times the CPU for scans and 3 times for look-ups of many"
        " keys",
        choice("lz4", "zstd", "snappy", "uncompressed"),
        "hoodie.parquet.compression.codec",
    )
    page_bytes: int = _table(
        limits.PAGE_BYTES,
        "maximum size of a Parquet page before compression; reading a row decodes a page of each"
        " column",
        whole(256, 1 << 30),
        "hoodie.parquet.page.size",
    )
    row_group_rows: int = _table(
        limits.ROW_GROUP_ROWS, "rows in a Parquet row group", whole(1, 1 << 24)
    )
    metadata_compact_records: int = _table(
        limits.METADATA_COMPACT_RECORDS,
        "commit records after which the metadata is compacted; more for tables with very many"
        " files",
        whole(1, limits.METADATA_COMPACT_RECORDS_MAX),
        "hoodie.metadata.compact.max.delta.commits",
    )
    key_store_dir: str = _machine(
        "",
        "local directory for the keys of tables with the key index lmdb; empty for the user's"
        " cache directory",
    )
    cache_dir: str = _machine(
        "",
        "local directory for pages of remote metadata, and with -tables at its end for imported"
        " tables of other writers; empty for the user's cache directory",
    )
    cache_bytes_max: int = _machine(
        1024 * _MEBI,
        "size of either cache, which evicts its oldest pages or tables; 0 for no caches",
        whole(0, _TEBI),
    )
    cache_memory_max: int = _machine(
        limits.CACHES_BYTES_MAX,
        "size of the caches of all tables in this process; the last value set applies",
        whole(0, 1 << 50),
    )
    commit_attempts: int = option(
        100,
        "attempts of a transaction with conflicts",
        whole(1, limits.COMMIT_ATTEMPTS_MAX),
    )
    writer_threads: int = _machine(
        0, "threads that write files; 0 for one per processor", whole(0, limits.THREADS_MAX)
    )
    reader_threads: int = _machine(
        0, "threads that read files; 0 for one per processor", whole(0, limits.THREADS_MAX)
    )
    write_memory_max: int = _machine(
        1024 * _MEBI,
        "memory for streamed input (readers, generators of batches, datasets); larger input is"
        " spilled to a local disk",
        whole(1, 1 << 50),
    )
    write_spill_dir: str = _machine(
        "", "local directory for spilled rows; empty for the system's temporary directory"
    )
    lock_provider: str = _table(
        "",
        "lock that writers hold while they commit, for tables that Hudi's writers change at the"
        " same time; empty for none",
        choice("", "file_system", "storage", **_LOCK_PROVIDERS),
        "hoodie.write.lock.provider",
    )
    lock_path: str = _machine(
        "",
        "directory of the file system lock; empty for the table's .hoodie",
        hudi="hoodie.write.lock.filesystem.path",
    )
    lock_expire_minutes: int = option(
        0,
        "age at which a file system lock is broken, as that of a dead writer; 0 for never",
        whole(0, 10**6),
        "hoodie.write.lock.filesystem.expire",
    )
    lock_wait_ms: int = option(
        60_000,
        "milliseconds to wait for a lock, and for services of Hudi's writers",
        whole(0, 10**8),
        "hoodie.write.lock.wait_time_ms",
    )
    rollback_after_seconds: int = _table(
        3600, "age at which an unfinished transaction is rolled back", whole(0, 365 * 86400)
    )
    services_auto: bool = _table(
        True,
        "run due services after writes, in the writer's process",
        hudi="hoodie.table.services.enabled",
    )
    services_seconds_max: float = option(
        1.0,
        "maximum seconds of services after a write, which also never take longer than the write;"
        " only overdue services may; 0 for never",
        real(0, 3600),
    )
    services_thread: bool = _machine(
        False,
        "run services in a background thread; writes wait only for overdue services",
    )
    compact_log_files: int = _table(
        10,
        "log files of similar size after which they are joined automatically; a file group of at"
        " most 1 MiB, or with a fifth of its bytes in log files, is compacted instead",
        whole(1, 1 << 20),
        "hoodie.compact.inline.max.delta.commits",
    )
    clean_auto: bool = _table(
        True,
        "clean as one of these services; false leaves it to t.clean() and mdt services",
        hudi="hoodie.clean.automatic",
    )
    clean_policy: str = _table(
        "KEEP_LATEST_COMMITS",
        "snapshots that cleaning keeps: the newest commits, the commits of the last hours, or the"
        " newest versions of each file group",
        choice("KEEP_LATEST_COMMITS", "KEEP_LATEST_BY_HOURS", "KEEP_LATEST_FILE_VERSIONS"),
        "hoodie.clean.policy hoodie.cleaner.policy",
    )
    clean_retain_commits: int = _table(
        100,
        "commits that stay readable with KEEP_LATEST_COMMITS; automatic cleaning waits for a"
        " quarter more, and at least 16",
        whole(1, 10**9),
        "hoodie.clean.commits.retained hoodie.cleaner.commits.retained",
    )
    clean_retain_hours: int = _table(
        24,
        "hours whose commits stay readable with KEEP_LATEST_BY_HOURS",
        whole(0, 10**7),
        "hoodie.clean.hours.retained hoodie.cleaner.hours.retained",
    )
    clean_retain_versions: int = _table(
        3,
        "newest base files per file group that states may have with KEEP_LATEST_FILE_VERSIONS",
        whole(1, 10**6),
        "hoodie.clean.fileversions.retained hoodie.cleaner.fileversions.retained",
    )
    formats_retain_hours: int = _table(
        24,
        "with more formats than hudi: hours that cleaning keeps a file after the commit that ended"
        " it, since readers of other formats hold no lease",
        whole(0, 10**7),
    )
    iceberg_table: str = _machine(
        "",
        "with the format iceberg: table in a catalog of pyiceberg's configuration, such as"
        " lake.raw.trips, whose pointer follows the commits of this process; empty for none",
        CATALOG_TABLE,
    )
    spark_local_bytes_max: int = _machine(
        64 * _MEBI,
        "maximum size of Spark input that the driver writes itself; 0 for never",
        whole(0, _TEBI),
    )
    spark_driver_summaries_max: int = _machine(
        8192,
        "large index summaries that Spark's driver reads per query; more are read in tasks; 0 for"
        " always in tasks",
        whole(0, _TEBI),
    )
    usage_counts: bool = _table(
        False,
        "count how queries use indexes, for advice, and store the counts with the table; readers"
        " write nothing else",
    )
    durable: bool = _table(True, "flush every file to disk; use false only for disposable tables")

    def threads(self, role: Literal["writer", "reader"]) -> int:
        """Return the number of threads for a role, at least 1."""
        threads = self.writer_threads if role == "writer" else self.reader_threads
        return threads or int(pa.cpu_count())

    def to_mapping(self, scope: Scope | None = None) -> dict[str, str]:
        """Return all options, or those of a scope, as text for :func:`parse_options`."""
        texts = {}
        for member, declared in OPTIONS.options.items():
            if scope in (None, declared.scope):
                texts[declared.name] = to_text(getattr(self, member))
        return texts


@dataclass(slots=True, kw_only=True)
class CallOptions:
    """Options of a read or write by name on Spark, None if not given.

    Fixed options describe the table, as the arguments of :func:`mdt.create` do.
    """

    as_of: int | str | None = option(
        None, "read the snapshot of this point", POINT, "as.of.instant"
    )
    since: int | str | None = option(
        None,
        "read rows that commits after this point wrote",
        POINT,
        "hoodie.datasource.read.begin.instanttime",
    )
    until: int | str | None = option(
        None, "end of such a range, included", POINT, "hoodie.datasource.read.end.instanttime"
    )
    changes: str | None = option(
        None,
        "read the changes of the range: net for a single change per key, or all",
        choice("net", "all"),
    )
    query_type: str | None = option(
        None,
        "read all rows, only the rows of base files, or the rows of a range",
        choice("snapshot", "read_optimized", "incremental"),
        "hoodie.datasource.query.type",
    )
    operation: str | None = option(
        None,
        "upsert, insert, bulk_insert, insert_overwrite, insert_overwrite_table or delete",
        WORD,
        "hoodie.datasource.write.operation",
    )
    overwrite_partitions: object = option(
        None, "partitions that mode overwrite replaces", PARTITIONS
    )
    overwrite_mode: str | None = option(
        None,
        "whether mode overwrite replaces the whole table, or only the partitions with new rows",
        choice("static", "dynamic"),
        "partitionoverwritemode",
    )
    evolve: bool = option(False, "add new columns to the table", hudi="mergeschema")
    partial: bool = option(False, "keep the values of omitted columns in existing rows")
    required: tuple[str, ...] = option(
        (), "columns of a new table that may not be null", COLUMNS, "__required_columns"
    )
    max_commits: int | None = option(
        None,
        "maximum commits per batch of a stream",
        whole(1, limits.COUNT_MAX),
        "maxcommitspertrigger",
    )
    max_bytes: int | None = option(
        None,
        "maximum bytes per batch of a stream",
        whole(1, limits.COUNT_MAX),
        "maxbytespertrigger",
    )
    name: str | None = _fixed(
        None,
        "name of the table",
        COLUMN,
        "mdt.table.name hoodie.table.name hoodie.datasource.write.table.name",
    )
    key: tuple[str, ...] | None = _fixed(
        None,
        "columns of the record key",
        COLUMNS,
        "hoodie.datasource.write.recordkey.field hoodie.table.recordkey.fields primarykey",
    )
    partition_by: tuple[str, ...] | None = _fixed(
        None,
        "partition columns",
        COLUMNS,
        "hoodie.datasource.write.partitionpath.field hoodie.table.partition.fields"
        " __partition_columns",
    )
    ordering: tuple[str, ...] | None = _fixed(
        None,
        "columns whose larger values win if a key is written twice",
        COLUMNS,
        "hoodie.datasource.write.precombine.field hoodie.table.precombine.field"
        " hoodie.table.ordering.fields precombinefield orderingfields",
    )
    table_type: str | None = _fixed(
        None,
        "type of the table",
        choice("MERGE_ON_READ", "COPY_ON_WRITE", mor="MERGE_ON_READ", cow="COPY_ON_WRITE"),
        "hoodie.datasource.write.table.type hoodie.table.type type",
    )
    key_index: str | None = _fixed(None, "index for key look-ups", TEXT)
    scope: str | None = _fixed(None, "where a key is unique: partition or table", TEXT)
    indexes: tuple[str, ...] | None = _fixed(None, "skipping indexes", SPECS)


OPTIONS = OptionTable(Options, "mdt.")
CALL_OPTIONS = OptionTable(CallOptions)


def parse_options(mapping: Mapping[str, object] | None = None) -> Options:
    """Return the options in ``mapping``, by their mdt or Hudi names, with defaults for the rest.

    Raises Invalid for an unknown name, a wrong type, a value out of range, or an option given twice
    with different values. A small maximum file size also lowers the default small-file limit.

    >>> parse_options({"mdt.row.group.rows": "1000"}).row_group_rows
    1000
    >>> parse_options({"mdt.row.group.row": 1000})
    Traceback (most recent call last):
        ...
    mdt.errors.Invalid: unknown option 'mdt.row.group.row'
      hint: did you mean mdt.row.group.rows?
    """
    return _options(OPTIONS.read(checked_mapping("options", mapping)))


def _options(values: Mapping[str, Any]) -> Options:
    options = Options(**values)
    _check_formats(options)
    if "small_file_bytes" not in values:
        largest_small = options.max_file_bytes * 5 // 6
        if options.small_file_bytes > largest_small:
            return replace(options, small_file_bytes=largest_small)
    elif options.small_file_bytes > options.max_file_bytes:
        raise Invalid(
            f"mdt.small.file.bytes={options.small_file_bytes} is larger than"
            f" mdt.max.file.bytes={options.max_file_bytes}",
            hint="lower mdt.small.file.bytes or raise mdt.max.file.bytes",
        )
    return options


def _check_formats(options: Options) -> None:
    if HUDI_FORMAT not in options.formats:
        raise Invalid(
            f"mdt.formats is {','.join(options.formats)}, but every table has the format hudi",
            hint=f"write {','.join([HUDI_FORMAT, *options.formats])}",
        )


@memo(64)
def options_of(texts: tuple[tuple[str, str], ...]) -> Options:
    """Return :func:`parse_options` of (name, text) pairs, cached because each commit needs it."""
    return parse_options(dict(texts))


def canonical(mapping: Mapping[str, object] | None = None) -> dict[str, str]:
    """Return the options in ``mapping`` as text by their mdt names. Raises Invalid as
    :func:`parse_options` does.

    >>> canonical({"hoodie.parquet.max.file.size": 1 << 20})
    {'mdt.max.file.bytes': '1048576'}
    """
    values = OPTIONS.read(checked_mapping("options", mapping))
    _options(values)
    return {OPTIONS.options[member].name: to_text(value) for member, value in values.items()}


def table_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that a table stores, plus unknown names, which :func:`parse_options`
    refuses.

    >>> table_options({"mdt.compression": "zstd", "mdt.cache.dir": "pages"})
    {'mdt.compression': 'zstd'}
    """
    retained = {}
    for name, value in options.items():
        if name not in OPTIONS or OPTIONS.find(name).scope == "table":
            retained[name] = value
    return retained


def changed_options(options: Mapping[str, object] | None) -> dict[str, str | None]:
    """Return changes of a table's options as text by their mdt names, None for the default.

    Raises Invalid for an unknown name, an invalid value, an option that is fixed at creation, and
    an option that a table does not store.

    >>> changed_options({"hoodie.parquet.compression.codec": "zstd", "mdt.page.bytes": None})
    {'mdt.compression': 'zstd', 'mdt.page.bytes': None}
    """
    changes = OPTIONS.read(checked_mapping("options", options), _changed)
    return {OPTIONS.options[member].name: text for member, text in changes.items()}


def _changed(declared: Option, value: object, given_as: str) -> str | None:
    if declared.scope != "table":
        raise Invalid(
            f"{declared.name} has the scope {declared.scope} and is not stored with a table",
            hint=f"mdt.open(path, {{{declared.name!r}: …}}), in SQL SET spark.{declared.name} = …",
        )
    if declared.fixed and declared.name not in ALTERABLE:
        raise Invalid(
            f"{declared.name} is fixed at creation, because files depend on it",
            hint="create a new table with another value and copy the rows",
        )
    return None if value is None else to_text(declared.parse(value, given_as))
