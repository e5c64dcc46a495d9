"""Files on remote stores: executors cache footers and verify the ones that they read."""

import pytest
from plan_metrics import figures, reads
from sql_tables import numbers, settings, stored, tuples

import mdt


@pytest.fixture
def table(tmp_path, monkeypatch):
    """Base files, blocks of log files and deleted rows, in a store that claims to be remote."""
    more = {"partition_by": "city", "indexes": ["bitmap(v)"]}
    created = stored(tmp_path / "t t", numbers(range(4000)), **more)
    created.upsert(numbers(range(0, 900, 7), 1000))
    created.delete(numbers(range(50, 60)).select(["id", "city"]))
    monkeypatch.setattr(type(created.storage), "is_remote", True)
    return created


def counts(spark, table):
    """Return how many footers a query finds in executors, and how many it reads."""
    return reads(spark, mdt.read(spark, table.path).where("v >= 0"), "footers")


def test_the_second_query_finds_every_footer_in_executors(explained, table):
    files = table.scan("v >= 0").explain().files_read
    assert files == 4, "two base files and two blocks"
    assert counts(explained, table) == (0, files)
    assert counts(explained, table) == (files, 0)
    table.upsert(numbers(range(4000, 4100)))
    cached, read = counts(explained, table)
    assert cached == files and read == table.scan("v >= 0").explain().files_read - files > 0


def test_warm_loads_footers_into_executors_if_they_cache_them(explained, table):
    assert mdt.warm(explained, table.path).opened == 4 and counts(explained, table) == (4, 0)
    explained.conf.set("spark.mdt.footers.bytes", "0")
    assert mdt.warm(explained, table.path).opened == 0, "no executor would cache them"


def test_a_footer_cache_that_is_too_small_or_off_keeps_no_footers(explained, table):
    explained.conf.set("spark.mdt.footers.bytes", "1")
    assert counts(explained, table) == (0, 4) and counts(explained, table) == (0, 4)
    explained.conf.set("spark.mdt.footers.bytes", "0")
    (metrics,) = figures(explained, mdt.read(explained, table.path).where("v >= 0"))
    assert not any("footers" in name for name in metrics)


@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_rows_and_file_metadata_columns_do_not_depend_on_the_footer_cache(
    explained, table, vectorized
):
    columns = ["id", "city", "v", "input_file_name() as name"]
    columns += [f"_metadata.file_{name}" for name in ("path", "name", "size", "block_start")]
    parquet = {
        "spark.sql.parquet.enableVectorizedReader": vectorized,
        "spark.sql.files.maxPartitionBytes": "9000",
    }
    outcomes = []
    for cache_bytes in ("0", "1000000", "1000000"):
        with settings(explained, {**parquet, "spark.mdt.footers.bytes": cache_bytes}):
            frame = mdt.read(explained, table.path)
            all_rows, few_rows = frame.selectExpr(*columns), frame.where("v in (5, 1007)")
            rows = (tuples(all_rows), tuples(few_rows.select("id", "v")))
            outcomes.append((*rows, frame.count(), sorted(frame.inputFiles())))
    assert outcomes[0] == outcomes[1] == outcomes[2]
    assert len(outcomes[0][0]) == outcomes[0][2] == 3990 and outcomes[0][1]


def test_a_changed_footer_raises_when_it_is_read(explained, table, tmp_path):
    name = next(file for file in (tmp_path / "t t").rglob("*.parquet"))
    data = bytearray(name.read_bytes())
    at = len(data) - 8 - int.from_bytes(data[-8:-4], "little") + 20
    data[at] ^= 1
    name.write_bytes(data)
    message = "the footer of a data file is not as it was written: .*parquet"
    with pytest.raises(Exception, match=message):
        mdt.read(explained, table.path).where("v >= 0").collect()


def test_affinity_works_in_a_session_without_executors(explained, table):
    explained.conf.set("spark.mdt.affinity", "on")
    assert mdt.read(explained, table.path).count() == 3990
