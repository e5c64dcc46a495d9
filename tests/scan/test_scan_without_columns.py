"""``scan(columns=[])`` has as many rows as match, whichever way they are read."""

import pyarrow as pa
import pytest
from texts import columns
from trees import create

SCHEMA = columns("id int64, p string, v int64, w string")


def rows(ids):
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
def table(request, tmp_path_factory):
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
@pytest.mark.parametrize("limit", [None, 0, 3])
@pytest.mark.parametrize("order_by", [None, "id"])
def test_a_scan_without_columns_has_the_rows_that_match(table, where, limit, order_by):
    expected = table.scan(where).to_arrow().slice(0, limit).num_rows
    scan = table.scan(where, [], limit=limit, order_by=order_by)
    streams = [scan.to_arrow(), pa.table(scan), pa.RecordBatchReader.from_stream(scan).read_all()]
    for found in (*streams, pa.Table.from_batches(scan.to_batches(), pa.schema({}))):
        assert (found.num_columns, found.num_rows) == (0, expected)
    assert scan.count() == sum(batch.num_rows for batch in scan) == expected


def test_the_cases_differ(table):
    assert len({table.scan(where).count() for where in WHERES}) > 5


def test_a_frame_without_columns_has_the_rows_that_match(spark, table):
    for where in (None, "v = 3", "id = 500"):
        frame = table.scan(where, []).to_spark(spark)
        assert (frame.columns, frame.count()) == ([], table.scan(where).count())
