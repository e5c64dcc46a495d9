"""What Spark's optimizer asks of a table while it plans a query, and the answers as JSON
(``java/plan/FileSource.java`` asks).

* ``estimate``, names of columns: ``rows``, ``bytes`` and ``files`` that are left after pruning, and
  of each of ``columns`` ``distinct``, ``low``, ``high``, ``nulls``, ``bytes`` and, if
  ``histograms``, ``bins`` (bounds, distinct values) and the ``height`` of each in rows; and which
  of ``keys``, names of columns, are ``spread``: their values leave out no file.
* ``totals``, names of columns: ``rows`` that match, and ``nulls``, ``least``, ``most`` by column;
  null if a file must be read to know.
* ``top``, a number of rows, in the order of the column ``by``, ``descending``, ``nulls_first``: the
  value that so many rows which match are not behind.

Values: whole numbers, days and microseconds as numbers, decimal and floating-point numbers as text,
texts and bytes in hexadecimal.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from indexes import values
from indexes.predicate import Predicate
from mdt.engines.spark.catalyst import column_of, predicate_of
from mdt.filters.order import SortKey
from mdt.plan.estimates import ColumnEstimate, TableEstimate
from mdt.plan.proofs import Totals


class Optimizing(Protocol):
    """A lister (:class:`mdt.engines.spark.file_index.Lister`) whose frame ``does`` some of
    OPTIMIZES has these, too.

    ``query``: names the running query, which all answers must be of the same version for; keys that
    start with ``call:`` come but once.
    """

    def type_of(self, column: str) -> pa.DataType:
        """Return the type of a column, or of a field by its path."""

    def estimate(
        self,
        query: str,
        predicate: Predicate,
        columns: Sequence[str],
        *,
        histograms: bool,
        keys: Sequence[str],
    ) -> TableEstimate:
        """Return what is left of the table after pruning by ``predicate``; ``keys``: columns by
        which it is joined.
        """

    def totals(self, query: str, predicate: Predicate, columns: Sequence[str]) -> Totals | None:
        """Return sums over the rows for which ``predicate`` is true, None if a file must be read to
        know.
        """

    def threshold(self, query: str, predicate: Predicate, key: SortKey, count: int) -> bytes | None:
        """Return a key that ``count`` rows for which ``predicate`` is true are not behind, None if
        none is known.
        """


def is_question(asked: Mapping[str, Any]) -> bool:
    """Return whether the JVM asks what is answered here."""
    return not _ANSWERS.keys().isdisjoint(asked)


def answer(lister: Any, asked: Mapping[str, Any], columns: Collection[str]) -> Any:
    """Return the answer to one question of the JVM; ``columns``: the top-level columns whose values
    in files are those that Spark sees.
    """
    (question,) = _ANSWERS.keys() & asked.keys()
    predicate = predicate_of(asked["filters"], columns)
    return _ANSWERS[question](lister, asked, predicate, columns)


def _estimate(
    lister: Optimizing, asked: Mapping[str, Any], predicate: Predicate, columns: Collection[str]
) -> Any:
    names, keys = (
        [name for name in asked[which] if name in columns] for which in ("estimate", "keys")
    )
    found = lister.estimate(
        asked["query"], predicate, names, histograms=asked["histograms"], keys=keys
    )
    told = {name: _of_column(one) for name, one in found.columns.items()}
    return {
        "rows": found.rows,
        "bytes": found.bytes,
        "files": found.files,
        "columns": told,
        "spread": found.spread,
    }


def _of_column(one: ColumnEstimate) -> dict[str, Any]:
    told = {
        "distinct": one.distinct,
        "low": one.low,
        "high": one.high,
        "nulls": one.nulls,
        "bytes": one.bytes_mean,
    }
    if one.edges is None:
        return told
    return {**told, "bins": one.bins, "height": one.height}


def _totals(
    lister: Optimizing, asked: Mapping[str, Any], predicate: Predicate, columns: Collection[str]
) -> Any:
    names = [name for name in asked["totals"] if name in columns]
    found = lister.totals(asked["query"], predicate, names)
    if found is None:
        return None
    return {"rows": found.rows, "nulls": found.nulls, **_sides(lister, found)}


def _sides(lister: Optimizing, found: Totals) -> dict[str, dict[str, Any]]:
    sides = {"least": found.least, "most": found.most}
    return {
        side: {name: _value(key, lister.type_of(name)) for name, key in keys.items()}
        for side, keys in sides.items()
    }


def _top(
    lister: Optimizing, asked: Mapping[str, Any], predicate: Predicate, columns: Collection[str]
) -> Any:
    column = column_of(asked["by"][0], columns)
    if column is None:
        return None
    type = lister.type_of(column)
    key = SortKey(column, asked["descending"], asked["nulls_first"], type)
    found = lister.threshold(asked["query"], predicate, key, asked["top"])
    if found is None:
        return None
    return _bound(found, type, is_low=asked["descending"])


_ENDLESS = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}
"""Floating-point numbers that Java calls otherwise."""

_ANSWERS: Mapping[str, Callable[[Any, Mapping[str, Any], Predicate, Collection[str]], Any]] = {
    "estimate": _estimate,
    "totals": _totals,
    "top": _top,
}


def _bound(key: bytes, type: pa.DataType, *, is_low: bool) -> Any:
    """Return a bound, which may have been cut, as JSON; None where it cannot be told so that it
    stays one.
    """
    kind = values.kind_of(type)
    if kind == "string":
        try:
            key.decode()
        except UnicodeDecodeError:  # half a character at the end: without it the bound is lower
            if is_low:
                return key.decode(errors="ignore").encode().hex()
            return None
    told = _value(key, type)
    if told == "NaN":
        return None
    return told


def _value(key: bytes | None, type: pa.DataType) -> Any:
    """Return the value of a key as JSON; None for None."""
    kind = values.kind_of(type)
    if key is None or kind == "bool":
        if key is None:
            return None
        return key != b"\0"
    if kind in ("string", "binary"):
        return key.hex()
    if kind in ("int", "date", "timestamp"):
        return int.from_bytes(key, "big") - (1 << 63)
    text = str(values.decode(key, type))
    if kind == "float":
        return _ENDLESS.get(text, text)
    return text
