"""All private interfaces of PySpark and Py4J that mdt uses. No other module uses them (ruff's
SLF001 and TID251).

PySpark may change them in any release, and a test reports which of them changed. Private classes of
Spark in the JVM, mostly of Catalyst, are used in the ``java`` folder. If a release changed a class,
that folder does not compile and :func:`compile_java` reports it.
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
    """Replace ``vectorized_udf`` of PySpark 4.1, without requiring pandas."""
    return pandas_functions._create_pandas_udf(f, returnType, functionType)  # type: ignore[attr-defined]


vectorized_udf = getattr(pandas_functions, "vectorized_udf", _udf_of_4_0)
_IN_UTC: dict[str, Any] = (
    {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
)
"""PySpark 4.0 and 4.1 have no time zone argument and use UTC."""


spark_type = from_arrow_type


def spark_schema(schema: pa.Schema) -> StructType:
    """Convert an Arrow schema to Spark. Timestamps without a zone become ``timestamp_ntz``."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def utc_arrow_schema(schema: StructType) -> pa.Schema:
    """Convert a Spark schema to Arrow, with timestamps in UTC. Raises PySpark's errors for types
    that Arrow does not have.
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
    """Return Py4J's connection to a context's JVM. It is the same object for the lifetime of the
    JVM.
    """
    return context._gateway


def jvm(spark: SparkSession) -> Any:
    """Return Py4J's view of the classes of a session's JVM."""
    return gateway(spark.sparkContext).jvm


def log(spark: SparkSession, name: str) -> Callable[[str], object]:
    """Return a function that writes a line to the JVM's logger ``name`` at level INFO."""
    logger = jvm(spark).org.slf4j.LoggerFactory.getLogger(name)
    return lambda line: logger.info(line)


def is_stopped(spark: SparkSession) -> bool:
    """Return True if a session, or its context, was stopped."""
    return spark.sparkContext._jsc is None


