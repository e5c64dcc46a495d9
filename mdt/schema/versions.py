"""Versions of a table's schema. Columns have ids that survive renames.

A version begins with the commit record that altered the table. A segment number contains the seq of
its commit, so the version of a file follows from its number (:func:`version_of`). Every field has
an id, including fields of structs, lists and maps. Ids are never reused: a column that is dropped
and added again is a new column. :mod:`mdt.schema.older_files` reads files of older versions.

A version is removed when no readable state and no file needs it (:func:`remove_versions`). The
remaining versions then keep the facts that only it had: the ids in use, and the names of column
statistics.
"""

from __future__ import annotations

import base64
import json
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mdt.limits import SCHEMA_VERSIONS_MAX, SEGMENTS_PER_COMMIT_MAX
from mdt.schema import names as column_names
from mdt.schema.convert import is_same
from mdt.schema.header_fields import present
from mdt.schema.nested import fields_of
from mdt.session import for_life, in_session, memo

ID_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Column:
    """A field of a version with its child fields, in the order of
    :func:`mdt.schema.nested.fields_of`.
    """

    id: int
    field: pa.Field
    children: tuple[Column, ...]

    @property
    def type(self) -> pa.DataType:
        """The stored type."""
        return self.field.type

    def is_same_column(self, other: Column) -> bool:
        """Return True if a file with the column ``other`` has this column in the same form."""
        return self.field.name == other.field.name and self.has_equal_fields(other)

    def has_equal_fields(self, other: Column) -> bool:
        """Return True if type and child ids equal those of ``other``."""
        ids = ([column.id for column in root.walk()] for root in (self, other))
        return is_same(self.type, other.type) and next(ids) == next(ids)

    def walk(self) -> Iterator[Column]:
        """Yield the column and all fields in it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class SchemaVersion:
    """The columns of files written by the commits from ``since`` on.

    Attributes:
        since: Seq of the first commit.
        schema, declared: As in :class:`mdt.schema.definition.TableDefinition`.
        ids: Ids of all fields of ``schema``, parents first.
        defaults: Column id -> value in the rows of files that are older than the column, if not
            null.
        given: Ids below this number are in use or were used by removed versions. 0 if no version
            was removed since this one began.
        names: Path -> statistics name, for columns that are not in an earlier remaining version.
            Empty if ``given`` is 0.
        numbered: The same columns with the numbers of Hudi's schema on read, as JSON. "" if its
            writers do not number them.
        columns: The fields with their ids.
        file_columns: The same fields under their names in Hudi's files (:mod:`mdt.schema.names`).
            The same object as ``columns`` if no name differs.
    """

    since: int
    schema: pa.Schema
    declared: pa.Schema
    ids: tuple[int, ...]
    defaults: Mapping[int, pa.Scalar] = field(default_factory=dict)
    given: int = 0
    names: Mapping[str, str] = field(default_factory=dict)
    numbered: str = ""
    columns: tuple[Column, ...] = field(init=False, repr=False)
    file_columns: tuple[Column, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        columns = file_columns = tree(self.schema, self.ids)
        files = column_names.in_files(self.schema)
        if files is not self.schema:
            file_columns = tree(files, self.ids)
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "file_columns", file_columns)

    def walk(self) -> Iterator[Column]:
        """Yield every field, parents first."""
        for column in self.columns:
            yield from column.walk()

    def paths(self) -> Iterator[tuple[str, Column]]:
        """Yield (path, field) for every column and every field of structs, parents first."""
        return _paths(self.columns, lambda column: pa.types.is_struct(column.type))

    def all_paths(self) -> Iterator[tuple[str, Column]]:
        """Yield (path, field) for every field, including those of lists and maps, parents first."""
        return _paths(self.columns, lambda column: True)

    def to_json(self) -> dict[str, Any]:
        """Return the version as JSON values."""
        fields = {
            "since": self.since,
            **schemas_json(self.schema, self.declared),
            "ids": list(self.ids),
            **present(defaults=_defaults_text(self.defaults), numbered=self.numbered),
        }
        if self.given:
            fields |= {"given": self.given, "names": dict(self.names)}
        return fields


def from_json(value: Mapping[str, Any], since: int | None = None) -> SchemaVersion:
    """Parse a version written by :meth:`SchemaVersion.to_json`.

    ``since`` is the seq of the record that contains the version, if the value itself has none; no
    version was removed at that time. Equal values share one object, because every checkpoint
    contains all versions of its table. Raises ValueError, TypeError, KeyError or an Arrow error.
    """
    ids, start, given, names = value["ids"], since, 0, {}
    if start is None:
        start, given, names = value["since"], value.get("given", 0), value.get("names", {})
    if not isinstance(ids, list) or not all(type(id) is int and 0 <= id <= ID_MAX for id in ids):
        raise ValueError("column ids are not integers")
    if len(set(ids)) != len(ids):
        raise ValueError("two columns have the same id")
    if type(start) is not int or start < 0:
        raise ValueError("a schema version has no valid start")
    if type(given) is not int or not (given == 0 or max(ids, default=0) < given <= ID_MAX + 1):
        raise ValueError("the range of used column ids is not valid")
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise ValueError("statistics names are not text")
    numbered = value.get("numbered", "")
    if not isinstance(numbered, str):
        raise TypeError("the numbered columns are not text")
    if not given:
        names = {}
    defaults: tuple[str, ...] = ()
    if "defaults" in value:
        defaults = (value["defaults"],)
    parts = (
        start,
        value["schema"],
        value.get("declared", value["schema"]),
        tuple(ids),
        defaults,
        given,
        tuple(names.items()),
        numbered,
    )
    version = _in_use().get(parts)
    if version is None:
        version = _in_use().setdefault(parts, _parse(*parts))
    return version


_Parts = tuple[
    int, str, str, tuple[int, ...], tuple[str, ...], int, tuple[tuple[str, str], ...], str
]


@for_life
def _in_use() -> WeakValueDictionary[_Parts, SchemaVersion]:
    """Return the versions in use, by the values that they were parsed from."""
    return WeakValueDictionary()


def _parse(
    since: int,
    stored: str,
    text: str,
    ids: tuple[int, ...],
    values: tuple[str, ...],
    given: int,
    names: tuple[tuple[str, str], ...],
    numbered: str,
) -> SchemaVersion:
    schema, declared = schemas_of(stored, text)
    if len(set(schema.names)) != len(schema.names) or not schema.names:
        raise ValueError("the schema has no columns or repeated column names")
    defaults = {}
    if values:
        defaults = _defaults_of(values[0])
    version = SchemaVersion(since, schema, declared, ids, defaults, given, dict(names), numbered)
    types = {column.id: column.type for column in version.walk()}
    if any(
        id not in types or not is_same(types[id], default.type) for id, default in defaults.items()
    ):
        raise ValueError("a default has no column or another type")
    if names and not {path for path, _ in names} <= {path for path, _ in version.paths()}:
        raise ValueError("a statistics name has no column")
    return version


def first_version(schema: pa.Schema, declared: pa.Schema) -> SchemaVersion:
    """Return the only version of a table that was never altered. Ids count its fields."""
    return SchemaVersion(0, schema, declared, tuple(range(sum(map(_count, schema)))))


def version_of(versions: Sequence[SchemaVersion], segment: int) -> SchemaVersion:
    """Return the version of the file with the number ``segment``. O(log versions)."""
    seq = segment // SEGMENTS_PER_COMMIT_MAX
    return versions[bisect_right(versions, seq, key=lambda version: version.since) - 1]


def numbers_of(
    versions: Sequence[SchemaVersion], segments: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the version index of each file (int64[n]), -1 for files older than all versions.

    ``segments`` are the segment numbers of the files.
    """
    since = np.array([version.since for version in versions], np.int64) * SEGMENTS_PER_COMMIT_MAX
    return np.searchsorted(since, segments, side="right") - 1


