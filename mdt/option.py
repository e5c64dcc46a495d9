"""Declaration and parsing of options.

Options are fields of a dataclass, declared with :func:`option`. :class:`OptionTable` finds them by
name and parses their values, which may be text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from mdt.arguments import listed, listing, nearest, shown
from mdt.errors import Invalid
from mdt.limits import OPTION_BYTES_MAX

Scope = Literal["table", "session", "machine"]
"""``table``: stored with the table. ``session``: belongs to the program that opens the table and is
never stored. ``machine``: as session, for directories, memory and threads of the computer, which
data in a table must not choose.
"""

ALL_COLUMNS = "*"
"""Text form of None in a list of columns."""

_NAMES_IN_OTHER_SYSTEMS = {
    **dict.fromkeys(("as_of", "versionasof", "timestampasof"), "as_of"),
    **dict.fromkeys(("snapshot-id", "as-of-timestamp"), "as_of"),
    **dict.fromkeys(("readchangefeed", "readchangedata"), "changes"),
    **dict.fromkeys(("startingversion", "startingtimestamp", "start-snapshot-id"), "since"),
    **dict.fromkeys(("endingversion", "endingtimestamp", "end-snapshot-id"), "until"),
}
"""Options of Delta Lake and Iceberg, in lower case, and the option here with the same purpose."""

_SEQ_DIGITS_MAX = 10
_CATALOG_TABLE_PARTS = 3
"""Least number of parts of the name of a table in a catalog."""
_SPEC = re.compile(r"""(?:'[^']*'|"[^"]*"|[^;])+""")


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of options.

    parse: Converts a text, or a value of the type. Raises TypeError or ValueError.
    allowed: A description of valid values.
    """

    parse: Callable[[Any], Any]
    allowed: str


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a text is expected")
    return value.strip()


def choice(*texts: str, **others: Any) -> Kind:
    """Return the kind of the choices ``texts``, ignoring case. ``others`` maps further texts to
    values.

    >>> choice("lz4", none="uncompressed").parse("NONE")
    'uncompressed'
    """
    values = {text.lower(): text for text in texts} | others

    def parse(value: object) -> Any:
        word = _text(value).lower()
        if word not in values:
            raise ValueError(f"{word} is not a choice")
        return values[word]

    return Kind(parse, "one of " + ", ".join([*texts, *others]))


def some_of(*texts: str, **groups: tuple[str, ...]) -> Kind:
    """Return the kind of comma-separated lists of ``texts``. Each of ``groups`` stands for several.

    >>> some_of("log", "metrics", none=()).parse("log, metrics")
    ('log', 'metrics')
    """
    single = choice(**{text: (text,) for text in texts}, **groups)

    def parse(value: object) -> tuple[str, ...]:
        chosen: list[str] = []
        for part in _text(value).split(","):
            chosen += single.parse(part)
        return tuple(dict.fromkeys(chosen))

    return Kind(parse, f"{single.allowed}, or several separated by commas")


def whole(low: int, high: int) -> Kind:
    """Return the kind of integers from ``low`` to ``high``."""
    return _numbers(int, "a whole number", low, high)


def real(low: float, high: float) -> Kind:
    """Return the kind of floats from ``low`` to ``high``."""
    return _numbers(float, "a number", low, high)


def _numbers(kind: type[int | float], noun: str, low: float, high: float) -> Kind:
    def parse(value: object) -> Any:
        if isinstance(value, bool) or not isinstance(value, (kind, int, str)):
            raise TypeError("a number is expected")
        number = kind(value)
        if not low <= number <= high:
            raise ValueError(f"{number} is out of range")
        return number

    return Kind(parse, f"{noun} from {low} to {high}")


def _parse_flag(value: object) -> Any:
    if isinstance(value, bool):
        return value
    return _FLAGS.parse(value)


def _parse_columns(value: object) -> tuple[str, ...]:
    names = value
    if isinstance(value, str):
        is_json = value.startswith("[")  # as Spark lists the columns of partitionBy
        names = json.loads(value) if is_json else listed(value)
    if not isinstance(names, (list, tuple)):
        raise TypeError("a list is expected")
    for name in names:
        if not isinstance(name, str):
            raise TypeError("a column is named by text")
    return tuple(names)


def _parse_some_columns(value: object) -> tuple[str, ...] | None:
    if value is None or value == ALL_COLUMNS:
        return None
    return tuple(dict.fromkeys(filter(None, _parse_columns(value))))


def _parse_column(value: object) -> str | None:
    names = listed(_text(value))
    if len(names) == 1:
        return names[0]
    return _text(value) or None


def _parse_point(value: object) -> int | str:
    text = str(value)
    if text.lower() == "earliest":
        return 0
    if text.isascii() and text.isdigit() and len(text) <= _SEQ_DIGITS_MAX:
        return int(text)
    return text


def _parse_specs(value: object) -> tuple[str, ...]:
    specs = map(str.strip, _SPEC.findall(_text(value)))
    return tuple(filter(None, specs))


def _parse_partitions(value: object) -> Any:
    text = str(value)
    if text.startswith(("{", "[")):
        return json.loads(text)
    return text


def _parse_catalog_table(value: object) -> str:
    name = _text(value)
    parts = name.split(".")
    if name and (len(parts) < _CATALOG_TABLE_PARTS or not all(parts)):
        raise ValueError("a part of the name is missing")
    return name


_FLAGS = choice(true=True, false=False)
FLAG = Kind(_parse_flag, "true or false")
TEXT = Kind(_text, "text")
WORD = Kind(lambda value: _text(value).lower(), "a word")
COLUMN = Kind(_parse_column, "a name, optionally in backquotes")
COLUMNS = Kind(_parse_columns, "names separated by commas, in backquotes if they contain commas")
SOME_COLUMNS = Kind(
    _parse_some_columns, f"column {COLUMNS.allowed}, or {ALL_COLUMNS} for all scalar columns"
)
POINT = Kind(_parse_point, "a commit's number, an instant, a time, a tag, or earliest")
"""Points in a table's history. Up to ten digits are a commit number."""
CATALOG_TABLE = Kind(_parse_catalog_table, "catalog.namespace.table")
SPECS = Kind(_parse_specs, "indexes separated by semicolons")
"""Index specifications. A semicolon in quotes is part of a name."""
PARTITIONS = Kind(_parse_partitions, "a path, city=Oslo, or JSON")
"""Partitions as :meth:`mdt.Table.delete_partition` takes them."""

