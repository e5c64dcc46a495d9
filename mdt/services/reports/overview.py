"""Notebook output of a table, from its metadata only."""

from __future__ import annotations

from collections.abc import Iterator

from mdt.display import html_columns, html_facts, html_table
from mdt.metadata.files.file_group import LOG
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.services.indexing.index_builder import coverage, short_spec


def table_html(path: str, snapshot: Snapshot) -> str:
    """Return a table's definition, counts, columns and indexes as HTML."""
    definition = snapshot.definition
    logs = int(((snapshot.kind == LOG) & snapshot.live).sum())
    live = int(snapshot.live_rows.sum())
    facts = {
        "path": path,
        "type": definition.table_type,
        "key": ", ".join(definition.key),
        "partitioned by": ", ".join(definition.partition_by) or "-",
        "ordering": ", ".join(definition.ordering) or "-",
        "key index": f"{definition.key_index}, unique per {definition.scope}",
        "commit": f"{snapshot.seq:,} at {snapshot.last_instant}",
        "rows": f"{live:,}",
        "files": f"{len(snapshot):,}, of these {logs:,} log files",
    }
    parts = [html_facts(f"mdt table {definition.name}", facts), html_columns(definition.schema)]
    if definition.indexes:
        parts.append(html_table("indexes", ("index", "files covered, rows"), _indexes(snapshot)))
    return "".join(parts)


def _indexes(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    for spec in snapshot.definition.indexes:
        covered, every = coverage(snapshot, spec)
        share = 100 * int(covered.sum()) // max(1, int(every.sum()))
        yield short_spec(spec), f"{len(covered):,} of {len(every):,}, {share} %"
