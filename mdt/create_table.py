"""Validate the settings of a new table and write commit record 0."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from indexes import registry
from indexes.key_hash import SECRET_BYTES, MultilinearHash
from mdt.arguments import named_column, nearest, one_of, own_spelling, texts
from mdt.commit import annotation, hudi_locks, publish
from mdt.commit.hudi_record_index import require_unique_keys
from mdt.config import (
    FORMATS_OPTION,
    HUDI_FORMAT,
    IN_KEY_INDEX,
    Options,
    canonical,
    parse_options,
    table_options,
)
from mdt.errors import Invalid, Unsupported
from mdt.formats import keeping as other_formats
from mdt.formats.registry import FOLDERS, refuse_columns
from mdt.formats.uris import refuse_location
from mdt.hudi import partitions, record_keys, timeline
from mdt.hudi.avro_schema import RECORD_KEY, avro_schema
from mdt.hudi.layout import LAYOUTS, layout_of
from mdt.metadata import key_indexes
from mdt.metadata.files import paths
from mdt.metadata.files.key_map import orderable, words_decide
from mdt.metadata.history.other_tables import refuse_to_create
from mdt.metadata.log import commit_log
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.log.trusted_names import writer_of
from mdt.metadata.metadata import Metadata
from mdt.metadata.skipping_indexes import named_spec, packages_of
from mdt.schema import declared
from mdt.schema.definition import COPY_ON_WRITE, MERGE_ON_READ, TableDefinition
from mdt.schema.header_fields import present
from mdt.schema.time_paths import TimePath
from mdt.stores.storage import Storage, open_storage

_TABLE_TYPES = {
    "merge_on_read": MERGE_ON_READ,
    "mor": MERGE_ON_READ,
    "copy_on_write": COPY_ON_WRITE,
    "cow": COPY_ON_WRITE,
}
_VERSION = "mdt.table.version"
_NEW_VERSIONS = (6, 9)
_BEHIND_ALL = "\U0010ffff"
"""Sorts after every name."""

KEY_NAMES_OPTION = "mdt.key.names.column"
NAMED_KEYS_SINCE = 9
"""Table version since which Hudi's writers name a single key column if there are several partition
columns.
"""


def storage_for(
    path: Any, options: Mapping[str, Any] | None, storage_options: Mapping[str, object] | None
) -> Storage:
    """Return the storage for a new table. Raises Invalid or Unsupported if a table cannot be
    written there.
    """
    parsed = parse_options(options)
    storage = open_storage(path, durable=parsed.durable, storage_options=storage_options)
    storage.require_conditional_put()
    return storage


def define(
    storage: Storage,
    columns: pa.Schema,
    *,
    key: Sequence[str],
    partition_by: Sequence[str],
    ordering: str | Sequence[str] | None,
    table_type: str,
    key_index: str | None,
    scope: str | None,
    indexes: Sequence[str],
    version: int | None,
    formats: Sequence[str] | None,
    options: Mapping[str, Any] | None,
) -> TableDefinition:
    """Return the definition of a new table. Raises Invalid or Unsupported for settings that do not
    fit together.
    """
    key = texts("key", key, "['id']")
    partition_by = texts("partition_by", partition_by, "['city']")
    ordering = texts("ordering", () if ordering is None else ordering, "'ts'")
    table_type = _table_type(table_type)
    options = _with_formats(_with_version(options, version), formats)
    parsed = parse_options(options)
    hudi_locks.lock_of(storage, parsed)  # raises for a lock that this storage does not have
    index_name, scope_name = key_indexes.choose(key_index, scope, parsed)
    scope = one_of("scope", scope_name, ("partition", "table"))
    stored = declared.stored_schema(columns, {RECORD_KEY}.intersection(key))
    if not key:
        raise Invalid("a table needs a record key", hint="name its columns: key=['id']")
    key, partition_by = (
        _own_names("key", key, stored),
        _own_names("partition_by", partition_by, stored),
    )
    ordering = _own_names("ordering", ordering, stored)
    if _hudi_names_key(parsed, key, partition_by) and not parsed.key_names_column:
        if KEY_NAMES_OPTION in options:
            raise Invalid(
                f"Hudi's writers name the column {key[0]!r} in record keys of version"
                f" {parsed.table_version} with several partition columns, and"
                f" {KEY_NAMES_OPTION} is false",
                hint="remove the option",
            )
        options = {**options, KEY_NAMES_OPTION: "true"}
        parsed = parse_options(options)
    key_index = key_indexes.with_buckets(key_indexes.stored_spec(index_name), parsed, key)
    check_columns(parsed, stored, key, partition_by, ordering)
    _refuse_together(parsed, ordering, partition_by)
    _refuse_inexact_order(parsed, ordering, stored)
    if key_indexes.has_buckets(key_index):
        _refuse_buckets(parsed, scope)
    index_specs = tuple(
        named_spec(text, stored) for text in texts("indexes", indexes, "['bitmap(status)']")
    )
    key_hash = MultilinearHash(bytes.fromhex(storage.random_hex(SECRET_BYTES)))
    definition = TableDefinition(
        storage.random_hex(16),
        _name(storage, parsed),
        table_type,
        stored,
        columns.remove_metadata(),
        key,
        partition_by,
        ordering,
        key_index,
        scope,
        key_hash,
        index_specs,
        _stored_options(storage, key_index, parsed.table_version, options),
        hudi_version=parsed.table_version,
        packages=packages_of([key_index, *index_specs]),
    )
    _refuse_version(definition)
    require_unique_keys(definition)
    refuse_columns(definition)
    if definition.other_formats:
        refuse_location(storage)
    return definition


def _hudi_names_key(options: Options, key: Sequence[str], partition_by: Sequence[str]) -> bool:
    """Return True if Hudi's writers always name the column in the record keys of such a table."""
    return options.table_version >= NAMED_KEYS_SINCE and len(key) == 1 and len(partition_by) > 1


