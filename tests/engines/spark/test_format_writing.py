"""``df.write.format("mdt")``, ``saveAsTable`` and INSERT write the same as ``upsert`` and the other
methods of a table. hudi-rs reads the same rows.
"""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf
from pyspark.sql.functions import col, lit
from reader import bag, hudi_table
from sql_tables import settings

import mdt
import mdt.spark
from mdt.errors import Invalid

TABLES = ("format_trips", "format_rides", "format_made", "format_saved")
HUDI_OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.SimpleKeyGenerator",
    "hoodie.datasource.write.hive_style_partitioning": "true",
    "hoodie.index.type": "BLOOM",
    "hoodie.upsert.shuffle.parallelism": "2",
    "hoodie.datasource.write.payload.class": "DefaultHoodieRecordPayload",
    "hoodie.datasource.hive_sync.enable": "false",
}
MDT_OPTIONS = {
    "key": "id",
    "partition_by": "city",
    "ordering": "ts",
    "indexes": "bitmap(city);text(id, tokenizer='word')",
}

A, B, C = ("a", "Oslo", 1), ("b", "Rome", 1), ("c", "Oslo", 1)


@pytest.fixture
def named(spark):
    mdt.spark.enable(spark)
    for name in TABLES:
        spark.sql(f"drop table if exists {name}")
    return spark


def frame(spark, *rows):
    ids, cities, times = zip(*rows, strict=True)
    return spark.createDataFrame(
        pa.table({"id": ids, "city": cities, "ts": pa.array(times, pa.int64())})
    )


def save(rows, path, mode="append", **options):
    rows.write.format("mdt").mode(mode).options(**options).save(str(path))


def read(path):
    """Return the rows of a table. Asserts that hudi-rs reads the same rows and that a check finds
    no problems.
    """
    table = mdt.open(path)
    rows = table.scan().to_arrow()
    assert bag(rows) == bag(hudi_table(path, table.schema))
    assert not table.check().problems
    return sorted((row["id"], row["city"], row["ts"]) for row in rows.to_pylist())


def test_save_modes_have_their_usual_meaning_and_append_runs_the_operation(named, tmp_path):
    path = tmp_path / "t"
    save(frame(named, A, B), path, "errorifexists", **MDT_OPTIONS)
    definition = mdt.open(path).definition
    assert (definition.key, definition.partition_by, definition.ordering) == (
        ("id",),
        ("city",),
        ("ts",),
    )
    assert len(definition.indexes) == 2
    with pytest.raises(PySparkException, match="a table already exists at "):
        save(frame(named, C), path, "errorifexists", **MDT_OPTIONS)
    save(frame(named, C), path, "ignore", **MDT_OPTIONS)
    assert read(path) == [A, B]
    save(frame(named, ("a", "Oslo", 2), C), path)
    save(
        frame(named, ("a", "Oslo", 3)),
        path,
        **HUDI_OPTIONS,
        **{"hoodie.datasource.write.operation": "upsert"},
    )
    save(frame(named, B), path, operation="delete")
    assert read(path) == [("a", "Oslo", 3), C]
    save(frame(named, B), path, operation="insert_overwrite")
    save(frame(named, ("d", "Oslo", 1)), path, operation="insert_overwrite")
    assert read(path) == [B, ("d", "Oslo", 1)]
    save(frame(named, C), path, "overwrite", **MDT_OPTIONS)
    assert read(path) == [C]
    assert mdt.open(path).history()["operation"].to_pylist() == [
        "create",
        "upsert",
        "upsert",
        "upsert",
        "delete",
        "insert_overwrite",
        "insert_overwrite",
        "insert_overwrite_table",
    ]


def test_a_table_is_created_with_hudi_option_names_and_written_in_tasks(named, tmp_path):
    path = tmp_path / "t"
    save(frame(named, A, B), path, **HUDI_OPTIONS, **{"mdt.spark.local.bytes.max": "0"})
    assert read(path) == [A, B]
    definition = mdt.open(path).definition
    assert (definition.name, definition.key, definition.partition_by, definition.ordering) == (
        "t",
        ("id",),
        ("city",),
        ("ts",),
    )