def check_succession(versions: tuple[SchemaVersion, ...], fixed: Sequence[str]) -> None:
    """Raise ValueError unless each of ``versions`` can follow the versions before it.

    The ``fixed`` columns must be the same in all versions. Recent results are cached: O(fields of
    the new versions).
    """
    if len(versions) > SCHEMA_VERSIONS_MAX:
        raise ValueError(f"more than {SCHEMA_VERSIONS_MAX} schema versions")
    _succession.fold(versions)
    _unaltered(tuple(fixed)).fold(versions)


State = TypeVar("State")
_STATES_MAX = 64


@dataclass(frozen=True, slots=True, eq=False)
class _Fold(Generic[State]):
    """A cached fold over the versions of a table. One more version costs one more step."""

    start: State
    step: Callable[[State, SchemaVersion], State]

    def fold(self, versions: tuple[SchemaVersion, ...]) -> State:
        """Return the result of the fold for ``versions``."""
        cache = _folded()
        result: State | None = cache.get((self, versions))
        if result is None:
            before: State | None = cache.get((self, versions[:-1]))
            if before is None:
                result = reduce(self.step, versions, self.start)
            else:
                result = self.step(before, versions[-1])
            cache[self, versions] = result
            for old in list(cache)[:-_STATES_MAX]:
                cache.pop(old, None)
        return result


