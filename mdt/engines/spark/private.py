"""Everything of PySpark and Py4J that is not public and that mdt touches; no other module does
(ruff's SLF001 and TID251).

PySpark promises nothing of these from one release to the next: a test tells which of them a release
changed.  What is touched of Spark in the JVM, classes of Catalyst above all, stands in the ``java``
folder; a class that a release changed does not compile there, and :func:`compiled` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from inspect import signature
from typing import Any, Self, TypeVar

import pyarrow as pa
import pyspark
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import RDD, SparkContext
from pyspark.errors.exceptions import captured
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.serializers import NoOpSerializer, pack_long
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.pandas import functions as pandas_functions
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructType
from pyspark.util import PythonEvalType

from mdt.arguments import backquoted
from mdt.errors import Unsupported

T = TypeVar("T")

BatchFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def _udf_of_4_0(f: Any, returnType: Any, functionType: int, kind: str = "pandas") -> Any:
    """Do what ``vectorized_udf`` does from PySpark 4.1 on, without asking for pandas."""
    return pandas_functions._create_pandas_udf(f, returnType, functionType)  # type: ignore[attr-defined]


vectorized_udf = getattr(pandas_functions, "vectorized_udf", _udf_of_4_0)
_IN_UTC: dict[str, Any] = (
    {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
)
"""PySpark 4.0 and 4.1 take no time zone; theirs is UTC."""


spark_type = from_arrow_type


def spark_schema(schema: pa.Schema) -> StructType:
    """Return a schema of Arrow as Spark has it; times without a zone are ``timestamp_ntz``."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def utc_arrow_schema(schema: StructType) -> pa.Schema:
    """Return a schema of Spark as Arrow has it, timestamps in UTC.  Raises what PySpark raises for
    types that Arrow lacks.
    """
    return to_arrow_schema(schema, **_IN_UTC)


def java_frame(frame: DataFrame) -> Any:
    """Return the JVM's Dataset of a frame."""
    return frame._jdf


def java_column(column: Column) -> Any:
    """Return the JVM's Column of a column."""
    return column._jc


def java_session(spark: SparkSession) -> Any:
    """Return the JVM's SparkSession."""
    return spark._jsparkSession


def gateway(context: SparkContext) -> Any:
    """Return Py4J's connection to the JVM of a context, the same object as long as the JVM
    lives.
    """
    return context._gateway


def jvm(spark: SparkSession) -> Any:
    """Return Py4J's view of the classes of a session's JVM."""
    return gateway(spark.sparkContext).jvm


def log(spark: SparkSession, name: str) -> Callable[[str], object]:
    """Return what writes a line to the log of a session's JVM, level INFO, by the logger
    ``name``.
    """
    logger = jvm(spark).org.slf4j.LoggerFactory.getLogger(name)
    return lambda line: logger.info(line)


def is_stopped(spark: SparkSession) -> bool:
    """Return whether a session, or its context, was stopped."""
    return spark.sparkContext._jsc is None


def is_of_connect(spark: object) -> bool:
    """Return whether a session, or a DataFrame, is one of Spark Connect, which has no JVM in this
    process.
    """
    return type(spark).__module__.startswith("pyspark.sql.connect")


