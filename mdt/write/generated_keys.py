"""Record keys of new rows in tables whose keys Hudi generates."""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mdt.errors import Unsupported
from mdt.hudi.avro_schema import RECORD_KEY
from mdt.schema.definition import TableDefinition
from mdt.stores.storage import Storage
from mdt.write.by_name import DELETE


class GeneratedKeys:
    """Keys for the rows of one write: ``name``, ``_``, and the number of the row.

    Hudi makes keys of an instant, a task and a number, ``20240229120000123_0_7``. A name has 32
    hexadecimal digits, so no key is the same.

    >>> GeneratedKeys("0f" * 16).add(pa.table({"a": [5]})).column_names
    ['_hoodie_record_key', 'a']
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._rows = 0

    def add(self, rows: pa.Table) -> pa.Table:
        """Return the next rows of the write with a column of keys, if they have none."""
        if RECORD_KEY in rows.column_names:
            return rows
        numbers = pa.array(np.arange(self._rows, self._rows + len(rows)))
        self._rows += len(rows)
        keys = pc.binary_join_element_wise(self._name, pc.cast(numbers, pa.string()), "_")
        return rows.add_column(0, RECORD_KEY, keys)


def filler(
    definition: TableDefinition, operation: str, storage: Storage
) -> Callable[[pa.Table], pa.Table]:
    """Return a function that gives the rows of a write their keys if Hudi generates those of the
    table.
    """
    if not definition.has_generated_keys:
        return lambda rows: rows
    if operation in ("upsert", DELETE):
        return partial(_with_own_keys, operation)
    return GeneratedKeys(storage.random_hex(16)).add


def _with_own_keys(operation: str, rows: pa.Table) -> pa.Table:
    """Return ``rows`` of an operation that makes no keys. Raises as :func:`require_keys`."""
    require_keys(operation, rows.column_names)
    return rows


def require_keys(operation: str, columns: Container[str]) -> None:
    """Raise Unsupported for rows without a column of keys."""
    if RECORD_KEY not in columns:
        raise Unsupported(
            f"{operation} needs the column {RECORD_KEY}, because Hudi generates the keys of the"
            " table",
            hint="t.insert makes keys for Arrow data; t.update_where and t.delete_where need none",
        )