@in_session
def _folded() -> dict[tuple[_Fold[Any], tuple[SchemaVersion, ...]], Any]:
    """Return the cache of recent fold results, the newest last."""
    return {}


_Fields = Mapping[int, tuple[int, pa.Field]]


def _add_fields(fields: _Fields, version: SchemaVersion) -> _Fields:
    """Add the fields of ``version``: id -> (id of the parent or -1, newest form of the field)."""
    return {
        **fields,
        **{column.id: (parent, column.field) for parent, column in _with_parents(version)},
    }


@dataclass(frozen=True, slots=True)
class _Succession:
    """The state of a succession check.

    Attributes:
        fields: Fields of all versions so far, as :func:`_add_fields` returns them.
        since: ``since`` of the last version.
        free: The lowest id above all ids in use.
    """

    fields: _Fields
    since: int
    free: int


def _add_to_succession(before: _Succession, new: SchemaVersion) -> _Succession:
    """Add a version to a succession. Raises ValueError if it cannot follow."""
    if before.fields and new.since <= before.since:
        raise ValueError("a schema version begins before its predecessor")
    for parent, column in _with_parents(new):
        if column.id in before.fields:
            _check_follows(column, parent, *before.fields[column.id])
        elif column.id < before.free and not new.given:
            # A removed version may have had this column.
            raise ValueError("a new column has an id that was used before")
    return _Succession(
        _add_fields(before.fields, new), new.since, max(before.free, free_id((new,)))
    )


@memo(16)
def _unaltered(names: tuple[str, ...]) -> _Fold[Mapping[str, Column]]:
    """Return the fold that requires the columns ``names`` to be the same in all versions."""

    def require_equal(before: Mapping[str, Column], version: SchemaVersion) -> Mapping[str, Column]:
        columns = {
            column.field.name: column for column in version.columns if column.field.name in names
        }
        if columns.keys() != set(names) or (before and columns != before):
            raise ValueError("a key, partition or ordering column was altered")
        return columns

    return _Fold({}, require_equal)


_succession: _Fold[_Succession] = _Fold(_Succession({}, -1, 0), _add_to_succession)


def free_id(versions: Sequence[SchemaVersion]) -> int:
    """Return an id above all ids ever used in a table, including those of removed versions."""
    return max(max(version.given, 1 + max(version.ids)) for version in versions)


