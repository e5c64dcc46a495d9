"""The command line used by programs: JSON on every command, exit codes, closed pipes, interrupts,
storage options.
"""

import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
import s3
import trees
from command_line import SCHEMA, document, documents, error_of, filled, run, shown, stored
from documents import ran
from texts import columns
from typer.main import get_command

import mdt
from mdt import option_lists
from mdt.cli import json_text
from mdt.cli.main import app


@pytest.fixture
def path(tmp_path):
    stored(tmp_path / "rows.parquet")
    return filled(tmp_path / "t", indexes=["bitmap(v)"])


def test_info_as_json_has_stable_keys_and_types(path):
    info = document("info", path)
    table = mdt.open(path)
    assert info == {
        "path": str(path),
        "kind": "mdt",
        "name": "t",
        "table_type": "MERGE_ON_READ",
        "key": ["id"],
        "partition_by": ["city"],
        "ordering": ["v"],
        "key_index": table.definition.key_index,
        "scope": "partition",
        "indexes": list(table.definition.indexes),
        "options": dict(table.definition.options),
        "formats": [{"format": "hudi", "seq": 1, "behind": 0}],
        "seq": 1,
        "instant": table.snapshot().last_instant,
        "rows": 3,
        "files": 2,
        "log_files": 0,
        "bytes": sum(table.files()["size"].to_pylist()),
        "columns": [
            {"name": f.name, "type": str(f.type), "nullable": f.nullable} for f in table.schema
        ],
    }


def test_commands_count_queries_if_an_option_is_set_and_else_print_a_hint(
    path,
):
    def hints():
        results = [run("index", command, path) for command in ("list", "advise")]
        lines = [
            line for result in results for line in (result.stdout + result.stderr).splitlines()
        ]
        return [line for line in lines if "no query was counted" in line]

    assert document("count", path, "--where", "v = 2") == {"count": 1}
    assert len(hints()) == 2 and all("mdt.usage.counts=true" in hint for hint in hints())
    for command in ("count", "scan"):
        run(command, path, "--where", "v = 2", "--option", "mdt.usage.counts=true")
    assert documents("index", "list", path)[0]["queries"] == 2
    assert not hints()


def test_result_rows_are_json_lines(path):
    table = mdt.open(path)
    assert [row["operation"] for row in documents("history", path)] == ["create", "upsert"]
    assert [row["name"] for row in documents("files", path)] == table.files()["name"].to_pylist()
    assert documents("index", "list", path)[0]["index"] == table.indexes()["index"][0].as_py()
    assert [advice["action"] for advice in documents("index", "advise", path)] == ["count"]
    assert documents("index", "list", path)[0]["queries"] is None
    assert documents("options") == option_lists.options_list()
    scanned = documents("scan", path, "--where", "v > 1", "--columns", "id", "--order-by", "id")
    assert scanned == [{"id": "002"}, {"id": "003"}]
    assert documents("scan", path, "--limit", "0") == []


RESULT = """
    seq instant inserted updated deleted late missing attempts engine warnings files_written
    files_rewritten bytes_written
"""


def test_each_command_that_changes_a_table_prints_one_json_document(path, tmp_path):
    rows = tmp_path / "rows.parquet"
    new = str(tmp_path / "new")
    assert document("create", new, "--like", rows, "--key", "id") == {"path": new}
    done = document("upsert", path, rows)
    assert (done["seq"], done["updated"], done["inserted"], done["warnings"]) == (2, 3, 0, [])
    assert sorted(done) == sorted(RESULT.split())
    assert document("delete", path, rows)["deleted"] == 3
    assert document("compact", path)["seq"] == 4
    nothing = {"seq": 4, "instant": "", "files_written": 0, "warnings": []}
    assert nothing.items() <= document("compact", path).items()
    assert document("abort", path)["rolled_back"] == []
    nothing = {"summaries": 0, "bytes": 0, "commits": 0}
    assert document("index", "create", path, "bitmap(id)") == nothing
    assert document("index", "rebuild", path)["commits"] == 0
    assert document("index", "build", path)["summaries"] == 0
    assert document("index", "drop", path, "bitmap(id)") == {"dropped": ["bitmap(id)"]}
    assert document("count", path) == {"count": 0}