def _with_version(options: Mapping[str, Any] | None, version: int | None) -> dict[str, str]:
    """Return the options by our names, with the table version. Raises Invalid for another one."""
    texts = canonical(options)
    if version is None:
        return texts
    if texts.setdefault(_VERSION, str(version)) != str(version):
        raise Invalid(
            f"version is {version}, but the option {_VERSION} is {texts[_VERSION]}",
            hint="set one of them",
        )
    return texts


def _with_formats(options: dict[str, str], formats: Sequence[str] | None) -> dict[str, str]:
    """Return the options with the formats. Raises Invalid if the option names others."""
    if formats is None:
        return options
    named = ",".join(texts("formats", formats, "['hudi', 'delta']"))
    given = canonical({**options, FORMATS_OPTION: named})
    if options.get(FORMATS_OPTION, given[FORMATS_OPTION]) != given[FORMATS_OPTION]:
        raise Invalid(
            f"formats is {named}, but the option {FORMATS_OPTION} is {options[FORMATS_OPTION]}",
            hint="set one of them",
        )
    return given


def _refuse_version(definition: TableDefinition) -> None:
    """Raise Unsupported for a table version in which no new table is made."""
    layout_of(definition)
    if definition.hudi_version not in _NEW_VERSIONS:
        raise Unsupported(
            f"mdt creates no tables of version {definition.hudi_version}",
            hint="create one of version 6 or 9; mdt.adopt(path) adopts those of Hudi",
        )


def _table_type(value: object) -> str:
    """Return Hudi's name of a table type, which may be short and in any case."""
    name = value
    if isinstance(value, str):
        name = _TABLE_TYPES.get(value.strip().lower().replace("-", "_"), value)
    return one_of("table_type", name, (MERGE_ON_READ, COPY_ON_WRITE))


def check_columns(
    options: Options,
    stored: pa.Schema,
    key: Sequence[str],
    partition_by: Sequence[str],
    ordering: Sequence[str],
) -> None:
    """Raise Invalid for columns whose types cannot form record keys or partition paths, or order
    rows, and as :func:`_check_partitions`.
    """
    record_keys.record_keys(stored.empty_table(), key)
    _check_partitions(options, stored, key, partition_by)
    for name in ordering:
        if not orderable(stored.field(name).type):
            raise Invalid(
                f"the ordering field {name!r} has type {stored.field(name).type}, which is not"
                " supported",
                hint=(
                    "use an integer (but not uint64), a float, a decimal of up to 18 digits, a"
                    " date, a timestamp or a string"
                ),
            )


