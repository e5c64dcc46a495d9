"""A path means the same table in SQL, in format("mdt") and in Python."""

import pyarrow as pa
import pytest

import mdt
import mdt.spark
from mdt.stores.object_store import ObjectStorage
from mdt.stores.storage import hadoop_path, open_storage

NAMES = ["p%20q", "p%25q", "p%2Fq", "p q", "p+q", "ö%C3%B6", "p#q"]


@pytest.mark.parametrize("name", NAMES)
def test_a_location_is_the_directory_of_that_name(spark, tmp_path, name):
    mdt.spark.enable(spark)
    path = tmp_path / name
    spark.sql("drop table if exists located")
    spark.sql(f"create table located (id bigint) using mdt options (key 'id') location '{path}'")
    spark.sql("insert into located values (1)")
    assert [entry.name for entry in tmp_path.iterdir()] == [name]
    table = mdt.open(path)
    table.upsert(pa.table({"id": [2]}))
    assert table.path == str(path)
    spark.sql("drop table located")
    spark.sql(f"create table located using mdt location '{table.path}'")
    spark.createDataFrame([(3,)], "id long").write.format("mdt").mode("append").save(table.path)
    spark.sql("delete from located where id = 1")
    expected = [2, 3]
    for frame in (
        spark.table("located"),
        mdt.read(spark, path),
        spark.read.format("mdt").load(f"file:{path}"),
        spark.read.format("mdt").option("path", f"file://{path}").load(),
    ):
        assert sorted(row["id"] for row in frame.collect()) == expected
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == expected
    spark.sql("drop table located")


@pytest.mark.parametrize("name", NAMES)
def test_a_hadoop_path_is_the_object_prefix_of_that_name(name):
    storage = open_storage(
        hadoop_path(f"s3a://bucket/{name}"),
        storage_options={"region": "us-east-1", "access_key_id": "a", "secret_access_key": "b"},
    )
    assert isinstance(storage, ObjectStorage)
    assert storage.uri("x") == f"s3a://bucket/{name}/x"
    assert storage._store.prefix == name


def test_the_uri_of_a_store_object_contains_its_prefix():
    from obstore.store import S3Store

    store = S3Store(
        "bucket", prefix="p%20q", region="us-east-1", access_key_id="a", secret_access_key="b"
    )
    assert open_storage(store).uri("x") == "s3a://bucket/p%20q/x"
