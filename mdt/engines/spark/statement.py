"""SQL statements that change rows, and written rows: ``Statement.java``, ``WrittenRows.java``."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from indexes.predicate import Predicate
from mdt.engines.spark import private
from mdt.engines.spark.catalyst import constant_of, predicate_of
from mdt.errors import Invalid, MdtError, Unsupported

PRESENT, NEW = 0, 1
"""Sides of a clause: rows that are in the table, or new rows."""
NUMBERS = ("__mdt_m", "__mdt_n")
"""Columns of the edits, by side, with the number of the clause."""
FAILURES = (PySparkException, Py4JJavaError)
"""Errors that Spark raises if it cannot evaluate an expression."""
_REFUSALS = {
    "java.lang.UnsupportedOperationException": Unsupported,
    "java.lang.IllegalArgumentException": Invalid,
}


@dataclass(frozen=True, slots=True)
class EditClause:
    """The action for edit rows with this ``number``. ``action``: update, delete or insert.
    ``values``: column -> column of the edits.
    """

    side: int
    action: str
    number: int
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Plain:
    """A statement that needs no query: a condition, and the new values."""

    where: Predicate
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of the ``kind`` DELETE, UPDATE or MERGE."""

    kind: str
    _java: Any = field(repr=False)

    def plain(self, columns: Collection[str]) -> Plain | None:
        """Return the statement as a condition on ``columns`` and constants, or None if that is not
        possible. The table may still find the condition inexact.
        """
        text = self._java.plain()
        if text is None:
            return None
        where, names, constants = json.loads(text)
        try:
            values = dict(zip(names, map(constant_of, constants), strict=True))
        except ValueError:
            return None
        return Plain(predicate_of(where, columns), values)

    def keys(self, key: Sequence[str], partition: Sequence[str]) -> list[str] | None:
        """Return the columns that identify rows without reading the table, at least the key, or
        None if the edits lack them.
        """
        text = self._java.byKey(list(key), list(partition))
        columns: list[str] | None = None if text is None else json.loads(text)
        return columns

    def clauses(self, on: Sequence[str], fixed: Sequence[str], by_key: bool) -> list[EditClause]:
        """Return the clauses of the edits. ``on``: columns that identify a row. ``fixed``: columns
        that cannot be set.

        Raises Invalid or Unsupported for a statement that cannot be executed.
        """
        try:
            self._java.prepare(list(on), list(fixed), by_key)
        except Py4JJavaError as error:
            raise _refusal(error) from error
        return [EditClause(*clause) for clause in json.loads(self._java.clauses())]

    def edits(self, seq: int) -> DataFrame:
        """Return a frame with a row per changed row, based on the state ``seq``. Call
        :meth:`clauses` first.
        """
        return private.frame_of_java(self._java.rows(seq))


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """The rows of an INSERT or of ``df.write``."""

    _java: Any = field(repr=False)

    def read(self, root: str) -> bool:
        """Return True if their query reads the newest rows of the table at the URI ``root``."""
        return bool(self._java.read(root))

    def frame(self) -> DataFrame:
        """Return the rows."""
        return private.frame_of_java(self._java.rows())

    def at(self, root: str, seq: int) -> DataFrame:
        """Return the rows of the query if it reads the table at ``root`` at its state ``seq``."""
        return private.frame_of_java(self._java.rows(root, seq))


def _refusal(error: Py4JJavaError) -> Exception:
    """Convert a Java error with the text of an mdt error to that error."""
    java = error.java_exception
    kind: type[MdtError] | None = _REFUSALS.get(java.getClass().getName())
    text = str(java.getMessage())
    if kind is None or not text.startswith(f"{kind.__name__}: "):
        return error
    return kind(text.removeprefix(f"{kind.__name__}: "))
