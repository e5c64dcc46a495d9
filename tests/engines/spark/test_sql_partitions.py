"""SQL statements about partitions have the same effect on an mdt table and on a table of Parquet
files, or both refuse them. hudi-rs reads the same rows.
"""

import re

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from reader import bag, hudi_table

import mdt
import mdt.spark

ROWS = (
    "('1', 1, 'x', 1), ('2', 1, 'x', 2), ('3', 1, 'y', 1), ('4', 1, null, 1), ('5', 1, 'x y/z*', 1)"
)
STATIC, DYNAMIC = "static", "dynamic"
MODE = "spark.sql.sources.partitionOverwriteMode"


@pytest.fixture
def spark_with_both(spark, tmp_path):
    """A session with the tables `ours` and `files`, both filled with ROWS."""
    mdt.spark.enable(spark)
    columns = "(id string, v int, a string, b int)"
    for name, provider in (("ours", "mdt options (key 'id')"), ("files", "parquet")):
        spark.sql(f"drop table if exists {name}")
        spark.sql(
            f"create table {name} {columns} using {provider} partitioned by (a, b) location"
            f" '{tmp_path / name}'"
        )
        spark.sql(f"insert into {name} values {ROWS}")
    yield spark
    spark.conf.unset(MODE)
    for name in ("ours", "files"):
        spark.sql(f"drop table {name}")


def rows_of(spark, name):
    return sorted(
        (tuple(row) for row in spark.sql(f"select id, v, a, b from {name}").collect()), key=str
    )


def run_on_both(spark, tmp_path, text):
    """Run ``text`` on both tables and assert that they contain the same rows. Return the error of
    the mdt table, or "" if there is none.
    """
    errors = []
    for name in ("ours", "files"):
        try:
            spark.sql(text.format(t=name)).collect()
            errors.append("")
        except (PySparkException, Py4JJavaError) as error:
            errors.append(f"{type(error).__name__} {error}")
    assert bool(errors[0]) == bool(errors[1]), errors
    assert rows_of(spark, "ours") == rows_of(spark, "files"), text
    table = mdt.open(tmp_path / "ours")
    assert bag(table.scan().to_arrow()) == bag(hudi_table(tmp_path / "ours", table.schema))
    assert table.check().ok
    return errors[0]


@pytest.mark.parametrize("mode", [STATIC, DYNAMIC])
def test_inserts_may_name_their_partitions(spark_with_both, tmp_path, mode):
    spark_with_both.conf.set(MODE, mode)
    first, second = "partition (a = 'x', b = 1)", "partition (a = 'y', b = 1)"
    for text in (
        "insert into {t} partition (a = 'x', b = 7) values ('6', 2)",
        "insert into {t} partition (A = 'x', b) values ('7', 2, 8), ('8', 2, 9)",
        "insert into {t} partition (a, b) select '9', 2, 'n', 3",
        "insert into {t} partition (b, a) values ('9b', 2, 'n', 3)",
        "insert into {t} partition (b = 3, a = 'n') select '10' as id, 2",
        "insert into {t} partition (a = 'x', b = '07') (id) values ('11')",
        "insert into {t} partition (a = 'x', b = 1) by name select 5 v, '12' id",
        "insert into {t} partition (a = null, b = 2) values ('13', 2)",
        "insert into {t} partition (a = 'x', b = 1) values ('14', default), ('15', 1)",
        "insert into {t} partition (a = 'x', b = 1) select '16', count(*) from {t} where v = 1",
        (
            "insert into {t} partition (a = 'x', b = 1) select distinct '17', v from {t} order by v"
            " limit 1"
        ),
        "insert into SPARK_CATALOG.default.{t} partition (a = 'x', b = 1) values ('17b', 1)",
        (
            "with w as (select '18' id, 3 v) insert into {t} partition (a = 'x', b = 1) select *"
            " from w"
        ),
        "insert into {t} partition (a = 'x', b = 1) table {t}_none",
        "insert into {t} partition (a = 'x', b = 1) select '19', 1 union all select '20', 2",
        (
            f"from (select '21' id, 1 v) s insert into {{t}} {first} select id, v insert into {{t}}"
            f" {second} select concat(id, 'y'), v"
        ),
        "insert overwrite {t} partition (a = 'x', b = 1) values ('22', 3)",
        "insert overwrite {t} partition (a = 'x y/z*', b) select '23', 3, 5",
        "insert overwrite {t} partition (a = 'x', b = 2) select '24', 4 where false",
        "insert overwrite {t} partition (a = null, b) select '25', 4, 6",
        "insert overwrite {t} partition (a = 'new', b = 1) select '26', 4",
        "insert overwrite {t} partition (a = 'y', b) select '27', 4, 1 where false",
        "insert overwrite {t} partition (a = 'x y/z*', b = 5) if not exists values ('29', 5)",
        "insert overwrite {t} partition (a = 'x y/z*', b = 6) if not exists select '30', 5",
        "insert overwrite {t} partition (a, b) select '28', 4, 'y', 1",
    ):
        error = run_on_both(spark_with_both, tmp_path, text)
        assert ("_none" in text) == bool(error), (text, error)
    assert len(rows_of(spark_with_both, "ours")) == (1 if mode == STATIC else 16)


