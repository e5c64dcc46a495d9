"""Columns whose names Avro does not allow, and names that differ from the declared ones in case, on
Spark. Every way to read and write accepts them and shows them as declared.
"""

import pytest
from executed_plans import run
from pyspark.errors import PySparkException
from reader import hudi_table
from sql_tables import IN_TASKS, LOCAL_BYTES, lines, settings, tuples

import mdt
from mdt.errors import Invalid
from mdt.schema import names

WHERE_WRITTEN = pytest.mark.parametrize("bytes_max", ["0", "67108864"])
"""Write in tasks, or in process."""


@pytest.fixture
def trips(named, tmp_path):
    named.sql(
        f"""create table odd_trips (`trip id` string, `pick-up city` string, `ts (ms)` bigint,
            `fare amount` double, `a.b` int, `x-y` struct<`zip code`: int, `p.q`: string>)
            using mdt partitioned by (`pick-up city`)
            options (key 'trip id', ordering 'ts (ms)') location '{tmp_path}/t'"""
    )
    named.sql(
        """insert into odd_trips select concat('t', id), id * 1L, id * 0.5D, int(id),
           named_struct('zip code', int(id), 'p.q', 'x'), if(id % 2 = 0, 'Oslo', 'Bern')
           from range(100)"""
    )
    return mdt.open(tmp_path / "t")


def rows_of(table, where, *columns):
    """Return rows as mdt reads them in process."""
    items = table.scan(where, columns=columns, order_by=f"`{columns[0]}`").to_arrow().to_pylist()
    return [tuple(row.values()) for row in items]


CHANGES = lines(
    """
    update odd_trips set `fare amount` = `fare amount` + 1 where `a.b` = 7
    delete from odd_trips where `x-y`.`zip code` = 8
    merge into odd_trips t using (select 't9' `trip id`, 'Bern' `pick-up city`, 500L `ts (ms)`) s on t.`trip id` = s.`trip id` and t.`pick-up city` = s.`pick-up city` when matched then update set `a.b` = -1, `ts (ms)` = s.`ts (ms)`
    insert into odd_trips (`trip id`, `pick-up city`, `ts (ms)`) values ('new', 'Rome', 1)
    insert overwrite odd_trips partition (`pick-up city` = 'Rome') select 'newer', 2, 0.5, 1, null
    """
)


def test_sql_reads_and_writes_columns_by_their_declared_names(named, trips):
    assert {"trip id", "ts (ms)", "a.b", "pick-up city"} <= set(named.table("odd_trips").columns)
    columns, where = "`trip id`, `fare amount`, `x-y`.`zip code` z", "`fare amount` > 49"
    read = named.sql(f"select {columns} from odd_trips where {where} and `a.b` = 99")
    assert tuples(read) == [("t99", 49.5, 99)]
    for statement in CHANGES:
        named.sql(statement)
    where = "`trip id` in ('t7', 't8', 't9', 'new', 'newer')"
    assert rows_of(trips, where, "trip id", "fare amount", "a.b", "pick-up city") == [
        ("newer", 0.5, 1, "Rome"),
        ("t7", 4.5, 7, "Bern"),
        ("t9", 4.5, -1, "Bern"),
    ]
    of_rome = "select count(*), sum(`a.b`) from odd_trips where `pick-up city` = 'Rome'"
    assert tuples(named.sql(of_rome)) == [(1, 1)]
    assert tuples(named.sql("show partitions odd_trips"))
    assert tuples(named.sql("select count(*) from odd_trips version as of 1")) == [100]
    assert not trips.check().problems
    read = hudi_table(trips.path, names.in_files(trips.definition.schema))
    assert read.num_rows == trips.scan().count()


def test_columns_with_such_names_are_altered_and_used_for_pruning(named, trips):
    named.sql("alter table odd_trips add columns (`new.one` int, `two words` string)")
    columns = "(`trip id`, `pick-up city`, `ts (ms)`, `new.one`)"
    named.sql(f"insert into odd_trips {columns} values ('n', 'Oslo', 1, 5)")
    read = named.sql("select `trip id`, `two words` from odd_trips where `new.one` = 5")
    assert tuples(read) == [("n", None)]
    trips.alter(rename={"fare amount": "the fare", "new.one": "new two"}, beyond_hudi=True)
    frame = mdt.read(named, trips.path)
    assert {"the fare", "new two"} <= set(frame.columns)
    trips.create_index("bitmap('a.b')")
    rows, files = run(frame.where("`a.b` = 10 and `the fare` = 5").select("trip id", "the fare"))
    assert (rows, files) == ([("t10", 5.0)], [1])


