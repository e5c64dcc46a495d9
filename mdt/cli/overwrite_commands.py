"""Commands that replace or delete whole partitions."""

from __future__ import annotations

from typing import Annotated

import typer

from mdt.cli.commands import command, open_table, tell_written
from mdt.cli.row_files import Files, read_all
from mdt.cli.terminal import DryRun, Settings, TablePath
from mdt.errors import Invalid

Partitions = Annotated[
    list[str],
    typer.Argument(
        help="Paths of partitions such as city=Oslo, with * as a wildcard.",
        metavar="PARTITION...",
    ),
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
    partition: Annotated[
        list[str],
        typer.Option(help="Replace only this partition, with * as a wildcard; may be repeated."),
    ] = [],
    dry_run: DryRun = False,
    option: Settings = [],
) -> None:
    """Replace the partitions that occur in the files, or the named partitions, with the rows of the
    files, in one commit.
    """
    if whole and partition:
        raise Invalid("--table and --partition cannot be combined", hint="leave one of them out")
    t = open_table(path, option)
    rows = read_all(file, t.schema)
    if whole:
        tell_written(t.insert_overwrite_table(rows, dry_run=dry_run))
    else:
        tell_written(t.insert_overwrite(rows, partitions=partition or None, dry_run=dry_run))


def delete_partition(
    path: TablePath,
    partitions: Partitions,
    dry_run: DryRun = False,
    option: Settings = [],
) -> None:
    """Delete all rows of partitions, in one commit."""
    tell_written(open_table(path, option).delete_partition(partitions, dry_run=dry_run))


def truncate(path: TablePath, dry_run: DryRun = False, option: Settings = []) -> None:
    """Delete all rows, in one commit."""
    tell_written(open_table(path, option).truncate(dry_run=dry_run))
