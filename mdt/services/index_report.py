"""What a table's indexes cover, cost and do; and which to add or to drop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from indexes import paths as column_paths
from indexes import registry, values
from mdt.metadata.metadata import Metadata
from mdt.metadata.skipping import explained, index_of
from mdt.metadata.snapshot import Snapshot
from mdt.metadata.usage import ColumnUse, Counts, IndexUse
from mdt.services.indexing import coverage, short

ADVICE_QUERIES_MIN = 10
"""Advice from fewer queries than this would be advice from chance."""
ADVICE_SHARE_MIN = 0.05
"""Share of the queries that must filter on a column before an index on it is proposed."""

INDEXES = pa.schema(
    [
        ("index", pa.string()),
        ("kind", pa.string()),
        ("column", pa.string()),
        ("coverage", pa.float64()),
        ("files", pa.int64()),
        ("bytes", pa.int64()),
        ("queries", pa.int64()),
        ("pruned", pa.int64()),
        ("last_used", pa.timestamp("us", "UTC")),
        ("problem", pa.string()),
    ]
)
"""One row an index.  ``coverage``: percent of the rows in live files that it covers; ``files``: files covered; ``bytes``:
of its summaries; ``queries``, ``pruned``, ``last_used``: queries that asked it, files
it proved empty for them, and when it was last asked, as far as processes have reported, null where no query was counted;
``problem``: why it cannot be used, or null."""

NOT_COUNTED = "no query was counted; create or open the table with the option mdt.usage.counts=true to count them"
"""What those are told who ask how indexes are used where nobody counts."""


@dataclass(frozen=True, slots=True)
class Advice:
    """One proposal: ``action`` "create" or "drop", the ``index`` as text, the ``reason``, and ``bytes`` that it would free.

    ``action`` "count", of no index: nobody counts queries here, and the reason says how to begin.
    """

    action: str
    index: str
    reason: str
    bytes: int = 0

    def __str__(self) -> str:
        return f"{self.action} {self.index or 'queries'}: {self.reason}"


def index_table(metadata: Metadata, snapshot: Snapshot) -> pa.Table:
    """Return the indexes of a table, schema INDEXES, in the order in which they were created."""
    counts = metadata.usage.total()
    return pa.Table.from_pylist([_row(snapshot, spec, counts) for spec in snapshot.definition.indexes], schema=INDEXES)


def _row(snapshot: Snapshot, spec: str, counts: Counts) -> dict[str, object]:
    parsed, index = index_of(spec)
    covered, rows = coverage(snapshot, spec)
    found: dict[str, object] = {
        "index": short(spec),
        "kind": parsed.kind,
        "column": ", ".join(parsed.columns),
        "coverage": 100.0,
        "files": len(covered),
        "bytes": snapshot.index_bytes(spec),
    }
    if len(rows):
        found["coverage"] = 100.0 * float(covered.sum()) / float(rows.sum())
    if isinstance(index, str):
        found["problem"] = explained(snapshot.definition, spec, index)
    return found | _uses(counts, spec)


def _uses(counts: Counts, spec: str) -> dict[str, object]:
    """Return what is known of the use of an index; what is not there is null."""
    use = counts.indexes.get(spec, IndexUse())
    found: dict[str, object] = {}
    if counts.queries:
        found = {"queries": use.asked, "pruned": use.pruned}
    if use.last_us:
        found["last_used"] = _moment(use.last_us)
    return found


def _moment(us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)


def advise(metadata: Metadata, snapshot: Snapshot) -> list[Advice]:
    """Return indexes that no query uses, and columns that queries filter on without an index; [] before enough queries.

    Where no query was counted and none will be, the advice is to count.
    """
    counts = metadata.usage.total()
    if not counts.queries and not metadata.options(snapshot.definition).usage_counts:
        return [Advice("count", "", NOT_COUNTED)]
    if counts.queries < ADVICE_QUERIES_MIN:
        return []
    return [*_unused(snapshot, counts), *_wanted(snapshot, counts)]


def _unused(snapshot: Snapshot, counts: Counts) -> Iterator[Advice]:
    since = f"none of {counts.queries} queries since {_moment(counts.since_us):%Y-%m-%d} asked it"
    for spec in snapshot.definition.indexes:
        if spec not in counts.indexes:
            size = snapshot.index_bytes(spec)
            yield Advice("drop", short(spec), f"{since}; it has {size:,} bytes and costs time at every write", size)


def _wanted(snapshot: Snapshot, counts: Counts) -> Iterator[Advice]:
    parsed = [registry.parse_spec(spec) for spec in snapshot.definition.indexes]
    indexed = {(column, spec.kind.partition("/")[0] == "text") for spec in parsed for column in spec.columns}
    for column, use in sorted(counts.columns.items()):
        field = column_paths.field_at(snapshot.definition.schema, column)
        if field is None or not values.supports(field.type) or snapshot.definition.key == (column,):
            continue
        for asked, is_text, index, what in _proposals(column, use):
            if asked >= ADVICE_SHARE_MIN * counts.queries and (column, is_text) not in indexed:
                yield Advice("create", index, f"{asked} of {counts.queries} queries test {column} {what}")


def _proposals(column: str, use: ColumnUse) -> Iterator[tuple[int, bool, str, str]]:
    """Yield (queries, whether it is a text index, the index, what the queries do)."""
    if use.equality or use.range:
        how = "by equality and range"
        if not use.range:
            how = "by equality"
        elif not use.equality:
            how = "by range"
        yield max(use.equality, use.range), False, str(registry.IndexSpec("bitmap", (column,))), how
    if use.text:
        yield use.text, True, str(registry.IndexSpec("text", (column,), {"tokenizer": "ngram(3)"})), "for text in it"
