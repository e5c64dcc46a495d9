"""SHOW CREATE TABLE of Spark's SQL, from what the table itself knows."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from mdt.arguments import backquoted, listing
from mdt.table import Table

SCHEMA = pa.schema([("createtab_stmt", pa.string())])


def create_statement(
    table: Table, location: str, name: str, columns: Sequence[tuple[str, str, str]]
) -> pa.Table:
    """Return the statement that makes an equal table without rows, if LOCATION is left out or names
    another place.

    ``name``: of the table, quoted.  ``columns``: as the catalog has them: a name, its type in SQL
    and its comment or "", for each column.  Options for the store are left out: they may be
    secrets.
    """
    definition = table.definition
    required = {field.name for field in definition.declared if not field.nullable}
    lines = []
    for column, type, comment in columns:
        null = " NOT NULL" if column in required else ""
        note = f" COMMENT {_text(comment)}" if comment else ""
        lines.append(f"  {backquoted(column)} {type}{null}{note}")
    said = {
        "key": listing(definition.key),
        "ordering": listing(filter(None, [definition.ordering])),
        "type": definition.table_type,
        "scope": definition.scope,
        "key_index": definition.key_index,
        "indexes": "; ".join(definition.indexes),
        **definition.options,
    }
    options = ",\n".join(f"  {_text(key)} = {_text(value)}" for key, value in said.items() if value)
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