@pytest.mark.parametrize("mode", ["errorifexists", "ignore"])
def test_a_failed_first_write_can_be_run_again(named, tmp_path, mode):
    path = tmp_path / "t"
    rows = frame(named, A, B)
    with pytest.raises(PySparkException, match="null"):
        save(rows.withColumn("id", sf.when(col("id") != "b", col("id"))), path, mode, **MDT_OPTIONS)
    with pytest.raises(PySparkException, match="the table has key = id, not city"):
        save(rows, path, mode, key="city")
    mdt.open(path).abort()
    save(rows, path, mode, **MDT_OPTIONS)
    assert read(path) == [A, B]
    mdt.open(path).truncate()
    if mode == "ignore":
        save(frame(named, C), path, mode, **MDT_OPTIONS)
    else:
        with pytest.raises(PySparkException, match="a table already exists at "):
            save(frame(named, C), path, mode, **MDT_OPTIONS)
    assert not read(path)


@pytest.mark.parametrize(
    ("mode", "options", "reason"),
    [
        ("append", {"key": "city"}, "the table has key = id, not city"),
        ("append", {"partition_by": ""}, "the table has partition_by = city"),
        ("append", {"indexes": "bitmap(id)"}, "add an index with t.create_index"),
        ("append", {"hoodie.table.name": "other"}, "the table has name = t, not other"),
        ("append", {"operation": "upset"}, "one of upsert, insert"),
        ("append", {"operation": "insert"}, "1 keys exist already"),
        ("append", {"operaton": "insert"}, "did you mean operation"),
        ("append", {"operation": "delete", "evolve": "true"}, "options of upsert, not of delete"),
        ("append", {"as_of": "1"}, "not allowed in a write: as_of"),
        ("append", {"hoodie.table.cdc.enabled": "true"}, "CDC files are not written or read"),
        ("append", {"hoodie.datasource.write.keygenerator.class": "my.Generator"}, "remove it"),
        ("append", {"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING"}, "has ordering = ts"),
        ("overwrite", {"operation": "insert_overwrite"}, "append.* for this operation"),
        ("overwrite", {"operation": "delete"}, "append.* for this operation"),
    ],
)
def test_options_that_contradict_the_table_or_mode_are_refused_and_write_nothing(
    named,
    tmp_path_factory,
    mode,
    options,
    reason,
):
    path = tmp_path_factory.getbasetemp() / "refusals" / "t"
    if not path.exists():
        save(frame(named, A), path, **MDT_OPTIONS)
    with pytest.raises(PySparkException, match=f"(?s){reason}"):
        save(frame(named, A), path, mode, **options)
    assert len(mdt.open(path).history()) == 2


def test_a_new_table_needs_a_key_and_a_delete_needs_a_table(named, tmp_path):
    with pytest.raises(PySparkException, match=r"hoodie\.datasource\.write\.recordkey\.field"):
        save(frame(named, A), tmp_path / "t")
    with pytest.raises(PySparkException, match="no table at"):
        save(frame(named, A), tmp_path / "t", operation="delete", **MDT_OPTIONS)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("local_bytes", [0, 1 << 26])
def test_a_failed_first_overwrite_leaves_existing_files_and_no_table(named, tmp_path, local_bytes):
    failing = named.range(9).selectExpr(
        "string(id) id", "'Oslo' city", "if(id < 8, id, bigint(raise_error('late'))) ts"
    )
    note = tmp_path / "t/.note"
    note.parent.mkdir()
    note.touch()
    with settings(named, {"spark.mdt.spark.local.bytes.max": str(local_bytes)}):
        with pytest.raises(PySparkException, match="late"):
            save(failing, tmp_path / "t", "overwrite", **MDT_OPTIONS)
        assert list((tmp_path / "t").rglob("*")) == [note]
        for mode in ("errorifexists", "ignore", "overwrite"):
            with pytest.raises(PySparkException, match="late"):
                failing.write.format("mdt").mode(mode).options(**MDT_OPTIONS).saveAsTable(
                    "format_saved"
                )
        frame(named, A).write.format("mdt").options(**MDT_OPTIONS).saveAsTable("format_saved")
        assert named.table("format_saved").count() == 1


