"""The command line: inspect, read, write and maintain tables.

Results go to stdout, progress and errors to stderr. :mod:`mdt.cli.commands` has the shared parts.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

import mdt
from mdt import option_lists, table
from mdt.cli import index_commands as cli_index
from mdt.cli import info_commands as cli_look
from mdt.cli import overwrite_commands as cli_overwriting
from mdt.cli import row_commands as cli_rows
from mdt.cli import service_commands as cli_services
from mdt.cli import sharing_commands as cli_sharing
from mdt.cli import show_command as cli_show
from mdt.cli import tag_commands as cli_tags
from mdt.cli.commands import (
    Commands,
    command,
    is_json,
    open_table,
    point,
    storage_options,
    tell,
    tell_commit,
    tell_rows,
    tell_written,
)
from mdt.cli.output import Format, FormatOption, Output, chosen_format, write_rows
from mdt.cli.row_files import STANDARD, Files, read_all, schema_of
from mdt.cli.terminal import (
    Columns,
    DryRun,
    Param,
    Partitions,
    Settings,
    TablePath,
    Where,
    names,
    pairs,
    settings,
    show,
    show_text,
    value_of,
)
from mdt.progress import bar
from mdt.schema.alter import type_of
from mdt.schema.definition import MERGE_ON_READ
from mdt.services.checking.problems import CheckReport, RepairReport
from mdt.services.layout.compaction_strategies import STRATEGIES

ROWS_SHOWN = 20
"""Default number of rows that ``scan`` shows as a table."""


app = typer.Typer(
    cls=Commands,
    help="Apache Hudi tables without a JAR, with indexes that pay.",
    epilog=(
        "Exit codes: 0; 1 if check or repair leaves problems, or if get does not find a key;"
        " 2 for usage and other errors; 130 if interrupted."
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
)
app.add_typer(cli_index.app, name="index")
cli_tags.register(app)
cli_show.register(app)
cli_services.register(app)
cli_sharing.register(app)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        print(f"mdt {mdt.__version__}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
]


@app.callback()
def _main(version: Version = False) -> None:
    """Apache Hudi tables without a JAR, with indexes that pay."""


ForgetDeletes = Annotated[
    bool,
    typer.Option("--forget-deletes", help="Drop the remembered ordering values of deletes."),
]
AsOf = Annotated[
    str | None,
    typer.Option(help="A past snapshot: a commit number, a tag, an instant, or 2026-02-28T12:00."),
]

# Inspecting and reading


cli_look.register(app)


@command(app)
def history(path: TablePath) -> None:
    """Show every commit, oldest first."""
    tell_rows(open_table(path).history().drop_columns(["txn", "rolled_back"]))


@command(app)
def files(path: TablePath, as_of: AsOf = None) -> None:
    """Show the live files."""
    tell_rows(
        open_table(path, as_of=as_of)
        .files()
        .select(["partition", "name", "instant", "size", "rows"])
    )


@command(app)
def scan(
    path: TablePath,
    where: Where = None,
    columns: Columns = [],
    param: Param = [],
    limit: Annotated[
        int | None,
        typer.Option(min=0, help=f"Maximum rows. The default is {ROWS_SHOWN} for a table."),
    ] = None,
    order_by: Annotated[
        str | None, typer.Option(help='Columns to sort by, such as "ts desc, id".')
    ] = None,
    format: FormatOption = None,
    output: Output = STANDARD,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the files and indexes to read, not the rows.")
    ] = False,
    as_of: AsOf = None,
    option: Settings = [],
) -> None:
    """Print the matching rows."""
    t = open_table(path, option, as_of)
    form = chosen_format(format, output, as_json=is_json())
    if form is Format.table and limit is None and not explain:
        limit = ROWS_SHOWN
    rows = t.scan(
        where,
        names(columns) or None,
        params=pairs("--param", param),
        limit=limit,
        order_by=order_by,
    )
    if explain:
        plan = rows.explain()
        tell(asdict(plan), lambda: show_text(str(plan)))
        return
    write_rows(rows.schema, rows.to_batches(), form, output)
    t.metadata.usage.report()


@command(app)
def changes(
    path: TablePath,
    since: Annotated[
        str, typer.Option(help="Changes after this commit: its number, an instant, or a time.")
    ],
    until: Annotated[
        str | None, typer.Option(help="Last commit, included. The default is the newest.")
    ] = None,
    mode: Annotated[
        str, typer.Option(help="net: a single change per key. all: each change of each commit.")
    ] = "net",
    before: Annotated[
        bool, typer.Option(help="Include rows before updates. --no-before reads far less.")
    ] = True,
    where: Where = None,
    columns: Columns = [],
    param: Param = [],
    format: FormatOption = None,
    output: Output = STANDARD,
    option: Settings = [],
) -> None:
    """Print the row changes between two commits."""
    until_point = None
    if until is not None:
        until_point = point(until)
    stream = open_table(path, option).changes(
        point(since),
        until_point,
        mode=mode,
        where=where,
        columns=names(columns) or None,
        params=pairs("--param", param),
        before=before,
    )
    form = chosen_format(format, output, as_json=is_json())
    write_rows(stream.schema, stream.to_batches(), form, output)


@command(app)
def count(
    path: TablePath,
    where: Where = None,
    param: Param = [],
    as_of: AsOf = None,
    option: Settings = [],
) -> None:
    """Print the number of matching rows."""
    t = open_table(path, option, as_of)
    rows = t.scan(where, params=pairs("--param", param)).count()
    tell({"count": rows}, str(rows))
    t.metadata.usage.report()


@command(app)
def options() -> None:
    """Show every option with its default and allowed values."""
    tell_rows(option_lists.options_list(), lambda: print(option_lists.options_table(), end=""))


# Writing


@command(app)
def create(
    path: TablePath,
    like: Annotated[
        Path, typer.Option(help="A Parquet, CSV, JSON lines or Arrow IPC file with the columns.")
    ],
    key: Annotated[
        list[str], typer.Option(help="Record key columns, separated by commas or repeated.")
    ],
    partition_by: Annotated[list[str], typer.Option(help="Partition columns.")] = [],
    ordering: Annotated[list[str], typer.Option(help="Columns whose larger values win.")] = [],
    type: Annotated[str, typer.Option(help="MERGE_ON_READ or COPY_ON_WRITE.")] = MERGE_ON_READ,
    key_index: Annotated[
        str | None,
        typer.Option(help="bloom (default), record, simple, bucket(buckets='8'), memory or lmdb."),
    ] = None,
    scope: Annotated[
        str | None, typer.Option(help="A key is unique per partition (default) or per table.")
    ] = None,
    index: Annotated[
        list[str], typer.Option(help="A skipping index, such as bitmap(status).")
    ] = [],
    option: Settings = [],
) -> None:
    """Create an empty table with the columns of a file."""
    created = table.create(
        path,
        schema_of(like),
        names(key),
        partition_by=names(partition_by),
        ordering=names(ordering),
        table_type=type,
        key_index=key_index,
        scope=scope,
        indexes=index,
        options=settings(option),
        storage_options=storage_options(),
    )
    tell({"path": created.path}, f"created {created.path}")


@command(app)
def upsert(
    path: TablePath,
    file: Files,
    evolve: Annotated[
        bool,
        typer.Option("--evolve", help="Add new columns of the files, and widen numbers."),
    ] = False,
    dry_run: DryRun = False,
    option: Settings = [],
) -> None:
    """Insert the rows of files, or replace rows whose key exists, in one commit."""
    t = open_table(path, option)
    tell_written(t.upsert(read_all(file, t.schema), evolve=evolve, dry_run=dry_run))


@command(app)
def alter(
    path: TablePath,
    add: Annotated[
        list[str],
        typer.Option(help="A new column, as name=type, such as tip=double; may be repeated."),
    ] = [],
    default: Annotated[
        list[str], typer.Option(help="Value of a new column in older rows, as name=value.")
    ] = [],
    drop: Annotated[
        list[str], typer.Option(help="Columns to drop, separated by commas or repeated.")
    ] = [],
    rename: Annotated[list[str], typer.Option(help="A new name, as old=new.")] = [],
    widen: Annotated[
        list[str], typer.Option(help="A wider type, as name=type, such as n=int64.")
    ] = [],
    reorder: Annotated[
        list[str], typer.Option(help="Columns to move to the front, in this order.")
    ] = [],
    nullable: Annotated[list[str], typer.Option(help="Columns that may be null from now on.")] = [],
    beyond_hudi: Annotated[
        bool,
        typer.Option("--beyond-hudi", help="Allow changes that Hudi's readers do not apply."),
    ] = False,
    set: Annotated[
        list[str], typer.Option(help="An option to store with the table, as name=value.")
    ] = [],
    unset: Annotated[list[str], typer.Option(help="An option to reset to its default.")] = [],
    rewrite: Annotated[
        bool, typer.Option("--rewrite", help="Write all rows again, for readers of other formats.")
    ] = False,
    dry_run: DryRun = False,
    option: Settings = [],
) -> None:
    """Alter columns or options of the table in one commit."""
    types = pairs("--add", add)
    options = {**pairs("--set", set), **dict.fromkeys(unset)}
    with bar("alter") as callback:
        result = open_table(path, option).alter(
            add=types,
            drop=names(drop),
            rename=pairs("--rename", rename),
            widen=pairs("--widen", widen),
            reorder=names(reorder),
            nullable=names(nullable),
            beyond_hudi=beyond_hudi,
            rewrite=rewrite,
            progress=callback,
            options=options,
            dry_run=dry_run,
            defaults={
                name: value_of(text, type_of(types.get(name, "string")), "--default")
                for name, text in pairs("--default", default).items()
            },
        )
    text = "nothing to alter"
    if result.instant:
        text = f"commit {result.seq} at {result.instant}"
    if dry_run:
        text = "the table can be altered this way; nothing was written"
    tell({"seq": result.seq, "instant": result.instant}, text, result.warnings)


cli_rows.register(app)
cli_overwriting.register(app)


# Maintenance


@command(app)
def compact(
    path: TablePath,
    strategy: Annotated[
        str, typer.Option(help=f"Which file groups come first: {', '.join(STRATEGIES)}.")
    ] = "log_bytes",
    partition: Partitions = [],
    budget_bytes: Annotated[int | None, typer.Option(min=0, help="Maximum bytes to read.")] = None,
    dry_run: DryRun = False,
    option: Settings = [],
) -> None:
    """Rewrite file groups with log files or deleted rows as base files."""
    with bar("compacting") as callback:
        result = open_table(path, option).compact(
            callback,
            strategy=strategy,
            partitions=partition or None,
            budget_bytes=budget_bytes,
            dry_run=dry_run,
        )
    text = "nothing to compact"
    if result.files_written:
        text = f"{result.files_written:,} file groups compacted"
    tell_commit(result, text)


@command(app)
def cluster(
    path: TablePath,
    by: Annotated[
        list[str],
        typer.Option(help="Columns to sort by, separated by commas or repeated, or auto."),
    ],
    curve: Annotated[str | None, typer.Option(help="sort, zorder or hilbert.")] = None,
    partition: Partitions = [],
    dry_run: DryRun = False,
    option: Settings = [],
) -> None:
    """Sort rows by columns, so that queries on them read few files."""
    columns: str | list[str] = names(by)
    if columns == ["auto"]:
        columns = "auto"
    with bar("clustering") as callback:
        result = open_table(path, option).cluster(
            columns,
            curve=curve,
            partitions=partition or None,
            progress=callback,
            dry_run=dry_run,
        )
    changes = [
        (name, f"{before:.1f}", f"{after:.1f}") for name, (before, after) in result.overlap.items()
    ]
    if result.files_read is not None:
        before, after = result.files_read
        changes.append(("(counted queries)", f"{before:.1f}", f"{after:.1f}"))

    def text() -> None:
        summary = (
            f"{result.groups_replaced:,} file groups became {result.groups_made:,}; commit"
            f" {result.seq} at {result.instant}"
        )
        if dry_run:
            summary = (
                f"at most {result.groups_replaced:,} file groups become about"
                f" {result.groups_made:,}, {result.rows:,} rows of about {result.bytes_written:,}"
                " bytes"
            )
        if not result.groups_replaced:
            summary = "no file group would gain from clustering"
        print(summary)
        show(["column", "files per value before", "after"], changes)

    tell(asdict(result), text, result.warnings)


@command(app)
def clean(
    path: TablePath,
    retain_commits: Annotated[
        int | None, typer.Option(help="Keep this many newest commits readable.")
    ] = None,
    retain_hours: Annotated[
        int | None, typer.Option(help="Keep the commits of this many hours readable.")
    ] = None,
    retain_versions: Annotated[
        int | None, typer.Option(help="Keep this many base files of each file group.")
    ] = None,
    dry_run: DryRun = False,
    option: Settings = [],
) -> None:
    """Remove old snapshots and the files that only they use, and archive old commits."""
    report = open_table(path, option).clean(
        retain_commits=retain_commits,
        retain_hours=retain_hours,
        retain_versions=retain_versions,
        dry_run=dry_run,
    )
    tell(asdict(report), str(report))


@command(app)
def purge(path: TablePath, dry_run: DryRun = False, option: Settings = []) -> None:
    """Remove every byte of deleted and replaced rows. All past snapshots end."""
    with bar("purging") as callback:
        report = open_table(path, option).purge(callback, dry_run=dry_run)
    tell(asdict(report), str(report))


@command(app)
def rekey(
    path: TablePath,
    forget_deletes: ForgetDeletes = False,
    dry_run: DryRun = False,
    option: Settings = [],
) -> None:
    """Change the secret of the key hash, so that nobody without access to the table can construct
    keys that collide.
    """
    with bar("rekeying") as callback:
        result = open_table(path, option).rekey(
            callback, forget_deletes=forget_deletes, dry_run=dry_run
        )
    tell_commit(result, "all keys rehashed")


@command(app)
def upgrade(
    path: TablePath,
    version: Annotated[int, typer.Option(help="Hudi's table version")] = 9,
    dry_run: DryRun = False,
    option: Settings = [],
) -> None:
    """Upgrade a table to Hudi's table version 9. Data files do not change."""
    result = open_table(path, option).upgrade(version, dry_run=dry_run)
    tell_commit(result, f"table version {version}")


