"""Spark fails on damaged files instead of returning other rows, and writes nothing that it made of
them.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from trees import create, ordered

import mdt
from mdt.errors import Corrupt
from mdt.metadata.files.file_group import LOG

SCHEMA = pa.schema(
    [("id", pa.string()), ("ts", pa.int64()), ("few", pa.string()), ("v", pa.int64())]
)
N = 4000
NOT_AS_WRITTEN = "not as it was written"


def rows(ids: range, ts: int = 1) -> pa.Table:
    columns = {
        "id": [f"k{i:05}" for i in ids],
        "ts": [ts] * len(ids),
        "few": [f"f{i % 3}" for i in ids],
        "v": [i * 2654435761**2 % 2**60 for i in ids],  # which no encoding makes small
    }
    return pa.table(columns, schema=SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> mdt.Table:
    """Two base files; log files over the first are made by those who want them."""
    table = create(
        tmp_path / "t",
        SCHEMA,
        ordering="ts",
        table_type="MERGE_ON_READ",
        options={"mdt.spark.local.bytes.max": 0},
    )
    table.bulk_insert(rows(range(N)))
    return table


class Damaged:
    """One byte of a file that was flipped, and is again as it was afterwards."""

    def __init__(self, path: Path, at: int) -> None:
        self.path, self.data = path, path.read_bytes()
        path.write_bytes(self.data[:at] + bytes((self.data[at] ^ 16,)) + self.data[at + 1 :])

    def mend(self) -> None:
        self.path.write_bytes(self.data)


def body_of(file: Path, name: str) -> int:
    """Return a byte in the first page of a column without a dictionary, well behind the page's
    header.
    """
    group = pq.read_metadata(file).row_group(0)
    chunk = next(c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == name)
    assert not chunk.has_dictionary_page and chunk.total_compressed_size > 4000
    return int(chunk.data_page_offset + 300)


def body_in_block(path: Path, file: dict[str, int]) -> int:
    """Return the last byte of the column v in a log file's block: it belongs to the body of a
    page.
    """
    block = path.read_bytes()[file["block_offset"] :][: file["block_length"]]
    group = pq.read_metadata(pa.BufferReader(block)).row_group(0)
    chunk = next(c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == "v")
    first = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
    return int(file["block_offset"] + first + chunk.total_compressed_size - 1)


def file_of(table: mdt.Table, tmp_path: Path, kind: int) -> Path:
    return (
        tmp_path
        / "t"
        / next(file["name"] for file in table.files().to_pylist() if file["kind"] == kind)
    )


@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_a_flipped_page_makes_a_query_fail(
    spark: SparkSession, table: mdt.Table, tmp_path: Path, vectorized: str
) -> None:
    file = file_of(table, tmp_path, 0)
    whole = ordered(mdt.read(spark, str(tmp_path / "t")).toArrow())
    spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorized)
    try:
        for name in ("id", "v"):
            damaged = Damaged(file, body_of(file, name))
            with pytest.raises(Py4JJavaError, match="CRC checksum verification failed"):
                mdt.read(spark, str(tmp_path / "t")).toArrow()
            damaged.mend()
            assert ordered(mdt.read(spark, str(tmp_path / "t")).toArrow()) == whole
    finally:
        spark.conf.unset("spark.sql.parquet.enableVectorizedReader")


def test_a_flipped_footer_makes_a_query_fail(
    spark: SparkSession, table: mdt.Table, tmp_path: Path
) -> None:
    file = file_of(table, tmp_path, 0)
    Damaged(file, file.stat().st_size - 200)
    with pytest.raises(Py4JJavaError, match=NOT_AS_WRITTEN):
        mdt.read(spark, str(tmp_path / "t")).where("v > 5").count()


@pytest.mark.parametrize(
    ("place", "message"), [("page", "CRC checksum verification failed"), ("footer", NOT_AS_WRITTEN)]
)
def test_a_damaged_block_of_a_log_file_makes_a_query_fail(
    spark: SparkSession, table: mdt.Table, tmp_path: Path, place: str, message: str
) -> None:
    table.upsert(rows(range(10, 40), 2))
    file = table.files().to_pylist()[1]
    end = file["block_offset"] + file["block_length"]
    Damaged(
        file_of(table, tmp_path, LOG),
        end - 200 if place == "footer" else body_in_block(file_of(table, tmp_path, LOG), file),
    )
    with pytest.raises(Py4JJavaError, match=message):
        mdt.read(spark, str(tmp_path / "t")).toArrow()


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_write_task_stops_at_a_damaged_page_and_nothing_is_committed(
    spark: SparkSession, tmp_path: Path, table_type: str
) -> None:
    table = create(
        tmp_path / "t",
        SCHEMA,
        table_type=table_type,
        options={"mdt.spark.local.bytes.max": 0},
        key_index="bloom",
    )
    table.bulk_insert(rows(range(N)))
    file, seq = file_of(table, tmp_path, 0), table.snapshot().seq
    damaged = Damaged(file, body_of(file, "v"))
    with pytest.raises(Corrupt, match=NOT_AS_WRITTEN) as caught:
        # As many new keys go into the file, which is small beside them: it is read and written
        # anew.
        table.upsert(spark.createDataFrame(rows(range(N, 2 * N), 2)))
    assert file.name in str(caught.value)
    damaged.mend()
    again = mdt.open(tmp_path / "t")
    assert again.snapshot().seq == seq
    assert ordered(again.scan().to_arrow()) == ordered(rows(range(N)))


def test_an_index_built_on_spark_stops_at_a_damaged_page(
    spark: SparkSession, table: mdt.Table, tmp_path: Path
) -> None:
    table.create_index("bloom(v)", mode="async")
    file, seq = file_of(table, tmp_path, 0), table.snapshot().seq
    Damaged(file, body_of(file, "v"))
    with pytest.raises(Corrupt, match=NOT_AS_WRITTEN):
        table.build_indexes(spark=spark)
    assert mdt.open(tmp_path / "t").snapshot().seq == seq
