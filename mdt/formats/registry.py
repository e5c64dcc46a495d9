"""The formats that a table may have besides Hudi, and what they refuse."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from mdt.config import HUDI_FORMAT
from mdt.errors import Invalid
from mdt.formats.delta.log import DeltaLog
from mdt.formats.format import Format
from mdt.formats.iceberg.log import IcebergMetadata
from mdt.formats.types import Refusal
from mdt.formats.uris import refuse_location, takes_log_files
from mdt.hudi.partitions import partition_paths, partition_values
from mdt.metadata.files.file_group import LOG
from mdt.metadata.snapshot.live_partitions import live_paths
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.schema.definition import GENERATED_KEY, TableDefinition
from mdt.schema.names import avro_name
from mdt.schema.versions import SchemaVersion, numbers_of
from mdt.stores.storage import Storage

FORMATS: Mapping[str, Format] = {form.name: form for form in (DeltaLog(), IcebergMetadata())}
"""Name in the option ``mdt.formats`` -> format."""
FOLDERS = frozenset(form.folder for form in FORMATS.values())
"""Directories of formats beside ``.hoodie``."""


def formats_of(definition: TableDefinition) -> list[Format]:
    """Return the formats of a table besides Hudi."""
    return [FORMATS[name] for name in definition.other_formats]


def ended_formats(definition: TableDefinition) -> list[Format]:
    """Return the formats that a table had earlier."""
    ended = definition.formats_since.keys() - set(definition.other_formats)
    return [FORMATS[name] for name in sorted(ended) if name in FORMATS]


def refuse_columns(definition: TableDefinition) -> None:
    """Raise Invalid if a format of a new table cannot express a column, or reads it differently."""
    for form in formats_of(definition):
        for path, why in _refusals(form, definition):
            _refuse(form, path, why)


def _refusals(form: Format, definition: TableDefinition) -> Iterator[Refusal]:
    """Yield the columns that a format cannot express, or reads differently."""
    for path, column in definition.version.all_paths():
        name = column.field.name
        if avro_name(name) != name:
            yield path, f"is {avro_name(name)!r} in files, where its readers look for"
    if definition.has_generated_keys:
        yield GENERATED_KEY, "has keys that Hudi generates, which its readers do not see"
    yield from form.refusals(definition)


def inexpressible(definition: TableDefinition, partitions: Iterable[str]) -> list[str]:
    """Return the formats that cannot express the columns of a table, or partitions that another
    Hudi writer has made.
    """
    forms = formats_of(definition)
    if not forms or _are_paths_of_values(partitions, definition):
        forms = [form for form in forms if any(_refusals(form, definition))]
    return [form.name for form in forms]


def refuse_alteration(
    before: Snapshot, definition: TableDefinition, *, rewrites: bool = False
) -> bool:
    """Return True if an alteration to ``definition`` adds formats to the table ``before``.

    Raises Invalid if a format cannot express the table, and unless the alteration ``rewrites`` all
    rows, if readers of a format would read existing files differently. They find columns by name,
    and read missing ones as null.
    """
    added = set(definition.other_formats) - set(before.definition.other_formats)
    if added:
        _refuse_paths(before, added)
    if added and not rewrites:
        _refuse_log_files(before, added)
        if not before.is_shared:  # other writers make such rows at any time
            _refuse_deleted_rows(before, definition, added)
    if added or (definition.other_formats and definition.versions != before.definition.versions):
        refuse_columns(definition)
        if not rewrites:
            _refuse_differences(before, definition)
    return bool(added)


def refuse_folders(storage: Storage, definition: TableDefinition, formats: Iterable[str]) -> None:
    """Raise Invalid if a format that the table lacks cannot name its location, or has objects."""
    for name in sorted(set(formats) - {HUDI_FORMAT, *definition.other_formats}):
        refuse_location(storage)
        form = FORMATS[name]
        if storage.list_dir(form.folder):
            raise Invalid(
                f"the table cannot have the format {form.title}, because {form.folder} has files"
                " already",
                hint="remove them, if no other program needs them",
            )


def _refuse_log_files(before: Snapshot, added: Iterable[str]) -> None:
    """Raise Invalid if there are log files with rows, because every later writer would wait while
    all their rows are copied.
    """
    numbers = before.live_numbers
    has_rows = before.rows[numbers] > 0
    logs = int((has_rows & (before.kind[numbers] == LOG)).sum())
    if logs:
        raise Invalid(
            f"the table cannot have the format {_titles(added)} yet, because it has {logs} log"
            " files",
            hint="t.compact(), and alter the table before other writers update rows; or"
            " t.alter(…, rewrite=True)",
        )


def _refuse_deleted_rows(
    before: Snapshot, definition: TableDefinition, added: Iterable[str]
) -> None:
    """Raise Invalid if there are deleted rows in partitions that cannot have log files."""
    numbers = before.live_numbers[before.dead_rows[before.live_numbers] > 0]
    partitions = before.files.take(("partition",), numbers)["partition"].unique().to_pylist()
    for partition in partitions:
        if not takes_log_files(definition, partition):
            raise Invalid(
                f"the table cannot have the format {_titles(added)} yet, because some readers would"
                f" return the deleted rows in the partition {partition!r}",
                hint="t.compact() before, or t.alter(…, rewrite=True)",
            )


def _refuse_paths(before: Snapshot, added: Iterable[str]) -> None:
    """Raise Invalid if readers would take other partition values from the paths than the table
    has. Only other Hudi writers make such paths.
    """
    if before.is_shared and not _are_paths_of_values(live_paths(before), before.definition):
        raise Invalid(
            f"the table cannot have the format {_titles(added)}, because a partition path does not"
            " follow from the values of the partition columns"
        )


def _titles(names: Iterable[str]) -> str:
    return ", ".join(FORMATS[name].title for name in sorted(names))


def _are_paths_of_values(partitions: Iterable[str], definition: TableDefinition) -> bool:
    """Return True if partition paths follow from the values in them, which readers take from the
    paths. Paths of times have none.
    """
    if definition.time_path is not None:
        return True
    fields, is_hive_style = definition.partition_by, definition.hive_style
    if not fields:
        return set(partitions) <= {""}
    schema = pa.schema([definition.schema.field(name) for name in fields])
    try:
        ordered = sorted(partitions)
        values = partition_values(ordered, schema, is_hive_style)
        codes, made = partition_paths(values, fields, is_hive_style)
    except (Invalid, IndexError, pa.ArrowException):
        return False
    return [made[code] for code in codes.tolist()] == ordered


def _versions_in_use(snapshot: Snapshot) -> list[SchemaVersion]:
    """Return the schema versions of the live files and of files that running writers may add.
    O(files).
    """
    versions = snapshot.definition.versions or (snapshot.definition.version,)
    numbers = numbers_of(versions, snapshot.segment_ids[snapshot.live])
    used = np.unique(numbers.clip(0)).tolist()
    return [*(versions[number] for number in used if number < len(versions) - 1), versions[-1]]


def _refuse_differences(before: Snapshot, definition: TableDefinition) -> None:
    """Raise Invalid if readers of other formats would read live files of the table ``before``
    differently than as ``definition``.
    """
    title = formats_of(definition)[0].title
    for old in _versions_in_use(before):
        for path, why in _differences(old, definition.version):
            raise Invalid(
                f"the table cannot have the format {title}: column {path!r} {why}",
                hint="t.alter(…, rewrite=True) writes all rows again in the same commit",
            )


def _differences(old: SchemaVersion, new: SchemaVersion) -> Iterator[tuple[str, str]]:
    """Yield the columns that files of an older version do not have as readers of the new one expect
    them: path and reason.
    """
    names: dict[str, int] = {}
    ids: dict[int, tuple[str, object]] = {}
    for path, column in old.all_paths():
        names[path] = column.id
        ids[column.id] = path, None if column.children else column.type
    for path, column in new.all_paths():
        old_path, old_type = ids.get(column.id, (path, None))
        if old_path != path:
            yield path, f"was {old_path!r}, and its readers would see null in older files"
        elif names.get(path, column.id) != column.id:
            yield path, "would have the values of the dropped column of that name in older files"
        elif column.id in new.defaults and column.id not in ids:
            yield path, "has a default, and its readers would see null in older files"
        elif old_type not in (None, column.type):
            yield path, f"is {old_type} in older files, which its readers do not widen"


def _refuse(form: Format, path: str, why: str) -> None:
    raise Invalid(
        f"the table cannot have the format {form.title}: column {path!r} {why}",
        hint="leave the column as it is, or leave the format out",
    )
