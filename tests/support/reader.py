"""Read tables as others do, and compare rows as multisets.

``hudi_table`` is the other reader (hudi-rs); ``bag`` makes rows of any reader comparable: NaN
equals NaN, -0.0 is not 0.0, order does not count, how often a row occurs does.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from hudi import HudiReadOptions, HudiTable

import mdt
from mdt.schema.convert import convert

START, END = "hoodie.read.start.timestamp", "hoodie.read.end.timestamp"
"""Options of hudi-rs: instants between which rows were committed, the first one excluded, for
:data:`INCREMENTAL`.
"""
INCREMENTAL = {"hoodie.read.query.type": "incremental"}
READ_OPTIMIZED = {"hoodie.read.use.read_optimized.mode": "true"}
AS_OF = "hoodie.read.as.of.timestamp"
"""Option of hudi-rs: an instant as of which to read."""
BY_POSITION = {"hoodie.merge.use.record.positions": "true"}
"""Makes hudi-rs trust the positions that log blocks carry, instead of comparing keys."""

Bag = Counter[tuple[Any, ...]]


def hudi_table(
    path: Path | str, schema: pa.Schema, options: Mapping[str, str] | None = None
) -> pa.Table:
    """Return the columns of ``schema`` as hudi-rs reads them from the newest snapshot, cast to its
    types.
    """
    batches = HudiTable(str(path)).read(HudiReadOptions(hudi_options=dict(options or {})))
    if not batches:
        return schema.empty_table()
    found = pa.Table.from_batches([pa.record_batch(batch) for batch in batches])
    columns = [
        [convert(chunk, field.type) for chunk in found[field.name].chunks] for field in schema
    ]
    return pa.table(
        [
            pa.chunked_array(chunks, field.type)
            for chunks, field in zip(columns, schema, strict=True)
        ],
        schema=schema,
    )


def agreed(table: mdt.Table, expected: pa.Table | None = None) -> pa.Table:
    """Return the rows of a table on a disk; asserts that hudi-rs reads the same ones, that they are
    those that are expected, and that a check finds nothing.
    """
    opened = mdt.open(table.storage)
    found, path = opened.scan().to_arrow(), opened.path.removeprefix("file://")
    assert bag(found) == bag(hudi_table(path, opened.schema))
    assert expected is None or bag(found) == bag(expected)
    report = opened.check()
    assert report.ok and not report.warnings, str(report)
    return found


def bag(table: pa.Table) -> Bag:
    """Return the rows of ``table`` with how often each occurs."""
    columns = [map(comparable, column.to_pylist()) for column in table.columns]
    return Counter(zip(*columns, strict=True)) if columns else Counter({(): len(table)})


def bag_of(rows: Iterable[Mapping[str, Any]], names: Sequence[str]) -> Bag:
    """Return rows given as mappings in the same form as :func:`bag`."""
    return Counter(tuple(comparable(row[name]) for name in names) for row in rows)


def comparable(value: Any) -> Any:
    """Return ``value`` in a form in which equal means the same bits for floats, the same number for
    decimals.
    """
    if isinstance(value, float):
        return ("float", "nan" if math.isnan(value) else value.hex())
    if isinstance(value, Decimal):
        return ("decimal", value.normalize().as_tuple() if value else 0)
    if isinstance(value, dict):
        return ("struct", *((name, comparable(one)) for name, one in value.items()))
    if isinstance(value, (list, tuple)):
        return ("list", *map(comparable, value))
    return value
