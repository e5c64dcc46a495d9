"""``mapInArrow`` without pandas.

PySpark's method asks for an installed pandas although no pandas object occurs on the way; this builds the same plan from
the function below it.  Internal API of PySpark, kept behind this one function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.pandas import functions
from pyspark.sql.types import StructType
from pyspark.util import PythonEvalType

BatchFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def map_in_arrow(frame: DataFrame, function: BatchFunction, schema: StructType | str) -> DataFrame:
    """Return ``frame`` with each partition's record batches passed through ``function``; ``schema``: of the result."""
    of_batches: Any = functions.vectorized_udf(  # type: ignore[attr-defined]
        function, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    )
    column: Any = of_batches(*(frame["`" + name.replace("`", "``") + "`"] for name in frame.columns))
    java: Any = frame._jdf
    return ClassicDataFrame(java.mapInArrow(column._jc, False, None), frame.sparkSession)
