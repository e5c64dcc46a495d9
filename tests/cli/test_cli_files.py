"""Commands stream their input files instead of loading them into memory."""

from datetime import date

import pyarrow as pa
import pytest
from command_line import error_of, run, shown, stored
from refusals import refused
from texts import columns

import mdt
from mdt.cli.row_files import read_all, schema_of

ROWS = 100_000
MANY_ROWS = 1_000_000
SCHEMA = columns("id int64, text string")


def rows(count=ROWS):
    texts = [f"the text of row {i}, which is not very short" for i in range(count)]
    return pa.table([range(count), texts], schema=SCHEMA)


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.arrow", "a.arrows"])
def test_reading_a_file_keeps_only_part_of_it_in_memory(tmp_path, name):
    whole = rows(MANY_ROWS)
    size, file = whole.nbytes, stored(tmp_path / name, whole)
    del whole
    before, peak_bytes, count, last = pa.total_allocated_bytes(), 0, 0, -1
    for piece in read_all([file], SCHEMA):
        peak_bytes, count = max(peak_bytes, pa.total_allocated_bytes() - before), count + len(piece)
        assert piece.schema.equals(SCHEMA)
        last = piece["id"][-1].as_py() if len(piece) else last
    assert (count, last) == (MANY_ROWS, MANY_ROWS - 1)
    # pyarrow's read-ahead depends on the load of the machine
    assert peak_bytes < 0.9 * size, f"{peak_bytes} of {size} bytes"


def test_a_file_larger_than_the_write_memory_limit_is_one_commit(tmp_path):
    mdt.create(tmp_path / "t", SCHEMA, key=["id"], options={"mdt.write.memory.max": str(1 << 23)})
    file = stored(tmp_path / "a.parquet", rows())
    assert shown("upsert", tmp_path / "t", file).startswith(f"{ROWS:,} inserted; commit 1 at ")
    assert mdt.open(tmp_path / "t").scan().count() == ROWS
    assert shown("delete", tmp_path / "t", file).startswith(f"{ROWS:,} deleted; commit 2 at ")


def test_columns_of_several_files_are_merged_and_csv_types_hold_for_all_rows(
    tmp_path,
):
    parquet_file = stored(tmp_path / "a.parquet", rows(3))
    text = "".join(f"{i},{i}\n" for i in range(200_000))
    (tmp_path / "b.csv").write_text("id,more\n" + text + "7,0.5\n")
    assert schema_of(tmp_path / "b.csv") == columns("id int64, more double")
    pieces = list(read_all([parquet_file, tmp_path / "b.csv"], SCHEMA))
    assert all(piece.schema.equals(pieces[0].schema) for piece in pieces)
    combined = pa.concat_tables(pieces)
    assert combined.schema.names == ["id", "text", "more"] and len(combined) == 200_004
    assert combined["more"].null_count == 3 and combined["more"][-1].as_py() == 0.5


def test_unreadable_and_incompatible_files_are_refused_by_name(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"nothing")
    (tmp_path / "a.txt").write_bytes(b"nothing")
    (tmp_path / "a.csv").write_text(
        "id,text\n" + "".join(f"{i},a\n" for i in range(300_000)) + "x,a\n"
    )
    for name, problem in (
        ("a.parquet", ": Parquet"),
        ("a.txt", " is unknown"),
        ("none.csv", ": "),
    ):
        refused(f"{name}{problem}", read_all, [tmp_path / name], SCHEMA)
    pieces = read_all([tmp_path / "a.csv"], SCHEMA)
    refused("cannot read … a.csv: … CSV conversion error to int64", list, pieces)
    files = [
        stored(tmp_path / f"{n}.parquet", pa.table({"id": [value]}))
        for n, value in enumerate(["a", 1])
    ]
    refused("incompatible columns", read_all, files, SCHEMA)
    (tmp_path / "b.csv").write_text("id,text,text\n1,a,b\n")
    refused("b.csv: repeated column names: ['text']", read_all, [tmp_path / "b.csv"], SCHEMA)


def test_dates_in_the_julian_calendar_in_a_parquet_file_are_refused(tmp_path):
    rows_of_spark_2 = pa.table({"id": ["a"], "day": [date(1200, 1, 1)]})
    rows_of_spark_2 = rows_of_spark_2.replace_schema_metadata({"org.apache.spark.version": "2.4.8"})
    file = stored(tmp_path / "old.parquet", rows_of_spark_2)
    run("create", tmp_path / "t", "--like", file, "--key", "id")
    text = error_of("upsert", tmp_path / "t", file)
    assert "'day' has dates or times in the Julian calendar" in text
    assert "hint: read the file with Spark" in text
    assert shown("count", tmp_path / "t") == "0\n"


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_a_text_row_longer_than_a_block_is_refused_with_a_hint(tmp_path, name):
    long_rows = pa.table([[1, 2], ["x" * (5 << 20), "short"]], schema=SCHEMA)
    file = stored(tmp_path / name, long_rows)
    refused("longer than a block of 1 MiB … Parquet", lambda: list(read_all([file], SCHEMA)))
