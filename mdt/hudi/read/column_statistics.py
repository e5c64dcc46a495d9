"""Bounds and numbers of nulls of columns of files, from Hudi's partition ``column_stats``."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mdt.hudi.read.hfile import HFile
from mdt.hudi.read.index_partition import Decode, IndexGroup, IndexPartition

COLUMN_STATS = "column_stats"
"""The partition with the statistics."""
_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_UNITS = {15: "ms", 16: "us", 17: "ns", 18: "ms", 19: "us", 20: "ns"}
"""Hudi's number of a type of timestamps -> unit."""
_DECIMAL = 10
"""Hudi's number of the type of decimals."""


@dataclass(frozen=True, slots=True)
class FileColumn:
    """The statistics of a column of a file.

    Attributes:
        low, high: Bounds in Hudi's form, None if they are not known.
        nulls: Number of nulls.
        rows: Number of rows.
        kind: Hudi's number of the type and its parameters, or -1 and "" before version 9.
    """

    low: Any
    high: Any
    nulls: int
    rows: int
    kind: tuple[int, str] = (-1, "")

    def bounds(self, type: pa.DataType) -> tuple[Any, Any] | None:
        """Return (low, high) as :func:`comparable` values of ``type``, or None if the form of the
        bounds is not known.
        """
        values = [self._value(value, type) for value in (self.low, self.high)]
        if None in values:
            return None
        return values[0], values[1]

    def _value(self, value: Any, type: pa.DataType) -> Any:
        kinds, (number, parameters) = pa.types, self.kind
        if kinds.is_timestamp(type):
            unit = "us" if number < 0 else _UNITS.get(number)
            is_known = isinstance(value, int) and unit is not None
            return value * _NANOSECONDS[unit] if is_known and unit else None
        if kinds.is_decimal(type):
            if isinstance(value, bytes) and number == _DECIMAL:
                scale = parameters.rpartition(",")[2]
                if scale.isascii() and scale.isdigit() and len(scale) < 3:
                    return Decimal(f"{int.from_bytes(value, signed=True)}E-{scale}")
            return value if isinstance(value, Decimal) else None
        for is_kind, python in _FORMS:
            if is_kind(type):
                return value if isinstance(value, python) else None
        return None


_FORMS: tuple[tuple[Any, Any], ...] = (
    (pa.types.is_boolean, bool),
    (pa.types.is_integer, int),
    (pa.types.is_date32, int),
    (pa.types.is_floating, (float, int)),
    (pa.types.is_string, str),
    (pa.types.is_binary, bytes),
)


def comparable(scalar: pa.Scalar) -> Any:
    """Return a value that compares with those of :meth:`FileColumn.bounds`, or None if it has no
    order that is known.
    """
    kinds = pa.types
    if not scalar.is_valid:
        return None
    if kinds.is_timestamp(scalar.type):
        return scalar.value * _NANOSECONDS[scalar.type.unit]
    if kinds.is_date32(scalar.type):
        return scalar.value
    value = scalar.as_py()
    return None if isinstance(value, float) and math.isnan(value) else value


def column_statistics(
    partition: IndexPartition, names: Collection[str]
) -> dict[tuple[str, str], FileColumn]:
    """Return the statistics of the files ``names``, by name and column.

    Raises Corrupt, Missing, and Unsupported.
    """
    chosen_names = pa.array(sorted(names), pa.string())

    def decode(keys: pa.Array, values: pa.StructArray) -> pa.Table:
        is_chosen = pc.is_in(pc.struct_field(values, "fileName"), chosen_names)
        return pa.table({"key": keys.filter(is_chosen), "value": values.filter(is_chosen)})

    def read(group: IndexGroup) -> dict[str, dict[str, Any]]:
        records: dict[str, dict[str, Any]] = {}
        for part in group.parts(HFile.all, Decode("ColumnStatsMetadata", decode)):
            if "value" in part.column_names:
                pairs = zip(part["key"].to_pylist(), part["value"].to_pylist(), strict=True)
                records.update(pairs)
            else:
                for key in part["key"].to_pylist():
                    records.pop(key, None)
        return records

    statistics = {}
    for record in chain.from_iterable(records.values() for records in partition.each(read)):
        if not record["isDeleted"]:
            statistics[record["fileName"], record["columnName"]] = _file_column(record)
    return statistics


def _file_column(record: dict[str, Any]) -> FileColumn:
    kind = record.get("valueType") or {"typeOrdinal": -1, "additionalInfo": ""}
    bounds = (record[name] or {} for name in ("minValue", "maxValue"))
    low, high = (bound.get("value") for bound in bounds)
    counts = record["nullCount"] or 0, record["valueCount"] or 0
    return FileColumn(low, high, *counts, (kind["typeOrdinal"], kind["additionalInfo"] or ""))
