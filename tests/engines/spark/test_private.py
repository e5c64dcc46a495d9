"""What mdt touches of PySpark that is not public is still there; a failure says which name of which
release changed.
"""

import inspect
import re
from importlib.util import find_spec

import pytest
from py4j.protocol import Py4JJavaError
from pyspark import RDD
from pyspark import __version__ as release
from pyspark.errors.exceptions import captured
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import functions as sf
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type
from pyspark.util import PythonEvalType

from mdt.engines.spark import private
from mdt.engines.spark.java_half import java_sources
from mdt.errors import Unsupported

PARAMETERS = {
    "pyspark.java_gateway.ensure_callback_server_started": (
        ensure_callback_server_started,
        ("gw",),
    ),
    "pyspark.RDD": (RDD.__init__, ("self", "jrdd", "ctx", "jrdd_deserializer")),
    "pyspark.errors.exceptions.captured.convert_exception": (captured.convert_exception, ("e",)),
    "pyspark.sql.classic.dataframe.DataFrame": (
        ClassicDataFrame.__init__,
        ("self", "jdf", "sql_ctx"),
    ),
    "pyspark.sql.classic.dataframe.DataFrame._collect_as_arrow": (
        ClassicDataFrame._collect_as_arrow,
        ("self", "split_batches", "empty_list_if_zero_records"),
    ),
    "pyspark.sql.pandas.functions.vectorized_udf": (
        private.vectorized_udf,
        ("f", "returnType", "functionType", "kind"),
    ),
    "pyspark.sql.pandas.types.from_arrow_schema": (
        from_arrow_schema,
        ("arrow_schema", "prefer_timestamp_ntz"),
    ),
    "pyspark.sql.pandas.types.from_arrow_type": (from_arrow_type, ("at", "prefer_timestamp_ntz")),
}
"""Functions that mdt calls, by their full names, with the parameters that they take."""

METHODS_OF_DATASET = {"mapInArrow": 3, "queryExecution": 0, "sparkSession": 0, "toArrowBatchRdd": 0}
"""Methods of the JVM's Dataset that are called from Python, with the number of their parameters."""

IMPORT = re.compile(r"^import ([\w.$]+);", re.MULTILINE)


def java_imports():
    """Return the classes that the Java half imports, but for Java's own, each with the first file
    that does.
    """
    found = {}
    for file, text in sorted(java_sources().items()):
        for name in IMPORT.findall(text):
            if not name.startswith("java."):
                found.setdefault(name, file)
    return found


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_private_function_of_python_takes_what_it_took(name):
    function, expected = PARAMETERS[name]
    found = tuple(inspect.signature(function).parameters)
    assert found[: len(expected)] == expected, f"pyspark {release}: {name} takes {found}"


def test_the_kind_of_function_over_record_batches_is_there():
    assert hasattr(PythonEvalType, "SQL_MAP_ARROW_ITER_UDF"), f"pyspark {release}: PythonEvalType"


@pytest.mark.parametrize(
    ("name", "get"),
    [
        ("DataFrame._jdf", lambda spark: private.java_frame(spark.range(1))),
        ("Column._jc", lambda spark: private.java_column(sf.lit(1))),
        ("SparkSession._jsparkSession", private.java_session),
        ("SparkContext._gateway", lambda spark: private.gateway(spark.sparkContext)),
        ("SparkContext._gateway.jvm", private.jvm),
    ],
)
def test_a_private_attribute_of_python_is_there(spark, name, get):
    try:
        assert get(spark) is not None
    except AttributeError as error:
        pytest.fail(f"pyspark {release}: {name}: {error}")


def test_a_session_knows_whether_it_runs_here(spark):
    assert not private.is_stopped(spark), (
        f"pyspark {release}: SparkContext._jsc is None although the session runs"
    )
    assert not private.is_of_connect(spark)
    assert find_spec("pyspark.sql.connect"), (
        f"pyspark {release}: the package of Spark Connect has moved"
    )


@pytest.mark.parametrize("name", METHODS_OF_DATASET)
def test_a_method_of_the_dataset_takes_what_it_took(spark, name):
    methods = private.java_frame(spark.range(1)).getClass().getMethods()
    counts = {len(m.getParameterTypes()) for m in methods if m.getName() == name}
    assert METHODS_OF_DATASET[name] in counts, (
        f"Spark {release}: Dataset.{name} takes {sorted(counts)} values"
    )


def test_every_class_that_the_java_half_imports_is_there(spark):
    loader = private.jvm(spark).java.lang.Thread.currentThread().getContextClassLoader()
    names, missing = java_imports(), []
    for name, file in names.items():
        try:
            loader.loadClass(name)
        except Py4JJavaError:
            missing.append(f"{name} ({file})")
    assert len(names) > 40
    assert not missing, f"Spark {release} has no {', '.join(missing)}"


def test_java_that_does_not_fit_the_release_is_named_with_file_and_line(
    spark,
):
    text = "// x\npackage mdt.spark;\nfinal class A {\n    Object a = new B().gone();\n}\n"
    with pytest.raises(
        Unsupported, match=rf"pyspark {release} is not supported: .*A\.java.*Line 4.*gone"
    ):
        private.compile_java(
            spark.sparkContext, {"B.java": "package mdt.spark; final class B {}", "A.java": text}
        )


def test_classes_of_several_files_are_of_one_package_and_loader(spark):
    one = "package mdt.spark; public class One { public String told() { return new Two().text; } }"
    two = 'package mdt.spark; final class Two { final String text = "of Two"; }'
    loader, _ = private.compile_java(spark.sparkContext, {"One.java": one, "Two.java": two})
    assert loader.loadClass("mdt.spark.One").newInstance().told() == "of Two"


def test_where_spark_comes_from_elsewhere_than_the_class_path_no_platform_is_said(
    spark, monkeypatch
):
    assert private.platform(spark.sparkContext)
    elsewhere = private.jvm(spark).java.lang.ClassLoader.getSystemClassLoader().getParent()
    monkeypatch.setattr(private, "_loader_of_spark", lambda classes: elsewhere)
    assert private.platform(spark.sparkContext) == ""
