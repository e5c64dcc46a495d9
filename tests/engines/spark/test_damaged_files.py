"""Spark fails on damaged files instead of returning wrong rows, and commits nothing that it derived
from them.
"""

from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from sql_tables import IN_TASKS, settings, stored
from trees import ordered

import mdt
from mdt.errors import Corrupt
from mdt.metadata.files.file_group import LOG

N = 4000
NOT_AS_WRITTEN = "not as it was written"
CHECKSUM = "CRC checksum verification failed"


def rows(ids, ts=1):
    values = [i * 2654435761**2 % 2**60 for i in ids]  # values that no encoding can compress
    return pa.table({"id": [f"k{i:05}" for i in ids], "ts": [ts] * len(ids), "v": values})


def table_at(path, **more):
    return stored(path, rows(range(N)), options=IN_TASKS, ordering="ts", **more)


@contextmanager
def flipped(file, at):
    """Flip one bit of a file within the context."""
    data = file.read_bytes()
    file.write_bytes(data[:at] + bytes((data[at] ^ 16,)) + data[at + 1 :])
    yield
    file.write_bytes(data)


def byte_in(table, kind, place):
    """Return the first file of a kind, and the offset of a byte in its footer or in the pages of a
    column.
    """
    file = next(file for file in table.files().to_pylist() if file["kind"] == kind)
    path = Path(table.path, file["name"])
    begin, length = file["block_offset"], file["block_length"]
    if kind != LOG:
        begin, length = 0, path.stat().st_size
    if place == "footer":
        return path, begin + length - 200
    block = pa.BufferReader(path.read_bytes()[begin : begin + length])
    group = pq.read_metadata(block).row_group(0)
    chunks = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    chunk = chunks[place]
    first = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
    # The last byte of a column belongs to the body of a page.
    return path, begin + first + chunk.total_compressed_size - 1


@pytest.mark.parametrize(
    ("kind", "place", "message"),
    [
        (0, "id", CHECKSUM),
        (0, "v", CHECKSUM),
        (0, "footer", NOT_AS_WRITTEN),
        (LOG, "v", CHECKSUM),
        (LOG, "footer", NOT_AS_WRITTEN),
    ],
)
@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_a_flipped_byte_makes_a_query_fail(spark, tmp_path, vectorized, kind, place, message):
    table = table_at(tmp_path / "t")
    table.upsert(rows(range(10, 40), 2))
    expected = ordered(table.scan().to_arrow())
    with settings(spark, {"spark.sql.parquet.enableVectorizedReader": vectorized}):
        with flipped(*byte_in(table, kind, place)), pytest.raises(Py4JJavaError, match=message):
            mdt.read(spark, table.path).where("v > -1").toArrow()
        assert ordered(mdt.read(spark, table.path).toArrow()) == expected


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_tasks_that_write_or_index_fail_at_a_damaged_page_and_commit_nothing(
    spark, tmp_path, table_type
):
    table = table_at(tmp_path / "t", table_type=table_type, key_index="bloom")
    table.create_index("bloom(v)", mode="async")
    seq, (file, at) = table.snapshot().seq, byte_in(table, 0, "v")
    with flipped(file, at):
        with pytest.raises(Corrupt, match=NOT_AS_WRITTEN) as caught:
            # There are as many new keys as rows, so the file counts as small and is read and
            # rewritten.
            table.upsert(spark.createDataFrame(rows(range(N, 2 * N), 2)))
        assert file.name in str(caught.value)
        with pytest.raises(Corrupt, match=NOT_AS_WRITTEN):
            table.build_indexes(spark=spark)
    again = mdt.open(table.path)
    assert again.snapshot().seq == seq
    assert ordered(again.scan().to_arrow()) == ordered(rows(range(N)))
