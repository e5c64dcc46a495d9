"""Files that commands read are not brought into memory as a whole."""

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
def test_a_small_part_of_a_file_is_in_memory(tmp_path, name):
    whole = rows(MANY_ROWS)
    size, file = whole.nbytes, stored(tmp_path / name, whole)
    del whole
    before, most, count, last = pa.total_allocated_bytes(), 0, 0, -1
    for piece in read_all([file], SCHEMA):
        most, count = max(most, pa.total_allocated_bytes() - before), count + len(piece)
        assert piece.schema.equals(SCHEMA)
        last = piece["id"][-1].as_py() if len(piece) else last
    assert (count, last) == (MANY_ROWS, MANY_ROWS - 1)
    # what pyarrow reads ahead depends on how busy the machine is
    assert most < 0.9 * size, f"{most} of {size} bytes"


def test_a_file_larger_than_the_memory_of_a_write_is_one_commit(tmp_path):
    mdt.create(tmp_path / "t", SCHEMA, key=["id"], options={"mdt.write.memory.max": str(1 << 23)})
    file = stored(tmp_path / "a.parquet", rows())
    assert shown("upsert", tmp_path / "t", file).startswith(f"{ROWS:,} inserted; commit 1 at ")
    assert mdt.open(tmp_path / "t").scan().count() == ROWS
    assert shown("delete", tmp_path / "t", file).startswith(f"{ROWS:,} deleted; commit 2 at ")


def test_files_with_other_columns_are_brought_together_and_types_of_csv_hold_for_all_rows(
    tmp_path,
):
    one = stored(tmp_path / "a.parquet", rows(3))
    text = "".join(f"{i},{i}\n" for i in range(200_000))
    (tmp_path / "b.csv").write_text("id,more\n" + text + "7,0.5\n")
    assert schema_of(tmp_path / "b.csv") == columns("id int64, more double")
    pieces = list(read_all([one, tmp_path / "b.csv"], SCHEMA))
    assert all(piece.schema.equals(pieces[0].schema) for piece in pieces)
    found = pa.concat_tables(pieces)
    assert found.schema.names == ["id", "text", "more"] and len(found) == 200_004
    assert found["more"].null_count == 3 and found["more"][-1].as_py() == 0.5


def test_what_cannot_be_read_is_named(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"nothing")
    (tmp_path / "a.txt").write_bytes(b"nothing")
    (tmp_path / "a.csv").write_text(
        "id,text\n" + "".join(f"{i},a\n" for i in range(300_000)) + "x,a\n"
    )
    for name, said in (
        ("a.parquet", ": Parquet"),
        ("a.txt", " is unknown"),
        ("none.csv", ": "),
    ):
        refused(f"{name}{said}", read_all, [tmp_path / name], SCHEMA)
    pieces = read_all([tmp_path / "a.csv"], SCHEMA)
    refused("cannot read … a.csv: … CSV conversion error to int64", list, pieces)
    files = [
        stored(tmp_path / f"{n}.parquet", pa.table({"id": [value]}))
        for n, value in enumerate(["a", 1])
    ]
    refused("incompatible columns", read_all, files, SCHEMA)
    (tmp_path / "b.csv").write_text("id,text,text\n1,a,b\n")
    refused("b.csv: repeated column names: ['text']", read_all, [tmp_path / "b.csv"], SCHEMA)


def test_days_of_an_old_calendar_in_a_parquet_file_are_refused(tmp_path):
    old = pa.table({"id": ["a"], "day": [date(1200, 1, 1)]})
    old = old.replace_schema_metadata({"org.apache.spark.version": "2.4.8"})
    file = stored(tmp_path / "old.parquet", old)
    run("create", tmp_path / "t", "--like", file, "--key", "id")
    text = error_of("upsert", tmp_path / "t", file)
    assert "'day' has dates or times in the Julian calendar" in text
    assert "hint: read the file with Spark" in text
    assert shown("count", tmp_path / "t") == "0\n"


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_a_row_of_text_that_is_too_long_is_refused_with_a_remedy(tmp_path, name):
    long = pa.table([[1, 2], ["x" * (5 << 20), "short"]], schema=SCHEMA)
    file = stored(tmp_path / name, long)
    refused("longer than a block of 1 MiB … Parquet", lambda: list(read_all([file], SCHEMA)))
