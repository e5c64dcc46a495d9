"""Rows by key and by filter, standard input and output, formats of files, and what a directory
is.
"""

from __future__ import annotations

import io
import json
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from command_line import ROWS, SCHEMA, filled, run
from typer.testing import CliRunner

import mdt
from mdt.cli.main import app


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return filled(tmp_path / "t")


def as_bytes(rows: pa.Table, format: str) -> bytes:
    sink = io.BytesIO()
    if format == "csv":
        pa.csv.write_csv(rows, sink)
    elif format == "json":
        sink.write("".join(json.dumps(row) + "\n" for row in rows.to_pylist()).encode())
    elif format == "parquet":
        pq.write_table(rows, sink)
    else:
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
    return sink.getvalue()


def test_get_writes_the_rows_of_keys(path: Path) -> None:
    lines = [
        json.loads(line) for line in run("get", path, "001", "003", "--json").stdout.splitlines()
    ]
    assert lines == [ROWS.to_pylist()[0], ROWS.to_pylist()[2]]
    assert json.loads(
        run("get", path, '{"id": "002", "city": "y"}', "--columns", "v", "--json").stdout
    ) == {"v": 2}


def test_get_of_a_missing_key_ends_with_code_1_and_counts_it(path: Path) -> None:
    result = run("get", path, "001", "nobody", "--json", code=1)
    assert json.loads(result.stdout)["id"] == "001"
    assert "1 of 2 keys are not in the table" in result.stderr


def test_get_takes_a_json_object_for_a_key_of_several_columns(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int32()), ("day", pa.date32()), ("v", pa.string())])
    t = mdt.create(tmp_path / "two", schema, key=["a", "day"])
    t.upsert([{"a": 7, "day": date(2024, 2, 29), "v": "leap"}])
    assert (
        json.loads(run("get", t.path, '{"a": 7, "day": "2024-02-29"}', "--json").stdout)["v"]
        == "leap"
    )
    assert "2 columns" in run("get", t.path, "7", code=2).stderr


@pytest.mark.parametrize("key", ['{"id": ', '{"v": 1}'], ids=["no JSON", "another column"])
def test_get_refuses_what_is_not_a_key(path: Path, key: str) -> None:
    assert run("get", path, key, code=2).stderr.startswith("error: ")


def test_stats_shows_the_bounds_of_columns(path: Path) -> None:
    rows = [
        json.loads(line)
        for line in run("stats", path, "--columns", "v,id", "--json").stdout.splitlines()
    ]
    assert [(row["column"], row["min"], row["max"]) for row in rows] == [
        ("v", "1", "3"),
        ("id", "001", "003"),
    ]
    assert "no statistics of nope" in run("stats", path, "--columns", "nope", code=2).stderr


def test_update_sets_columns_of_the_rows_that_match(path: Path) -> None:
    assert (
        "2 updated"
        in run(
            "update", path, "--set", "v=v * 10", "--where", "v >= :least", "--param", "least=2"
        ).stdout
    )
    assert sorted(mdt.open(path).scan().to_arrow()["v"].to_pylist()) == [1, 20, 30]


def test_delete_takes_a_filter_or_files_and_not_both(path: Path, tmp_path: Path) -> None:
    assert "1 deleted" in run("delete", path, "--where", "v = 2").stdout
    assert mdt.open(path).scan().count() == 2
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    for arguments in ([], [tmp_path / "rows.parquet", "--where", "v = 1"]):
        assert "files with keys or a filter" in run("delete", path, *arguments, code=2).stderr
    assert mdt.open(path).scan().count() == 2


@pytest.mark.parametrize("format", ["csv", "json", "parquet", "arrow"])
def test_rows_come_from_standard_input_in_every_format(path: Path, format: str) -> None:
    rows = pa.table({"id": ["004", "001"], "city": ["x", "x"], "v": [4, 9]}, SCHEMA)
    result = CliRunner().invoke(app, ["upsert", str(path), "-"], input=as_bytes(rows, format))
    assert result.exit_code == 0, result.output
    assert {row["id"]: row["v"] for row in mdt.open(path).scan().to_arrow().to_pylist()} == {
        "001": 9,
        "002": 2,
        "003": 3,
        "004": 4,
    }


def test_standard_input_is_read_once(path: Path) -> None:
    assert "once" in run("upsert", path, "-", "-", code=2).stderr


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet", "arrows"])
def test_what_scan_writes_to_a_file_upsert_reads_back(
    path: Path, tmp_path: Path, suffix: str
) -> None:
    file = tmp_path / f"rows.{suffix}"
    assert run("scan", path, "--output", file).stdout == ""
    again = filled(tmp_path / "again")
    run("delete", again, "--where", "true")
    run("upsert", again, file)
    rows = mdt.open(again).scan(order_by="id").to_arrow()
    assert rows.equals(ROWS)


def test_parquet_can_be_written_to_a_pipe(path: Path) -> None:
    written = run("scan", path, "--format", "parquet").stdout_bytes
    assert pq.read_table(io.BytesIO(written)).sort_by("id").equals(ROWS)


def test_a_scan_that_fails_leaves_no_file(path: Path, tmp_path: Path) -> None:
    run("scan", path, "--columns", "nope", "--output", tmp_path / "rows.csv", code=2)
    assert "unknown" in run("scan", path, "--output", tmp_path / "rows.odd", code=2).stderr
    assert sorted(file.name for file in tmp_path.iterdir()) == ["t"]


def test_columns_that_json_lines_lack_are_missing_and_not_null(path: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"id": "001", "city": "x"}\n')
    assert "column 'v' is missing" in run("upsert", path, tmp_path / "rows.jsonl", code=2).stderr


def test_a_number_that_becomes_a_fraction_later_in_json_lines_is_a_double(tmp_path: Path) -> None:
    rows = [{"id": f"{number:06}", "x": 1} for number in range(100_000)] + [
        {"id": "last", "x": 2.5}
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    run("create", tmp_path / "new", "--like", tmp_path / "rows.jsonl", "--key", "id")
    run("upsert", tmp_path / "new", tmp_path / "rows.jsonl")
    assert mdt.open(tmp_path / "new").scan("x = 2.5").to_arrow()["id"].to_pylist() == ["last"]


def test_info_says_what_any_directory_is(path: Path, tmp_path: Path) -> None:
    (tmp_path / "delta" / "_delta_log").mkdir(parents=True)
    (tmp_path / "delta" / "_delta_log" / "0.json").write_text("{}")
    (tmp_path / "files").mkdir()
    pq.write_table(ROWS, tmp_path / "files" / "rows.parquet")
    kinds = {"delta": "delta", "files": "parquet", "files/rows.parquet": "file", "t": "mdt"}
    for name, kind in kinds.items():
        document = json.loads(run("info", tmp_path / name, "--json").stdout)
        assert document["kind"] == kind
    assert "mdt create NEW_PATH --like rows.parquet" in run("info", tmp_path / "files").stdout
    assert "nothing is there" in run("info", tmp_path / "none", code=2).stderr


def test_a_shell_can_complete_commands() -> None:
    result = CliRunner().invoke(
        app,
        [],
        prog_name="mdt",
        env={"_MDT_COMPLETE": "complete_bash", "COMP_WORDS": "mdt upd", "COMP_CWORD": "1"},
    )
    assert "update" in result.output.split()
