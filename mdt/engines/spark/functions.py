"""Functions for Spark queries that the table's indexes support.

``match`` filters by a text index::

    from mdt.spark import match

    mdt.read(spark, path).where(match("note", "fast car"))

``call`` evaluates a registered predicate function over Arrow batches in Spark's Python workers::

    from mdt.spark import call

    mdt.read(spark, path).where(call("within_km", "lat", "lon", 59.9, 10.7, 5))

Spark does not pass a filter with ``call`` to indexes. To prune files by an index as well, use
``t.scan(where="within_km(…)").to_spark(spark)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.types import BooleanType

from indexes import functions, tokenizers
from indexes.tokenizers import Ngram, Word
from mdt.engines.spark.patterns import NEVER, token_pattern
from mdt.errors import Invalid, Unsupported


def match(column: Column | str, text: str, tokenizer: str = "word") -> Column:
    """Return a boolean column that is true where a text has all tokens of ``text``, and null for
    null.

    It is the filter operator ``match`` (``indexes.predicate``) in Spark's own expressions. It runs
    no Python per row, and a text index prunes files. ``column``: strings. ``tokenizer``: "word", or
    "ngram(n)" for substrings of n characters. A ``text`` without tokens matches nothing.

    Raises ``errors.Invalid`` for an unknown tokenizer, ``errors.Unsupported`` for other tokenizers.

    Example::

        mdt.read(spark, path).where(match("note", "fast car")).count()
    """
    texts = sf.col(column) if isinstance(column, str) else column
    return reduce(and_, [texts.rlike(regex) for regex in patterns_of(text, tokenizer)])


def patterns_of(text: str, tokenizer: str = "word") -> list[str]:
    """Return the Java regular expressions that ``match`` combines with AND. Raises as ``match``
    does.
    """
    try:
        chosen = tokenizers.find(tokenizer)
        tokens = chosen.query(text)
    except ValueError as error:
        raise Invalid(f"match({text!r}, {tokenizer!r}): {error}") from error
    if not isinstance(chosen, Word | Ngram):
        raise Unsupported(
            f"Spark does not support the tokenizer {tokenizer!r}",
            hint=(
                "use word or ngram(n), or filter in process with"
                ' t.scan(where="match(…)").to_arrow()'
            ),
        )
    return [token_pattern(token, isinstance(chosen, Word)) for token in tokens] or [NEVER]


def call(name: str, *given: Any) -> Column:
    """Return the boolean column of the predicate function ``name`` (``indexes.functions``). Null
    where an input column is null.

    ``given``: the function's columns, as names or Columns, then its literals. The function is
    shipped to Spark's Python workers with the query. Modules that it imports must be installed
    there. Raises ``errors.Invalid`` for an unknown function or wrong arguments.

    Example::

        mdt.read(spark, path).where(call("within_km", "lat", "lon", 59.9, 10.7, 5)).count()
    """
    function = functions.find(name)
    if isinstance(function, functions.Unknown):
        raise Invalid(
            function.reason,
            hint="register it with mdt.function, or install the package that provides it",
        )
    columns, literals = given[: function.columns], given[function.columns :]
    try:
        if len(columns) < function.columns:
            raise ValueError(f"it takes {function.columns} columns: {function.usage}")
        arguments = function.convert_arguments(literals)
    except ValueError as error:
        raise Invalid(f"{function.name}: {error}") from error
    return evaluate_as_udf(
        function,
        [sf.col(column) if isinstance(column, str) else column for column in columns],
        arguments,
    )


def evaluate_as_udf(
    function: functions.Function,
    columns: Sequence[Column],
    arguments: Sequence[object],
    types: Sequence[pa.DataType] | None = None,
) -> Column:
    """Return ``function`` of ``columns`` as a boolean Arrow UDF.

    ``types``: the table's types of the columns. Batches are cast to them, because Spark's
    timestamps have the session's time zone.
    """
    if None in arguments:
        return sf.lit(None).cast("boolean")

    def run(*arrays: pa.Array) -> pa.Array:
        if types is not None:
            arrays = tuple(array.cast(type) for array, type in zip(arrays, types, strict=True))
        return _evaluate(function, arrays, arguments)

    if not hasattr(sf, "arrow_udf"):
        raise Unsupported(
            f"PySpark {pyspark.__version__} does not have Arrow UDFs, which {function.name} needs",
            hint="install PySpark 4.1 or newer, or remove the function from the filter",
        )
    column: Column = sf.arrow_udf(run, BooleanType())(*columns)
    return column


def _evaluate(
    function: functions.Function, arrays: Sequence[pa.Array], arguments: Sequence[object]
) -> pa.Array:
    try:
        return function.evaluate(arrays, arguments)
    except functions.FunctionFailed as error:
        raise Invalid(str(error), hint="fix the function, or remove it from the filter") from error
