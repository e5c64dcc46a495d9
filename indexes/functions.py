"""User-defined predicate functions that filters can call, such as ``within_km(lat, lon, 59.9, 10.7,
5)``.

A function takes whole columns, then literals, and returns a mask of the matching rows::

    @functions.register(columns=2, arguments=(float, float, float))
    def within_km(lat, lon, at_lat, at_lon, km):
        ...numpy or pyarrow.compute over whole columns...
        return mask                                             # bool[n]

The result for a row must depend on that row alone, not on other rows of the batch. A row matches
neither the function nor its negation, as in SQL, if one of its columns is null or the function
returns null.

Names are looked up, never imported from data. Filters can call the functions that this process
registered with :func:`register`, and those of installed packages with an entry point in the group
``mdt.functions``::

    [project.entry-points."mdt.functions"]
    within_km = "mdt_geo:within_km"

An index may support a function (``SkippingIndex.functions``). Without such an index, the function
is evaluated on every row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from importlib import import_module
from threading import RLock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ENTRY_POINT_GROUP = "mdt.functions"
"""Entry point group of installed packages with predicate functions."""

ARGUMENT_TYPES = (bool, int, float, str, bytes, Decimal, date, datetime)
"""Allowed types of arguments. Literals of filters are convert_arguments to them or rejected."""

_OF_EMPTY_LISTS = (pa.null(), pa.float64())
"""Types that Arrow and numpy give an empty list. A function may compute its answer as a list."""
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_WORDS = """
match contains startswith endswith like in between is not and or cast try_cast
tinyint byte smallint short int integer bigint long float real double decimal dec numeric
boolean string binary date timestamp timestamp_ltz timestamp_ntz
"""
_RESERVED = frozenset(_WORDS.split())
"""Reserved words of the filter language."""


class FunctionFailed(ValueError):
    """A predicate function raised an error or did not return a boolean for each row."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Result of a failed lookup. ``reason`` is a sentence for the user."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Function:
    """A predicate function.

    Attributes:
        name: Name in filters.
        columns: Number of columns it takes.
        arguments: Types of the literals after the columns (:data:`ARGUMENT_TYPES`).
        run: Maps the columns (Arrays [n]) and arguments to bool[n], an Arrow or numpy array.

    >>> above = Function("above", 2, (float,), lambda x, y, limit: pc.greater(pc.add(x, y), limit))
    >>> above.usage
    'above(column1, column2, float)'
    >>> above.evaluate([pa.array([1.0, 2.0, None]), pa.array([3.0, 9.0, 9.0])], (5.0,)).to_pylist()
    [False, True, None]
    """

    name: str
    columns: int
    arguments: tuple[type, ...]
    run: Callable[..., Any]

    def __call__(self, *args: Any) -> Any:
        """Call the original Python function."""
        return self.run(*args)

    @property
    def usage(self) -> str:
        """Syntax in a filter, for messages."""
        columns = [f"column{n + 1}" for n in range(self.columns)]
        return f"{self.name}({', '.join([*columns, *(kind.__name__ for kind in self.arguments)])})"

    def convert_arguments(self, literals: Sequence[object]) -> tuple[object, ...]:
        """Convert ``literals`` to the argument types. Raises ValueError for the wrong number or
        type.
        """
        if len(literals) != len(self.arguments):
            raise ValueError(
                f"it takes {len(self.arguments)} values after its columns, got"
                f" {len(literals)}; usage: {self.usage}"
            )
        return tuple(
            _convert(value, kind) for value, kind in zip(literals, self.arguments, strict=True)
        )

    def evaluate(self, columns: Sequence[pa.Array], arguments: Sequence[object]) -> pa.BooleanArray:
        """Evaluate the function on n rows -> bool[n], null where a column is null.

        Raises FunctionFailed if the function raises an error or returns anything but bool[n].
        """
        rows = len(columns[0])
        try:
            answer = self.run(*columns, *arguments)
            if isinstance(answer, pa.ChunkedArray):
                answer = answer.combine_chunks()
            answer = pa.array(answer) if isinstance(answer, np.ndarray) else answer
        except Exception as error:
            types = ", ".join(str(column.type) for column in columns)
            raise FunctionFailed(
                f"{self.name} failed on columns of {types}: {type(error).__name__}: {error}"
            ) from error
        if not rows and isinstance(answer, pa.Array) and answer.type in _OF_EMPTY_LISTS:
            answer = pa.array([], pa.bool_())
        if not isinstance(answer, pa.BooleanArray) or len(answer) != rows:
            returned = (
                f"{answer.type}[{len(answer)}]"
                if isinstance(answer, pa.Array)
                else type(answer).__name__
            )
            raise FunctionFailed(
                f"{self.name} returned {returned} for {rows} rows; it must return bool[{rows}]"
            )
        for column in columns:
            if column.null_count:
                answer = pc.if_else(pc.is_valid(column), answer, pa.scalar(None, pa.bool_()))
        return answer

    def check(self, types: Sequence[pa.DataType], arguments: Sequence[object]) -> None:
        """Raise ValueError if the function does not accept columns of ``types`` and these
        ``arguments``.

        The function is called with zero rows.
        """
        if len(types) != self.columns:
            raise ValueError(
                f"it takes {self.columns} columns, got {len(types)}; usage: {self.usage}"
            )
        if None not in arguments:
            self.evaluate([pa.array([], type) for type in types], self.convert_arguments(arguments))


