"""The column ``_hoodie_is_deleted``, with which Hudi's writers mark rows to be deleted.

The column is never stored in a table.
"""

from __future__ import annotations

import pyarrow as pa

from indexes.arrays import flags
from indexes.base import BoolArray
from mdt.errors import Invalid

IS_DELETED = "_hoodie_is_deleted"


def split_delete_marks(data: pa.Table) -> tuple[pa.Table, BoolArray | None]:
    """Split the delete column from ``data``: return (data without it, marked rows).

    Marked rows are bool[n], or None if no row is marked. Raises Invalid if the column is not
    boolean.
    """
    names = data.column_names
    if IS_DELETED not in names:
        return data, None
    column = data[IS_DELETED]
    require_boolean(column.type)
    marked = flags(column.cast(pa.bool_()).fill_null(False))
    return data.drop_columns([IS_DELETED]), marked if marked.any() else None


def require_boolean(type: pa.DataType) -> None:
    """Raise Invalid unless ``type`` is boolean or null, as the delete column must be."""
    if not (pa.types.is_boolean(type) or pa.types.is_null(type)):
        raise Invalid(
            f"the column {IS_DELETED!r} must be boolean, but is {type}",
            hint="true deletes the row with this key",
        )
