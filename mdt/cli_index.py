"""The commands ``mdt index …``: list, create, drop, rebuild and build indexes, and advice on them."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import typer

from mdt import table
from mdt.progress import bar
from mdt.services.indexing import BuildResult
from mdt.terminal import Settings, TablePath, settings, show, show_table
from mdt.usage import REPORT_SECONDS

app = typer.Typer(help="Indexes of a table: list, create, drop, rebuild, build, advise.", no_args_is_help=True)

Specs = Annotated[list[str], typer.Argument(help="Indexes such as 'bitmap(status)'.", metavar="INDEX...")]
SomeSpecs = Annotated[list[str], typer.Argument(help="Indexes, or columns; default: all.", metavar="[INDEX...]")]
IsAsync = Annotated[bool, typer.Option("--async", help="Do not cover existing files now; mdt index build does.")]


@app.command("list")
def list_(path: TablePath) -> None:
    """Show each index with its coverage, size and use."""
    show_table(table.open(path).indexes())


@app.command()
def create(path: TablePath, index: Specs, is_async: IsAsync = False, option: Settings = []) -> None:  # noqa: B006
    """Add indexes and cover the files that exist."""
    opened = table.open(path, settings(option))
    with bar("indexing") as told:
        _tell(opened.create_index(index, mode="async" if is_async else "sync", progress=told))


@app.command()
def drop(path: TablePath, index: Specs) -> None:
    """Remove indexes."""
    table.open(path).drop_index(index)


@app.command()
def rebuild(path: TablePath, index: SomeSpecs = [], is_async: IsAsync = False, option: Settings = []) -> None:  # noqa: B006
    """Forget what indexes cover, and build them again."""
    opened = table.open(path, settings(option))
    with bar("indexing") as told:
        _tell(opened.rebuild_index(index or None, mode="async" if is_async else "sync", progress=told))


@app.command()
def build(
    path: TablePath,
    index: SomeSpecs = [],  # noqa: B006 - typer copies it
    watch: Annotated[bool, typer.Option(help="Go on: look for files to cover again and again, until interrupted.")] = False,
    seconds: Annotated[float, typer.Option(help="Pause between two looks, with --watch.", min=0.1)] = REPORT_SECONDS,
    option: Settings = [],  # noqa: B006 - typer copies it
) -> None:
    """Cover files that indexes do not cover yet; safe beside writers and other builders, and after a crash."""
    opened = table.open(path, settings(option))
    with suppress(KeyboardInterrupt):  # the way in which a watch ends
        while True:
            with bar("indexing") as told:
                result = opened.build_indexes(index or None, progress=told)
            if result.files or not watch:
                _tell(result)
            if not watch:
                return
            opened.storage.sleep(seconds)


@app.command()
def advise(path: TablePath) -> None:
    """Propose indexes to drop or to create, from how queries used the table."""
    found = table.open(path).advise()
    if found:
        show(("action", "index", "reason"), ((advice.action, advice.index, advice.reason) for advice in found))
    else:
        print("no advice: either all is well, or too few queries have been reported")


def _tell(result: BuildResult) -> None:
    print(f"{result.files:,} summaries of {result.bytes:,} bytes in {result.commits:,} commits")
