"""``format("mdt")`` in a Spark session: the JVM's data source, and its calls to Python.

The JVM's half is ``java/source/MdtSource.java``. Spark requests a relation, or a write, from it. It
calls the function registered here, from any thread and for any session of the JVM, and receives a
frame.
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
from mdt.engines.spark.schema import parse_json
from mdt.engines.spark.session import classic
from mdt.errors import MdtError
from mdt.session import Guarded, for_life

_SEPARATOR = "\x1e"
"""Separator of the texts in an answer, as in ``Python.java``."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request of the JVM in a session.

    ``options``: of the table. ``text``, ``extra``: arguments that depend on the request, documented
    in ``Python.java`` and its callers.
    """

    spark: SparkSession
    options: Mapping[str, str]
    text: Any
    extra: Any

    @property
    def columns(self) -> StructType | None:
        """The columns described by ``text``, or None for any."""
        if self.text is None:
            return None
        return parse_json(self.text)


Answers = Mapping[str, Callable[[Request], Any]]
"""Name of a request -> handler. It returns a frame, an Arrow table, texts and numbers, or a mapping
of further handlers for the duration of a query. Called from several threads at a time. It must not
reference objects of the JVM, because the JVM references it.
"""


def frame(java: Any) -> DataFrame:
    """Return a Dataset of the JVM as a frame."""
    return private.frame_of_java(java)


class _Function:
    """The java.util.function.Function that ``java/bridge/Python.java`` calls: for tables, or for a
    query's stream or batches.
    """

    class Java:
        implements = ("java.util.function.Function",)

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    def apply(self, request: Any) -> Any:
        """Answer a request (see ``Python.java``) with a Dataset of the JVM, a function, texts after
        a "=", or an error.

        An error is the text of an mdt error, or an exception of the JVM.
        """
        name, session, options, text, extra = request
        try:
            parsed = Request(private.session_of_java(session), json.loads(options), text, extra)
            answer = self._answers[name](parsed)
            if isinstance(answer, pa.Table):
                answer = parsed.spark.createDataFrame(answer)
        except MdtError as error:
            return _SEPARATOR.join(
                (type(error).__name__, error.getCondition(), error.getSqlState(), str(error))
            )
        except (PySparkException, Py4JJavaError) as error:
            java = private.java_error(error)
            if java is None:
                raise
            return java
        if isinstance(answer, DataFrame):
            return private.java_frame(answer)
        if isinstance(answer, Mapping):
            return _Function(answer)
        return "=" + _SEPARATOR.join(map(str, answer))


@for_life
def _enabled() -> Guarded[WeakSet[SparkSession]]:
    """Return the sessions with ``format("mdt")`` enabled."""
    return Guarded(WeakSet())


def enable(spark: SparkSession, answers: Answers) -> bool:
    """Register ``format("mdt")`` in a session and in all other sessions of its JVM. May be
    repeated.

    Returns False if Spark's class loaders do not find it. Raises Unsupported on Spark Connect, and
    if the cluster does not allow a session to add a JAR.
    """
    enabled = _enabled()
    with enabled.lock:
        if classic(spark) in enabled.value:
            return True
        factory = factory_of(spark.sparkContext)
        function = _Function({**answers, "match": lambda request: patterns_of(*request.extra)})
        with refusals():
            is_enabled = bool(factory.enable(private.java_session(spark), function))
        if is_enabled:
            enabled.value.add(spark)
    return is_enabled
