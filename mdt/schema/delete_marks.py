"""Rows that are deletes: those whose column ``_hoodie_is_deleted`` is true, as Hudi's writers have
it.  A table never has that column.
"""

from __future__ import annotations

import pyarrow as pa

from indexes.arrays import flags
from indexes.base import BoolArray
from mdt.errors import Invalid

IS_DELETED = "_hoodie_is_deleted"


def without_marks(data: pa.Table) -> tuple[pa.Table, BoolArray | None]:
    """Return data without the column, and which rows it marks -> bool[n]; None if it marks none.
    Raises Invalid for another type than boolean.
    """
    names = data.column_names
    if IS_DELETED not in names:
        return data, None
    column = data[IS_DELETED]
    require_boolean(column.type)
    marked = flags(column.cast(pa.bool_()).fill_null(False))
    return data.drop_columns([IS_DELETED]), marked if marked.any() else None


def require_boolean(type: pa.DataType) -> None:
    """Raise Invalid unless a column of this type can say which rows are deletes."""
    if not (pa.types.is_boolean(type) or pa.types.is_null(type)):
        raise Invalid(
            f"the column {IS_DELETED!r} says which rows are deletes, and is {type}",
            hint="make it boolean: true deletes the row with this key",
        )
