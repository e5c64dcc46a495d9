"""A scan is an Arrow stream. Any library with the protocol can read it, in batches and several
times.
"""

import gc
import threading
from itertools import product

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from reader import bag
from texts import columns
from watched import Watched, files_by_time

import mdt
from mdt import Corrupt, Expired, Invalid
from mdt.stores.storage import MemoryStorage

EVERY_TYPE = pa.schema(
    {
        "id": "string",
        "flag": "bool",
        "small": "int32",
        "x": "float32",
        "day": "date32",
        "at": pa.timestamp("us", "UTC"),
        "price": pa.decimal128(10, 2),
        "raw": "binary",
        "tags": pa.list_(pa.string()),
        "where": pa.struct({"lat": "float64"}),
    }
)


@pytest.fixture(scope="module")
def table():
    return files_by_time(MemoryStorage(), files=5, rows=200)


def duckdb_rows(scan, clauses=""):
    """Return the rows that duckdb reads from ``scan``, which it finds as a local variable."""
    return duckdb.sql(f"from scan {clauses}").fetchall()


def test_arrow_duckdb_and_polars_read_the_rows_of_a_scan(table):
    scan = table.scan("ts >= 300 and ts < 320")
    rows = scan.to_arrow()
    assert rows.num_rows == 20
    readers = {
        "pa.table": pa.table(scan),
        "pyarrow reader": pa.RecordBatchReader.from_stream(scan).read_all(),
        "own reader": scan.to_reader().read_all(),
        "duckdb": pa.table(duckdb.sql("from scan").to_arrow_table()),
        "polars frame": pl.DataFrame(scan).to_arrow().cast(rows.schema),
        "polars lazily": pl.scan_arrow_c_stream(scan).collect().to_arrow().cast(rows.schema),
        "polars from_arrow of the reader": (
            pl.from_arrow(scan.to_reader()).to_arrow().cast(rows.schema)
        ),
        "batches": pa.Table.from_batches(scan),
    }
    for name, read_rows in readers.items():
        assert bag(read_rows) == bag(rows), name
    assert len(pl.from_arrow(scan)) == 20
    assert duckdb.sql("select sum(ts) from scan where ts < 302").fetchall() == [(601,)]


def test_other_readers_get_the_order_and_limit_of_a_scan(table):
    scan = table.scan(order_by="ts desc", limit=3, columns=["ts"])
    for values in (pl.DataFrame(scan)["ts"], duckdb.sql("from scan").fetchnumpy()["ts"]):
        assert list(values) == [999, 998, 997]


def test_all_types_and_the_schema_pass_through_the_stream():
    table = mdt.create(MemoryStorage(), EVERY_TYPE, ["id"])
    empty = table.scan()
    assert pa.schema(empty) == table.schema and pa.table(empty).equals(table.schema.empty_table())
    rows = [{"id": "a", "tags": ["x", None], "where": {"lat": 1.5}}, {"id": "b", "flag": True}]
    table.upsert(pa.Table.from_pylist(rows, EVERY_TYPE))
    scan = table.scan()
    assert pa.table(scan).schema == pa.schema(scan) == scan.schema
    assert pa.table(scan).to_pylist() == scan.to_arrow().to_pylist()
    names = ["_hoodie_record_key", "id"]
    assert pa.table(table.scan(columns=names)).column_names == names


def test_a_stream_is_cast_to_a_compatible_requested_schema_and_refuses_others(table):
    scan = table.scan(columns=["ts"], limit=2)
    wider = columns("ts float64")
    assert pa.table(scan, schema=wider).schema == wider
    with pytest.raises(Invalid, match="requested schema"):
        pa.table(scan, schema=columns("another int64, ts int64"))


def test_a_stream_reads_only_ahead_of_its_reader_and_ends_its_threads_when_closed():
    storage = Watched()
    files_by_time(storage, files=60, rows=3000)
    table = mdt.open(storage, {"mdt.reader.threads": 2})
    storage.seen.clear()
    before = set(threading.enumerate())

    def new_threads():
        """Return the threads started since. Threads of other tests' storages may end meanwhile."""
        gc.collect()
        return set(threading.enumerate()) - before

    reader = pa.RecordBatchReader.from_stream(table.scan())
    assert reader.read_next_batch().num_rows and new_threads()
    assert len(storage.seen) < 20, "the whole table was read for the first batch"
    reader.close()
    del reader
    assert not new_threads()
    batches = iter(table.scan())
    next(batches)
    batches.close()
    assert not new_threads()
    storage.seen.clear()
    assert len(duckdb_rows(table.scan(), "limit 3")) == 3
    assert not [thread for thread in new_threads() if thread.name.startswith("ThreadPool")]
    assert len(storage.seen) < 30


def test_an_error_while_reading_is_ours_in_python_and_has_our_message_in_duckdb(tmp_path):
    table = mdt.create(tmp_path / "t", columns("id int64, x int64"), ["id"])
    table.bulk_insert(pa.table({"id": range(100_000), "x": range(100_000)}))
    [file] = (tmp_path / "t").glob("*.parquet")
    file.write_bytes(b"PAR1" + bytes(file.stat().st_size - 4))
    scan = mdt.open(tmp_path / "t").scan()
    for read in (
        lambda scan: scan.to_reader().read_all(),
        list,
        mdt.query.Scan.to_arrow,
        pa.table,
        pa.RecordBatchReader.from_stream,
        pl.DataFrame,
    ):
        with pytest.raises(Corrupt, match=file.name):
            read(scan)
    with pytest.raises((Corrupt, duckdb.Error), match=f"data file.*{file.name}"):
        duckdb_rows(scan)


def test_an_error_after_the_first_rows_has_our_message_in_other_libraries(table):
    class FailingScan(mdt.query.Scan):
        def to_batches(self):
            yield from super().to_batches()
            raise Corrupt("broken off")

    scan = FailingScan(table.metadata, table.snapshot(), None, None, table.options)
    for read, kind in ((pa.table, pa.ArrowException), (pl.DataFrame, pl.exceptions.ComputeError)):
        with pytest.raises(kind, match="broken off"):
            read(scan)


def test_reading_a_cleaned_snapshot_through_an_arrow_stream_raises_expired(tmp_path):
    table = mdt.create(tmp_path / "t", columns("id int64"), ["id"])
    for _ in range(4):
        table.insert_overwrite_table(pa.table({"id": range(10)}))
    streams = mdt.open(tmp_path / "t", as_of=1).scan(), mdt.open(tmp_path / "t").changes(1)
    table.clean(retain_commits=1)
    for stream, read in product(streams, (pa.table, pl.DataFrame)):
        with pytest.raises(Expired):
            read(stream)


def test_a_scan_has_no_length_and_is_always_true(table):
    scan = table.scan("ts < 5")
    with pytest.raises(TypeError):
        len(scan)
    assert scan.count() == sum(batch.num_rows for batch in scan) == 5
    assert bool(table.scan("ts < 0"))
