"""What a table is: the settings that decide what its data means, written in commit record 0.

Later records change only its indexes and the version of its schema (:mod:`mdt.schema.versions`).
Options that only tune speed are kept beside it and may be overridden when a table is opened.
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
from mdt.config import Options, of_table, options_of, parse_options
from mdt.errors import Corrupt, Unsupported
from mdt.schema import names, versions
from mdt.schema.header_fields import present
from mdt.schema.time_paths import TimePath
from mdt.schema.versions import SchemaVersion, check_succession, schemas_json, schemas_of

FORMAT_VERSION = 5
"""Version of everything below ``.hoodie/.mdt/``; a reader refuses newer ones.  This is that of
tables with names that Avro does not allow.
"""
_KEYED_FORMAT = 4
"""That of tables whose names Avro allows, and whose keys are hashed with a secret."""
_MURMUR_FORMAT = 3
"""That of tables whose keys are hashed with MurmurHash3."""

_SECRET = re.compile(f"[0-9a-f]{{{2 * SECRET_BYTES}}}")

COPY_ON_WRITE = "COPY_ON_WRITE"
MERGE_ON_READ = "MERGE_ON_READ"


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """The identity and semantics of one table.

    ``schema``: data columns in the types that files have, without Hudi's meta columns;
    ``declared``: the same columns as they were declared, are written to and come back
    (:mod:`mdt.schema.declared`); both by the names that the table has for them, which Hudi's files
    may not have (:mod:`mdt.schema.names`).  ``has_other_names``: whether that is so.  ``key``,
    ``partition_by``: column names.  ``ordering``: the ordering field or None.  ``key_index``:
    specification of the key index.  ``scope``: "partition" (non-global) or "table" (global).
    ``key_hash``: decides which keys are the same.  ``indexes``: specifications of skipping indexes.
    ``packages``: persisted name of an index of another package -> that package, for people who miss
    it. ``versions``: of the schema, the last one being ``schema``; empty if it was never altered.
    ``ignored``: names of options that were read and are not the table's to choose.
    """

    table_id: str
    name: str
    table_type: str
    schema: pa.Schema
    declared: pa.Schema
    key: tuple[str, ...]
    partition_by: tuple[str, ...]
    ordering: str | None
    key_index: str
    scope: str
    key_hash: KeyHash
    indexes: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    hudi_version: int = 6
    packages: Mapping[str, str] = field(default_factory=dict)
    versions: tuple[SchemaVersion, ...] = ()
    ignored: tuple[str, ...] = field(default=(), compare=False)
    has_other_names: bool = field(init=False, repr=False, compare=False)
    _unaltered: SchemaVersion | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "has_other_names", not names.are_avro(self.schema))
        is_read = self.has_other_names and not self.versions  # by every file
        first = versions.first_version(self.schema, self.declared) if is_read else None
        object.__setattr__(self, "_unaltered", first)

    @property
    def is_mor(self) -> bool:
        """Whether updates go to log files."""
        return self.table_type == MERGE_ON_READ

    @property
    def is_global(self) -> bool:
        """Whether a key may live only once in the whole table."""
        return self.scope == "table"

    @property
    def parsed(self) -> Options:
        """The options of the table, without what was overridden when it was opened."""
        return options_of(tuple(self.options.items()))

    @property
    def hive_style(self) -> bool:
        """Whether partition directories are called column=value."""
        return self.parsed.hive_style

    @property
    def moves_rows(self) -> bool:
        """Whether a row that arrives with another partition moves there, under table scope; else it
        stays, with its partition columns.
        """
        return self.parsed.update_partition_path

    @property
    def keys_repeat(self) -> bool:
        """Whether a key may live more than once in its scope, though never twice in a file
        group.
        """
        return self.parsed.keys_repeat

    @property
    def keeps_deletes(self) -> bool:
        """Whether it is kept at which ordering value a key was deleted, so that older rows do not
        revive it.
        """
        return self.parsed.delete_keeps_ordering

    @property
    def tombstone_hours(self) -> int:
        """After how many hours that is forgotten, 0 for never."""
        return self.parsed.delete_keeps_ordering_hours

    @property
    def time_path(self) -> TimePath | None:
        """How partition paths are made of a time, None if they are made of values."""
        options = self.parsed
        if not options.partition_time_pattern:
            return None
        return TimePath(
            options.partition_time_pattern, options.partition_time_unit, options.partition_time_zone
        )

    @property
    def commit_action(self) -> str:
        """Hudi's word for a write to this table: ``deltacommit`` (merge-on-read) or ``commit``."""
        if self.is_mor:
            return "deltacommit"
        return "commit"

    @property
    def fixed(self) -> tuple[str, ...]:
        """The columns that are never altered: of the key, of the partitions and of the order."""
        names = dict.fromkeys((*self.key, *self.partition_by, self.ordering))
        return tuple(name for name in names if name is not None)

    @property
    def unique_by(self) -> tuple[str, ...]:
        """The columns that say which row it is: of the key, under partition scope of the partitions
        too.
        """
        if self.is_global:
            return self.key
        return (*self.key, *self.partition_by)

    def forms(self, names: Iterable[str]) -> tuple[pa.Schema, pa.Schema]:
        """Return some columns as declared, and as stored."""
        known = list(names)
        return (
            pa.schema(map(self.declared.field, known)),
            pa.schema(map(self.schema.field, known)),
        )

    @property
    def version(self) -> SchemaVersion:
        """The newest version of the schema."""
        if self.versions:
            return self.versions[-1]
        return self._unaltered or versions.first_version(self.schema, self.declared)

    def altered(self, version: SchemaVersion) -> TableDefinition:
        """Return the definition with a newer version of the schema.  Raises ValueError if it cannot
        follow those before.
        """
        found = (*(self.versions or (self.version,)), version)
        check_succession(found, self.fixed)
        return replace(self, schema=version.schema, declared=version.declared, versions=found)

    def without_versions(self, ended: AbstractSet[int]) -> TableDefinition:
        """Return the definition without the versions of the schema that began with the commits
        ``ended``.  Raises ValueError if it needs one.
        """
        return replace(self, versions=versions.without(self.versions, ended))

    def with_options(self, changes: Mapping[str, str | None]) -> TableDefinition:
        """Return the definition with other values of options, None for the default.  Raises Invalid
        for values that do not go together.
        """
        given = {**self.options, **of_table(changes)}
        options = {name: text for name, text in given.items() if text is not None}
        options_of(tuple(options.items()))
        if options == self.options:
            return self
        return replace(self, options=options)

    def at(self, seq: int) -> TableDefinition:
        """Return the definition with the schema of the files that commit ``seq`` has added."""
        left = tuple(version for version in self.versions if version.since <= seq)
        left = left or self.versions[:1]
        if len(left) == len(self.versions):
            return self
        return replace(self, schema=left[-1].schema, declared=left[-1].declared, versions=left)

    def statistics_name(self, path: str) -> str:
        """Return the name under which statistics of the column at ``path`` stand."""
        if not self.versions:
            return path
        return versions.statistics_names(self.versions)[-1].get(path, path)

    def statistics_ended(self, states: Iterable[int] = ()) -> frozenset[str]:
        """Return names under which statistics stand of columns that the table has no more, nor had
        after any of the commits ``states``.
        """
        if not self.versions:
            return frozenset()
        names = versions.statistics_names(self.versions)
        begun = [version.since for version in self.versions]
        ended = frozenset[str]().union(*(of.values() for of in names))
        asked = {len(begun) - 1, *(bisect_right(begun, seq) - 1 for seq in states)}
        return ended.difference(*(names[at].values() for at in asked))

    def to_json(self) -> dict[str, Any]:
        """Return the definition as JSON values; schemas are Arrow IPC schema messages in base64."""
        return {
            "table_id": self.table_id,
            "name": self.name,
            "table_type": self.table_type,
            **schemas_json(self.schema, self.declared),
            "key": list(self.key),
            "partition_by": list(self.partition_by),
            "ordering": self.ordering,
            "key_index": self.key_index,
            "scope": self.scope,
            **_key_hash_json(self.key_hash, has_other_names=self.has_other_names),
            "indexes": list(self.indexes),
            "options": dict(self.options),
            "hudi_version": self.hudi_version,
            **present(
                packages=dict(self.packages),
                versions=[version.to_json() for version in self.versions],
            ),
        }


