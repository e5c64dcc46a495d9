"""``--dry-run``: every command that changes a table says what it would do, and leaves everything as
it stands.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import trees
import typer
from command_line import ROWS, SCHEMA, filled, run

import mdt
from mdt.cli.main import app
from mdt.commit import claims
from mdt.errors import Invalid
from mdt.metadata.files import paths as metadata_paths
from mdt.metadata.log import leases
from mdt.stores.storage import MemoryStorage

READING = {
    "info",
    "stats",
    "show",
    "scan",
    "get",
    "count",
    "changes",
    "history",
    "files",
    "options",
    "check",
    "tags",
    "index list",
    "index advise",
}
"""Commands that change no table; ``create`` is not among them, for there is none before it."""
NEW = "new.parquet"


def later(value: int) -> pa.Table:
    return ROWS.set_column(2, "v", pa.array([value] * len(ROWS)))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a table that has log files, deleted rows, old states, a tag, and an
    index that does not cover all files.
    """
    folder = tmp_path_factory.mktemp("made")
    options = {"mdt.services.auto": False, "mdt.small.file.bytes": 0}
    table = mdt.open(filled(folder / "t", indexes=["bitmap(city)"]), options)
    table.tag("kept", 1)
    for number in range(12):
        table.upsert(later(10 + number))
    table.insert(pa.table([["101", "102"], ["x", "y"], [5, 25]], schema=SCHEMA))
    table.insert(pa.table([["103", "104"], ["x", "y"], [15, 7]], schema=SCHEMA))
    table.delete_where("id = '003'")
    table.create_index("bloom(id)", mode="async")
    pq.write_table(later(100).set_column(0, "id", pa.array(["001", "008", "009"])), folder / NEW)
    return folder


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path / "t"


COMMANDS: dict[str, tuple[Any, ...]] = {
    "upsert": ("{path}", "{new}"),
    "update": ("{path}", "--set", "v=v + 1", "--where", "v > 0"),
    "delete": ("{path}", "--where", "v > 0"),
    "overwrite": ("{path}", "{new}"),
    "delete-partition": ("{path}", "city=x"),
    "truncate": ("{path}",),
    "alter": ("{path}", "--add", "w=int32", "--set", "mdt.page.bytes=512"),
    "compact": ("{path}",),
    "cluster": ("{path}", "--by", "v"),
    "clean": ("{path}", "--retain-commits", "1"),
    "purge": ("{path}",),
    "rekey": ("{path}",),
    "restore": ("{path}", "1"),
    "rollback": ("{path}", "3"),
    "repair": ("{path}",),
    "abort": ("{path}",),
    "services": ("{path}",),
    "tag": ("{path}", "another"),
    "untag": ("{path}", "kept"),
    "index create": ("{path}", "bitmap(v)"),
    "index rebuild": ("{path}",),
    "index build": ("{path}",),
    "index drop": ("{path}", "bitmap(city)"),
}


def line(name: str, path: Path) -> list[Any]:
    return [
        *name.split(),
        *(part.format(path=path, new=path.parent / NEW) for part in COMMANDS[name]),
    ]


def leaves(command: Any, *names: str) -> Iterator[tuple[str, Any]]:
    for name, one in getattr(command, "commands", {}).items():
        yield from leaves(one, *names, name)
    if not hasattr(command, "commands"):
        yield " ".join(names), command


def test_every_command_that_changes_a_table_has_a_dry_run() -> None:
    found = {
        name: {one.name for one in command.params}
        for name, command in leaves(typer.main.get_command(app))
    }
    assert {name for name, params in found.items() if "dry_run" in params} == set(COMMANDS)
    assert set(found) == {*COMMANDS, *READING, "create"}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_dry_run_says_what_would_be_done_and_changes_nothing(name: str, path: Path) -> None:
    before = trees.tree(path)
    stamps = {file: file.stat().st_mtime_ns for file in path.rglob("*")}
    shown = run(*line(name, path), "--dry-run").stdout
    assert shown.startswith("dry run, nothing was changed: ") and len(shown.splitlines()[0]) > 32
    assert json.loads(run(*line(name, path), "--dry-run", "--json").stdout)["dry_run"] is True
    assert trees.tree(path) == before
    assert {file: file.stat().st_mtime_ns for file in path.rglob("*")} == stamps
    run(*line(name, path))
    if name not in ("abort", "repair"):
        assert trees.tree(path) != before, "there was something to do"


SAME = {
    "upsert": ("inserted", "updated", "files_written", "files_rewritten"),
    "update": ("updated", "files_written"),
    "delete": ("deleted", "files_written"),
    "overwrite": ("inserted", "deleted", "files_written"),
    "delete-partition": ("deleted", "files_written", "bytes_written"),
    "truncate": ("deleted", "files_written", "bytes_written"),
    "compact": ("files_written", "files_rewritten"),
    "cluster": ("groups_replaced", "groups_made", "rows"),
    "clean": ("horizon", "files", "bytes", "ended", "leftovers"),
    "purge": ("groups",),
    "restore": ("inserted", "updated", "deleted", "files_written"),
    "rollback": ("inserted", "updated", "deleted", "files_written"),
    "services": ("done",),
    "index create": ("summaries", "commits"),
    "index rebuild": ("summaries", "commits"),
    "index build": ("summaries", "commits"),
}


@pytest.mark.parametrize("name", SAME)
def test_a_dry_run_foretells_what_is_done_then(name: str, path: Path) -> None:
    foretold, done = (
        json.loads(run(*line(name, path), "--json", *more).stdout.splitlines()[0])
        for more in (["--dry-run"], [])
    )
    assert {one: foretold[one] for one in SAME[name]} == {one: done[one] for one in SAME[name]}
    assert any(foretold[one] for one in SAME[name])