def map_in_arrow(frame: DataFrame, function: BatchFunction, schema: StructType | str) -> DataFrame:
    """Return ``frame`` with each partition's record batches passed through ``function``;
    ``schema``: of the result.

    It is ``DataFrame.mapInArrow``, which asks for an installed pandas although no pandas object
    occurs on the way; this builds the same plan from the function below it.
    """
    of_batches: Any = vectorized_udf(function, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = of_batches(*(frame[backquoted(name)] for name in frame.columns))
    java = java_frame(frame).mapInArrow(java_column(column), False, None)
    return ClassicDataFrame(java, frame.sparkSession)


def arrow_batches(frame: DataFrame) -> tuple[RDD[bytes], pa.Schema]:
    """Return the rows of a frame as an RDD of record batches without their schema, and that.  Where
    rows are shuffled, Spark does that now.

    It is what ``DataFrame.toArrow`` brings to the driver.
    """
    context = frame.sparkSession.sparkContext
    has_large = (
        frame.sparkSession.conf.get("spark.sql.execution.arrow.useLargeVarTypes", "false") == "true"
    )
    wanted: dict[str, Any] = {**_IN_UTC, **({"prefers_large_types": True} if has_large else {})}
    schema = to_arrow_schema(frame.schema, **wanted)
    return RDD(java_frame(frame).toArrowBatchRdd().toJavaRDD(), context, NoOpSerializer()), schema


def collected_batches(frame: DataFrame) -> list[pa.RecordBatch]:
    """Return the rows of a frame as Spark makes Arrow of them, times in the session's zone.

    ``DataFrame.toArrow`` casts them, which pyarrow refuses where a struct is null that has a
    required field.
    """
    assert isinstance(frame, ClassicDataFrame), "frames of Spark Connect were refused"
    return frame._collect_as_arrow()


def mapped_bytes(rows: RDD[T], function: Callable[[Iterable[T]], Iterable[bytes]]) -> RDD[bytes]:
    """Return what ``function`` makes of each partition: bytes in the JVM, too, where what Python
    pickles has a form of its own.
    """
    mapped: Any = rows.mapPartitions(function)
    mapped._bypass_serializer = True
    return RDD(mapped._jrdd, rows.ctx, NoOpSerializer())


def dealt_bytes(
    rows: RDD[T], function: Callable[[Iterable[T]], Iterable[tuple[int, bytes]]], parts: int
) -> RDD[bytes]:
    """Return what ``function`` makes of each partition, each value in that of ``parts`` partitions
    which its number has, modulo ``parts``.

    It is ``RDD.partitionBy``, which holds some hundred values in memory before it lets them go.
    """
    numbered = mapped_bytes(rows, partial(_numbered, function, parts))
    classes = gateway(rows.ctx).jvm
    pairs = classes.PairwiseRDD(numbered._jrdd.rdd()).asJavaPairRDD()
    dealt = pairs.partitionBy(classes.PythonPartitioner(parts, 0))
    return RDD(classes.PythonRDD.valueOfPair(dealt), rows.ctx, NoOpSerializer())


def _numbered(
    function: Callable[[Iterable[T]], Iterable[tuple[int, bytes]]], parts: int, rows: Iterable[T]
) -> Iterator[bytes]:
    for number, data in function(rows):
        yield pack_long(number % parts)
        yield data


def of_java(rows: RDD[bytes], function: Callable[[Any], Any]) -> RDD[bytes]:
    """Return what ``function`` of the JVM makes of an RDD of bytes, a JavaRDD of bytes."""
    return RDD(function(rows._jrdd), rows.ctx, NoOpSerializer())


class PlannedAnew(ClassicDataFrame):
    """A frame whose every action is planned anew, and so sees the newest files.

    A Dataset of the JVM keeps its plan, and so its files, once it was executed: ``collect`` twice
    would return the same rows for ever.  So every use of ``_jdf`` makes a new Dataset (0.5 ms) from
    the same analysed plan; names, columns and Spark's cache go by that plan.  Frames derived from
    this one are ordinary and keep what they have read.
    """

    def __new__(cls, jdf: Any, session: SparkSession, anew: Callable[[Any, Any], Any]) -> Self:
        return object.__new__(cls)

    def __init__(self, jdf: Any, session: SparkSession, anew: Callable[[Any, Any], Any]) -> None:
        """``anew``: makes a Dataset from a session and an analysed plan, both of the JVM."""
        self._anew = anew
        super().__init__(jdf, session)

    @property
    def analysed(self) -> Any:
        """The analysed plan, an object of the JVM."""
        return self._plan

    @property
    def _jdf(self) -> Any:
        return self._anew(self._java_session, self._plan)

    @_jdf.setter
    def _jdf(self, jdf: Any) -> None:
        self._plan = jdf.queryExecution().analyzed()
        self._java_session = jdf.sparkSession()


def collect_garbage(spark: SparkSession) -> None:
    """Let the JVM collect what it no longer needs, the sooner for the tests that wait for it."""
    jvm(spark).System.gc()


def frame_of_java(java: Any) -> DataFrame:
    """Return a Dataset of the JVM as a frame of its session."""
    return ClassicDataFrame(java, session_of_java(java.sparkSession()))


def frame_in(spark: SparkSession, java: Any) -> DataFrame:
    """Return a Dataset of the JVM as a frame of ``spark``, of which it is."""
    return ClassicDataFrame(java, spark)


def java_error(error: Exception) -> Any | None:
    """Return the JVM's exception behind one of PySpark's, None if it came from elsewhere."""
    if isinstance(error, Py4JJavaError):
        return error.java_exception
    return getattr(error, "_origin", None)


def on_java_errors(made: Callable[[str], Exception | None]) -> None:
    """Let PySpark raise what ``made`` makes of the text of an error of the JVM, with the errors
    behind it, if it makes something.

    PySpark asks one function which of its own errors stands for an error of the JVM, and has no
    place for those of others: it is replaced, once.
    """
    known = captured.convert_exception
    if getattr(known, "is_of_mdt", False):
        return

    def convert_exception(e: Any) -> Any:
        found = None if e is None else made(_whole_text(e))
        if found is None:
            return known(e)
        return found

    convert_exception.is_of_mdt = True  # type: ignore[attr-defined]
    captured.convert_exception = convert_exception


def _whole_text(error: Any) -> str:
    """Return what an error of the JVM says, with its trace and the errors that have caused it."""
    context = SparkContext._active_spark_context
    if context is None:
        return ""
    return str(gateway(context).jvm.org.apache.spark.util.Utils.exceptionString(error))


def session_of_java(java: Any) -> SparkSession:
    """Return a session of the JVM, as Python has it."""
    context = SparkContext._active_spark_context
    assert context is not None, "a session has a context"
    return SparkSession(context, java)


def platform(context: SparkContext) -> str:
    """Return what decides, beside a source, what :func:`compiled` makes of it: versions of Spark
    and Java, and all JARs of Spark by their names.

    Empty where these do not say enough, since Spark's classes come from elsewhere than Java's class
    path.
    """
    classes = gateway(context).jvm
    if not _loader_of_spark(classes).equals(classes.java.lang.ClassLoader.getSystemClassLoader()):
        return ""
    built = classes.org.apache.spark.SparkBuildInfo
    said = [pyspark.__version__, context.version, built.spark_revision(), built.spark_build_date()]
    names = ("java.vendor", "java.version", "java.vm.version", "java.class.path")
    return "\n".join([*said, *(str(classes.java.lang.System.getProperty(name)) for name in names)])


def _loader_of_spark(classes: Any) -> Any:
    """Return the class loader of the JVM that has Spark's classes, and none that an application
    added.
    """
    here = classes.java.lang.Thread.currentThread().getContextClassLoader()
    return classes.java.lang.Class.forName(
        "org.apache.spark.SparkContext", False, here
    ).getClassLoader()


def loaded(context: SparkContext, jar: bytes, first: bytes) -> Any:
    """Give the JVM a JAR of its own classes, make it able to call Python, and return the JAR's
    ``Factory``; ``first``: its class ``mdt.spark.Jar``.

    The Java half looks for what it touches of Spark's insides.  Raises Unsupported, with the name
    of what this release lacks.
    """
    connection = gateway(context)
    ensure_callback_server_started(connection)
    classes = connection.jvm
    made = classes.java.util.HashMap()
    made.put("mdt/spark/Jar.class", first)
    try:
        maker = (
            _loader_of(classes, made, _loader_of_spark(classes))
            .loadClass("mdt.spark.Jar")
            .newInstance()
        )
        return classes.java.util.Optional.of(jar).map(maker).get()
    except Py4JError as error:  # also an error of Java that is no exception
        reason = error.java_exception if isinstance(error, Py4JJavaError) else error
        raise Unsupported(f"pyspark {pyspark.__version__} is not supported: {reason}") from error


def _loader_of(classes: Any, made: Any, parent: Any) -> Any:
    """Return a class loader of the JVM with the classes ``made``, a map from the name of each class
    file to its bytes.
    """
    util = classes.org.codehaus.commons.compiler.util
    return util.ResourceFinderClassLoader(util.resource.MapResourceFinder(made), parent)


def compiled(context: SparkContext, sources: Mapping[str, str]) -> tuple[Any, Any]:
    """Compile Java ``sources``, file names to texts, in the JVM.

    Returns two objects of the JVM: a class loader with the classes, and a map from the name of each
    class file to its bytes.

    They are compiled together, by the compiler that Spark generates its own code with (Janino, some
    3 CPU seconds in a new JVM), and see the classes of Spark and of each other, not those of an
    application.  Raises Unsupported where they do not fit this release of Spark.
    """
    connection = gateway(context)
    classes = connection.jvm
    resources = classes.org.codehaus.commons.compiler.util.resource
    parent = _loader_of_spark(classes)
    files = connection.new_array(resources.Resource, len(sources))
    for number, (name, text) in enumerate(sources.items()):
        files[number] = resources.StringResource(name, text)
    made = classes.java.util.HashMap()
    compiler = classes.org.codehaus.janino.Compiler()
    compiler.setIClassLoader(classes.org.codehaus.janino.ClassLoaderIClassLoader(parent))
    compiler.setClassFileCreator(resources.MapResourceCreator(made))
    compiler.setDebugLines(True)
    compiler.setDebugSource(True)
    try:
        compiler.compile(files)
    except Py4JJavaError as error:
        reason = error.java_exception.getMessage()
        raise Unsupported(f"pyspark {pyspark.__version__} is not supported: {reason}") from error
    return _loader_of(classes, made, parent), made
