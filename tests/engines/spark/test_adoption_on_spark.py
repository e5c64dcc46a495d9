"""Adopted tables on Spark: procedures, commits of another writer between queries, and keys that
another writer has repeated.
"""

import shutil
from datetime import datetime

import pytest
from following import Follower
from foreign_tables import ForeignTable
from hudi_tables import bag
from other_writer import OtherWriter
from pyspark.errors import IllegalArgumentException, PySparkException, StreamingQueryException
from texts import columns

import mdt.spark
from mdt.errors import Unsupported
from mdt.hudi import properties
from mdt.metadata.files import paths
from mdt.stores.storage import LocalStorage

KEY = "_hoodie_record_key"


@pytest.fixture(autouse=True)
def _enabled(spark):
    mdt.spark.enable(spark)


def test_spark_adopts_a_table_and_reads_commits_of_another_writer(spark, tmp_path):
    path = tmp_path / "t"
    storage = OtherWriter(LocalStorage(str(path), durable=False))
    other_writer = mdt.create(storage, columns("id int64, name string"), ["id"])
    other_writer.upsert([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    plan = spark.sql(f"call mdt.adopt('{path}', dry_run => true)").collect()[0]
    assert plan.file_groups == 1 and not (path / ".hoodie/.mdt").exists()
    spark.sql(f"call mdt.adopt('{path}', key_index => 'record')").collect()
    assert mdt.read(spark, str(path)).count() == 2
    other_writer.upsert([{"id": 2, "name": "c"}, {"id": 3, "name": "d"}])
    expected = bag(other_writer.scan().to_arrow())
    assert bag(mdt.read(spark, str(path)).toArrow()) == expected
    assert bag(spark.read.format("mdt").load(str(path)).toArrow()) == expected
    assert spark.sql(f"call mdt.refresh('{path}')").collect()[0].imports == 1
    more = spark.createDataFrame([(3, "e"), (4, "f")], "id long, name string")
    more.write.format("mdt").mode("append").save(str(path))
    assert bag(mdt.read(spark, str(path)).toArrow()) == bag(other_writer.scan().to_arrow())
    assert mdt.open(path).check().ok
    assert not spark.sql(f"call mdt.release('{path}')").collect()
    assert not list(path.glob(".hoodie/.mdt/log/*"))
    assert bag(mdt.read(spark, str(path)).toArrow()) == bag(other_writer.scan().to_arrow())
    with pytest.raises(IllegalArgumentException, match="is not adopted"):
        spark.sql(f"call mdt.release('{path}')")


def test_a_frame_of_a_table_written_to_itself_includes_commits_of_another_writer(spark, tmp_path):
    path = str(tmp_path / "t")
    other_writer = mdt.create(
        OtherWriter(LocalStorage(path, durable=False)), columns("id int64, n int64"), ["id"]
    )
    other_writer.upsert([{"id": 1, "n": 1}])
    mdt.adopt(path)
    other_writer.upsert([{"id": 2, "n": 2}])
    rows = spark.read.format("mdt").load(path).selectExpr("id", "n + 10 n")
    rows.write.format("mdt").mode("append").save(path)
    assert sorted(mdt.open(path).scan().to_arrow()["n"].to_pylist()) == [11, 12]


def test_a_stream_returns_imported_changes_of_another_writer_once(spark, tmp_path):
    path = str(tmp_path / "t")
    other_writer = mdt.create(
        OtherWriter(LocalStorage(path, durable=False)), columns("id int64, name string"), ["id"]
    )
    other_writer.upsert([{"id": 1, "name": "a"}])
    assert mdt.read(spark, path).count() == 1
    with pytest.raises(Exception, match="another Hudi writer's table has none"):
        spark.readStream.format("mdt").load(path)
    adopted = mdt.adopt(path)
    begin = adopted.snapshot().seq
    options = {"changes": "net", "since": str(begin)}
    changes, rows = (
        Follower(spark, path, tmp_path / "changes", **options),
        Follower(spark, path, tmp_path / "rows"),
    )
    assert changes.run() == []
    assert rows.run() == [[(1, "a")]]
    adopted.upsert([{"id": 2, "name": "b"}])
    other_writer.upsert([{"id": 3, "name": "c"}])
    assert [[row[3:] for row in batch] for batch in changes.run()] == [[(2, "b")]]
    assert rows.run() == [[(2, "b")]]
    other_writer.upsert([{"id": 4, "name": "d"}])
    assert changes.run() == [], "the log does not contain these commits yet"
    adopted.refresh()
    assert [[row[3:] for row in batch] for batch in changes.run()] == [[(3, "c"), (4, "d")]]
    restarted = Follower(spark, path, tmp_path / "changes", **options)
    assert restarted.run() == []
    with pytest.raises(StreamingQueryException, match="cannot be found by commit number"):
        rows.run()


def test_spark_reads_and_changes_rows_with_generated_keys(spark, tmp_path):
    path = tmp_path / "t"
    created = mdt.create(
        path, columns("id int64, name string"), ["id"], options={"mdt.durable": "false"}
    )
    created.upsert([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    storage = created.storage
    stored = properties.decode(storage.read(paths.PROPERTIES))
    del stored["hoodie.table.recordkey.fields"]
    storage.replace(paths.PROPERTIES, properties.encode(stored))
    storage.delete_many([info.path for info in storage.list(paths.PRIVATE)])
    adopted = mdt.adopt(path, indexes=["bitmap(name)"])
    adopted.insert([{"id": 2, "name": "c"}])
    frame = mdt.read(spark, str(path))
    assert bag(frame.select(*adopted.schema.names).toArrow()) == bag(adopted.scan().to_arrow())
    assert frame.where("name = 'c'").select("id", KEY).count() == 1
    adopted.update_where({"name": "'d'"}, "id = 2", spark=spark)
    adopted.delete_where("id = 1", spark=spark)
    assert adopted.scan("name = 'd'").count() == 2 == adopted.scan().count()
    assert bag(mdt.read(spark, str(path)).select(*adopted.schema.names).toArrow()) == bag(
        adopted.scan().to_arrow()
    )
    new = spark.createDataFrame([(3, "e")], "id long, name string")
    adopted.insert(new)
    with pytest.raises(Unsupported, match=f"upsert needs the column {KEY}"):
        adopted.upsert(new)
    assert mdt.read(spark, str(path)).count() == 3 and adopted.check().ok


@pytest.mark.parametrize("tasks", [False, True])
def test_a_statement_never_changes_other_rows_with_the_same_key(spark, tmp_path, tasks):
    """A row is changed alone, or the statement is refused."""
    path, options = tmp_path / "t", {"mdt.keys.repeat": True, "mdt.services.auto": False}
    names = columns("id string, n int64")
    other_writer = mdt.create(path, names, ["id"], table_type="MERGE_ON_READ", options=options)
    other_writer.insert([{"id": "a", "n": 1}, {"id": "b", "n": 2}])
    other_writer.insert([{"id": "a", "n": 10}], check=False)
    shutil.rmtree(path / ".hoodie/.mdt")
    table = mdt.adopt(path, options={"mdt.services.auto": False})
    options_of_source = {"mdt.spark.local.bytes.max": 0} if tasks else {}
    clause = "".join(f", '{name}' '{value}'" for name, value in options_of_source.items())
    spark.sql(f"create or replace temporary view t using mdt options (path '{path}'{clause})")
    rows = [("a", 1), ("a", 10), ("b", 2)]
    for statement in (
        "update t set n = n + 1 where n % 10 = 0",
        "delete from t where n % 10 = 0",
    ):
        with pytest.raises(PySparkException, match=r"other live rows, too: \[\{'id': 'a'\}\]"):
            spark.sql(statement)
        assert sorted(map(tuple, spark.sql("select id, n from t").collect())) == rows
    spark.sql("update t set n = n + 1 where n % 10 = 2")
    spark.sql("update t set n = 5 where n = 10")
    updates = spark.createDataFrame([("b", 7)], "id string, n long")
    updates.createOrReplaceTempView("given")
    merge = "merge into t using given s on t.id = s.id when matched then update set n = s.n"
    spark.sql(merge)
    assert sorted(row["n"] for row in table.scan().to_arrow().to_pylist()) == [1, 5, 7]
    assert [p.text for p in table.check().problems if "live more than once" not in p.text] == []
    more = spark.createDataFrame([("a", 50), ("c", 60)], "id string, n long")
    more.write.format("mdt").options(**options_of_source).mode("append").save(str(path))
    remaining = table.scan().to_arrow().to_pylist()
    assert sorted((row["id"], row["n"]) for row in remaining) == [("a", 50), ("b", 7), ("c", 60)]
    assert table.check().ok


@pytest.mark.parametrize("tasks", [False, True])
def test_spark_reads_and_writes_local_timestamps_as_hudi_stores_them(spark, tmp_path, tasks):
    local = {"type": "long", "logicalType": "local-timestamp-micros"}
    table = ForeignTable({"id": "string", "at": local}, storage=LocalStorage(str(tmp_path)))
    table.base(1, [{"id": id, "at": 5} for id in "ab"])
    options = {"mdt.spark.local.bytes.max": "0"} if tasks else {}
    clause = "".join(f", '{name}' '{value}'" for name, value in options.items())
    mdt.adopt(tmp_path)
    frame = mdt.read(spark, str(tmp_path))
    assert dict(frame.dtypes)["at"] == "timestamp_ntz"
    more = spark.sql("select 'b' as id, timestamp_ntz'2024-02-29 12:00:00' as at")
    more.write.format("mdt").options(**options).mode("append").save(str(tmp_path))
    spark.sql(f"create or replace temporary view t using mdt options (path '{tmp_path}'{clause})")
    spark.sql("update t set at = timestamp_ntz'2024-03-01 00:00:00' where id = 'a'")
    rows = mdt.read(spark, str(tmp_path)).select("id", "at").collect()
    expected = {"a": datetime(2024, 3, 1), "b": datetime(2024, 2, 29, 12)}
    assert {row.id: row.at for row in rows} == expected
    matches = mdt.open(tmp_path).scan("at > timestamp '2024-02-29 12:00:00'").to_arrow()
    assert matches["id"].to_pylist() == ["a"]
    query = "select id from t where at > timestamp_ntz'2024-02-29 12:00:00'"
    assert [row.id for row in spark.sql(query).collect()] == ["a"]
