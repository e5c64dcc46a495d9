"""Read tables as others do, and compare rows as multisets.

``hudi_table`` is the other reader (hudi-rs). ``bag`` makes rows of any reader comparable: NaN
equals NaN, -0.0 is not 0.0, the order of rows does not count, and the number of equal rows does.
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
"""Option of hudi-rs: the instant as of which it reads."""
BY_POSITION = {"hoodie.merge.use.record.positions": "true"}
"""Makes hudi-rs trust the positions in log blocks instead of comparing keys."""

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
    read = pa.Table.from_batches([pa.record_batch(batch) for batch in batches])
    columns = [
        [convert(chunk, field.type) for chunk in read[field.name].chunks] for field in schema
    ]
    return pa.table(
        [
            pa.chunked_array(chunks, field.type)
            for chunks, field in zip(columns, schema, strict=True)
        ],
        schema=schema,
    )


def agreed(table: mdt.Table, expected: pa.Table | None = None) -> pa.Table:
    """Return the rows of a table on a disk. Assert that hudi-rs reads the same rows, that they
    equal ``expected`` if given, and that a check finds nothing.
    """
    reader = mdt.open(table.storage)
    read, path = reader.scan().to_arrow(), reader.path.removeprefix("file://")
    assert bag(read) == bag(hudi_table(path, reader.schema))
    assert expected is None or bag(read) == bag(expected)
    report = reader.check()
    assert report.ok and not report.warnings, str(report)
    return read


def bag(table: pa.Table) -> Bag:
    """Return the rows of ``table`` with the number of their occurrences."""
    columns = [map(comparable, column.to_pylist()) for column in table.columns]
    return Counter(zip(*columns, strict=True)) if columns else Counter({(): len(table)})


def bag_of(rows: Iterable[Mapping[str, Any]], names: Sequence[str]) -> Bag:
    """Return rows, given as mappings, in the form of :func:`bag`."""
    return Counter(tuple(comparable(row[name]) for name in names) for row in rows)


def comparable(value: Any) -> Any:
    """Return a form of ``value`` that is equal for floats with the same bits and for decimals of
    the same number.
    """
    if isinstance(value, float):
        return ("float", "nan" if math.isnan(value) else value.hex())
    if isinstance(value, Decimal):
        return ("decimal", value.normalize().as_tuple() if value else 0)
    if isinstance(value, dict):
        return ("struct", *((name, comparable(item)) for name, item in value.items()))
    if isinstance(value, (list, tuple)):
        return ("list", *map(comparable, value))
    return value