def remove_versions(
    versions: Sequence[SchemaVersion], ended: AbstractSet[int]
) -> tuple[SchemaVersion, ...]:
    """Remove the versions that began with the commits ``ended``.

    The remaining versions keep the names of their statistics. Raises ValueError if a version does
    not exist or is the current one.
    """
    if not ended <= {version.since for version in versions[:-1]}:
        raise ValueError("a schema version to remove does not exist or is the current one")
    free, named_columns, remaining = (
        free_id(versions),
        set[tuple[int, str]](),
        list[SchemaVersion](),
    )
    for version, statistics in zip(versions, statistics_names(tuple(versions)), strict=True):
        if version.since in ended:
            continue
        columns = {path: (column.id, _keys_of(column.type)) for path, column in version.paths()}
        names = {
            path: statistics[path]
            for path, identity in columns.items()
            if identity not in named_columns
        }
        named_columns.update(columns.values())
        remaining.append(replace(version, given=free, names=names))
    return tuple(remaining)


def _with_parents(version: SchemaVersion) -> Iterator[tuple[int, Column]]:
    """Yield (id of the parent or -1, field) for every field."""
    yield from ((-1, column) for column in version.columns)
    for parent in version.walk():
        yield from ((parent.id, column) for column in parent.children)


def _check_follows(new: Column, parent: int, parent_before: int, before: pa.Field) -> None:
    if parent != parent_before:
        raise ValueError("a field has moved to another column")
    check_form(before, new.field)


def check_form(before: pa.Field, new: pa.Field) -> None:
    """Raise ValueError unless values of the stored field ``before`` can be read as ``new``.

    The child fields of a nested type are not compared.
    """
    nested = new.type.num_fields or before.type.num_fields
    if not (new.type.id == before.type.id if nested else widens(before.type, new.type)):
        raise ValueError(f"{before.type} cannot be read as {new.type}")
    if before.nullable and not new.nullable:
        raise ValueError("a nullable column became required")


def widens(old: pa.DataType, new: pa.DataType) -> bool:
    """Return True if every value of the flat stored type ``old`` has an equal value in ``new``.

    >>> widens(pa.int32(), pa.int64()), widens(pa.int64(), pa.int32())
    (True, False)
    """
    kinds = pa.types
    if old == new:
        return True
    if kinds.is_decimal(old) and kinds.is_decimal(new):
        return bool(old.scale == new.scale and old.precision <= new.precision)
    return (old, new) in _WIDER


_WIDER = frozenset(
    {
        (pa.int32(), pa.int64()),
        (pa.int32(), pa.float64()),
        (pa.int64(), pa.float64()),
        (pa.float32(), pa.float64()),
        (pa.date32(), pa.timestamp("ms", "UTC")),
        (pa.date32(), pa.timestamp("us", "UTC")),
    }
)


def statistics_names(versions: tuple[SchemaVersion, ...]) -> tuple[Mapping[str, str], ...]:
    """Return for each version a mapping of path -> name of the column's statistics.

    The name is the path that the column had when its statistics began. If another column has or had
    that name, or a removed version may have had it, ``@<id>.<since>`` is appended. Statistics get a
    new name if a wider type encodes its keys differently, because older statistics are not
    comparable with it.
    """
    return _names.fold(versions).results


@dataclass(frozen=True, slots=True)
class _Names:
    """The state of :func:`statistics_names`.

    Attributes:
        names: (column id, kind of keys) -> statistics name.
        used: All paths and statistics names used so far, or None if unknown names may be in use.
        results: The mappings of all versions so far.
    """

    names: Mapping[tuple[int, str], str]
    used: frozenset[str] | None
    results: tuple[Mapping[str, str], ...]


def _add_names(state: _Names, version: SchemaVersion) -> _Names:
    names, used = dict(state.names), None
    if state.used is not None and not version.given:
        used = set(state.used)
    result: dict[str, str] = {}
    for path, column in version.paths():
        identity = (column.id, _keys_of(column.type))
        if identity not in names:
            new_name = path
            if used is None or path in used:
                new_name = f"{path}@{column.id}.{version.since}"
                while new_name in names.values():  # a column may have that name
                    new_name += "@"
            names[identity] = version.names.get(path, new_name)
            if used is not None:
                used |= {path, names[identity]}
        name = names[identity]
        if name == path:
            path = name  # share one string between versions
        result[path] = name
    all_used = None
    if used is not None:
        all_used = frozenset(used)
    return _Names(names, all_used, (*state.results, result))


