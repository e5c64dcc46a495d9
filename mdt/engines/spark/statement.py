"""A statement of SQL that changes rows, as ``java/sql/Statement.java`` has it."""

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
"""Which rows a clause is about: those that are in the table, and those that are not."""
NUMBERS = ("__mdt_m", "__mdt_n")
"""Columns of edits, by side, that say which clause is meant."""
FAILURES = (PySparkException, Py4JJavaError)
"""What Spark raises when it cannot evaluate an expression."""
_REFUSALS = {
    "java.lang.UnsupportedOperationException": Unsupported,
    "java.lang.IllegalArgumentException": Invalid,
}


@dataclass(frozen=True, slots=True)
class EditClause:
    """What becomes of rows with the ``number``.  ``action``: update, delete or insert; ``values``:
    column -> column of the edits.
    """

    side: int
    action: str
    number: int
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Plain:
    """A statement that needs no query: for which rows, and what they get."""

    where: Predicate
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Statement:
    """``kind``: DELETE, UPDATE or MERGE."""

    kind: str
    _java: Any = field(repr=False)

    def plain(self, columns: Collection[str]) -> Plain | None:
        """Return what it says, if tests of ``columns`` and constants say it exactly, as far as it
        can be told without the table.
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
        """Return the columns by which edits can name rows without reading the table: the key at
        least.  None if they cannot.
        """
        text = self._java.byKey(list(key), list(partition))
        found: list[str] | None = None if text is None else json.loads(text)
        return found

    def clauses(self, on: Sequence[str], fixed: Sequence[str], by_key: bool) -> list[EditClause]:
        """Return the clauses of the edits.  ``on``: columns that name a row, ``fixed``: those that
        cannot be set.

        Raises Invalid and Unsupported for what cannot be carried out.
        """
        try:
            self._java.prepare(list(on), list(fixed), by_key)
        except Py4JJavaError as error:
            raise _refusal(error) from error
        return [EditClause(*clause) for clause in json.loads(self._java.clauses())]

    def edits(self, seq: int) -> DataFrame:
        """Return a frame with a row for each row that changes, as the state ``seq`` has it; after
        :meth:`clauses`.
        """
        return private.frame_of_java(self._java.rows(seq))


def _refusal(error: Py4JJavaError) -> Exception:
    """Return what Java refuses as an error of mdt."""
    java = error.java_exception
    kind: type[MdtError] | None = _REFUSALS.get(java.getClass().getName())
    text = str(java.getMessage())
    if kind is None or not text.startswith(f"{kind.__name__}: "):
        return error
    return kind(text.removeprefix(f"{kind.__name__}: "))