class Functions:
    """Registry of predicate functions by name. Thread-safe.

    The functions of this module use a process-wide registry.
    """

    def __init__(self) -> None:
        self._by_name: dict[str, Function] = {}
        self._failures: list[str] = []
        self._are_packages_loaded = False
        self._lock = RLock()

    def add(self, function: Function) -> Function:
        """Register ``function``.

        It replaces a function of the same name and origin, so a notebook cell can run again. Raises
        ValueError for an invalid or reserved name, a name of another function, zero columns, or
        argument types outside of :data:`ARGUMENT_TYPES`.
        """
        if not _NAME.fullmatch(function.name) or function.name in _RESERVED:
            raise ValueError(
                f"{function.name!r} is not a valid function name; use lowercase letters, digits and"
                " underscores, as in within_km, and no reserved word"
            )
        if function.columns < 1 or not set(function.arguments) <= set(ARGUMENT_TYPES):
            allowed = ", ".join(kind.__name__ for kind in ARGUMENT_TYPES)
            raise ValueError(
                f"{function.name} must take at least one column, and arguments of types {allowed}"
            )
        with self._lock:
            registered = self._by_name.setdefault(function.name, function)
            if _origin(registered) != _origin(function):
                raise ValueError(
                    f"the name {function.name!r} belongs to {_origin(registered)}; choose another"
                )
            self._by_name[function.name] = function
        return function

    def find(self, name: str) -> Function | Unknown:
        """Return the function called ``name``, ignoring case, or Unknown with the reason. Never
        raises.
        """
        name = name.lower()
        with self._lock:
            if name not in self._by_name and not self._are_packages_loaded:
                self._are_packages_loaded = True
                self._load_entry_points()
            if name in self._by_name:
                return self._by_name[name]
            registered = (
                f"; registered: {', '.join(sorted(self._by_name))}" if self._by_name else ""
            )
            failures = "".join(f"; {failure}" for failure in self._failures)
            return Unknown(name, f"unknown function {name!r}{registered}{failures}")

    def _load_entry_points(self) -> None:
        """Load the functions of installed packages. Any error in their code is recorded, not
        raised.
        """
        for point in import_module("importlib.metadata").entry_points(group=ENTRY_POINT_GROUP):
            try:
                self.add(point.load())
            except Exception as error:  # noqa: BLE001 - foreign code may fail in any way
                self._failures.append(
                    f"entry point {point.name} = {point.value} could not be loaded: {error}"
                )


_SHARED = Functions()


def register(
    *, columns: int, arguments: tuple[type, ...] = (), name: str | None = None
) -> Callable[[Callable[..., Any]], Function]:
    """Return a decorator that registers a predicate function in this process.

    The function is registered under ``name``, or its own name. See :class:`Function`.
    """

    def offer(run: Callable[..., Any]) -> Function:
        own_name: str = getattr(run, "__name__", "")
        return _SHARED.add(Function(name or own_name, columns, tuple(arguments), run))

    return offer


find = _SHARED.find


def _origin(function: Function) -> str:
    module = getattr(function.run, "__module__", "?")
    return f"{module}.{getattr(function.run, '__qualname__', function.name)}"


def _convert(value: object, kind: type) -> object:
    """Convert a literal to ``kind``. None stays None: SQL's null, which matches no row."""
    if value is None or type(value) is kind:
        return value
    is_number = isinstance(
        value, (int, float, Decimal, np.integer, np.floating)
    ) and not isinstance(value, bool)
    if kind is float and is_number:
        return float(value)  # type: ignore[arg-type]  # is_number
    if kind is int and isinstance(value, np.integer):
        return int(value)
    if kind is Decimal and isinstance(value, int) and is_number:
        return Decimal(value)
    if kind is datetime and isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    if kind in (date, datetime) and isinstance(value, str):
        return kind.fromisoformat(value)
    raise ValueError(f"{value!r} is not of type {kind.__name__}")
