"""Options in an entry of Spark's catalog cannot set options of the machine that reads the table."""

import logging

import pytest
from pyspark.errors import PySparkException

import mdt
import mdt.spark
from mdt.engines.spark import private
from mdt.session import session
from mdt.source import open_tables

COLUMNS = "id string, n int"


@pytest.fixture
def sql(spark, tmp_path):
    mdt.spark.enable(spark)
    for name in ("entered", "saved"):
        spark.sql(f"drop table if exists {name}")
    session().clear()
    yield spark
    for name in ("entered", "saved"):
        spark.sql(f"drop table if exists {name}")


def create_with_entry_option(spark, place, option, value):
    """Create a table, then add an option to its catalog entry without mdt, as another program can."""
    spark.sql(f"create table entered ({COLUMNS}) using mdt options (key 'id') location '{place}'")
    java = private.java_session(spark)
    catalog = java.sharedState().externalCatalog()
    table = catalog.getTable("default", "entered")
    properties = table.storage().properties().updated(option, value)
    changed = copied(table, "storage", copied(table.storage(), "properties", properties))
    catalog.alterTable(changed)
    java.sessionState().catalog().refreshTable(table.identifier())


def copied(record, name, value):
    """Return a copy of a Scala record with another value in one field."""
    names = [record.productElementName(number) for number in range(record.productArity())]
    return record.copy(
        *(value if field == name else record.productElement(at) for at, field in enumerate(names))
    )


def opened_with(place):
    """Return the names of the machine options with which the table at a place is open."""
    return [
        name
        for key in open_tables.open_table_cache().value
        if str(place) in key[0]
        for name, _ in key[1]
        if "dir" in name or "threads" in name
    ]


@pytest.mark.parametrize(
    "clause",
    [
        "options (key 'id', 'mdt.cache.dir' '/x')",
        "options (key 'id') tblproperties ('mdt.Reader.Threads' = '9')",
    ],
)
@pytest.mark.parametrize("columns", ["({}) using mdt {}", "using mdt {1} as select 'a' id, 1 n"])
def test_create_table_refuses_options_of_the_machine(sql, clause, columns):
    with pytest.raises(
        PySparkException, match=r"is an option of the machine[^\n]*\n  hint: .*SET spark\.mdt\."
    ) as caught:
        sql.sql("create table entered " + columns.format(COLUMNS, clause))
    assert (caught.value.getCondition(), caught.value.getSqlState()) == ("MDT_INVALID", "22023")
    assert not sql.catalog.tableExists("entered")


def test_save_as_table_refuses_options_of_the_machine_and_save_by_path_accepts_them(sql, tmp_path):
    rows = (
        sql.createDataFrame([("a", 1)], COLUMNS)
        .write.format("mdt")
        .option("key", "id")
        .option("mdt.writer.threads", "2")
    )
    with pytest.raises(PySparkException, match="option of the machine"):
        rows.saveAsTable("saved")
    rows.save(str(tmp_path / "t"))
    assert (
        sql.read.format("mdt").option("mdt.reader.threads", "1").load(str(tmp_path / "t")).count()
        == 1
    )


QUERIES = [
    "select count(*) from entered",
    "with w as (select * from entered) select count(*) from w",
    "select count(*) from identifier('enter' || 'ed')",
    "select count(*) from entered where n in (select n from entered)",
    "insert into entered values ('b', 2)",
    "insert overwrite entered values ('b', 2)",
    "update entered set n = 3",
    "delete from entered where n = 1",
    (
        "merge into entered t using (select 'a' id, 5 n) s on t.id = s.id when matched then update"
        " set *"
    ),
    "describe entered n",
    "call mdt.compact('entered')",
    "select count(*) from mdt_files('entered')",
    "select count(*) from entered version as of 0",
    "create or replace temporary view v as select * from entered",
    "cache table entered",
    "alter table entered add columns (m int)",
    "truncate table entered",
]


@pytest.mark.parametrize("query", QUERIES)
def test_statements_ignore_options_of_the_machine_in_a_catalog_entry(sql, tmp_path, query):
    trap = tmp_path / "trap"
    create_with_entry_option(sql, tmp_path / "t", "MDT.cache.dir", str(trap))
    session().clear()
    sql.sql(query).collect()
    sql.sql("uncache table if exists entered")
    assert opened_with(tmp_path / "t") == [] and not trap.exists()
    assert "entered" in sql.catalog.getTable("entered").name


def test_the_warning_appears_once_and_names_the_option_and_the_remedy(sql, tmp_path, caplog):
    create_with_entry_option(sql, tmp_path / "t", "mdt.write.spill.dir", str(tmp_path / "trap"))
    with caplog.at_level(logging.WARNING, logger="mdt.metadata"):
        for _ in range(2):
            sql.sql("select * from entered").collect()
    warnings = [
        record.getMessage() for record in caplog.records if "ignored" in record.getMessage()
    ]
    assert (
        len(warnings) == 1
        and "mdt.write.spill.dir" in warnings[0]
        and "SET spark.mdt.write.spill.dir" in warnings[0]
    )


def test_other_options_of_a_catalog_entry_still_apply(sql, tmp_path):
    create_with_entry_option(sql, tmp_path / "t", "mdt.compression", "zstd")
    session().clear()
    sql.sql("select * from entered").collect()
    assert [
        dict(key[1])
        for key in open_tables.open_table_cache().value
        if str(tmp_path / "t") in key[0]
    ] == [{"mdt.compression": "zstd"}]
