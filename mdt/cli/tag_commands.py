"""Commands for tags, which name snapshots."""

from __future__ import annotations

from typing import Annotated

import typer

from mdt.cli.commands import command, open_table, point, tell, tell_rows
from mdt.cli.terminal import DryRun, TablePath

Name = Annotated[str, typer.Argument(help="Name of the tag.")]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    command(app)(tags)
    command(app)(tag)
    command(app)(untag)


def tags(path: TablePath) -> None:
    """Show the tags and savepoints."""
    tell_rows(open_table(path).tags())


def tag(
    path: TablePath,
    name: Name,
    at: Annotated[
        str | None,
        typer.Option(help="A commit number, an instant, or a time. The default is the newest."),
    ] = None,
    savepoint: Annotated[
        bool, typer.Option("--savepoint", help="Protect the snapshot from Hudi's services, too.")
    ] = False,
    comment: Annotated[str, typer.Option(help="Comment of a savepoint.")] = "",
    dry_run: DryRun = False,
) -> None:
    """Name a snapshot. Cleaning keeps it."""
    t = open_table(path)
    at_point = None if at is None else point(at)
    seq = (
        t.savepoint(name, at_point, comment, dry_run=dry_run)
        if savepoint
        else t.tag(name, at_point, dry_run=dry_run)
    )
    tell({"name": name, "seq": seq}, f"{name} is commit {seq}")


def untag(path: TablePath, name: Name, dry_run: DryRun = False) -> None:
    """Remove a tag or savepoint."""
    open_table(path).untag(name, dry_run=dry_run)
    tell({"name": name}, f"removed {name}")
