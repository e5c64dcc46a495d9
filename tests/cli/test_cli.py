"""The command line: each command does what it says; errors are two lines on stderr and exit
code 2.
"""

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


def test_info_shows_what_the_table_is(path):
    text = shown("info", path)
    for part in ("MERGE_ON_READ", "bloom, unique per partition", "id string", "mdt.durable=false"):
        assert part in text
    cells = [line.split("│") for line in text.splitlines() if "│" in line]
    found = {cell[1].strip(): cell[2].strip() for cell in cells}
    expected = {"rows": "3", "key": "id", "ordering": "v", "files": "2, including 0 log files"}
    assert expected.items() <= found.items()


def test_show_tells_what_stands_there_and_draws_it(path, tmp_path):
    result = run("show", path, "--svg", tmp_path / "t.svg", "--columns", "id,v", "--commits", 1)
    for part in ("commits 1 to 1", "due: nothing", "rows: 3 live, 0 deleted"):
        assert part in result.stdout
    assert result.stderr == f"wrote {tmp_path / 't.svg'}\n"
    assert (tmp_path / "t.svg").read_text(encoding="utf-8").startswith("<svg")
    found = document("show", path)
    assert (found["rows"], len(found["commits"]), found["horizon"]) == (3, 2, 0)
    assert "two columns" in error_of("show", path, "--columns", "id")
    for place in (tmp_path / "nowhere" / "t.svg", tmp_path / "t.svg" / "t.svg"):
        assert f"cannot write {place}" in error_of("show", path, "--svg", place)


def test_rows_that_are_wider_than_the_terminal_have_a_line_per_value(path, monkeypatch):
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


def test_past_states_are_named_by_seq_instant_or_time(path):
    table = mdt.open(path)
    table.upsert(rows_of(SCHEMA, "new x 1"))
    before = table.history()["instant"][1].as_py()
    for point, count in ((0, 0), (1, 3), (before, 3), (2, 4), ("9999-01-01", 4)):
        assert shown("count", path, "--as-of", point) == f"{count}\n"
    assert "new" not in shown("scan", path, "--as-of", 1, "--format", "csv")
    assert shown("files", path, "--as-of", 0, "--json") == ""
    assert "is not a tag, instant or time" in error_of("count", path, "--as-of", "once")


def test_changes_are_written_as_rows_in_every_format(path):
    table = mdt.open(path)
    table.upsert(rows_of(SCHEMA, "001 x 9"))
    found = shown("changes", path, "--since", 1, "--format", "csv", "--columns", "id,v")
    instant = table.history()["instant"][2].as_py()
    assert found.splitlines()[1:] == [
        f'"update_before",2,"{instant}","001",1',
        f'"update_after",2,"{instant}","001",9',
    ]
    found = documents("changes", path, "--since", 0, "--until", 1, "--where", "v > 1")
    assert sorted(row["id"] for row in found) == ["002", "003"]
    assert "update_after" in shown("changes", path, "--since", 1)
    assert "is reversed" in error_of("changes", path, "--since", 2, "--until", 1)


def test_tags_are_given_shown_used_and_forgotten(path):
    assert shown("tag", path, "empty", "--at", 0) == "empty is commit 0\n"
    kept = {"name": "kept", "seq": 2}
    assert document("tag", path, "kept", "--savepoint", "--comment", "why") == kept
    found = [(tag["name"], tag["seq"], tag["savepoint"]) for tag in documents("tags", path)]
    assert found == [("empty", 0, False), ("kept", 2, True)]
    assert shown("count", path, "--as-of", "empty") == "0\n"
    assert shown("untag", path, "kept") == "removed kept\n"
    assert "there is no tag 'kept'" in error_of("untag", path, "kept")


def test_restore_and_rollback_bring_a_state_back(path):
    mdt.open(path).delete(ROWS.slice(0, 2))
    assert shown("restore", path, "1").startswith("2 inserted; commit 3 at ")
    assert shown("count", path) == "3\n"
    assert document("rollback", path, 3)["deleted"] == 2
    assert "no commit 9" in error_of("restore", path, 9)


def test_history_and_files_have_a_line_for_each(path):
    assert [shown("history", path).count(word) for word in ("create", "upsert")] == [2, 1]
    text = shown("files", path)
    assert all(name in text for name in mdt.open(path).files()["name"].to_pylist())


def test_scan_shows_a_table_for_people(path):
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


def test_scan_orders_rows_or_explains_instead_of_reading_and_count_writes_a_number(
    path,
):
    best = ("scan", path, "--order-by", "v desc", "--limit", 2)
    assert shown(*best, "--format", "csv", "--columns", "v").split() == ['"v"', "3", "2"]
    assert "order by v desc, limit 2" in shown(*best, "--explain")
    assert "there is no column 'w'" in error_of("scan", path, "--order-by", "w")
    text = shown("scan", path, "--where", "id = '001'", "--explain")
    assert "key:bloom: pruned 1 of 2 covered" in text and "001  " not in text
    assert shown("count", path, "--where", "city = 'x'") == "2\n"


def test_json_holds_what_json_cannot_and_csv_refuses_it(tmp_path):
    data = pa.table({"id": [1], "b": [b"\xff"], "l": [[1, None]], "d": pa.array([0], pa.date32())})
    trees.create(tmp_path / "t", data.schema).upsert(data)
    assert documents("scan", tmp_path / "t") == [
        {"id": 1, "b": "ff", "l": [1, None], "d": "1970-01-01"}
    ]
    assert "hint: use --format json" in error_of("scan", tmp_path / "t", "--format", "csv")


