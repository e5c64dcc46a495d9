"""``scan(columns=[])`` has as many rows as match, whichever way they are read."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from trees import create

import mdt

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("v", pa.int64()), ("w", pa.string())])


def rows(ids: range) -> pa.Table:
    return pa.table(
        {
            "id": ids,
            "p": [f"p{i % 2}" for i in ids],
            "v": [i % 10 for i in ids],
            "w": ["x"] * len(ids),
        },
        SCHEMA,
    )


@pytest.fixture(scope="module", params=["COPY_ON_WRITE", "MERGE_ON_READ"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> mdt.Table:
    """900 rows: base files with dead rows and, under MERGE_ON_READ, log files; a bitmap leaves
    single rows.
    """
    path = tmp_path_factory.mktemp("without columns") / "t"
    found = create(
        path, SCHEMA, partition_by=["p"], table_type=request.param, indexes=["bitmap(v)"]
    )
    found.bulk_insert(rows(range(1000)))
    found.upsert(rows(range(50)))
    found.delete(rows(range(100)).select(["id", "p"]))
    return found


WHERES = [
    None,
    "true",
    "false",
    "v = 3",
    "v in (3, 4) and id < 500",
    "w = 'y'",
    "id = 500",
    "p = 'p1'",
    "v is null",
]


@pytest.mark.parametrize("where", WHERES)
def test_a_scan_without_columns_has_the_rows_that_match(
    table: mdt.Table, where: str | None
) -> None:
    expected = table.scan(where).to_arrow().num_rows
    scan = table.scan(where, [])
    found = scan.to_arrow()
    assert (found.num_columns, found.num_rows, scan.count()) == (0, expected, expected)
    assert sum(batch.num_rows for batch in scan.to_batches()) == expected
    assert all(batch.num_columns == 0 for batch in scan.to_batches())
    assert table.scan(where, [], limit=3).to_arrow().num_rows == min(3, expected)
    assert table.scan(where, [], order_by="id", limit=3).to_arrow().num_rows == min(3, expected)


def test_the_cases_differ(table: mdt.Table) -> None:
    assert len({table.scan(where).count() for where in WHERES}) > 5


def test_a_frame_without_columns_has_the_rows_that_match(
    spark: SparkSession, table: mdt.Table
) -> None:
    for where in (None, "v = 3", "id = 500"):
        frame = table.scan(where, []).to_spark(spark)
        assert (frame.columns, frame.count()) == ([], table.scan(where).count())
