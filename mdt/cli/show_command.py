"""The command ``mdt show``: a summary of a table."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from mdt.arguments import listed
from mdt.cli.commands import command, open_table, point, tell
from mdt.cli.output import new_file
from mdt.cli.terminal import TablePath, note, show_text
from mdt.services.reports.summary import COMMITS_SHOWN
from mdt.services.reports.svg import Picture


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    command(app)(show)


def show(
    path: TablePath,
    svg: Annotated[
        Path | None, typer.Option(help="Write a picture of the commits and files to this SVG file.")
    ] = None,
    columns: Annotated[
        str, typer.Option(help="Draw files over the ranges of two columns, such as city,ts.")
    ] = "",
    before: Annotated[
        str | None,
        typer.Option(
            help="A past snapshot to compare with. The default is before the newest clustering."
        ),
    ] = None,
    commits: Annotated[
        int, typer.Option(help="Number of newest commits to show.", min=1)
    ] = COMMITS_SHOWN,
) -> None:
    """Show commits, sizes, readable snapshots, indexes and due services. Draw them with --svg."""
    before_point = None if before is None else point(before)
    picture = open_table(path).show(listed(columns) or None, before=before_point, commits=commits)
    if svg is not None:
        with new_file(svg) as file:
            file.write(picture.svg().encode())
    tell(_document(picture), lambda: show_text(str(picture)))
    if svg is not None:
        note(f"wrote {svg}")


def _document(picture: Picture) -> dict[str, object]:
    """Return the summary as JSON values."""
    document = {name: value for name, value in asdict(picture.summary).items() if name != "commits"}
    return {**document, "commits": picture.summary.commits.to_pylist()}
