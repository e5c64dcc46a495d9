"""The commands ``mdt info`` and ``mdt stats``."""

from __future__ import annotations

from typing import Any

import typer

from mdt import table
from mdt.cli.commands import command, open_table, storage_options, tell, tell_rows
from mdt.cli.terminal import Columns, TablePath, names, note, show
from mdt.errors import Invalid
from mdt.metadata.files.file_group import LOG
from mdt.metadata.history.other_tables import describe_path
from mdt.stores.storage import open_storage


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    command(app)(info)
    command(app)(stats)


def info(path: TablePath) -> None:
    """Describe the table at PATH, or whatever else is there and how to proceed with it."""
    try:
        opened_table = open_table(path)
    except Invalid:
        directory = describe_path(open_storage(path, storage_options=storage_options()))
        if directory.kind == "nothing":
            raise
        document = {
            "path": path,
            "kind": directory.kind,
            "text": directory.text,
            "hint": directory.hint,
        }
        tell(document, f"{path}: {directory.text}\n{directory.hint}")
        return
    _tell_table(opened_table)


def _tell_table(t: table.Table) -> None:
    t = t.readable()
    definition, snapshot = t.definition, t.snapshot()
    files = snapshot.files.take(("kind", "size"), snapshot.live_numbers).to_pydict()
    rows, logs, size = t.scan().count(), files["kind"].count(LOG), sum(files["size"])
    columns = [
        {"name": f.name, "type": str(f.type), "nullable": f.nullable} for f in definition.declared
    ]
    document = {
        "path": t.path,
        "kind": "mdt",
        "name": definition.name,
        "table_type": definition.table_type,
        "key": definition.key,
        "partition_by": definition.partition_by,
        "ordering": definition.ordering,
        "key_index": definition.key_index,
        "scope": definition.scope,
        "indexes": definition.indexes,
        "options": definition.options,
        "formats": t.formats().to_pylist(),
        "seq": snapshot.seq,
        "instant": snapshot.last_instant,
        "rows": rows,
        "files": len(snapshot),
        "log_files": logs,
        "bytes": size,
        "columns": columns,
    }
    facts = {
        "path": t.path,
        "name": definition.name,
        "type": definition.table_type,
        "key": ", ".join(definition.key),
        "partitioned by": ", ".join(definition.partition_by) or "-",
        "ordering": ", ".join(definition.ordering) or "-",
        "key index": f"{definition.key_index}, unique per {definition.scope}",
        "indexes": ", ".join(definition.indexes) or "-",
        "options": ", ".join(f"{k}={v}" for k, v in definition.options.items()) or "-",
        "formats": ", ".join(map(_format_text, t.formats().to_pylist())),
        "commits": f"{snapshot.seq:,}, newest at {snapshot.last_instant}",
        "rows": f"{rows:,}",
        "files": f"{len(snapshot):,}, including {logs:,} log files",
        "bytes": f"{size:,}",
        "columns": ", ".join(f"{column['name']} {column['type']}" for column in columns),
    }
    tell(document, lambda: show(["", ""], facts.items(), header=False))


def _format_text(row: dict[str, Any]) -> str:
    if row["seq"] is None:
        return f"{row['format']}: unknown"
    return f"{row['format']} to commit {row['seq']:,}" if row["behind"] else str(row["format"])


def stats(path: TablePath, columns: Columns = []) -> None:
    """Show rows, nulls, min, max and bytes of each column, and distinct and common values of
    analyzed columns.
    """
    statistics = open_table(path).stats()
    chosen = names(columns)
    unknown = sorted(set(chosen).difference(statistics["column"].to_pylist()))
    if unknown:
        raise Invalid(
            f"there are no statistics for {', '.join(unknown)}",
            hint="mdt stats PATH shows all columns",
        )
    if chosen:
        rows = {row["column"]: row for row in statistics.to_pylist()}
        tell_rows(
            statistics.schema.empty_table().from_pylist(
                [rows[name] for name in chosen], statistics.schema
            )
        )
    else:
        tell_rows(statistics)
    if statistics["distinct"].null_count == len(statistics):
        note("for distinct and common values, run mdt index create PATH 'table_stats(COLUMN)'")