def is_of_connect(spark: object) -> bool:
    """Return True for a session or DataFrame of Spark Connect, which has no JVM in this process."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def map_in_arrow(frame: DataFrame, function: BatchFunction, schema: StructType | str) -> DataFrame:
    """Return ``frame`` with each partition's record batches passed through ``function``.
    ``schema``: of the result.

    Equivalent to ``DataFrame.mapInArrow``, which requires pandas although it uses no pandas object.
    This builds the same plan from the function beneath it.
    """
    of_batches: Any = vectorized_udf(function, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = of_batches(*(frame[backquoted(name)] for name in frame.columns))
    java = java_frame(frame).mapInArrow(java_column(column), False, None)
    return ClassicDataFrame(java, frame.sparkSession)


def arrow_batches(frame: DataFrame) -> tuple[RDD[bytes], pa.Schema]:
    """Return the rows of a frame as an RDD of record batches without schema, and the schema.
    Shuffles of the frame run now.

    ``DataFrame.toArrow`` collects the same batches on the driver.
    """
    context = frame.sparkSession.sparkContext
    has_large = (
        frame.sparkSession.conf.get("spark.sql.execution.arrow.useLargeVarTypes", "false") == "true"
    )
    arguments: dict[str, Any] = {**_IN_UTC, **({"prefers_large_types": True} if has_large else {})}
    schema = to_arrow_schema(frame.schema, **arguments)
    return RDD(java_frame(frame).toArrowBatchRdd().toJavaRDD(), context, NoOpSerializer()), schema


def collect_batches(frame: DataFrame) -> list[pa.RecordBatch]:
    """Return the rows of a frame as Spark's Arrow batches, with times in the session's zone.

    ``DataFrame.toArrow`` also casts them, which fails in pyarrow for a null struct with a required
    field.
    """
    assert isinstance(frame, ClassicDataFrame), "frames of Spark Connect were refused"
    return frame._collect_as_arrow()


def map_bytes(rows: RDD[T], function: Callable[[Iterable[T]], Iterable[bytes]]) -> RDD[bytes]:
    """Map each partition with ``function``. The result is an RDD of plain bytes in the JVM, without
    pickle's framing.
    """
    mapped: Any = rows.mapPartitions(function)
    mapped._bypass_serializer = True
    return RDD(mapped._jrdd, rows.ctx, NoOpSerializer())


def shuffle_bytes(
    rows: RDD[T], function: Callable[[Iterable[T]], Iterable[tuple[int, bytes]]], parts: int
) -> RDD[bytes]:
    """Map each partition with ``function`` and move each value to the partition given by its number
    modulo ``parts``.

    Equivalent to ``RDD.partitionBy``, which buffers several hundred values in memory.
    """
    numbered = map_bytes(rows, partial(_numbered, function, parts))
    classes = gateway(rows.ctx).jvm
    pairs = classes.PairwiseRDD(numbered._jrdd.rdd()).asJavaPairRDD()
    partitioned = pairs.partitionBy(classes.PythonPartitioner(parts, 0))
    return RDD(classes.PythonRDD.valueOfPair(partitioned), rows.ctx, NoOpSerializer())


def _numbered(
    function: Callable[[Iterable[T]], Iterable[tuple[int, bytes]]], parts: int, rows: Iterable[T]
) -> Iterator[bytes]:
    for number, data in function(rows):
        yield pack_long(number % parts)
        yield data


def map_in_java(rows: RDD[bytes], function: Callable[[Any], Any]) -> RDD[bytes]:
    """Map an RDD of bytes with a ``function`` of the JVM that takes and returns a JavaRDD of
    bytes.
    """
    return RDD(function(rows._jrdd), rows.ctx, NoOpSerializer())


class ReplannedFrame(ClassicDataFrame):
    """A frame that is planned again for every action, and so reads the newest files.

    A Dataset of the JVM keeps its plan, and therefore its files, after it was executed: a second
    ``collect`` would return the same rows. Every use of ``_jdf`` therefore makes a new Dataset (0.5
    ms) from the same analyzed plan, which determines names, columns and Spark's cache. Derived
    frames are ordinary frames and keep their files.
    """

    def __new__(cls, jdf: Any, session: SparkSession, anew: Callable[[Any, Any], Any]) -> Self:
        return object.__new__(cls)

    def __init__(self, jdf: Any, session: SparkSession, anew: Callable[[Any, Any], Any]) -> None:
        """``anew``: makes a Dataset from a session and an analyzed plan, both of the JVM."""
        self._anew = anew
        super().__init__(jdf, session)

    @property
    def analysed(self) -> Any:
        """The analyzed plan, an object of the JVM."""
        return self._plan

    @property
    def _jdf(self) -> Any:
        return self._anew(self._java_session, self._plan)

    @_jdf.setter
    def _jdf(self, jdf: Any) -> None:
        self._plan = jdf.queryExecution().analyzed()
        self._java_session = jdf.sparkSession()


def collect_garbage(spark: SparkSession) -> None:
    """Run the JVM's garbage collector, for tests that wait for it."""
    jvm(spark).System.gc()


def frame_of_java(java: Any) -> DataFrame:
    """Return the frame of a Dataset of the JVM, in its own session."""
    return ClassicDataFrame(java, session_of_java(java.sparkSession()))


def frame_in(spark: SparkSession, java: Any) -> DataFrame:
    """Return the frame of a Dataset of the JVM, whose session is ``spark``."""
    return ClassicDataFrame(java, spark)


def java_error(error: Exception) -> Any | None:
    """Return the JVM's exception behind a PySpark error, or None if it has another cause."""
    if isinstance(error, Py4JJavaError):
        return error.java_exception
    return getattr(error, "_origin", None)


def on_java_errors(restore: Callable[[str], Exception | None]) -> None:
    """Make PySpark raise ``made(text)`` for an error of the JVM, unless it is None. The text
    includes the causes.

    PySpark converts JVM errors with a function that cannot be extended. It is replaced, once per
    process.
    """
    convert = captured.convert_exception
    if getattr(convert, "is_of_mdt", False):
        return

    def convert_exception(e: Any) -> Any:
        error = None if e is None else restore(_whole_text(e))
        if error is None:
            return convert(e)
        return error

    convert_exception.is_of_mdt = True  # type: ignore[attr-defined]
    captured.convert_exception = convert_exception


def _whole_text(error: Any) -> str:
    """Return the message of a JVM error with its stack trace and causes."""
    context = SparkContext._active_spark_context
    if context is None:
        return ""
    return str(gateway(context).jvm.org.apache.spark.util.Utils.exceptionString(error))


