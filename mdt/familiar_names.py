"""Hints for names that pandas, polars, Spark, deltalake and pyiceberg use for methods of mdt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

_ROWS = {
    "{}.to_arrow()": "read_all toArrow to_arrow_table to_pyarrow_table to_table",
    "{}.to_arrow().to_pandas()": "df toPandas to_pandas",
    "{}.to_arrow().to_pylist()": "collect fetchall iter_rows rows to_dict to_dicts to_pylist",
    "{}.to_reader()": "to_arrow_batch_reader to_pyarrow_dataset",
    "{}.to_spark(spark)": "toDF",
    "{}.count()": "count_rows num_rows shape",
    "{}.schema": "dtypes printSchema",
    "{}.schema.names": "column_names",
    "pl.DataFrame({})": "to_polars",
    "duckdb.from_arrow({})": "to_duckdb",
}
"""Names by the expression that does the same with the rows ``{}``."""
_SCAN = {
    "t.scan(limit=10).to_arrow()": "display first head show take",
    "t.scan(where)": "filter query where",
    "t.scan(order_by=columns)": "orderBy order_by sort sort_values",
    "t.scan(columns=names)": "select",
}
_TABLE = {
    "t.scan().count()": "count",
    "t.scan().explain()": "explain",
    "t.scan().to_arrow()": "to_arrow",
    "t.scan().to_batches()": "to_batches",
    "t.scan().to_reader()": "to_reader",
    "t.scan().to_spark(spark)": "to_spark",
    "t.scan(limit=10)": "limit",
    "t.schema": "dtypes printSchema",
    "t.schema.names": "column_names columns",
    "t.snapshot()": "current_snapshot version",
    "t.history()": "snapshots versions",
    "t.show()": "describe detail info",
    "t.changes(since)": "load_cdf",
    "t.insert(rows)": "append",
    "t.insert_overwrite_table(rows)": "overwrite",
    "t.upsert(rows)": "write",
    "t.update_where(set, where)": "update",
    "t.alter(…)": "update_schema",
    "t.clean()": "expire_snapshots vacuum",
    "t.compact() or t.cluster(columns)": "optimize",
    "mdt.open(path, as_of=commit)": "load_as_version",
}


def _by_name(expressions: Mapping[str, str], rows: str) -> dict[str, str]:
    """Return expressions of ``rows`` by each name that they replace."""
    return {
        name: expression.replace("{}", rows)
        for expression, names in expressions.items()
        for name in names.split()
    }


CHANGES_NAMES = _by_name(_ROWS, "changes")
"""Expressions of mdt by the names that users may try on changes."""
SCAN_NAMES = _by_name(_ROWS | _SCAN, "scan")
"""The same for a scan."""
TABLE_NAMES = _by_name(_ROWS | _SCAN | _TABLE, "t.scan()")
"""The same for a table."""


class FamiliarNames:
    """Base class of objects that answer attributes of other libraries with a hint.

    >>> t.count()
    Traceback (most recent call last):
    ...
    AttributeError: a Table has no attribute 'count'
      hint: did you mean t.scan().count()?
    """

    _familiar_names: ClassVar[Mapping[str, str]] = {}

    if not TYPE_CHECKING:  # type checkers would accept every attribute

        def __getattr__(self, name: str) -> Any:
            """Raise AttributeError, with a hint for a familiar name."""
            expression = self._familiar_names.get(name)
            if expression is None:
                return object.__getattribute__(self, name)  # fails again, with its own error
            raise AttributeError(
                f"a {type(self).__name__} has no attribute {name!r}\n"
                f"  hint: did you mean {expression}?"
            )
