"""The commands of the command line. Errors are two lines on stderr with exit code 2."""

import csv
import io
import json
import shutil
import sys
from decimal import Decimal

import pyarrow as pa
import pytest
import trees
from command_line import ROWS, SCHEMA, document, documents, error_of, filled, run, shown, stored
from rich.console import Console
from texts import rows_of

import mdt
from mdt.__main__ import main
from mdt.cli import terminal
from mdt.option_lists import options_table


@pytest.fixture
def path(tmp_path):
    return filled(tmp_path / "t")


def test_info_shows_table_type_key_index_row_and_file_counts_and_options(path):
    text = shown("info", path)
    for part in ("MERGE_ON_READ", "bloom, unique per partition", "id string", "mdt.durable=false"):
        assert part in text
    cells = [line.split("│") for line in text.splitlines() if "│" in line]
    values = {cell[1].strip(): cell[2].strip() for cell in cells}
    expected = {"rows": "3", "key": "id", "ordering": "v", "files": "2, including 0 log files"}
    assert expected.items() <= values.items()


def test_show_prints_commits_and_rows_writes_an_svg_and_names_unwritable_paths(path, tmp_path):
    result = run("show", path, "--svg", tmp_path / "t.svg", "--columns", "id,v", "--commits", 1)
    for part in ("commits 1 to 1", "due: nothing", "rows: 3 live, 0 deleted"):
        assert part in result.stdout
    assert result.stderr == f"wrote {tmp_path / 't.svg'}\n"
    assert (tmp_path / "t.svg").read_text(encoding="utf-8").startswith("<svg")
    summary = document("show", path)
    assert (summary["rows"], len(summary["commits"]), summary["horizon"]) == (3, 2, 0)
    assert "two columns" in error_of("show", path, "--columns", "id")
    for target in (tmp_path / "nowhere" / "t.svg", tmp_path / "t.svg" / "t.svg"):
        assert f"cannot write {target}" in error_of("show", path, "--svg", target)


def test_rows_wider_than_the_terminal_are_printed_one_value_per_line(path, monkeypatch):
    monkeypatch.setattr(terminal, "output", lambda: Console(width=40))
    changes = ("changes", path, "--since", 0, "--columns", "id,v")
    text = shown(*changes, "--where", "v < 3")
    assert {len(line) for line in text.splitlines()} == {len("│ _instant │ 20260228120000123 │")}
    cells = [line.split("│") for line in text.splitlines() if "│" in line]
    values = [(cell[1].strip(), cell[2].strip()) for cell in cells]
    assert [name for name, _ in values] == ["_change", "_seq", "_instant", "id", "v"] * 2
    assert [value for name, value in values if name == "id"] == ["001", "002"]
    assert "_change" in shown(*changes, "--where", "v > 3")  # the header, without rows
    monkeypatch.setattr(terminal, "output", lambda: Console(width=60))
    assert text.count("_change") == 2 and shown(*changes).count("_change") == 1


def test_past_snapshots_are_named_by_seq_instant_or_time(path):
    table = mdt.open(path)
    table.upsert(rows_of(SCHEMA, "new x 1"))
    before = table.history()["instant"][1].as_py()
    for point, count in ((0, 0), (1, 3), (before, 3), (2, 4), ("9999-01-01", 4)):
        assert shown("count", path, "--as-of", point) == f"{count}\n"
    assert "new" not in shown("scan", path, "--as-of", 1, "--format", "csv")
    assert shown("files", path, "--as-of", 0, "--json") == ""
    assert "is not a tag, instant or time" in error_of("count", path, "--as-of", "once")


def test_changes_are_written_as_rows_in_csv_json_and_tables(path):
    table = mdt.open(path)
    table.upsert(rows_of(SCHEMA, "001 x 9"))
    output = shown("changes", path, "--since", 1, "--format", "csv", "--columns", "id,v")
    instant = table.history()["instant"][2].as_py()
    assert output.splitlines()[1:] == [
        f'"update_before",2,"{instant}","001",1',
        f'"update_after",2,"{instant}","001",9',
    ]
    output = documents("changes", path, "--since", 0, "--until", 1, "--where", "v > 1")
    assert sorted(row["id"] for row in output) == ["002", "003"]
    assert "update_after" in shown("changes", path, "--since", 1)
    assert "is reversed" in error_of("changes", path, "--since", 2, "--until", 1)