def test_invalid_partitions_are_refused_and_nothing_is_written(spark_with_both, tmp_path):
    for text, expected in (
        ("insert into {t} partition (town = 'x', b = 1) values ('6', 2)", "PARTITIONS_NOT_FOUND"),
        ("insert into {t} partition (a = 'x') values ('6', 2, 1)", r"PARTITION names \[a\]"),
        ("insert into {t} partition (a = 'x', b = 1) values ('6', 2, 1)", "TOO_MANY_DATA_COLUMNS"),
        ("insert into {t} partition (a = 'x', b = 1) values ('6')", "NOT_ENOUGH_DATA_COLUMNS"),
        ("insert into {t} partition (a = 'x', b = 'one') values ('6', 2)", "CAST_INVALID_INPUT"),
        ("alter table {t} drop partition (a = 'none', b = 1)", "there is no partition"),
        ("truncate table {t} partition (a = 'none', b = 1)", "there is no partition"),
        ("alter table {t} drop partition (town = 'x')", "'town' is not a partition column"),
    ):
        assert re.search(expected, run_on_both(spark_with_both, tmp_path, text)), text
    assert mdt.open(tmp_path / "ours").snapshot().seq == 1


def test_partition_values_are_cast_as_spark_casts_them(spark, tmp_path):
    mdt.spark.enable(spark)
    tables = {"cast_ours": "mdt options (key 'id')", "cast_files": "parquet"}
    for name, provider in tables.items():
        columns = "(id string, d date, f boolean, n int, a string)"
        spark.sql(
            f"create table {name} {columns} using {provider} partitioned by (d, f, n, a) location"
            f" '{tmp_path / name}'"
        )
    outcomes = []
    for name in tables:
        outcomes.append([])
        for text in (
            (
                "insert into {t} partition (d = '2026-1-5', f = 'yes', n = ' 1 ', a = 'x') values"
                " ('1'), ('2')"
            ),
            (
                "insert overwrite {t} partition (d = '2026-1-5', f = 'T', n = '+1', a = 'x') values"
                " ('3')"
            ),
            (
                "insert into {t} partition (d = date'2026-01-05', f = false, n = '01', a ="
                " '__HIVE_DEFAULT_PARTITION__') values ('4')"
            ),
            (
                "insert overwrite {t} partition (d = ' 2026-01-05', f = 'no', n = 1, a = null)"
                " values ('5')"
            ),
            "show partitions {t} partition (d = '2026-1-5', n = '+1')",
            "alter table {t} drop partition (d = '2026-1-5', f = 'y', n = ' 1', a = 'x')",
        ):
            rows = spark.sql(text.format(t=name)).collect()
            # an INSERT into an mdt table returns counts
            shown = rows if text.startswith("show") else []
            outcomes[-1] += [shown, sorted(tuple(row) for row in spark.table(name).collect())]
    for name in tables:
        spark.sql(f"drop table {name}")
    assert outcomes[0] == outcomes[1] and [row[0] for row in outcomes[0][-1]] == ["5"]


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_a_time_partition_is_selected_by_a_time_in_the_session_time_zone(spark, tmp_path, kind):
    mdt.spark.enable(spark)
    table = (
        f"times (id string, at {kind}) using mdt options (key 'id', `mdt.partition.time.pattern`"
        " 'yyyy/MM/dd')"
    )
    spark.sql(f"create table {table} partitioned by (at) location '{tmp_path / 'times'}'")
    morning, evening = "2026-01-01 10:00:00", "2026-01-01 20:00:00"
    spark.sql(
        f"insert into times values ('1', {kind}'{morning}'), ('2', {kind}'{evening}'), ('3', null)"
    )
    # paths are days in UTC: eight in the evening of the session is the next day there
    with_zone = kind == "timestamp"
    spark.sql(f"insert overwrite times partition (at = '{evening}') values ('4')")
    text = "select id, cast(at as string) at from times where at is not null order by id"
    remaining = [("1", morning)] if with_zone else []
    assert list(map(tuple, spark.sql(text).collect())) == [*remaining, ("4", evening)]
    shown = spark.sql(f"show partitions times partition (at = {kind}'{evening}')").collect()
    assert list(map(tuple, shown)) == [("at=2026/01/02" if with_zone else "at=2026/01/01",)]
    spark.sql(f"alter table times drop partition (at = {kind}'{evening}')")
    assert list(map(tuple, spark.sql(text).collect())) == remaining
    spark.sql("drop table times")


