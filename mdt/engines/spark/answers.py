"""Questions of Spark's optimizer about a table, and the answers as JSON (called by
``java/plan/FileSource.java``).

* ``estimate``, column names: ``rows``, ``bytes`` and ``files`` after pruning. For each of
  ``columns``: ``distinct``, ``low``, ``high``, ``nulls``, ``bytes`` and, with ``histograms``,
  ``bins`` (bounds, distinct values) and their ``height`` in rows. ``spread``: the columns of
  ``keys`` whose values exclude no file.
* ``totals``, column names: the number of matching ``rows``, and ``nulls``, ``least`` and ``most``
  by column. Null if this requires reading a file.
* ``top``, a number of rows, ordered by the column ``by``, ``descending``, ``nulls_first``: a value
  such that at least this many matching rows sort at or before it.

Values: integers, days and microseconds as numbers, decimal and floating-point numbers as text,
strings and bytes in hexadecimal.
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
    """Methods of a lister (:class:`mdt.engines.spark.file_index.Lister`) whose frame ``does`` any
    of OPTIMIZES.

    ``query``: the key of the running query. All answers for a key must use the same version. Keys
    that start with ``call:`` are used once.
    """

    def type_of(self, column: str) -> pa.DataType:
        """Return the type of a column, or of a struct field by its path."""

    def estimate(
        self,
        query: str,
        predicate: Predicate,
        columns: Sequence[str],
        *,
        histograms: bool,
        keys: Sequence[str],
    ) -> TableEstimate:
        """Return the estimate of the table after pruning by ``predicate``. ``keys``: join
        columns.
        """

    def totals(self, query: str, predicate: Predicate, columns: Sequence[str]) -> Totals | None:
        """Return aggregates over the rows that match ``predicate``, or None if this requires
        reading a file.
        """

    def threshold(self, query: str, predicate: Predicate, key: SortKey, count: int) -> bytes | None:
        """Return a key bound with at least ``count`` matching rows at or before it, or None if none
        is known.
        """


def is_question(request: Mapping[str, Any]) -> bool:
    """Return True if a request of the JVM is answered by this module."""
    return not _ANSWERS.keys().isdisjoint(request)


def answer(lister: Any, request: Mapping[str, Any], columns: Collection[str]) -> Any:
    """Return the answer to one question of the JVM. ``columns``: the top-level columns whose stored
    values equal the values in Spark.
    """
    (question,) = _ANSWERS.keys() & request.keys()
    predicate = predicate_of(request["filters"], columns)
    return _ANSWERS[question](lister, request, predicate, columns)


def _estimate(
    lister: Optimizing, request: Mapping[str, Any], predicate: Predicate, columns: Collection[str]
) -> Any:
    names, keys = (
        [name for name in request[which] if name in columns] for which in ("estimate", "keys")
    )
    estimated = lister.estimate(
        request["query"], predicate, names, histograms=request["histograms"], keys=keys
    )
    described = {name: _column_fields(column) for name, column in estimated.columns.items()}
    return {
        "rows": estimated.rows,
        "bytes": estimated.bytes,
        "files": estimated.files,
        "columns": described,
        "spread": estimated.spread,
    }


def _column_fields(estimate: ColumnEstimate) -> dict[str, Any]:
    fields = {
        "distinct": estimate.distinct,
        "low": estimate.low,
        "high": estimate.high,
        "nulls": estimate.nulls,
        "bytes": estimate.bytes_mean,
    }
    if estimate.edges is None:
        return fields
    return {**fields, "bins": estimate.bins, "height": estimate.height}


def _totals(
    lister: Optimizing, request: Mapping[str, Any], predicate: Predicate, columns: Collection[str]
) -> Any:
    names = [name for name in request["totals"] if name in columns]
    totals = lister.totals(request["query"], predicate, names)
    if totals is None:
        return None
    return {"rows": totals.rows, "nulls": totals.nulls, **_min_max(lister, totals)}


def _min_max(lister: Optimizing, totals: Totals) -> dict[str, dict[str, Any]]:
    sides = {"least": totals.least, "most": totals.most}
    return {
        side: {name: _value(key, lister.type_of(name)) for name, key in keys.items()}
        for side, keys in sides.items()
    }


def _top(
    lister: Optimizing, request: Mapping[str, Any], predicate: Predicate, columns: Collection[str]
) -> Any:
    column = column_of(request["by"][0], columns)
    if column is None:
        return None
    type = lister.type_of(column)
    key = SortKey(column, request["descending"], request["nulls_first"], type)
    bound = lister.threshold(request["query"], predicate, key, request["top"])
    if bound is None:
        return None
    return _bound(bound, type, is_low=request["descending"])


_JAVA_NAMES = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}
"""Floating-point values with other names in Java."""

_ANSWERS: Mapping[str, Callable[[Any, Mapping[str, Any], Predicate, Collection[str]], Any]] = {
    "estimate": _estimate,
    "totals": _totals,
    "top": _top,
}


def _bound(key: bytes, type: pa.DataType, *, is_low: bool) -> Any:
    """Return a bound, which may be truncated, as JSON. None if its JSON form would not be a valid
    bound.
    """
    kind = values.kind_of(type)
    if kind == "string":
        try:
            key.decode()
        except UnicodeDecodeError:  # a truncated character; dropping it lowers the bound
            if is_low:
                return key.decode(errors="ignore").encode().hex()
            return None
    value = _value(key, type)
    if value == "NaN":
        return None
    return value


def _value(key: bytes | None, type: pa.DataType) -> Any:
    """Return the value of a key as JSON, or None for None."""
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
        return _JAVA_NAMES.get(text, text)
    return text
