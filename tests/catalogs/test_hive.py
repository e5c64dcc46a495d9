"""Entries in a Hive metastore: columns, partitions, a second name for base files, and no change of
entries of other tables.
"""

import builtins
import datetime
import sys

import pyarrow as pa
import pytest
from hive_server import metastore

import mdt
from mdt.catalogs import HiveMetastore, hive_entries
from mdt.catalogs.hive_entries import _client, hive_type, spark_schema
from mdt.stores.storage import MemoryStorage

ROWS = pa.table(
    {
        "id": ["a", "b", "c"],
        "city": ["Oslo", None, "a b/c%"],
        "fare amount": [1.0, 2.0, 3.0],
        "at": pa.array([datetime.datetime(2024, 1, 1)] * 3, pa.timestamp("us")),
        "nested": [{"x y": [1]}] * 3,
    }
)
META = [
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with metastore(tmp_path_factory.mktemp("metastore")) as address:
        yield address


def create_table(path, kind="COPY_ON_WRITE", by=("city",)):
    table = mdt.create(path, ROWS.schema, ["id"], partition_by=list(by), table_type=kind)
    table.upsert(ROWS)
    return table


def entry(address, name):
    with _client(address) as client:
        return client.get_table("default", name), client.get_partitions("default", name, -1)


def test_a_table_is_registered_with_columns_and_partitions(address, tmp_path):
    mdt.register(create_table(tmp_path / "t"), HiveMetastore(address), "default.partitioned")
    table, partitions = entry(address, "partitioned")
    assert {column.name: column.type for column in table.sd.cols} == {
        **dict.fromkeys(META, "string"),
        "id": "string",
        "fare_x20_amount": "double",
        "at": "timestamp",
        "nested": "struct<x_x20_y:array<bigint>>",
    }
    assert [(column.name, column.type) for column in table.partitionKeys] == [("city", "string")]
    assert table.tableType == "EXTERNAL_TABLE"
    assert table.sd.inputFormat == "org.apache.hudi.hadoop.HoodieParquetInputFormat"
    assert table.parameters["spark.sql.sources.provider"] == "hudi"
    locations = {tuple(part.values): part.sd.location for part in partitions}
    assert locations == {
        ("Oslo",): f"file:{tmp_path}/t/city=Oslo",
        ("__HIVE_DEFAULT_PARTITION__",): f"file:{tmp_path}/t/city=__HIVE_DEFAULT_PARTITION__",
        ("a b/c%",): f"file:{tmp_path}/t/city=a b%2Fc%25",
    }


def test_a_merge_on_read_table_has_a_second_name_for_base_files(address, tmp_path):
    mdt.register(
        create_table(tmp_path / "t", "MERGE_ON_READ", ()), HiveMetastore(address), "default.merged"
    )
    (snapshot_entry, _), (base_entry, _) = entry(address, "merged"), entry(address, "merged_ro")
    assert snapshot_entry.sd.inputFormat.endswith("HoodieParquetRealtimeInputFormat")
    assert base_entry.sd.inputFormat.endswith("HoodieParquetInputFormat")
    flags = [
        hive_table.sd.serdeInfo.parameters["hoodie.query.as.ro.table"]
        for hive_table in (snapshot_entry, base_entry)
    ]
    assert flags == ["false", "true"]


def test_a_second_registration_updates_the_entry(address, tmp_path):
    table = create_table(tmp_path / "t")
    mdt.register(table, HiveMetastore(address), "default.changed")
    mdt.register(table, HiveMetastore(address), "default.changed")
    table.alter(add={"note": pa.string()})
    table.upsert({**ROWS.slice(0, 1).to_pydict(), "id": ["z"], "city": ["Rome"], "note": ["new"]})
    table.delete_partition({"city": "Oslo"})
    mdt.register(table, HiveMetastore(address), "default.changed")
    hive_table, partitions = entry(address, "changed")
    assert (
        hive_table.sd.cols[-1].name == "note"
        and '"note"' in (hive_table.parameters["spark.sql.sources.schema.part.0"])
    )
    values = {part.values[0] for part in partitions}
    assert values == {"Rome", "a b/c%", "__HIVE_DEFAULT_PARTITION__"}
    assert table.scan().count() == 3 and table.check().ok, "no file is deleted"


def test_many_columns_and_partitions_are_registered(address, tmp_path, monkeypatch):
    monkeypatch.setattr(hive_entries, "_BATCH", 15)
    schema = pa.schema({"id": pa.int64(), **{f"column_{n}": pa.string() for n in range(200)}})
    table = mdt.create(tmp_path / "t", schema, ["id"], partition_by=["column_0"])
    nulls = dict.fromkeys(schema.names[2:])
    table.upsert([{"id": n, "column_0": f"{n}", **nulls} for n in range(40)])
    mdt.register(table, HiveMetastore(address), "default.wide")
    hive_table, partitions = entry(address, "wide")
    assert len({tuple(part.values) for part in partitions}) == 40
    count = int(hive_table.parameters["spark.sql.sources.schema.numParts"])
    parts = [hive_table.parameters[f"spark.sql.sources.schema.part.{n}"] for n in range(count)]
    assert count > 1 and max(map(len, parts)) <= 4_000 and "column_199" in "".join(parts)


def test_an_entry_of_another_table_is_not_replaced(address, tmp_path):
    mdt.register(create_table(tmp_path / "one"), HiveMetastore(address), "default.taken")
    with pytest.raises(mdt.Invalid, match=r"default\.taken is another table .*/one"):
        mdt.register(create_table(tmp_path / "two"), HiveMetastore(address), "default.taken")
    assert entry(address, "taken")[0].sd.location.endswith("/one")


def test_a_missing_database_or_metastore_is_named_in_the_error(address, tmp_path):
    table = create_table(tmp_path / "t")
    with pytest.raises(mdt.Invalid, match="create the database first"):
        mdt.register(table, HiveMetastore(address), "nowhere.t")
    with pytest.raises(mdt.Unavailable, match=r"thrift://127\.0\.0\.1:9"):
        mdt.register(table, HiveMetastore("thrift://127.0.0.1:9"), "default.t")


def test_a_location_for_engines_is_registered_and_cannot_be_changed_later(address, tmp_path):
    table = create_table(tmp_path / "t")
    other_location = "s3a://lake/trips/"
    mdt.register(table, HiveMetastore(address), "default.far", location=f"file://{tmp_path}/t/")
    assert entry(address, "far")[0].sd.location == f"file:{tmp_path}/t"
    with pytest.raises(mdt.Invalid, match="another table"):
        mdt.register(table, HiveMetastore(address), "default.far", location=other_location)


@pytest.mark.parametrize(
    "url",
    [
        *("", "metastore:9083", "http://metastore", "thrift://", "thrift://h/p"),
        *("thrift://h:port", "thrift://h:99999", "thrift://[::1"),
    ],
)
def test_invalid_addresses_are_refused(url):
    with pytest.raises(mdt.Invalid, match="thrift://metastore"):
        HiveMetastore(url)


def test_without_the_thrift_client_the_extra_is_named(tmp_path, monkeypatch):
    original_import = builtins.__import__

    def refuse_import(name, *rest):
        if name.partition(".")[0] in ("thrift", "hive_metastore"):
            raise ImportError(name)
        return original_import(name, *rest)

    monkeypatch.delitem(sys.modules, "mdt.catalogs.hive_entries")
    monkeypatch.delattr(sys.modules["mdt.catalogs"], "hive_entries", raising=False)
    monkeypatch.setattr(builtins, "__import__", refuse_import)
    with pytest.raises(mdt.Unsupported, match=r"pyspark-mdt\[hive\]"):
        mdt.register(
            create_table(tmp_path / "t"), HiveMetastore("thrift://127.0.0.1:9"), "default.t"
        )


def test_types_have_their_names_in_hive_and_spark():
    schema = pa.schema(
        {
            "flag": pa.bool_(),
            "price": pa.decimal128(9, 2),
            "tags": pa.map_(pa.string(), pa.list_(pa.int32())),
            "place": pa.struct([("x", pa.float32()), ("on", pa.date32())]),
            "raw": pa.binary(),
        }
    )
    assert [hive_type(field.type) for field in schema] == [
        "boolean",
        "decimal(9,2)",
        "map<string,array<int>>",
        "struct<x:float,on:date>",
        "binary",
    ]
    types = [field["type"] for field in spark_schema(schema)["fields"]]
    assert types[1] == "decimal(9,2)" and types[2]["valueType"]["elementType"] == "integer"
    assert [field["type"] for field in types[3]["fields"]] == ["float", "date"]


def test_tables_in_memory_and_wrong_arguments_are_refused(tmp_path):
    hive = HiveMetastore("thrift://127.0.0.1:9")
    with pytest.raises(mdt.Unsupported, match="in memory"):
        mdt.register(create_table(MemoryStorage()), hive, "default.t")
    with pytest.raises(mdt.Invalid, match="a table and a catalog"):
        mdt.register(tmp_path, hive, "default.t")
    table = create_table(tmp_path / "t")
    with pytest.raises(mdt.Invalid, match="a table and a catalog"):
        mdt.register(table, hive.url, "default.t")
    for name in ("t", "", "lake.", ".t", "a..t", 7):
        with pytest.raises(mdt.Invalid, match=r"lake\.trips"):
            mdt.register(table, hive, name)