def test_partitions_are_dropped_truncated_and_shown(spark_with_both, tmp_path):
    spark = spark_with_both
    for text in (
        "show partitions {t}",
        "show partitions {t} partition (A = 'x')",
        "show partitions {t} partition (b = 2)",
    ):
        of_mdt, of_parquet = (
            spark.sql(text.format(t=name)).collect() for name in ("ours", "files")
        )
        assert of_mdt == of_parquet and of_mdt
    assert (
        spark.sql("explain truncate table ours").count() == 1
        and mdt.open(tmp_path / "ours").snapshot().seq == 1
    )
    for text in (
        "alter table {t} drop partition (a = 'x', b = 1)",
        "alter table {t} drop if exists partition (a = 'x', b = 1), partition (a = null, b = 1)",
    ):
        assert run_on_both(spark, tmp_path, text) == ""
    for text, remaining in (
        ("truncate table ours partition (a = 'x y/z*', b = 1)", 2),
        ("truncate table ours", 0),
        ("truncate table ours", 0),
    ):
        spark.sql(text)  # Spark truncates tables of Parquet files only if the catalog owns them
        assert len(rows_of(spark, "ours")) == remaining
    spark.sql("insert into ours values ('1', 1, 'x', 1), ('2', 1, 'x', 2)")
    spark.newSession().sql("alter table ours drop partition (a = 'x')")
    assert rows_of(spark, "ours") == [] and spark.sql("show partitions ours").collect() == []


def test_cached_rows_are_read_again_after_partitions_change(spark_with_both):
    spark = spark_with_both
    cached = spark.table("ours").where("v > 0").cache()
    assert cached.count() == 5
    spark.sql("insert overwrite ours partition (a = 'x', b = 1) select '9', 1 where false")
    assert spark.table("ours").where("v > 0").count() == 4
    spark.sql("truncate table ours partition (a = 'x', b = 2)")
    assert spark.table("ours").where("v > 0").count() == 3
    cached.unpersist()


