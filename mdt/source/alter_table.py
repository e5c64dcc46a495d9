"""ALTER TABLE of Spark SQL, by :meth:`mdt.Table.alter`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mdt import given_options
from mdt import table as tables
from mdt.config import OPTIONS, changed_options
from mdt.errors import Invalid
from mdt.schema.alter import has_field, quote
from mdt.source import statements, write_frame
from mdt.source.option_keywords import SourceOptions

Change = tuple[str, list[str], Any]
"""The kind of change, the path of a column, and the new value (:func:`alter`)."""


def _add_columns(fields: Mapping[str, Any]) -> Iterator[Change]:
    for column in fields["columnsToAdd"]:
        if column.get("default") is not None:
            raise statements.refusal("AddDefault")
        path = [*(column["path"] or []), column["colName"]]
        yield "add", path, (column["dataType"], column["nullable"])
        yield from _comment_and_place(path, column["comment"], column["position"])


def _alter_columns(fields: Mapping[str, Any]) -> Iterator[Change]:
    for spec in fields["specs"]:
        path, nullable = spec["column"], spec["newNullability"]
        if nullable is False:
            raise statements.refusal("SetNotNull")
        if spec.get("newDefaultExpression") is not None or spec.get("dropDefault"):
            raise statements.refusal("SetDefault")
        if spec["newDataType"] is not None:
            yield "widen", path, (spec["newDataType"], True)
        if nullable:
            yield "nullable", path, None
        comment = "" if spec.get("dropComment") else spec["newComment"]
        yield from _comment_and_place(path, comment, spec["newPosition"])


def _comment_and_place(
    path: list[str], comment: str | None, position: list[str] | None
) -> Iterator[Change]:
    """``position``: the preceding column, or empty for the first place."""
    if comment is not None:
        if len(path) > 1:
            raise statements.refusal("CommentOnField")
        yield "comment", path, comment
    if position is not None:
        yield "place", path, next(iter(position), None)


def _drop_columns(fields: Mapping[str, Any]) -> Iterator[Change]:
    change = "drop_if_exists" if fields["ifExists"] else "drop"
    for path in fields["columnsToDrop"]:
        yield change, path, None


def _rename_column(fields: Mapping[str, Any]) -> Iterator[Change]:
    yield "rename", fields["column"], fields["newName"]


CHANGES: Mapping[str, Callable[[Mapping[str, Any]], Iterator[Change]]] = {
    "AddColumns": _add_columns,
    "AlterColumns": _alter_columns,
    "DropColumns": _drop_columns,
    "RenameColumn": _rename_column,
}
"""Classes of Spark plans that alter columns -> functions that convert their fields to changes.

They raise Unsupported for refused changes. A type is the Spark JSON of a schema with one field,
paired with the nullability of the column.
"""


def alter(
    options: SourceOptions, changes: Sequence[tuple[str, Sequence[str], Any]]
) -> tables.Table:
    """Alter the table of ``options`` in a single commit, and return it.

    ``changes``: (kind, path of a column, new value):

    * ``add``: a new column; an Arrow field with its type and nullability
    * ``widen``: a new type; an Arrow field with that type
    * ``rename``: the new name
    * ``drop``, ``drop_if_exists``, ``nullable``: None
    * ``place``: the preceding column, or None for the first place
    * ``comment``: stored in Spark's catalog only, but the column must exist

    Raises Invalid for a column that does not exist, and otherwise as :meth:`mdt.Table.alter` does.
    """
    write_frame.require_newest(options)
    table = write_frame.open_for_writing(options)
    arguments: dict[str, Any] = {"add": {}, "drop": [], "rename": {}, "widen": {}, "nullable": []}
    names = list(table.schema.names)
    for change, path, new in changes:
        if change == "drop_if_exists" and not has_field(table.definition, _text(path)):
            continue
        _collect(arguments, names, change, path, new)
    if any(arguments.values()):
        table.alter(**arguments)
    return table


def alter_options(
    options: SourceOptions, changes: Mapping[str, str | None]
) -> tuple[tables.Table, list[str]]:
    """Change options of the table of ``options``, None to the default; return it and all accepted
    names of these options in lower case.

    Raises Invalid as :meth:`mdt.Table.alter` does: for unknown options, invalid values, and options
    that are fixed at creation.
    """
    write_frame.require_newest(options)
    changed = changed_options(given_options.read(changes).own)
    table = write_frame.open_for_writing(options)
    table.alter(options=changes)
    names: list[str] = []
    for name in changed:
        names += map(str.lower, OPTIONS.find(name).names)
    return table, names


def _collect(
    arguments: dict[str, Any], names: list[str], change: str, path: Sequence[str], new: Any
) -> None:
    """Add one change to the arguments of ``Table.alter`` and apply it to the column ``names``."""
    name, is_column = _text(path), len(path) == 1
    if change == "add":
        arguments["add"][name] = new.type if new.nullable else new
        if is_column:
            names.append(path[0])
    elif change == "widen":
        arguments["widen"][name] = new.type
    elif change == "rename":
        arguments["rename"][name] = new
        names[:] = [new if is_column and each == name else each for each in names]
    elif change == "nullable":
        arguments["nullable"].append(name)
    elif change == "drop" or (change == "drop_if_exists" and path[0] in names):
        arguments["drop"].append(name)
        names[:] = [each for each in names if not is_column or each != name]
    elif change == "place":
        _place(names, path, new)
        # Table.alter refuses duplicate names.
        arguments["reorder"] = list(dict.fromkeys(names))
    elif change == "comment" and path[0] not in names:
        raise _no_column(path[0], names)


def _text(path: Sequence[str]) -> str:
    """Return a path as :meth:`mdt.Table.alter` takes it."""
    return ".".join(map(quote, path))


def _place(names: list[str], path: Sequence[str], after: str | None) -> None:
    """Move a column after another column, or to the front."""
    if len(path) > 1:
        raise statements.refusal("PlaceOfField")
    if path[0] not in names:
        raise _no_column(path[0], names)
    if after is not None and after not in names:
        raise _no_column(after, names)
    names.remove(path[0])
    place = 0
    if after is not None:
        place = names.index(after) + 1
    names.insert(place, path[0])


def _no_column(name: str, names: Sequence[str]) -> Invalid:
    return Invalid(f"the table has no column {name!r}", hint=f"its columns are {', '.join(names)}")
