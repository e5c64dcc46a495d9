"""Compaction, clustering, rewriting alterations and changes by a condition in Spark's tasks."""

import pyarrow as pa
import pytest
from reader import bag, hudi_table
from texts import columns

import mdt
from mdt.errors import Invalid

SCHEMA = columns("id int64, city string, x int64, y float64")


def _rows(ids, y):
    return pa.table(
        [list(ids), [f"c{i % 5}" for i in ids], [i * 7919 % 1000 for i in ids], [y] * len(ids)],
        SCHEMA.names,
    ).cast(SCHEMA)


@pytest.fixture
def table(tmp_path):
    options = {
        "mdt.max.file.bytes": 8192,
        "mdt.small.file.bytes": 0,
        "mdt.durable": False,
        "mdt.services.auto": False,
    }
    created = mdt.create(
        tmp_path / "t",
        SCHEMA,
        ["id"],
        partition_by=["city"],
        table_type="MERGE_ON_READ",
        indexes=["bitmap(x)"],
        options=options,
    )
    for n in range(3):
        created.bulk_insert(_rows(range(n, 3000, 3), 0.0))
    created.upsert(_rows(range(0, 3000, 50), 1.0))
    return created


def test_spark_compacts_a_table_and_reports_progress(spark, table, tmp_path):
    before, reports = bag(table.scan().to_arrow()), []
    result = table.compact(spark=spark, progress=lambda n, total: reports.append((n, total)))
    assert result.engine == "spark" and result.instant and reports == [(reports[0][1],) * 2]
    assert not [kind for kind in table.files()["kind"].to_pylist() if kind != 0]
    assert (
        bag(mdt.open(tmp_path / "t").scan().to_arrow())
        == before
        == bag(hudi_table(tmp_path / "t", SCHEMA))
    )
    assert table.check().ok
    assert not table.compact(spark=spark).instant, "a second compaction has nothing to do"


def test_spark_rewrites_all_rows_with_the_altered_columns(spark, table, tmp_path):
    names = ["id", "city", "more", "y"]
    before = (
        table.scan()
        .to_arrow()
        .rename_columns(names)
        .cast(columns("id int64, city string, more double, y float64"))
    )
    result = table.alter(rename={"x": "more"}, widen={"x": "double"}, rewrite=True, spark=spark)
    assert result.engine == "spark" and result.files_written == len(table.files())
    after = mdt.open(tmp_path / "t").scan().to_arrow()
    assert bag(after) == bag(before) == bag(hudi_table(tmp_path / "t", before.schema))
    assert table.check().ok


def test_spark_clusters_a_table_so_that_queries_read_fewer_files(spark, table, tmp_path):
    before, files_before = (
        bag(table.scan().to_arrow()),
        table.scan("x between 100 and 110").explain().files_read,
    )
    result = table.cluster(["x", "y"], curve="zorder", spark=spark)
    assert (
        result.rows >= 2000
        and result.groups_made > 5
        and result.overlap["x"][1] < result.overlap["x"][0]
    )
    assert table.scan("x between 100 and 110").explain().files_read < files_before
    assert set(table.indexes()["coverage"].to_pylist()) == {100.0}
    assert (
        bag(mdt.open(tmp_path / "t").scan().to_arrow())
        == before
        == bag(hudi_table(tmp_path / "t", SCHEMA))
    )
    assert (
        bag(mdt.read(spark, tmp_path / "t").toArrow().select(SCHEMA.names).cast(SCHEMA)) == before
    )
    assert table.check().ok


def test_spark_deletes_and_updates_by_a_condition(spark, table, tmp_path):
    before, reports = table.scan().to_arrow().to_pylist(), []
    result = table.delete_where(
        "x > 500 and y = 0", spark=spark, progress=lambda n, total: reports.append((n, total))
    )
    expected = [row for row in before if not (row["x"] > 500 and row["y"] == 0)]
    assert (result.deleted, result.engine) == (
        len(before) - len(expected),
        "spark",
    ) and reports == [(reports[0][1],) * 2]
    assert bag(table.scan().to_arrow()) == bag(pa.Table.from_pylist(expected, SCHEMA))
    changed = table.update_where(
        {"y": "y + x / 2"}, "x <= :most", params={"most": 100}, spark=spark
    )
    expected = [
        row | ({"y": row["y"] + row["x"] / 2} if row["x"] <= 100 else {}) for row in expected
    ]
    assert (changed.updated, changed.engine) == (sum(row["x"] <= 100 for row in expected), "spark")
    assert bag(mdt.open(tmp_path / "t").scan().to_arrow()) == bag(
        pa.Table.from_pylist(expected, SCHEMA)
    )
    assert bag(pa.Table.from_pylist(expected, SCHEMA)) == bag(hudi_table(tmp_path / "t", SCHEMA))
    with pytest.raises(Invalid, match="division by zero"):
        table.update_where({"y": "1 / (x - x)"}, "x < 3", spark=spark)
    with pytest.raises(Invalid, match="must be a SparkSession"):
        table.delete_where("x = 1", spark=1)  # type: ignore[arg-type]
    assert table.check().ok and not table.delete_where("x > 500 and y = 0", spark=spark).instant
