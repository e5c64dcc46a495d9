"""Adoption of a table that another Hudi writer created, and its end.

Record 0 of the log defines the table. Until the first import ends, the log is behind Hudi's
timeline, and readers do not use it. So an adoption is visible at once, and after a crash the next
import continues it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from mdt import create_table
from mdt.commit.shared_metadata import lost_partitions_of
from mdt.config import FORMATS_OPTION, Options, parse_options
from mdt.errors import Conflict, Corrupt, Invalid, MdtError, Unsupported
from mdt.formats.registry import formats_of, refuse_folders
from mdt.hudi import bucket_config, timeline
from mdt.hudi.avro_schema import RECORD_KEY
from mdt.hudi.layout import LAYOUTS
from mdt.hudi.plain_arrays import plain
from mdt.hudi.read.fields import parse_json
from mdt.hudi.read.file_slices import FileSlice
from mdt.hudi.read.instants import Timeline
from mdt.hudi.read.key_indexes import RECORD_INDEX, load_definitions
from mdt.hudi.read.loading import TableState, load_properties
from mdt.hudi.read.slice_rows import slice_rows
from mdt.hudi.read.table_properties import EVENT_TIME, TIMESTAMP, TableProperties, refuse
from mdt.hudi.read.table_schema import TableSchema, load_schema
from mdt.hudi.read.table_state import load_state
from mdt.hudi.record_keys import as_text
from mdt.importing.imported_definition import (
    data_columns,
    require_writable_columns,
    with_generated_key,
)
from mdt.importing.imported_slices import Importer
from mdt.limits import PROPERTIES_BYTES_MAX
from mdt.metadata.files import paths
from mdt.metadata.files.file_group import BASE
from mdt.metadata.history.foreign_writers import read_properties
from mdt.metadata.key_indexes import bucket_rules, has_buckets
from mdt.metadata.log import commit_log
from mdt.metadata.log import trusted_names as names
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.metadata import Metadata
from mdt.progress import Progress
from mdt.schema.definition import TableDefinition
from mdt.schema.names import avro_name
from mdt.schema.time_paths import TEXT, UNITS, TimePath
from mdt.services.adoption.commit_import import import_commits, require_names
from mdt.services.adoption.key_mapping import map_keys
from mdt.stores.storage import Storage


@dataclass(frozen=True, slots=True)
class AdoptionPlan:
    """What an adoption reads and writes.

    Attributes:
        file_groups: Number of live file groups.
        base_bytes: Bytes of their base files. Footers and key columns are read.
        log_files: Number of their log files, which are merged.
        log_bytes: Bytes of the log files. Their live rows are written into files of about this
            size.
        key_index: The key index.
        indexes: The skipping indexes.
        formats: The table formats, of which those besides Hudi are added at the end.
        lost_partitions: Partitions of Hudi's metadata table that commits of mdt cannot keep. If
            there are any, the first write removes it, and Hudi's next writer makes it again.
        compacts: True if file groups with log files are compacted at the end.
        seconds: Estimated time, from a trial with a few file groups.
    """

    file_groups: int
    base_bytes: int
    log_files: int
    log_bytes: int
    key_index: str
    indexes: tuple[str, ...]
    formats: tuple[str, ...]
    lost_partitions: tuple[str, ...]
    compacts: bool
    seconds: float


def plan_adoption(
    storage: Storage,
    *,
    key_index: str | None,
    scope: str | None,
    indexes: Sequence[str],
    formats: Sequence[str] | None,
    options: Mapping[str, Any] | None,
    compact: bool = False,
    is_dry: bool = False,
) -> tuple[TableDefinition, AdoptionPlan]:
    """Return the definition of the table to adopt, and the plan. Writes nothing.

    Args:
        is_dry: Estimate the time.

    Raises Invalid if there is no Hudi table or if it is one of mdt, and Unsupported if mdt cannot
    write it.
    """
    if storage.size(paths.RELEASED) is not None:
        text = f"the adoption of {storage.url} was ended, and not all of its objects are removed"
        raise Invalid(text, hint="mdt.release(path) removes the others")
    if storage.size(paths.commit(0)) is not None or storage.list_dir(paths.LOG_DIR):
        raise Invalid(f"{storage.url} is already a table of mdt", hint="mdt.open(path) opens it")
    if read_properties(storage) is None:
        raise Invalid(f"{storage.url} is not a Hudi table", hint="mdt.create(…) creates a table")
    table = load_properties(storage)
    refuse(table)
    _require_writable(table)
    state = load_state(storage, table)
    files = (file for file_slice in state.slices for file in (file_slice.base, *file_slice.logs))
    require_names(file.name for file in files if file is not None)
    schema = load_schema(storage, state)
    columns, key = data_columns(schema.columns), table.key_fields
    fixed = {*table.key_fields, *table.partition_fields, *table.ordering_fields}
    require_writable_columns(schema, fixed, is_adopted=True)
    missing = fixed.difference(columns.names)
    if missing:
        raise Unsupported(f"the field {min(missing)!r} is not a top-level column", hint=_READ)
    if not key:
        columns, key = with_generated_key(columns), (RECORD_KEY,)
    ordering = table.ordering_fields if table.merge_mode == EVENT_TIME else ()
    path_options = _path_options(table, columns)
    try:
        own = parse_options(path_options)
        create_table.check_columns(own, columns, key, table.partition_fields, ordering)
    except Invalid as error:
        raise Unsupported(f"the table cannot be adopted: {error.message}", hint=_READ) from error
    buckets, given = _buckets(state), parse_options(options)
    may_be_global = not (buckets or given.index_type or (key_index or "").startswith("bucket"))
    if scope is None and may_be_global and _has_unique_keys(storage, table):
        scope = "table"
    if key_index is None and buckets and not given.index_type:
        if not given.bucket_count:
            raise Unsupported(
                "the table has Hudi's bucket index, and it does not say how many buckets there"
                f" are: at least {buckets}",
                hint=f"give their number, e.g. key_index=\"bucket(buckets='{buckets}')\"",
            )
        key_index = "bucket"
    definition = create_table.define(
        storage,
        columns,
        key=key,
        partition_by=table.partition_fields,
        ordering=ordering,
        table_type=table.table_type,
        key_index=key_index,
        scope=scope,
        indexes=indexes,
        version=None,
        formats=formats,
        options={
            **_SHARED,
            **(options or {}),
            **path_options,
            create_table.KEY_NAMES_OPTION: _has_named_keys(storage, table, state, schema),
        },
    )
    if has_buckets(definition.key_index) != bool(buckets) and state.slices:
        raise _other_buckets(definition.key_index)
    all_formats = definition.parsed.formats
    _require_known_buckets(storage, state.timeline, definition.key_index)
    definition = definition.with_options({FORMATS_OPTION: None})
    refuse_folders(storage, definition, all_formats)
    definition = replace(definition, name=table.name, adopted=True, hudi_version=table.version)
    bases = [file_slice.base.size for file_slice in state.slices if file_slice.base is not None]
    logs = [log.size for file_slice in state.slices for log in file_slice.logs]
    instants = {
        file_slice.base.instant for file_slice in state.slices if file_slice.base is not None
    }
    plan = AdoptionPlan(
        len(state.slices),
        sum(bases),
        len(logs),
        sum(logs),
        definition.key_index,
        definition.indexes,
        all_formats,
        tuple(sorted(lost_partitions_of(storage, definition, instants))),
        compact,
        _trial_seconds(storage, state, schema, definition.schema) if is_dry else 0.0,
    )
    return definition, plan


def _has_named_keys(
    storage: Storage, table: TableProperties, state: TableState, schema: TableSchema
) -> bool:
    """Return True if the record keys of a table have the name of their only column.

    Key generators for several fields have written both. Writers have an option for it, but tables
    do not, so this is taken from the first row. Without rows, the keys are those that Hudi 1.1
    would write.
    """
    if len(table.key_fields) != 1 or table.key_generator in _VALUES_AS_KEYS:
        return False
    (field,) = table.key_fields
    for file_slice in state.slices:
        rows = slice_rows(storage, state, file_slice, schema, [RECORD_KEY, field]).slice(0, 1)
        if len(rows):
            (stored,), (text,) = rows[RECORD_KEY].to_pylist(), as_text(plain(rows[field]), field)
            return bool(stored == f"{avro_name(field)}:{text}")
    return table.version >= create_table.NAMED_KEYS_SINCE and len(table.partition_fields) > 1


def _has_unique_keys(storage: Storage, table: TableProperties) -> bool:
    """Return True if Hudi's writers have a record index of the whole table, in which each key is
    once. Without it, a key may be in several partitions.
    """
    if RECORD_INDEX not in table.metadata_partitions:
        return False
    try:
        definition = load_definitions(storage, table).record(RECORD_INDEX)
        if definition is None:  # older writers only have this kind
            return True
        return definition.map("indexOptions").text("isPartitioned") != "true"
    except Corrupt:
        return False


def _trial_seconds(
    storage: Storage, state: TableState, schema: TableSchema, stored: pa.Schema
) -> float:
    """Return the time to import a table, from the import of file slices of medium size. Their
    merged files are discarded.
    """
    slices = sorted(state.slices, key=_weight)
    middle = len(slices) // 2
    chosen = slices[max(0, middle - _TRIALS // 2) :][:_TRIALS]
    importer = Importer(storage, lambda *_: None, state, schema, stored, _NO_INSTANT)
    start = storage.now_us()
    for file_slice in chosen:
        imported = importer.import_slice(file_slice)
        for part in imported.parts:
            if part.kind == BASE and part.rows:
                imported.row_ids(part, storage, storage)  # as long as to read the keys
    seconds = (storage.now_us() - start) / 1e6
    return seconds * sum(map(_weight, slices)) / max(1, sum(map(_weight, chosen)))


def _weight(file_slice: FileSlice) -> int:
    """Return the approximate cost of a slice in bytes."""
    base = 0 if file_slice.base is None else file_slice.base.size
    return _FILE_BYTES + base + _LOG_FACTOR * sum(log.size for log in file_slice.logs)


_VALUES_AS_KEYS = ("SIMPLE", "NON_PARTITION", TIMESTAMP)
"""Key generators whose record key of a single field is its value."""
_TRIALS = 5
_FILE_BYTES = 100_000
"""Reading the footer and the keys of a file costs as much as so many of its bytes."""
_LOG_FACTOR = 10
"""Log files are decoded in full, base files only in their keys."""
_NO_INSTANT = "19700101000000000"


_READ = "mdt.open(path) reads the table"
_SHARED = {"mdt.write.footer.bloom": "true"}
"""Options of adopted tables. Hudi's Bloom index needs filters in the footers of all base files."""