def _check_partitions(
    options: Options, stored: pa.Schema, key: Sequence[str], partition_by: Sequence[str]
) -> None:
    """Raise Invalid for columns that cannot form partition paths, and Unsupported for settings that
    Hudi's TimestampBasedKeyGenerator lacks.
    """
    pattern = options.partition_time_pattern
    if not pattern:
        partitions.partition_paths(stored.empty_table(), partition_by)
        return
    if len(partition_by) != 1 or len(key) != 1:
        raise Unsupported(
            "mdt.partition.time.pattern requires one partition column and one key column, as Hudi's"
            " TimestampBasedKeyGenerator does",
            hint="leave the option out, or name one column in each",
        )
    time_path = TimePath(
        pattern,
        options.partition_time_unit,
        options.partition_time_zone,
        input=options.partition_time_input,
    )
    time_path.check(stored.field(partition_by[0]))


def _refuse_buckets(options: Options, scope: str) -> None:
    """Raise Unsupported if a key's bucket does not determine its partition and file group."""
    if scope == "table":
        raise Unsupported(
            "the bucket index does not support scope='table'",
            hint="leave scope out, or choose another key index",
        )
    if options.keys_repeat:
        raise Unsupported(
            "the bucket index requires unique keys, but mdt.keys.repeat is true",
            hint="choose another key index",
        )


def _refuse_together(
    options: Options, ordering: Sequence[str], partition_by: Sequence[str]
) -> None:
    """Raise Invalid for options that leave open a row's partition or the value it is compared
    with.
    """
    if options.delete_keeps_ordering and not ordering:
        raise Invalid(
            "mdt.delete.keeps.ordering requires an ordering field", hint="add ordering='ts'"
        )
    if options.delete_keeps_ordering and options.keys_repeat:
        raise Invalid(
            "mdt.delete.keeps.ordering cannot be combined with mdt.keys.repeat",
            hint="leave one of the options out",
        )
    if options.update_partition_path:
        return
    if options.partition_time_pattern:
        raise Invalid(
            "mdt.update.partition.path=false cannot be combined with mdt.partition.time.pattern",
            hint="leave one of the options out",
        )
    if options.keys_repeat:
        raise Invalid(
            "mdt.update.partition.path=false cannot be combined with mdt.keys.repeat",
            hint="leave one of the options out",
        )
    for name in ordering:
        if name in partition_by:
            raise Invalid(
                "mdt.update.partition.path=false keeps the values of partition columns, so"
                f" {name!r} cannot be the ordering field",
                hint="choose another ordering field",
            )


def _refuse_inexact_order(options: Options, ordering: Sequence[str], stored: pa.Schema) -> None:
    """Raise Invalid if the options compare 64-bit ordering words only, which do not decide."""
    compared_alone = options.keys_repeat or options.delete_keeps_ordering
    if compared_alone and not words_decide(stored, ordering):
        raise Invalid(
            "mdt.keys.repeat and mdt.delete.keeps.ordering do not support ordering fields that are"
            f" text or several: {', '.join(ordering)}",
            hint="choose one number or timestamp",
        )


def _name(storage: Storage, options: Options) -> str:
    """Return the name given in the options, or the last part of the table's path."""
    folder = storage.url.rstrip("/").rpartition("/")[2]
    return options.table_name or re.sub(r"\W", "_", folder) or "table"


