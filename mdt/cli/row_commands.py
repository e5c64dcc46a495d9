"""The commands ``mdt get``, ``mdt update`` and ``mdt delete``."""

from __future__ import annotations

import json
from typing import Annotated

import pyarrow as pa
import typer

from mdt import table
from mdt.cli.commands import command, is_json, open_table, tell_written
from mdt.cli.output import FormatOption, Output, chosen_format, write_rows
from mdt.cli.row_files import STANDARD, Files, read_all
from mdt.cli.terminal import (
    Columns,
    DryRun,
    Param,
    Settings,
    TablePath,
    Where,
    names,
    note,
    pairs,
    value_of,
)
from mdt.errors import Invalid
from mdt.schema.declared import plain

Keys = Annotated[
    list[str],
    typer.Argument(
        help='Values of the key column, or JSON objects such as \'{"id": 7, "city": "Oslo"}\'.',
        metavar="KEY...",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    command(app)(get)
    command(app)(update)
    command(app)(delete)


def get(
    path: TablePath,
    key: Keys,
    columns: Columns = [],
    format: FormatOption = None,
    output: Output = STANDARD,
    option: Settings = [],
) -> None:
    """Print the rows with these keys. The exit code is 1 if some keys are absent."""
    t = open_table(path, option)
    keys = [_key(text, t) for text in key]
    rows: pa.Table = t.get(keys, names(columns) or None, missing="skip")
    write_rows(
        rows.schema,
        iter(rows.to_batches()),
        chosen_format(format, output, as_json=is_json()),
        output,
    )
    missing = len(keys) - len(rows)
    if missing:
        note(f"{missing} of {len(keys)} keys are not in the table")
        raise typer.Exit(1)


def _key(text: str, t: table.Table) -> dict[str, object]:
    """Return a key from the command line as values of the key and partition columns."""
    definition = t.definition
    if text.lstrip().startswith("{"):
        try:
            values = json.loads(text)
        except ValueError as error:
            raise Invalid(
                f"the key {text!r} is not JSON: {error}", hint="quote it: '{\"id\": 7}'"
            ) from error
    elif len(definition.key) == 1:
        values = {definition.key[0]: text}
    else:
        columns = ", ".join(f'"{name}": …' for name in definition.key)
        raise Invalid(
            f"the key of this table has {len(definition.key)} columns",
            hint=f"write each key as {{{columns}}}",
        )
    types = {
        name: plain(definition.declared.field(name).type)
        for name in (*definition.key, *definition.partition_by)
    }
    unknown = sorted(set(values).difference(types))
    if unknown:
        raise Invalid(
            f"{', '.join(unknown)} is not a key or partition column",
            hint=f"use {', '.join(types)}",
        )
    return {
        name: value_of(str(value), types[name], f"key column {name}")
        for name, value in values.items()
    }


def update(
    path: TablePath,
    set: Annotated[
        list[str],
        typer.Option(
            help="A new value as SQL over the row, such as fare='fare * 1.1'; may be repeated."
        ),
    ],
    where: Annotated[
        str, typer.Option(help="SQL filter of the rows to update; true for all rows.")
    ],
    param: Param = [],
    dry_run: DryRun = False,
    option: Settings = [],
) -> None:
    """Update columns of the rows that match a filter, in one commit."""
    params = pairs("--param", param)
    tell_written(
        open_table(path, option).update_where(
            pairs("--set", set), where, params=params, dry_run=dry_run
        )
    )


def delete(
    path: TablePath,
    file: Files = [],
    where: Where = None,
    param: Param = [],
    dry_run: DryRun = False,
    option: Settings = [],
) -> None:
    """Delete the rows whose keys are in files, or the rows that match a filter, in one commit."""
    if bool(file) == (where is not None):
        raise Invalid(
            "delete requires either files with keys or --where",
            hint="to delete all rows, use --where true",
        )
    t = open_table(path, option)
    if where is not None:
        tell_written(t.delete_where(where, params=pairs("--param", param), dry_run=dry_run))
    else:
        tell_written(t.delete(read_all(file, t.schema), dry_run=dry_run))