def test_a_failed_first_overwrite_keeps_rows_that_others_have_committed(
    named, tmp_path, monkeypatch
):
    def insert_and_fail(table, rows, **more):
        mdt.open(table.path).insert([dict(zip(("id", "city", "ts"), B, strict=True))])
        raise Invalid("full")

    with monkeypatch.context() as patch:
        patch.setattr(mdt.Table, "insert_overwrite_table", insert_and_fail)
        with pytest.raises(PySparkException, match="full"):
            save(frame(named, A), tmp_path / "t", "overwrite", **MDT_OPTIONS)
    assert read(tmp_path / "t") == [B]


def test_upserts_may_add_columns_or_keep_values_of_missing_columns(named, tmp_path):
    path = tmp_path / "t"
    save(frame(named, A), path, key="id")
    save(frame(named, B).selectExpr("*", "1.5D fare"), path, mergeSchema="true")
    save(frame(named, ("b", "Rome", 5)).drop("city"), path, partial="true")
    assert mdt.open(path).get("b") == {"id": "b", "city": "Rome", "ts": 5, "fare": 1.5}


def sql(spark, text):
    spark.sql(text).collect()


def table_path(spark, name):
    return str(Path(spark.conf.get("spark.sql.warehouse.dir", "")) / name).replace("file:", "")


def test_catalog_tables_accept_inserts_and_overwrites(named):
    frame(named, A).write.format("mdt").partitionBy("city").option("key", "id").saveAsTable(
        "format_trips"
    )
    path = table_path(named, "format_trips")
    assert mdt.open(path).definition.partition_by == ("city",)
    frame(named, B).write.format("mdt").mode("append").saveAsTable("format_trips")
    sql(named, "insert into format_trips values ('c', 1L, 'Oslo')")
    sql(named, "insert into format_trips (city, ts, id) values ('Oslo', 7L, 'c')")
    assert read(path) == [A, B, ("c", "Oslo", 7)]
    assert {
        tuple(row) for row in named.table("format_trips").select("id", "city", "ts").collect()
    } == {*read(path)}
    with settings(named, {"spark.sql.sources.partitionOverwriteMode": "dynamic"}):
        sql(named, "insert overwrite format_trips select 'd', 1L, 'Oslo'")
    assert read(path) == [B, ("d", "Oslo", 1)]
    sql(
        named,
        "insert overwrite format_trips select id, ts + 1, city from format_trips where id = 'd'",
    )
    assert read(path) == [("d", "Oslo", 2)]


def test_statements_that_would_change_the_directory_of_a_catalog_table_are_refused(
    named,
):
    frame(named, A, B).write.format("mdt").partitionBy("city").option("key", "id").saveAsTable(
        "format_trips"
    )
    for text in (
        "msck repair table format_trips",
        "alter table format_trips add partition (city = 'Bonn')",
        "alter table format_trips partition (city = 'Oslo') rename to partition (city = 'Bonn')",
        "create table format_made like format_trips",
        "create table format_made like format_trips using mdt",
    ):
        with pytest.raises(PySparkException):
            sql(named, text)
    assert read(table_path(named, "format_trips")) == [A, B]


def test_save_as_table_checks_partitions_and_refuses_unsupported_options(
    named,
):
    def save(mode, by, **options):
        saved = frame(named, B).write.format("mdt").mode(mode).option("key", "id").partitionBy(by)
        saved.options(**options).saveAsTable("format_trips")

    frame(named, A).write.format("mdt").partitionBy("city").option("key", "id").saveAsTable(
        "format_trips"
    )
    path = table_path(named, "format_trips")
    for name, value in (
        ("operation", "delete"),
        ("evolve", "true"),
        ("overwrite_partitions", "city=Rome"),
    ):
        with pytest.raises(
            PySparkException, match=f"Unsupported: saveAsTable with the option {name} = {value}"
        ):
            save("append", "city", **{name: value})
    with pytest.raises(
        PySparkException, match="Unsupported: saveAsTable with the option overwrite_partitions"
    ):
        save("overwrite", "city", overwrite_partitions="city=Rome")
    with pytest.raises(
        PySparkException, match="Unsupported: saveAsTable with the option partitionOverwriteMode"
    ):
        save("overwrite", "city", partitionOverwriteMode="dynamic")
    with pytest.raises(
        PySparkException, match="overwrite without the option key: Spark would drop the table"
    ):
        frame(named, B).write.format("mdt").mode("overwrite").saveAsTable("format_trips")
    with pytest.raises(PySparkException, match="does not match that of the existing table"):
        save("append", "ts")
    assert read(path) == [A]
    save("append", "City", operation="upsert", evolve="false")
    assert read(path) == [A, B]


