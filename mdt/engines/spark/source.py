"""``format("mdt")`` in a session of Spark: the JVM's data source, and how it reaches those in Python who know tables.

The JVM's half is ``java/MdtSource.java``.  Spark asks it for a relation, or to write rows; it asks the function that is handed over
here, from any thread and for any session of the JVM, and gets a frame.
"""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from mdt.engines.spark import private
from mdt.engines.spark.file_index import factory_of, refusals
from mdt.engines.spark.functions import patterns_of
from mdt.engines.spark.session import classic
from mdt.engines.spark.statement import Statement
from mdt.errors import MdtError

_SEPARATOR = "\x1e"
"""Between texts of an answer, as ``Python.java`` has it."""


class Answers(Protocol):
    """Who opens, reads and writes tables for the data source.  Called from several threads at a time."""

    def read(self, spark: SparkSession, options: Mapping[str, str], columns: StructType | None) -> DataFrame:
        """Return the frame that ``options`` ask for; ``columns``: those that it must have, None for any.  Raises what mdt raises."""

    def write(self, spark: SparkSession, options: Mapping[str, str], how: str, rows: DataFrame) -> DataFrame:
        """Write ``rows`` and return the frame of the table; ``how``: "Append", "Overwrite", "ErrorIfExists", "Ignore", "into", "overwrite".

        The first four are modes of ``df.write``, the others what an INSERT of SQL says.
        """

    def alter(self, spark: SparkSession, options: Mapping[str, str], added: StructType) -> DataFrame:
        """Add columns to the table that ``options`` name, and return its frame."""

    def change(self, spark: SparkSession, options: Mapping[str, str], statement: Statement) -> Sequence[int]:
        """Carry out a statement of SQL that changes rows of the table that ``options`` name, and return its counts."""

    def call(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        name: str,
        names: Sequence[str],
        values: Sequence[str | None],
    ) -> Sequence[tuple[str, str]]:
        """Carry out a procedure on the table that ``options`` name, and return names and values of what it tells."""


class _Function:
    """The java.util.function.Function that ``java/Python.java`` calls."""

    class Java:
        implements = ("java.util.function.Function",)

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    def apply(self, request: Any) -> Any:
        """Answer a request (see ``Python.java``) with a Dataset of the JVM, with counts after a "=", or with an error.

        That is the text of ours, or an exception of the JVM.
        """
        what, session, options, text, rows = request
        spark = private.session_of_java(session)
        try:
            if what == "read":
                columns = None if text is None else StructType.fromJson(json.loads(text))
                found = self._answers.read(spark, dict(options), columns)
            elif what == "alter":
                found = self._answers.alter(spark, dict(options), StructType.fromJson(json.loads(text)))
            elif what == "match":
                return "=" + _SEPARATOR.join(patterns_of(*rows))
            elif what == "call":
                told = self._answers.call(spark, dict(options), text, list(rows[0]), list(rows[1]))
                return "=" + _SEPARATOR.join(part for pair in told for part in pair)
            elif what == "change":
                counts = self._answers.change(spark, dict(options), Statement(text, rows))
                return "=" + ",".join(map(str, counts))
            else:
                found = self._answers.write(spark, dict(options), text, private.frame_of_java(rows))
        except MdtError as error:
            return f"{type(error).__name__}: {error}"
        except (PySparkException, Py4JJavaError) as error:
            java = private.java_error(error)
            if java is None:
                raise
            return java
        return private.java_frame(found)


_enabled: weakref.WeakSet[SparkSession] = weakref.WeakSet()
_lock = threading.Lock()


def enable(spark: SparkSession, answers: Answers) -> bool:
    """Let ``format("mdt")`` be known in a session, and in all others of its JVM; may be repeated.

    Returns whether it is known: Spark finds it by its own class loaders alone.  Raises Unsupported on Spark Connect, and
    where the cluster does not let a session add a JAR.
    """
    with _lock:
        if classic(spark) in _enabled:
            return True
        factory = factory_of(spark.sparkContext)
        with refusals():
            known = bool(factory.enable(private.java_session(spark), _Function(answers)))
        if known:
            _enabled.add(spark)
    return known
