"""The definition of a table: settings that determine the meaning of its data.

The definition is written in commit record 0. Later records change only its indexes, its options and
its schema version (:mod:`mdt.schema.versions`). Options that only affect speed can be overridden
when a table is opened.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from indexes.key_hash import SECRET_BYTES, KeyHash, MultilinearHash, MurmurHash
from indexes.registry import parse_spec
from mdt.config import HUDI_FORMAT, Options, options_of, parse_options, table_options
from mdt.errors import Corrupt, Unsupported
from mdt.schema import names, versions
from mdt.schema.declared import with_local_timestamps
from mdt.schema.header_fields import present
from mdt.schema.time_paths import TimePath
from mdt.schema.versions import SchemaVersion, check_succession, schemas_json, schemas_of

FORMAT_VERSION = 7
"""Version of everything below ``.hoodie/.mdt/``. Readers refuse newer versions.

Only tables with several ordering fields or with generated keys have this version.
"""
_KEPT_FORMAT = 6
"""Format of tables with other formats, which every writer must keep."""
_NAMED_FORMAT = 5
"""Format of tables with column names that Avro does not allow."""
_KEYED_FORMAT = 4
"""Format of tables with Avro column names and a keyed key hash."""
_MURMUR_FORMAT = 3
"""Format of tables whose key hash is MurmurHash3."""

_SECRET = re.compile(f"[0-9a-f]{{{2 * SECRET_BYTES}}}")

_FIRST_FIELD_ID = 6
"""Parquet field id of the column with id 0. The five meta columns have smaller ones."""

GENERATED_KEY = "_hoodie_record_key"
"""The key column of tables whose keys Hudi generates. In files, it is a meta column."""

COPY_ON_WRITE = "COPY_ON_WRITE"
MERGE_ON_READ = "MERGE_ON_READ"


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """The identity and semantics of a table.

    Attributes:
        schema: Data columns in the types of the files, without Hudi's meta columns.
        declared: The same columns in the types in which users write and read them
            (:mod:`mdt.schema.declared`). Both schemas have the names of the table, which may differ
            in Hudi's files (:mod:`mdt.schema.names`).
        key, partition_by: Column names.
        ordering: The ordering fields, the most important first. Empty if the later write wins.
        key_index: Specification of the key index.
        scope: Where keys are unique: "partition" (non-global) or "table" (global).
        key_hash: Hash function that decides which record keys are equal.
        indexes: Specifications of the skipping indexes.
        hudi_version: Hudi's table version.
        packages: Name of an index -> the Python package that provides it, for error messages.
        versions: Versions of the schema, the current one last. Empty if it was never altered.
        ignored: Names of stored options that are not table options.
        adopted: True if another Hudi writer created the table.
        upgraded_at: Instant of the record that changed the table version, or "".
        formats_since: Name of a format besides Hudi -> seq of the record that added it to the
            table, or removed it. Formats from the creation on are left out.
        has_other_names: True if Avro does not allow some column name.
    """

    table_id: str
    name: str
    table_type: str
    schema: pa.Schema
    declared: pa.Schema
    key: tuple[str, ...]
    partition_by: tuple[str, ...]
    ordering: tuple[str, ...]
    key_index: str
    scope: str
    key_hash: KeyHash
    indexes: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    hudi_version: int = 6
    packages: Mapping[str, str] = field(default_factory=dict)
    versions: tuple[SchemaVersion, ...] = ()
    adopted: bool = False
    upgraded_at: str = ""
    formats_since: Mapping[str, int] = field(default_factory=dict)
    ignored: tuple[str, ...] = field(default=(), compare=False)
    has_other_names: bool = field(init=False, repr=False, compare=False)
    _unaltered: SchemaVersion | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "has_other_names", not names.are_avro(self.schema))
        is_read = self.has_other_names and not self.versions  # every reader needs it
        first = versions.first_version(self.schema, self.declared) if is_read else None
        object.__setattr__(self, "_unaltered", first)

    @property
    def is_mor(self) -> bool:
        """True for merge-on-read tables, where updates are written to log files."""
        return self.table_type == MERGE_ON_READ

    @property
    def has_generated_keys(self) -> bool:
        """True if Hudi makes the record keys, and not of columns."""
        return GENERATED_KEY in self.key

    @property
    def names_key(self) -> bool:
        """True if the record key of a single key column has its name: ``id:7``, and not ``7``."""
        return self.parsed.key_names_column

    @property
    def is_global(self) -> bool:
        """True if keys are unique in the whole table, not only in a partition."""
        return self.scope == "table"

    @property
    def parsed(self) -> Options:
        """The options of the table, without overrides from opening it."""
        return options_of(tuple(self.options.items()))

    @property
    def other_formats(self) -> tuple[str, ...]:
        """The table formats besides Hudi whose readers can read the table."""
        return tuple(name for name in self.parsed.formats if name != HUDI_FORMAT)

    def begin_of_format(self, name: str) -> int:
        """Return the seq of the record with which a format of the table began."""
        return self.formats_since.get(name, 0)

    @property
    def derives_from_state(self) -> bool:
        """True if each commit derives metadata for other readers from the state before it."""
        options = self.parsed
        return bool(self.other_formats) or (options.hudi_metadata and options.hudi_record_index)

    @property
    def parquet_field_ids(self) -> tuple[int, ...]:
        """Ids of all fields of a Parquet file, meta columns first, parents before their fields.

        Readers of other formats know columns by them. Empty if the table has no other format.
        """
        if not self.other_formats:
            return ()
        return (*range(1, _FIRST_FIELD_ID), *(_FIRST_FIELD_ID + id for id in self.version.ids))

    @property
    def first_field_id(self) -> int:
        """Parquet field id of the column with id 0."""
        return _FIRST_FIELD_ID

    @property
    def file_schema(self) -> pa.Schema:
        """The data columns in the types of Hudi's files: in an adopted table, times without a time
        zone have none there, too. hudi-rs cannot read such files, so others have times in UTC.
        """
        return with_local_timestamps(self.declared, self.schema) if self.adopted else self.schema

    @property
    def local_times(self) -> Mapping[str, pa.DataType]:
        """Column -> its type in Hudi's files, for columns with times without a time zone there."""
        pairs = zip(self.file_schema, self.schema, strict=True)
        return {field.name: field.type for field, stored in pairs if field.type != stored.type}

    @property
    def hive_style(self) -> bool:
        """True if partition directories are called ``column=value``."""
        return self.parsed.hive_style

    @property
    def moves_rows(self) -> bool:
        """True if an update with another partition value moves the row there (global tables only).

        Otherwise the row stays, and keeps its partition columns.
        """
        return self.parsed.update_partition_path

    @property
    def keys_repeat(self) -> bool:
        """True if a key may be live in several file groups of its scope."""
        return self.parsed.keys_repeat

    @property
    def keeps_deletes(self) -> bool:
        """True if deletes keep their ordering value, so that older rows do not bring a key back."""
        return self.parsed.delete_keeps_ordering

    @property
    def tombstone_hours(self) -> int:
        """Hours after which the ordering values of deletes are forgotten, 0 for never."""
        return self.parsed.delete_keeps_ordering_hours

    @property
    def time_path(self) -> TimePath | None:
        """The pattern of time-based partition paths, or None for paths of column values."""
        options = self.parsed
        if not options.partition_time_pattern:
            return None
        return TimePath(
            options.partition_time_pattern,
            options.partition_time_unit,
            options.partition_time_zone,
            null_is_first=self.adopted,
            input=options.partition_time_input,
        )

    @property
    def commit_action(self) -> str:
        """Hudi's action for writes: ``deltacommit`` (merge-on-read) or ``commit``."""
        if self.is_mor:
            return "deltacommit"
        return "commit"

    @property
    def fixed(self) -> tuple[str, ...]:
        """Columns that cannot be altered: key, partition and ordering columns."""
        return tuple(dict.fromkeys((*self.key, *self.partition_by, *self.ordering)))

    @property
    def unique_by(self) -> tuple[str, ...]:
        """Columns that identify a row: the key and, in partition scope, the partition columns."""
        if self.is_global:
            return self.key
        return (*self.key, *self.partition_by)

    def forms(self, names: Iterable[str]) -> tuple[pa.Schema, pa.Schema]:
        """Return the columns ``names`` as two schemas: (declared, stored)."""
        columns = list(names)
        return (
            pa.schema(map(self.declared.field, columns)),
            pa.schema(map(self.schema.field, columns)),
        )

    @property
    def version(self) -> SchemaVersion:
        """The current version of the schema."""
        if self.versions:
            return self.versions[-1]
        return self._unaltered or versions.first_version(self.schema, self.declared)

    @property
    def numbered(self) -> str:
        """The columns with the numbers of Hudi's schema on read, as JSON, or ""."""
        return self.versions[-1].numbered if self.versions else ""

    def with_version(self, version: SchemaVersion) -> TableDefinition:
        """Return the definition with a newer version of the schema.

        Raises ValueError if the version cannot follow the current one.
        """
        succession = (*(self.versions or (self.version,)), version)
        check_succession(succession, self.fixed)
        return replace(self, schema=version.schema, declared=version.declared, versions=succession)

    def without_versions(self, ended: AbstractSet[int]) -> TableDefinition:
        """Return the definition without the schema versions that began with the commits ``ended``.

        Raises ValueError if one of them does not exist or is the current version.
        """
        return replace(self, versions=versions.remove_versions(self.versions, ended))

    def with_options(self, changes: Mapping[str, str | None]) -> TableDefinition:
        """Return the definition with changed options; None resets an option to its default.

        Raises Invalid for values that are not allowed together.
        """
        merged = {**self.options, **table_options(changes)}
        options = {name: text for name, text in merged.items() if text is not None}
        options_of(tuple(options.items()))
        if options == self.options:
            return self
        return replace(self, options=options)

    def with_options_of(self, changes: Mapping[str, str | None], seq: int) -> TableDefinition:
        """Return :meth:`with_options` after the record ``seq``, which has these changes."""
        changed = self.with_options(changes)
        formats = set(self.other_formats) ^ set(changed.other_formats)
        if not formats:
            return changed
        since = {**self.formats_since, **dict.fromkeys(sorted(formats), seq)}
        return replace(changed, formats_since=since)

    def at(self, seq: int) -> TableDefinition:
        """Return the definition with the schema of the files written by commit ``seq``."""
        remaining = tuple(version for version in self.versions if version.since <= seq)
        remaining = remaining or self.versions[:1]
        if len(remaining) == len(self.versions):
            return self
        return replace(
            self, schema=remaining[-1].schema, declared=remaining[-1].declared, versions=remaining
        )

    def statistics_name(self, path: str) -> str:
        """Return the name under which statistics of the column at ``path`` are stored."""
        if not self.versions:
            return path
        return versions.statistics_names(self.versions)[-1].get(path, path)

    def unused_statistics(self, states: Iterable[int] = ()) -> frozenset[str]:
        """Return the statistics names that neither the current schema nor these commits use.

        ``states`` are the seqs of older states that must stay readable.
        """
        if not self.versions:
            return frozenset()
        names = versions.statistics_names(self.versions)
        starts = [version.since for version in self.versions]
        ended = frozenset[str]().union(*(mapping.values() for mapping in names))
        positions = {len(starts) - 1, *(bisect_right(starts, seq) - 1 for seq in states)}
        return ended.difference(*(names[position].values() for position in positions))

    def to_json(self) -> dict[str, Any]:
        """Return the definition as JSON values. Schemas are Arrow IPC schema messages in base64."""
        return {
            "table_id": self.table_id,
            "name": self.name,
            "table_type": self.table_type,
            **schemas_json(self.schema, self.declared),
            "key": list(self.key),
            "partition_by": list(self.partition_by),
            "ordering": _ordering_json(self.ordering),
            "key_index": self.key_index,
            "scope": self.scope,
            **_format_json(self),
            "indexes": list(self.indexes),
            "options": dict(self.options),
            "hudi_version": self.hudi_version,
            **present(
                packages=dict(self.packages),
                versions=[version.to_json() for version in self.versions],
                adopted=self.adopted,
                upgraded_at=self.upgraded_at,
                formats_since=dict(self.formats_since),
            ),
        }