def test_tags_are_created_listed_used_and_removed(path):
    assert shown("tag", path, "empty", "--at", 0) == "empty is commit 0\n"
    expected = {"name": "kept", "seq": 2}
    assert document("tag", path, "kept", "--savepoint", "--comment", "why") == expected
    listed = [(tag["name"], tag["seq"], tag["savepoint"]) for tag in documents("tags", path)]
    assert listed == [("empty", 0, False), ("kept", 2, True)]
    assert shown("count", path, "--as-of", "empty") == "0\n"
    assert shown("untag", path, "kept") == "removed kept\n"
    assert "there is no tag 'kept'" in error_of("untag", path, "kept")


def test_restore_and_rollback_bring_back_earlier_rows(path):
    mdt.open(path).delete(ROWS.slice(0, 2))
    assert shown("restore", path, "1").startswith("2 inserted; commit 3 at ")
    assert shown("count", path) == "3\n"
    assert document("rollback", path, 3)["deleted"] == 2
    assert "no commit 9" in error_of("restore", path, 9)


def test_history_has_a_line_per_commit_and_files_a_line_per_file(path):
    assert [shown("history", path).count(word) for word in ("create", "upsert")] == [2, 1]
    text = shown("files", path)
    assert all(name in text for name in mdt.open(path).files()["name"].to_pylist())


def test_scan_prints_a_table_by_default(path):
    text = shown("scan", path, "--where", "v >= 2", "--columns", "v,id")
    assert [cell.strip() for cell in text.splitlines()[1].split("┃")[1:3]] == ["v", "id"]
    assert [value in text for value in ("001", "002", "003")] == [False, True, True]


@pytest.mark.parametrize("limit", [0, 2, 100])
def test_scan_writes_csv_json_and_arrow(path, limit):
    expected = mdt.open(path).scan().to_arrow().slice(0, limit).to_pylist()
    arguments = ("scan", path, "--limit", limit, "--format")
    as_csv = list(csv.DictReader(io.StringIO(shown(*arguments, "csv"))))
    assert [{**row, "v": int(row["v"])} for row in as_csv] == expected
    assert [json.loads(line) for line in shown(*arguments, "json").splitlines()] == expected
    with pa.ipc.open_stream(run(*arguments, "arrow").stdout_bytes) as reader:
        assert reader.read_all().to_pylist() == expected


def test_scan_orders_or_explains_rows_and_count_prints_a_number(
    path,
):
    top_rows = ("scan", path, "--order-by", "v desc", "--limit", 2)
    assert shown(*top_rows, "--format", "csv", "--columns", "v").split() == ['"v"', "3", "2"]
    assert "order by v desc, limit 2" in shown(*top_rows, "--explain")
    assert "there is no column 'w'" in error_of("scan", path, "--order-by", "w")
    text = shown("scan", path, "--where", "id = '001'", "--explain")
    assert "key:bloom: pruned 1 of 2 covered" in text and "001  " not in text
    assert shown("count", path, "--where", "city = 'x'") == "2\n"


def test_scan_encodes_values_without_json_form_and_refuses_nested_values_as_csv(tmp_path):
    data = pa.table({"id": [1], "b": [b"\xff"], "l": [[1, None]], "d": pa.array([0], pa.date32())})
    trees.create(tmp_path / "t", data.schema).upsert(data)
    assert documents("scan", tmp_path / "t") == [
        {"id": 1, "b": "ff", "l": [1, None], "d": "1970-01-01"}
    ]
    assert "hint: use --format json" in error_of("scan", tmp_path / "t", "--format", "csv")


def test_control_characters_and_markup_are_escaped_on_the_terminal(tmp_path):
    data = pa.table({"id": ["\x1b[31m", "[bold]b[/bold]", "two\nlines"]})
    trees.create(tmp_path / "t", data.schema).upsert(data)
    text = shown("scan", tmp_path / "t")
    assert "\x1b" not in text
    for part in ("\\x1b[31m", "[bold]b[/bold]", "two\\x0alines"):
        assert part in text