def _require_writable(table: TableProperties) -> None:
    """Raise Unsupported for tables that mdt cannot write as their writer does."""
    reason = _reason(table)
    if reason:
        raise Unsupported(f"the table cannot be adopted: {reason}", hint=_READ)


def _reason(table: TableProperties) -> str:
    """Return why mdt cannot write to a table, or "" if it can."""
    if table.version not in LAYOUTS:
        versions = ", ".join(map(str, LAYOUTS))
        return f"it has version {table.version}, and mdt adopts version {versions}"
    if not table.meta_fields:
        return "it has no meta columns (hoodie.populate.meta.fields=false)"
    if _path_generator(table) not in _KEY_GENERATORS or table.slash_separated_dates:
        return f"mdt does not make partition paths as its key generator {table.key_generator} does"
    if table.partial_update or table.delete_mark != ("", ""):
        return "it has partial updates or rows that mark deletes"
    if table.has_cdc_files:
        return "Hudi's change queries fail at commits without CDC files (hoodie.table.cdc.enabled)"
    return ""


def _buckets(state: TableState) -> int:
    """Return the least number of buckets of a table with Hudi's bucket index, 0 for other tables.

    The ids of its file groups begin with the number of their bucket in eight digits. There may be
    more buckets without rows.
    """
    numbers = [_BUCKET.match(file_slice.file_id) for file_slice in state.slices]
    return max((int(number[1]) + 1 for number in numbers if number), default=0) * all(numbers)


