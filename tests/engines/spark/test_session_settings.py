"""``spark.mdt.*`` of a session: indexes of new tables, options, packages of executors, indexes
built in the background, plans in the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import mdt
import mdt.spark
from mdt.engines.spark import packages
from mdt.engines.spark.private import jvm
from mdt.errors import Invalid
from mdt.metadata.statistics import usage
from mdt.source.settings import PREFIX, known, parse

ROWS = pa.table({"id": ["a", "b", "c"], "city": ["Oslo", "Rome", "Oslo"], "fare": [1.5, 2.5, 3.5]})


@pytest.fixture
def named(spark: SparkSession) -> Iterator[SparkSession]:
    """A session that knows the format, and says nothing of mdt before and after."""
    mdt.spark.enable(spark)
    spark.sql("drop table if exists set_trips")
    yield spark
    for name in spark.conf.getAll:
        if name.startswith(PREFIX):
            spark.conf.unset(name)


def save(rows: DataFrame, path: Path, mode: str = "append", **options: str) -> mdt.Table:
    rows.write.format("mdt").mode(mode).options(**options).save(str(path))
    return mdt.open(path)


def test_new_tables_are_what_the_session_says_and_those_that_are_there_keep_what_they_are(
    named: SparkSession, tmp_path: Path
) -> None:
    rows = named.createDataFrame(ROWS)
    plain = save(rows, tmp_path / "plain", key="id")
    for name, text in {
        "indexes": "bitmap(city);bloom(city)",
        "table_type": "mor",
        "key_index": "record",
        "scope": "table",
        "hive.style": "false",
        "compression": "zstd",
    }.items():
        named.sql(
            f"set spark.mdt.{name}={text}"
            if ";" not in text
            else f"set `spark.mdt.{name}`=`{text}`"
        )
    made = save(rows, tmp_path / "made", key="id", partition_by="city").definition
    assert (made.table_type, made.key_index, made.is_global, made.hive_style) == (
        "MERGE_ON_READ",
        "record",
        True,
        False,
    )
    assert len(made.indexes) == 2
    named.sql(
        "create table set_trips using mdt options (key 'id', indexes 'bloom(id)') location"
        f" '{tmp_path}/s' as select 'a' id"
    )
    assert [index.partition("(")[2] for index in mdt.open(tmp_path / "s").definition.indexes] == [
        "id)"
    ]
    bare = save(rows, tmp_path / "bare", key="id", indexes="").definition
    assert bare.indexes == () and bare.key_index == "record"
    hudis = {
        "hoodie.index.type": "BLOOM",
        "hoodie.datasource.write.hive_style_partitioning": "true",
    }
    told = save(rows, tmp_path / "told", key="id", partition_by="city", **hudis).definition
    assert (told.key_index, told.is_global, told.hive_style) == ("bloom", False, True)
    assert save(rows, tmp_path / "plain").definition == plain.definition
    assert sorted(row["id"] for row in mdt.read(named, str(tmp_path / "plain")).collect()) == [
        "a",
        "b",
        "c",
    ]


def test_commits_carry_the_metadata_of_the_session_and_of_the_write(
    named: SparkSession, tmp_path: Path
) -> None:
    rows = named.createDataFrame(ROWS)
    named.conf.set("spark.mdt.commit.metadata.run", "nightly")
    table = save(rows, tmp_path / "t", key="id", **{"commit.metadata.step": "load"})
    named.sql(f"create table set_trips using mdt location '{tmp_path / 't'}'")
    named.sql("delete from set_trips where id = 'a'").collect()
    named.conf.unset("spark.mdt.commit.metadata.run")
    named.sql("delete from set_trips where id = 'b'").collect()
    told = [None if one is None else dict(one) for one in table.history()["metadata"].to_pylist()]
    assert told == [{"run": "nightly", "step": "load"}] * 2 + [{"run": "nightly"}, None]
    with pytest.raises(PySparkException, match="Hudi or mdt uses"):
        save(rows, tmp_path / "t", **{"commit.metadata.schema": "x"})


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        (
            "spark.mdt.index",
            "bitmap(city)",
            "unknown setting 'spark.mdt.index'.*did you mean spark.mdt.index",
        ),
        ("spark.mdt.page.bytes", "many", "page.bytes = 'many' is not possible"),
        ("spark.mdt.explain", "loud", "one of off, log, metrics"),
        ("spark.mdt.affinity", "perhaps", "one of auto, on, off"),
        (
            "spark.mdt.footers.bytes",
            "many",
            "spark.mdt.footers.bytes = 'many' is not possible",
        ),
        ("spark.mdt.vectors.bytes", "-1", "spark.mdt.vectors.bytes = '-1' is not possible"),
        ("spark.mdt.indexes.auto", "perhaps", "true or false"),
        (
            "spark.mdt.indexes.packages",
            "pandas_of_mars",
            "the package 'pandas_of_mars' is not installed",
        ),
        ("spark.mdt.indexes.packages", "numpy", "the package 'numpy' announces no index"),
    ],
)
def test_settings_that_mean_nothing_are_refused_before_anything_is_written(
    named: SparkSession, tmp_path: Path, name: str, text: str, reason: str
) -> None:
    named.conf.set(name, text)
    with pytest.raises(PySparkException, match=f"(?s){reason}"):
        save(named.createDataFrame(ROWS), tmp_path / "t", key="id")
    assert not (tmp_path / "t").exists()
    with pytest.raises(Invalid, match=f"(?s){reason}"):
        mdt.read(named, str(tmp_path / "t"))


def test_every_option_is_a_setting_and_no_word_is_one_twice() -> None:
    assert len(set(known())) == len(known()) > 40
    found = parse(
        {
            f"spark.mdt.{name}": "3"
            for name in ("write.memory.max", "bucket.count", "metadata.compact.records")
        }
    )
    assert found.made == {"mdt.bucket.count": "3"} and len(found.options) == 2


def test_the_executors_are_asked_for_packages_with_indexes_and_must_have_the_drivers_version(
    named: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named.conf.set("spark.mdt.indexes.packages", "example-index")
    save(named.createDataFrame(ROWS), tmp_path / "t", key="id", indexes="length(city)")
    monkeypatch.setattr(packages, "_loaded", lambda name: "7.0")
    named.conf.set("spark.mdt.indexes.packages", "example-index, example_index")
    with pytest.raises(
        PySparkException, match="an executor on .* has 'example-index' .*, the driver 7.0"
    ):
        save(named.createDataFrame(ROWS), tmp_path / "t")


def test_what_indexes_do_not_cover_is_built_in_the_background_of_a_job(
    named: SparkSession, tmp_path: Path
) -> None:
    rows = named.createDataFrame(ROWS)
    some = rows.where("city = 'Rome'")
    table = save(rows, tmp_path / "t", key="id", partition_by="city")
    table.create_index("bitmap(id)", mode="async")
    save(some, tmp_path / "t")
    assert mdt.spark.wait_for_indexes(60) and table.indexes()["coverage"].to_pylist() != [100.0]
    named.conf.set("spark.mdt.indexes.build", "background")
    save(some, tmp_path / "t")
    assert mdt.spark.wait_for_indexes(60) and table.indexes()["coverage"].to_pylist() == [100.0]
    named.sql(f"call mdt.create_index('{tmp_path}/t', 'bloom(city); bitmap(fare)', 'async')")
    assert mdt.spark.wait_for_indexes(60) and table.indexes()["coverage"].to_pylist() == [100.0] * 3
    named.sql(f"call mdt.drop_index('{tmp_path}/t', 'bloom(city)')")
    assert len(table.indexes()) == 2
    with pytest.raises(Exception, match="mdt.create_index needs specs"):
        named.sql(f"call mdt.create_index('{tmp_path}/t')")
    table.create_index("bloom(city)", mode="async")
    save(rows, tmp_path / "t", "overwrite")
    named.sql(f"call mdt.build_indexes('{tmp_path}/t', spark => true)")
    assert table.indexes()["coverage"].to_pylist() == [100.0] * 3


def test_indexes_that_queries_want_are_created_and_built(
    named: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "REPORT_SECONDS", 0)
    named.conf.set("spark.mdt.indexes.auto", "true")
    rows = named.range(30_000).selectExpr(
        "string(id) id", "if(id = 7, 'Rome', 'Oslo') city", "double(id) fare"
    )
    table = save(rows, tmp_path / "t", key="id")
    view = mdt.read(named, str(tmp_path / "t"))
    for _ in range(12):
        assert view.where("city = 'Rome'").count() == 1
    assert mdt.spark.wait_for_indexes(60) and not len(table.indexes())
    save(rows.limit(1), tmp_path / "t")
    assert mdt.spark.wait_for_indexes(60)
    indexes = table.indexes()
    assert indexes["index"].to_pylist() == ["bitmap(city)"]
    assert indexes["coverage"].to_pylist() == [100.0]


def test_plans_are_told_to_the_log_of_spark_without_literals(
    named: SparkSession, tmp_path: Path
) -> None:
    save(
        named.createDataFrame(ROWS),
        tmp_path / "t",
        key="id",
        partition_by="city",
        indexes="bitmap(city)",
    )
    classes = jvm(named)
    log4j = classes.org.apache.logging.log4j
    writer = classes.java.io.StringWriter()
    appender = log4j.core.appender.WriterAppender.createAppender(
        None, None, writer, "plans", False, False
    )
    appender.start()
    context = log4j.LogManager.getContext(False)
    log4j.core.config.Configurator.setLevel("mdt.plan", log4j.Level.INFO)
    logger = context.getLogger("mdt.plan")
    logger.addAppender(appender)
    try:
        assert mdt.read(named, str(tmp_path / "t")).where("city = 'Rome'").count() == 1
        assert not writer.toString()
        named.conf.set("spark.mdt.explain", "log")
        assert mdt.read(named, str(tmp_path / "t")).where("city = 'Rome'").count() == 1
        assert named.read.format("mdt").load(str(tmp_path / "t")).count() == 3
    finally:
        logger.removeAppender(appender)
        appender.stop()
    lines = writer.toString().splitlines()
    assert len(lines) == 2 and all(str(tmp_path) in line for line in lines)
    assert (
        "reads 1 of 2 files, " in lines[0]
        and "column_stats pruned 1 of 2" in lines[0]
        and "Rome" not in lines[0]
    )
    assert "reads 2 of 2 files, " in lines[1]