def from_json(value: Mapping[str, Any], *, path: str) -> TableDefinition:
    """Return the definition that :meth:`TableDefinition.to_json` wrote; ``path`` names the object
    in errors.

    Options that a table does not keep are left out: older versions wrote them.  Raises Unsupported
    for another format, Corrupt for values of a wrong form.
    """
    format = value.get("format", _MURMUR_FORMAT)
    if type(format) is not int:
        raise Corrupt(
            "the table definition has no format",
            path=path,
            expected="a number",
            got=repr(format)[:40],
        )
    if format > FORMAT_VERSION:
        raise Unsupported(
            f"the table has format {format}, this version reads formats {_MURMUR_FORMAT} to"
            f" {FORMAT_VERSION}",
            hint="upgrade the package pyspark-mdt",
        )
    if format < _MURMUR_FORMAT:
        raise Unsupported(
            f"the table has format {format}, of a version before the first release; this one reads"
            f" formats {_MURMUR_FORMAT} to {FORMAT_VERSION}",
            hint="read it with a Hudi reader and write its rows to a new table",
        )
    try:
        schema, declared = schemas_of(value["schema"], value.get("declared", value["schema"]))
        found = TableDefinition(
            table_id=str(value["table_id"]),
            name=str(value["name"]),
            table_type=str(value["table_type"]),
            schema=schema,
            declared=declared,
            key=tuple(value["key"]),
            partition_by=tuple(value["partition_by"]),
            ordering=value["ordering"],
            key_index=str(value["key_index"]),
            scope=str(value["scope"]),
            key_hash=_key_hash(value),
            indexes=tuple(value["indexes"]),
            options=of_table(dict(value["options"])),
            hudi_version=int(value["hudi_version"]),
            packages={
                str(name): str(package) for name, package in dict(value.get("packages", {})).items()
            },
            versions=tuple(map(versions.from_json, value.get("versions", ()))),
        )
        _check(found, value)
        found = replace(
            found, ignored=tuple(sorted(value["options"].keys() - found.options.keys()))
        )
    except (KeyError, TypeError, ValueError, OSError, OverflowError, pa.ArrowException) as error:
        raise Corrupt(f"the table definition cannot be read: {error!r}"[:300], path=path) from error
    return found