_BUCKET = re.compile(r"(0000[0-9]{4})-")
"""Begin of the id of a bucket's file group. A random id begins so once in 100,000 times."""


def _other_buckets(key_index: str) -> Unsupported:
    if has_buckets(key_index):
        return Unsupported(
            f"the table cannot be adopted with the key index {key_index}: its file groups are not"
            " buckets of Hudi's bucket index",
            hint="use another key index, such as record",
        )
    return Unsupported(
        f"the table cannot be adopted with the key index {key_index}: its file groups are buckets,"
        " and Hudi's bucket index cannot read other file groups",
        hint="give the key index of its writer, e.g. key_index=\"bucket(buckets='8')\"",
    )


def _require_known_buckets(storage: Storage, active: Timeline, key_index: str) -> None:
    """Raise Unsupported if Hudi looks for keys in other buckets than ``key_index`` does."""
    if storage.children(bucket_config.CONSISTENT_FOLDER):
        raise Unsupported(
            "the table cannot be adopted: Hudi splits and joins its buckets"
            " (hoodie.index.bucket.engine=CONSISTENT_HASHING)",
            hint=_READ,
        )
    first = bucket_config.PATH.rpartition("/")[2]
    names = []
    for name in storage.children(bucket_config.FOLDER):
        instant, _, suffix = name.partition(".")
        if suffix == "hashing_config" and (name == first or active.is_completed(instant)):
            names.append(name)
    if not names:
        return
    path = f"{bucket_config.FOLDER}/{max(names)}"
    config = parse_json(storage.read_whole(path, PROPERTIES_BYTES_MAX), path)
    rules = config.text("expressions"), config.number("defaultBucketNumber")
    if rules != bucket_rules(key_index):
        raise Unsupported(
            "the table cannot be adopted with these numbers of buckets",
            hint="give those of Hudi's writers: options={'hoodie.index.type': 'BUCKET',"
            f" 'hoodie.bucket.index.num.buckets': {rules[1]},"
            f" 'hoodie.bucket.index.partition.expressions': {rules[0][:1000]!r}}}",
        )


