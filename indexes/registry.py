"""Lookup of index classes by persisted name, and the syntax of index specifications.

Names are looked up, never imported from table metadata. Classes come from three places: the modules
of this package, the decorator :func:`register`, and the entry points of installed packages in the
group ``mdt.indexes``::

    [project.entry-points."mdt.indexes"]
    length = "example_index:LengthIndex"

Skipping indexes and key indexes have separate namespaces. For example, ``bloom(status)`` is a
skipping index, and ``key_index="bloom"`` a key index. Use :func:`find` for the former and
:func:`find_key_index` for the latter.

Installed packages are loaded once, on the first lookup of a name that is not built in. If a package
fails to load, or uses a name that is taken, only its own indexes are unavailable. The result of
:func:`find` then contains the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from inspect import isabstract, signature
from threading import RLock
from types import MappingProxyType
from typing import TypeVar

from indexes.base import KeyIndex, SkippingIndex

IndexClass = type[SkippingIndex] | type[KeyIndex]
_Index = TypeVar("_Index")
_Class = TypeVar("_Class", bound=type[SkippingIndex] | type[KeyIndex])
_Kind = TypeVar("_Kind", type[SkippingIndex], type[KeyIndex])

ENTRY_POINT_GROUP = "mdt.indexes"
"""Entry point group of installed packages with index classes."""

_BUILT_IN_MODULES = (
    "indexes.column_stats",
    "indexes.bitmap",
    "indexes.column_bloom",
    "indexes.table_stats",
    "indexes.text",
    "indexes.keys.bloom",
    "indexes.keys.bucket",
    "indexes.keys.external",
    "indexes.keys.record",
    "indexes.keys.simple",
)
_NAME = re.compile(r"[a-z][a-z0-9_]*/[1-9][0-9]{0,5}")


@dataclass(frozen=True, slots=True)
class Unknown:
    """Result of a failed lookup. ``reason`` is a sentence for the user.

    Files with such an index are treated as not indexed.

    >>> find("no_such_index").name
    'no_such_index'
    """

    name: str
    reason: str


class Registry:
    """Registry of index classes by name. Thread-safe.

    The functions of this module use a process-wide registry.

    >>> Registry().find("bitmap").name
    'bitmap/1'
    """

    def __init__(self, modules: tuple[str, ...] = _BUILT_IN_MODULES) -> None:
        """Register the index classes of ``modules``, a constant of the program."""
        self._modules = modules
        self._skipping: dict[str, type[SkippingIndex]] = {}
        self._keys: dict[str, type[KeyIndex]] = {}
        self._packages: dict[IndexClass, str] = {}
        self._failures: list[str] = []
        self._pending: list[Callable[[], None]] = [self._load_modules, self._load_entry_points]
        self._lock = RLock()

    def register(self, index: _Class) -> _Class:
        """Register ``index`` under its ``name``. Registering a class again has no effect.

        Raises ValueError for a name unlike ``"bitmap/1"``, an abstract class, a class with both
        ``row_groups`` and ``finds_rows``, or a name of another class of the same contract.

        >>> from indexes.bitmap import BitmapIndex
        >>> Registry(modules=()).register(BitmapIndex).name
        'bitmap/1'
        """
        if not (
            isinstance(index, type) and issubclass(index, SkippingIndex | KeyIndex)
        ) or isabstract(index):
            raise ValueError(
                f"{index!r} is not a complete SkippingIndex or KeyIndex; implement its abstract"
                " methods"
            )
        name = getattr(index, "name", None)
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(f"{_origin(index)}: name {name!r} is not of the form 'bitmap/1'")
        if issubclass(index, SkippingIndex) and index.row_groups and index.finds_rows:
            raise ValueError(
                f"{_origin(index)}: row_groups cannot be combined with finds_rows, which is finer"
            )
        with self._lock:
            owner: IndexClass
            if issubclass(index, SkippingIndex):
                owner = self._skipping.setdefault(name, index)
            else:
                owner = self._keys.setdefault(name, index)
        if owner is not index:
            raise ValueError(
                f"{_origin(index)}: the name {name!r} belongs to {_origin(owner)}; choose another"
            )
        return index

    def find(self, name: str) -> type[SkippingIndex] | Unknown:
        """Return the skipping index called ``name``, or Unknown.

        A full name ("bitmap/1") selects a version. A short name ("bitmap") selects the newest
        version. Never raises, and never imports ``name``.

        >>> Registry().find("bitmap").__name__, Registry().find("bitmap/1").__name__
        ('BitmapIndex', 'BitmapIndex')
        >>> isinstance(Registry().find("os.system"), Unknown)  # looked up, never imported
        True
        """
        return self._find(self._skipping, name, "skipping index")

    def find_key_index(self, name: str) -> type[KeyIndex] | Unknown:
        """Return the key index called ``name``, or Unknown. Names are as in :meth:`find`.

        >>> Registry().find_key_index("bloom").name
        'bloom/1'
        """
        return self._find(self._keys, name, "key index")

    def package(self, index: IndexClass) -> str:
        """Return the installed package that provides ``index``, or its top-level module.

        Returns "" for built-in indexes.

        >>> from indexes.bitmap import BitmapIndex
        >>> Registry().package(BitmapIndex)
        ''
        """
        module = index.__module__.partition(".")[0]
        if module == __name__.partition(".")[0]:
            module = ""
        return self._packages.get(index, module)

    def names(self) -> list[str]:
        """Return the sorted names of all skipping indexes. Loads all modules and packages.

        >>> "bitmap/1" in Registry().names(), "record/1" in Registry().names()
        (True, False)
        """
        return self._names(self._skipping)

    def key_index_names(self) -> list[str]:
        """Return the sorted names of all key indexes. Loads all modules and packages.

        >>> "record/1" in Registry().key_index_names()
        True
        """
        return self._names(self._keys)

    def _find(self, classes: dict[str, _Kind], name: str, contract: str) -> _Kind | Unknown:
        exact = classes.get(name)
        if exact is not None:
            # Skip the lock: a forked process may have inherited it locked.
            return exact
        with self._lock:
            while (index := _newest(classes, name)) is None and self._pending:
                self._pending.pop(0)()
            if index is not None:
                return index
            names = ", ".join(sorted(classes)) or "none"
            failures = "".join(f"; {failure}" for failure in self._failures)
            return Unknown(name, f"unknown {contract} {name!r}; known: {names}{failures}")

    def _names(self, classes: dict[str, _Kind]) -> list[str]:
        with self._lock:
            while self._pending:
                self._pending.pop(0)()
            return sorted(classes)

    def _load_modules(self) -> None:
        for module in self._modules:
            try:
                for value in list(vars(import_module(module)).values()):
                    if isinstance(value, type) and value.__module__ == module and _is_index(value):
                        self.register(value)
            except (ImportError, ValueError) as error:
                self._failures.append(f"module {module} could not be loaded: {error}")

    def _load_entry_points(self) -> None:
        """Load the indexes of installed packages. Any error in their code is recorded,
        not raised.
        """
        # A lazy import: it takes longer than the rest of this package and is rarely needed.
        for point in import_module("importlib.metadata").entry_points(group=ENTRY_POINT_GROUP):
            try:
                index = self.register(point.load())
                self._packages[index] = point.dist.name if point.dist else ""
            except Exception as error:  # noqa: BLE001 - foreign code may fail in any way
                self._failures.append(
                    f"entry point {point.name} = {point.value} could not be loaded: {error}"
                )


def create(index: Callable[..., _Index], options: Mapping[str, str]) -> _Index:
    """Return an index of the class ``index`` with these options.

    Raises ValueError for unknown or invalid options.

    >>> from indexes.column_bloom import ColumnBloom
    >>> create(ColumnBloom, {"bits": "8"})
    Traceback (most recent call last):
        ...
    ValueError: unknown option 'bits'; options: fpp
    """
    try:
        return index(**options)
    except TypeError as error:
        names = list(signature(index).parameters)
        unknown = [name for name in options if name not in names]
        if not unknown:
            raise ValueError(str(error)) from error
        raise ValueError(
            f"unknown option {unknown[0]!r}; options: {', '.join(names) or 'none'}"
        ) from None


_SHARED = Registry()


register = _SHARED.register
"""Class decorator that registers an index class in this process."""
find = _SHARED.find
find_key_index = _SHARED.find_key_index
package = _SHARED.package
names = _SHARED.names
key_index_names = _SHARED.key_index_names


def _newest(classes: dict[str, _Kind], name: str) -> _Kind | None:
    if "/" in name:
        return classes.get(name)
    versions = [candidate for candidate in classes if candidate.partition("/")[0] == name]
    if versions:
        return classes[max(versions, key=lambda candidate: int(candidate.partition("/")[2]))]
    return None


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """A parsed index specification: ``kind`` ("bitmap"), ``columns`` and ``options``, all strings.

    >>> str(IndexSpec("text", ("note",), {"tokenizer": "word"}))
    "text(note, tokenizer='word')"
    """

    kind: str
    columns: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        """Return text that :func:`parse_spec` parses to an equal specification."""
        columns = [_column_text(column) for column in self.columns]
        options = [f"{name}={_quote(value)}" for name, value in self.options.items()]
        if not columns and not options:
            return self.kind
        return f"{self.kind}({', '.join([*columns, *options])})"


_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")|(?P<word>[^\s(),='"]+)|(?P<sign>[(),=]))"""
)
_KIND = re.compile(r"[a-z][a-z0-9_]*(?:/[1-9][0-9]{0,5})?")
_OPTION = re.compile(r"[a-z][a-z0-9_]*")
_BARE_COLUMN = re.compile(r"[^\s(),='\"]+")


