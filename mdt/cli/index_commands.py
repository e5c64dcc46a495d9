"""The commands ``mdt index …``: list, create, drop, rebuild, build, advise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, Any

import pyarrow as pa
import typer

from mdt.cli.commands import command, open_table, tell, tell_rows
from mdt.cli.terminal import DryRun, Settings, TablePath, note, show, show_table
from mdt.metadata.statistics.usage import REPORT_SECONDS
from mdt.progress import bar
from mdt.services.indexing.index_builder import BuildResult
from mdt.services.indexing.index_report import NOT_COUNTED

app = typer.Typer(
    help="Indexes of a table: list, create, drop, rebuild, build, advise.", no_args_is_help=True
)

Specs = Annotated[
    list[str], typer.Argument(help="Indexes such as 'bitmap(status)'.", metavar="INDEX...")
]
SomeSpecs = Annotated[
    list[str], typer.Argument(help="Indexes, or columns; default: all.", metavar="[INDEX...]")
]
IsAsync = Annotated[
    bool, typer.Option("--async", help="Build for existing files later, with mdt index build.")
]


def _mode(is_async: bool) -> str:
    if is_async:
        return "async"
    return "sync"


@command(app, "list")
def list_(path: TablePath) -> None:
    """Show each index with its coverage, size and use."""
    indexes = open_table(path).indexes()
    tell_rows(indexes, lambda: _show_indexes(indexes))


def _show_indexes(indexes: pa.Table) -> None:
    show_table(indexes)
    if indexes["queries"].null_count:
        note(NOT_COUNTED)


@command(app)
def create(
    path: TablePath,
    index: Specs,
    is_async: IsAsync = False,
    dry_run: DryRun = False,
    option: Settings = [],
) -> None:
    """Create indexes and build them for existing files."""
    t = open_table(path, option)
    with bar("indexing") as callback:
        _tell(t.create_index(index, mode=_mode(is_async), progress=callback, dry_run=dry_run))


@command(app)
def drop(path: TablePath, index: Specs, dry_run: DryRun = False) -> None:
    """Drop indexes."""
    open_table(path).drop_index(index, dry_run=dry_run)
    tell({"dropped": index}, f"dropped {', '.join(index)}")


@command(app)
def rebuild(
    path: TablePath,
    index: SomeSpecs = [],
    is_async: IsAsync = False,
    dry_run: DryRun = False,
    option: Settings = [],
) -> None:
    """Discard the data of indexes and build them again."""
    t = open_table(path, option)
    with bar("indexing") as callback:
        _tell(
            t.rebuild_index(index or None, mode=_mode(is_async), progress=callback, dry_run=dry_run)
        )


@command(app)
def build(
    path: TablePath,
    index: SomeSpecs = [],
    watch: Annotated[
        bool,
        typer.Option(help="Repeat until interrupted."),
    ] = False,
    seconds: Annotated[
        float, typer.Option(help="Pause between two runs with --watch.", min=0.1)
    ] = REPORT_SECONDS,
    dry_run: DryRun = False,
    option: Settings = [],
) -> None:
    """Build indexes for files that they do not cover yet. Safe with concurrent writers and
    builders, and after a crash.
    """
    t = open_table(path, option)
    with suppress(KeyboardInterrupt):  # ends a watch
        while True:
            with bar("indexing") as callback:
                result = t.build_indexes(index or None, progress=callback, dry_run=dry_run)
            if result.summaries or not watch:
                _tell(result)
            if not watch or dry_run:
                return
            t.storage.sleep(seconds)


@command(app)
def advise(path: TablePath) -> None:
    """Suggest indexes to create or drop, based on counted queries."""
    proposals = [asdict(advice) for advice in open_table(path).advise()]
    tell_rows(proposals, lambda: _show_advice(proposals))


def _show_advice(proposals: Sequence[Mapping[str, Any]]) -> None:
    if not proposals:
        print("no advice: the indexes fit the queries, or too few queries have been counted")
    elif proposals[0]["action"] == "count":
        print(f"no advice: {proposals[0]['reason']}")
    else:
        names = ("action", "index", "reason")
        show(names, ([advice[name] for name in names] for advice in proposals))


def _tell(result: BuildResult) -> None:
    text = f"{result.summaries:,} summaries of {result.bytes:,} bytes in {result.commits:,} commits"
    tell({"summaries": result.summaries, "bytes": result.bytes, "commits": result.commits}, text)
