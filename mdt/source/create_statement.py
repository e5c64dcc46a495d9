"""SHOW CREATE TABLE of Spark SQL, from the table's own metadata."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from mdt.arguments import backquoted, listing
from mdt.table import Table

SCHEMA = pa.schema([("createtab_stmt", pa.string())])


def create_statement(
    table: Table, location: str, name: str, columns: Sequence[tuple[str, str, str]]
) -> pa.Table:
    """Return the statement that creates an equal, empty table at another or no LOCATION.

    ``name``: the table's quoted name. ``columns``: (name, SQL type, comment or ""). Store options
    are omitted because they may contain secrets.
    """
    definition = table.definition
    required = {field.name for field in definition.declared if not field.nullable}
    lines = []
    for column, type, comment in columns:
        null = " NOT NULL" if column in required else ""
        note = f" COMMENT {_text(comment)}" if comment else ""
        lines.append(f"  {backquoted(column)} {type}{null}{note}")
    settings = {
        "key": listing(definition.key),
        "ordering": listing(definition.ordering),
        "type": definition.table_type,
        "scope": definition.scope,
        "key_index": definition.key_index,
        "indexes": "; ".join(definition.indexes),
        **definition.options,
    }
    options = ",\n".join(
        f"  {_text(key)} = {_text(value)}" for key, value in settings.items() if value
    )
    partitions = ", ".join(map(backquoted, definition.partition_by))
    partitioned = f"PARTITIONED BY ({partitions})\n" if partitions else ""
    body = ",\n".join(lines)
    text = (
        f"CREATE TABLE {name} (\n{body})\nUSING mdt\nOPTIONS (\n{options})\n{partitioned}LOCATION"
        f" {_text(location)}\n"
    )
    return pa.Table.from_pylist([{"createtab_stmt": text}], SCHEMA)


def _text(value: object) -> str:
    escaped = str(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