def test_frames_with_such_column_names_are_written_and_read(named, tmp_path):
    rows = named.range(200).selectExpr(
        "concat('t', id) `trip id`",
        "if(id % 2 = 0, 'Oslo', 'Bern') `pick-up city`",
        "id `ts (ms)`",
        "id * 0.5 `fare amount`",
        "int(id) `1st`",
        "array(named_struct('who?', int(id))) `a.b`",
    )
    path, options = f"{tmp_path}/t", {"key": "trip id", "ordering": "ts (ms)"}
    for bytes_max in ("0", "67108864"):
        with settings(named, {LOCAL_BYTES: bytes_max}):
            writer = rows.write.format("mdt").options(**options).partitionBy("pick-up city")
            writer.mode("append").save(path)
    table = mdt.open(path, IN_TASKS)
    assert table.scan().count() == 200
    read = named.read.format("mdt").load(path)
    matches = read.where("`fare amount` = 3.5 and `1st` = 7").select("trip id", "`a.b`")
    assert matches.collect() == [("t7", [(7,)])]
    all_columns = read.select(*(f"`{name}`" for name in rows.columns))
    assert tuples(all_columns) == tuples(rows)
    three = table.scan("`1st` < 3", columns=["trip id", "1st"]).to_spark(named)
    assert tuples(three) == [("t0", 0), ("t1", 1), ("t2", 2)]
    place = ("`trip id`", "`pick-up city`")
    changed = ("999L `ts (ms)`", "-1.0D `fare amount`", "`1st`", "`a.b`")
    table.upsert(rows.where("`1st` = 5").selectExpr(*place, *changed))
    merge = table.merge(rows.where("`1st` = 6").selectExpr(*place, "-2.0D `fare amount`"))
    merge.when_matched().update({"fare amount": "source.`fare amount`"}).execute()
    table.delete(rows.where("`1st` = 8").select("trip id", "pick-up city"))
    table.compact(spark=named)
    assert rows_of(table, "`1st` in (5, 6, 8)", "1st", "fare amount") == [(5, -1.0), (6, -2.0)]
    assert not table.check().problems


def test_streams_and_changes_keep_such_column_names(named, trips, tmp_path):
    named.sql("update odd_trips set `fare amount` = -1 where `a.b` = 3")
    changes = "mdt_changes('odd_trips', 1) where `fare amount` < 0"
    changed = named.sql(f"select `trip id`, `fare amount` from {changes}")
    assert tuples(changed) == [("t3", -1.0)]
    stream = named.readStream.format("mdt").load(trips.path)
    writer = stream.selectExpr("`trip id`", "`fare amount`").writeStream.format("mdt")
    writer = writer.options(key="trip id", checkpointLocation=f"{tmp_path}/checkpoint")
    writer.trigger(availableNow=True).start(f"{tmp_path}/sink").awaitTermination()
    sink = mdt.open(tmp_path / "sink")
    assert sink.schema.names == ["trip id", "fare amount"]
    assert sink.scan("`fare amount` = -1").count() == 1


# --- names in other case: the same column unless spark.sql.caseSensitive is true -----------------


@pytest.fixture
def people(named, tmp_path):
    columns, place = "(Id bigint, CustName string)", f"location '{tmp_path}/t'"
    named.sql(f"create table people {columns} using mdt options (key 'ID') {place}")
    named.sql("insert into people values (1, 'a')")
    return mdt.open(tmp_path / "t")


@WHERE_WRITTEN
def test_every_way_to_write_accepts_names_in_other_case(named, people, bytes_max):
    rows = named.createDataFrame([(2, "z")], "ID long, custname string")
    with settings(named, {LOCAL_BYTES: bytes_max}):
        rows.writeTo("people").append()
        rows.replace("z", "y").write.format("mdt").mode("append").save(people.path)
        more = rows.selectExpr("3L iD", "'c' CUSTNAME").write.format("mdt").mode("append")
        more.options(evolve="true", key="id").save(people.path)
        named.sql("insert into people (id, CUSTNAME) values (4, 'd')")
        named.sql("update people set custname = 'dd' where ID = 4")
        source = "(select 5L id, 'e' custname) s on t.id = s.id"
        named.sql(f"merge into people t using {source} when not matched then insert *")
        table = mdt.open(people.path, {"mdt.spark.local.bytes.max": bytes_max})
        table.upsert(rows.selectExpr("6L ID", "'f' custName"))
        table.merge(rows.selectExpr("6L ID", "'ff' CUSTNAME")).when_matched().update("*").execute()
        table.delete(rows.selectExpr("1L ID"))
    assert people.schema.names == ["Id", "CustName"]
    expected = [(2, "y"), (3, "c"), (4, "dd"), (5, "e"), (6, "ff")]
    assert rows_of(people, "true", "Id", "CustName") == expected
    frame = mdt.read(named, people.path).where("ID = 2 and CUSTNAME = 'y'")
    assert tuples(frame.select("custname")) == ["y"]


def test_a_case_sensitive_session_refuses_names_in_other_case(named, people):
    rows = named.createDataFrame([(2, "z")], "ID long, custname string")
    sensitive = "spark.sql.caseSensitive"
    message = f"{sensitive} is true"
    with settings(named, {sensitive: "true"}):
        with pytest.raises(PySparkException, match=f"{message}: ID for Id, custname for CustName"):
            rows.write.format("mdt").mode("append").save(people.path)
        with pytest.raises(Invalid, match=message):
            people.delete(rows)
        with pytest.raises(PySparkException, match=f"there is no column 'id', and {message}"):
            rows.write.format("mdt").option("key", "id").save(f"{people.path}_other")
        with pytest.raises(PySparkException, match="UNRESOLVED_COLUMN"):
            mdt.read(named, people.path).where("custname = 'a'")
        rows.toDF("Id", "CustName").write.format("mdt").mode("append").save(people.path)
    assert people.scan().count() == 2