def _stored_options(
    storage: Storage, key_index: str, version: int, options: Mapping[str, Any] | None
) -> dict[str, str]:
    """Return the options that a new table stores, with defaults that depend on its key index,
    table version and storage.

    All readers of version 9 know the positions of replaced rows, which Hudi's writers add, too, and
    list files by Hudi's metadata table.
    Tables with the Bloom key index write footer filters, the only place where Hudi's Bloom index
    reads them. Tables on object storage use zstd, because they pay for each byte stored and
    transferred, and tables with other formats, because not every reader knows lz4. Options that
    choose the key index are stored as ``key_index`` instead. Options of the scopes session and
    machine are not stored.
    """
    defaults = (
        {"mdt.write.footer.bloom": "true"} if registry.parse_spec(key_index).kind == "bloom" else {}
    )
    if version in LAYOUTS and LAYOUTS[version].has_positions:
        defaults["mdt.write.record.positions"] = "true"
        defaults |= {"mdt.hudi.metadata": "true", "mdt.hudi.column.stats": "true"}
    chosen = table_options(canonical(options))
    if storage.is_remote or parse_options(chosen).formats != (HUDI_FORMAT,):
        defaults["mdt.compression"] = "zstd"
    return {
        **defaults,
        **{name: value for name, value in chosen.items() if name not in IN_KEY_INDEX},
    }


def _own_names(role: str, names: Sequence[str], stored: pa.Schema) -> tuple[str, ...]:
    """Return columns as the schema spells them."""
    missing = [name for name in names if own_spelling(name, stored.names) is None]
    if missing:
        near = nearest(missing[0], stored.names)
        raise Invalid(
            f"{role}: there is no column {', '.join(map(repr, missing))}",
            hint=near or f"columns: {', '.join(stored.names[:20])}",
        )
    columns = tuple(named_column(name, stored.names) for name in names)
    if len(set(columns)) != len(columns):
        raise Invalid(f"{role} names a column twice: {', '.join(names)}")
    return columns


def create(storage: Storage, definition: TableDefinition) -> None:
    """Write commit record 0 and Hudi's files of an empty table. Raises Invalid if a table
    exists, and Unsupported for several ordering fields in version 6, and for
    generated keys.
    """
    refuse_to_create(storage)
    if definition.has_generated_keys:
        raise Unsupported(
            "mdt creates no tables with generated keys", hint="name key columns: key=['id']"
        )
    if definition.hudi_version == 6 and len(definition.ordering) > 1:
        raise Unsupported(
            "tables of version 6 have one ordering field, because Hudi before 1.1 knows no others",
            hint="create a table of version 9: version=9",
        )
    header = {
        "txn": storage.random_hex(16),
        "instant": timeline.instant_text(storage.now_us()),
        "action": "create",
        "operation": "create",
        "begun_at": -1,
        "counts": {},
        "definition": definition.to_json(),
        **_location(storage, definition),
        **present(metadata=dict(annotation.current())),
    }
    record = publish.with_completion(CommitRecord(0, header), definition, "", storage.now_us())
    avro_schema(definition)
    if not commit_log.append(storage, record):
        raise Invalid(f"{storage.url} is already a table", hint="mdt.open(path) opens it")
    if definition.other_formats:
        metadata = Metadata(storage)
        other_formats.keep(metadata, record, metadata.newest(watched=False))
    publish.publish(storage, record, definition)


def _location(storage: Storage, definition: TableDefinition) -> dict[str, str]:
    """Return the header field with the location, which formats with absolute paths repeat."""
    if not definition.other_formats:
        return {}
    return {"location": storage.location}


def discard(storage: Storage) -> None:
    """Remove a table whose first write failed, and no files besides. It stays if another writer has
    committed to it, or has begun to write.
    """
    # Claims first: a writer removes its claim after its commit is in the log.
    writers = storage.list_dir(paths.PENDING_DIR)
    if writers or [entry.path for entry in storage.list_dir(paths.LOG_DIR)] != [paths.commit(0)]:
        return
    files = [info.path for info in storage.list("") if _is_of_table(info.path)]
    storage.delete(paths.commit(0))  # from here on it is not a table
    storage.delete_many(files)
    folders = {path[:end] for path in files for end in range(len(path)) if path[end] == "/"}
    for folder in sorted(folders, reverse=True):  # inner folders first
        storage.drop_directories(folder.rpartition("/")[0], _BEHIND_ALL)


def _is_of_table(path: str) -> bool:
    folder = path.rpartition("/")[0]
    is_marker = path == paths.partition_metadata(folder)
    is_own = paths.is_hudis(path) or folder in FOLDERS or is_marker
    return is_own or writer_of(path).token is not None