_KEY_GENERATORS = ("", "SIMPLE", "COMPLEX", "NON_PARTITION", TIMESTAMP)
"""Key generators whose record keys and partition paths are like ours. Keys are compared later."""


def _path_generator(table: TableProperties) -> str:
    """Return the type of the key generator that makes the same partition paths.

    From version 8 on, the custom key generator stores whether a part of the path is a value or a
    time: ``city:SIMPLE,at:TIMESTAMP``. It does not store how the text of a time is made.
    """
    types = {field.partition(":")[2].upper() for field in table.stored_partition_fields}
    if table.key_generator == "CUSTOM" and types <= {"SIMPLE"}:
        return "COMPLEX"
    return table.key_generator


def _path_options(table: TableProperties, columns: pa.Schema) -> dict[str, str]:
    """Return the options that make partition paths as the key generator of a table does.

    Raises Unsupported for times that are neither integers nor texts, and for patterns that mdt does
    not know.
    """
    options = {"mdt.hive.style": str(table.hive_style).lower()}
    if table.key_generator != TIMESTAMP:
        return options
    fields = [columns.field(name) for name in table.partition_fields]
    path = _time_path(table)
    is_integer = len(fields) == 1 and pa.types.is_integer(fields[0].type)
    if path is None or len(fields) != 1 or is_integer == bool(path.input):
        kind = _time_property(table, "timestamp.type")
        raise Unsupported(
            "the table cannot be adopted: its partition paths are not made of one column of texts,"
            " or of integers that are seconds, milliseconds or microseconds"
            f" (timestamp.type={kind}, partition fields {', '.join(table.partition_fields)})",
            hint=_READ,
        )
    try:
        path.check(fields[0])
    except Invalid as error:
        raise Unsupported(f"the table cannot be adopted: {error.message}", hint=_READ) from error
    return {
        **options,
        "mdt.partition.time.pattern": path.pattern,
        "mdt.partition.time.unit": path.unit,
        "mdt.partition.time.zone": path.zone,
        "mdt.partition.time.input": path.input,
    }


