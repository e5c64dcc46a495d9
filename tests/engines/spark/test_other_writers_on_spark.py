"""Tables of other Hudi writers on Spark: rows, filters, past states, changes and statements."""

import pyarrow.compute as pc
import pytest
from hudi_tables import FIXTURES, ZIPS, bag, fixture, instants
from refusals import refused

import mdt.spark
from mdt.engines.spark import frame
from mdt.errors import Unsupported
from mdt.source import open_tables

pytestmark = pytest.mark.skipif(not ZIPS, reason=f"no fixtures in {FIXTURES}")
TABLES = (
    "cow_v6_complexkeygen_hivestyle",
    "cow_v8_simplekeygen_hivestyle_no_metafields",
    "mor_avro_v8_trips_8i3u1d",
    "mor_parquet_v6_simplekeygen_nonhivestyle",
)
OTHER_TABLES = [
    path.stem for path in ZIPS if path.parent.name == "hudi_rs" and path.stem not in TABLES
]
EVERY_TABLE = [*TABLES, *(pytest.param(name, marks=pytest.mark.nightly) for name in OTHER_TABLES)]


@pytest.fixture(autouse=True)
def _enabled(spark):
    mdt.spark.enable(spark)


@pytest.mark.parametrize("name", EVERY_TABLE)
def test_spark_reads_the_same_rows_as_a_scan_in_process(spark, name, tmp_path):
    folder = str(fixture(name, tmp_path))
    t = mdt.open(folder)
    rows = bag(t.scan().to_arrow())
    assert bag(mdt.read(spark, folder).toArrow()) == rows
    table = spark.read.format("mdt").load(folder)
    assert table.count() == len(rows)
    column = t.schema.names[0]
    expected = t.scan(f"`{column}` is not null", [column]).to_arrow()
    assert bag(table.where(f"`{column}` is not null").select(column).toArrow()) == bag(expected)


@pytest.mark.parametrize("name", ("cow_v9_txns_simple_meta", "mor_avro_v8_trips_8i3u1d"))
def test_filters_on_spark_find_the_right_rows_of_tables_with_indexes_of_hudi(spark, name, tmp_path):
    folder = str(fixture(name, tmp_path))
    t = mdt.open(folder)
    rows = t.scan().to_arrow()
    table = spark.read.format("mdt").load(folder)
    [key] = t.definition.key
    for column in (key, "merchant_name" if "txns" in name else "rider"):
        value = rows[column][0].as_py()
        expected = rows.filter(pc.equal(rows[column], value))
        assert bag(table.where(f"{column} = '{value}'").toArrow()) == bag(expected)
    assert table.where(f"{key} = 'absent'").count() == 0


def test_past_states_changes_and_base_files_are_the_same_on_spark_and_in_process(spark, tmp_path):
    folder = fixture("mor_avro_v8_trips_8i3u1d", tmp_path)
    t, times = mdt.open(folder), instants(folder)
    reader = spark.read.format("mdt")
    for time in times:
        state = spark.read.format("mdt").option("as_of", time).load(str(folder))
        assert bag(state.toArrow()) == bag(t.scan(as_of=time).to_arrow())
    base_files = t.scan(query_type="read_optimized").to_arrow()
    state = reader.option("query_type", "read_optimized").load(str(folder))
    assert bag(state.toArrow()) == bag(base_files)
    changes = t.changes(times[0], times[-1])
    assert bag(changes.to_spark(spark).toArrow()) == bag(changes.to_arrow())


def test_sql_reads_tables_of_other_writers_and_refuses_to_write_to_them(spark, tmp_path):
    folder = fixture("cow_v9_txns_simple_meta", tmp_path)
    expected = mdt.open(folder).scan("amount > 100").count()
    spark.sql(f"CREATE TABLE of_others USING mdt LOCATION '{folder}'")
    try:
        rows = spark.sql("SELECT count(*) FROM of_others WHERE amount > 100").collect()
        assert rows[0][0] == expected
        with pytest.raises(Exception, match="does not write to them"):
            spark.sql("DELETE FROM of_others WHERE amount > 100")
    finally:
        spark.sql("DROP TABLE of_others")


def test_a_table_of_another_writer_stays_open_between_reads(spark, tmp_path):
    folder = str(fixture("cow_v8_nonpartitioned", tmp_path))
    assert open_tables.open_shared(folder) is open_tables.open_shared(folder)


def test_tables_whose_files_are_merged_locally_are_refused_on_a_cluster(
    spark, tmp_path, monkeypatch
):
    folder = fixture("mor_avro_v8_trips_8i3u1d", tmp_path)
    monkeypatch.setattr(frame, "is_on_this_machine", lambda spark: False)
    refused("merged on this machine", mdt.read, spark, str(folder), kind=Unsupported)