def from_json(value: Mapping[str, Any], *, path: str) -> TableDefinition:
    """Parse a definition written by :meth:`TableDefinition.to_json`.

    ``path`` names the object in errors. Stored options that are not table options are dropped,
    because older versions wrote them. Raises Unsupported for another format version, and Corrupt
    for malformed values.
    """
    format = value.get("format")
    if type(format) is not int:
        raise Corrupt(
            "the table definition has no valid format version",
            path=path,
            expected="an integer",
            got=repr(format)[:40],
        )
    if format > FORMAT_VERSION:
        raise Unsupported(
            f"the table has format {format}; this version of mdt reads formats {_MURMUR_FORMAT} to"
            f" {FORMAT_VERSION}",
            hint="upgrade the package pyspark-mdt",
        )
    if format < _MURMUR_FORMAT:
        raise Unsupported(
            f"the table has format {format} from before the first release; this version reads"
            f" formats {_MURMUR_FORMAT} to {FORMAT_VERSION}",
            hint="read it with a Hudi reader and write its rows to a new table",
        )
    try:
        schema, declared = schemas_of(value["schema"], value.get("declared", value["schema"]))
        definition = TableDefinition(
            table_id=str(value["table_id"]),
            name=str(value["name"]),
            table_type=str(value["table_type"]),
            schema=schema,
            declared=declared,
            key=tuple(value["key"]),
            partition_by=tuple(value["partition_by"]),
            ordering=_ordering(value["ordering"]),
            key_index=str(value["key_index"]),
            scope=str(value["scope"]),
            key_hash=_key_hash(value),
            indexes=tuple(value["indexes"]),
            options=table_options(dict(value["options"])),
            hudi_version=int(value["hudi_version"]),
            packages={
                str(name): str(package) for name, package in dict(value.get("packages", {})).items()
            },
            versions=tuple(map(versions.from_json, value.get("versions", ()))),
            adopted=value.get("adopted", False),
            upgraded_at=value.get("upgraded_at", ""),
            formats_since=dict(value.get("formats_since", {})),
        )
        _check(definition, value)
        definition = replace(
            definition, ignored=tuple(sorted(value["options"].keys() - definition.options.keys()))
        )
    except (KeyError, TypeError, ValueError, OSError, OverflowError, pa.ArrowException) as error:
        raise Corrupt(f"the table definition cannot be read: {error!r}"[:300], path=path) from error
    return definition


