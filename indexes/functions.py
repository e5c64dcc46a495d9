"""Predicate functions of one's own: ``within_km(lat, lon, 59.9, 10.7, 5)`` as a test of rows that
filters can name.

A function takes columns, then literals, and says of each row whether it matches::

    @functions.register(columns=2, arguments=(float, float, float))
    def within_km(lat, lon, at_lat, at_lon, km):
        ...numpy or pyarrow.compute over whole columns...
        return mask                                             # bool[n]

It is a pure function of its row: whatever else stands in the same batch, the answer is the same.  A
row that is null in one of the columns, or that the function answers by null, matches neither the
function nor its negation, as in SQL.

A name is looked up, never imported: filters choose among functions that this process offers, by
:func:`register` or by an entry point of an installed package in the group ``mdt.functions``::

    [project.entry-points."mdt.functions"]
    within_km = "mdt_geo:within_km"

What an index proves about a function is the index's own business (``SkippingIndex.functions``);
without one every row is asked.
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
"""Where installed packages announce their functions."""

ARGUMENT_TYPES = (bool, int, float, str, bytes, Decimal, date, datetime)
"""What an argument may be; a filter's literal becomes one of it, or is refused."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_WORDS = """
match contains startswith endswith like in between is not and or cast try_cast
tinyint byte smallint short int integer bigint long float real double decimal dec numeric
boolean string binary date timestamp timestamp_ltz timestamp_ntz
"""
_TAKEN = frozenset(_WORDS.split())
"""Words that filters have already."""


class FunctionFailed(ValueError):
    """A predicate function raised, or returned something else than a boolean for each row."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """No function has this ``name``; ``reason`` is a sentence for people."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Function:
    """One predicate function.

    ``columns``: how many it takes; ``arguments``: the types of the literals after them
    (:data:`ARGUMENT_TYPES`); ``run``: from columns (Arrays [n]) and arguments to bool[n], as an
    Arrow or numpy array.

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

    def __call__(self, *given: Any) -> Any:
        """Call the function as it was written."""
        return self.run(*given)

    @property
    def usage(self) -> str:
        """How it is written in a filter, for messages."""
        places = [f"column{n + 1}" for n in range(self.columns)]
        return f"{self.name}({', '.join([*places, *(kind.__name__ for kind in self.arguments)])})"

    def converted(self, literals: Sequence[object]) -> tuple[object, ...]:
        """Return ``literals`` as its arguments.  Raises ValueError for another number, or one of
        another type.
        """
        if len(literals) != len(self.arguments):
            raise ValueError(
                f"it takes {len(self.arguments)} values after its columns, not {len(literals)}:"
                f" {self.usage}"
            )
        return tuple(
            _converted(value, kind) for value, kind in zip(literals, self.arguments, strict=True)
        )

    def evaluate(self, columns: Sequence[pa.Array], arguments: Sequence[object]) -> pa.BooleanArray:
        """Return for n rows whether they match, null where a column is null -> bool[n].

        Raises FunctionFailed, naming the function, if it raises or returns anything else.
        """
        rows = len(columns[0])
        try:
            found = self.run(*columns, *arguments)
            if isinstance(found, pa.ChunkedArray):
                found = found.combine_chunks()
            found = pa.array(found) if isinstance(found, np.ndarray) else found
        except Exception as error:
            types = ", ".join(str(column.type) for column in columns)
            raise FunctionFailed(
                f"{self.name} failed on columns of {types}: {type(error).__name__}: {error}"
            ) from error
        if not rows:
            return pa.array([], pa.bool_())  # of an empty list numpy makes floats
        if not isinstance(found, pa.BooleanArray) or len(found) != rows:
            what = (
                f"{found.type}[{len(found)}]"
                if isinstance(found, pa.Array)
                else type(found).__name__
            )
            raise FunctionFailed(
                f"{self.name} returned {what} for {rows} rows; it must return bool[{rows}]"
            )
        for column in columns:
            if column.null_count:
                found = pc.if_else(pc.is_valid(column), found, pa.scalar(None, pa.bool_()))
        return found

    def check(self, types: Sequence[pa.DataType], arguments: Sequence[object]) -> None:
        """Raise ValueError if it takes other columns than of ``types``, or not these ``arguments``:
        it is tried on no rows.
        """
        if len(types) != self.columns:
            raise ValueError(f"it takes {self.columns} columns, not {len(types)}: {self.usage}")
        if None not in arguments:
            self.evaluate([pa.array([], type) for type in types], self.converted(arguments))


class Functions:
    """Names and their functions; the module's functions work on one that is shared by the process.
    Thread-safe.
    """

    def __init__(self) -> None:
        self._known: dict[str, Function] = {}
        self._failures: list[str] = []
        self._are_packages_loaded = False
        self._lock = RLock()

    def add(self, function: Function) -> Function:
        """Offer ``function``; one of the same module and name replaces it, so that a notebook may
        define it again.

        Raises ValueError for a name that filters cannot have or that another function has, no
        column, or other types of arguments than :data:`ARGUMENT_TYPES`.
        """
        if not _NAME.fullmatch(function.name) or function.name in _TAKEN:
            raise ValueError(
                f"{function.name!r} cannot be the name of a predicate function; write it like"
                " within_km"
            )
        if function.columns < 1 or not set(function.arguments) <= set(ARGUMENT_TYPES):
            known = ", ".join(kind.__name__ for kind in ARGUMENT_TYPES)
            raise ValueError(
                f"{function.name} must take at least one column, and arguments of {known}"
            )
        with self._lock:
            taken = self._known.setdefault(function.name, function)
            if _origin(taken) != _origin(function):
                raise ValueError(
                    f"the name {function.name!r} belongs to {_origin(taken)}; choose another"
                )
            self._known[function.name] = function
        return function

    def find(self, name: str) -> Function | Unknown:
        """Return the function called ``name``, in any case, or why there is none.  Never raises."""
        name = name.lower()
        with self._lock:
            if name not in self._known and not self._are_packages_loaded:
                self._are_packages_loaded = True
                self._load_entry_points()
            if name in self._known:
                return self._known[name]
            known = ", ".join(sorted(self._known)) or "none"
            failures = "".join(f"; {failure}" for failure in self._failures)
            return Unknown(name, f"no function is called {name!r}; known are {known}{failures}")

    def _load_entry_points(self) -> None:
        """Load what installed packages announce; their code may fail in any way, which must not
        reach the query.
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
    """Offer the decorated function to filters of this process, under its own name or ``name``; see
    :class:`Function`.
    """

    def offer(run: Callable[..., Any]) -> Function:
        return _SHARED.add(Function(name or run.__name__, columns, tuple(arguments), run))

    return offer


find = _SHARED.find


def _origin(function: Function) -> str:
    module = getattr(function.run, "__module__", "?")
    return f"{module}.{getattr(function.run, '__qualname__', function.name)}"


def _converted(value: object, kind: type) -> object:
    """Return a literal as an argument of type ``kind``; None stays: SQL's null, for which no row
    matches.
    """
    if value is None or type(value) is kind:
        return value
    is_number = isinstance(
        value, (int, float, Decimal, np.integer, np.floating)
    ) and not isinstance(value, bool)
    if kind is float and is_number:
        return float(value)  # type: ignore[arg-type]  # a number, as was just asked
    if kind is int and isinstance(value, np.integer):
        return int(value)
    if kind is Decimal and isinstance(value, int) and is_number:
        return Decimal(value)
    if kind is datetime and isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    if kind in (date, datetime) and isinstance(value, str):
        return kind.fromisoformat(value)
    raise ValueError(f"{value!r} is no {kind.__name__}")