def test_save_as_table_with_rows_of_the_same_table_is_refused(named):
    frame(named, A, B).write.format("mdt").option("key", "id").saveAsTable("format_trips")
    path = table_path(named, "format_trips")
    rows = named.read.format("mdt").load(path)
    rows.createOrReplaceTempView("by_path")
    in_subquery = named.sql("select 'c' id, 'Rome' city, (select max(ts) from by_path) ts")
    for frame_of_table in (rows, in_subquery):
        writer = frame_of_table.write.format("mdt").mode("overwrite").option("key", "id")
        with pytest.raises(PySparkException, match="would drop the table before it reads them"):
            writer.saveAsTable("format_trips")
        assert read(path) == [A, B]


@pytest.mark.parametrize(
    ("clause", "method", "given"),
    [
        ("clustered by (id) into 4 buckets", "bucketBy", (4, "id")),
        ("cluster by (ts)", "clusterBy", ("ts",)),
    ],
)
def test_bucket_by_and_cluster_by_are_refused(named, clause, method, given):
    message = f"Unsupported: {clause.partition(' (')[0].upper()}"
    options = f"using mdt options (key 'id') {clause}"
    for text in (
        f"create table format_made (id string, ts bigint) {options}",
        f"create table format_made {options} as select 'b' id, 1L ts",
    ):
        with pytest.raises(PySparkException, match=message):
            sql(named, text)
    writer = getattr(frame(named, A).write.format("mdt"), method)(*given)
    with pytest.raises(PySparkException, match=message):
        writer.option("key", "id").saveAsTable("format_made")
    with pytest.raises(PySparkException, match=f"{method} is not supp|not support {method}"):
        writer.save("/nowhere/format_made")
    assert not named.catalog.tableExists("format_made")


def test_not_null_columns_are_required_and_reject_nulls(named, tmp_path):
    options = "using mdt options (key 'id')"
    sql(
        named,
        f"create table format_made (id string, ts bigint not null, city string not null) {options}"
        " partitioned by (city)",
    )
    path = table_path(named, "format_made")
    assert [field.name for field in mdt.open(path).schema if not field.nullable] == ["ts", "city"]
    sql(named, "insert into format_made values ('a', 1L, 'Oslo')")
    sql(named, "insert into format_made partition (city = 'Rome') values ('b', 1L)")
    for text in (
        "insert into format_made (id, city) values ('c', 'Oslo')",
        "insert into format_made partition (city = null) values ('c', 1L)",
        "update format_made set ts = null where id = 'a'",
        (
            "merge into format_made t using (select 'a' id) s on t.id = s.id when matched then"
            " update set ts = null"
        ),
    ):
        with pytest.raises(PySparkException, match="null"):
            sql(named, text)
    assert read(path) == [A, B]
    save(frame(named, A), tmp_path / "t", key="id", required="ts, city")
    assert [field.name for field in mdt.open(tmp_path / "t").schema if not field.nullable] == [
        "city",
        "ts",
    ]
    save(frame(named, B), tmp_path / "t")
    with pytest.raises(PySparkException, match="there is no column 'town'"):
        save(frame(named, A), tmp_path / "u", key="id", required="town")


def test_write_to_creates_appends_and_overwrites_tables_by_name(named):
    rows = frame(named, A, B).select("ts", "city", "id")
    rows.writeTo("format_made").using("mdt").option("key", "id").partitionedBy("city").create()
    path = table_path(named, "format_made")
    cached = named.table("format_made").cache()
    assert cached.count() == 2
    frame(named, C, ("a", "Oslo", 7)).writeTo("format_made").append()
    assert read(path) == [("a", "Oslo", 7), B, C] and named.table("format_made").count() == 3
    frame(named, C).writeTo("default.format_made").option("operation", "delete").append()
    assert read(path) == [("a", "Oslo", 7), B]
    frame(named, ("d", "Rome", 1)).writeTo("format_made").overwritePartitions()
    assert read(path) == [("a", "Oslo", 7), ("d", "Rome", 1)]
    named.newSession().sql("select 'e' id, 1L ts, 'Bonn' city").writeTo("format_made").overwrite(
        lit(True)
    )
    assert read(path) == [("e", "Bonn", 1)] and named.table("format_made").count() == 1
    with pytest.raises(PySparkException, match="Unsupported: writeTo.*overwrite by a condition"):
        rows.writeTo("format_made").overwrite(col("city") == "Oslo")
    with pytest.raises(PySparkException, match="TOO_MANY_DATA_COLUMNS"):
        rows.withColumn("more", lit(1)).writeTo("format_made").append()
    with pytest.raises(PySparkException, match="the option partial is not supported for INSERT"):
        rows.drop("ts").writeTo("format_made").option("partial", "true").append()
    with pytest.raises(PySparkException, match="the option partial is not supported for INSERT"):
        named.sql("insert into format_made with (partial = true) (id, city) values ('e', 'Bonn')")
    assert read(path) == [("e", "Bonn", 1)]
    cached.unpersist()