def _check(definition: TableDefinition, value: Mapping[str, Any]) -> None:
    """Raise ValueError unless a parsed definition is consistent and ``value`` is well typed."""
    for name in ("table_id", "name", "table_type", "key_index", "scope", "schema"):
        _require(isinstance(value[name], str) and "\0" not in value[name], f"{name} is not text")
    for name in ("key", "partition_by", "indexes"):
        _require(
            isinstance(value[name], list) and all(isinstance(item, str) for item in value[name]),
            f"{name} is not a list of texts",
        )
    for name in ("options", "packages"):
        texts = dict(value.get(name, {}))
        _require(
            all(isinstance(text, str) for pair in texts.items() for text in pair),
            f"{name} contains a value that is not text",
        )
    _require(
        len(set(definition.schema.names)) == len(definition.schema.names) > 0,
        "the schema has no columns or repeated column names",
    )
    _require(
        all(name in definition.schema.names for name in definition.fixed),
        "the schema lacks a key, partition or ordering column",
    )
    _require(
        definition.table_type in (COPY_ON_WRITE, MERGE_ON_READ),
        f"unknown table type {definition.table_type}",
    )
    _require(definition.scope in ("partition", "table"), f"unknown scope {definition.scope}")
    _require(type(value["hudi_version"]) is int, "the Hudi table version is not an integer")
    _require(type(definition.upgraded_at) is str, "the field upgraded_at is not a text")
    _require(type(definition.adopted) is bool, "the field adopted is not true or false")
    for name, seq in definition.formats_since.items():
        is_valid = isinstance(name, str) and type(seq) is int and seq > 0
        _require(is_valid, "the field formats_since does not map formats to commits")
    parse_options(definition.options)
    if definition.time_path is not None:
        _require(len(definition.partition_by) == 1, "paths of times need one partition column")
        definition.time_path.check_patterns(definition.schema.field(definition.partition_by[0]))
    for spec in (definition.key_index, *definition.indexes):
        parse_spec(spec)
    if definition.versions:
        newest = definition.versions[-1]
        is_current = (newest.schema, newest.declared) == (definition.schema, definition.declared)
        is_first = definition.versions[0].since == 0 or definition.versions[0].given > 0
        _require(is_current and is_first, "the last schema version differs from the schema")
        check_succession(definition.versions, definition.fixed)


