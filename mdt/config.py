"""Typed options: each declared once, as a field of :class:`Options`.

Names are ``mdt.<words>``; for what Hudi has too, Hudi's own names are accepted as well.  Values may
be text, as they come from Spark and from ``hoodie.properties``.  An unknown name, a wrong type or a
value out of range is refused.

Each option has a scope (:data:`mdt.option.Scope`).  Only options of the scope ``table`` are written
into a table or read from one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from functools import cache, lru_cache
from typing import Any, Literal

import pyarrow as pa

from mdt import arguments, limits
from mdt.errors import Invalid
from mdt.option import Option, Scope, to_text

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
"""Hudi's names of indexes, each with the key index and the scope that it stands for."""

_MEBI = 1 << 20


def _option(
    name: str,
    default: Any,
    doc: str,
    *,
    scope: Scope = "table",
    kind: type | None = None,
    **more: Any,
) -> Any:
    found = Option(name=name, kind=kind or type(default), scope=scope, doc=doc, **more)
    return field(default=default, metadata={"option": found})


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Every option with its default; made by :func:`parse_options`."""

    table_name: str = _option(
        "mdt.table.name",
        "",
        "name of the table in hoodie.properties; empty: the last part of its path",
        fixed=True,
        aliases=("hoodie.table.name",),
    )
    table_version: int = _option(
        "mdt.table.version",
        6,
        "Hudi's table version; 6 is the one that there is",
        fixed=True,
        aliases=("hoodie.write.table.version",),
    )
    hive_style: bool = _option(
        "mdt.hive.style",
        True,
        "partition directories are called column=value instead of value",
        fixed=True,
        aliases=("hoodie.datasource.write.hive_style_partitioning",),
    )
    keys_repeat: bool = _option(
        "mdt.keys.repeat",
        False,
        "a key may live more than once: insert(check=False) inserts without looking for keys",
        fixed=True,
    )
    delete_keeps_ordering: bool = _option(
        "mdt.delete.keeps.ordering",
        False,
        "a deleted key is not revived by a row whose ordering value is below that at which it was"
        " deleted",
        fixed=True,
    )
    delete_keeps_ordering_hours: int = _option(
        "mdt.delete.keeps.ordering.hours",
        168,
        "hours after which that is forgotten; 0: never",
        minimum=0,
        maximum=10**7,
        fixed=True,
    )
    update_partition_path: bool = _option(
        "mdt.update.partition.path",
        True,
        "with table scope, a row that arrives with another partition moves there; else it is"
        " updated where it is, and keeps its partition columns",
        fixed=True,
        aliases=(
            "hoodie.record.index.update.partition.path",
            "hoodie.bloom.index.update.partition.path",
            "hoodie.simple.index.update.partition.path",
        ),
    )
    partition_time_pattern: str = _option(
        "mdt.partition.time.pattern",
        "",
        "pattern of Java, such as yyyy-MM-dd, by which the one partition column, a time, makes"
        " partition paths; empty: by its values",
        fixed=True,
        aliases=("hoodie.keygen.timebased.output.dateformat",),
    )
    partition_time_unit: str = _option(
        "mdt.partition.time.unit",
        "ms",
        "what whole numbers count that make partition paths by a pattern",
        fixed=True,
        choices=("s", "ms", "us"),
    )
    partition_time_zone: str = _option(
        "mdt.partition.time.zone",
        "UTC",
        "time zone of partition paths that are made by a pattern",
        fixed=True,
        aliases=("hoodie.keygen.timebased.timezone",),
    )
    index_type: str = _option(
        "mdt.index.type",
        "",
        "at creation Hudi's word for key index and scope, in place of key_index and scope; later it"
        " must agree with them",
        choices=("", *INDEX_TYPES),
        aliases=("hoodie.index.type",),
        fixed=True,
    )
    bucket_count: int = _option(
        "mdt.bucket.count",
        0,
        "at creation the buckets of a partition, for the key index bucket; 0: as the key index"
        " says, 4 by default",
        minimum=0,
        maximum=1 << 24,
        aliases=("hoodie.bucket.index.num.buckets",),
        fixed=True,
    )
    bucket_fields: str = _option(
        "mdt.bucket.fields",
        "",
        "at creation the key columns by which a row's bucket is chosen; empty: all",
        aliases=("hoodie.bucket.index.hash.field",),
        fixed=True,
    )
    bucket_partitions: str = _option(
        "mdt.bucket.partitions",
        "",
        "at creation partitions with another number of buckets:"
        " expression,number;expression,number",
        aliases=("hoodie.bucket.index.partition.expressions",),
        fixed=True,
    )
    bucket_rule: str = _option(
        "mdt.bucket.rule",
        "regex",
        "what these expressions are",
        choices=("regex",),
        aliases=("hoodie.bucket.index.partition.rule.type",),
        fixed=True,
    )
    write_footer_bloom: bool = _option(
        "mdt.write.footer.bloom",
        False,
        "write Hudi's Bloom filter of the keys into Parquet footers, without which Hudi's Bloom"
        " index fails on this table; 1.6 bytes a row; new tables with the key index bloom have it"
        " unless told otherwise",
        fixed=True,
    )
    write_record_positions: bool = _option(
        "mdt.write.record.positions",
        False,
        "say in log blocks which rows of the base file they replace; Hudi 1 can use it, Hudi 0.14"
        " and 0.15 fail on it",
        fixed=True,
        aliases=("hoodie.write.record.positions",),
    )
    column_stats_columns: tuple[str, ...] | None = _option(
        "mdt.column.stats.columns",
        None,
        "columns whose statistics are kept",
        kind=tuple,
        aliases=("hoodie.metadata.index.column.stats.column.list",),
    )
    bloom_fpp: float = _option(
        "mdt.bloom.fpp",
        0.01,
        "share of absent keys that a Bloom filter of ours may let pass",
        minimum=1e-9,
        maximum=0.5,
        aliases=("hoodie.index.bloom.fpp",),
    )
    bloom_ranges: bool = _option(
        "mdt.bloom.ranges",
        True,
        "look-ups by the Bloom index compare keys with the ranges of file groups first; false: with"
        " the filters alone",
        aliases=("hoodie.bloom.index.prune.by.ranges",),
        scope="session",
    )
    bloom_tree: bool = _option(
        "mdt.bloom.tree",
        True,
        "they do so by an interval tree; false: range by range",
        aliases=("hoodie.bloom.index.use.treebased.filter",),
        scope="session",
    )
    bloom_caching: bool = _option(
        "mdt.bloom.caching",
        True,
        "what they have opened and verified of the Bloom index stays open in the process",
        aliases=("hoodie.bloom.index.use.caching",),
        scope="session",
    )
    bloom_metadata: bool = _option(
        "mdt.bloom.metadata",
        True,
        "they ask the metadata; false: the footers of base files, where mdt.write.footer.bloom has"
        " put ranges and filters, one by one",
        aliases=("hoodie.bloom.index.use.metadata",),
        scope="session",
    )
    bloom_parallelism: int = _option(
        "mdt.bloom.parallelism",
        0,
        "threads that share the keys of a look-up by the Bloom index; 0: those that write files",
        minimum=0,
        maximum=1 << 20,
        aliases=("hoodie.bloom.index.parallelism",),
        scope="machine",
    )
    bloom_pairs: int = _option(
        "mdt.bloom.pairs",
        2_000_000,
        "pairs of a key and a file group that each of these threads holds at a time, some 50 bytes"
        " each",
        minimum=1,
        maximum=1 << 40,
        aliases=("hoodie.bloom.index.keys.per.bucket",),
        scope="machine",
    )
    bloom_filter_type: str = _option(
        "mdt.bloom.filter.type",
        "SIMPLE",
        "form of the filter in Parquet footers, for Hudi: of the size of the file's keys, or rows"
        " of one size",
        choices=("SIMPLE", "DYNAMIC_V0"),
        aliases=("hoodie.bloom.index.filter.type",),
    )
    bloom_entries: int = _option(
        "mdt.bloom.entries",
        60_000,
        "keys of a row of a DYNAMIC_V0 filter",
        minimum=1,
        maximum=1 << 24,
        aliases=("hoodie.index.bloom.num_entries",),
    )
    bloom_entries_max: int = _option(
        "mdt.bloom.entries.max",
        100_000,
        "keys up to which a DYNAMIC_V0 filter gets more rows",
        minimum=1,
        maximum=1 << 30,
        aliases=("hoodie.bloom.index.filter.dynamic.max.entries",),
    )
    max_file_bytes: int = _option(
        "mdt.max.file.bytes",
        120 * _MEBI,
        "size at which a base file is full",
        minimum=1024,
        maximum=1 << 40,
        aliases=("hoodie.parquet.max.file.size",),
    )
    small_file_bytes: int = _option(
        "mdt.small.file.bytes",
        100 * _MEBI,
        "inserts go first to file groups below this size; 0: never",
        minimum=0,
        maximum=1 << 40,
        aliases=("hoodie.parquet.small.file.limit",),
    )
    cluster_unit_bytes: int = _option(
        "mdt.cluster.unit.bytes",
        512 * _MEBI,
        "size, in files, of what a clustering arranges at a time; it takes some five times as much"
        " memory",
        minimum=1024,
        maximum=1 << 40,
        aliases=("hoodie.clustering.plan.strategy.max.bytes.per.group",),
        scope="machine",
    )
    compression: str = _option(
        "mdt.compression",
        "lz4",
        "compression of Parquet pages; zstd, which new tables on object storage have, takes two"
        " thirds of the space, half again the CPU of scans and three times that of look-ups of many"
        " keys",
        choices=("lz4", "zstd", "snappy", "uncompressed"),
        aliases=("hoodie.parquet.compression.codec",),
    )
    page_bytes: int = _option(
        "mdt.page.bytes",
        limits.PAGE_BYTES,
        "size at which a Parquet page is full, before compression: what is decoded of each column"
        " for one row",
        minimum=256,
        maximum=1 << 30,
        aliases=("hoodie.parquet.page.size",),
    )
    row_group_rows: int = _option(
        "mdt.row.group.rows",
        limits.ROW_GROUP_ROWS,
        "rows in a Parquet row group",
        minimum=1,
        maximum=1 << 24,
    )
    metadata_compact_records: int = _option(
        "mdt.metadata.compact.records",
        limits.METADATA_COMPACT_RECORDS,
        "commit records after which the metadata is compacted; tables of very many files wait for"
        " more",
        minimum=1,
        maximum=limits.METADATA_COMPACT_RECORDS_MAX,
        aliases=("hoodie.metadata.compact.max.delta.commits",),
    )
    key_store_dir: str = _option(
        "mdt.key.store.dir",
        "",
        "local directory for the keys of tables with the key index lmdb; empty: in this user's"
        " cache directory",
        scope="machine",
    )
    cache_dir: str = _option(
        "mdt.cache.dir",
        "",
        "local directory for pages of remote metadata; empty: in this user's cache directory",
        scope="machine",
    )
    cache_bytes_max: int = _option(
        "mdt.cache.bytes.max",
        1024 * _MEBI,
        "size of that cache; the oldest pages make room; 0: no cache",
        minimum=0,
        maximum=1 << 40,
        scope="machine",
    )
    cache_memory_max: int = _option(
        "mdt.cache.memory.max",
        limits.CACHES_BYTES_MAX,
        "bytes that this process keeps in memory of all its tables; the last one that says it"
        " counts, what is kept with a table does not",
        minimum=0,
        maximum=1 << 50,
        scope="machine",
    )
    commit_attempts: int = _option(
        "mdt.commit.attempts",
        100,
        "how often a transaction that lost to another is tried in all",
        minimum=1,
        maximum=limits.COMMIT_ATTEMPTS_MAX,
        scope="session",
    )
    writer_threads: int = _option(
        "mdt.writer.threads",
        0,
        "threads that write files; 0: one per processor",
        minimum=0,
        maximum=limits.THREADS_MAX,
        scope="machine",
    )
    reader_threads: int = _option(
        "mdt.reader.threads",
        0,
        "threads that read files; 0: one per processor",
        minimum=0,
        maximum=limits.THREADS_MAX,
        scope="machine",
    )
    write_memory_max: int = _option(
        "mdt.write.memory.max",
        1024 * _MEBI,
        "bytes of memory for rows that are read piece by piece (readers, generators of batches,"
        " datasets); what is larger goes through a local disk",
        minimum=1,
        maximum=1 << 50,
        scope="machine",
    )
    write_spill_dir: str = _option(
        "mdt.write.spill.dir",
        "",
        "local directory through which they go; empty: the temporary folder of the process",
        scope="machine",
    )
    rollback_after_seconds: int = _option(
        "mdt.rollback.after.seconds",
        3600,
        "age at which an unfinished transaction is taken for dead",
        minimum=0,
        maximum=365 * 86400,
    )
    services_auto: bool = _option(
        "mdt.services.auto",
        True,
        "services that are due run after writes, in the writer's process",
        aliases=("hoodie.clean.automatic",),
    )
    services_seconds_max: float = _option(
        "mdt.services.seconds.max",
        1.0,
        "seconds that services may take within a write, and no more than the write itself; only"
        " what is overdue takes longer; 0: never",
        minimum=0,
        maximum=3600,
        scope="session",
    )
    services_thread: bool = _option(
        "mdt.services.thread",
        False,
        "services run in a thread of the table, until it is closed; writes wait for what is overdue"
        " only",
        scope="machine",
    )
    compact_log_files: int = _option(
        "mdt.compact.log.files",
        10,
        "log files of about one size that become one by themselves; the file group is compacted"
        " instead if it has 1 MiB at most, or they a fifth of it",
        minimum=1,
        maximum=1 << 20,
        aliases=("hoodie.compact.inline.max.delta.commits",),
    )
    clean_policy: str = _option(
        "mdt.clean.policy",
        "KEEP_LATEST_COMMITS",
        "what cleaning keeps: the newest commits, those of the last hours, or the newest versions"
        " of each file group",
        choices=("KEEP_LATEST_COMMITS", "KEEP_LATEST_BY_HOURS", "KEEP_LATEST_FILE_VERSIONS"),
        aliases=("hoodie.clean.policy", "hoodie.cleaner.policy"),
    )
    clean_retain_commits: int = _option(
        "mdt.clean.retain.commits",
        100,
        "commits whose states a cleaning keeps, by the first policy; a table that cleans itself"
        " does so when a quarter more can be read, and at least 16 more",
        minimum=1,
        maximum=10**9,
        aliases=("hoodie.clean.commits.retained", "hoodie.cleaner.commits.retained"),
    )
    clean_retain_hours: int = _option(
        "mdt.clean.retain.hours",
        24,
        "hours of which all states stay readable, by the second policy",
        minimum=0,
        maximum=10**7,
        aliases=("hoodie.clean.hours.retained", "hoodie.cleaner.hours.retained"),
    )
    clean_retain_versions: int = _option(
        "mdt.clean.retain.versions",
        3,
        "base files of a file group that stay, by the third policy",
        minimum=1,
        maximum=10**6,
        aliases=("hoodie.clean.fileversions.retained", "hoodie.cleaner.fileversions.retained"),
    )
    spark_local_bytes_max: int = _option(
        "mdt.spark.local.bytes.max",
        64 * _MEBI,
        "Spark inputs up to this size are written in the driver; 0: never",
        minimum=0,
        maximum=1 << 40,
        scope="machine",
    )
    spark_driver_summaries_max: int = _option(
        "mdt.spark.driver.summaries.max",
        8192,
        "large index summaries that the driver of Spark reads for one query; more are read in"
        " tasks; 0: always in tasks",
        minimum=0,
        maximum=1 << 40,
        scope="machine",
    )
    usage_counts: bool = _option(
        "mdt.usage.counts",
        False,
        "count how queries use indexes, for advice, and report it beside the table: readers write"
        " nothing else",
    )
    durable: bool = _option(
        "mdt.durable", True, "flush every file to the disk; false only for tables you can lose"
    )

    def threads(self, role: Literal["writer", "reader"]) -> int:
        """Return the number of threads for a role, at least 1."""
        return (self.writer_threads if role == "writer" else self.reader_threads) or int(
            pa.cpu_count()
        )

    def to_mapping(self, scope: Scope | None = None) -> dict[str, str]:
        """Return all options, or those of one scope, as text under their mdt names; parse_options
        takes it back.
        """
        wanted = [
            (member, option) for member, option in _declared() if scope in (None, option.scope)
        ]
        return {option.name: to_text(getattr(self, member.name)) for member, option in wanted}


def parse_options(mapping: Mapping[str, object] | None = None) -> Options:
    """Return the options in ``mapping`` (names of ours or Hudi's), defaults for the rest.

    Raises ``errors.Invalid``: unknown name (with the nearest known ones), wrong type, out of range,
    or the same option under two names with different values.  Without a small-file limit of its
    own, a smaller file size lowers it too.

    >>> parse_options({"mdt.row.group.rows": "1000"}).row_group_rows
    1000
    >>> parse_options({"mdt.row.group.row": 1000})
    Traceback (most recent call last):
        ...
    mdt.errors.Invalid: unknown option 'mdt.row.group.row'
      hint: did you mean mdt.row.group.rows or mdt.bloom.tree?
    """
    values: dict[str, Any] = {}
    names: dict[str, str] = {}
    for name, value in arguments.mapping("options", mapping).items():
        member, option = _find(name)
        parsed = option.parse(value, name)
        if values.setdefault(member, parsed) != parsed:
            raise Invalid(
                f"{names[member]} and {name} are one option, with different values",
                hint="give one of them",
            )
        names[member] = name
    _check_file_sizes(values)
    return Options(**values)


@lru_cache(maxsize=64)
def options_of(texts: tuple[tuple[str, str], ...]) -> Options:
    """Return what :func:`parse_options` says of (name, text) pairs, parsed once: a table's own
    options are asked for at every commit.
    """
    return parse_options(dict(texts))


def canonical(mapping: Mapping[str, object] | None = None) -> dict[str, str]:
    """Return the options in ``mapping`` as text under their mdt names, as :func:`parse_options`
    takes them back.

    Raises ``errors.Invalid`` as :func:`parse_options` does.

    >>> canonical({"hoodie.parquet.max.file.size": 1 << 20})
    {'mdt.max.file.bytes': '1048576'}
    """
    parse_options(mapping)
    found = [
        (name, value, _find(name)[1])
        for name, value in arguments.mapping("options", mapping).items()
    ]
    return {option.name: to_text(option.parse(value, name)) for name, value, option in found}


def declaration(name: str) -> Option:
    """Return the declaration of the option ``name``, ours or Hudi's.  Raises Invalid, with the
    nearest names, if there is none.
    """
    return _find(name)[1]


def of_table(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of ``options`` that a table keeps, and unknown ones, which :func:`parse_options`
    refuses.

    >>> of_table({"mdt.compression": "zstd", "mdt.cache.dir": "pages"})
    {'mdt.compression': 'zstd'}
    """
    return {
        name: value
        for name, value in options.items()
        if name not in _named() or _find(name)[1].scope == "table"
    }


def changed_options(options: Mapping[str, object] | None) -> dict[str, str | None]:
    """Return changes of a table's options as text under their mdt names, None for those that go
    back to their defaults.

    Raises Invalid for an unknown name, a value that is not possible, an option that is fixed at
    creation, and one that a table does not keep.

    >>> changed_options({"hoodie.parquet.compression.codec": "zstd", "mdt.page.bytes": None})
    {'mdt.compression': 'zstd', 'mdt.page.bytes': None}
    """
    found: dict[str, str | None] = {}
    for name, value in arguments.mapping("options", options).items():
        option = declaration(name)
        if option.scope != "table":
            raise Invalid(
                f"{option.name} is an option of the {option.scope}, which a table does not keep",
                hint=f"give it when the table is opened: mdt.open(path, {{{option.name!r}: …}})",
            )
        if option.fixed:
            raise Invalid(
                f"{option.name} is fixed at creation, because older files depend on it",
                hint="write the rows to a new table with another value",
            )
        text = None if value is None else to_text(option.parse(value, name))
        if found.setdefault(option.name, text) != text:
            raise Invalid(
                f"{option.name} is given twice, with different values", hint="give one of them"
            )
    return found


def options_list() -> list[dict[str, Any]]:
    """Return every option as a dict: name, aliases, default (text), allowed, scope, fixed (at
    creation), meaning.
    """
    return [
        {
            "name": option.name,
            "aliases": list(option.aliases),
            "default": to_text(member.default),
            "allowed": option.allowed(),
            "scope": option.scope,
            "fixed": option.fixed,
            "meaning": option.doc,
        }
        for member, option in _declared()
    ]


def options_table() -> str:
    """Return a Markdown table of every option, for the documentation."""
    lines = ["| option | default | allowed | scope | meaning |", "|---|---|---|---|---|"]
    for member, option in _declared():
        names = "<br>".join(f"`{name}`" for name in (option.name, *option.aliases))
        default = to_text(member.default) or "(empty)"
        scope = f"{option.scope}, fixed" if option.fixed else option.scope
        lines.append(f"| {names} | `{default}` | {option.allowed()} | {scope} | {option.doc} |")
    return "\n".join(lines) + "\n"


def _check_file_sizes(values: dict[str, Any]) -> None:
    largest = values.get("max_file_bytes", Options.__dataclass_fields__["max_file_bytes"].default)
    small = values.get("small_file_bytes")
    if small is None:
        default = Options.__dataclass_fields__["small_file_bytes"].default
        values["small_file_bytes"] = min(default, largest * 5 // 6)
    elif small > largest:
        raise Invalid(
            f"the small-file limit ({small} bytes) is above the largest file ({largest} bytes)",
            hint="lower mdt.small.file.bytes or raise mdt.max.file.bytes",
        )


@cache
def _declared() -> tuple[tuple[Field[Any], Option], ...]:
    return tuple((member, member.metadata["option"]) for member in fields(Options))


@cache
def _named() -> dict[str, tuple[str, Option]]:
    """Return every name of an option -> its member of Options, and what it is."""
    return {
        name: (member.name, option)
        for member, option in _declared()
        for name in (option.name, *option.aliases)
    }


def _find(name: str) -> tuple[str, Option]:
    if name in _named():
        return _named()[name]
    hint = arguments.nearest(str(name), _named()) or "mdt.config.options_table() lists them all"
    raise Invalid(f"unknown option {name!r}", hint=hint)
