"""Names of columns in older files, for tables whose columns were renamed.

With ``hoodie.schema.on.read.enable``, Hudi numbers the columns, and a file has the names of its own
time. A commit has the schema of its time as JSON, and the folder ``.hoodie/.schema`` has
``<instant>.schemacommit`` files with all schemas up to their instant (Apache Hudi,
``SerDeHelper.java``). The schema of a file is the newest one that is not later than the instant in
its name (``InternalSchemaCache.java``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from mdt.errors import Corrupt
from mdt.hudi.file_names import HUDI
from mdt.hudi.read.fields import Fields, parse_json
from mdt.hudi.read.instants import Timeline
from mdt.hudi.read.objects import read_listed
from mdt.limits import AVRO_SCHEMA_DEPTH_MAX, INSTANT_BYTES_MAX
from mdt.schema.nested import fields_of, parts_of, rebuild, with_fields
from mdt.stores.storage import Storage

LATEST_SCHEMA = "latest_schema"
"""Key of the numbered schema in a commit's private entries."""

_FOLDER = f"{HUDI}/.schema"
_EXTENSION = ".schemacommit"
_PARTS = (("element_id", "element"), ("key_id", "key"), ("value_id", "value"))
"""Number and type of the parts of lists and maps."""


@dataclass(frozen=True, slots=True)
class NumberedField:
    """A column, or a field in it, with the fields in it as :func:`mdt.schema.nested.fields_of`
    orders them.
    """

    number: int
    name: str
    children: tuple[NumberedField, ...] = ()


@dataclass(frozen=True, slots=True)
class Renaming:
    """The names of a file's columns, and those of today.

    Attributes:
        in_file: The columns at the time of the file.
        names: Number of a field -> its name today.
        columns: Name of a column today -> its number.
    """

    in_file: tuple[NumberedField, ...]
    names: Mapping[int, str]
    columns: Mapping[str, int]

    def names_in_file(self, names: Sequence[str]) -> list[str]:
        """Return the names under which a file may have the columns ``names`` of today."""
        numbers = {self.columns[name] for name in names if name in self.columns}
        older = [field.name for field in self.in_file if field.number in numbers]
        return list(dict.fromkeys((*names, *older)))

    def apply(self, rows: pa.Table, path: str) -> pa.Table:
        """Return columns of a file under the names of today. Columns that were dropped since are
        left out.

        Args:
            path: Path of the file, for messages.

        Raises Corrupt if a column has a name that only later files can have.
        """
        in_file = {column.name: column for column in self.in_file}
        names = dict[str, str]()
        for name in rows.column_names:
            if name in in_file:
                if in_file[name].number in self.names:
                    names[name] = self.names[in_file[name].number]
            elif name in self.columns:
                raise Corrupt(
                    f"column {name!r} had another name, or was not there, at the time of the file",
                    path=path,
                )
            else:
                names[name] = name
        rows = rows.select([*names])  # also without columns, it has as many rows as before
        for number, name in enumerate(names):
            if name in in_file:
                values = self._renamed(rows[number], in_file[name])
                rows = rows.set_column(number, name, values)
        return rows.rename_columns([*names.values()])

    def _renamed(self, values: pa.ChunkedArray, column: NumberedField) -> pa.ChunkedArray:
        type = self._type(values.type, column)
        if type == values.type:
            return values
        return pa.chunked_array([_with_type(chunk, type) for chunk in values.chunks], type)

    def _type(self, type: pa.DataType, column: NumberedField) -> pa.DataType:
        """Return a type with the names of today in its structs. Dropped fields get a name that no
        field has.
        """
        by_position = not pa.types.is_struct(type)
        children = {child.name: child for child in column.children}
        fields = []
        for number, part in enumerate(fields_of(type)):
            name, child = part.name, children.get(part.name)
            if by_position:
                child = column.children[number] if number < len(column.children) else None
            elif child is not None:
                name = self.names.get(child.number, f"\0{number}")
            if child is not None:
                part = part.with_type(self._type(part.type, child))
            fields.append(part.with_name(name))
        return with_fields(type, fields)


@dataclass(frozen=True, slots=True)
class SchemaHistory:
    """The schemas of a table with columns that were renamed, or dropped and added again.

    Attributes:
        instants: Instants from which the schemas count, ascending.
        renamings: The names in files of each schema, None if they are those of today.
        numbers: Path of a column or of a field today -> its number.
    """

    instants: tuple[str, ...]
    renamings: tuple[Renaming | None, ...]
    numbers: Mapping[str, int]

    def at(self, instant: str) -> Renaming | None:
        """Return the names of columns in a file, or None if they are those of today.

        Args:
            instant: The instant in the name of the file, or of a block in it.
        """
        number = bisect_right(self.instants, instant) - 1
        return self.renamings[max(number, 0)]


