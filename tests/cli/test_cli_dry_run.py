"""``--dry-run``: commands that change a table report what they would do and change nothing."""

import os
import shutil

import numpy as np
import pyarrow as pa
import pytest
import trees
import typer
from command_line import ROWS, SCHEMA, document, documents, error_of, filled, run, shown, stored
from refusals import refused
from texts import rows_of

import mdt
from mdt.cli.main import app
from mdt.commit import claims
from mdt.metadata.files import paths as metadata_paths
from mdt.metadata.log import leases
from mdt.stores.storage import MemoryStorage

READING = (
    "info, stats, show, scan, get, count, changes, history, files, options, check, tags, index list,"
    " index advise"
)
"""Commands that do not change a table. ``create`` is missing: before it, there is no table."""
NEW = "new.parquet"


def rows_with_value(value):
    return ROWS.set_column(2, "v", pa.array([value] * len(ROWS)))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a folder with a table that has log files, deleted rows, old snapshots, a tag, and an
    index that does not cover all files.
    """
    folder = tmp_path_factory.mktemp("made")
    options = {"mdt.services.auto": False, "mdt.small.file.bytes": 0}
    table = mdt.open(filled(folder / "t", indexes=["bitmap(city)"]), options)
    table.tag("kept", 1)
    for number in range(12):
        table.upsert(rows_with_value(10 + number))
    table.insert(rows_of(SCHEMA, "101 x 5", "102 y 25"))
    table.insert(rows_of(SCHEMA, "103 x 15", "104 y 7"))
    table.delete_where("id = '003'")
    table.create_index("bloom(id)", mode="async")
    stored(folder / NEW, rows_of(SCHEMA, "001 x 100", "008 y 100", "009 x 100"))
    return folder


@pytest.fixture
def path(made, tmp_path):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path / "t"


COMMANDS = {
    "upsert": "{new}",
    "update": "--set v=v+1 --where v>0",
    "delete": "--where v>0",
    "overwrite": "{new}",
    "delete-partition": "city=x",
    "truncate": "",
    "alter": "--add w=int32 --set mdt.page.bytes=512",
    "compact": "",
    "cluster": "--by v",
    "clean": "--retain-commits 1",
    "purge": "",
    "rekey": "",
    "upgrade": "",
    "restore": "1",
    "rollback": "3",
    "repair": "",
    "abort": "",
    "services": "",
    "tag": "another",
    "untag": "kept",
    "index create": "bitmap(v)",
    "index rebuild": "",
    "index build": "",
    "index drop": "bitmap(city)",
}


def line(name, path):
    arguments = COMMANDS[name].replace("{new}", str(path.parent / NEW))
    return [*name.split(), path, *arguments.split()]


def leaf_commands(command, *names):
    for name, subcommand in getattr(command, "commands", {}).items():
        yield from leaf_commands(subcommand, *names, name)
    if not hasattr(command, "commands"):
        yield " ".join(names), command


def test_every_command_that_changes_a_table_has_a_dry_run():
    parameters = {
        name: {parameter.name for parameter in command.params}
        for name, command in leaf_commands(typer.main.get_command(app))
    }
    with_dry_run = {name for name, params in parameters.items() if "dry_run" in params}
    assert with_dry_run == {*COMMANDS, "adopt"}
    assert set(parameters) == {
        *with_dry_run,
        *READING.split(", "),
        "create",
        "refresh",
        "register",
        "release",
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_a_dry_run_reports_the_work_and_changes_no_file(name, path):
    before = trees.tree(path)
    stamps = {file: file.stat().st_mtime_ns for file in path.rglob("*")}
    text = shown(*line(name, path), "--dry-run")
    assert text.startswith("dry run, nothing changed: ") and len(text.splitlines()[0]) > 32
    assert document(*line(name, path), "--dry-run")["dry_run"] is True
    assert trees.tree(path) == before
    assert {file: file.stat().st_mtime_ns for file in path.rglob("*")} == stamps
    run(*line(name, path))
    if name not in ("abort", "repair"):
        assert trees.tree(path) != before, "without --dry-run, the command changes the table"


SAME = {
    "upsert": "inserted updated files_written files_rewritten",
    "update": "updated files_written",
    "delete": "deleted files_written",
    "overwrite": "inserted deleted files_written",
    "delete-partition": "deleted files_written bytes_written",
    "truncate": "deleted files_written bytes_written",
    "compact": "files_written files_rewritten",
    "cluster": "groups_replaced groups_made rows",
    "clean": "horizon files bytes ended leftovers",
    "purge": "groups ended",
    "restore": "inserted updated deleted files_written",
    "rollback": "inserted updated deleted files_written",
    "services": "done",
    "index create": "summaries commits",
    "index rebuild": "summaries commits",
    "index build": "summaries commits",
}


@pytest.mark.parametrize("name", SAME)
def test_a_dry_run_reports_the_figures_of_the_run_that_follows(name, path):
    predicted = documents(*line(name, path), "--dry-run")[0]
    done = documents(*line(name, path))[0]
    facts = SAME[name].split()
    assert [predicted[fact] for fact in facts] == [done[fact] for fact in facts]
    assert any(predicted[fact] for fact in facts)
    if name == "purge":
        assert 0.5 * done["objects"] <= predicted["objects"] <= 2 * done["objects"]


SERVICES = {
    "compact": lambda t, **more: t.compact(**more).bytes_written,
    "cluster": lambda t, **more: t.cluster("fare", **more).bytes_written,
    "insert_overwrite_table": (
        lambda t, **more: t.insert_overwrite_table(random_rows(5000), **more).bytes_written
    ),
    "purge": lambda t, **more: t.purge(**more).bytes,
    "clean": lambda t, **more: t.clean(retain_commits=1, **more).bytes,
}


def random_rows(count, first=0):
    fares = np.random.default_rng(first).random(count)
    return pa.table({"id": pa.array(range(first, first + count)).cast(pa.string()), "fare": fares})


@pytest.mark.parametrize("name", SERVICES)
def test_bytes_reported_by_a_dry_run_are_close_to_the_bytes_written_or_deleted(name):
    options = {"mdt.services.auto": False, "mdt.small.file.bytes": 0, "mdt.max.file.bytes": 1 << 20}
    table = mdt.create(MemoryStorage(), random_rows(1).schema, ["id"], options=options)
    for first in (0, 20_000, 40_000):
        table.insert(random_rows(20_000, first))
    table.upsert(random_rows(9_000, 30_000))
    table.compact()
    table.delete_where("fare < 0.1")
    predicted, done = SERVICES[name](table, dry_run=True), SERVICES[name](table)
    assert 0.6 * done <= predicted <= 1.5 * done and done > 100_000


def test_a_dry_run_of_rekey_estimates_bytes_from_the_number_of_rows(path):
    predicted = document(*line("rekey", path), "--dry-run")
    assert predicted["bytes_written"] == 12 * sum(mdt.open(path).files()["rows"].to_pylist())


def add_crashed_writer_and_expired_lease(path):
    """Add the claim and first file of a writer that crashed long ago, and an expired lease."""
    table = mdt.open(path)
    storage, snapshot = table.storage, table.snapshot()
    name = table.files()["name"][0].as_py()
    instant = f"{int(snapshot.last_instant) + 1:017}"
    claim = (instant, "ab" * 16, "deltacommit", "upsert", 77, snapshot.seq, 1, ("city=x",))
    claims.put(storage, claims.PendingClaim(*claim))
    storage.create(f"city=x/{name.split('_')[0]}_0-77-0_{instant}.parquet", b"half of a file")
    lease = leases.take(storage, snapshot.seq, 1e-6)
    assert storage.size(lease) is not None
    return table


@pytest.mark.parametrize("name", ["upsert", "compact", "clean", "abort", "rekey", "index build"])
def test_a_dry_run_does_not_clean_up_after_crashed_writers_and_expired_leases(name, path):
    table = add_crashed_writer_and_expired_lease(path)
    before = trees.tree(path)
    reports = documents(*line(name, path), "--dry-run")
    assert trees.tree(path) == before
    assert name != "abort" or reports[0]["files_removed"] == 1
    for folder in (metadata_paths.PENDING_DIR, metadata_paths.LEASES_DIR):
        assert table.storage.list_dir(folder)
    run(*line(name, path))
    assert not table.storage.list_dir(metadata_paths.PENDING_DIR)


def test_a_dry_run_fails_if_the_command_would_fail(path):
    before = trees.tree(path)
    for message, command, *arguments in (
        ("no tag", "untag", "none"),
        ("'w'", "alter", "--drop", "w"),
        ("already names commit 1", "tag", "kept"),
        ("does not support dry_run", "upsert", path.parent / NEW, "--evolve"),
        ("--watch", "services", "--watch"),
    ):
        assert message in error_of(command, path, *arguments, "--dry-run")
    assert trees.tree(path) == before


def test_a_dry_run_needs_no_write_permission(path):
    folders = [path, *(folder for folder in path.rglob("*") if folder.is_dir())]
    for folder in folders:
        os.chmod(folder, 0o555)
    try:
        text = shown("compact", path, "--dry-run")
    finally:
        for folder in folders:
            os.chmod(folder, 0o755)
    assert "1 file groups" in text or "2 file groups" in text


def test_python_methods_accept_dry_run(path):
    table = mdt.open(path)
    refused("dry_run", table.compact, dry_run="no")
    result = table.insert_overwrite(rows_with_value(5), dry_run=True)
    assert (result.instant, result.inserted) == ("", 3)
    assert table.tidy(dry_run=True) == (("compact",), ()) == table.tidy()
