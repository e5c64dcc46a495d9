"""``spark.read.format("mdt")`` and tables of Spark's catalog read the same rows as ``mdt.read``, by
the same scan.
"""

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from sql_tables import tuples

import mdt
import mdt.spark
from mdt.engines.spark import source
from mdt.engines.spark.private import java_frame
from mdt.errors import Unsupported

OLD = {"id": ["a", "b", "c"], "city": ["Oslo", "Rome", "Oslo"], "fare": [1.5, 2.5, 3.5]}
SCHEMA = pa.table(OLD).schema
NEWEST = [("a", "Oslo", 9.0), ("c", "Oslo", 3.5)]
AT_COMMIT_1 = [("a", "Oslo", 1.5), ("b", "Rome", 2.5), ("c", "Oslo", 3.5)]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A table whose newest state differs from commit 1 by an update and a delete."""
    path = tmp_path_factory.mktemp("format") / "t"
    created = mdt.create(path, SCHEMA, key=["id"], partition_by=["city"], indexes=["bitmap(city)"])
    created.upsert(OLD)
    created.upsert({"id": ["a"], "city": ["Oslo"], "fare": [9.0]})
    created.delete({"id": ["b"], "city": ["Rome"]})
    return created


def read(spark, table, **options):
    return spark.read.format("mdt").options(**options).load(table.path)


def test_the_format_uses_the_scan_of_mdt_read_and_prunes_files(named, table):
    assert tuples(read(named, table)) == NEWEST
    query = read(named, table).where("fare > 5")
    plan = java_frame(query).queryExecution().executedPlan().toString()
    assert "FileScan" in plan and "MdtFileIndex" in plan
    assert read(named, table).where("city = 'Rome'").rdd.getNumPartitions() == 0
    assert tuples(query) == [("a", "Oslo", 9.0)]


def test_a_state_is_selected_with_mdt_or_hudi_option_names(named, table):
    instant = str(table.history()["instant"][1])
    assert tuples(read(named, table, as_of="1")) == AT_COMMIT_1
    assert tuples(read(named, table, **{"as.of.instant": instant})) == AT_COMMIT_1
    assert tuples(read(named, table, query_type="read_optimized")) == tuples(
        mdt.read(named, table.path, query_type="read_optimized")
    )


def test_the_option_since_reads_incremental_rows_and_changes(named, table):
    assert tuples(read(named, table, since="1")) == [("a", "Oslo", 9.0)]
    assert tuples(read(named, table, since="1", until="1")) == []
    hudi_options = {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.read.begin.instanttime": "000",
    }
    assert tuples(read(named, table, **hudi_options).where("fare < 5").select("id")) == ["c"]
    assert read(named, table, since="0").count() == 2
    changes = read(named, table, since="1", changes="all").select("_change", "id", "fare")
    assert tuples(changes.where("id <> 'b'")) == [
        ("update_after", "a", 9.0),
        ("update_before", "a", 1.5),
    ]


def refusal(frame):
    with pytest.raises(PySparkException) as error:
        frame()
    return str(error.value)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"as_off": "1"}, "unknown option 'as_off'.*did you mean as_of"),
        ({"hoodie.datasource.query.typ": "snapshot"}, "did you mean hoodie.datasource.query.type"),
        ({"query_type": "incremental"}, "requires the option since"),
        ({"changes": "net"}, "changes and until require since"),
        ({"changes": "some", "since": "0"}, "one of net, all"),
        ({"as_of": "1", "since": "0"}, "as_of and since cannot be combined"),
        ({"as_of": "1", "as.of.instant": "2"}, "same option, with different values"),
        ({"query_type": "read_optimized", "since": "0"}, "cannot be combined with since"),
        (
            {"hoodie.datasource.query.incremental.format": "cdc", "since": "0"},
            "the options since and changes",
        ),
        ({"as_of": "77"}, "no commit 77"),
    ],
)
def test_invalid_options_are_refused_with_an_explanation(named, table, options, reason):
    with pytest.raises(PySparkException, match=f"(?s){reason}"):
        read(named, table, **options)


def test_missing_tables_missing_paths_several_paths_and_a_schema_are_refused(
    named, table, tmp_path
):
    assert "is not an mdt table" in refusal(lambda: named.read.format("mdt").load(str(tmp_path)))
    assert "the path of the table is missing" in refusal(lambda: named.read.format("mdt").load())
    assert "name one table" in refusal(lambda: named.read.format("mdt").load(["/a", "/b"]))
    reader = named.read.schema("id string").format("mdt")
    assert "remove the schema" in refusal(lambda: reader.load(table.path))


def test_a_catalog_table_follows_commits_and_a_query_may_select_a_state(named, tmp_path):
    trips = mdt.create(tmp_path / "t", SCHEMA, key=["id"])
    trips.upsert(OLD)
    named.sql(f"create table trips using mdt location '{trips.path}'")
    assert tuples(named.sql("select * from trips with (as_of = '0')")) == []
    assert tuples(named.table("trips")) == AT_COMMIT_1
    trips.delete({"id": ["b"]})
    trips.upsert({"id": ["a"], "city": ["Oslo"], "fare": [9.0]})
    assert tuples(named.sql("select * from trips")) == NEWEST
    assert tuples(named.sql("select * from trips with (as_of = '1') where fare < 2")) == [
        ("a", "Oslo", 1.5)
    ]
    assert tuples(named.sql("select * from trips")) == NEWEST
    assert "since is not supported for catalog tables" in refusal(
        lambda: named.sql("select * from trips with (since = '1')").collect()
    )
    trips.alter(add={"n": pa.int64()})
    named.sql("refresh table trips")
    assert named.table("trips").columns == ["id", "city", "fare", "n"]


def test_a_range_of_commits_can_be_a_view_but_not_a_catalog_table(named, table):
    named.sql(
        f"create or replace temporary view format_late using mdt options (path '{table.path}',"
        " since '1')"
    )
    assert tuples(named.sql("select id from format_late where fare > 1")) == ["a"]
    named.sql(f"create table ranged using mdt options (path '{table.path}', since '1')")
    assert "CREATE TEMPORARY VIEW" in refusal(lambda: named.table("ranged").collect())


def test_enable_refuses_a_session_with_an_unknown_class_loader_but_mdt_read_works(
    spark, table, monkeypatch
):
    class Unknown:
        def enable(self, session, answers):
            return False

    monkeypatch.setattr(source, "factory_of", lambda context: Unknown())
    new_session = spark.newSession()
    with pytest.raises(Unsupported, match="class loader"):
        mdt.spark.enable(new_session)
    assert tuples(mdt.read(new_session, table.path)) == NEWEST
