"""The formats that a table may have besides Hudi, and the columns that they refuse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mdt.errors import Invalid
from mdt.formats.delta.log import DeltaLog
from mdt.formats.format import Format
from mdt.formats.iceberg.log import IcebergMetadata
from mdt.schema.definition import TableDefinition
from mdt.schema.names import avro_name
from mdt.schema.versions import SchemaVersion

FORMATS: Mapping[str, Format] = {form.name: form for form in (DeltaLog(), IcebergMetadata())}
"""Name in the option ``mdt.formats`` -> format."""
FOLDERS = frozenset(form.folder for form in FORMATS.values())
"""Directories of formats beside ``.hoodie``."""


def formats_of(definition: TableDefinition) -> list[Format]:
    """Return the formats of a table besides Hudi."""
    return [FORMATS[name] for name in definition.other_formats]


def refuse_columns(definition: TableDefinition) -> None:
    """Raise Invalid if a format of a new table cannot express a column, or reads it differently."""
    for form in formats_of(definition):
        for path, column in definition.version.all_paths():
            name = column.field.name
            if avro_name(name) != name:
                _refuse(form, path, f"is {avro_name(name)!r} in files, where its readers look for")
        for path, why in form.refusals(definition):
            _refuse(form, path, why)


def refuse_alteration(definition: TableDefinition, new: SchemaVersion) -> None:
    """Raise Invalid if readers of a format would read older files differently under the columns
    ``new``.

    They find columns by name, and read missing ones as null.
    """
    if not definition.other_formats:
        return
    refuse_columns(definition.with_version(new))
    for form in formats_of(definition):
        for path, why in _differences(definition, new):
            _refuse(form, path, why)


def _differences(definition: TableDefinition, new: SchemaVersion) -> Iterator[tuple[str, str]]:
    names: dict[str, int] = {}
    ids: dict[int, tuple[str, object]] = {}
    for version in definition.versions or (definition.version,):
        for path, column in version.all_paths():
            names[path] = column.id
            ids[column.id] = path, None if column.children else column.type
    for path, column in new.all_paths():
        old_path, old_type = ids.get(column.id, (path, None))
        if old_path != path:
            yield path, f"was {old_path!r}, and its readers would see null in older files"
        elif names.get(path, column.id) != column.id:
            yield path, "would have the values of the dropped column of that name in older files"
        elif column.id in new.defaults:
            yield path, "has a default, and its readers would see null in older files"
        elif old_type not in (None, column.type):
            yield path, f"is {old_type} in older files, which its readers do not widen"


def _refuse(form: Format, path: str, why: str) -> None:
    raise Invalid(
        f"the table cannot have the format {form.title}: column {path!r} {why}",
        hint="leave the column as it is, or create a table without that format",
    )
