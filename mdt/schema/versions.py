"""The versions of a table's schema: columns have ids that survive renames, and each file has the
version of its commit.

A version begins with the commit record that altered the table; a segment's number holds the seq of
its commit, so nothing has to say which version a file has (:func:`version_of`).  Every field, also
one in a struct, list or map, has an id; ids are never given twice, so a name that comes back is
another column.  :mod:`mdt.schema.older_files` reads files of older versions.

A version leaves when no file and no state that can be read needs it (:func:`without`).  The others
then say what it alone knew: which ids were given, and under which names statistics stand.
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
    """One field of a version, with the fields in it: of a struct its own, of a list the elements,
    of a map keys and values.
    """

    id: int
    field: pa.Field
    children: tuple[Column, ...]

    @property
    def type(self) -> pa.DataType:
        """Its stored type."""
        return self.field.type

    def is_as(self, other: Column) -> bool:
        """Return whether a file that has ``other`` holds this column as it is."""
        return self.field.name == other.field.name and self.is_inside_as(other)

    def is_inside_as(self, other: Column) -> bool:
        """Return whether the column has the type of ``other`` and the same fields inside."""
        ids = ([column.id for column in one.walk()] for one in (self, other))
        return is_same(self.type, other.type) and next(ids) == next(ids)

    def walk(self) -> Iterator[Column]:
        """Yield the column and everything in it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class SchemaVersion:
    """The columns of the files that commits from ``since`` on have added.

    ``schema``, ``declared``: as in the definition of a table.  ``ids``: of all fields of
    ``schema``, parents before what is in them.  ``defaults``: id -> what rows of files that are
    older than the column have in it, where that is not null. ``given``: ids below it were given
    when other versions left the table, 0 if none has since this one began.  ``names``: path -> name
    of the statistics of columns that no version before this one has, as far as these are still
    there; empty without ``given``. ``columns``: the fields with their ids; ``file_columns``: the
    same by their names in Hudi's files (:mod:`mdt.schema.names`), the same object if these are
    their own.
    """

    since: int
    schema: pa.Schema
    declared: pa.Schema
    ids: tuple[int, ...]
    defaults: Mapping[int, pa.Scalar] = field(default_factory=dict)
    given: int = 0
    names: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[Column, ...] = field(init=False, repr=False)
    file_columns: tuple[Column, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        columns = of_files = tree(self.schema, self.ids)
        files = column_names.in_files(self.schema)
        if files is not self.schema:
            of_files = tree(files, self.ids)
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "file_columns", of_files)

    def walk(self) -> Iterator[Column]:
        """Yield every field, parents first."""
        for column in self.columns:
            yield from column.walk()

    def paths(self) -> Iterator[tuple[str, Column]]:
        """Yield path and field of every column and of every field in structs, parents first."""
        return _paths(self.columns, lambda column: pa.types.is_struct(column.type))

    def all_paths(self) -> Iterator[tuple[str, Column]]:
        """Yield path and field of every field, also of those in lists and maps, parents first."""
        return _paths(self.columns, lambda column: True)

    def to_json(self) -> dict[str, Any]:
        """Return the version as JSON values."""
        told = {
            "since": self.since,
            **schemas_json(self.schema, self.declared),
            "ids": list(self.ids),
            **present(defaults=_defaults_text(self.defaults)),
        }
        if self.given:
            told |= {"given": self.given, "names": dict(self.names)}
        return told


