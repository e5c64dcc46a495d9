"""Reports about indexes: coverage, size and use, and advice to add or drop indexes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from indexes import paths as column_paths
from indexes import registry, values
from mdt.metadata.metadata import Metadata
from mdt.metadata.skipping_indexes import explained, index_of
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.metadata.statistics.usage import ColumnUse, Counts, IndexUse, TestUse
from mdt.scan.index_use import sample
from mdt.services.indexing.index_builder import coverage, short_spec

ADVICE_QUERIES_MIN = 10
"""Minimum number of counted queries for advice."""
ADVICE_SHARE_MIN = 0.02
"""Minimum share of the bytes read by queries on a column that an index must save. Less is within
the sampling error.
"""
ADVICE_QUERIES = 1_000
"""Number of queries in which an index must save more bytes than its own size."""

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
"""One row per index.

``coverage`` is the percentage of live rows that it covers, and ``files`` the number of covered
files. ``bytes`` is the size of its summaries. ``queries`` counts the queries that used it,
``pruned`` the files that it excluded, and ``last_used`` is the time of its last use. These are as
far as processes have reported them, and null if no query was counted. ``problem`` is the reason why
the index cannot be used, or null.
"""

NOT_COUNTED = (
    "no query was counted; create or open the table with the option mdt.usage.counts=true to count"
    " them"
)
"""Message if index use is requested but queries are not counted."""


@dataclass(frozen=True, slots=True)
class Advice:
    """A proposal to create or drop an index.

    Attributes:
        action: "create", "drop", or "count" if queries are not counted yet.
        index: The index as text, "" for "count".
        reason: Explanation with the numbers below.
        bytes: Size of the index.
        seconds: Time to build it.
        queries: Queries that use it, of ADVICE_QUERIES.
        saved: Bytes that these queries need not read.
        read: Bytes that these queries read without it.
        rows: Mean number of rows that match.
    """

    action: str
    index: str
    reason: str
    bytes: int = 0
    seconds: float = 0.0
    queries: int = 0
    saved: int = 0
    read: int = 0
    rows: int = 0

    def __str__(self) -> str:
        return f"{self.action} {self.index or 'queries'}: {self.reason}"


def index_table(metadata: Metadata, snapshot: Snapshot) -> pa.Table:
    """Return the indexes of a table in order of creation, schema INDEXES."""
    counts = metadata.usage.total()
    return pa.Table.from_pylist(
        [_row(snapshot, spec, counts) for spec in snapshot.definition.indexes], schema=INDEXES
    )


def _row(snapshot: Snapshot, spec: str, counts: Counts) -> dict[str, object]:
    parsed, index = index_of(spec)
    covered, rows = coverage(snapshot, spec)
    row: dict[str, object] = {
        "index": short_spec(spec),
        "kind": parsed.kind,
        "column": ", ".join(parsed.columns),
        "coverage": 100.0,
        "files": len(covered),
        "bytes": snapshot.index_bytes(spec),
    }
    if len(rows):
        row["coverage"] = 100.0 * float(covered.sum()) / float(rows.sum())
    if isinstance(index, str):
        row["problem"] = explained(snapshot.definition, spec, index)
    return row | _uses(counts, spec)


def _uses(counts: Counts, spec: str) -> dict[str, object]:
    """Return the counted use of an index; missing fields are null."""
    use = counts.indexes.get(spec, IndexUse())
    fields: dict[str, object] = {}
    if counts.queries:
        fields = {"queries": use.used, "pruned": use.pruned}
    if use.last_us:
        fields["last_used"] = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=use.last_us)
    return fields


def advise(metadata: Metadata, snapshot: Snapshot) -> list[Advice]:
    """Return indexes to drop because no query uses them, and indexes to create.

    Returns [] before ADVICE_QUERIES_MIN queries. If queries are not counted, the advice is to count
    them.
    """
    counts = metadata.usage.total()
    if not counts.queries and not metadata.options(snapshot.definition).usage_counts:
        return [Advice("count", "", NOT_COUNTED)]
    if counts.queries < ADVICE_QUERIES_MIN:
        return []
    return [*_to_drop(snapshot, counts), *_to_create(metadata, snapshot, counts)]


def _to_drop(snapshot: Snapshot, counts: Counts) -> Iterator[Advice]:
    """Yield indexes that save less than half of their own size in ADVICE_QUERIES queries.

    Only queries since the creation of the index count.
    """
    for spec in snapshot.definition.indexes:
        use, size = counts.indexes.get(spec, IndexUse()), snapshot.index_bytes(spec)
        if use.queries < ADVICE_QUERIES_MIN or registry.parse_spec(spec).kind.startswith(
            "table_stats"
        ):
            continue  # optimizers use them, queries do not
        uses, saved = (number * ADVICE_QUERIES // use.queries for number in (use.used, use.saved))
        if use.used and saved >= size // 2:
            continue
        reason = (
            f"of {use.queries} queries since it was created, {use.used} used it; in"
            f" {ADVICE_QUERIES:,} queries it saves {saved:,} bytes, but it takes {size:,} bytes and"
            " time in every write"
        )
        yield Advice("drop", short_spec(spec), reason, size, queries=uses, saved=saved)


def _to_create(metadata: Metadata, snapshot: Snapshot, counts: Counts) -> Iterator[Advice]:
    """Yield indexes that would save more than their own size in ADVICE_QUERIES queries.

    They must also save the share ADVICE_SHARE_MIN of the bytes read.
    """
    parsed = [registry.parse_spec(spec) for spec in snapshot.definition.indexes]
    indexed = {
        (column, spec.kind.partition("/")[0] == "text")
        for spec in parsed
        for column in spec.columns
    }
    for column, use in sorted(counts.columns.items()):
        field = column_paths.field_at(snapshot.definition.schema, column)
        if field is None or not values.supports(field.type) or snapshot.definition.key == (column,):
            continue
        for test, text in _proposals(column, use):
            spec = registry.parse_spec(text)
            if (column, spec.kind.partition("/")[0] == "text") in indexed or not test.queries:
                continue
            saved = (test.read - test.exact) * ADVICE_QUERIES // counts.queries
            if test.read - test.exact < ADVICE_SHARE_MIN * test.read:
                continue
            size, seconds = estimated_cost(metadata, snapshot, text)
            if saved > size:
                yield _create(text, test, counts.queries, saved, size, seconds)


def _create(
    index: str, test: TestUse, queries: int, saved: int, size: int, seconds: float
) -> Advice:
    tested, read = (number * ADVICE_QUERIES // queries for number in (test.queries, test.read))
    rows = test.rows // test.queries
    reason = (
        f"{test.queries} of {queries} queries test it and match {rows:,} rows on average; in"
        f" {ADVICE_QUERIES:,} queries it saves {saved:,} of {read:,} bytes, and it takes about"
        f" {size:,} bytes and {seconds:.1f} s to build"
    )
    return Advice("create", index, reason, size, seconds, tested, saved, read, rows)


def _proposals(column: str, use: ColumnUse) -> Iterator[tuple[TestUse, str]]:
    """Yield (counted queries, index that would serve them)."""
    ordered = TestUse()
    ordered.add(use.equality)
    ordered.add(use.range)
    yield ordered, str(registry.IndexSpec("bitmap", (column,)))
    yield use.text, str(registry.IndexSpec("text", (column,), {"tokenizer": "ngram(3)"}))


def estimated_cost(metadata: Metadata, snapshot: Snapshot, text: str) -> tuple[int, float]:
    """Return the estimated (bytes, build seconds) of an index, from building it for a sample."""
    spec, index = index_of(text)
    values_of = sample(metadata, snapshot, spec.columns[0])
    if isinstance(index, str) or not len(values_of):
        return 0, 0.0
    since = metadata.storage.now_us()
    size = len(index.summarize(values_of))
    seconds = (metadata.storage.now_us() - since) / 1e6
    times = int(snapshot.live_rows.sum()) / len(values_of)
    return round(size * times), seconds * times
