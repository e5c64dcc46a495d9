"""User-defined predicate functions on Spark: the rows equal those of the scan in process, however
Spark runs the query.
"""

import math
import random
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from counting import count
from pyspark.sql import functions as sf
from reader import bag

import mdt
from indexes import functions
from mdt.engines.spark.functions import call
from mdt.errors import Invalid

pytestmark = pytest.mark.skipif(
    not hasattr(sf, "arrow_udf"), reason="PySpark 4.0 has no functions over Arrow arrays"
)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("lat", pa.float64()),
        ("lon", pa.float32()),
        ("at", pa.timestamp("us", "UTC")),
        ("note", pa.string()),
    ]
)
ODD = (None, math.nan, math.inf, -0.0, 90.0, -90.0, 180.0, 270.0)
OSLO = "within_km(lat, lon, 59.9, 10.7, 300)"
FILTERS = (
    OSLO,
    f"not {OSLO}",
    f"{OSLO} and note = 'b'",
    f"{OSLO} or note = 'b'",
    f"not ({OSLO} and id < 200)",
    f"{OSLO} or note is null",
    f"{OSLO} and within_km(lat, lon, 60.5, 9, 200)",
    "within_km(lat, lon, null, 10.7, 5)",
    "not within_km(lat, lon, null, 10.7, 5)",
    "within_km(lat, lon, 89.9, 0, 5000)",
    "in_hour(at, 3)",
    "not in_hour(at, 3) and lat > 58",
    "within_km(lat, lon, -60, -170, 4000)",
)


@functions.register(columns=1, arguments=(int,))
def in_hour(at, hour):
    """Return which timestamps, in UTC, are within an hour of the day."""
    return (at.cast(pa.int64()).to_numpy(zero_copy_only=False) // 3_600_000_000 % 24) == hour


def _rows(draw, first, south):
    def place(low, high):
        odd = ODD if first % 180 == 0 else ODD[:3]
        return draw.choice(odd) if draw.random() < 0.1 else draw.uniform(low, high)

    n = 60
    moments = [
        None if draw.random() < 0.1 else datetime(2026, 1, 1, draw.randrange(24), tzinfo=UTC)
        for _ in range(n)
    ]
    columns = [
        list(range(first, first + n)),
        [place(south, south + 2) for _ in range(n)],
        [place(5, 15) for _ in range(n)],
        moments,
        [draw.choice("ab") if draw.random() < 0.9 else None for _ in range(n)],
    ]
    return pa.table(columns, schema=SCHEMA)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Twelve files from south to north with several row groups each. Some have log files and
    deleted rows.
    """
    draw = random.Random(5)
    options = {"mdt.row.group.rows": 20, "mdt.small.file.bytes": 0}
    path = tmp_path_factory.mktemp("functions") / "table"
    table = mdt.create(
        path, SCHEMA, ["id"], options=options, indexes=["grid(lat, lon)"], key_index="exact"
    )
    for n in range(12):
        table.bulk_insert(_rows(draw, 60 * n, 50 + 2 * n))
    table.upsert(_rows(draw, 90, 58))
    table.delete(pa.table({"id": [1, 301, 302]}))
    return table


def _bag(frame):
    return bag(frame.toArrow().cast(SCHEMA))


@pytest.mark.parametrize("where", FILTERS)
def test_a_scan_with_functions_returns_the_same_rows_on_spark_and_in_process(table, spark, where):
    scan = table.scan(where)
    expected = bag(scan.to_arrow())
    frame = scan.to_spark(spark)
    assert _bag(frame) == expected
    assert frame.count() == scan.count()
    narrowed = frame.where(sf.col("id") > 100).select("id")
    assert sorted(r.id for r in narrowed.collect()) == sorted(
        i for i in scan.to_arrow()["id"].to_pylist() if i > 100
    )
    count("filters with functions of one's own, Spark compared with the scan in process")


def test_spark_skips_files_that_the_index_of_a_function_prunes(table, spark):
    scan = table.scan(OSLO)
    assert 0 < scan.explain().files_read <= 8 < scan.explain().files_total
    files_read = scan.to_spark(spark).select(sf.input_file_name().alias("f")).distinct().count()
    assert files_read <= scan.explain().files_read
    note_of_grid = {note.index: note for note in scan.explain(spark).indexes}["grid/1(lat, lon)"]
    assert note_of_grid.used and note_of_grid.pruned > 0 and note_of_grid.row_groups > 0


def test_a_frame_is_filtered_by_a_function_as_a_column(table, spark):
    frame = mdt.read(spark, table.path)
    inside = call("within_km", "lat", sf.col("lon"), 59.9, 10.7, 300)
    assert _bag(frame.where(inside)) == bag(table.scan(OSLO).to_arrow())
    assert _bag(frame.where(~inside)) == bag(table.scan(f"not {OSLO}").to_arrow())
    joined = frame.where(inside).groupBy("note").count().agg(sf.sum("count")).collect()[0][0]
    assert joined == table.scan(OSLO).count()
    assert frame.where(call("within_km", "lat", "lon", None, 10.7, 5)).count() == 0


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("nowhere", "lat"), "unknown function"),
        (("within_km", "lat"), "takes 2 columns"),
        (("within_km", "lat", "lon", 1), "takes 3 values"),
        (("within_km", "lat", "lon", "x", 1, 2), "'x' is not of type float"),
    ],
)
def test_a_call_with_a_wrong_function_or_wrong_arguments_is_refused(spark, given, told):
    with pytest.raises(Invalid, match=told):
        call(*given)  # type: ignore[arg-type]


def test_an_index_on_two_columns_is_built_on_spark_and_updated_by_frame_writes(
    table, spark, tmp_path
):
    options = {"mdt.row.group.rows": 20, "mdt.spark.local.bytes.max": 0}
    other = mdt.create(
        tmp_path / "t", SCHEMA, ["id"], options=options, key_index="exact(bits='64')"
    )
    source = spark.createDataFrame(
        table.scan().to_arrow().to_pylist(),
        "id long, lat double, lon float, at timestamp, note string",
    )
    assert other.upsert(source.orderBy("lat")).engine == "spark"
    assert other.create_index("grid(lat, lon)", spark=spark).summaries == len(
        other.snapshot().shards
    )
    other.upsert(source.where("id < 100"))
    assert other.indexes()["coverage"].to_pylist() == [100.0] and other.check().ok
    assert bag(other.scan(OSLO).to_arrow()) == bag(table.scan(OSLO).to_arrow())
