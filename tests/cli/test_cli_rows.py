"""Rows by key and by filter, standard input and output, file formats, and ``info`` on any
directory.
"""

import io
import json
from datetime import date

import pyarrow.parquet as pq
import pytest
from command_line import (
    ROWS,
    SCHEMA,
    as_bytes,
    document,
    documents,
    error_of,
    filled,
    run,
    shown,
    stored,
)
from texts import columns, rows_of
from typer.testing import CliRunner

import mdt
from mdt.cli.main import app


@pytest.fixture
def path(tmp_path):
    return filled(tmp_path / "t")


def test_get_writes_the_rows_of_the_keys_and_reports_missing_keys(path):
    assert documents("get", path, "001", "003") == ROWS.take([0, 2]).to_pylist()
    assert document("get", path, '{"id": "002", "city": "y"}', "--columns", "v") == {"v": 2}
    result = run("get", path, "001", "nobody", "--json", code=1)
    assert json.loads(result.stdout)["id"] == "001"
    assert "1 of 2 keys are not in the table" in result.stderr
    for wrong in ('{"id": ', '{"v": 1}'):
        assert error_of("get", path, wrong).startswith("error: ")


def test_get_accepts_a_json_object_as_a_key_of_several_columns(tmp_path):
    types = columns("a int32, day date32, v string")
    t = mdt.create(tmp_path / "two", types, key=["a", "day"])
    t.upsert([{"a": 7, "day": date(2024, 2, 29), "v": "leap"}])
    assert document("get", t.path, '{"a": 7, "day": "2024-02-29"}')["v"] == "leap"
    assert "2 columns" in error_of("get", t.path, "7")


def test_stats_shows_the_bounds_of_columns(path):
    statistics = documents("stats", path, "--columns", "v,id")
    bounds = [(row["column"], row["min"], row["max"]) for row in statistics]
    assert bounds == [("v", "1", "3"), ("id", "001", "003")]
    assert "no statistics for nope" in error_of("stats", path, "--columns", "nope")


def test_update_sets_columns_of_matching_rows(path):
    where = ("--where", "v >= :least", "--param", "least=2")
    assert "2 updated" in shown("update", path, "--set", "v=v * 10", *where)
    assert sorted(mdt.open(path).scan().to_arrow()["v"].to_pylist()) == [1, 20, 30]


def test_delete_accepts_either_a_filter_or_files(path, tmp_path):
    assert "1 deleted" in shown("delete", path, "--where", "v = 2")
    file = stored(tmp_path / "rows.parquet")
    for arguments in ([], [file, "--where", "v = 1"]):
        assert "either files with keys or --where" in error_of("delete", path, *arguments)
    assert mdt.open(path).scan().count() == 2


@pytest.mark.parametrize("format", ["csv", "json", "parquet", "arrows"])
def test_upsert_reads_rows_from_standard_input_in_every_format(path, format):
    run("upsert", path, "-", input=as_bytes(rows_of(SCHEMA, "004 x 4", "001 x 9"), format))
    rows = mdt.open(path).scan(order_by="id").to_arrow()
    assert rows.equals(rows_of(SCHEMA, "001 x 9", "002 y 2", "003 x 3", "004 x 4"))
    assert "once" in error_of("upsert", path, "-", "-")


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet", "arrows"])
def test_upsert_reads_back_the_file_that_scan_writes(path, tmp_path, suffix):
    file = tmp_path / f"rows.{suffix}"
    assert shown("scan", path, "--output", file) == ""
    copy = filled(tmp_path / "again")
    run("delete", copy, "--where", "true")
    run("upsert", copy, file)
    assert mdt.open(copy).scan(order_by="id").to_arrow().equals(ROWS)


def test_scan_writes_parquet_to_a_pipe(path):
    written = run("scan", path, "--format", "parquet").stdout_bytes
    assert pq.read_table(io.BytesIO(written)).sort_by("id").equals(ROWS)


def test_a_failed_scan_leaves_no_output_file(path, tmp_path):
    run("scan", path, "--columns", "nope", "--output", tmp_path / "rows.csv", code=2)
    assert "unknown" in error_of("scan", path, "--output", tmp_path / "rows.odd")
    assert [file.name for file in tmp_path.iterdir()] == ["t"]


def test_a_column_absent_from_json_lines_is_reported_as_missing_and_not_read_as_null(
    path, tmp_path
):
    (tmp_path / "rows.jsonl").write_text('{"id": "001", "city": "x"}\n')
    assert "column 'v' is missing" in error_of("upsert", path, tmp_path / "rows.jsonl")


def test_a_json_lines_column_with_late_fractions_is_read_as_double(tmp_path):
    rows = [{"id": f"{number:06}", "x": 1} for number in range(100_000)]
    rows.append({"id": "last", "x": 2.5})  # type: ignore[dict-item]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    run("create", tmp_path / "new", "--like", file, "--key", "id")
    run("upsert", tmp_path / "new", file)
    assert mdt.open(tmp_path / "new").scan("x = 2.5").to_arrow()["id"].to_pylist() == ["last"]


def test_info_reports_the_kind_of_any_directory_or_file(path, tmp_path):
    (tmp_path / "delta" / "_delta_log").mkdir(parents=True)
    (tmp_path / "delta" / "_delta_log" / "0.json").write_text("{}")
    (tmp_path / "files").mkdir()
    stored(tmp_path / "files" / "rows.parquet")
    kinds = {"delta": "delta", "files": "parquet", "files/rows.parquet": "file", "t": "mdt"}
    for name, kind in kinds.items():
        assert document("info", tmp_path / name)["kind"] == kind
    assert "mdt create NEW_PATH --like rows.parquet" in shown("info", tmp_path / "files")
    assert "it is empty or does not exist" in error_of("info", tmp_path / "none")


def test_shell_completion_completes_commands():
    environment = {"_MDT_COMPLETE": "complete_bash", "COMP_WORDS": "mdt upd", "COMP_CWORD": "1"}
    result = CliRunner().invoke(app, [], prog_name="mdt", env=environment)
    assert "update" in result.output.split()
