"""Paths to columns: ``status``, or through structs ``address.geo.lat``.

A path is text: names joined by dots.  A column whose whole name is the path wins over the way
through a struct, and of several ways the one with the longest first name; fields of lists and maps
are not addressed, and neither is a name that two fields share.  The value of ``a.b`` is null where
``a`` is null, as in SQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Steps = tuple[int, ...]
"""A way down: the position of the top-level column, then of a field in each struct.  Never empty.
"""


def steps(schema: pa.Schema, path: str) -> Steps | None:
    """Return the way to ``path``, or None if nothing, or more than one thing, has that name.
    O(fields on the way).

    >>> schema = pa.schema(
    ...     {"id": pa.string(), "at": pa.struct({"lat": pa.float64(), "lon": pa.float64()})}
    ... )
    >>> steps(schema, "id"), steps(schema, "at.lon"), steps(schema, "at.height")
    ((0,), (1, 1), None)
    """
    try:
        at = schema.get_all_field_indices(path)
    except UnicodeEncodeError:  # lone surrogates: no column is called so
        return None
    if at or "." not in path:
        if len(at) == 1:
            return (at[0],)
        return None
    return _steps(list(schema), path)


def field_at(schema: pa.Schema, path: str) -> pa.Field | None:
    """Return the field at ``path``, or None: its name is the path, it is nullable if a struct on
    the way is.

    >>> field_at(pa.schema({"at": pa.struct({"lat": pa.float64()})}), "at.lat")
    pyarrow.Field<at.lat: double>
    """
    way = steps(schema, path)
    if way is None:
        return None
    on_the_way = fields(schema, way)
    return on_the_way[-1].with_name(path).with_nullable(any(field.nullable for field in on_the_way))


def type_at(schema: pa.Schema, path: str) -> pa.DataType:
    """Return the type of the column at ``path``; KeyError if there is none."""
    field = field_at(schema, path)
    if field is None:
        raise KeyError(f"there is no column {path!r}; columns: {', '.join(schema.names)}")
    return field.type


def fields(schema: pa.Schema, way: Steps) -> list[pa.Field]:
    """Return the fields on the way, the addressed one last."""
    found = [schema.field(way[0])]
    for step in way[1:]:
        found.append(found[-1].type.field(step))
    return found


def names(schema: pa.Schema, path: str) -> tuple[str, ...]:
    """Return the names on the way to ``path``, for engines that quote each; KeyError if there is no
    such column.
    """
    way = steps(schema, path)
    if way is None:
        raise KeyError(f"there is no column {path!r}; columns: {', '.join(schema.names)}")
    return tuple(field.name for field in fields(schema, way))


def top_level(schema: pa.Schema, path: str) -> str:
    """Return the name of the top-level column that holds ``path``; KeyError if there is none."""
    return names(schema, path)[0]


def top_levels(schema: pa.Schema, paths: Iterable[str]) -> frozenset[str]:
    """Return the top-level columns to read for ``paths``; KeyError if one of them leads nowhere."""
    return frozenset(top_level(schema, path) for path in paths)


def column_at(data: pa.Table | pa.RecordBatch, path: str) -> Any:
    """Return the values at ``path`` [rows]: ChunkedArray of a table, Array of a batch; KeyError if
    there is none.

    Null where a struct on the way is null.  O(1) for a top-level column, else O(rows / 8): child
    values are shared.

    >>> rows = pa.table({"at": [{"lat": 59.9}, None]})
    >>> column_at(rows, "at.lat").to_pylist()
    [59.9, None]
    """
    way = steps(data.schema, path)
    if way is None:
        raise KeyError(f"there is no column {path!r}; columns: {', '.join(data.schema.names)}")
    return follow(data, way)


def follow(data: pa.Table | pa.RecordBatch, way: Steps) -> Any:
    """Return the values at the end of ``way``, as :func:`column_at` does."""
    column = data.column(way[0])
    if len(way) > 1:
        return pc.struct_field(column, list(way[1:]))
    return column


def addressable(schema: pa.Schema) -> Iterator[tuple[str, pa.Field]]:
    """Yield path and field of every column, and of every field in structs, that a path reaches;
    parents first.

    >>> schema = pa.schema(
    ...     {
    ...         "id": pa.string(),
    ...         "at": pa.struct({"lat": pa.float64()}),
    ...         "tags": pa.list_(pa.string()),
    ...     }
    ... )
    >>> [path for path, field in addressable(schema)], [path for path, field in leaf_paths(schema)]
    (['id', 'at', 'at.lat', 'tags'], ['id', 'at.lat', 'tags'])
    """
    for path, way in _walk(list(schema), "", ()):
        if steps(schema, path) == way:
            yield path, fields(schema, way)[-1]


def leaf_paths(schema: pa.Schema) -> Iterator[tuple[str, pa.Field]]:
    """Yield path and field of what is no struct: top-level columns and fields in structs."""
    return (
        (path, field) for path, field in addressable(schema) if not pa.types.is_struct(field.type)
    )


def _steps(choices: Sequence[pa.Field], path: str) -> Steps | None:
    found = [at for at, field in enumerate(choices) if field.name == path]
    if found:
        if len(found) == 1:
            return (found[0],)
        return None
    cut = path.rfind(".")
    while cut >= 0:
        inside = [
            at
            for at, field in enumerate(choices)
            if field.name == path[:cut] and pa.types.is_struct(field.type)
        ]
        rest = (
            _steps(_children(choices[inside[0]].type), path[cut + 1 :])
            if len(inside) == 1
            else None
        )
        if rest is not None:
            return (inside[0], *rest)
        cut = path.rfind(".", 0, cut)
    return None


def _children(type: pa.DataType) -> list[pa.Field]:
    if pa.types.is_struct(type):
        return [type.field(at) for at in range(type.num_fields)]
    return []


def _walk(choices: Sequence[pa.Field], prefix: str, way: Steps) -> Iterator[tuple[str, Steps]]:
    for at, field in enumerate(choices):
        yield prefix + field.name, (*way, at)
        yield from _walk(_children(field.type), f"{prefix}{field.name}.", (*way, at))
