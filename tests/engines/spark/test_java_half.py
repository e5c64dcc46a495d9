"""The Java half is compiled once for each user. The cached JAR is used, but only after
verification.
"""

import os
from io import BytesIO
from zipfile import ZipFile

import pytest

from mdt.engines.spark import java_half, private


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The cache folder of a user without compiled classes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "mdt" / "jars-1"


@pytest.fixture
def compiled(monkeypatch):
    """The number of sources of each compilation."""
    times = []
    real = private.compile_java

    def compile_and_count(context, sources):
        times.append(len(sources))
        return real(context, sources)

    monkeypatch.setattr(private, "compile_java", compile_and_count)
    return times


def test_the_second_jvm_of_a_user_uses_the_cached_jar(spark, folder, compiled):
    first = java_half._create_factory(spark.sparkContext)
    assert len(compiled) == 1
    (file,) = folder.iterdir()
    second = java_half._create_factory(spark.sparkContext)
    assert len(compiled) == 1
    assert first.getClass().equals(second.getClass())
    assert list(folder.iterdir()) == [file]


def archive(**files):
    """Return a JAR of files. "_" in their names stands for "/"."""
    data = BytesIO()
    with ZipFile(data, "w") as jar:
        for name, content in files.items():
            jar.writestr(name.replace("_", "/") + ".class", content)
    return data.getvalue()


@pytest.mark.parametrize(
    "foreign",
    [
        b"",
        b"no archive",
        archive(),
        archive(mdt_spark_Jar=b""),
        archive(mdt_spark_Jar=b"\xca\xfe\xba\xbe no class"),
    ],
    ids=["nothing", "text", "empty", "an empty class", "no class"],
)
def test_a_jar_without_usable_classes_is_compiled_again(spark, folder, compiled, foreign):
    sources = java_half.java_sources()
    name = java_half.jar_name(sources, private.platform(spark.sparkContext))
    java_half.JAR_CACHE.put(name, foreign)
    assert java_half.JAR_CACHE.get(name) == foreign, "its digest matches"
    assert java_half._create_factory(spark.sparkContext).getClass().getName() == "mdt.spark.Factory"
    assert compiled == [len(sources)]
    cached = java_half.JAR_CACHE.get(name)
    assert cached is not None
    assert "mdt/spark/Factory.class" in ZipFile(BytesIO(cached)).namelist()


def test_a_damaged_jar_is_compiled_again(spark, folder, compiled):
    java_half._create_factory(spark.sparkContext)
    (file,) = folder.iterdir()
    original = file.read_bytes()
    file.write_bytes(original[: len(original) // 2])
    java_half._create_factory(spark.sparkContext)
    assert len(compiled) == 2
    assert file.read_bytes() == original, "equal classes make equal bytes"


def test_without_a_cache_directory_the_java_half_is_compiled_each_time(
    spark, compiled, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    for _ in range(2):
        java_half._create_factory(spark.sparkContext)
    assert len(compiled) == 2


def test_nothing_is_cached_if_spark_is_not_on_the_class_path(spark, folder, compiled, monkeypatch):
    monkeypatch.setattr(private, "platform", lambda context: "")
    java_half._create_factory(spark.sparkContext)
    assert not folder.exists()


def test_a_platform_names_the_release_and_every_jar_of_spark(spark):
    platform = private.platform(spark.sparkContext)
    assert spark.version in platform.split("\n")
    for name in ("spark-catalyst_", "parquet-hadoop-", "janino-"):
        assert name in platform
    assert "JavaPackage" not in platform
    assert "\nNone" not in platform


def changed_text(sources):
    return sources | {"Jar.java": sources["Jar.java"] + " "}


def other_file(sources):
    return sources | {"Other.java": ""}


def moved_text(sources):
    """Return sources with the same total text in the same order, but split differently between two
    files.
    """
    first, second = sorted(sources)[:2]
    return sources | {first: sources[first] + second, second: ""}


@pytest.mark.parametrize("change", [changed_text, other_file, moved_text])
def test_the_jar_name_depends_on_the_sources_and_the_platform(
    change,
):
    sources = java_half.java_sources()
    assert java_half.jar_name(change(sources), "4.3") != java_half.jar_name(sources, "4.3")
    assert java_half.jar_name(sources, "4.2") != java_half.jar_name(sources, "4.3")
    assert java_half.jar_name(dict(reversed(sources.items())), "4.3") == java_half.jar_name(
        sources, "4.3"
    )