SERVICES: dict[str, Callable[..., Any]] = {
    "compact": lambda t, **more: t.compact(**more).bytes_written,
    "cluster": lambda t, **more: t.cluster("fare", **more).bytes_written,
    "insert_overwrite_table": (
        lambda t, **more: t.insert_overwrite_table(many(5000), **more).bytes_written
    ),
    "purge": lambda t, **more: t.purge(**more).bytes,
    "clean": lambda t, **more: t.clean(retain_commits=1, **more).bytes,
}


def many(count: int, first: int = 0) -> pa.Table:
    fares = np.random.default_rng(first).random(count)
    return pa.table({"id": pa.array(range(first, first + count)).cast(pa.string()), "fare": fares})


@pytest.mark.parametrize("name", SERVICES)
def test_bytes_of_a_dry_run_are_about_those_that_are_written_or_deleted(name: str) -> None:
    options = {"mdt.services.auto": False, "mdt.small.file.bytes": 0, "mdt.max.file.bytes": 1 << 20}
    table = mdt.create(MemoryStorage(), many(1).schema, ["id"], options=options)
    for first in (0, 20_000, 40_000):
        table.insert(many(20_000, first))
    table.upsert(many(9_000, 30_000))
    table.compact()
    table.delete_where("fare < 0.1")
    foretold, done = SERVICES[name](table, dry_run=True), SERVICES[name](table)
    assert 0.6 * done <= foretold <= 1.5 * done and done > 100_000


def test_rekeying_foretells_bytes_by_rows(path: Path) -> None:
    foretold = json.loads(run(*line("rekey", path), "--json", "--dry-run").stdout)
    table = mdt.open(path)
    assert foretold["bytes_written"] == 12 * sum(table.files()["rows"].to_pylist())


def test_a_purge_foretells_the_states_and_objects_that_end(path: Path) -> None:
    foretold, done = (
        json.loads(run(*line("purge", path), "--json", *more).stdout)
        for more in (["--dry-run"], [])
    )
    assert foretold["ended"] == done["ended"] and foretold["groups"] == done["groups"]
    assert 0.5 * done["objects"] <= foretold["objects"] <= 2 * done["objects"]


def dead_writer(path: Path) -> mdt.Table:
    """Let a writer die behind its first files, long ago, and a reader's lease end."""
    table = mdt.open(path)
    storage, snapshot = table.storage, table.snapshot()
    name = table.files()["name"][0].as_py()
    dead = claims.Pending(
        "20200101000000000", "ab" * 16, "deltacommit", "upsert", 77, snapshot.seq, 1, ("city=x",)
    )
    instant = f"{int(snapshot.last_instant) + 1:017}"
    claims.put(
        storage,
        claims.Pending(
            instant, dead.txn, dead.action, dead.operation, 77, snapshot.seq, 1, dead.partitions
        ),
    )
    storage.create(f"city=x/{name.split('_')[0]}_0-77-0_{instant}.parquet", b"half of a file")
    lease = leases.take(storage, snapshot.seq, 1e-6)
    assert storage.size(lease) is not None
    return table


@pytest.mark.parametrize("name", ["upsert", "compact", "clean", "abort", "rekey", "index build"])
def test_a_dry_run_leaves_to_others_what_dead_writers_and_readers_have_left(
    name: str, path: Path
) -> None:
    table = dead_writer(path)
    before = trees.tree(path)
    shown = run(*line(name, path), "--dry-run", "--json").stdout
    assert trees.tree(path) == before
    if name == "abort":
        assert json.loads(shown)["files_removed"] == 1
    assert table.storage.list_dir(metadata_paths.pending_dir()) and table.storage.list_dir(
        metadata_paths.leases_dir()
    )
    run(*line(name, path))
    assert not table.storage.list_dir(metadata_paths.pending_dir())


def test_a_dry_run_of_a_command_that_would_fail_fails(path: Path) -> None:
    before = trees.tree(path)
    assert "no tag" in run("untag", path, "none", "--dry-run", code=2).stderr
    assert "'w'" in run("alter", path, "--drop", "w", "--dry-run", code=2).stderr
    assert "stands for commit 1" in run("tag", path, "kept", "--dry-run", code=2).stderr
    assert (
        "a dry run does not"
        in run("upsert", path, path.parent / NEW, "--evolve", "--dry-run", code=2).stderr
    )
    assert "--watch" in run("services", path, "--watch", "--dry-run", code=2).stderr
    assert trees.tree(path) == before


def test_a_dry_run_needs_no_right_to_write(path: Path) -> None:
    for folder in (path, *(one for one in path.rglob("*") if one.is_dir())):
        os.chmod(folder, 0o555)
    try:
        shown = run("compact", path, "--dry-run").stdout
    finally:
        for folder in (path, *(one for one in path.rglob("*") if one.is_dir())):
            os.chmod(folder, 0o755)
    assert "1 file groups" in shown or "2 file groups" in shown


def test_dry_run_is_a_flag_of_python_too(path: Path) -> None:
    table = mdt.open(path)
    with pytest.raises(Invalid, match="dry_run"):
        table.compact(dry_run="no")  # type: ignore[arg-type]
    told = table.insert_overwrite(later(5), dry_run=True)
    assert (told.instant, told.inserted) == ("", 3)
    assert table.tidy(dry_run=True) == (("compact",), ()) == table.tidy()
