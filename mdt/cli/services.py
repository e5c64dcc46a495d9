"""The command ``mdt services run``: one process that looks after many tables, whoever writes to them."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import typer

from mdt import table
from mdt.cli.commands import command, opened, tell
from mdt.cli.terminal import Settings, warn
from mdt.errors import MdtError

WATCH_SECONDS = 60.0

app = typer.Typer(help="What tables do for themselves after writes, done for them from outside.", no_args_is_help=True)

Paths = Annotated[list[str], typer.Argument(help="Directories or URLs of tables.", metavar="PATH...")]


@app.callback()
def _services() -> None:
    """What tables do for themselves after writes, done for them from outside."""


@command(app)
def run(
    path: Paths,
    watch: Annotated[bool, typer.Option(help="Go on: look again and again, until interrupted.")] = False,
    seconds: Annotated[float, typer.Option(help="Pause between two looks, with --watch.", min=0.1)] = WATCH_SECONDS,
    option: Settings = [],  # noqa: B006 - typer copies it
) -> None:
    """Let every service that is due do its work: compaction, joining of small files, cleaning."""
    tables = [opened(one, option) for one in path]
    with suppress(KeyboardInterrupt):  # the way in which a watch ends
        while True:
            for one in tables:
                _look_after(one, watch)
            if not watch:
                return
            tables[0].storage.sleep(seconds)


def _look_after(one: table.Table, watch: bool) -> None:
    """Tidy one table until nothing is due; with ``watch`` an error of one table does not keep the others waiting."""
    done, warnings = list[str](), list[str]()
    try:
        while True:
            found, wrong = one.tidy()
            done += found
            warnings += wrong
            if not found:
                break
    except MdtError as error:
        if not watch:
            raise
        warn([f"{one.path}: {error}"])
        return
    if done or warnings or not watch:
        tell({"path": one.path, "done": done}, f"{one.path}: {', '.join(done) or 'nothing is due'}", warnings)
