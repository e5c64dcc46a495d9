"""Paths to columns: ``status``, or a field of nested structs such as ``address.geo.lat``.

A path is text: names joined by dots. A column whose whole name equals the path has precedence over
a field of a struct. If several structs match, the longest first name wins. Fields of lists and maps
have no path, and neither do fields with duplicate names. The value of ``a.b`` is null where ``a``
is null, as in SQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Steps = tuple[int, ...]
"""Position of a top-level column, followed by a field position for each nested struct. Never empty.
"""


def steps(schema: pa.Schema, path: str) -> Steps | None:
    """Return the positions that lead to ``path``, or None if it does not exist or is ambiguous.

    O(fields on the way).

    >>> schema = pa.schema(
    ...     {"id": pa.string(), "at": pa.struct({"lat": pa.float64(), "lon": pa.float64()})}
    ... )
    >>> steps(schema, "id"), steps(schema, "at.lon"), steps(schema, "at.height")
    ((0,), (1, 1), None)
    """
    try:
        at = schema.get_all_field_indices(path)
    except UnicodeEncodeError:  # lone surrogates are in no column name
        return None
    if at or "." not in path:
        if len(at) == 1:
            return (at[0],)
        return None
    return _steps(list(schema), path)


def field_at(schema: pa.Schema, path: str) -> pa.Field | None:
    """Return the field at ``path``, named by the path, or None if it does not exist.

    The field is nullable if it, or a struct around it, is nullable.

    >>> field_at(pa.schema({"at": pa.struct({"lat": pa.float64()})}), "at.lat")
    pyarrow.Field<at.lat: double>
    """
    way = steps(schema, path)
    if way is None:
        return None
    on_the_way = fields(schema, way)
    return on_the_way[-1].with_name(path).with_nullable(any(field.nullable for field in on_the_way))


def type_at(schema: pa.Schema, path: str) -> pa.DataType:
    """Return the type of the column at ``path``. Raises KeyError if it does not exist."""
    field = field_at(schema, path)
    if field is None:
        raise KeyError(f"there is no column {path!r}; columns: {', '.join(schema.names)}")
    return field.type


def fields(schema: pa.Schema, way: Steps) -> list[pa.Field]:
    """Return the fields along ``way``, the target last."""
    way_fields = [schema.field(way[0])]
    for step in way[1:]:
        way_fields.append(way_fields[-1].type.field(step))
    return way_fields


def names(schema: pa.Schema, path: str) -> tuple[str, ...]:
    """Return the names along ``path``, for engines that quote each name.

    Raises KeyError if the column does not exist.
    """
    way = steps(schema, path)
    if way is None:
        raise KeyError(f"there is no column {path!r}; columns: {', '.join(schema.names)}")
    return tuple(field.name for field in fields(schema, way))


def top_level(schema: pa.Schema, path: str) -> str:
    """Return the top-level column that contains ``path``. Raises KeyError if the path does not
    exist.
    """
    return names(schema, path)[0]


def top_levels(schema: pa.Schema, paths: Iterable[str]) -> frozenset[str]:
    """Return the top-level columns needed for ``paths``. Raises KeyError for an unknown path."""
    return frozenset(top_level(schema, path) for path in paths)


def column_at(data: pa.Table | pa.RecordBatch, path: str) -> Any:
    """Return the values at ``path`` [rows]: a ChunkedArray for a table, an Array for a batch.

    Values are null where a struct on the way is null. Raises KeyError if the path does not exist.
    O(1) for a top-level column. O(rows / 8) for a nested field, because child values are shared.

    >>> rows = pa.table({"at": [{"lat": 59.9}, None]})
    >>> column_at(rows, "at.lat").to_pylist()
    [59.9, None]
    """
    way = steps(data.schema, path)
    if way is None:
        raise KeyError(f"there is no column {path!r}; columns: {', '.join(data.schema.names)}")
    return follow(data, way)


def follow(data: pa.Table | pa.RecordBatch, way: Steps) -> Any:
    """Return the values at the end of ``way``, like :func:`column_at`."""
    column = data.column(way[0])
    if len(way) > 1:
        return pc.struct_field(column, list(way[1:]))
    return column


def addressable(schema: pa.Schema) -> Iterator[tuple[str, pa.Field]]:
    """Yield the path and field of every column and nested struct field that has a path, parents
    first.

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
    """Yield the path and field of all columns and nested fields that are not structs."""
    return (
        (path, field) for path, field in addressable(schema) if not pa.types.is_struct(field.type)
    )


def _steps(choices: Sequence[pa.Field], path: str) -> Steps | None:
    matches = [position for position, field in enumerate(choices) if field.name == path]
    if matches:
        if len(matches) == 1:
            return (matches[0],)
        return None
    cut = path.rfind(".")
    while cut >= 0:
        inside = [
            position
            for position, field in enumerate(choices)
            if field.name == path[:cut] and pa.types.is_struct(field.type)
        ]
        remaining = (
            _steps(_children(choices[inside[0]].type), path[cut + 1 :])
            if len(inside) == 1
            else None
        )
        if remaining is not None:
            return (inside[0], *remaining)
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