_names = _Fold(_Names({}, frozenset(), ()), _add_names)


def stored_bytes(versions: tuple[SchemaVersion, ...]) -> int:
    """Return the size of ``versions`` as JSON in the header of a checkpoint, in bytes."""
    return _stored_bytes.fold(versions)


def _add_bytes(size: int, version: SchemaVersion) -> int:
    return size + len(json.dumps(version.to_json(), separators=(",", ":"))) + 1


_stored_bytes = _Fold(0, _add_bytes)


def _keys_of(type: pa.DataType) -> str:
    """Return a text that is equal for types with the same key encoding (FORMAT.md, section 8)."""
    kinds = pa.types
    if kinds.is_integer(type):
        return "integer"
    if kinds.is_decimal(type):
        return f"decimal {type.scale}"
    return str(type.id)


def tree(schema: pa.Schema, ids: Sequence[int]) -> tuple[Column, ...]:
    """Return the columns of ``schema`` with their ids.

    Raises ValueError unless there is one id for each field.
    """
    remaining = iter(ids)
    columns = tuple(_column(field, remaining) for field in schema)
    if next(remaining, None) is not None:
        raise ValueError("more ids than columns")
    return columns


def _column(field: pa.Field, ids: Iterator[int]) -> Column:
    id = next(ids, None)
    if id is None:
        raise ValueError("fewer ids than columns")
    return Column(id, field, tuple(_column(child, ids) for child in fields_of(field.type)))


def _count(field: pa.Field) -> int:
    return 1 + sum(map(_count, fields_of(field.type)))


def _paths(
    columns: Sequence[Column], enters: Callable[[Column], bool], prefix: str = ""
) -> Iterator[tuple[str, Column]]:
    """Yield (path, field) for all columns, and for the child fields of columns that ``enters``
    accepts.
    """
    for column in columns:
        path = prefix + column.field.name
        yield path, column
        if enters(column):
            yield from _paths(column.children, enters, f"{path}.")


def schemas_json(schema: pa.Schema, declared: pa.Schema) -> dict[str, str]:
    """Return the stored schema, with the names in Hudi's files, as JSON values.

    The declared schema is included if it differs.
    """
    files = column_names.in_files(schema)
    texts = {"schema": schema_text(files)}
    if not declared.equals(files, check_metadata=True):
        texts["declared"] = schema_text(declared)
    return texts


def schemas_of(stored: str, declared: str) -> tuple[pa.Schema, pa.Schema]:
    """Parse schemas written by :func:`schemas_json`: return (stored, declared) with the table's
    names.

    Raises ValueError or an Arrow error.
    """
    files = schema_of(stored)
    own_names = files
    if declared != stored:
        own_names = schema_of(declared)
    if files.names == own_names.names and column_names.are_avro(own_names):
        return files, own_names
    return column_names.with_declared_names(files, own_names), own_names


def schema_text(schema: pa.Schema) -> str:
    """Return an Arrow IPC schema message in base64."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode("ascii")


def schema_of(text: str) -> pa.Schema:
    """Parse a schema written by :func:`schema_text`. Raises ValueError or an Arrow error."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))


def _defaults_text(defaults: Mapping[int, pa.Scalar]) -> str:
    if not defaults:
        return ""
    arrays = [pa.array([value.as_py()], value.type) for value in defaults.values()]
    batch = pa.RecordBatch.from_arrays(arrays, [str(id) for id in defaults])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return base64.b64encode(sink.getvalue().to_pybytes()).decode("ascii")


def _defaults_of(text: str) -> dict[int, pa.Scalar]:
    table = pa.ipc.open_stream(pa.py_buffer(base64.b64decode(text, validate=True))).read_all()
    table.validate(full=True)
    if len(table) != 1:
        raise ValueError(f"defaults have {len(table)} rows, not 1")
    return {
        int(name): table.column(position)[0] for position, name in enumerate(table.column_names)
    }
