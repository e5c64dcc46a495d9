"""The command line: each command does what it says; errors are two lines on stderr and exit
code 2.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import trees
from command_line import ROWS, SCHEMA, filled, run

import mdt
from mdt.__main__ import main
from mdt.config import options_table


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return filled(tmp_path / "t")


def file_of(folder: Path, name: str, data: pa.Table = ROWS) -> Path:
    file = folder / name
    if name.endswith(".parquet"):
        pq.write_table(data, file)
    elif name.endswith(".csv"):
        pa.csv.write_csv(data, file)
    elif name.endswith(".arrow"):
        pa.feather.write_feather(data, str(file))
    else:
        with pa.ipc.new_stream(str(file), data.schema) as writer:
            writer.write_table(data)
    return file


def test_info_shows_what_the_table_is(path: Path) -> None:
    shown = run("info", path).stdout
    for text in (
        "MERGE_ON_READ",
        "bloom, unique per partition",
        "city",
        "id string",
        "mdt.durable=false",
    ):
        assert text in shown
    lines = {
        line.split("│")[1].strip(): line.split("│")[2].strip()
        for line in shown.splitlines()
        if "│" in line
    }
    assert lines["rows"] == "3"
    assert lines["key"] == "id"
    assert lines["ordering"] == "v"
    assert lines["files"] == "2, of these 0 log files"


def test_show_tells_what_stands_there_and_draws_it(path: Path, tmp_path: Path) -> None:
    shown = run(
        "show", path, "--svg", tmp_path / "t.svg", "--columns", "id,v", "--commits", 1
    ).stdout
    assert (
        "commits 1 to 1" in shown
        and "due: nothing" in shown
        and "rows: 3, and 0 dead ones" in shown
    )
    assert (tmp_path / "t.svg").read_text(encoding="utf-8").startswith("<svg")
    found = json.loads(run("show", path, "--json").stdout)
    assert (found["rows"], len(found["commits"]), found["horizon"]) == (3, 2, 0)
    assert "two columns" in run("show", path, "--columns", "id", code=2).stderr


def test_past_states_are_named_by_seq_instant_or_time(path: Path) -> None:
    table = mdt.open(path)
    table.upsert(ROWS.slice(0, 1).set_column(0, "id", [["new"]]))
    before = table.history()["instant"][1].as_py()
    counts = [
        run("count", path, "--as-of", point).stdout for point in (0, 1, before, 2, "9999-01-01")
    ]
    assert counts == ["0\n", "3\n", "3\n", "4\n", "4\n"]
    assert "new" not in run("scan", path, "--as-of", 1, "--format", "csv").stdout
    assert "new" in run("scan", path, "--format", "csv").stdout
    assert run("files", path, "--as-of", 0, "--json").stdout == ""
    assert "is no tag, instant or time" in run("count", path, "--as-of", "once", code=2).stderr


def test_changes_are_written_as_rows_in_every_format(path: Path) -> None:
    table = mdt.open(path)
    table.upsert(ROWS.slice(0, 1).set_column(2, "v", [[9]]))
    shown = run(
        "changes", path, "--since", 1, "--format", "csv", "--columns", "id,v"
    ).stdout.splitlines()
    instant = table.history()["instant"][2].as_py()
    assert shown[1:] == [
        f'"update_before",2,"{instant}","001",1',
        f'"update_after",2,"{instant}","001",9',
    ]
    lines = run(
        "changes", path, "--since", 0, "--until", 1, "--where", "v > 1", "--json"
    ).stdout.splitlines()
    assert sorted(json.loads(line)["id"] for line in lines) == ["002", "003"]
    assert "update_after" in run("changes", path, "--since", 1).stdout
    assert "goes backwards" in run("changes", path, "--since", 2, "--until", 1, code=2).stderr


def test_tags_are_given_shown_used_and_forgotten(path: Path) -> None:
    assert run("tag", path, "empty", "--at", 0).stdout == "empty is commit 0\n"
    assert json.loads(
        run("tag", path, "kept", "--savepoint", "--comment", "why", "--json").stdout
    ) == {"name": "kept", "seq": 2}
    shown = [json.loads(line) for line in run("tags", path, "--json").stdout.splitlines()]
    assert [(tag["name"], tag["seq"], tag["savepoint"]) for tag in shown] == [
        ("empty", 0, False),
        ("kept", 2, True),
    ]
    assert run("count", path, "--as-of", "empty").stdout == "0\n"
    assert run("untag", path, "kept").stdout == "forgot kept\n"
    assert "there is no tag 'kept'" in run("untag", path, "kept", code=2).stderr


def test_restore_and_rollback_bring_a_state_back(path: Path) -> None:
    mdt.open(path).delete(ROWS.slice(0, 2))
    assert run("restore", path, "1").stdout.startswith("2 inserted; commit 3 at ")
    assert run("count", path).stdout == "3\n"
    assert json.loads(run("rollback", path, 3, "--json").stdout)["deleted"] == 2
    assert "no commit 9" in run("restore", path, 9, code=2).stderr


def test_history_and_files_have_a_line_for_each(path: Path) -> None:
    assert [run("history", path).stdout.count(word) for word in ("create", "upsert")] == [2, 1]
    shown = run("files", path).stdout
    assert all(name in shown for name in mdt.open(path).files()["name"].to_pylist())


def test_scan_shows_a_table_for_people(path: Path) -> None:
    shown = run("scan", path, "--where", "v >= 2", "--columns", "v,id").stdout
    assert [cell.strip() for cell in shown.splitlines()[1].split("┃")[1:3]] == ["v", "id"]
    assert "002" in shown and "003" in shown and "001" not in shown


@pytest.mark.parametrize("limit", [0, 2, 100])
def test_scan_writes_csv_json_and_arrow(path: Path, limit: int) -> None:
    table = mdt.open(path).scan().to_arrow()
    expected = table.slice(0, limit).to_pylist()
    arguments = ("scan", path, "--limit", limit, "--format")
    as_csv = list(csv.DictReader(io.StringIO(run(*arguments, "csv").stdout)))
    assert [{**row, "v": int(row["v"])} for row in as_csv] == expected
    assert [json.loads(line) for line in run(*arguments, "json").stdout.splitlines()] == expected
    with pa.ipc.open_stream(run(*arguments, "arrow").stdout_bytes) as reader:
        assert reader.read_all().to_pylist() == expected


def test_scan_writes_the_first_rows_in_an_order(path: Path) -> None:
    shown = run(
        "scan", path, "--order-by", "v desc", "--limit", 2, "--format", "csv", "--columns", "v"
    ).stdout
    assert shown.split() == ['"v"', "3", "2"]
    assert (
        "order by v desc, limit 2"
        in run("scan", path, "--order-by", "v desc", "--limit", 2, "--explain").stdout
    )
    assert "there is no column 'w'" in run("scan", path, "--order-by", "w", code=2).stderr


def test_scan_explains_instead_of_reading(path: Path) -> None:
    shown = run("scan", path, "--where", "id = '001'", "--explain").stdout
    assert "key:bloom: pruned 1 of 2 covered" in shown and "001  " not in shown


def test_count_writes_a_number(path: Path) -> None:
    assert run("count", path).stdout == "3\n"
    assert run("count", path, "--where", "city = 'x'").stdout == "2\n"


def test_json_holds_what_json_cannot_and_csv_refuses_it(tmp_path: Path) -> None:
    data = pa.table({"id": [1], "b": [b"\xff"], "l": [[1, None]], "d": pa.array([0], pa.date32())})
    trees.create(tmp_path / "t", data.schema).upsert(data)
    shown = run("scan", tmp_path / "t", "--format", "json").stdout
    assert json.loads(shown) == {"id": 1, "b": "ff", "l": [1, None], "d": "1970-01-01"}
    assert (
        "hint: use --format json" in run("scan", tmp_path / "t", "--format", "csv", code=2).stderr
    )


def test_control_characters_and_markup_do_not_reach_the_terminal(tmp_path: Path) -> None:
    data = pa.table({"id": ["\x1b[31m", "[bold]b[/bold]", "two\nlines"]})
    trees.create(tmp_path / "t", data.schema).upsert(data)
    shown = run("scan", tmp_path / "t").stdout
    assert "\\x1b[31m" in shown and "\x1b" not in shown
    assert "[bold]b[/bold]" in shown and "two\\x0alines" in shown


@pytest.mark.parametrize("name", ["new.parquet", "new.csv", "new.arrow", "new.arrows"])
def test_upsert_and_delete_take_a_file(path: Path, tmp_path: Path, name: str) -> None:
    more = pa.table({"id": ["003", "007"], "city": ["x", "y"], "v": [9, 9]}, SCHEMA)
    file = file_of(tmp_path, name, more)
    assert run("upsert", path, file).stdout.startswith("1 inserted, 1 updated; commit 2 at ")
    assert run("delete", path, file).stdout.startswith("2 deleted; commit 3 at ")
    assert run("delete", path, file).stdout == "2 missing; commit 3 stays the newest\n"
    assert trees.ordered(mdt.open(path).scan().to_arrow()) == ROWS.slice(0, 2).to_pylist()


def test_partitions_are_replaced_and_dropped(path: Path, tmp_path: Path) -> None:
    file = file_of(tmp_path, "new.csv", ROWS.slice(0, 1))
    rest = len(ROWS) - 1
    assert run("overwrite", path, file, "--table").stdout.startswith(
        f"1 inserted, {rest + 1} deleted; commit 2 at "
    )
    assert run("overwrite", path, file).stdout.startswith("1 inserted, 1 deleted; commit 3 at ")
    run("overwrite", path, file, "--partition", "city=nowhere", code=2)
    run("overwrite", path, file, "--table", "--partition", "*", code=2)
    run("overwrite", path, file, "--partition", "city=nowhere", "--partition", "*")
    run("delete-partition", path, "nowhere", code=2)
    assert (
        run("delete-partition", path, "city=nowhere").stdout
        == "nothing to do; commit 4 stays the newest\n"
    )
    assert run("truncate", path).stdout.startswith("1 deleted; commit 5 at ")
    assert run("truncate", path).stdout == "nothing to do; commit 5 stays the newest\n"


def test_several_files_are_one_commit(path: Path, tmp_path: Path) -> None:
    one = file_of(tmp_path, "1.parquet", ROWS.set_column(0, "id", pa.array(["a", "b", "c"])))
    two = file_of(tmp_path, "2.csv", ROWS.set_column(0, "id", pa.array(["4", "05", "6"])))
    assert run("upsert", path, one, two).stdout.startswith("6 inserted; commit 2 at ")
    assert run("count", path).stdout == "9\n"


def test_create_takes_the_columns_of_a_file(tmp_path: Path) -> None:
    file = file_of(tmp_path, "like.parquet")
    new = tmp_path / "new"
    more = [
        "--ordering",
        "v",
        "--type",
        "COPY_ON_WRITE",
        "--key-index",
        "record",
        "--scope",
        "table",
    ]
    more += ["--option", "mdt.durable=false", "--option", "mdt.compression=snappy"]
    shown = run(
        "create", new, "--like", file, "--key", "id,city", "--partition-by", "city", *more
    ).stdout
    assert shown == f"created {new}\n"
    table = mdt.open(new)
    definition = table.definition
    assert (definition.key, definition.partition_by, definition.ordering) == (
        ("id", "city"),
        ("city",),
        "v",
    )
    assert (definition.table_type, definition.key_index, definition.scope) == (
        "COPY_ON_WRITE",
        "record",
        "table",
    )
    assert (table.options.compression, table.schema) == ("snappy", SCHEMA)
    run("create", tmp_path / "two", "--like", file, "--key", "id", "--key", "city")
    assert mdt.open(tmp_path / "two").definition.key == ("id", "city")


def test_cluster_says_in_how_many_files_values_lie_before_and_after(
    path: Path, tmp_path: Path
) -> None:
    more = ROWS.set_column(0, "id", pa.array([f"more {n}" for n in range(len(ROWS))]))
    mdt.open(path).bulk_insert(more)
    text = run("cluster", path, "--by", "v,id", "--curve", "hilbert").stdout
    assert "file groups became" in text and "files a value lies in" in text
    assert run("cluster", path, "--by", "v", "--by", "id").stdout.startswith("nothing to gain")
    assert "no query was counted" in run("cluster", path, "--by", "auto", code=2).stderr


def test_alter_takes_its_changes_as_options(path: Path) -> None:
    done = run(
        "alter",
        path,
        "--add",
        "tip=decimal(6, 2)",
        "--default",
        "tip=1.25",
        "--add",
        "at=date32",
        "--reorder",
        "v,id",
        "--beyond-hudi",
    )
    table = mdt.open(path)
    assert done.stdout == f"commit 2 at {table.history()['instant'][2].as_py()}\n"
    assert table.schema.names[:2] == ["v", "id"] and table.schema.names[-2:] == ["tip", "at"]
    assert set(table.scan(columns=["tip"]).to_arrow()["tip"].to_pylist()) == {Decimal("1.25")}
    run("alter", path, "--add", "n=int32")
    run("alter", path, "--widen", "n=double")
    assert table.schema.field("n").type == pa.float64()
    assert json.loads(run("alter", path, "--drop", "at", "--json").stdout)["seq"] == 5
    assert json.loads(run("alter", path, "--reorder", "v", "--json").stdout)["instant"] == "", (
        "nothing to alter"
    )
    for arguments, message in (
        (("--drop", "id"), "is of the record key"),
        (("--add", "m=number"), "'number' is no type"),
        (("--add", "m=int32", "--default", "m=x"), "--default 'x' is not a value of type int32"),
        ((), "nothing is to be altered"),
        (("--rename", "tip=tips"), "--beyond-hudi"),
    ):
        assert message in run("alter", path, *arguments, code=2).stderr


def test_upsert_evolves_if_it_is_told_to(path: Path, tmp_path: Path) -> None:
    file = file_of(tmp_path, "more.parquet", ROWS.slice(0, 1).append_column("more", [["text"]]))
    assert "'more' is not in the table" in run("upsert", path, file, code=2).stderr
    assert "1 updated" in run("upsert", path, file, "--evolve").stdout
    assert mdt.open(path).scan("more = 'text'").count() == 1


def test_compact_says_what_it_did(path: Path, tmp_path: Path) -> None:
    run(
        "upsert", path, file_of(tmp_path, "u.parquet", ROWS.set_column(2, "v", pa.array([5, 5, 5])))
    )
    assert run("compact", path).stdout.startswith("2 file groups compacted; commit 3 at ")
    assert run("compact", path).stdout == "nothing to compact; commit 3 stays the newest\n"
    assert run("abort", path).stdout == "0 instants published, 0 rolled back, 0 files removed\n"


def test_check_fails_when_something_is_wrong(path: Path) -> None:
    assert "no problems" in run("check", path).stdout
    file = next(path.glob("city=x/*.parquet"))
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    shown = run("check", path, code=1).stdout
    assert "1 problems" in shown or "2 problems" in shown
    assert file.name in shown


def test_repair_mends_and_fails_when_something_is_lost(path: Path) -> None:
    assert run("repair", path).stdout == "nothing is damaged\n"
    shutil.rmtree(path / ".hoodie/.mdt/attachments")
    shown = run("repair", path).stdout
    assert "put back, byte for byte" in shown and "lost: nothing" in shown
    assert "no problems" in run("check", path).stdout
    next(path.glob("city=x/*.parquet")).unlink()
    assert "live rows are lost" in run("repair", path, code=1).stdout
    assert json.loads(run("repair", path, "--json", code=1).stdout)["lost"][0]["kind"] == "rows"


def test_options_lists_all(path: Path) -> None:
    assert run("options").stdout == options_table()


WRONG: dict[str, tuple[list[Any], str, str]] = {
    "no table": (["info", "{tmp}/none"], "not a table of mdt", "mdt.create"),
    "a bad filter": (["scan", "{tmp}/t", "--where", "fair > 1"], "no column 'fair'", ""),
    "an unknown column": (["scan", "{tmp}/t", "--columns", "idd"], "no column 'idd'", "id"),
    "an unknown option": (
        ["compact", "{tmp}/t", "--option", "mdt.durabel=1"],
        "'mdt.durabel'",
        "mdt.durable",
    ),
    "an option of the machine": (
        ["alter", "{tmp}/t", "--set", "mdt.cache.dir=x"],
        "option of the machine",
        "opened",
    ),
    "an option without value": (
        ["compact", "{tmp}/t", "--option", "x"],
        "'x' has no value",
        "name=value",
    ),
    "a file that is not there": (
        ["upsert", "{tmp}/t", "{tmp}/none.csv"],
        "none.csv cannot be read",
        "Parquet",
    ),
    "a file of another kind": (["upsert", "{tmp}/t", "{tmp}/x.txt"], "the format of", ".parquet"),
    "a file that is damaged": (
        ["upsert", "{tmp}/t", "{tmp}/bad.parquet"],
        "bad.parquet cannot be read",
        "Parquet",
    ),
    "a file that does not fit": (
        ["upsert", "{tmp}/t", "{tmp}/less.csv"],
        "'v' is missing",
        "v int64",
    ),
    "a table that exists": (
        ["create", "{tmp}/t", "--like", "{tmp}/less.csv", "--key", "id"],
        "already",
        "mdt.open",
    ),
    "a table type": (
        ["create", "{tmp}/n", "--like", "{tmp}/less.csv", "--key", "id", "--type", "x"],
        "'x'",
        "MERGE",
    ),
}


@pytest.mark.parametrize(("arguments", "message", "hint"), WRONG.values(), ids=WRONG.keys())
def test_errors_are_told_on_stderr(
    arguments: list[str], message: str, hint: str, path: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 not really")
    (tmp_path / "less.csv").write_text("id,city\n1,x\n")
    before = trees.tree(tmp_path)
    result = run(*(text.replace("{tmp}", str(tmp_path)) for text in arguments), code=2)
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert "hint: " in result.stderr and hint in result.stderr.partition("hint: ")[2]
    assert trees.tree(tmp_path) == before


def test_the_script_runs_the_commands(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(sys, "argv", ["mdt", "count", str(path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert capsys.readouterr().out == "3\n"
