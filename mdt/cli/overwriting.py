"""The commands that replace or drop whole partitions."""

from __future__ import annotations

from typing import Annotated

import typer

from mdt.cli.commands import command, opened, tell_written
from mdt.cli.files import Files, read_all
from mdt.cli.terminal import Settings, TablePath

Partitions = Annotated[
    list[str],
    typer.Argument(help="Paths of partitions, such as city=Oslo; * stands for anything.", metavar="PARTITION..."),
]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    command(app)(overwrite)
    command(app, "delete-partition")(delete_partition)
    command(app)(truncate)


def overwrite(
    path: TablePath,
    file: Files,
    whole: Annotated[
        bool, typer.Option("--table", help="Replace all rows, not only the partitions that occur.")
    ] = False,
    option: Settings = [],  # noqa: B006 - typer reads it and passes a new list
) -> None:
    """Let the rows of files stand in the place of the partitions that occur in them; one commit."""
    t = opened(path, option)
    rows = read_all(file, t.schema)
    tell_written(t.insert_overwrite_table(rows) if whole else t.insert_overwrite(rows))


def delete_partition(path: TablePath, partitions: Partitions, option: Settings = []) -> None:  # noqa: B006 - as above
    """Delete all rows of partitions; one commit."""
    tell_written(opened(path, option).delete_partition(partitions))


def truncate(path: TablePath, option: Settings = []) -> None:  # noqa: B006 - as above
    """Delete all rows; one commit."""
    tell_written(opened(path, option).truncate())