def test_rows_cached_by_another_session_or_by_path_are_read_again_after_writes(
    spark_with_both, tmp_path
):
    spark, path = spark_with_both, str(tmp_path / "ours")
    other = spark.newSession()
    spark.sql(f"create or replace temporary view seen using mdt options (path '{path}')")
    spark.sql("cache table ours")
    cached = [
        frame.cache()
        for frame in (
            other.table("ours"),
            spark.table("seen"),
            mdt.read(spark, path),
            other.read.format("mdt").load(path).where("v > 0"),
        )
    ]
    assert [frame.count() for frame in cached] == [5, 5, 5, 5]
    new = spark.createDataFrame(pa.table({"id": ["9"], "v": [1], "a": ["x"], "b": [1]}))
    for write, remaining in (
        ("insert into ours values ('6', 1, 'x', 1)", 6),
        ("insert overwrite ours partition (a = 'x', b = 1) values ('7', 1)", 5),
        ("delete from ours where id = '7'", 4),
        ("alter table ours drop partition (a = 'x', b = 2)", 3),
        ("call mdt.delete_partition('ours', 'a=y/b=1')", 2),
        (new, 3),
        ("truncate table ours", 0),
    ):
        if isinstance(write, str):
            spark.sql(write)
        else:
            write.write.format("mdt").mode("append").save(path)
        row_counts = [
            frame.count()
            for frame in (*cached, spark.table("ours"), other.table("ours"), spark.table("seen"))
        ]
        assert row_counts == [remaining] * len(row_counts), write
        assert spark.catalog.isCached("ours"), write
        spark.sql("cache table ours")
    for frame in (*cached, spark.table("ours")):
        frame.unpersist()
    spark.sql("drop view seen")


def test_options_select_the_partitions_that_a_frame_overwrites(spark_with_both, tmp_path):
    rows = spark_with_both.createDataFrame(pa.table({"id": ["9"], "v": [1], "a": ["x"], "b": [1]}))

    def save(mode, **options):
        rows.write.format("mdt").mode(mode).options(**options).save(str(tmp_path / "ours"))

    save("overwrite", overwrite_partitions='{"a": "x"}')
    assert [row[0] for row in rows_of(spark_with_both, "ours")] == ["3", "4", "5", "9"]
    save("append", operation="insert_overwrite", overwrite_partitions="a=*/b=1")
    assert [row[0] for row in rows_of(spark_with_both, "ours")] == ["9"]
    save("overwrite", partitionOverwriteMode="dynamic")
    assert [row[0] for row in rows_of(spark_with_both, "ours")] == ["9"]
    spark_with_both.sql("insert into ours values ('8', 1, 'y', 1)")
    save("overwrite", overwrite_mode="dynamic")
    assert [row[0] for row in rows_of(spark_with_both, "ours")] == ["8", "9"]
    spark_with_both.conf.set(MODE, DYNAMIC)
    save("overwrite", partitionOverwriteMode="static")
    for mode, options, expected in (
        ("overwrite", {"overwrite_mode": "some"}, "use one of static, dynamic"),
        (
            "overwrite",
            {"overwrite_partitions": '{"a": "y"}'},
            "of partition 'a=x/b=1', but the overwrite is limited to 'a=y/\\*'",
        ),
        (
            "append",
            {"overwrite_partitions": "a=x/b=1"},
            "overwrite_partitions requires mode",
        ),
        ("overwrite", {"overwrite_partitions": '{"a'}, "a path, city=Oslo, or JSON"),
        ("overwrite", {"overwrite_partitions": "a=x"}, "is not a partition path"),
        (
            "overwrite",
            {"overwrite_partitions": "a=x/b=1", "operation": "delete"},
            "the operation delete cannot be combined",
        ),
        (
            "overwrite",
            {"overwrite_partitions": "a=x/b=1", "operation": "insert_overwrite_table"},
            "insert_overwrite_table, which replaces all",
        ),
        ("overwrite", {"evolve": "true"}, "evolve and partial are options of upsert"),
        ("overwrite", {"partial": "true"}, "evolve and partial are options of upsert"),
    ):
        with pytest.raises(PySparkException, match=expected):
            save(mode, **options)
    assert [row[0] for row in rows_of(spark_with_both, "ours")] == ["9"]