def _check(found: TableDefinition, value: Mapping[str, Any]) -> None:
    """Raise ValueError unless a definition that was read agrees with itself, and ``value`` has the
    types that it should.
    """
    for name in ("table_id", "name", "table_type", "key_index", "scope", "schema"):
        _require(isinstance(value[name], str) and "\0" not in value[name], f"{name} is no text")
    for name in ("key", "partition_by", "indexes"):
        _require(
            isinstance(value[name], list) and all(isinstance(item, str) for item in value[name]),
            f"{name} is no list",
        )
    for name in ("options", "packages"):
        texts = dict(value.get(name, {}))
        _require(
            all(isinstance(text, str) for pair in texts.items() for text in pair),
            f"{name} holds other things than text",
        )
    _require(
        len(set(found.schema.names)) == len(found.schema.names) > 0,
        "the schema has columns without names of their own",
    )
    _require(
        bool(found.key) and all(name in found.schema.names for name in found.fixed),
        "the schema lacks a column that is named",
    )
    _require(
        found.table_type in (COPY_ON_WRITE, MERGE_ON_READ), f"no table type {found.table_type}"
    )
    _require(found.scope in ("partition", "table"), f"no scope {found.scope}")
    _require(type(value["hudi_version"]) is int, "no version of Hudi's tables")
    parse_options(found.options)
    for spec in (found.key_index, *found.indexes):
        parse_spec(spec)
    if found.versions:
        newest = found.versions[-1]
        same = (newest.schema, newest.declared) == (found.schema, found.declared)
        is_first = found.versions[0].since == 0 or found.versions[0].given > 0
        _require(same and is_first, "the last version of the schema is not the schema")
        check_succession(found.versions, found.fixed)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)


def _key_hash_json(key_hash: KeyHash, *, has_other_names: bool) -> dict[str, Any]:
    """Return the format of a table and how it hashes keys, as the definition holds them."""
    if isinstance(key_hash, MurmurHash):
        told: dict[str, Any] = {"format": _MURMUR_FORMAT, "hash_seed": key_hash.seed}
    else:
        told = {"format": _KEYED_FORMAT, "key_hash": key_hash_json(key_hash)}
    return {**told, "format": FORMAT_VERSION} if has_other_names else told


def _key_hash(value: Mapping[str, Any]) -> KeyHash:
    """Return the key hash of a definition.  Raises ValueError, which does not show the secret."""
    if "key_hash" not in value:
        _require(type(value["hash_seed"]) is int, "the seed of the key hash is not a number")
        return MurmurHash(value["hash_seed"])
    _require(
        is_key_hash(value["key_hash"]),
        "the key hash is none that is known, or its secret is damaged",
    )
    return key_hash_of(value["key_hash"])


def key_hash_json(key_hash: MultilinearHash) -> dict[str, str]:
    """Return a key hash with a secret as the definition of a table holds it, and a record that
    changes it.
    """
    return {"name": key_hash.name, "secret": key_hash.secret.hex()}


def is_key_hash(value: Any) -> bool:
    """Return whether ``value`` is what :func:`key_hash_json` returns."""
    if not isinstance(value, dict) or value.get("name") != MultilinearHash.name:
        return False
    secret = value.get("secret")
    return isinstance(secret, str) and _SECRET.fullmatch(secret) is not None


def key_hash_of(value: Mapping[str, str]) -> MultilinearHash:
    """Return the key hash that :func:`is_key_hash` has tested."""
    return MultilinearHash(bytes.fromhex(value["secret"]))
