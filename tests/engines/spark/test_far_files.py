"""Files on far stores: executors keep their footers, and compare those that they read."""

import pytest
from plan_metrics import figures, reads
from sql_tables import numbers, settings, stored, tuples

import mdt


@pytest.fixture
def table(tmp_path, monkeypatch):
    """Base files, blocks of log files and dead rows, in a store that says that it is far."""
    more = {"partition_by": "city", "indexes": ["bitmap(v)"]}
    made = stored(tmp_path / "t t", numbers(range(4000)), **more)
    made.upsert(numbers(range(0, 900, 7), 1000))
    made.delete(numbers(range(50, 60)).select(["id", "city"]))
    monkeypatch.setattr(type(made.storage), "is_remote", True)
    return made


def counts(spark, table):
    """Return how many footers a query finds, and how many it reads."""
    return reads(spark, mdt.read(spark, table.path).where("v >= 0"), "footers")


def test_the_second_query_finds_every_footer(explained, table):
    files = table.scan("v >= 0").explain().files_read
    assert files == 4, "two base files and two blocks"
    assert counts(explained, table) == (0, files)
    assert counts(explained, table) == (files, 0)
    table.upsert(numbers(range(4000, 4100)))
    found, read = counts(explained, table)
    assert found == files and read == table.scan("v >= 0").explain().files_read - files > 0


def test_a_warm_table_has_its_footers_in_executors(explained, table):
    assert mdt.warm(explained, table.path).opened == 4 and counts(explained, table) == (4, 0)
    explained.conf.set("spark.mdt.footers.bytes", "0")
    assert mdt.warm(explained, table.path).opened == 0, "nobody would keep them"


def test_few_bytes_keep_few_footers_and_none_keeps_none(explained, table):
    explained.conf.set("spark.mdt.footers.bytes", "1")
    assert counts(explained, table) == (0, 4) and counts(explained, table) == (0, 4)
    explained.conf.set("spark.mdt.footers.bytes", "0")
    (found,) = figures(explained, mdt.read(explained, table.path).where("v >= 0"))
    assert not any("footers" in name for name in found)


@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_rows_and_what_spark_says_of_their_files_are_the_same(explained, table, vectorized):
    columns = ["id", "city", "v", "input_file_name() as name"]
    columns += [f"_metadata.file_{name}" for name in ("path", "name", "size", "block_start")]
    parquet = {
        "spark.sql.parquet.enableVectorizedReader": vectorized,
        "spark.sql.files.maxPartitionBytes": "9000",
    }
    found = []
    for kept in ("0", "1000000", "1000000"):
        with settings(explained, {**parquet, "spark.mdt.footers.bytes": kept}):
            frame = mdt.read(explained, table.path)
            every, some = frame.selectExpr(*columns), frame.where("v in (5, 1007)")
            rows = (tuples(every), tuples(some.select("id", "v")))
            found.append((*rows, frame.count(), sorted(frame.inputFiles())))
    assert found[0] == found[1] == found[2]
    assert len(found[0][0]) == found[0][2] == 3990 and found[0][1]


def test_a_footer_that_was_changed_is_found_when_it_is_read(explained, table, tmp_path):
    name = next(file for file in (tmp_path / "t t").rglob("*.parquet"))
    data = bytearray(name.read_bytes())
    at = len(data) - 8 - int.from_bytes(data[-8:-4], "little") + 20
    data[at] ^= 1
    name.write_bytes(data)
    told = "the footer of a data file is not as it was written: .*parquet"
    with pytest.raises(Exception, match=told):
        mdt.read(explained, table.path).where("v >= 0").collect()


def test_a_file_may_have_an_executor_where_there_is_none(explained, table):
    explained.conf.set("spark.mdt.affinity", "on")
    assert mdt.read(explained, table.path).count() == 3990
