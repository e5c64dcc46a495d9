"""``spark.mdt.*`` settings of a session: indexes of new tables, options, packages of executors,
indexes built in the background, and plans in the log.
"""

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from sql_tables import cases, tuples

import mdt
import mdt.spark
from mdt.config import OPTIONS
from mdt.engines.spark import packages
from mdt.engines.spark.private import jvm
from mdt.errors import Invalid
from mdt.metadata.statistics import usage
from mdt.option import to_text
from mdt.source.settings import parse, setting_names

ROWS = pa.table({"id": ["a", "b", "c"], "city": ["Oslo", "Rome", "Oslo"], "fare": [1.5, 2.5, 3.5]})


def save(rows, path, mode="append", **options):
    rows.write.format("mdt").mode(mode).options(**options).save(str(path))
    return mdt.open(path)


def test_session_settings_apply_to_new_tables_and_leave_existing_tables_unchanged(
    configured, tmp_path
):
    rows = configured.createDataFrame(ROWS)
    plain = save(rows, tmp_path / "plain", key="id")
    for name, text in {
        "indexes": "bitmap(city);bloom(city)",
        "table_type": "mor",
        "key_index": "record",
        "scope": "table",
        "hive.style": "false",
        "compression": "zstd",
    }.items():
        configured.sql(f"set `spark.mdt.{name}`=`{text}`")
    from_settings = save(rows, tmp_path / "made", key="id", partition_by="city").definition
    assert (from_settings.table_type, from_settings.key_index) == ("MERGE_ON_READ", "record")
    assert (
        from_settings.is_global and not from_settings.hive_style and len(from_settings.indexes) == 2
    )
    place = f"location '{tmp_path}/s'"
    options = "options (key 'id', indexes 'bloom(id)')"
    configured.sql(f"create table trips using mdt {options} {place} as select 'a' id")
    (index,) = mdt.open(tmp_path / "s").definition.indexes
    assert index.endswith("(id)")
    bare = save(rows, tmp_path / "bare", key="id", indexes="").definition
    assert bare.indexes == () and bare.key_index == "record"
    hudi_options = {
        "hoodie.index.type": "BLOOM",
        "hoodie.datasource.write.hive_style_partitioning": "true",
    }
    from_options = save(
        rows, tmp_path / "told", key="id", partition_by="city", **hudi_options
    ).definition
    assert (from_options.key_index, from_options.is_global, from_options.hive_style) == (
        "bloom",
        False,
        True,
    )
    assert save(rows, tmp_path / "plain").definition == plain.definition
    assert tuples(mdt.read(configured, str(tmp_path / "plain")).select("id")) == ["a", "b", "c"]


def test_commits_carry_the_metadata_of_the_session_and_of_the_write(configured, tmp_path):
    rows = configured.createDataFrame(ROWS)
    configured.conf.set("spark.mdt.commit.metadata.run", "nightly")
    table = save(rows, tmp_path / "t", key="id", **{"commit.metadata.step": "load"})
    configured.sql(f"create table trips using mdt location '{tmp_path / 't'}'")
    configured.sql("delete from trips where id = 'a'").collect()
    configured.conf.unset("spark.mdt.commit.metadata.run")
    configured.sql("delete from trips where id = 'b'").collect()
    metadata = [
        None if pairs is None else dict(pairs) for pairs in table.history()["metadata"].to_pylist()
    ]
    assert metadata == [{"run": "nightly", "step": "load"}] * 2 + [{"run": "nightly"}, None]
    with pytest.raises(PySparkException, match="reserved by Hudi or mdt"):
        save(rows, tmp_path / "t", **{"commit.metadata.schema": "x"})


INVALID_SETTINGS = cases(
    """
    index -> bitmap(city) -> unknown setting 'spark.mdt.index'.*did you mean spark.mdt.index
    page.bytes -> many -> page.bytes='many' is not valid
    explain -> loud -> one of off, log, metrics
    affinity -> perhaps -> one of auto, on, off
    footers.bytes -> many -> spark.mdt.footers.bytes='many' is not valid
    vectors.bytes -> -1 -> spark.mdt.vectors.bytes='-1' is not valid
    indexes.auto -> perhaps -> true or false
    indexes.packages -> pandas_of_mars -> the package 'pandas_of_mars' is not installed
    indexes.packages -> numpy -> the package 'numpy' registers no index
    """
)