@lru_cache(maxsize=1024)
def parse_spec(text: str) -> IndexSpec:
    """Parse an index specification, such as ``bitmap(status)`` or ``text(note, tokenizer='word')``.

    Columns come first, and each only once. Quote a column name that contains spaces or punctuation,
    and double quotes inside quotes. Raises ValueError with the position, counted from 0, and what
    was expected there.

    >>> parse_spec("text(note, tokenizer='word')")
    IndexSpec(kind='text', columns=('note',), options=mappingproxy({'tokenizer': 'word'}))
    >>> str(parse_spec("grid(lat , 'the lon')"))
    "grid(lat, 'the lon')"
    >>> parse_spec("f(a")
    Traceback (most recent call last):
        ...
    ValueError: index 'f(a': expected ')' at position 3; ...
    """
    tokens = _tokens(text)
    kind, at = _next_value(text, tokens, "the kind of index, like bitmap")
    if not _KIND.fullmatch(kind):
        raise _syntax_error(text, at, "the kind of index, like bitmap")
    if tokens[0][0] == "end":
        return IndexSpec(kind)
    _expect_sign(text, tokens, "(")
    columns: list[str] = []
    options: dict[str, str] = {}
    while tokens[0][:2] != ("sign", ")") or columns or options:
        value, at = _next_value(text, tokens, "a column or an option")
        if tokens[0][:2] == ("sign", "="):
            tokens.pop(0)
            if not _OPTION.fullmatch(value) or value in options:
                raise _syntax_error(text, at, "the name of another option")
            options[value], _ = _next_value(text, tokens, f"the value of {value}")
        elif options or not value or value in columns:
            expected = "another column"
            if options:
                expected = "name=value"
            raise _syntax_error(text, at, expected)
        else:
            columns.append(value)
        if tokens[0][:2] != ("sign", ","):
            break
        tokens.pop(0)
    _expect_sign(text, tokens, ")")
    if tokens[0][0] != "end":
        raise _syntax_error(text, tokens[0][2], "the end")
    return IndexSpec(kind, tuple(columns), MappingProxyType(options))


