"""Files of older versions store integers as differences (DELTA_BINARY_PACKED). Releases of Spark
that skip rows of such pages wrongly still return the right rows.
"""

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from executed_plans import views
from reader import bag
from sql_tables import stored

from mdt.hudi import base_file

ROWS = 30_000
PACKED = "DELTA_BINARY_PACKED"
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("code", pa.int64()),
        ("small", pa.int32()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)


def rows():
    numbers = range(ROWS)
    columns = [
        [f"k{i:06}" + "x" * 40 for i in numbers],
        [i * 7919 % 12_011 for i in numbers],
        [None if i % 7 == 0 else i * 31 % 9973 for i in numbers],
        [i * 1_000_003 for i in numbers],
    ]
    return pa.table(list(map(pa.array, columns, SCHEMA.types)), schema=SCHEMA)


@pytest.fixture(scope="module")
def packed(spark, tmp_path_factory):
    """A table whose integers and timestamps have this encoding, and its view ``packed``."""
    path, names = tmp_path_factory.mktemp("packed") / "t", ("code", "small", "at")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base_file, "_encodings", lambda *_: dict.fromkeys(names, PACKED))
        options = {"mdt.services.auto": "false"}
        table = stored(path, rows(), indexes=["bitmap(code)"], options=options)
        table.delete({"id": [f"k{i:06}" + "x" * 40 for i in range(0, ROWS, 13)]})
    group = pq.read_metadata(path / table.files()["name"][0].as_py()).row_group(0)
    chunks = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    assert all(PACKED in chunks[name].encodings for name in names)
    with views(spark, packed=table):
        yield table


@pytest.mark.parametrize(
    ("column", "count"),
    [
        *(("code", count) for count in (1, 3, 20, 200)),
        *(("id", count) for count in (1, 5, 60)),
    ],
)
def test_rows_selected_by_an_index_or_by_pages_have_the_right_values(packed, spark, column, count):
    all_values = packed.scan(columns=[column]).to_arrow()[column].to_pylist()
    for seed in range(3):
        chosen = random.Random(f"{seed}:{count}").sample(all_values, count)
        where = f"{column} in ({str(chosen)[1:-1]})"
        read = spark.sql(f"select * from packed where {where}").toArrow().select(SCHEMA.names)
        assert bag(read) == bag(packed.scan(where).to_arrow())