def _ordering_json(ordering: tuple[str, ...]) -> str | list[str] | None:
    """Return a name or null, as older formats have it, or several names."""
    return list(ordering) if len(ordering) > 1 else next(iter(ordering), None)


def _ordering(value: Any) -> tuple[str, ...]:
    """Parse ordering fields. Raises ValueError if they have another form."""
    if value is None or isinstance(value, str):
        return () if value is None else (value,)
    is_valid = isinstance(value, list) and len(value) > 1 and len(set(value)) == len(value)
    _require(
        is_valid and all(isinstance(name, str) for name in value),
        "ordering is not a column name, null, or several column names",
    )
    return tuple(value)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)


def _format_json(definition: TableDefinition) -> dict[str, Any]:
    """Return the header fields for the format version and the key hash."""
    key_hash = definition.key_hash
    if isinstance(key_hash, MurmurHash):
        header: dict[str, Any] = {"format": _MURMUR_FORMAT, "hash_seed": key_hash.seed}
    else:
        header = {"format": _KEYED_FORMAT, "key_hash": key_hash_json(key_hash)}
    if len(definition.ordering) > 1 or definition.has_generated_keys:
        header["format"] = FORMAT_VERSION
    elif definition.other_formats:
        header["format"] = _KEPT_FORMAT
    elif definition.has_other_names:
        header["format"] = _NAMED_FORMAT
    return header


def _key_hash(value: Mapping[str, Any]) -> KeyHash:
    """Parse the key hash of a definition. The text of a ValueError does not contain the secret."""
    if "key_hash" not in value:
        _require(type(value["hash_seed"]) is int, "the seed of the key hash is not an integer")
        return MurmurHash(value["hash_seed"])
    _require(
        is_key_hash(value["key_hash"]),
        "the key hash is unknown, or its secret is damaged",
    )
    return key_hash_of(value["key_hash"])


def key_hash_json(key_hash: MultilinearHash) -> dict[str, str]:
    """Return a keyed hash as JSON values, for a table definition or a rekey record."""
    return {"name": key_hash.name, "secret": key_hash.secret.hex()}


def is_key_hash(value: Any) -> bool:
    """Return True if ``value`` has the form that :func:`key_hash_json` returns."""
    if not isinstance(value, dict) or value.get("name") != MultilinearHash.name:
        return False
    secret = value.get("secret")
    return isinstance(secret, str) and _SECRET.fullmatch(secret) is not None


def key_hash_of(value: Mapping[str, str]) -> MultilinearHash:
    """Return the key hash of a ``value`` that passed :func:`is_key_hash`."""
    return MultilinearHash(bytes.fromhex(value["secret"]))