def from_json(value: Mapping[str, Any], since: int | None = None) -> SchemaVersion:
    """Return the version that :meth:`SchemaVersion.to_json` wrote.  Raises ValueError, TypeError,
    KeyError or an error of Arrow.

    ``since``: the seq of the record that holds it, where it does not say so itself; no other has
    left then.  Equal values are one version as long as somebody has it: every checkpoint holds all
    versions of its table.
    """
    ids, begun, given, names = value["ids"], since, 0, {}
    if begun is None:
        begun, given, names = value["since"], value.get("given", 0), value.get("names", {})
    if not isinstance(ids, list) or not all(type(id) is int and 0 <= id <= ID_MAX for id in ids):
        raise ValueError("ids of columns are no numbers")
    if len(set(ids)) != len(ids):
        raise ValueError("two columns have one id")
    if type(begun) is not int or begun < 0:
        raise ValueError("a version of the schema begins nowhere")
    if type(given) is not int or not (given == 0 or max(ids, default=0) < given <= ID_MAX + 1):
        raise ValueError("ids of columns that were given before make no sense")
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise ValueError("names of statistics are no texts")
    if not given:
        names = {}
    defaults: tuple[str, ...] = ()
    if "defaults" in value:
        defaults = (value["defaults"],)
    same = (
        begun,
        value["schema"],
        value.get("declared", value["schema"]),
        tuple(ids),
        defaults,
        given,
        tuple(names.items()),
    )
    found = _in_use().get(same)
    if found is None:
        found = _in_use().setdefault(same, _parsed(*same))
    return found


_Parts = tuple[int, str, str, tuple[int, ...], tuple[str, ...], int, tuple[tuple[str, str], ...]]


@for_life
def _in_use() -> WeakValueDictionary[_Parts, SchemaVersion]:
    """Return the versions that somebody has, by what they were parsed from."""
    return WeakValueDictionary()


def _parsed(
    begun: int,
    stored: str,
    text: str,
    ids: tuple[int, ...],
    values: tuple[str, ...],
    given: int,
    names: tuple[tuple[str, str], ...],
) -> SchemaVersion:
    schema, declared = schemas_of(stored, text)
    if len(set(schema.names)) != len(schema.names) or not schema.names:
        raise ValueError("the columns have no names of their own")
    defaults = {}
    if values:
        defaults = _defaults_of(values[0])
    found = SchemaVersion(begun, schema, declared, ids, defaults, given, dict(names))
    types = {column.id: column.type for column in found.walk()}
    if any(
        id not in types or not is_same(types[id], default.type) for id, default in defaults.items()
    ):
        raise ValueError("a default is of no column, or of another type")
    if names and not {path for path, _ in names} <= {path for path, _ in found.paths()}:
        raise ValueError("a name of statistics is of no column")
    return found


def first_version(schema: pa.Schema, declared: pa.Schema) -> SchemaVersion:
    """Return the version of a table that was never altered: ids count its fields."""
    return SchemaVersion(0, schema, declared, tuple(range(sum(map(_count, schema)))))


def version_of(versions: Sequence[SchemaVersion], segment: int) -> SchemaVersion:
    """Return the version of the file with the segment number ``segment``.  O(log versions)."""
    seq = segment // SEGMENTS_PER_COMMIT_MAX
    return versions[bisect_right(versions, seq, key=lambda version: version.since) - 1]