def load_history(
    objects: Storage, timeline: Timeline, at: str, latest: str, columns: Sequence[str]
) -> SchemaHistory | None:
    """Return the schemas of a table, or None if each name always meant the same column.

    Args:
        at: Instant of the newest commit with a schema.
        latest: The numbered schema of that commit, as JSON.
        columns: The columns of that commit.

    Raises Corrupt.
    """
    files = {
        _instant(info.path): info
        for info in objects.list_dir(_FOLDER)
        if info.path.endswith(_EXTENSION)
    }
    completed = [time for time in files if time <= at and timeline.is_completed(time)]
    if not completed:
        return None
    file = files[max(completed)]
    data = read_listed(objects, file.path, file.size, INSTANT_BYTES_MAX)
    schemas = {}
    for schema in parse_json(data, file.path).records("schemas"):
        schemas[str(schema.number("version_id"))] = tuple(_children(schema, schema.values))
    if not schemas:
        raise Corrupt("the history has no schema", path=file.path)
    commit = parse_json(latest.encode(), f"{LATEST_SCHEMA} of {at}")
    newest = tuple(_children(commit, commit.values))
    if not _is_ambiguous(newest, *schemas.values()):
        return None
    missing = set(columns).difference(column.name for column in newest)
    if missing:
        raise Corrupt(f"the schema has no column {min(missing)!r}", path=commit.path)
    names = {field.number: field.name for _, field in _walk(newest)}
    numbers = {column.name: column.number for column in newest}
    renamings = list[Renaming | None]()
    versions = sorted(schemas.items())
    for _, in_file in versions:
        is_renamed = _is_ambiguous(newest, in_file)
        renamings.append(Renaming(in_file, names, numbers) if is_renamed else None)
    numbers_by_path = {path: field.number for path, field in _walk(newest)}
    return SchemaHistory(tuple(since for since, _ in versions), tuple(renamings), numbers_by_path)


def are_same(numbers: Mapping[str, int], later: Mapping[str, int]) -> bool:
    """Return True if each name means the same column in two schemas of a table.

    Args:
        numbers, later: As :attr:`SchemaHistory.numbers`, empty for a table without a history.
    """
    paths = {number: path for path, number in numbers.items()}
    if bool(numbers) != bool(later):
        return False
    return all(
        numbers.get(path, number) == number and paths.get(number, path) == path
        for path, number in later.items()
    )


def _instant(path: str) -> str:
    """Return the instant in ``<instant>.schemacommit``, or ``<instant>_<completion>.schemacommit``
    since version 8.
    """
    return path.rpartition("/")[2].removesuffix(_EXTENSION).partition("_")[0]


def _is_ambiguous(*schemas: Sequence[NumberedField]) -> bool:
    """Return True if a column was renamed, or dropped and added again."""
    name_of, number_of = dict[int, str](), dict[str, int]()
    for schema in schemas:
        for path, field in _walk(schema):
            if name_of.setdefault(field.number, path) != path:
                return True
            if number_of.setdefault(path, field.number) != field.number:
                return True
    return False


def _children(schema: Fields, type: Any, depth: int = 0) -> Iterator[NumberedField]:
    """Yield the fields of a struct, or the parts of a list or map, with all fields in them."""
    if not isinstance(type, dict):
        return  # the name of a plain type
    if depth > AVRO_SCHEMA_DEPTH_MAX:
        raise Corrupt("the schema has too many levels", path=schema.path)
    fields = Fields(type, schema.path)
    for child in fields.records("fields"):
        children = _children(schema, child.values.get("type"), depth + 1)
        yield NumberedField(child.number("id"), child.text("name"), tuple(children))
    for number, part in _PARTS:
        if part in type:
            children = _children(schema, type[part], depth + 1)
            yield NumberedField(fields.number(number), part, tuple(children))


def _walk(
    columns: Sequence[NumberedField], prefix: str = ""
) -> Iterator[tuple[str, NumberedField]]:
    """Yield (path, field) for each field, parents first."""
    for column in columns:
        yield prefix + column.name, column
        yield from _walk(column.children, f"{prefix}{column.name}.")


def _with_type(values: pa.Array, type: pa.DataType) -> pa.Array:
    """Return nested values with other names of fields."""
    if values.type == type:
        return values
    parts = zip(parts_of(values), fields_of(type), strict=True)
    return rebuild(values, [_with_type(part, child.type) for part, child in parts], type)
