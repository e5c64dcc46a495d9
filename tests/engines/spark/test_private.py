"""The functions of PySpark that compile and run the Java half work in this release."""

from importlib.util import find_spec

import pytest
from pyspark import __version__ as release

from mdt.engines.spark import private
from mdt.errors import Unsupported


def test_a_running_classic_session_is_recognised(spark):
    assert not private.is_stopped(spark), (
        f"pyspark {release}: SparkContext._jsc is None although the session runs"
    )
    assert not private.is_of_connect(spark)
    assert find_spec("pyspark.sql.connect"), (
        f"pyspark {release}: the package of Spark Connect has moved"
    )


def test_java_that_does_not_compile_is_reported_with_file_and_line(
    spark,
):
    text = "// x\npackage mdt.spark;\nfinal class A {\n    Object a = new B().gone();\n}\n"
    with pytest.raises(
        Unsupported, match=rf"pyspark {release} is not supported: .*A\.java.*Line 4.*gone"
    ):
        private.compile_java(
            spark.sparkContext, {"B.java": "package mdt.spark; final class B {}", "A.java": text}
        )


def test_classes_of_several_files_share_a_package_and_a_class_loader(spark):
    first_source = (
        "package mdt.spark; public class One { public String told() { return new Two().text; } }"
    )
    second_source = 'package mdt.spark; final class Two { final String text = "of Two"; }'
    loader, _ = private.compile_java(
        spark.sparkContext, {"One.java": first_source, "Two.java": second_source}
    )
    assert loader.loadClass("mdt.spark.One").newInstance().told() == "of Two"


def test_the_platform_is_empty_if_spark_is_not_on_the_class_path(spark, monkeypatch):
    assert private.platform(spark.sparkContext)
    other_loader = private.jvm(spark).java.lang.ClassLoader.getSystemClassLoader().getParent()
    monkeypatch.setattr(private, "_loader_of_spark", lambda classes: other_loader)
    assert private.platform(spark.sparkContext) == ""