def _tokens(text: str) -> list[tuple[str, str, int]]:
    """Kind, value and position of each token. The last token is the end."""
    tokens, at = [], 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _syntax_error(text, at, "a closing quote")
        kind = str(match.lastgroup)
        value, at = match.group(kind), match.end()
        tokens.append((kind, _unquote(value) if kind == "text" else value, match.start(kind)))
    return [*tokens, ("end", "", len(text))]


def _next_value(text: str, tokens: list[tuple[str, str, int]], expected: str) -> tuple[str, int]:
    kind, value, at = tokens[0]
    if kind not in ("word", "text"):
        raise _syntax_error(text, at, expected)
    tokens.pop(0)
    return value, at


def _expect_sign(text: str, tokens: list[tuple[str, str, int]], sign: str) -> None:
    kind, value, at = tokens[0]
    if (kind, value) != ("sign", sign):
        raise _syntax_error(text, at, f"'{sign}'")
    tokens.pop(0)


def _syntax_error(text: str, at: int, expected: str) -> ValueError:
    return ValueError(
        f'index {text!r}: expected {expected} at position {at}; write for example "text(note,'
        " tokenizer='word')\""
    )


def _column_text(column: str) -> str:
    """Return a column name in the syntax of specifications."""
    if _BARE_COLUMN.fullmatch(column):
        return column
    return _quote(column)


def _quote(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _unquote(quoted: str) -> str:
    return quoted[1:-1].replace(quoted[0] * 2, quoted[0])


def _is_index(value: type) -> bool:
    return issubclass(value, SkippingIndex | KeyIndex) and not isabstract(value)


def _origin(index: object) -> str:
    return f"{getattr(index, '__module__', '?')}.{getattr(index, '__qualname__', index)}"