def test_control_characters_and_markup_do_not_reach_the_terminal(tmp_path):
    data = pa.table({"id": ["\x1b[31m", "[bold]b[/bold]", "two\nlines"]})
    trees.create(tmp_path / "t", data.schema).upsert(data)
    text = shown("scan", tmp_path / "t")
    assert "\x1b" not in text
    for part in ("\\x1b[31m", "[bold]b[/bold]", "two\\x0alines"):
        assert part in text


@pytest.mark.parametrize("name", ["new.parquet", "new.csv", "new.arrow", "new.arrows"])
def test_upsert_and_delete_take_a_file(path, tmp_path, name):
    file = stored(tmp_path / name, rows_of(SCHEMA, "003 x 9", "007 y 9"))
    assert shown("upsert", path, file).startswith("1 inserted, 1 updated; commit 2 at ")
    assert shown("delete", path, file).startswith("2 deleted; commit 3 at ")
    assert shown("delete", path, file) == "2 missing; the newest commit is 3\n"
    assert trees.ordered(mdt.open(path).scan().to_arrow()) == ROWS.slice(0, 2).to_pylist()


def test_several_files_are_one_commit(path, tmp_path):
    one = stored(tmp_path / "1.parquet", rows_of(SCHEMA, "a x 1", "b y 2"))
    two = stored(tmp_path / "2.csv", rows_of(SCHEMA, "4 x 1", "05 y 2"))
    assert shown("upsert", path, one, two).startswith("4 inserted; commit 2 at ")
    assert shown("count", path) == "7\n"


def test_partitions_are_replaced_and_dropped(path, tmp_path):
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


def test_create_takes_the_columns_of_a_file(tmp_path):
    like = ("--like", stored(tmp_path / "like.parquet"))
    options = """
        --key id,city --partition-by city --ordering v --type COPY_ON_WRITE --key-index record
        --scope table --option mdt.durable=false --option mdt.compression=snappy
    """
    assert shown("create", tmp_path / "new", *like, *options.split()) == f"created {tmp_path}/new\n"
    table = mdt.open(tmp_path / "new")
    made = table.definition
    assert (made.key, made.partition_by, made.ordering) == (("id", "city"), ("city",), ("v",))
    assert (made.table_type, made.key_index, made.scope) == ("COPY_ON_WRITE", "record", "table")
    assert (table.options.compression, table.schema) == ("snappy", SCHEMA)
    run("create", tmp_path / "two", *like, "--key", "id", "--key", "city")
    assert mdt.open(tmp_path / "two").definition.key == ("id", "city")


def test_cluster_says_in_how_many_files_values_lie_before_and_after(path):
    mdt.open(path).bulk_insert(rows_of(SCHEMA, "more1 x 1", "more2 y 2", "more3 x 3"))
    text = shown("cluster", path, "--by", "v,id", "--curve", "hilbert")
    assert "file groups became" in text and "files per value" in text
    assert shown("cluster", path, "--by", "v", "--by", "id").startswith("no file group would gain")
    assert "no query was counted" in error_of("cluster", path, "--by", "auto")


def test_alter_takes_its_changes_as_options(path):
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
    assert document("alter", path, "--reorder", "v")["instant"] == "", "nothing to alter"
    for arguments, message in (
        ("--drop id", "is part of the record key"),
        ("--add m=number", "'number' is not a type"),
        ("--add m=int32 --default m=x", "--default 'x' is not of type int32"),
        ("", "no alteration was given"),
        ("--rename tip=tips", "--beyond-hudi"),
    ):
        assert message in error_of("alter", path, *arguments.split())


def test_upsert_evolves_if_it_is_told_to(path, tmp_path):
    more = ROWS.slice(0, 1).append_column("more", [["text"]])
    file = stored(tmp_path / "more.parquet", more)
    assert "'more' is not in the table" in error_of("upsert", path, file)
    assert "1 updated" in shown("upsert", path, file, "--evolve")
    assert mdt.open(path).scan("more = 'text'").count() == 1


def test_compact_says_what_it_did(path, tmp_path):
    run("upsert", path, stored(tmp_path / "u.parquet", rows_of(SCHEMA, "001 x 5", "002 y 5")))
    assert shown("compact", path).startswith("2 file groups compacted; commit 3 at ")
    assert shown("compact", path) == "nothing to compact; the newest commit is 3\n"
    assert shown("abort", path) == "0 instants published, 0 rolled back, 0 files removed\n"


def test_check_and_repair_fail_when_something_is_wrong_or_lost(path):
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


def test_options_lists_all(path):
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
def test_errors_are_told_on_stderr(command, message, hint, path, tmp_path):
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 not really")
    (tmp_path / "less.csv").write_text("id,city\n1,x\n")
    before = trees.tree(tmp_path)
    result = run(*command.replace("{}", str(tmp_path)).split(), code=2)
    assert result.stdout == ""
    told, _, advice = result.stderr.partition("hint: ")
    assert told.startswith("error: ") and message in told
    assert advice and hint in advice and "SQL" not in advice
    assert trees.tree(tmp_path) == before


def test_the_script_runs_the_commands(path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["mdt", "count", str(path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert capsys.readouterr().out == "3\n"
