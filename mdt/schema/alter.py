"""Schema changes: from the requested alteration to the next schema version.

A path names a field. It leads through structs by field name, into lists by ``element`` and into
maps by ``value``: ``address.zip``, ``items.element.price``. A column whose full name equals the
path takes precedence. Names that contain dots are put in backquotes: ``address.`zip.code```.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from mdt.arguments import backquoted, shown, texts
from mdt.errors import Invalid, Unsupported
from mdt.limits import SCHEMA_VERSIONS_BYTES_MAX, SCHEMA_VERSIONS_MAX
from mdt.schema import declared as declared_types
from mdt.schema.convert import convert
from mdt.schema.definition import TableDefinition
from mdt.schema.lossy_casts import exact_array
from mdt.schema.names import inside
from mdt.schema.nested import with_fields
from mdt.schema.older_files import convert_field
from mdt.schema.versions import ID_MAX, Column, SchemaVersion, free_id, stored_bytes, widens


@dataclass(frozen=True, slots=True)
class Alteration:
    """A requested schema change.

    ``drop``, ``rename``, ``widen`` and ``nullable`` use the current paths; ``add`` and ``reorder``
    use the new ones.

    Attributes:
        add: Path -> field. The column is appended to the table or to its struct.
        drop: Paths.
        rename: Path -> new name.
        widen: Path -> new declared type.
        reorder: Column names that come first, in this order.
        nullable: Paths of columns that become nullable.
        defaults: Path of an added column -> its value in older rows.
    """

    add: Mapping[str, pa.Field] = field(default_factory=dict)
    drop: Sequence[str] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    widen: Mapping[str, pa.DataType] = field(default_factory=dict)
    reorder: Sequence[str] = ()
    nullable: Sequence[str] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any((self.add, self.drop, self.rename, self.widen, self.reorder, self.nullable))


@dataclass(slots=True)
class _Node:
    """A field during an alteration.

    ``id`` is None for a new field. ``kind`` is the declared field, whose child fields may be
    outdated.
    """

    id: int | None
    kind: pa.Field
    children: list[_Node]
    default: Any = None

    @property
    def name(self) -> str:
        return str(self.kind.name)

    def field(self) -> pa.Field:
        """Return the declared field with its current children."""
        if not self.children:
            return self.kind
        fields = [child.field() for child in self.children]
        return self.kind.with_type(with_fields(self.kind.type, fields))

    def walk(self) -> Iterator[_Node]:
        yield self
        for child in self.children:
            yield from child.walk()


def alteration(
    *,
    add: Mapping[str, Any],
    drop: Sequence[str],
    rename: Mapping[str, str],
    widen: Mapping[str, Any],
    reorder: Sequence[str],
    nullable: Sequence[str],
    defaults: Mapping[str, Any],
) -> Alteration:
    """Check the arguments of an alteration and return it.

    Raises Invalid for values of the wrong type, or if nothing is to be changed.
    """
    fields = dict(add)
    for path, value in add.items():
        if not isinstance(value, pa.Field):
            fields[path] = pa.field("new", type_of(value))
    request = Alteration(
        fields,
        texts("drop", drop, "['note']"),
        dict(rename),
        {path: type_of(value) for path, value in widen.items()},
        texts("reorder", reorder, "['id', 'at']"),
        texts("nullable", nullable, "['note']"),
        dict(defaults),
    )
    for text in (
        *request.rename,
        *request.rename.values(),
        *request.add,
        *request.widen,
        *request.defaults,
    ):
        if not isinstance(text, str):
            raise Invalid(
                f"{text!r} is not a column name",
                hint="column names are strings, such as rename={'note': 'remark'}",
            )
    if not request:
        raise Invalid(
            "no alteration was given",
            hint="use add=, drop=, rename=, widen=, reorder=, nullable= or options=",
        )
    return request


_REMOVE_VERSIONS = (
    "clean() removes versions that no file and no readable state needs; run compact() or"
    " cluster() first to rewrite old files"
)
_DECIMAL = re.compile(r"decimal\((\d{1,2}) *, *(\d{1,2})\)")


def type_of(value: Any) -> pa.DataType:
    """Return an Arrow type, given as such or by name: "int64", "timestamp[us]", "decimal(12, 2)".

    Raises Invalid for an unknown name.

    >>> type_of("decimal(12, 2)")
    Decimal128Type(decimal128(12, 2))
    """
    if isinstance(value, pa.DataType):
        return value
    try:
        match = _DECIMAL.fullmatch(value)
        if match is not None:
            return pa.decimal128(*map(int, match.groups()))
        return pa.type_for_alias(value)
    except (TypeError, ValueError) as error:
        raise Invalid(
            f"{value!r} is not a type",
            hint="use a pyarrow type or its name, such as 'int64' or 'decimal(12, 2)'",
        ) from error


def apply_alteration(
    definition: TableDefinition, alteration: Alteration, since: int
) -> SchemaVersion:
    """Return the schema version that results from an alteration and begins with commit ``since``.

    Raises Invalid with path and reason if the alteration is not possible.
    """
    before = definition.version
    roots = _roots(before)
    tree = _tree(roots)
    _refuse_fixed(definition, alteration, tree)
    for parent, node in [_field_at(tree, path) for path in alteration.drop]:
        _drop(parent, node)
    renamed = [(_field_at(tree, path)[1], name) for path, name in alteration.rename.items()]
    for path, type in alteration.widen.items():
        _widen(path, _field_at(tree, path)[1], type)
    for path in alteration.nullable:
        node = _field_at(tree, path)[1]
        node.kind = node.kind.with_nullable(True)
    for node, name in renamed:
        node.kind = node.kind.with_name(name)
    for path, added in alteration.add.items():
        _add(tree, path, added, alteration.defaults.get(path))
    if unknown := [path for path in alteration.defaults if path not in alteration.add]:
        raise Invalid(
            f"{unknown[0]!r} has a default, but is not added",
            hint="only added columns can have defaults",
        )
    tree.children = _reorder(roots, alteration.reorder)
    return _new_version(definition, tree, since, before)


def restore_columns(definition: TableDefinition, old: SchemaVersion, since: int) -> SchemaVersion:
    """Return a new schema version with the columns of the earlier version ``old``.

    It begins with commit ``since``. Newer columns are dropped, dropped columns are restored, and
    names and order are reset. Widened types and nullability are kept, because readable files
    written since then need them.
    """
    newest = {}
    for version in definition.versions:
        newest.update({node.id: node.kind for root in _roots(version) for node in root.walk()})
    tree = _tree(_roots(old))
    for node in [node for root in tree.children for node in root.walk()]:
        current = newest[node.id]
        node.kind = node.kind.with_nullable(node.kind.nullable or current.nullable)
        if not node.children:
            node.kind = node.kind.with_type(current.type)
    return _new_version(definition, tree, since, old)


def has_field(definition: TableDefinition, path: str) -> bool:
    """Return True if the table has a column or a field at ``path``."""
    try:
        _field_at(_tree(_roots(definition.version)), path)
    except Invalid:
        return False
    return True


def _tree(roots: list[_Node]) -> _Node:
    """Return the node of the table with these columns."""
    return _Node(None, pa.field("", pa.null()), roots)


def _roots(version: SchemaVersion) -> list[_Node]:
    return [
        _existing_node(declared, column)
        for declared, column in zip(version.declared, version.columns, strict=True)
    ]


def _existing_node(declared: pa.Field, column: Column) -> _Node:
    pairs = zip(inside(declared.type), column.children, strict=True)
    return _Node(
        column.id, declared, [_existing_node(child, child_column) for child, child_column in pairs]
    )


def _new_node(declared: pa.Field) -> _Node:
    return _Node(None, declared, [_new_node(child) for child in inside(declared.type)])


_QUOTED = r"`(?:[^`]|``)+`"
_PART = re.compile(rf"{_QUOTED}|[^.]+")
_PATH = re.compile(rf"(?:{_QUOTED}|[^.`]+)(?:\.(?:{_QUOTED}|[^.`]+))*")


def quote(name: str) -> str:
    """Return a name as it is written in a path.

    >>> quote("zip"), quote("zip.code")
    ('zip', '`zip.code`')
    """
    if "." in name or "`" in name:
        return backquoted(name)
    return name


def _split_path(path: str) -> list[str]:
    """Split a path into names."""
    if "`" not in path or not _PATH.fullmatch(path):
        return path.split(".")
    parts = _PART.findall(path)
    return [part[1:-1].replace("``", "`") if part[0] == "`" else part for part in parts]


def _path_to(node: _Node, path: str) -> list[_Node] | None:
    """Return the nodes from ``node`` down to the field at an unquoted ``path``, or None."""
    for child in node.children:
        if child.name == path:
            return [child]
        if path.startswith(f"{child.name}."):
            below = _path_to(child, path[len(child.name) + 1 :])
            if below is not None:
                return [child, *below]
    return None


def _field_at(tree: _Node, path: str) -> tuple[_Node, _Node]:
    """Return (parent, node) of the field at ``path``. Raises Invalid if it does not exist."""
    nodes = _path_to(tree, path)
    if nodes is not None:
        return [tree, *nodes][-2], nodes[-1]
    parent, node = tree, tree
    for name in _split_path(path):
        inside = [child for child in node.children if child.name == name]
        if not inside:
            names = ", ".join(child.name for child in node.children) or "none"
            raise Invalid(f"the table has no column {path!r}", hint=f"columns or fields: {names}")
        parent, node = node, inside[0]
    return parent, node


def _refuse_fixed(definition: TableDefinition, alteration: Alteration, tree: _Node) -> None:
    orders = "is an ordering field, and values in older files would have to be compared again"
    key_reason = "is part of the record key, which is stored with every row"
    partition_reason = (
        "is a partition column, whose values are directory names, so every file would have to move"
    )
    reasons = dict.fromkeys(definition.ordering, orders)
    reasons |= dict.fromkeys(definition.key, key_reason)
    reasons |= dict.fromkeys(definition.partition_by, partition_reason)
    for path in (*alteration.drop, *alteration.rename, *alteration.widen, *alteration.nullable):
        nodes = _path_to(tree, path)
        name = _split_path(path)[0]
        if nodes is not None:
            name = nodes[0].name
        if name in reasons:
            raise Invalid(
                f"column {name!r} cannot be altered: it {reasons[name]}",
                hint="to change it, write the rows to a new table",
            )


def _require_struct(parent: _Node, path: str) -> None:
    """Raise Invalid unless ``parent`` is the table or a struct.

    Fields of lists and maps cannot be added or dropped on their own.
    """
    if not (pa.types.is_null(parent.kind.type) or pa.types.is_struct(parent.kind.type)):
        raise Invalid(
            f"{path!r} is not a column of the table or a field of a struct",
            hint="alter the column that contains it",
        )


def _drop(parent: _Node, node: _Node) -> None:
    _require_struct(parent, node.name)
    parent.children.remove(node)
    if not parent.children:
        raise Invalid(
            f"{node.name!r} is the only field of {parent.name!r}", hint=f"drop {parent.name!r}"
        )


def _add(tree: _Node, path: str, new_field: pa.Field, default: Any) -> None:
    *above, name = _split_path(path)
    parent = tree
    if above:
        parent = _field_at(tree, ".".join(map(quote, above)))[1]
    _require_struct(parent, path)
    node = _new_node(new_field.with_name(name))
    if not new_field.nullable and default is None:
        raise Invalid(
            f"column {path!r} is required, but existing rows have no value for it",
            hint="give it a default or make it nullable",
        )
    node.default = default
    parent.children.append(node)


def _widen(path: str, node: _Node, type: pa.DataType) -> None:
    old = node.kind.type
    if not may_widen(old, type):
        raise Invalid(
            f"column {path!r} of type {old} cannot be widened to {type}",
            hint=(
                "integers widen to larger integers and to double, float to double, decimals to more"
                " digits before the point, dates to timestamps"
            ),
        )
    node.kind = node.kind.with_type(type)


_Test = Callable[[pa.DataType], bool]


def may_widen(old: pa.DataType, new: pa.DataType) -> bool:
    """Return True if the declared type of a column may change from ``old`` to ``new``.

    Both types must be flat, and every old value must have an equal new value.

    >>> (
    ...     may_widen(pa.int8(), pa.int64()),
    ...     may_widen(pa.int8(), pa.uint64()),
    ...     may_widen(pa.date32(), pa.timestamp("us")),
    ... )
    (True, False, True)
    """
    kinds = pa.types
    families: tuple[tuple[_Test, _Test], ...] = (
        (kinds.is_integer, kinds.is_floating),
        (kinds.is_floating, kinds.is_floating),
        (kinds.is_decimal, kinds.is_decimal),
        (kinds.is_date, kinds.is_timestamp),
        (kinds.is_string, kinds.is_large_string),
        (kinds.is_binary, kinds.is_large_binary),
    )
    if kinds.is_integer(old) and kinds.is_integer(new):
        grows = new.bit_width > old.bit_width
        fits = grows and (kinds.is_signed_integer(new) or kinds.is_unsigned_integer(old))
    else:
        grows = not kinds.is_floating(old) or (
            kinds.is_floating(new) and new.bit_width > old.bit_width
        )
        fits = grows and any(is_source(old) and is_target(new) for is_source, is_target in families)
    try:
        return bool(
            fits and widens(*declared_types.stored_schema(pa.schema({"a": old, "b": new})).types)
        )
    except Invalid:
        return False


def _reorder(roots: list[_Node], first: Sequence[str]) -> list[_Node]:
    nodes_by_name = {node.name: node for node in roots}
    unknown = [name for name in first if name not in nodes_by_name]
    if unknown or len(set(first)) != len(first):
        raise Invalid(
            f"reorder={list(first)} must name distinct columns of {list(nodes_by_name)}",
            hint="columns that are not named follow in their order",
        )
    return [
        *(nodes_by_name[name] for name in first),
        *(node for node in roots if node.name not in first),
    ]


def _new_version(
    definition: TableDefinition, tree: _Node, since: int, before: SchemaVersion
) -> SchemaVersion:
    if definition.numbered:
        raise Unsupported(
            "mdt cannot change the columns of a table with Hudi's schema on read",
            hint="change them with Hudi's ALTER TABLE (hoodie.schema.on.read.enable=true)",
        )
    declared = pa.schema([node.field() for node in tree.children])
    stored = declared_types.stored_schema(declared, definition.key)
    versions = definition.versions or (definition.version,)
    if len(versions) >= SCHEMA_VERSIONS_MAX:
        raise Invalid(
            f"the schema was altered {len(versions) - 1} times, but a table keeps at most"
            f" {SCHEMA_VERSIONS_MAX} versions",
            hint=_REMOVE_VERSIONS,
        )
    next_id = free_id(versions)
    nodes = [node for root in tree.children for node in root.walk()]
    for node in nodes:
        if node.id is None:
            node.id, next_id = next_id, next_id + 1
    if next_id > ID_MAX + 1:
        raise Invalid(
            f"the table has no id left for a new column (the maximum is {ID_MAX:,})",
            hint=_REMOVE_VERSIONS,
        )
    ids = tuple(node.id for node in nodes if node.id is not None)
    draft = SchemaVersion(since, stored, declared, ids)
    defaults = _defaults(
        before, draft, {node.id: node for node in nodes if node.default is not None}
    )
    version = SchemaVersion(since, stored, declared, ids, defaults)
    size = stored_bytes(versions) + stored_bytes((version,))
    if size > SCHEMA_VERSIONS_BYTES_MAX:
        raise Invalid(
            f"the {len(versions)} schema versions and a new one would take {size:,} bytes; a"
            f" table keeps at most {SCHEMA_VERSIONS_BYTES_MAX:,} bytes",
            hint=f"{_REMOVE_VERSIONS}; altering many columns in one call adds only one version",
        )
    return version


def _defaults(
    before: SchemaVersion, after: SchemaVersion, new_nodes: Mapping[int | None, _Node]
) -> dict[int, pa.Scalar]:
    """Return the defaults of all columns of ``after``, by column id.

    Existing defaults are converted to the new types, and ``new_nodes`` add theirs.
    """
    older = {column.id: column for column in before.walk()}
    defaults = {}
    for column in after.walk():
        if column.id in before.defaults:
            value = pa.repeat(before.defaults[column.id], 1)
            defaults[column.id] = convert_field(value, older[column.id], column, before.defaults)[0]
        elif column.id in new_nodes:
            node = new_nodes[column.id]
            try:
                value = exact_array([node.default], declared_types.plain(node.kind.type))
                defaults[column.id] = convert(value, column.type)[0]
            except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
                raise Invalid(
                    f"the default of {node.name!r} is {shown(node.default)}, which is not a valid"
                    f" {node.kind.type}",
                    hint="give a value of the column's type, or add the column with another type",
                ) from error
    return defaults