@pytest.mark.parametrize("name", ["new.parquet", "new.csv", "new.arrow", "new.arrows"])
def test_upsert_and_delete_read_their_rows_from_a_file(path, tmp_path, name):
    file = stored(tmp_path / name, rows_of(SCHEMA, "003 x 9", "007 y 9"))
    assert shown("upsert", path, file).startswith("1 inserted, 1 updated; commit 2 at ")
    assert shown("delete", path, file).startswith("2 deleted; commit 3 at ")
    assert shown("delete", path, file) == "2 missing; the newest commit is 3\n"
    assert trees.ordered(mdt.open(path).scan().to_arrow()) == ROWS.slice(0, 2).to_pylist()


def test_several_files_are_upserted_in_one_commit(path, tmp_path):
    parquet_file = stored(tmp_path / "1.parquet", rows_of(SCHEMA, "a x 1", "b y 2"))
    csv_file = stored(tmp_path / "2.csv", rows_of(SCHEMA, "4 x 1", "05 y 2"))
    assert shown("upsert", path, parquet_file, csv_file).startswith("4 inserted; commit 2 at ")
    assert shown("count", path) == "7\n"


def test_overwrite_delete_partition_and_truncate_replace_and_drop_rows(path, tmp_path):
    file = stored(tmp_path / "new.csv", rows_of(SCHEMA, "001 x 1"))
    overwrite = ("overwrite", path, file)
    assert shown(*overwrite, "--table").startswith("1 inserted, 3 deleted; commit 2 at ")
    assert shown(*overwrite).startswith("1 inserted, 1 deleted; commit 3 at ")
    run(*overwrite, "--partition", "city=nowhere", code=2)
    run(*overwrite, "--table", "--partition", "*", code=2)
    run(*overwrite, "--partition", "city=nowhere", "--partition", "*")
    run("delete-partition", path, "nowhere", code=2)
    nothing = "nothing to do; the newest commit is {}\n"
    assert shown("delete-partition", path, "city=nowhere") == nothing.format(4)
    assert shown("truncate", path).startswith("1 deleted; commit 5 at ")
    assert shown("truncate", path) == nothing.format(5)


def test_create_takes_the_columns_from_a_file_and_the_settings_from_options(tmp_path):
    like = ("--like", stored(tmp_path / "like.parquet"))
    options = """
        --key id,city --partition-by city --ordering v --type COPY_ON_WRITE --key-index record
        --scope table --option mdt.durable=false --option mdt.compression=snappy
    """
    assert shown("create", tmp_path / "new", *like, *options.split()) == f"created {tmp_path}/new\n"
    table = mdt.open(tmp_path / "new")
    definition = table.definition
    assert (definition.key, definition.partition_by, definition.ordering) == (
        ("id", "city"),
        ("city",),
        ("v",),
    )
    assert (definition.table_type, definition.key_index, definition.scope) == (
        "COPY_ON_WRITE",
        "record",
        "table",
    )
    assert (table.options.compression, table.schema) == ("snappy", SCHEMA)
    run("create", tmp_path / "two", *like, "--key", "id", "--key", "city")
    assert mdt.open(tmp_path / "two").definition.key == ("id", "city")


def test_cluster_prints_the_number_of_files_per_value(path):
    mdt.open(path).bulk_insert(rows_of(SCHEMA, "more1 x 1", "more2 y 2", "more3 x 3"))
    text = shown("cluster", path, "--by", "v,id", "--curve", "hilbert")
    assert "file groups became" in text and "files per value" in text
    assert shown("cluster", path, "--by", "v", "--by", "id").startswith("no file group would gain")
    assert "no query was counted" in error_of("cluster", path, "--by", "auto")


def test_alter_applies_the_changes_given_as_options_and_refuses_invalid_ones(path):
    tip = ("--add", "tip=decimal(6, 2)", "--default", "tip=1.25")
    done = shown("alter", path, *tip, "--add", "at=date32", "--reorder", "v,id", "--beyond-hudi")
    table = mdt.open(path)
    assert done == f"commit 2 at {table.history()['instant'][2].as_py()}\n"
    assert table.schema.names == ["v", "id", "city", "tip", "at"]
    assert set(table.scan(columns=["tip"]).to_arrow()["tip"].to_pylist()) == {Decimal("1.25")}
    run("alter", path, "--add", "n=int32")
    run("alter", path, "--widen", "n=double")
    assert table.schema.field("n").type == pa.float64()
    assert document("alter", path, "--drop", "at")["seq"] == 5
    assert document("alter", path, "--reorder", "v")["instant"] == "", (
        "a change without effect makes no commit"
    )
    for arguments, message in (
        ("--drop id", "is part of the record key"),
        ("--add m=number", "'number' is not a type"),
        ("--add m=int32 --default m=x", "--default 'x' is not of type int32"),
        ("", "no alteration was given"),
        ("--rename tip=tips", "--beyond-hudi"),
    ):
        assert message in error_of("alter", path, *arguments.split())


