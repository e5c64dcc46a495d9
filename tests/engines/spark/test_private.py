"""The functions of PySpark that compile and run the Java half work in this release."""

from importlib.util import find_spec

import pytest
from pyspark import __version__ as release

from mdt.engines.spark import private
from mdt.errors import Unsupported


def test_a_session_knows_whether_it_runs_here(spark):
    assert not private.is_stopped(spark), (
        f"pyspark {release}: SparkContext._jsc is None although the session runs"
    )
    assert not private.is_of_connect(spark)
    assert find_spec("pyspark.sql.connect"), (
        f"pyspark {release}: the package of Spark Connect has moved"
    )


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
