"""``spark.read.format("mdt")`` and tables of Spark's catalog read what ``mdt.read`` reads, by the
same scan.
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
NOW = [("a", "Oslo", 9.0), ("c", "Oslo", 3.5)]
THEN = [("a", "Oslo", 1.5), ("b", "Rome", 2.5), ("c", "Oslo", 3.5)]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A table whose newest state differs from the one of commit 1 by an update and a delete."""
    path = tmp_path_factory.mktemp("format") / "t"
    found = mdt.create(path, SCHEMA, key=["id"], partition_by=["city"], indexes=["bitmap(city)"])
    found.upsert(OLD)
    found.upsert({"id": ["a"], "city": ["Oslo"], "fare": [9.0]})
    found.delete({"id": ["b"], "city": ["Rome"]})
    return found


def read(spark, table, **options):
    return spark.read.format("mdt").options(**options).load(table.path)


def test_the_format_reads_by_the_scan_of_mdt_read_and_leaves_out_files(named, table):
    assert tuples(read(named, table)) == NOW
    query = read(named, table).where("fare > 5")
    plan = java_frame(query).queryExecution().executedPlan().toString()
    assert "FileScan" in plan and "MdtFileIndex" in plan
    assert read(named, table).where("city = 'Rome'").rdd.getNumPartitions() == 0
    assert tuples(query) == [("a", "Oslo", 9.0)]


def test_a_state_is_chosen_by_our_names_and_by_those_of_hudi(named, table):
    instant = str(table.history()["instant"][1])
    assert tuples(read(named, table, as_of="1")) == THEN
    assert tuples(read(named, table, **{"as.of.instant": instant})) == THEN
    assert tuples(read(named, table, query_type="read_optimized")) == tuples(
        mdt.read(named, table.path, query_type="read_optimized")
    )


def test_rows_that_commits_wrote_and_changes_are_asked_for_by_since(named, table):
    assert tuples(read(named, table, since="1")) == [("a", "Oslo", 9.0)]
    assert tuples(read(named, table, since="1", until="1")) == []
    hudis = {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.read.begin.instanttime": "000",
    }
    assert tuples(read(named, table, **hudis).where("fare < 5").select("id")) == ["c"]
    assert read(named, table, since="0").count() == 2
    changes = read(named, table, since="1", changes="all").select("_change", "id", "fare")
    assert tuples(changes.where("id <> 'b'")) == [
        ("update_after", "a", 9.0),
        ("update_before", "a", 1.5),
    ]


def refusal(frame):
    with pytest.raises(PySparkException) as refused:
        frame()
    return str(refused.value)


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
def test_what_options_cannot_mean_is_refused_with_what_they_could(named, table, options, reason):
    with pytest.raises(PySparkException, match=f"(?s){reason}"):
        read(named, table, **options)


def test_no_table_and_other_columns_are_refused(named, table, tmp_path):
    assert "is not an mdt table" in refusal(lambda: named.read.format("mdt").load(str(tmp_path)))
    assert "the path of the table is missing" in refusal(lambda: named.read.format("mdt").load())
    assert "name one table" in refusal(lambda: named.read.format("mdt").load(["/a", "/b"]))
    some = named.read.schema("id string").format("mdt")
    assert "remove the schema" in refusal(lambda: some.load(table.path))


def test_a_table_of_the_catalog_follows_the_table_and_a_query_may_name_a_state(named, tmp_path):
    own = mdt.create(tmp_path / "t", SCHEMA, key=["id"])
    own.upsert(OLD)
    named.sql(f"create table trips using mdt location '{own.path}'")
    assert tuples(named.sql("select * from trips with (as_of = '0')")) == []
    assert tuples(named.table("trips")) == THEN
    own.delete({"id": ["b"]})
    own.upsert({"id": ["a"], "city": ["Oslo"], "fare": [9.0]})
    assert tuples(named.sql("select * from trips")) == NOW
    assert tuples(named.sql("select * from trips with (as_of = '1') where fare < 2")) == [
        ("a", "Oslo", 1.5)
    ]
    assert tuples(named.sql("select * from trips")) == NOW
    assert "since is not supported for catalog tables" in refusal(
        lambda: named.sql("select * from trips with (since = '1')").collect()
    )
    own.alter(add={"n": pa.int64()})
    named.sql("refresh table trips")
    assert named.table("trips").columns == ["id", "city", "fare", "n"]


def test_a_range_of_commits_can_be_a_view_and_no_table_of_the_catalog(named, table):
    named.sql(
        f"create or replace temporary view format_late using mdt options (path '{table.path}',"
        " since '1')"
    )
    assert tuples(named.sql("select id from format_late where fare > 1")) == ["a"]
    named.sql(f"create table ranged using mdt options (path '{table.path}', since '1')")
    assert "CREATE TEMPORARY VIEW" in refusal(lambda: named.table("ranged").collect())


def test_a_session_whose_class_loader_is_not_sparks_is_refused_by_name_and_read_without(
    spark, table, monkeypatch
):
    class Unknown:
        def enable(self, session, answers):
            return False

    monkeypatch.setattr(source, "factory_of", lambda context: Unknown())
    other = spark.newSession()
    with pytest.raises(Unsupported, match="class loader"):
        mdt.spark.enable(other)
    assert tuples(mdt.read(other, table.path)) == NOW