def test_upsert_adds_new_columns_only_with_evolve(path, tmp_path):
    more = ROWS.slice(0, 1).append_column("more", [["text"]])
    file = stored(tmp_path / "more.parquet", more)
    assert "'more' is not in the table" in error_of("upsert", path, file)
    assert "1 updated" in shown("upsert", path, file, "--evolve")
    assert mdt.open(path).scan("more = 'text'").count() == 1


def test_compact_prints_the_compacted_file_groups_or_that_there_are_none(path, tmp_path):
    run("upsert", path, stored(tmp_path / "u.parquet", rows_of(SCHEMA, "001 x 5", "002 y 5")))
    assert shown("compact", path).startswith("2 file groups compacted; commit 3 at ")
    assert shown("compact", path) == "nothing to compact; the newest commit is 3\n"
    assert shown("abort", path) == "0 instants published, 0 rolled back, 0 files removed\n"


def test_check_and_repair_exit_with_1_on_problems_or_lost_rows(path):
    assert "no problems" in shown("check", path)
    assert shown("repair", path) == "nothing is damaged\n"
    shutil.rmtree(path / ".hoodie/.mdt/attachments")
    text = shown("repair", path)
    assert "restored byte for byte" in text and "lost: nothing" in text
    assert "no problems" in shown("check", path)
    file = next(path.glob("city=x/*.parquet"))
    file.unlink()
    text = shown("check", path, code=1)
    assert "problems" in text and file.name in text
    assert "live rows are lost" in shown("repair", path, code=1)
    assert document("repair", path, code=1)["lost"][0]["kind"] == "rows"


def test_options_lists_all_options(path):
    assert shown("options") == options_table()


WRONG = {
    "no table": ("info {}/none", "not an mdt table", "mdt create"),
    "a bad filter": ("scan {}/t --where fair>1", "no column 'fair'", ""),
    "an unknown column": ("scan {}/t --columns idd", "no column 'idd'", "id"),
    "an unknown option": ("compact {}/t --option mdt.durabel=1", "'mdt.durabel'", "mdt.durable"),
    "an option of the machine": (
        "alter {}/t --set mdt.cache.dir=x",
        "the scope machine",
        "--option mdt.cache.dir=…",
    ),
    "an option without value": ("compact {}/t --option x", "'x' has no value", "name=value"),
    "no file": ("upsert {}/t {}/none.csv", "none.csv:", "Parquet"),
    "a file of another kind": ("upsert {}/t {}/x.txt", "the format of", ".parquet"),
    "a damaged file": ("upsert {}/t {}/bad.parquet", "bad.parquet:", "Parquet"),
    "a file that does not fit": ("upsert {}/t {}/less.csv", "'v' is missing", "v int64"),
    "a table that exists": ("create {}/t --like {}/less.csv --key id", "already", "mdt info"),
    "a table type": ("create {}/n --like {}/less.csv --key id --type x", "'x'", "MERGE"),
}


@pytest.mark.parametrize(("command", "message", "hint"), WRONG.values(), ids=WRONG.keys())
def test_errors_are_two_lines_on_stderr_and_change_nothing(command, message, hint, path, tmp_path):
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 not really")
    (tmp_path / "less.csv").write_text("id,city\n1,x\n")
    before = trees.tree(tmp_path)
    result = run(*command.replace("{}", str(tmp_path)).split(), code=2)
    assert result.stdout == ""
    message_line, _, hint_line = result.stderr.partition("hint: ")
    assert message_line.startswith("error: ") and message in message_line
    assert hint_line and hint in hint_line and "SQL" not in hint_line
    assert trees.tree(tmp_path) == before


def test_main_runs_the_command_in_sys_argv(path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["mdt", "count", str(path)])
    with pytest.raises(SystemExit) as exit_info:
        main()
    assert exit_info.value.code == 0
    assert capsys.readouterr().out == "3\n"