def test_a_plan_and_a_check_are_one_json_document_each(path):
    plan = document("scan", path, "--where", "id = '001'", "--explain")
    assert (plan["files_read"], plan["files_total"], plan["where"]) == (1, 2, "id = '001'")
    assert plan["indexes"][0].keys() >= {"index", "used", "pruned", "reason", "detail"}
    assert document("check", path)["ok"] is True
    file = next(path.glob("city=x/*.parquet"))
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    report = document("check", path, code=1)
    assert report["ok"] is False
    assert any(file.name in problem["path"] for problem in report["problems"])


def leaf_commands(command, *names):
    """Yield the name and the object of every command, subcommands included."""
    for name, subcommand in getattr(command, "commands", {}).items():
        yield from leaf_commands(subcommand, *names, name)
    if not hasattr(command, "commands"):
        yield names, command


def test_every_command_accepts_json_and_storage_options():
    commands = dict(leaf_commands(get_command(app)))
    assert len(commands) >= 18
    for names, command in commands.items():
        options = {option for parameter in command.params for option in parameter.opts}
        assert {"--json", "--storage-option"} <= options, names
        assert command.help, names


def test_an_error_is_one_json_document_on_stderr(tmp_path):
    result = run("info", tmp_path / "none", "--json", code=2)
    error = json.loads(result.stderr)
    assert result.stdout == ""
    assert (error["error"], error["retryable"]) == ("Invalid", False)
    assert "not an mdt table" in error["message"] and "mdt create" in error["hint"]


def test_wrong_usage_exits_with_2():
    for arguments in ("nonsense", "info", "scan . --nonsense", "scan . --limit -1"):
        assert run(*arguments.split(), code=2).stdout == ""


def test_values_without_a_json_type_are_written_as_strings():
    row = {
        "d": date(2026, 11, 21),
        "t": datetime(2026, 11, 21, 1, 2, 3, 4, UTC),
        "n": datetime(2026, 1, 2),
        "m": Decimal("1.10"),
        "b": b"\xff",
        "f": [1.5, float("nan"), float("inf"), -float("inf")],
        "s": {"a": None},
        "p": [("k", 1)],
        "é": "ü",
        "e": [
            timedelta(days=2),
            timedelta(seconds=-1, microseconds=-500),
            *pa.array([-7], pa.duration("ns")).to_pylist(),
        ],
    }
    text = json_text.line(row)
    assert json.loads(text, parse_constant=pytest.fail) == {
        "d": "2026-11-21",
        "t": "2026-11-21T01:02:03.000004+00:00",
        "n": "2026-01-02T00:00:00",
        "m": "1.10",
        "b": "ff",
        "f": [1.5, "NaN", "Infinity", "-Infinity"],
        "s": {"a": None},
        "p": [["k", 1]],
        "é": "ü",
        "e": ["PT172800S", "-PT1.0005S", "-PT0.000000007S"],
    }
    assert "é" in text


def test_the_version_is_shown():
    assert shown("--version") == f"mdt {mdt.__version__}\n"


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    folder = tmp_path_factory.mktemp("large") / "t"
    n = 5_000
    ids = [f"{i:06}" for i in range(n)]
    trees.create(folder, SCHEMA).bulk_insert({"id": ids, "city": ["x"] * n, "v": list(range(n))})
    return folder


def run_piped(command, reader, folder):
    """Run a command whose output ``reader`` reads, and check that nothing is written to stderr."""
    done = ran(["bash", "-c", f"set -o pipefail; {command} | {reader}"], folder)
    assert (done.returncode, done.stderr) == (0, "")


MDT = f'"{sys.executable}" -m mdt'