@pytest.mark.parametrize(("name", "text", "reason"), INVALID_SETTINGS)
def test_invalid_settings_are_refused_before_anything_is_written(
    configured, tmp_path, name, text, reason
):
    configured.conf.set(f"spark.mdt.{name}", text)
    with pytest.raises(PySparkException, match=f"(?s){reason}"):
        save(configured.createDataFrame(ROWS), tmp_path / "t", key="id")
    assert not (tmp_path / "t").exists()
    with pytest.raises(Invalid, match=f"(?s){reason}"):
        mdt.read(configured, str(tmp_path / "t"))


def test_every_option_of_a_table_is_a_setting_of_the_session():
    names = setting_names()
    assert len(set(names)) == len(names)
    for option in OPTIONS.options.values():
        setting = f"spark.{option.name}"
        expected = {option.name: to_text(option.default)}
        parsed = parse({setting: expected[option.name]})
        own, others = parsed.options, parsed.create_options
        if option.fixed:
            own, others = others, own
        assert (own, others) == (expected, {}) and setting in names, setting


def test_executors_must_have_index_packages_in_the_version_of_the_driver(
    configured, tmp_path, monkeypatch
):
    configured.conf.set("spark.mdt.indexes.packages", "example-index")
    save(configured.createDataFrame(ROWS), tmp_path / "t", key="id", indexes="length(city)")
    monkeypatch.setattr(packages, "_load", lambda name: "7.0")
    configured.conf.set("spark.mdt.indexes.packages", "example-index, example_index")
    message = "an executor on .* has 'example-index' .*, but the driver has 7.0"
    with pytest.raises(PySparkException, match=message):
        save(configured.createDataFrame(ROWS), tmp_path / "t")


def test_missing_index_coverage_is_built_in_the_background(configured, tmp_path):
    rows, path = configured.createDataFrame(ROWS), f"{tmp_path}/t"
    rome = rows.where("city = 'Rome'")
    table = save(rows, path, key="id", partition_by="city")

    def coverage():
        assert mdt.spark.wait_for_indexes(60)
        return table.indexes()["coverage"].to_pylist()

    table.create_index("bitmap(id)", mode="async")
    save(rome, path)
    assert coverage() != [100.0]
    configured.conf.set("spark.mdt.indexes.build", "background")
    save(rome, path)
    assert coverage() == [100.0]
    configured.sql(f"call mdt.create_index('{path}', 'bloom(city); bitmap(fare)', 'async')")
    assert coverage() == [100.0] * 3
    configured.sql(f"call mdt.drop_index('{path}', 'bloom(city)')")
    assert len(table.indexes()) == 2
    with pytest.raises(Exception, match="mdt.create_index requires specs"):
        configured.sql(f"call mdt.create_index('{path}')")
    table.create_index("bloom(city)", mode="async")
    save(rows, path, "overwrite")
    configured.sql(f"call mdt.build_indexes('{path}', spark => true)")
    assert coverage() == [100.0] * 3


def test_indexes_for_frequent_filters_are_created_and_built_automatically(
    configured, tmp_path, monkeypatch
):
    monkeypatch.setattr(usage, "REPORT_SECONDS", 0)
    configured.conf.set("spark.mdt.indexes.auto", "true")
    rows = configured.range(30_000).selectExpr(
        "string(id) id", "if(id = 7, 'Rome', 'Oslo') city", "double(id) fare"
    )
    table = save(rows, tmp_path / "t", key="id")
    view = mdt.read(configured, str(tmp_path / "t"))
    for _ in range(12):
        assert view.where("city = 'Rome'").count() == 1
    assert mdt.spark.wait_for_indexes(60) and not len(table.indexes())
    save(rows.limit(1), tmp_path / "t")
    assert mdt.spark.wait_for_indexes(60)
    (index,) = table.indexes().to_pylist()
    assert (index["index"], index["coverage"]) == ("bitmap(city)", 100.0)


def test_plans_are_written_to_the_log_of_spark_without_literals(configured, tmp_path):
    shape = {"key": "id", "partition_by": "city", "indexes": "bitmap(city)"}
    path = save(configured.createDataFrame(ROWS), tmp_path / "t", **shape).path
    classes = jvm(configured)
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
        assert mdt.read(configured, path).where("city = 'Rome'").count() == 1
        assert not writer.toString()
        configured.conf.set("spark.mdt.explain", "log")
        assert mdt.read(configured, path).where("city = 'Rome'").count() == 1
        assert configured.read.format("mdt").load(path).count() == 3
    finally:
        logger.removeAppender(appender)
        appender.stop()
    filtered, unfiltered = writer.toString().splitlines()
    assert path in filtered and path in unfiltered
    assert "reads 1 of 2 files, " in filtered and "column_stats pruned 1 of 2" in filtered
    assert "Rome" not in filtered and "reads 2 of 2 files, " in unfiltered