def session_of_java(java: Any) -> SparkSession:
    """Return the Python session of a JVM session."""
    context = SparkContext._active_spark_context
    assert context is not None, "a session has a context"
    return SparkSession(context, java)


def platform(context: SparkContext) -> str:
    """Return a text that identifies, with the sources, the result of :func:`compile_java`: the
    versions of Spark and Java, and the names of all JARs of Spark.

    Empty if Spark's classes are not on Java's class path, so that their names are unknown.
    """
    classes = gateway(context).jvm
    if not _loader_of_spark(classes).equals(classes.java.lang.ClassLoader.getSystemClassLoader()):
        return ""
    built = classes.org.apache.spark.SparkBuildInfo
    versions = [
        pyspark.__version__,
        context.version,
        built.spark_revision(),
        built.spark_build_date(),
    ]
    names = ("java.vendor", "java.version", "java.vm.version", "java.class.path")
    return "\n".join(
        [*versions, *(str(classes.java.lang.System.getProperty(name)) for name in names)]
    )


def _loader_of_spark(classes: Any) -> Any:
    """Return the JVM's class loader that has Spark's classes but not an application's classes."""
    loader = classes.java.lang.Thread.currentThread().getContextClassLoader()
    return classes.java.lang.Class.forName(
        "org.apache.spark.SparkContext", False, loader
    ).getClassLoader()


def load_jar(context: SparkContext, jar: bytes, first: bytes) -> Any:
    """Load a JAR of mdt's classes into the JVM, enable calls to Python, and return the JAR's
    ``Factory``. ``first``: its class ``mdt.spark.Jar``.

    The Java half checks the internals of Spark that it uses. Raises Unsupported with the name of a
    missing class.
    """
    connection = gateway(context)
    ensure_callback_server_started(connection)
    classes = connection.jvm
    files = classes.java.util.HashMap()
    files.put("mdt/spark/Jar.class", first)
    try:
        maker = (
            _loader_of(classes, files, _loader_of_spark(classes))
            .loadClass("mdt.spark.Jar")
            .newInstance()
        )
        return classes.java.util.Optional.of(jar).map(maker).get()
    except Py4JError as error:  # includes Java errors that are not exceptions
        reason = error.java_exception if isinstance(error, Py4JJavaError) else error
        raise Unsupported(f"pyspark {pyspark.__version__} is not supported: {reason}") from error


def _loader_of(classes: Any, class_files: Any, parent: Any) -> Any:
    """Return a JVM class loader for ``class_files``, a map from class file name to bytes."""
    util = classes.org.codehaus.commons.compiler.util
    return util.ResourceFinderClassLoader(util.resource.MapResourceFinder(class_files), parent)


def compile_java(context: SparkContext, sources: Mapping[str, str]) -> tuple[Any, Any]:
    """Compile Java ``sources`` (file name -> text) in the JVM.

    Returns two objects of the JVM: a class loader with the classes, and a map from class file name
    to bytes.

    The sources are compiled together by Spark's own compiler for generated code (Janino, about 3
    CPU seconds in a new JVM). They can use the classes of Spark and of each other, but not an
    application's classes. Raises Unsupported if they do not compile with this release of Spark.
    """
    connection = gateway(context)
    classes = connection.jvm
    resources = classes.org.codehaus.commons.compiler.util.resource
    parent = _loader_of_spark(classes)
    files = connection.new_array(resources.Resource, len(sources))
    for number, (name, text) in enumerate(sources.items()):
        files[number] = resources.StringResource(name, text)
    class_files = classes.java.util.HashMap()
    compiler = classes.org.codehaus.janino.Compiler()
    compiler.setIClassLoader(classes.org.codehaus.janino.ClassLoaderIClassLoader(parent))
    compiler.setClassFileCreator(resources.MapResourceCreator(class_files))
    compiler.setDebugLines(True)
    compiler.setDebugSource(True)
    try:
        compiler.compile(files)
    except Py4JJavaError as error:
        reason = error.java_exception.getMessage()
        raise Unsupported(f"pyspark {pyspark.__version__} is not supported: {reason}") from error
    return _loader_of(classes, class_files, parent), class_files
