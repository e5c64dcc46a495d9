"""``scan(columns=[])`` returns as many rows as match, with every method of reading."""

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
    """900 rows in base files with deleted rows and, for MERGE_ON_READ, log files. A bitmap selects
    single rows.
    """
    path = tmp_path_factory.mktemp("without columns") / "t"
    new_table = create(
        path, SCHEMA, partition_by=["p"], table_type=request.param, indexes=["bitmap(v)"]
    )
    new_table.bulk_insert(rows(range(1000)))
    new_table.upsert(rows(range(50)))
    new_table.delete(rows(range(100)).select(["id", "p"]))
    return new_table


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
def test_a_scan_without_columns_has_as_many_rows_as_match(table, where, limit, order_by):
    expected = table.scan(where).to_arrow().slice(0, limit).num_rows
    scan = table.scan(where, [], limit=limit, order_by=order_by)
    streams = [scan.to_arrow(), pa.table(scan), pa.RecordBatchReader.from_stream(scan).read_all()]
    for result in (*streams, pa.Table.from_batches(scan.to_batches(), pa.schema({}))):
        assert (result.num_columns, result.num_rows) == (0, expected)
    assert scan.count() == sum(batch.num_rows for batch in scan) == expected


def test_the_filters_match_different_numbers_of_rows(table):
    assert len({table.scan(where).count() for where in WHERES}) > 5


def test_a_data_frame_without_columns_has_as_many_rows_as_match(spark, table):
    for where in (None, "v = 3", "id = 500"):
        frame = table.scan(where, []).to_spark(spark)
        assert (frame.columns, frame.count()) == ([], table.scan(where).count())
