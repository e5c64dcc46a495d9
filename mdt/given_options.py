"""The options of a call in Python: those of mdt, and those of Hudi.

A job may pass all its Hudi options. Those with an equal in :mod:`mdt.config` are options of mdt.
:mod:`mdt.hudi_options` has the others. Options that describe the table, such as
``hoodie.datasource.write.recordkey.field``, must fit its definition, and are not stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mdt import hudi_options
from mdt.arguments import mapping, own_spelling
from mdt.config import CALL_OPTIONS, OPTIONS
from mdt.errors import Invalid
from mdt.hudi_options import shown, text_of

if TYPE_CHECKING:
    from mdt.schema.definition import TableDefinition

BLANK_IF_UNSET = ("name", "key", "ordering", "required")
"""Options of a call that count as omitted if their text is blank."""

_CALLS: Mapping[str, str] = {
    "operation": "call t.upsert, t.insert, t.bulk_insert, t.delete or t.insert_overwrite",
    "query_type": "call t.scan(query_type='read_optimized') or t.changes(since, until)",
    "since": "call t.changes(since, until) or t.scan(since=…)",
    "until": "call t.changes(since, until) or t.scan(since=…)",
    "as_of": "call mdt.open(path, as_of=…) or t.scan(as_of=…)",
}
"""Options of one read or write, with the calls that replace them in Python."""

_METHODS = (
    "upsert",
    "insert",
    "bulk_insert",
    "delete",
    "delete_partition",
    "insert_overwrite",
    "insert_overwrite_table",
)


@dataclass(frozen=True, slots=True)
class GivenOptions:
    """Options of a call, in two parts.

    Attributes:
        own: Options of :class:`mdt.config.Options`.
        described: Options of Hudi that describe the table (:func:`require`).
    """

    own: dict[str, Any] = field(default_factory=dict)
    described: dict[str, Any] = field(default_factory=dict)


def read(options: Mapping[str, object] | None) -> GivenOptions:
    """Return the options of a call in Python. Options without effect are left out, with a warning.

    Raises Invalid for an unknown name, and for an option of one read or write. Raises Unsupported
    for a value that contradicts what mdt does. None or a blank text as the value of an option of
    Hudi is ignored.

    >>> given = read({"mdt.compression": "zstd", "hoodie.table.type": "MERGE_ON_READ"})
    >>> given.own, given.described
    ({'mdt.compression': 'zstd'}, {'hoodie.table.type': 'MERGE_ON_READ'})
    """
    given = GivenOptions()
    for name, value in mapping("options", options).items():
        known = hudi_options.find(name)
        if name in OPTIONS:
            given.own[name] = value
        elif known is not None:
            if not _is_blank(value):
                known.check(name, value)
                if known.agreeing is not None:
                    given.described[name] = value
        elif _is_of_call(name):
            if value is not None:
                _read_call_option(given, name, value)
        else:
            OPTIONS.find(name, names())
    return given


def names() -> Iterator[str]:
    """Yield the names of Hudi that a call in Python accepts besides those in ``OPTIONS``."""
    yield from hudi_options.names()
    yield from filter(_is_of_call, CALL_OPTIONS)


def require(
    definition: TableDefinition, described: Mapping[str, object], *, is_written: bool = True
) -> None:
    """Raise Invalid if options of Hudi describe another table.

    is_written: False for a table of other writers, whose properties decide how rows are merged.
    """
    for name, value in described.items():
        known = hudi_options.find(name)
        if known is None:
            _require_field(definition, name, value)
        elif is_written:
            known.require(name, value, definition)


def has_value(definition: TableDefinition, member: str, value: Any) -> bool:
    """Return True if a field of a definition has a value. Columns may differ in case."""
    current = getattr(definition, member)
    if member not in ("key", "partition_by", "ordering"):
        return bool(value == current)
    columns = definition.schema.names
    own = tuple(own_spelling(name, columns) for name in column_names(value))
    return own == column_names(current)


def column_names(value: Any) -> tuple[str, ...]:
    """Return the columns in an option or a definition: a name, several names, or None.

    >>> column_names("ts"), column_names(("id", "n")), column_names(None)
    (('ts',), ('id', 'n'), ())
    """
    if isinstance(value, str):
        return (value,)
    return tuple(value or ())


def _read_call_option(given: GivenOptions, name: str, value: object) -> None:
    """Add an option that describes the table. Raises Invalid for an option of one read or write."""
    declared = CALL_OPTIONS.find(name.lower())
    if declared.fixed:
        if not _is_blank(value) or declared.member not in BLANK_IF_UNSET:
            given.described[name] = value
        return
    word = str(value).strip().lower()
    if (declared.member, word) == ("query_type", "snapshot"):
        return
    hint = _CALLS[declared.member]
    if declared.member == "operation" and word in _METHODS:
        hint = f"call t.{word}(…)"
    raise Invalid(
        f"{name}={shown(value)} is an option of one read or write, not of a table", hint=hint
    )


def _require_field(definition: TableDefinition, name: str, value: object) -> None:
    declared = CALL_OPTIONS.find(name.lower())
    member, argument = declared.member, declared.member
    if has_value(definition, member, declared.parse(value, name)):
        return
    if member == "name":
        argument = "the option mdt.table.name"
    raise Invalid(
        f"{name} is {shown(value)}, but the table has"
        f" {member} = {text_of(getattr(definition, member))}",
        hint=f"set {argument} in mdt.create, or remove the option",
    )


def _is_of_call(name: object) -> bool:
    """Return True for Hudi's names of options of one read or write."""
    fold = str(name).lower()
    return fold in CALL_OPTIONS and fold.startswith(("hoodie.", "as.of."))


def _is_blank(value: object) -> bool:
    return value is None or not str(value).strip()