_KINDS: Mapping[type, Kind] = {bool: FLAG, str: TEXT}


@dataclass(frozen=True, slots=True)
class Option:
    """The declaration of an option.

    member: The field that declares it.
    hudi: Names of the same option in Hudi and Spark.
    fixed: True if it is set at creation and cannot change, because it decides the meaning or
        location of the data.
    """

    member: str
    name: str
    default: Any
    doc: str
    kind: Kind
    hudi: tuple[str, ...]
    scope: Scope
    fixed: bool

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the option, the mdt name first."""
        return (self.name, *self.hudi)

    def parse(self, value: object, given_as: str) -> Any:
        """Return ``value`` converted to the option's type. Raises Invalid with the allowed values.

        given_as: The name that the caller used.
        """
        try:
            parsed = self.kind.parse(value)
        except (TypeError, ValueError, OverflowError):
            raise Invalid(
                f"option {given_as}={shown(value)} is not valid", hint=f"use {self.kind.allowed}"
            ) from None
        size = len(to_text(parsed).encode(errors="surrogatepass"))
        if self.scope == "table" and size > OPTION_BYTES_MAX:
            raise Invalid(
                f"option {given_as} has {size:,} bytes, more than the {OPTION_BYTES_MAX:,} allowed",
                hint="shorten it",
            )
        return parsed

    def default_text(self) -> str:
        """Return the default as text, or "" without a default."""
        if self.default is None and self.kind is not SOME_COLUMNS:
            return ""
        return to_text(self.default)


def option(
    default: Any,
    doc: str,
    kind: Kind | None = None,
    hudi: str = "",
    *,
    scope: Scope = "session",
    fixed: bool = False,
) -> Any:
    """Return a dataclass field that declares an option.

    kind: Defaults to the kind of a bool or text ``default``.
    hudi: Other names, separated by spaces.
    """
    declared = {
        "doc": doc,
        "kind": kind or _KINDS[type(default)],
        "hudi": tuple(hudi.split()),
        "scope": scope,
        "fixed": fixed,
    }
    return field(default=default, metadata=declared)


class OptionTable:
    """The options that a dataclass declares, by name.

    With a prefix, an option's name is the prefix and the field with dots: ``mdt.page.bytes``.
    """

    def __init__(self, owner: type, prefix: str = "") -> None:
        self.options: dict[str, Option] = {}
        self._named: dict[str, Option] = {}
        for member in fields(owner):
            name = member.name
            if prefix:
                name = prefix + name.replace("_", ".")
            declared = Option(member.name, name, member.default, **member.metadata)
            self.options[member.name] = declared
            self._named |= dict.fromkeys(declared.names, declared)

    def __contains__(self, name: object) -> bool:
        return name in self._named

    def __iter__(self) -> Iterator[str]:
        """Yield all names, including Hudi's."""
        return iter(self._named)

    def find(self, name: str, others: Iterable[str] = ()) -> Option:
        """Return the option called ``name``. Raises Invalid, with the nearest names of this table
        and of ``others``, for an unknown name.
        """
        if name not in self._named:
            hint = (
                suggestion(str(name), [*self, *others])
                or "mdt.option_lists.options_table() lists them all"
            )
            raise Invalid(f"unknown option {name!r}", hint=hint)
        return self._named[name]

    def read(
        self,
        raw: Mapping[str, object],
        parse: Callable[[Option, object, str], Any] = Option.parse,
    ) -> dict[str, Any]:
        """Return the parsed values of the options in ``raw`` by field.

        Raises Invalid for an unknown name, an invalid value, and an option given twice with
        different values.
        """
        values: dict[str, Any] = {}
        names: dict[str, str] = {}
        for name, value in raw.items():
            declared = self.find(name)
            parsed = parse(declared, value, name)
            if values.setdefault(declared.member, parsed) != parsed:
                raise Invalid(
                    f"{names[declared.member]} and {name} are the same option, with different"
                    " values",
                    hint="leave one of them out",
                )
            names[declared.member] = name
        return values


def suggestion(name: str, options: Iterable[str]) -> str:
    """Return a hint for an unknown option, or "".

    It names the option here that does what an option of Delta Lake or Iceberg does, else the most
    similar names.

    >>> suggestion("versionAsOf", ["as_of", "since"]), suggestion("sinze", ["as_of", "since"])
    ('did you mean as_of?', 'did you mean since?')
    """
    names = list(options)
    equivalent = _NAMES_IN_OTHER_SYSTEMS.get(name.casefold(), "")
    if equivalent in names:
        return f"did you mean {equivalent}?"
    if equivalent == "as_of":
        return "did you mean the argument as_of? mdt.open(path, as_of=…)"
    if equivalent:
        return "t.changes(since, until) returns the changes of a range"
    return nearest(name, names)


def to_text(value: object) -> str:
    """Return an option's value as text that its :class:`Kind` can parse."""
    if value is None:
        return ALL_COLUMNS
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return listing(value)
    return str(value)