@pytest.mark.parametrize("format", ["table", "csv", "json", "arrow"])
def test_a_closed_output_pipe_is_not_an_error(format, large):
    scan = f"{MDT} scan t --limit 5000 --format {format}"
    run_piped(scan, "head -c 100 > first", large.parent)
    assert (large.parent / "first").stat().st_size == 100


@pytest.mark.parametrize("command", ["--help", "options", "info t", "options --json"])
def test_an_unread_output_pipe_is_not_an_error(command, large):
    run_piped(f"(sleep 0.3; {MDT} {command})", "true", large.parent)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no full device")
@pytest.mark.parametrize("command", ["count t", "scan t", "scan t --format csv", "info t --json"])
def test_a_full_output_device_is_a_one_line_error(command, large):
    done = ran(["bash", "-c", f"{MDT} {command} > /dev/full"], large.parent)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and "No space left" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_characters_that_the_output_encoding_lacks_are_escaped(tmp_path):
    mdt.create(tmp_path / "t", columns("id string, ü string"), key=["id"])
    mdt.open(tmp_path / "t").upsert([{"id": "é", "ü": "😀"}])
    scan = f"PYTHONIOENCODING=ascii {MDT} scan t"
    assert "\\xe9" in ran(["bash", "-c", scan], tmp_path).stdout
    (row,) = ran(["bash", "-c", f"{scan} --json"], tmp_path).stdout.splitlines()
    assert json.loads(row) == {"id": "é", "ü": "😀"}
    info = ran(["bash", "-c", f"PYTHONIOENCODING=ascii {MDT} info t --json"], tmp_path).stdout
    assert json.loads(info)["columns"][1]["name"] == "ü"


def test_closed_standard_streams_behave_like_null_devices(large):
    for command, code in (("count t >&-", 0), ("count no 2>&-", 2), ("upsert t - <&-", 2)):
        done = ran(["bash", "-c", f"{MDT} {command}"], large.parent)
        assert (done.returncode, "Traceback" in done.stderr) == (code, False)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_output_to_a_pipe_or_device_is_written_to_it_and_does_not_replace_it(path, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    scan = f"{MDT} scan t --format csv --output"
    done = ran(["bash", "-c", f"cat pipe > copy & {scan} pipe && wait"], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "pipe").is_fifo()
    assert len((tmp_path / "copy").read_text().splitlines()) == 1 + 3


def test_an_interrupt_ends_a_command_with_one_line(path, monkeypatch):
    def raise_interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(mdt.Table, "check", raise_interrupt)
    result = run("check", path, code=130)
    assert (result.stdout, result.stderr) == ("", "interrupted\n")


def test_ctrl_c_ends_a_watch_without_a_traceback(path):
    # Background processes of a shell ignore SIGINT, and their children inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        _interrupt_a_watch(path)
    finally:
        signal.signal(signal.SIGINT, before)


def _interrupt_a_watch(path):
    program = "import mdt.cli.main; print('ready', flush=True); mdt.cli.main.app()"
    watch = ["index", "build", str(path), "--watch", "--seconds", "0.1"]
    command, pipe = [sys.executable, "-c", program, *watch], subprocess.PIPE
    with subprocess.Popen(
        command, cwd=mdt.__path__[0] + "/..", stdout=pipe, stderr=pipe
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=30)
    assert process.returncode in (0, 130)
    assert b"Traceback" not in out + error


def test_a_table_on_s3_is_opened_with_storage_options(tmp_path, monkeypatch):
    rows = stored(tmp_path / "rows.parquet")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, s3.ENVIRONMENT[name])
    with s3.mock_server() as endpoint:
        url = f"s3://{s3.BUCKET}/cli"
        storage_options = [
            "--storage-option",
            f"endpoint={endpoint}",
            "--storage-option",
            "allow_http=true",
        ]
        run("create", url, "--like", rows, "--key", "id", *storage_options)
        assert document("upsert", url, rows, *storage_options)["inserted"] == 3
        assert shown("count", url, *storage_options) == "3\n"
        assert "'regoin'" in error_of("count", url, "--storage-option", "regoin=x")
        assert "has no value" in error_of("count", url, "--storage-option", "region")