@command(app)
def check(path: TablePath) -> None:
    """Verify all data and metadata. The exit code is 1 if there are problems."""
    with bar("checking") as callback:
        report = open_table(path).check(callback)
    _tell_report(report)


@command(app)
def repair(path: TablePath, dry_run: DryRun = False, option: Settings = []) -> None:
    """Rebuild what check finds damaged. The exit code is 1 if something is lost."""
    with bar("repairing") as callback:
        if dry_run:
            report = open_table(path, option).repair(callback, dry_run=True)
        else:
            report = table.repair(
                path, settings(option), storage_options=storage_options(), progress=callback
            )
    _tell_report(report)


def _tell_report(report: CheckReport | RepairReport) -> None:
    tell({"ok": report.ok, **asdict(report)}, lambda: show_text(str(report)))
    if not report.ok:
        raise typer.Exit(1)


@command(app)
def restore(
    path: TablePath,
    to: Annotated[str, typer.Argument(help="A commit number, a tag, an instant, or a time.")],
    dry_run: DryRun = False,
) -> None:
    """Restore the rows of an earlier snapshot, in one commit."""
    tell_written(open_table(path).restore(point(to), dry_run=dry_run))


@command(app)
def rollback(
    path: TablePath,
    commit: Annotated[str, typer.Argument(help="A commit number or an instant.")],
    dry_run: DryRun = False,
) -> None:
    """Undo a commit and all later commits, in one commit."""
    tell_written(open_table(path).rollback(point(commit), dry_run=dry_run))


@command(app)
def abort(path: TablePath, dry_run: DryRun = False) -> None:
    """Roll back all unfinished transactions now, including running ones. Their writers will
    retry.
    """
    recovery = open_table(path).abort(dry_run=dry_run)
    tell(
        asdict(recovery),
        f"{len(recovery.published)} instants published, {len(recovery.rolled_back)} rolled back,"
        f" {recovery.files_removed} files removed",
    )
