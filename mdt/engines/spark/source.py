"""``format("mdt")`` in a session of Spark: the JVM's data source, and how it reaches those in
Python who know tables.

The JVM's half is ``java/source/MdtSource.java``.  Spark asks it for a relation, or to write rows;
it asks the function that is handed over here, from any thread and for any session of the JVM, and
gets a frame.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from mdt.engines.spark import private
from mdt.engines.spark.file_index import refusals
from mdt.engines.spark.functions import patterns_of
from mdt.engines.spark.java_half import factory_of
from mdt.engines.spark.schema import of_json
from mdt.engines.spark.session import classic
from mdt.errors import MdtError
from mdt.session import Guarded, for_life

_SEPARATOR = "\x1e"
"""Between texts of an answer, as ``Python.java`` has it."""


@dataclass(frozen=True, slots=True)
class Request:
    """A question of the JVM in a session.

    ``options``: of the table.  ``text``, ``more``: the rest, which each question has its own way;
    ``Python.java`` and its callers say which.
    """

    spark: SparkSession
    options: Mapping[str, str]
    text: Any
    more: Any

    @property
    def columns(self) -> StructType | None:
        """The columns that the text describes, None for any."""
        if self.text is None:
            return None
        return of_json(self.text)

    @property
    def rows(self) -> DataFrame:
        """The frame that comes with the question."""
        return frame(self.more)


Answers = Mapping[str, Callable[[Request], Any]]
"""Name of a question -> who answers it: with a frame, rows for one, texts and numbers, or further
questions, asked as long as a query runs.  Called from several threads at a time; must not hold
anything of the JVM's, which holds it.
"""


def frame(java: Any) -> DataFrame:
    """Return a Dataset of the JVM, which a question brings, as a frame."""
    return private.frame_of_java(java)


class _Function:
    """The java.util.function.Function that ``java/bridge/Python.java`` calls: about tables, or, as
    long as a query runs, about its stream or the batches that it writes.
    """

    class Java:
        implements = ("java.util.function.Function",)

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    def apply(self, request: Any) -> Any:
        """Answer a request (see ``Python.java``) with a Dataset of the JVM, with a function, with
        texts after a "=", or with an error.

        That is the text of ours, or an exception of the JVM.
        """
        what, session, options, text, more = request
        try:
            asked = Request(private.session_of_java(session), json.loads(options), text, more)
            found = self._answers[what](asked)
            if isinstance(found, pa.Table):
                found = asked.spark.createDataFrame(found)
        except MdtError as error:
            return _SEPARATOR.join(
                (type(error).__name__, error.getCondition(), error.getSqlState(), str(error))
            )
        except (PySparkException, Py4JJavaError) as error:
            java = private.java_error(error)
            if java is None:
                raise
            return java
        if isinstance(found, DataFrame):
            return private.java_frame(found)
        if isinstance(found, Mapping):
            return _Function(found)
        return "=" + _SEPARATOR.join(map(str, found))


@for_life
def _enabled() -> Guarded[WeakSet[SparkSession]]:
    """Return the sessions that know ``format("mdt")``."""
    return Guarded(WeakSet())


def enable(spark: SparkSession, answers: Answers) -> bool:
    """Let ``format("mdt")`` be known in a session, and in all others of its JVM; may be repeated.

    Returns whether it is known: Spark finds it by its own class loaders alone.  Raises Unsupported
    on Spark Connect, and where the cluster does not let a session add a JAR.
    """
    with _enabled() as enabled:
        if classic(spark) in enabled:
            return True
        factory = factory_of(spark.sparkContext)
        function = _Function({**answers, "match": lambda asked: patterns_of(*asked.more)})
        with refusals():
            known = bool(factory.enable(private.java_session(spark), function))
        if known:
            enabled.add(spark)
    return known