def test_create_table_accepts_hudi_names_in_tblproperties(named):
    clause = (
        "tblproperties (primaryKey = 'id', type = 'mor', preCombineField = 'ts', 'mdt.compression'"
        " = 'zstd', who = 'me')"
    )
    sql(
        named,
        f"create table format_made (id string, ts bigint, city string) using mdt {clause} partitioned"
        " by (city)",
    )
    definition = mdt.open(table_path(named, "format_made")).definition
    assert (definition.key, definition.ordering, definition.table_type) == (
        ("id",),
        ("ts",),
        "MERGE_ON_READ",
    )
    assert definition.options["mdt.compression"] == "zstd" and definition.partition_by == ("city",)
    sql(named, "insert into format_made values ('a', 1L, 'Oslo')")
    assert read(table_path(named, "format_made")) == [A]
    sql(named, f"create table format_trips using mdt {clause} as select 'b' id, 1L ts, 'Rome' city")
    assert mdt.open(table_path(named, "format_trips")).definition.ordering == ("ts",)


def test_new_columns_with_a_collation_are_refused(named):
    options = "using mdt options (key 'id')"
    create = "create table format_made"
    for text in (
        f"{create} (id string, name string collate UNICODE_CI) {options}",
        f"{create} (id string, s struct<name: string collate UTF8_LCASE>) {options}",
        f"{create} {options} as select 'b' id, 'Rome' collate UNICODE_CI city",
    ):
        with pytest.raises(PySparkException, match="collation"):
            sql(named, text)
    sql(named, f"{create} {options} as select 'b' id, 'Rome' city")
    with pytest.raises(PySparkException, match="collation"):
        sql(named, "alter table format_made add columns (name string collate UNICODE_CI)")
    sql(named, "insert into format_made select 'c', 'Oslo' collate UNICODE_CI")
    more = named.sql("select 'd' id, 'Bonn' collate UNICODE_CI city, 'x' collate UNICODE_CI name")
    with pytest.raises(mdt.Invalid, match="collation"):
        mdt.open(table_path(named, "format_made")).upsert(more, evolve=True)
    assert named.table("format_made").count() == 2


def test_sql_creates_a_table_with_columns_or_as_select(named, tmp_path):
    options = "using mdt options (key 'id', ordering 'ts') partitioned by (city)"
    sql(named, f"create table format_made (id string, ts bigint, city string) {options}")
    sql(
        named,
        f"create table if not exists format_made (id string, ts bigint, city string) {options}",
    )
    sql(named, "insert into format_made values ('a', 1L, 'Oslo')")
    assert read(table_path(named, "format_made")) == [A]
    columns = "(id string, city string, ts bigint)"
    sql(
        named,
        f"create table format_rides {columns} using mdt options (key 'id') location"
        f" '{tmp_path / 't'}'",
    )
    sql(named, "insert into format_rides values ('a', 'Oslo', 1L)")
    assert read(tmp_path / "t") == [A]
    sql(named, "drop table format_rides")
    sql(named, f"create table format_rides {columns} using mdt location '{tmp_path / 't'}'")
    assert named.table("format_rides").count() == 1
    sql(
        named.newSession(),
        f"create table format_trips {options} as select 'b' id, 1L ts, 'Rome' city",
    )
    assert read(table_path(named, "format_trips")) == [B]
    assert mdt.open(table_path(named, "format_trips")).definition.partition_by == ("city",)
