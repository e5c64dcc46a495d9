"""``format("mdt")`` in a session of Spark: the JVM's data source, and how it reaches those in
Python who know tables.

The JVM's half is ``java/source/MdtSource.java``.  Spark asks it for a relation, or to write rows;
it asks the function that is handed over here, from any thread and for any session of the JVM, and
gets a frame.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NoReturn, Protocol, TypeVar
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
from mdt.engines.spark.statement import Statement
from mdt.errors import MdtError
from mdt.session import Guarded, for_life

_Of = TypeVar("_Of")

_SEPARATOR = "\x1e"
"""Between texts of an answer, as ``Python.java`` has it."""


class Stream(Protocol):
    """One stream of rows of a table, which is open.  It holds nothing of the JVM's, which holds
    it.
    """

    def columns(self, spark: SparkSession, said: StructType | None) -> StructType:
        """Return the columns; ``said``: those that the user names, None for any."""

    def newest(self) -> str:
        """Return the offset of the newest commit."""

    def offset(self, start: str | None, everything: bool, last: str | None) -> str | None:
        """Return how far the batch goes that begins at the offset ``start``, None if nothing is
        new.

        ``everything``: whatever the limits of a batch are.  ``last``: where the stream ends.
        """

    def batch(
        self, spark: SparkSession, start: str | None, end: str, expected: StructType
    ) -> DataFrame:
        """Return the rows from the offset ``start``, None for the beginning, to ``end``; they have
        the columns ``expected``.
        """


class Sink(Protocol):
    """Writes the batches of one query, one after the other; it may keep their table open.  It holds
    nothing of the JVM's, which holds it.
    """

    def write(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        mode: str,
        batch: tuple[str, int],
        rows: DataFrame,
    ) -> None:
        """Write a batch, (id of a query, number), unless the table has it; ``mode``: "Append",
        "Update", "Complete".
        """


class Answers(Protocol):
    """Who opens, reads and writes tables for the data source.  Called from several threads at a
    time.
    """

    def read(
        self, spark: SparkSession, options: Mapping[str, str], columns: StructType | None
    ) -> DataFrame:
        """Return the frame that ``options`` ask for; ``columns``: those that it must have, None for
        any.  Raises what mdt raises.
        """

    def write(
        self, spark: SparkSession, options: Mapping[str, str], how: str, rows: DataFrame
    ) -> DataFrame:
        """Write ``rows`` and return the frame of the table; ``how``: "Append", "Overwrite",
        "ErrorIfExists", "Ignore", "into", "overwrite".

        The first four are modes of ``df.write``, the others what an INSERT of SQL says.
        """

    def partition_by(self, spark: SparkSession, options: Mapping[str, str]) -> Sequence[str]:
        """Return the columns by which the table is partitioned that ``options`` name."""

    def partitions(
        self, spark: SparkSession, options: Mapping[str, str], values: Mapping[str, Any]
    ) -> Sequence[str]:
        """Return the partitions with rows of that table that have ``values``, column -> value, as
        ``SHOW PARTITIONS`` names them.
        """

    def entry(self, table: str | None, names: Sequence[str]) -> Sequence[str]:
        """Return which of the options ``names`` of an entry of the catalog do not count there;
        ``table``: its name, None where it is to be made.
        """

    def refuse(self, kind: str) -> NoReturn:
        """Raise Unsupported for a statement of SQL, which ``kind`` names."""

    def change(
        self, spark: SparkSession, options: Mapping[str, str], statement: Statement
    ) -> Sequence[int]:
        """Carry out a statement of SQL that changes rows of the table that ``options`` name, and
        return its counts.
        """

    def call(
        self, spark: SparkSession, options: Mapping[str, str], name: str, given: Any
    ) -> pa.Table | Sequence[str]:
        """Carry out a procedure, or a statement about the table as a whole, and return its rows.

        ``options`` name the table; ``name``, ``given``: as ``java/sql/TableCall.java`` has them.
        Texts instead of rows are for the catalog: the columns as Spark's JSON, empty for the same
        as before, and names of options that it must forget.
        """

    def answer(self, name: str, given: Any) -> pa.Schema:
        """Return the columns of the answer of such a call.  Raises what refuses it."""

    def function(
        self, spark: SparkSession, options: Mapping[str, str], name: str
    ) -> pa.Table | DataFrame:
        """Return the rows of a table function of the table that ``options`` name: "changes",
        "files", "history" or "snapshots".
        """

    def insert(
        self, spark: SparkSession, options: Mapping[str, str], how: str, rows: DataFrame
    ) -> Sequence[int]:
        """Write ``rows`` as an INSERT does, and return its counts; ``how``: "into" or
        "overwrite".
        """

    def stream(self, spark: SparkSession, options: Mapping[str, str]) -> Stream:
        """Return the stream that ``options`` ask for, its table open."""

    def sink(self) -> Sink:
        """Return what the batches of one query are written by."""


class _Function(Generic[_Of]):
    """The java.util.function.Function that ``java/bridge/Python.java`` calls: about tables, or, as
    long as a query runs, about its stream or the batches that it writes.
    """

    class Java:
        implements = ("java.util.function.Function",)

    def __init__(
        self,
        of: _Of,
        answered: Mapping[str, Callable[[_Of, SparkSession, _Options, Any, Any], _Answer]],
    ) -> None:
        self._of = of
        self._answered = answered

    def apply(self, request: Any) -> Any:
        """Answer a request (see ``Python.java``) with a Dataset of the JVM, with a function, with
        texts after a "=", or with an error.

        That is the text of ours, or an exception of the JVM.
        """
        what, session, options, text, more = request
        try:
            spark = private.session_of_java(session)
            found = self._answered[what](self._of, spark, json.loads(options), text, more)
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
        return found if isinstance(found, _Function) else "=" + _SEPARATOR.join(found)


_Options = dict[str, str]
_Answer = DataFrame | Sequence[str] | _Function[Any]


def _columns(text: str | None) -> StructType | None:
    return None if text is None else of_json(text)


def _read(
    answers: Answers, spark: SparkSession, options: _Options, text: str | None, more: Any
) -> _Answer:
    return answers.read(spark, options, _columns(text))


def _write(
    answers: Answers, spark: SparkSession, options: _Options, text: str, more: Any
) -> _Answer:
    return answers.write(spark, options, text, private.frame_of_java(more))


def _partitions(
    answers: Answers, spark: SparkSession, options: _Options, text: Any, more: Any
) -> _Answer:
    return (
        answers.partition_by(spark, options)
        if text is None
        else answers.partitions(spark, options, json.loads(text))
    )


def _entry(
    answers: Answers, spark: SparkSession, options: _Options, text: str | None, more: Any
) -> _Answer:
    return answers.entry(text, list(more))


def _refuse(
    answers: Answers, spark: SparkSession, options: _Options, text: str, more: Any
) -> _Answer:
    answers.refuse(text)


def _match(
    answers: Answers, spark: SparkSession, options: _Options, text: Any, more: Any
) -> _Answer:
    return patterns_of(*more)


def _rows(spark: SparkSession, found: pa.Table | DataFrame | Sequence[str]) -> _Answer:
    return spark.createDataFrame(found) if isinstance(found, pa.Table) else found


def _call(
    answers: Answers, spark: SparkSession, options: _Options, text: str, more: str
) -> _Answer:
    return _rows(spark, answers.call(spark, options, text, json.loads(more)))


def _answer(
    answers: Answers, spark: SparkSession, options: _Options, text: str, more: str
) -> _Answer:
    return _rows(spark, answers.answer(text, json.loads(more)).empty_table())


def _function(
    answers: Answers, spark: SparkSession, options: _Options, text: str, more: Any
) -> _Answer:
    return _rows(spark, answers.function(spark, options, text))


def _insert(
    answers: Answers, spark: SparkSession, options: _Options, text: str, more: Any
) -> _Answer:
    return [
        str(count) for count in answers.insert(spark, options, text, private.frame_of_java(more))
    ]


def _change(
    answers: Answers, spark: SparkSession, options: _Options, text: str, more: Any
) -> _Answer:
    return [str(count) for count in answers.change(spark, options, Statement(text, more))]


def _opened(
    answers: Answers, spark: SparkSession, options: _Options, text: Any, more: Any
) -> _Answer:
    return _Function(answers.stream(spark, options), _TOLD)


def _sink(
    answers: Answers, spark: SparkSession, options: _Options, text: Any, more: Any
) -> _Answer:
    return _Function(answers.sink(), _WRITTEN)


def _stream_columns(
    stream: Stream, spark: SparkSession, options: _Options, text: str | None, more: Any
) -> _Answer:
    return [stream.columns(spark, _columns(text)).json()]


def _stream_newest(
    stream: Stream, spark: SparkSession, options: _Options, text: Any, more: Any
) -> _Answer:
    return [stream.newest()]


def _stream_offset(
    stream: Stream, spark: SparkSession, options: _Options, text: str | None, more: Any
) -> _Answer:
    found = stream.offset(text, bool(more[0]), more[1])
    return [] if found is None else [found]


def _stream_batch(
    stream: Stream, spark: SparkSession, options: _Options, text: str, more: Any
) -> _Answer:
    return stream.batch(spark, more[0], text, of_json(more[1]))


def _sink_write(
    sink: Sink, spark: SparkSession, options: _Options, text: str, more: Any
) -> _Answer:
    query, number, rows = more
    sink.write(spark, options, text, (str(query), int(number)), private.frame_of_java(rows))
    return []


_ANSWERED: Mapping[str, Callable[[Answers, SparkSession, _Options, Any, Any], _Answer]] = {
    "read": _read,
    "write": _write,
    "match": _match,
    "call": _call,
    "change": _change,
    "refuse": _refuse,
    "entry": _entry,
    "answer": _answer,
    "function": _function,
    "insert": _insert,
    "partitions": _partitions,
    "stream": _opened,
    "sink": _sink,
}
"""What is asked -> who puts it to the answers; a text and more come with it."""

_TOLD: Mapping[str, Callable[[Stream, SparkSession, _Options, Any, Any], _Answer]] = {
    "columns": _stream_columns,
    "newest": _stream_newest,
    "offset": _stream_offset,
    "batch": _stream_batch,
}
"""The same for what a stream is asked."""

_WRITTEN: Mapping[str, Callable[[Sink, SparkSession, _Options, Any, Any], _Answer]] = {
    "write": _sink_write
}
"""The same for a sink."""


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
        with refusals():
            known = bool(factory.enable(private.java_session(spark), _Function(answers, _ANSWERED)))
        if known:
            enabled.add(spark)
    return known
