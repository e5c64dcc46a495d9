"""Terminal output (tables, warnings, errors), and arguments that commands share.

Results go to stdout, everything else to stderr. Control characters in values never reach the
terminal.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated

import pyarrow as pa
import typer
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as Grid
from rich.text import Text

from mdt.arguments import listed
from mdt.cli.hints import for_command_line
from mdt.errors import Invalid, MdtError
from mdt.schema.python_values import rows_of

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_WIDE = 10_000

TablePath = Annotated[str, typer.Argument(help="Local path or URL of the table.", metavar="PATH")]
"""The first argument of most commands."""
Settings = Annotated[
    list[str], typer.Option("--option", help="An option as name=value; may be repeated.")
]
"""Options of the table."""
Where = Annotated[
    str | None, typer.Option(help="SQL filter, such as \"status = 'done' and fare > 10\".")
]
Param = Annotated[
    list[str], typer.Option(help="A value for :name in the filter, as name=value; may be repeated.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would change, without changing it.")
]
Partitions = Annotated[
    list[str], typer.Option(help="Path of a partition such as city=Oslo, with * as a wildcard.")
]
Columns = Annotated[list[str], typer.Option(help="Column names, separated by commas or repeated.")]


def prepare_streams() -> None:
    """Let the standard streams accept all text, and replace closed ones by null."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    _encode()


def encode_as_json() -> None:
    """Write UTF-8, the encoding of JSON, whatever the locale."""
    _encode(encoding="utf-8")


def _encode(encoding: str | None = None) -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding=encoding, errors="backslashreplace")


def output() -> Console:
    """Return the console for results."""
    if sys.stdout.isatty():
        return Console()
    return Console(width=_WIDE)


def errors() -> Console:
    """Return the console for everything else."""
    return Console(stderr=True)


def show_table(table: pa.Table) -> None:
    """Print all rows of a table."""
    show(table.column_names, (row.values() for row in rows_of(table)))


def show(names: Sequence[str], rows: Iterable[Iterable[object]], *, header: bool = True) -> None:
    """Print ``rows``, each with a value for each of ``names``.

    If words do not fit into the terminal side by side, each value has a line of its own.
    """
    grid = Grid(show_header=header)
    for name in names:
        grid.add_column(Text(name), overflow="fold")
    cells = [[_cell(value) for value in row] for row in rows]
    for row in cells:
        grid.add_row(*row)
    console = output()
    least = Measurement.get(console, console.options.update(width=_WIDE), grid).minimum
    if cells and header and least > console.width:
        grid = _blocks(names, cells)
    console.print(grid)


def _blocks(names: Sequence[str], rows: Iterable[Iterable[Text]]) -> Grid:
    """Return a grid with a section for each row, and a line for each of its values."""
    grid = Grid(show_header=False)
    grid.add_column()
    grid.add_column(overflow="fold")
    for row in rows:
        for name, cell in zip(names, row, strict=True):
            grid.add_row(Text(name), cell)
        grid.add_section()
    return grid


def _cell(value: object) -> Text:
    """Return a value as text without markup and control characters."""
    if value is None:
        return Text("-")
    return Text(_CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", str(value)))


def show_error(error: MdtError) -> None:
    """Print an error and its hint."""
    note(f"error: {error.message}", "red")
    if error.hint:
        note(f"hint: {for_command_line(error.hint)}")


def warn(warnings: Sequence[str]) -> None:
    """Print warnings."""
    for warning in warnings:
        note(f"warning: {warning}", "yellow")


def note(text: str, style: str | None = None) -> None:
    """Print a line to stderr."""
    errors().print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def show_text(text: str) -> None:
    """Print a result without formatting."""
    output().print(text, markup=False, highlight=False, soft_wrap=True)


def settings(arguments: Sequence[str]) -> dict[str, str]:
    """Return the arguments of ``--option name=value`` as a mapping. Raises Invalid for a missing
    value.
    """
    return {name.strip(): value.strip() for name, value in pairs("--option", arguments).items()}


def pairs(option: str, arguments: Sequence[str]) -> dict[str, str]:
    """Return the ``name=value`` arguments of ``option`` as a mapping. Raises Invalid for a missing
    value.
    """
    parts = [text.partition("=") for text in arguments]
    for name, equals, _ in parts:
        if not equals:
            raise Invalid(f"{option} {name!r} has no value", hint=f"write {option} name=value")
    return {name: value for name, _, value in parts}


def names(arguments: Sequence[str]) -> list[str]:
    """Split names that are comma-separated or repeated, see :func:`mdt.arguments.listed`.

    >>> names(["id, city", "fare"])
    ['id', 'city', 'fare']
    """
    return [name for text in arguments for name in listed(text)]


def value_of(text: str, type: pa.DataType, option: str) -> object:
    """Return ``text`` converted to ``type``. Raises Invalid, naming ``option``, if it does not
    convert.

    >>> value_of("7", pa.int32(), "KEY")
    7
    """
    try:
        return pa.scalar(text).cast(type).as_py()
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise Invalid(f"{option} {text!r} is not of type {type}: {error}") from error