def numbers_of(
    versions: Sequence[SchemaVersion], segments: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the numbers of the versions of the files with these segment numbers, -1 for what is
    older than all -> int64[n].
    """
    since = np.array([version.since for version in versions], np.int64) * SEGMENTS_PER_COMMIT_MAX
    return np.searchsorted(since, segments, side="right") - 1


def check_succession(versions: tuple[SchemaVersion, ...], fixed: Sequence[str]) -> None:
    """Raise ValueError unless each of ``versions`` can follow those before it.  O(fields), of the
    versions that are new since it was asked lately.

    ``fixed``: names of columns that must be the same in all of them.
    """
    if len(versions) > SCHEMA_VERSIONS_MAX:
        raise ValueError(f"more than {SCHEMA_VERSIONS_MAX} versions of a schema")
    _succession.of(versions)
    _unaltered(tuple(fixed)).of(versions)


Told = TypeVar("Told")
_TOLD_MAX = 64


@dataclass(frozen=True, slots=True, eq=False)
class _Fold(Generic[Told]):
    """A fold over the versions of a table; results are remembered.  One version more costs what
    the fold of that one costs.
    """

    none: Told
    more: Callable[[Told, SchemaVersion], Told]

    def of(self, versions: tuple[SchemaVersion, ...]) -> Told:
        """Return what the fold says of ``versions``."""
        known = _folded()
        told: Told | None = known.get((self, versions))
        if told is None:
            before: Told | None = known.get((self, versions[:-1]))
            if before is None:
                told = reduce(self.more, versions, self.none)
            else:
                told = self.more(before, versions[-1])
            known[self, versions] = told
            for old in list(known)[:-_TOLD_MAX]:
                known.pop(old, None)
        return told


@in_session
def _folded() -> dict[tuple[_Fold[Any], tuple[SchemaVersion, ...]], Any]:
    """Return the results of folds that were asked for lately, the newest last."""
    return {}


_Fields = Mapping[int, tuple[int, pa.Field]]


def _more_fields(known: _Fields, version: SchemaVersion) -> _Fields:
    """Return every id with that of the field that it is in, -1 for none, and the newest form of its
    field.
    """
    return {
        **known,
        **{column.id: (parent, column.field) for parent, column in _with_parents(version)},
    }


@dataclass(frozen=True, slots=True)
class _Succession:
    """``fields``: those of all versions so far, as :func:`_more_fields` returns them; ``since``: of
    the last version. ``free``: above all ids that were given.
    """

    fields: _Fields
    since: int
    free: int


def _succeeded(before: _Succession, new: SchemaVersion) -> _Succession:
    """Return the succession with one version more.  Raises ValueError if it cannot follow."""
    if before.fields and new.since <= before.since:
        raise ValueError("a version of the schema begins before the one that it follows")
    for parent, column in _with_parents(new):
        if column.id in before.fields:
            _check_follows(column, parent, *before.fields[column.id])
        elif column.id < before.free and not new.given:
            # After versions have left, one of these may have had the id.
            raise ValueError("a new column has an id that was given before")
    return _Succession(
        _more_fields(before.fields, new), new.since, max(before.free, free_id((new,)))
    )


@memo(16)
def _unaltered(names: tuple[str, ...]) -> _Fold[Mapping[str, Column]]:
    """Return the fold that requires the columns ``names`` to be the same in all versions."""

    def more(before: Mapping[str, Column], version: SchemaVersion) -> Mapping[str, Column]:
        now = {
            column.field.name: column for column in version.columns if column.field.name in names
        }
        if now.keys() != set(names) or (before and now != before):
            raise ValueError("a column of the key, of the partitions or of the order was altered")
        return now

    return _Fold({}, more)


_succession: _Fold[_Succession] = _Fold(_Succession({}, -1, 0), _succeeded)


def free_id(versions: Sequence[SchemaVersion]) -> int:
    """Return an id above all that were given to columns of a table, also those of versions that
    have left.
    """
    return max(max(version.given, 1 + max(version.ids)) for version in versions)


def without(
    versions: Sequence[SchemaVersion], ended: AbstractSet[int]
) -> tuple[SchemaVersion, ...]:
    """Return ``versions`` without those that began with the commits ``ended``; the others keep the
    names of their statistics.

    Raises ValueError if one of them is not there, or is the last.
    """
    if not ended <= {version.since for version in versions[:-1]}:
        raise ValueError("a version of the schema leaves that is not there, or is the last")
    given, seen, found = free_id(versions), set[tuple[int, str]](), list[SchemaVersion]()
    for version, named in zip(versions, statistics_names(tuple(versions)), strict=True):
        if version.since in ended:
            continue
        columns = {path: (column.id, _keys_of(column.type)) for path, column in version.paths()}
        names = {path: named[path] for path, same in columns.items() if same not in seen}
        seen.update(columns.values())
        found.append(replace(version, given=given, names=names))
    return tuple(found)


def _with_parents(version: SchemaVersion) -> Iterator[tuple[int, Column]]:
    """Yield every field with the id of the one that it is in, -1 for none."""
    yield from ((-1, column) for column in version.columns)
    for parent in version.walk():
        yield from ((parent.id, column) for column in parent.children)


def _check_follows(new: Column, parent: int, parent_before: int, before: pa.Field) -> None:
    if parent != parent_before:
        raise ValueError("a field has moved into another column")
    nested = new.children or before.type.num_fields
    if not (new.type.id == before.type.id if nested else widens(before.type, new.type)):
        raise ValueError(f"{before.type} cannot be read as {new.type}")
    if before.nullable and not new.field.nullable:
        raise ValueError("a column that may be null became required")


def widens(old: pa.DataType, new: pa.DataType) -> bool:
    """Return whether every stored value of the flat type ``old`` has its like in ``new``.

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
    """Return for each of ``versions`` path -> the name under which statistics of that column stand.

    A name is the path that the column had when its statistics began, with ``@<id>.<since>`` behind
    it if that was taken before, or may have been by a version that has left.  They begin anew where
    a wider type has other keys: statistics of older files then say nothing.
    """
    return _names.of(versions).found


@dataclass(frozen=True, slots=True)
class _Names:
    """``of``: id and kind of keys -> name of the statistics; ``taken``: paths that are or were such
    names, and these, None if any may be; ``found``: see :func:`statistics_names`.
    """

    of: Mapping[tuple[int, str], str]
    taken: frozenset[str] | None
    found: tuple[Mapping[str, str], ...]


def _more_names(told: _Names, version: SchemaVersion) -> _Names:
    names, taken = dict(told.of), None
    if told.taken is not None and not version.given:
        taken = set(told.taken)
    found: dict[str, str] = {}
    for path, column in version.paths():
        same = (column.id, _keys_of(column.type))
        if same not in names:
            own = path
            if taken is None or path in taken:
                own = f"{path}@{column.id}.{version.since}"
                while own in names.values():  # a column may be called so
                    own += "@"
            names[same] = version.names.get(path, own)
            if taken is not None:
                taken |= {path, names[same]}
        name = names[same]
        if name == path:
            path = name  # one text for all versions
        found[path] = name
    all_taken = None
    if taken is not None:
        all_taken = frozenset(taken)
    return _Names(names, all_taken, (*told.found, found))


_names = _Fold(_Names({}, frozenset(), ()), _more_names)


def stored_bytes(versions: tuple[SchemaVersion, ...]) -> int:
    """Return how many bytes of JSON ``versions`` are in the header of a checkpoint."""
    return _stored_bytes.of(versions)


def _more_bytes(told: int, version: SchemaVersion) -> int:
    return told + len(json.dumps(version.to_json(), separators=(",", ":"))) + 1


_stored_bytes = _Fold(0, _more_bytes)


def _keys_of(type: pa.DataType) -> str:
    """Return what types of the same keys (FORMAT.md 8) have in common."""
    kinds = pa.types
    if kinds.is_integer(type):
        return "integer"
    if kinds.is_decimal(type):
        return f"decimal {type.scale}"
    return str(type.id)


def tree(schema: pa.Schema, ids: Sequence[int]) -> tuple[Column, ...]:
    """Return the columns of ``schema`` with their ids.  Raises ValueError if there are not as many
    as fields.
    """
    left = iter(ids)
    found = tuple(_column(field, left) for field in schema)
    if next(left, None) is not None:
        raise ValueError("more ids than columns")
    return found


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
    """Yield path and field of each column and of every field inside of those that are entered."""
    for column in columns:
        path = prefix + column.field.name
        yield path, column
        if enters(column):
            yield from _paths(column.children, enters, f"{path}.")


def schemas_json(schema: pa.Schema, declared: pa.Schema) -> dict[str, str]:
    """Return the stored columns, by their names in Hudi's files, and the declared ones where they
    are others, as JSON values.
    """
    files = column_names.in_files(schema)
    found = {"schema": schema_text(files)}
    if not declared.equals(files, check_metadata=True):
        found["declared"] = schema_text(declared)
    return found


def schemas_of(stored: str, declared: str) -> tuple[pa.Schema, pa.Schema]:
    """Return the schemas that :func:`schemas_json` wrote, both by the columns' own names.  Raises
    ValueError or an error of Arrow.
    """
    files = schema_of(stored)
    found = files
    if declared != stored:
        found = schema_of(declared)
    if files.names == found.names and column_names.are_avro(found):
        return files, found
    return column_names.by_own_names(files, found), found


def schema_text(schema: pa.Schema) -> str:
    """Return an Arrow IPC schema message in base64."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode("ascii")


def schema_of(text: str) -> pa.Schema:
    """Return the schema that :func:`schema_text` wrote.  Raises ValueError or an error of Arrow."""
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
        raise ValueError(f"{len(table)} rows of defaults")
    return {int(name): table.column(at)[0] for at, name in enumerate(table.column_names)}