def _time_path(table: TableProperties) -> TimePath | None:
    """Return the form of the time-based partition paths of a table, or None if mdt lacks it.

    Raises Unsupported for texts in one time zone with paths in another one.
    """
    kind, pattern = (
        _time_property(table, name) for name in ("timestamp.type", "output.dateformat")
    )
    zone = _time_property(table, "timezone")
    zone_of_texts = zone or _time_property(table, "input.timezone")
    zone_of_paths = zone or _time_property(table, "output.timezone")
    units = {hudis: unit for unit, hudis in UNITS.items()}
    if kind in units:
        return TimePath(pattern, units[kind], zone_of_paths or "UTC")
    # releases before 1.0 do not store that the times are texts
    texts = _time_property(table, "input.dateformat")
    if kind not in ("", TEXT) or not texts or _time_property(table, _DELIMITER):
        return None
    path = TimePath(pattern, "ms", zone_of_paths or zone_of_texts, input=texts)
    if not path.has_offset and path.zone != zone_of_texts:
        raise Unsupported(
            "the table cannot be adopted: it has texts with times of the zone"
            f" {zone_of_texts or 'of the machine'}, and partition paths in {path.zone}",
            hint=_READ,
        )
    return path


_DELIMITER = "input.dateformat.list.delimiter.regex"


def _time_property(table: TableProperties, name: str) -> str:
    """Return a property of Hudi's time-based key generator under its new or old name, or ""."""
    prefixes = ("hoodie.keygen.timebased.", "hoodie.deltastreamer.keygen.timebased.")
    return next((table.stored[p + name] for p in prefixes if p + name in table.stored), "")


def adopt(storage: Storage, definition: TableDefinition) -> None:
    """Write record 0. The next write or refresh imports the table.

    Raises Invalid if another process adopts it at the same time.
    """
    storage.require_conditional_put()
    header = {
        "txn": storage.random_hex(16),
        "instant": timeline.instant_text(storage.now_us()),
        "action": "create",
        "operation": names.ADOPT,
        "begun_at": -1,
        "counts": {},
        "definition": definition.to_json(),
    }
    if not commit_log.append(storage, CommitRecord(0, header)):
        raise Invalid(f"{storage.url} was just adopted", hint="mdt.open(path) opens it")


def catch_up(metadata: Metadata, options: Options, progress: Progress | None = None) -> int:
    """Import commits of other writers that the log does not contain, and map the keys of their
    files. Return the number of imports.

    Raises the errors of :func:`mdt.services.adoption.commit_import.import_commits` and
    :func:`mdt.services.adoption.key_mapping.map_keys`.
    """
    imports = 0
    for _ in range(options.commit_attempts):
        try:
            metadata.newest()
            map_keys(metadata, options, progress)
            return imports
        except MdtError as error:
            if not error.is_of_others:
                raise
        imports += import_commits(metadata, progress)
    raise too_many_commits(options)


def too_many_commits(options: Options) -> Conflict:
    """Return the error for a write during which Hudi's writers always commit."""
    return Conflict(
        f"another Hudi writer committed or began a write during all {options.commit_attempts}"
        " attempts",
        hint="retry when fewer writers are active",
    )


def import_first(metadata: Metadata, options: Options, progress: Progress | None = None) -> None:
    """Import a table that was just adopted. The adoption is undone if mdt would write other keys or
    cannot read the rows.

    Raises as :func:`catch_up`.
    """
    try:
        catch_up(metadata, options, progress)
    except Unsupported as error:
        release(metadata.storage)
        raise Unsupported(error.message, hint=error.hint) from None


def release(storage: Storage) -> None:
    """Remove everything of mdt from an adopted table, the metadata of other formats first.

    Rows that mdt wrote stay, because they are in Hudi's files. A marker is put first and removed
    last, so that a release that ends early can be repeated.

    Raises Invalid if there is nothing to remove, or if mdt created the table.
    """
    objects = [info.path for info in storage.list(paths.PRIVATE)]
    if not objects:
        raise Invalid(f"{storage.url} is not adopted", hint="mdt.adopt(path) adopts a table")
    if paths.RELEASED not in objects:
        newest = Metadata(storage).newest(watched=False)
        if not newest.definition.adopted:
            raise Invalid(
                f"{storage.url} was created by mdt and is not adopted",
                hint="Hudi's readers read it as it is; mdt.release ends adoptions only",
            )
        for form in formats_of(newest.definition):
            form.remove(storage, newest.seq + 1)
        storage.create(paths.RELEASED, b"")
    storage.delete_many([path for path in objects if path != paths.RELEASED])
    storage.delete(paths.RELEASED)
