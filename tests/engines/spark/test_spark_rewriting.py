"""Compaction, clustering, and changes by a condition, in Spark's tasks."""

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
    made = mdt.create(
        tmp_path / "t",
        SCHEMA,
        ["id"],
        partition_by=["city"],
        table_type="MERGE_ON_READ",
        indexes=["bitmap(x)"],
        options=options,
    )
    for n in range(3):
        made.bulk_insert(_rows(range(n, 3000, 3), 0.0))
    made.upsert(_rows(range(0, 3000, 50), 1.0))
    return made


def test_spark_compacts_what_it_is_told_to(spark, table, tmp_path):
    before, seen = bag(table.scan().to_arrow()), []
    done = table.compact(spark=spark, progress=lambda n, of: seen.append((n, of)))
    assert done.engine == "spark" and done.instant and seen == [(seen[0][1],) * 2]
    assert not [kind for kind in table.files()["kind"].to_pylist() if kind != 0]
    assert (
        bag(mdt.open(tmp_path / "t").scan().to_arrow())
        == before
        == bag(hudi_table(tmp_path / "t", SCHEMA))
    )
    assert table.check().ok
    assert not table.compact(spark=spark).instant, "nothing is left to do"


def test_spark_writes_all_rows_again_with_the_columns_of_an_alteration(spark, table, tmp_path):
    names = ["id", "city", "more", "y"]
    before = (
        table.scan()
        .to_arrow()
        .rename_columns(names)
        .cast(columns("id int64, city string, more double, y float64"))
    )
    done = table.alter(rename={"x": "more"}, widen={"x": "double"}, rewrite=True, spark=spark)
    assert done.engine == "spark" and done.files_written == len(table.files())
    found = mdt.open(tmp_path / "t").scan().to_arrow()
    assert bag(found) == bag(before) == bag(hudi_table(tmp_path / "t", before.schema))
    assert table.check().ok


def test_spark_clusters_and_queries_read_fewer_files(spark, table, tmp_path):
    before, read = (
        bag(table.scan().to_arrow()),
        table.scan("x between 100 and 110").explain().files_read,
    )
    done = table.cluster(["x", "y"], curve="zorder", spark=spark)
    assert (
        done.rows >= 2000 and done.groups_made > 5 and done.overlap["x"][1] < done.overlap["x"][0]
    )
    assert table.scan("x between 100 and 110").explain().files_read < read
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
    found, seen = table.scan().to_arrow().to_pylist(), []
    done = table.delete_where(
        "x > 500 and y = 0", spark=spark, progress=lambda n, of: seen.append((n, of))
    )
    kept = [row for row in found if not (row["x"] > 500 and row["y"] == 0)]
    assert (done.deleted, done.engine) == (len(found) - len(kept), "spark") and seen == [
        (seen[0][1],) * 2
    ]
    assert bag(table.scan().to_arrow()) == bag(pa.Table.from_pylist(kept, SCHEMA))
    changed = table.update_where(
        {"y": "y + x / 2"}, "x <= :most", params={"most": 100}, spark=spark
    )
    kept = [row | ({"y": row["y"] + row["x"] / 2} if row["x"] <= 100 else {}) for row in kept]
    assert (changed.updated, changed.engine) == (sum(row["x"] <= 100 for row in kept), "spark")
    assert bag(mdt.open(tmp_path / "t").scan().to_arrow()) == bag(
        pa.Table.from_pylist(kept, SCHEMA)
    )
    assert bag(pa.Table.from_pylist(kept, SCHEMA)) == bag(hudi_table(tmp_path / "t", SCHEMA))
    with pytest.raises(Invalid, match="division by zero"):
        table.update_where({"y": "1 / (x - x)"}, "x < 3", spark=spark)
    with pytest.raises(Invalid, match="must be a SparkSession"):
        table.delete_where("x = 1", spark=1)  # type: ignore[arg-type]
    assert table.check().ok and not table.delete_where("x > 500 and y = 0", spark=spark).instant
