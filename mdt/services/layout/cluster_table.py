"""The cluster service: choose columns, run the clustering, and report its effect."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from indexes import paths as column_paths
from indexes import values
from mdt import logs
from mdt.arguments import one_of, texts
from mdt.commit.transaction import CommitResult
from mdt.config import Options
from mdt.errors import Invalid, Unsupported
from mdt.filters.leaves import column_name
from mdt.metadata.key_indexes import has_buckets
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.live_partitions import select
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.metadata.statistics.usage import Counts
from mdt.progress import Progress
from mdt.services.indexing.index_report import NOT_COUNTED
from mdt.services.layout.clustering import Clustering, ClusteringPlan, NothingGained
from mdt.services.layout.curves import COLUMNS_MAX, CURVES, HILBERT, SORT
from mdt.services.layout.ranges import overlaps
from mdt.services.layout.rewriting import RewriteRunner, in_process
from mdt.write.written_bytes import count_written, estimate

AUTO = "auto"
_AUTO_COLUMNS_MAX = 3
_AUTO_SHARE_MIN = 0.1
"""Minimum benefit of a further column, relative to the best column. A column with less would widen
the ranges of the others for little.
"""


@dataclass(frozen=True, slots=True)
class ClusterResult:
    """The result of a clustering.

    A dry run has upper bounds of the groups, rows and bytes, because only reading the rows shows
    which groups improve.

    Attributes:
        seq: Seq of the commit, or of the newest commit if nothing changed.
        instant: Hudi instant of the commit, or "".
        by, curve: The sort columns and the curve.
        groups_replaced, groups_made: Numbers of file groups.
        rows, bytes_written: Rows written, and the size of their files.
        overlap: Column -> mean number of a partition's files that contain a value (before, after).
            1.0 if no two files overlap.
        files_read: Mean number of a partition's files that a query for one value reads (before,
            after), over the columns of counted queries (``mdt.usage.counts``). None if no queries
            were counted.

    >>> t.cluster(by=["city"]).by
    ('city',)
    """

    seq: int
    instant: str
    by: tuple[str, ...]
    curve: str
    groups_replaced: int = 0
    groups_made: int = 0
    rows: int = 0
    overlap: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    files_read: tuple[float, float] | None = None
    attempts: int = 1
    warnings: tuple[str, ...] = ()
    bytes_written: int = 0


def cluster(
    metadata: Metadata,
    options: Options,
    by: str | Sequence[str],
    *,
    curve: str | None = None,
    partitions: str | Sequence[str] | None = None,
    progress: Progress | None = None,
    runner: RewriteRunner = in_process,
    commit: Callable[[Clustering], CommitResult[ClusteringPlan]],
) -> ClusterResult:
    """Cluster rows by columns; see :meth:`mdt.table.Table.cluster`.

    ``commit`` runs or plans the operation.
    """
    start, counts = metadata.newest(), metadata.usage.total()
    if has_buckets(start.definition.key_index):
        raise Unsupported(
            "a table with a bucket key index cannot be clustered, because each row belongs to the"
            " file group of its bucket",
            hint="use skipping indexes, or another key index for a new table",
        )
    chosen = select(start, partitions)
    if curve is not None:
        one_of("curve", curve, CURVES)
    columns = auto_columns(start, counts, chosen) if by == AUTO else _columns(start, by)
    if curve is None:
        curve = HILBERT if by == AUTO and len(columns) > 1 else SORT
    counted = _query_counts(counts)
    watched = dict.fromkeys(
        [*columns, *_ordered_columns(start, [name for name, n in counted.items() if n])]
    )
    before = overlaps(start, list(watched), chosen)
    with logs.service(metadata.storage, start.definition.name, "cluster") as facts:
        operation = Clustering(metadata, options, columns, curve, chosen, progress, runner)
        try:
            committed = commit(operation)
        except NothingGained:
            committed = None
        record = None if committed is None else committed.record
        if committed is None or record is None:
            overlap = {name: (before[name], before[name]) for name in columns}
            unchanged = ClusterResult(
                start.seq,
                "",
                columns,
                curve,
                overlap=overlap,
                files_read=_mean_overlap(counted, before, before),
            )
            return unchanged if committed is None else _with_plan(unchanged, committed, options)
        after = overlaps(committed.snapshot, list(watched), chosen)
        files = record.table("files")
        replaced = sum(map(len, record.replaced.values()))
        rows = sum(files["rows"].to_pylist())
        facts.update(
            by=",".join(columns), curve=curve, replaced=replaced, made=len(files), rows=rows
        )
        return ClusterResult(
            record.seq,
            record.instant,
            columns,
            curve,
            replaced,
            len(files),
            rows,
            {name: (before[name], after[name]) for name in columns},
            _mean_overlap(counted, before, after),
            committed.attempts,
            committed.warnings,
            count_written(record).bytes,
        )


def _with_plan(
    result: ClusterResult, planned: CommitResult[ClusteringPlan], options: Options
) -> ClusterResult:
    """Add the planned groups, rows and bytes to a result."""
    groups, snapshot = planned.plan.moved(), planned.snapshot
    files = [number for group in groups for number in snapshot.file_groups.members(group).tolist()]
    rows = int(snapshot.live_rows[files].sum())
    sizes = [
        sum(snapshot.file_groups.group(group).bytes for group in unit.groups)
        for unit in planned.plan.units
    ]
    file_count = sum(max(1, -(-size // options.max_file_bytes)) for size in sizes)
    size = estimate(snapshot, planned.plan).bytes
    return replace(
        result, groups_replaced=len(groups), groups_made=file_count, rows=rows, bytes_written=size
    )


def _query_counts(counts: Counts) -> dict[str, int]:
    """Return column -> number of queries with an equality or range test on it."""
    return {name: use.equality.queries + use.range.queries for name, use in counts.columns.items()}


def _columns(snapshot: Snapshot, by: str | Sequence[str]) -> tuple[str, ...]:
    """Return the columns ``by``.

    Raises Invalid for unknown columns, types without an order, and too many columns.
    """
    schema = snapshot.definition.schema
    columns = tuple(
        dict.fromkeys(column_name(name, schema) for name in texts("by", by, "['city', 'ts']"))
    )
    unknown = [name for name in columns if name not in _ordered_columns(snapshot, columns)]
    if unknown:
        names = ", ".join(schema.names)
        raise Invalid(
            f"rows cannot be sorted by {unknown[0]!r}",
            hint=f"use columns of scalar types: {names}",
        )
    if not 0 < len(columns) <= COLUMNS_MAX:
        raise Invalid(
            f"a table cannot be clustered by {len(columns)} columns",
            hint=f"use 1 to {COLUMNS_MAX} columns, the most used first",
        )
    return columns


def _ordered_columns(snapshot: Snapshot, names: Sequence[str]) -> list[str]:
    """Return the ``names`` of existing columns whose values have an order."""
    schema = snapshot.definition.schema
    fields = {name: column_paths.field_at(schema, name) for name in names}
    return [
        name
        for name, column in fields.items()
        if column is not None and values.supports(column.type)
    ]


def auto_columns(
    snapshot: Snapshot, counts: Counts, partitions: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Return the columns by which clustering would save the most reads.

    These are columns with many counted queries and much overlap between files. Partition columns
    are excluded because they do not separate files of a partition. Raises Invalid if no query was
    counted.
    """
    uses = {name: queries for name, queries in _query_counts(counts).items() if queries}
    candidates = [
        name
        for name in _ordered_columns(snapshot, list(uses))
        if name not in snapshot.definition.partition_by
    ]
    if not candidates:
        raise Invalid(
            f"no columns to cluster by can be chosen: {NOT_COUNTED}",
            hint="name the columns: by=['city', 'ts'], in SQL by => 'city, ts'",
        )
    overlap = overlaps(snapshot, candidates, partitions)
    worth = {name: uses[name] * max(overlap[name] - 1.0, 0.0) for name in candidates}
    best = max(worth.values())
    order = sorted(candidates, key=lambda name: (-worth[name], -uses[name], name))
    return tuple(name for name in order if worth[name] >= _AUTO_SHARE_MIN * best)[
        :_AUTO_COLUMNS_MAX
    ]


def _mean_overlap(
    uses: Mapping[str, int], before: Mapping[str, float], after: Mapping[str, float]
) -> tuple[float, float] | None:
    """Return the mean overlap (before, after) of the columns, weighted by their queries."""
    total = sum(n for name, n in uses.items() if name in before)
    if not total:
        return None
    means = [
        sum(n * overlap[name] for name, n in uses.items() if name in overlap) / total
        for overlap in (before, after)
    ]
    return means[0], means[1]
